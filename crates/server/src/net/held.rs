//! Output that may not leave yet: which part of it waits for what.

use std::collections::VecDeque;

/// A part of the unsent output, and up to where the log must be durable before it leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct HeldPart {
    byte_count: usize,
    need_offset: u64,
}

/// Unsent output by its needs, which rise from part to part.
///
/// ```text
///   sent | need 40 | need 75 | not noted yet |
/// ```
/// It is noted when output is about to be sent; until then it does not leave. Empty: nothing is held.
#[derive(Default, Debug)]
pub struct HeldParts {
    parts: VecDeque<HeldPart>,
    noted_bytes: usize,
}

impl HeldParts {
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// There are so many unsent bytes; those that are not noted yet have this need.
    pub fn note(&mut self, unsent_bytes: usize, need_offset: u64) {
        let byte_count = unsent_bytes - self.noted_bytes;
        self.noted_bytes = unsent_bytes;
        match self.parts.back_mut() {
            _ if byte_count == 0 => {}
            Some(last) if last.need_offset >= need_offset => last.byte_count += byte_count,
            _ => self.parts.push_back(HeldPart { byte_count, need_offset }),
        }
    }

    /// How many bytes, from the first unsent one on, have no higher need than that.
    pub fn free_bytes(&self, limit_offset: u64) -> usize {
        let free = self.parts.iter().take_while(|part| part.need_offset <= limit_offset);
        free.map(|part| part.byte_count).sum()
    }

    /// The lowest need above that.
    pub fn next_offset(&self, limit_offset: u64) -> Option<u64> {
        self.parts.iter().map(|part| part.need_offset).find(|need_offset| *need_offset > limit_offset)
    }

    /// So many bytes have been sent.
    pub fn sent(&mut self, byte_count: usize) {
        self.noted_bytes = self.noted_bytes.saturating_sub(byte_count);
        let mut left_bytes = byte_count;
        while let Some(first) = self.parts.front_mut() {
            if first.byte_count > left_bytes {
                first.byte_count -= left_bytes;
                return;
            }
            left_bytes -= first.byte_count;
            self.parts.pop_front();
        }
    }

    /// Nothing is held, or there is nothing any more.
    pub fn clear(&mut self) {
        *self = HeldParts::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_leave_is_a_prefix_that_grows_with_what_is_durable() {
        let mut held = HeldParts::default();
        assert!(held.is_empty());
        held.note(10, 40);
        held.note(10, 40);
        held.note(16, 75);
        held.note(20, 60);
        assert_eq!([39, 40, 74, 75].map(|limit| held.free_bytes(limit)), [0, 10, 10, 20]);
        assert_eq!([0, 40, 75].map(|limit| held.next_offset(limit)), [Some(40), Some(75), None]);
        held.sent(4);
        assert_eq!((held.free_bytes(40), held.free_bytes(75)), (6, 16));
        held.sent(6);
        assert_eq!((held.free_bytes(40), held.next_offset(0)), (0, Some(75)));
        held.note(13, 80);
        assert_eq!((held.free_bytes(75), held.free_bytes(80)), (10, 13));
        held.sent(13);
        assert!(held.is_empty());
        held.note(3, 0);
        held.note(5, 90);
        assert_eq!((held.free_bytes(0), held.next_offset(0)), (3, Some(90)));
        held.sent(5);
        held.note(0, 90);
        assert!(held.is_empty(), "of nothing there is nothing to hold");
    }
}
