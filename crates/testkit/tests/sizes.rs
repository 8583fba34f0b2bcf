//! No room is too large to be seen at once: files of at most 800 lines, functions of at most 70, types of at most 60 methods over
//! all their own `impl`s in a crate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::visit::Visit;
use syn::{GenericArgument, GenericParam, ImplItem, Item, ItemImpl, PathArguments, Type};

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const METHODS_MAX: usize = 60;

fn rust_files(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Functions of a file that are too long.
struct Long<'f> {
    file: &'f Path,
    found: Vec<String>,
}

impl Long<'_> {
    fn measure(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let end = body.brace_token.span.close().end().line;
        let lines = end - signature.fn_token.span.start().line + 1;
        let name = &signature.ident;
        if lines > FUNCTION_LINES_MAX {
            self.found.push(format!("{}: fn {name} has {lines} lines", self.file.display()));
        }
    }
}

impl<'ast> Visit<'ast> for Long<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.measure(&function.sig, &function.block);
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig, &function.block);
        syn::visit::visit_impl_item_fn(self, function);
    }
}

fn too_long(file: &Path, text: &str) -> Vec<String> {
    let lines = text.lines().count();
    let parsed = syn::parse_file(text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut long = Long { file, found: Vec::new() };
    if lines > FILE_LINES_MAX {
        long.found.push(format!("{}: {lines} lines", file.display()));
    }
    long.visit_file(&parsed);
    long.found
}

/// A type by its name, and what its parameters are where an `impl` says so: `Trees` with `Hashed` is another type than with
/// `Ordered`.
type Named = (String, Vec<String>);

fn last_name(of: &Type) -> Option<String> {
    let Type::Path(path) = of else { return None };
    path.path.segments.last().map(|segment| segment.ident.to_string())
}

fn named(block: &ItemImpl) -> Option<Named> {
    let Type::Path(path) = &*block.self_ty else { return None };
    let segment = path.path.segments.last()?;
    let own: Vec<String> = block
        .generics
        .params
        .iter()
        .filter_map(|param| match param {
            GenericParam::Type(param) => Some(param.ident.to_string()),
            GenericParam::Lifetime(_) | GenericParam::Const(_) => None,
        })
        .collect();
    let mut arguments = Vec::new();
    if let PathArguments::AngleBracketed(angled) = &segment.arguments {
        let types = angled.args.iter().filter_map(|argument| match argument {
            GenericArgument::Type(of) => last_name(of),
            _ => None,
        });
        arguments.extend(types.filter(|name| !own.contains(name)));
    }
    Some((segment.ident.to_string(), arguments))
}

fn count(items: &[Item], counts: &mut BTreeMap<Named, usize>) {
    for item in items {
        match item {
            Item::Impl(block) if block.trait_.is_none() => {
                let methods = block.items.iter().filter(|item| matches!(item, ImplItem::Fn(_))).count();
                *named(block).map(|name| counts.entry(name).or_default()).expect("a type's name") += methods;
            }
            Item::Mod(inner) => inner.content.iter().for_each(|(_, items)| count(items, counts)),
            _ => {}
        }
    }
}

/// Types with more methods than they may have, and how many.
fn halls(texts: &[String]) -> Vec<String> {
    let mut counts = BTreeMap::new();
    for text in texts {
        count(&syn::parse_file(text).expect("a Rust file").items, &mut counts);
    }
    let with_general = |(name, arguments): &Named, own: usize| {
        let general = counts.get(&(name.clone(), Vec::new())).copied().unwrap_or(0);
        if arguments.is_empty() {
            own
        } else {
            own + general
        }
    };
    let totals = counts.iter().map(|(name, own)| (name, with_general(name, *own)));
    let large = totals.filter(|(_, total)| *total > METHODS_MAX);
    large.map(|((name, arguments), total)| format!("{name}{arguments:?}: {total} methods")).collect()
}

#[test]
fn files_and_functions_are_short() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    rust_files(&root.join("crates"), &mut files);
    rust_files(&root.join("fuzz"), &mut files);
    assert!(files.len() > 200, "{} files", files.len());
    let text = |file: &PathBuf| std::fs::read_to_string(file).expect("a text");
    let found: Vec<_> = files.iter().flat_map(|file| too_long(file, &text(file))).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn what_is_too_long_is_found() {
    let body = "    let _ = 1;\n".repeat(FUNCTION_LINES_MAX - 1);
    let text = format!("struct A;\nimpl A {{\nfn long(&self) {{\n{body}}}\n}}\nfn short() {{}}\n");
    assert_eq!(too_long(Path::new("a.rs"), &text), ["a.rs: fn long has 71 lines"]);
    let text = "// a line\n".repeat(FILE_LINES_MAX + 1);
    assert_eq!(too_long(Path::new("b.rs"), &text), ["b.rs: 801 lines"]);
}

#[test]
fn no_type_has_too_many_methods() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(crates).expect("the crates") {
        let sources = entry.expect("an entry").path().join("src");
        if !sources.is_dir() {
            continue;
        }
        let mut files = Vec::new();
        rust_files(&sources, &mut files);
        let texts: Vec<String> =
            files.iter().map(|file| std::fs::read_to_string(file).expect("a text")).collect();
        found.extend(halls(&texts).into_iter().map(|hall| format!("{}: {hall}", sources.display())));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_hall_is_found_over_several_impls_and_files() {
    let methods = |from: usize, count: usize| -> String {
        (from..from + count).map(|number| format!("fn m{number}(&self) {{}}\n")).collect()
    };
    let general = format!("struct A<T>(T);\nimpl<T> A<T> {{\n{}}}\n", methods(0, METHODS_MAX - 10));
    let one = format!("impl A<u8> {{\n{}}}\n", methods(100, 10));
    let another = format!("impl A<u16> {{\n{}}}\n", methods(100, 11));
    assert_eq!(halls(&[general.clone(), one.clone()]), Vec::<String>::new());
    assert_eq!(halls(&[general, one, another]), ["A[\"u16\"]: 61 methods"]);
}
