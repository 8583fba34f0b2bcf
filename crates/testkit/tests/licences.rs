//! Every package that is built has a licence that `deny.toml` allows. `cargo deny`, where it is installed, looks for
//! advisories besides; this needs neither it nor the network.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use spdx::{Expression, ParseMode};

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The licences of `deny.toml`, and those that single packages may have besides.
struct Allowed {
    licences: Vec<String>,
    exceptions: Vec<(String, Vec<String>)>,
}

fn texts(list: &toml::Value) -> Vec<String> {
    let items = list.as_array().expect("a list").iter();
    items.map(|item| item.as_str().expect("a text").to_owned()).collect()
}

impl Allowed {
    fn parse(text: &str) -> Allowed {
        let file: toml::Table = text.parse().expect("deny.toml");
        let licences = &file["licenses"];
        let exceptions = licences.get("exceptions").and_then(toml::Value::as_array);
        let exception = |entry: &toml::Value| {
            (entry["crate"].as_str().expect("a package").to_owned(), texts(&entry["allow"]))
        };
        Allowed {
            licences: texts(&licences["allow"]),
            exceptions: exceptions.map(|all| all.iter().map(exception).collect()).unwrap_or_default(),
        }
    }

    /// Why a package may not be used.
    fn refuse(&self, package: &str, licence: Option<&str>) -> Option<String> {
        let Some(licence) = licence else { return Some(format!("{package} names no licence")) };
        let expression = match Expression::parse_mode(licence, ParseMode::LAX) {
            Ok(expression) => expression,
            Err(error) => return Some(format!("{package}: {error}")),
        };
        let own =
            self.exceptions.iter().filter(|(name, _)| name == package).flat_map(|(_, licences)| licences);
        let allowed: Vec<&String> = self.licences.iter().chain(own).collect();
        let is_allowed =
            expression.evaluate(|wanted| allowed.iter().any(|allowed| **allowed == wanted.to_string()));
        (!is_allowed).then(|| format!("{package}: {licence} is not allowed by deny.toml"))
    }
}

/// What cargo says of a workspace and all that it is built of on this platform; the reason if it cannot.
fn metadata(manifest: &Path, args: &[&str]) -> Result<Value, String> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--format-version", "1"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu", "--manifest-path"])
        .arg(manifest)
        .args(args)
        .output()
        .expect("cargo");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(serde_json::from_slice(&output.stdout).expect("what cargo says"))
}

/// The packages that must not be used, and how many were looked at.
fn refused(allowed: &Allowed, metadata: &Value) -> (Vec<String>, usize) {
    let packages = metadata["packages"].as_array().expect("packages");
    let refused = packages.iter().filter_map(|package| {
        let name = package["name"].as_str().expect("a name");
        let is_from_registry =
            package["source"].as_str().is_none_or(|source| source.starts_with("registry+"));
        if !is_from_registry {
            return Some(format!("{name} comes from {}", package["source"]));
        }
        allowed.refuse(name, package["license"].as_str())
    });
    (refused.collect(), packages.len())
}

#[test]
fn licences_are_allowed() {
    let allowed = Allowed::parse(&std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml"));
    // What the tests are built of is there, or can be got; the rest is where the race, or a fuzzer, has been built.
    for (manifest, args, must_be_there) in [
        ("Cargo.toml", &[][..], true),
        ("Cargo.toml", &["--all-features", "--offline"], false),
        ("fuzz/Cargo.toml", &["--offline"], false),
    ] {
        match metadata(&root().join(manifest), args) {
            Ok(metadata) => {
                let (refused, count) = refused(&allowed, &metadata);
                assert!(refused.is_empty(), "{manifest} {args:?}: {refused:#?}");
                println!("{manifest} {args:?}: {count} packages");
                assert!(count > 20, "{count}");
            }
            Err(error) if must_be_there => panic!("{error}"),
            Err(error) => println!("SKIP {manifest} {args:?}: its packages are not on this machine: {error}"),
        }
    }
}

#[test]
fn what_is_not_allowed_is_found() {
    let allowed = Allowed::parse(
        "[licenses]\nallow = [\"MIT\", \"Apache-2.0\", \"Apache-2.0 WITH LLVM-exception\"]\n\
         exceptions = [{ allow = [\"CC0-1.0\"], crate = \"notes\" }]\n",
    );
    for (package, licence) in [
        ("a", "MIT"),
        ("a", "MIT/Apache-2.0"),
        ("a", "GPL-3.0-only OR MIT"),
        ("a", "MIT AND Apache-2.0"),
        ("a", "Apache-2.0 WITH LLVM-exception"),
        ("notes", "CC0-1.0"),
    ] {
        assert_eq!(allowed.refuse(package, Some(licence)), None, "{licence}");
    }
    for (package, licence) in [
        ("a", None),
        ("a", Some("GPL-3.0-only")),
        ("a", Some("MIT AND GPL-3.0-only")),
        ("a", Some("CC0-1.0")),
        ("a", Some("whatever one likes")),
    ] {
        assert!(allowed.refuse(package, licence).is_some(), "{licence:?}");
    }
    let package = |source: &str| serde_json::json!({ "name": "a", "license": "MIT", "source": source });
    let metadata = serde_json::json!({ "packages": [
        package("registry+https://github.com/rust-lang/crates.io-index"),
        package("git+https://example.org/a"),
    ] });
    assert_eq!(refused(&allowed, &metadata).0.len(), 1);
}
