//! Floating point numbers as Redis reads and prints them: C's `strtod` and `%.17g`.

/// Decimal digits that `%.17g` prints at most.
const DIGITS: i32 = 17;
/// Integers below are printed as such.
const INTEGER_MAX: f64 = 1e17;

/// A number, if it is all of the text: no space before it, no NaN, nothing that overflows, and nothing but zero that becomes
/// zero.
pub fn parse(text: &[u8]) -> Option<f64> {
    let starts_with_space = text.first().is_some_and(|byte| is_space(*byte));
    let (number, len) = read(text)?;
    let is_whole = len == text.len() && !starts_with_space;
    let is_exact = match number.is_infinite() || number == 0.0 {
        // What is not written as infinite or as zero did not fit.
        true => is_written_so(text, number),
        false => true,
    };
    (is_whole && is_exact && !number.is_nan()).then_some(number)
}

/// A number as `strtod` finds it at the start of a text that ends at its first NUL; nothing is zero. `None` if there is more
/// than the number, or it is a NaN.
pub fn parse_loosely(text: &[u8]) -> Option<f64> {
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    let text = &text[..end];
    if text.is_empty() {
        return Some(0.0);
    }
    let (number, len) = read(text)?;
    (len == end && !number.is_nan()).then_some(number)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn is_written_so(text: &[u8], number: f64) -> bool {
    let is_infinite = text.iter().any(|byte| matches!(byte, b'n' | b'N'));
    let end = text.iter().position(|byte| matches!(byte, b'e' | b'E' | b'p' | b'P')).unwrap_or(text.len());
    let is_hexadecimal = text.iter().any(|byte| matches!(byte, b'x' | b'X'));
    // In a hexadecimal number E is a digit.
    let digits = if is_hexadecimal { text } else { &text[..end] };
    let has_digit = digits.iter().any(|byte| byte.is_ascii_hexdigit() && *byte != b'0');
    if number == 0.0 {
        !has_digit
    } else {
        is_infinite
    }
}

/// The number at the start of a text, and the bytes up to its end.
fn read(text: &[u8]) -> Option<(f64, usize)> {
    let spaces = text.iter().take_while(|byte| is_space(**byte)).count();
    let (is_negative, sign_bytes) = match text.get(spaces) {
        Some(b'-') => (true, 1),
        Some(b'+') => (false, 1),
        _ => (false, 0),
    };
    let start = spaces + sign_bytes;
    let rest = &text[start..];
    let starts_with =
        |word: &str| rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()));
    let (number, len) = match () {
        () if starts_with("infinity") => (f64::INFINITY, 8),
        () if starts_with("inf") => (f64::INFINITY, 3),
        () if starts_with("nan") => (f64::NAN, 3),
        () if starts_with("0x") && hexadecimal(&rest[2..]).is_some() => {
            let (number, len) = hexadecimal(&rest[2..])?;
            (number, len + 2)
        }
        () => decimal(rest)?,
    };
    Some((if is_negative { -number } else { number }, start + len))
}

fn count(text: &[u8], is_digit: impl Fn(&u8) -> bool) -> usize {
    text.iter().take_while(|byte| is_digit(byte)).count()
}

/// Bytes of an exponent behind a marker, if it has digits.
fn exponent_bytes(text: &[u8], markers: &[u8]) -> usize {
    if !text.first().is_some_and(|byte| markers.contains(byte)) {
        return 0;
    }
    let sign_bytes = usize::from(matches!(text.get(1), Some(b'-' | b'+')));
    match count(&text[1 + sign_bytes..], u8::is_ascii_digit) {
        0 => 0,
        digits => 1 + sign_bytes + digits,
    }
}

/// Bytes of the digits with a point among them; `None` if there is no digit.
fn mantissa_bytes(text: &[u8], is_digit: impl Fn(&u8) -> bool) -> Option<usize> {
    let whole = count(text, &is_digit);
    let fraction = match text.get(whole) {
        Some(b'.') => 1 + count(&text[whole + 1..], &is_digit),
        _ => 0,
    };
    (whole > 0 || fraction > 1).then_some(whole + fraction)
}

fn decimal(text: &[u8]) -> Option<(f64, usize)> {
    let mantissa = mantissa_bytes(text, u8::is_ascii_digit)?;
    let len = mantissa + exponent_bytes(&text[mantissa..], b"eE");
    let number = std::str::from_utf8(&text[..len]).ok()?.parse().ok()?;
    Some((number, len))
}

/// What follows `0x`.
fn hexadecimal(text: &[u8]) -> Option<(f64, usize)> {
    let mantissa = mantissa_bytes(text, u8::is_ascii_hexdigit)?;
    let exponent_len = exponent_bytes(&text[mantissa..], b"pP");
    let (mut bits, mut scale, mut is_after_point) = (0u64, 0i64, false);
    for byte in &text[..mantissa] {
        let Some(digit) = char::from(*byte).to_digit(16) else {
            is_after_point = true;
            continue;
        };
        let fits = bits >> 60 == 0;
        // What has no room any more decides how to round, at most.
        bits = if fits { bits << 4 | u64::from(digit) } else { bits | u64::from(digit != 0) };
        scale += match (fits, is_after_point) {
            (true, true) => -4,
            (false, false) => 4,
            _ => 0,
        };
    }
    let written = text.get(mantissa + 1..mantissa + exponent_len).unwrap_or_default();
    let written = std::str::from_utf8(written).ok()?.trim_start_matches('+');
    let exponent = if written.is_empty() { 0 } else { written.parse().unwrap_or(i64::from(i32::MAX)) };
    let exponent = (scale + exponent).clamp(-5_000, 5_000) as i32;
    // In two steps, as the power alone may be out of range.
    let half = exponent / 2;
    let number = bits as f64 * 2f64.powi(half) * 2f64.powi(exponent - half);
    Some((number, mantissa + exponent_len))
}

/// A number as `%.17g` prints it; the infinite ones are `inf` and `-inf`.
pub fn to_text(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let is_negative_zero = number == 0.0 && number.is_sign_negative();
    if number.trunc() == number && number.abs() < INTEGER_MAX && !is_negative_zero {
        return (number as i64).to_string();
    }
    let scientific = format!("{number:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let without_zeros = |text: &str| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    if (-4..DIGITS).contains(&exponent) {
        let decimals = (DIGITS - 1 - exponent) as usize;
        let fixed = format!("{number:.decimals$}");
        return if decimals > 0 { without_zeros(&fixed) } else { fixed };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_c_prints_them() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-3.0, "-3"),
            (0.1, "0.10000000000000001"),
            (1.5, "1.5"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123456789012345678.0, "1.2345678901234568e+17"),
            (1e20, "1e+20"),
            (1e300, "1.0000000000000001e+300"),
            (5e-324, "4.9406564584124654e-324"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (2.2250738585072014e-308, "2.2250738585072014e-308"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (3.0000000000000004, "3.0000000000000004"),
            (-1234.5678, "-1234.5678"),
        ] {
            assert_eq!(to_text(number), text);
        }
    }

    #[test]
    fn what_is_printed_is_read() {
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        for _ in 0..20_000 {
            let number = f64::from_bits(random.u64(..));
            if !number.is_nan() {
                let text = to_text(number);
                assert_eq!(parse(text.as_bytes()).map(f64::to_bits), Some(number.to_bits()), "{text}");
            }
        }
    }

    #[test]
    fn numbers_are_read_as_strtod_reads_them() {
        for (text, number) in [
            ("1", 1.0),
            ("+1.5", 1.5),
            (".5", 0.5),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("-1E-2", -0.01),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("0x10", 16.0),
            ("0x1.8p1", 3.0),
            ("0x.8", 0.5),
            ("0x1p-2", 0.25),
            ("0", 0.0),
            ("0e5", 0.0),
            ("1e-320", 1e-320),
        ] {
            assert_eq!(parse(text.as_bytes()), Some(number), "{text}");
            assert_eq!(parse_loosely(text.as_bytes()), Some(number), "{text}");
        }
        for text in ["", " 1", "1 ", "nan", "1e400", "1e-400", "a", "1a", "0x", "e5", ".", "+", "1\0", "--1"]
        {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        for (text, number) in
            [("", 0.0), (" 1", 1.0), ("1\0x", 1.0), ("1e400", f64::INFINITY), ("1e-400", 0.0)]
        {
            assert_eq!(parse_loosely(text.as_bytes()), Some(number), "{text:?}");
        }
        for text in ["nan", "x", "1x", "1 ", "0x", "."] {
            assert_eq!(parse_loosely(text.as_bytes()), None, "{text:?}");
        }
    }
}
