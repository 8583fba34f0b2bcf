//! Lists: items by their position. A small one is a run of packed items; a large one is a tree by position, in which items over
//! 512 bytes lie outside.

mod edit;
mod grown;
mod kind;
mod packed;
mod place;
mod transfer;
mod viewed;

pub use edit::{Insertion, Setting};
pub(in crate::types) use kind::Lists;

use std::ops::ControlFlow;

use smallvec::SmallVec;

use self::grown::Linking;
use self::place::{at, enclosed, index_in, list_len};
use crate::blobs::{Bytes, Given};
use crate::effect::{Change, Effect, End};
use crate::keyspace::{CollectionKey, Keyspace, Local, Opened};
use crate::types::packed::{elements, packed_bytes_of, PACKED_MAX_BYTES};
use crate::value::Encoding;
use crate::worker::Worker;
use crate::{DbId, Deadline, Key, OpError};

impl Worker {
    /// Puts items to an end of a list, one after the other. It is made if there is none, unless `only_if_exists`. Its length
    /// then; 0 if there is none.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn list_push<'b>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        end: End,
        items: &[impl Into<Bytes<'b>> + Copy],
        only_if_exists: bool,
    ) -> Result<u64, OpError> {
        if items.is_empty() {
            return self.list_len(db, key);
        }
        let items: SmallVec<[Bytes<'_>; 2]> = items.iter().map(|item| (*item).into()).collect();
        self.keyspace().check_given(items.iter())?;
        self.with_run(|keyspace, local, run| {
            let _lock = keyspace.locks.lock_key(&local.holder, db, key.hash);
            let opened = keyspace.open_to_change(local, &at(db, key), run)?;
            if opened.is_none() && only_if_exists {
                return Ok(0);
            }
            let items = (&items[..], Linking::Copied);
            keyspace.list_push(local, &at(db, key), opened.as_ref(), end, items, run)
        })
    }

    /// Takes up to `count` items from an end of a list, after how many there are was given to `begin`, and gives them to `f` in
    /// that order. With the last one the key goes. Whether the list was there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed, and what was given does not count.
    pub fn list_pop(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        end: End,
        count: u64,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(&[u8]),
    ) -> Result<bool, OpError> {
        let mut give = |item: Given<'_>| f(item.held());
        self.with_run(|keyspace, local, run| {
            keyspace.list_pop_some(local, &at(db, key), (end, count), &mut begin, &mut give, run)
        })
    }

    /// The same for a caller that takes large items where they lie: their pages are freed once the last byte has been read.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Worker::list_pop`].
    pub fn list_send_popped(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        end: End,
        count: u64,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(Given<'_>),
    ) -> Result<bool, OpError> {
        self.with_run_taking(|keyspace, local, run| {
            keyspace.list_pop_some(local, &at(db, key), (end, count), &mut begin, &mut f, run)
        })
    }

    /// Items of a list; 0 if there is none.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn list_len(&mut self, db: DbId, key: &Key<'_>) -> Result<u64, OpError> {
        self.with_run(|keyspace, local, run| {
            let opened = keyspace.open_to_read(local, &at(db, key), run)?;
            Ok(opened.map_or(0, |(opened, _lock)| list_len(&opened, run)))
        })
    }

    /// Gives the items from index `start` to index `stop` to `f`, after how many they are to `begin`, until `f` breaks. Indices
    /// below 0 count from the end. Whether the list is there.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    pub fn list_range(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        start: i64,
        stop: i64,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let mut give = |item: Given<'_>| f(item.held());
        self.with_run(|keyspace, local, run| {
            keyspace.list_range(local, &at(db, key), (start, stop), &mut begin, &mut give, run)
        })
    }

    /// The same for a caller that takes large items where they lie.
    ///
    /// # Errors
    /// As of [`Worker::list_range`].
    pub fn list_send_range(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        start: i64,
        stop: i64,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(Given<'_>) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        self.with_run_taking(|keyspace, local, run| {
            keyspace.list_range(local, &at(db, key), (start, stop), &mut begin, &mut f, run)
        })
    }

    /// Leaves a list the items from index `start` to index `stop` alone. Indices below 0 count from the end. Without items the
    /// key goes. Whether the list was there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn list_trim(&mut self, db: DbId, key: &Key<'_>, start: i64, stop: i64) -> Result<bool, OpError> {
        self.with_run(|keyspace, local, run| {
            let _lock = keyspace.locks.lock_key(&local.holder, db, key.hash);
            let Some(opened) = keyspace.open_to_change(local, &at(db, key), run)? else { return Ok(false) };
            let len = list_len(&opened, run);
            let kept = enclosed(start, stop, len);
            keyspace.list_keep(local, &at(db, key), &opened, kept, len, run)?;
            Ok(true)
        })
    }

    /// Gives `f` the item with an index, which counts from the end if it is below 0. Whether the list is there.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn list_index(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        index: i64,
        mut f: impl FnMut(&[u8]),
    ) -> Result<bool, OpError> {
        let mut give = |item: Given<'_>| f(item.held());
        self.with_run(|keyspace, local, run| keyspace.list_index(local, &at(db, key), index, &mut give, run))
    }

    /// The same for a caller that takes a large item where it lies.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn list_send_index(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        index: i64,
        mut f: impl FnMut(Given<'_>),
    ) -> Result<bool, OpError> {
        self.with_run_taking(|keyspace, local, run| {
            keyspace.list_index(local, &at(db, key), index, &mut f, run)
        })
    }
}

impl Keyspace {
    fn list_range(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        (start, stop): (i64, i64),
        begin: impl FnOnce(u64),
        f: impl FnMut(Given<'_>) -> ControlFlow<()>,
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let Some((opened, _lock)) = self.open_to_read(local, at, run)? else { return Ok(false) };
        let range = enclosed(start, stop, list_len(&opened, run));
        begin(range.end - range.start);
        self.list_give(local, &opened, range, run, f)?;
        Ok(true)
    }

    fn list_index(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        index: i64,
        mut f: impl FnMut(Given<'_>),
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let Some((opened, _lock)) = self.open_to_read(local, at, run)? else { return Ok(false) };
        if let Some(index) = index_in(index, list_len(&opened, run)) {
            self.list_give(local, &opened, index..index + 1, run, |item| {
                f(item);
                ControlFlow::Break(())
            })?;
        }
        Ok(true)
    }

    fn list_pop_some(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        (end, count): (End, u64),
        begin: impl FnOnce(u64),
        f: impl FnMut(Given<'_>),
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let _lock = self.locks.lock_key(&local.holder, at.db, at.key.hash);
        let Some(opened) = self.open_to_change(local, at, run)? else { return Ok(false) };
        let popped = count.min(list_len(&opened, run));
        begin(popped);
        self.list_pop(local, at, &opened, end, popped, f, run)?;
        Ok(true)
    }

    fn list_push(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: Option<&Opened>,
        end: End,
        (items, linking): (&[Bytes<'_>], Linking),
        run: &mut Vec<u8>,
    ) -> Result<u64, OpError> {
        let more_bytes: usize = items.iter().map(packed_bytes_of).sum();
        let len = match opened.and_then(|opened| opened.grown) {
            Some(grown) => self.grown_push(local, at, grown, end, items, linking)?,
            None if run.len() + more_bytes > PACKED_MAX_BYTES => {
                self.list_grow(local, at, end, items, linking, run)?.element_count
            }
            None => {
                // None of so few bytes lie in pages.
                let short: SmallVec<[&[u8]; 2]> = items.iter().filter_map(Bytes::here).collect();
                packed::push(run, end, &short);
                self.put_packed(local, at, Encoding::QuickList, None, run, Deadline::Keep)?;
                elements(run).count() as u64
            }
        };
        for (index, &item) in items.iter().enumerate() {
            let is_new = opened.is_none() && index == 0;
            let change = Change::Pushed { end, item };
            self.announce(local, Effect::Element { db: at.db, key: at.key, change, is_new });
        }
        Ok(len)
    }

    #[allow(clippy::too_many_arguments)]
    fn list_pop(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: &Opened,
        end: End,
        count: u64,
        mut f: impl FnMut(Given<'_>),
        run: &mut Vec<u8>,
    ) -> Result<(), OpError> {
        if count == 0 {
            return Ok(());
        }
        let len = list_len(opened, run);
        let range = if end == End::Left { 0..count } else { len - count..len };
        let tell = |local: &Local| {
            let change = Change::Popped { end, item_count: count };
            self.announce(local, Effect::Element { db: at.db, key: at.key, change, is_new: false });
        };
        match (opened.grown, end) {
            (Some(grown), _) if count == 1 && len > 1 => {
                return self.grown_pop(local, at, grown, end, f, tell);
            }
            (_, End::Left) => self.list_give(local, opened, range.clone(), run, |item| {
                f(item);
                ControlFlow::Continue(())
            })?,
            (_, End::Right) => self.list_give_down(local, opened, range.clone(), run, f)?,
        }
        self.list_take(local, at, opened, range, run, tell).map(drop)
    }
}
