//! One copy of all rows. Words are atomic, so a copy that races with a writer is defined, and is validated afterwards.

use super::shape::{RowId, Shape};
use crate::sync::atomic::{AtomicU64, Ordering};

/// Shape: `row_count` rows of `row_words` words, one after the other.
pub struct RowArray {
    words: Box<[AtomicU64]>,
    row_words: usize,
}

impl RowArray {
    /// All zero. Every word is written, so the memory is there from the beginning.
    pub fn new(shape: Shape) -> RowArray {
        let word_count = shape.row_count() as usize * shape.row_words();
        let words = (0..word_count).map(|_| AtomicU64::new(0)).collect();
        RowArray { words, row_words: shape.row_words() }
    }

    #[inline]
    pub fn row(&self, row: RowId) -> &[AtomicU64] {
        let first = row.index() * self.row_words;
        &self.words[first..first + self.row_words]
    }

    /// The words of a row, as far as `to` has room.
    #[inline]
    pub fn read(&self, row: RowId, to: &mut [u64]) {
        for (to, from) in to.iter_mut().zip(self.row(row)) {
            *to = from.load(Ordering::Relaxed);
        }
    }

    pub fn bytes(&self) -> usize {
        self.words.len() * 8
    }
}

/// A whole row, from one copy to another.
#[inline]
pub fn copy_row(from: &[AtomicU64], to: &[AtomicU64]) {
    for (from, to) in from.iter().zip(to) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
