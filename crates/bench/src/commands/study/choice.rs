//! Which algorithm to take when: a paragraph, of what has been measured.

use super::args::Args;
use super::figure::Axis;
use super::records::Records;
use crate::output::{human_bytes, human_ns};
use crate::stats::{median_of, min_max};
use crate::study::{Case, Outcome, Subject, Writes};

struct Chooser<'a> {
    args: &'a Args,
    records: &'a Records,
}

/// Nothing if the default point was not measured.
pub fn paragraph(args: &Args, records: &Records) -> Option<String> {
    let chooser = Chooser { args, records };
    let sentences: Vec<String> =
        [Writes::Part, Writes::Row].map(|writes| chooser.even(writes)).into_iter().flatten().collect();
    if sentences.is_empty() {
        return None;
    }
    let others = [chooser.memory(), chooser.lowest(), chooser.fork()];
    Some(sentences.into_iter().chain(others.into_iter().flatten()).collect::<Vec<_>>().join(" "))
}

impl Chooser<'_> {
    fn of(&self, case: &Case, metric: impl Fn(&Outcome) -> f64) -> Option<f64> {
        median_of(self.records.rounds_of(case, false).map(metric))
    }

    fn base(&self, subject: Subject, writes: Writes) -> Case {
        Case { writes, ..self.args.base_case(subject) }
    }

    fn least(
        &self,
        writes: Writes,
        metric: impl Fn(&Outcome) -> f64 + Copy,
        is_meant: impl Fn(Subject) -> bool,
    ) -> Option<(Subject, f64)> {
        let subjects = self.args.subjects().into_iter().filter(|subject| is_meant(*subject));
        let values =
            subjects.filter_map(|subject| Some((subject, self.of(&self.base(subject, writes), metric)?)));
        values.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Of those whose cut does not grow.
    fn even(&self, writes: Writes) -> Option<String> {
        let is_even = |subject: Subject| !subject.has_growing_cut();
        let (mean_of, mean_ns) = self.least(writes, |outcome| outcome.mean_ns, is_even)?;
        let (max_of, max_ns) = self.least(writes, |outcome| outcome.max_ns as f64, is_even)?;
        let written = match writes {
            Writes::Part => "Where updates write a part of a row",
            Writes::Row => "Where they write whole rows",
        };
        let (mean, max) = (human_ns(mean_ns), human_ns(max_ns));
        let alike = self.alike(writes, mean_of);
        Some(match mean_of == max_of {
            true => format!(
                "{written}, of those whose cut does not grow with the data take `{mean_of}`: a mean tick of {mean}, the longest {max}{alike}."
            ),
            false => format!(
                "{written}, of those whose cut does not grow with the data take `{mean_of}` for the lowest mean tick ({mean}{alike}) or \
                 `{max_of}` for the shortest longest one ({max})."
            ),
        })
    }

    /// Those whose cut does not grow, and of whose means some round is below some round of the best.
    fn alike(&self, writes: Writes, best: Subject) -> String {
        let range = |subject: Subject| {
            let case = self.base(subject, writes);
            let means: Vec<f64> =
                self.records.rounds_of(&case, false).map(|outcome| outcome.mean_ns).collect();
            min_max(&means)
        };
        let (_, highest) = range(best);
        let rivals = self.args.subjects().into_iter().filter(|s| *s != best && !s.has_growing_cut());
        let names: Vec<String> =
            rivals.filter(|rival| range(*rival).0 < highest).map(|rival| format!("`{rival}`")).collect();
        match names.is_empty() {
            true => String::new(),
            false => format!("; rounds of {} overlap with it", names.join(", ")),
        }
    }

    fn memory(&self) -> Option<String> {
        let memory = |subject: Subject| {
            let bytes = self.of(&self.base(subject, Writes::Part), |outcome| outcome.memory_bytes as f64)?;
            Some(format!("`{subject}` {}", human_bytes(bytes)))
        };
        let taken: Vec<String> = self.args.subjects().into_iter().filter_map(memory).collect();
        let data = human_bytes(self.args.base_case(Subject::NAIVE).data_bytes as f64);
        (!taken.is_empty()).then(|| format!("Memory for {data} of data: {}.", taken.join(", ")))
    }

    /// Of all, whatever its cut takes.
    fn lowest(&self) -> Option<String> {
        let (subject, mean_ns) = self.least(Writes::Part, |outcome| outcome.mean_ns, |_| true)?;
        let largest = self.args.along(Axis::Size, subject, Writes::Part).pop()?;
        let cut_ns = self.of(&largest.1, Outcome::cut_median_ns)?;
        Some(format!(
            "The lowest mean of all has `{subject}` ({}); its cut stops everything for {} at {}.",
            human_ns(mean_ns),
            human_ns(cut_ns),
            largest.0
        ))
    }

    fn fork(&self) -> Option<String> {
        let max_ns = self.of(&self.base(Subject::Fork, Writes::Part), |outcome| outcome.max_ns as f64)?;
        Some(format!("`fork` asks nothing of the program; its longest tick is {}.", human_ns(max_ns)))
    }
}
