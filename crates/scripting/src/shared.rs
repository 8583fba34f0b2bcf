//! What the functions that scripts call share with their state.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use mlua::{Function, IntoLuaMulti, Lua, LuaString, MultiValue, Result, Table};
use scoped_tls_hkt::scoped_thread_local;

use crate::from_resp::until_zero;
use crate::host::{Halt, Host, Interrupt, Resp};
use crate::raise::Raised;
use crate::random::Random;
use crate::registered::Loading;
use crate::words::Words;

scoped_thread_local!(pub(crate) static mut HOST: for<'a> &'a mut (dyn Host + 'a));

/// The longest chunk that the parser sees, in bytes: it counts with `int`.
pub(crate) const SOURCE_BYTES_MAX: usize = 16 << 20;

/// What a state is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Idle,
    /// A script or a function runs: there is a host.
    Running,
    /// A library is loaded.
    Loading,
}

/// Bounds of a state's memory, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryBounds {
    /// A run that has more when that is looked at ends.
    pub(crate) soft_bytes: usize,
    /// What would pass this is not allocated.
    pub(crate) hard_bytes: usize,
}

/// Where the last error that nothing caught was raised.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    pub(crate) source: String,
    /// -1 where it is not a function of Lua's.
    pub(crate) line: i64,
}

pub(crate) struct Shared {
    pub(crate) interrupt: Interrupt,
    /// Set for the rest of the run once it is to end.
    pub(crate) over: Cell<Option<Halt>>,
    pub(crate) phase: Cell<Phase>,
    pub(crate) resp: Cell<Resp>,
    /// The reply of a command, kept for its allocation.
    pub(crate) reply: RefCell<Vec<u8>>,
    pub(crate) words: RefCell<Words>,
    pub(crate) random: Cell<Random>,
    pub(crate) memory: MemoryBounds,
    /// Above so many bytes the next look at memory collects garbage first.
    pub(crate) next_look_bytes: Cell<usize>,
    /// A script has changed an option of `cjson`.
    pub(crate) has_json_options: Cell<bool>,
    pub(crate) loading: RefCell<Option<Loading>>,
    pub(crate) deadline: Cell<Option<Instant>>,
    /// What is left of an error after its handler has run.
    pub(crate) place: RefCell<Option<Place>>,
    /// What chunks that a script loads see as globals.
    pub(crate) environment: RefCell<Option<Table>>,
    /// Lua's `loadstring`: its errors are bytes.
    pub(crate) loader: RefCell<Option<Function>>,
}

impl Shared {
    pub(crate) fn new(memory: MemoryBounds) -> Rc<Shared> {
        Rc::new(Shared {
            interrupt: Interrupt::default(),
            over: Cell::new(None),
            phase: Cell::new(Phase::Idle),
            resp: Cell::new(Resp::Two),
            reply: RefCell::default(),
            words: RefCell::default(),
            random: Cell::default(),
            memory,
            next_look_bytes: Cell::new(memory.soft_bytes),
            has_json_options: Cell::new(false),
            loading: RefCell::default(),
            deadline: Cell::new(None),
            place: RefCell::default(),
            environment: RefCell::default(),
            loader: RefCell::default(),
        })
    }

    /// Whether the run is to end: an error that nothing catches.
    ///
    /// # Errors
    /// It is.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(halt) = self.over.get().or_else(|| self.interrupt.get()) {
            return Err(self.end(halt));
        }
        Ok(())
    }

    #[cold]
    pub(crate) fn end(&self, halt: Halt) -> mlua::Error {
        let halt = self.over.get().unwrap_or(halt);
        self.over.set(Some(halt));
        Raised::Halt(halt).into()
    }

    pub(crate) fn is_to_end(&self) -> bool {
        self.over.get().is_some() || self.interrupt.get().is_some()
    }

    /// Ends the run if there is more memory in use than it may have, garbage not counted.
    ///
    /// # Errors
    /// There is.
    #[inline]
    pub(crate) fn check_memory(&self, lua: &Lua) -> Result<()> {
        if lua.used_memory() <= self.next_look_bytes.get() {
            return Ok(());
        }
        self.look_at_memory(lua)
    }

    #[cold]
    fn look_at_memory(&self, lua: &Lua) -> Result<()> {
        lua.gc_collect()?;
        lua.gc_collect()?;
        let used_bytes = lua.used_memory();
        if used_bytes > self.memory.soft_bytes {
            return Err(self.end(Halt::OutOfMemory));
        }
        // Not at each call while nearly all is in use.
        let more_bytes = self.memory.soft_bytes / 8;
        self.next_look_bytes.set(self.memory.soft_bytes.max(used_bytes + more_bytes));
        Ok(())
    }

    /// What the standing hook looks at.
    ///
    /// # Errors
    /// The run is to end.
    pub(crate) fn hook(&self, lua: &Lua) -> Result<()> {
        if self.phase.get() == Phase::Idle {
            return Ok(());
        }
        if self.phase.get() == Phase::Running {
            // No instruction runs while the host does: it is not in use.
            HOST.with(|host| host.tick());
        }
        self.check()?;
        if self.deadline.get().is_some_and(|deadline| Instant::now() > deadline) {
            return Err(self.end(Halt::TooSlow));
        }
        self.check_memory(lua)
    }

    /// Runs `inside` with the allocator's bound in force, as all of a script does.
    pub(crate) fn bounded<R>(&self, lua: &Lua, inside: impl FnOnce() -> R) -> R {
        self.with_limit(lua, self.memory.hard_bytes, inside)
    }

    /// Runs `inside` without that bound: while it is in force, each operation of `mlua`'s is a protected call.
    #[inline]
    fn unbounded<R>(&self, lua: &Lua, inside: impl FnOnce() -> R) -> R {
        self.with_limit(lua, 0, inside)
    }

    #[inline]
    fn with_limit<R>(&self, lua: &Lua, limit_bytes: usize, inside: impl FnOnce() -> R) -> R {
        let before = lua.set_memory_limit(limit_bytes);
        let result = inside();
        if let Ok(before) = before {
            // The same allocator as a moment ago: it cannot fail.
            let _ = lua.set_memory_limit(before);
        }
        result
    }

    /// Compiles text, never bytecode, for the globals that are current; or says why it is no chunk, in Lua's words.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn compile(
        &self,
        lua: &Lua,
        source: &[u8],
        name: &[u8],
    ) -> Result<std::result::Result<Function, Vec<u8>>> {
        if source.len() > SOURCE_BYTES_MAX {
            return Ok(Err(b"chunk too large".to_vec()));
        }
        // A blank before the byte that begins bytecode keeps the loader from taking it for that: the parser names it.
        let source = match source.first() {
            Some(0x1B) => lua.create_string([b" ", source].concat())?,
            _ => lua.create_string(source)?,
        };
        let name = lua.create_string(until_zero(name))?;
        let Some(loader) = self.loader.borrow().clone() else { return Ok(Err(Vec::new())) };
        let (function, text): (Option<Function>, Option<LuaString>) =
            self.bounded(lua, || loader.call((source, name)))?;
        let Some(function) = function else {
            return Ok(Err(text.map(|text| text.as_bytes().to_vec()).unwrap_or_default()));
        };
        if let Some(environment) = &*self.environment.borrow() {
            function.set_environment(environment.clone())?;
        }
        Ok(Ok(function))
    }

    /// A function for scripts. It does not begin once the run is over.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn function<R: IntoLuaMulti>(
        self: &Rc<Shared>,
        lua: &Lua,
        body: impl Fn(&Lua, &Rc<Shared>, MultiValue) -> Result<R> + 'static,
    ) -> Result<Function> {
        let shared = Rc::clone(self);
        lua.create_function(move |lua, args: MultiValue| {
            shared.check()?;
            shared.unbounded(lua, || body(lua, &shared, args))
        })
    }
}

/// Puts functions into a table, in this order.
pub(crate) fn register(table: &Table, functions: Vec<(&str, Function)>) -> Result<()> {
    functions.into_iter().try_for_each(|(name, function)| table.raw_set(name, function))
}
