//! Arguments that are numbers, with the errors that Redis gives.

use std::ops::RangeInclusive;

use crate::command::error::CmdError;
use crate::protocol::errors;
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
