//! Looking up the keys of a group in stages: each for all keys before the next, so that the waits for memory overlap. No
//! stage looks at what it has asked for itself.
//!
//! ```text
//!   begin ──▶ ask_for_hints ──▶ at_separators ──▶ to_leaf ──▶ ask_for_slots ──▶ to_record ──▶ look_at
//! ```
//! Where a page's bytes are may depend on its state word (pages in frames): so that is asked for a stage before they are.
//!
//! A key's way goes hand over hand: a page's version is read before the version of the page above it is looked at for the
//! last time. So the leaf at its end is the key's, and nobody needs to compare its bounds.

use stillframe_pagepool::{OptimisticGuard, PageId};

use super::access::give_value;
use super::leaf::{guess, Stored, HEADER_BYTES, SLOT_BYTES};
use super::node::{OrderedNode, HINTS_END};
use super::order::{Ordered, Seek};
use crate::stop::Stop;
use crate::tree::order::Order;
use crate::tree::trees::{stop_below, Tree, Trees, LINE_BYTES};
use crate::tree::words::Words;

/// Bytes of a leaf that are asked for before it is known how many slots there are: header and 28 of them.
const SLOTS_GUESSED: std::ops::Range<usize> = 0..HEADER_BYTES + 28 * SLOT_BYTES;
/// Bytes of the slots of a leaf of short keys without values.
const SLOTS_FULL: std::ops::Range<usize> = 0..HEADER_BYTES + 128 * SLOT_BYTES;
/// Lines of a record that are asked for at most.
const RECORD_LINES_MAX: usize = 8;

/// How far the way to a key has been gone. Good until the thread's next look at the barrier (P8).
pub(crate) struct Way<'p> {
    /// The last page that has been reached; the leaf in the end.
    page: OptimisticGuard<'p>,
    /// The page below it that the key belongs to.
    below: PageId,
    /// Where in the leaf the key seems to be.
    slot: usize,
}

impl Trees<Ordered> {
    /// First stage: finds the node above the key's leaf.
    ///
    /// # Errors
    /// [`Stop::Fault`] if a page on the way is missing; any other is for [`Trees::look`] to meet again.
    #[inline(always)]
    pub fn begin(&self, tree: Tree, key: &[u8]) -> Result<Way<'_>, Stop> {
        let (page, child) = self.descend(tree, Seek::Key(key), 2)?;
        // A root above the leaves is that node.
        let below = if page.level() == 2 { child } else { page.id() };
        self.pool.hints().version(below);
        Ok(Way { page, below, slot: 0 })
    }

    /// Second stage: asks for the hints of that node.
    #[inline(always)]
    pub fn ask_for_hints(&self, way: &Way<'_>) {
        self.pool.hints().lines(way.below, 0..HINTS_END);
    }

    /// Third stage: steps onto that node, and asks for where its search begins.
    ///
    /// # Errors
    /// As of [`Trees::begin`].
    #[inline(always)]
    pub fn at_separators<'p>(&'p self, tree: Tree, key: &[u8], way: &mut Way<'p>) -> Result<(), Stop> {
        self.step_down(way)?;
        if !Ordered::is_inner(&way.page, tree.tag) || way.page.level() != 1 {
            return Err(Stop::Contended);
        }
        let probe = way.page.probe(key);
        way.page.prefetch(probe..probe + 1);
        Ok(())
    }

    /// Fourth stage: finds the key's leaf.
    ///
    /// # Errors
    /// As of [`Trees::begin`].
    #[inline(always)]
    pub fn to_leaf(&self, key: &[u8], way: &mut Way<'_>) -> Result<(), Stop> {
        way.below = Ordered::child(&way.page, Ordered::find_child(&way.page, Seek::Key(key)));
        way.page.validate()?;
        self.pool.hints().latch(way.below);
        Ok(())
    }

    /// Fifth stage: asks for what a search in the leaf looks at.
    #[inline(always)]
    pub fn ask_for_slots(&self, way: &Way<'_>) {
        self.pool.hints().lines(way.below, SLOTS_GUESSED);
    }

    /// Sixth stage: steps onto the leaf, and asks for the key's record.
    ///
    /// # Errors
    /// As of [`Trees::begin`].
    #[inline(always)]
    pub fn to_record<'p>(&'p self, key: &[u8], way: &mut Way<'p>) -> Result<(), Stop> {
        self.step_down(way)?;
        let (slot, record) = guess(&way.page, key);
        way.slot = slot;
        let end = record.end.min(record.start + RECORD_LINES_MAX * LINE_BYTES);
        way.page.prefetch(record.start..end);
        Ok(())
    }

    /// From a page to the one below it.
    #[inline(always)]
    fn step_down<'p>(&'p self, way: &mut Way<'p>) -> Result<(), Stop> {
        match self.pool.try_optimistic(way.below) {
            Ok(below) => {
                way.page.validate()?;
                way.page = below;
                Ok(())
            }
            Err(restart) => Err(stop_below(&self.pool, &way.page, restart)),
        }
    }

    /// Last stage: as of [`Trees::look`].
    ///
    /// # Errors
    /// As of [`Trees::begin`], and those of `f`.
    #[inline(always)]
    pub fn look_at<R>(
        &self,
        tree: Tree,
        key: &[u8],
        way: &Way<'_>,
        f: impl FnOnce(Option<Stored<'_>>) -> Result<R, Stop>,
    ) -> Result<R, Stop> {
        give_value(&way.page.share()?, tree, key, way.slot, f)
    }

    /// Finds a key's leaf and asks for what a search will look at there, in a stage of a batch that stands alone.
    #[inline(always)]
    pub fn prefetch_leaf(&self, tree: Tree, key: &[u8]) -> Option<PageId> {
        let (_, leaf) = self.descend(tree, Seek::Key(key), 1).ok()?;
        self.pool.hints().latch(leaf);
        self.pool.hints().lines(leaf, SLOTS_FULL);
        Some(leaf)
    }

    /// The stage after it: asks for the key's record, in what may be its leaf no more.
    #[inline(always)]
    pub fn prefetch_record(&self, leaf: PageId, key: &[u8]) {
        if let Ok(page) = self.pool.try_optimistic(leaf) {
            let (_, record) = guess(&page, key);
            page.prefetch(record.start..record.end.min(record.start + RECORD_LINES_MAX * LINE_BYTES));
        }
    }

    /// Asks for what a search in a leaf looks at.
    #[inline(always)]
    pub(super) fn prefetch_slots(&self, leaf: PageId) {
        self.pool.hints().latch(leaf);
        self.pool.hints().lines(leaf, SLOTS_GUESSED);
    }
}
