//! The records that the machines return, one line of JSON each, and what is asked of them. One nanosecond of a machine's
//! clock is one instruction.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::stats::median_of;

/// A part of the measurement: one boot of the virtual machine, and what its records are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Instructions that a process pays which does not use the module
    Costs,
    /// Pages taken and given back, by batch size
    Churn,
    /// The same by several threads that share a processor
    Threads,
    /// The same by several threads, each with a processor, and the interrupts that they cause
    Interrupts,
    /// Pages read from a device that does nothing
    Reads,
    /// Accesses to pages in memory, by each backend of the pool
    Pages,
    /// Random lookups and TPC-C under eviction, by each backend of the pool
    Stores,
}

impl Part {
    pub fn word(self) -> &'static str {
        match self {
            Part::Costs => "costs",
            Part::Churn => "churn",
            Part::Threads => "threads",
            Part::Interrupts => "interrupts",
            Part::Reads => "reads",
            Part::Pages => "pages",
            Part::Stores => "stores",
        }
    }
}

/// A line of a machine's answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Measure {
    /// First touches of pages by a process that has no map.
    Fault {
        label: Label,
        round: u32,
        ns_per_fault: f64,
    },
    Churn(Churn),
    Read(Churn),
    /// The kernel has no such call, or not for that.
    Refused {
        way: Way,
        why: String,
    },
    Access(Access),
    Store(StoreRun),
}

/// What the machine was in when a cost was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Label {
    WarmUp,
    Unloaded,
    Loaded,
    /// Loaded, and another process has a map with memory.
    Used,
}

/// How pages are taken and given back: what `exmap_bench` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    Madvise,
    MadviseRow,
    ProcessMadvise,
    Populate,
    Mmap,
    Exmap,
    ExmapNear,
    ExmapRow,
    ExmapZeroed,
    ExmapTwo,
    ExmapStealing,
    Buffers,
    ExmapSingle,
    ExmapAllocated,
    ExmapVectored,
}

impl Way {
    pub const CHURNS: [Way; 11] = [
        Way::Madvise,
        Way::MadviseRow,
        Way::ProcessMadvise,
        Way::Populate,
        Way::Mmap,
        Way::Exmap,
        Way::ExmapNear,
        Way::ExmapRow,
        Way::ExmapZeroed,
        Way::ExmapTwo,
        Way::ExmapStealing,
    ];
    /// Those that several threads do beside each other.
    pub const THREADS: [Way; 5] = [Way::Madvise, Way::MadviseRow, Way::Mmap, Way::Exmap, Way::ExmapStealing];
    /// Those whose interrupts are counted.
    pub const INTERRUPTS: [Way; 3] = [Way::Madvise, Way::MadviseRow, Way::Exmap];
    pub const READS: [Way; 6] = [
        Way::Buffers,
        Way::Madvise,
        Way::Populate,
        Way::ExmapSingle,
        Way::ExmapAllocated,
        Way::ExmapVectored,
    ];

    /// As `exmap_bench` is told.
    pub fn word(self) -> String {
        serde_json::to_value(self)
            .ok()
            .and_then(|value| value.as_str().map(str::to_owned))
            .unwrap_or_default()
    }

    /// Of taking and giving back.
    pub fn name(self) -> &'static str {
        match self {
            Way::Madvise => "first touch, madvise one at a time",
            Way::MadviseRow => "first touch, madvise of a batch in a row",
            Way::ProcessMadvise => "first touch, process_madvise of a batch",
            Way::Populate => "MADV_POPULATE_WRITE and madvise of a batch in a row",
            Way::Mmap => "mmap of a batch, first touch, munmap",
            Way::Exmap => "exmap",
            Way::ExmapNear => "exmap, a batch in a row, an entry a page",
            Way::ExmapRow => "exmap, a batch in a row as one entry",
            Way::ExmapZeroed => "exmap, pages cleared",
            Way::ExmapTwo => "exmap, freed to a second interface",
            Way::ExmapStealing => "exmap, the same with no frame to spare: all are stolen",
            Way::Buffers => "pread into buffers that stay",
            Way::ExmapSingle => "pread by exmap, which allocates",
            Way::ExmapAllocated => "exmap allocates a batch, then pread by exmap",
            Way::ExmapVectored => "EXMAP_READ of a batch",
        }
    }

    /// Of reading, where the same name means something else.
    pub fn read_name(self) -> &'static str {
        match self {
            Way::Madvise => "pread into addresses without memory",
            Way::Populate => "MADV_POPULATE_WRITE of a batch, then pread",
            way => way.name(),
        }
    }

    pub fn has_module(self) -> bool {
        self.word().starts_with("exmap")
    }
}

/// `exmap_bench churn` and `exmap_bench read`: a round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Churn {
    pub way: Way,
    pub batch: u32,
    pub threads: u32,
    pub round: u32,
    /// Of all threads together, as all that follows.
    pub pages: u64,
    pub ns: u64,
    /// With several threads also what the others did meanwhile.
    pub take_ns: u64,
    pub give_ns: u64,
    pub tlb_interrupts: u64,
    pub call_interrupts: u64,
    /// By the module's counters.
    pub shootdowns: u64,
    pub shootdowns_full: u64,
    pub frames_stolen: u64,
}

/// An access to a page in memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Access {
    pub way: String,
    pub bytes: u64,
    pub round: u32,
    pub ns: f64,
}

/// What a store does that is larger than its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// One key a call
    Lookups,
    /// 32 keys a call
    Batches,
    /// The standard mix of transactions
    Tpcc,
}

impl Work {
    pub const ALL: [Work; 3] = [Work::Lookups, Work::Batches, Work::Tpcc];

    pub fn name(self) -> &'static str {
        match self {
            Work::Lookups => "a lookup, one a call",
            Work::Batches => "a lookup, 32 a call",
            Work::Tpcc => "a TPC-C transaction",
        }
    }
}

/// `stillframe-bench exmap-guest stores`: a round of a backend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoreRun {
    pub work: Work,
    pub backend: String,
    pub round: u32,
    /// Lookups or transactions.
    pub count: u64,
    /// Of the machine's clock.
    pub elapsed_ns: u64,
    /// Of all threads of the store's process, in it and in the kernel.
    pub cpu_ns: u64,
    pub evicted_pages: u64,
    pub loaded_pages: u64,
    /// In which memory of evicted pages was given back.
    pub give_back_ns: u64,
    pub shootdowns: u64,
}

/// A measure and the part that it belongs to.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    pub run: Part,
    #[serde(flatten)]
    pub measure: Measure,
}

pub struct Records(Vec<Record>);

impl Records {
    pub fn new(records: Vec<Record>) -> Self {
        Self(records)
    }

    pub fn all(&self) -> &[Record] {
        &self.0
    }

    pub fn churns(&self, part: Part) -> impl Iterator<Item = &Churn> {
        self.0.iter().filter(move |record| record.run == part).filter_map(|record| match &record.measure {
            Measure::Churn(churn) | Measure::Read(churn) => Some(churn),
            _ => None,
        })
    }

    pub fn refused(&self) -> impl Iterator<Item = (Way, &str)> {
        self.0.iter().filter_map(|record| match &record.measure {
            Measure::Refused { way, why } => Some((*way, why.as_str())),
            _ => None,
        })
    }

    pub fn accesses(&self) -> impl Iterator<Item = &Access> {
        self.0.iter().filter_map(|record| match &record.measure {
            Measure::Access(access) => Some(access),
            _ => None,
        })
    }

    pub fn stores(&self) -> impl Iterator<Item = &StoreRun> {
        self.0.iter().filter_map(|record| match &record.measure {
            Measure::Store(run) => Some(run),
            _ => None,
        })
    }

    /// The median over rounds of something of pages, for each of them.
    pub fn per_page(&self, part: Part, case: Case, of: impl Fn(&Churn) -> u64) -> Option<f64> {
        let wanted = |churn: &&Churn| {
            (churn.way, churn.batch, churn.threads) == (case.way, case.batch, case.threads) && churn.pages > 0
        };
        median_of(self.churns(part).filter(wanted).map(|churn| of(churn) as f64 / churn.pages as f64))
    }

    pub fn fault_ns(&self, label: Label) -> Option<f64> {
        median_of(self.0.iter().filter_map(|record| match record.measure {
            Measure::Fault { label: own, ns_per_fault, .. } if own == label => Some(ns_per_fault),
            _ => None,
        }))
    }
}

/// What rounds have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub way: Way,
    pub batch: u32,
    pub threads: u32,
}

impl Case {
    pub fn of_one_thread(way: Way, batch: u32) -> Case {
        Case { way, batch, threads: 1 }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn churn(run: Part, case: Case, pages: u64, ns: u64, shootdowns: u64) -> Record {
        let Case { way, batch, threads } = case;
        let churn = Churn {
            way,
            batch,
            threads,
            round: 0,
            pages,
            ns,
            take_ns: ns / 2,
            give_ns: ns / 2,
            tlb_interrupts: 0,
            call_interrupts: 0,
            shootdowns,
            shootdowns_full: 0,
            frames_stolen: 0,
        };
        Record { run, measure: Measure::Churn(churn) }
    }

    #[test]
    fn medians_of_what_was_asked() {
        let case = Case::of_one_thread(Way::Exmap, 512);
        let of = |ns| churn(Part::Churn, case, 10, ns, 0);
        let other = churn(Part::Churn, Case { batch: 1, ..case }, 10, 9999, 0);
        let records = Records::new(vec![of(100), of(500), of(200), other]);
        assert_eq!(records.per_page(Part::Churn, case, |churn| churn.ns), Some(20.0));
        assert_eq!(records.per_page(Part::Churn, Case { threads: 2, ..case }, |churn| churn.ns), None);
        assert_eq!(records.per_page(Part::Threads, case, |churn| churn.ns), None);
    }

    /// As `exmap_bench` says it.
    #[test]
    fn lines_are_read() {
        let line = r#"{"kind": "churn", "way": "exmap_two", "batch": 512, "threads": 1, "round": 0, "pages": 1, "ns": 2,
            "take_ns": 1, "give_ns": 1, "tlb_interrupts": 0, "call_interrupts": 0, "shootdowns": 1, "shootdowns_full": 1,
            "frames_stolen": 0}"#;
        let Measure::Churn(churn) = serde_json::from_str(line).unwrap() else { panic!() };
        assert_eq!((churn.way, churn.way.word().as_str()), (Way::ExmapTwo, "exmap_two"));
        assert!(serde_json::from_str::<Measure>(&line.replace("exmap_two", "other")).is_err());
        let refused = r#"{"kind": "refused", "way": "process_madvise", "why": "Invalid argument"}"#;
        assert!(matches!(serde_json::from_str(refused).unwrap(), Measure::Refused { .. }));
        assert!(Way::CHURNS.iter().all(|way| way.has_module() == way.name().starts_with("exmap")));
    }
}
