//! Those that hear of every change of a store.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use crate::effect::Effect;
use crate::step::{Position, Step};

/// A listener hears of each step that it begins, then its effects one after the other, and that it ends.
///
/// ```text
///   begin(step) ──▶ hear(step, effect) ──▶ ... ──▶ hear(step, effect) ──▶ end(step, position)
/// ```
/// Steps of one worker come one after the other, those of several workers beside each other. All of a step is told under the locks of
/// its keys, to the end: steps that touch the same key are heard in the order of their changes. Of a database as a whole it is told
/// while all workers stand between two commands. A step without an effect is not told. What is told has been done, or (`Flush`,
/// `Swap`) cannot fail any more.
///
/// A listener must neither wait nor use the store, but for [`crate::Before`]; what would is refused (`Busy`). If one panics, that ends its
/// own call alone.
pub trait Listener: Send + Sync {
    /// Once, before anything else: by `ear` the listener says when it wants to hear. One that does not care hears everything.
    fn attend(&self, ear: Ear) {
        ear.open();
    }

    /// Whether `begin` and `end` are for this listener, too. Asked once. As long as only others hear, steps have no positions, and no
    /// two workers write to a common word.
    fn follows_steps(&self) -> bool {
        true
    }

    fn begin(&self, _step: &Step) {}

    fn hear(&self, step: &Step, effect: &Effect<'_>);

    fn end(&self, _step: &Step, _position: Position) {}

    /// A call before has panicked, which ended that call alone: what was told by it is not known here.
    fn has_missed(&self) {}
}

/// How many listeners a store may have.
pub(crate) const LISTENERS_MAX: usize = 31;

/// Says whether a listener wants to hear. As long as none of a store's does, a change costs a look at one word.
///
/// One that opens its ear under the lock of a key hears of each later change of that key.
#[derive(Clone, Debug)]
pub struct Ear {
    attending: Arc<AtomicU32>,
    bit: u32,
}

impl Ear {
    pub(crate) fn new(attending: Arc<AtomicU32>, index: usize) -> Ear {
        Ear { attending, bit: 1 << index }
    }

    pub fn open(&self) {
        self.attending.fetch_or(self.bit, Ordering::AcqRel);
    }

    pub fn close(&self) {
        self.attending.fetch_and(!self.bit, Ordering::AcqRel);
    }
}

/// A listener whose panics end its own call alone: the change that it was told of has been made, or is about to be.
pub(crate) struct Contained(pub Arc<dyn Listener>);

impl Contained {
    fn call(&self, call: impl FnOnce(&dyn Listener)) {
        // The hook of panics has said so.
        if catch_unwind(AssertUnwindSafe(|| call(&*self.0))).is_err() {
            let _ = catch_unwind(AssertUnwindSafe(|| self.0.has_missed()));
        }
    }
}

impl Listener for Contained {
    fn attend(&self, ear: Ear) {
        self.call(|listener| listener.attend(ear));
    }

    fn follows_steps(&self) -> bool {
        let mut follows = true;
        self.call(|listener| follows = listener.follows_steps());
        follows
    }

    fn begin(&self, step: &Step) {
        self.call(|listener| listener.begin(step));
    }

    fn hear(&self, step: &Step, effect: &Effect<'_>) {
        self.call(|listener| listener.hear(step, effect));
    }

    fn end(&self, step: &Step, position: Position) {
        self.call(|listener| listener.end(step, position));
    }
}
