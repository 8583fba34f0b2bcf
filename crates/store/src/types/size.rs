//! How much memory a value takes: of a large collection as one of its leaves lets expect.

use stillframe_pagepool::PAGE_SIZE;

use crate::keyspace::{CollectionKey, Keyspace};
use crate::stop::retry;
use crate::tree::hash::Grown;
use crate::tree::ordered::{as_leaf, Seek};
use crate::tree::{LeafView, Tree};
use crate::value::ValueType;
use crate::worker::Worker;
use crate::{DbId, Key, OpError};

impl Worker {
    /// Memory of key, value and record, without the free space of the leaf, in bytes; `None` if the key is absent.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn memory_bytes(&mut self, db: DbId, key: &Key<'_>) -> Result<Option<u64>, OpError> {
        self.with_run(|keyspace, local, run| {
            let Some(entry) = keyspace.entry(local, db, key)? else { return Ok(None) };
            let at = CollectionKey { db, key: *key, value_type: entry.value_type };
            let grown = match entry.value_type {
                ValueType::String => None,
                _ => keyspace.open_to_read(local, &at, run)?.and_then(|(opened, _lock)| opened.grown),
            };
            let Some(grown) = grown else { return Ok(Some(entry.memory_bytes)) };
            let trees = keyspace.trees_bytes(entry.value_type, &grown)?;
            Ok(Some(entry.memory_bytes + trees))
        })
    }
}

impl Keyspace {
    fn trees_bytes(&self, value_type: ValueType, grown: &Grown) -> Result<u64, OpError> {
        let pages = |elements_a_leaf: u64| 1 + grown.element_count.div_ceil(elements_a_leaf.max(1));
        let page_count = match (value_type, grown.second) {
            (ValueType::List, _) => pages(self.items_of_a_block(grown.first)?),
            (ValueType::SortedSet, Some(order)) => {
                pages(self.elements_of_a_leaf(grown.first)?) + pages(self.members_of_a_leaf(order)?)
            }
            _ => pages(self.elements_of_a_leaf(grown.first)?),
        };
        Ok(page_count * PAGE_SIZE as u64)
    }

    fn members_of_a_leaf(&self, order: Tree) -> Result<u64, OpError> {
        retry(|| {
            let guard = self.orders.leaf_shared(order, Seek::Last, None)?;
            Ok(as_leaf(guard.id(), guard.page())?.count() as u64)
        })
    }

    fn items_of_a_block(&self, list: Tree) -> Result<u64, OpError> {
        let mut count = 0;
        retry(|| {
            count = 0;
            self.lists.walk_up(list, 0, |_| {
                count += 1;
                Ok(true)
            })
        })?;
        Ok(count)
    }
}
