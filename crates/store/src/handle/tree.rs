//! The handle, and how its operations get to the tree's pages.

use std::rc::Rc;
use std::sync::Arc;

use crate::error::{Fault, OpError, TreeError};
use crate::keyspace::whole;
use crate::keyspace::Keyspace;
use crate::named::{NamedTree, Seat, Visit, Visitor, LIBRARIES_NAME};
use crate::tree;
use crate::worker::NODES_PATIENCE;
use crate::Store;

/// A thread's access to a named tree: byte-string keys in order, with values.
///
/// Keys have up to 512 bytes, values up to 512 MB; those that have more than 1024 bytes with their key lie outside the tree's leaves. Operations
/// wait for pages that are missing. Those of several threads go on side by side, but for transactions.
///
/// A thread's handles take part in the barrier that a cut needs during their operations: between two of them nobody waits for the
/// thread. Within a closure that an operation calls every other operation of the thread on the same store, of whatever handle or
/// worker, is [`TreeError::Busy`], as are checkpoints and views. Not within that of a transaction, which is between operations.
pub struct Tree {
    // Dropped before the store: the last store waits for a thread that may wait for this member.
    pub(super) seat: Rc<Seat>,
    pub(super) named: Arc<NamedTree>,
    pub(super) visitor: Arc<Visitor>,
    store: Store,
}

/// Within the tree until it is dropped.
pub(super) struct Inside<'t> {
    visitor: &'t Visitor,
}

impl Drop for Inside<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.visitor.place.leave();
    }
}

impl Store {
    /// A handle on the tree of this name (1 to 255 bytes), for this thread. The tree is made if there is none.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn tree(&self, name: impl AsRef<[u8]>) -> Result<Tree, TreeError> {
        let keyspace = self.keyspace();
        let seat = Seat::of(self.number(), || keyspace.pool.join_resting());
        let busy = seat.begin()?;
        let named = keyspace.named.open(name.as_ref(), || keyspace.take_tag())?;
        drop(busy);
        let visitor = named.join();
        Ok(Tree { seat, named, visitor, store: self.clone() })
    }

    /// The names of all trees, ascending.
    ///
    /// # Errors
    /// [`TreeError::Damaged`].
    pub fn tree_names(&self) -> Result<Vec<Vec<u8>>, TreeError> {
        let trees = self.keyspace().named.all()?;
        let names = trees.iter().map(|tree| tree.name()).filter(|name| *name != LIBRARIES_NAME);
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    /// Drops a tree; whether there was one. Its handles get [`TreeError::Dropped`] from then on, and its pages are freed in
    /// the background. Waits until all workers and handles are between two operations.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`TreeError::Busy`], [`TreeError::Late`], [`TreeError::Damaged`].
    pub fn drop_tree(&self, name: impl AsRef<[u8]>) -> Result<bool, TreeError> {
        let (keyspace, name) = (self.keyspace().clone(), name.as_ref().to_vec());
        let pool = keyspace.pool.clone();
        self.check_may_wait()?;
        if name == LIBRARIES_NAME {
            return Ok(false);
        }
        pool.at_barrier(move |_| whole::drop_named(&keyspace, &name))?.0
    }
}

impl Tree {
    pub fn name(&self) -> &[u8] {
        self.named.name()
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub(super) fn keyspace(&self) -> &Keyspace {
        self.store.keyspace()
    }

    /// Records in the tree, as they are counted: no page is looked at.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn len(&self) -> Result<u64, TreeError> {
        self.run(Visit::Reads, |_, _| Ok(self.named.record_count()))
    }

    /// # Errors
    /// [`TreeError`].
    pub fn is_empty(&self) -> Result<bool, TreeError> {
        Ok(self.len()? == 0)
    }

    /// Gets inside the tree, after a transaction that is in the way. Who waits is quiescent.
    ///
    /// # Errors
    /// [`TreeError::Dropped`], [`TreeError::Damaged`].
    #[inline(always)]
    pub(super) fn enter(&self, visit: Visit) -> Result<(Inside<'_>, tree::Tree), TreeError> {
        if !self.visitor.place.try_enter(&self.named.gate, visit) {
            self.wait_to_enter(visit);
        }
        let inside = Inside { visitor: &self.visitor };
        Ok((inside, self.named.open_tree()?))
    }

    #[cold]
    fn wait_to_enter(&self, visit: Visit) {
        loop {
            // Whoever has the turn finds the gate open: nobody else moves it.
            let _turn = self.seat.idle(|| self.named.turn.lock());
            if self.visitor.place.try_enter(&self.named.gate, visit) {
                return;
            }
        }
    }

    /// Runs an operation; brings in the pages that it misses and runs it again.
    #[inline(always)]
    pub(super) fn run<R>(
        &self,
        visit: Visit,
        mut operation: impl FnMut(&Keyspace, tree::Tree) -> Result<R, OpError>,
    ) -> Result<R, TreeError> {
        let _busy = self.seat.begin()?;
        if visit == Visit::Writes {
            self.make_room()?;
        }
        let mut may_settle = true;
        loop {
            let (inside, tree) = self.enter(visit)?;
            let result = operation(self.keyspace(), tree);
            drop(inside);
            match result {
                Ok(result) => return Ok(result),
                Err(OpError::Fault(fault)) => self.load(fault),
                // Once: there is no more to come.
                Err(OpError::OutOfMemory { .. }) if may_settle && self.keyspace().pool.has_freed_nodes() => {
                    self.seat.idle(|| self.keyspace().pool.settle_nodes(NODES_PATIENCE));
                    may_settle = false;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Before something is stored: waits until memory has room for it. Others go on meanwhile.
    ///
    /// # Errors
    /// [`OpError::NoRoom`].
    #[inline]
    pub(super) fn make_room(&self) -> Result<(), TreeError> {
        let pool = &self.keyspace().pool;
        if !pool.is_full() {
            return Ok(());
        }
        self.seat.idle(|| pool.wait_for_room());
        match pool.is_stuck() {
            true => Err(OpError::NoRoom.into()),
            false => Ok(()),
        }
    }

    /// Brings pages in; cuts do not wait for that.
    #[cold]
    pub(super) fn load(&self, fault: Fault) {
        let mut pages = Vec::new();
        fault.add_to(&mut pages);
        self.seat.idle(|| self.keyspace().pool.residency().load(&pages));
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.named.retire(&self.visitor);
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tree({})", String::from_utf8_lossy(self.name()))
    }
}
