//! Function libraries: what they register while they are loaded.

use std::rc::Rc;

use mlua::{Function, Lua, Result, Table, Value};
use stillframe_script_header::{is_name, Flags};

use crate::api;
use crate::args::{as_string, Args};
use crate::raise::Raised;
use crate::registered::LibraryFunction;
use crate::shared::{register, Shared};

struct Registered {
    name: Vec<u8>,
    description: Option<Vec<u8>>,
    flags: Flags,
    callback: Function,
}

fn string_bytes(lua: &Lua, value: &Value) -> Result<Option<Vec<u8>>> {
    Ok(as_string(lua, Some(value))?.map(|string| string.as_bytes().to_vec()))
}

fn refused<T>(text: &str) -> Result<T> {
    Err(Raised::general(text))
}

fn read_flags(lua: &Lua, value: &Value) -> Result<Flags> {
    let Value::Table(names) = value else {
        return refused(
            "flags argument to redis.register_function must be a table representing function flags",
        );
    };
    let mut flags = Flags::default();
    for index in 1.. {
        let name: Value = names.raw_get(index)?;
        if name.is_nil() {
            break;
        }
        let name = string_bytes(lua, &name)?;
        if !name.is_some_and(|name| flags.set(&name.to_ascii_lowercase())) {
            return refused("unknown flag given");
        }
    }
    Ok(flags)
}

fn named(lua: &Lua, args: &Args) -> Result<Registered> {
    let Some(Value::Table(given)) = args.get(1) else {
        return refused(
            "calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).",
        );
    };
    let (mut name, mut description, mut flags, mut callback) = (None, None, Flags::default(), None);
    for pair in given.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let Some(key) = string_bytes(lua, &key)? else {
            return refused("named argument key given to redis.register_function is not a string");
        };
        match &key.to_ascii_lowercase()[..] {
            b"function_name" => match string_bytes(lua, &value)? {
                Some(text) => name = Some(text),
                None => {
                    return refused(
                        "function_name argument given to redis.register_function must be a string",
                    )
                }
            },
            b"description" => match string_bytes(lua, &value)? {
                Some(text) => description = Some(text),
                None => {
                    return refused("description argument given to redis.register_function must be a string")
                }
            },
            b"callback" => match value {
                Value::Function(function) => callback = Some(function),
                _ => return refused("callback argument given to redis.register_function must be a function"),
            },
            b"flags" => flags = read_flags(lua, &value)?,
            _ => return refused("unknown argument given to redis.register_function"),
        }
    }
    let Some(name) = name else {
        return refused("redis.register_function must get a function name argument");
    };
    let Some(callback) = callback else {
        return refused("redis.register_function must get a callback argument");
    };
    Ok(Registered { name, description, flags, callback })
}

fn positional(lua: &Lua, args: &Args) -> Result<Registered> {
    let name = args.get(1).map_or(Ok(None), |value| string_bytes(lua, value))?;
    let Some(name) = name else {
        return refused("first argument to redis.register_function must be a string");
    };
    let Some(Value::Function(callback)) = args.get(2) else {
        return refused("second argument to redis.register_function must be a function");
    };
    Ok(Registered { name, description: None, flags: Flags::default(), callback: callback.clone() })
}

fn register_function(lua: &Lua, shared: &Rc<Shared>, args: &Args) -> Result<()> {
    if shared.loading.borrow().is_none() {
        return refused("redis.register_function can only be called on FUNCTION LOAD command");
    }
    let given = match args.count() {
        1 => named(lua, args)?,
        2 => positional(lua, args)?,
        _ => return refused("wrong number of arguments to redis.register_function"),
    };
    if !is_name(&given.name) {
        return refused("Library names can only contain letters, numbers, or underscores(_) and must be at least one character long");
    }
    let name = String::from_utf8_lossy(&given.name).into_owned();
    let mut loading = shared.loading.borrow_mut();
    let Some(loading) = loading.as_mut() else { return Ok(()) };
    if loading.functions.iter().any(|function| function.name == name) {
        return refused("Function already exists in the library");
    }
    let Registered { description, flags, callback, .. } = given;
    loading.functions.push(LibraryFunction { name, description, flags, callback });
    Ok(())
}

/// `redis` as a library sees it while it is loaded.
pub(crate) fn loading_table(lua: &Lua, shared: &Rc<Shared>) -> Result<Table> {
    let table = lua.create_table()?;
    let function =
        shared.function(lua, |lua, shared, args| register_function(lua, shared, &Args::new(lua, args)))?;
    register(&table, vec![("register_function", function)])?;
    api::register_log(lua, shared, &table)?;
    api::register_version(&table)?;
    Ok(table)
}
