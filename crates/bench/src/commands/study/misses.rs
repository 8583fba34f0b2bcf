//! Table 4: cache misses, as the processor counts them (`perf`), or as cachegrind reckons them where it does not.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use stillframe_testkit::find_program;

use super::args::Args;
use crate::error::{BenchError, Context, Result};
use crate::guest;
use crate::study::{Case, Host, Subject, Work, GUEST};

/// Last-level cache that cachegrind is to have: about that of the paper's processor, 15 MB. Smaller with `--quick`.
const CACHE_BYTES: u64 = 16 << 20;
const QUICK_CACHE_BYTES: u64 = 1 << 18;
/// Data in times of the cache.
const DATA_TIMES: u64 = 8;
const TICKS: u32 = 64;
const QUICK_TICKS: u32 = 8;

/// What an update costs beyond a run without any updates, in which the same cuts are taken and images made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MissRun {
    pub subject: Subject,
    pub counter: String,
    pub data_bytes: u64,
    pub update_count: u64,
    pub misses_per_update: f64,
    /// Of all memory that the updates and the snapshots touched, cuts and images included.
    pub misses: u64,
    pub idle_misses: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    Perf,
    Cachegrind { cache_bytes: u64 },
}

impl Counter {
    /// The better one that there is.
    ///
    /// # Errors
    /// There is none.
    pub fn best(is_quick: bool) -> Result<Counter> {
        let counted = Command::new("perf").args(["stat", "-x,", "-e", "cache-misses", "true"]).output();
        let is_supported = counted.is_ok_and(|output| {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            output.status.success() && text.contains("cache-misses") && !text.contains("not ")
        });
        if is_supported {
            return Ok(Counter::Perf);
        }
        match find_program(Path::new("valgrind")) {
            Some(_) => {
                let cache_bytes = if is_quick { QUICK_CACHE_BYTES } else { CACHE_BYTES };
                Ok(Counter::Cachegrind { cache_bytes })
            }
            None => Err(BenchError::NoBinary {
                binary: "perf with counters, or valgrind,".to_owned(),
                hint: "apt-get install valgrind".to_owned(),
            }),
        }
    }

    pub fn describe(self) -> String {
        match self {
            Counter::Perf => "perf stat -e cache-misses".to_owned(),
            Counter::Cachegrind { cache_bytes } => {
                format!(
                    "cachegrind, last-level cache of {} KB; copies by the kernel are not seen",
                    cache_bytes >> 10
                )
            }
        }
    }

    fn cache_bytes(self) -> u64 {
        match self {
            Counter::Perf => CACHE_BYTES,
            Counter::Cachegrind { cache_bytes } => cache_bytes,
        }
    }

    fn count(self, host: &Host, case: &Case, ticks: u32) -> Result<(u64, u64)> {
        let file = host.dir.join("misses");
        std::fs::create_dir_all(&host.dir).context(|| format!("create {}", host.dir.display()))?;
        let path = file.display().to_string();
        let words: Vec<String> = match self {
            Counter::Perf => ["stat", "-x,", "-e", "cache-misses", "-o", &path].map(str::to_owned).to_vec(),
            Counter::Cachegrind { cache_bytes } => vec![
                "--tool=cachegrind".to_owned(),
                "--cache-sim=yes".to_owned(),
                format!("--LL={cache_bytes},16,64"),
                format!("--cachegrind-out-file={path}"),
                "--quiet".to_owned(),
            ],
        };
        let program = match self {
            Counter::Perf => "perf",
            Counter::Cachegrind { .. } => "valgrind",
        };
        let mut command = guest::command_below(Path::new(program), &words, GUEST)?;
        // It warns of system calls and advice that it does not know.
        command.stderr(Stdio::null());
        let outcome = host.ask(&mut command, &host.plan(case.clone(), Work::Counted { ticks }))?;
        let text = std::fs::read_to_string(&file).context(|| "read what was counted".to_owned())?;
        let misses = match self {
            Counter::Perf => perf_misses(&text),
            Counter::Cachegrind { .. } => cachegrind_misses(&text),
        };
        let misses = misses.ok_or_else(|| BenchError::Failed("nothing was counted".to_owned()))?;
        Ok((misses, outcome.update_count))
    }
}

/// The first field of the line of `perf stat -x,`.
fn perf_misses(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("cache-misses"))?;
    line.split(',').next()?.parse().ok()
}

/// Reads and writes that missed the last level, of the whole program.
fn cachegrind_misses(text: &str) -> Option<u64> {
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    let (events, summary) = (of("events:")?, of("summary:")?);
    let count = |event: &str| {
        let at = events.iter().position(|name| name == event)?;
        summary.get(at)?.parse::<u64>().ok()
    };
    Some(count("DLmr")? + count("DLmw")?)
}

/// # Errors
/// The program that counts failed.
pub fn measure(args: &Args, host: &Host, counter: Counter, subject: Subject) -> Result<MissRun> {
    let data_bytes = counter.cache_bytes() * DATA_TIMES;
    let case = Case { data_bytes, ..args.base_case(subject) };
    let ticks = if args.quick { QUICK_TICKS } else { TICKS };
    let (misses, update_count) = counter.count(host, &case, ticks)?;
    let (idle_misses, _) = counter.count(host, &case, 0)?;
    Ok(MissRun {
        subject,
        counter: counter.describe(),
        data_bytes,
        update_count,
        misses_per_update: misses.saturating_sub(idle_misses) as f64 / update_count.max(1) as f64,
        misses,
        idle_misses,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read() {
        let text =
            "desc: D1\nevents: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw\nfn=a\nsummary: 9 8 7 6 5 40 3 2 2\n";
        assert_eq!(cachegrind_misses(text), Some(42));
        assert_eq!(cachegrind_misses("events: Ir\nsummary: 9\n"), None);
        assert_eq!(perf_misses("# started\n\n1234,,cache-misses,100,100.00,,\n"), Some(1234));
        assert_eq!(perf_misses("<not supported>,,cache-misses,0,100.00,,\n"), None);
    }
}
