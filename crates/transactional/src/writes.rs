//! What a transaction has locked and written, and how to undo it.

use std::collections::HashMap;

use crate::row::{Mode, RowId};
use crate::sync::atomic::{AtomicU64, Ordering};

/// A row that a transaction has locked.
#[derive(Clone, Copy)]
pub struct Entry<M> {
    pub row: RowId,
    pub mode: Mode,
    /// What the algorithm remembers of it; there once it has been written.
    pub mark: Option<M>,
}

/// Transactions with more rows than this find them by a map.
const FEW: usize = 24;

/// The rows that a transaction has locked, and the words that it has overwritten.
pub struct Writes<M> {
    entries: Vec<Entry<M>>,
    /// Of all rows if they are many; else empty.
    by_row: HashMap<RowId, usize>,
    spans: Vec<Span>,
    before: Vec<u64>,
}

/// Words that were overwritten; their content before is in `before`.
#[derive(Clone, Copy)]
struct Span {
    row: RowId,
    first_word: u16,
    word_count: u16,
    before_at: usize,
}

impl<M: Copy> Writes<M> {
    pub fn new() -> Writes<M> {
        Writes { entries: Vec::new(), by_row: HashMap::new(), spans: Vec::new(), before: Vec::new() }
    }

    #[inline]
    pub fn find(&self, row: RowId) -> Option<usize> {
        if self.entries.len() <= FEW {
            return self.entries.iter().position(|entry| entry.row == row);
        }
        self.by_row.get(&row).copied()
    }

    pub fn push(&mut self, row: RowId, mode: Mode) -> usize {
        self.entries.push(Entry { row, mode, mark: None });
        let count = self.entries.len();
        if count > FEW {
            let new_from = if self.by_row.is_empty() { 0 } else { count - 1 };
            let numbered = self.entries.iter().enumerate().skip(new_from);
            self.by_row.extend(numbered.map(|(at, entry)| (entry.row, at)));
        }
        count - 1
    }

    pub fn entry(&mut self, at: usize) -> &mut Entry<M> {
        &mut self.entries[at]
    }

    pub fn mark(&self, row: RowId) -> Option<M> {
        self.entries[self.find(row)?].mark
    }

    pub fn entries(&self) -> &[Entry<M>] {
        &self.entries
    }

    /// Rows that have been written.
    pub fn written(&self) -> impl Iterator<Item = (RowId, M)> + '_ {
        self.entries.iter().filter_map(|entry| Some((entry.row, entry.mark?)))
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Keeps what `words` of a row hold, which are about to be overwritten.
    #[inline]
    pub fn keep(&mut self, row: RowId, first_word: usize, words: &[AtomicU64]) {
        let before_at = self.before.len();
        self.before.extend(words.iter().map(|word| word.load(Ordering::Relaxed)));
        // A row has at most 128 words.
        self.spans.push(Span {
            row,
            first_word: first_word as u16,
            word_count: words.len() as u16,
            before_at,
        });
    }

    /// Restores in `place_of` each row what it held, the last change first.
    pub fn undo<'p>(&self, place_of: impl Fn(RowId) -> Option<&'p [AtomicU64]>) {
        for span in self.spans.iter().rev() {
            let Some(place) = place_of(span.row) else { continue };
            let words = &place[usize::from(span.first_word)..][..usize::from(span.word_count)];
            let before = &self.before[span.before_at..];
            words.iter().zip(before).for_each(|(word, before)| word.store(*before, Ordering::Relaxed));
        }
    }

    pub fn clear(&mut self) {
        self.entries.clear();
        self.by_row.clear();
        self.spans.clear();
        self.before.clear();
    }
}
