//! Time: the monotonic clock in nanoseconds.

use rustix::time::{clock_gettime, ClockId};

pub const NS_PER_US: u64 = 1_000;
pub const NS_PER_MS: u64 = 1_000_000;
pub const NS_PER_S: u64 = 1_000_000_000;

/// `CLOCK_MONOTONIC` in nanoseconds; the same clock the timer of the open loop is armed with.
#[inline]
pub fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * NS_PER_S + t.tv_nsec as u64
}

/// Seconds as a number of nanoseconds.
pub fn seconds_to_ns(seconds: f64) -> u64 {
    (seconds * NS_PER_S as f64) as u64
}
