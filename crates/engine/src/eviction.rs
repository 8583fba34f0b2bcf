//! Making room by removing keys, when `maxmemory-policy` says so.
//!
//! Records share pages, so a page comes back only when neighbouring leaves have lost enough to be joined. A bound that was
//! looked at only when it is passed would cost many keys at once, and then none for long. Hence two parts:
//!
//! ```text
//!   memory:  ──────────── low ───────────────────────── maxmemory ───────────▶
//!             nothing goes │ keys go for what is added,  │ keys go until memory is below,
//!                          │ the more the nearer         │ or none is left: OOM
//! ```
//! As in Redis a command waits for a bounded time only; what is left to do is done between rounds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stillframe_store::{Evicted, EvictionPolicy, Store, Worker};

use crate::config::{MemoryPolicy, Settings};

/// The part of `maxmemory` in which keys go for what is added.
const SOFT_PART: u64 = 32;
/// Bytes of keys that go for a byte that is added, just below `maxmemory`.
const GAIN_MAX: u64 = 8;
/// The part of `maxmemory` that what cannot be evicted at once may take above it.
const EXCESS_PART: u64 = 8;
/// Keys evicted between two looks at the clock.
const KEYS_PER_LOOK: u64 = 16;

/// Whether there is room for a command that stores something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryRoom {
    Enough,
    /// Not yet, but keys are going: the command may run.
    Freeing,
    /// Nor this, but nothing can go just now: pages are not in memory, or have not been freed yet.
    Later,
    /// Nothing can go.
    Nothing,
}

/// How long memory has been over its bound.
#[derive(Clone, Copy, Default, Debug)]
pub struct Exceeded {
    pub total: Duration,
    /// Without a break until now.
    pub current: Duration,
}

/// What all workers know of eviction.
#[derive(Default, Debug)]
pub struct Eviction {
    key_count: AtomicU64,
    /// The memory up to which keys have gone for what was added.
    settled_bytes: AtomicU64,
    /// Keys of so many bytes are still to go for what was added.
    owed_bytes: AtomicU64,
    is_over: AtomicBool,
    over_since: Mutex<(Option<Instant>, Duration)>,
}

/// One attempt to make room.
struct Attempt<'a> {
    policy: EvictionPolicy,
    settings: &'a Settings,
    start: Instant,
    key_count: u64,
}

/// Memory as it is once what is listed to be freed has been freed.
fn counted_bytes(store: &Store) -> u64 {
    store.used_memory_bytes().saturating_sub(store.unused_memory_bytes())
}

/// Memory up to which commands may run that wait for nothing but what cannot go just now.
fn max_excess(max: u64) -> u64 {
    max.saturating_add(max / EXCESS_PART)
}

/// `maxmemory-eviction-tenacity` as a time, by Redis's formula; `None` is no limit.
fn time_limit(tenacity: u32) -> Option<Duration> {
    match tenacity {
        0..=10 => Some(Duration::from_micros(50 * u64::from(tenacity))),
        11..=99 => Some(Duration::from_micros((500.0 * 1.15f64.powi(tenacity as i32 - 10)) as u64)),
        _ => None,
    }
}

impl Eviction {
    /// Keys that have been evicted.
    pub fn key_count(&self) -> u64 {
        self.key_count.load(Relaxed)
    }

    /// `CONFIG RESETSTAT`.
    pub fn reset(&self) {
        self.key_count.store(0, Relaxed);
        self.over_since.lock().1 = Duration::ZERO;
    }

    pub fn exceeded(&self) -> Exceeded {
        let (since, before) = *self.over_since.lock();
        let current = since.map_or(Duration::ZERO, |since| since.elapsed());
        Exceeded { total: before + current, current }
    }

    /// Lets keys go, for a bounded time, if memory is over its bound or near it. Returns whether there is room, and how long it
    /// took if it did something.
    pub fn make_room(&self, worker: &mut Worker, settings: &Settings) -> (MemoryRoom, Option<Duration>) {
        let (store, max) = (worker.store(), settings.maxmemory_bytes);
        let used = counted_bytes(store);
        let MemoryPolicy::Keys(policy) = settings.memory_policy else {
            let room = if max > 0 && used > max { MemoryRoom::Nothing } else { MemoryRoom::Enough };
            self.note(room);
            return (room, None);
        };
        let owed = self.owe(used, max);
        if max == 0 || (owed == 0 && used <= max) {
            self.note(MemoryRoom::Enough);
            return (MemoryRoom::Enough, None);
        }
        if store.is_freeing_databases() && used <= max_excess(max) {
            let room = if used > max { MemoryRoom::Later } else { MemoryRoom::Enough };
            self.note(room);
            return (room, None);
        }
        let start = Instant::now();
        let mut attempt = Attempt { policy, settings, start, key_count: 0 };
        let room = self.evict(worker, &mut attempt);
        self.note(room);
        (room, Some(start.elapsed()))
    }

    /// How many bytes of keys have to go for what has been added since the last time.
    fn owe(&self, used: u64, max: u64) -> u64 {
        let low = max - max / SOFT_PART;
        if used <= low {
            self.settled_bytes.store(0, Relaxed);
            self.owed_bytes.store(0, Relaxed);
            return 0;
        }
        // What is above the bound goes in any case.
        let used = used.min(max);
        let added = used.saturating_sub(self.settled_bytes.swap(used, Relaxed).max(low));
        let gain = 1 + (GAIN_MAX - 1) * (used - low) / (max - low).max(1);
        self.owed_bytes.fetch_add(added * gain, Relaxed) + added * gain
    }

    fn evict(&self, worker: &mut Worker, attempt: &mut Attempt<'_>) -> MemoryRoom {
        let max = attempt.settings.maxmemory_bytes;
        let limit = time_limit(attempt.settings.eviction_tenacity);
        loop {
            let used = counted_bytes(worker.store());
            if used <= max - max / SOFT_PART {
                self.owed_bytes.store(0, Relaxed);
            }
            if used <= max && self.owed_bytes.load(Relaxed) == 0 {
                return MemoryRoom::Enough;
            }
            match worker.upkeep().evict(attempt.policy, attempt.settings.eviction_sample_count) {
                Ok(Evicted::Keys { evicted_count, memory_bytes, .. }) => {
                    self.key_count.fetch_add(evicted_count, Relaxed);
                    self.pay(memory_bytes);
                    attempt.key_count += 1;
                }
                Ok(Evicted::Nothing) => {
                    self.owed_bytes.store(0, Relaxed);
                    return if used <= max { MemoryRoom::Enough } else { MemoryRoom::Nothing };
                }
                // A page that cannot be read is told of by the commands that need it.
                Ok(Evicted::Later) | Err(_) => {
                    return match used {
                        _ if used <= max => MemoryRoom::Enough,
                        _ if used <= max_excess(max) => MemoryRoom::Later,
                        _ => MemoryRoom::Nothing,
                    };
                }
            }
            let is_time = attempt.key_count % KEYS_PER_LOOK == 0;
            if is_time {
                // No cut waits for more than that.
                worker.quiesce();
            }
            if is_time && limit.is_some_and(|limit| attempt.start.elapsed() > limit) {
                return MemoryRoom::Freeing;
            }
        }
    }

    fn pay(&self, bytes: u64) {
        // It does not fail.
        let _ = self.owed_bytes.fetch_update(Relaxed, Relaxed, |owed| Some(owed.saturating_sub(bytes)));
    }

    /// Keeps the time during which memory is over its bound.
    fn note(&self, room: MemoryRoom) {
        let is_over = room != MemoryRoom::Enough;
        if self.is_over.load(Relaxed) == is_over {
            return;
        }
        let (since, total) = &mut *self.over_since.lock();
        match (is_over, &since) {
            (true, None) => *since = Some(Instant::now()),
            (false, Some(_)) => *total += since.take().map_or(Duration::ZERO, |since| since.elapsed()),
            _ => {}
        }
        self.is_over.store(is_over, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_waits_as_long_as_in_redis() {
        assert_eq!(time_limit(0), Some(Duration::ZERO));
        assert_eq!(time_limit(10), Some(Duration::from_micros(500)));
        let longest = time_limit(99).unwrap();
        assert!((100..150).contains(&longest.as_secs()), "{longest:?}");
        assert_eq!(time_limit(100), None);
    }

    #[test]
    fn what_is_added_is_owed_once_and_the_more_the_nearer_the_bound_is() {
        let (eviction, max) = (Eviction::default(), 3200);
        assert_eq!(eviction.owe(3000, max), 0);
        assert_eq!(eviction.owe(3100, max), 0);
        assert_eq!(eviction.owe(3110, max), 10);
        assert_eq!(eviction.owe(3110, max), 10, "it is owed still, and no more than that");
        eviction.pay(4);
        assert_eq!(eviction.owe(3105, max), 6);
        assert_eq!(eviction.owe(3110, max), 11, "what came and went and came again");
        eviction.pay(100);
        assert_eq!(eviction.owe(3200, max), 90 * GAIN_MAX);
        assert_eq!(eviction.owe(3300, max), 90 * GAIN_MAX, "what is above the bound goes in any case");
        assert_eq!(eviction.owe(3100, max), 0, "there is room");
    }
}
