//! Time: the monotonic clock in nanoseconds for everything that is measured, and a UTC date for file headers.

use std::time::{SystemTime, UNIX_EPOCH};

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

/// Now in UTC as `(2026-01-31T12:00:00Z, 20260131-120000)`: one for headers, one for file names.
pub fn utc_now() -> (String, String) {
    let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (year, month, day) = civil_from_days((unix_s / 86_400) as i64);
    let (h, m, s) = (unix_s / 3600 % 24, unix_s / 60 % 60, unix_s % 60);
    (
        format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}Z"),
        format!("{year:04}{month:02}{day:02}-{h:02}{m:02}{s:02}"),
    )
}

/// Days since 1970-01-01 to (year, month, day), after Howard Hinnant's `civil_from_days`.
fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let mp = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * mp + 2) / 5 + 1) as u32;
    let month = if mp < 10 { mp + 3 } else { mp - 9 } as u32;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn civil_dates() {
        assert_eq!(civil_from_days(0), (1970, 1, 1));
        assert_eq!(civil_from_days(11_016), (2000, 2, 29));
        assert_eq!(civil_from_days(19_782), (2024, 2, 29));
        assert_eq!(civil_from_days(19_783), (2024, 3, 1));
    }
}
