//! What a script finds: Lua's libraries without their holes, behind read-only fronts.
//!
//! A front is an empty table with a metatable: what is read comes from the table behind it, what is written is refused.
//! `next`, `pairs` and `rawget` look behind fronts, `rawset`, `setmetatable` and `table.insert` refuse them, and what else
//! the libraries have cannot write to a table that is empty.

use std::rc::Rc;

use mlua::{Function, IntoLua, Lua, LuaString, MultiValue, Result, Table, Value};

use crate::args::{as_number, Args};
use crate::number::to_i32;
use crate::raise::{self, Raised, OWN_CHUNK};
use crate::shared::{register, Phase, Shared, SOURCE_BYTES_MAX};
use crate::{api, bits, json, library, msgpack, random, strings, structs};

/// The tables of a state that are asked for after it was made.
pub(crate) struct Sandbox {
    /// What is behind the globals of scripts: `KEYS` and `ARGV` are put there.
    pub(crate) script_globals: Table,
    /// The globals of scripts.
    pub(crate) script_front: Table,
    /// The globals of libraries.
    pub(crate) library_front: Table,
    /// Its `__index` is what libraries see: other globals while they are loaded.
    pub(crate) library_metatable: Table,
    pub(crate) library_globals: Table,
    pub(crate) loading_globals: Table,
    pub(crate) native_xpcall: Function,
    /// Calls a function of a library: function, keys, arguments.
    pub(crate) call_function: Function,
}

struct Maker<'a> {
    lua: &'a Lua,
    shared: &'a Rc<Shared>,
    /// Tables behind fronts, by front.
    real: Table,
    hidden: Table,
    refuse: Function,
}

impl Maker<'_> {
    fn front_with(&self, behind: &Table) -> Result<(Table, Table)> {
        let (front, metatable) = (self.lua.create_table()?, self.lua.create_table()?);
        metatable.raw_set("__index", behind)?;
        metatable.raw_set("__newindex", &self.refuse)?;
        metatable.raw_set("__metatable", &self.hidden)?;
        front.set_metatable(Some(metatable.clone()))?;
        self.real.raw_set(&front, behind)?;
        Ok((front, metatable))
    }

    fn front(&self, behind: &Table) -> Result<Table> {
        Ok(self.front_with(behind)?.0)
    }

    fn helpers(&self) -> Result<Table> {
        let (lua, shared) = (self.lua, self.shared);
        let helpers = lua.create_table()?;
        register(
            &helpers,
            vec![
                ("bad_argument", shared.function(lua, bad_argument)?),
                ("type_of", shared.function(lua, |_, _, args| Ok(raise::type_name(args.front())))?),
                (
                    "text",
                    shared
                        .function(lua, |lua, _, args| Err::<(), _>(raise::text(lua, bytes(args.front()))))?,
                ),
                ("place", shared.function(lua, |lua, _, _| Ok(raise::place(lua)))?),
                (
                    "gsub",
                    shared.function(lua, |lua, shared, args| {
                        strings::gsub(lua, shared, &Args::new(lua, args))
                    })?,
                ),
                (
                    "gsub_matches",
                    shared.function(lua, |lua, shared, args| {
                        strings::gsub_matches(lua, shared, &Args::new(lua, args))
                    })?,
                ),
                ("caught", shared.function(lua, |lua, _, mut args| caught(lua, args.pop_front()))?),
                ("check", shared.function(lua, |_, _, _| Ok(()))?),
                (
                    "compile",
                    shared.function(lua, |lua, shared, args| compile(lua, shared, &Args::new(lua, args)))?,
                ),
                (
                    "to_int",
                    shared.function(lua, |lua, _, args| Ok(as_number(lua, args.front())?.map(to_i32)))?,
                ),
            ],
        )?;
        let own = Rc::clone(shared);
        // It must not raise: it is called by what handles an error.
        helpers.raw_set("is_to_end", lua.create_function(move |_, ()| Ok(own.is_to_end()))?)?;
        Ok(helpers)
    }
}

fn bytes(value: Option<&Value>) -> Vec<u8> {
    match value {
        Some(Value::String(string)) => string.as_bytes().to_vec(),
        _ => Vec::new(),
    }
}

/// Number of the argument, what is wrong.
fn bad_argument(lua: &Lua, _: &Rc<Shared>, args: MultiValue) -> Result<()> {
    let number = as_number(lua, args.front())?.map_or(0, to_i32);
    let what = String::from_utf8_lossy(&bytes(args.get(1))).into_owned();
    Err(raise::bad_argument(lua, usize::try_from(number).unwrap_or(0), &what))
}

/// What a script sees of an error that it has caught.
fn caught(lua: &Lua, value: Option<Value>) -> Result<Value> {
    let error = match value {
        Some(Value::Error(error)) => error,
        other => return Ok(other.unwrap_or(Value::Nil)),
    };
    match Raised::of(&error) {
        Some(Raised::Halt(_)) => Err(*error),
        Some(Raised::Reply { text, is_counted }) => {
            Ok(Value::Table(crate::from_resp::error_table(lua, text, *is_counted)?))
        }
        Some(Raised::Text(text)) => lua.create_string(text)?.into_lua(lua),
        None => lua.create_string(api::text_of(&error))?.into_lua(lua),
    }
}

/// Compiles text. Source, name; a function, or nil and what is wrong.
fn compile(lua: &Lua, shared: &Rc<Shared>, args: &Args) -> Result<(Value, Value)> {
    let (source, name) = (args.string(1)?, args.string(2)?);
    match shared.compile(lua, &source.as_bytes(), &name.as_bytes())? {
        Ok(function) => Ok((Value::Function(function), Value::Nil)),
        Err(text) => Ok((Value::Nil, Value::String(lua.create_string(text)?))),
    }
}

fn no_such_global(lua: &Lua, args: &Args) -> Result<()> {
    if args.count() != 2 {
        return Err(raise::text(lua, "Wrong number of arguments to luaProtectedTableError"));
    }
    let Some(name) = crate::args::as_string(lua, args.get(2))? else {
        return Err(raise::text(lua, "Second argument to luaProtectedTableError must be a string or number"));
    };
    let name = name.as_bytes();
    let name = crate::from_resp::until_zero(&name);
    let text = [b"Script attempted to access nonexistent global variable '", name, b"'"].concat();
    Err(raise::text(lua, text))
}

/// `math.random`: between 0 and 1, or whole numbers up to, or from and up to.
fn math_random(lua: &Lua, shared: &Shared, args: &Args) -> Result<f64> {
    in_run(lua, shared, "math.random")?;
    let (bits, next) = shared.random.get().next_31_bits();
    shared.random.set(next);
    let limit = random::LIMIT - 1;
    let fraction = f64::from(bits % limit) / f64::from(limit);
    let (low, high) = match args.count() {
        0 => return Ok(fraction),
        1 => (1, args.int(1)?),
        2 => (args.int(1)?, args.int(2)?),
        _ => return Err(raise::text(lua, "wrong number of arguments")),
    };
    if low > high {
        return Err(raise::bad_argument(lua, args.count(), "interval is empty"));
    }
    let span = match args.count() {
        1 => f64::from(high),
        // As C computes it, in 32 bits.
        _ => f64::from(high.wrapping_sub(low).wrapping_add(1)),
    };
    Ok((fraction * span).floor() + f64::from(low))
}

fn in_run(lua: &Lua, shared: &Shared, name: &str) -> Result<()> {
    match shared.phase.get() {
        Phase::Running => Ok(()),
        _ => Err(raise::text(lua, format!("{name} can only be called inside a script invocation"))),
    }
}

fn replace_math(lua: &Lua, shared: &Rc<Shared>, table: &Table) -> Result<()> {
    let seed = |lua: &Lua, shared: &Rc<Shared>, args: MultiValue| {
        in_run(lua, shared, "math.randomseed")?;
        shared.random.set(random::Random::seeded(Args::new(lua, args).int(1)?));
        Ok(())
    };
    register(
        table,
        vec![
            (
                "random",
                shared.function(lua, |lua, shared, args| math_random(lua, shared, &Args::new(lua, args)))?,
            ),
            ("randomseed", shared.function(lua, seed)?),
        ],
    )
}

const BASE_KEPT: [&str; 9] =
    ["assert", "error", "gcinfo", "ipairs", "rawequal", "select", "tonumber", "tostring", "type"];
const BASE_REPLACED: [&str; 12] = [
    "pcall",
    "xpcall",
    "next",
    "pairs",
    "rawget",
    "rawset",
    "getmetatable",
    "setmetatable",
    "unpack",
    "load",
    "loadstring",
    "collectgarbage",
];

/// Lua's own functions for those written in Lua here.
fn natives(lua: &Lua, globals: &Table) -> Result<Table> {
    let natives = lua.create_table()?;
    for name in BASE_KEPT.iter().chain(&BASE_REPLACED) {
        natives.raw_set(*name, globals.raw_get::<Value>(*name)?)?;
    }
    let coroutine: Table = globals.raw_get("coroutine")?;
    let table: Table = globals.raw_get("table")?;
    for (name, from) in
        [("resume", &coroutine), ("create", &coroutine), ("insert", &table), ("concat", &table)]
    {
        natives.raw_set(name, from.raw_get::<Value>(name)?)?;
    }
    Ok(natives)
}

/// Locks the metatable that all strings share.
fn lock_strings(maker: &Maker, string_front: &Table) -> Result<()> {
    let view = maker.lua.create_table()?;
    view.raw_set("__index", string_front)?;
    let view = maker.front(&view)?;
    let metatable = maker.lua.type_metatable::<LuaString>();
    metatable.map_or(Ok(()), |metatable| metatable.raw_set("__metatable", view))
}

impl Sandbox {
    /// Makes it of a fresh state with the libraries base, table, string, math and coroutine.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn new(lua: &Lua, shared: &Rc<Shared>, handler: &Function) -> Result<Sandbox> {
        let globals = lua.globals();
        let refuse = lua.create_function(|lua, _: MultiValue| {
            Err::<(), _>(raise::text(lua, "Attempt to modify a readonly table"))
        })?;
        let maker = Maker { lua, shared, real: lua.create_table()?, hidden: lua.create_table()?, refuse };
        let no_such_global =
            shared.function(lua, |lua, _, args| no_such_global(lua, &Args::new(lua, args)))?;
        let missing = lua.create_table()?;
        missing.raw_set("__index", &no_such_global)?;

        let natives = natives(lua, &globals)?;
        let global_metatables = lua.create_table()?;
        let own: Table = lua
            .load(include_str!("sandbox.lua"))
            .set_name(OWN_CHUNK)
            .set_environment(lua.create_table()?)
            .call((
                &natives,
                maker.helpers()?,
                &maker.real,
                &maker.hidden,
                &global_metatables,
                handler,
                SOURCE_BYTES_MAX,
            ))?;

        let behind = maker.base(&globals, &own)?;
        maker.libraries(&globals, &own, &behind)?;
        let redis = api::table(lua, shared)?;
        let functions_redis = api::table(lua, shared)?;
        api::register_for_scripts(lua, shared, &redis)?;

        let library_globals = lua.create_table()?;
        for pair in behind.pairs::<Value, Value>() {
            let (name, value) = pair?;
            library_globals.raw_set(name, value)?;
        }
        let redis = maker.front(&redis)?;
        behind.raw_set("redis", &redis)?;
        behind.raw_set("server", redis)?;
        behind.raw_set("__redis__err__handler", own.raw_get::<Value>("error_handler")?)?;
        library_globals.raw_set("redis", maker.front(&functions_redis)?)?;

        let script_front = maker.globals(&behind, &missing, &global_metatables)?;
        let (library_front, library_metatable) = maker.front_with(&library_globals)?;
        library_globals.set_metatable(Some(missing.clone()))?;
        library_globals.raw_set("_G", &library_front)?;
        let loading_globals = maker.loading_globals(&missing)?;
        lua.set_globals(script_front.clone())?;
        shared.loader.replace(Some(natives.raw_get("loadstring")?));
        Ok(Sandbox {
            script_globals: behind,
            script_front,
            library_front,
            library_metatable,
            library_globals,
            loading_globals,
            native_xpcall: natives.raw_get("xpcall")?,
            call_function: own.raw_get("call_function")?,
        })
    }
}

impl Maker<'_> {
    fn base(&self, globals: &Table, own: &Table) -> Result<Table> {
        let behind = self.lua.create_table()?;
        for name in BASE_KEPT.iter().chain(&["_VERSION"]) {
            behind.raw_set(*name, globals.raw_get::<Value>(*name)?)?;
        }
        for name in BASE_REPLACED {
            behind.raw_set(name, own.raw_get::<Value>(name)?)?;
        }
        Ok(behind)
    }

    fn libraries(&self, globals: &Table, own: &Table, behind: &Table) -> Result<()> {
        let (lua, shared) = (self.lua, self.shared);
        let library = |name: &str| globals.raw_get::<Table>(name);
        let (string, table, math, coroutine) =
            (library("string")?, library("table")?, library("math")?, library("coroutine")?);
        strings::replace(lua, shared, &string)?;
        string.raw_set("gsub", own.raw_get::<Value>("gsub")?)?;
        replace_math(lua, shared, &math)?;
        table.raw_set("insert", own.raw_get::<Value>("insert")?)?;
        for name in ["resume", "wrap"] {
            coroutine.raw_set(name, own.raw_get::<Value>(name)?)?;
        }
        let string_front = self.front(&string)?;
        lock_strings(self, &string_front)?;
        behind.raw_set("string", string_front)?;
        for (name, library) in [
            ("table", table),
            ("math", math),
            ("coroutine", coroutine),
            ("cjson", json::table(lua, shared)?),
            ("cmsgpack", msgpack::table(lua, shared)?),
            ("struct", structs::table(lua, shared)?),
            ("bit", bits::table(lua, shared)?),
        ] {
            behind.raw_set(name, self.front(&library)?)?;
        }
        Ok(())
    }

    fn globals(&self, behind: &Table, missing: &Table, metatables: &Table) -> Result<Table> {
        let front = self.front(behind)?;
        behind.raw_set("_G", &front)?;
        behind.set_metatable(Some(missing.clone()))?;
        metatables.raw_set(&front, self.front(missing)?)?;
        Ok(front)
    }

    /// What a library sees while it is loaded: a part of `redis`, and nothing else.
    fn loading_globals(&self, missing: &Table) -> Result<Table> {
        let redis = library::loading_table(self.lua, self.shared)?;
        redis.set_metatable(Some(missing.clone()))?;
        let globals = self.lua.create_table()?;
        globals.raw_set("redis", self.front(&redis)?)?;
        globals.set_metatable(Some(missing.clone()))?;
        Ok(globals)
    }
}
