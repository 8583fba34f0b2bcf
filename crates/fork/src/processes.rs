//! `/proc/async_fork_processes`: what the module knows of single processes. Only root may read it.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::time::{Duration, UNIX_EPOCH};

use stillframe_units::Utc;

use crate::abi::PROCESSES_FILE;
use crate::cgroup::Strategy;
use crate::explain::{Refusal, REFUSALS};
use crate::root::Root;

/// A process with a strategy of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub pid: i32,
    pub strategy: Strategy,
}

/// A process that opted in, and whose last forks took the default path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub pid: i32,
    /// As in `forks_refused_*`.
    pub why: String,
    pub fork_count: u64,
    /// Of the first and of the last of them, since 1970.
    pub since_s: u64,
    pub last_s: u64,
    pub name: String,
}

/// How one process would fork now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub strategy: Strategy,
    /// The process's own setting, not its cgroup's.
    pub is_own: bool,
    /// Why the fork would take the default path.
    pub refusal: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processes {
    pub settings: Vec<Setting>,
    pub refused: Vec<Refused>,
}

impl Processes {
    /// Nothing if the file is missing (an older module) or may not be read.
    pub fn read(root: &Root) -> Option<Self> {
        Some(Self::parse(&root.text(PROCESSES_FILE)?))
    }

    fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines() {
            found.settings.extend(setting(line));
            found.refused.extend(refused(line));
        }
        found
    }

    pub fn refused(&self, pid: i32) -> Option<&Refused> {
        self.refused.iter().find(|r| r.pid == pid)
    }
}

impl Refused {
    pub fn since(&self) -> String {
        utc(self.since_s)
    }

    pub fn last(&self) -> String {
        utc(self.last_s)
    }

    pub fn explained(&self) -> Option<&'static Refusal> {
        explained(&self.why)
    }
}

pub fn explained(why: &str) -> Option<&'static Refusal> {
    REFUSALS.iter().find(|refusal| refusal.name == why)
}

fn utc(since_1970_s: u64) -> String {
    let at = UNIX_EPOCH.checked_add(Duration::from_secs(since_1970_s));
    at.map_or_else(|| format!("{since_1970_s} s after 1970"), |at| Utc::from(at).timestamp())
}

/// How the process would fork now. Nothing if the module does not say.
pub fn ask(root: &Root, pid: i32) -> Option<Asked> {
    let mut file = OpenOptions::new().read(true).write(true).open(root.path(PROCESSES_FILE)).ok()?;
    file.write_all(format!("{pid}\n").as_bytes()).ok()?;
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.lines().find_map(|line| asked(line, pid))
}

fn strategy(name: &str, threads: &str) -> Option<Strategy> {
    match name {
        "default" => Some(Strategy::Default),
        "async" => Some(Strategy::Async { copy_threads: threads.parse().ok()? }),
        "odf" => Some(Strategy::Odf),
        _ => None,
    }
}

fn setting(line: &str) -> Option<Setting> {
    let mut words = line.strip_prefix("setting ")?.split(' ');
    let pid = words.next()?.parse().ok()?;
    Some(Setting { pid, strategy: strategy(words.next()?, words.next()?)? })
}

fn refused(line: &str) -> Option<Refused> {
    let mut words = line.strip_prefix("refused ")?.splitn(6, ' ');
    Some(Refused {
        pid: words.next()?.parse().ok()?,
        why: words.next()?.to_owned(),
        fork_count: words.next()?.parse().ok()?,
        since_s: words.next()?.parse().ok()?,
        last_s: words.next()?.parse().ok()?,
        name: words.next()?.to_owned(),
    })
}

fn asked(line: &str, pid: i32) -> Option<Asked> {
    let mut words = line.strip_prefix("asked ")?.split(' ');
    if words.next()?.parse() != Ok(pid) {
        return None;
    }
    Some(Asked {
        strategy: strategy(words.next()?, words.next()?)?,
        is_own: words.next()? == "own",
        refusal: words.next().filter(|why| *why != "-").map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood_and_others_are_skipped() {
        let text = "setting 12 async 3\nsetting 13 odf 0\nsetting 14 magic 0\nlater 1 2 3\n\
                    refused 15 pinned 7 1800000000 1800000060 a name\nrefused 16 pinned\n";
        let found = Processes::parse(text);
        assert_eq!(
            found.settings,
            [
                Setting { pid: 12, strategy: Strategy::Async { copy_threads: 3 } },
                Setting { pid: 13, strategy: Strategy::Odf },
            ]
        );
        let refused = found.refused(15).unwrap();
        assert_eq!((refused.fork_count, refused.name.as_str()), (7, "a name"));
        assert_eq!(refused.since(), "2027-01-15T08:00:00Z");
        assert_eq!(found.refused.len(), 1);
    }

    #[test]
    fn the_answer_is_the_one_for_the_process() {
        let line = "asked 12 async 1 cgroup pinned";
        let expected = Asked {
            strategy: Strategy::Async { copy_threads: 1 },
            is_own: false,
            refusal: Some("pinned".to_owned()),
        };
        assert_eq!(asked(line, 12), Some(expected));
        assert_eq!(asked(line, 13), None);
        assert_eq!(asked("asked 12 default 0 own -", 12).unwrap().refusal, None);
    }
}
