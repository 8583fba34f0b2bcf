//! `durability`: what a log of all changes costs and gives, beside other servers with the same settings: the bars of the log's
//! design. `pause --rewrite` has the one that is missing here, of latency while the log is compacted.

mod alone;
mod cost;
mod readers;
mod replay;
mod setting;
mod shared_syncs;
mod stall;

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
    /// Keys, each with 100 B
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 100_000)]
    keys: u64,
    /// Commands in the log that is replayed
    #[arg(long, value_name = "COUNT", default_value_t = 2_000_000)]
    commands: u64,
    /// Alternating rounds
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement
    #[arg(short = 't', long, value_name = "SECONDS", default_value_t = 3.0)]
    seconds: f64,
    #[command(flatten)]
    data: DataArgs,
    /// A run of seconds: 2,000 keys, one round
    #[arg(long)]
    small: bool,
    #[command(flatten)]
    cpus: CpuArgs,
    #[command(flatten)]
    out: OutArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// CPU time a SET, everysec against no log
    Cost,
    /// SETs of 50 clients with always, on this disk and where a sync takes 1 ms
    SharedSyncs,
    /// One client with always, against the disk's own sync
    Alone,
    /// GET beside 8 writers, always against everysec, where a sync takes 1 ms
    Readers,
    /// The longest GET and SET with everysec while the disk syncs nothing for 3 s
    Stall,
    /// Commands a second that a start replays
    Replay,
}

impl Part {
    const ALL: [Part; 6] =
        [Part::Cost, Part::SharedSyncs, Part::Alone, Part::Readers, Part::Stall, Part::Replay];

    fn measure(self, setting: &Setting) -> Result<Section> {
        match self {
            Part::Cost => cost::measure(setting),
            Part::SharedSyncs => shared_syncs::measure(setting),
            Part::Alone => alone::measure(setting),
            Part::Readers => readers::measure(setting),
            Part::Stall => stall::measure(setting),
            Part::Replay => replay::measure(setting),
        }
    }

    fn needs_slow_disk(self) -> bool {
        matches!(self, Part::SharedSyncs | Part::Readers | Part::Stall)
    }
}

pub fn run(args: &Args) -> Result<()> {
    let mut args = args.clone();
    if args.small {
        (args.keys, args.commands, args.rounds, args.seconds) = (2000, 20_000, 1, 0.2);
    }
    let peers = args.peers.resolve()?;
    let mut out = Output::new(&args.out, "durability", "What a log costs and gives", &peers)?;
    let cpus = place(&args.cpus, &mut out)?;
    out.note("load", format!("SET and GET of {} keys, 100 B each, {} rounds", args.keys, args.rounds));
    let setting = Setting {
        peers,
        cpus,
        scratch: args.data.scratch(),
        keys: args.keys,
        commands: args.commands,
        rounds: args.rounds,
        seconds: args.seconds,
    };
    let given = args.parts.is_some();
    let mut sections = Vec::new();
    for part in args.parts.unwrap_or(Part::ALL.to_vec()) {
        // What was not asked for by name is left out where this process must not mount.
        if let Some(why) = (part.needs_slow_disk() && !given).then(|| setting.slow_disk().err()).flatten() {
            out.note(&format!("{part:?}"), format!("not measured: {why}"));
            continue;
        }
        sections.push(part.measure(&setting)?);
    }
    section::report(&mut out, args.small, sections)
}
