//! How long a script has been running, and what follows from it.
//!
//! ```text
//!   QUICK ── first tick: the clock is read ──▶ TIMED ── busy-reply-threshold ──▶ SLOW: others know of it, and serve
//!     │                                          │                                │    this worker's connections
//!     └──────────────────── the run ends ────────┴────────────────────────────────┘
//! ```
//! A run that is over before its first tick has read no clock for this.

use std::time::{Duration, Instant};

use stillframe_scripting::{Halt, State};

use crate::dispatch::ctx::Ctx;
use crate::log;
use crate::protocol::args::Args;
use crate::state::busy::{Kind, Known, Slow};
use crate::state::fate::Fate;

/// See the module.
pub(super) struct Pace<'r> {
    state: &'r State,
    kind: Kind,
    name: &'r str,
    /// When the first tick came.
    since: Option<Instant>,
    /// Once it is slow.
    known: Option<Known>,
    has_changed: bool,
}

impl<'r> Pace<'r> {
    pub(super) fn new(state: &'r State, kind: Kind, name: &'r str) -> Pace<'r> {
        Pace { state, kind, name, since: None, known: None, has_changed: false }
    }

    /// The run is about to change something. False: it has been ended, and changes nothing.
    #[inline]
    pub(super) fn change(&mut self) -> bool {
        if !self.has_changed {
            self.has_changed = self.known.as_ref().is_none_or(|known| known.slow.fate.change());
            if !self.has_changed {
                // The thread that has ended it may not have come to this yet.
                self.state.interrupt().set(Halt::Killed);
            }
        }
        self.has_changed
    }

    /// Some time has passed.
    pub(super) fn tick(&mut self, ctx: &mut Ctx<'_>, args: &Args<'_>) {
        let Some(since) = self.since else {
            self.since = Some(Instant::now());
            return;
        };
        let (time, scripts) = (since.elapsed(), &ctx.config.settings.scripts);
        if scripts.killed_after.is_some_and(|most| time >= most) {
            self.end_if_unchanged(time);
        }
        if self.known.is_none() && scripts.busy_after.is_some_and(|least| time >= least) {
            self.become_slow(ctx, args, since);
        }
        if ctx.server.busy.is_left() {
            if self.known.is_none() {
                self.become_slow(ctx, args, since);
            }
            self.stay_as_it_is();
        }
    }

    /// `script-kill-after`.
    fn end_if_unchanged(&self, time: Duration) {
        let ends = match &self.known {
            Some(known) => known.slow.end(Halt::RanTooLong),
            None => !self.has_changed,
        };
        if ends && self.state.interrupt().get().is_none_or(|halt| halt == Halt::RanTooLong) {
            self.state.interrupt().set(Halt::RanTooLong);
            log::warning(format!(
                "Script ended by 'script-kill-after' after {} milliseconds. Script name is: {}.",
                time.as_millis(),
                self.name
            ));
        }
    }

    /// TIMED → SLOW.
    fn become_slow(&mut self, ctx: &mut Ctx<'_>, args: &Args<'_>, since: Instant) {
        let fate = Fate::default();
        // Nobody else has it yet.
        let _ = self.has_changed && fate.change();
        let slow = Slow {
            worker: ctx.local.worker,
            kind: self.kind,
            name: self.name.to_owned(),
            words: args.from(0).map(<[u8]>::to_vec).collect(),
            since,
            fate,
            interrupt: self.state.interrupt(),
        };
        log::warning(format!(
            "Slow script detected: still in execution after {} milliseconds. You can try killing the script using the {} \
             command. Script name is: {}.",
            since.elapsed().as_millis(),
            self.kind.killer(),
            self.name
        ));
        self.known = Some(ctx.server.busy.begin(slow));
        ctx.local.hand_over();
    }

    /// The server ends without a save. What has changed nothing ends, too; what is half done must not become durable as a whole or in
    /// part: this thread stays where it is until the process has ended.
    fn stay_as_it_is(&self) {
        if !self.has_changed {
            return self.state.interrupt().set(Halt::Killed);
        }
        loop {
            std::thread::park();
        }
    }
}
