//! The order of a sorted set as a view gives it: from copies of pages.

use super::bounds::{Ranking, ScoreStart};
use super::key::SCORE_BYTES;
use crate::error::SaveError;
use crate::tree::leaves::{blank, damaged, LeafWalk, Pages};
use crate::tree::order::LeafView;
use crate::tree::ordered::OrderedLeaf;
use crate::tree::trees::Tree;

/// See the module.
pub(crate) struct ViewedOrder<'a> {
    pub pages: &'a dyn Pages,
    pub tree: Tree,
}

impl ViewedOrder<'_> {
    /// Gives `f` the next leaf of a walk, if there is one.
    fn next_leaf<R>(
        &self,
        walk: &mut LeafWalk,
        f: impl FnOnce(OrderedLeaf<'_>) -> R,
    ) -> Result<Option<R>, SaveError> {
        let mut page = blank();
        let Some(pid) = walk.next_leaf(self.pages, &mut page)? else { return Ok(None) };
        let leaf = OrderedLeaf::new(&page).filter(|leaf| leaf.tag() == self.tree.tag);
        leaf.map(f).map(Some).ok_or_else(|| damaged(pid, "a leaf"))
    }

    /// The score of the first member, or of the last.
    fn end_score(&self, is_last: bool) -> Result<Option<ScoreStart>, SaveError> {
        let (mut walk, end) = match is_last {
            false => (LeafWalk::new(self.tree), 0),
            true => (LeafWalk::downwards(self.tree), u64::MAX),
        };
        walk.begin_at(self.pages, end)?;
        let first_key = |leaf: OrderedLeaf<'_>| {
            let last = leaf.count().checked_sub(1)?;
            Some(leaf.key(if is_last { last } else { 0 }))
        };
        // A leaf may be empty until it is joined with a neighbour.
        while let Some(key) = self.next_leaf(&mut walk, first_key)? {
            if let Some(key) = key {
                let score = key.first_chunk::<SCORE_BYTES>().copied();
                return score.map(Some).ok_or_else(|| damaged(self.tree.root, "a sorted set"));
            }
        }
        Ok(None)
    }
}

impl Ranking for ViewedOrder<'_> {
    type Error = SaveError;

    fn rank(&self, key: &[u8]) -> Result<u64, SaveError> {
        let mut walk = LeafWalk::new(self.tree);
        let before = walk.begin_at_key(self.pages, key)?;
        let below = self.next_leaf(&mut walk, |leaf| {
            let (Ok(below) | Err(below)) = leaf.find(key);
            below as u64
        })?;
        Ok(before + below.unwrap_or(0))
    }

    fn end_scores(&self) -> Result<Option<(ScoreStart, ScoreStart)>, SaveError> {
        Ok(self.end_score(false)?.zip(self.end_score(true)?))
    }
}
