//! Which file uses which, for all crates and kernel modules: no circle of files, and none of folders.
//!
//! Read from the imports and paths of each file's non-test code. A name belongs to the file of the longest module path
//! that it begins with, so what a parent re-exports counts as the parent's; only the crate's root is looked through.

#[path = "layers/c.rs"]
mod c;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::Visit;

type Module = Vec<String>;
type Arrows = BTreeMap<Module, BTreeSet<Module>>;

/// The files of one crate by module path; the root is empty.
struct Sources {
    files: BTreeMap<Module, PathBuf>,
    /// What the root re-exports, by name.
    exports: BTreeMap<String, Module>,
}

impl Sources {
    fn of(src: &Path) -> Sources {
        let mut sources = Sources { files: BTreeMap::new(), exports: BTreeMap::new() };
        sources.add(src, &mut Vec::new());
        if let Some(root) = sources.files.get(&Module::new()) {
            let root = syn::parse_file(&std::fs::read_to_string(root).unwrap()).unwrap();
            let mut seen = Paths { sources: &sources, inside: Module::new(), found: BTreeSet::new() };
            seen.visit_file(&root);
            sources.exports =
                seen.found.into_iter().filter_map(|path| Some((path.last()?.clone(), path))).collect();
        }
        sources
    }

    fn add(&mut self, dir: &Path, module: &mut Module) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap().to_string();
            if stem == "tests" || stem.ends_with("_tests") {
                continue;
            }
            let is_own = matches!(stem.as_str(), "lib" | "main" | "mod");
            if path.is_dir() {
                module.push(stem);
                self.add(&path, module);
                module.pop();
            } else if path.extension().is_some_and(|e| e == "rs") && stem != "main" {
                let mut file = module.clone();
                file.extend((!is_own).then_some(stem));
                assert!(
                    self.files.insert(file, path.clone()).is_none(),
                    "two files for one module: {path:?}"
                );
            }
        }
    }

    /// The file that a path of module names and a name leads to.
    fn owner(&self, path: &[String]) -> Option<&Module> {
        let path = match path {
            [name] if !self.files.contains_key(path) => {
                self.exports.get(name).map_or(path, |export| &export[..])
            }
            path => path,
        };
        (0..=path.len())
            .rev()
            .find_map(|len| self.files.get_key_value(&path[..len]))
            .map(|(module, _)| module)
    }

    fn arrows(&self) -> Arrows {
        let arrows_of = |(module, path): (&Module, &PathBuf)| {
            let text = std::fs::read_to_string(path).unwrap();
            let file = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let mut seen = Paths { sources: self, inside: module.clone(), found: BTreeSet::new() };
            seen.visit_file(&file);
            let uses = seen
                .found
                .iter()
                .filter_map(|path| self.owner(path))
                .filter(|to| *to != module && !to.is_empty());
            (module.clone(), uses.cloned().collect())
        };
        self.files.iter().filter(|(module, _)| !module.is_empty()).map(arrows_of).collect()
    }
}

/// Paths that a file names, from the crate's root.
struct Paths<'a> {
    sources: &'a Sources,
    /// The module that is being read.
    inside: Module,
    found: BTreeSet<Module>,
}

impl Paths<'_> {
    fn add(&mut self, path: &[String]) {
        let mut from_root = match path[0].as_str() {
            "crate" => Vec::new(),
            "self" | "super" => self.inside.clone(),
            child if self.sources.files.contains_key(&[&self.inside[..], &[child.to_string()]].concat()) => {
                self.inside.clone()
            }
            _ => return,
        };
        for name in path {
            match name.as_str() {
                "crate" | "self" => {}
                "super" => drop(from_root.pop()),
                name => from_root.push(name.to_string()),
            }
        }
        self.found.insert(from_root);
    }

    fn add_tree(&mut self, before: &mut Module, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_tree(before, &path.tree);
                before.pop();
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(before, tree)),
            syn::UseTree::Glob(_) => self.add(before),
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                before.push(ident.to_string());
                self.add(before);
                before.pop();
            }
        }
    }
}

fn is_for_tests(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|a| a.path().is_ident("cfg") && quote_of(a).contains("test"))
}

fn quote_of(attr: &syn::Attribute) -> String {
    attr.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default()
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attrs = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_for_tests(attrs) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.inside.push(item.ident.to_string());
        syn::visit::visit_item_mod(self, item);
        self.inside.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree(&mut Vec::new(), &item.tree);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.add(&path.segments.iter().map(|s| s.ident.to_string()).collect::<Vec<_>>());
        }
        syn::visit::visit_path(self, path);
    }
}

/// Groups of nodes that reach each other (Tarjan), those of one node left out.
fn circles(arrows: &Arrows) -> Vec<Vec<Module>> {
    let reach = |from: &Module| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(node) = open.pop() {
            for to in arrows.get(node).into_iter().flatten() {
                if seen.insert(to) {
                    open.push(to);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        arrows.keys().map(|from| (from, reach(from))).collect();
    let mut found: Vec<Vec<Module>> = Vec::new();
    for (from, to) in &reached {
        if !to.contains(*from) || found.iter().any(|circle| circle.contains(from)) {
            continue;
        }
        found.push(
            to.iter().filter(|node| reached[**node].contains(*from)).map(|node| (**node).clone()).collect(),
        );
    }
    found
}

/// The arrows between what lies directly in a folder.
fn arrows_inside(arrows: &Arrows, folder: &[String]) -> Arrows {
    let child = |module: &Module| {
        (module.len() > folder.len() && module.starts_with(folder)).then(|| module[..=folder.len()].to_vec())
    };
    let mut inside = Arrows::new();
    for (from, uses) in arrows {
        let Some(from) = child(from) else { continue };
        let entry = inside.entry(from.clone()).or_default();
        entry.extend(uses.iter().filter_map(child).filter(|to| *to != from));
    }
    inside
}

fn show(title: &str, arrows: &Arrows, out: &mut Vec<String>) {
    for circle in circles(arrows) {
        let names = |list: &mut dyn Iterator<Item = &Module>| {
            list.map(|m| m.join("::")).collect::<Vec<_>>().join(" ")
        };
        out.push(format!("{title}: circle of {}: {}", circle.len(), names(&mut circle.iter())));
        for from in &circle {
            let to = names(&mut arrows[from].iter().filter(|to| circle.contains(to)));
            out.push(format!("    {} -> {to}", from.join("::")));
        }
    }
}

#[test]
fn no_circle_of_files_or_folders() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let arrows = Sources::of(&entry.path().join("src")).arrows();
        show(&format!("{name}, files"), &arrows, &mut found);
        let folders: BTreeSet<Module> =
            arrows.keys().flat_map(|m| (0..m.len()).map(|len| m[..len].to_vec())).collect();
        for folder in folders {
            show(
                &format!("{name}, inside /{}", folder.join("/")),
                &arrows_inside(&arrows, &folder),
                &mut found,
            );
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn no_circle_of_files_in_the_kernel() {
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel");
    let mut found = Vec::new();
    for directory in ["async_fork", "exmap", "compat", "selftests", "bench"] {
        let arrows = c::arrows(&kernel.join(directory));
        let is_module = ["async_fork", "exmap"].contains(&directory);
        assert!(!is_module || arrows.values().any(|uses| !uses.is_empty()), "{directory}: nothing is used");
        show(&format!("kernel/{directory}"), &arrows, &mut found);
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
