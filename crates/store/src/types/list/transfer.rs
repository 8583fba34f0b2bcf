//! An item that goes from one list to another, or to the other end of its own.

use super::place::{at, list_len};
use crate::blobs::SlabNeeds;
use crate::effect::End;
use crate::keyspace::{CollectionKey, Keyspace, Local, Opened};
use crate::worker::Worker;
use crate::{DbId, Key, OpError};

/// What storing and dropping an item that lies outside may take of slabs.
const CHANGES: usize = 4;

impl Worker {
    /// Takes an item from an end of one list, gives it to `f` and puts it to an end of another, or of the same. The caller holds
    /// locks on both. Whether there was one.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed, and what was given does not count.
    pub fn list_move(
        &mut self,
        db: DbId,
        from: (&Key<'_>, End),
        to: (&Key<'_>, End),
        f: impl FnOnce(&[u8]),
    ) -> Result<bool, OpError> {
        self.with_run(|keyspace, local, run| {
            let (source, target) = (at(db, from.0), at(db, to.0));
            let Some(item) = keyspace.list_end(local, &source, from.1, run)? else { return Ok(false) };
            // The pages at both ends are in memory, and the other key has a list or nothing: from here on nothing fails but
            // for want of memory, which the first step would meet.
            keyspace.list_end(local, &target, to.1, run)?;
            keyspace.resolve_slabs(&SlabNeeds::any(CHANGES))?;
            let opened = keyspace.open_to_change(local, &target, run)?;
            keyspace.list_push(local, &target, opened.as_ref(), to.1, &[&item], run)?;
            if let Some(opened) = keyspace.open_to_change(local, &source, run)? {
                keyspace.list_pop(local, &source, &opened, from.1, 1, |_| (), run)?;
            }
            f(&item);
            Ok(true)
        })
    }
}

impl Keyspace {
    /// The item at an end of a list, if there is one.
    fn list_end(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        end: End,
        run: &mut Vec<u8>,
    ) -> Result<Option<Vec<u8>>, OpError> {
        let Some(opened) = self.open_to_change(local, at, run)? else { return Ok(None) };
        self.list_item_at(local, &opened, end, run)
    }

    fn list_item_at(
        &self,
        local: &mut Local,
        opened: &Opened,
        end: End,
        run: &[u8],
    ) -> Result<Option<Vec<u8>>, OpError> {
        let Some(last) = list_len(opened, run).checked_sub(1) else { return Ok(None) };
        let index = if end == End::Left { 0 } else { last };
        let mut found = None;
        self.list_give(local, opened, index..index + 1, run, |item| {
            found = Some(item.to_vec());
            std::ops::ControlFlow::Break(())
        })?;
        Ok(found)
    }
}
