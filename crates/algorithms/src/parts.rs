//! Parts of rows that writers keep: spare frames of a few words, each of which says which part it is and where the one is that was
//! kept before it of the same row.

use crate::frames::{Frames, Turn};
use crate::row_array::copy_words;
use crate::rows::RowId;
use crate::sync::atomic::{AtomicU64, Ordering};

/// A part in the ring, or none: what rows and parts link to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link(u32);

impl Link {
    pub const NONE: Link = Link(0);

    pub fn from_bits(bits: u32) -> Link {
        Link(bits)
    }

    pub fn bits(self) -> u32 {
        self.0
    }

    fn to(turn: Turn) -> Link {
        Link(turn.frame() + 1)
    }
}

pub struct Parts {
    /// Which of them are free, and which rows those are of that are not.
    pub frames: Frames,
    /// Of each frame: the link to the part before it (the lower half), and the number of its own part.
    heads: Box<[AtomicU64]>,
    words: Box<[AtomicU64]>,
    part_words: usize,
}

impl Parts {
    /// Bytes that a part of so many words needs.
    pub fn frame_bytes(part_words: usize) -> usize {
        // Its words, its head, and its slot among the frames.
        (part_words + 2) * size_of::<u64>()
    }

    /// All free, in memory that has been touched.
    pub fn new(frame_count: u32, part_words: usize) -> Parts {
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Parts {
            frames: Frames::new(frame_count),
            heads: zeros(frame_count as usize),
            words: zeros(frame_count as usize * part_words),
            part_words,
        }
    }

    fn frame_words(&self, frame: usize) -> &[AtomicU64] {
        &self.words[frame * self.part_words..][..self.part_words]
    }

    /// The words of a row's part; the last one may be shorter.
    fn part_of<'r>(&self, row: &'r [AtomicU64], part: u32) -> &'r [AtomicU64] {
        let start = (part as usize * self.part_words).min(row.len());
        &row[start..row.len().min(start + self.part_words)]
    }

    /// Keeps a part in a frame that the caller has taken, and says what links to it.
    #[inline]
    pub fn keep(&self, turn: Turn, row: &[AtomicU64], part: u32, before: Link) -> Link {
        let frame = turn.frame() as usize;
        copy_words(self.part_of(row, part), self.frame_words(frame));
        self.heads[frame].store(u64::from(part) << 32 | u64::from(before.0), Ordering::Relaxed);
        Link::to(turn)
    }

    /// Hands over a frame with a part of a row.
    #[inline]
    pub fn hand_over(&self, turn: Turn, row: RowId) {
        self.frames.hand_over(turn, row);
    }

    /// Lays a part over a copy of its row, and says which one was kept before it. Frames that are used again meanwhile yield
    /// nonsense, but no more.
    pub fn lay_over(&self, link: Link, row: &[AtomicU64]) -> Option<Link> {
        let frame = link.0.checked_sub(1)? as usize;
        let head = self.heads[frame].load(Ordering::Relaxed);
        copy_words(self.frame_words(frame), self.part_of(row, (head >> 32) as u32));
        Some(Link(head as u32))
    }
}
