//! What is sent: a mix of GET and SET over numbered keys of 16 bytes.

use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};

use super::requests::Requests;
use super::values::{mix, ValuePool};
use crate::error::{BenchError, Result};

/// `key:` and twelve digits.
pub const KEY_BYTES: usize = 16;
pub const KEY_DIGITS: usize = 12;
const KEY_LIMIT: u64 = 1_000_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KeyChoice {
    /// Every request draws a fresh random key
    Uniform,
    /// Fresh draws from a Zipf distribution, the hot keys scattered over the key space
    Zipf,
    /// Every key exactly once, in random order
    Once,
}

/// Value sizes in bytes, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    pub min_bytes: usize,
    pub max_bytes: usize,
}

impl SizeRange {
    pub fn fixed(bytes: usize) -> Self {
        Self { min_bytes: bytes, max_bytes: bytes }
    }
}

impl std::str::FromStr for SizeRange {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let number = |t: &str| t.parse::<usize>().map_err(|_| format!("{t:?} is not a number of bytes"));
        let (min_bytes, max_bytes) = match text.split_once('-') {
            Some((min, max)) => (number(min)?, number(max)?),
            None => (number(text)?, number(text)?),
        };
        if min_bytes > max_bytes || max_bytes > 512 << 20 {
            return Err("give N or MIN-MAX bytes, at most 512 MB".to_owned());
        }
        Ok(Self { min_bytes, max_bytes })
    }
}

impl std::fmt::Display for SizeRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.min_bytes == self.max_bytes {
            write!(f, "{}", self.min_bytes)
        } else {
            write!(f, "{}-{}", self.min_bytes, self.max_bytes)
        }
    }
}

/// Everything that fixes the request stream.
#[derive(Clone, Debug)]
pub struct WorkloadSpec {
    /// Keys are numbered `first_key .. first_key + key_count`.
    pub first_key: u64,
    pub key_count: u64,
    pub value_size: SizeRange,
    /// 0: all SET; 100: all GET.
    pub get_percent: u8,
    /// DEL takes the place of SET.
    pub delete: bool,
    pub keys: KeyChoice,
    pub zipf_exponent: f64,
    pub compressible: bool,
    pub seed: u64,
}

impl WorkloadSpec {
    pub fn sets(key_count: u64, value_bytes: usize, keys: KeyChoice, seed: u64) -> Self {
        Self {
            first_key: 0,
            key_count,
            value_size: SizeRange::fixed(value_bytes),
            get_percent: 0,
            delete: false,
            keys,
            zipf_exponent: 0.99,
            compressible: false,
            seed,
        }
    }
}

enum Keys {
    Uniform,
    Zipf { ranks: Zipf<f64>, scatter: Permutation },
    Once { order: Permutation, next: u64 },
}

/// A stream of requests, encoded straight into a connection's output buffer.
pub struct Workload {
    spec: WorkloadSpec,
    keys: Keys,
    rng: SmallRng,
    pool: ValuePool,
    get: Template,
    set: Template,
    del: Template,
}

impl Workload {
    pub fn new(spec: WorkloadSpec) -> Result<Self> {
        if spec.key_count == 0 || spec.first_key + spec.key_count > KEY_LIMIT {
            return Err(BenchError::Failed(format!("the number of keys must be 1 to {KEY_LIMIT}")));
        }
        let order = Permutation::new(spec.key_count, spec.seed);
        let keys = match spec.keys {
            KeyChoice::Uniform => Keys::Uniform,
            KeyChoice::Once => Keys::Once { order, next: 0 },
            KeyChoice::Zipf => {
                let ranks = Zipf::new(spec.key_count as f64, spec.zipf_exponent)
                    .map_err(|e| BenchError::Failed(format!("zipf exponent {}: {e}", spec.zipf_exponent)))?;
                Keys::Zipf { ranks, scatter: order }
            }
        };
        let set_tail = (spec.value_size.min_bytes == spec.value_size.max_bytes)
            .then(|| format!("${}\r\n", spec.value_size.max_bytes));
        Ok(Self {
            keys,
            rng: SmallRng::seed_from_u64(mix(spec.seed)),
            pool: ValuePool::new(spec.seed, spec.value_size.max_bytes, spec.compressible),
            get: Template::new("*2\r\n$3\r\nGET\r\n", ""),
            set: Template::new("*3\r\n$3\r\nSET\r\n", set_tail.as_deref().unwrap_or("")),
            del: Template::new("*2\r\n$3\r\nDEL\r\n", ""),
            spec,
        })
    }

    /// The same keys and values drawn in another order.
    pub fn reseeded(mut self, draw: u64) -> Self {
        self.rng = SmallRng::seed_from_u64(mix(self.spec.seed ^ mix(draw + 1)));
        self
    }

    fn append_set(&mut self, out: &mut Vec<u8>, key_index: u64) {
        let size = self.spec.value_size;
        self.set.append(out, key_index);
        let value_bytes = if size.min_bytes == size.max_bytes {
            size.max_bytes
        } else {
            let value_bytes = self.rng.random_range(size.min_bytes..=size.max_bytes);
            out.extend_from_slice(format!("${value_bytes}\r\n").as_bytes());
            value_bytes
        };
        let nonce = self.rng.random::<u64>();
        self.pool.append(out, key_index, nonce, value_bytes);
        out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn next_key(&mut self) -> u64 {
        match &mut self.keys {
            Keys::Uniform => self.rng.random_range(0..self.spec.key_count),
            Keys::Zipf { ranks, scatter } => {
                let rank = ranks.sample(&mut self.rng) as u64;
                scatter.at(rank.clamp(1, self.spec.key_count) - 1)
            }
            Keys::Once { order, next } => {
                let key = order.at(*next % self.spec.key_count);
                *next += 1;
                key
            }
        }
    }
}

impl Requests for Workload {
    #[inline]
    fn append_request(&mut self, out: &mut Vec<u8>) {
        let key_index = self.spec.first_key + self.next_key();
        if self.spec.get_percent > 0 && self.rng.random_range(0..100) < self.spec.get_percent {
            return self.get.append(out, key_index);
        }
        if self.spec.delete {
            return self.del.append(out, key_index);
        }
        self.append_set(out, key_index);
    }

    fn request_count(&self) -> Option<u64> {
        matches!(self.keys, Keys::Once { .. }).then_some(self.spec.key_count)
    }
}

pub fn key_name(key_index: u64) -> String {
    format!("key:{key_index:012}")
}

/// A request up to and including its key, and the fixed bytes behind; only the key's digits change.
struct Template {
    bytes: Vec<u8>,
    digits_at: usize,
}

impl Template {
    fn new(head: &str, tail: &str) -> Self {
        let key = key_name(0);
        let bytes = format!("{head}${KEY_BYTES}\r\n{key}\r\n{tail}").into_bytes();
        let digits_at = bytes.len() - tail.len() - 2 - KEY_DIGITS;
        Self { bytes, digits_at }
    }

    #[inline]
    fn append(&self, out: &mut Vec<u8>, key_index: u64) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let digits_at = start + self.digits_at;
        write_digits(&mut out[digits_at..digits_at + KEY_DIGITS], key_index);
    }
}

/// The last digits of a number, into a field of zeros.
#[inline]
pub fn write_digits(zeros: &mut [u8], number: u64) {
    let mut rest = number;
    for digit in zeros.iter_mut().rev() {
        if rest == 0 {
            break;
        }
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

/// A pseudo-random permutation of `0..count`: a Feistel network over the next even number of bits, walked until
/// the result lies inside. Needs no memory, so any number of keys can be visited once in random order.
pub struct Permutation {
    count: u64,
    half_bits: u32,
    round_keys: [u64; 4],
}

impl Permutation {
    pub fn new(count: u64, seed: u64) -> Self {
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        let round_keys = std::array::from_fn(|i| mix(seed ^ mix(i as u64)));
        Self { count, half_bits: bits.div_ceil(2).max(1), round_keys }
    }

    pub fn at(&self, index: u64) -> u64 {
        let mut x = index;
        loop {
            x = self.encrypt(x);
            if x < self.count {
                return x;
            }
        }
    }

    fn encrypt(&self, x: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (x >> self.half_bits, x & mask);
        for key in self.round_keys {
            (left, right) = (right, left ^ (mix(right ^ key) & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutation_visits_each_key_once() {
        for count in [1, 2, 3, 1000, 4096, 5000] {
            let p = Permutation::new(count, 3);
            let mut seen: Vec<u64> = (0..count).map(|i| p.at(i)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn requests_are_well_formed() {
        let mut w = Workload::new(WorkloadSpec::sets(10, 3, KeyChoice::Once, 1)).unwrap();
        let mut out = Vec::new();
        w.append_request(&mut out);
        assert!(out.starts_with(b"*3\r\n$3\r\nSET\r\n$16\r\nkey:00000000000"));
        assert!(out.ends_with(b"\r\n"));
        assert_eq!(out.len(), 13 + 5 + 18 + 4 + 5);
    }

    #[test]
    fn zipf_prefers_few_keys() {
        let spec = WorkloadSpec { keys: KeyChoice::Zipf, ..WorkloadSpec::sets(1000, 3, KeyChoice::Zipf, 1) };
        let mut w = Workload::new(spec).unwrap();
        let mut hits = vec![0u32; 1000];
        (0..10_000).for_each(|_| hits[w.next_key() as usize] += 1);
        hits.sort_unstable();
        assert!(hits[990..].iter().sum::<u32>() > 3000);
    }

    #[test]
    fn sizes_parse() {
        assert_eq!("512-1536".parse(), Ok(SizeRange { min_bytes: 512, max_bytes: 1536 }));
        assert!("9-3".parse::<SizeRange>().is_err());
    }
}
