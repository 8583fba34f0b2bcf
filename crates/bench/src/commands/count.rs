//! `count`: instructions, locked instructions, calls of the allocator, system calls and page faults a command; held against a
//! file, too.

use std::path::PathBuf;

use crate::commands::{DataArgs, Scratch};
use crate::count::baseline::{Baseline, Built, Verdict};
use crate::count::cases::{self, Case};
use crate::count::figures::{Counts, Figure};
use crate::count::locked::Locked;
use crate::count::server::Plan;
use crate::count::{native, valgrind};
use crate::error::{BenchError, Result};
use crate::output::{markdown_section, markdown_table, say, OutArgs, Output};
use crate::peer::{Peer, PeerArgs, PeerKind};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    peers: PeerArgs,
    /// What is counted, e.g. get,set [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    commands: Option<Vec<String>>,
    /// Requests in flight on a connection
    #[arg(short = 'P', long, value_name = "LIST", value_delimiter = ',', default_value = "1,16")]
    pipelines: Vec<usize>,
    /// Workers of a Stillframe; others are counted where this has 1
    #[arg(short = 'w', long, value_name = "LIST", value_delimiter = ',', default_value = "1,2")]
    workers: Vec<usize>,
    /// Hold the counts of this project's server against this file: fails if one is above 1.01 of it (two workers: 1.05), and
    /// says SKIP where compiler, libc, processor or valgrind are not the file's. Writes no report
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
    /// Put the counts of this project's server into this file; those that are not counted now stay as they are
    #[arg(long, value_name = "FILE", conflicts_with_all = ["check", "small"])]
    write: Option<PathBuf>,
    #[command(flatten)]
    data: DataArgs,
    /// An eighth of the data, a tenth of the commands
    #[arg(long, conflicts_with = "check")]
    small: bool,
    #[command(flatten)]
    out: OutArgs,
}

/// Commands that are counted at least, in whole rounds of 50 connections.
const COMMAND_COUNT: u64 = 8000;
/// More in a round would empty the collections that commands take from.
const PIPELINE_MAX: usize = 32;
const WORKERS_MAX: usize = 8;

struct Run<'a> {
    args: &'a Args,
    scratch: Scratch,
    locked: Locked,
    results: Vec<(Peer, Plan, Counts)>,
}

pub fn run(args: &Args) -> Result<()> {
    let plans = plans(args)?;
    let peers = peers(args)?;
    let own = peers.iter().find(|peer| peer.kind == PeerKind::Stillframe);
    let kept = args.check.as_ref().or(args.write.as_ref());
    let built = match (own, kept) {
        (Some(own), Some(_)) => Some(Built::of(own)?),
        (None, Some(_)) => {
            return Err(BenchError::Failed("--check and --write want --peers stillframe".to_owned()))
        }
        (_, None) => None,
    };
    let baseline = args.check.as_deref().map(Baseline::read).transpose()?;
    if let Some(why) = baseline.iter().zip(&built).find_map(|(file, here)| file.check_built(here).err()) {
        say(&format!("SKIP: these counts cannot be held against the file's: {why}. {}", renewal(args)));
        return Ok(());
    }
    let out = match args.check {
        Some(_) => None,
        None => Some(Output::new(&args.out, "count", "Counts", &peers)?),
    };
    let mut run = Run { args, scratch: args.data.scratch(), locked: Locked::default(), results: Vec::new() };
    for plan in &plans {
        for peer in &peers {
            run.count(plan, peer)?;
        }
    }
    if let Some(out) = out {
        out.write_json(
            &run.results.iter().map(|(peer, plan, counts)| counts.json(&peer.name, plan)).collect::<Vec<_>>(),
        )?;
        out.write_markdown(&run.report())?;
    } else {
        say(&run.report());
    }
    if let (Some(path), Some(built)) = (&args.write, built) {
        run.write(path, built)?;
    }
    baseline.map_or(Ok(()), |baseline| run.check(&baseline))
}

/// How the file is brought up to what is counted here.
fn renewal(args: &Args) -> String {
    let path = args.check.as_deref().unwrap_or_else(|| std::path::Path::new("FILE"));
    format!(
        "To renew it: cargo build --release -p stillframe-server -p stillframe-bench, then \
         target/release/stillframe-bench count --peers stillframe --write {}; the commit says why",
        path.display()
    )
}

fn plans(args: &Args) -> Result<Vec<Plan>> {
    let cases: Vec<Case> = match &args.commands {
        Some(names) => names.iter().map(|name| Case::named(&name.to_lowercase())).collect::<Result<_>>()?,
        None => cases::ALL.to_vec(),
    };
    let is_in = |list: &[usize], max| list.iter().all(|number| (1..=max).contains(number));
    if !is_in(&args.pipelines, PIPELINE_MAX) || !is_in(&args.workers, WORKERS_MAX) {
        return Err(BenchError::Failed(format!(
            "--pipelines takes numbers from 1 to {PIPELINE_MAX}, --workers from 1 to {WORKERS_MAX}"
        )));
    }
    let (command_count, share_of) = if args.small { (COMMAND_COUNT / 10, 8) } else { (COMMAND_COUNT, 1) };
    let mut plans = Vec::new();
    for case in cases {
        for &worker_count in &args.workers {
            let with = |&pipeline| Plan { case, pipeline, worker_count, command_count, share_of };
            plans.extend(args.pipelines.iter().map(with));
        }
    }
    Ok(plans)
}

/// Held against a file is this project's alone.
fn peers(args: &Args) -> Result<Vec<Peer>> {
    match (&args.check, &args.peers.peers) {
        (Some(_), None) => Ok(vec![args.peers.peer("stillframe")?]),
        _ => args.peers.resolve(),
    }
}

impl Run<'_> {
    fn count(&mut self, plan: &Plan, peer: &Peer) -> Result<()> {
        if peer.kind != PeerKind::Stillframe && plan.worker_count > 1 {
            return Ok(());
        }
        let under = valgrind::count(plan, peer, self.scratch.path())?;
        let alone = native::count(plan, peer, self.scratch.path())?;
        let counts = Counts::of(&under, &alone, &mut self.locked)?;
        let figures =
            Figure::ALL.map(|figure| format!("{} {}", figure.text(counts.get(figure)), figure.name()));
        eprintln!("{}, {}: {}", plan.line(), peer.name, figures.join(", "));
        self.results.push((peer.clone(), *plan, counts));
        Ok(())
    }

    /// Those of this project's own server, which the file is about.
    fn own(&self) -> impl Iterator<Item = (&Plan, &Counts)> {
        let own = self.results.iter().filter(|(peer, ..)| peer.name == "stillframe");
        own.map(|(_, plan, counts)| (plan, counts))
    }

    fn write(&self, path: &std::path::Path, built: Built) -> Result<()> {
        // Figures that were counted with something else cannot stay beside those of now.
        let kept = path.is_file().then(|| Baseline::read(path)).transpose()?;
        let mut baseline = match kept {
            Some(kept) if kept.built == built => kept,
            Some(_) if self.args.commands.is_some() => {
                return Err(BenchError::Failed(format!(
                    "{} was counted with others: count all commands to write it",
                    path.display()
                )));
            }
            _ => Baseline::new(built),
        };
        self.own().for_each(|(plan, counts)| baseline.set(plan, counts));
        baseline.write(path)?;
        eprintln!("wrote {}", path.display());
        Ok(())
    }

    fn check(&self, baseline: &Baseline) -> Result<()> {
        let mut verdict = Verdict::default();
        self.own().for_each(|(plan, counts)| baseline.check(plan, counts, &mut verdict));
        let told = [
            ("Fallen, so that the file should be renewed", &verdict.fallen),
            ("Not in the file", &verdict.unknown),
        ];
        for (title, lines) in told.into_iter().filter(|(_, lines)| !lines.is_empty()) {
            say(&format!("{title}:\n  {}", lines.join("\n  ")));
        }
        match verdict.grown.is_empty() {
            true if verdict.unknown.is_empty() => {
                say("No count has grown above its bound.");
                Ok(())
            }
            true => Err(BenchError::Failed(format!(
                "{} figures are not in the file. {}",
                verdict.unknown.len(),
                renewal(self.args)
            ))),
            false => Err(BenchError::Failed(format!(
                "these counts have grown:\n  {}\n{}",
                verdict.grown.join("\n  "),
                renewal(self.args)
            ))),
        }
    }

    fn report(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for (peer, ..) in &self.results {
            if !names.contains(&peer.name.as_str()) {
                names.push(&peer.name);
            }
        }
        let mut text = format!(
            "A command, in user mode, of the threads that execute commands: {COMMAND_COUNT} commands or more in rounds of 50 \
             connections, each of which sends -P requests while the server is stopped.\n\n"
        );
        if self.args.small {
            text.push_str("A small run: its figures are those of little data, and no measure.\n\n");
        }
        for name in &names {
            let own: Vec<_> = self.results.iter().filter(|(peer, ..)| peer.name == *name).collect();
            let rows: Vec<_> = own.iter().map(|(_, plan, counts)| self.row(plan, counts)).collect();
            let mut header = vec!["command", "-P", "workers"];
            header.extend(Figure::ALL.map(Figure::name));
            header.extend(["background", "to redis"]);
            text.push_str(&format!("## {name}\n\n{}\n", markdown_table(&header, &rows)));
        }
        text.push_str(&self.files_of_a_set());
        text
    }

    fn row(&self, plan: &Plan, counts: &Counts) -> Vec<String> {
        let mut row =
            vec![plan.case.name.to_owned(), plan.pipeline.to_string(), plan.worker_count.to_string()];
        row.extend(Figure::ALL.map(|figure| figure.text(counts.get(figure))));
        row.push(format!("{:.0}", counts.background_instructions));
        let redis = self.results.iter().find(|(peer, other, _)| {
            peer.kind == PeerKind::Redis
                && other.case.name == plan.case.name
                && other.pipeline == plan.pipeline
        });
        let ratio = |(_, _, of_redis): &(Peer, Plan, Counts)| {
            let [own, redis] = [counts, of_redis].map(|counts| counts.get(Figure::Instructions));
            format!("{:.2} x", own / redis)
        };
        row.push(redis.map_or_else(|| "-".to_owned(), ratio));
        row
    }

    /// Source files with their instructions, of the SET with the most requests in flight and one worker.
    fn files_of_a_set(&self) -> String {
        let sets = self.own().filter(|(plan, _)| plan.case.name == "set" && plan.worker_count == 1);
        let Some((plan, counts)) = sets.max_by_key(|(plan, _)| plan.pipeline) else { return String::new() };
        let row = |(file, count): &(String, f64)| vec![file.clone(), format!("{count:.0}")];
        let rows: Vec<_> = counts.files.iter().map(row).collect();
        let comment = format!("{}: files of the project with an instruction a command or more.", plan.line());
        markdown_section("What a SET executes", &comment, &["file", "instructions"], &rows)
    }
}
