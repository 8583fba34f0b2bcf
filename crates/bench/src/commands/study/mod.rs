//! `study`: the comparative study of snapshot algorithms (Li et al., TKDE 2019), figure by figure, and our bars.
//!
//! ```text
//!   figures ──▶ what they need, each once ──▶ measured one by one, kept at once ──▶ tables, drawings, findings, a page
//! ```

mod args;
mod bars;
mod choice;
mod drawn;
mod figure;
mod figures;
pub mod guest;
mod misses;
mod page;
mod plan;
mod quoted;
mod records;
mod report;
mod server;
mod style;
mod transactions;

use std::time::Instant;

pub use self::args::Args;
use self::figure::Figure;
use self::misses::Counter;
use self::plan::Need;
use self::records::{Record, Records};
use crate::commands::place;
use crate::error::{BenchError, Result};
use crate::machine;
use crate::output::{human_bytes, without_paths, Output};
use crate::study::{Draw, Host, Ticks, Writes};

/// Of what cachegrind needs for one algorithm, two runs.
const MISSES_ESTIMATE_S: f64 = 25.0;

/// Under cachegrind even little takes seconds.
const QUICK_MISSES: usize = 2;

pub fn run(args: &Args) -> Result<()> {
    let args = args.complete();
    let figures = args.figures().map_err(BenchError::Failed)?;
    check(&args)?;
    let mut out = Output::new(&args.out, "study", "The comparative study of snapshot algorithms", &[])?;
    let cpus = place(&args.cpus, &mut out)?;
    let scratch = args.data.scratch();
    let (budget_bytes, seed) = (args.budget << 20, args.seed);
    let host = Host { dir: scratch.path().to_owned(), cpus, budget_bytes, seed };
    let quoted = quoted::newest(&args.fork_results);
    let records = Records::begin(out.dir(), args.resume.as_deref())?;
    let mut study =
        Study { args: &args, figures: &figures, host, records, begin: Instant::now(), done_s: 0.0 };
    let estimate_s = study.estimate_s();
    let minutes = (estimate_s / 60.0).ceil() as u64;
    out.note("estimate", format!("{minutes} minutes for what is left to measure"));
    study.measure(estimate_s)?;
    report::write(&args, &figures, &study.records, &quoted, &out)
}

fn check(args: &Args) -> Result<()> {
    let lists = [
        ("--sizes", args.sizes.is_empty()),
        ("--rows", args.rows.is_empty()),
        ("--frequencies", args.frequencies.is_empty()),
        ("--records", args.records.is_empty()),
        ("--updates", args.updates.is_empty() || args.updates.iter().any(|percent| *percent > 100)),
        ("--threads", args.threads.is_empty() || args.threads.contains(&0)),
    ];
    if let Some((name, _)) = lists.iter().find(|(_, is_wrong)| *is_wrong) {
        return Err(BenchError::Failed(format!("{name}: give at least one number that can be measured")));
    }
    match args.rows.iter().find(|len| **len == 0 || *len % 8 != 0) {
        Some(len) => Err(BenchError::Failed(format!("--rows {len}: rows are of whole words of 8 bytes"))),
        None => Ok(()),
    }
}

struct Study<'a> {
    args: &'a Args,
    figures: &'a [Figure],
    host: Host,
    records: Records,
    begin: Instant,
    /// Of the estimate.
    done_s: f64,
}

impl Study<'_> {
    fn wants(&self, is_meant: impl Fn(&Figure) -> bool) -> bool {
        self.figures.iter().any(is_meant)
    }

    fn wants_server(&self) -> bool {
        self.wants(|figure| matches!(figure, Figure::Server(_)))
    }

    fn needs(&self) -> Vec<Need> {
        let needs = self.args.needs(self.figures);
        needs.into_iter().filter(|need| self.records.outcome(need).is_none()).collect()
    }

    fn estimate_s(&self) -> f64 {
        let mut seconds: f64 = self.needs().iter().map(|need| self.args.estimate_s(need)).sum();
        if self.wants_server() {
            let systems = self.args.systems().0.len() as f64;
            let points = self.args.server_points();
            seconds += systems * points.iter().map(|point| self.args.server_estimate_s(point.0)).sum::<f64>();
        }
        if self.wants(|figure| *figure == Figure::Misses) {
            let count = if self.args.quick { QUICK_MISSES } else { self.args.subjects().len() };
            seconds += MISSES_ESTIMATE_S * count as f64;
        }
        if self.wants(|figure| matches!(figure, Figure::Transactions(_))) {
            let points = self.args.threads.len() * transactions::algorithms().len();
            let runs = points * self.args.rounds as usize * self.args.writes.len();
            seconds += runs as f64 * (self.args.transactions_s() + 0.5);
        }
        seconds
    }

    fn measure(&mut self, estimate_s: f64) -> Result<()> {
        for need in self.needs() {
            self.say(estimate_s, &describe(&need));
            self.done_s += self.args.estimate_s(&need);
            self.tick(&need)?;
        }
        if self.wants(|figure| matches!(figure, Figure::Transactions(_))) {
            self.transactions()?;
        }
        if self.wants(|figure| *figure == Figure::Misses) {
            self.misses()?;
        }
        if self.wants_server() {
            self.servers(estimate_s)?;
        }
        Ok(())
    }

    fn say(&self, estimate_s: f64, what: &str) {
        let spent_s = self.begin.elapsed().as_secs_f64();
        // What has been done says how much slower the machine is than was estimated.
        let factor = if self.done_s > 20.0 { spent_s / self.done_s } else { 1.0 };
        let left_s = (estimate_s - self.done_s).max(0.0) * factor;
        eprintln!(
            "{what} ({:.0} % done, {:.1} minutes left)",
            100.0 * self.done_s / estimate_s,
            left_s / 60.0
        );
    }

    fn tick(&mut self, need: &Need) -> Result<()> {
        let (wanted, there) = (need.case.memory_bytes(), machine::available_memory_bytes());
        if wanted > there / 10 * 9 {
            let why = format!(
                "needs {} of memory, and {} are there",
                human_bytes(wanted as f64),
                human_bytes(there as f64)
            );
            return self.fail(describe(need), &BenchError::Failed(why));
        }
        let ticks = Ticks {
            checkpoints: self.args.checkpoints,
            seconds: self.args.seconds,
            // A run that says nothing about times says whether images are right.
            is_verified: self.args.quick && !need.is_each_timed,
            is_traced: need.is_traced,
            is_each_timed: need.is_each_timed,
        };
        match self.host.measure(&need.case, ticks) {
            Ok(outcome) => self.records.add(Record::Ticks { need: need.clone(), outcome: Box::new(outcome) }),
            Err(error) => self.fail(describe(need), &error),
        }
    }

    /// The others are measured all the same.
    fn fail(&mut self, what: String, error: &BenchError) -> Result<()> {
        eprintln!("{what}: {error}");
        self.records.add(Record::Failure { what, why: without_paths(&error.to_string()) })
    }

    fn transactions(&mut self) -> Result<()> {
        for run in self.args.transaction_runs(self.figures) {
            if self.records.transactions().any(|done| done.is(&run)) {
                continue;
            }
            eprintln!("{run}");
            match transactions::measure(self.args, &run) {
                Ok(measured) => self.records.add(Record::Transactions(measured))?,
                Err(error) => self.fail(run.to_string(), &error)?,
            }
        }
        Ok(())
    }

    fn misses(&mut self) -> Result<()> {
        let counter = match Counter::best(self.args.quick) {
            Ok(counter) => counter,
            Err(error) => return self.fail("cache misses".to_owned(), &error),
        };
        let count = if self.args.quick { QUICK_MISSES } else { usize::MAX };
        for subject in self.args.subjects().into_iter().rev().take(count) {
            if self.records.misses_of(subject).is_some() {
                continue;
            }
            eprintln!("cache misses: {subject}");
            match misses::measure(self.args, &self.host, counter, subject) {
                Ok(run) => self.records.add(Record::Misses(run))?,
                Err(error) => self.fail(format!("cache misses, {subject}"), &error)?,
            }
        }
        Ok(())
    }

    fn servers(&mut self, estimate_s: f64) -> Result<()> {
        let (systems, missing) = self.args.systems();
        for error in missing {
            self.fail("servers".to_owned(), &error)?;
        }
        for (record_count, update_percent) in self.args.server_points() {
            for system in &systems {
                let is_it = |run: &server::ServerRun| {
                    run.system == system.name
                        && (run.record_count, run.update_percent) == (record_count, update_percent)
                };
                if self.records.server().any(is_it) {
                    continue;
                }
                let what =
                    format!("server: {}, {record_count} records, {update_percent} % updates", system.name);
                self.say(estimate_s, &what);
                self.done_s += self.args.server_estimate_s(record_count);
                let point = (record_count, update_percent);
                let cpus = self.host.cpus.as_ref();
                match server::measure(self.args, system, point, &self.host.dir, cpus) {
                    Ok(run) => self.records.add(Record::Server(run))?,
                    Err(error) => self.fail(what, &error)?,
                }
            }
        }
        Ok(())
    }
}

fn describe(need: &Need) -> String {
    let case = &need.case;
    let draw = match case.draw {
        Draw::Uniform => "uniform".to_owned(),
        Draw::Zipf(exponent) => format!("Zipf {exponent}"),
    };
    format!(
        "{}: {}, rows of {} B, {} updates of {} a tick, {draw}{}, round {}",
        case.subject,
        human_bytes(case.data_bytes as f64),
        case.row_len,
        case.updates_per_tick,
        if case.writes == Writes::Row { "the row" } else { "a word" },
        if case.huge_pages { ", huge pages" } else { "" },
        case.round + 1
    )
}
