//! The dump that is read at the start, as clients see it: `-LOADING` and fields of `INFO`.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use crate::clock::unix_ms;
use crate::state::exceptions::{Exceptions, Matter};

/// Whether the data is still being read, and how far that is.
///
/// ```text
///   Serving ---begin---> Loading ---end---> Serving
///                           \--- stop, error ---> the process ends
/// ```
#[derive(Debug, Default)]
pub struct Loading {
    is_on: AtomicBool,
    started_unix_seconds: AtomicI64,
    total_bytes: AtomicU64,
    loaded_bytes: AtomicU64,
    /// Memory that the server which wrote the dump used then.
    writer_memory_bytes: AtomicU64,
    key_count: AtomicU64,
    expired_count: AtomicU64,
    exceptions: Exceptions,
}

/// Figures of a load that is under way or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadStatus {
    pub started_unix_seconds: i64,
    pub total_bytes: u64,
    pub loaded_bytes: u64,
    pub writer_memory_bytes: u64,
    pub key_count: u64,
    pub expired_count: u64,
}

impl Loading {
    pub fn new(exceptions: &Exceptions) -> Loading {
        Loading { exceptions: exceptions.clone(), ..Loading::default() }
    }

    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    pub fn begin(&self) {
        self.started_unix_seconds.store(unix_ms() / 1000, Ordering::Relaxed);
        self.is_on.store(true, Ordering::Release);
        self.exceptions.set(Matter::LOADING, true);
    }

    pub fn end(&self) {
        self.is_on.store(false, Ordering::Release);
        self.exceptions.set(Matter::LOADING, false);
    }

    /// Counts from nothing: a dump of `total_bytes` is read now.
    pub fn open(&self, total_bytes: u64) {
        self.total_bytes.store(total_bytes, Ordering::Relaxed);
        for counter in [&self.loaded_bytes, &self.writer_memory_bytes, &self.key_count, &self.expired_count] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub fn set_writer_memory_bytes(&self, bytes: u64) {
        self.writer_memory_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Notes the bytes read so far and the keys stored and left out since the start.
    pub fn advance(&self, loaded_bytes: u64, key_count: u64, expired_count: u64) {
        self.loaded_bytes.store(loaded_bytes, Ordering::Relaxed);
        self.key_count.store(key_count, Ordering::Relaxed);
        self.expired_count.store(expired_count, Ordering::Relaxed);
    }

    pub fn status(&self) -> LoadStatus {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LoadStatus {
            started_unix_seconds: self.started_unix_seconds.load(Ordering::Relaxed),
            total_bytes: load(&self.total_bytes),
            loaded_bytes: load(&self.loaded_bytes),
            writer_memory_bytes: load(&self.writer_memory_bytes),
            key_count: load(&self.key_count),
            expired_count: load(&self.expired_count),
        }
    }
}

impl LoadStatus {
    pub fn percent(&self) -> f64 {
        match self.total_bytes {
            0 => 0.0,
            total => self.loaded_bytes as f64 / total as f64 * 100.0,
        }
    }

    /// The rest at the pace so far; one second as long as there is no pace, as in Redis.
    pub fn eta_seconds(&self, now_unix_seconds: i64) -> u64 {
        let elapsed = u64::try_from(now_unix_seconds - self.started_unix_seconds).unwrap_or(0);
        // Without a length (the dump is a pipe) Redis reckons with one byte.
        let left = if self.total_bytes == 0 { 1 } else { self.total_bytes.saturating_sub(self.loaded_bytes) };
        if elapsed == 0 {
            return 1;
        }
        elapsed.saturating_mul(left) / (self.loaded_bytes + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_those_of_redis() {
        let loading = Loading::default();
        loading.begin();
        loading.open(1000);
        let start = loading.status().started_unix_seconds;
        assert_eq!(loading.status().eta_seconds(start), 1);
        loading.advance(249, 3, 1);
        let status = loading.status();
        assert_eq!(format!("{:.2}", status.percent()), "24.90");
        assert_eq!(status.eta_seconds(start + 10), 10 * 751 / 250);
        assert_eq!(status.eta_seconds(start - 10), 1, "the clock was set back");
        loading.open(0);
        assert_eq!((loading.status().percent(), loading.status().key_count), (0.0, 0));
    }
}
