//! `pause`: what a save does to those who are being served.
//!
//! Each round starts every server in turn on the same data, sends SETs on a fixed schedule, and saves while they
//! run. Reported are the worst latency of each second before, of the first second after the cut and during the
//! save, memory over time, the time the save took, and the time a restart takes from a cold page cache.

mod config;
pub mod memory;
mod report;
mod restart;
mod round;

use self::config::Config;
use crate::clock::{seconds_to_ns, NS_PER_US};
use crate::commands::{place, DataArgs};
use crate::error::{BenchError, Result};
use crate::load::workload::SizeRange;
use crate::output::{OutArgs, Output};
use crate::peer::{Peer, PeerArgs, PeerKind};
use crate::pin::{CpuArgs, CpuPlan};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    peers: PeerArgs,
    /// Size of the data: this many GiB of values
    #[arg(long, value_name = "GIB", default_value_t = 4.0)]
    gb: f64,
    /// Size of the values that are loaded
    #[arg(short = 'd', long, value_name = "BYTES", default_value_t = 1024)]
    value_size: usize,
    /// Size of the values that are written during the measurement, or MIN-MAX [default: as loaded]
    #[arg(long, value_name = "BYTES")]
    overwrite_size: Option<SizeRange>,
    /// SETs a second on a fixed schedule; 0: as fast as they are answered
    #[arg(short, long, value_name = "PER_SECOND", default_value_t = 10_000.0)]
    rate: f64,
    /// SETs that are due at the same instant [default: 1; if the generator shares a core with the saver, as many
    /// as make one burst a millisecond, because waking for each SET would take half of the core]
    #[arg(long, value_name = "COUNT")]
    burst: Option<u64>,
    /// Connections
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 16)]
    clients: usize,
    /// Requests in flight on a connection, with --rate 0
    #[arg(short = 'P', long, value_name = "COUNT", default_value_t = 1)]
    pipeline: usize,
    /// How often each server is started, filled, measured and restarted, in turn
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    rounds: usize,
    /// Rounds in which servers other than Stillframe take part, spread evenly; their saves can take minutes [default: all]
    #[arg(long, value_name = "COUNT")]
    peer_rounds: Option<usize>,
    /// Saves a round. Where checkpoints are incremental only the first of a round writes everything
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    saves: usize,
    /// Seconds of load before each save
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    before: f64,
    /// Seconds of load after each save
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    after: f64,
    /// Seconds between the fill and the load
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    settle: f64,
    /// Spin before each send instead of sleeping; only with a core for the generator alone
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    spin: u64,
    /// Connect through unix sockets instead of TCP
    #[arg(long)]
    unix: bool,
    /// Keep a log of changes, synced once a second, and have it compacted instead of saving: BGREWRITEAOF (Async-fork, Figure 21)
    #[arg(long)]
    rewrite: bool,
    /// Leave out the restarts
    #[arg(long)]
    no_restart: bool,
    #[command(flatten)]
    data: DataArgs,
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// A run of a few seconds: 8 MiB, one round, one second before
    #[arg(long)]
    small: bool,
    #[command(flatten)]
    cpus: CpuArgs,
    #[command(flatten)]
    out: OutArgs,
}

impl Args {
    fn config(&self, cpus: Option<CpuPlan>) -> Result<Config> {
        let gb = if self.small { 8.0 / 1024.0 } else { self.gb };
        let key_count = (gb * (1u64 << 30) as f64 / self.value_size.max(1) as f64) as u64;
        if key_count == 0 {
            return Err(BenchError::Failed("--gb is less than one value".to_owned()));
        }
        let seconds =
            |wanted: f64, small: f64| seconds_to_ns(if self.small { wanted.min(small) } else { wanted });
        let rate = if self.small { self.rate.min(5000.0) } else { self.rate };
        let rounds = if self.small { 1 } else { self.rounds.max(1) };
        let shared = cpus.as_ref().is_none_or(CpuPlan::generator_shares_core);
        let burst = self.burst.unwrap_or(if shared { (rate / 1000.0) as u64 } else { 1 });
        Ok(Config {
            key_count,
            value_bytes: self.value_size,
            overwrite_size: self.overwrite_size.unwrap_or(SizeRange::fixed(self.value_size)),
            rate,
            burst: burst.max(1),
            clients: self.clients.max(1),
            pipeline: self.pipeline.max(1),
            rounds,
            peer_rounds: self.peer_rounds.unwrap_or(rounds).clamp(1, rounds),
            saves: self.saves.max(1),
            before_ns: seconds(self.before.max(1.0), 1.0),
            after_ns: seconds(self.after, 0.2),
            settle_ns: seconds(self.settle, 0.1),
            spin_ns: self.spin * NS_PER_US,
            unix: self.unix,
            restart: !self.no_restart,
            rewrites: self.rewrite,
            data: self.data.scratch(),
            seed: self.seed,
            cpus,
        })
    }
}

pub fn run(args: &Args) -> Result<()> {
    let peers = args.peers.resolve()?;
    let mut out = Output::new(&args.out, "pause", "What a save does to those who are being served", &peers)?;
    let config = args.config(place(&args.cpus, &mut out)?)?;
    describe(&config, &mut out);
    let rounds = run_rounds(&config, &peers, &mut out)?;
    report::write(&config, &rounds, &out)
}

fn run_rounds(config: &Config, peers: &[Peer], out: &mut Output) -> Result<Vec<round::Round>> {
    let mut rounds = Vec::new();
    for number in 0..config.rounds {
        let stillframe_alone = !takes_part(number, config.peer_rounds, config.rounds);
        for peer in peers {
            if stillframe_alone && peer.kind != PeerKind::Stillframe {
                continue;
            }
            eprintln!("round {} of {}: {}", number + 1, config.rounds, peer.name);
            rounds.push(round::run(config, peer, number)?);
        }
        if number == 0 {
            for note in
                rounds.iter().flat_map(|r: &round::Round| &r.notes).collect::<std::collections::BTreeSet<_>>()
            {
                out.note("note", note.clone());
            }
        }
    }
    Ok(rounds)
}

/// Whether round `number` of `rounds` is one of the `chosen` that lie evenly among them, the first being one.
fn takes_part(number: usize, chosen: usize, rounds: usize) -> bool {
    number * chosen % rounds < chosen
}

fn describe(config: &Config, out: &mut Output) {
    let data = config.key_count as f64 * config.value_bytes as f64 / (1u64 << 30) as f64;
    let keys = format!(
        "{} keys of 16 B, values of {} B ({data:.2} GiB), random bytes",
        config.key_count, config.value_bytes
    );
    let load = if config.rate > 0.0 {
        format!(
            "open loop, {} SET/s, due {} at a time, latency from the intended send time",
            config.rate, config.burst
        )
    } else {
        format!(
            "closed loop, as fast as it goes, {} requests in flight on each connection; latency from the actual send",
            config.pipeline
        )
    };
    out.note("data", keys);
    if config.rewrites {
        out.note("save", "BGREWRITEAOF, appendonly yes, appendfsync everysec");
    }
    out.note(
        "load",
        format!(
            "{load}; {} connections over {}, keys uniform and fresh, values of {} B",
            config.clients,
            if config.unix { "a unix socket" } else { "TCP loopback" },
            config.overwrite_size
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::takes_part;

    #[test]
    fn chosen_rounds_are_as_many_as_asked_for_and_apart() {
        for rounds in 1..=20 {
            for chosen in 1..=rounds {
                let taken: Vec<_> = (0..rounds).filter(|&n| takes_part(n, chosen, rounds)).collect();
                assert_eq!(taken.len(), chosen);
                assert_eq!(taken[0], 0);
                assert!(taken.windows(2).all(|w| w[1] - w[0] >= rounds / chosen));
            }
        }
    }
}
