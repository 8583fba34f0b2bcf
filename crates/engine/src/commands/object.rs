//! `OBJECT`: what is known of a key besides its value.

use stillframe_store::{Encoding, EntryInfo};

use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::container("object", -2, 0)
        .doc(Group::Generic, "2.2.3", "A container for object introspection commands", "Depends on subcommand."),
    Command::new("object|freq", 3, flag::READONLY, Touch::OneOperation, freq).acl(acl::KEYSPACE)
        .doc(Group::Generic, "4.0.0", "Get the logarithmic access frequency counter of a Redis object", "O(1)")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::RO)])
        .tips(&["nondeterministic_output"]),
    Command::new("object|idletime", 3, flag::READONLY, Touch::OneOperation, idletime).acl(acl::KEYSPACE)
        .doc(Group::Generic, "2.2.3", "Get the time since a Redis object was last accessed", "O(1)")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::RO)])
        .tips(&["nondeterministic_output"]),
    Command::new("object|help", 2, flag::LOADING | flag::STALE, Touch::Nothing, help).acl(acl::KEYSPACE)
        .doc(Group::Generic, "6.2.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("object|refcount", 3, flag::READONLY, Touch::Steps, refcount).acl(acl::KEYSPACE)
        .doc(Group::Generic, "2.2.3", "Get the number of references to the value of the key", "O(1)")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::RO)])
        .tips(&["nondeterministic_output"]),
    Command::new("object|encoding", 3, flag::READONLY, Touch::OneOperation, encoding).acl(acl::KEYSPACE)
        .doc(Group::Generic, "2.2.3", "Inspect the internal encoding of a Redis object", "O(1)")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::RO)])
        .tips(&["nondeterministic_output"]),
];

/// Reference count that Redis shows for the small integers it shares.
const SHARED_REF_COUNT: i64 = i32::MAX as i64;
const SHARED_INTEGERS: std::ops::Range<i64> = 0..10_000;

pub(super) fn encoding_name(encoding: Option<Encoding>) -> &'static str {
    // As Redis says of an encoding without a name.
    encoding.map_or("unknown", Encoding::name)
}

/// The entry that the command is about; replies with null if there is none.
fn entry(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<Option<EntryInfo>, CmdError> {
    let key = ctx.key(args, 2);
    let entry = ctx.worker.entry(ctx.client.db, &key)?;
    ctx.stats.looked_up(entry.is_some());
    if entry.is_none() {
        ctx.reply.null();
    }
    Ok(entry)
}

pub fn encoding(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    if let Some(entry) = entry(ctx, args)? {
        ctx.reply.bulk(encoding_name(entry.encoding).as_bytes());
    }
    Ok(())
}

pub fn refcount(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    if let Some(entry) = entry(ctx, args)? {
        let count = ref_count(ctx, args, &entry)?;
        ctx.reply.int(count);
    }
    Ok(())
}

/// Nothing is shared here; this is what Redis would show for the same value.
pub(super) fn ref_count(ctx: &mut Ctx<'_>, args: &Args<'_>, entry: &EntryInfo) -> Result<i64, CmdError> {
    if entry.encoding != Some(Encoding::Int) {
        return Ok(1);
    }
    // Redis shares none where each key has accesses of its own to remember.
    if ctx.config.settings.maxmemory_bytes > 0 && ctx.config.settings.tracking().is_some() {
        return Ok(1);
    }
    let key = ctx.key(args, 2);
    let value =
        ctx.worker.string_at(ctx.client.db, &key).get_part(|_| 0..0, |value| value.as_int())?.flatten();
    Ok(if value.is_some_and(|v| SHARED_INTEGERS.contains(&v)) { SHARED_REF_COUNT } else { 1 })
}

pub fn idletime(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let Some(entry) = entry(ctx, args)? else { return Ok(()) };
    if entry.frequency.is_some() {
        return Err("ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching \
                    between policies at runtime LRU and LFU data will take some time to adjust."
            .into());
    }
    ctx.reply.int((entry.idle_ms / 1000) as i64);
    Ok(())
}

pub fn freq(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let Some(entry) = entry(ctx, args)? else { return Ok(()) };
    let Some(count) = entry.frequency else {
        return Err(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
                    that when switching between policies at runtime LRU and LFU data will take some time to \
                    adjust."
                .into(),
        );
    };
    ctx.reply.int(i64::from(count));
    Ok(())
}

pub fn help(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    ctx.reply.help(
        "OBJECT",
        &[
            "ENCODING <key>",
            "    Return the kind of internal representation used in order to store the value",
            "    associated with a <key>.",
            "FREQ <key>",
            "    Return the access frequency index of the <key>. The returned integer is",
            "    proportional to the logarithm of the recent access frequency of the key.",
            "IDLETIME <key>",
            "    Return the idle time of the <key>, that is the approximated number of",
            "    seconds elapsed since the last access to the key.",
            "REFCOUNT <key>",
            "    Return the number of references of the value associated with the specified",
            "    <key>.",
        ],
    );
    Ok(())
}
