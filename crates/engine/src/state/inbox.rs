//! What has been told to a connection and is not in its output yet. See invariants U1 to U4.

use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::Mutex;

/// Of several tellers, and the one worker of the connection that takes it.
///
/// ```text
///            put: the worker is to be woken           put
///   Empty ───────────────────────────────▶ Waiting ───────▶ Waiting
///     ▲                                       │ │
///     └───────────────────────────────────────┘ │ put beyond the bound: all of it goes, the worker is to be woken
///                 take                          ▼
///                                             Over, for good: the connection ends
/// ```
pub struct Inbox<T> {
    inside: Mutex<Inside<T>>,
    /// Looked at by the worker before it locks: set before `put` returns, so a thread that has learned of what was put sees it.
    has_some: AtomicBool,
    byte_count: AtomicUsize,
}

struct Inside<T> {
    waiting: Vec<T>,
    is_over: bool,
}

/// What [`Inbox::take`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    All,
    /// Too much had come: nothing is there any more, and the connection must end.
    Over,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Inbox {
            inside: Mutex::new(Inside { waiting: Vec::new(), is_over: false }),
            has_some: AtomicBool::new(false),
            byte_count: AtomicUsize::new(0),
        }
    }
}

impl<T> Inbox<T> {
    /// Appends something of so many bytes, within a bound for all that waits; 0 is none. Returns whether the worker is to be
    /// woken.
    pub fn put(&self, what: T, byte_count: usize, bound_bytes: usize) -> bool {
        let mut inside = self.inside.lock();
        if inside.is_over {
            return false;
        }
        let was_empty = inside.waiting.is_empty();
        let total_bytes = self.byte_count.load(Ordering::Relaxed) + byte_count;
        if bound_bytes > 0 && total_bytes > bound_bytes {
            (inside.waiting, inside.is_over) = (Vec::new(), true);
            self.byte_count.store(0, Ordering::Relaxed);
        } else {
            inside.waiting.push(what);
            self.byte_count.store(total_bytes, Ordering::Relaxed);
        }
        self.has_some.store(true, Ordering::Release);
        was_empty || inside.is_over
    }

    /// Whether there is something to take.
    #[inline]
    pub fn has_some(&self) -> bool {
        self.has_some.load(Ordering::Acquire)
    }

    /// Moves all that waits, in its order, to `into`, which is empty.
    pub fn take(&self, into: &mut Vec<T>) -> Taken {
        let mut inside = self.inside.lock();
        if inside.is_over {
            return Taken::Over;
        }
        self.has_some.store(false, Ordering::Relaxed);
        self.byte_count.store(0, Ordering::Relaxed);
        std::mem::swap(&mut inside.waiting, into);
        Taken::All
    }

    /// Whether too much has come.
    pub fn is_over(&self) -> bool {
        self.inside.lock().is_over
    }

    /// Bytes that wait.
    pub fn byte_count(&self) -> usize {
        self.byte_count.load(Ordering::Relaxed)
    }
}
