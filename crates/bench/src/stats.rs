//! Order statistics of few numbers (rounds, saves) and of many (latencies of a phase).

/// The middle value; the mean of the two middle ones of an even number; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The median; nothing if there are none.
pub fn median_of(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| median(&values))
}

/// In the order of their first appearance.
pub fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

pub fn min_max(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| (lo.min(*v), hi.max(*v)))
}

/// The smallest value that at least `percent` of the values do not exceed (nearest rank); 0 of none.
pub fn percentile(values: &mut [u64], percent: f64) -> u64 {
    if values.is_empty() {
        return 0;
    }
    // 0.999 * 1000 is a little above 999 in binary; the rank must not be.
    let rank = ((percent / 100.0 * values.len() as f64 - 1e-6).ceil() as usize).clamp(1, values.len());
    *values.select_nth_unstable(rank - 1).1
}

/// Median of a list with its range: `12.3 (11.0-15.2)`; the bare value if there is only one.
pub fn with_range(values: &[f64], show: impl Fn(f64) -> String) -> String {
    match values {
        [] => "n/a".to_owned(),
        [one] => show(*one),
        _ => {
            let (lo, hi) = min_max(values);
            format!("{} ({} to {})", show(median(values)), show(lo), show(hi))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_percentiles() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        let mut values: Vec<u64> = (1..=1000).rev().collect();
        assert_eq!(percentile(&mut values, 99.9), 999);
        assert_eq!(percentile(&mut values, 100.0), 1000);
        assert_eq!(percentile(&mut values, 0.0), 1);
    }
}
