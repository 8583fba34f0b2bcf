//! Elements of large collections that the commands of a batch look for first: brought into the cache in stages, each for all
//! commands before the next, after the stages of their keys.

use crate::keyspace::{elements, Prefetch};
use crate::tree::hash::{index_hash, Grown};
use crate::tree::sorted_set::PlaceAhead;
use crate::tree::Tree;
use crate::worker::Worker;
use crate::Key;

/// The trees of a large hash, set or sorted set, as a stage has found them: a hint.
#[derive(Clone, Copy, Debug)]
pub struct TreesAhead {
    /// Of a sorted set its index.
    elements: Tree,
    /// The order of a sorted set.
    order: Option<Tree>,
}

/// An element that a command of a batch is going to look for. What the stages leave in it is a hint.
#[derive(Clone, Copy, Debug)]
pub struct ElementAhead {
    trees: TreesAhead,
    /// The element; of a sorted set's member the hash is cut down to what the index has.
    key: Key<'static>,
    /// The element's hash, whole.
    hash: u64,
    /// Where in the order of a sorted set it is.
    place: Option<PlaceAhead>,
}

impl ElementAhead {
    /// Whether the element is a member of a sorted set, which has two more stages.
    #[inline]
    pub fn is_in_order(&self) -> bool {
        self.trees.order.is_some()
    }
}

impl Prefetch<'_> {
    /// In the place of [`Prefetch::value`] for a key: `None` if it has no large hash, set or sorted set.
    #[inline]
    pub fn trees(&self, key: &Key<'_>) -> Option<TreesAhead> {
        if !key.outside_hint {
            return None;
        }
        let Grown { first, second, .. } = self.0.trees.prefetch_value(key)?;
        Some(TreesAhead { elements: first, order: second })
    }

    /// First stage of an element in these trees.
    #[inline]
    pub fn element_node(&self, trees: TreesAhead, element: &[u8], will_write: bool) -> ElementAhead {
        let mut key = elements::hashed(self.0, element).to_be_written(will_write);
        let hash = key.hash;
        if trees.order.is_some() {
            key.hash = index_hash(hash);
        }
        self.0.trees.prefetch_node(trees.elements, &mut key);
        ElementAhead { trees, key: key.detach(), hash, place: None }
    }

    /// Second stage.
    #[inline]
    pub fn element_child(&self, ahead: &ElementAhead) {
        self.0.trees.prefetch_child(&ahead.key);
    }

    /// Third stage.
    #[inline]
    pub fn element_leaf(&self, ahead: &mut ElementAhead) {
        self.0.trees.prefetch_leaf(ahead.trees.elements, &mut ahead.key);
    }

    /// Fourth stage.
    #[inline]
    pub fn element_slots(&self, ahead: &mut ElementAhead) {
        self.0.trees.prefetch_slots(&mut ahead.key);
    }

    /// Fifth stage.
    #[inline]
    pub fn element_record(&self, ahead: &mut ElementAhead) {
        self.0.trees.prefetch_record(&mut ahead.key);
    }

    /// Sixth stage, for members of sorted sets: their leaf in the order.
    #[inline]
    pub fn element_place(&self, ahead: &mut ElementAhead, element: &[u8]) {
        if let Some(order) = ahead.trees.order {
            ahead.place = self.0.sorted().prefetch_place(order, &ahead.key, element);
        }
    }

    /// Seventh stage: their record there.
    #[inline]
    pub fn element_in_order(&self, ahead: &ElementAhead, element: &[u8]) {
        if let Some(place) = ahead.place {
            self.0.sorted().prefetch_in_order(place, element);
        }
    }
}

impl Worker {
    /// What is known of an element that the command which is about to run looks for, in these very bytes; `None` when it has run.
    #[inline]
    pub fn know_element(&mut self, element: Option<(&[u8], ElementAhead)>) {
        self.op().local.ahead = element.map(|(bytes, ahead)| {
            (bytes.as_ptr() as usize, bytes.len(), Key { hash: ahead.hash, ..ahead.key })
        });
    }
}
