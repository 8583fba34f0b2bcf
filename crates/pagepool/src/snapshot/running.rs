//! The running stream, and who works on it.
//!
//! ```text
//!   NONE ── begin ──▶ OPEN ── close: waits until everybody has left ──▶ CLOSED ── end ──▶ NONE
//! ```
//! Whoever only looks (claims a page and puts it into a frame, keeps an extent) holds a lock, for a moment. Whoever is
//! going to write joins, and lets the lock go: the end of the stream waits for him, and nobody else does.

use std::ops::Deref;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Condvar, Mutex, RwLock, RwLockReadGuard};

/// The place of the one stream.
pub struct Running<S> {
    current: RwLock<Option<Work<S>>>,
}

/// A stream and who has joined it.
struct Work<S> {
    stream: Arc<S>,
    parts: Arc<Parts>,
}

/// How many have joined a stream.
struct Parts {
    is_closed: AtomicBool,
    joined_count: Mutex<u32>,
    left: Condvar,
}

/// The stream as it is now; it neither closes nor ends while somebody looks.
pub struct Look<'r, S> {
    current: RwLockReadGuard<'r, Option<Work<S>>>,
}

/// A part in a stream, which does not close before it is dropped.
pub struct Joined<S> {
    /// First, so that it goes before the part: whoever has waited for the parts finds nobody else holding the stream,
    /// and what the stream owns goes with it.
    stream: Arc<S>,
    _part: Part,
}

struct Part(Arc<Parts>);

impl<S> Default for Running<S> {
    fn default() -> Self {
        Running { current: RwLock::new(None) }
    }
}

impl<S> Running<S> {
    /// NONE → OPEN.
    pub fn begin(&self, stream: S) {
        let parts =
            Parts { is_closed: AtomicBool::new(false), joined_count: Mutex::new(0), left: Condvar::new() };
        let work = Work { stream: Arc::new(stream), parts: Arc::new(parts) };
        let before = self.current.write().replace(work);
        assert!(before.is_none(), "one stream at a time");
    }

    pub fn look(&self) -> Look<'_, S> {
        Look { current: self.current.read() }
    }

    /// The stream, for whoever is going to close and end it.
    pub fn current(&self) -> Option<Arc<S>> {
        self.current.read().as_ref().map(|work| work.stream.clone())
    }

    /// OPEN → CLOSED, once nobody looks any more and all who have joined have left. To be called when there is nothing
    /// left to claim: what has been claimed has been queued or written then. Not for one who looks, or has joined.
    pub fn close(&self) {
        let parts = {
            let current = self.current.write();
            let Some(work) = &*current else { return };
            // Whoever looked before has joined or is done; whoever looks from now on finds it closed.
            work.parts.is_closed.store(true, Ordering::Relaxed);
            work.parts.clone()
        };
        let mut joined_count = parts.joined_count.lock();
        while *joined_count > 0 {
            parts.left.wait(&mut joined_count);
        }
    }

    /// OPEN, CLOSED → NONE. Nobody looks at the stream any more, and nobody has a part in it: it is the caller's, who
    /// must have dropped what [`Running::current`] gave.
    pub fn end(&self) -> Option<S> {
        self.close();
        let work = self.current.write().take()?;
        let stream = Arc::try_unwrap(work.stream);
        Some(stream.ok().expect("nobody has a part in a stream that is closed"))
    }
}

impl<S> Look<'_, S> {
    /// The stream, closed or not.
    pub fn stream(&self) -> Option<&S> {
        self.current.as_ref().map(|work| &*work.stream)
    }

    /// Takes part, if there is a stream and it is open.
    pub fn join(&self) -> Option<Joined<S>> {
        let work = self.current.as_ref().filter(|work| !work.parts.is_closed.load(Ordering::Relaxed))?;
        *work.parts.joined_count.lock() += 1;
        Some(Joined { stream: work.stream.clone(), _part: Part(work.parts.clone()) })
    }
}

impl<S> Deref for Joined<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.stream
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut joined_count = self.0.joined_count.lock();
        *joined_count -= 1;
        if *joined_count == 0 {
            self.0.left.notify_all();
        }
    }
}
