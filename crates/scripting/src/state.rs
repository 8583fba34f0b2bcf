//! A state of Lua, and what runs in it.

use std::rc::Rc;
use std::time::{Duration, Instant};

use mlua::{Function, HookTriggers, Lua, LuaOptions, Result as LuaResult, StdLib, Table, Value, VmState};
use stillframe_script_header::{library_header, script_header, Flags, HeaderError};
use thiserror::Error;

use crate::api::text_of;
use crate::from_resp::until_zero;
use crate::host::{Halt, Host, Interrupt, Resp};
use crate::items::{self, string_item};
use crate::raise::{Raised, OWN_CHUNK};
use crate::random::Random;
use crate::registered::{LibraryFunction, Loading};
use crate::sandbox::Sandbox;
use crate::shared::{MemoryBounds, Phase, Place, Shared, HOST, SOURCE_BYTES_MAX};
use crate::to_resp::{write_error, FieldNames, Writer};

/// Instructions between two looks at the clock, the interrupt and memory.
const HOOK_INSTRUCTIONS: u32 = 100_000;
/// Runs between two steps of the garbage collector.
const RUNS_BETWEEN_STEPS: u32 = 50;

/// Bounds of a state.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A run that has more memory than this, garbage not counted, ends. What would pass twice as much and 32 MB, garbage
    /// counted, is not allocated: an error that a script may catch.
    pub memory_bytes_max: usize,
    /// How long a library may take to load.
    pub load_time_max: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options { memory_bytes_max: 64 << 20, load_time_max: Duration::from_millis(500) }
    }
}

/// No state could be made.
#[derive(Debug, Error)]
#[error("no state of Lua could be made: {0}")]
pub struct StateError(String);

impl From<mlua::Error> for StateError {
    fn from(error: mlua::Error) -> StateError {
        StateError(error.to_string())
    }
}

/// A script that is not compiled. Its text is the reply, with code.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CompileError {
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error("ERR Error compiling script (new function): {}", String::from_utf8_lossy(.0))]
    Syntax(Vec<u8>),
}

impl CompileError {
    /// The reply, with code: its text, in which names may have any bytes.
    #[must_use]
    pub fn reply(&self) -> Vec<u8> {
        match self {
            CompileError::Header(error) => error.to_string().into_bytes(),
            CompileError::Syntax(text) => {
                [b"ERR Error compiling script (new function): ", &text[..]].concat()
            }
        }
    }
}

/// A library that is not loaded. Its text is the reply, with code.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LoadError {
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error("ERR Error compiling function: {}", String::from_utf8_lossy(.0))]
    Syntax(Vec<u8>),
    #[error("ERR Error registering functions: {}", String::from_utf8_lossy(.0))]
    Registering(Vec<u8>),
    #[error("ERR No functions registered")]
    NoFunctions,
}

impl LoadError {
    /// The reply, with code: its text, in which names may have any bytes.
    #[must_use]
    pub fn reply(&self) -> Vec<u8> {
        match self {
            LoadError::Syntax(text) => [b"ERR Error compiling function: ", &text[..]].concat(),
            LoadError::Registering(text) => [b"ERR Error registering functions: ", &text[..]].concat(),
            LoadError::Header(_) | LoadError::NoFunctions => self.to_string().into_bytes(),
        }
    }
}

/// A compiled script. It belongs to its state.
#[derive(Clone, Debug)]
pub struct Script {
    function: Function,
    /// What errors call it: its SHA1 in hexadecimal digits.
    name: String,
    /// None: no first line, so Redis's rules from before 7.0 hold.
    pub flags: Option<Flags>,
}

impl Script {
    /// What errors call it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A loaded library. It belongs to its state.
#[derive(Clone, Debug)]
pub struct Library {
    pub name: String,
    pub functions: Vec<LibraryFunction>,
}

/// How a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its reply has been written.
    Replied,
    /// An error has been written: what the script has returned, or raised.
    Failed {
        /// The error is that of a command, which the host knows already.
        is_counted: bool,
    },
    /// It was ended. An error has been written unless the run was given up.
    Halted(Halt),
}

/// A state of Lua for one thread. Scripts and libraries that were compiled in it run in it.
pub struct State {
    lua: Lua,
    shared: Rc<Shared>,
    sandbox: Sandbox,
    names: FieldNames,
    handler: Function,
    load_time_max: Duration,
    runs_until_step: std::cell::Cell<u32>,
}

impl State {
    /// # Errors
    /// No memory.
    pub fn new(options: Options) -> Result<State, StateError> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(true))?;
        let soft_bytes = options.memory_bytes_max;
        let hard_bytes = soft_bytes.saturating_mul(2).saturating_add(32 << 20);
        let shared = Shared::new(MemoryBounds { soft_bytes, hard_bytes });
        let handler = {
            let shared = Rc::clone(&shared);
            lua.create_function(move |lua, error: Value| {
                shared.place.replace(place_of_error(lua));
                Ok(error)
            })?
        };
        let sandbox = Sandbox::new(&lua, &shared, &handler)?;
        let hook = Rc::clone(&shared);
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(HOOK_INSTRUCTIONS), move |lua, _| {
            hook.hook(lua).map(|()| VmState::Continue)
        })?;
        let names = FieldNames::new(&lua)?;
        Ok(State {
            lua,
            shared,
            sandbox,
            names,
            handler,
            load_time_max: options.load_time_max,
            runs_until_step: std::cell::Cell::new(RUNS_BETWEEN_STEPS),
        })
    }

    /// The mark that ends the run under way. Each run begins by taking it away.
    #[must_use]
    pub fn interrupt(&self) -> Interrupt {
        self.shared.interrupt.clone()
    }

    /// Bytes that Lua has, garbage counted.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// Collects all garbage.
    pub fn collect_garbage(&self) {
        // A finalizer could raise an error; no script can make one.
        let _ = self.lua.gc_collect();
    }

    /// Where the sequence of `math.random` is: to be put back before a run that was given up begins anew.
    #[must_use]
    pub fn random(&self) -> Random {
        self.shared.random.get()
    }

    pub fn set_random(&self, random: Random) {
        self.shared.random.set(random);
    }

    /// Compiles the source of a script. `sha` is its SHA1 in hexadecimal digits, which errors name.
    ///
    /// # Errors
    /// Redis refuses its first line, or it is not Lua.
    pub fn compile(&self, source: &[u8], sha: &str) -> Result<Script, CompileError> {
        let header = script_header(source)?;
        if source.len() > SOURCE_BYTES_MAX {
            return Err(CompileError::Syntax(b"script too large".to_vec()));
        }
        self.set_environment(&self.sandbox.script_front);
        match self.shared.compile(&self.lua, header.body, b"@user_script") {
            Ok(Ok(function)) => Ok(Script { function, name: sha.to_owned(), flags: header.flags }),
            Ok(Err(text)) => Err(CompileError::Syntax(text)),
            Err(error) => Err(CompileError::Syntax(text_of(&error))),
        }
    }

    /// Runs a script, and writes its reply as the protocol of its client has it.
    pub fn run(
        &self,
        script: &Script,
        keys: &[impl AsRef<[u8]>],
        args: &[impl AsRef<[u8]>],
        host: &mut dyn Host,
        client: Resp,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        let name = &script.name;
        self.in_run(&self.sandbox.script_front, host, || {
            let result = self.set_keys(keys, args).and_then(|()| {
                self.shared.bounded(&self.lua, || {
                    self.sandbox.native_xpcall.call::<(bool, Value)>((&script.function, &self.handler))
                })
            });
            self.finish(name, result, client, reply)
        })
    }

    /// Calls a function of a library.
    pub fn call(
        &self,
        function: &LibraryFunction,
        keys: &[impl AsRef<[u8]>],
        args: &[impl AsRef<[u8]>],
        host: &mut dyn Host,
        client: Resp,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        self.in_run(&self.sandbox.library_front, host, || {
            let result = self.array(keys).and_then(|keys| {
                let args = self.array(args)?;
                self.shared.bounded(&self.lua, || {
                    self.sandbox.call_function.call::<(bool, Value)>((&function.callback, keys, args))
                })
            });
            self.finish(&function.name, result, client, reply)
        })
    }

    /// Loads a library: runs its source, which registers its functions.
    ///
    /// # Errors
    /// Redis refuses its first line, it is not Lua, it raises an error, takes too long, or registers nothing.
    pub fn load_library(&self, source: &[u8]) -> Result<Library, LoadError> {
        let header = library_header(source)?;
        self.set_environment(&self.sandbox.library_front);
        let compiled = self.shared.compile(&self.lua, header.body, b"@user_function");
        let function =
            compiled.map_err(|error| LoadError::Syntax(text_of(&error)))?.map_err(LoadError::Syntax)?;
        self.show_to_libraries(&self.sandbox.loading_globals);
        self.begin(Phase::Loading, &self.sandbox.library_front);
        self.shared.deadline.set(Instant::now().checked_add(self.load_time_max));
        self.shared.loading.replace(Some(Loading::default()));
        let result = self.shared.bounded(&self.lua, || {
            self.sandbox.native_xpcall.call::<(bool, Value)>((&function, &self.handler))
        });
        let loaded = self.shared.loading.take().unwrap_or_default();
        self.shared.deadline.set(None);
        self.end();
        self.show_to_libraries(&self.sandbox.library_globals);
        match result {
            Ok((true, _)) if loaded.functions.is_empty() => Err(LoadError::NoFunctions),
            Ok((true, _)) => Ok(Library { name: header.name, functions: loaded.functions }),
            Ok((false, value)) => Err(LoadError::Registering(self.error_text(&value).0)),
            Err(error) => Err(LoadError::Registering(text_of(&error))),
        }
    }

    fn show_to_libraries(&self, globals: &Table) {
        // An assignment to a field that is there: it allocates nothing.
        let _ = self.sandbox.library_metatable.raw_set("__index", globals);
    }

    fn begin(&self, phase: Phase, environment: &Table) {
        let shared = &self.shared;
        shared.interrupt.clear();
        shared.over.set(None);
        shared.resp.set(Resp::Two);
        shared.phase.set(phase);
        shared.next_look_bytes.set(shared.memory.soft_bytes);
        self.set_environment(environment);
    }

    fn set_environment(&self, environment: &Table) {
        let mut current = self.shared.environment.borrow_mut();
        if current.as_ref().is_none_or(|current| current != environment) {
            *current = Some(environment.clone());
        }
    }

    fn end(&self) {
        self.shared.phase.set(Phase::Idle);
        self.shared.has_json_options.set(false);
        let left = self.runs_until_step.get() - 1;
        self.runs_until_step.set(if left == 0 { RUNS_BETWEEN_STEPS } else { left });
        if left == 0 {
            let _ = self.lua.gc_step();
        }
    }

    fn in_run(&self, environment: &Table, host: &mut dyn Host, run: impl FnOnce() -> Outcome) -> Outcome {
        self.begin(Phase::Running, environment);
        let outcome = HOST.set(host, run);
        self.end();
        outcome
    }

    fn set_keys(&self, keys: &[impl AsRef<[u8]>], args: &[impl AsRef<[u8]>]) -> LuaResult<()> {
        self.sandbox.script_globals.raw_set(&self.names.keys, self.array(keys)?)?;
        self.sandbox.script_globals.raw_set(&self.names.argv, self.array(args)?)
    }

    fn array(&self, words: &[impl AsRef<[u8]>]) -> LuaResult<Value> {
        let (room, mut words) = (words.len(), words.iter());
        items::sequence(&self.lua, room, || {
            words.next().map(|word| string_item(&self.lua, word.as_ref())).transpose()
        })
    }

    /// Writes the reply of a run.
    fn finish(
        &self,
        name: &str,
        result: LuaResult<(bool, Value)>,
        client: Resp,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        let over = &self.shared.over;
        if let (Ok((true, value)), None) = (&result, over.get()) {
            match self.write_value(value, client, reply) {
                Ok(outcome) => return outcome,
                Err(error) if over.get().is_none() => return self.refuse(name, &text_of(&error), reply),
                // The reply has ended the run.
                Err(_) => {}
            }
        }
        if let Some(halt) = over.get() {
            if halt != Halt::GivenUp {
                self.write_failure(name, halt.text().as_bytes().to_vec(), reply);
            }
            return Outcome::Halted(halt);
        }
        let value = match result {
            Ok((_, value)) => value,
            Err(error) => Value::Error(Box::new(error)),
        };
        if let Value::String(text) = &value {
            // What reached no handler: memory, or an error in a handler.
            if self.shared.place.borrow().is_none() {
                return self.refuse(name, &text.as_bytes(), reply);
            }
        }
        let (text, is_counted) = self.error_text(&value);
        self.write_failure(name, text, reply);
        Outcome::Failed { is_counted }
    }

    /// # Errors
    /// There is no room for it; nothing has been written.
    fn write_value(&self, value: &Value, client: Resp, reply: &mut Vec<u8>) -> LuaResult<Outcome> {
        let begin = reply.len();
        let (names, script, shared) = (&self.names, self.shared.resp.get(), &self.shared);
        let written = Writer { reply, names, client, script, shared }.value(value);
        if written.is_err() {
            reply.truncate(begin);
        }
        written.map(|()| outcome_of(value, &reply[begin..]))
    }

    fn refuse(&self, name: &str, text: &[u8], reply: &mut Vec<u8>) -> Outcome {
        const SHOWN_BYTES: usize = 100;
        let mut full = format!("ERR Error running script {name}, ").into_bytes();
        full.extend_from_slice(&text[..text.len().min(SHOWN_BYTES)]);
        write_error(reply, &full);
        Outcome::Failed { is_counted: false }
    }

    fn write_failure(&self, name: &str, mut text: Vec<u8>, reply: &mut Vec<u8>) {
        if let Some(place) = self.shared.place.take() {
            text.extend_from_slice(
                format!(" script: {name}, on {}:{}.", place.source, place.line).as_bytes(),
            );
        }
        write_error(reply, &text);
    }

    /// The text of an error that nothing caught, with its code; whether it is that of a command.
    fn error_text(&self, value: &Value) -> (Vec<u8>, bool) {
        match value {
            Value::Error(error) => match Raised::of(error) {
                Some(Raised::Reply { text, is_counted }) => (until_zero(text).to_vec(), *is_counted),
                Some(Raised::Halt(halt)) => (halt.text().as_bytes().to_vec(), false),
                _ => (general(&text_of(error)), false),
            },
            Value::Table(table) => {
                let field = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
                let is_counted = is_counted(table);
                match crate::args::as_string(&self.lua, Some(&field("err"))) {
                    Ok(Some(text)) => (until_zero(&text.as_bytes()).to_vec(), is_counted),
                    _ => (b"ERR unknown error".to_vec(), is_counted),
                }
            }
            other => (general(&self.to_string(other)), false),
        }
    }

    /// As `tostring`, without metamethods.
    fn to_string(&self, value: &Value) -> Vec<u8> {
        match value {
            Value::Nil => b"nil".to_vec(),
            Value::Boolean(is_true) => is_true.to_string().into_bytes(),
            Value::String(_) | Value::Number(_) | Value::Integer(_) => {
                let text = crate::args::as_string(&self.lua, Some(value)).ok().flatten();
                text.map(|text| text.as_bytes().to_vec()).unwrap_or_default()
            }
            other => format!("{}: {:p}", other.type_name(), other.to_pointer()).into_bytes(),
        }
    }
}

/// What a script returns may be an error.
fn outcome_of(value: &Value, reply: &[u8]) -> Outcome {
    match value {
        Value::Table(table) if reply.first() == Some(&b'-') => {
            Outcome::Failed { is_counted: is_counted(table) }
        }
        _ => Outcome::Replied,
    }
}

/// Whether an error is that of a command.
fn is_counted(error: &Table) -> bool {
    matches!(error.raw_get("ignore_error_stats_update"), Ok(Value::Boolean(true)))
}

fn general(text: &[u8]) -> Vec<u8> {
    [b"ERR ", until_zero(text)].concat()
}

/// Where an error is raised, seen from its handler: what raised it, or what called that if it is a function of C's.
fn place_of_error(lua: &Lua) -> Option<Place> {
    let mut is_first = true;
    // No deeper than functions of this crate call each other.
    for level in 1..16 {
        let frame = lua.inspect_stack(level, |frame| {
            let source = frame.source();
            let line = frame.current_line().map_or(-1, |line| line as i64);
            let is_own = source.source.as_deref() == Some(OWN_CHUNK) || source.what == "tail";
            let place = Place { source: source.source.as_deref().unwrap_or("=?").to_owned(), line };
            (source.what == "C", is_own, place)
        })?;
        match frame {
            (true, _, _) if is_first => {}
            (_, true, _) => {}
            (_, _, place) => return Some(place),
        }
        is_first = false;
    }
    None
}
