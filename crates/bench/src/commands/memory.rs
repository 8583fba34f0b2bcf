//! `memory`: bytes of memory a key, as the slope between two numbers of keys, so that what a server needs without
//! any key does not count. Measured freshly loaded, and after churn: every key overwritten with values of changing
//! size, a fifth of the keys deleted and written again.

use std::path::Path;
use std::time::Duration;

use serde_json::{json, Value};

use crate::clock::{now_ns, NS_PER_S};
use crate::commands::{fill, place, DataArgs};
use crate::error::{BenchError, Result};
use crate::load::closed_loop::ClosedLoop;
use crate::load::workload::SizeRange;
use crate::load::{KeyChoice, Recording, Stop, Workload, WorkloadSpec};
use crate::machine;
use crate::output::{human_bytes, markdown_table, OutArgs, Output};
use crate::peer::{Peer, PeerArgs, Server, StartOptions};
use crate::pin::{CpuArgs, CpuPlan};
use crate::resp::{info_number, Address, Client, Reply};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    peers: PeerArgs,
    /// The smaller number of keys
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000)]
    from: u64,
    /// The larger number of keys
    #[arg(long, value_name = "COUNT", default_value_t = 5_000_000)]
    to: u64,
    /// Value sizes in bytes
    #[arg(short = 'd', long, value_name = "LIST", value_delimiter = ',', default_value = "100,1024,2048")]
    value_sizes: Vec<usize>,
    /// How often churn overwrites every key
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    churn_passes: u64,
    /// Leave out the churn
    #[arg(long)]
    no_churn: bool,
    #[command(flatten)]
    data: DataArgs,
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// A run of a few seconds: 2,000 and 10,000 keys, one value size
    #[arg(long)]
    small: bool,
    #[command(flatten)]
    cpus: CpuArgs,
    #[command(flatten)]
    out: OutArgs,
}

#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    key_count: u64,
    pss_bytes: u64,
    /// What the server itself says.
    used_bytes: u64,
}

struct Slope {
    peer: String,
    value_bytes: usize,
    churned: bool,
    small: Reading,
    large: Reading,
}

impl Slope {
    fn bytes_a_key(&self) -> f64 {
        self.between(|r| r.pss_bytes)
    }

    fn between(&self, of: impl Fn(&Reading) -> u64) -> f64 {
        (of(&self.large) as f64 - of(&self.small) as f64)
            / (self.large.key_count - self.small.key_count) as f64
    }
}

pub fn run(args: &Args) -> Result<()> {
    let mut args = args.clone();
    if args.small {
        (args.from, args.to, args.value_sizes) = (2000, 10_000, vec![100]);
    }
    if args.from == 0 || args.to <= args.from {
        return Err(BenchError::Failed("--to must be larger than --from, and --from at least 1".to_owned()));
    }
    let peers = args.peers.resolve_with_valkey()?;
    let mut out = Output::new(&args.out, "memory", "Memory a key", &peers)?;
    let cpus = place(&args.cpus, &mut out)?;
    out.note(
        "churn",
        format!(
            "every key overwritten {} times with values of 50 % to 150 % of the size, then 20 % of the keys deleted \
             and written again; the mean size stays",
            args.churn_passes
        ),
    );
    let scratch = args.data.scratch();
    let mut slopes = Vec::new();
    for value_bytes in &args.value_sizes {
        for peer in &peers {
            for churned in if args.no_churn { vec![false] } else { vec![false, true] } {
                let dir = scratch.path().join(format!("{}-{value_bytes}-{churned}", peer.name));
                let slope = measure(&args, peer, cpus.clone(), &dir, *value_bytes, churned)?;
                eprintln!(
                    "{} {value_bytes} B {}: {:.1} B a key",
                    peer.name,
                    state(churned),
                    slope.bytes_a_key()
                );
                slopes.push(slope);
            }
        }
    }
    out.write_json(&slopes.iter().map(Slope::json).collect::<Vec<_>>())?;
    out.write_markdown(&table(&args, &peers, &slopes))
}

fn state(churned: bool) -> &'static str {
    if churned {
        "after churn"
    } else {
        "loaded"
    }
}

fn measure(
    args: &Args,
    peer: &Peer,
    cpus: Option<CpuPlan>,
    dir: &Path,
    value_bytes: usize,
    churned: bool,
) -> Result<Slope> {
    let needed = args.to * (value_bytes as u64 * 3 / 2 + 200);
    let available = machine::available_memory_bytes();
    if needed > available {
        return Err(BenchError::Failed(format!(
            "{} keys of {value_bytes} B may need {}; {} are available: give a smaller --to",
            args.to,
            human_bytes(needed as f64),
            human_bytes(available as f64)
        )));
    }
    let server =
        peer.start(&StartOptions { dir: dir.to_owned(), unix_socket: true, keeps_log: false, cpus })?;
    let step = |first_key: u64, key_count: u64| -> Result<Reading> {
        let spec = WorkloadSpec {
            first_key,
            ..WorkloadSpec::sets(key_count, value_bytes, KeyChoice::Once, args.seed)
        };
        fill::fill(&server.target, spec)?;
        let all = first_key + key_count;
        if churned {
            churn(args, &server.target, all, value_bytes)?;
        }
        reading(args, &server, all)
    };
    let small = step(0, args.from)?;
    let large = step(args.from, args.to - args.from)?;
    server.stop_without_save()?;
    // Nothing was saved, but a page file may have grown.
    let _ = std::fs::remove_dir_all(dir);
    Ok(Slope { peer: peer.name.clone(), value_bytes, churned, small, large })
}

fn churn(args: &Args, target: &Address, key_count: u64, value_bytes: usize) -> Result<()> {
    let sizes = SizeRange { min_bytes: value_bytes / 2, max_bytes: value_bytes + value_bytes / 2 };
    let spec = |draw: u64| WorkloadSpec {
        value_size: sizes,
        ..WorkloadSpec::sets(key_count, 0, KeyChoice::Once, args.seed + draw)
    };
    for pass in 0..args.churn_passes {
        fill::fill(target, spec(1 + pass))?;
    }
    // The same seed twice: the fifth that is deleted is the fifth that comes back.
    let fifth = Some(key_count / 5);
    for delete in [true, false] {
        let mut workload = Workload::new(WorkloadSpec { delete, ..spec(1000) })?;
        let closed = ClosedLoop { target: target.clone(), conn_count: 4, pipeline: 64 };
        let stop = Stop { request_count: fifth, ..Stop::default() };
        let report = closed.run(&mut workload, Recording::new(now_ns()), stop)?;
        if let Some(error) = report.tally.first_error {
            return Err(BenchError::Failed(format!("{target} refused a write of the churn: {error}")));
        }
    }
    Ok(())
}

/// Waits until memory has come to rest (rehashing, background freeing), then reads it.
fn reading(args: &Args, server: &Server, key_count: u64) -> Result<Reading> {
    let mut client = server.client()?;
    let stored = client.call(&["DBSIZE"])?;
    if stored != Reply::Int(key_count as i64) {
        return Err(BenchError::Failed(format!("{}: DBSIZE is {stored:?}, not {key_count}", server.name)));
    }
    let pss_bytes = settled_pss_bytes(server, if args.small { NS_PER_S / 5 } else { 12 * NS_PER_S });
    Ok(Reading { key_count, pss_bytes, used_bytes: used_bytes(&mut client)? })
}

/// What the server itself says that it uses.
pub fn used_bytes(client: &mut Client) -> Result<u64> {
    Ok(info_number(&client.info("memory")?, "used_memory").unwrap_or(0.0) as u64)
}

/// At least `least_ns` (jemalloc gives memory back over ten seconds), then until a second changes less than 0.1 %.
pub fn settled_pss_bytes(server: &Server, least_ns: u64) -> u64 {
    let start_ns = now_ns();
    let step = Duration::from_nanos(least_ns.min(NS_PER_S));
    let mut last_bytes = server.pss_bytes();
    loop {
        std::thread::sleep(step);
        let pss_bytes = server.pss_bytes();
        let waited_ns = now_ns() - start_ns;
        let at_rest = pss_bytes.abs_diff(last_bytes) < pss_bytes / 1000;
        if (at_rest && waited_ns >= least_ns) || waited_ns > 60 * NS_PER_S {
            return pss_bytes;
        }
        last_bytes = pss_bytes;
    }
}

impl Slope {
    fn json(&self) -> Value {
        let reading = |r: &Reading| json!({ "keys": r.key_count, "pss_bytes": r.pss_bytes, "used_memory_bytes": r.used_bytes });
        json!({
            "peer": self.peer,
            "value_bytes": self.value_bytes,
            "state": state(self.churned),
            "bytes_a_key": self.bytes_a_key(),
            "used_memory_bytes_a_key": self.between(|r| r.used_bytes),
            "readings": [reading(&self.small), reading(&self.large)],
        })
    }
}

fn table(args: &Args, peers: &[Peer], slopes: &[Slope]) -> String {
    let mut header: Vec<String> = vec!["value".to_owned(), "state".to_owned()];
    header.extend(peers.iter().map(|p| p.name.clone()));
    header.extend(peers.iter().skip(1).map(|p| format!("{} / {}", p.name, peers[0].name)));
    let mut rows = Vec::new();
    for value_bytes in &args.value_sizes {
        for churned in [false, true] {
            let of = |peer: &Peer| {
                let mut all = slopes.iter().filter(|s| s.value_bytes == *value_bytes && s.churned == churned);
                all.find(|s| s.peer == peer.name).map(Slope::bytes_a_key)
            };
            let Some(base) = of(&peers[0]) else { continue };
            let mut row = vec![format!("{value_bytes} B"), state(churned).to_owned()];
            row.extend(peers.iter().map(|p| of(p).map_or("n/a".to_owned(), |b| format!("{b:.1} B"))));
            row.extend(
                peers
                    .iter()
                    .skip(1)
                    .map(|p| of(p).map_or("n/a".to_owned(), |b| format!("{:.2} x", b / base))),
            );
            rows.push(row);
        }
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    format!(
        "Memory a key (16 B key and its value): difference of the proportional set size between {} and {} keys.\n\n{}",
        args.from,
        args.to,
        markdown_table(&header, &rows)
    )
}
