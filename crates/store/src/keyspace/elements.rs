//! The elements of a large hash or set: records of a tree of their own, in the order of their hashes, as keys are.
//!
//! What holds for keys holds for them: values outside of their leaves, deadlines, walks with a cursor that give each
//! element once. But nobody counts them, and nobody remembers when they were used. The key is locked.

use std::hash::Hasher;
use std::ops::ControlFlow;

use stillframe_pagepool::PageId;

use super::missed::Missed;
use super::op::Op;
use super::state::Keyspace;
use super::write::{self, Attempt, Put, Was};
use super::{find, resolve, scan, update};
use crate::blobs::{Bytes, Given, Incoming, Made, Taking};
use crate::stop::{retry, Stop};
use crate::tree::hash::{as_leaf, Grown, Record, RecordKey, RecordValue};
use crate::tree::{bad_record, Joining, Tree, NO_DATABASE};
use crate::{Deadline, Key, OpError, UnixMillis};

/// A whole walk: so many elements as there are.
const ALL: usize = usize::MAX;

/// An element or a key with its hash.
#[inline]
pub fn hashed<'b>(keyspace: &Keyspace, bytes: &'b [u8]) -> Key<'b> {
    Key::new(bytes, keyspace.trees.order.hash(bytes))
}

/// The same where a batch may have looked for the element ahead.
#[inline]
pub fn hashed_ahead<'b>(op: &Op<'_>, bytes: &'b [u8]) -> Key<'b> {
    match op.local.ahead {
        Some((at, len, key)) if at == bytes.as_ptr() as usize && len == bytes.len() => key.attach(bytes),
        _ => hashed(op.keyspace, bytes),
    }
}

/// The same of one that may lie in pages.
///
/// # Errors
/// [`OpError::Damaged`]: it does, and cannot be read.
#[inline]
pub fn hashed_bytes<'b>(op: &Op<'_>, bytes: &'b Bytes<'b>) -> Result<Key<'b>, OpError> {
    match bytes {
        Bytes::Here(bytes) => Ok(hashed_ahead(op, bytes)),
        _ => hashed_large(op.keyspace, bytes),
    }
}

#[cold]
fn hashed_large<'b>(keyspace: &Keyspace, bytes: &'b Bytes<'b>) -> Result<Key<'b>, OpError> {
    let order = &keyspace.trees.order;
    let (start, hash) = match bytes {
        Bytes::Incoming(incoming) => (incoming.head(), incoming.hash()),
        Bytes::Here(bytes) => (*bytes, None),
        Bytes::Stored(sending) => (sending.head()?, None),
    };
    let hash = match hash {
        Some(hash) => order.masked(hash),
        None => {
            let mut hasher = order.hasher();
            bytes.for_each(|part| hasher.write(part))?;
            order.masked(hasher.finish())
        }
    };
    Ok(Key { large: Some(bytes), ..Key::new(start, hash) })
}

/// Whether what is given can be stored: what has come into pages is whole, and given once; what lies in pages is this store's.
///
/// # Errors
/// [`OpError::Incomplete`], [`OpError::Used`], [`OpError::OtherStore`].
#[inline]
pub fn check_given<'e>(
    keyspace: &Keyspace,
    given: impl Iterator<Item = &'e Bytes<'e>> + Clone,
) -> Result<(), OpError> {
    match given.clone().all(|bytes| matches!(bytes, Bytes::Here(_))) {
        true => Ok(()),
        false => check_large(keyspace, &given.copied().collect::<Vec<_>>()),
    }
}

#[cold]
fn check_large(keyspace: &Keyspace, given: &[Bytes<'_>]) -> Result<(), OpError> {
    let mut seen = Vec::new();
    for bytes in given {
        match bytes {
            Bytes::Here(_) => {}
            Bytes::Stored(sending) => keyspace.blobs.check_own(sending)?,
            Bytes::Incoming(incoming) => {
                let pid = keyspace.blobs.unused(incoming)?.pid;
                if seen.contains(&pid) {
                    return Err(OpError::Used);
                }
                seen.push(pid);
            }
        }
    }
    Ok(())
}

/// A tree without elements.
pub fn create_elements(keyspace: &Keyspace) -> Result<Tree, OpError> {
    let tag = keyspace.take_tag();
    let root = retry(|| keyspace.trees.create(tag))?;
    Ok(Tree { db: NO_DATABASE, root, tag })
}

/// Gives the record of an element to `f`, under its leaf's latch; `None` if there is none.
#[inline]
pub fn find_element<R>(
    keyspace: &Keyspace,
    tree: Tree,
    element: &Key<'_>,
    mut f: impl FnMut(&Record<'_>) -> Result<R, Stop>,
) -> Result<Option<R>, OpError> {
    retry(|| {
        let Some((_, guard, slot)) = find::find_shared(keyspace, tree, element)? else { return Ok(None) };
        let leaf = as_leaf(guard.id(), guard.page())?;
        f(&leaf.record(slot).ok_or_else(|| bad_record(guard.id()))?).map(Some)
    })
}

/// Whether an element is there.
#[inline]
pub fn has_element(keyspace: &Keyspace, tree: Tree, element: &Key<'_>) -> Result<bool, OpError> {
    Ok(find_element(keyspace, tree, element, |_| Ok(()))?.is_some())
}

/// Makes sure that a change of an element meets no page that is missing, but for slabs that what is new goes to.
pub fn resolve_element(keyspace: &Keyspace, tree: Tree, element: &Key<'_>) -> Result<(), OpError> {
    find_element(keyspace, tree, element, |record| resolve::resolve_outside(keyspace, record)).map(drop)
}

/// The same of several elements.
pub fn resolve_elements<'e>(
    op: &Op<'_>,
    tree: Tree,
    elements: impl IntoIterator<Item = &'e Bytes<'e>>,
) -> Result<(), OpError> {
    if op.keyspace.pages.all_resident() {
        return Ok(());
    }
    let mut missed = Missed::default();
    for element in elements {
        missed.look(resolve_element(op.keyspace, tree, &hashed_bytes(op, element)?))?;
    }
    missed.end()
}

/// Stores an element with its value. Whether it was there before.
pub fn put_element(
    op: &mut Op<'_>,
    tree: Tree,
    element: &Key<'_>,
    value: Bytes<'_>,
    deadline: Deadline,
) -> Result<bool, OpError> {
    Ok(put_timed_element(op, tree, element, value, deadline)? != Was::Absent)
}

/// The same where elements have deadlines.
pub fn put_timed_element(
    op: &mut Op<'_>,
    tree: Tree,
    element: &Key<'_>,
    value: Bytes<'_>,
    deadline: Deadline,
) -> Result<Was, OpError> {
    let mut copy = Vec::new();
    let put = match value {
        Bytes::Here(bytes) => Put::Bytes { bytes, raw: false },
        Bytes::Incoming(incoming) => Put::Ready { blob: op.keyspace.blobs.unused(incoming)?, raw: false },
        Bytes::Stored(sending) => {
            sending.for_each(|part| copy.extend_from_slice(part))?;
            Put::Bytes { bytes: &copy, raw: false }
        }
    };
    let was = write::put_in(op, tree, element, put, deadline)?;
    if let Bytes::Incoming(incoming) = value {
        incoming.note_used();
    }
    Ok(was)
}

/// Puts what `renew` makes of an element's value in its place, in one descent; the deadline stays. `None` if it has not: the
/// element is not there, its time is over, its value lies outside of its leaf, or `renew` does not want to.
pub fn renew_element<T: AsRef<[u8]>>(
    op: &mut Op<'_>,
    tree: Tree,
    element: &Key<'_>,
    mut renew: impl FnMut(&[u8]) -> Option<T>,
) -> Result<Option<T>, OpError> {
    loop {
        match retry(|| renew_step(op, tree, element, &mut renew))? {
            Attempt::Done(renewed) => return Ok(renewed),
            Attempt::NoRoom(bytes) => {
                retry(|| op.keyspace.trees.make_room(&mut op.local.scratch, tree, element.hash, bytes))?
            }
        }
    }
}

#[inline]
fn renew_step<T: AsRef<[u8]>>(
    op: &Op<'_>,
    tree: Tree,
    element: &Key<'_>,
    renew: &mut impl FnMut(&[u8]) -> Option<T>,
) -> Result<Attempt<Option<T>>, Stop> {
    let leaf = op.keyspace.trees.chain_exclusive(tree, element.hash, element.leaf_hint)?;
    let Some(at) = find::find_exclusive(op.keyspace, &leaf, element)? else { return Ok(Attempt::Done(None)) };
    let old = leaf.record(at)?;
    let is_live = old.deadline.is_none_or(|deadline| deadline > op.local.now);
    let renewed = match old.value {
        RecordValue::Bytes(bytes) if is_live => renew(bytes),
        _ => None,
    };
    let Some(value) = renewed else { return Ok(Attempt::Done(None)) };
    let put = Put::Bytes { bytes: value.as_ref(), raw: false };
    let step = write::replace_step(op, tree, leaf, at, element, put, Deadline::Keep)?;
    Ok(match step {
        Attempt::Done(_) => Attempt::Done(Some(value)),
        Attempt::NoRoom(bytes) => Attempt::NoRoom(bytes),
    })
}

/// Gives an element a deadline, or takes it away. One whose time is over stays as it is.
pub fn set_element_deadline(
    op: &mut Op<'_>,
    tree: Tree,
    element: &Key<'_>,
    deadline: Option<UnixMillis>,
) -> Result<Was, OpError> {
    loop {
        match retry(|| update::set_deadline_step(op, tree, element, deadline))? {
            Attempt::Done(was) => return Ok(was),
            Attempt::NoRoom(bytes) => {
                retry(|| op.keyspace.trees.make_room(&mut op.local.scratch, tree, element.hash, bytes))?
            }
        }
    }
}

/// Removes an element; whether it was there.
pub fn remove_element(op: &mut Op<'_>, tree: Tree, element: &Key<'_>) -> Result<bool, OpError> {
    Ok(write::remove_in(op, tree, element, Joining::Sparse, |_| true, |_, _| ())?.is_some())
}

/// The same where elements have deadlines.
pub fn remove_timed_element(op: &mut Op<'_>, tree: Tree, element: &Key<'_>) -> Result<Was, OpError> {
    let removed = write::remove_in(op, tree, element, Joining::Sparse, |_| true, |_, _| ())?;
    Ok(match removed {
        None => Was::Absent,
        Some(remains) if remains.has_expired(op.local.now) => Was::Expired,
        Some(_) => Was::There,
    })
}

/// Gives the value of an element's record to `f`, a large one by reference if that is wanted; `buffer` is for one that lies
/// outside of its leaf.
#[inline]
pub fn give_element_value<R>(
    keyspace: &Keyspace,
    record: &Record<'_>,
    taking: Taking,
    buffer: &mut Vec<u8>,
    f: impl FnOnce(Given<'_>) -> R,
) -> Result<R, Stop> {
    match record.value {
        RecordValue::Bytes(bytes) => Ok(f(Given::Here(bytes))),
        RecordValue::Blob(blob) => keyspace.blobs.give(&blob, taking, buffer, f),
        RecordValue::Int(_) | RecordValue::Other { .. } => {
            Err(Stop::Damaged("an element has a value that no element has".into()))
        }
    }
}

/// Bytes of the value of an element's record.
pub fn element_value_bytes(record: &Record<'_>) -> Result<u64, Stop> {
    match record.value {
        RecordValue::Bytes(bytes) => Ok(bytes.len() as u64),
        RecordValue::Blob(blob) => Ok(u64::from(blob.len_bytes)),
        RecordValue::Int(_) | RecordValue::Other { .. } => {
            Err(Stop::Damaged("an element has a value that no element has".into()))
        }
    }
}

/// One step of a walk with a cursor, as [`scan`](super::scan::scan): gives about `count` elements and their records to `f`.
pub fn scan_elements(
    op: &mut Op<'_>,
    tree: Tree,
    cursor: u64,
    count: usize,
    mut f: impl FnMut(&[u8], &Record<'_>),
) -> Result<u64, OpError> {
    scan::scan_tree(op, tree, cursor, count, |op, record, _| {
        let mut buffer = std::mem::take(&mut op.local.bytes);
        let given = scan::with_key(op.keyspace, record, &mut buffer, |element| f(element, record));
        op.local.bytes = buffer;
        given
    })
}

/// The same with their values, until `f` breaks: then nothing more is given.
pub fn scan_element_values(
    op: &mut Op<'_>,
    tree: Tree,
    cursor: u64,
    count: usize,
    mut f: impl FnMut(Given<'_>, Given<'_>, &Record<'_>) -> ControlFlow<()>,
) -> Result<u64, OpError> {
    let (mut value, mut flow, taking) = (Vec::new(), ControlFlow::Continue(()), op.local.taking);
    scan::scan_tree(op, tree, cursor, count, |op, record, _| {
        if flow.is_break() {
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut op.local.bytes);
        let given = scan::give_key(op.keyspace, record, taking, &mut buffer, |element| {
            give_element_value(op.keyspace, record, taking, &mut value, |value| {
                flow = f(element, value, record)
            })
        });
        op.local.bytes = buffer;
        given?
    })
}

/// Gives all elements and their values to `f`, in the order of their hashes, until it breaks.
///
/// # Errors
/// [`OpError::Damaged`] also if there are not as many as the key says: what was given is not the collection.
pub fn for_each_element(
    op: &mut Op<'_>,
    grown: &Grown,
    mut f: impl FnMut(Given<'_>, Given<'_>, &Record<'_>) -> ControlFlow<()>,
) -> Result<(), OpError> {
    let (mut cursor, mut given_count, mut flow) = (0, 0, ControlFlow::Continue(()));
    loop {
        // A walk ends early before a page that is missing: it is met again by the next.
        cursor = scan_element_values(op, grown.first, cursor, ALL, |element, value, record| {
            given_count += 1;
            flow = f(element, value, record);
            flow
        })?;
        if cursor == 0 || flow.is_break() {
            break;
        }
    }
    match flow.is_break() || given_count == grown.element_count {
        true => Ok(()),
        false => Err(other_count()),
    }
}

/// Elements whose time is not over at `now`.
pub fn count_live_elements(op: &mut Op<'_>, tree: Tree, now: UnixMillis) -> Result<u64, OpError> {
    let (mut live_count, mut cursor) = (0, 0);
    loop {
        cursor = scan::scan_tree(op, tree, cursor, ALL, |_, record, _| {
            live_count += u64::from(record.deadline.is_none_or(|deadline| deadline > now));
            Ok(())
        })?;
        if cursor == 0 {
            return Ok(live_count);
        }
    }
}

/// How many elements one of a tree's leaves has.
pub fn elements_of_a_leaf(keyspace: &Keyspace, tree: Tree) -> Result<u64, OpError> {
    retry(|| {
        let guard = keyspace.trees.leaf_shared(tree, 0, None)?;
        Ok(as_leaf(guard.id(), guard.page())?.count() as u64)
    })
}

/// A copy of the elements of a hash or set in a tree of its own.
pub fn copy_elements(op: &mut Op<'_>, from: &Grown, made: Made<'_>) -> Result<Tree, OpError> {
    if !op.keyspace.pages.all_resident() {
        // Everything is there before anything is made, but for what is long.
        op.local.taking = Taking::Large;
        let walked = for_each_element(op, from, |_, _, _| ControlFlow::Continue(()));
        op.local.taking = Taking::Bytes;
        walked?;
    }
    let to = create_elements(op.keyspace)?;
    match copy_all_elements(op, from.first, to, made) {
        Ok(copied_count) if copied_count == from.element_count => Ok(to),
        copied => {
            op.keyspace.garbage.push_tree(&op.keyspace.pool, to.root);
            Err(copied.err().unwrap_or_else(other_count))
        }
    }
}

/// How many there were.
fn copy_all_elements(op: &mut Op<'_>, from: Tree, to: Tree, made: Made<'_>) -> Result<u64, OpError> {
    let (mut cursor, mut copies, mut copied_count) = (0, Vec::new(), 0);
    loop {
        let mut buffer = Vec::new();
        copies.clear();
        cursor = scan::scan_tree(op, from, cursor, COPIED_TOGETHER, |_, record, _: PageId| {
            let copy = |bytes: Given<'_>| bytes.held().to_vec();
            let made_name = match record.key {
                RecordKey::Out { blob, .. } => made.copy_of(&blob),
                _ => None,
            };
            let name = match made_name {
                Some(name) => Copied::Made(name),
                None => Copied::Here(scan::give_key(op.keyspace, record, Taking::Bytes, &mut buffer, copy)?),
            };
            let made_value = match record.value {
                RecordValue::Blob(blob) => made.copy_of(&blob),
                _ => None,
            };
            let value = match made_value {
                Some(value) => Copied::Made(value),
                None => {
                    Copied::Here(give_element_value(op.keyspace, record, Taking::Bytes, &mut buffer, copy)?)
                }
            };
            copies.push((name, value, record.deadline));
            Ok(())
        })?;
        for (name, value, deadline) in &copies {
            let deadline = deadline.map_or(Deadline::Clear, Deadline::At);
            let (name, value) = (name.bytes(), value.bytes());
            put_element(op, to, &hashed_bytes(op, &name)?, value, deadline)?;
        }
        copied_count += copies.len() as u64;
        if cursor == 0 {
            return Ok(copied_count);
        }
    }
}

#[cold]
fn other_count() -> OpError {
    OpError::Damaged("a hash or set has another number of elements than its key says".into())
}

/// What is to be copied of an element.
enum Copied<'c> {
    Here(Vec<u8>),
    /// A copy has been made.
    Made(&'c Incoming),
}

impl Copied<'_> {
    fn bytes(&self) -> Bytes<'_> {
        match self {
            Copied::Here(bytes) => Bytes::Here(bytes),
            Copied::Made(copy) => Bytes::Incoming(copy),
        }
    }
}

/// Elements that are copied out of their leaves before they are stored anew.
const COPIED_TOGETHER: usize = 256;
