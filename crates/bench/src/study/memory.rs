//! Rows in memory that has been touched, on pages of 4 KB or of 2 MB; and the copies of them that a client makes, counted.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::AtomicU64;

use stillframe_algorithms::{Copies, CopyId, Place, RowArray, RowCopies, WordCopies};
use stillframe_pagepool::VirtualArray;

use crate::error::{BenchError, Result};

pub type Words = VirtualArray<AtomicU64>;

/// So many words, all zero and touched.
pub fn words(len: usize, huge_pages: bool) -> Result<Words> {
    let words = Words::new(len).map_err(|error| BenchError::failed("map rows", error))?;
    if huge_pages {
        words.prefer_huge(0, len);
    }
    words.populate(0, len);
    Ok(words)
}

/// `slot_count` rows, all zero.
pub fn rows(slot_count: u32, row_len: usize, huge_pages: bool) -> Result<RowArray<Words>> {
    let len = RowArray::<()>::words_wanted(slot_count, row_len);
    Ok(RowArray::over(words(len, huge_pages)?, slot_count, row_len))
}

thread_local! {
    static COPIES: Cell<u64> = const { Cell::new(0) };
}

/// Copies of rows that this thread has made.
pub fn copies_of_thread() -> u64 {
    COPIES.get()
}

/// The copies of an algorithm. Each thread counts what it copies.
pub struct Counted(pub RowCopies<Words>);

impl Copies for Counted {
    #[inline(always)]
    fn row_count(&self) -> u32 {
        self.0.row_count()
    }

    #[inline(always)]
    fn row_len(&self) -> usize {
        self.0.row_len()
    }

    #[inline(always)]
    fn copy(&self, from: Place, to: Place) {
        COPIES.set(COPIES.get() + 1);
        self.0.copy(from, to);
    }

    #[inline(always)]
    fn copy_part(&self, from: Place, to: Place, bytes: Range<usize>) {
        self.0.copy_part(from, to, bytes);
    }

    #[inline(always)]
    fn read(&self, place: Place, into: &mut [u8]) {
        self.0.read(place, into);
    }

    fn copy_rows(&self, rows: Range<u32>, from: CopyId, to: CopyId) {
        self.0.copy_rows(rows, from, to);
    }
}

impl WordCopies for Counted {
    #[inline(always)]
    fn words(&self, place: Place) -> &[AtomicU64] {
        self.0.words(place)
    }
}
