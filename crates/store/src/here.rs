//! What a thread does with a store: one thing at a time, through whatever handle or worker.
//!
//! ```text
//!   AWAY ── begin ──▶ AT WORK: in an operation, or in a closure that it calls ── end, also by a panic ──▶ AWAY
//!                       │ another operation, or a wait for a cut; or it runs what everybody stands still for
//!                       └──▶ Busy: the thread would wait for itself
//! ```
//! Each handle and worker rests at the barrier while its thread is AWAY from it. So of all that a thread has there, one runs
//! at most, and no thread waits at the barrier while it keeps the barrier waiting (B5).

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use stillframe_pagepool::is_acting;

use crate::error::{OpError, SaveError, TreeError};

/// Tells stores that are open apart.
pub(crate) type StoreNumber = usize;

/// The thread is at work on the store already.
pub(crate) struct Busy;

impl From<Busy> for OpError {
    fn from(_: Busy) -> OpError {
        OpError::Busy
    }
}

impl From<Busy> for TreeError {
    fn from(_: Busy) -> TreeError {
        TreeError::Busy
    }
}

impl From<Busy> for SaveError {
    fn from(_: Busy) -> SaveError {
        SaveError::Busy
    }
}

/// See the module. Everything that a thread has of one store shares it.
pub(crate) struct Here {
    /// A number that no other thread of the process has had.
    thread: u64,
    /// A number that no other store has while this is there.
    store: StoreNumber,
    /// Only its thread looks, and changes it.
    is_at_work: AtomicBool,
    /// What it is at is a worker that runs from one operation to the next.
    is_seated: AtomicBool,
}

static THREAD_COUNT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static NUMBER: u64 = THREAD_COUNT.fetch_add(1, Ordering::Relaxed);
    static HERE: RefCell<Vec<Weak<Here>>> = const { RefCell::new(Vec::new()) };
}

impl Here {
    /// What the thread does with that store.
    pub fn of(store: StoreNumber) -> Arc<Here> {
        if let Some(here) = Here::find(store) {
            return here;
        }
        let thread = NUMBER.with(|number| *number);
        let here = Arc::new(Here {
            thread,
            store,
            is_at_work: AtomicBool::new(false),
            is_seated: AtomicBool::new(false),
        });
        // Without the list, at the thread's end, each handle has one of its own.
        let _ = HERE.try_with(|list| {
            let mut list = list.borrow_mut();
            list.retain(|here| here.strong_count() > 0);
            list.push(Arc::downgrade(&here));
        });
        here
    }

    fn find(store: StoreNumber) -> Option<Arc<Here>> {
        let find = |list: &RefCell<Vec<Weak<Here>>>| {
            list.borrow().iter().filter_map(Weak::upgrade).find(|here| here.store == store)
        };
        HERE.try_with(find).ok().flatten()
    }

    /// Whether it is of the thread that asks.
    #[inline]
    pub fn is_of_this_thread(&self) -> bool {
        NUMBER.with(|number| *number == self.thread)
    }

    #[inline(always)]
    pub fn is_at_work(&self) -> bool {
        self.is_at_work.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn set(&self, is_at_work: bool) {
        self.is_at_work.store(is_at_work, Ordering::Relaxed);
    }

    /// AWAY → AT WORK, until the result is dropped.
    ///
    /// # Errors
    /// [`Busy`].
    #[inline(always)]
    pub fn begin(&self) -> Result<AtWork<'_>, Busy> {
        // Or everybody waits for what this thread does now.
        if self.is_at_work() || is_acting() {
            return Err(Busy);
        }
        self.set(true);
        Ok(AtWork(self))
    }

    /// AWAY → AT WORK, until [`Here::stand_up`]: for a worker that runs from one operation to the next.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn sit_down(&self) -> Result<(), Busy> {
        std::mem::forget(self.begin()?);
        self.is_seated.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends it.
    pub fn stand_up(&self) {
        self.is_seated.store(false, Ordering::Relaxed);
        self.set(false);
    }

    /// Runs `f` while the thread counts as AWAY.
    #[inline]
    pub fn away<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Back<'h>(&'h Here);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }
        self.set(false);
        let _back = Back(self);
        f()
    }
}

/// The thread is at work until this is dropped.
pub(crate) struct AtWork<'h>(&'h Here);

impl Drop for AtWork<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Whether this thread is not within an operation that may hold latches: it may wait for those of others.
///
/// # Errors
/// [`Busy`].
pub(crate) fn check_outside(store: StoreNumber) -> Result<(), Busy> {
    match Here::find(store) {
        Some(here) if here.is_at_work() && !here.is_seated.load(Ordering::Relaxed) => Err(Busy),
        _ => Ok(()),
    }
}

/// Whether this thread may wait for a cut of that store.
///
/// # Errors
/// [`Busy`]: the cut would wait for the operation that is under way here.
pub(crate) fn check_away(store: StoreNumber) -> Result<(), Busy> {
    match Here::find(store) {
        Some(here) if here.is_at_work() => Err(Busy),
        _ if is_acting() => Err(Busy),
        _ => Ok(()),
    }
}
