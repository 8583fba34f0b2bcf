//! Scores as Redis 7.0 writes them into listpacks: integers, or text of `%.17g`.

/// Digits that tell every number from its neighbours.
const DIGITS: usize = 17;

/// Whole numbers up to here are integers.
const MAX_WHOLE: f64 = (1_u64 << 62) as f64;

/// The integer that a score is written as, if it is one. The negative zero is none.
pub(super) fn whole(score: f64) -> Option<i64> {
    let is_negative_zero = score == 0.0 && score.is_sign_negative();
    (score.abs() <= MAX_WHOLE && score.fract() == 0.0 && !is_negative_zero).then_some(score as i64)
}

/// Appends the text of a score that is not [`whole`], and not NaN.
pub(super) fn append_score(out: &mut String, score: f64) {
    if score.is_infinite() {
        out.push_str(if score > 0.0 { "inf" } else { "-inf" });
    } else if score == 0.0 {
        out.push_str("-0");
    } else {
        append_significant(out, score);
    }
}

/// The text of a score as `%.17g` writes it: what reads it finds the same number.
pub(crate) fn score_text(score: f64) -> String {
    let mut text = String::new();
    match whole(score) {
        Some(0) => text.push('0'),
        Some(_) => append_significant(&mut text, score),
        None => append_score(&mut text, score),
    }
    text
}

fn append_significant(out: &mut String, score: f64) {
    let scientific = format!("{:.*e}", DIGITS - 1, score.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_end_matches('0');
    if score < 0.0 {
        out.push('-');
    }
    let point = match exponent {
        -4..=-1 => {
            out.push_str("0.");
            (1..-exponent).for_each(|_| out.push('0'));
            return out.push_str(digits);
        }
        0..17 => exponent as usize + 1,
        _ => 1,
    };
    let (whole, fraction) = digits.split_at(point.min(digits.len()));
    out.push_str(whole);
    (whole.len()..point).for_each(|_| out.push('0'));
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    if !(0..17).contains(&exponent) {
        out.push_str(&format!("e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_integers_within_bounds() {
        for (score, expected) in [
            (0.0, Some(0)),
            (-0.0, None),
            (-17.0, Some(-17)),
            (123_450_000_000_000_000.0, Some(123_450_000_000_000_000)),
            (4_611_686_018_427_387_904.0, Some(1 << 62)),
            (-9_223_372_036_854_775_808.0, None),
            (0.5, None),
            (f64::INFINITY, None),
            (f64::NAN, None),
        ] {
            assert_eq!(whole(score), expected, "{score}");
        }
    }

    #[test]
    fn scores_are_written_as_printf_does() {
        for (score, expected) in [
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (-0.0, "-0"),
            (0.1, "0.10000000000000001"),
            (-2.5, "-2.5"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (123.456, "123.456"),
            (-1_234_567_890_123_456.5, "-1234567890123456.5"),
            (9_223_372_036_854_775_807.0, "9.2233720368547758e+18"),
            (1e22, "1e+22"),
            (1.5e300, "1.5000000000000001e+300"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
        ] {
            let mut text = String::new();
            append_score(&mut text, score);
            assert_eq!(text, expected);
            assert_eq!(text.parse::<f64>().map(f64::to_bits), Ok(score.to_bits()), "{text}");
            assert_eq!(score_text(score), expected);
        }
    }

    #[test]
    fn whole_scores_are_written_so_too() {
        for (score, expected) in [
            (0.0, "0"),
            (7.0, "7"),
            (-120.0, "-120"),
            (99_999_999_999_999_984.0, "99999999999999984"),
            (1e17, "1e+17"),
            (1.5e18, "1.5e+18"),
        ] {
            assert_eq!(score_text(score), expected);
        }
    }
}
