//! Glob patterns as Redis matches them: `*`, `?`, `[a-c]`, `[^a]`, `\` before a literal.

/// Deeper nesting of `*` does not match, so that a pattern cannot exhaust the stack.
const MAX_STARS: usize = 1000;

/// Whether `text` as a whole matches; `ignore_case` compares ASCII letters in any case.
pub fn matches(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    step(pattern, text, ignore_case, &mut false, 0)
}

fn same(a: u8, b: u8, ignore_case: bool) -> bool {
    a == b || (ignore_case && a.eq_ignore_ascii_case(&b))
}

/// `give_up` is raised when the text is too short for the rest of the pattern, whatever a former star takes.
fn step(mut pattern: &[u8], mut text: &[u8], ignore_case: bool, give_up: &mut bool, stars: usize) -> bool {
    if stars > MAX_STARS {
        return false;
    }
    while let ([first, rest @ ..], [byte, text_rest @ ..]) = (pattern, text) {
        match first {
            b'*' => return star(rest, text, ignore_case, give_up, stars),
            b'?' => pattern = rest,
            b'[' => {
                let (is_match, after) = class(rest, *byte, ignore_case);
                if !is_match {
                    return false;
                }
                pattern = after;
            }
            _ => {
                let (literal, after) = match (first, rest) {
                    (b'\\', [escaped, after @ ..]) => (*escaped, after),
                    _ => (*first, rest),
                };
                if !same(literal, *byte, ignore_case) {
                    return false;
                }
                pattern = after;
            }
        }
        text = text_rest;
        if text.is_empty() {
            while let [b'*', rest @ ..] = pattern {
                pattern = rest;
            }
        }
    }
    pattern.is_empty() && text.is_empty()
}

fn star(mut pattern: &[u8], text: &[u8], ignore_case: bool, give_up: &mut bool, stars: usize) -> bool {
    while let [b'*', rest @ ..] = pattern {
        pattern = rest;
    }
    if pattern.is_empty() {
        return true;
    }
    for start in 0..text.len() {
        if step(pattern, &text[start..], ignore_case, give_up, stars + 1) {
            return true;
        }
        if *give_up {
            return false;
        }
    }
    *give_up = true;
    false
}

/// Matches a byte with what follows `[`; returns the pattern after the class. One that is not closed ends with
/// the pattern.
fn class(mut pattern: &[u8], byte: u8, ignore_case: bool) -> (bool, &[u8]) {
    let is_negated = pattern.first() == Some(&b'^');
    if is_negated {
        pattern = &pattern[1..];
    }
    let mut is_match = false;
    loop {
        match pattern {
            [] => break,
            [b'\\', escaped, rest @ ..] => {
                is_match |= *escaped == byte;
                pattern = rest;
            }
            [b']', rest @ ..] => {
                pattern = rest;
                break;
            }
            [start, b'-', end, rest @ ..] => {
                let lower = |b: u8| if ignore_case { b.to_ascii_lowercase() } else { b };
                let (start, end) = (*start.min(end), *start.max(end));
                is_match |= (lower(start)..=lower(end)).contains(&lower(byte));
                pattern = rest;
            }
            [literal, rest @ ..] => {
                is_match |= same(*literal, byte, ignore_case);
                pattern = rest;
            }
        }
    }
    (is_match != is_negated, pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", false),
            ("", "", true),
            ("*", "abc", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("a**", "a", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hbllo", true),
            ("[\\]]", "]", true),
            ("[abc", "c", true),
            ("[^", "x", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("\\", "\\", true),
            ("a*", "b", false),
            ("*a*b*c*", "xxaxxbxxcxx", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes(), false), expected, "{pattern} {text}");
        }
        assert!(matches(b"SAVE", b"save", true));
        assert!(matches(b"[A-C]", b"b", true));
    }

    #[test]
    fn many_stars_end_soon() {
        let pattern = b"a*".repeat(2000);
        assert!(!matches(&pattern, &[b'a'; 1999], false));
        assert!(!matches(&b"*a".repeat(50), &b"b".repeat(10_000), false));
    }
}
