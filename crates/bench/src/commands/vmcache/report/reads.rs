//! Random reads into buffers and into a pool, as in the paper's Figure 9.

use serde_json::{json, Value};

use super::shared::COLORS;
use crate::chart::{self, Chart, Series, Stroke};
use crate::commands::vmcache::reads::{Reads, Target};
use crate::output::{markdown_table, thousands};
use crate::stats::{distinct, median, with_range};

#[derive(Default)]
pub struct ReadRuns {
    /// Of each round.
    pub rounds: Vec<Vec<Reads>>,
}

/// A line of the figure.
#[derive(Clone, Copy, PartialEq)]
struct Line {
    target: Target,
    batch: usize,
}

impl Line {
    fn name(self) -> String {
        match self.batch {
            1 => format!("{}, one at a time", self.target.name()),
            batch => format!("{}, {batch} at once", self.target.name()),
        }
    }
}

impl ReadRuns {
    fn all(&self) -> impl Iterator<Item = &Reads> {
        self.rounds.iter().flatten()
    }

    fn values(&self, line: Line, thread_count: usize) -> Vec<f64> {
        let is_wanted = |reads: &&Reads| {
            reads.target == line.target && reads.batch == line.batch && reads.thread_count == thread_count
        };
        self.all().filter(is_wanted).map(|reads| reads.per_second).collect()
    }

    fn thread_counts(&self) -> Vec<usize> {
        distinct(self.all().map(|reads| reads.thread_count))
    }

    fn lines(&self) -> Vec<Line> {
        distinct(self.all().map(|reads| Line { target: reads.target, batch: reads.batch }))
    }

    pub fn table(&self) -> Option<String> {
        self.rounds.first()?;
        let mut rows = Vec::new();
        for line in self.lines() {
            for thread_count in self.thread_counts() {
                let rates = self.values(line, thread_count);
                let buffers = self.values(Line { target: Target::Buffers, ..line }, thread_count);
                rows.push(vec![
                    line.name(),
                    thread_count.to_string(),
                    with_range(&rates, |rate| thousands(rate as u64)),
                    format!("{:.2}", median(&rates) / median(&buffers)),
                ]);
            }
        }
        let head = ["into", "threads", "reads/s", "of buffers"];
        Some(format!(
            "## Reads into pages\n\n4 KB at random places. The pool has memory for a quarter of its file at most, and evicts as \
             much as it reads. Medians over rounds, range in parentheses.\n\n{}\n",
            markdown_table(&head, &rows)
        ))
    }

    pub fn chart(&self) -> String {
        let series = |(line, color): (Line, &'static str)| {
            let point = |count: &usize| (*count as f64, median(&self.values(line, *count)));
            let points = self.thread_counts().iter().map(point).collect();
            Series {
                name: line.name(),
                color,
                points,
                stroke: Stroke::dashed(line.target == Target::Buffers),
            }
        };
        chart::draw(&Chart {
            title: "Reads into pages".to_owned(),
            subtitle: "reads of 4 KB a second, medians over rounds".to_owned(),
            x_title: "threads".to_owned(),
            x_labels: self.thread_counts().iter().map(|count| (*count as f64, count.to_string())).collect(),
            log: true,
            show: |value| thousands(value as u64),
            series: self.lines().into_iter().zip(COLORS).map(series).collect(),
            footer: String::new(),
        })
    }

    pub fn records(&self) -> Vec<Value> {
        let record =
            |round: usize, reads: &Reads| json!({ "part": "reads", "round": round + 1, "case": reads });
        let rounds = self.rounds.iter().enumerate();
        rounds.flat_map(|(round, all)| all.iter().map(move |reads| record(round, reads))).collect()
    }
}
