//! Redis's generator for `math.random`: 48 bits, linear congruential, the same sequence everywhere.

/// Its whole state, 48 bits: to save and to put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

const MASK: u64 = (1 << 48) - 1;
const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
/// What a seed is put in front of.
const SEED_LOW: u64 = 0x330E;

/// One more than the greatest number of [`Random::next_31_bits`].
pub(crate) const LIMIT: u32 = 1 << 31;

impl Default for Random {
    fn default() -> Random {
        Random { state: 0x1234_ABCD_330E }
    }
}

impl Random {
    pub(crate) fn seeded(seed: i32) -> Random {
        Random { state: u64::from(seed as u32) << 16 | SEED_LOW }
    }

    /// The next number, and the generator after it.
    pub(crate) fn next_31_bits(self) -> (u32, Random) {
        let state = (self.state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT)) & MASK;
        ((state >> 17) as u32, Random { state })
    }
}
