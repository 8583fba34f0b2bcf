//! Numbers in text, read as strictly as Redis reads them.

use stillframe_store::{NewValue, StrRef};

/// Characters of the longest 64-bit integer.
const MAX_DIGITS: usize = 20;

/// The number at the start of a text, as C's `atoi` reads it on this machine: 0 if there is none, and of one that is too large
/// for a `long` the lowest bits of the largest.
pub fn c_int(text: &[u8]) -> i32 {
    let start = text.iter().position(|byte| !matches!(byte, b' ' | b'\t'..=b'\r')).unwrap_or(text.len());
    let (is_negative, digits) = match &text[start..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let number = digits
        .fold(0_i128, |number, digit| number.saturating_mul(10).saturating_add(i128::from(digit - b'0')));
    let number = if is_negative { -number } else { number };
    number.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i32
}

/// An integer in its canonical form only: no `+`, no leading zeros, no spaces, no `-0` (`string2ll`).
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > MAX_DIGITS {
        return None;
    }
    let (is_negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    if digits.first() == Some(&b'0') {
        return (text == b"0").then_some(0);
    }
    if digits.is_empty() {
        return None;
    }
    let value = decimal(digits)?;
    if is_negative {
        0i64.checked_sub_unsigned(value)
    } else {
        i64::try_from(value).ok()
    }
}

/// Digits and nothing else, as far as 64 bits hold them.
fn decimal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |value, digit| {
        let digit = digit.wrapping_sub(b'0');
        value.checked_mul(10)?.checked_add(u64::from((digit <= 9).then_some(digit)?))
    })
}

/// A stored string as an integer, if it is the canonical text of one.
pub fn value_i64(value: &StrRef<'_>) -> Option<i64> {
    if let Some(int) = value.as_int() {
        return Some(int);
    }
    if value.len() > MAX_DIGITS as u64 {
        return None;
    }
    let (mut text, mut len) = ([0; MAX_DIGITS], 0);
    value.chunks(0, value.len(), |chunk| {
        text[len..len + chunk.len()].copy_from_slice(chunk);
        len += chunk.len();
    });
    parse_i64(&text[..len])
}

/// A string as Redis would encode it: as an integer if it is the canonical text of one.
pub fn encode(bytes: &[u8]) -> NewValue<'_> {
    match parse_i64(bytes) {
        Some(int) => NewValue::Int(int),
        None => NewValue::Bytes { bytes, raw: false },
    }
}

/// The cursor of a `SCAN`, as C's `strtoul` reads it: a sign and leading zeros are allowed, text after a NUL
/// byte is not seen, nothing is zero.
pub fn parse_cursor(text: &[u8]) -> Option<u64> {
    let text = &text[..text.iter().position(|&b| b == 0).unwrap_or(text.len())];
    let (is_negative, digits) = match text.split_first() {
        None => return Some(0),
        Some((b'-', digits)) => (true, digits),
        Some((b'+', digits)) => (false, digits),
        Some(_) => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    let value = decimal(digits)?;
    Some(if is_negative { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_integers_are_integers() {
        for value in [0, 1, -1, 10, i64::MAX, i64::MIN] {
            assert_eq!(parse_i64(value.to_string().as_bytes()), Some(value));
        }
        let others = [
            "",
            "-",
            "+1",
            "01",
            "-0",
            "00",
            "-01",
            " 1",
            "1 ",
            "1.0",
            "1e3",
            "0x1",
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551616",
            "184467440737095516160",
            "1\0",
        ];
        for text in others {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn cursors_are_read_like_strtoul() {
        assert_eq!(parse_cursor(b""), Some(0));
        assert_eq!(parse_cursor(b"+07"), Some(7));
        assert_eq!(parse_cursor(b"-1"), Some(u64::MAX));
        assert_eq!(parse_cursor(b"12\0x"), Some(12));
        for text in ["-", "1x", " 1", "18446744073709551616"] {
            assert_eq!(parse_cursor(text.as_bytes()), None, "{text:?}");
        }
    }
}
