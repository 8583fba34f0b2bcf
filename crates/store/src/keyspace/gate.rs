//! How a read of one key finds out that no command on several keys is under way, without writing anything that others
//! read (invariant C8).
//!
//! Whoever has locked keys to change them passes the gate before his first latch and after his last. A reader looks at it
//! before he latches his key's leaf, and waits for the key's lock if somebody is inside. One who has looked too early may
//! still meet a change of such a command. But then the latch tells him, and whoever hears of it from him, that the command
//! has come in: no later read of another key gets past it.

use crate::sync::atomic::{AtomicU32, Ordering};

/// Commands on several keys that change them, under way. On a cache line of its own: it is hardly ever written.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Gate {
    inside_count: AtomicU32,
}

impl Gate {
    /// After the locks have been taken, before the first latch.
    pub fn enter(&self) {
        self.inside_count.fetch_add(1, Ordering::Relaxed);
    }

    /// After the last latch, before the locks are given up.
    pub fn leave(&self) {
        self.inside_count.fetch_sub(1, Ordering::Release);
    }

    /// Whether nobody is inside. The latches order this: see the module.
    #[inline(always)]
    pub fn is_clear(&self) -> bool {
        self.inside_count.load(Ordering::Acquire) == 0
    }
}
