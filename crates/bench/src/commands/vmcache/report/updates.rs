//! Updates by a server, beside what its disk does.

use serde_json::{json, Value};

use crate::commands::vmcache::updates::{Keys, Latency, Round, Throughput, Timed};
use crate::output::{human_ns, markdown_table, thousands};
use crate::stats::{distinct, median, with_range};

#[derive(Default)]
pub struct UpdateRuns {
    pub rounds: Vec<Round>,
}

impl UpdateRuns {
    pub fn tables(&self) -> Option<String> {
        self.rounds.first()?;
        Some(format!("{}{}", self.throughput_table(), self.latency_table()))
    }

    fn backends(&self) -> Vec<&'static str> {
        distinct(self.rounds.iter().map(|round| round.backend))
    }

    fn of(&self, backend: &'static str) -> impl Iterator<Item = &Round> {
        self.rounds.iter().filter(move |round| round.backend == backend)
    }

    fn throughputs(
        &self,
        backend: &'static str,
        keys: Keys,
        of: impl Fn(&Throughput) -> Option<f64>,
    ) -> Vec<f64> {
        let all = self.of(backend).flat_map(|round| &round.throughputs);
        all.filter(|throughput| throughput.keys == keys).filter_map(of).collect()
    }

    fn throughput_table(&self) -> String {
        let row = |(backend, keys): (&'static str, Keys)| {
            let rate = |of: fn(&Throughput) -> Option<f64>| {
                with_range(&self.throughputs(backend, keys, of), |rate| thousands(rate as u64))
            };
            let middle = |of: fn(&Throughput) -> Option<f64>| median(&self.throughputs(backend, keys, of));
            let of_disk = self.throughputs(backend, keys, |t| Some(t.server.total() / t.disk?.total()));
            vec![
                backend.to_owned(),
                keys.name().to_owned(),
                rate(|t| Some(t.per_second)),
                with_range(&of_disk, |share| format!("{share:.2}")),
                format!("{:.2}", middle(|t| Some(t.server.reads / t.per_second.max(1.0)))),
                format!("{:.2}", middle(|t| Some(t.server.writes / t.per_second.max(1.0)))),
                rate(|t| Some(t.server.reads)),
                rate(|t| Some(t.disk?.reads)),
                human_ns(middle(|t| Some(t.cpu_ns))),
                format!("{:.0} %", 100.0 * middle(|t| Some(t.share_in_memory))),
            ]
        };
        let backends = self.backends().into_iter();
        let rows: Vec<_> =
            backends.flat_map(|backend| Keys::ALL.map(|keys| (backend, keys))).map(row).collect();
        let head = [
            "pages by",
            "keys",
            "SET/s",
            "of the disk",
            "read a SET",
            "written back a SET",
            "reads/s",
            "the disk's reads/s",
            "CPU a SET",
            "pages in memory",
        ];
        format!(
            "## Updates by a server, out of memory\n\nOne worker, one SET under way on each connection, values of 400 B that lie in \
             their pages. *Of the disk*: pages read and written back against what the disk does with as many writes a read and as \
             many reads under way as there are connections. Medians over rounds, range in parentheses.\n\n{}\n",
            markdown_table(&head, &rows)
        )
    }

    fn latencies(&self, backend: &'static str, timed: Timed, of: impl Fn(&Latency) -> f64) -> Vec<f64> {
        let all = self.of(backend).flat_map(|round| &round.latencies);
        all.filter(|latency| latency.timed == timed).map(of).collect()
    }

    fn latency_table(&self) -> String {
        let p999 = |backend: &'static str, timed: Timed| {
            self.latencies(backend, timed, |latency| latency.p999_ns as f64)
        };
        let row = |(backend, timed): (&'static str, Timed)| {
            let time = |of: fn(&Latency) -> u64| {
                with_range(&self.latencies(backend, timed, |latency| of(latency) as f64), human_ns)
            };
            let middle = |of: fn(&Latency) -> f64| median(&self.latencies(backend, timed, of));
            let of_ruler = timed.ruler().map(|ruler| p999(backend, ruler)).filter(|ruler| !ruler.is_empty());
            let of_ruler =
                of_ruler.map(|ruler| format!("{:.2} x", median(&p999(backend, timed)) / median(&ruler)));
            vec![
                backend.to_owned(),
                timed.name().to_owned(),
                thousands(middle(|latency| latency.per_second) as u64),
                time(|latency| latency.p50_ns),
                time(|latency| latency.p99_ns),
                time(|latency| latency.p999_ns),
                of_ruler.unwrap_or_default(),
                time(|latency| latency.max_ns),
                time(|latency| latency.late_p999_ns),
                thousands(middle(|latency| latency.evicted_per_second) as u64),
                format!("{:.0}", middle(|latency| latency.checkpoint_count as f64)),
            ]
        };
        let is_there = |(backend, timed): &(&'static str, Timed)| !p999(backend, *timed).is_empty();
        let backends = self.backends().into_iter();
        let cases = backends.flat_map(|backend| Timed::ALL.map(|timed| (backend, timed)));
        let rows: Vec<_> = cases.filter(is_there).map(row).collect();
        let head = [
            "pages by",
            "what",
            "due a second",
            "p50",
            "p99",
            "p99.9",
            "of its ruler",
            "longest",
            "sent late by, p99.9",
            "pages evicted/s",
            "checkpoints",
        ];
        format!(
            "Times from when each was due. The rulers: of keys in memory the same without evictions and checkpoints, of keys on \
             disk the disk with as many reads a second and their writes.\n\n{}\n",
            markdown_table(&head, &rows)
        )
    }

    pub fn records(&self) -> Vec<Value> {
        let mut records = Vec::new();
        for round in &self.rounds {
            let (number, backend) = (round.number, round.backend);
            let throughput =
                |case| json!({ "part": "updates", "round": number, "backend": backend, "case": case });
            records.extend(round.throughputs.iter().map(throughput));
            let latency =
                |case| json!({ "part": "update times", "round": number, "backend": backend, "case": case });
            records.extend(round.latencies.iter().map(latency));
        }
        records
    }
}
