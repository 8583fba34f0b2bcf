//! Glob-style patterns, as `KEYS`, `SCAN` and `CONFIG GET` take them.

/// Whether `text` matches `pattern`: `*` any bytes, `?` one byte, `[a-c]` and `[^a-c]` one byte of a set,
/// `\` the next byte as it is. Like Redis's `stringmatchlen`, an unclosed set ends with the pattern, and an
/// empty text matches the empty pattern only.
///
/// Each element of a pattern but `*` takes exactly one byte, so going back to the last `*` is enough: no
/// recursion, and time is bounded by the product of the lengths.
pub fn matches(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut p, mut t) = (0, 0);
    // Where the last star ended, and the first byte of the text that it does not cover yet.
    let mut star = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            while pattern.get(p) == Some(&b'*') {
                p += 1;
            }
            if p == pattern.len() {
                return true;
            }
            star = Some((p, t));
            continue;
        }
        if let Some(next) = match_one(&pattern[p..], text[t], ignore_case) {
            (p, t) = (p + next, t + 1);
            continue;
        }
        let Some((after, covered)) = star else { return false };
        (p, t) = (after, covered + 1);
        star = Some((after, t));
    }
    pattern[p..].iter().all(|&b| b == b'*')
}

/// Matches one byte with the first element of a pattern; returns the element's length.
fn match_one(pattern: &[u8], byte: u8, ignore_case: bool) -> Option<usize> {
    let same = |a: u8, b: u8| a == b || (ignore_case && a.eq_ignore_ascii_case(&b));
    match *pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', ref set @ ..] => {
            let (is_in, len) = match_set(set, byte, ignore_case);
            is_in.then_some(1 + len)
        }
        [b'\\', escaped, ..] => same(escaped, byte).then_some(2),
        [literal, ..] => same(literal, byte).then_some(1),
    }
}

/// Matches a byte with a set, given without its `[`; returns also the set's length with its `]`.
fn match_set(set: &[u8], byte: u8, ignore_case: bool) -> (bool, usize) {
    let fold = |b: u8| if ignore_case { b.to_ascii_lowercase() } else { b };
    let byte = fold(byte);
    let is_negated = set.first() == Some(&b'^');
    let mut at = usize::from(is_negated);
    let mut is_in = false;
    loop {
        match set[at.min(set.len())..] {
            [] => break,
            [b'\\', escaped, ..] => {
                is_in |= escaped == byte || fold(escaped) == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [a, b'-', b, ..] => {
                let (low, high) = (fold(a.min(b)), fold(a.max(b)));
                is_in |= (low..=high).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                is_in |= fold(literal) == byte;
                at += 1;
            }
        }
    }
    (is_in != is_negated, at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    /// `stringmatchlen` written down as the definition: tries every length for each star.
    fn by_definition(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|n| by_definition(rest, &text[n..])),
            _ => {
                let Some(&byte) = text.first() else { return false };
                super::match_one(pattern, byte, false)
                    .is_some_and(|len| by_definition(&pattern[len..], &text[1..]))
            }
        }
    }

    #[test]
    fn examples() {
        let cases: [(&str, &str, bool); 27] = [
            ("a*b", "ab", true),
            ("a*b", "axxb", true),
            ("a*b", "axxbc", false),
            ("*", "x", true),
            ("*", "", false),
            ("", "", true),
            ("", "x", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("[a-", "a", true),
            ("[a-", "-", true),
            ("[", "[", false),
            ("[^", "x", true),
            ("[]", "x", false),
            ("[^]x", "x", false),
            ("[^]x", "ax", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("\\", "\\", true),
            ("[\\]]", "]", true),
            ("[\\", "\\", true),
            ("a***", "a", true),
            ("a*?", "a", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes(), false), expected, "{pattern} {text}");
        }
        assert!(matches(b"MaxMem*", b"maxmemory", true));
        assert!(matches(b"[A-C]x", b"bX", true));
        assert!(!matches(b"[A-C]x", b"bx", false));
    }

    #[test]
    fn going_back_to_the_last_star_is_enough() {
        let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed());
        for _ in 0..200_000 {
            let mut random = |alphabet: &[u8], max: usize| -> Vec<u8> {
                (0..rng.usize(1..max)).map(|_| alphabet[rng.usize(..alphabet.len())]).collect()
            };
            let (pattern, text) = (random(b"ab**?[]^-\\", 9), random(b"aab-]", 9));
            assert_eq!(
                matches(&pattern, &text, false),
                by_definition(&pattern, &text),
                "{:?} {:?}",
                pattern.escape_ascii().to_string(),
                text.escape_ascii().to_string()
            );
        }
    }

    #[test]
    fn many_stars_take_no_stack_and_little_time() {
        let pattern = [b"a*".repeat(50_000), b"b".to_vec()].concat();
        assert!(!matches(&pattern, &b"a".repeat(5_000), false));
    }
}
