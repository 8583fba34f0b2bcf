//! Values that can be checked: the bytes follow from the key and a nonce that the value begins with, so whoever
//! reads a value can tell whether it is one that was written to this key, whichever write it was.

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

const POOL_BYTES: usize = 4 << 20;
const NONCE_BYTES: usize = 8;

/// A stretch of random bytes of which values are windows: as incompressible as random, as cheap as a copy.
pub struct ValuePool {
    bytes: Vec<u8>,
    window_count: u64,
    compressible: bool,
}

impl ValuePool {
    /// `max_value_bytes`: the largest value asked for later. Two pools with the same seed agree.
    pub fn new(seed: u64, max_value_bytes: usize, compressible: bool) -> Self {
        let mut bytes = vec![b'x'; POOL_BYTES + max_value_bytes];
        if !compressible {
            SmallRng::seed_from_u64(seed).fill_bytes(&mut bytes);
        }
        Self { bytes, window_count: POOL_BYTES as u64, compressible }
    }

    pub fn append(&self, out: &mut Vec<u8>, key_index: u64, nonce: u64, value_bytes: usize) {
        let start = self.window(key_index, nonce);
        if self.compressible || value_bytes < NONCE_BYTES {
            out.extend_from_slice(&self.bytes[start..start + value_bytes]);
        } else {
            out.extend_from_slice(&nonce.to_le_bytes());
            out.extend_from_slice(&self.bytes[start..start + value_bytes - NONCE_BYTES]);
        }
    }

    /// Whether `value` was made for this key. Values shorter than the nonce, and compressible ones, cannot be told.
    pub fn verify(&self, key_index: u64, value: &[u8]) -> bool {
        let Some((nonce, rest)) = value.split_first_chunk::<NONCE_BYTES>() else { return true };
        if self.compressible {
            return value.iter().all(|b| *b == b'x');
        }
        let start = self.window(key_index, u64::from_le_bytes(*nonce));
        self.bytes.get(start..start + rest.len()).is_some_and(|expected| expected == rest)
    }

    fn window(&self, key_index: u64, nonce: u64) -> usize {
        (mix(key_index ^ nonce.rotate_left(32)) % self.window_count) as usize
    }
}

/// A bijection of 64-bit numbers with good avalanche (the finaliser of SplitMix64).
#[inline]
pub fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_belongs_to_its_key_only() {
        let pool = ValuePool::new(7, 1000, false);
        let mut value = Vec::new();
        pool.append(&mut value, 41, 99, 1000);
        assert_eq!(value.len(), 1000);
        assert!(pool.verify(41, &value));
        assert!(!pool.verify(42, &value));
        value[999] ^= 1;
        assert!(!pool.verify(41, &value));
    }
}
