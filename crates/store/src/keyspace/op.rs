//! What an operation works with. An operation is a function of the module of its type, and takes this first.

use stillframe_pagepool::is_looking;

use super::state::{Keyspace, Local};
use crate::blobs::Taking;
use crate::effect::Effect;
use crate::key::unix_ms;

/// A key space, and the state of the worker that works on it.
pub(crate) struct Op<'w> {
    pub keyspace: &'w Keyspace,
    pub local: &'w mut Local,
}

impl Op<'_> {
    /// The one door through which what has changed gets out; the key is locked.
    #[inline(always)]
    pub fn announce(&self, effect: Effect<'_>) {
        // Some say it first: a look is stopped at the change.
        if is_looking() {
            return;
        }
        if effect.counts() {
            self.local.deltas.count_change();
        }
        self.local.holder.acting.tell(self.local.now, &effect);
    }

    /// Runs an operation with the worker's buffer for packed elements. `taking`: how large elements are given.
    #[inline(always)]
    pub fn with_run<R>(
        &mut self,
        taking: Taking,
        operation: &mut impl FnMut(&mut Op<'_>, &mut Vec<u8>) -> R,
    ) -> R {
        let mut run = std::mem::take(&mut self.local.run);
        self.local.taking = taking;
        let result = operation(self, &mut run);
        (self.local.run, self.local.taking) = (run, Taking::Bytes);
        self.local.drop_large_buffers();
        result
    }

    /// Sets the clock to the system's, unless the caller sets it.
    pub fn read_clock(&mut self) {
        if self.local.has_own_clock {
            self.keyspace.set_now(self.local, unix_ms());
        }
    }
}
