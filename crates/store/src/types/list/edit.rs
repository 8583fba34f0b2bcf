//! Items of a list that are found by what they are, or changed in their place.

use std::ops::Range;

use super::grown::{self, Linking};
use super::packed;
use super::place::{index_in, list_len, ListAt};
use crate::blobs::Bytes;
use crate::effect::{Change, Effect, End};
use crate::keyspace::{collections, elements, CollectionKey, Keyspace, Op, Opened, Rest};
use crate::stop::retry;
use crate::tree::hash::Grown;
use crate::tree::list::{Element, Wanted};
use crate::tree::Tree;
use crate::types::packed::{elements, packed_bytes_of, splice, PACKED_MAX_BYTES};
use crate::value::Encoding;
use crate::{Deadline, OpError};

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

impl ListAt<'_, '_> {
    /// Puts an item in the place of the one with an index, which counts from the end if it is below 0.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn set<'b>(&mut self, index: i64, item: impl Into<Bytes<'b>>) -> Result<Setting, OpError> {
        let at = self.at;
        let item: Bytes<'_> = item.into();
        elements::check_given(self.worker.keyspace(), [item].iter())?;
        self.worker.with_run(|op, run| {
            let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
            let Some(opened) = collections::open_to_change(op, &at, run)? else { return Ok(Setting::NoList) };
            let Some(index) = index_in(index, list_len(&opened, run)) else { return Ok(Setting::OutOfRange) };
            set(op, &at, &opened, index, item, run)?;
            let change = Change::Item { index, item };
            op.announce(Effect::Element { db: at.db, key: at.key, change, is_new: false });
            Ok(Setting::Done)
        })
    }

    /// Inserts an item before the first one that is `pivot`, or behind it.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn insert<'b>(
        &mut self,
        is_before: bool,
        pivot: impl Into<Bytes<'b>>,
        item: impl Into<Bytes<'b>>,
    ) -> Result<Insertion, OpError> {
        let at = self.at;
        let (pivot, item): (Bytes<'_>, Bytes<'_>) = (pivot.into(), item.into());
        elements::check_given(self.worker.keyspace(), [item].iter())?;
        self.worker.with_run(|op, run| {
            let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
            let Some(opened) = collections::open_to_change(op, &at, run)? else {
                return Ok(Insertion::NoList);
            };
            let mut found = None;
            let all = 0..list_len(&opened, run);
            find(op.keyspace, &opened, run, &pivot, all, true, |index| {
                found = Some(index);
                false
            })?;
            let Some(found) = found else { return Ok(Insertion::NoPivot) };
            let index = if is_before { found } else { found + 1 };
            let len = insert(op, &at, &opened, index, item, run)?;
            let change = Change::ItemInserted { is_before, pivot, item };
            op.announce(Effect::Element { db: at.db, key: at.key, change, is_new: false });
            Ok(Insertion::Done(len))
        })
    }

    /// Removes items that are `item`: the first `count`, or the last if it is below 0, or all if it is 0. With the last item the
    /// key goes. How many they were.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn remove<'b>(&mut self, count: i64, item: impl Into<Bytes<'b>>) -> Result<u64, OpError> {
        let at = self.at;
        let item = item.into();
        self.worker.with_run(|op, run| {
            let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
            let Some(opened) = collections::open_to_change(op, &at, run)? else { return Ok(0) };
            let most = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
            let mut places = Vec::new();
            let all = 0..list_len(&opened, run);
            find(op.keyspace, &opened, run, &item, all, count >= 0, |index| {
                places.push(index);
                places.len() < most
            })?;
            let is_upwards = count >= 0;
            remove(op, &at, &opened, (&places, is_upwards), item, run)?;
            Ok(places.len() as u64)
        })
    }

    /// Gives `f` the indices of items that are `item`, from the left or from the right, until it says no. `most_compared` items
    /// are looked at, at most. Whether the list is there.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    pub fn pos<'b>(
        &mut self,
        item: impl Into<Bytes<'b>>,
        is_upwards: bool,
        most_compared: u64,
        mut f: impl FnMut(u64) -> bool,
    ) -> Result<bool, OpError> {
        let at = self.at;
        let item = item.into();
        let wanted = (is_upwards, most_compared);
        if !self.worker.waits() {
            return self.worker.with_run(|op, run| pos(op, &at, &item, wanted, &mut f, run));
        }
        let mut kept = Vec::new();
        let is_there = self.worker.with_run(|op, run| {
            kept.clear();
            let keep = |index| {
                kept.push(index);
                true
            };
            pos(op, &at, &item, wanted, keep, run)
        })?;
        let _ = kept.into_iter().all(f);
        Ok(is_there)
    }
}

fn pos(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    item: &Bytes<'_>,
    (is_upwards, most_compared): (bool, u64),
    f: impl FnMut(u64) -> bool,
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else { return Ok(false) };
    let len = list_len(&opened, run);
    let compared = match is_upwards {
        true => 0..len.min(most_compared),
        false => len.saturating_sub(most_compared)..len,
    };
    find(op.keyspace, &opened, run, item, compared, is_upwards, f)?;
    Ok(true)
}

fn set(
    op: &mut Op<'_>,
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
            grown::grow(op, at, End::Right, &[], Linking::Copied, run)?
        }
        None => {
            // None of so few bytes lie in pages.
            splice(run, place, &[item.here().unwrap_or_default()]);
            return collections::put_packed(op, at, Encoding::QuickList, None, run, Deadline::Keep)
                .map(|_| ());
        }
    };
    let mut old = None;
    grown::with_elements(op.keyspace, &[item], Linking::Copied, |elements| {
        let Some(element) = elements.first() else { return Ok(false) };
        op.keyspace.lists.set(grown.first, index, *element, |before| {
            if let Element::Outside(blob) = before {
                old = Some(blob);
            }
        })
    })?;
    old.iter().for_each(|blob| op.keyspace.blobs.discard(blob));
    Ok(())
}

fn insert(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    index: u64,
    item: Bytes<'_>,
    run: &mut Vec<u8>,
) -> Result<u64, OpError> {
    let mut grown = match opened.grown {
        Some(grown) => grown,
        None if run.len() + packed_bytes_of(&item) > PACKED_MAX_BYTES => {
            grown::grow(op, at, End::Right, &[], Linking::Copied, run)?
        }
        None => {
            let place = packed::bytes_of(run, &(index..index));
            splice(run, place.start..place.start, &[item.here().unwrap_or_default()]);
            collections::put_packed(op, at, Encoding::QuickList, None, run, Deadline::Keep)?;
            return Ok(elements(run).count() as u64);
        }
    };
    grown::with_elements(op.keyspace, &[item], Linking::Copied, |elements| match elements.first() {
        Some(element) => op.keyspace.lists.insert(grown.first, index, *element),
        None => Ok(false),
    })?;
    grown.element_count += 1;
    grown::replace(op, at, grown)?;
    Ok(grown.element_count)
}

/// Removes the items at some places, which are all `item`, in their order, from the left or from the right: what has gone when not all
/// do are the first ones. They have just been looked at, so no page is missing.
fn remove(
    op: &mut Op<'_>,
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
            Some(grown) if !is_emptied => ended = remove_grown(op.keyspace, grown.first, index),
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
    collections::put_rest(op, at, rest, |op| {
        let count = if is_upwards { removed_count as i64 } else { -(removed_count as i64) };
        let change = Change::ItemsRemoved { item, count };
        op.announce(Effect::Element { db: at.db, key: at.key, change, is_new: false });
    })?;
    ended
}

fn remove_grown(keyspace: &Keyspace, tree: Tree, index: u64) -> Result<(), OpError> {
    let mut old = None;
    retry(|| {
        keyspace.lists.remove(tree, index, |element| {
            if let Element::Outside(blob) = element {
                old = Some(blob);
            }
            Ok(())
        })
    })?;
    old.iter().for_each(|blob| keyspace.blobs.discard(blob));
    Ok(())
}

/// Gives `f` the indices of items of a range that are `item`, from the left or from the right, until it says no.
fn find(
    keyspace: &Keyspace,
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
        keyspace.lists.search(grown.first, &wanted, &mut left, is_upwards, |index, outside| {
            let is_same = outside.map_or(Ok(true), |blob| keyspace.blobs.is_same(&blob, item))?;
            Ok(!is_same || f(index))
        })
    });
    searched.map_err(|error| {
        let next = if is_upwards { left.start } else { left.end.saturating_sub(1) };
        grown::ahead(keyspace, error, grown.first, next, is_upwards, left.end.saturating_sub(left.start))
    })
}
