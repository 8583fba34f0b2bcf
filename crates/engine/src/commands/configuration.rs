//! `CONFIG`.

use std::sync::atomic::Ordering::Relaxed;

use crate::command::{flag, CmdError, CmdResult, Group, Touch};
use crate::config::{Config, ParamId, Settings, Unnamed, PARAMS};
use crate::dispatch::ctx::{Command, Ctx};
use crate::log;
use crate::logging;
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::text::glob::Glob;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::container("config", -2, 0)
        .acl(0)
        .doc(Group::Server, "2.0.0", "A container for server configuration commands", "Depends on subcommand."),
    Command::new("config|get", -3, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, get)
        .acl(0)
        .doc(Group::Server, "2.0.0", "Get the values of configuration parameters", "O(N) when N is the number of configuration parameters provided"),
    Command::new("config|help", 2, flag::LOADING | flag::STALE, Touch::Nothing, help)
        .acl(0)
        .doc(Group::Server, "5.0.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("config|resetstat", 2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, resetstat)
        .acl(0)
        .doc(Group::Server, "2.0.0", "Reset the stats returned by INFO", "O(1)"),
    Command::new("config|rewrite", 2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, rewrite)
        .acl(0)
        .doc(Group::Server, "2.8.0", "Rewrite the configuration file with the in memory configuration", "O(1)"),
    Command::new("config|set", -4, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::CONFIGURES, Touch::Nothing, set)
        .acl(0)
        .doc(Group::Server, "2.0.0", "Set configuration parameters to the given values", "O(N) when N is the number of configuration parameters provided")
        .secret(is_secret_value)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
];

pub fn get(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let mut found: Vec<(&str, ParamId)> = Vec::new();
    let patterns: Vec<Glob<'_>> = args.from(2).map(|pattern| Glob::new(pattern, true)).collect();
    for (index, param) in PARAMS.iter().enumerate() {
        for name in std::iter::once(param.name).chain(param.alias) {
            let is_asked_for = match param.is_hidden {
                true => args.from(2).any(|pattern| name.as_bytes().eq_ignore_ascii_case(pattern)),
                false => patterns.iter().any(|pattern| pattern.matches(name.as_bytes())),
            };
            if is_asked_for {
                found.push((name, ParamId(index)));
            }
        }
    }
    // An earlier command of the same transaction may have changed it.
    let config = ctx.server.config();
    ctx.reply.map(found.len());
    for (name, id) in found {
        ctx.reply.bulk(name.as_bytes());
        ctx.reply.bulk(config.value(id));
    }
    Ok(())
}

/// Name as given, parameter, new value.
type Pair<'a> = (&'a [u8], ParamId, &'a [u8]);

/// The pairs of `CONFIG SET`.
fn read_pairs<'a>(args: &Args<'a>) -> Result<Vec<Pair<'a>>, CmdError> {
    let mut pairs: Vec<Pair<'a>> = Vec::new();
    if args.len() % 2 != 0 {
        return Err(errors::SYNTAX.into());
    }
    for at in (2..args.len()).step_by(2) {
        let name = args.at(at);
        let Some(id) = ParamId::find(name) else {
            let name = errors::printed(name);
            let text = [b"ERR Unknown option or number of arguments for CONFIG SET - '", name, b"'"];
            return Err(text.concat().into());
        };
        pairs.push((name, id, args.at(at + 1)));
    }
    Ok(pairs)
}

/// Whether an argument of `CONFIG SET` is the value of a secret setting.
fn is_secret_value(args: &Args<'_>, index: usize) -> bool {
    index >= 3 && index % 2 == 1 && ParamId::find(args.at(index - 1)).is_some_and(|id| id.param().is_secret())
}

fn failed(name: &[u8], reason: &str) -> CmdError {
    let head = b"ERR CONFIG SET failed (possibly related to argument '";
    [head, errors::printed(name), b"') - ", reason.as_bytes()].concat().into()
}

pub fn set(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let pairs = read_pairs(args)?;
    let is_local = ctx.peer.is_local;
    ctx.server.update_config(|config: &mut Config| {
        let old = config.settings.clone();
        for (index, (name, id, value)) in pairs.iter().enumerate() {
            if pairs[..index].iter().any(|(_, earlier, _)| earlier == id) {
                return Err(failed(name, "duplicate parameter"));
            }
            config.set_live(*id, value, is_local).map_err(|reason| failed(name, &reason))?;
        }
        if let Some((name, ..)) = pairs.iter().find(|(_, id, _)| id.param().name == "maxclients") {
            check_maxclients(ctx, config).map_err(|reason| failed(name, &reason))?;
        }
        if let Some((name, ..)) = pairs.iter().find(|(_, id, _)| id.param().name.starts_with("maxmemory")) {
            check_maxmemory(ctx, &config.settings).map_err(|reason| failed(name, &reason))?;
        }
        listen(ctx, &old, &config.settings).map_err(|(name, reason)| failed(name.as_bytes(), reason))
    })?;
    apply(ctx);
    let config = ctx.server.config();
    pairs.iter().filter_map(|(_, id, _)| config.ignored_note(*id)).for_each(log::warning);
    ctx.reply.ok();
    Ok(())
}

/// Listens where `bind` and `port` say, if they have changed. The last thing that can fail: it has effects.
///
/// # Errors
/// The parameter that is to blame, and Redis's text.
fn listen(ctx: &Ctx<'_>, old: &Settings, new: &Settings) -> Result<(), (&'static str, &'static str)> {
    if old.port == new.port && old.bind == new.bind {
        return Ok(());
    }
    ctx.server.sockets.rebind(old, new).map_err(|error| {
        let name = if old.port == new.port { "bind" } else { "port" };
        log::warning(format!("Warning: {error}"));
        log::warning(format!(
            "Failed applying new configuration. Possibly related to new {name} setting. Restoring previous settings."
        ));
        match name {
            "bind" => (name, "Failed to bind to specified addresses."),
            _ => (name, "Unable to listen on this port. Check server logs."),
        }
    })
}

/// Makes room for as many clients, or says why there is none.
fn check_maxclients(ctx: &Ctx<'_>, config: &Config) -> Result<(), String> {
    let made = ctx.server.sockets.make_room(config.settings.maxclients, ctx.server.worker_count);
    made.map_err(|too_many| {
        log::warning(
            "Failed applying new configuration. Possibly related to new maxclients setting. Restoring previous \
             settings.",
        );
        too_many.to_string()
    })
}

/// Whether the store can have as much memory as this says.
fn check_maxmemory(ctx: &Ctx<'_>, settings: &Settings) -> Result<(), String> {
    let Some(most) = ctx.server.store.most_memory_bytes() else { return Ok(()) };
    match settings.tiered_bytes() {
        1.. if settings.tiered_bytes() <= most => Ok(()),
        _ => Err(format!(
            "'pool-backend exmap' has reserved memory for {most} bytes: for more, restart the server"
        )),
    }
}

/// What does not read the configuration for itself.
fn apply(ctx: &mut Ctx<'_>) {
    let config = ctx.server.config();
    let settings = &config.settings;
    log::set_level(settings.loglevel);
    ctx.server.store.damage().set_skips(settings.skips_damage);
    ctx.server.store.set_collection_limits(&settings.collection_limits);
    ctx.server.store.set_memory_bytes(settings.tiered_bytes());
    logging::apply(ctx.server, settings);
    ctx.server.store.accesses().track(settings.tracking(), ctx.worker.now());
    ctx.local.is_evicting = settings.evicts_keys();
    let used = ctx.server.store.used_memory_bytes();
    if settings.tiered_bytes() == 0 && settings.maxmemory_bytes > 0 && used > settings.maxmemory_bytes {
        log::warning(format!(
            "WARNING: the new maxmemory value set via CONFIG SET ({}) is smaller than the current memory usage \
             ({used}). This will result in the inability to accept new write commands depending on the \
             maxmemory-policy.",
            settings.maxmemory_bytes
        ));
    }
    ctx.server.slowlog.lock().entries.truncate(settings.slowlog_max_len);
}

pub fn rewrite(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    // Not what this worker had when the batch began.
    ctx.server
        .config()
        .rewrite_file(Unnamed::Needed)
        .map_err(|reason| CmdError::from(format!("ERR {reason}")))?;
    log::notice("CONFIG REWRITE executed with success.");
    ctx.reply.ok();
    Ok(())
}

pub fn resetstat(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    let server = ctx.server;
    ctx.local.count_expired(ctx.worker);
    server.workers.iter().for_each(|worker| worker.stats.reset());
    server.errors.lock().clear();
    server.eviction.reset();
    let stats = &server.stats;
    for counter in [
        &stats.connections_received,
        &stats.connections_rejected,
        &stats.output_limit_closed,
        &stats.clients_evicted,
        &stats.query_limit_closed,
        &stats.protocol_errors,
    ] {
        counter.store(0, Relaxed);
    }
    stats.used_memory_peak_bytes.store(server.used_memory_bytes(), Relaxed);
    ctx.reply.ok();
    Ok(())
}

pub fn help(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    ctx.reply.help(
        "CONFIG",
        &[
            "GET <pattern>",
            "    Return parameters matching the glob-like <pattern> and their values.",
            "SET <directive> <value>",
            "    Set the configuration <directive> to <value>.",
            "RESETSTAT",
            "    Reset statistics reported by the INFO command.",
            "REWRITE",
            "    Rewrite the configuration file.",
        ],
    );
    Ok(())
}
