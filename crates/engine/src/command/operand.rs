//! Arguments that are numbers, with the errors that Redis gives.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::command::error::CmdError;
use crate::protocol::errors;
use crate::text::long_double::{self, LongDouble, Parsed};
use crate::text::number::parse_i64;

/// An integer argument.
///
/// # Errors
/// `ERR value is not an integer or out of range`
pub fn integer(text: &[u8]) -> Result<i64, CmdError> {
    parse_i64(text).ok_or(errors::NOT_AN_INTEGER.into())
}

/// An integer argument within bounds.
///
/// # Errors
/// As [`integer`], and Redis's text for values that are out of bounds.
pub fn integer_in(text: &[u8], bounds: RangeInclusive<i64>) -> Result<i64, CmdError> {
    let value = integer(text)?;
    if bounds.contains(&value) {
        return Ok(value);
    }
    let (min, max) = (bounds.start(), bounds.end());
    Err(format!("ERR value is out of range, value must between {min} and {max}").into())
}

/// An integer argument that fits C's `int`.
///
/// # Errors
/// As [`integer_in`].
pub fn int(text: &[u8]) -> Result<i64, CmdError> {
    integer_in(text, i64::from(i32::MIN)..=i64::from(i32::MAX))
}

/// A non-negative integer argument.
///
/// # Errors
/// `ERR value is out of range, must be positive`
pub fn positive(text: &[u8]) -> Result<i64, CmdError> {
    parse_i64(text).filter(|&value| value >= 0).ok_or("ERR value is out of range, must be positive".into())
}

/// How long a command waits, given in seconds with a fraction; none: for ever. It is rounded up to milliseconds.
///
/// # Errors
/// `ERR timeout is not a float or out of range`, `ERR timeout is negative`
pub fn timeout(text: &[u8]) -> Result<Option<Duration>, CmdError> {
    let millis = match long_double::parse(text) {
        Some(Parsed::Finite(seconds)) => seconds.times(1000).and_then(LongDouble::ceil),
        Some(Parsed::Infinite) => None,
        None => return Err("ERR timeout is not a float or out of range".into()),
    };
    // What overflows Redis's counter becomes negative there.
    let millis = millis.and_then(|millis| u64::try_from(millis).ok()).ok_or("ERR timeout is negative")?;
    Ok(Some(Duration::from_millis(millis)).filter(|time| !time.is_zero()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_redis_reads_them() {
        let millis = |text: &str| timeout(text.as_bytes()).map(|time| time.map(|time| time.as_millis()));
        let error = |text: &str| {
            String::from_utf8(timeout(text.as_bytes()).unwrap_err().into_text().into_owned()).unwrap()
        };
        for (text, expected) in [
            ("0", None),
            ("-0.0001", None),
            ("0.0001", Some(1)),
            ("0.05", Some(50)),
            ("0x1p-3", Some(125)),
            ("3", Some(3000)),
            ("9223372036854775", Some(9_223_372_036_854_775_000)),
        ] {
            assert_eq!(millis(text).unwrap(), expected, "{text}");
        }
        for text in ["abc", "", " 1", "1 ", "nan"] {
            assert_eq!(error(text), "ERR timeout is not a float or out of range", "{text}");
        }
        for text in ["-1", "-0.002", "inf", "-inf", "1e300", "1e16", "9223372036854775807"] {
            assert_eq!(error(text), "ERR timeout is negative", "{text}");
        }
    }
}
