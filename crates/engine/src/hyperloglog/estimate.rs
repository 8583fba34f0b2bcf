//! From registers to the number of different elements: the estimator of Otmar Ertl, "New cardinality estimation algorithms for
//! HyperLogLog sketches" (2017), which needs no tables of corrections.

use super::format::REGISTER_COUNT;
use super::hash::VALUE_MAX;

/// `1 / (2 ln 2)`, which the constants of the estimator come to for many registers.
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// How many registers have each value.
pub struct Histogram([u32; 64]);

impl Default for Histogram {
    fn default() -> Self {
        Histogram([0; 64])
    }
}

impl Histogram {
    pub fn add(&mut self, value: u8, register_count: usize) {
        self.0[usize::from(value & 63)] += register_count as u32;
    }

    pub fn estimate(&self) -> u64 {
        let count = REGISTER_COUNT as f64;
        let of = |value: usize| f64::from(self.0[value]);
        let last = usize::from(VALUE_MAX);
        let mut sum = count * tau((count - of(last)) / count);
        for value in (1..last).rev() {
            sum = (sum + of(value)) * 0.5;
        }
        sum += count * sigma(of(0) / count);
        (ALPHA * count * count / sum).round() as u64
    }
}

/// The sum of what registers of the highest value may hide, by the share of all others.
fn tau(share: f64) -> f64 {
    if share == 0.0 || share == 1.0 {
        return 0.0;
    }
    let (mut root, mut weight, mut sum) = (share, 1.0, 1.0 - share);
    loop {
        let before = sum;
        root = root.sqrt();
        weight *= 0.5;
        sum -= (1.0 - root) * (1.0 - root) * weight;
        if sum == before {
            return sum / 3.0;
        }
    }
}

/// The same for registers of value zero, by their share.
fn sigma(share: f64) -> f64 {
    if share == 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut weight, mut sum) = (share, 1.0, share);
    loop {
        let before = sum;
        power *= power;
        sum += power * weight;
        weight += weight;
        if sum == before {
            return sum;
        }
    }
}
