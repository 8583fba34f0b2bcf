//! Dates, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// A moment. Months and days count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utc {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    millisecond: u32,
}

impl Utc {
    #[must_use]
    pub fn now() -> Utc {
        Utc::from(SystemTime::now())
    }

    /// `2026-01-31`
    #[must_use]
    pub fn date(&self) -> String {
        format!("{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }

    /// `2026-01-31T12:00:00Z`
    #[must_use]
    pub fn timestamp(&self) -> String {
        format!("{}T{:02}:{:02}:{:02}Z", self.date(), self.hour, self.minute, self.second)
    }

    /// `31 Jan 2026 12:00:00.000`, as in Redis's log.
    #[must_use]
    pub fn log_time(&self) -> String {
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let month = MONTHS[self.month as usize - 1];
        let Utc { year, day, hour, minute, second, millisecond, .. } = self;
        format!("{day:02} {month} {year} {hour:02}:{minute:02}:{second:02}.{millisecond:03}")
    }
}

/// What is before 1970 is 1970.
impl From<SystemTime> for Utc {
    fn from(time: SystemTime) -> Utc {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = since.as_secs();
        let (year, month, day) = civil_from_days(seconds / 86_400);
        Utc {
            year,
            month,
            day,
            hour: seconds / 3600 % 24,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            millisecond: since.subsec_millis(),
        }
    }
}

/// Year, month and day of a day counted from 1970-01-01; Howard Hinnant's `civil_from_days`.
fn civil_from_days(day: u64) -> (u64, u64, u64) {
    let z = day + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_civil() {
        let at = |seconds: u64| Utc::from(UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 7));
        assert_eq!(at(0).log_time(), "01 Jan 1970 00:00:00.007");
        assert_eq!(at(951_827_696).log_time(), "29 Feb 2000 12:34:56.007");
        assert_eq!(at(951_827_696).timestamp(), "2000-02-29T12:34:56Z");
        assert_eq!(at(1_709_164_800).date(), "2024-02-29");
        assert_eq!(at(1_709_251_200).date(), "2024-03-01");
        assert_eq!(at(1_735_689_599).log_time(), "31 Dec 2024 23:59:59.007");
    }
}
