//! What runs commands knows no sockets: no file of `crates/engine` names a module of theirs, and its manifest names no crate of
//! theirs. Only the mailbox of a worker, which a loop waits for, has a descriptor.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use syn::visit::Visit;

/// Modules and types whose names the engine does without.
const MODULES: [&str; 8] = [
    "std::net",
    "std::os::unix::net",
    "std::os::linux::net",
    "rustix::net",
    "rustix::event::epoll",
    "io_uring",
    "libc",
    "stillframe_server",
];

/// What has to do with descriptors, and the one file that may.
const DESCRIPTORS: [&str; 3] = ["std::os::fd", "rustix::event", "rustix::io"];
const MAILBOX: &str = "state/mailbox.rs";

/// Crates of sockets, and those that have some.
const CRATES: [&str; 9] =
    ["stillframe-server", "io-uring", "libc", "mio", "nix", "polling", "signal-hook", "socket2", "tokio"];

/// Paths that a file names, in its imports and elsewhere.
#[derive(Default)]
struct Paths {
    found: BTreeSet<String>,
}

impl Paths {
    fn of(text: &str) -> BTreeSet<String> {
        let mut paths = Paths::default();
        paths.visit_file(&syn::parse_file(text).expect("Rust"));
        paths.found
    }

    fn add_tree(&mut self, before: &str, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => self.add_tree(&format!("{before}{}::", path.ident), &path.tree),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(before, tree)),
            syn::UseTree::Glob(_) => drop(self.found.insert(format!("{before}*"))),
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                self.found.insert(format!("{before}{ident}"));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree("", &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.found.insert(names.join("::"));
        syn::visit::visit_path(self, path);
    }
}

/// Whether a path leads into a module, or is that.
fn is_in(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn named<'m>(text: &str, modules: &'m [&'m str]) -> Vec<&'m str> {
    let paths = Paths::of(text);
    // A glob of a module's parent gives its name, too.
    let names = |module: &str| {
        let parent = module.rsplit_once("::").map(|(parent, _)| format!("{parent}::*"));
        paths.iter().any(|path| is_in(path, module) || Some(path) == parent.as_ref())
    };
    modules.iter().copied().filter(|module| names(module)).collect()
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn dependencies(manifest: &str) -> Vec<String> {
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let of = |kind: &str| manifest.get(kind).and_then(toml::Value::as_table);
    ["dependencies", "dev-dependencies", "build-dependencies", "target"]
        .iter()
        .filter_map(|kind| of(kind))
        .flat_map(|table| table.keys().cloned())
        .collect()
}

#[test]
fn the_engine_names_no_socket() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine");
    let mut files = Vec::new();
    rust_files(&root.join("src"), &mut files);
    rust_files(&root.join("tests"), &mut files);
    assert!(files.len() > 100, "{} files", files.len());
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a text");
        assert_eq!(named(&text, &MODULES), [""; 0], "{}", file.display());
        if !file.ends_with(MAILBOX) {
            assert_eq!(named(&text, &DESCRIPTORS), [""; 0], "{}", file.display());
        }
    }
}

#[test]
fn the_engine_depends_on_no_crate_of_sockets() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/Cargo.toml");
    let found = dependencies(&std::fs::read_to_string(manifest).expect("a text"));
    assert!(found.contains(&"stillframe-store".to_owned()), "{found:?}");
    let of_sockets: Vec<_> =
        found.iter().filter(|name| CRATES.contains(&name.as_str()) || *name == "target").collect();
    assert!(of_sockets.is_empty(), "{of_sockets:?}");
}

#[test]
fn what_names_a_socket_is_found() {
    for text in [
        "use std::net::TcpStream;",
        "use std::{fmt, net::{self, IpAddr}};",
        "use std::os::unix::*;",
        "fn f() { let _ = std::os::unix::net::UnixStream::pair(); }",
        "fn f(s: &rustix::net::SocketAddrAny) {}",
        "use rustix::event::epoll as poll;",
    ] {
        assert_eq!(named(text, &MODULES).len(), 1, "{text}");
    }
    assert_eq!(named("use std::network::Net; use std::os::unix::ffi::OsStrExt;", &MODULES), [""; 0]);
    assert_eq!(named("use std::os::fd::OwnedFd;", &DESCRIPTORS), ["std::os::fd"]);
    assert_eq!(
        dependencies("[dependencies]\nmio.workspace = true\n[target.'cfg(unix)'.dependencies]\nnix = \"1\"")
            .len(),
        2
    );
}
