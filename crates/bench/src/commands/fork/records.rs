//! The records that the machines return, one line of JSON each, and what is asked of them.

use std::collections::BTreeMap;
use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use stillframe_fork::status::Shares;

use crate::error::{BenchError, Result};
use crate::stats::median_of;

/// A part of the measurement: one boot of the virtual machine, and what its records are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Instructions that a process which did not opt in pays
    Costs,
    /// Time of fork in the parent over sizes
    Fork,
    /// Tables copied by the parent while it writes
    Writes,
    /// Time of the copy over the number of threads
    Threads,
    /// Latency and throughput of Redis during BGSAVE
    Redis,
    /// The same during BGREWRITEAOF, at the largest size
    Aof,
}

/// A line of a machine's answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Measure {
    /// Fork of a small process.
    Small {
        label: Label,
        round: u32,
        fork_ns: f64,
        life_ns: f64,
    },
    /// First touches of pages.
    Fault {
        label: Label,
        round: u32,
        ns_per_fault: f64,
    },
    /// A way into the kernel that the module hooks.
    Path {
        label: Label,
        path: String,
        round: u32,
        ns_each: f64,
    },
    Fork(Fork),
    Redis(Box<Save>),
}

/// What the machine was in when a cost was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Label {
    WarmUp,
    Unloaded,
    Loaded,
    /// Loaded, and another process shares tables.
    Shared,
}

/// `fork_bench fork`: a process forks, and writes meanwhile.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Fork {
    pub mb: u64,
    pub strategy: Strategy,
    pub round: u32,
    pub fork_ns: u64,
    pub writes: u64,
    pub period_ns: u64,
    pub tables: u64,
    pub write_p50_ns: u64,
    pub write_p99_ns: u64,
    pub write_max_ns: u64,
    pub forks_async: u64,
    pub forks_odf: u64,
    pub tables_deferred: u64,
    pub tables_shared: u64,
    pub copied: Counters,
    pub unshared: Counters,
    pub refused: Counters,
    pub histogram: Counters,
    pub dup_mmap_ns: u64,
    pub child_copy_ns: u64,
    pub sync_ns: u64,
}

/// `stillframe-bench fork-guest`: a save of Redis under load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Save {
    pub command: SaveCommand,
    pub mb: u64,
    pub strategy: Strategy,
    pub round: usize,
    pub requests_per_second: f64,
    pub save_ns: u64,
    pub fork_ns: f64,
    pub before: Latencies,
    pub first_second: Latencies,
    pub during: Latencies,
    pub bins_from_ns: u64,
    pub replies_of_50_ms: Vec<u64>,
    pub statistics: SaveStatistics,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum SaveCommand {
    #[default]
    BgSave,
    BgRewriteAof,
}

impl fmt::Display for SaveCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SaveCommand::BgSave => "BGSAVE",
            SaveCommand::BgRewriteAof => "BGREWRITEAOF",
        })
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Latencies {
    pub count: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

/// What the module's counters say of one save.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SaveStatistics {
    pub forks_async: u64,
    pub forks_odf: u64,
    pub tables_copied: Counters,
    pub tables_unshared: Counters,
    pub sync_ns_total: u64,
    pub sync_histogram: Counters,
    /// The other counters, as they are.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

/// An array of counters, most of which are zero: read as an array, written as those that are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(pub Vec<u64>);

impl Counters {
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    pub fn add(&mut self, other: &Counters) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(&other.0).for_each(|(total, count)| *total += count);
    }
}

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().enumerate().filter(|(_, count)| **count > 0))
    }
}

impl<'de> Deserialize<'de> for Counters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            All(Vec<u64>),
            Some(BTreeMap<String, u64>),
        }
        match Form::deserialize(deserializer)? {
            Form::All(counts) => Ok(Counters(counts)),
            Form::Some(map) => {
                let mut counts = Vec::new();
                for (index, count) in map {
                    let index: u16 = index.parse().map_err(serde::de::Error::custom)?;
                    let index = usize::from(index);
                    counts.resize(counts.len().max(index + 1), 0);
                    counts[index] = count;
                }
                Ok(Counters(counts))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Strategy {
    #[default]
    Default,
    Odf,
    Async {
        copy_threads: u32,
    },
}

impl TryFrom<String> for Strategy {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        match text.as_str() {
            "default" => Ok(Strategy::Default),
            "odf" => Ok(Strategy::Odf),
            threads => match threads.parse() {
                Ok(copy_threads) => Ok(Strategy::Async { copy_threads }),
                Err(_) => Err(format!("no fork strategy {text:?}")),
            },
        }
    }
}

impl From<Strategy> for String {
    fn from(strategy: Strategy) -> String {
        match strategy {
            Strategy::Default => "default".to_owned(),
            Strategy::Odf => "odf".to_owned(),
            Strategy::Async { copy_threads } => copy_threads.to_string(),
        }
    }
}

/// In words.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::Default => f.write_str("default fork"),
            Strategy::Odf => f.write_str("On-Demand-Fork"),
            Strategy::Async { copy_threads: 1 } => f.write_str("Async-fork, 1 thread"),
            Strategy::Async { copy_threads } => write!(f, "Async-fork, {copy_threads} threads"),
        }
    }
}

/// Who copied tables: Async-fork's and On-Demand-Fork's counts together, of which a fork has one.
pub fn shares(fork: &Fork) -> Shares {
    let (copied, unshared) = (Shares::of(&fork.copied.0), Shares::of(&fork.unshared.0));
    Shares {
        child: copied.child + unshared.child,
        helper: copied.helper + unshared.helper,
        parent: copied.parent + unshared.parent,
    }
}

/// A measure and the part that it belongs to.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    pub run: Part,
    #[serde(flatten)]
    pub measure: Measure,
}

impl Record {
    /// A figure of a strategy that the kernel did not use would be one of the default fork.
    pub fn check_strategy(&self) -> Result<()> {
        let (strategy, taken) = match &self.measure {
            Measure::Fork(fork) => (fork.strategy, (fork.forks_async, fork.forks_odf)),
            Measure::Redis(save) => (save.strategy, (save.statistics.forks_async, save.statistics.forks_odf)),
            _ => return Ok(()),
        };
        let expected = match strategy {
            Strategy::Default => (0, 0),
            Strategy::Odf => (0, 1),
            Strategy::Async { .. } => (1, 0),
        };
        if taken == expected {
            return Ok(());
        }
        let what = format!("{taken:?} of Async-fork and On-Demand-Fork instead of {expected:?}");
        Err(BenchError::Failed(format!("{strategy}: a save made these deferred forks: {what}: {self:?}")))
    }
}

pub struct Records(Vec<Record>);

impl Records {
    pub fn new(records: Vec<Record>) -> Self {
        Self(records)
    }

    pub fn all(&self) -> &[Record] {
        &self.0
    }

    pub fn forks(&self, part: Part) -> impl Iterator<Item = &Fork> {
        self.0.iter().filter(move |record| record.run == part).filter_map(|record| match &record.measure {
            Measure::Fork(fork) => Some(fork),
            _ => None,
        })
    }

    pub fn saves(&self, command: SaveCommand) -> impl Iterator<Item = &Save> {
        let saves = self.0.iter().filter_map(|record| match &record.measure {
            Measure::Redis(save) => Some(&**save),
            _ => None,
        });
        saves.filter(move |save| save.command == command)
    }

    /// The median of a cost; nothing if it was not measured.
    pub fn cost(&self, label: Label, of: impl Fn(&Measure) -> Option<f64>) -> Option<f64> {
        let wanted = |measure: &&Measure| match measure {
            Measure::Small { label: own, .. }
            | Measure::Fault { label: own, .. }
            | Measure::Path { label: own, .. } => *own == label,
            _ => false,
        };
        median_of(self.0.iter().map(|record| &record.measure).filter(wanted).filter_map(of))
    }
}

/// The median of what a small process's fork takes.
pub fn small_fork_ns(measure: &Measure) -> Option<f64> {
    match measure {
        Measure::Small { fork_ns, .. } => Some(*fork_ns),
        _ => None,
    }
}

pub fn small_life_ns(measure: &Measure) -> Option<f64> {
    match measure {
        Measure::Small { life_ns, .. } => Some(*life_ns),
        _ => None,
    }
}

pub fn fault_ns(measure: &Measure) -> Option<f64> {
    match measure {
        Measure::Fault { ns_per_fault, .. } => Some(*ns_per_fault),
        _ => None,
    }
}

/// All rounds together.
pub fn summed<'a>(histograms: impl Iterator<Item = &'a Counters>) -> Counters {
    let mut sum = Counters::default();
    histograms.for_each(|histogram| sum.add(histogram));
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::distinct;

    fn record(measure: Measure) -> Record {
        Record { run: Part::Fork, measure }
    }

    #[test]
    fn medians_of_what_was_asked() {
        let fork = |mb, fork_ns| record(Measure::Fork(Fork { mb, fork_ns, ..Fork::default() }));
        let records = Records::new(vec![fork(1, 10), fork(1, 30), fork(1, 20), fork(2, 99)]);
        let median = |mb| {
            median_of(records.forks(Part::Fork).filter(|fork| fork.mb == mb).map(|fork| fork.fork_ns as f64))
        };
        assert_eq!((median(1), median(3)), (Some(20.0), None));
        assert_eq!(distinct(records.forks(Part::Fork).map(|fork| fork.mb)), [1, 2]);
        assert_eq!(records.forks(Part::Threads).count(), 0);
    }

    #[test]
    fn a_strategy_that_was_not_used_is_noticed() {
        let fork = |strategy: &str, forks_async| {
            let strategy = Strategy::try_from(strategy.to_owned()).unwrap();
            record(Measure::Fork(Fork { strategy, forks_async, ..Fork::default() }))
        };
        assert!(fork("1", 1).check_strategy().is_ok());
        assert!(fork("default", 0).check_strategy().is_ok());
        assert!(fork("1", 0).check_strategy().is_err());
        assert!(fork("odf", 1).check_strategy().is_err());
        let statistics = SaveStatistics { forks_odf: 1, ..SaveStatistics::default() };
        let save = Save { strategy: Strategy::Odf, statistics, ..Save::default() };
        assert!(record(Measure::Redis(Box::new(save))).check_strategy().is_ok());
        let fault = Measure::Fault { label: Label::Loaded, round: 0, ns_per_fault: 1.0 };
        assert!(record(fault).check_strategy().is_ok());
        assert!(Strategy::try_from("fast".to_owned()).is_err());
    }

    /// As `fork_bench` says it, and as it is kept.
    #[test]
    fn lines_are_read_and_kept_compactly() {
        let line = r#"{"kind": "path", "path": "futex", "label": "warm-up", "round": 0, "ns_each": 1.5}"#;
        assert!(matches!(serde_json::from_str(line).unwrap(), Measure::Path { label: Label::WarmUp, .. }));
        assert!(serde_json::from_str::<Measure>(r#"{"kind": "fault", "label": "loaded"}"#).is_err());
        let mut fork = Fork { strategy: Strategy::Async { copy_threads: 4 }, ..Fork::default() };
        fork.histogram = Counters(vec![0, 0, 7, 0]);
        let text = serde_json::to_string(&record(Measure::Fork(fork))).unwrap();
        assert!(text.contains(r#""run":"fork""#) && text.contains(r#""kind":"fork""#), "{text}");
        assert!(text.contains(r#""histogram":{"2":7}"#) && text.contains(r#""strategy":"4""#), "{text}");
        let Measure::Fork(again) = serde_json::from_str(&text.replace(r#""run":"fork","#, "")).unwrap()
        else {
            panic!("{text}")
        };
        assert_eq!(again.histogram, Counters(vec![0, 0, 7]));
    }
}
