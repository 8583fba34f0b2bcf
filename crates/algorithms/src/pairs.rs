//! A flag of two bits a row, 32 in a word. Neighbours share words, so each change of one flag is an atomic change of its
//! word (H5).

use std::ops::Range;

use crate::rows::RowId;
use crate::sync::atomic::{AtomicU64, Ordering};

const ROWS_PER_WORD: u32 = u64::BITS / 2;
const MASK: u64 = 0b11;

/// A value of a flag, less than 4.
pub type Pair = u64;

pub struct Pairs(Box<[AtomicU64]>);

#[inline(always)]
fn place(row: RowId) -> (usize, u32) {
    ((row.0 / ROWS_PER_WORD) as usize, row.0 % ROWS_PER_WORD * 2)
}

impl Pairs {
    /// All of one value, for at most `row_count` rows.
    pub fn new(row_count: u32, value: Pair) -> Pairs {
        let word = value * (u64::MAX / MASK);
        Pairs((0..row_count.div_ceil(ROWS_PER_WORD)).map(|_| AtomicU64::new(word)).collect())
    }

    #[inline(always)]
    pub fn get(&self, row: RowId) -> Pair {
        let (word, shift) = place(row);
        self.0[word].load(Ordering::Acquire) >> shift & MASK
    }

    /// Changes a flag if it is `from`; false if it is not. Changes of neighbours do not matter.
    #[inline(always)]
    pub fn exchange(&self, row: RowId, from: Pair, to: Pair) -> bool {
        let (word, shift) = place(row);
        let word = &self.0[word];
        let mut seen = word.load(Ordering::Acquire);
        while seen >> shift & MASK == from {
            let changed = seen ^ (from ^ to) << shift;
            match word.compare_exchange_weak(seen, changed, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => seen = other,
            }
        }
        false
    }

    /// Changes a flag that is `from` and that nobody else may change now.
    #[inline(always)]
    pub fn replace(&self, row: RowId, from: Pair, to: Pair) {
        let (word, shift) = place(row);
        let seen = self.0[word].fetch_xor((from ^ to) << shift, Ordering::AcqRel);
        debug_assert_eq!(seen >> shift & MASK, from, "the flag of row {} is its holder's", row.0);
    }

    /// Sets the flags of many rows, while nobody uses any.
    pub fn fill(&self, rows: Range<u32>, value: Pair) {
        let mut row = rows.start;
        while row < rows.end {
            let (word, shift) = place(RowId(row));
            let count = (ROWS_PER_WORD - shift / 2).min(rows.end - row);
            let mask = u64::MAX >> (u64::BITS - 2 * count) << shift;
            let kept = self.0[word].load(Ordering::Relaxed) & !mask;
            self.0[word].store(kept | (value * (u64::MAX / MASK)) & mask, Ordering::Relaxed);
            row += count;
        }
    }

    /// The mistake of a change that is not atomic.
    #[cfg(feature = "mutations")]
    pub fn store(&self, row: RowId, to: Pair, between: impl FnOnce()) {
        let (word, shift) = place(row);
        let seen = self.0[word].load(Ordering::Acquire);
        between();
        self.0[word].store(seen & !(MASK << shift) | to << shift, Ordering::Release);
    }
}
