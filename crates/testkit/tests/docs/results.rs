//! What is measured: `results/` has what the pages quote, and nothing else. `docs/measured/measuring.md` says what is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::markdown::Page;
use crate::{all_pages, files_below, root};

/// What is kept as it is; all else is raw.
const PLAIN: [&str; 4] = ["md", "svg", "html", "png"];
const PACKED: [&str; 2] = ["gz", "xz"];

fn has_extension(file: &Path, of: &[&str]) -> bool {
    file.extension().and_then(|extension| extension.to_str()).is_some_and(|extension| of.contains(&extension))
}

/// The files that pages lead to.
fn linked(pages: &[PathBuf]) -> BTreeSet<PathBuf> {
    let of_page = |page: &PathBuf| {
        let links = Page::parse(&std::fs::read_to_string(page).expect("a page")).links;
        let paths = links.into_iter().map(|link| link.split('#').next().unwrap_or_default().to_owned());
        let files = paths.filter_map(|path| page.parent()?.join(path).canonicalize().ok());
        files.collect::<Vec<_>>()
    };
    pages.iter().flat_map(of_page).collect()
}

/// What should not be in a directory of results, of which `linked` are quoted.
fn superfluous(results: &Path, linked: &BTreeSet<PathBuf>) -> Vec<String> {
    let mut files = Vec::new();
    files_below(results, &mut files);
    let mut wrong: Vec<String> = Vec::new();
    let mut runs: BTreeMap<&Path, Vec<&PathBuf>> = BTreeMap::new();
    for file in &files {
        if !has_extension(file, &PLAIN) && !has_extension(file, &PACKED) {
            wrong.push(format!("{} is raw: gzip -9n packs it", file.display()));
        }
        runs.entry(file.parent().expect("a directory")).or_default().push(file);
    }
    for (run, files) in runs {
        let is_report = |file: &&&PathBuf| file.ends_with("report.md") || file.ends_with("README.md");
        match files.iter().find(is_report) {
            Some(_) if files.iter().any(|file| linked.contains(*file)) => {}
            Some(_) => wrong.push(format!("{} is quoted nowhere", run.display())),
            // Without a report each file speaks for itself.
            None => {
                let unlinked = files.iter().filter(|file| !linked.contains(**file));
                wrong.extend(unlinked.map(|file| format!("{} is quoted nowhere", file.display())));
            }
        }
    }
    wrong.extend(older_runs(results));
    wrong
}

/// Runs of whose name there is a newer one: `DATE-NAME`, the date with ten characters.
fn older_runs(results: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(results).expect("a directory").map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    let mut newest = BTreeMap::new();
    let dated = names.iter().filter_map(|name| Some((name.get(..10)?, name.get(11..)?)));
    let older = dated.filter_map(|(date, name)| {
        Some(format!("{}-{name} is older than {date}-{name}", newest.insert(name, date)?))
    });
    older.collect()
}

#[test]
fn results_are_those_that_pages_quote() {
    let results = root().join("results");
    let pages: Vec<_> = all_pages().into_iter().filter(|page| !page.starts_with(&results)).collect();
    let wrong = superfluous(&results, &linked(&pages));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_not_quoted_or_not_packed_is_found() {
    let dir = stillframe_testkit::TempDir::new("results");
    let root = dir.path().canonicalize().unwrap();
    let write = |file: &str, text: &str| {
        let file = root.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    write("page.md", "[a](results/2026-01-02-a/report.md) [log](results/kernel/quoted.log.gz)\n");
    write("results/2026-01-02-a/report.md", "");
    write("results/2026-01-02-a/results.json.gz", "");
    write("results/kernel/quoted.log.gz", "");
    let wrong = || superfluous(&root.join("results"), &linked(&[root.join("page.md")]));
    assert_eq!(wrong(), [""; 0]);
    for (file, what) in [
        ("results/2026-01-02-a/latency.csv", "is raw"),
        ("results/2026-01-02-a/part/report.md", "is quoted nowhere"),
        ("results/2026-01-02-b/report.md", "is quoted nowhere"),
        ("results/kernel/other.log.gz", "is quoted nowhere"),
    ] {
        write(file, "");
        let found = wrong();
        assert!(matches!(&found[..], [one] if one.contains(what)), "{file}: {found:?}");
        std::fs::remove_file(root.join(file)).unwrap();
    }
    write("page.md", "[a](results/2026-01-02-a/report.md) [b](results/2026-01-01-a/report.md) [log](results/kernel/quoted.log.gz)");
    write("results/2026-01-01-a/report.md", "");
    assert_eq!(wrong(), ["2026-01-01-a is older than 2026-01-02-a"]);
}
