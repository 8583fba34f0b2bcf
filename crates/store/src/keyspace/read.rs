//! Operations that change nothing.

use std::sync::atomic::Ordering;

use stillframe_pagepool::{PageId, SharedGuard};

use super::blob::LatchedRun;
use super::descend::{as_leaf, bad_record};
use super::{Keyspace, Local, Stop};
use crate::page::leaf::SLOT_BYTES;
use crate::page::record::{Blob, Record, RecordKey, RecordValue};
use crate::value::Repr;
use crate::{DbId, EntryInfo, Key, OpError, StrRef};

/// What a look at a key came to.
pub(super) enum Looked<R> {
    Absent,
    /// It is there, but its deadline has passed.
    Expired,
    Found(R),
}

/// A record in its latched leaf.
pub(super) struct Met<'a> {
    pub record: Record<'a>,
    /// Head of the leaf's chain.
    pub leaf: PageId,
}

impl Keyspace {
    /// Looks a key up and gives its record to `f`, under the leaf's shared latch.
    #[inline(always)]
    fn look<R>(
        &self,
        local: &Local,
        db: DbId,
        key: &Key<'_>,
        f: impl FnOnce(Met<'_>) -> Result<R, Stop>,
    ) -> Result<Looked<R>, Stop> {
        let Some(tree) = self.tree(db) else { return Ok(Looked::Absent) };
        let Some((leaf, guard, slot)) = self.find_shared(tree, key)? else { return Ok(Looked::Absent) };
        let record = as_leaf(guard.id(), guard.page())?.record(slot).ok_or_else(|| bad_record(guard.id()))?;
        if record.deadline.is_some_and(|deadline| deadline <= local.now) {
            return Ok(Looked::Expired);
        }
        f(Met { record, leaf }).map(Looked::Found)
    }

    /// Reads a value in place; an expired entry is removed.
    #[inline(always)]
    pub fn get<R>(
        &self,
        local: &mut Local,
        db: DbId,
        key: &Key<'_>,
        f: impl FnOnce(StrRef<'_>) -> R,
    ) -> Result<Option<R>, OpError> {
        let mut f = Some(f);
        let lock = self.lock_key(local, db, key.hash, false);
        let looked = self.retry(|| {
            self.look(local, db, key, |met| {
                let result = self.with_value(&met.record, |value| f.take().map(|f| f(value)))?;
                self.side.touch(met.leaf, local.tick);
                Ok(result)
            })
        })?;
        drop(lock);
        self.settle(local, db, key, looked).map(Option::flatten)
    }

    /// Turns what was found into a result; removes an entry that has expired, or notes it for
    /// [`Keyspace::remove_left_expired`].
    #[inline(always)]
    fn settle<R>(
        &self,
        local: &mut Local,
        db: DbId,
        key: &Key<'_>,
        looked: Looked<R>,
    ) -> Result<Option<R>, OpError> {
        match looked {
            Looked::Found(result) => Ok(Some(result)),
            Looked::Absent => Ok(None),
            Looked::Expired if local.keeps_expired => Ok(None),
            Looked::Expired => {
                if self.may_remove(local) {
                    let _lock = self.lock_key(local, db, key.hash, true);
                    self.remove_expired(local, db, key)?;
                } else {
                    local.left_expired.push((db, key.bytes.to_vec()));
                }
                Ok(None)
            }
        }
    }

    /// Gives a record's value to `f`; fails before that if a page is missing, and after it if one could not be read all
    /// the same.
    #[inline(always)]
    pub(super) fn with_value<R>(
        &self,
        record: &Record<'_>,
        f: impl FnOnce(StrRef<'_>) -> R,
    ) -> Result<R, Stop> {
        let repr = match record.value {
            RecordValue::Int(value) => Repr::Int(value),
            RecordValue::Bytes(bytes) => Repr::Bytes(bytes),
            RecordValue::Blob(blob) => {
                let run = LatchedRun::new(self.pool.shared(blob.pid)?);
                let offset = self.check_blob(&run.guard, &blob)?;
                let repr = Repr::Pages { run: &run, offset, len_bytes: u64::from(blob.len_bytes) };
                let result = f(StrRef { repr, raw: record.raw });
                return run.check().map(|()| result);
            }
        };
        Ok(f(StrRef { repr, raw: record.raw }))
    }

    /// Makes sure that a blob's pages are in memory; returns the byte of the run where it starts.
    fn check_blob(&self, guard: &SharedGuard<'_>, blob: &Blob) -> Result<u64, Stop> {
        let offset = Self::blob_offset(blob);
        if !self.all_resident.load(Ordering::Relaxed) {
            let end = offset + u64::from(blob.len_bytes);
            for index in offset / 4096..end.div_ceil(4096) {
                guard.object_page(index as u32)?;
            }
        }
        Ok(offset)
    }

    /// Makes sure that a blob's pages are in memory.
    pub(super) fn check_blob_resident(&self, blob: &Blob) -> Result<(), Stop> {
        if self.all_resident.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.check_blob(&self.pool.shared(blob.pid)?, blob).map(|_| ())
    }

    /// Looks at a key that the caller has locked; an expired one counts as absent and stays.
    pub(super) fn peek<R>(
        &self,
        local: &Local,
        db: DbId,
        key: &Key<'_>,
        mut f: impl FnMut(&Record<'_>) -> Result<R, Stop>,
    ) -> Result<Option<R>, OpError> {
        match self.retry(|| self.look(local, db, key, |met| f(&met.record)))? {
            Looked::Found(result) => Ok(Some(result)),
            Looked::Absent | Looked::Expired => Ok(None),
        }
    }

    /// What is known of an entry; an expired one is removed.
    pub fn entry(&self, local: &mut Local, db: DbId, key: &Key<'_>) -> Result<Option<EntryInfo>, OpError> {
        let lock = self.lock_key(local, db, key.hash, false);
        let looked = self
            .retry(|| self.look(local, db, key, |met| Ok(self.entry_info(local, &met.record, met.leaf))))?;
        drop(lock);
        self.settle(local, db, key, looked)
    }

    /// Marks an entry as accessed.
    pub fn touch(&self, local: &mut Local, db: DbId, key: &Key<'_>) -> Result<bool, OpError> {
        let lock = self.lock_key(local, db, key.hash, false);
        let looked = self.retry(|| {
            self.look(local, db, key, |met| {
                self.side.touch(met.leaf, local.tick);
                Ok(())
            })
        })?;
        drop(lock);
        Ok(self.settle(local, db, key, looked)?.is_some())
    }

    pub(super) fn entry_info(&self, local: &Local, record: &Record<'_>, leaf: PageId) -> EntryInfo {
        let mut memory_bytes = (SLOT_BYTES + record.encoded_bytes()) as u64;
        if let RecordKey::Out { blob, .. } = &record.key {
            memory_bytes += Self::blob_memory_bytes(blob);
        }
        // A StrRef without its pages tells length and encoding all the same.
        let repr = match record.value {
            RecordValue::Int(value) => Repr::Int(value),
            RecordValue::Bytes(bytes) => Repr::Bytes(bytes),
            RecordValue::Blob(blob) => {
                memory_bytes += Self::blob_memory_bytes(&blob);
                Repr::Pages { run: &NoPages, offset: 0, len_bytes: u64::from(blob.len_bytes) }
            }
        };
        let value = StrRef { repr, raw: record.raw };
        EntryInfo {
            encoding: value.encoding(),
            value_bytes: value.len(),
            deadline: record.deadline,
            memory_bytes,
            idle_ms: self.side.idle_ms(leaf, local.tick),
        }
    }
}

/// The pages of a value that is not looked at.
struct NoPages;

impl crate::value::PageRun for NoPages {
    fn with_page(&self, _index: u32, _f: &mut dyn FnMut(&crate::page::Page)) -> bool {
        false
    }
}
