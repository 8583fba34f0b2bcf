//! `collections`: lists, hashes, sets and sorted sets, against the servers that have them too: memory, throughput, what
//! saves and deletions add, order, checkpoints, and clients that wait. Judges the bars.

mod args;
mod blocked;
mod bytes;
mod checkpoint;
mod delete;
mod order;
mod rates;
mod report;
mod save;
mod setting;
mod throughput;
mod wakes;

pub use self::args::Args;
use self::args::Part;
use self::report::Report;
use self::setting::Setting;
use crate::clock::{now_ns, NS_PER_S};
use crate::commands::place;
use crate::error::Result;
use crate::load::collections::{Data, Kind};
use crate::output::Output;

pub fn run(args: &Args) -> Result<()> {
    let args = args.complete();
    throughput::chosen(&args)?;
    let peers = args.peers.resolve_with_valkey()?;
    let mut out = Output::new(&args.out, "collections", "Collections", &peers)?;
    let cpus = place(&args.cpus, &mut out)?;
    out.note("sizes", format!("large: {}", Data::one(Kind::Hash, args.large).line()));
    out.note("small", Data::many(Kind::Hash, args.keys).line());
    if args.quick {
        out.note("bars", "nothing is as large as it should be: the verdicts say nothing");
    }
    let scratch = args.data.scratch();
    let setting = Setting { args, peers, cpus, scratch };
    let mut report = Report::default();
    let (begin_ns, parts) = (now_ns(), &setting.args.parts);
    for (at, part) in parts.iter().enumerate() {
        let minutes = (now_ns() - begin_ns) as f64 / NS_PER_S as f64 / 60.0;
        eprintln!("part {} of {}, {}; {minutes:.1} minutes so far", at + 1, parts.len(), part.name());
        let measured = match part {
            Part::Bytes => bytes::run(&setting, &mut report),
            Part::Throughput => throughput::run(&setting, &mut report),
            Part::Save => save::run(&setting, &mut report),
            Part::Delete => delete::run(&setting, &mut report),
            Part::Order => order::run(&setting, &mut report),
            Part::Checkpoint => checkpoint::run(&setting, &mut report),
            Part::Blocked => blocked::run(&setting, &mut report),
        };
        if let Err(error) = measured {
            report.fail(*part, "all", "the whole part", &error);
        }
        report.say(&out)?;
    }
    report.write(&out)
}
