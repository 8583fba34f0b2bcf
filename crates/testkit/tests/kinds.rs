//! A type of values is one entry of one list: the store decides by the type of a value in two files, its names and its forms in
//! dumps, and everywhere else asks the type (`crates/store/src/types/kind.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::visit::Visit;

/// What tells types of values apart, by the name of each enum.
const TYPES: [(&str, &[&str]); 5] = [
    ("ValueType", &["String", "List", "Set", "SortedSet", "Hash", "Stream"]),
    ("CollectionKind", &["List", "Set", "SortedSet", "Hash"]),
    ("Announced", &["List", "Set", "SortedSet", "Hash"]),
    ("RdbValue", &["String", "List", "Set", "SortedSet", "Hash"]),
    ("Element", &["Item", "Member", "Scored", "Field"]),
];

/// The files that decide.
const DECIDING: [&str; 2] = ["rdb/kind.rs", "value.rs"];

/// Variants in the patterns of a file, by their enum.
#[derive(Default)]
struct Patterns {
    found: BTreeMap<String, BTreeSet<String>>,
}

impl Patterns {
    fn add(&mut self, path: &syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if let [.., of, variant] = &names[..] {
            self.note(of, variant);
        }
    }

    fn note(&mut self, of: &str, variant: &str) {
        if TYPES.iter().any(|(name, variants)| *name == of && variants.contains(&variant)) {
            self.found.entry(of.to_owned()).or_default().insert(variant.to_owned());
        }
    }

    /// Whether the file tells types apart.
    fn decide(&self) -> bool {
        self.found.values().any(|variants| variants.len() > 1)
    }
}

fn is_for_tests(attrs: &[syn::Attribute]) -> bool {
    let of = |attr: &syn::Attribute| attr.meta.require_list().map(|list| list.tokens.to_string());
    attrs.iter().any(|attr| attr.path().is_ident("cfg") && of(attr).is_ok_and(|text| text.contains("test")))
}

impl<'ast> Visit<'ast> for Patterns {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_pat(&mut self, pattern: &'ast syn::Pat) {
        match pattern {
            syn::Pat::Path(pattern) => self.add(&pattern.path),
            syn::Pat::TupleStruct(pattern) => self.add(&pattern.path),
            syn::Pat::Struct(pattern) => self.add(&pattern.path),
            _ => {}
        }
        syn::visit::visit_pat(self, pattern);
    }

    /// `matches!` has its pattern among its tokens.
    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        if !called.path.is_ident("matches") {
            return;
        }
        let text = called.tokens.to_string();
        let words: Vec<&str> = text.split(|letter: char| !letter.is_alphanumeric()).collect();
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        words.windows(2).for_each(|pair| self.note(pair[0], pair[1]));
    }
}

fn decides(text: &str) -> bool {
    let mut patterns = Patterns::default();
    patterns.visit_file(&syn::parse_file(text).expect("Rust"));
    patterns.decide()
}

fn deciding_files(root: &Path, dir: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
        if path.is_dir() {
            deciding_files(root, &path, found);
        } else if stem != "tests" && !stem.ends_with("_tests") {
            let text = std::fs::read_to_string(&path).expect("a text");
            if decides(&text) {
                found.insert(path.strip_prefix(root).expect("a file of the crate").display().to_string());
            }
        }
    }
}

#[test]
fn the_store_asks_the_type() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/src");
    let mut found = BTreeSet::new();
    deciding_files(&root, &root, &mut found);
    let expected: BTreeSet<String> = DECIDING.map(str::to_owned).into();
    assert_eq!(found, expected, "what a file wants to know of a type is a method of `Kind`");
}

#[test]
fn what_decides_is_found() {
    assert!(decides("fn f(t: T) { match t { ValueType::Hash | ValueType::Set => {} _ => {} } }"));
    assert!(decides("fn f(e: E) { match e { Element::Item(_) => {} Element::Field { .. } => {} } }"));
    assert!(decides("fn f(t: T) -> bool { matches!(t, crate::ValueType::Hash | crate::ValueType::List) }"));
    assert!(!decides("fn f(e: E) { if let Element::Item(_) = e {} }"));
    assert!(!decides("fn f(e: E) { match e { Element::Inline(_) => {} Element::Outside(_) => {} } }"));
    assert!(!decides("fn f() -> [ValueType; 2] { [ValueType::Hash, ValueType::Set] }"));
    assert!(!decides("#[cfg(test)] mod tests { fn f() { matches!(t, ValueType::Hash | ValueType::Set); } }"));
}
