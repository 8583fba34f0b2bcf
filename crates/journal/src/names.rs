//! What logs, segments and bytes of the stream are numbered by.

use std::fmt;

/// The number of one log: random, never 0. A server that gives a log up begins one with another number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LogId(pub u64);

/// A place in the stream: bytes before it since the stream began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Offset(pub u64);

/// The number of a segment. A number is used for one segment only, whichever log it is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentNumber(pub u32);

/// Where a cut stands in a log; replay begins there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The log.
    pub log: LogId,
    /// The segment that was written to at the cut; the bytes from `offset` on are in this one or in later ones.
    pub segment: SegmentNumber,
    /// The first byte of the stream that is not in the cut.
    pub offset: Offset,
}

impl Offset {
    /// The place so many bytes further on.
    #[must_use]
    pub fn plus(self, byte_count: u64) -> Offset {
        Offset(self.0 + byte_count)
    }

    /// Bytes from `before` to here; 0 if `before` is further on.
    #[must_use]
    pub fn since(self, before: Offset) -> u64 {
        self.0.saturating_sub(before.0)
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for SegmentNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
