//! What the pages refer to is there: files and headings that they link to, source files that they name, results that they quote.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[path = "docs/links.rs"]
mod links;
#[path = "docs/markdown.rs"]
mod markdown;
#[path = "docs/results.rs"]
mod results;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn files_below(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files_below(&path, found),
            false => found.push(path),
        }
    }
}

/// Every page of the tree, results included.
fn all_pages() -> Vec<PathBuf> {
    /// What builds and tools leave behind, and what git keeps for itself.
    const PASSED_OVER: [&str; 4] = ["target", "node_modules", "corpus", "artifacts"];
    fn pages_below(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if entry.file_type().unwrap().is_dir() {
                if !name.starts_with('.') && !PASSED_OVER.contains(&name.as_str()) {
                    pages_below(&path, found);
                }
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    pages_below(&root(), &mut found);
    found
}

/// Those that explain the tree as it is.
fn pages() -> Vec<PathBuf> {
    let mut found = Vec::new();
    files_below(&root().join("docs"), &mut found);
    found.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    found.extend(
        [
            "README.md",
            "CHANGELOG.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "fuzz/README.md",
            "kernel/selftests/README.md",
        ]
        .map(|page| root().join(page)),
    );
    found
}

/// What stands between `open` and `close`, within a line.
fn between<'t>(text: &'t str, open: &'t str, close: char) -> impl Iterator<Item = &'t str> {
    text.lines().flat_map(move |line| {
        line.split(open).skip(1).filter_map(move |rest| Some(rest.split_once(close)?.0))
    })
}

/// Rules of `docs/internals/design.md`, by number.
fn invariants() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs/internals/design.md")).unwrap();
    let number = |line: &str| Some(line.strip_prefix("- **")?.split_once("**")?.0.to_owned());
    text.lines().filter_map(number).collect()
}

/// A letter and a number, as the invariants have.
fn is_number(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(|first| first.is_ascii_uppercase())
        && (2..=3).contains(&word.len())
        && chars.all(|digit| digit.is_ascii_digit())
}

#[test]
fn each_invariant_has_a_number_of_its_own_and_those_cited_are_there() {
    let invariants = invariants();
    let known: BTreeSet<&str> = invariants.iter().map(String::as_str).collect();
    assert!(known.len() > 50 && known.len() == invariants.len(), "a number twice: {invariants:?}");
    let mut sources = Vec::new();
    files_below(&root().join("crates"), &mut sources);
    sources.retain(|source| source.extension().is_some_and(|extension| extension == "rs"));
    let mut cited_count = 0;
    for source in sources {
        let text = std::fs::read_to_string(&source).unwrap();
        let in_brackets = between(&text, "(", ')').filter(|words| words.split(", ").all(is_number));
        let in_safety = between(&text, "// SAFETY: ", ':').filter(|words| is_number(words));
        for cited in in_brackets.chain(in_safety).flat_map(|words| words.split(", ")) {
            assert!(known.contains(cited), "{} cites {cited}", source.display());
            cited_count += 1;
        }
    }
    assert!(cited_count > 100, "{cited_count}");
}

#[test]
fn source_files_that_are_named_are_there() {
    let root = root();
    let mut sources = Vec::new();
    for dir in ["crates", "fuzz/fuzz_targets", "kernel"] {
        files_below(&root.join(dir), &mut sources);
    }
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        // Code in a line begins with every other of its ticks.
        let code = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        let is_source =
            |name: &&str| name.ends_with(".rs") && !name.contains(['*', ' ', '{']) && !name.starts_with('.');
        for name in code.filter(is_source) {
            let there = sources.iter().any(|source| source.ends_with(name));
            assert!(there, "{} names {name}", page.display());
        }
    }
}
