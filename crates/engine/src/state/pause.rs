//! `CLIENT PAUSE`.

use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

use parking_lot::Mutex;
use stillframe_store::UnixMillis;

use crate::state::exceptions::{Exceptions, Matter};

#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum PauseKind {
    None = 0,
    Writes = 1,
    All = 2,
}

/// Which commands wait, and until when. [`Matter::PAUSED`] holds until somebody notes that the time is over.
#[derive(Debug, Default)]
pub struct Pause {
    kind: AtomicU8,
    until: AtomicI64,
    change: Mutex<()>,
    exceptions: Exceptions,
}

impl Pause {
    pub fn new(exceptions: &Exceptions) -> Pause {
        Pause { exceptions: exceptions.clone(), ..Pause::default() }
    }

    /// What waits now. One load when nothing does.
    pub fn kind(&self, now: UnixMillis) -> PauseKind {
        let kind = self.kind.load(Ordering::Acquire);
        if kind == 0 || self.until.load(Ordering::Acquire) <= now {
            return PauseKind::None;
        }
        if kind == PauseKind::All as u8 {
            PauseKind::All
        } else {
            PauseKind::Writes
        }
    }

    /// Begins or extends a pause; a pause of all commands is not weakened, nor an end brought forward.
    pub fn begin(&self, kind: PauseKind, until: UnixMillis, now: UnixMillis) {
        let _change = self.change.lock();
        let present = self.kind(now);
        if present == PauseKind::None || self.until.load(Ordering::Acquire) < until {
            self.until.store(until, Ordering::Release);
        }
        self.kind.store(kind.max(present) as u8, Ordering::Release);
        self.exceptions.set(Matter::PAUSED, true);
    }

    pub fn end(&self) {
        let _change = self.change.lock();
        self.forget();
    }

    /// Lets commands look no more for a pause whose time is over.
    #[cold]
    pub fn end_if_over(&self, now: UnixMillis) {
        let _change = self.change.lock();
        if self.kind(now) == PauseKind::None {
            self.forget();
        }
    }

    fn forget(&self) {
        self.kind.store(0, Ordering::Release);
        self.exceptions.set(Matter::PAUSED, false);
    }

    /// When the pause ends by itself.
    pub fn until(&self) -> UnixMillis {
        self.until.load(Ordering::Acquire)
    }
}
