//! A packed list: its items in their order.

use std::ops::Range;

use crate::effect::End;
use crate::types::packed::{elements, splice};

/// The bytes of items in a range; what a list has not is cut off.
pub(super) fn bytes_of(run: &[u8], range: &Range<u64>) -> Range<usize> {
    let (mut start, mut end) = (run.len(), run.len());
    for (index, item) in (0..).zip(elements(run)) {
        if index == range.start {
            start = item.range.start;
        }
        if index == range.end {
            end = item.range.start;
        }
    }
    start.min(end)..end
}

/// Puts items to an end, one after the other.
pub(super) fn push(run: &mut Vec<u8>, end: End, items: &[&[u8]]) {
    match end {
        End::Left => {
            let reversed: Vec<&[u8]> = items.iter().rev().copied().collect();
            splice(run, 0..0, &reversed);
        }
        End::Right => {
            let len_bytes = run.len();
            splice(run, len_bytes..len_bytes, items);
        }
    }
}
