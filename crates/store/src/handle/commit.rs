//! Applying what a transaction has written, in one step.

use std::collections::BTreeMap;
use std::ops::Range;

use stillframe_pagepool::{PageId, Reason, PAGE_SIZE};

use super::overlay::Overlay;
use super::tree::Tree;
use super::turn::Turn;
use super::values::{put_record, settled, NewValue};
use crate::blobs::{Incoming, BLOB_BYTES};
use crate::error::{Fault, OpError, TreeError};
use crate::keyspace::Keyspace;
use crate::named::{KeptOut, NamedTree};
use crate::stop::{retry, Stop};
use crate::tree::ordered::{fits_leaf, record_bytes, Removal, Seek, Stored};
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
    let received = receive(tree, overlay)?;
    let mut resolve_count = 0;
    while !overlay.writes.is_empty() {
        let _busy = tree.seat.begin()?;
        tree.make_room()?;
        let mut needs = Needs::of(tree.keyspace(), tree.named.open_tree()?, overlay, &received);
        needs.check(tree.keyspace())?;
        if !needs.missing.is_empty() && resolve_count < needs.resolves_max() {
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
        match apply.run(overlay, &received, &needs, resolve_count >= RESOLVES_MAX) {
            Ok(record_delta) => {
                tree.visitor.count(record_delta);
                break;
            }
            Err(Failure::Nothing(OpError::Fault(fault))) => {
                resolve_count += 1;
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

/// Applies writes to a tree that nobody else is at work on: all of them, or none. By how much the number of records has changed.
///
/// # Errors
/// [`OpError`], pages that are missing first: nothing has been changed. Or the tree is torn, which its state says.
pub(super) fn apply_alone(
    keyspace: &Keyspace,
    named: &NamedTree,
    scratch: &mut Scratch,
    overlay: &Overlay,
) -> Result<i64, OpError> {
    if let Some(why) = named.torn() {
        return Err(OpError::Damaged(why.clone()));
    }
    let (id, received) = (named.tree(), Received::new());
    let needs = Needs::of(keyspace, id, overlay, &received);
    needs.check(keyspace)?;
    if !needs.missing.is_empty() {
        return Err(Fault::of(needs.missing).into());
    }
    match Apply::new(keyspace, id, scratch).run(overlay, &received, &needs, false) {
        Ok(record_delta) => Ok(record_delta),
        Err(Failure::Nothing(error)) => Err(error),
        Err(Failure::Torn(why)) => {
            named.tear(why.clone());
            Err(OpError::Damaged(why))
        }
    }
}

/// Long values that are in their places already, by their keys.
type Received<'o> = BTreeMap<&'o [u8], Incoming>;

/// Puts the long values into their places, while others go on: memory need not hold them together.
fn receive<'o>(tree: &Tree, overlay: &'o Overlay) -> Result<Received<'o>, TreeError> {
    let mut received = Received::new();
    for (key, value) in &overlay.writes {
        if let Some(incoming) = value.as_ref().map_or(Ok(None), |value| tree.receive(value))? {
            received.insert(key, incoming);
        }
    }
    Ok(received)
}

/// What writes will need.
#[derive(Default)]
struct Needs {
    /// Pages that are not in memory, as far as they are known.
    missing: Vec<PageId>,
    /// Bytes by which the records grow.
    growth_bytes: usize,
    /// The leaf of each write, in their order, as far as they are known. Good until this thread waits.
    leaves: Vec<Option<PageId>>,
    /// How many leaves that are at most.
    leaf_count: u64,
    /// Bytes of the values that are made outside of the leaves.
    value_bytes: u64,
}

impl Needs {
    fn of(keyspace: &Keyspace, tree: tree::Tree, overlay: &Overlay, received: &Received<'_>) -> Needs {
        let leaves = Vec::with_capacity(overlay.writes.len());
        let mut needs = Needs { leaves, leaf_count: overlay.writes.len() as u64, ..Needs::default() };
        if keyspace.pages.is_too_large(needs.leaf_count * PAGE_SIZE as u64) {
            // Neighbours have a leaf in common.
            needs.leaf_count = count_leaves(keyspace, tree, overlay, &mut needs.missing);
            if !needs.missing.is_empty() {
                // What is above the leaves comes first, and then it is known how many they are.
                return Needs { missing: needs.missing, ..Needs::default() };
            }
        }
        let mut leaf = None;
        for (key, value) in &overlay.writes {
            let is_made = value.as_ref().is_some_and(|value| !fits_leaf(key, value));
            if is_made && !received.contains_key(&key[..]) {
                needs.value_bytes += value.as_ref().map_or(0, Vec::len) as u64;
            }
            let after = value.as_ref().map_or(0, |value| match fits_leaf(key, value) {
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

impl Needs {
    /// How often pages are brought in: more often if not even what leads to the leaves is there.
    fn resolves_max(&self) -> u32 {
        if self.leaf_count == 0 {
            8 * RESOLVES_MAX
        } else {
            RESOLVES_MAX
        }
    }

    /// Whether it can all be in memory together: nothing of it is written back before the last change.
    fn check(&self, keyspace: &Keyspace) -> Result<(), OpError> {
        let above_leaves = if self.leaf_count == 0 { self.missing.len() as u64 } else { 0 };
        let pages = above_leaves + self.leaf_count + (self.growth_bytes.div_ceil(BYTES_A_PAGE)) as u64;
        let needed_bytes = pages * PAGE_SIZE as u64 + self.value_bytes;
        retry(|| keyspace.pages.check_together(needed_bytes))
    }
}

/// Leaves that the keys belong to, if the nodes above them are in memory: those that are not go to `missing`.
fn count_leaves(keyspace: &Keyspace, tree: tree::Tree, overlay: &Overlay, missing: &mut Vec<PageId>) -> u64 {
    let (mut count, mut last) = (0, None);
    for key in overlay.writes.keys() {
        match retry(|| keyspace.named.trees.leaves_ahead(tree, Seek::Key(key), true, 1)) {
            Ok(leaves) => {
                let leaf = leaves.first().copied();
                count += u64::from(leaf != last);
                last = leaf;
            }
            Err(OpError::Fault(fault)) => fault.add_to(missing),
            // It is met again.
            Err(_) => {}
        }
    }
    missing.dedup();
    count
}

/// Why writes were not applied.
enum Failure {
    /// Nothing has been changed.
    Nothing(OpError),
    /// Some of it has been, and cannot be undone.
    Torn(Reason),
}

/// A value that is going to be put.
struct New<'o, 'v> {
    key: &'o [u8],
    value: NewValue<'v>,
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

/// Makes the new values.
fn make<'v, 'o: 'v>(
    keyspace: &Keyspace,
    received: &'v Received<'o>,
    is_patient: bool,
    overlay: &'o Overlay,
    values: &mut Vec<New<'o, 'v>>,
) -> Result<(), OpError> {
    for (number, (key, value)) in overlay.writes.iter().enumerate() {
        if let Some(value) = value {
            let make = || NewValue::make(keyspace, key, value, received.get(&key[..]));
            let value = if is_patient { settled(keyspace, make)? } else { make()? };
            values.push(New { key, value, number });
        }
    }
    Ok(())
}

impl<'a, 'o> Apply<'a, 'o> {
    fn new(keyspace: &'a Keyspace, tree: tree::Tree, scratch: &'a mut Scratch) -> Apply<'a, 'o> {
        Apply { keyspace, tree, scratch, changes: Vec::new(), kept: Kept::default() }
    }

    /// Applies everything; by how much the number of records has changed.
    /// If it `is_patient` it waits for pages as it is, so that it gets through.
    fn run(
        &mut self,
        overlay: &'o Overlay,
        received: &Received<'o>,
        needs: &Needs,
        is_patient: bool,
    ) -> Result<i64, Failure> {
        // `maxmemory` is decided once (C5).
        let page_count = needs.growth_bytes.div_ceil(BYTES_A_PAGE) as u32;
        if page_count > 0 {
            retry(|| self.keyspace.pages.admit(page_count)).map_err(Failure::Nothing)?;
        }
        let mut values = Vec::new();
        let made = make(self.keyspace, received, is_patient, overlay, &mut values);
        let applied = match made {
            Ok(()) => self.write(overlay, &values, &needs.leaves),
            Err(error) => Err(error),
        };
        if let Err(error) = applied {
            self.undo().map_err(|why| {
                let text = format!("a transaction could neither be completed ({error}) nor undone ({why}): the last save is whole, and there will be no other before the store is opened again");
                Failure::Torn(Reason::of(&error).said_as(text))
            })?;
            values.iter().for_each(|new| new.value.discard(self.keyspace));
            return Err(Failure::Nothing(error));
        }
        values.iter().for_each(|new| new.value.note_used());
        Ok(self.finish())
    }

    /// Puts, then removes: a removal needs no room.
    fn write(
        &mut self,
        overlay: &'o Overlay,
        values: &[New<'o, '_>],
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
        let removal = settled(keyspace, || {
            retry(|| trees.remove(tree, key, &mut None, |was| old = Some(kept.keep(was))))
        })?;
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
