//! The bars, judged on medians over rounds.

use super::args::Args;
use super::figure::{Axis, Trend, CUT_NOISE_NS};
use super::plan::BAR_ROWS;
use super::records::Records;
use crate::bar::Bar;
use crate::stats::median_of;
use crate::study::{Case, Outcome, Subject, Writes};

const MEAN_PERCENT: f64 = 105.0;
const MAX_PERCENT: f64 = 110.0;
const CUT_US: f64 = 5.0;
/// Two numbers a spare frame.
const FRAME_STATE_BYTES: u64 = 8;
/// Flags, the image's batch, latencies, the page table.
const BESIDE_BYTES: u64 = 16 << 20;

struct Judge<'a> {
    args: &'a Args,
    records: &'a Records,
}

pub fn judge(args: &Args, records: &Records) -> Vec<Bar> {
    let judge = Judge { args, records };
    let rows = args.writes.iter().flat_map(|writes| BAR_ROWS.map(|row_len| (row_len, *writes)));
    let mut bars: Vec<Bar> = rows.flat_map(|(row_len, writes)| judge.latencies(row_len, writes)).collect();
    bars.push(judge.cut());
    bars.extend(BAR_ROWS.map(|row_len| judge.memory(row_len)));
    bars.extend(args.subjects().into_iter().map(|subject| judge.growth(subject)));
    bars
}

impl Judge<'_> {
    fn median(
        &self,
        subject: Subject,
        (row_len, writes): (usize, Writes),
        of: impl Fn(&Outcome) -> f64,
    ) -> Option<f64> {
        let case = self.args.bar_case(subject, row_len, writes);
        median_of(self.records.rounds_of(&case, false).map(of))
    }

    /// That of epoch in percent of the lowest of some others.
    fn against(
        &self,
        rows: (usize, Writes),
        of: impl Fn(&Outcome) -> f64 + Copy,
        is_other: impl Fn(Subject) -> bool,
    ) -> Option<(f64, Subject)> {
        let own = self.median(Subject::EPOCH, rows, of)?;
        let others = self.args.subjects().into_iter().filter(|s| *s != Subject::EPOCH && is_other(*s));
        let found = others.filter_map(|subject| Some((self.median(subject, rows, of)?, subject)));
        let (lowest, subject) = found.min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some((100.0 * own / lowest.max(1.0), subject))
    }

    fn latencies(&self, row_len: usize, writes: Writes) -> Vec<Bar> {
        let rows = (row_len, writes);
        let mean = |outcome: &Outcome| outcome.mean_ns;
        let max = |outcome: &Outcome| outcome.max_ns as f64;
        let best = |found: &Option<(f64, Subject)>| {
            found.map_or(String::new(), |(_, subject)| format!(" ({subject})"))
        };
        let of_mean = self.against(rows, mean, |subject| !subject.has_growing_cut());
        let of_max = self.against(rows, max, |_| true);
        let of_naive = self.against(rows, mean, |subject| subject == Subject::NAIVE);
        let written = match writes {
            Writes::Part => "",
            Writes::Row => ", whole",
        };
        let naive = of_naive.map_or(String::new(), |(percent, _)| format!("; it is {percent:.0} % of NS's"));
        vec![
            Bar::at_most(
                format!(
                    "rows of {row_len} B{written}: epoch's mean tick, of the best whose cut does not grow{}{naive}",
                    best(&of_mean)
                ),
                MEAN_PERCENT,
                " %",
                of_mean.map(|found| found.0),
            ),
            Bar::at_most(
                format!(
                    "rows of {row_len} B{written}: epoch's longest tick, of the best of all others{}",
                    best(&of_max)
                ),
                MAX_PERCENT,
                " %",
                of_max.map(|found| found.0),
            ),
        ]
    }

    /// At every size and in every round: the median cut of each measurement, and of these the longest. The longest single one
    /// is in the raw data; it is the scheduler's.
    fn cut(&self) -> Bar {
        let own = self.records.ticks().filter(|(need, _)| need.case.subject == Subject::EPOCH);
        let cuts = own.map(|(_, outcome)| outcome.cut_median_ns());
        let longest = cuts.fold(None, |longest: Option<f64>, ns| Some(longest.map_or(ns, |l| l.max(ns))));
        Bar::at_most("epoch's cut, at every size", CUT_US, " us", longest.map(|ns| ns / 1000.0))
    }

    /// Above the data, the budget and what is said above.
    fn memory(&self, row_len: usize) -> Bar {
        let case = self.args.bar_case(Subject::EPOCH, row_len, Writes::Part);
        let frames = (self.args.budget << 20) / row_len as u64;
        let allowed = case.data_bytes + (self.args.budget << 20) + FRAME_STATE_BYTES * frames + BESIDE_BYTES;
        let own = self.median(Subject::EPOCH, (row_len, Writes::Part), |outcome| outcome.memory_bytes as f64);
        Bar::at_most(
            format!("rows of {row_len} B: epoch's memory, of data + budget + 8 bytes a frame + 16 MB"),
            100.0,
            " %",
            own.map(|bytes| 100.0 * bytes / allowed as f64),
        )
    }

    /// Whether the cut grows from the smallest size to the largest as it is to.
    fn growth(&self, subject: Subject) -> Bar {
        let along = self.args.along(Axis::Size, subject, Writes::Part);
        let cut = |(_, case): &(String, Case)| {
            median_of(self.records.rounds_of(case, false).map(Outcome::cut_median_ns))
        };
        let cuts: Vec<f64> = along.iter().filter_map(cut).collect();
        let is_growing = match (cuts.first(), cuts.last()) {
            (Some(first), Some(last)) if cuts.len() > 1 => {
                let (first, last) = (*first, *last);
                Some((last - first > CUT_NOISE_NS && Trend::of(first, last) == Trend::Rises, last / 1000.0))
            }
            _ => None,
        };
        let wanted = subject.has_growing_cut();
        Bar {
            what: format!("{subject}: its cut at the largest size"),
            limit: if wanted { "grows with the data" } else { "does not grow with the data" }.to_owned(),
            measured: is_growing.map(|(_, us)| us),
            unit: " us",
            is_met: is_growing.map(|(is_growing, _)| is_growing == wanted),
        }
    }
}
