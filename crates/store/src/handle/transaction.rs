//! Transactions on one tree: what is written is kept aside, and applied at the end in one step.
//!
//! ```text
//!   writers out, body runs ── Ok ──▶ resolve: pages that are missing are brought in ──▶ everybody out ──▶ apply ──▶ open
//!          │                             ▲                                                   │ a page is missing: nothing
//!          │ Err, or a panic             └───────────────────────────────────────────────────┘ has been changed yet
//!          └──▶ open, nothing has been changed
//!
//!   before: values of 64 KB and more are put into their places part by part, as garbage to a cut
//!   apply: make long values ─▶ put ─▶ remove ─▶ done
//!                                └──────┴─ a page is damaged, or there are none left ─▶ undone, in the reverse order
//! ```
//! Between the first put and the end this thread does not look at the barrier: no cut comes between. What is not in memory
//! then, although it was a moment ago, is waited for.

use std::ops::RangeBounds;

use super::commit::commit;
use super::overlay::Overlay;
use super::range::TreeRange;
use super::tree::Tree;
use super::turn::Turn;
use super::values::check_record;
use crate::error::TreeError;
use crate::tree::ordered::KEY_MAX_BYTES;

/// The reads and writes of a transaction. Reads see what it has written.
pub struct Transaction<'t> {
    tree: &'t Tree,
    overlay: Overlay,
}

impl Tree {
    /// Runs `f` and applies what it has written, in one step: no other operation or transaction on this tree, no cut, sees
    /// some of it without the rest. On an error, `f`'s or its own, or if `f` panics, nothing of it stays.
    ///
    /// While `f` runs other transactions and writers of this tree wait, readers go on; they wait while its writes are
    /// applied. The writes take memory of their own until then. Where memory is bounded, what they change has to be in it
    /// together, up to half of it: leaves, and values of up to 64 KB. Longer ones may be larger than memory. `f` runs once. It may read other trees, and write to none but by this.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// Those of `f`; [`TreeError`].
    pub fn transaction<R, E: From<TreeError>>(
        &self,
        f: impl FnOnce(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        drop(self.seat.begin()?);
        let _transacting = self.seat.begin_transaction()?;
        let turn = Turn::take(self);
        self.named.open_tree()?;
        let mut transaction = Transaction { tree: self, overlay: Overlay::default() };
        let result = f(&mut transaction)?;
        commit(self, &turn, &transaction.overlay)?;
        Ok(result)
    }
}

impl<'t> Transaction<'t> {
    /// As of [`Tree::get`].
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, TreeError> {
        self.get_with(key, <[u8]>::to_vec)
    }

    /// As of [`Tree::get_with`].
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn get_with<R>(
        &self,
        key: impl AsRef<[u8]>,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TreeError> {
        match self.overlay.writes.get(key.as_ref()) {
            Some(value) => Ok(value.as_deref().map(f)),
            None => self.tree.get_with(key, f),
        }
    }

    /// As of [`Tree::get_many_with`].
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn get_many_with<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut f: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), TreeError> {
        self.tree.get_many_with(keys, |index, found| match self.overlay.writes.get(keys[index].as_ref()) {
            Some(value) => f(index, value.as_deref()),
            None => f(index, found),
        })
    }

    /// As of [`Tree::range`]; with what has been written.
    pub fn range<'k>(&self, bounds: impl RangeBounds<&'k [u8]>) -> TreeRange<'_> {
        TreeRange::new(self.tree, Some(&self.overlay), bounds)
    }

    /// Stores a value under a key, with the transaction, and as durable as that.
    ///
    /// # Errors
    /// [`TreeError::KeyTooLong`], [`TreeError::ValueTooLong`].
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), TreeError> {
        let (key, value) = (key.as_ref(), value.as_ref());
        check_record(key, value)?;
        self.write(key, Some(value.to_vec()));
        Ok(())
    }

    /// Removes a key with its value, if it is there.
    ///
    /// # Errors
    /// None today.
    pub fn remove(&mut self, key: impl AsRef<[u8]>) -> Result<(), TreeError> {
        if key.as_ref().len() <= KEY_MAX_BYTES {
            self.write(key.as_ref(), None);
        }
        Ok(())
    }

    fn write(&mut self, key: &[u8], value: Option<Vec<u8>>) {
        self.overlay.writes.insert(key.to_vec(), value);
    }
}
