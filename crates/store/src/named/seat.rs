//! A thread's part in the barrier, shared by all its handles on trees of one store: a thread with several must not wait at
//! the barrier for itself. Between two operations it rests: neither cuts nor the evictor wait for a thread that does
//! something else.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use stillframe_pagepool::Member;

use crate::error::TreeError;
use crate::tree::Scratch;

/// See the module. It stays in its thread.
pub(crate) struct Seat {
    /// Which store it belongs to: a number that no other has while the seat is there.
    store: usize,
    member: Member,
    /// An operation is under way; closures that it calls are in it.
    is_busy: Cell<bool>,
    /// A transaction is under way, between two of its operations or in one.
    is_in_transaction: Cell<bool>,
    pub scratch: RefCell<Scratch>,
    /// A value on its way out of its pages.
    pub buffer: RefCell<Vec<u8>>,
}

thread_local! {
    static SEATS: RefCell<Vec<Weak<Seat>>> = const { RefCell::new(Vec::new()) };
}

impl Seat {
    /// The thread's seat for a store, taken if there is none.
    pub fn of(store: usize, join: impl FnOnce() -> Member) -> Rc<Seat> {
        if let Some(seat) = Seat::here(store) {
            return seat;
        }
        let member = join();
        member.rest();
        let seat = Rc::new(Seat {
            store,
            member,
            is_busy: Cell::new(false),
            is_in_transaction: Cell::new(false),
            scratch: RefCell::new(Scratch::new()),
            buffer: RefCell::default(),
        });
        // Without the list, at the thread's end, each handle has a seat of its own.
        let _ = SEATS.try_with(|seats| {
            let mut seats = seats.borrow_mut();
            seats.retain(|seat| seat.strong_count() > 0);
            seats.push(Rc::downgrade(&seat));
        });
        seat
    }

    fn here(store: usize) -> Option<Rc<Seat>> {
        let find = |seats: &RefCell<Vec<Weak<Seat>>>| {
            seats.borrow().iter().filter_map(Weak::upgrade).find(|seat| seat.store == store)
        };
        SEATS.try_with(find).ok().flatten()
    }

    /// Begins an operation, after what the barrier wants.
    ///
    /// # Errors
    /// [`TreeError::Busy`].
    #[inline(always)]
    pub fn begin(&self) -> Result<Busy<'_>, TreeError> {
        if self.is_busy.replace(true) {
            return Err(TreeError::Busy);
        }
        self.member.resume();
        Ok(Busy { seat: self })
    }

    /// Runs `f`, a wait, while nobody waits for this thread.
    pub fn idle<R>(&self, f: impl FnOnce() -> R) -> R {
        match self.is_busy() {
            true => self.member.idle(f),
            false => f(),
        }
    }

    pub fn is_busy(&self) -> bool {
        self.is_busy.get()
    }

    /// # Errors
    /// [`TreeError::InTransaction`].
    pub fn check_no_transaction(&self) -> Result<(), TreeError> {
        match self.is_in_transaction.get() {
            true => Err(TreeError::InTransaction),
            false => Ok(()),
        }
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// [`TreeError::InTransaction`].
    pub fn begin_transaction(&self) -> Result<Transacting<'_>, TreeError> {
        self.check_no_transaction()?;
        self.is_in_transaction.set(true);
        Ok(Transacting { seat: self })
    }
}

/// An operation is under way until it is dropped.
pub(crate) struct Busy<'s> {
    seat: &'s Seat,
}

impl Drop for Busy<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.seat.member.rest();
        self.seat.is_busy.set(false);
    }
}

/// A transaction is under way until it is dropped.
pub(crate) struct Transacting<'s> {
    seat: &'s Seat,
}

impl Drop for Transacting<'_> {
    fn drop(&mut self) {
        self.seat.is_in_transaction.set(false);
    }
}

/// Runs `f`, which waits for a cut.
///
/// # Errors
/// [`TreeError::Busy`]: the cut would wait for the operation that is under way.
pub(crate) fn idle_here<R>(store: usize, f: impl FnOnce() -> R) -> Result<R, TreeError> {
    match Seat::here(store) {
        Some(seat) if seat.is_busy() => Err(TreeError::Busy),
        _ => Ok(f()),
    }
}
