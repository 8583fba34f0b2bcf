//! Registers of 6 bits each, the first in the lowest bits of the first byte.

use std::ops::Range;

pub const REGISTER_BITS: usize = 6;
const MASK: u32 = (1 << REGISTER_BITS) - 1;
/// Four registers fill three bytes.
const GROUP_BYTES: usize = 3;
const GROUP_REGISTERS: usize = 4;

fn group(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// All registers, in their order.
pub fn registers(bytes: &[u8]) -> impl Iterator<Item = u8> + '_ {
    bytes.chunks_exact(GROUP_BYTES).flat_map(|bytes| {
        let group = group(bytes);
        (0..GROUP_REGISTERS).map(move |index| (group >> (index * REGISTER_BITS) & MASK) as u8)
    })
}

/// Raises a register to at least `value`. Returns the bytes that have changed, if it was lower.
pub fn raise(bytes: &mut [u8], index: usize, value: u8) -> Option<Range<usize>> {
    let start = index / GROUP_REGISTERS * GROUP_BYTES;
    let place = bytes.get_mut(start..)?.first_chunk_mut::<GROUP_BYTES>()?;
    let shift = index % GROUP_REGISTERS * REGISTER_BITS;
    let old = group(place);
    if old >> shift & MASK >= u32::from(value) {
        return None;
    }
    let new = old & !(MASK << shift) | (u32::from(value) & MASK) << shift;
    let [low, middle, high, _] = new.to_le_bytes();
    *place = [low, middle, high];
    let first = start + shift / 8;
    Some(first..start + (shift + REGISTER_BITS).div_ceil(8))
}
