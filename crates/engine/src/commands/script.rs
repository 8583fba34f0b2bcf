//! `EVAL` and its kin, `SCRIPT`.

use stillframe_scripting::Options;

use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::commands::info::total_memory_bytes;
use crate::config::Settings;
use crate::dispatch::ctx::{Command, Ctx, Found};
use crate::dispatch::script::{run, Body, Given};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::state::busy::Kind;
use crate::state::lua::Lua;
use crate::state::scripts::Digest;

/// Flags of what runs a script, or a function.
const RUNS: u32 = flag::RUNS_SCRIPT
    | flag::NOSCRIPT
    | flag::STALE
    | flag::SKIP_MONITOR
    | flag::NO_MANDATORY_KEYS
    | flag::MOVABLEKEYS;
pub(super) const CHANGES: u32 = RUNS | flag::MAY_REPLICATE;
pub(super) const READS: u32 = RUNS | flag::READONLY;
/// Keys of those that may change them, and of those that do not.
pub(super) const ANY: KeySpec = KeySpec::counted(2, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE);
pub(super) const READ: KeySpec = KeySpec::counted(2, key_flag::RO | key_flag::ACCESS);
pub(super) const WORST: &str =
    "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE";
pub(super) const WORST_READ: &str =
    "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS";
const DEPENDS: &str = "Depends on the script that is executed.";

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("eval", -3, CHANGES, Touch::Script, eval).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "2.6.0", "Execute a Lua script server side", DEPENDS)
        .keys(&[ANY.notes(WORST)]),
    Command::new("evalsha", -3, CHANGES, Touch::Script, evalsha).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "2.6.0", "Execute a Lua script server side", DEPENDS)
        .keys(&[ANY]),
    Command::new("eval_ro", -3, READS, Touch::Script, eval).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "7.0.0", "Execute a read-only Lua script server side", DEPENDS)
        .keys(&[READ.notes(WORST_READ)]),
    Command::new("evalsha_ro", -3, READS, Touch::Script, evalsha).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "7.0.0", "Execute a read-only Lua script server side", DEPENDS)
        .keys(&[READ]),
    Command::container("script", -2, 0)
        .doc(Group::Scripting, "2.6.0", "A container for Lua scripts management commands", "Depends on subcommand."),
    Command::new("script|debug", 3, flag::NOSCRIPT, Touch::Nothing, debug).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "3.2.0", "Set the debug mode for executed scripts.", "O(1)"),
    Command::new("script|exists", -3, flag::NOSCRIPT, Touch::Nothing, exists).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "2.6.0", "Check existence of scripts in the script cache.", "O(N) with N being the number of scripts to check (so checking a single script is an O(1) operation).")
        .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"]),
    Command::new("script|flush", -2, flag::NOSCRIPT, Touch::Nothing, flush).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "2.6.0", "Remove all the scripts from the script cache.", "O(N) with N being the number of scripts in cache")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    Command::new("script|help", 2, flag::LOADING | flag::STALE, Touch::Nothing, help).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "5.0.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("script|kill", 2, flag::NOSCRIPT | flag::ALLOW_BUSY, Touch::Nothing, kill).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "2.6.0", "Kill the script currently in execution.", "O(1)")
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
    Command::new("script|load", 3, flag::NOSCRIPT | flag::STALE, Touch::Nothing, load).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "2.6.0", "Load the specified Lua script into the script cache.", "O(N) with N being the length in bytes of the script body.")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
];

const NO_SUCH_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
/// Of the memory that there is a state may have this part.
const MEMORY_PART: u64 = 16;
const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// The bounds of a state.
fn options(settings: &Settings) -> Options {
    let memory_bytes_max = match settings.scripts.memory_bytes {
        0 => {
            let bytes = match settings.maxmemory_bytes {
                0 => total_memory_bytes(),
                bytes => bytes,
            };
            usize::try_from((bytes / MEMORY_PART).max(MEMORY_BYTES_MIN)).unwrap_or(usize::MAX)
        }
        bytes => bytes,
    };
    Options { memory_bytes_max, ..Options::default() }
}

/// Calls `f` with this worker's state of Lua, which is made if there is none, or another one is asked for by now.
///
/// # Errors
/// There are no scripts here, or no memory for a state; those of `f`.
pub(super) fn with_lua(ctx: &mut Ctx<'_>, f: impl FnOnce(&mut Ctx<'_>, &mut Lua) -> CmdResult) -> CmdResult {
    let settings = &ctx.config.settings;
    if settings.scripts.are_off {
        return Err("ERR scripts and functions are switched off here: 'scripting' is 'no'".into());
    }
    let options = options(settings);
    let known = ctx.local.lua.take().filter(|lua| lua.is_current(&ctx.server.scripts, options));
    let mut lua = match known {
        Some(lua) => lua,
        None => Box::new(Lua::new(&ctx.server.scripts, options).map_err(|error| format!("ERR {error}"))?),
    };
    let result = f(ctx, &mut lua);
    ctx.stats.lua_bytes.set(lua.state.used_bytes() as u64);
    ctx.local.lua = Some(lua);
    result
}

/// What is called.
fn found(ctx: &Ctx<'_>, args: &Args<'_>) -> Result<Found, CmdError> {
    ctx.registry.lookup(args.at(0)).ok_or_else(|| errors::SYNTAX.into())
}

pub fn eval(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let given = Given::of(found(ctx, args)?, args)?;
    let digest = Digest::of(args.at(1));
    with_lua(ctx, |ctx, lua| {
        learn(ctx, lua, digest, args.at(1), false)?;
        call(ctx, lua, digest, &given)
    })
}

pub fn evalsha(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let digest = Digest::parse(args.at(1));
    // What cannot be a SHA1 is told before the number of keys is looked at.
    if args.at(1).len() != Digest::HEX_LEN {
        return Err(NO_SUCH_SCRIPT.into());
    }
    let given = Given::of(found(ctx, args)?, args)?;
    let Some(digest) = digest else { return Err(NO_SUCH_SCRIPT.into()) };
    with_lua(ctx, |ctx, lua| {
        if lua.compiled(digest).is_none() {
            let Some(source) = ctx.server.scripts.find(digest) else { return Err(NO_SUCH_SCRIPT.into()) };
            learn(ctx, lua, digest, &source.text, false)?;
        }
        call(ctx, lua, digest, &given)
    })
}

/// Compiles a script here, unless it is, and lets all workers know it.
///
/// # Errors
/// It is refused.
fn learn(ctx: &Ctx<'_>, lua: &mut Lua, digest: Digest, text: &[u8], is_kept: bool) -> CmdResult {
    let scripts = &ctx.server.scripts;
    match lua.compiled(digest) {
        Some((source, _)) if !is_kept => scripts.note_use(source),
        Some(_) => drop(scripts.add(digest, text, is_kept)),
        None => {
            let script = lua.compile(text, digest).map_err(|error| error.reply())?;
            lua.keep(scripts.add(digest, text, is_kept), script);
        }
    }
    Ok(())
}

/// Runs what has been compiled.
fn call(ctx: &mut Ctx<'_>, lua: &mut Lua, digest: Digest, given: &Given<'_>) -> CmdResult {
    let Some((state, script, inside)) = lua.run_with(digest) else { return Err(NO_SUCH_SCRIPT.into()) };
    run(ctx, (state, inside), &Body::Script(script), given)
}

pub fn load(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let digest = Digest::of(args.at(2));
    with_lua(ctx, |ctx, lua| {
        learn(ctx, lua, digest, args.at(2), true)?;
        ctx.reply.bulk(digest.hex().as_bytes());
        Ok(())
    })
}

pub fn exists(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let scripts = &ctx.server.scripts;
    let is_known = |text: &[u8]| Digest::parse(text).is_some_and(|digest| scripts.find(digest).is_some());
    ctx.reply.array(args.len() - 2);
    args.from(2).for_each(|text| ctx.reply.int(i64::from(is_known(text))));
    Ok(())
}

pub fn flush(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    match args.len() {
        2 => {}
        3 if args.is(2, "ASYNC") || args.is(2, "SYNC") => {}
        _ => return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into()),
    }
    ctx.server.scripts.flush();
    ctx.reply.ok();
    Ok(())
}

pub fn kill(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    ctx.talk().kill(Kind::Script)
}

/// There is no debugger.
pub fn debug(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    if args.is(2, "NO") {
        ctx.reply.ok();
        return Ok(());
    }
    match args.is(2, "YES") || args.is(2, "SYNC") {
        true => {
            Err("ERR there is no debugger of scripts here; run the script in redis-server to debug it".into())
        }
        false => Err("ERR Use SCRIPT DEBUG YES/SYNC/NO".into()),
    }
}

pub fn help(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    ctx.reply.help(
        "SCRIPT",
        &[
            "DEBUG (YES|SYNC|NO)",
            "    Set the debug mode for subsequent scripts executed.",
            "EXISTS <sha1> [<sha1> ...]",
            "    Return information about the existence of the scripts in the script cache.",
            "FLUSH [ASYNC|SYNC]",
            "    Flush the Lua scripts cache. Very dangerous on replicas.",
            "    When called without the optional mode argument, the behavior is determined by the",
            "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
            "    * ASYNC: Asynchronously flush the scripts cache.",
            "    * SYNC: Synchronously flush the scripts cache.",
            "KILL",
            "    Kill the currently executing Lua script.",
            "LOAD <script>",
            "    Load a script into the scripts cache without executing it.",
        ],
    );
    Ok(())
}
