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

use super::locks::KeyLock;
use super::read::Looked;
use super::state::{Keyspace, Local};
use super::write::{copy_record, Put, Step, Was};
use crate::blobs::{Blob, Part, Place, SlabNeeds, BLOB_BYTES};
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
const SOME_BLOB: Blob = Blob { pid: PageId(0), len_bytes: 0, place: Place::Object { page_count: 0 } };

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
            Looked::Expired if is_looking() => Ok(None),
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

    /// Stores what is left of packed elements; the key is locked and the collection was found under it. No memory is needed for
    /// that: where there is none, they stay in the place outside of the leaf that they had.
    pub fn put_shrunk(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        encoding: Encoding,
        earliest: Option<UnixMillis>,
        run: &[u8],
    ) -> Result<(), OpError> {
        match self.put_packed(local, at, encoding, earliest, run, Deadline::Keep) {
            Ok(_) => Ok(()),
            // For another place there are no pages, or they cannot be had.
            Err(error @ (OpError::OutOfMemory { .. } | OpError::NoRoom | OpError::Damaged(_))) => {
                let stayed = retry(|| self.put_in_place(local, at, encoding, earliest, run))?;
                stayed.then_some(()).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Puts packed elements where those lie that are there. False if these are not outside of their leaf, or are fewer.
    #[cold]
    fn put_in_place(
        &self,
        local: &Local,
        at: &CollectionKey<'_>,
        encoding: Encoding,
        earliest: Option<UnixMillis>,
        run: &[u8],
    ) -> Result<bool, Stop> {
        let Some(tree) = self.tree(at.db) else { return Ok(false) };
        let mut leaf = self.trees.chain_exclusive(tree, at.key.hash, at.key.leaf_hint)?;
        let Some(found) = self.find_exclusive(&leaf, &at.key)? else { return Ok(false) };
        let old = leaf.record(found)?;
        let Some(Collection { content: Content::Outside(blob), earliest: before, .. }) = old.collection()
        else {
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
        self.blobs.overwrite(&blob, 0, &[Part::Bytes(run)])?;
        leaf.replace(found, &record)?;
        self.note_written(local, tree, &leaf, record.deadline, &record);
        local.tracked.touch(tree.tag, at.key.hash);
        Ok(true)
    }

    /// Puts back a collection that has lost elements, and then has `tell` announce which: of a key that goes, before its trees
    /// do. The key is locked.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed or told, but that the elements of trees have gone, which is told.
    pub fn put_rest(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        rest: Rest<'_>,
        tell: impl FnOnce(&Local),
    ) -> Result<(), OpError> {
        match rest {
            Rest::Nothing => {
                self.remove_if_then(local, at.db, &at.key, Joining::Sparse, |_| true, tell)?;
                self.announce(local, Effect::Delete { db: at.db, key: at.key });
                Ok(())
            }
            Rest::Packed { encoding, earliest, run } => {
                self.put_shrunk(local, at, encoding, earliest, run)?;
                tell(local);
                Ok(())
            }
            Rest::Grown(opened) => {
                let noted = self.set_grown(local, at, &opened);
                tell(local);
                noted
            }
        }
    }

    /// One step of an operation on many elements. Once one of them has been changed the operation comes to its end: pages that
    /// others have brought to the front of the slabs' lists since they were looked for are read in place, and no cut comes between
    /// (C1).
    pub fn step_of_many<R>(
        &self,
        has_begun: bool,
        local: &mut Local,
        mut step: impl FnMut(&mut Local) -> Result<R, OpError>,
    ) -> Result<R, OpError> {
        loop {
            match step(local) {
                Err(OpError::Fault(fault)) if has_begun && fault.names_pages() => {
                    let mut pages = Vec::new();
                    fault.add_to(&mut pages);
                    self.load_in_place(&pages);
                }
                result => return result,
            }
        }
    }

    /// Reads pages while the operation that misses them stands still with what it has changed.
    #[cold]
    pub fn load_in_place(&self, pages: &[PageId]) {
        self.pool.load_at_once(pages);
        let metrics = self.pool.metrics();
        metrics.in_place_page_count.fetch_add(pages.len() as u64, Ordering::Relaxed);
        metrics.in_place_wait_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Decides on an operation that stores `count` elements, of pieces of these lengths, before the first of them. One alone is
    /// decided on where it needs a page.
    ///
    /// # Errors
    /// [`OpError::OutOfMemory`]; [`OpError::TooLarge`]: one of them is longer than any may be.
    pub fn admit_elements(
        &self,
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
        Ok(Some(self.pages.admit_together(bytes)?))
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

    /// Notes what has become of a collection whose trees stay; the key is locked and the collection was found under it. Its
    /// elements have been changed by then, so memory is not refused.
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
                    let _admitted = self.pages.admit_all();
                    retry(|| self.trees.make_room(&mut local.scratch, tree, at.key.hash, bytes))?
                }
            }
        }
    }

    /// Makes sure that these things can be stored outside of their leaves without a page that is missing.
    ///
    /// # Errors
    /// [`OpError::Fault`]; [`OpError::Damaged`] if it would be met after the first change.
    pub fn resolve_slabs(&self, stored: &SlabNeeds) -> Result<(), OpError> {
        if self.pages.all_resident() {
            return Ok(());
        }
        let mut missing = Vec::new();
        retry(|| self.blobs.slabs.resolve(stored, &mut missing))?;
        match missing.is_empty() {
            true => Ok(()),
            false => Err(Fault::of(missing).into()),
        }
    }

    /// The same of things whose lengths in bytes are known.
    pub fn resolve_stored(&self, lens_bytes: impl Iterator<Item = usize>) -> Result<(), OpError> {
        match self.pages.all_resident() {
            true => Ok(()),
            false => self.resolve_slabs(&SlabNeeds::of(lens_bytes)),
        }
    }
}
