//! A flag a row, 64 in a word. Neighbours share words, so each change of one flag is an atomic change of its word (H5).

use std::ops::Range;

use crate::rows::RowId;
use crate::sync::atomic::{AtomicU64, Ordering};

pub const ROWS_PER_WORD: u32 = u64::BITS;

pub struct Bits(Box<[AtomicU64]>);

#[inline(always)]
fn place(row: RowId) -> (usize, u64) {
    ((row.0 / ROWS_PER_WORD) as usize, 1 << (row.0 % ROWS_PER_WORD))
}

impl Bits {
    /// All clear, for at most `row_count` rows.
    pub fn new(row_count: u32) -> Bits {
        Bits((0..row_count.div_ceil(ROWS_PER_WORD)).map(|_| AtomicU64::new(0)).collect())
    }

    #[inline(always)]
    pub fn get(&self, row: RowId) -> bool {
        let (word, bit) = place(row);
        self.0[word].load(Ordering::Acquire) & bit != 0
    }

    /// Looks first: a flag that is as it should be costs no atomic change.
    #[inline(always)]
    pub fn set(&self, row: RowId, is_set: bool) {
        let (word, bit) = place(row);
        let word = &self.0[word];
        match (word.load(Ordering::Acquire) & bit != 0, is_set) {
            (false, true) => drop(word.fetch_or(bit, Ordering::AcqRel)),
            (true, false) => drop(word.fetch_and(!bit, Ordering::AcqRel)),
            _ => {}
        }
    }

    /// Changes a flag; false if it has been so before.
    #[inline(always)]
    pub fn change(&self, row: RowId, is_set: bool) -> bool {
        let (word, bit) = place(row);
        let before = match is_set {
            true => self.0[word].fetch_or(bit, Ordering::AcqRel),
            false => self.0[word].fetch_and(!bit, Ordering::AcqRel),
        };
        (before & bit != 0) != is_set
    }

    /// Makes the flags of all rows of words the same, whoever else makes some of them so.
    pub fn fill(&self, words: Range<usize>, is_set: bool) {
        for word in &self.0[words] {
            match is_set {
                true => word.store(u64::MAX, Ordering::Release),
                false => word.store(0, Ordering::Release),
            }
        }
    }

    /// The mistake of a change that is not atomic.
    #[cfg(feature = "mutations")]
    pub fn store(&self, row: RowId, is_set: bool, between: impl FnOnce()) {
        let (word, bit) = place(row);
        let seen = self.0[word].load(Ordering::Acquire);
        between();
        self.0[word].store(if is_set { seen | bit } else { seen & !bit }, Ordering::Release);
    }

    /// Words that the first `row_count` rows are in.
    pub fn words(row_count: u32) -> Range<usize> {
        0..row_count.div_ceil(ROWS_PER_WORD) as usize
    }

    /// The flags of one word, its first row lowest.
    #[inline(always)]
    pub fn word(&self, word: usize) -> u64 {
        self.0[word].load(Ordering::Acquire)
    }

    /// Sets a whole word, which nobody else changes meanwhile.
    #[inline(always)]
    pub fn set_word(&self, word: usize, flags: u64) {
        self.0[word].store(flags, Ordering::Release);
    }
}

/// Rows whose flags are set in a word.
#[inline(always)]
pub fn rows_of(word: usize, mut flags: u64) -> impl Iterator<Item = RowId> {
    std::iter::from_fn(move || {
        let bit = flags.trailing_zeros();
        (bit < u64::BITS).then(|| {
            flags &= flags - 1;
            RowId(word as u32 * ROWS_PER_WORD + bit)
        })
    })
}

/// The flags of a word's rows among the first `row_count`.
#[inline(always)]
pub fn below(word: usize, row_count: u32) -> u64 {
    match row_count.saturating_sub(word as u32 * ROWS_PER_WORD) {
        0 => 0,
        count if count < ROWS_PER_WORD => (1 << count) - 1,
        _ => u64::MAX,
    }
}
