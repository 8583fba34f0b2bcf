//! The server's log, in Redis's form: `pid:M 01 Jan 2025 12:00:00.000 * text`. Times are UTC.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Debug,
    Verbose,
    Notice,
    Warning,
}

static LEAST: AtomicU8 = AtomicU8::new(Level::Notice as u8);
static TARGET: Mutex<Option<File>> = Mutex::new(None);

pub fn set_level(number: u8) {
    LEAST.store(number, Ordering::Relaxed);
}

/// Appends to a file from now on instead of the standard output.
///
/// # Errors
/// The file cannot be opened.
pub fn set_file(path: &Path) -> std::io::Result<()> {
    let file = File::options().create(true).append(true).open(path)?;
    *TARGET.lock() = Some(file);
    Ok(())
}

pub fn is_on(level: Level) -> bool {
    level as u8 >= LEAST.load(Ordering::Relaxed)
}

/// Writes a line; a failing log must not stop the server.
pub fn write(level: Level, text: &str) {
    if !is_on(level) {
        return;
    }
    let mark = ['.', '-', '*', '#'][level as usize];
    let line = format!("{}:M {} {mark} {text}\n", std::process::id(), time_text(SystemTime::now()));
    match &mut *TARGET.lock() {
        Some(file) => drop(file.write_all(line.as_bytes())),
        None => drop(std::io::stdout().write_all(line.as_bytes())),
    }
}

pub fn notice(text: impl AsRef<str>) {
    write(Level::Notice, text.as_ref());
}

pub fn warning(text: impl AsRef<str>) {
    write(Level::Warning, text.as_ref());
}

pub fn verbose(text: impl AsRef<str>) {
    write(Level::Verbose, text.as_ref());
}

/// `01 Jan 2025 12:00:00.000`
fn time_text(time: SystemTime) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let (year, month, day) = date_of((seconds / 86_400) as i64);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let month = MONTHS[month - 1];
    format!("{day:02} {month} {year} {hour:02}:{minute:02}:{second:02}.{:03}", since.subsec_millis())
}

/// Year, month (from 1) and day of a day counted from 1970-01-01; Hinnant's `civil_from_days`.
fn date_of(day: i64) -> (i64, usize, i64) {
    let z = day + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (
        year_of_era + era * 400 + i64::from(month <= 2),
        month as usize,
        day_of_year - (153 * shifted + 2) / 5 + 1,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_civil() {
        let text = |seconds: u64| time_text(UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 7));
        assert_eq!(text(0), "01 Jan 1970 00:00:00.007");
        assert_eq!(text(951_827_696), "29 Feb 2000 12:34:56.007");
        assert_eq!(text(1_735_689_599), "31 Dec 2024 23:59:59.007");
    }
}
