//! Rows, whole copies of them, and the seam to where these lie.

use std::ops::Range;

use crate::sync::atomic::AtomicU64;

/// A row, the unit that an algorithm copies. Rows count from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowId(pub u32);

/// One of the sets of rows that an algorithm has. The names are those of the study.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CopyId(pub u8);

impl CopyId {
    /// The data, where an algorithm has one live copy. The initial data is in it, whatever the algorithm.
    pub const D: CopyId = CopyId(0);
    /// The shadow of `D` (naive, copy-on-update).
    pub const S: CopyId = CopyId(1);
    /// The first of two equal copies (Zigzag, Hourglass, Piggyback): `D` by another name.
    pub const D0: CopyId = CopyId(0);
    /// The second of them.
    pub const D1: CopyId = CopyId(1);
    /// Updates of the even periods (Ping-Pong).
    pub const U0: CopyId = CopyId(1);
    /// Updates of the odd periods (Ping-Pong).
    pub const U1: CopyId = CopyId(2);
    /// Spare frames (epoch). Not a copy of all rows: its slots are frames, and the algorithm says whose.
    pub const SPARE: CopyId = CopyId(1);
}

/// What a write is going to change of a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// Some of the bytes from `start` to `end`; which of them is the writer's affair.
    Part { start: usize, end: usize },
    /// Each byte. So nothing is needed of what the row was, and nothing of a copy is read before all has been written.
    Whole,
}

impl Change {
    /// Some of these bytes of a row.
    #[inline(always)]
    #[must_use]
    pub const fn part(bytes: Range<usize>) -> Change {
        Change::Part { start: bytes.start, end: bytes.end }
    }

    /// The bytes that may change, of a row of `row_len` bytes.
    #[inline(always)]
    #[must_use]
    pub const fn bytes(self, row_len: usize) -> Range<usize> {
        match self {
            Change::Part { start, end } => start..end,
            Change::Whole => 0..row_len,
        }
    }
}

/// Where one version of a row lies: a slot of a copy. But for [`CopyId::SPARE`] the slot is the row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    pub copy: CopyId,
    pub slot: u32,
}

impl Place {
    #[inline(always)]
    pub const fn of(row: RowId, copy: CopyId) -> Place {
        Place { copy, slot: row.0 }
    }
}

/// Where the copies are kept. Copying rows is all that an algorithm does with bytes.
///
/// A copy may run beside a writer of the row that it reads (`epoch` copies first and looks afterwards): it then yields
/// any mixture, but it is defined. Nothing is promised of the order in which bytes are copied.
pub trait Copies: Sync {
    /// Whether [`Copies::let_go`] does anything. If not, algorithms do not look for what can be let go.
    const LETS_GO: bool = false;

    /// Rows that are there, `0..row_count`. It may grow, up to what the algorithm was made for. A row that comes after
    /// a cut is not of that cut.
    fn row_count(&self) -> u32;

    /// Bytes of a row.
    fn row_len(&self) -> usize;

    /// Copies a whole row.
    fn copy(&self, from: Place, to: Place);

    /// Copies at least these bytes of a row, of which the caller is the only writer.
    fn copy_part(&self, from: Place, to: Place, bytes: Range<usize>);

    /// Reads the first `into.len()` bytes of a row.
    fn read(&self, place: Place, into: &mut [u8]);

    /// Copies many rows, while nobody writes.
    fn copy_rows(&self, rows: Range<u32>, from: CopyId, to: CopyId) {
        rows.map(RowId).for_each(|row| self.copy(Place::of(row, from), Place::of(row, to)));
    }

    /// Nobody will read these rows of the copy before they have been written anew as a whole: their memory may go, or be
    /// used for other rows. Called from the access phase, in ranges, never for what a writer may be at (H10). Under Piggyback a read
    /// that began before may still be at it: who uses the memory again waits for the reads that are in flight.
    fn let_go(&self, copy: CopyId, rows: Range<u32>) {
        let _ = (copy, rows);
    }
}

/// Copies that are words in memory, of which an algorithm may copy some.
pub trait WordCopies: Copies {
    /// The words of a row.
    fn words(&self, place: Place) -> &[AtomicU64];
}

/// Gives the rows of a copy back that nobody will read, in runs.
pub fn let_go_where<C: Copies>(copies: &C, copy: CopyId, row_count: u32, is_dead: impl Fn(RowId) -> bool) {
    let mut start = 0;
    for row in 0..=row_count {
        if row == row_count || !is_dead(RowId(row)) {
            if start < row {
                copies.let_go(copy, start..row);
            }
            start = row + 1;
        }
    }
}
