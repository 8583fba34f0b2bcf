//! `advise`: runs the snapshot algorithms on given sizes and rates, and ranks them.

use crate::commands::{place, DataArgs};
use crate::error::{BenchError, Result};
use crate::machine;
use crate::output::{human_bytes, human_ns, markdown_table, OutArgs, Output};
use crate::pin::CpuArgs;
use crate::study::{Case, Draw, Host, Outcome, Subject, Ticks, Writes};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Size of the data
    #[arg(long, value_name = "GB", default_value_t = 0.5)]
    gb: f64,
    /// Size of a row: what is read and written at once
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    row: usize,
    /// Updates a second
    #[arg(long, value_name = "PER SECOND", default_value_t = 1_000_000)]
    updates: u64,
    /// What an update writes: a word of its row, or all of it
    #[arg(long, default_value = "part")]
    writes: Writes,
    /// Exponent of the Zipf distribution of the updated rows [default: uniform]
    #[arg(long, value_name = "EXPONENT")]
    zipf: Option<f64>,
    /// The most memory that data and copies may take together [default: what is there]
    #[arg(long, value_name = "GB")]
    memory: Option<f64>,
    /// Memory for spare frames and for what writers have captured
    #[arg(long, value_name = "MB", default_value_t = 64)]
    budget: u64,
    /// Algorithms [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    algorithms: Option<Vec<Subject>>,
    /// Successive checkpoints
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    checkpoints: u32,
    /// No checkpoint but the first begins later
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    seconds: f64,
    /// A run of seconds: 2 MB, few updates
    #[arg(long, visible_alias = "small")]
    quick: bool,
    #[command(flatten)]
    cpus: CpuArgs,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    out: OutArgs,
}

const TICKS_PER_SECOND: u64 = 100;

pub fn run(args: &Args) -> Result<()> {
    let mut args = args.clone();
    if args.quick {
        (args.gb, args.updates, args.budget) = (2.0 / 1024.0, 50_000, 1);
        (args.checkpoints, args.seconds) = (2, 1.0);
    }
    if args.gb <= 0.0 || args.row == 0 || args.row % 8 != 0 {
        return Err(BenchError::Failed("give a size above 0, and rows of whole words of 8 bytes".to_owned()));
    }
    let bytes = |gb: f64| (gb * (1u64 << 30) as f64) as u64;
    let mut out = Output::new(&args.out, "advise", "Which snapshot algorithm suits", &[])?;
    let case = Case {
        subject: Subject::EPOCH,
        data_bytes: bytes(args.gb),
        row_len: args.row,
        updates_per_tick: (args.updates / TICKS_PER_SECOND).clamp(1, u32::MAX.into()) as u32,
        writes: args.writes,
        draw: args.zipf.map_or(Draw::Uniform, Draw::Zipf),
        huge_pages: false,
        round: 0,
    };
    out.note(
        "asked for",
        format!(
            "{} of rows of {} B, {} updates of {} a second, {:?}",
            human_bytes(case.data_bytes as f64),
            args.row,
            args.updates,
            if case.writes == Writes::Row { "the row" } else { "a word" },
            case.draw
        ),
    );
    let cpus = place(&args.cpus, &mut out)?;
    let scratch = args.data.scratch();
    let host = Host { dir: scratch.path().to_owned(), cpus, budget_bytes: args.budget << 20, seed: 1 };
    let (mut done, mut failed) = (Vec::new(), String::new());
    for subject in args.algorithms.clone().unwrap_or_else(Subject::all) {
        eprintln!("{subject}");
        match measure(&args, &host, &Case { subject, ..case.clone() }) {
            Ok(outcome) => done.push((subject, outcome)),
            Err(error) => failed.push_str(&format!("- {subject}: {error}\n")),
        }
    }
    let advice = Advice::new(done, args.memory.map(bytes));
    let raw: Vec<_> = advice.ranked.iter().map(Ranked::raw).collect();
    out.write_json(&raw)?;
    let failed =
        if failed.is_empty() { failed } else { format!("\n## What could not be measured\n\n{failed}") };
    out.write_markdown(&format!("{}{failed}", advice.text()?))
}

fn measure(args: &Args, host: &Host, case: &Case) -> Result<Outcome> {
    let there = machine::available_memory_bytes();
    if case.memory_bytes() > there / 10 * 9 {
        let (wanted, there) = (human_bytes(case.memory_bytes() as f64), human_bytes(there as f64));
        return Err(BenchError::Failed(format!("needs {wanted} of memory, and {there} are there")));
    }
    let ticks = Ticks {
        checkpoints: args.checkpoints,
        seconds: args.seconds,
        is_verified: false,
        is_traced: false,
        is_each_timed: false,
    };
    host.measure(case, ticks)
}

struct Ranked {
    subject: Subject,
    outcome: Outcome,
    /// How far it is from the best in everything: 1 is the best in everything.
    score: f64,
    is_within_memory: bool,
}

type Metric = fn(&Outcome) -> f64;

/// What the table shows of an algorithm, and what it is ranked by, with equal weight.
const METRICS: [(&str, Metric); 5] = [
    ("mean tick", |outcome| outcome.mean_ns),
    ("p99.9", |outcome| outcome.p999_ns as f64),
    ("longest tick", |outcome| outcome.max_ns as f64),
    ("memory", |outcome| outcome.memory_bytes as f64),
    ("checkpoint", checkpoint_ns),
];
const MEMORY: usize = 3;

fn checkpoint_ns(outcome: &Outcome) -> f64 {
    outcome.checkpoint_ns.iter().sum::<u64>() as f64 / outcome.checkpoint_ns.len().max(1) as f64
}

fn show(metric: usize, value: f64) -> String {
    if metric == MEMORY {
        human_bytes(value)
    } else {
        human_ns(value)
    }
}

impl Ranked {
    fn raw(&self) -> serde_json::Value {
        serde_json::json!({
            "algorithm": self.subject, "score": self.score, "is_within_memory": self.is_within_memory, "outcome": self.outcome,
        })
    }
}

/// The best first; those that need more memory than there is to be come last.
struct Advice {
    ranked: Vec<Ranked>,
    best: [f64; METRICS.len()],
}

impl Advice {
    fn new(measured: Vec<(Subject, Outcome)>, memory_bytes: Option<u64>) -> Advice {
        let is_within = |outcome: &Outcome| memory_bytes.is_none_or(|limit| outcome.memory_bytes <= limit);
        let lowest = |of: Metric| {
            measured.iter().map(|(_, outcome)| of(outcome)).fold(f64::INFINITY, f64::min).max(1.0)
        };
        let best = METRICS.map(|(_, of)| lowest(of));
        let score = |outcome: &Outcome| {
            let ratios = METRICS.iter().zip(best).map(|((_, of), best)| (of(outcome).max(1.0) / best).ln());
            (ratios.sum::<f64>() / METRICS.len() as f64).exp()
        };
        let ranked = |(subject, outcome): (Subject, Outcome)| Ranked {
            subject,
            score: score(&outcome),
            is_within_memory: is_within(&outcome),
            outcome,
        };
        let mut ranked: Vec<Ranked> = measured.into_iter().map(ranked).collect();
        ranked.sort_by(|a, b| b.is_within_memory.cmp(&a.is_within_memory).then(a.score.total_cmp(&b.score)));
        Advice { ranked, best }
    }

    fn text(&self) -> Result<String> {
        let Some(first) = self.ranked.first() else {
            return Err(BenchError::Failed("no algorithm could be measured".to_owned()));
        };
        let row = |ranked: &Ranked| {
            let cells = METRICS.iter().enumerate().map(|(at, (_, of))| show(at, of(&ranked.outcome)));
            let name = ranked.subject.name().to_owned();
            let score = if ranked.is_within_memory { format!("{:.2}", ranked.score) } else { "-".to_owned() };
            [name].into_iter().chain(cells).chain([score]).collect::<Vec<_>>()
        };
        let head: Vec<&str> =
            ["algorithm"].into_iter().chain(METRICS.map(|(name, _)| name)).chain(["of the best"]).collect();
        let table = markdown_table(&head, &self.ranked.iter().map(row).collect::<Vec<_>>());
        let reasons: String = self
            .ranked
            .iter()
            .map(|ranked| format!("- {}: {}.\n", ranked.subject, self.reason(ranked)))
            .collect();
        let advice = match first.is_within_memory {
            true => format!("Take `{}`.", first.subject),
            false => "No algorithm stays within that memory.".to_owned(),
        };
        Ok(format!(
            "{advice} *Of the best*: the geometric mean of how many times as long, or as much, as the best in each column; 1.00 \
             is the best in all. Ticks are of 10 ms, and late ones count.\n\n{table}\n{reasons}"
        ))
    }

    /// What speaks for it and what against it: where it is near the best, and where it is furthest from it.
    fn reason(&self, ranked: &Ranked) -> String {
        let ratio = |at: usize| METRICS[at].1(&ranked.outcome).max(1.0) / self.best[at];
        let near: Vec<&str> =
            (0..METRICS.len()).filter(|at| ratio(*at) < 1.1).map(|at| METRICS[at].0).collect();
        let worst = (0..METRICS.len()).max_by(|a, b| ratio(*a).total_cmp(&ratio(*b))).unwrap_or(0);
        let mut parts = Vec::new();
        if !ranked.is_within_memory {
            parts.push("needs more memory than there is to be".to_owned());
        }
        if ranked.outcome.is_overloaded() {
            parts.push("cannot keep up with the updates".to_owned());
        }
        if !near.is_empty() {
            parts.push(format!("at or near the best in {}", near.join(", ")));
        }
        if ratio(worst) >= 1.1 {
            let value = show(worst, METRICS[worst].1(&ranked.outcome));
            parts.push(format!("{} is {value}, {:.1} times the best", METRICS[worst].0, ratio(worst)));
        }
        let cut_ns = ranked.outcome.cut_median_ns();
        let grows = if ranked.subject.has_growing_cut() { ", which grows with the data" } else { "" };
        parts.push(format!("the cut takes {}{grows}", human_ns(cut_ns)));
        parts.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(mean_ns: f64, max_ns: u64, memory_bytes: u64) -> Outcome {
        Outcome {
            mean_ns,
            p999_ns: max_ns,
            max_ns,
            memory_bytes,
            cut_ns: vec![1000],
            checkpoint_ns: vec![5_000_000],
            ..Outcome::default()
        }
    }

    #[test]
    fn the_best_in_most_is_first_unless_it_needs_too_much_memory() {
        let measured = || {
            vec![
                (Subject::NAIVE, outcome(1e6, 90_000_000, 2 << 30)),
                (Subject::EPOCH, outcome(1.2e6, 3_000_000, 1 << 30)),
                (Subject::HOURGLASS, outcome(1.1e6, 2_900_000, 1100 << 20)),
            ]
        };
        let advice = Advice::new(measured(), None);
        let text = advice.text().unwrap();
        assert!(text.starts_with("Take `hourglass`."), "{text}");
        assert!(text.contains("- naive: at or near the best in mean tick"), "{text}");
        let text = Advice::new(measured(), Some(1 << 30)).text().unwrap();
        assert!(text.starts_with("Take `epoch`."), "{text}");
        assert!(text.contains("naive: needs more memory"), "{text}");
        assert!(Advice::new(Vec::new(), None).text().is_err());
    }
}
