//! Numbers as people read them.

/// 1234567 as 1,234,567.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Nanoseconds with a unit that keeps three digits.
pub fn human_ns(ns: f64) -> String {
    match ns {
        _ if ns < 1e3 => format!("{ns:.0} ns"),
        _ if ns < 1e5 => format!("{:.1} us", ns / 1e3),
        _ if ns < 1e6 => format!("{:.0} us", ns / 1e3),
        _ if ns < 1e8 => format!("{:.2} ms", ns / 1e6),
        _ if ns < 1e9 => format!("{:.0} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(human_ns(1_500.0), "1.5 us");
        assert_eq!(human_ns(52_000_000.0), "52.00 ms");
        assert_eq!((thousands(7), thousands(1_234_567)), ("7".into(), "1,234,567".into()));
    }
}
