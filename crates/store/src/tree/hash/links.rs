//! From one leaf of a chain to the next. Damaged leaves may make a circle: so they are counted.

use stillframe_pagepool::PageId;

use super::leaf::Leaf;
use crate::stop::Stop;
use crate::tree::order::not_a_leaf;

/// Most leaves of one hash that are believed: with hashes of 64 bits a chain has hardly ever two.
pub(crate) const CHAIN_MAX: u32 = 1 << 16;

/// How many leaves of a chain have been left behind.
#[derive(Default)]
pub(crate) struct Links(u32);

impl Links {
    /// The leaf behind the one that is there, if there is one.
    ///
    /// # Errors
    /// [`Stop::Damaged`]: it leads back to itself, or there is no end of it.
    #[inline(always)]
    pub fn after(&mut self, pid: PageId, leaf: Leaf<'_>) -> Result<Option<PageId>, Stop> {
        match leaf.chain() {
            0 => Ok(None),
            next => self.count(pid, PageId(next)).map(Some),
        }
    }

    #[cold]
    fn count(&mut self, pid: PageId, next: PageId) -> Result<PageId, Stop> {
        self.0 += 1;
        match next == pid || self.0 > CHAIN_MAX {
            true => Err(not_a_leaf(next)),
            false => Ok(next),
        }
    }
}
