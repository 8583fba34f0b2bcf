//! What is the matter, in one word: a command looks at it once, and on most days nothing is.
//!
//! The word is the store's: whether pages may be missing is in it, too. Each bit is changed where its condition begins and ends.

use std::sync::Arc;

use stillframe_store::Conditions;

/// What holds at the time of a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Matter(u32);

impl Matter {
    /// The server is about to end: commands wait.
    pub const STOPPING: Matter = Matter(Conditions::FIRST_FREE);
    /// The data is being read at the start.
    pub const LOADING: Matter = Matter(Conditions::FIRST_FREE << 1);
    /// `CLIENT PAUSE`; it may be over by the clock.
    pub const PAUSED: Matter = Matter(Conditions::FIRST_FREE << 2);
    /// The last save that a restart would read has failed.
    pub const SAVE_FAILED: Matter = Matter(Conditions::FIRST_FREE << 3);
    /// `maxmemory` is set.
    pub const BOUNDED: Matter = Matter(Conditions::FIRST_FREE << 4);
    /// There are clients that watch all commands.
    pub const MONITORED: Matter = Matter(Conditions::FIRST_FREE << 5);
    /// Somebody may be told of changes.
    pub const NOTIFYING: Matter = Matter(Conditions::FIRST_FREE << 6);
    /// Keys that somebody waits for hold something, and nobody has been served yet.
    pub const READY: Matter = Matter(Conditions::FIRST_FREE << 7);
    /// Replies wait until what they tell of is durable.
    pub const HOLDING: Matter = Matter(Conditions::FIRST_FREE << 8);
    /// The log has no room for more: changes wait.
    pub const LOG_FULL: Matter = Matter(Conditions::FIRST_FREE << 9);
    /// Nothing more becomes durable in the log: changes are refused.
    pub const LOG_FAILED: Matter = Matter(Conditions::FIRST_FREE << 10);
    /// The disk has no space for the log: what would store more is refused.
    pub const LOG_NO_SPACE: Matter = Matter(Conditions::FIRST_FREE << 11);
    /// Commands wait, or may be refused.
    pub const HALTED: Matter =
        Matter(Matter::STOPPING.0 | Matter::LOADING.0 | Matter::PAUSED.0 | Matter::LOG_FULL.0);
    /// Changes may be refused.
    pub const REFUSES_CHANGES: Matter =
        Matter(Matter::SAVE_FAILED.0 | Matter::LOG_FAILED.0 | Matter::LOG_NO_SPACE.0);
    /// Pages may be missing.
    pub const MISSING_PAGES: Matter = Matter(Conditions::MISSING_PAGES);

    /// Whether any of these hold.
    #[inline(always)]
    pub fn has(self, any_of: Matter) -> bool {
        self.0 & any_of.0 != 0
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Exceptions(Arc<Conditions>);

impl Exceptions {
    pub fn of(conditions: &Arc<Conditions>) -> Exceptions {
        Exceptions(conditions.clone())
    }

    #[inline(always)]
    pub fn now(&self) -> Matter {
        Matter(self.0.get())
    }

    pub fn set(&self, what: Matter, holds: bool) {
        debug_assert!(!what.has(Matter::MISSING_PAGES), "that is the store's");
        self.0.set(what.0, holds);
    }
}
