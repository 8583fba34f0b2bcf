//! Items of a list that are found by what they are, or changed in their place.

use std::ops::Range;

use super::grown::Linking;
use super::packed;
use super::place::{at, index_in, list_len};
use crate::blobs::Bytes;
use crate::effect::{Change, Effect, End};
use crate::keyspace::{CollectionKey, Keyspace, Local, Opened, Rest};
use crate::stop::retry;
use crate::tree::hash::Grown;
use crate::tree::list::{Element, Wanted};
use crate::tree::Tree;
use crate::types::packed::{elements, packed_bytes_of, splice, PACKED_MAX_BYTES};
use crate::value::Encoding;
use crate::worker::Worker;
use crate::{DbId, Deadline, Key, OpError};

/// What an insertion beside an item came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Insertion {
    NoList,
    NoPivot,
    /// The list has so many items now.
    Done(u64),
}

/// What setting an item came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    NoList,
    OutOfRange,
    Done,
}

impl Worker {
    /// Puts an item in the place of the one with an index, which counts from the end if it is below 0.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn list_set<'b>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        index: i64,
        item: impl Into<Bytes<'b>>,
    ) -> Result<Setting, OpError> {
        let item: Bytes<'_> = item.into();
        self.keyspace().check_given([item].iter())?;
        self.with_run(|keyspace, local, run| {
            let at = at(db, key);
            let _lock = keyspace.locks.lock_key(&local.holder, db, key.hash);
            let Some(opened) = keyspace.open_to_change(local, &at, run)? else { return Ok(Setting::NoList) };
            let Some(index) = index_in(index, list_len(&opened, run)) else { return Ok(Setting::OutOfRange) };
            keyspace.list_set(local, &at, &opened, index, item, run)?;
            let change = Change::Item { index, item };
            keyspace.announce(local, Effect::Element { db, key: *key, change, is_new: false });
            Ok(Setting::Done)
        })
    }

    /// Inserts an item before the first one that is `pivot`, or behind it.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn list_insert<'b>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        is_before: bool,
        pivot: impl Into<Bytes<'b>>,
        item: impl Into<Bytes<'b>>,
    ) -> Result<Insertion, OpError> {
        let (pivot, item): (Bytes<'_>, Bytes<'_>) = (pivot.into(), item.into());
        self.keyspace().check_given([item].iter())?;
        self.with_run(|keyspace, local, run| {
            let at = at(db, key);
            let _lock = keyspace.locks.lock_key(&local.holder, db, key.hash);
            let Some(opened) = keyspace.open_to_change(local, &at, run)? else {
                return Ok(Insertion::NoList);
            };
            let mut found = None;
            let all = 0..list_len(&opened, run);
            keyspace.list_find(&opened, run, &pivot, all, true, |index| {
                found = Some(index);
                false
            })?;
            let Some(found) = found else { return Ok(Insertion::NoPivot) };
            let index = if is_before { found } else { found + 1 };
            let len = keyspace.list_insert(local, &at, &opened, index, item, run)?;
            let change = Change::ItemInserted { is_before, pivot, item };
            keyspace.announce(local, Effect::Element { db, key: *key, change, is_new: false });
            Ok(Insertion::Done(len))
        })
    }

    /// Removes items that are `item`: the first `count`, or the last if it is below 0, or all if it is 0. With the last item the
    /// key goes. How many they were.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn list_remove<'b>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        count: i64,
        item: impl Into<Bytes<'b>>,
    ) -> Result<u64, OpError> {
        let item = item.into();
        self.with_run(|keyspace, local, run| {
            let at = at(db, key);
            let _lock = keyspace.locks.lock_key(&local.holder, db, key.hash);
            let Some(opened) = keyspace.open_to_change(local, &at, run)? else { return Ok(0) };
            let most = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
            let mut places = Vec::new();
            let all = 0..list_len(&opened, run);
            keyspace.list_find(&opened, run, &item, all, count >= 0, |index| {
                places.push(index);
                places.len() < most
            })?;
            let is_upwards = count >= 0;
            keyspace.list_remove(local, &at, &opened, (&places, is_upwards), item, run)?;
            Ok(places.len() as u64)
        })
    }

    /// Gives `f` the indices of items that are `item`, from the left or from the right, until it says no. `most_compared` items
    /// are looked at, at most. Whether the list is there.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    pub fn list_pos<'b>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        item: impl Into<Bytes<'b>>,
        is_upwards: bool,
        most_compared: u64,
        mut f: impl FnMut(u64) -> bool,
    ) -> Result<bool, OpError> {
        let item = item.into();
        let wanted = (is_upwards, most_compared);
        if !self.waits() {
            return self.with_run(|keyspace, local, run| {
                keyspace.list_pos(local, &at(db, key), &item, wanted, &mut f, run)
            });
        }
        let mut kept = Vec::new();
        let is_there = self.with_run(|keyspace, local, run| {
            kept.clear();
            let keep = |index| {
                kept.push(index);
                true
            };
            keyspace.list_pos(local, &at(db, key), &item, wanted, keep, run)
        })?;
        let _ = kept.into_iter().all(f);
        Ok(is_there)
    }
}

impl Keyspace {
    fn list_pos(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        item: &Bytes<'_>,
        (is_upwards, most_compared): (bool, u64),
        f: impl FnMut(u64) -> bool,
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let Some((opened, _lock)) = self.open_to_read(local, at, run)? else { return Ok(false) };
        let len = list_len(&opened, run);
        let compared = match is_upwards {
            true => 0..len.min(most_compared),
            false => len.saturating_sub(most_compared)..len,
        };
        self.list_find(&opened, run, item, compared, is_upwards, f)?;
        Ok(true)
    }

    fn list_set(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: &Opened,
        index: u64,
        item: Bytes<'_>,
        run: &mut Vec<u8>,
    ) -> Result<(), OpError> {
        let place = packed::bytes_of(run, &(index..index + 1));
        let grown = match opened.grown {
            Some(grown) => grown,
            None if run.len() - place.len() + packed_bytes_of(&item) > PACKED_MAX_BYTES => {
                self.list_grow(local, at, End::Right, &[], Linking::Copied, run)?
            }
            None => {
                // None of so few bytes lie in pages.
                splice(run, place, &[item.here().unwrap_or_default()]);
                return self
                    .put_packed(local, at, Encoding::QuickList, None, run, Deadline::Keep)
                    .map(|_| ());
            }
        };
        let mut old = None;
        self.with_list_elements(&[item], Linking::Copied, |elements| {
            let Some(element) = elements.first() else { return Ok(false) };
            self.lists.set(grown.first, index, *element, |before| {
                if let Element::Outside(blob) = before {
                    old = Some(blob);
                }
            })
        })?;
        old.iter().for_each(|blob| self.blobs.discard(blob));
        Ok(())
    }

    fn list_insert(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: &Opened,
        index: u64,
        item: Bytes<'_>,
        run: &mut Vec<u8>,
    ) -> Result<u64, OpError> {
        let mut grown = match opened.grown {
            Some(grown) => grown,
            None if run.len() + packed_bytes_of(&item) > PACKED_MAX_BYTES => {
                self.list_grow(local, at, End::Right, &[], Linking::Copied, run)?
            }
            None => {
                let place = packed::bytes_of(run, &(index..index));
                splice(run, place.start..place.start, &[item.here().unwrap_or_default()]);
                self.put_packed(local, at, Encoding::QuickList, None, run, Deadline::Keep)?;
                return Ok(elements(run).count() as u64);
            }
        };
        self.with_list_elements(&[item], Linking::Copied, |elements| match elements.first() {
            Some(element) => self.lists.insert(grown.first, index, *element),
            None => Ok(false),
        })?;
        grown.element_count += 1;
        self.set_list(local, at, grown)?;
        Ok(grown.element_count)
    }

    /// Removes the items at some places, which are all `item`, in their order, from the left or from the right: what has gone when not all
    /// do are the first ones. They have just been looked at, so no page is missing.
    fn list_remove(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: &Opened,
        (places, is_upwards): (&[u64], bool),
        item: Bytes<'_>,
        run: &mut Vec<u8>,
    ) -> Result<(), OpError> {
        if places.is_empty() {
            return Ok(());
        }
        let len = list_len(opened, run);
        let is_emptied = places.len() as u64 == len;
        let (mut removed_count, mut ended) = (0, Ok(()));
        for place in places {
            // Those on its left have gone.
            let index = if is_upwards { place - removed_count } else { *place };
            match opened.grown {
                None => drop(run.drain(packed::bytes_of(run, &(index..index + 1)))),
                Some(grown) if !is_emptied => ended = self.list_remove_grown(grown.first, index),
                // The tree goes with its key.
                Some(_) => {}
            }
            if ended.is_err() {
                break;
            }
            removed_count += 1;
        }
        if removed_count == 0 {
            return ended;
        }
        let rest = match opened.grown {
            _ if is_emptied => Rest::Nothing,
            None => Rest::Packed { encoding: Encoding::QuickList, earliest: None, run },
            Some(grown) => {
                let element_count = len - removed_count;
                Rest::Grown(Opened { grown: Some(Grown { element_count, ..grown }), ..*opened })
            }
        };
        self.put_rest(local, at, rest, |local| {
            let count = if is_upwards { removed_count as i64 } else { -(removed_count as i64) };
            let change = Change::ItemsRemoved { item, count };
            self.announce(local, Effect::Element { db: at.db, key: at.key, change, is_new: false });
        })?;
        ended
    }

    fn list_remove_grown(&self, tree: Tree, index: u64) -> Result<(), OpError> {
        let mut old = None;
        retry(|| {
            self.lists.remove(tree, index, |element| {
                if let Element::Outside(blob) = element {
                    old = Some(blob);
                }
                Ok(())
            })
        })?;
        old.iter().for_each(|blob| self.blobs.discard(blob));
        Ok(())
    }

    /// Gives `f` the indices of items of a range that are `item`, from the left or from the right, until it says no.
    fn list_find(
        &self,
        opened: &Opened,
        run: &[u8],
        item: &Bytes<'_>,
        range: Range<u64>,
        is_upwards: bool,
        mut f: impl FnMut(u64) -> bool,
    ) -> Result<(), OpError> {
        let Some(grown) = opened.grown else {
            let items = (0..).zip(elements(run)).filter(|(index, _)| range.contains(index));
            let mut same: Vec<u64> =
                items.filter(|(_, found)| item.here() == Some(found.bytes)).map(|(index, _)| index).collect();
            if !is_upwards {
                same.reverse();
            }
            let _ = same.into_iter().all(f);
            return Ok(());
        };
        let (wanted, mut left) = (Wanted::new(item), range);
        let searched = retry(|| {
            self.lists.search(grown.first, &wanted, &mut left, is_upwards, |index, outside| {
                let is_same = outside.map_or(Ok(true), |blob| self.blobs.is_same(&blob, item))?;
                Ok(!is_same || f(index))
            })
        });
        searched.map_err(|error| {
            let next = if is_upwards { left.start } else { left.end.saturating_sub(1) };
            self.list_ahead(error, grown.first, next, is_upwards, left.end.saturating_sub(left.start))
        })
    }
}
