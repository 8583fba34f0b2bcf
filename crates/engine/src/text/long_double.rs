//! 80-bit floating point numbers, as `INCRBYFLOAT` computes with them: C's `long double` on x86-64.
//!
//! A number is `mantissa * 2^exponent` with 64 bits of mantissa; every operation is exact and then rounded
//! once, half to even. Only what the command needs is here: reading, adding, printing.

use num_bigint::BigUint;

const MANTISSA_BITS: i64 = 64;
/// Exponent of the lowest bit of the smallest (denormal) number.
const MIN_EXPONENT: i64 = -16_445;
/// Exponent of the lowest bit of the largest numbers.
const MAX_EXPONENT: i64 = 16_383 - 63;
/// Digits after the point in a printed number (`%.17Lf`).
const FRACTION_DIGITS: u32 = 17;
/// Longest text of a number, in bytes (Redis's `MAX_LONG_DOUBLE_CHARS` without the NUL).
const MAX_TEXT_BYTES: usize = 5 * 1024 - 1;
/// Decimal exponents beyond this are infinite or zero whatever the digits.
const DECIMAL_EXPONENT_LIMIT: i64 = 20_000;

/// A finite number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LongDouble {
    is_negative: bool,
    mantissa: u64,
    exponent: i64,
}

/// What a text stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed {
    Finite(LongDouble),
    Infinite,
}

impl LongDouble {
    pub fn from_i64(value: i64) -> LongDouble {
        LongDouble { is_negative: value < 0, mantissa: value.unsigned_abs(), exponent: 0 }
    }

    /// The product, rounded; `None` if it is beyond the largest number.
    pub fn times(self, factor: u32) -> Option<LongDouble> {
        round(self.is_negative, BigUint::from(self.mantissa) * factor, self.exponent, false)
    }

    /// The next integer that is not less; `None` if that is not an `i64`.
    pub fn ceil(self) -> Option<i64> {
        let places = self.exponent.unsigned_abs().min(127) as u32;
        let mantissa = u128::from(self.mantissa);
        let magnitude = match (self.exponent >= 0, self.is_negative) {
            (true, _) if mantissa != 0 && places >= mantissa.leading_zeros() => return None,
            (true, _) => mantissa << places,
            (false, true) => mantissa >> places,
            (false, false) => mantissa.div_ceil(1 << places),
        };
        let magnitude = i128::try_from(magnitude).ok()?;
        i64::try_from(if self.is_negative { -magnitude } else { magnitude }).ok()
    }

    /// The sum, rounded; `None` if it is beyond the largest number.
    pub fn plus(self, other: LongDouble) -> Option<LongDouble> {
        let exponent = self.exponent.min(other.exponent);
        let scaled = |n: LongDouble| BigUint::from(n.mantissa) << (n.exponent - exponent) as u64;
        let (a, b) = (scaled(self), scaled(other));
        let (is_negative, sum) = match self.is_negative == other.is_negative {
            true => (self.is_negative, a + b),
            false if a >= b => (self.is_negative, a - b),
            false => (other.is_negative, b - a),
        };
        round(is_negative, sum, exponent, false)
    }

    /// The number for people: up to 17 digits after the point, without trailing zeros.
    pub fn to_text(self) -> String {
        let digits = if self.exponent >= 0 {
            (BigUint::from(self.mantissa) << self.exponent as u64) * BigUint::from(10u32).pow(FRACTION_DIGITS)
        } else {
            let scaled = BigUint::from(self.mantissa) * BigUint::from(10u32).pow(FRACTION_DIGITS);
            shift_right_half_even(scaled, self.exponent.unsigned_abs(), false)
        };
        let text = format!("{:0>width$}", digits.to_string(), width = FRACTION_DIGITS as usize + 1);
        let (whole, fraction) = text.split_at(text.len() - FRACTION_DIGITS as usize);
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        let sign = if self.is_negative && (whole, fraction) != ("0", "") { "-" } else { "" };
        format!("{sign}{whole}{point}{fraction}")
    }
}

/// Rounds `value * 2^exponent` to 64 bits; `is_inexact` says that something less than the lowest bit has been
/// cut off already. `None` on overflow.
fn round(is_negative: bool, value: BigUint, exponent: i64, is_inexact: bool) -> Option<LongDouble> {
    let excess = (value.bits() as i64 - MANTISSA_BITS).max(MIN_EXPONENT - exponent).max(0);
    let mut rounded = shift_right_half_even(value, excess as u64, is_inexact);
    let mut exponent = exponent + excess;
    if rounded.bits() as i64 > MANTISSA_BITS {
        // All ones were rounded up to a power of two.
        rounded >>= 1u32;
        exponent += 1;
    }
    let mantissa = u64::try_from(rounded).ok()?;
    // Numbers with a short mantissa (integers) may have a larger exponent than the widest ones.
    let top_exponent = exponent - i64::from(mantissa.leading_zeros());
    (mantissa == 0 || top_exponent <= MAX_EXPONENT).then_some(LongDouble { is_negative, mantissa, exponent })
}

/// `value / 2^bits`, rounded half to even.
fn shift_right_half_even(value: BigUint, bits: u64, is_inexact: bool) -> BigUint {
    if bits == 0 {
        return value;
    }
    let is_half = value.bit(bits - 1);
    let is_more = is_inexact || (is_half && value.trailing_zeros() != Some(bits - 1));
    let quotient = value >> bits;
    if is_half && (is_more || quotient.bit(0)) {
        return quotient + 1u32;
    }
    quotient
}

/// A number as `strtold` reads it, if it is all of the text: decimal or hexadecimal, `inf`. No leading space,
/// no NaN, nothing that overflows, and nothing but zero that becomes zero.
pub fn parse(text: &[u8]) -> Option<Parsed> {
    if text.len() > MAX_TEXT_BYTES {
        return None;
    }
    let (is_negative, rest) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity") {
        return Some(Parsed::Infinite);
    }
    let (radix, rest) = match rest {
        [b'0', b'x' | b'X', hex @ ..] => (16, hex),
        _ => (10, rest),
    };
    let (digits, fraction_len, exponent) = split(rest, radix)?;
    let value = BigUint::parse_bytes(&digits, radix)?;
    if value == BigUint::ZERO {
        return Some(Parsed::Finite(LongDouble { is_negative, mantissa: 0, exponent: 0 }));
    }
    let number = if radix == 16 {
        let exponent = exponent - 4 * fraction_len;
        if exponent.abs() > 8 * DECIMAL_EXPONENT_LIMIT {
            return None;
        }
        round(is_negative, value, exponent, false)
    } else {
        scale_by_ten(is_negative, value, exponent - fraction_len)
    };
    number.filter(|n| n.mantissa != 0).map(Parsed::Finite)
}

/// Splits a number into its digits without the point, how many of them are after it, and its exponent.
fn split(text: &[u8], radix: u32) -> Option<(Vec<u8>, i64, i64)> {
    let marker: &[u8] = if radix == 16 { b"pP" } else { b"eE" };
    let end = text.iter().position(|b| marker.contains(b)).unwrap_or(text.len());
    let exponent = match text.get(end + 1..) {
        None => 0,
        Some(exponent) => parse_exponent(exponent)?,
    };
    let number = &text[..end];
    let point = number.iter().position(|&b| b == b'.').unwrap_or(number.len());
    let fraction = number.get(point + 1..).unwrap_or_default();
    let digits = [&number[..point], fraction].concat();
    let all_digits = digits.iter().all(|&b| (b as char).is_digit(radix));
    (!digits.is_empty() && all_digits).then_some((digits, fraction.len() as i64, exponent))
}

/// A decimal exponent; one that is too long for an integer saturates.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text.split_first()? {
        (b'-', digits) => (-1, digits),
        (b'+', digits) => (1, digits),
        _ => (1, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0i64, |value, &d| (value * 10 + i64::from(d - b'0')).min(1 << 40));
    Some(sign * value)
}

/// `value * 10^exponent`, rounded.
fn scale_by_ten(is_negative: bool, value: BigUint, exponent: i64) -> Option<LongDouble> {
    if exponent.abs() > DECIMAL_EXPONENT_LIMIT {
        return None;
    }
    let power = BigUint::from(10u32).pow(exponent.unsigned_abs() as u32);
    if exponent >= 0 {
        return round(is_negative, value * power, 0, false);
    }
    // Enough bits for a full mantissa and one to round by; the remainder says whether it is exact.
    let shift = (power.bits() as i64 - value.bits() as i64 + MANTISSA_BITS + 2).max(0);
    let scaled = value << shift as u64;
    let quotient = &scaled / &power;
    let is_inexact = &quotient * &power != scaled;
    round(is_negative, quotient, -shift, is_inexact)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(a: &str, b: &str) -> Option<String> {
        let finite = |text: &str| match parse(text.as_bytes()) {
            Some(Parsed::Finite(number)) => number,
            other => panic!("{text}: {other:?}"),
        };
        finite(a).plus(finite(b)).map(LongDouble::to_text)
    }

    /// What C gives on x86-64 (`%.17Lf` of `strtold(a) + strtold(b)`).
    #[test]
    fn sums_are_those_of_c() {
        let cases = [
            ("10.5", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("0.1", "0.2", "0.3"),
            ("1.23", "-1.23", "0"),
            ("-0.0", "0", "0"),
            ("1e17", "0.3", "100000000000000000.296875"),
            ("0x1p3", "0.5", "8.5"),
            ("9223372036854775807", "1", "9223372036854775808"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("18446744073709551616", "1", "18446744073709551616"),
            ("-1", "1e-18", "-1"),
            ("1e-17", "0", "0.00000000000000001"),
            ("4e-18", "0", "0"),
            ("-4e-18", "0", "0"),
        ];
        for (a, b, expected) in cases {
            assert_eq!(sum(a, b).as_deref(), Some(expected), "{a} + {b}");
        }
    }

    #[test]
    fn the_largest_and_smallest_numbers() {
        let max = "1.18973149535723176502e+4932";
        assert!(matches!(parse(max.as_bytes()), Some(Parsed::Finite(_))));
        assert_eq!(sum(max, max), None);
        for text in
            ["1.18973149535723176506e+4932", "1e4933", "1e-4952", "1e99999999999999999999", "1e-20001"]
        {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert!(matches!(parse(b"3.6451995318824746025e-4951"), Some(Parsed::Finite(_))));
        assert!(matches!(parse(b"0e99999"), Some(Parsed::Finite(_))));
    }

    #[test]
    fn what_is_not_a_number() {
        for text in
            ["", " 1", "1 ", "-", ".", "1e", "e5", "0x", "0x.", "nan", "1.2.3", "1e5.0", "--1", "1p3", "in"]
        {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse(b"-Infinity"), Some(Parsed::Infinite));
    }
}
