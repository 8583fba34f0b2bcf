//! Numbers with their units.

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

/// Of a number of bytes with its unit: how often it is to be divided by 1,024, and what then remains.
fn scaled(bytes: f64, most: usize) -> (usize, f64) {
    let (mut power, mut value) = (0, bytes);
    while value.abs() >= 1024.0 && power < most {
        value /= 1024.0;
        power += 1;
    }
    (power, value)
}

/// `2.0 GiB`
pub fn human_bytes(bytes: f64) -> String {
    match scaled(bytes, 4) {
        (0, value) => format!("{value:.0} B"),
        (power, value) => format!("{value:.1} {}iB", ["", "K", "M", "G", "T"][power]),
    }
}

/// `1.50M`, as in Redis's `INFO`.
pub fn redis_bytes(bytes: u64) -> String {
    match scaled(bytes as f64, 5) {
        (0, _) => format!("{bytes}B"),
        (power, value) => format!("{value:.2}{}", ["", "K", "M", "G", "T", "P"][power]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(human_ns(1_500.0), "1.5 us");
        assert_eq!(human_ns(52_000_000.0), "52.00 ms");
        assert_eq!(human_bytes(2_147_483_648.0), "2.0 GiB");
        assert_eq!((human_bytes(1023.0), human_bytes(-2048.0)), ("1023 B".into(), "-2.0 KiB".into()));
        assert_eq!((redis_bytes(1023), redis_bytes(1_572_864)), ("1023B".into(), "1.50M".into()));
        assert_eq!(redis_bytes(u64::MAX), "16384.00P");
        assert_eq!((thousands(7), thousands(1_234_567)), ("7".into(), "1,234,567".into()));
    }
}
