//! Scores as text: `%.17g`, as Redis 7.0 writes them into listpacks.

/// Digits that tell every number from its neighbours.
const DIGITS: usize = 17;

/// Whole numbers up to here are written without a point, whatever their length.
const MAX_WHOLE: f64 = 4_503_599_627_370_495.0;

/// Appends the text of a score.
pub(super) fn append_score(out: &mut String, score: f64) {
    if score.is_infinite() {
        out.push_str(if score > 0.0 { "inf" } else { "-inf" });
    } else if score == 0.0 {
        out.push_str(if score.is_sign_negative() { "-0" } else { "0" });
    } else if score.abs() <= MAX_WHOLE && score.fract() == 0.0 {
        out.push_str(&(score as i64).to_string());
    } else {
        append_significant(out, score);
    }
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
    fn scores_are_written_as_printf_does() {
        for (score, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-17.0, "-17"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (0.1, "0.10000000000000001"),
            (-2.5, "-2.5"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (4_503_599_627_370_495.0, "4503599627370495"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (12_345_678_901_234_568.0, "12345678901234568"),
            (1.5e300, "1.5000000000000001e+300"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
        ] {
            let mut text = String::new();
            append_score(&mut text, score);
            assert_eq!(text, expected);
            assert_eq!(text.parse::<f64>().map(f64::to_bits), Ok(score.to_bits()), "{text}");
        }
    }
}
