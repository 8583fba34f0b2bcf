//! Looking up many keys: in groups, so that the waits for memory, and for the disk, overlap.

use stillframe_pagepool::PageId;

use super::tree::Tree;
use super::values::read_value;
use crate::error::{Fault, OpError, TreeError};
use crate::keyspace::Keyspace;
use crate::named::Visit;
use crate::stop::{retry, Stop};
use crate::tree;
use crate::tree::ordered::{Hint, KEY_MAX_BYTES};

/// Keys of a group.
const GROUP: usize = 32;
/// So often all pages that a group misses are brought in together: one level of the tree a time, then the values. After that
/// a page at a time, so that a pool that is too small for a group gets through it.
const ROUNDS_MAX: u32 = 24;

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
            let mut hints = [Hint::default(); GROUP];
            let rest = &keys[done..];
            self.keyspace().prefetch_group(tree, rest, &mut hints, &mut missing);
            if missing.is_empty() || round >= ROUNDS_MAX {
                missing.clear();
                for (key, hint) in rest.iter().zip(hints) {
                    match self.get_hinted(tree, key.as_ref(), hint, &mut missing, |value| f(done, value)) {
                        Ok(()) => done += 1,
                        Err(OpError::Fault(fault)) => {
                            fault.add_to(&mut missing);
                            break;
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            if done == keys.len() {
                break;
            }
            if round < ROUNDS_MAX {
                self.resolve_values(tree, rest, &hints, &mut missing);
            }
            drop(inside);
            self.load(Fault::of(std::mem::take(&mut missing)));
        }
        Ok(())
    }

    #[inline(always)]
    fn get_hinted(
        &self,
        tree: tree::Tree,
        key: &[u8],
        hint: Hint,
        missing: &mut Vec<PageId>,
        f: impl FnOnce(Option<&[u8]>),
    ) -> Result<(), OpError> {
        let (keyspace, mut f) = (self.keyspace(), Some(f));
        let mut give = |value: Option<&[u8]>| {
            if let Some(f) = f.take() {
                f(value);
            }
        };
        if key.len() > KEY_MAX_BYTES {
            give(None);
            return Ok(());
        }
        retry(|| {
            keyspace.named.trees.look(tree, key, hint, |found| {
                match found {
                    Some(value) if value.is_outside => {
                        let mut buffer = self.seat.buffer.borrow_mut();
                        buffer.clear();
                        read_value(keyspace, value, &mut buffer, missing)?;
                        give(Some(&buffer));
                    }
                    found => give(found.map(|value| value.bytes)),
                }
                Ok(())
            })
        })
    }

    /// Adds what is missing of long values, as far as their leaves are there: those have a hint.
    fn resolve_values<K: AsRef<[u8]>>(
        &self,
        tree: tree::Tree,
        keys: &[K],
        hints: &[Hint; GROUP],
        missing: &mut Vec<PageId>,
    ) {
        let keyspace = self.keyspace();
        let found = keys.iter().map(AsRef::as_ref).zip(hints).filter(|(_, hint)| hint.leaf.is_some());
        for (key, hint) in found {
            // What stands in the way of one is met again.
            let _: Result<(), Stop> = keyspace.named.trees.look(tree, key, *hint, |found| {
                if let Some(blob) = found.and_then(|value| value.blob()) {
                    keyspace.resolve_blob(&blob, missing);
                }
                Ok(())
            });
        }
    }
}

impl Keyspace {
    /// Brings the ways to some keys into the cache, stage by stage; what is not in memory goes to `missing`.
    #[inline(always)]
    fn prefetch_group<K: AsRef<[u8]>>(
        &self,
        tree: tree::Tree,
        keys: &[K],
        hints: &mut [Hint; GROUP],
        missing: &mut Vec<PageId>,
    ) {
        let trees = &self.named.trees;
        stage(keys, hints, missing, |key, hint| trees.prefetch_node(tree, key, hint));
        hints.iter().for_each(|hint| trees.prefetch_separators(hint));
        stage(keys, hints, missing, |key, hint| trees.prefetch_leaf(tree, key, hint));
        stage(keys, hints, missing, |key, hint| trees.prefetch_record(key, hint));
    }
}

/// One stage, for all keys.
#[inline(always)]
fn stage<K: AsRef<[u8]>>(
    keys: &[K],
    hints: &mut [Hint],
    missing: &mut Vec<PageId>,
    mut f: impl FnMut(&[u8], &mut Hint) -> Result<(), Stop>,
) {
    for (key, hint) in keys.iter().map(AsRef::as_ref).zip(hints).filter(|(key, _)| key.len() <= KEY_MAX_BYTES)
    {
        // Any other obstacle is met again by the lookup.
        if let Err(Stop::Fault(pid)) = f(key, hint) {
            missing.push(pid);
        }
    }
}
