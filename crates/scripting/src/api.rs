//! `redis.*`.

use std::rc::Rc;

use mlua::{Error, IntoLua, Lua, LuaString, MultiValue, Result, Table, Value};
use sha1::{Digest, Sha1};

use crate::args::{as_number, as_string, Args};
use crate::from_resp;
use crate::host::{Called, Halt, LogLevel, Permission, Replication, Resp};
use crate::number::to_i64;
use crate::raise::Raised;
use crate::shared::{register, Phase, Shared, HOST};
use crate::words::{Words, KEPT_BYTES};

/// What scripts are told that they run on.
const VERSION: &str = "7.0.15";
const VERSION_NUMBER: u32 = 0x0007_000F;

const REPLICATE_TO_LOG: i64 = 1;
const REPLICATE_TO_REPLICAS: i64 = 2;

/// Runs `with` with arguments as words, or with what is wrong with them. What the words take is kept for the next command.
fn with_words<R>(
    shared: &Shared,
    args: &MultiValue,
    with: impl FnOnce(std::result::Result<&Words, &'static str>) -> R,
) -> R {
    let mut words = shared.words.take();
    let filled = words.fill(args);
    let result = with(filled.map(|()| &words));
    if words.kept_bytes() <= KEPT_BYTES {
        shared.words.replace(words);
    }
    result
}

/// A table as `redis.pcall` returns it.
fn general_error(lua: &Lua, text: &str) -> Result<Value> {
    Ok(Value::Table(from_resp::error_table(lua, format!("ERR {text}").as_bytes(), false)?))
}

/// Only while a script or function runs.
fn needs_run(shared: &Shared, name: &str) -> Result<()> {
    match shared.phase.get() {
        Phase::Running => Ok(()),
        _ => Err(Raised::general(&format!("{name} can only be called inside a script invocation"))),
    }
}

fn call(lua: &Lua, shared: &Rc<Shared>, args: MultiValue, raises: bool) -> Result<Value> {
    needs_run(shared, "redis.call/pcall")?;
    let mut reply = shared.reply.take();
    reply.clear();
    let resp = shared.resp.get();
    let called = with_words(shared, &args, |words| {
        Ok(words?.with_slices(|words| HOST.with(|host| host.call(words, resp, &mut reply))))
    });
    let result = match called {
        Ok(Called::Replied) => shared.check().and_then(|()| reply_value(lua, shared, &reply, raises)),
        Ok(Called::GivenUp) => Err(shared.end(Halt::GivenUp)),
        Err(text) if raises => Err(Raised::general(text)),
        Err(text) => general_error(lua, text),
    };
    if reply.capacity() <= KEPT_BYTES {
        shared.reply.replace(reply);
    }
    result
}

fn reply_value(lua: &Lua, shared: &Shared, reply: &[u8], raises: bool) -> Result<Value> {
    if raises && reply.first() == Some(&b'-') {
        let line = reply[1..].split(|&byte| byte == b'\r').next().unwrap_or_default();
        return Err(Raised::Reply { text: from_resp::with_code(line), is_counted: true }.into());
    }
    // A reply takes at least its own size: what cannot fit is not begun.
    if lua.used_memory().saturating_add(reply.len()) > shared.memory.hard_bytes {
        return Err(shared.end(Halt::OutOfMemory));
    }
    let value = from_resp::to_item(lua, reply)?.into_lua(lua)?;
    shared.check_memory(lua)?;
    Ok(value)
}

fn sha1hex(lua: &Lua, args: &Args) -> Result<String> {
    if args.count() != 1 {
        return Err(Raised::general("wrong number of arguments"));
    }
    // What is no string counts as an empty one.
    let string = as_string(lua, args.get(1))?;
    let digest = match string {
        Some(string) => Sha1::digest(&string.as_bytes()[..]),
        None => Sha1::digest([]),
    };
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The one string that `error_reply` and `status_reply` take.
fn single_string<'a>(args: &'a Args) -> Option<&'a LuaString> {
    match (args.count(), args.get(1)) {
        (1, Some(Value::String(string))) => Some(string),
        _ => None,
    }
}

fn error_reply(lua: &Lua, args: &Args) -> Result<Value> {
    let Some(string) = single_string(args) else {
        return general_error(lua, "wrong number or type of arguments");
    };
    let bytes = string.as_bytes();
    let text = bytes.strip_prefix(b"-").unwrap_or(&bytes);
    Ok(Value::Table(from_resp::error_table(lua, &from_resp::with_code(text), false)?))
}

fn status_reply(lua: &Lua, args: &Args) -> Result<Value> {
    let Some(string) = single_string(args) else {
        return general_error(lua, "wrong number or type of arguments");
    };
    let table = lua.create_table()?;
    table.raw_set("ok", string)?;
    Ok(Value::Table(table))
}

/// A number, or 0 as C's interface of Lua has it.
fn number_or_zero(lua: &Lua, value: Option<&Value>) -> Result<i64> {
    Ok(as_number(lua, value)?.map_or(0, to_i64))
}

fn log(lua: &Lua, args: &Args) -> Result<()> {
    if args.count() < 2 {
        return Err(Raised::general("redis.log() requires two arguments or more."));
    }
    let Some(level) = as_number(lua, args.get(1))? else {
        return Err(Raised::general("First argument must be a number (log level)."));
    };
    let level = match to_i64(level) {
        0 => LogLevel::Debug,
        1 => LogLevel::Verbose,
        2 => LogLevel::Notice,
        3 => LogLevel::Warning,
        _ => return Err(Raised::general("Invalid debug level.")),
    };
    let mut line = Vec::new();
    for number in 2..=args.count() {
        if let Some(text) = as_string(lua, args.get(number))? {
            if number > 2 {
                line.push(b' ');
            }
            line.extend_from_slice(&text.as_bytes());
        }
    }
    if HOST.is_set() {
        HOST.with(|host| host.log(level, &line));
    }
    Ok(())
}

fn set_resp(lua: &Lua, shared: &Shared, args: &Args) -> Result<()> {
    needs_run(shared, "redis.setresp")?;
    if args.count() != 1 {
        return Err(Raised::general("redis.setresp() requires one argument."));
    }
    shared.resp.set(match number_or_zero(lua, args.get(1))? {
        2 => Resp::Two,
        3 => Resp::Three,
        _ => return Err(Raised::general("RESP version must be 2 or 3.")),
    });
    Ok(())
}

fn set_repl(lua: &Lua, shared: &Shared, args: &Args) -> Result<()> {
    needs_run(shared, "redis.set_repl")?;
    if args.count() != 1 {
        return Err(Raised::general("redis.set_repl() requires two arguments."));
    }
    let flags = number_or_zero(lua, args.get(1))?;
    if flags & !(REPLICATE_TO_LOG | REPLICATE_TO_REPLICAS) != 0 {
        return Err(Raised::general(
            "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        ));
    }
    let replication = Replication {
        to_log: flags & REPLICATE_TO_LOG != 0,
        to_replicas: flags & REPLICATE_TO_REPLICAS != 0,
    };
    HOST.with(|host| host.set_replication(replication));
    Ok(())
}

fn acl_check_cmd(shared: &Shared, args: MultiValue) -> Result<bool> {
    needs_run(shared, "redis.acl_check_cmd")?;
    let permission = with_words(shared, &args, |words| {
        Ok(words?.with_slices(|words| HOST.with(|host| host.may_run(words))))
    });
    match permission.map_err(Raised::general)? {
        Permission::Allowed => Ok(true),
        Permission::Denied => Ok(false),
        Permission::NoSuchCommand => Err(Raised::general("Invalid command passed to redis.acl_check_cmd()")),
    }
}

/// `log` and its levels.
pub(crate) fn register_log(lua: &Lua, shared: &Rc<Shared>, table: &Table) -> Result<()> {
    let log = shared.function(lua, |lua, _, args| log(lua, &Args::new(lua, args)))?;
    table.raw_set("log", log)?;
    for (name, level) in [("LOG_DEBUG", 0), ("LOG_VERBOSE", 1), ("LOG_NOTICE", 2), ("LOG_WARNING", 3)] {
        table.raw_set(name, level)?;
    }
    Ok(())
}

pub(crate) fn register_version(table: &Table) -> Result<()> {
    table.raw_set("REDIS_VERSION_NUM", VERSION_NUMBER)?;
    table.raw_set("REDIS_VERSION", VERSION)
}

/// The table `redis`, in the order in which Redis fills it: `pairs` shows it.
pub(crate) fn table(lua: &Lua, shared: &Rc<Shared>) -> Result<Table> {
    let table = lua.create_table()?;
    let simple = |body: fn(&Lua, &Shared, &Args) -> Result<Value>| {
        shared.function(lua, move |lua, shared, args| body(lua, shared, &Args::new(lua, args)))
    };
    register(
        &table,
        vec![
            ("call", shared.function(lua, |lua, shared, args| call(lua, shared, args, true))?),
            ("pcall", shared.function(lua, |lua, shared, args| call(lua, shared, args, false))?),
        ],
    )?;
    register_log(lua, shared, &table)?;
    register_version(&table)?;
    register(
        &table,
        vec![
            (
                "setresp",
                shared.function(lua, |lua, shared, args| set_resp(lua, shared, &Args::new(lua, args)))?,
            ),
            ("sha1hex", shared.function(lua, |lua, _, args| sha1hex(lua, &Args::new(lua, args)))?),
            ("error_reply", simple(|lua, _, args| error_reply(lua, args))?),
            ("status_reply", simple(|lua, _, args| status_reply(lua, args))?),
            (
                "set_repl",
                shared.function(lua, |lua, shared, args| set_repl(lua, shared, &Args::new(lua, args)))?,
            ),
        ],
    )?;
    for (name, flags) in [
        ("REPL_NONE", 0),
        ("REPL_AOF", REPLICATE_TO_LOG),
        ("REPL_SLAVE", REPLICATE_TO_REPLICAS),
        ("REPL_REPLICA", REPLICATE_TO_REPLICAS),
        ("REPL_ALL", REPLICATE_TO_LOG | REPLICATE_TO_REPLICAS),
    ] {
        table.raw_set(name, flags)?;
    }
    let acl_check_cmd = shared.function(lua, |_, shared, args| acl_check_cmd(shared, args))?;
    register(&table, vec![("acl_check_cmd", acl_check_cmd)])?;
    Ok(table)
}

/// What scripts have beside functions of libraries: there is no debugger.
pub(crate) fn register_for_scripts(lua: &Lua, shared: &Rc<Shared>, table: &Table) -> Result<()> {
    register(
        table,
        vec![
            ("breakpoint", shared.function(lua, |_, _, _| Ok(false))?),
            ("debug", shared.function(lua, |_, _, _| Ok(()))?),
            ("replicate_commands", shared.function(lua, |_, _, _| Ok(true))?),
        ],
    )
}

/// An error of the host's making is the script's.
pub(crate) fn text_of(error: &Error) -> Vec<u8> {
    match Raised::of(error) {
        Some(Raised::Text(text) | Raised::Reply { text, .. }) => text.clone(),
        Some(Raised::Halt(halt)) => halt.text().as_bytes().to_vec(),
        None => match error {
            Error::CallbackError { cause, .. } => text_of(cause),
            Error::RuntimeError(text) | Error::MemoryError(text) => text.clone().into_bytes(),
            Error::SyntaxError { message, .. } => message.clone().into_bytes(),
            other => other.to_string().into_bytes(),
        },
    }
}
