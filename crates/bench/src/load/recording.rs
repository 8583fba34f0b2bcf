//! What a load run leaves behind: latencies as a histogram, as 10 ms buckets over time and, if asked, one by one.

use hdrhistogram::Histogram;
use serde_json::{json, Value};

use super::scan::Tally;
use crate::clock::{NS_PER_MS, NS_PER_S};
use crate::stops::{Stops, STOP_NS};

pub const BUCKET_NS: u64 = 10 * NS_PER_MS;
/// Latencies above ten minutes are recorded as ten minutes.
const LONGEST_NS: u64 = 600 * NS_PER_S;

/// All requests whose intended send time falls into the same 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    pub count: u64,
    pub max_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub intended_ns: u64,
    pub latency_ns: u64,
}

pub fn new_histogram() -> Histogram<u64> {
    // Three significant digits between one nanosecond and the cap: the arguments are valid by construction.
    Histogram::new_with_bounds(1, LONGEST_NS, 3).unwrap_or_else(|e| unreachable!("histogram bounds: {e}"))
}

pub struct Recording {
    /// Requests intended before this are not recorded (warm-up).
    pub start_ns: u64,
    pub histogram: Histogram<u64>,
    pub buckets: Vec<Bucket>,
    samples: Option<Vec<Sample>>,
    /// While the machine is watched: latencies that it may have stood still in, with their counts.
    late: Option<Vec<(Sample, u64)>>,
}

impl Recording {
    pub fn new(start_ns: u64) -> Self {
        Self { start_ns, histogram: new_histogram(), buckets: Vec::new(), samples: None, late: None }
    }

    /// Keeps every latency, with memory for `expected` of them touched beforehand.
    pub fn with_samples(start_ns: u64, expected: usize) -> Self {
        let zero = Sample { intended_ns: 0, latency_ns: 0 };
        let mut samples = vec![zero; expected];
        samples.clear();
        Self { samples: Some(samples), ..Self::new(start_ns) }
    }

    /// The same, of a time in which a watch looks for stops of the machine. [`Recording::leave_out`] ends it.
    pub fn watched(self) -> Self {
        Self { late: Some(Vec::new()), ..self }
    }

    /// Records what was late, but for what the machine stood still in: so many are left out.
    pub fn leave_out(&mut self, stops: &Stops) -> u64 {
        let mut left_out = 0;
        for (Sample { intended_ns, latency_ns }, count) in self.late.take().unwrap_or_default() {
            match stops.fall_into(intended_ns, intended_ns + latency_ns) {
                true => left_out += count,
                false => self.record(intended_ns, latency_ns, count),
            }
        }
        if let Some(samples) = &mut self.samples {
            samples.sort_by_key(|sample| sample.intended_ns);
        }
        left_out
    }

    #[inline]
    pub fn record(&mut self, intended_ns: u64, latency_ns: u64, count: u64) {
        let Some(since_start_ns) = intended_ns.checked_sub(self.start_ns) else { return };
        if let Some(late) = self.late.as_mut().filter(|_| latency_ns >= STOP_NS) {
            return late.push((Sample { intended_ns, latency_ns }, count));
        }
        self.histogram.saturating_record_n(latency_ns, count);
        let index = (since_start_ns / BUCKET_NS) as usize;
        if index >= self.buckets.len() {
            self.buckets.resize(index + 1, Bucket::default());
        }
        let bucket = &mut self.buckets[index];
        bucket.count += count;
        bucket.max_ns = bucket.max_ns.max(latency_ns);
        if let Some(samples) = &mut self.samples {
            samples.extend(std::iter::repeat_n(Sample { intended_ns, latency_ns }, count as usize));
        }
    }

    pub fn samples(&self) -> &[Sample] {
        self.samples.as_deref().unwrap_or_default()
    }

    /// The worst latency of each whole second since the start.
    pub fn per_second_max_ns(&self) -> Vec<u64> {
        let buckets_per_second = (NS_PER_S / BUCKET_NS) as usize;
        self.buckets
            .chunks(buckets_per_second)
            .filter(|c| c.len() == buckets_per_second)
            .map(|c| c.iter().map(|b| b.max_ns).max().unwrap_or(0))
            .collect()
    }
}

/// The longest time without any reply while some were due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stall {
    pub longest_ns: u64,
    pub at_ns: u64,
}

impl Stall {
    #[inline]
    pub fn gap(&mut self, from_ns: u64, to_ns: u64) {
        let gap_ns = to_ns.saturating_sub(from_ns);
        if gap_ns > self.longest_ns {
            *self = Self { longest_ns: gap_ns, at_ns: from_ns };
        }
    }
}

/// Times without any reply, while the machine is watched.
#[derive(Debug, Default)]
pub struct Gaps {
    longest_short: Stall,
    long: Vec<(u64, u64)>,
}

impl Gaps {
    #[inline]
    pub fn gap(&mut self, from_ns: u64, to_ns: u64) {
        match to_ns.saturating_sub(from_ns) < STOP_NS {
            true => self.longest_short.gap(from_ns, to_ns),
            false => self.long.push((from_ns, to_ns)),
        }
    }

    /// The longest in which the machine did not stand still.
    pub fn longest(&self, stops: &Stops) -> Stall {
        let mut longest = self.longest_short;
        let own = self.long.iter().filter(|(from_ns, to_ns)| !stops.fall_into(*from_ns, *to_ns));
        own.for_each(|(from_ns, to_ns)| longest.gap(*from_ns, *to_ns));
        longest
    }
}

pub struct LoadReport {
    pub recording: Recording,
    /// Open loop only: how long after its intended time a request was handed to the kernel. What is late here is
    /// the generator's doing, not the server's.
    pub lateness: Option<Recording>,
    pub sent: u64,
    pub replies: u64,
    /// Requests that had no reply when the generator gave up waiting.
    pub unanswered: u64,
    pub tally: Tally,
    pub stall: Stall,
    /// From the start of the recording to the last reply.
    pub duration_ns: u64,
    /// Replies that are not in the recording, for the machine itself stood still meanwhile.
    pub left_out: u64,
    /// For so long in all.
    pub stopped_ns: u64,
}

pub const PERCENTILES: [(&str, f64); 5] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99)];

impl LoadReport {
    pub fn replies_per_second(&self) -> f64 {
        (self.recording.histogram.len() + self.left_out) as f64 * NS_PER_S as f64
            / self.duration_ns.max(1) as f64
    }

    pub fn json(&self) -> Value {
        json!({
            "sent": self.sent,
            "replies": self.replies,
            "unanswered": self.unanswered,
            "errors": self.tally.errors,
            "first_error": self.tally.first_error,
            "nil_replies": self.tally.nils,
            "duration_s": self.duration_ns as f64 / NS_PER_S as f64,
            "replies_per_second": self.replies_per_second(),
            "latency_us": histogram_us(&self.recording.histogram),
            "send_lateness_us": self.lateness.as_ref().map(|l| histogram_us(&l.histogram)),
            "left_out": self.left_out,
            "stopped_us": self.stopped_ns as f64 / 1e3,
            "stall_us": self.stall.longest_ns as f64 / 1e3,
            "per_second_max_us": self.recording.per_second_max_ns().iter().map(|ns| *ns as f64 / 1e3).collect::<Vec<_>>(),
        })
    }
}

pub fn histogram_us(h: &Histogram<u64>) -> Value {
    let mut object = serde_json::Map::new();
    for (name, percentile) in PERCENTILES {
        object.insert(name.to_owned(), json!(h.value_at_percentile(percentile) as f64 / 1e3));
    }
    object.insert("max".to_owned(), json!(h.max() as f64 / 1e3));
    object.insert("count".to_owned(), json!(h.len()));
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_by_intended_time() {
        let mut r = Recording::with_samples(1000, 4);
        r.record(999, 5, 1);
        r.record(1000, 7, 1);
        r.record(1000 + BUCKET_NS, 9, 2);
        assert_eq!(r.buckets, vec![Bucket { count: 1, max_ns: 7 }, Bucket { count: 2, max_ns: 9 }]);
        assert_eq!(r.samples().len(), 3);
        assert_eq!(r.histogram.len(), 3);
    }

    #[test]
    fn only_whole_seconds_count() {
        let mut r = Recording::new(0);
        r.record(NS_PER_S / 2, 5, 1);
        r.record(NS_PER_S, 6, 1);
        assert_eq!(r.per_second_max_ns(), vec![5]);
    }
}
