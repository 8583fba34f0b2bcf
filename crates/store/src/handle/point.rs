//! Operations on one record.

use super::tree::Tree;
use super::values::{begin_parts, check_record, put_record, read_value, with_missing, NewValue};
use crate::blobs::{Blob, Sending};
use crate::error::TreeError;
use crate::named::Visit;
use crate::stop::{retry, Stop};
use crate::tree::ordered::{Removal, Seek, Stored, KEY_MAX_BYTES};
use crate::tree::Joining;

/// What has become of a look-up.
enum Found<R> {
    Given(Option<R>),
    /// It is to be read in parts, outside of the tree.
    Long(Sending),
}

impl Tree {
    /// The value of a key.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, TreeError> {
        match self.find(key.as_ref(), <[u8]>::to_vec)? {
            Found::Given(value) => Ok(value),
            Found::Long(value) => {
                let (_busy, mut bytes) = (self.seat.begin()?, Vec::new());
                self.read_parts(&value, &mut bytes)?;
                Ok(Some(bytes))
            }
        }
    }

    /// Gives `f` the value of a key, in its page if both have 1024 bytes at most: nothing is copied or allocated. `f` is under a
    /// latch, so it should be short, and every other operation of this thread on the store is [`TreeError::Busy`].
    ///
    /// # Errors
    /// [`TreeError`].
    #[inline]
    pub fn get_with<R>(
        &self,
        key: impl AsRef<[u8]>,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TreeError> {
        let mut f = Some(f);
        let give = |bytes: &[u8]| f.take().map(|f| f(bytes));
        match self.find(key.as_ref(), give)? {
            Found::Given(result) => Ok(result.flatten()),
            Found::Long(value) => {
                let _busy = self.seat.begin()?;
                self.with_parts(&value, |bytes| f.take().map(|f| f(bytes)))
            }
        }
    }

    /// Gives `f` the value of a key, unless it is so long that it is to be read in parts.
    #[inline(always)]
    fn find<R>(&self, key: &[u8], mut f: impl FnMut(&[u8]) -> R) -> Result<Found<R>, TreeError> {
        let mut missing = Vec::new();
        if key.len() > KEY_MAX_BYTES {
            return Ok(Found::Given(None));
        }
        self.run(Visit::Reads, |keyspace, tree| {
            let found = retry(|| {
                keyspace.named.trees.look(tree, key, |found| match found {
                    None => Ok(Found::Given(None)),
                    Some(value) if value.is_outside => {
                        if let Some(long) = begin_parts(keyspace, value)? {
                            return Ok(Found::Long(long));
                        }
                        let mut buffer = self.seat.buffer.borrow_mut();
                        buffer.clear();
                        read_value(keyspace, value, &mut buffer, &mut missing)?;
                        Ok(Found::Given(Some(f(&buffer))))
                    }
                    Some(value) => Ok(Found::Given(Some(f(value.bytes)))),
                })
            });
            found.map_err(|error| with_missing(error, &mut missing))
        })
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool, TreeError> {
        let key = key.as_ref();
        if key.len() > KEY_MAX_BYTES {
            return Ok(false);
        }
        self.run(Visit::Reads, |keyspace, tree| {
            retry(|| keyspace.named.trees.look(tree, key, |found| Ok(found.is_some())))
        })
    }

    /// Stores a value under a key; whether the key was there before.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`TreeError`]; nothing has been changed.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, TreeError> {
        let (key, value) = (key.as_ref(), value.as_ref());
        check_record(key, value)?;
        self.seat.check_no_transaction()?;
        let received = self.receive(value)?;
        self.run(Visit::Writes, |keyspace, tree| {
            let scratch = &mut self.seat.scratch.borrow_mut();
            let new = NewValue::make(keyspace, key, value, received.as_ref())?;
            let mut old: Option<Blob> = None;
            let note = |was: Option<Stored<'_>>| old = was.and_then(|was| was.blob());
            let put = put_record(&keyspace.named.trees, scratch, tree, key, new.stored(), None, note);
            match &put {
                Ok(was_there) => {
                    new.note_used();
                    self.visitor.count(i64::from(!was_there));
                }
                // A cut may come before it is tried again.
                Err(_) => new.discard(keyspace),
            }
            if let (Ok(_), Some(blob)) = (&put, old) {
                keyspace.blobs.discard(&blob);
            }
            put
        })
    }

    /// Removes a key with its value; whether it was there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`TreeError`]; nothing has been changed.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool, TreeError> {
        let key = key.as_ref();
        self.seat.check_no_transaction()?;
        if key.len() > KEY_MAX_BYTES {
            return Ok(false);
        }
        self.run(Visit::Writes, |keyspace, tree| {
            let trees = &keyspace.named.trees;
            let mut old: Option<Blob> = None;
            let removal = retry(|| trees.remove(tree, key, &mut None, |was| old = was.blob()))?;
            let Removal::Done { is_sparse } = removal else { return Ok(false) };
            self.visitor.count(-1);
            if let Some(blob) = old {
                keyspace.blobs.discard(&blob);
            }
            if is_sparse {
                // Joining only saves memory: what stands in its way may stay there.
                let scratch = &mut self.seat.scratch.borrow_mut();
                let _: Result<(), Stop> = trees.join_leaves(scratch, tree, Seek::Key(key), Joining::Sparse);
            }
            Ok(true)
        })
    }
}
