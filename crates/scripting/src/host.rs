//! What a script reaches outside, and how a run is ended from outside.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;

/// Which protocol a reply is written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resp {
    #[default]
    Two,
    Three,
}

/// Levels of `redis.log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Debug,
    Verbose,
    Notice,
    Warning,
}

/// Where the effects of the commands that follow go (`redis.set_repl`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replication {
    pub to_log: bool,
    pub to_replicas: bool,
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// Its reply has been appended.
    Replied,
    /// The run is over: nothing that the script does from now on has an effect, and its result is not looked at.
    GivenUp,
}

/// What `redis.acl_check_cmd` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    Allowed,
    Denied,
    NoSuchCommand,
}

/// What runs the commands of a script. It is on loan to a [`crate::State`] for the time of a run.
pub trait Host {
    /// Runs a command (`words[0]` is its name; there is at least one word), and appends its reply to `reply` as RESP.
    ///
    /// A command that is refused is a reply that is an error, in Redis's words for scripts.
    fn call(&mut self, words: &[&[u8]], resp: Resp, reply: &mut Vec<u8>) -> Called;

    /// A line of `redis.log`. It may have any bytes.
    fn log(&mut self, level: LogLevel, text: &[u8]);

    /// Whether the user of this run may run a command.
    fn may_run(&mut self, words: &[&[u8]]) -> Permission;

    /// Where the effects of what follows go.
    fn set_replication(&mut self, replication: Replication);

    /// Called now and then while the run lasts, between two instructions: every 100,000 of them.
    fn tick(&mut self) {}
}

/// Why a run has been ended from outside, or by its bounds. No `pcall` catches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Halt {
    /// `SCRIPT KILL`, `FUNCTION KILL`.
    Killed = 1,
    /// The host has given the run up: the same script may be run again from its start.
    GivenUp = 2,
    /// The state has more memory than its bound.
    OutOfMemory = 3,
    /// Loading a library took longer than its bound.
    TooSlow = 4,
    /// `SCRIPT KILL`, or `FUNCTION KILL`, by the clock.
    RanTooLong = 5,
}

impl Halt {
    fn from_mark(mark: u8) -> Option<Halt> {
        [Halt::Killed, Halt::GivenUp, Halt::OutOfMemory, Halt::TooSlow, Halt::RanTooLong]
            .into_iter()
            .find(|halt| *halt as u8 == mark)
    }

    /// The words for the script's client.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Halt::Killed => "ERR Script killed by user with SCRIPT KILL...",
            Halt::GivenUp => "ERR the script was given up",
            Halt::OutOfMemory => "OOM the script needs more memory than 'lua-memory-limit'",
            Halt::TooSlow => "ERR FUNCTION LOAD timeout",
            Halt::RanTooLong => "ERR the script ran for longer than 'script-kill-after'",
        }
    }
}

/// The mark that ends the run of a state, for whichever thread has a copy. A state looks at it at each call and every
/// 100,000 instructions.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    mark: Arc<AtomicU8>,
}

impl Interrupt {
    /// Ends the run, if there is one. The first reason stays until [`Interrupt::clear`].
    pub fn set(&self, halt: Halt) {
        // Nothing is published by it but itself.
        let _ = self.mark.compare_exchange(0, halt as u8, Ordering::Relaxed, Ordering::Relaxed);
    }

    #[must_use]
    #[inline]
    pub fn get(&self) -> Option<Halt> {
        match self.mark.load(Ordering::Relaxed) {
            0 => None,
            mark => Halt::from_mark(mark),
        }
    }

    pub fn clear(&self) {
        self.mark.store(0, Ordering::Relaxed);
    }
}
