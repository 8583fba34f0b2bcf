//! Elements of large collections that the commands of a batch look for first: brought into the cache in stages, each for all
//! commands before the next, after the stages of their keys.

use crate::tree::hash::{index_hash, Grown};
use crate::tree::sorted_set::Roots;
use crate::tree::Tree;
use crate::worker::Worker;
use crate::Key;

/// An element that a command of a batch is going to look for. What the stages leave in it is a hint.
#[derive(Clone, Copy, Debug)]
pub struct ElementAhead {
    tree: Tree,
    /// The element in `tree`; of a sorted set's member its hash alone, as the index has it.
    key: Key<'static>,
    /// The order of a sorted set, whose index `tree` is.
    order: Option<Tree>,
}

impl Worker {
    /// First stage, in the place of [`Worker::prefetch_value`] for the key; `None` if that has no large hash, set or sorted set.
    #[inline]
    pub fn prefetch_element_node(&self, key: &Key<'_>, element: &[u8]) -> Option<ElementAhead> {
        if !key.outside_hint {
            return None;
        }
        let keyspace = self.keyspace();
        let Grown { first: tree, second: order, .. } = keyspace.trees.prefetch_value(key)?;
        let mut ahead = keyspace.hashed(element).to_be_written(key.will_write);
        if order.is_some() {
            ahead.hash = index_hash(ahead.hash);
        }
        keyspace.trees.prefetch_node(tree, &mut ahead);
        Some(ElementAhead { tree, key: ahead.detach(), order })
    }

    /// Second stage.
    #[inline]
    pub fn prefetch_element_child(&self, ahead: &ElementAhead) {
        self.keyspace().trees.prefetch_child(&ahead.key);
    }

    /// Third stage.
    #[inline]
    pub fn prefetch_element_leaf(&self, ahead: &mut ElementAhead) {
        self.keyspace().trees.prefetch_leaf(ahead.tree, &mut ahead.key);
    }

    /// Fourth stage.
    #[inline]
    pub fn prefetch_element_slots(&self, ahead: &mut ElementAhead) {
        self.keyspace().trees.prefetch_slots(&mut ahead.key);
    }

    /// Fifth stage.
    #[inline]
    pub fn prefetch_element_record(&self, ahead: &mut ElementAhead) {
        self.keyspace().trees.prefetch_record(&mut ahead.key);
    }

    /// Sixth stage, for members of sorted sets: their place in the order.
    #[inline]
    pub fn prefetch_element_place(&self, ahead: &ElementAhead, element: &[u8]) {
        if let Some(order) = ahead.order {
            let roots = Roots { index: ahead.tree, order };
            self.keyspace().sorted().prefetch_place(roots, &ahead.key, element);
        }
    }

    /// What is known of an element that the command which is about to run looks for, in these very bytes; `None` when it has run.
    #[inline]
    pub fn know_element(&mut self, element: Option<(&[u8], ElementAhead)>) {
        // Of a sorted set's member the index alone is known.
        let element = element.filter(|(_, ahead)| ahead.order.is_none());
        self.split().1.ahead =
            element.map(|(bytes, ahead)| (bytes.as_ptr() as usize, bytes.len(), ahead.key));
    }
}
