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

use super::locks::KeyLock;
use super::read::Looked;
use super::state::{Keyspace, Local};
use super::write::{copy_record, Put, Step, Was};
use crate::blobs::{Blob, Place};
use crate::effect::Effect;
use crate::stop::{retry, Stop};
use crate::tree::hash::{
    Collection, Content, Grown, Record, RecordValue, PACKED_INLINE_MAX_BYTES, RECORD_MAX_BYTES,
};
use crate::tree::{bad_record, Joining};
use crate::value::{Encoding, ValueType};
use crate::{DbId, Deadline, Fault, Key, OpError, UnixMillis};

/// Stands for a blob that is still to be made.
const SOME_BLOB: Blob =
    Blob { pid: stillframe_pagepool::PageId(0), len_bytes: 0, place: Place::Object { page_count: 0 } };

/// A collection as an operation has found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Opened {
    pub encoding: Encoding,
    /// Not later than any deadline of an element.
    pub earliest: Option<UnixMillis>,
    /// `None`: the elements are packed.
    pub grown: Option<Grown>,
}

/// A collection under its key, as the operations on it take it.
#[derive(Clone, Copy)]
pub(crate) struct CollectionKey<'k> {
    pub db: DbId,
    pub key: Key<'k>,
    pub value_type: ValueType,
}

impl Keyspace {
    /// Finds a collection for an operation that changes it; the key is locked. Packed elements are copied to `run`.
    ///
    /// # Errors
    /// [`OpError::WrongType`], pages that are missing.
    pub fn open_to_change(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        run: &mut Vec<u8>,
    ) -> Result<Option<Opened>, OpError> {
        run.clear();
        match self.open(local, at, run)? {
            Looked::Found(opened) => Ok(Some(opened)),
            Looked::Absent => Ok(None),
            Looked::Expired => {
                self.remove_expired(local, at.db, &at.key)?;
                Ok(None)
            }
        }
    }

    /// Finds a collection for an operation that reads it. Nobody changes it while the lock is held that comes with it.
    ///
    /// # Errors
    /// As of [`Keyspace::open_to_change`].
    pub fn open_to_read<'l>(
        &'l self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        run: &mut Vec<u8>,
    ) -> Result<Option<(Opened, KeyLock<'l>)>, OpError> {
        run.clear();
        let lock = self.locks.lock_key_shared(&local.holder, at.db, at.key.hash);
        match self.open(local, at, run)? {
            Looked::Found(opened) => Ok(Some((opened, lock))),
            Looked::Absent => Ok(None),
            Looked::Expired => {
                drop(lock);
                self.settle(local, at.db, &at.key, Looked::<()>::Expired)?;
                Ok(None)
            }
        }
    }

    fn open(
        &self,
        local: &Local,
        at: &CollectionKey<'_>,
        run: &mut Vec<u8>,
    ) -> Result<Looked<Opened>, OpError> {
        retry(|| {
            self.look(local.now, at.db, &at.key, |met| {
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
                        self.blobs.read(&blob, run)?;
                        None
                    }
                    Content::Trees(grown) => Some(grown),
                };
                self.trees.order.side.touch(met.leaf, local.scratch.tick);
                local.tracked.touch(met.tree_tag, at.key.hash);
                Ok(Opened { encoding: collection.encoding, earliest: collection.earliest, grown })
            })
        })
    }

    /// Stores a collection of packed elements over whatever is there; the key is locked.
    pub fn put_packed(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        encoding: Encoding,
        earliest: Option<UnixMillis>,
        run: &[u8],
        deadline: Deadline,
    ) -> Result<Was, OpError> {
        let mut body = std::mem::take(&mut local.body);
        body.clear();
        let is_inline = run.len() <= PACKED_INLINE_MAX_BYTES;
        let content = if is_inline { Content::Packed(run) } else { Content::Outside(SOME_BLOB) };
        Collection { encoding, earliest, content }.encode(&mut body);
        let value_type = at.value_type;
        let put = match is_inline {
            true => Put::Other { value_type, body: &body },
            false => Put::Run { value_type, body: &body, run },
        };
        let was = self.put(local, at.db, &at.key, put, deadline);
        local.body = body;
        was
    }

    /// Stores a collection of trees that nothing refers to yet over whatever is there; the key is locked. If that fails they are
    /// dropped.
    pub fn put_grown(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        encoding: Encoding,
        earliest: Option<UnixMillis>,
        grown: Grown,
        deadline: Deadline,
    ) -> Result<Was, OpError> {
        let mut body = std::mem::take(&mut local.body);
        body.clear();
        Collection { encoding, earliest, content: Content::Trees(grown) }.encode(&mut body);
        let put = Put::Other { value_type: at.value_type, body: &body };
        let was = self.put(local, at.db, &at.key, put, deadline);
        local.body = body;
        if was.is_err() {
            self.drop_trees(&grown);
        }
        was
    }

    /// Removes the key of a collection that has lost its last element; the key is locked.
    pub fn remove_emptied(&self, local: &mut Local, at: &CollectionKey<'_>) -> Result<(), OpError> {
        self.remove_if(local, at.db, &at.key, Joining::Sparse, |_| true)?;
        self.announce(local, Effect::Delete { db: at.db, key: at.key });
        Ok(())
    }

    /// Removes whatever a key has, without a word of it: a collection takes its place, whose elements follow.
    pub fn make_way(&self, local: &mut Local, db: DbId, key: &Key<'_>) -> Result<(), OpError> {
        let _lock = self.locks.lock_key(&local.holder, db, key.hash);
        self.remove_if(local, db, key, Joining::Sparse, |_| true)?;
        self.announce(local, Effect::Replace { db, key: *key });
        Ok(())
    }

    /// Drops trees that nothing refers to.
    pub fn drop_trees(&self, grown: &Grown) {
        grown.trees().for_each(|tree| self.garbage.push_tree(&self.pool, tree.root));
    }

    /// Notes what has become of a collection whose trees stay; the key is locked and the collection was found under it.
    pub fn set_grown(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: &Opened,
    ) -> Result<(), OpError> {
        let Some(grown) = opened.grown else { return Ok(()) };
        let mut body = std::mem::take(&mut local.body);
        body.clear();
        let content = Content::Trees(grown);
        Collection { encoding: opened.encoding, earliest: opened.earliest, content }.encode(&mut body);
        let set = self.set_body(local, at, &body, opened.earliest.is_some());
        local.body = body;
        set
    }

    fn set_body(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        body: &[u8],
        is_timed: bool,
    ) -> Result<(), OpError> {
        let Some(tree) = self.tree(at.db) else { return Ok(()) };
        loop {
            let step = retry(|| {
                let mut leaf = self.trees.chain_exclusive(tree, at.key.hash, at.key.leaf_hint)?;
                let Some(found) = self.find_exclusive(&leaf, &at.key)? else { return Ok(Step::Done(())) };
                if !is_timed && leaf.replace_body(found, body)? {
                    return Ok(Step::Done(()));
                }
                let old = leaf.record(found)?;
                let old_bytes = old.encoded_bytes();
                let mut copy = [0; RECORD_MAX_BYTES];
                let value = RecordValue::Other { value_type: at.value_type, body };
                let record = Record { value, ..copy_record(old, &mut copy)? };
                if old == record {
                    return Ok(Step::Done(()));
                }
                let record_bytes = record.encoded_bytes();
                let Some(found) = self.place_for(&mut leaf, found, old_bytes, record_bytes)? else {
                    return Ok(Step::NoRoom(record_bytes));
                };
                leaf.replace(found, &record)?;
                if let Some(earliest) = record.earliest_deadline() {
                    self.trees.order.side.add_deadline(leaf.head.id(), earliest);
                }
                Ok(Step::Done(()))
            })?;
            match step {
                Step::Done(()) => return Ok(()),
                Step::NoRoom(bytes) => {
                    retry(|| self.trees.make_room(&mut local.scratch, tree, at.key.hash, bytes))?
                }
            }
        }
    }

    /// Makes sure that so many values can be stored outside of their leaves, and as many dropped, without a page that is missing.
    ///
    /// # Errors
    /// [`OpError::Fault`]; [`OpError::Damaged`] if it would be met after the first change.
    pub fn resolve_slabs(&self, change_count: usize) -> Result<(), OpError> {
        if change_count == 0 || self.pages.all_resident() {
            return Ok(());
        }
        let mut missing = Vec::new();
        retry(|| self.blobs.slabs.resolve(change_count, &mut missing))?;
        match missing.is_empty() {
            true => Ok(()),
            false => Err(Fault::of(missing).into()),
        }
    }
}
