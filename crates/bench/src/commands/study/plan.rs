//! Which measurements the figures need. One that several figures need is done once.

use serde::{Deserialize, Serialize};

use super::args::Args;
use super::figure::{Axis, Figure};
use crate::study::{Case, Draw, Subject, Writes};

pub const BASE_ROW: usize = 64;
pub const BASE_FREQUENCY: u32 = 32 << 10;
/// Updates a tick where each is timed: so few that they do not wait for each other.
const VALUE_FREQUENCY: u32 = 64;
const PAGE: usize = 4096;

/// A measurement and what is kept of it beside.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Need {
    pub case: Case,
    pub is_traced: bool,
    pub is_each_timed: bool,
}

fn bytes(gb: f64) -> u64 {
    (gb * (1u64 << 30) as f64) as u64
}

impl Args {
    pub fn base_frequency(&self) -> u32 {
        // With --quick there are fewer.
        self.frequencies.iter().copied().find(|count| *count == BASE_FREQUENCY).unwrap_or(self.frequencies[0])
    }

    /// The default point, which all axes go through.
    pub fn base_case(&self, subject: Subject) -> Case {
        Case {
            subject,
            data_bytes: bytes(self.base),
            row_len: BASE_ROW,
            updates_per_tick: self.base_frequency(),
            writes: Writes::Part,
            draw: Draw::Uniform,
            huge_pages: false,
            round: 0,
        }
    }

    /// The same with rows of another length. Where whole rows are written, a tick writes as many bytes as at the default point.
    fn with_rows(&self, row_len: usize, base: Case) -> Case {
        let updates_per_tick = match base.writes {
            Writes::Part => base.updates_per_tick,
            Writes::Row => (base.updates_per_tick as usize * base.row_len / row_len).max(1) as u32,
        };
        Case { row_len, updates_per_tick, ..base }
    }

    /// The cases along an axis in their first round, with the label of each.
    pub fn along(&self, axis: Axis, subject: Subject, writes: Writes) -> Vec<(String, Case)> {
        let base = Case { writes, ..self.base_case(subject) };
        match axis {
            Axis::Size => self
                .sizes
                .iter()
                .map(|gb| {
                    let label = crate::output::human_bytes(gb * (1u64 << 30) as f64);
                    (label, Case { data_bytes: bytes(*gb), ..base.clone() })
                })
                .collect(),
            Axis::Row => {
                self.rows.iter().map(|len| (format!("{len} B"), self.with_rows(*len, base.clone()))).collect()
            }
            Axis::Frequency => {
                let case =
                    |count: &u32| (label_of(*count), Case { updates_per_tick: *count, ..base.clone() });
                self.frequencies.iter().map(case).collect()
            }
            Axis::Zipf => {
                let case = |exponent: &f64| {
                    (exponent.to_string(), Case { draw: Draw::Zipf(*exponent), ..base.clone() })
                };
                [("uniform".to_owned(), base.clone())]
                    .into_iter()
                    .chain(self.exponents.iter().map(case))
                    .collect()
            }
        }
    }

    pub fn huge_subjects(&self) -> Vec<Subject> {
        let wanted = [Subject::Fork, Subject::HOURGLASS, Subject::PIGGYBACK];
        wanted.into_iter().filter(|subject| self.subjects().contains(subject)).collect()
    }

    /// What the bars compare, of each of their rows' sizes, in the first round.
    pub fn bar_case(&self, subject: Subject, row_len: usize, writes: Writes) -> Case {
        let base = Case { data_bytes: bytes(self.bars), writes, ..self.base_case(subject) };
        self.with_rows(row_len, base)
    }

    /// Sizes of a value, and the case in which its updates are timed. A value of ours is as many pages as it takes.
    pub fn values(&self, subject: Subject) -> Vec<(String, Need)> {
        let lens: &[usize] = match self.quick {
            true => &[4 << 10, 64 << 10],
            false => &[1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20],
        };
        let value = |len: &usize| {
            let row_len = if subject == Subject::EPOCH { PAGE } else { *len };
            let case = Case { row_len, updates_per_tick: VALUE_FREQUENCY, ..self.base_case(subject) };
            let label = crate::output::human_bytes(*len as f64);
            (label, Need { case, is_traced: false, is_each_timed: true })
        };
        lens.iter().map(value).collect()
    }

    pub fn value_subjects(&self) -> Vec<Subject> {
        let wanted = [Subject::EPOCH, Subject::EntryCow, Subject::BucketCow];
        wanted.into_iter().filter(|subject| self.all_subjects().contains(subject)).collect()
    }

    /// What a figure needs in one round, in its order.
    fn needs_of(&self, figure: Figure) -> Vec<Need> {
        let plain = |case: Case| {
            let is_traced = case == self.base_case(case.subject);
            Need { case, is_traced, is_each_timed: false }
        };
        let all = |subjects: Vec<Subject>, axis, writes| {
            let cases = subjects.into_iter().flat_map(move |subject| self.along(axis, subject, writes));
            cases.map(|(_, case)| plain(case)).collect()
        };
        match figure {
            Figure::Trace => {
                self.all_subjects().into_iter().map(|subject| plain(self.base_case(subject))).collect()
            }
            Figure::Synthetic(axis, _, writes) => all(self.subjects(), axis, writes),
            Figure::Cuts => all(self.all_subjects(), Axis::Size, Writes::Part),
            Figure::HugePages(_) => {
                let small: Vec<Need> = all(self.huge_subjects(), Axis::Size, Writes::Part);
                let huge = |need: &Need| plain(Case { huge_pages: true, ..need.case.clone() });
                small.iter().map(huge).chain(small.clone()).collect()
            }
            Figure::Values => {
                let subjects = self.value_subjects().into_iter();
                subjects.flat_map(|subject| self.values(subject)).map(|(_, need)| need).collect()
            }
            Figure::Bars => {
                let rows = self.writes.iter().flat_map(|writes| BAR_ROWS.map(|row_len| (row_len, *writes)));
                let cases = rows.flat_map(|(row_len, writes)| {
                    let subjects = self.subjects().into_iter();
                    subjects.map(move |subject| plain(self.bar_case(subject, row_len, writes)))
                });
                let sizes: Vec<Need> = all(self.subjects(), Axis::Size, Writes::Part);
                cases.chain(sizes).collect()
            }
            Figure::Transactions(_) | Figure::Server(_) | Figure::Misses => Vec::new(),
        }
    }

    /// Of all the figures, each once. Rounds go through everything before the next; a trace is of the first.
    pub fn needs(&self, figures: &[Figure]) -> Vec<Need> {
        let mut first: Vec<Need> = Vec::new();
        for need in figures.iter().flat_map(|figure| self.needs_of(*figure)) {
            if !first.contains(&need) {
                first.push(need);
            }
        }
        let of_round = |round| {
            first.iter().map(move |need| {
                let case = Case { round, ..need.case.clone() };
                Need { case, is_traced: need.is_traced && round == 0, ..need.clone() }
            })
        };
        (0..self.rounds).flat_map(of_round).collect()
    }

    /// How long a measurement takes, in seconds, on a machine that writes and copies about a gigabyte a second.
    pub fn estimate_s(&self, need: &Need) -> f64 {
        let gb = need.case.data_bytes as f64 / f64::from(1 << 30);
        let fill_s = 0.4 * gb * (1 + need.case.subject.copies_beside()) as f64;
        let checkpoint_s = 1.2 * gb + 0.1;
        0.5 + fill_s + (checkpoint_s * f64::from(self.checkpoints)).min(self.seconds + checkpoint_s)
    }
}

/// Sizes of a row that the bars are about.
pub const BAR_ROWS: [usize; 2] = [BASE_ROW, PAGE];

fn label_of(count: u32) -> String {
    match count {
        count if count % 1024 == 0 => format!("{}k", count >> 10),
        count => count.to_string(),
    }
}
