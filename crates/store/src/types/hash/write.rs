//! Fields that are set and removed.

use smallvec::SmallVec;

use super::field::FieldMode;
use super::packed::{Fields, Was as WasPacked};
use super::read;
use crate::blobs::Bytes;
use crate::effect::{Change, Effect};
use crate::keyspace::{collections, elements, CollectionKey, Keyspace, Op, Opened, Rest, Was};
use crate::tree::hash::Grown;
use crate::tree::Tree;
use crate::types::packed::{packed_bytes_of, PACKED_MAX_BYTES};
use crate::value::Encoding;
use crate::{Deadline, OpError, UnixMillis};

/// What a write sets.
#[derive(Clone, Copy)]
pub(super) struct FieldWrite<'a> {
    pub pairs: &'a [(Bytes<'a>, Bytes<'a>)],
    pub mode: FieldMode,
    pub deadline: Deadline,
}

impl FieldWrite<'_> {
    /// Nothing but what becomes of the form of a hash.
    pub const NOTHING: FieldWrite<'static> =
        FieldWrite { pairs: &[], mode: FieldMode::All, deadline: Deadline::Keep };

    /// Of fields and values that are still to be stored.
    fn lens_bytes(&self) -> impl Iterator<Item = usize> + '_ {
        self.pairs.iter().flat_map(|(field, value)| [field.unstored_bytes(), value.unstored_bytes()])
    }

    /// A deadline that the fields get.
    fn given(&self) -> Option<UnixMillis> {
        match self.deadline {
            Deadline::At(at) if !self.pairs.is_empty() => Some(at),
            _ => None,
        }
    }
}

/// What a write has done.
#[derive(Default)]
pub(super) struct Filled<'w> {
    /// Fields that were not there, or whose time was over.
    added_count: u64,
    /// Fields that the hash has more than before.
    more_count: u64,
    /// So many of the pairs have been gone through.
    done_count: usize,
    /// Those of them that have been left alone, by their places.
    kept: SmallVec<[usize; 2]>,
    /// Fields whose time was over.
    expired: Vec<Bytes<'w>>,
}

impl<'w> Filled<'w> {
    /// A pair has been set.
    fn note(&mut self, field: Bytes<'w>, was: Was) {
        self.done_count += 1;
        self.added_count += u64::from(was != Was::There);
        self.more_count += u64::from(was == Was::Absent);
        if was == Was::Expired {
            self.expired.push(field);
        }
    }

    fn keep(&mut self) {
        self.kept.push(self.done_count);
        self.done_count += 1;
    }

    fn is_nothing(&self) -> bool {
        self.done_count == self.kept.len()
    }

    /// The pairs that have been set.
    fn set<'p>(
        &'p self,
        pairs: &'p [(Bytes<'w>, Bytes<'w>)],
    ) -> impl Iterator<Item = (Bytes<'w>, Bytes<'w>)> + 'p {
        let done = pairs.iter().take(self.done_count).enumerate();
        done.filter(|(place, _)| !self.kept.contains(place)).map(|(_, pair)| *pair)
    }
}

/// The earlier of two deadlines.
pub(super) fn earlier(a: Option<UnixMillis>, b: Option<UnixMillis>) -> Option<UnixMillis> {
    a.into_iter().chain(b).min()
}

pub(super) fn set(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    write: &FieldWrite<'_>,
    run: &mut Vec<u8>,
) -> Result<u64, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    let opened = collections::open_to_change(op, at, run)?;
    match opened.as_ref().and_then(|opened| Some((opened, opened.grown?))) {
        Some((opened, grown)) => set_grown(op, at, opened, grown, write),
        None => set_packed(op, at, opened.as_ref(), write, run),
    }
}

pub(super) fn set_packed(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: Option<&Opened>,
    write: &FieldWrite<'_>,
    run: &mut Vec<u8>,
) -> Result<u64, OpError> {
    let is_timed = opened.is_some_and(|opened| opened.earliest.is_some());
    let mut packed = Fields { run, is_timed };
    let is_there = |(field, _): &(Bytes<'_>, Bytes<'_>)| {
        field.here().is_some_and(|field| packed.find_live(field, op.local.now).is_some())
    };
    if write.mode == FieldMode::Absent && write.pairs.iter().all(is_there) {
        return Ok(0);
    }
    let old_bytes = match is_timed || write.given().is_some() {
        true => packed.timed_bytes(write.pairs.len()),
        false => packed.run.len(),
    };
    let pair_bytes =
        |(field, value): &(Bytes<'_>, Bytes<'_>)| packed_bytes_of(field) + packed_bytes_of(value);
    let more_bytes: usize = write.pairs.iter().map(pair_bytes).sum();
    if old_bytes + more_bytes > PACKED_MAX_BYTES {
        return grow(op, at, opened, write, &packed);
    }
    let (mut filled, overwrites) = (Filled::default(), write.mode == FieldMode::All);
    for &(field, value) in write.pairs {
        // None of so few bytes lie in pages.
        let pair = (field.here().unwrap_or_default(), value.here().unwrap_or_default());
        match packed.set(pair, write.deadline, op.local.now, overwrites) {
            WasPacked::There if !overwrites => filled.keep(),
            WasPacked::There => filled.note(field, Was::There),
            WasPacked::Expired => filled.note(field, Was::Expired),
            WasPacked::Absent => filled.note(field, Was::Absent),
        }
    }
    let earliest = if packed.is_timed { packed.settle() } else { None };
    let encoding =
        encoding(op.keyspace, opened, packed.are_more_than(op.keyspace.limits.hash_entries()), write.pairs);
    collections::put_packed(op, at, encoding, earliest, packed.run, Deadline::Keep)?;
    announce_fields(op, at, opened.is_none(), write, &filled, |field| {
        if packed.is_timed {
            packed.find(field.here()?)?.deadline
        } else {
            None
        }
    });
    Ok(filled.added_count)
}

fn are_many_fields(keyspace: &Keyspace, grown: &Grown) -> bool {
    grown.element_count > keyspace.limits.hash_entries() as u64
}

/// What a hash is called now; whether there are more fields than the limit.
fn encoding(
    keyspace: &Keyspace,
    opened: Option<&Opened>,
    are_many: bool,
    pairs: &[(Bytes<'_>, Bytes<'_>)],
) -> Encoding {
    let limits = &keyspace.limits;
    let is_long = |bytes: &Bytes<'_>| bytes.len() > limits.hash_value_bytes() as u64;
    let is_large = opened.is_some_and(|opened| opened.encoding == Encoding::HashTable)
        || are_many
        || pairs.iter().any(|(field, value)| is_long(field) || is_long(value));
    if is_large {
        Encoding::HashTable
    } else {
        Encoding::ListPack
    }
}

/// Makes a tree of a packed hash, or of none, and sets the fields there.
pub(super) fn grow(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: Option<&Opened>,
    write: &FieldWrite<'_>,
    packed: &Fields<'_>,
) -> Result<u64, OpError> {
    let before = packed.len();
    let old = packed.pairs().flat_map(|pair| [pair.field.len(), pair.value.len()]);
    collections::resolve_stored(op.keyspace, old.chain(write.lens_bytes()))?;
    let tree = elements::create_elements(op.keyspace)?;
    let mut grown = Grown { element_count: 0, first: tree, second: None };
    let mut filled = Filled::default();
    move_packed(op, tree, packed)
        .and_then(|()| fill(op, tree, write, &mut filled))
        .inspect_err(|_| collections::drop_trees(op.keyspace, &grown))?;
    grown.element_count = before + filled.more_count;
    let kept = packed.pairs().filter_map(|pair| pair.deadline).min();
    let earliest = earlier(kept, write.given());
    let encoding = encoding(op.keyspace, opened, are_many_fields(op.keyspace, &grown), write.pairs);
    collections::put_grown(op, at, encoding, earliest, grown, Deadline::Keep)?;
    announce_filled(op, at, opened.is_none(), write, (tree, earliest.is_some()), &filled);
    Ok(filled.added_count)
}

/// Puts packed fields into a tree that nothing refers to yet.
fn move_packed(op: &mut Op<'_>, tree: Tree, packed: &Fields<'_>) -> Result<(), OpError> {
    for pair in packed.pairs() {
        let deadline = pair.deadline.map_or(Deadline::Clear, Deadline::At);
        elements::put_element(
            op,
            tree,
            &elements::hashed(op.keyspace, pair.field),
            pair.value.into(),
            deadline,
        )?;
    }
    Ok(())
}

/// Sets fields of a tree. What has been done counts, too, if it ends with an error.
fn fill<'w>(
    op: &mut Op<'_>,
    tree: Tree,
    write: &FieldWrite<'w>,
    filled: &mut Filled<'w>,
) -> Result<(), OpError> {
    for (field, value) in write.pairs {
        let (name, now) = (elements::hashed_bytes(op, field)?, op.local.now);
        if write.mode == FieldMode::Absent && read::live_deadline(op.keyspace, tree, &name, now)?.is_some() {
            filled.keep();
            continue;
        }
        let was = collections::step_of_many(op, !filled.is_nothing(), |op| {
            elements::put_timed_element(op, tree, &name, *value, write.deadline)
        })?;
        filled.note(*field, was);
    }
    Ok(())
}

pub(super) fn set_grown(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    mut grown: Grown,
    write: &FieldWrite<'_>,
) -> Result<u64, OpError> {
    // Nothing that is missing is met after the first change (C1).
    elements::resolve_elements(op, grown.first, write.pairs.iter().map(|(field, _)| field))?;
    collections::resolve_stored(op.keyspace, write.lens_bytes())?;
    let _admitted = collections::admit_elements(op.keyspace, write.pairs.len(), write.lens_bytes())?;
    let mut filled = Filled::default();
    let ended = fill(op, grown.first, write, &mut filled);
    grown.element_count += filled.more_count;
    if filled.is_nothing() {
        return ended.map(|()| 0);
    }
    note(op, at, opened, grown, write, &filled)?;
    ended.map(|()| filled.added_count)
}

/// Notes and announces what has been set in a tree.
fn note(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    grown: Grown,
    write: &FieldWrite<'_>,
    filled: &Filled<'_>,
) -> Result<(), OpError> {
    let encoding = encoding(op.keyspace, Some(opened), are_many_fields(op.keyspace, &grown), write.pairs);
    let earliest = earlier(opened.earliest, write.given());
    note_field_deadline(op.keyspace, grown.first, write.given());
    let now = Opened { encoding, earliest, grown: Some(grown) };
    let noted = if now == *opened { Ok(()) } else { collections::set_grown(op, at, &now) };
    announce_filled(op, at, false, write, (grown.first, earliest.is_some()), filled);
    noted
}

/// A walk through the fields of this tree may have passed the one that gets this deadline.
pub(super) fn note_field_deadline(keyspace: &Keyspace, tree: Tree, deadline: Option<UnixMillis>) {
    if let Some(deadline) = deadline {
        keyspace.expiry.walks.note(tree.tag, deadline);
    }
}

/// Counts a field whose time was over and announces that it is gone.
fn announce_expired_field(op: &Op<'_>, at: &CollectionKey<'_>, field: Bytes<'_>) {
    op.local.expired_field_count.set(op.local.expired_field_count.get() + 1);
    let change = Change::FieldExpired { field };
    op.announce(Effect::Element { db: at.db, key: at.key, change, is_new: false });
}

/// The same of the one field of a write, whose value has been renewed.
pub(super) fn note_renewed(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    grown: Grown,
    write: &FieldWrite<'_>,
) -> Result<(), OpError> {
    let filled = Filled { done_count: write.pairs.len(), ..Filled::default() };
    note(op, at, opened, grown, write, &filled)
}

fn announce_filled(
    op: &Op<'_>,
    at: &CollectionKey<'_>,
    is_new: bool,
    write: &FieldWrite<'_>,
    (tree, is_timed): (Tree, bool),
    filled: &Filled<'_>,
) {
    let now = op.local.now;
    // They have just been written: nothing of them is missing.
    let kept = |field: Bytes<'_>| {
        let field = elements::hashed_bytes(op, &field).ok()?;
        read::live_deadline(op.keyspace, tree, &field, now).ok().flatten().flatten()
    };
    let kept = |field: Bytes<'_>| if is_timed { kept(field) } else { None };
    announce_fields(op, at, is_new, write, filled, kept);
}

fn announce_fields(
    op: &Op<'_>,
    at: &CollectionKey<'_>,
    is_new: bool,
    write: &FieldWrite<'_>,
    filled: &Filled<'_>,
    kept: impl Fn(Bytes<'_>) -> Option<UnixMillis>,
) {
    let tell = |change, is_new| {
        op.announce(Effect::Element { db: at.db, key: at.key, change, is_new });
    };
    filled.expired.iter().for_each(|field| announce_expired_field(op, at, *field));
    for (index, (field, value)) in filled.set(write.pairs).enumerate() {
        let deadline = match write.deadline {
            Deadline::At(deadline) => Some(deadline),
            Deadline::Clear => None,
            Deadline::Keep => kept(field),
        };
        tell(Change::Field { field, value, deadline }, is_new && index == 0);
    }
    if let deadline @ Some(_) = write.given() {
        filled.set(write.pairs).for_each(|(field, _)| tell(Change::FieldDeadline { field, deadline }, false));
    }
}

pub(super) fn remove(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    fields: &[Bytes<'_>],
    run: &mut Vec<u8>,
) -> Result<u64, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    let Some(opened) = collections::open_to_change(op, at, run)? else { return Ok(0) };
    let mut removed = Vec::with_capacity(fields.len());
    let mut packed = opened.fields(run);
    let (left, ended) = match opened.grown {
        None => {
            for (field, name) in fields.iter().filter_map(|field| Some((field, field.here()?))) {
                match packed.remove(name, op.local.now) {
                    WasPacked::Absent => {}
                    was => removed.push((*field, was == WasPacked::Expired)),
                }
            }
            (packed.len(), Ok(()))
        }
        Some(grown) => {
            elements::resolve_elements(op, grown.first, fields)?;
            let ended = remove_elements(op, grown.first, fields, &mut removed);
            (grown.element_count.saturating_sub(removed.len() as u64), ended)
        }
    };
    if removed.is_empty() {
        return ended.map(|()| 0);
    }
    put_rest(op, at, &opened, left, &mut packed, &removed)?;
    ended.map(|()| removed.iter().filter(|(_, has_expired)| !has_expired).count() as u64)
}

/// Removes fields of a tree and notes which were there, and whether their time was over.
fn remove_elements<'f>(
    op: &mut Op<'_>,
    tree: Tree,
    fields: &'f [Bytes<'f>],
    removed: &mut Vec<(Bytes<'f>, bool)>,
) -> Result<(), OpError> {
    for field in fields {
        let element = elements::hashed_bytes(op, field)?;
        match elements::remove_timed_element(op, tree, &element)? {
            Was::Absent => {}
            was => removed.push((*field, was == Was::Expired)),
        }
    }
    Ok(())
}

/// Stores what fields have been removed from, and announces these, each with whether its time was over: without a field the
/// key goes.
pub(super) fn put_rest(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    left: u64,
    packed: &mut Fields<'_>,
    removed: &[(Bytes<'_>, bool)],
) -> Result<(), OpError> {
    let rest = match opened.grown {
        _ if left == 0 => Rest::Nothing,
        None => Rest::Packed { encoding: opened.encoding, earliest: packed.settle(), run: &*packed.run },
        Some(grown) => Rest::Grown(Opened { grown: Some(Grown { element_count: left, ..grown }), ..*opened }),
    };
    collections::put_rest(op, at, rest, |op| {
        for &(field, has_expired) in removed {
            if has_expired {
                announce_expired_field(op, at, field);
                continue;
            }
            let change = Change::FieldRemoved { field };
            op.announce(Effect::Element { db: at.db, key: at.key, change, is_new: false });
        }
    })
}
