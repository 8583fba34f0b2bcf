//! Glob-style patterns, as `KEYS`, `SCAN` and `CONFIG GET` take them.

use std::borrow::Cow;

/// A pattern to be matched with: `*` any bytes, `?` one byte, `[a-c]` and `[^a-c]` one byte of a set, `\` the next byte as
/// it is. Like Redis's `stringmatchlen`, an unclosed set ends with the pattern, and an empty text matches the empty pattern
/// only.
///
/// Each element of a pattern but `*` takes exactly one byte, so going back to the last `*` is enough: no recursion. A set is
/// 256 bits that are made once, so matching takes time in proportion to the elements and the text, however long sets are.
pub struct Glob<'p> {
    pattern: Cow<'p, [u8]>,
    ignore_case: bool,
    /// The sets of the pattern, in order.
    sets: Vec<Set>,
}

/// A set of a pattern.
struct Set {
    /// A bit for each byte that is in it.
    bits: [u64; 4],
    /// Bytes of the pattern, from its `[` on.
    pattern_bytes: usize,
}

/// Whether `text` matches `pattern`. To match several texts, make a [`Glob`].
pub fn matches(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    Glob::new(pattern, ignore_case).matches(text)
}

/// A place in a pattern: a byte, and how many sets are before it.
#[derive(Clone, Copy)]
struct At {
    byte: usize,
    set: usize,
}

impl<'p> Glob<'p> {
    pub fn new(pattern: impl Into<Cow<'p, [u8]>>, ignore_case: bool) -> Glob<'p> {
        let pattern = pattern.into();
        let (mut sets, mut at) = (Vec::new(), 0);
        // Most patterns have none.
        let mut has_more = pattern.contains(&b'[');
        while has_more && at < pattern.len() {
            at += match pattern[at] {
                b'[' => {
                    let set = Set::parse(&pattern[at..], ignore_case);
                    let len = set.pattern_bytes;
                    sets.push(set);
                    has_more = pattern[at + len..].contains(&b'[');
                    len
                }
                b'\\' if at + 1 < pattern.len() => 2,
                _ => 1,
            };
        }
        Glob { pattern, ignore_case, sets }
    }

    /// Memory that it takes.
    pub fn byte_count(&self) -> usize {
        self.pattern.len() + size_of_val(&self.sets[..])
    }

    pub fn matches(&self, text: &[u8]) -> bool {
        let pattern = &self.pattern[..];
        if text.is_empty() {
            return pattern.is_empty();
        }
        let (mut p, mut t) = (At { byte: 0, set: 0 }, 0);
        // Where the last star ended, and the first byte of the text that it does not cover yet.
        let mut star = None;
        while t < text.len() {
            if pattern.get(p.byte) == Some(&b'*') {
                while pattern.get(p.byte) == Some(&b'*') {
                    p.byte += 1;
                }
                if p.byte == pattern.len() {
                    return true;
                }
                star = Some((p, t));
                continue;
            }
            if let Some(next) = self.match_one(p, text[t]) {
                (p, t) = (next, t + 1);
                continue;
            }
            let Some((after, covered)) = star else { return false };
            (p, t) = (after, covered + 1);
            star = Some((after, t));
        }
        pattern[p.byte..].iter().all(|&b| b == b'*')
    }

    /// Matches one byte with the element of the pattern at a place; where the next element is.
    #[inline]
    fn match_one(&self, at: At, byte: u8) -> Option<At> {
        let same = |a: u8, b: u8| a == b || (self.ignore_case && a.eq_ignore_ascii_case(&b));
        let (is_same, len) = match self.pattern[at.byte..] {
            [] => return None,
            [b'?', ..] => (true, 1),
            [b'[', ..] => {
                let set = self.sets.get(at.set)?;
                let next = At { byte: at.byte + set.pattern_bytes, set: at.set + 1 };
                return set.has(byte).then_some(next);
            }
            [b'\\', escaped, ..] => (same(escaped, byte), 2),
            [literal, ..] => (same(literal, byte), 1),
        };
        is_same.then_some(At { byte: at.byte + len, ..at })
    }
}

impl Set {
    /// The set that a pattern begins with.
    fn parse(pattern: &[u8], ignore_case: bool) -> Set {
        let fold = |b: u8| if ignore_case { b.to_ascii_lowercase() } else { b };
        let set = &pattern[1..];
        let is_negated = set.first() == Some(&b'^');
        let (mut at, mut bits) = (usize::from(is_negated), [0; 4]);
        let mut add = |byte: u8| put(&mut bits, byte, true);
        loop {
            match set[at.min(set.len())..] {
                [] => break,
                [b'\\', escaped, ..] => {
                    add(fold(escaped));
                    at += 2;
                }
                [b']', ..] => {
                    at += 1;
                    break;
                }
                [a, b'-', b, ..] => {
                    (fold(a.min(b))..=fold(a.max(b))).for_each(&mut add);
                    at += 3;
                }
                [literal, ..] => {
                    add(fold(literal));
                    at += 1;
                }
            }
        }
        // What is looked up is not folded.
        if ignore_case {
            (b'A'..=b'Z').for_each(|upper| {
                let is_in = has(&bits, fold(upper));
                put(&mut bits, upper, is_in);
            });
        }
        if is_negated {
            bits.iter_mut().for_each(|word| *word = !*word);
        }
        Set { bits, pattern_bytes: 1 + at.min(set.len()) }
    }

    fn has(&self, byte: u8) -> bool {
        has(&self.bits, byte)
    }
}

fn has(bits: &[u64; 4], byte: u8) -> bool {
    bits[usize::from(byte / 64)] >> (byte % 64) & 1 != 0
}

fn put(bits: &mut [u64; 4], byte: u8, is_in: bool) {
    let (word, bit) = (&mut bits[usize::from(byte / 64)], 1u64 << (byte % 64));
    *word = if is_in { *word | bit } else { *word & !bit };
}

#[cfg(test)]
mod tests {
    use super::matches;

    /// `stringmatchlen` written down as the definition: tries every length for each star, and goes through a set for each
    /// byte.
    fn by_definition(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|n| by_definition(rest, &text[n..], ignore_case)),
            _ => {
                let Some(&byte) = text.first() else { return false };
                one_by_definition(pattern, byte, ignore_case)
                    .is_some_and(|len| by_definition(&pattern[len..], &text[1..], ignore_case))
            }
        }
    }

    fn one_by_definition(pattern: &[u8], byte: u8, ignore_case: bool) -> Option<usize> {
        let fold = |b: u8| if ignore_case { b.to_ascii_lowercase() } else { b };
        let (is_same, len) = match *pattern {
            [] => return None,
            [b'?', ..] => (true, 1),
            [b'[', ref set @ ..] => {
                let (is_in, len) = in_set_by_definition(set, fold(byte), fold);
                (is_in, 1 + len)
            }
            [b'\\', escaped, ..] => (fold(escaped) == fold(byte), 2),
            [literal, ..] => (fold(literal) == fold(byte), 1),
        };
        is_same.then_some(len)
    }

    /// Also the bytes of the set, with its end.
    fn in_set_by_definition(set: &[u8], byte: u8, fold: impl Fn(u8) -> u8) -> (bool, usize) {
        let is_negated = set.first() == Some(&b'^');
        let (mut at, mut is_in) = (usize::from(is_negated), false);
        while at < set.len() {
            match set[at..] {
                [b'\\', escaped, ..] => {
                    is_in |= fold(escaped) == byte;
                    at += 2;
                }
                [b']', ..] => return (is_in != is_negated, at + 1),
                [a, b'-', b, ..] => {
                    is_in |= (fold(a.min(b))..=fold(a.max(b))).contains(&byte);
                    at += 3;
                }
                [literal, ..] => {
                    is_in |= fold(literal) == byte;
                    at += 1;
                }
                [] => break,
            }
        }
        (is_in != is_negated, set.len())
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
            let (pattern, text) = (random(b"abB**?[]^-\\", 9), random(b"aabAB-]\xff", 9));
            let ignore_case = rng.bool();
            assert_eq!(
                matches(&pattern, &text, ignore_case),
                by_definition(&pattern, &text, ignore_case),
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

    #[test]
    fn a_long_set_is_gone_through_once() {
        // Gone through for each byte of the text it would take hours.
        let pattern = [b"*[".as_slice(), &b"z".repeat(10_000_000), b"]"].concat();
        assert!(!matches(&pattern, &b"a".repeat(1_000_000), false));
        assert!(matches(&pattern, &[b"a".repeat(1_000_000), b"z".to_vec()].concat(), false));
    }
}
