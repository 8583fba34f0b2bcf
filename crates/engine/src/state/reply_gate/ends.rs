//! Where the newest unit of each key ends in the log.

use crate::sync::atomic::{AtomicU64, Ordering};

/// A word has a cache line of its own, lest workers that write to different keys write to a common one.
#[repr(align(64))]
struct Word(AtomicU64);

/// Ends of units by keys, as offsets of the log. Keys share words: a collision only costs a wait.
///
/// A word is raised while the locks of the unit's keys are held, so a thread that has seen a change, and then found the key's lock
/// free, finds the end of that change here.
pub struct Ends {
    words: Box<[Word]>,
    /// The newest unit that concerns all keys: a database was emptied, or two were exchanged.
    all_offset: AtomicU64,
    tail_offset: AtomicU64,
}

impl Ends {
    pub fn new(word_count: usize) -> Ends {
        let word = |_| Word(AtomicU64::new(0));
        Ends {
            words: (0..word_count).map(word).collect(),
            all_offset: AtomicU64::new(0),
            tail_offset: AtomicU64::new(0),
        }
    }

    /// The word of a key, by the number of its database and its hash.
    #[inline]
    pub fn index_of(&self, db: u32, hash: u64) -> usize {
        let mixed = (hash ^ u64::from(db)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize % self.words.len()
    }

    /// A unit that ends there has changed a key of this word.
    pub fn note(&self, index: usize, end_offset: u64) {
        self.words[index].0.fetch_max(end_offset, Ordering::AcqRel);
    }

    /// A unit that ends there concerns all keys.
    pub fn note_all(&self, end_offset: u64) {
        self.all_offset.fetch_max(end_offset, Ordering::AcqRel);
    }

    /// A unit has been appended that ends there.
    pub fn note_tail(&self, end_offset: u64) {
        self.tail_offset.fetch_max(end_offset, Ordering::AcqRel);
    }

    /// Where the newest unit of the keys of a word ends.
    pub fn of(&self, index: usize) -> u64 {
        let word_offset = self.words[index].0.load(Ordering::Acquire);
        word_offset.max(self.all_offset.load(Ordering::Acquire))
    }

    /// Where the newest unit of all ends.
    pub fn tail_offset(&self) -> u64 {
        self.tail_offset.load(Ordering::Acquire)
    }
}
