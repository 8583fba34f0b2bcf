//! The test programs of the workspace, as cargo builds and names them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

/// A test program that has been built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    /// The package without its prefix, and the target: `store/collections`; `store/units` is what the library tests of itself.
    pub name: String,
    pub program: PathBuf,
    /// The directory of its package, where cargo would run it.
    pub dir: PathBuf,
    /// Whether it tests the inside of a library or a program.
    pub is_units: bool,
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds what is not built, and names the test programs.
///
/// # Errors
/// Cargo cannot be started, or the build fails; cargo has said why.
pub fn test_programs() -> Result<Vec<Suite>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let out = Command::new(cargo)
        .args(["test", "--workspace", "--locked", "--no-run", "--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo cannot be started: {error}"))?;
    if !out.status.success() {
        return Err("the tests cannot be built".to_owned());
    }
    let mut suites: Vec<Suite> = String::from_utf8_lossy(&out.stdout).lines().filter_map(suite).collect();
    suites.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(suites)
}

/// The suite that a line of cargo's output tells of, if any.
fn suite(line: &str) -> Option<Suite> {
    let message: Message = serde_json::from_str(line).ok()?;
    let is_test = message.reason == "compiler-artifact" && message.profile?.test;
    let (target, manifest) = (message.target?, message.manifest_path?);
    let dir = manifest.parent().map(Path::to_path_buf)?;
    let package = dir.file_name()?.to_str()?.to_owned();
    let is_units = target.kind.iter().any(|kind| kind == "lib" || kind == "bin");
    let of_package = match (target.kind.first()?.as_str(), &target.name) {
        ("lib", _) => "units".to_owned(),
        ("bin", _) => "program".to_owned(),
        (_, name) => name.clone(),
    };
    is_test.then_some(Suite {
        name: format!("{package}/{of_package}"),
        program: message.executable?,
        dir,
        is_units,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_named_after_package_and_target() {
        let line = r#"{"reason":"compiler-artifact","package_id":"path+file:///r/crates/store#stillframe-store@0.1.0",
            "manifest_path":"/r/crates/store/Cargo.toml","target":{"kind":["test"],"name":"trees"},
            "profile":{"test":true},"executable":"/r/target/debug/deps/trees-1"}"#;
        let found = suite(&line.replace('\n', "")).unwrap();
        assert_eq!((found.name.as_str(), found.is_units), ("store/trees", false));
        assert_eq!(found.dir, Path::new("/r/crates/store"));
        let units = line.replace('\n', "").replace(r#"["test"]"#, r#"["lib"]"#);
        assert_eq!(suite(&units).unwrap().name, "store/units");
    }

    #[test]
    fn what_is_not_a_test_program_is_none() {
        assert_eq!(suite("a warning"), None);
        assert_eq!(suite(r#"{"reason":"build-finished","success":true}"#), None);
        let library = r#"{"reason":"compiler-artifact","manifest_path":"/r/crates/store/Cargo.toml",
            "target":{"kind":["lib"],"name":"stillframe_store"},"profile":{"test":false},"executable":null}"#;
        assert_eq!(suite(&library.replace('\n', "")), None);
    }
}
