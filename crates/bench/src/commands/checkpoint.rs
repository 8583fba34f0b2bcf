//! `checkpoint`: how long a full save takes, what a checkpoint writes when little has changed, and how large the
//! page file becomes when checkpoints go on and on under writes.

use std::path::Path;

use serde_json::{json, Value};

use crate::clock::now_ns;
use crate::commands::{directory_bytes, fill, place, DataArgs};
use crate::error::{BenchError, Result};
use crate::load::closed_loop::ClosedLoop;
use crate::load::workload::KEY_BYTES;
use crate::load::{KeyChoice, Recording, Stop, Workload, WorkloadSpec};
use crate::output::{human_bytes, human_ns, markdown_table, OutArgs, Output};
use crate::peer::{Peer, PeerArgs, PeerKind, Server, StartOptions};
use crate::pin::{CpuArgs, CpuPlan};
use crate::resp::{info_number, Address, Client};
use crate::stats::with_range;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    peers: PeerArgs,
    /// Size of the data: this many GiB of values
    #[arg(long, value_name = "GIB", default_value_t = 1.0)]
    gb: f64,
    /// Value size in bytes
    #[arg(short = 'd', long, value_name = "BYTES", default_value_t = 1024)]
    value_size: usize,
    /// How often each server is started, filled and saved, in turn
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    rounds: usize,
    /// Checkpoints under writes after which the page file's size is read
    #[arg(long, value_name = "COUNT", default_value_t = 12)]
    steady_checkpoints: usize,
    /// Share of the keys that is overwritten between two of them
    #[arg(long, value_name = "PERCENT", default_value_t = 20.0)]
    steady_percent: f64,
    #[command(flatten)]
    data: DataArgs,
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// A run of a few seconds: 8 MiB, one round
    #[arg(long)]
    small: bool,
    #[command(flatten)]
    cpus: CpuArgs,
    #[command(flatten)]
    out: OutArgs,
}

const PAGE_BYTES: f64 = 4096.0;

/// One incremental checkpoint, from the server's own counters; a counter that the server lacks is `None`.
#[derive(Clone, Debug)]
struct Incremental {
    what: String,
    keys_written: u64,
    save_ns: u64,
    pages_changed: Option<f64>,
    bytes_written: Option<f64>,
    pages_total: f64,
}

struct Round {
    peer: String,
    full_save_ns: u64,
    files_bytes: u64,
    incremental: Vec<Incremental>,
    /// Size of the page file after each checkpoint of the steady state.
    steady_bytes: Vec<u64>,
}

struct Run {
    args: Args,
    key_count: u64,
    cpus: Option<CpuPlan>,
}

pub fn run(args: &Args) -> Result<()> {
    let mut args = args.clone();
    if args.small {
        (args.gb, args.rounds, args.steady_checkpoints) = (8.0 / 1024.0, 1, 3);
    }
    let key_count = (args.gb * (1u64 << 30) as f64 / args.value_size.max(1) as f64) as u64;
    let peers = args.peers.resolve()?;
    let mut out = Output::new(&args.out, "checkpoint", "Saves and checkpoints", &peers)?;
    let cpus = place(&args.cpus, &mut out)?;
    out.note(
        "data",
        format!(
            "{key_count} keys of 16 B, values of {} B, random bytes, no load during saves",
            args.value_size
        ),
    );
    let scratch = args.data.scratch();
    let run = Run { args, key_count, cpus };
    let mut rounds = Vec::new();
    for number in 0..run.args.rounds.max(1) {
        for peer in &peers {
            eprintln!("round {}: {}", number + 1, peer.name);
            rounds.push(run.round(peer, &scratch.path().join(format!("{}-{number}", peer.name)))?);
        }
    }
    out.write_json(&rounds.iter().map(Round::json).collect::<Vec<_>>())?;
    out.write_markdown(&run.report(&peers, &rounds))
}

impl Run {
    fn round(&self, peer: &Peer, dir: &Path) -> Result<Round> {
        let server = peer.start(&StartOptions {
            dir: dir.to_owned(),
            unix_socket: true,
            keeps_log: false,
            cpus: self.cpus.clone(),
        })?;
        let spec = WorkloadSpec::sets(self.key_count, self.args.value_size, KeyChoice::Once, self.args.seed);
        fill::fill(&server.target, spec)?;
        std::thread::sleep(std::time::Duration::from_secs(if self.args.small { 0 } else { 2 }));
        let mut client = server.client()?;
        let full_save_ns = server.save(&mut client, || {})?.save_ns();
        eprintln!("  full save: {}", human_ns(full_save_ns as f64));
        let mut round = Round {
            peer: peer.name.clone(),
            full_save_ns,
            files_bytes: directory_bytes(dir),
            incremental: Vec::new(),
            steady_bytes: Vec::new(),
        };
        if peer.kind == PeerKind::Stillframe {
            round.incremental = self.incremental(&server, &mut client)?;
            round.steady_bytes = self.steady_state(&server, &mut client)?;
        }
        server.stop_without_save()?;
        // Gigabytes; the scratch directory goes at the end anyway.
        let _ = std::fs::remove_dir_all(dir);
        Ok(round)
    }

    /// Checkpoints after so many random keys were overwritten that about 1 % of the pages changed, and after 1 %
    /// of the keys were. Nobody outside knows which key is on which page: the first number is found by a trial.
    fn incremental(&self, server: &Server, client: &mut Client) -> Result<Vec<Incremental>> {
        let pages_total =
            info_number(&client.info("everything")?, "last_checkpoint_pages_changed").unwrap_or(0.0);
        let trial_keys = (self.key_count / 1000).max(1);
        let trial = self.change(server, client, "trial", trial_keys, pages_total, 1)?;
        let pages_a_key = trial.pages_changed.unwrap_or(0.0) / trial_keys as f64;
        let mut results = Vec::new();
        if pages_a_key > 0.0 {
            let keys = (pages_total * 0.01 / pages_a_key).max(1.0) as u64;
            results.push(self.change(server, client, "1 % of the pages", keys, pages_total, 2)?);
        }
        results.push(self.change(server, client, "1 % of the keys", self.key_count / 100, pages_total, 3)?);
        Ok(results)
    }

    fn change(
        &self,
        server: &Server,
        client: &mut Client,
        what: &str,
        keys: u64,
        pages_total: f64,
        draw: u64,
    ) -> Result<Incremental> {
        self.overwrite(&server.target, keys, draw)?;
        let save_ns = server.save(client, || {})?.save_ns();
        let info = client.info("everything")?;
        Ok(Incremental {
            what: what.to_owned(),
            keys_written: keys,
            save_ns,
            pages_changed: info_number(&info, "last_checkpoint_pages_changed"),
            bytes_written: info_number(&info, "last_checkpoint_bytes_written"),
            pages_total,
        })
    }

    /// Overwrites so many different random keys with values of the same size.
    fn overwrite(&self, target: &Address, keys: u64, draw: u64) -> Result<()> {
        let spec =
            WorkloadSpec::sets(self.key_count, self.args.value_size, KeyChoice::Once, self.args.seed + draw);
        let mut workload = Workload::new(spec)?;
        let stop = Stop { request_count: Some(keys.clamp(1, self.key_count)), ..Stop::default() };
        let closed = ClosedLoop { target: target.clone(), conn_count: 4, pipeline: 16 };
        let report = closed.run(&mut workload, Recording::new(now_ns()), stop)?;
        match report.tally.first_error {
            Some(error) => Err(BenchError::Failed(format!("{target} refused a write: {error}"))),
            None => Ok(()),
        }
    }

    fn steady_state(&self, server: &Server, client: &mut Client) -> Result<Vec<u64>> {
        let keys = (self.key_count as f64 * self.args.steady_percent / 100.0) as u64;
        let mut sizes = Vec::new();
        for number in 0..self.args.steady_checkpoints {
            self.overwrite(&server.target, keys, 100 + number as u64)?;
            server.save(client, || {})?;
            let size = info_number(&client.info("everything")?, "pagefile_bytes");
            let size = size.ok_or_else(|| {
                BenchError::Failed(format!("{}: INFO persistence has no pagefile_bytes", server.name))
            })?;
            sizes.push(size as u64);
        }
        Ok(sizes)
    }

    fn live_bytes(&self) -> f64 {
        self.key_count as f64 * (KEY_BYTES + self.args.value_size) as f64
    }

    fn report(&self, peers: &[Peer], rounds: &[Round]) -> String {
        let of = |peer: &Peer| rounds.iter().filter(|r| r.peer == peer.name).collect::<Vec<_>>();
        let mut header = vec!["full save, median (range)"];
        header.extend(peers.iter().map(|p| p.name.as_str()));
        let save =
            |p: &Peer| with_range(&of(p).iter().map(|r| r.full_save_ns as f64).collect::<Vec<_>>(), human_ns);
        let files = |p: &Peer| {
            with_range(&of(p).iter().map(|r| r.files_bytes as f64).collect::<Vec<_>>(), human_bytes)
        };
        let row = |name: &str, cell: &dyn Fn(&Peer) -> String| {
            std::iter::once(name.to_owned()).chain(peers.iter().map(cell)).collect::<Vec<_>>()
        };
        let mut text = markdown_table(&header, &[row("time", &save), row("files on disk", &files)]);
        let incremental: Vec<_> =
            rounds.iter().flat_map(|r| r.incremental.iter().map(|i| i.row(&r.peer))).collect();
        if !incremental.is_empty() {
            let header = [
                "server",
                "changed",
                "keys",
                "pages",
                "of all pages",
                "written",
                "written / changed",
                "beyond 1.3 x",
                "time",
            ];
            text.push_str(&format!(
                "\n## Incremental checkpoints\n\n{}",
                markdown_table(&header, &incremental)
            ));
        }
        let steady: Vec<_> =
            rounds.iter().filter(|r| !r.steady_bytes.is_empty()).map(|r| self.steady_row(r)).collect();
        if !steady.is_empty() {
            let header = ["server", "live data", "page file, last", "largest", "largest / live"];
            text.push_str(&format!(
                "\n## Page file in the steady state\n\nAfter {} checkpoints with {} % of the keys overwritten between two; live data is keys and values.\n\n{}",
                self.args.steady_checkpoints,
                self.args.steady_percent,
                markdown_table(&header, &steady)
            ));
        }
        text
    }

    fn steady_row(&self, round: &Round) -> Vec<String> {
        let last = round.steady_bytes.last().copied().unwrap_or(0) as f64;
        let largest = round.steady_bytes.iter().copied().max().unwrap_or(0) as f64;
        vec![
            round.peer.clone(),
            human_bytes(self.live_bytes()),
            human_bytes(last),
            human_bytes(largest),
            format!("{:.2} x", largest / self.live_bytes()),
        ]
    }
}

impl Incremental {
    fn row(&self, peer: &str) -> Vec<String> {
        let or_missing = |v: Option<String>| v.unwrap_or_else(|| "not in INFO".to_owned());
        let changed_bytes = self.pages_changed.map(|p| p * PAGE_BYTES);
        let both = changed_bytes.zip(self.bytes_written);
        let over = both.map(|(changed, written)| format!("{:.2} x", written / changed.max(1.0)));
        let beyond = both.map(|(changed, written)| human_bytes((written - 1.3 * changed).max(0.0)));
        vec![
            peer.to_owned(),
            self.what.clone(),
            self.keys_written.to_string(),
            or_missing(self.pages_changed.map(|p| format!("{p:.0}"))),
            or_missing(self.pages_changed.map(|p| format!("{:.2} %", 100.0 * p / self.pages_total.max(1.0)))),
            or_missing(self.bytes_written.map(human_bytes)),
            or_missing(over),
            or_missing(beyond),
            human_ns(self.save_ns as f64),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "changed": self.what,
            "keys_written": self.keys_written,
            "pages_changed": self.pages_changed,
            "pages_total": self.pages_total,
            "bytes_written": self.bytes_written,
            "save_s": self.save_ns as f64 / 1e9,
        })
    }
}

impl Round {
    fn json(&self) -> Value {
        json!({
            "peer": self.peer,
            "full_save_s": self.full_save_ns as f64 / 1e9,
            "files_bytes": self.files_bytes,
            "incremental": self.incremental.iter().map(Incremental::json).collect::<Vec<_>>(),
            "steady_pagefile_bytes": self.steady_bytes,
        })
    }
}
