//! `INFO`.

mod sections;
mod system;

pub use system::total_memory_bytes;

use crate::command::{acl, flag, CmdResult, Group, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("info", -1, flag::LOADING | flag::STALE, Touch::Nothing, info)
        .acl(acl::DANGEROUS)
        .doc(Group::Server, "1.0.0", "Get information and statistics about the server", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
];

/// Appends a section's fields, one a line.
pub type Section = fn(&Ctx<'_>, &mut String);

/// Sections in their order: name in the arguments, title, whether plain `INFO` has it, fields.
const SECTIONS: &[(&str, &str, bool, Section)] = &[
    ("server", "Server", true, sections::server),
    ("clients", "Clients", true, sections::clients),
    ("memory", "Memory", true, sections::memory),
    ("persistence", "Persistence", true, sections::persistence),
    ("stats", "Stats", true, sections::stats),
    ("replication", "Replication", true, sections::replication),
    ("cpu", "CPU", true, sections::cpu),
    ("modules", "Modules", true, sections::modules),
    ("commandstats", "Commandstats", false, sections::commandstats),
    ("errorstats", "Errorstats", true, sections::errorstats),
    ("latencystats", "Latencystats", false, sections::latencystats),
    ("cluster", "Cluster", true, sections::cluster),
    ("keyspace", "Keyspace", true, sections::keyspace),
    ("stillframe", "Stillframe", true, sections::stillframe),
];

pub fn info(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    ctx.local.count_expired(ctx.worker);
    let names: Vec<Vec<u8>> = args.from(1).map(<[u8]>::to_ascii_lowercase).collect();
    let has = |wanted: &[u8]| names.iter().any(|name| name == wanted);
    let (everything, all) = (has(b"everything"), has(b"all"));
    let default = names.is_empty() || has(b"default");
    let mut text = String::with_capacity(4096);
    for (name, title, is_default, section) in SECTIONS {
        let is_wanted =
            everything || (all && *name != "modules") || (default && *is_default) || has(name.as_bytes());
        if is_wanted {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            text.push_str(&format!("# {title}\r\n"));
            section(ctx, &mut text);
        }
    }
    ctx.reply.verbatim(text.as_bytes());
    Ok(())
}
