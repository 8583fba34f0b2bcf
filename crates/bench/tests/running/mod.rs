//! The benchmark as a program: run, and what it leaves behind.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use stillframe_testkit::find_program;

pub const BENCH: &str = env!("CARGO_BIN_EXE_stillframe-bench");

pub fn on_path(name: &str) -> bool {
    find_program(Path::new(name)).is_some()
}

/// The one directory of a run, with its name.
pub fn run_dir(out: &Path, name: &str) -> PathBuf {
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.file_name().unwrap().to_str().unwrap().ends_with(&format!("-{name}")));
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// The raw results in a run's directory, which say where they come from.
pub fn raw_results(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("results.json")).unwrap();
    assert!(!text.contains("  ") && !text.contains("\n\n"), "blanks: {text}");
    assert!(!text.contains("/tmp/") && !text.contains(env!("CARGO_MANIFEST_DIR")), "a path: {text}");
    let mut raw: Value = serde_json::from_str(&text).unwrap();
    let from = &raw["provenance"];
    let revision = from["revision"].as_str().unwrap();
    assert!(revision == "unknown" || revision[..12].bytes().all(|b| b.is_ascii_hexdigit()), "{revision}");
    assert!(from["command"].as_str().unwrap().starts_with("stillframe-bench "), "{from}");
    assert!(from["date"].as_str().unwrap().ends_with('Z'), "{from}");
    for field in ["cpu", "cores", "memory_bytes", "kernel"] {
        assert!(!from["machine"][field].is_null(), "{field}: {from}");
    }
    let Value::Array(results) = raw["results"].take() else { panic!("{raw}") };
    results
}

pub fn bench(args: &[&str]) -> String {
    let out = Command::new(BENCH).args(args).stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{args:?} failed:\n{stderr}");
    String::from_utf8(out.stdout).unwrap()
}

pub fn positive(value: &Value) {
    assert!(value.as_f64().is_some_and(|v| v > 0.0), "{value} should be positive");
}

/// Not through `eprintln!`, which a passing test swallows.
pub fn skipped(peer: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED for {peer}: {why}");
}
