//! Applying what a transaction has written, in one step.

use std::ops::Range;

use stillframe_pagepool::PageId;

use super::overlay::Overlay;
use super::tree::Tree;
use super::turn::Turn;
use super::values::{put_record, settled, NewValue};
use crate::blobs::BLOB_BYTES;
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
        let mut needs = Needs::of(tree.keyspace(), tree.named.open_tree()?, overlay);
        if !needs.missing.is_empty() && resolve_count < RESOLVES_MAX {
            resolve_count += 1;
            tree.load(Fault::of(needs.missing));
            continue;
        }
        if turn.close(KeptOut::All) {
            // Who waits is quiescent: leaves may have been freed.
            needs.leaves.clear();
        }
        // Or the tree dropped.
        let id = tree.named.open_tree()?;
        let scratch = &mut tree.seat.scratch.borrow_mut();
        let mut apply = Apply::new(tree.keyspace(), id, scratch);
        match apply.run(overlay, &needs) {
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
    /// The leaf of each write, in their order, as far as they are known. Good until this thread waits.
    leaves: Vec<Option<PageId>>,
}

impl Needs {
    fn of(keyspace: &Keyspace, tree: tree::Tree, overlay: &Overlay) -> Needs {
        let leaves = Vec::with_capacity(overlay.writes.len());
        let mut needs = Needs { missing: Vec::new(), growth_bytes: 0, leaves };
        let mut leaf = None;
        for (key, value) in &overlay.writes {
            let after = value.as_ref().map_or(0, |value| match value.len() <= VALUE_MAX_BYTES {
                true => record_bytes(key, Stored::inline(value)),
                false => record_bytes(key, Stored::inline(&[0; BLOB_BYTES])),
            });
            let before = retry(|| {
                let bytes = |found: Option<Stored<'_>>| Ok(found.map_or(0, |found| record_bytes(key, found)));
                keyspace.named.trees.look_near(tree, key, &mut leaf, bytes)
            });
            match before {
                Ok(before) => needs.growth_bytes += after.saturating_sub(before),
                Err(OpError::Fault(fault)) => fault.add_to(&mut needs.missing),
                // It is met again.
                Err(_) => {}
            }
            needs.leaves.push(leaf);
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

/// A value that is going to be put.
struct New<'o> {
    key: &'o [u8],
    value: NewValue<'o>,
    /// Of the write.
    number: usize,
}

/// A record that has been changed, and what was there.
struct Change<'o> {
    key: &'o [u8],
    old: Option<Old>,
    is_put: bool,
    /// Its leaf may be joined with others.
    is_sparse: bool,
}

/// A value that has been replaced or removed: a part of what is kept of them all.
struct Old {
    bytes: Range<usize>,
    is_outside: bool,
}

/// Old values, one behind the other.
#[derive(Default)]
struct Kept(Vec<u8>);

impl Kept {
    fn keep(&mut self, was: Stored<'_>) -> Old {
        let start = self.0.len();
        self.0.extend_from_slice(was.bytes);
        Old { bytes: start..self.0.len(), is_outside: was.is_outside }
    }

    fn stored(&self, old: &Old) -> Stored<'_> {
        Stored { bytes: &self.0[old.bytes.clone()], is_outside: old.is_outside }
    }
}

/// A transaction that is being applied: its thread does not look at the barrier.
struct Apply<'a, 'o> {
    keyspace: &'a Keyspace,
    tree: tree::Tree,
    scratch: &'a mut Scratch,
    changes: Vec<Change<'o>>,
    kept: Kept,
}

impl<'a, 'o> Apply<'a, 'o> {
    fn new(keyspace: &'a Keyspace, tree: tree::Tree, scratch: &'a mut Scratch) -> Apply<'a, 'o> {
        Apply { keyspace, tree, scratch, changes: Vec::new(), kept: Kept::default() }
    }

    /// Applies everything; by how much the number of records has changed.
    fn run(&mut self, overlay: &'o Overlay, needs: &Needs) -> Result<i64, Failure> {
        // `maxmemory` is decided once (C5).
        let page_count = needs.growth_bytes.div_ceil(BYTES_A_PAGE) as u32;
        if page_count > 0 {
            retry(|| self.keyspace.pages.admit(page_count)).map_err(Failure::Nothing)?;
        }
        let mut values = Vec::new();
        let made = self.make(overlay, &mut values);
        let applied = match made {
            Ok(()) => self.write(overlay, &values, &needs.leaves),
            Err(error) => Err(error),
        };
        if let Err(error) = applied {
            self.undo().map_err(|why| Failure::Torn(format!("a transaction could neither be completed ({error}) nor undone ({why}): the last save is whole, and there will be no other before the store is opened again")))?;
            values.iter().for_each(|new| new.value.discard(self.keyspace));
            return Err(Failure::Nothing(error));
        }
        Ok(self.finish())
    }

    /// Makes the new values.
    fn make(&self, overlay: &'o Overlay, values: &mut Vec<New<'o>>) -> Result<(), OpError> {
        for (number, (key, value)) in overlay.writes.iter().enumerate() {
            if let Some(value) = value {
                values.push(New { key, value: NewValue::make(self.keyspace, value)?, number });
            }
        }
        Ok(())
    }

    /// Puts, then removes: a removal needs no room.
    fn write(
        &mut self,
        overlay: &'o Overlay,
        values: &[New<'o>],
        leaves: &[Option<PageId>],
    ) -> Result<(), OpError> {
        for new in values {
            let leaf = leaves.get(new.number).copied().flatten();
            let old = self.put(new.key, new.value.stored(), leaf)?;
            self.changes.push(Change { key: new.key, old, is_put: true, is_sparse: false });
        }
        for (key, _) in overlay.writes.iter().filter(|(_, value)| value.is_none()) {
            let (old, is_sparse) = self.remove(key)?;
            if old.is_some() {
                self.changes.push(Change { key, old, is_put: false, is_sparse });
            }
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: Stored<'_>, leaf: Option<PageId>) -> Result<Option<Old>, OpError> {
        let Apply { keyspace, tree, ref mut scratch, ref mut kept, .. } = *self;
        let mut old = None;
        settled(keyspace, || {
            let keep = |was: Option<Stored<'_>>| old = was.map(|was| kept.keep(was));
            put_record(&keyspace.named.unbounded, scratch, tree, key, value, leaf, keep)
        })?;
        Ok(old)
    }

    /// What was there, and whether its leaf may be joined with others.
    fn remove(&mut self, key: &[u8]) -> Result<(Option<Old>, bool), OpError> {
        let Apply { keyspace, tree, ref mut kept, .. } = *self;
        let mut old = None;
        let trees = &keyspace.named.unbounded;
        let removal =
            settled(keyspace, || retry(|| trees.remove(tree, key, |was| old = Some(kept.keep(was)))))?;
        match removal {
            Removal::WasAbsent => Ok((None, false)),
            Removal::Done { is_sparse } => Ok((old, is_sparse)),
        }
    }

    /// Takes all changes back, the last first.
    fn undo(&mut self) -> Result<(), OpError> {
        while let Some(Change { key, old, .. }) = self.changes.pop() {
            match old {
                Some(old) => {
                    let bytes = self.kept.0[old.bytes].to_vec();
                    self.put(key, Stored { bytes: &bytes, is_outside: old.is_outside }, None).map(drop)?;
                }
                None => self.remove(key).map(drop)?,
            }
        }
        Ok(())
    }

    /// Frees what has been replaced; by how much the number of records has changed.
    fn finish(&mut self) -> i64 {
        let trees = &self.keyspace.named.trees;
        let mut record_delta = 0;
        for Change { key, old, is_put, is_sparse } in self.changes.drain(..) {
            if let Some(blob) = old.as_ref().and_then(|old| self.kept.stored(old).blob()) {
                self.keyspace.blobs.discard(&blob);
            }
            record_delta += i64::from(is_put) - i64::from(old.is_some());
            if is_sparse {
                // Joining only saves memory: what stands in its way may stay there.
                let _: Result<(), Stop> =
                    trees.join_leaves(self.scratch, self.tree, Seek::Key(key), Joining::Sparse);
            }
        }
        record_delta
    }
}
