//! No room is too large to be seen at once: files of at most 800 lines, functions of at most 70.

use std::path::{Path, PathBuf};

use syn::visit::Visit;

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

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
