//! Waiting for other threads without a lock.

use std::time::Duration;

/// Between two looks, longer the more there were before.
pub fn wait_for_others(look_count: u32) {
    match look_count {
        0..64 => std::hint::spin_loop(),
        64..256 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}
