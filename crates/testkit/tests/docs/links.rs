//! Links lead somewhere: to files and directories of the tree, headings of pages, lines of sources. Other sites are not asked.

use std::path::Path;

use crate::markdown::Page;
use crate::{all_pages, root};

/// Whether it begins with a scheme (`https:`, `mailto:`).
fn is_elsewhere(link: &str) -> bool {
    link.split_once(':').is_some_and(|(scheme, _)| scheme.chars().all(|c| c.is_ascii_alphabetic()))
}

/// `L7` or `L7-L9`: the last line.
fn last_line(anchor: &str) -> Option<usize> {
    let last = anchor.split('-').next_back()?;
    last.strip_prefix('L')?.parse().ok()
}

fn check_anchor(target: &Path, anchor: &str) -> Result<(), String> {
    let text = std::fs::read_to_string(target).map_err(|error| error.to_string())?;
    let extension = target.extension().and_then(|extension| extension.to_str());
    match (extension, last_line(anchor)) {
        (Some("md"), _) => match Page::parse(&text).anchors {
            anchors if anchors.contains(anchor) => Ok(()),
            anchors => Err(format!("no such heading, of {anchors:?}")),
        },
        (Some("html"), _) if text.contains(&format!("id=\"{anchor}\"")) => Ok(()),
        (_, Some(line)) if (1..=text.lines().count()).contains(&line) => Ok(()),
        _ => Err("no such place".into()),
    }
}

fn check_link(root: &Path, page: &Path, link: &str) -> Result<(), String> {
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    if path.starts_with('/') {
        return Err("a path of one machine".into());
    }
    let target = if path.is_empty() { page.to_owned() } else { page.parent().unwrap().join(path) };
    let target = target.canonicalize().map_err(|error| error.to_string())?;
    if !target.starts_with(root) {
        return Err("outside of the tree".into());
    }
    anchor.map_or(Ok(()), |anchor| check_anchor(&target, anchor))
}

/// What is wrong with the links of a page.
fn broken(root: &Path, page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    let parsed = Page::parse(&text);
    let links = parsed.links.iter().filter(|link| !is_elsewhere(link));
    let wrong = links.filter_map(|link| Some((link, check_link(root, page, link).err()?)));
    let wrong = wrong.map(|(link, why)| format!("{}: {link}: {why}", page.display()));
    let unknown = parsed.unknown_names.iter();
    wrong.chain(unknown.map(|name| format!("{}: [{name}] is not explained", page.display()))).collect()
}

#[test]
fn links_lead_somewhere() {
    let pages = all_pages();
    for page in ["README.md", "fuzz/README.md", "kernel/selftests/README.md", "docs/measured/figures.md"] {
        assert!(pages.contains(&root().join(page)), "{page}");
    }
    let broken: Vec<_> = pages.iter().flat_map(|page| broken(&root(), page)).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn a_broken_link_is_found() {
    let dir = stillframe_testkit::TempDir::new("links");
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("docs")).unwrap();
    std::fs::write(root.join("docs/source.rs"), "one\ntwo\n").unwrap();
    std::fs::write(root.join("docs/other.md"), "# A heading\n").unwrap();
    let page = root.join("docs/page.md");
    let broken_of = |text: &str| {
        std::fs::write(&page, text).unwrap();
        broken(&root, &page)
    };
    for link in ["", "#own", "other.md", "other.md#a-heading", "source.rs#L2", "source.rs#L1-L2", "../docs"] {
        let text = format!("# Own\n[a]({link})\n[b][ref]\n\n[ref]: other.md\n[c](https://example.org/x)\n");
        assert_eq!(broken_of(&text), [""; 0], "{link}");
    }
    for link in [
        "nothing.md",
        "#nothing",
        "other.md#nothing",
        "source.rs#L3",
        "source.rs#two",
        "/etc/passwd",
        "../..",
        "../results/2026-01-01-nothing/report.md",
    ] {
        assert_eq!(broken_of(&format!("# Own\n[a]({link})\n")).len(), 1, "{link}");
        assert_eq!(broken_of(&format!("[a][ref]\n\n[ref]: {link}\n")).len(), 1, "{link}");
        assert_eq!(broken_of(&format!("<img src=\"{link}\">\n")).len(), 1, "{link}");
    }
    assert_eq!(broken_of("[a][nowhere]\n").len(), 1);
}
