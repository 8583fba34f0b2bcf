//! The figures: what each has on its axes, what the paper found there, and what that means for each algorithm.

use stillframe_algorithms::PhysicalKind;

use crate::study::{Outcome, Subject, Writes};

/// A figure or table of the paper, or one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// 9: latency of each tick.
    Trace,
    /// 10 a to l: a metric over an axis, for updates of a word and for those of a whole row.
    Synthetic(Axis, Metric, Writes),
    /// Ours: the cut over the data's size.
    Cuts,
    /// Ours: the longest update over the size of a value.
    Values,
    /// 11 a and b: huge pages.
    HugePages(Metric),
    /// 12: transactions over threads, by what their updates write.
    Transactions(Writes),
    /// 13 to 17: a server.
    Server(ServerMetric),
    /// Table 4.
    Misses,
    /// Ours: what we want to reach.
    Bars,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    Size,
    Row,
    Frequency,
    Zipf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    Mean,
    Max,
    Checkpoint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerMetric {
    Throughput,
    Max,
    MaxOverUpdates,
    Memory,
    Save,
}

const WRITES: [Writes; 2] = [Writes::Part, Writes::Row];
/// Of the names of those for whole rows.
const ROW_SUFFIX: &str = "-row";

/// Cuts that differ by less are alike.
pub const CUT_NOISE_NS: f64 = 20_000.0;

/// How a value goes along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trend {
    Rises,
    Flat,
    Falls,
}

impl Trend {
    /// From the first value to the last. Noise of a shared machine is within half as much again.
    pub fn of(first: f64, last: f64) -> Trend {
        match last / first.max(f64::MIN_POSITIVE) {
            ratio if ratio > 1.5 => Trend::Rises,
            ratio if ratio < 1.0 / 1.5 => Trend::Falls,
            _ => Trend::Flat,
        }
    }

    pub fn verb(self) -> &'static str {
        match self {
            Trend::Rises => "rises",
            Trend::Flat => "stays",
            Trend::Falls => "falls",
        }
    }
}

impl Axis {
    pub const ALL: [Axis; 4] = [Axis::Size, Axis::Row, Axis::Frequency, Axis::Zipf];

    pub fn title(self) -> &'static str {
        match self {
            Axis::Size => "size of the data",
            Axis::Row => "size of a row",
            Axis::Frequency => "updates a tick of 10 ms",
            Axis::Zipf => "exponent of the Zipf distribution",
        }
    }
}

impl Metric {
    pub const ALL: [Metric; 3] = [Metric::Mean, Metric::Max, Metric::Checkpoint];

    pub fn title(self) -> &'static str {
        match self {
            Metric::Mean => "Mean tick latency",
            Metric::Max => "Longest tick",
            Metric::Checkpoint => "Time of a checkpoint",
        }
    }

    /// In ns.
    pub fn of(self, outcome: &Outcome) -> f64 {
        match self {
            Metric::Mean => outcome.mean_ns,
            Metric::Max => outcome.max_ns as f64,
            Metric::Checkpoint => {
                let count = outcome.checkpoint_ns.len().max(1) as f64;
                outcome.checkpoint_ns.iter().sum::<u64>() as f64 / count
            }
        }
    }
}

impl Figure {
    /// In the order of the paper, ours last.
    pub fn all() -> Vec<Figure> {
        let mut all = vec![Figure::Trace];
        for writes in WRITES {
            for metric in Metric::ALL {
                all.extend(Axis::ALL.map(|axis| Figure::Synthetic(axis, metric, writes)));
            }
        }
        all.extend([Figure::HugePages(Metric::Max), Figure::HugePages(Metric::Mean)]);
        all.extend(WRITES.map(Figure::Transactions));
        let server = [
            ServerMetric::Throughput,
            ServerMetric::Max,
            ServerMetric::MaxOverUpdates,
            ServerMetric::Memory,
            ServerMetric::Save,
        ];
        all.extend(server.map(Figure::Server));
        all.extend([Figure::Misses, Figure::Cuts, Figure::Values, Figure::Bars]);
        all
    }

    /// As it is called on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Figure::Trace => "9",
            Figure::Synthetic(axis, metric, writes) => {
                let names = [
                    [["10a", "10a-row"], ["10b", "10b-row"], ["10c", "10c-row"], ["10d", "10d-row"]],
                    [["10e", "10e-row"], ["10f", "10f-row"], ["10g", "10g-row"], ["10h", "10h-row"]],
                    [["10i", "10i-row"], ["10j", "10j-row"], ["10k", "10k-row"], ["10l", "10l-row"]],
                ];
                names[metric as usize][axis as usize][writes as usize]
            }
            Figure::HugePages(Metric::Max) => "11a",
            Figure::HugePages(_) => "11b",
            Figure::Transactions(Writes::Part) => "12",
            Figure::Transactions(Writes::Row) => "12-row",
            Figure::Server(metric) => ["13", "14", "15", "16", "17"][metric as usize],
            Figure::Misses => "table4",
            Figure::Cuts => "cuts",
            Figure::Values => "values",
            Figure::Bars => "bars",
        }
    }

    /// What its updates write, if it is drawn for each of that.
    pub fn writes(self) -> Option<Writes> {
        match self {
            Figure::Synthetic(_, _, writes) | Figure::Transactions(writes) => Some(writes),
            _ => None,
        }
    }

    /// Those that a word of the command line means: `10` is all of its parts, and `10a` is it for whole rows, too.
    pub fn named(word: &str) -> Vec<Figure> {
        let is_part = |name: &str| {
            name.strip_prefix(word).is_some_and(|part| part.chars().all(|letter| letter.is_ascii_lowercase()))
        };
        let is_number = word.parse::<u32>().is_ok();
        let is_meant = |figure: &Figure| {
            let name = figure.name();
            let plain = name.strip_suffix(ROW_SUFFIX).unwrap_or(name);
            [name, plain].contains(&word) || (is_number && is_part(plain))
        };
        Figure::all().into_iter().filter(is_meant).collect()
    }

    pub fn title(self) -> String {
        match self {
            Figure::Trace => "Latency of each tick".to_owned(),
            Figure::Synthetic(axis, metric, Writes::Part) => {
                format!("{} over {}", metric.title(), axis.title())
            }
            Figure::Synthetic(axis, metric, Writes::Row) => {
                format!("{} over {}, whole rows", metric.title(), axis.title())
            }
            Figure::HugePages(metric) => format!("{} with huge pages", metric.title()),
            Figure::Transactions(Writes::Part) => "Transactions a second over threads".to_owned(),
            Figure::Transactions(Writes::Row) => "Transactions a second over threads, whole rows".to_owned(),
            Figure::Server(metric) => match metric {
                ServerMetric::Throughput => "Server: throughput during a save over records",
                ServerMetric::Max => "Server: longest request during a save over records",
                ServerMetric::MaxOverUpdates => {
                    "Server: longest request during a save over the share of updates"
                }
                ServerMetric::Memory => "Server: most memory over records",
                ServerMetric::Save => "Server: time of a save over records",
            }
            .to_owned(),
            Figure::Misses => "Cache misses".to_owned(),
            Figure::Cuts => "Time of the cut over size of the data".to_owned(),
            Figure::Values => "Longest single update over the size of a value".to_owned(),
            Figure::Bars => "Bars".to_owned(),
        }
    }

    /// What the paper says of it.
    pub fn paper(self) -> &'static str {
        match self {
            Figure::Trace => "NS, COU, Fork and ZZ show spikes at the cut, NS most of all; PP, HG and PB remain stable.",
            Figure::Synthetic(axis, metric, _) => synthetic_finding(axis, metric),
            Figure::HugePages(Metric::Max) => {
                "With huge pages the longest tick of Fork is shorter, but still longer than that of HG and PB."
            }
            Figure::HugePages(_) => "With huge pages the mean of Fork is higher: each first write copies 2 MB.",
            Figure::Transactions(_) => "vHG and vPB do more transactions than CALC with several threads.",
            Figure::Server(metric) => match metric {
                ServerMetric::Throughput => "Insensitive to the number of records; HG and PB like Redis.",
                ServerMetric::Max => "Rises steeply with records for Redis (fork); stays for HG and PB.",
                ServerMetric::MaxOverUpdates => "Insensitive to the share of updates for all three.",
                ServerMetric::Memory => "Linear in the records; HG and PB well below Redis (fork).",
                ServerMetric::Save => "Grows with the records; HG and PB a little longer than Redis.",
            },
            Figure::Misses => {
                "In millions: NS 711, COU 1226, Fork 649, ZZ 1517, PP 1368, HG 865, PB 934 (Table 4, 16 GB or as by default)."
            }
            Figure::Cuts => "(Section 5.2.2) The cut dominates the longest tick: it grows for NS, COU, Fork, ZZ.",
            Figure::Values => "Not in the paper.",
            Figure::Bars => "Not in the paper.",
        }
    }

    /// What that means for an algorithm, where it does.
    pub fn expected(self, subject: Subject) -> Option<Trend> {
        use PhysicalKind::{Cou, Epoch, Hourglass, Naive, Piggyback, PingPong, Zigzag};
        let kind = match subject {
            Subject::Physical(kind) => Some(kind),
            Subject::Fork => None,
            _ => return None,
        };
        match self {
            Figure::Synthetic(Axis::Size | Axis::Frequency, Metric::Mean, _) => Some(Trend::Rises),
            Figure::Synthetic(Axis::Row, Metric::Mean, _) => match kind {
                Some(Zigzag | PingPong) => Some(Trend::Flat),
                Some(Naive | Cou | Hourglass | Piggyback) => Some(Trend::Rises),
                Some(Epoch) | None => None,
            },
            Figure::Synthetic(Axis::Zipf, Metric::Mean, _) => Some(Trend::Falls),
            Figure::Synthetic(Axis::Size, Metric::Max, _) | Figure::Cuts => Some(match kind {
                Some(Naive | Cou | Zigzag) | None => Trend::Rises,
                Some(PingPong | Hourglass | Piggyback | Epoch) => Trend::Flat,
            }),
            Figure::Synthetic(Axis::Row, Metric::Max, _) => match kind {
                Some(Cou | Zigzag) => Some(Trend::Falls),
                None => Some(Trend::Flat),
                _ => None,
            },
            Figure::Synthetic(Axis::Size, Metric::Checkpoint, _) => Some(Trend::Rises),
            Figure::Synthetic(..) => Some(Trend::Flat),
            _ => None,
        }
    }
}

fn synthetic_finding(axis: Axis, metric: Metric) -> &'static str {
    match (metric, axis) {
        (Metric::Mean, Axis::Size) => {
            "Rises with the size for all. NS is lowest, Fork close to it, HG and PB low; COU, ZZ and PP are high."
        }
        (Metric::Mean, Axis::Row) => "ZZ and PP hardly depend on the row; NS, COU, HG and PB rise.",
        (Metric::Mean, Axis::Frequency) => "Rises with the update frequency for all.",
        (Metric::Mean, Axis::Zipf) => "Falls with the exponent for all.",
        (Metric::Max, Axis::Size) => "Rises for COU, Fork, ZZ (and NS, far above); stays for PP, HG, PB.",
        (Metric::Max, Axis::Row) => "Falls for COU and ZZ, whose bit arrays are shorter; Fork does not depend on it.",
        (Metric::Max, Axis::Frequency) => "Not influenced by the update frequency.",
        (Metric::Max, Axis::Zipf) => "Not influenced by the distribution.",
        (Metric::Checkpoint, Axis::Size) => "Grows linearly with the size, with little difference between algorithms.",
        (Metric::Checkpoint, _) => "Almost constant, because the size of the data is fixed.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_mean_figures() {
        let names = |word| Figure::named(word).into_iter().map(Figure::name).collect::<Vec<_>>();
        assert_eq!(names("10").len(), 24);
        assert_eq!(names("10e"), ["10e", "10e-row"]);
        assert_eq!(names("10e-row"), ["10e-row"]);
        assert_eq!(names("12"), ["12", "12-row"]);
        assert_eq!(names("11"), ["11a", "11b"]);
        assert_eq!(names("1"), Vec::<&str>::new());
        assert_eq!(names("table4"), ["table4"]);
        assert!(names("table").is_empty() && names("").is_empty());
        assert_eq!(Figure::all().len(), 38);
    }

    #[test]
    fn trends() {
        assert_eq!(
            [(1.0, 2.0), (2.0, 2.2), (3.0, 1.0)].map(|(a, b)| Trend::of(a, b)),
            [Trend::Rises, Trend::Flat, Trend::Falls]
        );
    }
}
