//! The file that the counts are held against, one line a figure, and what it was counted with.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::count::figures::{Counts, Figure};
use crate::count::server::{run_tool, Plan};
use crate::error::{BenchError, Context, Result};
use crate::peer::Peer;

/// What instructions depend on beside the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Built {
    /// The compiler of the server.
    pub rustc: String,
    pub libc: String,
    /// Its architecture, and the vectors that libraries choose their code by.
    pub cpu: String,
    pub valgrind: String,
    /// Of cargo.
    pub profile: String,
}

impl Built {
    /// What counts a server here.
    ///
    /// # Errors
    /// A program that says so is missing.
    pub fn of(server: &Peer) -> Result<Built> {
        let path = std::fs::canonicalize(&server.binary).context(|| "find the server".to_owned())?;
        let bytes = std::fs::read(&path).context(|| format!("read {}", path.display()))?;
        let profile = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let line = |command: &mut Command| -> Result<String> {
            Ok(String::from_utf8_lossy(&run_tool(command)?.stdout).trim().to_owned())
        };
        Ok(Built {
            rustc: compiler_of(&bytes).unwrap_or_else(|| "unknown".to_owned()),
            libc: line(Command::new("getconf").arg("GNU_LIBC_VERSION"))?,
            cpu: cpu(),
            valgrind: line(Command::new("valgrind").arg("--version"))?,
            profile: profile.unwrap_or_default(),
        })
    }

    /// In what it differs from another.
    fn differences(&self, other: &Built) -> Vec<String> {
        let fields = |built: &Built| {
            [&built.rustc, &built.libc, &built.cpu, &built.valgrind, &built.profile].map(Clone::clone)
        };
        let names = ["rustc", "libc", "cpu", "valgrind", "profile"];
        let pairs = fields(self).into_iter().zip(fields(other));
        let differing = names.into_iter().zip(pairs).filter(|(_, (own, others))| own != others);
        differing.map(|(name, (own, others))| format!("{name} is {others}, in the file {own}")).collect()
    }
}

/// What rustc writes into what it compiles.
fn compiler_of(program: &[u8]) -> Option<String> {
    const MARK: &[u8] = b"rustc version ";
    let at = program.windows(MARK.len()).position(|window| window == MARK)?;
    let text = program[at + MARK.len()..].split(|byte| !(b' '..=b'~').contains(byte)).next()?;
    Some(String::from_utf8_lossy(text).trim().to_owned())
}

fn cpu() -> String {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        return "x86_64 with avx2".to_owned();
    }
    std::env::consts::ARCH.to_owned()
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Baseline {
    pub built: Built,
    figures: BTreeMap<String, f64>,
}

/// How a figure is called in the file.
fn key(plan: &Plan, figure: Figure) -> String {
    format!("{}: {}", plan.line(), figure.name())
}

/// What a check has found.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Above their bounds, each in a line.
    pub grown: Vec<String>,
    /// So far below that the file should be renewed.
    pub fallen: Vec<String>,
    /// Not in the file.
    pub unknown: Vec<String>,
}

/// What a figure falls below before the file should be renewed.
const FALLEN: f64 = 0.97;

impl Baseline {
    pub fn new(built: Built) -> Baseline {
        Baseline { built, figures: BTreeMap::new() }
    }

    pub fn read(path: &Path) -> Result<Baseline> {
        let text = std::fs::read_to_string(path).context(|| format!("read {}", path.display()))?;
        serde_json::from_str(&text)
            .map_err(|error| BenchError::failed(&format!("read {}", path.display()), error))
    }

    /// What the file was counted with, as it is here. Fails with what is different.
    pub fn check_built(&self, here: &Built) -> std::result::Result<(), String> {
        let differences = self.built.differences(here);
        match differences.is_empty() {
            true => Ok(()),
            false => Err(differences.join("; ")),
        }
    }

    pub fn set(&mut self, plan: &Plan, counts: &Counts) {
        self.figures.extend(Figure::ALL.map(|figure| (key(plan, figure), counts.get(figure))));
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| BenchError::failed("write the counts", error))?;
        std::fs::write(path, text + "\n").context(|| format!("write {}", path.display()))
    }

    /// Holds counts against the file.
    pub fn check(&self, plan: &Plan, counts: &Counts, verdict: &mut Verdict) {
        for figure in Figure::ALL {
            let (key, new) = (key(plan, figure), counts.get(figure));
            let Some(&old) = self.figures.get(&key) else {
                verdict.unknown.push(key);
                continue;
            };
            let line = || {
                let [old_text, new_text] = [old, new].map(|value| figure.text(value));
                format!("{key}: {old_text} -> {new_text} ({:.3} x)", new / old)
            };
            if new > figure.bound(old, plan.worker_count) {
                verdict.grown.push(line());
            } else if old > figure.bound(new, plan.worker_count) && new < old * FALLEN {
                verdict.fallen.push(line());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use stillframe_testkit::TempDir;

    use super::*;
    use crate::count::cases::Case;

    fn built() -> Built {
        let text = |name: &str| name.to_owned();
        Built {
            rustc: text("1.95.0"),
            libc: text("glibc 2.36"),
            cpu: text("x86_64 with avx2"),
            valgrind: text("valgrind-3.19.0"),
            profile: text("release"),
        }
    }

    fn plan(worker_count: usize) -> Plan {
        let case = Case::named("set").unwrap();
        Plan { case, pipeline: 16, worker_count, command_count: 1, share_of: 1 }
    }

    fn checked(old: f64, new: f64, worker_count: usize) -> Verdict {
        let (plan, mut verdict) = (plan(worker_count), Verdict::default());
        let mut baseline = Baseline::new(built());
        baseline.set(&plan, &Counts::all(old));
        baseline.check(&plan, &Counts::all(new), &mut verdict);
        verdict
    }

    #[test]
    fn what_grew_is_named_with_both_values() {
        let verdict = checked(4000.0, 4041.0, 1);
        assert_eq!((verdict.grown.len(), verdict.fallen.len()), (Figure::ALL.len(), 0));
        assert_eq!(verdict.grown[0], "set -P 16, 1 worker: instructions: 4000.0 -> 4041.0 (1.010 x)");
        assert!(checked(4000.0, 4039.0, 1).grown.is_empty());
        assert!(checked(4000.0, 4190.0, 2).grown.is_empty());
        assert_eq!(checked(4000.0, 4210.0, 2).grown.len(), Figure::ALL.len());
    }

    #[test]
    fn what_fell_far_is_told() {
        let verdict = checked(4000.0, 3800.0, 1);
        assert_eq!((verdict.grown.len(), verdict.fallen.len()), (0, Figure::ALL.len()));
        assert!(checked(4000.0, 3950.0, 1).fallen.is_empty());
    }

    #[test]
    fn a_figure_that_the_file_does_not_have_is_told() {
        let mut verdict = Verdict::default();
        Baseline::new(built()).check(&plan(1), &Counts::all(1.0), &mut verdict);
        assert_eq!(verdict.unknown.len(), Figure::ALL.len());
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_has_a_line_a_figure() {
        let dir = TempDir::new("counts");
        let path = dir.join("counts.json");
        let mut baseline = Baseline::new(built());
        for workers in [1, 2] {
            baseline.set(&plan(workers), &Counts::all(0.125));
        }
        baseline.write(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let line = "    \"set -P 16, 2 workers: page faults\": 0.125,";
        assert_eq!(text.lines().filter(|found| *found == line).count(), 1, "{text}");
        let read = Baseline::read(&path).unwrap();
        assert_eq!((&read.figures, &read.built), (&baseline.figures, &baseline.built));
        std::fs::write(&path, "{}").unwrap();
        assert!(Baseline::read(&path).is_err());
    }

    #[test]
    fn what_it_was_counted_with_is_compared() {
        let baseline = Baseline::new(built());
        assert_eq!(baseline.check_built(&built()), Ok(()));
        let here = Built { libc: "glibc 2.41".to_owned(), ..built() };
        assert_eq!(baseline.check_built(&here), Err("libc is glibc 2.41, in the file glibc 2.36".to_owned()));
    }

    #[test]
    fn a_program_says_what_compiled_it() {
        let program = b"\x7fELF\0GCC: (Debian)\0rustc version 1.95.0 (59807616e 2026-04-14)\0more";
        assert_eq!(compiler_of(program).unwrap(), "1.95.0 (59807616e 2026-04-14)");
        assert_eq!(compiler_of(b"none"), None);
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(compiler_of(&own).is_some());
    }
}
