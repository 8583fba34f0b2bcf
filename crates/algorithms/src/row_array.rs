//! Rows on the heap, as words that may be read while they are written.

use std::ops::Range;

use crate::rows::{Copies, CopyId, Place, WordCopies};
use crate::seam::Algorithm;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const WORD_LEN: usize = size_of::<u64>();

/// Words that the compiler copies without a branch between them.
const CHUNK_WORDS: usize = 8;

/// Rows start at multiples of this, or of their length if that is less: lines of the cache are not shared.
const ALIGN_MAX: usize = 4096;

/// Copies as many words as both have.
#[inline(always)]
pub(crate) fn copy_words(from: &[AtomicU64], to: &[AtomicU64]) {
    let move_word = |from: &AtomicU64, to: &AtomicU64| {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    };
    let (from_chunks, to_chunks) = (from.chunks_exact(CHUNK_WORDS), to.chunks_exact(CHUNK_WORDS));
    let rest = from_chunks.remainder().iter().zip(to_chunks.remainder());
    for (from, to) in from_chunks.zip(to_chunks) {
        from.iter().zip(to).for_each(|(from, to)| move_word(from, to));
    }
    rest.for_each(|(from, to)| move_word(from, to));
}

/// Rows of one length, one after the other. `W` is where the words are: on the heap, or in a mapping that is populated or
/// has huge pages.
pub struct RowArray<W = Box<[AtomicU64]>> {
    words: W,
    row_words: usize,
    /// Words before the first row, so that rows are aligned.
    start: usize,
    slot_count: u32,
}

impl RowArray {
    /// Zeroed rows, all of whose memory has been touched.
    ///
    /// # Panics
    /// If `row_len`, in bytes, is not a multiple of 8.
    #[must_use]
    pub fn new(slot_count: u32, row_len: usize) -> RowArray {
        let len = RowArray::<()>::words_wanted(slot_count, row_len);
        RowArray::over((0..len).map(|_| AtomicU64::new(0)).collect(), slot_count, row_len)
    }
}

impl RowArray<()> {
    /// Words that hold so many rows, however they are aligned.
    #[must_use]
    pub fn words_wanted(slot_count: u32, row_len: usize) -> usize {
        slot_count as usize * (row_len / WORD_LEN) + row_len.min(ALIGN_MAX) / WORD_LEN
    }
}

impl<W: AsRef<[AtomicU64]>> RowArray<W> {
    /// Rows in words that are there already, at least [`RowArray::words_wanted`] of them.
    ///
    /// # Panics
    /// If `row_len`, in bytes, is not a multiple of 8, or there are too few words.
    pub fn over(words: W, slot_count: u32, row_len: usize) -> RowArray<W> {
        assert!(row_len > 0 && row_len % WORD_LEN == 0, "rows of whole words, not of {row_len} bytes");
        let row_words = row_len / WORD_LEN;
        let align = match row_len.is_power_of_two() {
            true => row_len.min(ALIGN_MAX),
            false => WORD_LEN,
        };
        let address = words.as_ref().as_ptr() as usize;
        let start = (address.next_multiple_of(align) - address) / WORD_LEN;
        assert!(
            words.as_ref().len() >= start + slot_count as usize * row_words,
            "words for {slot_count} rows"
        );
        RowArray { words, row_words, start, slot_count }
    }

    #[inline(always)]
    pub fn slot_count(&self) -> u32 {
        self.slot_count
    }

    /// Bytes of a row.
    #[inline(always)]
    pub fn row_len(&self) -> usize {
        self.row_words * WORD_LEN
    }

    /// The words of a row.
    #[inline(always)]
    pub fn row(&self, slot: u32) -> &[AtomicU64] {
        let start = self.start + slot as usize * self.row_words;
        &self.words.as_ref()[start..start + self.row_words]
    }

    /// Reads `into.len()` bytes of a row, from byte `at` of it on.
    pub fn read(&self, slot: u32, at: usize, into: &mut [u8]) {
        let row = self.row(slot);
        if at % WORD_LEN == 0 && into.len() % WORD_LEN == 0 {
            let words = row[at / WORD_LEN..].iter();
            return into.chunks_exact_mut(WORD_LEN).zip(words).for_each(|(bytes, word)| {
                bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            });
        }
        let mut done = 0;
        while done < into.len() {
            let (word, within) = ((at + done) / WORD_LEN, (at + done) % WORD_LEN);
            let len = (WORD_LEN - within).min(into.len() - done);
            let bytes = row[word].load(Ordering::Relaxed).to_le_bytes();
            into[done..done + len].copy_from_slice(&bytes[within..within + len]);
            done += len;
        }
    }

    /// Writes bytes into a row, from byte `at` of it on. The caller is the row's only writer.
    pub fn write(&self, slot: u32, at: usize, bytes: &[u8]) {
        let row = self.row(slot);
        let mut done = 0;
        while done < bytes.len() {
            let (word, within) = ((at + done) / WORD_LEN, (at + done) % WORD_LEN);
            let len = (WORD_LEN - within).min(bytes.len() - done);
            let mut value = match len {
                WORD_LEN => [0; WORD_LEN],
                _ => row[word].load(Ordering::Relaxed).to_le_bytes(),
            };
            value[within..within + len].copy_from_slice(&bytes[done..done + len]);
            row[word].store(u64::from_le_bytes(value), Ordering::Relaxed);
            done += len;
        }
    }
}

/// Copies of rows in row arrays of one row length, by [`CopyId`].
pub struct RowCopies<W = Box<[AtomicU64]>> {
    copies: Box<[RowArray<W>]>,
    row_count: AtomicU32,
}

impl RowCopies {
    /// What an algorithm needs for `row_count` rows, on the heap, zeroed and touched.
    #[must_use]
    pub fn for_algorithm<C: Copies, A: Algorithm<C>>(
        algorithm: &A,
        row_count: u32,
        row_len: usize,
    ) -> RowCopies {
        let spare = Some(algorithm.spare_frames()).filter(|&frames| frames > 0);
        let second = A::SECOND_COPIES.iter().map(|_| row_count).chain(spare);
        RowCopies::over(
            [row_count].into_iter().chain(second).map(|slots| RowArray::new(slots, row_len)).collect(),
        )
    }
}

impl<W: AsRef<[AtomicU64]>> RowCopies<W> {
    /// The first is [`CopyId::D`]: all of its slots are rows.
    pub fn over(copies: Box<[RowArray<W>]>) -> RowCopies<W> {
        let row_count = AtomicU32::new(copies[0].slot_count());
        RowCopies { copies, row_count }
    }

    /// Sets how many of the slots of `D` are rows. More may come at any time, none may go.
    pub fn set_row_count(&self, row_count: u32) {
        assert!(row_count <= self.copies[0].slot_count(), "rows have slots");
        self.row_count.store(row_count, Ordering::Release);
    }

    #[inline(always)]
    pub fn array(&self, copy: CopyId) -> &RowArray<W> {
        &self.copies[copy.0 as usize]
    }
}

impl<W: AsRef<[AtomicU64]> + Sync> WordCopies for RowCopies<W> {
    #[inline(always)]
    fn words(&self, place: Place) -> &[AtomicU64] {
        self.array(place.copy).row(place.slot)
    }
}

impl<W: AsRef<[AtomicU64]> + Sync> Copies for RowCopies<W> {
    #[inline(always)]
    fn row_count(&self) -> u32 {
        self.row_count.load(Ordering::Acquire)
    }

    #[inline(always)]
    fn row_len(&self) -> usize {
        self.array(CopyId::D).row_len()
    }

    #[inline]
    fn copy(&self, from: Place, to: Place) {
        copy_words(self.words(from), self.words(to));
    }

    #[inline]
    fn copy_part(&self, from: Place, to: Place, bytes: Range<usize>) {
        let words = bytes.start / WORD_LEN..bytes.end.div_ceil(WORD_LEN);
        copy_words(&self.words(from)[words.clone()], &self.words(to)[words]);
    }

    fn read(&self, place: Place, into: &mut [u8]) {
        self.array(place.copy).read(place.slot, 0, into);
    }
}
