//! Copies of values, whatever their type.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::ControlFlow;

use crate::blobs::{Duplicate, Given, Made, Sending};
use crate::effect::Effect;
use crate::keyspace::{collections, read, update, CollectionKey, Op};
use crate::types::elements::CollectionAt;
use crate::types::kind::{GivenElement, Kind, Taker};
use crate::types::kinds;
use crate::value::ValueType;
use crate::worker::{lock_if_waiting, Worker};
use crate::{DbId, Deadline, EntryInfo, Key, OpError};

impl Worker {
    /// Copies an entry, deadline included, over whatever is at `to`. Returns false if `from` is absent. The caller
    /// holds locks on both; a waiting worker takes them.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn copy(&mut self, from: (DbId, &Key<'_>), to: (DbId, &Key<'_>)) -> Result<bool, OpError> {
        copy_with(self, from, to, Made::NONE)
    }

    /// The same for a collection of which long elements have been copied already.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Worker::copy`].
    pub fn copy_collection(
        &mut self,
        from: (DbId, &Key<'_>),
        to: (DbId, &Key<'_>),
        copies: &ElementCopies,
    ) -> Result<bool, OpError> {
        copy_with(self, from, to, Made(&copies.made))
    }
}

fn copy_with(
    worker: &mut Worker,
    from: (DbId, &Key<'_>),
    to: (DbId, &Key<'_>),
    made: Made<'_>,
) -> Result<bool, OpError> {
    let _locks = lock_if_waiting(worker, [from, to]);
    worker.with_run(|op, run| {
        let Some(entry) = read::entry(op, from.0, from.1)? else { return Ok(false) };
        if entry.value_type == ValueType::String {
            return update::copy(op, from, to, None);
        }
        let kind = kinds::of(entry.value_type).ok_or(OpError::WrongType)?;
        copy_collection(op, (kind, &entry), from, to, made, run)
    })
}

impl CollectionAt<'_, '_> {
    /// Begins to copy the long elements of a collection part by part; `None` if it has none.
    ///
    /// # Errors
    /// [`OpError`]; pages of the collection that are missing.
    pub fn begin_copies(&mut self) -> Result<Option<ElementCopies>, OpError> {
        let left = self.gather(|left: &mut VecDeque<Sending>, given| {
            if let Given::Large(sending) = given {
                left.push_back(sending);
            }
            left.len() < COPIES_MAX
        })?;
        Ok((!left.is_empty()).then(|| ElementCopies { left, made: Vec::new() }))
    }

    /// Whether the elements of a collection have more bytes than so many. They are not looked at.
    ///
    /// # Errors
    /// As of [`CollectionAt::begin_copies`].
    pub fn exceeds(&mut self, most_bytes: u64) -> Result<bool, OpError> {
        let bytes = self.gather(|bytes: &mut u64, given| {
            *bytes += given.len();
            *bytes <= most_bytes
        })?;
        Ok(bytes > most_bytes)
    }

    /// Gives the names, values, items or members of a collection of any type to `f` as long as that wants more, with what it has
    /// gathered from those before.
    fn gather<G: Default>(&mut self, f: impl FnMut(&mut G, Given<'_>) -> bool) -> Result<G, OpError> {
        let (db, key) = (self.db, &self.key);
        let state = RefCell::new((G::default(), f));
        let mut begin = |_| state.borrow_mut().0 = G::default();
        let give = |given: Given<'_>| {
            let (gathered, f) = &mut *state.borrow_mut();
            match f(gathered, given) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        let mut give_parts = |given: GivenElement<'_>| {
            give(given.name)?;
            give(given.value)
        };
        self.worker.with_run_taking(|op, run| {
            let entry = read::entry(op, db, key)?;
            let Some(kind) = entry.and_then(|entry| kinds::of(entry.value_type)) else { return Ok(()) };
            let to = Taker { begin: &mut begin, give: &mut give_parts };
            kind.give(op, (db, key), to, run).map(drop)
        })?;
        Ok(state.into_inner().0)
    }
}

/// Long elements of a collection that are copied before it is: no more are on their way at a time.
const COPIES_MAX: usize = 64;

/// Copies of long elements of a collection that are being made. What no collection has come to refer to is freed when this is
/// dropped.
#[derive(Debug)]
pub struct ElementCopies {
    left: VecDeque<Sending>,
    made: Vec<Duplicate>,
}

impl ElementCopies {
    /// Copies the next part. Returns whether that was the last.
    ///
    /// # Errors
    /// As of [`Duplicate::step`].
    pub fn step(&mut self, worker: &mut Worker) -> Result<bool, OpError> {
        if let Some(copy) = self.made.last_mut() {
            if !copy.step()? {
                return Ok(false);
            }
        }
        let Some(next) = self.left.front() else { return Ok(true) };
        let to = worker.begin_incoming_name(next.len_bytes())?;
        if let Some(from) = self.left.pop_front() {
            self.made.push(Duplicate::new(from, to));
        }
        Ok(false)
    }
}

fn copy_collection(
    op: &mut Op<'_>,
    (kind, entry): (&dyn Kind, &EntryInfo),
    from: (DbId, &Key<'_>),
    to: (DbId, &Key<'_>),
    made: Made<'_>,
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let (value_type, deadline) = (entry.value_type, entry.deadline.map_or(Deadline::Clear, Deadline::At));
    let source = CollectionKey { db: from.0, key: *from.1, value_type };
    let target = CollectionKey { db: to.0, key: *to.1, value_type };
    let Some(opened) = collections::open_to_change(op, &source, run)? else { return Ok(false) };
    match opened.grown {
        None => collections::put_packed(op, &target, opened.encoding, opened.earliest, run, deadline)?,
        Some(grown) => {
            let copy = kind.copy(op, &grown, made)?;
            collections::put_grown(op, &target, opened.encoding, opened.earliest, copy, deadline)?
        }
    };
    op.announce(Effect::Copy { from: (from.0, *from.1), to: (to.0, *to.1) });
    Ok(true)
}
