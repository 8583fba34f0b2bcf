//! Applying what a transaction has written, in one step.

use stillframe_pagepool::PageId;

use super::overlay::Overlay;
use super::tree::Tree;
use super::turn::Turn;
use super::values::{put_record, settled, NewValue};
use crate::blobs::{Blob, BLOB_BYTES};
use crate::error::{Fault, OpError, TreeError};
use crate::keyspace::Keyspace;
use crate::named::KeptOut;
use crate::stop::{retry, Stop};
use crate::tree::ordered::{record_bytes, Removal, Seek, Stored, VALUE_MAX_BYTES};
use crate::tree::{self, Joining, Scratch};

/// So often the pages of a transaction are brought in while nobody waits for it; then it is applied all the same, and waits
/// for each page that it misses.
const RESOLVES_MAX: u32 = 8;
/// Bytes by which the records grow for a page that this may take.
const BYTES_A_PAGE: usize = 2048;

/// Applies writes to a tree at which the thread has its turn: all of them, or none.
///
/// # Errors
/// [`TreeError`].
pub(super) fn commit(tree: &Tree, turn: &Turn<'_>, overlay: &Overlay) -> Result<(), TreeError> {
    let mut resolve_count = 0;
    while !overlay.writes.is_empty() {
        let _busy = tree.seat.begin()?;
        tree.make_room()?;
        let needs = Needs::of(tree.keyspace(), tree.named.open_tree()?, overlay);
        if !needs.missing.is_empty() && resolve_count < RESOLVES_MAX {
            resolve_count += 1;
            tree.load(Fault::of(needs.missing));
            continue;
        }
        turn.close(KeptOut::All);
        // Who waits is quiescent: it may have been dropped.
        let id = tree.named.open_tree()?;
        let scratch = &mut tree.seat.scratch.borrow_mut();
        let mut apply = Apply { keyspace: tree.keyspace(), tree: id, scratch, changes: Vec::new() };
        match apply.run(overlay, needs.growth_bytes) {
            Ok(record_delta) => {
                tree.visitor.count(record_delta);
                break;
            }
            Err(Failure::Nothing(OpError::Fault(fault))) => {
                turn.close(KeptOut::Writers);
                tree.load(fault);
            }
            Err(Failure::Nothing(error)) => return Err(error.into()),
            Err(Failure::Torn(why)) => {
                tree.named.tear(why.clone());
                return Err(TreeError::Damaged(why));
            }
        }
    }
    Ok(())
}

/// What writes will need.
struct Needs {
    /// Pages that are not in memory, as far as they are known.
    missing: Vec<PageId>,
    /// Bytes by which the records grow.
    growth_bytes: usize,
}

impl Needs {
    fn of(keyspace: &Keyspace, tree: tree::Tree, overlay: &Overlay) -> Needs {
        let mut needs = Needs { missing: Vec::new(), growth_bytes: 0 };
        for (key, value) in &overlay.writes {
            let after = value.as_ref().map_or(0, |value| match value.len() <= VALUE_MAX_BYTES {
                true => record_bytes(key, Stored::inline(value)),
                false => record_bytes(key, Stored::inline(&[0; BLOB_BYTES])),
            });
            let before = retry(|| {
                let bytes = |found: Option<Stored<'_>>| Ok(found.map_or(0, |found| record_bytes(key, found)));
                keyspace.named.trees.look(tree, key, bytes)
            });
            match before {
                Ok(before) => needs.growth_bytes += after.saturating_sub(before),
                Err(OpError::Fault(fault)) => fault.add_to(&mut needs.missing),
                // It is met again.
                Err(_) => {}
            }
        }
        needs
    }
}

/// Why writes were not applied.
enum Failure {
    /// Nothing has been changed.
    Nothing(OpError),
    /// Some of it has been, and cannot be undone.
    Torn(String),
}

/// A value that has been replaced or removed.
struct Old {
    bytes: Vec<u8>,
    is_outside: bool,
}

impl Old {
    fn of(was: Stored<'_>) -> Old {
        Old { bytes: was.bytes.to_vec(), is_outside: was.is_outside }
    }

    fn stored(&self) -> Stored<'_> {
        Stored { bytes: &self.bytes, is_outside: self.is_outside }
    }

    fn blob(&self) -> Option<Blob> {
        self.stored().blob()
    }
}

/// A record that has been changed, and what was there.
struct Change<'o> {
    key: &'o [u8],
    old: Option<Old>,
}

/// A transaction that is being applied: its thread does not look at the barrier.
struct Apply<'a, 'o> {
    keyspace: &'a Keyspace,
    tree: tree::Tree,
    scratch: &'a mut Scratch,
    changes: Vec<Change<'o>>,
}

impl<'o> Apply<'_, 'o> {
    /// Applies everything; by how much the number of records has changed.
    fn run(&mut self, overlay: &'o Overlay, growth_bytes: usize) -> Result<i64, Failure> {
        // `maxmemory` is decided once (C5).
        let page_count = growth_bytes.div_ceil(BYTES_A_PAGE) as u32;
        if page_count > 0 {
            retry(|| self.keyspace.pages.admit(page_count)).map_err(Failure::Nothing)?;
        }
        let mut values = Vec::new();
        let made = self.make(overlay, &mut values);
        let applied = match made {
            Ok(()) => self.write(overlay, &values),
            Err(error) => Err(error),
        };
        if let Err(error) = applied {
            self.undo().map_err(|why| Failure::Torn(format!("a transaction could neither be completed ({error}) nor undone ({why}): the last save is whole, and there will be no other before the store is opened again")))?;
            values.iter().for_each(|(_, value)| value.discard(self.keyspace));
            return Err(Failure::Nothing(error));
        }
        let written_count = values.len();
        Ok(self.finish(written_count))
    }

    /// Makes the new values.
    fn make(&self, overlay: &'o Overlay, values: &mut Vec<(&'o [u8], NewValue<'o>)>) -> Result<(), OpError> {
        for (key, value) in &overlay.writes {
            if let Some(value) = value {
                values.push((key, NewValue::make(self.keyspace, value)?));
            }
        }
        Ok(())
    }

    /// Puts, then removes: a removal needs no room.
    fn write(&mut self, overlay: &'o Overlay, values: &[(&'o [u8], NewValue<'o>)]) -> Result<(), OpError> {
        for (key, value) in values {
            let old = self.put(key, value.stored())?;
            self.changes.push(Change { key, old });
        }
        for (key, _) in overlay.writes.iter().filter(|(_, value)| value.is_none()) {
            if let Some(old) = self.remove(key)? {
                self.changes.push(Change { key, old: Some(old) });
            }
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: Stored<'_>) -> Result<Option<Old>, OpError> {
        let Apply { keyspace, tree, ref mut scratch, .. } = *self;
        let mut old = None;
        settled(keyspace, || {
            put_record(&keyspace.named.unbounded, scratch, tree, key, value, |was| old = was.map(Old::of))
        })?;
        Ok(old)
    }

    fn remove(&mut self, key: &[u8]) -> Result<Option<Old>, OpError> {
        let Apply { keyspace, tree, .. } = *self;
        let mut old = None;
        let trees = &keyspace.named.unbounded;
        let removal =
            settled(keyspace, || retry(|| trees.remove(tree, key, |was| old = Some(Old::of(was)))))?;
        Ok(old.filter(|_| removal != Removal::WasAbsent))
    }

    /// Takes all changes back, the last first.
    fn undo(&mut self) -> Result<(), OpError> {
        while let Some(Change { key, old }) = self.changes.pop() {
            match old {
                Some(old) => drop(self.put(key, old.stored())?),
                None => drop(self.remove(key)?),
            }
        }
        Ok(())
    }

    /// Frees what has been replaced; by how much the number of records has changed. The first `put_count` changes are puts.
    fn finish(&mut self, put_count: usize) -> i64 {
        let trees = &self.keyspace.named.trees;
        let mut record_delta = 0;
        for (index, Change { key, old }) in self.changes.drain(..).enumerate() {
            if let Some(blob) = old.as_ref().and_then(Old::blob) {
                self.keyspace.blobs.discard(&blob);
            }
            let is_put = index < put_count;
            record_delta += i64::from(is_put) - i64::from(old.is_some());
            if !is_put {
                // Joining only saves memory: what stands in its way may stay there.
                let _: Result<(), Stop> =
                    trees.join_leaves(self.scratch, self.tree, Seek::Key(key), Joining::Sparse);
            }
        }
        record_delta
    }
}
