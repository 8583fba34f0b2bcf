//! Looking up many keys: in groups, so that the waits for memory, and for the disk, overlap.

use stillframe_pagepool::PageId;

use super::tree::Tree;
use super::values::{begin_parts, is_long, read_value};
use crate::blobs::Sending;
use crate::error::{Fault, OpError, TreeError};
use crate::keyspace::{resolve, Keyspace};
use crate::named::Visit;
use crate::stop::{retry, Stop};
use crate::tree;
use crate::tree::ordered::{Stored, Way, KEY_MAX_BYTES};

/// Keys of a group.
const GROUP: usize = 32;
/// So often all pages that a group misses are brought in together: one level of the tree a time, then the values. After that
/// a page at a time, so that a pool that is too small for a group gets through it.
const ROUNDS_MAX: u32 = 24;
/// Pages of values that are brought in together (8 MB), at most.
const VALUE_PAGES_MAX: usize = 2048;

/// What was in the way of a value.
enum Obstacle {
    Stop(OpError),
    /// It is to be read in parts, outside of the tree.
    Long(Sending),
}

impl Tree {
    /// The values of keys, in their order. Each is looked up at an instant of its own.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, TreeError> {
        let mut values = Vec::with_capacity(keys.len());
        self.get_many_with(keys, |_, value| values.push(value.map(<[u8]>::to_vec)))?;
        Ok(values)
    }

    /// Gives `f` the index of each key, in order, and its value, as [`Tree::get_with`] does.
    ///
    /// # Errors
    /// [`TreeError`]; `f` has been given the keys before the one that failed.
    pub fn get_many_with<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut f: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), TreeError> {
        for (number, group) in keys.chunks(GROUP).enumerate() {
            self.get_group(group, |index, value| f(number * GROUP + index, value))?;
        }
        Ok(())
    }

    fn get_group<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut f: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), TreeError> {
        let _busy = self.seat.begin()?;
        let (mut done, mut missing) = (0, Vec::new());
        for round in 0.. {
            let (inside, tree) = self.enter(Visit::Reads)?;
            let (rest, mut long) = (&keys[done..], None);
            let ways = ways(self.keyspace(), tree, rest, &mut missing);
            if missing.is_empty() || round >= ROUNDS_MAX {
                missing.clear();
                for (key, way) in rest.iter().zip(&ways) {
                    match self.get_by(tree, key.as_ref(), way, &mut missing, |value| f(done, value)) {
                        Ok(()) => done += 1,
                        Err(Obstacle::Stop(OpError::Fault(fault))) => {
                            fault.add_to(&mut missing);
                            break;
                        }
                        Err(Obstacle::Stop(error)) => return Err(error.into()),
                        Err(Obstacle::Long(value)) => {
                            long = Some(value);
                            break;
                        }
                    }
                }
            }
            if let Some(value) = long {
                drop(inside);
                self.with_parts(&value, |bytes| f(done, Some(bytes)))?;
                done += 1;
                if done == keys.len() {
                    break;
                }
                continue;
            }
            if done == keys.len() {
                break;
            }
            if round < ROUNDS_MAX {
                self.resolve_values(tree, rest, &ways, &mut missing);
            }
            drop(inside);
            self.load(Fault::of(std::mem::take(&mut missing)));
        }
        Ok(())
    }

    /// Gives `f` the value of a key at the end of its way; of one whose way has led nowhere, by a look-up of its own.
    #[inline(always)]
    fn get_by(
        &self,
        tree: tree::Tree,
        key: &[u8],
        way: &Option<Way<'_>>,
        missing: &mut Vec<PageId>,
        f: impl FnOnce(Option<&[u8]>),
    ) -> Result<(), Obstacle> {
        let (keyspace, mut f, mut long) = (self.keyspace(), Some(f), None);
        let mut give = |value: Option<&[u8]>| {
            if let Some(f) = f.take() {
                f(value);
            }
        };
        let mut show = |found: Option<Stored<'_>>| {
            match found {
                Some(value) if value.is_outside => {
                    long = begin_parts(keyspace, value)?;
                    if long.is_some() {
                        return Ok(());
                    }
                    let mut buffer = self.seat.buffer.borrow_mut();
                    buffer.clear();
                    read_value(keyspace, value, &mut buffer, missing)?;
                    give(Some(&buffer));
                }
                found => give(found.map(|value| value.bytes)),
            }
            Ok(())
        };
        let trees = &keyspace.named.trees;
        let shown = match way.as_ref().map(|way| trees.look_at(tree, key, way, &mut show)) {
            Some(Ok(())) => Ok(()),
            _ if key.len() > KEY_MAX_BYTES => show(None).map_err(OpError::from),
            None | Some(Err(Stop::Contended)) => retry(|| trees.look(tree, key, &mut show)),
            Some(Err(stop)) => Err(stop.into()),
        };
        shown.map_err(Obstacle::Stop)?;
        match long {
            Some(value) => Err(Obstacle::Long(value)),
            None => Ok(()),
        }
    }

    /// Adds what is missing of values that are not read in parts, as far as their leaves are there: those have a way. Not of
    /// so many that they would not stay until the last of them is there.
    fn resolve_values<K: AsRef<[u8]>>(
        &self,
        tree: tree::Tree,
        keys: &[K],
        ways: &[Option<Way<'_>>; GROUP],
        missing: &mut Vec<PageId>,
    ) {
        let keyspace = self.keyspace();
        let most = keyspace.pages.ahead_pages(VALUE_PAGES_MAX);
        for (key, way) in keys.iter().zip(ways).filter_map(|(key, way)| Some((key.as_ref(), way.as_ref()?))) {
            if missing.len() >= most {
                return;
            }
            // What stands in the way of one is met again.
            let _: Result<(), Stop> = keyspace.named.trees.look_at(tree, key, way, |found| {
                if let Some(blob) = found.and_then(|value| value.blob()).filter(|blob| !is_long(blob)) {
                    resolve::resolve_blob(keyspace, &blob, missing);
                }
                Ok(())
            });
        }
    }
}

/// The ways to some keys, with what lies at their ends on its way into the cache; none for a key that somebody is in the
/// way of. What is not in memory goes to `missing`.
#[inline(always)]
fn ways<'k, K: AsRef<[u8]>>(
    keyspace: &'k Keyspace,
    tree: tree::Tree,
    keys: &[K],
    missing: &mut Vec<PageId>,
) -> [Option<Way<'k>>; GROUP] {
    let trees = &keyspace.named.trees;
    let mut ways = [const { None }; GROUP];
    for (key, way) in keys.iter().map(AsRef::as_ref).zip(&mut ways) {
        if key.len() <= KEY_MAX_BYTES {
            *way = met(trees.begin(tree, key), missing);
        }
    }
    ways.iter().flatten().for_each(|way| trees.ask_for_hints(way));
    stage(keys, &mut ways, missing, |key, way| trees.at_separators(tree, key, way));
    stage(keys, &mut ways, missing, |key, way| trees.to_leaf(key, way));
    ways.iter().flatten().for_each(|way| trees.ask_for_slots(way));
    stage(keys, &mut ways, missing, |key, way| trees.to_record(key, way));
    ways
}

/// Notes a page that is missing. Any other obstacle is met again by a look-up.
#[inline(always)]
fn met<T>(result: Result<T, Stop>, missing: &mut Vec<PageId>) -> Option<T> {
    if let Err(Stop::Fault(pid)) = result {
        missing.push(pid);
    }
    result.ok()
}

/// One stage, for all keys.
#[inline(always)]
fn stage<'p, K: AsRef<[u8]>>(
    keys: &[K],
    ways: &mut [Option<Way<'p>>],
    missing: &mut Vec<PageId>,
    mut f: impl FnMut(&[u8], &mut Way<'p>) -> Result<(), Stop>,
) {
    for (key, slot) in keys.iter().zip(ways) {
        if let Some(way) = slot {
            if met(f(key.as_ref(), way), missing).is_none() {
                *slot = None;
            }
        }
    }
}
