//! Rests between keys, which suites ask for so that a load or a save takes long (`key-load-delay`, `rdb-key-save-delay`).

use std::time::{Duration, Instant};

/// So long at a time, then the end is looked for.
const STEP: Duration = Duration::from_millis(5);

/// Rests for so many microseconds or, where that is below zero, for one once in so many times, unless `is_over`.
pub fn rest(delay_us: i32, is_over: impl Fn() -> bool) {
    let rest = match delay_us {
        0 => return,
        1.. => Duration::from_micros(u64::from(delay_us.unsigned_abs())),
        _ if fastrand::u32(..delay_us.unsigned_abs()) == 0 => Duration::from_micros(1),
        _ => return,
    };
    let start = Instant::now();
    while let Some(left) = rest.checked_sub(start.elapsed()).filter(|left| !left.is_zero() && !is_over()) {
        std::thread::sleep(left.min(STEP));
    }
}
