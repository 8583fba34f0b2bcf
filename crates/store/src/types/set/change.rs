//! Members that are added, removed and moved.

use super::packed;
use super::read::{self, set_count};
use crate::blobs::{Bytes, SlabNeeds};
use crate::effect::{Change, Effect};
use crate::keyspace::{collections, elements, CollectionKey, Keyspace, Op, Opened, Rest};
use crate::tree::hash::Grown;
use crate::tree::Tree;
use crate::types::packed::{elements, packed_bytes_of, PACKED_MAX_BYTES};
use crate::value::Encoding;
use crate::{Deadline, OpError};

/// What storing a member, and both sets anew, may take of slabs.
const CHANGES: usize = 4;

pub(super) fn add(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    members: &[Bytes<'_>],
    run: &mut Vec<u8>,
) -> Result<u64, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    let opened = collections::open_to_change(op, at, run)?;
    let (added, done) = put(op, at, opened.as_ref(), members, run);
    announce_members(op, at, opened.is_none(), &added);
    done.map(|()| added.len() as u64)
}

/// Adds members; those that were not there before, also if it ends with an error.
fn put<'m>(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: Option<&Opened>,
    members: &[Bytes<'m>],
    run: &mut Vec<u8>,
) -> (Vec<Bytes<'m>>, Result<(), OpError>) {
    match opened.and_then(|opened| Some((opened, opened.grown?))) {
        Some((opened, grown)) => put_grown(op, at, opened, grown, members),
        None => put_packed(op, at, opened, members, run),
    }
}

/// What a set is called that has so many members, with these among them.
pub(super) fn encoding(
    keyspace: &Keyspace,
    before: Option<Encoding>,
    len: u64,
    members: &[Bytes<'_>],
) -> Encoding {
    let is_large = before == Some(Encoding::HashTable)
        || len > keyspace.limits.intset_entries() as u64
        || members.iter().any(|member| member.here().and_then(packed::integer).is_none());
    if is_large {
        Encoding::HashTable
    } else {
        Encoding::IntSet
    }
}

fn put_packed<'m>(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: Option<&Opened>,
    members: &[Bytes<'m>],
    run: &mut Vec<u8>,
) -> (Vec<Bytes<'m>>, Result<(), OpError>) {
    let before = opened.map(|opened| opened.encoding);
    let more_bytes: usize = members.iter().map(packed_bytes_of).sum();
    if run.len() + more_bytes > PACKED_MAX_BYTES {
        return match grow(op, at, opened, members, run) {
            Ok(added) => (added, Ok(())),
            Err(error) => (Vec::new(), Err(error)),
        };
    }
    let is_sorted = encoding(op.keyspace, before, 0, members) == Encoding::IntSet;
    let mut added = members.to_vec();
    // None of so few bytes lie in pages.
    added.retain(|member| member.here().is_some_and(|member| packed::add(run, member, is_sorted)));
    if added.is_empty() {
        return (added, Ok(()));
    }
    let encoding = encoding(op.keyspace, before, packed::len(run), &added);
    match collections::put_packed(op, at, encoding, None, run, Deadline::Keep) {
        Ok(_) => (added, Ok(())),
        Err(error) => (Vec::new(), Err(error)),
    }
}

/// Makes a tree of a packed set, or of none, with more members.
fn grow<'m>(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: Option<&Opened>,
    members: &[Bytes<'m>],
    run: &[u8],
) -> Result<Vec<Bytes<'m>>, OpError> {
    let old = elements(run).map(|member| member.bytes.len());
    collections::resolve_stored(op.keyspace, old.chain(members.iter().map(Bytes::unstored_bytes)))?;
    let tree = elements::create_elements(op.keyspace)?;
    let mut grown = Grown { element_count: 0, first: tree, second: None };
    let old = elements(run).try_for_each(|member| put_member(op, tree, &member.bytes.into()).map(drop));
    let (added, new) = put_members(op, tree, members);
    old.and(new).inspect_err(|_| collections::drop_trees(op.keyspace, &grown))?;
    grown.element_count = packed::len(run) + added.len() as u64;
    let encoding = encoding(op.keyspace, opened.map(|opened| opened.encoding), grown.element_count, members);
    collections::put_grown(op, at, encoding, None, grown, Deadline::Keep)?;
    Ok(added)
}

/// Puts a member into a tree; whether it is new.
pub(super) fn put_member(op: &mut Op<'_>, tree: Tree, member: &Bytes<'_>) -> Result<bool, OpError> {
    let element = elements::hashed_bytes(op, member)?;
    Ok(!elements::put_element(op, tree, &element, Bytes::Here(&[]), Deadline::Clear)?)
}

fn put_members<'m>(
    op: &mut Op<'_>,
    tree: Tree,
    members: &[Bytes<'m>],
) -> (Vec<Bytes<'m>>, Result<(), OpError>) {
    let mut added = Vec::with_capacity(members.len());
    let done = members.iter().try_for_each(|member| {
        if collections::step_of_many(op, !added.is_empty(), |op| put_member(op, tree, member))? {
            added.push(*member);
        }
        Ok(())
    });
    (added, done)
}

fn put_grown<'m>(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    mut grown: Grown,
    members: &[Bytes<'m>],
) -> (Vec<Bytes<'m>>, Result<(), OpError>) {
    let lengths = || members.iter().map(Bytes::unstored_bytes);
    let admitted = elements::resolve_elements(op, grown.first, members)
        .and_then(|()| collections::resolve_stored(op.keyspace, lengths()))
        .and_then(|()| collections::admit_elements(op.keyspace, members.len(), lengths()));
    let _admitted = match admitted {
        Ok(admitted) => admitted,
        Err(error) => return (Vec::new(), Err(error)),
    };
    let (added, done) = put_members(op, grown.first, members);
    if added.is_empty() {
        return (added, done);
    }
    grown.element_count += added.len() as u64;
    let encoding = encoding(op.keyspace, Some(opened.encoding), grown.element_count, &added);
    let noted = collections::set_grown(op, at, &Opened { encoding, grown: Some(grown), ..*opened });
    (added, done.and(noted))
}

fn announce_members(op: &Op<'_>, at: &CollectionKey<'_>, is_new: bool, members: &[Bytes<'_>]) {
    for (index, &member) in members.iter().enumerate() {
        let (change, is_new) = (Change::Member { member }, is_new && index == 0);
        op.announce(Effect::Element { db: at.db, key: at.key, change, is_new });
    }
}

pub(super) fn remove(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    members: &[Bytes<'_>],
    run: &mut Vec<u8>,
) -> Result<u64, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    let Some(opened) = collections::open_to_change(op, at, run)? else { return Ok(0) };
    take_member(op, at, &opened, members, run)
}

/// Removes members of a set that has been opened, and the key with the last one. How many were there.
pub(super) fn take_member(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    members: &[Bytes<'_>],
    run: &mut Vec<u8>,
) -> Result<u64, OpError> {
    let (len, mut ended) = (set_count(opened, run), Ok(()));
    let mut removed = Vec::with_capacity(members.len());
    match opened.grown {
        None => {
            let mut remove = |member: &Bytes<'_>| member.here().is_some_and(|name| packed::remove(run, name));
            removed.extend(members.iter().copied().filter(|member| remove(member)));
        }
        Some(grown) => {
            elements::resolve_elements(op, grown.first, members)?;
            ended = members.iter().try_for_each(|member| {
                let element = elements::hashed_bytes(op, member)?;
                if elements::remove_element(op, grown.first, &element)? {
                    removed.push(*member);
                }
                Ok(())
            });
        }
    }
    if removed.is_empty() {
        return ended.map(|()| 0);
    }
    let left = len.saturating_sub(removed.len() as u64);
    put_rest(op, at, opened, left, run, removed.iter().copied())?;
    ended.map(|()| removed.len() as u64)
}

/// Stores what is left of a set, of which a packed one's members are in the run, and announces what has been removed.
pub(super) fn put_rest<'m>(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    left: u64,
    run: &[u8],
    removed: impl Iterator<Item = Bytes<'m>>,
) -> Result<(), OpError> {
    let rest = match opened.grown {
        _ if left == 0 => Rest::Nothing,
        None => Rest::Packed { encoding: opened.encoding, earliest: None, run },
        Some(grown) => Rest::Grown(Opened { grown: Some(Grown { element_count: left, ..grown }), ..*opened }),
    };
    collections::put_rest(op, at, rest, |op| {
        removed.for_each(|member| announce_removed(op, at, member));
    })
}

pub(super) fn announce_removed(op: &Op<'_>, at: &CollectionKey<'_>, member: Bytes<'_>) {
    let change = Change::MemberRemoved { member };
    op.announce(Effect::Element { db: at.db, key: at.key, change, is_new: false });
}

pub(super) fn move_member(
    op: &mut Op<'_>,
    from: &CollectionKey<'_>,
    to: &CollectionKey<'_>,
    is_same: bool,
    member: Bytes<'_>,
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let Some(source) = collections::open_to_change(op, from, run)? else { return Ok(false) };
    let is_there = read::has(op, &source, run, &member)?;
    let target = collections::open_to_change(op, to, run)?;
    if !is_there || is_same {
        return Ok(is_there);
    }
    for grown in [Some(&source), target.as_ref()].into_iter().flatten().filter_map(|set| set.grown) {
        elements::resolve_elements(op, grown.first, &[member])?;
    }
    collections::resolve_slabs(op.keyspace, &SlabNeeds::any(CHANGES))?;
    // First where it is to be, so that it is not lost for want of memory; it is told of as Redis does.
    let (added, done) = put(op, to, target.as_ref(), &[member], run);
    let mut take = |op: &mut Op<'_>| match collections::open_to_change(op, from, run)? {
        Some(source) => take_member(op, from, &source, &[member], run).map(drop),
        None => Ok(()),
    };
    let moved = done.and_then(|()| collections::step_of_many(op, true, &mut take));
    announce_members(op, to, target.is_none(), &added);
    moved.map(|()| true)
}
