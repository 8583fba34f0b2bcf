//! A thread's part in the barrier, shared by all its handles on trees of one store: a thread with several must not wait at
//! the barrier for itself. Between two operations it rests: neither cuts nor the evictor wait for a thread that does
//! something else.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use stillframe_pagepool::Member;

use crate::error::TreeError;
use crate::here::{AtWork, Here};
use crate::tree::Scratch;

/// See the module. It stays in its thread.
pub(crate) struct Seat {
    /// Which store it belongs to: a number that no other has while the seat is there.
    store: usize,
    member: Member,
    here: Arc<Here>,
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
    /// The thread's seat for a store, taken if there is none: `join` gives a member that rests.
    pub fn of(store: usize, join: impl FnOnce() -> Member) -> Rc<Seat> {
        let find = |seats: &RefCell<Vec<Weak<Seat>>>| {
            seats.borrow().iter().filter_map(Weak::upgrade).find(|seat| seat.store == store)
        };
        if let Some(seat) = SEATS.try_with(find).ok().flatten() {
            return seat;
        }
        let seat = Rc::new(Seat {
            store,
            member: join(),
            here: Here::of(store),
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

    /// Begins an operation, after what the barrier wants.
    ///
    /// # Errors
    /// [`TreeError::Busy`].
    #[inline(always)]
    pub fn begin(&self) -> Result<Busy<'_>, TreeError> {
        let at_work = self.here.begin()?;
        self.member.resume();
        Ok(Busy { seat: self, _at_work: at_work })
    }

    /// Runs `f`, a wait, while nobody waits for this thread.
    pub fn idle<R>(&self, f: impl FnOnce() -> R) -> R {
        match self.here.is_at_work() {
            true => self.member.idle(f),
            false => f(),
        }
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
    // After the member rests.
    _at_work: AtWork<'s>,
}

impl Drop for Busy<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.seat.member.rest();
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
