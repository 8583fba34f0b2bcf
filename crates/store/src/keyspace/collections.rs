//! Collections as values of keys: how an operation of a type comes to the elements, and puts back what has become of them.
//!
//! ```text
//!              put_packed                    put_grown
//!   absent ───────────────▶ packed ───────────────────────▶ trees ─┐ set_grown
//!      ▲                     │  ▲ └ put_packed                 │  ▲ └──┘
//!      └──── remove ─────────┴──────────────── remove ─────────┘
//! ```
//! Packed elements are copied out of their page and back, at most 4 KB. Trees belong to their key alone: who removes or
//! replaces the record drops them, in constant time. A collection without elements is no collection: the key goes.

use std::sync::atomic::Ordering;

use stillframe_pagepool::{is_looking, PageId};

use super::find;
use super::locks::KeyLock;
use super::op::Op;
use super::read::{self, Looked};
use super::state::Keyspace;
use super::write::{self, copy_record, Attempt, Put, Was};
use crate::blobs::{Blob, BlobPlace, Part, SlabNeeds, BLOB_BYTES};
use crate::effect::Effect;
use crate::pages::Admitted;
use crate::stop::{retry, Stop};
use crate::tree::hash::{
    Collection, Content, Grown, Record, RecordValue, PACKED_INLINE_MAX_BYTES, RECORD_MAX_BYTES,
};
use crate::tree::{bad_record, Joining};
use crate::value::{Encoding, ValueType, MAX_STRING_BYTES};
use crate::{DbId, Deadline, Fault, Key, OpError, UnixMillis};

/// Stands for a blob that is still to be made.
const SOME_BLOB: Blob = Blob { pid: PageId(0), len_bytes: 0, place: BlobPlace::Object { page_count: 0 } };

/// A collection as an operation has found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Opened {
    pub encoding: Encoding,
    /// Not later than any deadline of an element.
    pub earliest: Option<UnixMillis>,
    /// `None`: the elements are packed.
    pub grown: Option<Grown>,
}

/// What is left of a collection that has lost elements.
pub(crate) enum Rest<'r> {
    /// The key goes.
    Nothing,
    Packed {
        encoding: Encoding,
        earliest: Option<UnixMillis>,
        run: &'r [u8],
    },
    /// Its trees have lost them already.
    Grown(Opened),
}

/// A collection under its key, as the operations on it take it.
#[derive(Clone, Copy)]
pub(crate) struct CollectionKey<'k> {
    pub db: DbId,
    pub key: Key<'k>,
    pub value_type: ValueType,
}

/// Finds a collection for an operation that changes it; the key is locked. Packed elements are copied to `run`.
///
/// # Errors
/// [`OpError::WrongType`], pages that are missing.
pub fn open_to_change(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    run: &mut Vec<u8>,
) -> Result<Option<Opened>, OpError> {
    run.clear();
    match open(op, at, run)? {
        Looked::Found(opened) => Ok(Some(opened)),
        Looked::Absent => Ok(None),
        Looked::Expired if is_looking() => Ok(None),
        Looked::Expired => {
            write::remove_expired(op, at.db, &at.key)?;
            Ok(None)
        }
    }
}

/// Finds a collection for an operation that reads it. Nobody changes it while the lock is held that comes with it.
///
/// # Errors
/// As of [`open_to_change`].
pub fn open_to_read<'l>(
    op: &mut Op<'l>,
    at: &CollectionKey<'_>,
    run: &mut Vec<u8>,
) -> Result<Option<(Opened, KeyLock<'l>)>, OpError> {
    run.clear();
    let lock = op.keyspace.locks.lock_key_shared(&op.local.holder, at.db, at.key.hash);
    match open(op, at, run)? {
        Looked::Found(opened) => Ok(Some((opened, lock))),
        Looked::Absent => Ok(None),
        Looked::Expired => {
            drop(lock);
            read::settle(op, at.db, &at.key, Looked::<()>::Expired)?;
            Ok(None)
        }
    }
}

fn open(op: &Op<'_>, at: &CollectionKey<'_>, run: &mut Vec<u8>) -> Result<Looked<Opened>, OpError> {
    retry(|| {
        read::look(op.keyspace, op.local.now, at.db, &at.key, |met| {
            run.clear();
            if met.record.value_type() != at.value_type {
                return Err(Stop::WrongType);
            }
            let collection = met.record.collection().ok_or_else(|| bad_record(met.leaf))?;
            let grown = match collection.content {
                Content::Packed(elements) => {
                    run.extend_from_slice(elements);
                    None
                }
                Content::Outside(blob) => {
                    op.keyspace.blobs.read(&blob, run)?;
                    None
                }
                Content::Trees(grown) => Some(grown),
            };
            op.keyspace.trees.order.side.touch(met.leaf, op.local.scratch.tick);
            op.local.tracked.touch(met.tree_tag, at.key.hash);
            Ok(Opened { encoding: collection.encoding, earliest: collection.earliest, grown })
        })
    })
}

/// Stores a collection of packed elements over whatever is there; the key is locked.
pub fn put_packed(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    encoding: Encoding,
    earliest: Option<UnixMillis>,
    run: &[u8],
    deadline: Deadline,
) -> Result<Was, OpError> {
    let mut body = std::mem::take(&mut op.local.body);
    body.clear();
    let is_inline = run.len() <= PACKED_INLINE_MAX_BYTES;
    let content = if is_inline { Content::Packed(run) } else { Content::Outside(SOME_BLOB) };
    Collection { encoding, earliest, content }.encode(&mut body);
    let value_type = at.value_type;
    let put = match is_inline {
        true => Put::Other { value_type, body: &body },
        false => Put::Run { value_type, body: &body, run },
    };
    let was = write::put(op, at.db, &at.key, put, deadline);
    op.local.body = body;
    was
}

/// Stores a collection of trees that nothing refers to yet over whatever is there; the key is locked. If that fails they are
/// dropped.
pub fn put_grown(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    encoding: Encoding,
    earliest: Option<UnixMillis>,
    grown: Grown,
    deadline: Deadline,
) -> Result<Was, OpError> {
    let mut body = std::mem::take(&mut op.local.body);
    body.clear();
    Collection { encoding, earliest, content: Content::Trees(grown) }.encode(&mut body);
    let put = Put::Other { value_type: at.value_type, body: &body };
    let was = write::put(op, at.db, &at.key, put, deadline);
    op.local.body = body;
    if was.is_err() {
        drop_trees(op.keyspace, &grown);
    }
    was
}

/// Stores what is left of packed elements; the key is locked and the collection was found under it. No memory is needed for
/// that: where there is none, they stay in the place outside of the leaf that they had.
pub fn put_shrunk(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    encoding: Encoding,
    earliest: Option<UnixMillis>,
    run: &[u8],
) -> Result<(), OpError> {
    match put_packed(op, at, encoding, earliest, run, Deadline::Keep) {
        Ok(_) => Ok(()),
        // For another place there are no pages, or they cannot be had.
        Err(error @ (OpError::OutOfMemory { .. } | OpError::NoRoom | OpError::Damaged(_))) => {
            let stayed = retry(|| put_in_place(op, at, encoding, earliest, run))?;
            stayed.then_some(()).ok_or(error)
        }
        Err(error) => Err(error),
    }
}

/// Puts packed elements where those lie that are there. False if these are not outside of their leaf, or are fewer.
#[cold]
fn put_in_place(
    op: &Op<'_>,
    at: &CollectionKey<'_>,
    encoding: Encoding,
    earliest: Option<UnixMillis>,
    run: &[u8],
) -> Result<bool, Stop> {
    let Some(tree) = op.keyspace.tree(at.db) else { return Ok(false) };
    let mut leaf = op.keyspace.trees.chain_exclusive(tree, at.key.hash, at.key.leaf_hint)?;
    let Some(found) = find::find_exclusive(op.keyspace, &leaf, &at.key)? else { return Ok(false) };
    let old = leaf.record(found)?;
    let Some(Collection { content: Content::Outside(blob), earliest: before, .. }) = old.collection() else {
        return Ok(false);
    };
    // A deadline more would make the record longer.
    if run.len() > blob.len_bytes as usize || earliest.is_some() && before.is_none() {
        return Ok(false);
    }
    let mut body = Vec::with_capacity(1 + 8 + BLOB_BYTES);
    let content = Content::Outside(Blob { len_bytes: run.len() as u32, ..blob });
    Collection { encoding, earliest, content }.encode(&mut body);
    let mut copy = [0; RECORD_MAX_BYTES];
    let value = RecordValue::Other { value_type: at.value_type, body: &body };
    let record = Record { value, ..copy_record(old, &mut copy)? };
    op.keyspace.blobs.overwrite(&blob, 0, &[Part::Bytes(run)])?;
    leaf.replace(found, &record)?;
    write::note_written(op, tree, &leaf, record.deadline, &record);
    op.local.tracked.touch(tree.tag, at.key.hash);
    Ok(true)
}

/// Puts back a collection that has lost elements, and then has `tell` announce which: of a key that goes, before its trees
/// do. The key is locked.
///
/// # Errors
/// [`OpError`]; nothing has been changed or told, but that the elements of trees have gone, which is told.
pub fn put_rest(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    rest: Rest<'_>,
    tell: impl FnOnce(&Op<'_>),
) -> Result<(), OpError> {
    match rest {
        Rest::Nothing => {
            write::remove_if_then(op, at.db, &at.key, Joining::Sparse, |_| true, tell)?;
            op.announce(Effect::Delete { db: at.db, key: at.key });
            Ok(())
        }
        Rest::Packed { encoding, earliest, run } => {
            put_shrunk(op, at, encoding, earliest, run)?;
            tell(op);
            Ok(())
        }
        Rest::Grown(opened) => {
            let noted = set_grown(op, at, &opened);
            tell(op);
            noted
        }
    }
}

/// One step of an operation on many elements. Once one of them has been changed the operation comes to its end: pages that
/// others have brought to the front of the slabs' lists since they were looked for are read in place, and no cut comes between
/// (C1).
pub fn step_of_many<R>(
    op: &mut Op<'_>,
    has_begun: bool,
    mut step: impl FnMut(&mut Op<'_>) -> Result<R, OpError>,
) -> Result<R, OpError> {
    loop {
        match step(op) {
            Err(OpError::Fault(fault)) if has_begun && fault.names_pages() => {
                let mut pages = Vec::new();
                fault.add_to(&mut pages);
                load_in_place(op.keyspace, &pages);
            }
            result => return result,
        }
    }
}

/// Reads pages while the operation that misses them stands still with what it has changed.
#[cold]
pub fn load_in_place(keyspace: &Keyspace, pages: &[PageId]) {
    keyspace.pool.residency().load_at_once(pages);
    let metrics = keyspace.pool.metrics();
    metrics.in_place_page_count.fetch_add(pages.len() as u64, Ordering::Relaxed);
    metrics.in_place_wait_count.fetch_add(1, Ordering::Relaxed);
}

/// Decides on an operation that stores `count` elements, of pieces of these lengths, before the first of them. One alone is
/// decided on where it needs a page.
///
/// # Errors
/// [`OpError::OutOfMemory`]; [`OpError::TooLarge`]: one of them is longer than any may be.
pub fn admit_elements(
    keyspace: &Keyspace,
    count: usize,
    lengths: impl Iterator<Item = usize>,
) -> Result<Option<Admitted>, OpError> {
    if count < 2 {
        return Ok(None);
    }
    let mut bytes = 0;
    for len in lengths.map(|len| len as u64) {
        if len > MAX_STRING_BYTES {
            return Err(OpError::TooLarge);
        }
        bytes += len;
    }
    Ok(Some(keyspace.pages.admit_together(bytes)?))
}

/// Removes whatever a key has, without a word of it: a collection takes its place, whose elements follow.
pub fn make_way(op: &mut Op<'_>, db: DbId, key: &Key<'_>) -> Result<(), OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, db, key.hash);
    write::remove_if(op, db, key, Joining::Sparse, |_| true)?;
    op.announce(Effect::Replace { db, key: *key });
    Ok(())
}

/// Drops trees that nothing refers to.
pub fn drop_trees(keyspace: &Keyspace, grown: &Grown) {
    grown.trees().for_each(|tree| keyspace.garbage.push_tree(&keyspace.pool, tree.root));
}

/// Notes what has become of a collection whose trees stay; the key is locked and the collection was found under it. Its
/// elements have been changed by then, so memory is not refused.
pub fn set_grown(op: &mut Op<'_>, at: &CollectionKey<'_>, opened: &Opened) -> Result<(), OpError> {
    let Some(grown) = opened.grown else { return Ok(()) };
    let mut body = std::mem::take(&mut op.local.body);
    body.clear();
    let content = Content::Trees(grown);
    Collection { encoding: opened.encoding, earliest: opened.earliest, content }.encode(&mut body);
    let set = set_body(op, at, &body, opened.earliest.is_some());
    op.local.body = body;
    set
}

fn set_body(op: &mut Op<'_>, at: &CollectionKey<'_>, body: &[u8], is_timed: bool) -> Result<(), OpError> {
    let Some(tree) = op.keyspace.tree(at.db) else { return Ok(()) };
    loop {
        let step = retry(|| {
            let mut leaf = op.keyspace.trees.chain_exclusive(tree, at.key.hash, at.key.leaf_hint)?;
            let Some(found) = find::find_exclusive(op.keyspace, &leaf, &at.key)? else {
                return Ok(Attempt::Done(()));
            };
            if !is_timed && leaf.replace_body(found, body)? {
                return Ok(Attempt::Done(()));
            }
            let old = leaf.record(found)?;
            let old_bytes = old.encoded_bytes();
            let mut copy = [0; RECORD_MAX_BYTES];
            let value = RecordValue::Other { value_type: at.value_type, body };
            let record = Record { value, ..copy_record(old, &mut copy)? };
            if old == record {
                return Ok(Attempt::Done(()));
            }
            let record_bytes = record.encoded_bytes();
            let Some(found) = write::place_for(op.keyspace, &mut leaf, found, old_bytes, record_bytes)?
            else {
                return Ok(Attempt::NoRoom(record_bytes));
            };
            leaf.replace(found, &record)?;
            if let Some(earliest) = record.earliest_deadline() {
                op.keyspace.trees.order.side.add_deadline(leaf.head.id(), earliest);
            }
            Ok(Attempt::Done(()))
        })?;
        match step {
            Attempt::Done(()) => return Ok(()),
            Attempt::NoRoom(bytes) => {
                let _admitted = op.keyspace.pages.admit_all();
                retry(|| op.keyspace.trees.make_room(&mut op.local.scratch, tree, at.key.hash, bytes))?
            }
        }
    }
}

/// Makes sure that these things can be stored outside of their leaves without a page that is missing.
///
/// # Errors
/// [`OpError::Fault`]; [`OpError::Damaged`] if it would be met after the first change.
pub fn resolve_slabs(keyspace: &Keyspace, stored: &SlabNeeds) -> Result<(), OpError> {
    if keyspace.pages.all_resident() {
        return Ok(());
    }
    let mut missing = Vec::new();
    retry(|| keyspace.blobs.slabs.resolve(stored, &mut missing))?;
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Fault::of(missing).into()),
    }
}

/// The same of things whose lengths in bytes are known.
pub fn resolve_stored(keyspace: &Keyspace, lens_bytes: impl Iterator<Item = usize>) -> Result<(), OpError> {
    match keyspace.pages.all_resident() {
        true => Ok(()),
        false => resolve_slabs(keyspace, &SlabNeeds::of(lens_bytes)),
    }
}
