//! `LATENCY`: spikes by event, over the threshold of `latency-monitor-threshold`.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// Samples kept for an event, as in Redis.
const SAMPLE_COUNT: usize = 160;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub unix_seconds: u64,
    pub latency_ms: u64,
}

#[derive(Default, Debug, Clone)]
pub struct EventSeries {
    /// Oldest first.
    pub samples: Vec<Sample>,
    pub max_ms: u64,
}

#[derive(Default, Debug)]
pub struct LatencyMonitor {
    pub events: Mutex<BTreeMap<&'static str, EventSeries>>,
}

impl LatencyMonitor {
    /// Records an event that took `time`, if it reaches the threshold. Of the samples of one second the worst
    /// is kept.
    pub fn record(&self, event: &'static str, time: Duration, threshold: Option<Duration>) {
        if threshold.is_none_or(|t| time < t) {
            return;
        }
        let latency_ms = time.as_millis() as u64;
        let unix_seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut events = self.events.lock();
        let series = events.entry(event).or_default();
        series.max_ms = series.max_ms.max(latency_ms);
        match series.samples.last_mut() {
            Some(last) if last.unix_seconds == unix_seconds => {
                last.latency_ms = last.latency_ms.max(latency_ms);
            }
            _ => {
                if series.samples.len() == SAMPLE_COUNT {
                    series.samples.remove(0);
                }
                series.samples.push(Sample { unix_seconds, latency_ms });
            }
        }
    }
}
