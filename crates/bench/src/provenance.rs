//! Where a figure comes from: which revision of the source, on what machine, by which command. Nothing here names a
//! directory or a host.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use stillframe_units::Utc;

use crate::machine::Machine;

#[derive(Clone, Debug, Serialize)]
pub struct Provenance {
    pub command: String,
    pub date: String,
    pub revision: String,
    pub machine: Machine,
}

impl Provenance {
    pub fn now() -> Self {
        let own = std::env::current_exe().unwrap_or_default();
        Self {
            command: command_line(std::env::args()),
            date: Utc::now().timestamp(),
            revision: revision_of(&own),
            machine: Machine::describe(),
        }
    }
}

/// The git revision that a program was built from, going by the working tree that it lies in (as `target/release` does):
/// `-dirty` if source files have changed since, and said so if the program is older than the revision.
pub fn revision_of(program: &Path) -> String {
    let Some(dir) = program.parent() else { return UNKNOWN.to_owned() };
    let git = |args: &[&str]| {
        let output = Command::new("git").arg("-C").arg(dir).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(mut revision) = git(&["rev-parse", "--short=12", "HEAD"]) else { return UNKNOWN.to_owned() };
    // What measurements wrote is no source.
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)results"]);
    if changed.is_none_or(|files| !files.is_empty()) {
        revision.push_str("-dirty");
    }
    let committed = git(&["log", "-1", "--format=%ct"]).and_then(|text| text.parse().ok());
    let committed = committed.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
    let built: Option<SystemTime> = std::fs::metadata(program).and_then(|m| m.modified()).ok();
    if built < committed {
        revision.push_str(" (the program was built before it was committed)");
    }
    revision
}

const UNKNOWN: &str = "unknown";

fn command_line(args: impl Iterator<Item = String>) -> String {
    let mut words: Vec<String> = args.map(|arg| without_paths(&arg)).collect();
    if let Some(program) = words.first_mut() {
        *program = program.rsplit('/').next().unwrap_or_default().to_owned();
    }
    words.join(" ")
}

/// Of each path from the root only what it ends with.
pub fn without_paths(text: &str) -> String {
    text.split_inclusive([' ', '=', ',', ':']).map(without_directories).collect()
}

fn without_directories(part: &str) -> &str {
    let end = part.trim_end_matches('/');
    match (part.starts_with('/'), end.rfind('/')) {
        (true, Some(at)) => &part[at + 1..],
        _ => part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_not_told() {
        let words = [
            "target/release/stillframe-bench",
            "pause",
            "--out=/x/results",
            "--data",
            "/mnt/disk/",
            "--variant",
            "old=/y/target/stillframe-server --busy-poll 0",
            "--get-percent",
            "50",
        ];
        assert_eq!(
            command_line(words.map(str::to_owned).into_iter()),
            "stillframe-bench pause --out=results --data disk/ --variant old=stillframe-server --busy-poll 0 \
             --get-percent 50"
        );
    }

    fn git(dir: &Path, args: &[&str]) {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
        let output = Command::new("git").arg("-C").arg(dir).args(identity).args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    #[test]
    fn a_program_names_the_revision_of_its_tree() {
        let tree = stillframe_testkit::TempDir::new("revision");
        assert_eq!(revision_of(&tree.join("program")), UNKNOWN);
        git(&tree, &["init", "-q"]);
        std::fs::create_dir_all(tree.join("target/release")).unwrap();
        std::fs::create_dir_all(tree.join("results")).unwrap();
        std::fs::write(tree.join("source"), "1").unwrap();
        std::fs::write(tree.join("results/old"), "1").unwrap();
        git(&tree, &["add", "."]);
        git(&tree, &["commit", "-q", "-m", "first"]);
        let program = tree.join("target/release/program");
        std::fs::write(&program, "").unwrap();
        let clean = revision_of(&program);
        assert!(clean.len() == 12 && clean.bytes().all(|b| b.is_ascii_hexdigit()), "{clean}");
        // What a measurement wrote does not make it dirty, a source file does.
        std::fs::write(tree.join("results/old"), "2").unwrap();
        assert_eq!(revision_of(&program), clean);
        std::fs::write(tree.join("source"), "2").unwrap();
        assert_eq!(revision_of(&program), format!("{clean}-dirty"));
        git(&tree, &["checkout", "-q", "source"]);
        let hour_ago = SystemTime::now() - Duration::from_secs(3600);
        std::fs::File::open(&program).unwrap().set_modified(hour_ago).unwrap();
        assert!(revision_of(&program).contains("built before"));
    }
}
