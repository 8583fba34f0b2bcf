//! `streams`: what entries and groups of consumers cost beside other servers: CPU time a command, memory, and what others wait for. The
//! bars of the streams' design.

mod cpu;
mod memory;
mod requests;
mod setting;
mod waits;

use self::setting::Setting;
use crate::commands::{place, DataArgs};
use crate::error::Result;
use crate::output::{OutArgs, Output};
use crate::peer::PeerArgs;
use crate::pin::CpuArgs;
use crate::section::{self, Section};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    peers: PeerArgs,
    /// What is measured [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    parts: Option<Vec<Part>>,
    /// Entries of the stream
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1_000_000)]
    entries: u64,
    /// Clients that wait for one stream
    #[arg(long, value_name = "COUNT", default_value_t = 5_000)]
    waiters: usize,
    /// Alternating rounds
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement
    #[arg(short = 't', long, value_name = "SECONDS", default_value_t = 3.0)]
    seconds: f64,
    #[command(flatten)]
    data: DataArgs,
    /// A run of seconds: 2,000 entries, 20 clients, one round
    #[arg(long)]
    small: bool,
    #[command(flatten)]
    cpus: CpuArgs,
    #[command(flatten)]
    out: OutArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// CPU time of XADD, XRANGE, and XREADGROUP with its XACK
    Cpu,
    /// Bytes an entry, a pending entry, and a stream of three entries
    Memory,
    /// The longest GET beside what changes or wakes a great deal
    Waits,
}

impl Part {
    const ALL: [Part; 3] = [Part::Cpu, Part::Memory, Part::Waits];

    fn measure(self, setting: &Setting) -> Result<Section> {
        match self {
            Part::Cpu => cpu::measure(setting),
            Part::Memory => memory::measure(setting),
            Part::Waits => waits::measure(setting),
        }
    }
}

pub fn run(args: &Args) -> Result<()> {
    let mut args = args.clone();
    if args.small {
        (args.entries, args.waiters, args.rounds, args.seconds) = (2000, 20, 1, 0.1);
    }
    let peers = args.peers.resolve()?;
    let mut out = Output::new(&args.out, "streams", "Streams", &peers)?;
    let cpus = place(&args.cpus, &mut out)?;
    out.note(
        "load",
        format!("a stream of {} entries, {} waiters, {} rounds", args.entries, args.waiters, args.rounds),
    );
    let setting = Setting {
        peers,
        cpus,
        scratch: args.data.scratch(),
        entry_count: args.entries,
        waiter_count: args.waiters,
        rounds: args.rounds,
        seconds: args.seconds,
    };
    let parts = args.parts.clone().unwrap_or(Part::ALL.to_vec());
    let sections = parts.into_iter().map(|part| part.measure(&setting)).collect::<Result<_>>()?;
    section::report(&mut out, args.small, sections)
}
