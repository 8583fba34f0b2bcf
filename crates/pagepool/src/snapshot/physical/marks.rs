//! What a stream has to do with each row, as far as that cannot be read from the page's epochs any more.
//!
//! ```text
//!               ┌─ first write, by its writer ──▶ NEEDED ─┐
//!   UNKNOWN ────┤                                         ├─ put into the image ──▶ DONE
//!               ├─────────────────────────────────────────┘
//!               └─ used again, was free at the cut ──▶ TOMBSTONE
//! ```
//! All are UNKNOWN again at the end of a stream.

use std::sync::atomic::{AtomicU64, Ordering};

use stillframe_algorithms::RowId;

use crate::space::{MapError, VirtualArray};

const ROWS_PER_WORD: u32 = 32;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    Unknown = 0,
    Needed = 1,
    Tombstone = 2,
    Done = 3,
}

/// Two bits a row.
pub struct Marks(VirtualArray<AtomicU64>);

impl Marks {
    /// # Errors
    /// [`MapError`].
    pub fn new(row_limit: u32) -> Result<Marks, MapError> {
        Ok(Marks(VirtualArray::new(row_limit.div_ceil(ROWS_PER_WORD) as usize)?))
    }

    fn word(&self, row: RowId) -> (&AtomicU64, u32) {
        (self.0.get((row.0 / ROWS_PER_WORD) as usize), row.0 % ROWS_PER_WORD * 2)
    }

    pub fn get(&self, row: RowId) -> Mark {
        let (word, shift) = self.word(row);
        match word.load(Ordering::Acquire) >> shift & 3 {
            0 => Mark::Unknown,
            1 => Mark::Needed,
            2 => Mark::Tombstone,
            _ => Mark::Done,
        }
    }

    /// One of the steps above. None leads from NEEDED to TOMBSTONE or back; one to NEEDED leaves DONE as it is.
    pub fn set(&self, row: RowId, mark: Mark) {
        let (word, shift) = self.word(row);
        word.fetch_or((mark as u64) << shift, Ordering::AcqRel);
    }

    /// The stream has ended.
    pub fn clear(&self, row_count: u32) {
        self.0.zero_range(0, row_count.div_ceil(ROWS_PER_WORD) as usize);
    }
}
