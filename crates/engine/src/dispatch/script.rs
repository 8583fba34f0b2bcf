//! Running a script: its commands, one after the other, as one step.
//!
//! ```text
//!             ┌──────── pages missing, nothing changed: given up, others are served, it begins anew ────────┐
//!             ▼                                                                                             │
//!   start ─▶ LOOKING ── a command that may change something ─▶ commit point ── pages missing, no room ──────┘
//!             │ end                                              │
//!             ▼                                                  ▼
//!           reply                                             CHANGING ── pages missing: brought in here, the command runs again
//!                                                                │ end
//!                                                                ▼
//!                                                              reply
//! ```
//! Where no page may be missing, and within a transaction, a script begins as CHANGING. From its first change on others stand still;
//! with several workers from its beginning. A run that is given up has left nothing:
//! what it would have told others (counts, lines for monitors and the log) is put off until it cannot begin anew any more
//! (invariants SC1 to SC3).

use std::time::{Duration, Instant};

use smallvec::SmallVec;
use stillframe_scripting::{
    Called, Flags, Host, LibraryFunction, LogLevel, Outcome as RunOutcome, Permission, Replication, Resp,
    Script, State,
};
use stillframe_store::{Fault, Faults, OpError, Patient};

use crate::command::{flag, CmdError, CmdResult, CommandId};
use crate::dispatch::call::{call, Outcome};
use crate::dispatch::carry::{carry_out, keys_of_steps};
use crate::dispatch::checked;
use crate::dispatch::ctx::{Command, Ctx, Found};
use crate::dispatch::lookup::row_of;
use crate::dispatch::monitor;
use crate::dispatch::pace::Pace;
use crate::dispatch::step::{Part, Step};
use crate::dispatch::{admit_change, is_out_of_memory, slow};
use crate::log;
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::protocol::reply::ReplyBuf;
use crate::state::busy::Kind;
use crate::state::exceptions::Matter;
use crate::state::lua::{Inside, Words};
use crate::state::session::Within;
use crate::text::number::parse_i64;

/// Bytes of a reply's buffer that are kept between two commands.
const KEPT_BYTES: usize = 64 << 10;
const TOO_MANY_BYTES: &[u8] = b"ERR the words of a command are larger than 4 GB together";

/// What runs.
pub enum Body<'l> {
    Script(&'l Script),
    Function(&'l LibraryFunction),
}

impl Body<'_> {
    fn flags(&self) -> Option<Flags> {
        match self {
            Body::Script(script) => script.flags,
            Body::Function(function) => Some(function.flags),
        }
    }

    fn pace<'r>(&'r self, state: &'r State) -> Pace<'r> {
        match self {
            Body::Script(script) => Pace::new(state, Kind::Script, script.name()),
            Body::Function(function) => Pace::new(state, Kind::Function, &function.name),
        }
    }
}

/// What a script is called with.
pub struct Given<'a> {
    found: Found,
    args: &'a Args<'a>,
    key_count: usize,
}

impl<'a> Given<'a> {
    /// Of a call `EVAL script number key ... arg ...`.
    ///
    /// # Errors
    /// The number of keys is none, or not possible.
    pub fn of(found: Found, args: &'a Args<'a>) -> Result<Given<'a>, CmdError> {
        Given::counted(found, args, errors::NOT_AN_INTEGER)
    }

    /// The same of `FCALL`.
    ///
    /// # Errors
    /// As above, in other words.
    pub fn of_function(found: Found, args: &'a Args<'a>) -> Result<Given<'a>, CmdError> {
        Given::counted(found, args, "ERR Bad number of keys provided")
    }

    fn counted(found: Found, args: &'a Args<'a>, no_number: &'static str) -> Result<Given<'a>, CmdError> {
        let count = parse_i64(args.at(2)).ok_or(no_number)?;
        match usize::try_from(count) {
            Err(_) => Err("ERR Number of keys can't be negative".into()),
            Ok(key_count) if key_count > args.len() - 3 => {
                Err("ERR Number of keys can't be greater than number of args".into())
            }
            Ok(key_count) => Ok(Given { found, args, key_count }),
        }
    }
}

/// How far a run has got; see the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// It has changed nothing, and may begin anew.
    Looking,
    /// It runs to its end.
    Changing,
}

/// What others are told of a command once its script cannot begin anew any more.
struct PutOff {
    found: Found,
    time: Duration,
    error: Option<Vec<u8>>,
    /// If somebody wants to see them.
    words: Option<Words>,
}

/// A run.
struct Running<'r, 'c> {
    ctx: &'r mut Ctx<'c>,
    inside: &'r mut Inside,
    given: &'r Given<'r>,
    /// Monitors have been shown the call, or need not be.
    is_shown: bool,
    pace: Pace<'r>,
    is_read_only: bool,
    /// There is no memory for commands that need some.
    is_out_of_memory: bool,
    has_changed: bool,
    may_miss_pages: bool,
    /// All others stand still.
    is_alone: bool,
    phase: Phase,
    /// Why the run is given up.
    fault: Option<Fault>,
    /// What the random choices of its commands begin with.
    seed: u64,
    put_off: Vec<PutOff>,
    /// Errors of commands that did not run, with their rows.
    refused: Vec<(Option<CommandId>, Vec<u8>)>,
    log_lines: Vec<(LogLevel, Vec<u8>)>,
}

/// Runs a script, or a function, as one step, and writes its reply.
///
/// # Errors
/// Those of the script; a fault leaves everything as it was.
pub fn run(
    ctx: &mut Ctx<'_>,
    (state, inside): (&State, &mut Inside),
    body: &Body<'_>,
    given: &Given<'_>,
) -> CmdResult {
    let is_oom = admit(ctx, given.found.command, body.flags())?;
    let resp = if ctx.client.resp3 { Resp::Three } else { Resp::Two };
    let (random, lookups) = (state.random(), lookups(ctx));
    let mut reply = Vec::new();
    let mut running = Running::begin(ctx, inside, given, body.flags(), is_oom, body.pace(state));
    let words: SmallVec<[&[u8]; 16]> = given.args.from(3).collect();
    let (keys, args) = words.split_at(given.key_count);
    let outcome = match body {
        Body::Script(script) => state.run(script, keys, args, &mut running, resp, &mut reply),
        Body::Function(function) => state.call(function, keys, args, &mut running, resp, &mut reply),
    };
    if let Some(fault) = running.fault.take() {
        state.set_random(random);
        take_back(ctx, lookups);
        return Err(OpError::Fault(fault).into());
    }
    running.tell();
    if matches!(outcome, RunOutcome::Failed { is_counted: true }) {
        // The command's error has been counted, and this is the same one.
        ctx.stats.command(given.found.id).failed.add(1);
        write_reply(ctx, &reply);
        return Ok(());
    }
    match &reply[..] {
        [b'-', text @ .., b'\r', b'\n'] => Err(text.to_vec().into()),
        reply => {
            write_reply(ctx, reply);
            Ok(())
        }
    }
}

/// Whether a script with these flags may run; whether there is no memory for what it adds.
///
/// # Errors
/// Redis's.
fn admit(ctx: &mut Ctx<'_>, command: &Command, flags: Option<Flags>) -> Result<bool, CmdError> {
    let matter = ctx.server.exceptions.now();
    let is_oom = matter.has(Matter::BOUNDED) && is_out_of_memory(ctx);
    let Some(flags) = flags else { return Ok(is_oom) };
    if !flags.no_writes {
        if command.is(flag::READONLY) {
            return Err("ERR Can not execute a script with write flag using *_ro command.".into());
        }
        if matter.has(Matter::REFUSES_CHANGES) {
            admit_change(ctx.server, &ctx.config.settings, flag::WRITE, matter)?;
        }
        if is_oom && !flags.allow_oom {
            let text =
                "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'";
            return Err(text.into());
        }
    }
    Ok(is_oom && !flags.allow_oom)
}

fn lookups(ctx: &Ctx<'_>) -> (u64, u64) {
    (ctx.stats.keyspace_hits.get(), ctx.stats.keyspace_misses.get())
}

/// The run begins anew: it will look its keys up again.
fn take_back(ctx: &Ctx<'_>, (hits, misses): (u64, u64)) {
    ctx.stats.keyspace_hits.set(hits);
    ctx.stats.keyspace_misses.set(misses);
}

fn write_reply(ctx: &mut Ctx<'_>, reply: &[u8]) {
    ctx.reply.out.extend(reply);
    ctx.reply.out.note_value();
}

impl<'r, 'c> Running<'r, 'c> {
    fn begin(
        ctx: &'r mut Ctx<'c>,
        inside: &'r mut Inside,
        given: &'r Given<'r>,
        flags: Option<Flags>,
        is_out_of_memory: bool,
        pace: Pace<'r>,
    ) -> Running<'r, 'c> {
        let may_miss_pages = ctx.server.store.may_miss_pages();
        let is_read_only =
            given.found.command.is(flag::READONLY) || flags.is_some_and(|flags| flags.no_writes);
        let is_looking = may_miss_pages && !ctx.client.within.is_transaction();
        (inside.client.id, inside.client.db) = (ctx.client.id, ctx.client.db);
        let seed = ctx.client.patience.as_deref_mut().map_or_else(|| fastrand::u64(..), |known| known.seed());
        if is_looking {
            ctx.worker.keep_expired(true);
        }
        let mut running = Running {
            is_alone: ctx.worker.steps().is_alone(),
            phase: if is_looking { Phase::Looking } else { Phase::Changing },
            ctx,
            inside,
            given,
            is_shown: false,
            pace,
            is_read_only,
            is_out_of_memory,
            has_changed: false,
            may_miss_pages,
            fault: None,
            seed,
            put_off: Vec::new(),
            refused: Vec::new(),
            log_lines: Vec::new(),
        };
        if !is_looking {
            running.tell();
        }
        running
    }

    /// Tells others what has been put off.
    fn tell(&mut self) {
        let is_monitored = self.ctx.server.exceptions.now().has(Matter::MONITORED);
        if !std::mem::replace(&mut self.is_shown, true) && is_monitored {
            monitor::show(self.ctx, self.given.found.command, self.given.args);
        }
        for PutOff { found, time, error, words } in std::mem::take(&mut self.put_off) {
            self.ctx.local.measured(found.id, time, false);
            if let Some(text) = error {
                self.ctx.stats.command(found.id).failed.add(1);
                self.ctx.server.count_error(&text);
            }
            let Some(words) = words else { continue };
            slow::note(self.ctx.server, self.ctx.peer, found.command, &words.args(), time);
            if is_monitored {
                monitor::feed(&self.inner(), found.command, &words.args());
            }
        }
        for (id, text) in std::mem::take(&mut self.refused) {
            self.count_refused(id, &text);
        }
        for (level, text) in std::mem::take(&mut self.log_lines) {
            write_log(level, &text);
        }
    }

    fn count_refused(&self, id: Option<CommandId>, text: &[u8]) {
        if let Some(id) = id {
            self.ctx.stats.command(id).rejected.add(1);
        }
        self.ctx.server.count_error(text);
    }

    /// Finds the command, if a script may call it now.
    ///
    /// # Errors
    /// The row, if there is one, and the error.
    fn admit(&mut self, args: &Args<'_>) -> Result<Found, (Option<CommandId>, CmdError)> {
        let Ok(found) = row_of(self.ctx.registry, args) else {
            return Err((None, "ERR Unknown Redis command called from script".into()));
        };
        self.admit_row(found.command, args).map(|()| found).map_err(|error| (Some(found.id), error))
    }

    fn admit_row(&mut self, command: &Command, args: &Args<'_>) -> CmdResult {
        if !command.arity_fits(args.len()) {
            return Err("ERR Wrong number of args calling Redis command from script".into());
        }
        if command.is(flag::NOSCRIPT) {
            return Err("ERR This Redis command is not allowed from script".into());
        }
        if command.is(flag::CHANGES) && self.is_read_only {
            return Err("ERR Write commands are not allowed from read-only scripts.".into());
        }
        let matter = self.ctx.server.exceptions.now();
        if matter.has(Matter::REFUSES_CHANGES) {
            admit_change(self.ctx.server, &self.ctx.config.settings, command.flags, matter)?;
        }
        // Once it has changed something it runs to its end.
        if self.is_out_of_memory && !self.has_changed && command.is(flag::DENYOOM) {
            return Err(errors::OUT_OF_MEMORY.into());
        }
        Ok(())
    }

    /// Runs a command; its reply is in `inside.out`.
    ///
    /// # Errors
    /// The run is to be given up.
    fn carry_out(&mut self, found: Found, args: &Args<'_>) -> Result<(), Fault> {
        let may_change = found.command.is(flag::CHANGES);
        if may_change && !self.is_alone {
            if let Err(error) = self.stop_others() {
                let text = error.into_text();
                self.inner().reply.error(&text);
                return Ok(());
            }
        }
        if may_change && self.phase == Phase::Looking {
            self.commit(found, args)?;
        }
        if may_change && !self.pace.change() {
            return Ok(());
        }
        self.has_changed |= may_change;
        if self.phase == Phase::Looking {
            return self.look(found, args);
        }
        let is_resident = !self.may_miss_pages;
        let (step, is_alone) = (self.step_of(found, args), self.is_alone);
        let mut inner = self.inner();
        // Where a page is missing all the same the command has changed nothing, and runs again.
        let is_done = is_resident && matches!(call(&mut inner, found, args, Within::Script), Outcome::Done);
        if !is_done {
            carry_out(&mut inner, &step, 0, None, is_alone);
        }
        Ok(())
    }

    /// Before its first change: where a later command empties or exchanges databases, it stops this worker, and a cut would come in
    /// between (SC2). The step that is open has nothing in it yet, and begins anew.
    ///
    /// # Errors
    /// Another thread does not let it have its turn.
    fn stop_others(&mut self) -> Result<(), CmdError> {
        let Ctx { worker, local, server, .. } = &mut *self.ctx;
        worker.steps().end();
        let meanwhile = &mut || local.stand_aside(&server.busy);
        let stopped = Patient { worker, meanwhile }.stop_others();
        self.ctx.worker.steps().begin();
        self.ctx.local.alone = Some(stopped?);
        self.is_alone = true;
        Ok(())
    }

    /// The surroundings of a command of the script.
    fn inner(&mut self) -> Ctx<'_> {
        let Inside { client, out, .. } = &mut *self.inside;
        let peer = self.ctx.peer;
        self.ctx.inner(client, peer, out)
    }

    /// A command as a step of its own, with random choices of its own.
    fn step_of<'k>(&mut self, found: Found, args: &Args<'k>) -> Step<'k> {
        self.seed = self.seed.wrapping_add(1);
        let part = Part { found, args: *args, db: self.inside.client.db, is_made: false };
        Step { parts: vec![part], seed: self.seed, within: Within::Script }
    }

    /// The script is about to change something for the first time: from then on it runs to its end.
    ///
    /// # Errors
    /// Pages, or room, that can be waited for now while others are served, and not later.
    fn commit(&mut self, found: Found, args: &Args<'_>) -> Result<(), Fault> {
        let store = &self.ctx.server.store;
        if found.command.is(flag::DENYOOM) && store.is_full() && !store.is_stuck() {
            return Err(Fault::room());
        }
        let seed = self.seed;
        let step = self.step_of(found, args);
        // It is carried out with what was looked at.
        self.seed = seed;
        let mut inner = self.inner();
        let mut faults = Faults::default();
        if let Err(fault) = keys_of_steps(&mut inner, &step.parts[0]) {
            faults.add(fault);
        }
        step.look(&mut inner, 0..1, &mut faults);
        if let Some(fault) = faults.take() {
            return Err(fault);
        }
        self.phase = Phase::Changing;
        self.ctx.worker.keep_expired(false);
        self.tell();
        Ok(())
    }

    /// Runs a command that only looks, while the script may begin anew.
    ///
    /// # Errors
    /// Pages are missing.
    fn look(&mut self, found: Found, args: &Args<'_>) -> Result<(), Fault> {
        let start = Instant::now();
        let mut inner = self.inner();
        inner.client.within = Within::Script;
        let mark = inner.reply.out.mark();
        let result = checked::run(&mut inner, found.command, args);
        inner.client.end_walks();
        let error = match result {
            Err(CmdError::Store(OpError::Fault(fault))) => {
                // A reply may have been begun; the next run has the same buffer.
                inner.reply.out.back_to(mark);
                return Err(fault);
            }
            Err(error) => {
                inner.reply.out.back_to(mark);
                let text = error.into_text().into_owned();
                inner.reply.error(&text);
                Some(text)
            }
            Ok(()) => None,
        };
        let time = start.elapsed();
        let is_slow = self.ctx.config.settings.slowlog_threshold.is_some_and(|least| time >= least);
        let is_shown = is_slow || self.ctx.server.exceptions.now().has(Matter::MONITORED);
        self.put_off.push(PutOff { found, time, error, words: is_shown.then(|| Words::of(args)) });
        Ok(())
    }

    fn refuse(&mut self, id: Option<CommandId>, text: &[u8], reply: &mut Vec<u8>) -> Called {
        match self.phase {
            Phase::Looking => self.refused.push((id, text.to_vec())),
            Phase::Changing => self.count_refused(id, text),
        }
        reply.push(b'-');
        reply.extend_from_slice(text);
        reply.extend_from_slice(b"\r\n");
        Called::Replied
    }

    /// Hands a command's reply to the script.
    fn take_reply(&mut self, reply: &mut Vec<u8>) {
        let out = &mut self.inside.out;
        if out.is_over() {
            *out = ReplyBuf::within(self.inside.out_bytes_max);
            reply.extend_from_slice(b"-OOM the reply is larger than 'lua-memory-limit'\r\n");
            return;
        }
        reply.extend_from_slice(out.bytes());
        out.clear(KEPT_BYTES);
    }
}

impl Host for Running<'_, '_> {
    fn call(&mut self, words: &[&[u8]], resp: Resp, reply: &mut Vec<u8>) -> Called {
        if self.fault.is_some() {
            return Called::GivenUp;
        }
        let mut own = std::mem::take(&mut self.inside.words);
        if !own.fill(words) {
            return self.refuse(None, TOO_MANY_BYTES, reply);
        }
        let args = own.args();
        self.inside.client.resp3 = resp == Resp::Three;
        let called = match self.admit(&args) {
            Err((id, error)) => self.refuse(id, &error.into_text(), reply),
            Ok(found) => match self.carry_out(found, &args) {
                Ok(()) => {
                    self.take_reply(reply);
                    Called::Replied
                }
                Err(fault) => {
                    self.fault = Some(fault);
                    Called::GivenUp
                }
            },
        };
        own.shrink();
        self.inside.words = own;
        called
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        match self.phase {
            Phase::Looking => self.log_lines.push((level, text.to_vec())),
            Phase::Changing => write_log(level, text),
        }
    }

    fn may_run(&mut self, words: &[&[u8]]) -> Permission {
        let mut own = Words::default();
        let found = own.fill(words).then(|| row_of(self.ctx.registry, &own.args()));
        match found {
            Some(Ok(found)) if found.command.arity_fits(words.len()) => Permission::Allowed,
            _ => Permission::NoSuchCommand,
        }
    }

    fn set_replication(&mut self, _: Replication) {}

    fn tick(&mut self) {
        self.pace.tick(self.ctx, self.given.args);
    }
}

fn write_log(level: LogLevel, text: &[u8]) {
    let level = match level {
        LogLevel::Debug => log::Level::Debug,
        LogLevel::Verbose => log::Level::Verbose,
        LogLevel::Notice => log::Level::Notice,
        LogLevel::Warning => log::Level::Warning,
    };
    if log::is_on(level) {
        log::write(level, &String::from_utf8_lossy(text));
    }
}
