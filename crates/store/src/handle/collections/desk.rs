//! A thread's worker for all its handles on collections of one store. Between two operations it rests: neither cuts nor the
//! evictor wait for a thread that does something else.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use crate::error::{Fault, OpError};
use crate::key::unix_ms;
use crate::worker::{Running, NODES_PATIENCE};
use crate::{Store, Worker};

/// See the module. It stays in its thread.
pub(super) struct Desk {
    /// Which store it belongs to: a number that no other has while the desk is there.
    store: usize,
    /// Borrowed while an operation is under way; closures that it calls are in it.
    worker: RefCell<Worker>,
}

thread_local! {
    static DESKS: RefCell<Vec<Weak<Desk>>> = const { RefCell::new(Vec::new()) };
}

impl Desk {
    /// The thread's desk for a store, set up if there is none.
    pub fn of(store: &Store) -> Rc<Desk> {
        let number = store.number();
        let find = |desks: &RefCell<Vec<Weak<Desk>>>| {
            desks.borrow().iter().filter_map(Weak::upgrade).find(|desk| desk.store == number)
        };
        if let Some(desk) = DESKS.try_with(find).ok().flatten() {
            return desk;
        }
        let worker = Worker::resting(store.clone(), false);
        let desk = Rc::new(Desk { store: number, worker: RefCell::new(worker) });
        // Without the list, at the thread's end, each handle has a desk of its own.
        let _ = DESKS.try_with(|desks| {
            let mut desks = desks.borrow_mut();
            desks.retain(|desk| desk.strong_count() > 0);
            desks.push(Rc::downgrade(&desk));
        });
        desk
    }

    /// Runs an operation that only looks; brings in the pages that it misses and runs it again.
    ///
    /// # Errors
    /// [`OpError`], but never a fault; [`OpError::Busy`].
    pub fn read<R>(&self, operation: impl FnMut(&mut Worker) -> Result<R, OpError>) -> Result<R, OpError> {
        self.run(false, operation)
    }

    /// The same for one that changes something: it waits until memory has room.
    ///
    /// # Errors
    /// As of [`Desk::read`]; [`OpError::NoRoom`].
    pub fn write<R>(&self, operation: impl FnMut(&mut Worker) -> Result<R, OpError>) -> Result<R, OpError> {
        self.run(true, operation)
    }

    fn run<R>(
        &self,
        stores: bool,
        mut operation: impl FnMut(&mut Worker) -> Result<R, OpError>,
    ) -> Result<R, OpError> {
        let Ok(mut worker) = self.worker.try_borrow_mut() else { return Err(OpError::Busy) };
        let here = worker.come_here();
        let _at_work = here.begin()?;
        let mut may_settle = true;
        loop {
            worker.begin_sharing()?;
            if stores && worker.store().is_full() {
                if worker.store().is_stuck() {
                    return Err(OpError::NoRoom);
                }
                worker.store().wait(Fault::room());
            }
            worker.set_now(unix_ms());
            let result = operation(Running::begin(&mut worker).0);
            match result {
                Err(OpError::Fault(fault)) => worker.store().wait(fault),
                // Once: there is no more to come.
                Err(OpError::OutOfMemory { .. }) if may_settle && worker.store().pool().has_freed_nodes() => {
                    worker.store().pool().settle_nodes(NODES_PATIENCE);
                    may_settle = false;
                }
                result => return result,
            }
        }
    }
}
