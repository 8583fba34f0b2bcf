//! `FCALL`, `FUNCTION`: libraries of functions, which are data.

use std::collections::BTreeSet;

use stillframe_scripting::Library;
use stillframe_store::rdb::{dump_libraries, open_libraries, Compressor};
use stillframe_store::{libraries_version, library_name};

use crate::command::{acl, flag, CmdError, CmdResult, Group, Touch};
use crate::commands::script::{self, with_lua};
use crate::dispatch::ctx::{Command, Ctx};
use crate::dispatch::script::{run, Body, Given};
use crate::dispatch::talk::Talk;
use crate::log;
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::state::busy::Kind;
use crate::state::libraries::Loaded;
use crate::state::lua::Lua;
use crate::text::glob;

const WRITES: u32 = flag::WRITE | flag::NOSCRIPT;
const NO_SUCH_LIBRARY: &str = "ERR Library not found";
const DEPENDS: &str = "Depends on the function that is executed.";
const TO_ALL: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("fcall", -3, script::CHANGES, Touch::Script, fcall).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "7.0.0", "Invoke a function", DEPENDS)
        .keys(&[script::ANY.notes(script::WORST)]),
    Command::new("fcall_ro", -3, script::READS, Touch::Script, fcall).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "7.0.0", "Invoke a read-only function", DEPENDS)
        .keys(&[script::READ.notes(script::WORST_READ)]),
    Command::container("function", -2, 0)
        .doc(Group::Scripting, "7.0.0", "A container for function commands", "Depends on subcommand."),
    Command::new("function|delete", 3, WRITES, Touch::Alone, delete).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "7.0.0", "Delete a function by name", "O(1)")
        .tips(TO_ALL),
    Command::new("function|dump", 2, flag::NOSCRIPT, Touch::Walk, dump).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "7.0.0", "Dump all functions into a serialized binary payload", "O(N) where N is the number of functions"),
    Command::new("function|flush", -2, WRITES, Touch::Alone, flush).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "7.0.0", "Deleting all functions", "O(N) where N is the number of functions deleted")
        .tips(TO_ALL),
    Command::new("function|help", 2, flag::LOADING | flag::STALE, Touch::Nothing, help).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "7.0.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("function|kill", 2, flag::NOSCRIPT | flag::ALLOW_BUSY, Touch::Nothing, kill).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "7.0.0", "Kill the function currently in execution.", "O(1)")
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
    Command::new("function|list", -2, flag::NOSCRIPT, Touch::Walk, list).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "7.0.0", "List information about all the functions", "O(N) where N is the number of functions")
        .tips(&["nondeterministic_output_order"]),
    Command::new("function|load", -3, WRITES | flag::DENYOOM, Touch::Alone, load).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "7.0.0", "Create a function with the given arguments (name, code, description)", "O(1) (considering compilation time is redundant)")
        .tips(TO_ALL),
    Command::new("function|restore", -3, WRITES | flag::DENYOOM, Touch::Alone, restore).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "7.0.0", "Restore all the functions on the given payload", "O(N) where N is the number of functions on the payload")
        .tips(TO_ALL),
    Command::new("function|stats", 2, flag::NOSCRIPT | flag::ALLOW_BUSY, Touch::Walk, stats).acl(acl::SCRIPTING)
        .doc(Group::Scripting, "7.0.0", "Return information about the function currently running (name, description, duration)", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
];

/// Makes the libraries of this worker those of the store. What has stayed as it was keeps its variables.
///
/// # Errors
/// Pages are missing, or cannot be read.
fn follow(ctx: &mut Ctx<'_>, lua: &mut Lua) -> CmdResult {
    let version = libraries_version(&ctx.server.store);
    if lua.libraries.version == Some(version) {
        return Ok(());
    }
    let sources = ctx.worker.libraries().list()?;
    let mut before = std::mem::take(&mut lua.libraries);
    for (name, source) in sources {
        match before.take(&name, &source) {
            Some(library) => lua.libraries.add(source, library),
            None => match lua.state.load_library(&source) {
                Ok(library) => lua.libraries.add(source, library),
                // It was loaded where it comes from; its functions are not there then.
                Err(error) => log::warning(format!("Function library '{name}' cannot be loaded: {error}")),
            },
        }
    }
    note(ctx, lua, version);
    Ok(())
}

/// The libraries of this worker are those of the store, as of that version.
fn note(ctx: &Ctx<'_>, lua: &mut Lua, version: u64) {
    lua.libraries.version = Some(version);
    ctx.server.scripts.note_libraries(lua.libraries.library_count(), lua.libraries.function_count());
}

/// This worker has changed the store's libraries, and its own alike, while others stand still.
fn note_own(ctx: &mut Ctx<'_>, lua: &mut Lua) {
    let version = libraries_version(&ctx.server.store);
    note(ctx, lua, version);
    ctx.count_more(1);
}

pub fn fcall(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    with_lua(ctx, |ctx, lua| {
        follow(ctx, lua)?;
        let Some(function) = lua.libraries.function(args.at(1)) else {
            return Err("ERR Function not found".into());
        };
        let found = ctx.registry.lookup(args.at(0)).ok_or(errors::SYNTAX)?;
        let given = Given::of_function(found, args)?;
        run(ctx, (&lua.state, &mut lua.inside), &Body::Function(function), &given)
    })
}

/// Whether none of a library's functions has the name of one that is in none of `replaced`.
///
/// # Errors
/// Redis's.
fn check_names(known: &Loaded, library: &Library, replaced: &BTreeSet<String>) -> CmdResult {
    let taken = library
        .functions
        .iter()
        .find(|function| known.library_of(function.name.as_bytes()).is_some_and(|of| !replaced.contains(of)));
    match taken {
        Some(function) => Err(format!("ERR Function {} already exists", function.name).into()),
        None => Ok(()),
    }
}

pub fn load(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (options, source) = (2..args.len() - 1, args.at(args.len() - 1));
    let mut replaces = false;
    for index in options {
        if !args.is(index, "REPLACE") {
            let text = [b"ERR Unknown option given: ", errors::printed(args.at(index))].concat();
            return Err(text.into());
        }
        replaces = true;
    }
    with_lua(ctx, |ctx, lua| {
        follow(ctx, lua)?;
        let name = library_name(source).map_err(|error| format!("ERR {}", plain(&error.to_string())))?;
        if lua.libraries.has(&name) && !replaces {
            return Err(format!("ERR Library '{name}' already exists").into());
        }
        let library = lua.state.load_library(source).map_err(|error| error.reply())?;
        check_names(&lua.libraries, &library, &BTreeSet::from([name.clone()]))?;
        ctx.worker.libraries().set(&name, source)?;
        lua.libraries.remove(&name);
        lua.libraries.add(source.to_vec(), library);
        note_own(ctx, lua);
        ctx.reply.bulk(name.as_bytes());
        Ok(())
    })
}

/// Without the code that it has already.
fn plain(text: &str) -> &str {
    text.strip_prefix("ERR ").unwrap_or(text)
}

pub fn delete(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let name = std::str::from_utf8(args.at(2)).map_err(|_| NO_SUCH_LIBRARY)?;
    with_lua(ctx, |ctx, lua| {
        // What cannot be listed, since it is larger than memory, can be deleted.
        let is_known = lua.libraries.version == Some(libraries_version(&ctx.server.store));
        if !ctx.worker.libraries().remove(name)? {
            return Err(NO_SUCH_LIBRARY.into());
        }
        lua.libraries.remove(name);
        match is_known {
            true => note_own(ctx, lua),
            false => ctx.count_more(1),
        }
        ctx.reply.ok();
        Ok(())
    })
}

pub fn flush(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    match args.len() {
        2 => {}
        3 if args.is(2, "ASYNC") || args.is(2, "SYNC") => {}
        3 => return Err("ERR FUNCTION FLUSH only supports SYNC|ASYNC option".into()),
        _ => return Err(crate::dispatch::subscribed::wrong_arguments(args)),
    }
    with_lua(ctx, |ctx, lua| {
        ctx.worker.libraries().clear()?;
        lua.libraries = Loaded::default();
        note_own(ctx, lua);
        ctx.reply.ok();
        Ok(())
    })
}

pub fn dump(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    let libraries = ctx.worker.libraries().list()?;
    let mut compressor = ctx.config.settings.rdb_compression.then(Compressor::default);
    let payload = dump_libraries(libraries.iter().map(|(_, source)| &source[..]), compressor.as_mut());
    ctx.reply.bulk(&payload);
    Ok(())
}

/// What `FUNCTION RESTORE` does with the libraries that there are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Flush,
    Append,
    Replace,
}

pub fn restore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let policy = match args.len() {
        3 => Policy::Append,
        4 if args.is(3, "FLUSH") => Policy::Flush,
        4 if args.is(3, "APPEND") => Policy::Append,
        4 if args.is(3, "REPLACE") => Policy::Replace,
        4 => {
            let text = "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.";
            return Err(text.into());
        }
        _ => return Err(crate::dispatch::subscribed::wrong_arguments(args)),
    };
    let sources = open_libraries(args.at(2)).map_err(|error| format!("ERR {error}"))?;
    with_lua(ctx, |ctx, lua| {
        follow(ctx, lua)?;
        let loaded = load_all(lua, sources, policy)?;
        let given: Vec<_> =
            loaded.libraries().map(|(name, (source, _))| (name.as_str(), &source[..])).collect();
        match policy {
            Policy::Flush => ctx.worker.libraries().replace_all(&given)?,
            Policy::Append | Policy::Replace => ctx.worker.libraries().set_all(&given)?,
        };
        if policy == Policy::Flush {
            lua.libraries = Loaded::default();
        }
        lua.libraries.join(loaded);
        note_own(ctx, lua);
        ctx.reply.ok();
        Ok(())
    })
}

/// Loads the libraries of a payload, beside those that there are.
///
/// # Errors
/// One cannot be loaded, or is there already.
fn load_all(lua: &Lua, sources: Vec<Vec<u8>>, policy: Policy) -> Result<Loaded, CmdError> {
    let mut loaded = Loaded::default();
    for source in sources {
        let library = lua.state.load_library(&source).map_err(|error| error.reply())?;
        check_names(&loaded, &library, &BTreeSet::new())?;
        let is_there = policy == Policy::Append && lua.libraries.has(&library.name);
        if is_there || loaded.has(&library.name) {
            return Err(format!("ERR Library {} already exists", library.name).into());
        }
        loaded.add(source, library);
    }
    if policy != Policy::Flush {
        let replaced = loaded.libraries().map(|(name, _)| name.clone()).collect();
        loaded
            .libraries()
            .try_for_each(|(_, (_, library))| check_names(&lua.libraries, library, &replaced))?;
    }
    Ok(loaded)
}

pub fn list(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (mut has_code, mut pattern, mut index) = (false, None, 2);
    while index < args.len() {
        if !has_code && args.is(index, "WITHCODE") {
            has_code = true;
        } else if pattern.is_none() && args.is(index, "LIBRARYNAME") {
            index += 1;
            pattern = Some(args.get(index).ok_or("ERR library name argument was not given")?);
        } else {
            return Err([b"ERR Unknown argument ", errors::printed(args.at(index))].concat().into());
        }
        index += 1;
    }
    with_lua(ctx, |ctx, lua| {
        follow(ctx, lua)?;
        let is_listed =
            |name: &str| pattern.is_none_or(|pattern| glob::matches(pattern, name.as_bytes(), true));
        let listed: Vec<_> = lua.libraries.libraries().filter(|(name, _)| is_listed(name)).collect();
        ctx.reply.array(listed.len());
        for (name, (source, library)) in listed {
            write_library(ctx, name, library, has_code.then_some(source));
        }
        Ok(())
    })
}

fn write_library(ctx: &mut Ctx<'_>, name: &str, library: &Library, source: Option<&Vec<u8>>) {
    let reply = &mut ctx.reply;
    reply.map(3 + usize::from(source.is_some()));
    reply.bulk(b"library_name");
    reply.bulk(name.as_bytes());
    reply.bulk(b"engine");
    reply.bulk(b"LUA");
    reply.bulk(b"functions");
    reply.array(library.functions.len());
    for function in &library.functions {
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(function.name.as_bytes());
        reply.bulk(b"description");
        match &function.description {
            Some(text) => reply.bulk(text),
            None => reply.null(),
        }
        reply.bulk(b"flags");
        reply.set(function.flags.names().count());
        function.flags.names().for_each(|flag| reply.simple(flag));
    }
    if let Some(source) = source {
        reply.bulk(b"library_code");
        reply.bulk(source);
    }
}

pub fn stats(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    with_lua(ctx, |ctx, lua| {
        follow(ctx, lua)?;
        describe(&mut ctx.talk())
    })
}

/// What runs, and how many functions there are.
///
/// # Errors
/// A script runs, of which this does not tell.
pub fn describe(talk: &mut Talk<'_, '_>) -> CmdResult {
    let (running, (library_count, function_count)) = (talk.slow(), talk.library_counts());
    if running.as_ref().is_some_and(|slow| slow.kind == Kind::Script) {
        return Err(Kind::Script.busy_text().into());
    }
    let reply = &mut *talk.reply;
    reply.map(2);
    reply.bulk(b"running_script");
    match running {
        None => reply.null(),
        Some(slow) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(slow.name.as_bytes());
            reply.bulk(b"command");
            reply.array(slow.words.len());
            slow.words.iter().for_each(|word| reply.bulk(word));
            reply.bulk(b"duration_ms");
            reply.int(i64::try_from(slow.since.elapsed().as_millis()).unwrap_or(i64::MAX));
        }
    }
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.int(library_count as i64);
    reply.bulk(b"functions_count");
    reply.int(function_count as i64);
    Ok(())
}

pub fn kill(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    ctx.talk().kill(Kind::Function)
}

pub fn help(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    ctx.reply.help(
        "FUNCTION",
        &[
            "LOAD [REPLACE] <FUNCTION CODE>",
            "    Create a new library with the given library name and code.",
            "DELETE <LIBRARY NAME>",
            "    Delete the given library.",
            "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
            "    Return general information on all the libraries:",
            "    * Library name",
            "    * The engine used to run the Library",
            "    * Library description",
            "    * Functions list",
            "    * Library code (if WITHCODE is given)",
            "    It also possible to get only function that matches a pattern using LIBRARYNAME argument.",
            "STATS",
            "    Return information about the current function running:",
            "    * Function name",
            "    * Command used to run the function",
            "    * Duration in MS that the function is running",
            "    If no function is running, return nil",
            "    In addition, returns a list of available engines.",
            "KILL",
            "    Kill the current running function.",
            "FLUSH [ASYNC|SYNC]",
            "    Delete all the libraries.",
            "    When called without the optional mode argument, the behavior is determined by the",
            "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
            "    * ASYNC: Asynchronously flush the libraries.",
            "    * SYNC: Synchronously flush the libraries.",
            "DUMP",
            "    Return a serialized payload representing the current libraries, can be restored using FUNCTION RESTORE command",
            "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
            "    Restore the libraries represented by the given payload, it is possible to give a restore policy to",
            "    control how to handle existing libraries (default APPEND):",
            "    * FLUSH: delete all existing libraries.",
            "    * APPEND: appends the restored libraries to the existing libraries. On collision, abort.",
            "    * REPLACE: appends the restored libraries to the existing libraries, On collision, replace the old",
            "      libraries with the new libraries (notice that even on this option there is a chance of failure",
            "      in case of functions name collision with another library).",
        ],
    );
    Ok(())
}
