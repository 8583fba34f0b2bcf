//! `waits`: what commands wait for beside others that take long. A huge value that is stored, replaced and sent, a bound of
//! memory that is lowered, a reply that nobody reads: the bars of time that no test judges.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{json, Value};

use crate::clock::now_ns;
use crate::commands::memory::used_bytes;
use crate::commands::{fill, place, DataArgs};
use crate::error::{BenchError, Result};
use crate::load::{KeyChoice, WorkloadSpec};
use crate::output::{markdown_table, OutArgs, Output};
use crate::peer::{Peer, PeerArgs, Server, StartOptions};
use crate::pin::{CpuArgs, CpuPlan};
use crate::resp::Client;
use crate::stats::{median, percentile, with_range};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    peers: PeerArgs,
    /// MB of the huge value
    #[arg(long, value_name = "MB", default_value_t = 256)]
    value_mb: usize,
    /// Keys of 200 B of which two thirds have to go
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 200_000)]
    keys: u64,
    /// Rounds, each with servers of its own
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    rounds: usize,
    #[command(flatten)]
    data: DataArgs,
    /// A run of seconds: 16 MB, 20,000 keys, 1 round
    #[arg(long)]
    small: bool,
    #[command(flatten)]
    cpus: CpuArgs,
    #[command(flatten)]
    out: OutArgs,
}

/// What is waited for, in the order of a round, with the bar for Stillframe.
const WAITS: [(&str, &str); 6] = [
    ("SET of a huge value, the command itself", "40 ms"),
    ("SET of a small value over it", "500 ms"),
    ("PING while it is sent, longest", ""),
    ("GET beside a reply that nobody reads, median", ""),
    ("SET while two thirds of the keys go, median", "20 ms"),
    ("SET while two thirds of the keys go, longest", ""),
];

pub fn run(args: &Args) -> Result<()> {
    let mut args = args.clone();
    if args.small {
        (args.value_mb, args.keys, args.rounds) = (16, 20_000, 1);
    }
    let peers = args.peers.resolve()?;
    let mut out =
        Output::new(&args.out, "waits", "What commands wait for beside others that take long", &peers)?;
    let cpus = place(&args.cpus, &mut out)?;
    out.note(
        "load",
        format!("a value of {} MB, {} keys of 200 B, {} rounds", args.value_mb, args.keys, args.rounds),
    );
    let mut rounds: Vec<Vec<[f64; WAITS.len()]>> = vec![Vec::new(); peers.len()];
    for _ in 0..args.rounds {
        for (peer, of_peer) in peers.iter().zip(&mut rounds) {
            of_peer.push(round_us(&args, peer, cpus.clone())?);
        }
    }
    let column =
        |of_peer: &[[f64; WAITS.len()]], at: usize| -> Vec<f64> { of_peer.iter().map(|r| r[at]).collect() };
    let (mut rows, mut records) = (Vec::new(), Vec::<Value>::new());
    for (at, (wait, bar)) in WAITS.iter().enumerate() {
        let mut row = vec![(*wait).to_owned()];
        for (peer, of_peer) in peers.iter().zip(&rounds) {
            let waits_us = column(of_peer, at);
            row.push(with_range(&waits_us, |us| format!("{:.2} ms", us / 1000.0)));
            records.push(
                json!({ "peer": peer.name, "wait": wait, "us": waits_us, "median_us": median(&waits_us) }),
            );
        }
        row.push((*bar).to_owned());
        rows.push(row);
    }
    out.write_json(&records)?;
    let mut head = vec!["wait"];
    head.extend(peers.iter().map(|peer| peer.name.as_str()));
    head.push("bar of Stillframe");
    out.write_markdown(&markdown_table(&head, &rows))
}

/// One round of a peer, in microseconds, in the order of [`WAITS`].
fn round_us(args: &Args, peer: &Peer, cpus: Option<CpuPlan>) -> Result<[f64; WAITS.len()]> {
    let scratch = args.data.scratch();
    let dir = scratch.path().join(&peer.name);
    let mut peer = peer.clone();
    peer.args.extend(
        ["--maxmemory-policy", "allkeys-lfu", "--client-output-buffer-limit", "normal 0 0 0"]
            .map(String::from),
    );
    let server = peer.start(&StartOptions { dir: dir.clone(), unix_socket: true, keeps_log: false, cpus })?;
    let (set, over, ping) = huge_value_us(args, &server)?;
    let beside = unread_reply_us(args, &server)?;
    let (usual, longest) = lowered_bound_us(args, &server)?;
    server.stop_without_save()?;
    let _ = std::fs::remove_dir_all(&dir);
    Ok([set, over, ping, beside, usual, longest])
}

/// How long a command took.
fn timed_us(client: &mut Client, words: &[&str]) -> Result<f64> {
    let since_ns = now_ns();
    client.call(words)?;
    Ok((now_ns() - since_ns) as f64 / 1000.0)
}

/// The command by the server's own clock, what replaces its value, and the longest PING while the value is sent.
fn huge_value_us(args: &Args, server: &Server) -> Result<(f64, f64, f64)> {
    let (mut client, mut other) = (server.client()?, server.client()?);
    let value = "x".repeat(args.value_mb << 20);
    client.call(&["SET", "huge", &value])?;
    client.call(&["CONFIG", "RESETSTAT"])?;
    client.call(&["SET", "huge", &value])?;
    let stats = client.info("commandstats")?;
    let usec =
        stats.get("cmdstat_set").and_then(|line| line.split("usec=").nth(1)?.split(',').next()?.parse().ok());
    let set_us: f64 =
        usec.ok_or_else(|| BenchError::Failed("INFO commandstats has no time of SET".to_owned()))?;
    let is_sent = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        let pings = scope.spawn(|| -> Result<f64> {
            let mut longest_us: f64 = 0.0;
            while !is_sent.load(Ordering::Relaxed) {
                longest_us = longest_us.max(timed_us(&mut other, &["PING"])?);
            }
            Ok(longest_us)
        });
        let sent = client.call(&["GET", "huge"]);
        is_sent.store(true, Ordering::Relaxed);
        let longest =
            pings.join().unwrap_or_else(|_| Err(BenchError::Failed("a thread has failed".to_owned())));
        sent.and(longest)
    })?;
    let over_us = timed_us(&mut client, &["SET", "huge", "small"])?;
    Ok((set_us, over_us, longest))
}

/// The median GET while a reply of many fields waits for a reader.
fn unread_reply_us(args: &Args, server: &Server) -> Result<f64> {
    let (mut client, mut idle) = (server.client()?, server.client()?);
    let value = "v".repeat(1000);
    let field_count = if args.small { 2_000 } else { 50_000 };
    for field in 0..field_count {
        client.call(&["HSET", "wide", &field.to_string(), &value])?;
    }
    idle.send(&["HGETALL", "wide"])?;
    let waits: Result<Vec<u64>> =
        (0..1_000).map(|_| timed_us(&mut client, &["GET", "huge"]).map(|us| (us * 1000.0) as u64)).collect();
    Ok(percentile(&mut waits?, 50.0) as f64 / 1000.0)
}

/// The median and the longest SET from when the bound is lowered until what is used is below it.
fn lowered_bound_us(args: &Args, server: &Server) -> Result<(f64, f64)> {
    let mut client = server.client()?;
    client.call(&["FLUSHALL"])?;
    fill::fill(&server.target, WorkloadSpec::sets(args.keys, 200, KeyChoice::Once, 1))?;
    let bound = used_bytes(&mut client)? / 3;
    client.call(&["CONFIG", "SET", "maxmemory", &bound.to_string()])?;
    let mut waits_ns = Vec::new();
    loop {
        waits_ns.push((timed_us(&mut client, &["SET", "own", "1"])? * 1000.0) as u64);
        if waits_ns.len() > 1_000_000 || used_bytes(&mut client)? <= bound {
            break;
        }
    }
    let longest_ns = waits_ns.iter().max().copied().unwrap_or(0);
    Ok((percentile(&mut waits_ns, 50.0) as f64 / 1000.0, longest_ns as f64 / 1000.0))
}
