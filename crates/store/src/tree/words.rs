//! A page as 512 words: how optimistic readers see inner nodes, and the word that all of them begin with.
//!
//! ```text
//! word 0   kind u8 | level u8 | count u16 | tag u32 (bits 0, 8, 16, 32); level 1 is above the leaves
//! ```
//! A racing reader may see any mixture of words: nothing that reads them panics on one; the caller validates.

use stillframe_pagepool::{ExclusiveGuard, OptimisticGuard};

use crate::page::{get_u64, Page};

pub(crate) const WORD_COUNT: usize = 512;

/// A page's words.
pub(crate) trait Words {
    fn word(&self, index: usize) -> u64;

    #[inline(always)]
    fn level(&self) -> u8 {
        (self.word(0) >> 8) as u8
    }
}

/// A page's words, to be written by the holder of its exclusive latch.
pub(crate) trait WordsMut: Words {
    fn set_word(&mut self, index: usize, value: u64);

    /// Becomes a copy of `other`.
    fn copy_from(&mut self, other: &impl Words) {
        for i in 0..WORD_COUNT {
            self.set_word(i, other.word(i));
        }
    }
}

/// A copy of a page, as a view gives it.
impl Words for Page {
    fn word(&self, index: usize) -> u64 {
        get_u64(self, 8 * index)
    }
}

impl Words for OptimisticGuard<'_> {
    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        OptimisticGuard::word(self, index)
    }
}

impl Words for ExclusiveGuard<'_> {
    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        ExclusiveGuard::word(self, index)
    }
}

impl WordsMut for ExclusiveGuard<'_> {
    #[inline(always)]
    fn set_word(&mut self, index: usize, value: u64) {
        ExclusiveGuard::set_word(self, index, value);
    }
}
