//! Lua's patterns on bytes: what `string.find`, `match`, `gmatch` and `gsub` look for.
//!
//! The matcher of the C library recurses once for each item of a pattern, without a bound: a pattern of some hundred
//! thousand items overflows the stack of its thread. This one counts its depth and its steps.

use thiserror::Error;

/// Captures that a pattern may have.
pub(crate) const CAPTURES_MAX: usize = 32;
/// Nested calls of the matcher, each about 200 bytes of stack.
const DEPTH_MAX: u32 = 2_000;
/// Steps between two looks at whether the run is to end.
const STEPS_BETWEEN_LOOKS: u32 = 100_000;

/// What a part of a pattern has matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    Open(usize),
    /// Offset and length in bytes.
    Range(usize, usize),
    /// `()`: an offset in bytes.
    Position(usize),
}

/// A pattern that cannot be matched. The words are Lua's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum PatternError {
    #[error("malformed pattern (ends with '%')")]
    EndsWithPercent,
    #[error("malformed pattern (missing ']')")]
    MissingBracket,
    #[error("unbalanced pattern")]
    Unbalanced,
    #[error("missing '[' after '%f' in pattern")]
    MissingSet,
    #[error("too many captures")]
    TooManyCaptures,
    #[error("invalid capture index")]
    InvalidCapture,
    #[error("invalid pattern capture")]
    InvalidPatternCapture,
    #[error("unfinished capture")]
    Unfinished,
    #[error("pattern too complex")]
    TooComplex,
    /// The run is to end.
    #[error("interrupted")]
    Interrupted,
}

type Found = Result<Option<usize>, PatternError>;

/// A match under way.
pub(crate) struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: [Capture; CAPTURES_MAX],
    capture_count: usize,
    depth: u32,
    steps: u32,
    is_interrupted: &'a dyn Fn() -> bool,
}

impl<'a> Matcher<'a> {
    pub(crate) fn new(
        text: &'a [u8],
        pattern: &'a [u8],
        is_interrupted: &'a dyn Fn() -> bool,
    ) -> Matcher<'a> {
        let captures = [Capture::Open(0); CAPTURES_MAX];
        Matcher { text, pattern, captures, capture_count: 0, depth: 0, steps: 0, is_interrupted }
    }

    /// Where a match that begins at `at` ends, if there is one.
    pub(crate) fn match_at(&mut self, at: usize, pattern_at: usize) -> Found {
        self.capture_count = 0;
        self.depth = 0;
        self.step(at, pattern_at)
    }

    /// The captures of the last match; the whole of it if the pattern has none and `whole` says from where to where.
    pub(crate) fn captures(
        &self,
        whole: Option<(usize, usize)>,
    ) -> impl Iterator<Item = Result<Capture, PatternError>> + '_ {
        let whole =
            whole.filter(|_| self.capture_count == 0).map(|(from, to)| Capture::Range(from, to - from));
        let own = self.captures[..self.capture_count].iter().copied();
        own.chain(whole).map(|capture| match capture {
            Capture::Open(_) => Err(PatternError::Unfinished),
            closed => Ok(closed),
        })
    }

    /// The capture of that number, from 0; the whole match for the first if the pattern has none.
    pub(crate) fn capture(&self, index: usize, whole: (usize, usize)) -> Result<Capture, PatternError> {
        match self.captures(Some(whole)).nth(index) {
            Some(capture) => capture,
            None => Err(PatternError::InvalidCapture),
        }
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.pattern.get(at).copied()
    }

    /// Counted at each item and each repetition.
    fn tick(&mut self) -> Result<(), PatternError> {
        self.steps += 1;
        if self.steps >= STEPS_BETWEEN_LOOKS {
            self.steps = 0;
            if (self.is_interrupted)() {
                return Err(PatternError::Interrupted);
            }
        }
        Ok(())
    }

    /// Matches what follows, one level deeper.
    fn deeper(&mut self, at: usize, pattern_at: usize) -> Found {
        if self.depth >= DEPTH_MAX {
            return Err(PatternError::TooComplex);
        }
        self.depth += 1;
        let found = self.step(at, pattern_at);
        self.depth -= 1;
        found
    }

    fn step(&mut self, mut at: usize, mut pattern_at: usize) -> Found {
        loop {
            self.tick()?;
            let Some(item) = self.byte(pattern_at) else { return Ok(Some(at)) };
            match (item, self.byte(pattern_at + 1)) {
                (b'(', Some(b')')) => return self.open(at, pattern_at + 2, Capture::Position(at)),
                (b'(', _) => return self.open(at, pattern_at + 1, Capture::Open(at)),
                (b')', _) => return self.close(at, pattern_at + 1),
                (b'%', Some(b'b')) => match self.balanced(at, pattern_at + 2)? {
                    Some(end) => (at, pattern_at) = (end, pattern_at + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => match self.frontier(at, pattern_at + 2)? {
                    Some(next) => pattern_at = next,
                    None => return Ok(None),
                },
                (b'%', Some(digit)) if digit.is_ascii_digit() => match self.back_reference(at, digit)? {
                    Some(end) => (at, pattern_at) = (end, pattern_at + 2),
                    None => return Ok(None),
                },
                (b'$', None) => return Ok((at == self.text.len()).then_some(at)),
                _ => match self.single_item(at, pattern_at)? {
                    Next::Go(next_at, next_pattern_at) => (at, pattern_at) = (next_at, next_pattern_at),
                    Next::Done(found) => return Ok(found),
                },
            }
        }
    }

    /// A class of characters with what says how often.
    fn single_item(&mut self, at: usize, pattern_at: usize) -> Result<Next, PatternError> {
        let end = self.class_end(pattern_at)?;
        let is_match = self.text.get(at).is_some_and(|&byte| self.is_in_class(byte, pattern_at, end));
        Ok(match self.byte(end) {
            Some(b'?') => {
                if is_match {
                    if let Some(found) = self.deeper(at + 1, end + 1)? {
                        return Ok(Next::Done(Some(found)));
                    }
                }
                Next::Go(at, end + 1)
            }
            Some(b'*') => Next::Done(self.longest_first(at, pattern_at, end)?),
            Some(b'+') if is_match => Next::Done(self.longest_first(at + 1, pattern_at, end)?),
            Some(b'-') => Next::Done(self.shortest_first(at, pattern_at, end)?),
            Some(b'+') => Next::Done(None),
            _ if is_match => Next::Go(at + 1, end),
            _ => Next::Done(None),
        })
    }

    fn longest_first(&mut self, at: usize, pattern_at: usize, end: usize) -> Found {
        let mut count = 0;
        while self.text.get(at + count).is_some_and(|&byte| self.is_in_class(byte, pattern_at, end)) {
            self.tick()?;
            count += 1;
        }
        loop {
            if let Some(found) = self.deeper(at + count, end + 1)? {
                return Ok(Some(found));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    fn shortest_first(&mut self, mut at: usize, pattern_at: usize, end: usize) -> Found {
        loop {
            if let Some(found) = self.deeper(at, end + 1)? {
                return Ok(Some(found));
            }
            if !self.text.get(at).is_some_and(|&byte| self.is_in_class(byte, pattern_at, end)) {
                return Ok(None);
            }
            at += 1;
        }
    }

    fn open(&mut self, at: usize, pattern_at: usize, capture: Capture) -> Found {
        let slot = self.captures.get_mut(self.capture_count).ok_or(PatternError::TooManyCaptures)?;
        *slot = capture;
        self.capture_count += 1;
        let found = self.deeper(at, pattern_at)?;
        if found.is_none() {
            self.capture_count -= 1;
        }
        Ok(found)
    }

    fn close(&mut self, at: usize, pattern_at: usize) -> Found {
        let open = (0..self.capture_count).rev().find_map(|index| match self.captures[index] {
            Capture::Open(from) => Some((index, from)),
            _ => None,
        });
        let (index, from) = open.ok_or(PatternError::InvalidPatternCapture)?;
        self.captures[index] = Capture::Range(from, at - from);
        let found = self.deeper(at, pattern_at)?;
        if found.is_none() {
            self.captures[index] = Capture::Open(from);
        }
        Ok(found)
    }

    fn balanced(&mut self, at: usize, pattern_at: usize) -> Found {
        let (Some(begin), Some(end)) = (self.byte(pattern_at), self.byte(pattern_at + 1)) else {
            return Err(PatternError::Unbalanced);
        };
        if self.text.get(at) != Some(&begin) {
            return Ok(None);
        }
        let mut open_count = 1;
        let mut next = at + 1;
        while let Some(&byte) = self.text.get(next) {
            self.tick()?;
            if byte == end {
                open_count -= 1;
                if open_count == 0 {
                    return Ok(Some(next + 1));
                }
            } else if byte == begin {
                open_count += 1;
            }
            next += 1;
        }
        Ok(None)
    }

    /// Where the pattern goes on, if the frontier of the set at `pattern_at` is at `at`.
    fn frontier(&mut self, at: usize, pattern_at: usize) -> Found {
        if self.byte(pattern_at) != Some(b'[') {
            return Err(PatternError::MissingSet);
        }
        let end = self.class_end(pattern_at)?;
        let before = at.checked_sub(1).and_then(|before| self.text.get(before)).copied().unwrap_or(0);
        let here = self.text.get(at).copied().unwrap_or(0);
        let is_frontier =
            !self.is_in_set(before, pattern_at, end - 1) && self.is_in_set(here, pattern_at, end - 1);
        Ok(is_frontier.then_some(end))
    }

    fn back_reference(&mut self, at: usize, digit: u8) -> Found {
        let index = usize::from(digit).wrapping_sub(usize::from(b'1'));
        let capture = self.captures[..self.capture_count].get(index).copied();
        let (from, len) = match capture {
            Some(Capture::Range(from, len)) => (from, len),
            // A position has a length that nothing matches.
            Some(Capture::Position(_)) => return Ok(None),
            Some(Capture::Open(_)) | None => return Err(PatternError::InvalidCapture),
        };
        let is_same = self.text.get(at..at + len).is_some_and(|here| *here == self.text[from..from + len]);
        Ok(is_same.then_some(at + len))
    }

    /// Where the class that begins at `at` ends.
    fn class_end(&self, at: usize) -> Result<usize, PatternError> {
        match self.byte(at) {
            Some(b'%') if self.byte(at + 1).is_none() => Err(PatternError::EndsWithPercent),
            Some(b'%') => Ok(at + 2),
            Some(b'[') => self.set_end(at),
            _ => Ok(at + 1),
        }
    }

    fn set_end(&self, at: usize) -> Result<usize, PatternError> {
        let mut next = at + 1;
        if self.byte(next) == Some(b'^') {
            next += 1;
        }
        // A bracket in the first place stands for itself.
        loop {
            let byte = self.byte(next).ok_or(PatternError::MissingBracket)?;
            next += 1;
            if byte == b'%' && self.byte(next).is_some() {
                next += 1;
            }
            if self.byte(next) == Some(b']') {
                return Ok(next + 1);
            }
        }
    }

    fn is_in_class(&self, byte: u8, at: usize, end: usize) -> bool {
        match self.pattern[at] {
            b'.' => true,
            b'%' => is_of_letter(byte, self.pattern[at + 1]),
            b'[' => self.is_in_set(byte, at, end - 1),
            own => own == byte,
        }
    }

    /// `at` is that of the opening bracket, `end` that of the closing one.
    fn is_in_set(&self, byte: u8, at: usize, end: usize) -> bool {
        let mut next = at + 1;
        let is_wanted = self.pattern[next] != b'^';
        if !is_wanted {
            next += 1;
        }
        while next < end {
            let own = self.pattern[next];
            if own == b'%' {
                next += 1;
                if is_of_letter(byte, self.pattern[next]) {
                    return is_wanted;
                }
            } else if self.pattern[next + 1] == b'-' && next + 2 < end {
                if (own..=self.pattern[next + 2]).contains(&byte) {
                    return is_wanted;
                }
                next += 2;
            } else if own == byte {
                return is_wanted;
            }
            next += 1;
        }
        !is_wanted
    }
}

enum Next {
    /// Where text and pattern go on.
    Go(usize, usize),
    Done(Option<usize>),
}

fn is_of_letter(byte: u8, letter: u8) -> bool {
    let is_member = match letter.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | 9..=13),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return letter == byte,
    };
    is_member != letter.is_ascii_uppercase()
}
