//! IDs of a stream's entries.

use std::ops::{Bound, RangeBounds};

/// An entry's ID: a time, and a number among the entries of that time. `0-0` is no entry's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct StreamId {
    /// Milliseconds, as a rule since the Unix epoch.
    pub ms: u64,
    pub seq: u64,
}

impl StreamId {
    /// Before all entries.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };
    /// Bytes of [`StreamId::to_bytes`].
    pub const BYTES: usize = 16;

    pub fn new(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    /// The next ID; `None` after the last.
    pub fn next(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The ID before; `None` before the first.
    pub fn previous(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// The least ID of a range and the greatest one; of a range without any, the first is above the second.
    pub(crate) fn ends_of(ids: &impl RangeBounds<StreamId>) -> (StreamId, StreamId) {
        let from = match ids.start_bound() {
            Bound::Included(id) => Some(*id),
            Bound::Excluded(id) => id.next(),
            Bound::Unbounded => Some(StreamId::MIN),
        };
        let to = match ids.end_bound() {
            Bound::Included(id) => Some(*id),
            Bound::Excluded(id) => id.previous(),
            Bound::Unbounded => Some(StreamId::MAX),
        };
        from.zip(to).unwrap_or((StreamId::MAX, StreamId::MIN))
    }

    /// Bytes in whose order IDs are.
    pub fn to_bytes(self) -> [u8; StreamId::BYTES] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    pub fn from_bytes(bytes: [u8; StreamId::BYTES]) -> StreamId {
        let number = u128::from_be_bytes(bytes);
        StreamId { ms: (number >> 64) as u64, seq: number as u64 }
    }
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_each_other_over_milliseconds() {
        let last_of_five = StreamId::new(5, u64::MAX);
        assert_eq!(last_of_five.next(), Some(StreamId::new(6, 0)));
        assert_eq!(StreamId::new(6, 0).previous(), Some(last_of_five));
        assert_eq!((StreamId::MAX.next(), StreamId::MIN.previous()), (None, None));
        assert!(last_of_five.to_bytes() < StreamId::new(6, 0).to_bytes());
        assert_eq!(StreamId::from_bytes(last_of_five.to_bytes()), last_of_five);
    }

    #[test]
    fn ranges_have_ends_that_belong_to_them() {
        let (one, two) = (StreamId::new(1, 0), StreamId::new(2, 0));
        let before_two = StreamId::new(1, u64::MAX);
        assert_eq!(StreamId::ends_of(&..), (StreamId::MIN, StreamId::MAX));
        assert_eq!(StreamId::ends_of(&(one..two)), (one, before_two));
        assert_eq!(StreamId::ends_of(&(one..=two)), (one, two));
        assert_eq!(
            StreamId::ends_of(&(Bound::Excluded(one), Bound::Unbounded)),
            (StreamId::new(1, 1), StreamId::MAX)
        );
        let behind_all = (Bound::Excluded(StreamId::MAX), Bound::Unbounded);
        for (from, to) in [StreamId::ends_of(&..StreamId::MIN), StreamId::ends_of(&behind_all)] {
            assert!(from > to, "{from} {to}");
        }
    }
}
