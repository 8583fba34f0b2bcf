//! Pages given and taken back, as in the paper's Figures 3 and 8.

use serde_json::{json, Value};

use super::shared::COLORS;
use crate::chart::{self, Chart, Series, Stroke};
use crate::commands::vmcache::discards::{Discards, Way};
use crate::output::{human_ns, markdown_table, thousands};
use crate::stats::{distinct, median, with_range};

#[derive(Default)]
pub struct DiscardRuns {
    /// Of each round.
    pub rounds: Vec<Vec<Discards>>,
}

impl DiscardRuns {
    fn values(
        &self,
        way: Way,
        thread_count: usize,
        is_beside: bool,
        of: impl Fn(&Discards) -> f64,
    ) -> Vec<f64> {
        let is_wanted = |case: &&Discards| {
            case.way == way
                && case.thread_count == thread_count
                && case.reads_per_second.is_some() == is_beside
        };
        self.rounds.iter().flatten().filter(is_wanted).map(of).collect()
    }

    fn thread_counts(&self) -> Vec<usize> {
        distinct(self.rounds.iter().flatten().map(|case| case.thread_count))
    }

    pub fn table(&self) -> Option<String> {
        self.rounds.first()?;
        let mut rows = Vec::new();
        for way in Way::ALL {
            for thread_count in self.thread_counts() {
                rows.extend(self.row(way, thread_count, false));
            }
            rows.extend(self.row(way, 1, true));
        }
        let head = [
            "how they are given back",
            "threads",
            "pages/s",
            "first touch of a page",
            "to give a page back",
            "a reader's rate beside, of its rate alone",
        ];
        Some(format!(
            "## Pages that the system gives and takes back\n\nEach thread touches 512 pages of 4 KB of its own and gives them \
             back. The reader reads 1,024 other pages at random. Medians over rounds, range in parentheses.\n\n{}\n",
            markdown_table(&head, &rows)
        ))
    }

    fn row(&self, way: Way, thread_count: usize, is_beside: bool) -> Option<Vec<String>> {
        let values = |of: fn(&Discards) -> f64| self.values(way, thread_count, is_beside, of);
        let rates = values(|case| case.pages_per_second);
        rates.first()?;
        let share = |case: &Discards| case.reads_per_second.map_or(1.0, |(beside, alone)| beside / alone);
        Some(vec![
            way.name().to_owned(),
            if is_beside { format!("{thread_count}, and a reader") } else { thread_count.to_string() },
            with_range(&rates, |rate| thousands(rate as u64)),
            human_ns(median(&values(|case| case.touch_ns))),
            with_range(&values(|case| case.give_back_ns), human_ns),
            match is_beside {
                true => with_range(&self.values(way, thread_count, true, share), |part| format!("{part:.2}")),
                false => String::new(),
            },
        ])
    }

    pub fn chart(&self) -> String {
        let line = |(way, color): (Way, &'static str)| {
            let point = |count: &usize| {
                let rates = self.values(way, *count, false, |case| case.pages_per_second);
                (!rates.is_empty()).then(|| (*count as f64, median(&rates)))
            };
            let points = self.thread_counts().iter().filter_map(point).collect();
            Series { name: way.short_name().to_owned(), color, points, stroke: Stroke::Solid }
        };
        chart::draw(&Chart {
            title: "Pages given and taken back".to_owned(),
            subtitle: "pages of 4 KB a second, medians over rounds".to_owned(),
            x_title: "threads".to_owned(),
            x_labels: self.thread_counts().iter().map(|count| (*count as f64, count.to_string())).collect(),
            log: false,
            show: |value| thousands(value as u64),
            series: Way::ALL.into_iter().zip(COLORS).map(line).collect(),
            footer: String::new(),
        })
    }

    pub fn records(&self) -> Vec<Value> {
        let record =
            |round: usize, case: &Discards| json!({ "part": "discards", "round": round + 1, "case": case });
        let rounds = self.rounds.iter().enumerate();
        rounds.flat_map(|(round, cases)| cases.iter().map(move |case| record(round, case))).collect()
    }
}
