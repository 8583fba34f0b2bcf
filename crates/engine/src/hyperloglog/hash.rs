//! Where an element falls: MurmurHash64A (Austin Appleby, in the public domain), little endian on any machine.

/// Bits of a hash that choose the register.
pub const INDEX_BITS: u32 = 14;
/// The other bits: at most all of them are zero.
const RUN_BITS: u32 = 64 - INDEX_BITS;
/// Most that a register can be raised to.
pub const VALUE_MAX: u8 = RUN_BITS as u8 + 1;
const SEED: u64 = 0xadc8_3b19;
const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;

/// The register of an element, and what it raises it to.
pub struct Register {
    pub index: usize,
    pub value: u8,
}

impl Register {
    pub fn of(element: &[u8]) -> Register {
        let hash = murmur64a(element, SEED);
        let run = hash >> INDEX_BITS | 1 << RUN_BITS;
        let index = (hash & ((1 << INDEX_BITS) - 1)) as usize;
        Register { index, value: run.trailing_zeros() as u8 + 1 }
    }
}

/// Of at most 8 bytes.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn mix(word: u64) -> u64 {
    let word = word.wrapping_mul(MULTIPLIER);
    (word ^ word >> SHIFT).wrapping_mul(MULTIPLIER)
}

fn murmur64a(bytes: &[u8], seed: u64) -> u64 {
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    for word in words {
        hash = (hash ^ mix(little_endian(word))).wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        hash = (hash ^ little_endian(rest)).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(MULTIPLIER);
    hash ^ hash >> SHIFT
}
