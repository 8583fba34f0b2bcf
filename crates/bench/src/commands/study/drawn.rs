//! A figure as it has come out: its lines, what is in them, and the paper's finding beside ours.

use super::figure::{Figure, Trend};
use crate::chart::{draw, Chart, Series};
use crate::output::markdown_table;
use crate::stats::{median_of, with_range};

pub const FOOTER: &str =
    "stillframe-bench study; set-up of Li et al., TKDE 2019. See docs/measured/figures.md";

/// What an algorithm's line does, and what it was to do.
pub struct Line {
    pub name: String,
    /// Of each label what was measured there, once in each round.
    pub values: Vec<Vec<f64>>,
    pub expected: Option<Trend>,
}

impl Line {
    fn at(&self, label: usize) -> Option<f64> {
        median_of(self.values.get(label)?.iter().copied())
    }

    fn first(&self) -> Option<f64> {
        self.at(0)
    }

    pub fn last(&self) -> Option<f64> {
        self.at(self.values.len().checked_sub(1)?)
    }
}

pub struct Drawn {
    pub figure: Figure,
    pub subtitle: String,
    pub x_title: String,
    pub labels: Vec<String>,
    pub lines: Vec<Line>,
    pub log: bool,
    pub show: fn(f64) -> String,
    /// Values from one to the next of which nothing can be said.
    pub noise: f64,
    /// What there is to say beside the trends.
    pub remark: String,
}

impl Drawn {
    pub fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.values.iter().all(Vec::is_empty))
    }

    fn series(&self) -> Vec<Series> {
        let points = |line: &Line| {
            let labels = 0..line.values.len();
            labels.filter_map(|at| Some((at as f64, line.at(at)?))).collect::<Vec<_>>()
        };
        let lines = self.lines.iter().map(|line| super::style::series(&line.name, points(line)));
        lines.filter(|series| !series.points.is_empty()).collect()
    }

    pub fn svg(&self) -> String {
        draw(&Chart {
            title: title(self.figure),
            subtitle: self.subtitle.clone(),
            x_title: self.x_title.clone(),
            x_labels: self.labels.iter().enumerate().map(|(at, label)| (at as f64, label.clone())).collect(),
            log: self.log,
            show: self.show,
            series: self.series(),
            footer: FOOTER.to_owned(),
        })
    }

    /// The median of what was measured at a label, and between which values it lies.
    pub fn cell(&self, values: &[f64]) -> String {
        match values {
            [] => "-".to_owned(),
            values => with_range(values, self.show),
        }
    }

    pub fn table(&self) -> String {
        let cell = |values: &Vec<f64>| self.cell(values);
        let row = |line: &Line| {
            [line.name.clone()].into_iter().chain(line.values.iter().map(cell)).collect::<Vec<_>>()
        };
        let head: Vec<&str> =
            [self.x_title.as_str()].into_iter().chain(self.labels.iter().map(String::as_str)).collect();
        markdown_table(&head, &self.lines.iter().map(row).collect::<Vec<_>>())
    }

    /// From a line's first value to its last.
    fn trend(&self, line: &Line) -> Option<(Trend, f64)> {
        let (first, last) = (line.first()?, line.last()?);
        if line.values.len() < 2 {
            return None;
        }
        let trend = match (first - last).abs() <= self.noise {
            true => Trend::Flat,
            false => Trend::of(first, last),
        };
        Some((trend, last / first.max(f64::MIN_POSITIVE)))
    }

    /// One line: who does what the paper says, who does not, who is lowest at the end.
    pub fn finding(&self) -> String {
        // Of a trace, what it begins and ends with says nothing.
        let mut parts = match self.figure {
            Figure::Trace => Vec::new(),
            _ => self.trends(),
        };
        if !self.remark.is_empty() {
            parts.push(self.remark.clone());
        }
        parts.join("; ")
    }

    fn trends(&self) -> Vec<String> {
        let mut parts = Vec::new();
        for trend in [Trend::Rises, Trend::Flat, Trend::Falls] {
            let does = |line: &Line| {
                let (own, ratio) = self.trend(line).filter(|(own, _)| *own == trend)?;
                let surprise =
                    if line.expected.is_some_and(|expected| expected != own) { ", unlike there" } else { "" };
                Some(format!("{} (x {ratio:.2}{surprise})", line.name))
            };
            let names: Vec<String> = self.lines.iter().filter_map(does).collect();
            if !names.is_empty() {
                parts.push(format!("{} for {}", trend.verb(), names.join(", ")));
            }
        }
        let last = |line: &Line| Some((line.last()?, line.name.clone()));
        if let Some((value, name)) = self.lines.iter().filter_map(last).min_by(|a, b| a.0.total_cmp(&b.0)) {
            parts.push(format!("lowest at the end is {name}, {}", (self.show)(value)));
        }
        let judged = || self.lines.iter().filter_map(|line| Some((line.expected?, self.trend(line)?.0)));
        let agreed = judged().filter(|(expected, own)| expected == own).count();
        if judged().count() > 0 {
            parts.push(format!("as in the paper for {agreed} of {}", judged().count()));
        }
        parts
    }
}

pub fn title(figure: Figure) -> String {
    match figure.name() {
        name if name.starts_with(|letter: char| letter.is_ascii_digit()) => {
            format!("Figure {name}: {}", figure.title())
        }
        _ => figure.title(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::figure::{Axis, Metric};
    use super::*;
    use crate::study::Writes;

    #[test]
    fn a_finding_says_who_does_as_the_paper_says() {
        let line = |name: &str, values: [f64; 2], expected| Line {
            name: name.to_owned(),
            values: values.map(|value| vec![value]).to_vec(),
            expected,
        };
        let drawn = Drawn {
            figure: Figure::Synthetic(Axis::Size, Metric::Max, Writes::Part),
            subtitle: String::new(),
            x_title: "size".to_owned(),
            labels: vec!["1".to_owned(), "2".to_owned()],
            lines: vec![
                line("naive", [100.0, 400.0], Some(Trend::Rises)),
                line("cou", [100.0, 105.0], Some(Trend::Rises)),
                line("epoch", [50.0, 52.0], None),
            ],
            log: true,
            show: |value| format!("{value:.0} ns"),
            noise: 0.0,
            remark: String::new(),
        };
        assert_eq!(
            drawn.finding(),
            "rises for naive (x 4.00); stays for cou (x 1.05, unlike there), epoch (x 1.04); lowest at the end is epoch, \
             52 ns; as in the paper for 1 of 2"
        );
        assert!(drawn.table().contains("| naive"));
        assert!(drawn.svg().contains("Figure 10e") && drawn.svg().contains("data-series=\"epoch\""));
    }
}
