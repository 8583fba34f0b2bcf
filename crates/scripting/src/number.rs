//! Numbers as C writes and reads them: `%g`, `strtod`, and casts to whole numbers.

/// As C's `printf("%.{digits}g")`, `digits` at least 1.
pub(crate) fn format_g(number: f64, digits: usize) -> String {
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let digits = digits.max(1);
    if is_written_whole(number) && number.abs() < 10f64.powi(digits.min(WHOLE_DIGITS) as i32) {
        return (number as i64).to_string();
    }
    if digits <= f64::DIGITS as usize && number.is_normal() {
        // Of a number that so many digits or fewer tell from all others they are the ones that rounding gives.
        let shortest = format!("{number:e}");
        if shortest.bytes().take_while(|byte| *byte != b'e').filter(u8::is_ascii_digit).count() <= digits {
            return laid_out(&shortest, digits);
        }
    }
    laid_out(&format!("{:.*e}", digits - 1, number), digits)
}

/// Whole numbers of so many digits have no exponent, and fit into 64 bits.
const WHOLE_DIGITS: usize = 17;

/// Whether it is whole, and no negative zero.
fn is_written_whole(number: f64) -> bool {
    number.fract() == 0.0 && !(number == 0.0 && number.is_sign_negative())
}

/// What is given as `-d.ddde-x`, as `%.{digits}g` lays it out.
fn laid_out(scientific: &str, digits: usize) -> String {
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific.to_owned() };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => ("-", mantissa),
        None => ("", mantissa),
    };
    let (first, rest) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let rest = rest.trim_end_matches('0');
    if exponent < -4 || exponent >= digits as i32 {
        let point = if rest.is_empty() { "" } else { "." };
        let of_exponent = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{first}{point}{rest}e{of_exponent}{:02}", exponent.unsigned_abs());
    }
    let shift = exponent.unsigned_abs() as usize;
    if exponent < 0 {
        return format!("{sign}0.{:0<1$}{first}{rest}", "", shift - 1);
    }
    let (whole, places) = rest.split_at(shift.min(rest.len()));
    let point = if places.is_empty() { "" } else { "." };
    format!("{sign}{first}{whole:0<shift$}{point}{places}")
}

/// A number of Redis's replies and arguments: `%.17g`.
pub(crate) fn format_exact(number: f64) -> String {
    format_g(number, 17)
}

/// As C's cast of a double to a 64-bit integer does on x86-64: what is out of range is the least number.
pub(crate) fn to_i64(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    match (-LIMIT..LIMIT).contains(&number) {
        true => number as i64,
        false => i64::MIN,
    }
}

/// As C's cast of a double to an unsigned 64-bit integer does there: what is too large is 0, what is negative wraps around.
pub(crate) fn to_u64(number: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    match number >= HALF {
        true if number < 2.0 * HALF => number as u64,
        true => 0,
        false => to_i64(number) as u64,
    }
}

/// As the same cast to `int` of what [`to_i64`] gives: the low half.
pub(crate) fn to_i32(number: f64) -> i32 {
    to_i64(number) as i32
}

/// As C's `strtod`, without leading blanks: the number at the start of `text` and how many bytes it takes. 0 if there is none.
pub(crate) fn parse_prefix(text: &[u8]) -> (f64, usize) {
    let sign_len = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let is_negative = text.first() == Some(&b'-');
    let signed = |number: f64| if is_negative { -number } else { number };
    let rest = text.get(sign_len..).unwrap_or_default();
    for (word, number) in [("infinity", f64::INFINITY), ("inf", f64::INFINITY)] {
        if starts_with_word(rest, word) {
            return (signed(number), sign_len + word.len());
        }
    }
    if starts_with_word(rest, "nan") {
        return (signed(f64::NAN), sign_len + 3 + nan_payload_len(&rest[3..]));
    }
    if let [b'0', b'x' | b'X', hex @ ..] = rest {
        if let Some((number, len)) = parse_hex(hex) {
            return (signed(number), sign_len + 2 + len);
        }
    }
    let len = decimal_len(rest);
    let number = std::str::from_utf8(&rest[..len]).ok().and_then(|text| text.parse::<f64>().ok());
    match number {
        Some(number) if len > 0 => (signed(number), sign_len + len),
        _ => (0.0, 0),
    }
}

fn starts_with_word(text: &[u8], word: &str) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
}

/// `nan(chars)` is a NaN as well.
fn nan_payload_len(rest: &[u8]) -> usize {
    let [b'(', inner @ ..] = rest else { return 0 };
    let len = inner.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    if inner.get(len) == Some(&b')') {
        len + 2
    } else {
        0
    }
}

fn digits_len(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

fn exponent_len(text: &[u8], letter: u8) -> usize {
    let Some(first) = text.first() else { return 0 };
    if first.to_ascii_lowercase() != letter {
        return 0;
    }
    let sign_len = usize::from(matches!(text.get(1), Some(b'+' | b'-')));
    match digits_len(text.get(1 + sign_len..).unwrap_or_default()) {
        0 => 0,
        digits => 1 + sign_len + digits,
    }
}

fn decimal_len(text: &[u8]) -> usize {
    let whole = digits_len(text);
    let mut len = whole;
    if text.get(len) == Some(&b'.') {
        let places = digits_len(&text[len + 1..]);
        if whole + places == 0 {
            return 0;
        }
        len += 1 + places;
    }
    if len == 0 {
        return 0;
    }
    len + exponent_len(&text[len..], b'e')
}

fn hex_digit(byte: u8) -> Option<u32> {
    char::from(byte).to_digit(16)
}

/// What follows `0x`.
fn parse_hex(text: &[u8]) -> Option<(f64, usize)> {
    let mut mantissa: u128 = 0;
    let mut exponent: i64 = 0;
    let mut digit_count = 0;
    let mut has_point = false;
    let mut len = 0;
    while let Some(&byte) = text.get(len) {
        if byte == b'.' && !has_point {
            has_point = true;
        } else if let Some(digit) = hex_digit(byte) {
            digit_count += 1;
            if mantissa >> 120 == 0 {
                mantissa = mantissa << 4 | u128::from(digit);
                exponent -= if has_point { 4 } else { 0 };
            } else {
                // What does not fit only says that there was something, for rounding.
                mantissa |= u128::from(digit != 0);
                exponent += if has_point { 0 } else { 4 };
            }
        } else {
            break;
        }
        len += 1;
    }
    if digit_count == 0 {
        return None;
    }
    let power_len = exponent_len(&text[len..], b'p');
    if power_len > 0 {
        let power = std::str::from_utf8(&text[len + 1..len + power_len]).ok()?;
        let power: i64 = power.parse().unwrap_or(if power.starts_with('-') { -1_000_000 } else { 1_000_000 });
        exponent = exponent.saturating_add(power);
    }
    let exponent = exponent.clamp(-5_000, 5_000) as i32;
    Some((scaled(mantissa, exponent), len + power_len))
}

/// `mantissa * 2^exponent`, in two steps so that neither overflows before the other.
fn scaled(mantissa: u128, exponent: i32) -> f64 {
    let half = exponent / 2;
    mantissa as f64 * 2f64.powi(half) * 2f64.powi(exponent - half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_by_c() {
        for (number, digits, text) in [
            (0.1, 17, "0.10000000000000001"),
            (100.0, 14, "100"),
            (1e14, 14, "1e+14"),
            (123456789012345.0, 14, "1.2345678901234e+14"),
            (1e15, 17, "1000000000000000"),
            (0.0001, 14, "0.0001"),
            (0.00001, 14, "1e-05"),
            (-0.0, 14, "-0"),
            (1e300, 17, "1.0000000000000001e+300"),
            (f64::INFINITY, 14, "inf"),
            (2.5, 1, "2"),
            (99.5, 2, "1e+02"),
        ] {
            assert_eq!(format_g(number, digits), text);
        }
        for (number, text) in [(3.0, "3"), (-7.0, "-7"), (1e17, "1e+17"), (-0.0, "-0"), (0.5, "0.5")] {
            assert_eq!(format_exact(number), text);
        }
    }

    /// The same by rounding the exact number to its places, twice.
    fn rounded(number: f64, digits: usize) -> String {
        let without_zeros = |text: &str| match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text.to_owned(),
        };
        let scientific = format!("{:.*e}", digits - 1, number);
        let (mantissa, exponent) = scientific.split_once('e').unwrap();
        let exponent: i32 = exponent.parse().unwrap();
        if exponent < -4 || exponent >= digits as i32 {
            let sign = if exponent < 0 { '-' } else { '+' };
            return format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs());
        }
        let places = (digits as i32 - 1 - exponent).max(0) as usize;
        without_zeros(&format!("{number:.places$}"))
    }

    #[test]
    fn the_short_way_is_the_long_one() {
        let mut rng = fastrand::Rng::with_seed(7);
        for round in 0..200_000 {
            let number = match round % 4 {
                0 => f64::from_bits(rng.u64(..)),
                1 => rng.i64(-2_000_000..2_000_000) as f64 / 10f64.powi(rng.i32(0..9)),
                2 => rng.i64(..) as f64,
                _ => (rng.f64() - 0.5) * 10f64.powi(rng.i32(-8..20)),
            };
            if number.is_finite() {
                let digits = rng.usize(1..=17);
                assert_eq!(format_g(number, digits), rounded(number, digits), "{number:e}, {digits} digits");
            }
        }
        for number in [0.0, -0.0, 5e-324, f64::MIN_POSITIVE, f64::MAX, 1e22, 9007199254740993.0, 1e16, 1e17] {
            (1..=17).for_each(|digits| assert_eq!(format_g(number, digits), rounded(number, digits)));
        }
    }

    #[test]
    fn numbers_are_read_as_by_c() {
        for (text, number, len) in [
            ("1.5e3x", 1500.0, 5),
            ("-.5", -0.5, 3),
            ("1.", 1.0, 2),
            (".", 0.0, 0),
            ("1e", 1.0, 1),
            ("1e+", 1.0, 1),
            ("0x1F", 31.0, 4),
            ("0x", 0.0, 1),
            ("0x1p4", 16.0, 5),
            ("0x.8", 0.5, 4),
            ("INFinite", f64::INFINITY, 3),
            ("-infinity", f64::NEG_INFINITY, 9),
            ("abc", 0.0, 0),
            ("+1", 1.0, 2),
        ] {
            assert_eq!(parse_prefix(text.as_bytes()), (number, len), "{text}");
        }
        assert!(parse_prefix(b"nan").0.is_nan());
        assert_eq!(to_i64(1e300), i64::MIN);
        assert_eq!(to_i32(4294967297.0), 1);
    }
}
