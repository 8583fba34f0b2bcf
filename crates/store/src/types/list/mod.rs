//! Lists: items by their position. A small one is a run of packed items; a large one is a tree by position, in which items over
//! 512 bytes lie outside.

mod edit;
mod ends;
mod grown;
mod kind;
mod packed;
mod place;
mod read;
mod transfer;
mod viewed;

pub use edit::{Insertion, Setting};
pub(in crate::types) use kind::Lists;
pub use place::ListAt;

use std::ops::ControlFlow;

use smallvec::SmallVec;

use self::grown::Linking;
use self::place::{enclosed, list_len};
use crate::blobs::{Bytes, Given};
use crate::effect::End;
use crate::keyspace::{collections, elements};
use crate::OpError;

#[allow(clippy::len_without_is_empty, reason = "a length is an operation, which may miss pages")]
impl ListAt<'_, '_> {
    /// Puts items to an end of a list, one after the other. It is made if there is none, unless `only_if_exists`. Its length
    /// then; 0 if there is none.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn push<'b>(
        &mut self,
        end: End,
        items: &[impl Into<Bytes<'b>> + Copy],
        only_if_exists: bool,
    ) -> Result<u64, OpError> {
        let at = self.at;
        if items.is_empty() {
            return self.len();
        }
        let items: SmallVec<[Bytes<'_>; 2]> = items.iter().map(|item| (*item).into()).collect();
        elements::check_given(self.worker.keyspace(), items.iter())?;
        self.worker.with_run(|op, run| {
            let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
            let opened = collections::open_to_change(op, &at, run)?;
            if opened.is_none() && only_if_exists {
                return Ok(0);
            }
            let items = (&items[..], Linking::Copied);
            ends::push(op, &at, opened.as_ref(), end, items, run)
        })
    }

    /// Takes up to `count` items from an end of a list, after how many there are was given to `begin`, and gives them to `f` in
    /// that order. With the last one the key goes. Whether the list was there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed, and what was given does not count.
    pub fn pop(
        &mut self,
        end: End,
        count: u64,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(&[u8]),
    ) -> Result<bool, OpError> {
        let at = self.at;
        let mut give = |item: Given<'_>| f(item.held());
        self.worker.with_run(|op, run| ends::pop_some(op, &at, (end, count), &mut begin, &mut give, run))
    }

    /// The same for a caller that takes large items where they lie: their pages are freed once the last byte has been read.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`ListAt::pop`].
    pub fn send_popped(
        &mut self,
        end: End,
        count: u64,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(Given<'_>),
    ) -> Result<bool, OpError> {
        let at = self.at;
        self.worker.with_run_taking(|op, run| ends::pop_some(op, &at, (end, count), &mut begin, &mut f, run))
    }

    /// Items of a list; 0 if there is none.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn len(&mut self) -> Result<u64, OpError> {
        let at = self.at;
        self.worker.with_run(|op, run| {
            let opened = collections::open_to_read(op, &at, run)?;
            Ok(opened.map_or(0, |(opened, _lock)| list_len(&opened, run)))
        })
    }

    /// Gives the items from index `start` to index `stop` to `f`, after how many they are to `begin`, until `f` breaks. Indices
    /// below 0 count from the end. Whether the list is there.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    pub fn range(
        &mut self,
        start: i64,
        stop: i64,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let at = self.at;
        let mut give = |item: Given<'_>| f(item.held());
        self.worker.with_run(|op, run| read::range(op, &at, (start, stop), &mut begin, &mut give, run))
    }

    /// The same for a caller that takes large items where they lie.
    ///
    /// # Errors
    /// As of [`ListAt::range`].
    pub fn send_range(
        &mut self,
        start: i64,
        stop: i64,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(Given<'_>) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let at = self.at;
        self.worker.with_run_taking(|op, run| read::range(op, &at, (start, stop), &mut begin, &mut f, run))
    }

    /// Leaves a list the items from index `start` to index `stop` alone. Indices below 0 count from the end. Without items the
    /// key goes. Whether the list was there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn trim(&mut self, start: i64, stop: i64) -> Result<bool, OpError> {
        let at = self.at;
        self.worker.with_run(|op, run| {
            let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
            let Some(opened) = collections::open_to_change(op, &at, run)? else { return Ok(false) };
            let len = list_len(&opened, run);
            let kept = enclosed(start, stop, len);
            grown::keep(op, &at, &opened, kept, len, run)?;
            Ok(true)
        })
    }

    /// Gives `f` the item with an index, which counts from the end if it is below 0. Whether the list is there.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn index(&mut self, index: i64, mut f: impl FnMut(&[u8])) -> Result<bool, OpError> {
        let at = self.at;
        let mut give = |item: Given<'_>| f(item.held());
        self.worker.with_run(|op, run| read::give_at(op, &at, index, &mut give, run))
    }

    /// The same for a caller that takes a large item where it lies.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn send_index(&mut self, index: i64, mut f: impl FnMut(Given<'_>)) -> Result<bool, OpError> {
        let at = self.at;
        self.worker.with_run_taking(|op, run| read::give_at(op, &at, index, &mut f, run))
    }
}
