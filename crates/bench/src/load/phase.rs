//! What of a load fell into a stretch of time: before a save, in its first second, during it.

use serde_json::{json, Value};

use super::recording::Sample;
use crate::clock::NS_PER_S;
use crate::stats::{median, percentile};

/// The latencies of requests that were due in a stretch of time.
#[derive(Clone, Debug, Default)]
pub struct Phase {
    pub count: usize,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub p9999_ns: u64,
    pub max_ns: u64,
    pub per_second_max_ns: Vec<u64>,
}

impl Phase {
    pub fn of(samples: &[Sample], from_ns: u64, to_ns: u64) -> Self {
        let within = |s: &&Sample| (from_ns..to_ns).contains(&s.intended_ns);
        let mut latencies: Vec<u64> = Vec::new();
        let mut per_second_max_ns = vec![0; (to_ns - from_ns).div_ceil(NS_PER_S) as usize];
        for sample in samples.iter().filter(within) {
            latencies.push(sample.latency_ns);
            let worst = &mut per_second_max_ns[((sample.intended_ns - from_ns) / NS_PER_S) as usize];
            *worst = sample.latency_ns.max(*worst);
        }
        Self {
            count: latencies.len(),
            mean_ns: latencies.iter().sum::<u64>() as f64 / latencies.len().max(1) as f64,
            p50_ns: percentile(&mut latencies, 50.0),
            p99_ns: percentile(&mut latencies, 99.0),
            p999_ns: percentile(&mut latencies, 99.9),
            p9999_ns: percentile(&mut latencies, 99.99),
            max_ns: percentile(&mut latencies, 100.0),
            per_second_max_ns,
        }
    }

    pub fn json(&self) -> Value {
        let us = |ns: u64| ns as f64 / 1e3;
        json!({
            "count": self.count, "mean_us": self.mean_ns / 1e3, "p50_us": us(self.p50_ns), "p99_us": us(self.p99_ns),
            "p999_us": us(self.p999_ns), "p9999_us": us(self.p9999_ns), "max_us": us(self.max_ns),
            "per_second_max_us": self.per_second_max_ns.iter().map(|ns| us(*ns)).collect::<Vec<_>>(),
        })
    }

    /// The median of the worst latencies of its seconds.
    pub fn typical_second_max_ns(&self) -> f64 {
        median(&self.per_second_max_ns.iter().map(|ns| *ns as f64).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_take_what_was_due_in_them() {
        let sample = |intended_ns, latency_ns| Sample { intended_ns, latency_ns };
        let samples =
            [sample(9, 1000), sample(10, 5), sample(10 + NS_PER_S, 7), sample(10 + 2 * NS_PER_S, 900)];
        let phase = Phase::of(&samples, 10, 10 + 2 * NS_PER_S);
        assert_eq!((phase.count, phase.max_ns, phase.per_second_max_ns.clone()), (2, 7, vec![5, 7]));
        assert_eq!(phase.mean_ns, 6.0);
        assert_eq!(phase.typical_second_max_ns(), 6.0);
    }
}
