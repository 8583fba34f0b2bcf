//! LZF decompression, whole or piece by piece: a stream refers to its last 8 KB alone. The format is in [`super::lzf`].

use super::lzf::{MAX_DISTANCE, MAX_EXPANSION, MAX_LITERALS};

/// No literal run and no reference is longer, packed.
const MAX_TOKEN: usize = 1 + MAX_LITERALS;
/// Bytes that are given at a time, but for one token.
const GIVEN_BYTES: usize = 64 << 10;

/// A stream that is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Malformed;

/// A stream that is being decompressed.
pub(super) struct Expander {
    /// What has been given lies before `given`; of that the last bytes are kept, for references.
    output: Vec<u8>,
    given: usize,
    /// Bytes that are still to come.
    left_bytes: u64,
}

impl Expander {
    /// Of a stream that gives so many bytes.
    pub fn new(length_bytes: u64) -> Expander {
        Expander { output: Vec::new(), given: 0, left_bytes: length_bytes }
    }

    /// Bytes that are still to come.
    pub fn left_bytes(&self) -> u64 {
        self.left_bytes
    }

    /// Takes from the front of `packed`, which is all there is if `is_last`, and gives what that stands for: up to 64 KB, as
    /// far as there is a whole literal run or reference. How many bytes it has taken.
    pub fn feed(&mut self, packed: &[u8], is_last: bool) -> Result<(usize, &[u8]), Malformed> {
        self.output.drain(..self.given.saturating_sub(MAX_DISTANCE));
        self.given = self.output.len();
        let before = self.output.len();
        let end = before as u64 + self.left_bytes;
        let mut rest = packed;
        while !rest.is_empty()
            && self.output.len() - before < GIVEN_BYTES
            && (is_last || rest.len() >= MAX_TOKEN)
        {
            rest = expand(rest, &mut self.output, end).ok_or(Malformed)?;
        }
        self.left_bytes = end - self.output.len() as u64;
        Ok((packed.len() - rest.len(), &self.output[before..]))
    }
}

/// Appends what the first literal run or reference of `packed` stands for to `output`, which gets no longer than `end`.
/// What follows it; `None` if it is malformed.
fn expand<'p>(packed: &'p [u8], output: &mut Vec<u8>, end: u64) -> Option<&'p [u8]> {
    let (&control, tail) = packed.split_first()?;
    if usize::from(control) < MAX_LITERALS {
        let (literals, rest) = tail.split_at_checked(usize::from(control) + 1)?;
        if (output.len() + literals.len()) as u64 > end {
            return None;
        }
        output.extend_from_slice(literals);
        return Some(rest);
    }
    let mut len = usize::from(control >> 5) + 2;
    let mut tail = tail.iter();
    if len == 9 {
        len += usize::from(*tail.next()?);
    }
    let distance = (usize::from(control & 0x1f) << 8 | usize::from(*tail.next()?)) + 1;
    if distance > output.len() || (output.len() + len) as u64 > end {
        return None;
    }
    copy_back(output, distance, len);
    Some(tail.as_slice())
}

/// Appends `len` bytes that begin `distance` before the end; what is appended may be copied again.
fn copy_back(output: &mut Vec<u8>, distance: usize, len: usize) {
    let start = output.len() - distance;
    let mut left = len;
    while left > 0 {
        let step = left.min(output.len() - start);
        output.extend_from_within(start..start + step);
        left -= step;
    }
}

/// Decompresses `input`, which must give exactly `output_len_bytes`; `None` if it does not.
pub(super) fn decompress(input: &[u8], output_len_bytes: usize) -> Option<Vec<u8>> {
    if output_len_bytes > input.len().saturating_mul(MAX_EXPANSION) {
        return None;
    }
    let mut output = Vec::with_capacity(output_len_bytes.min(input.len().saturating_mul(4)));
    let mut rest = input;
    while !rest.is_empty() {
        rest = expand(rest, &mut output, output_len_bytes as u64)?;
    }
    (output.len() == output_len_bytes).then_some(output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdb::Compressor;

    /// What a stream gives that comes in pieces of these lengths, again and again.
    fn expand_pieces(packed: &[u8], length_bytes: u64, pieces: &[usize]) -> Result<Vec<u8>, Malformed> {
        let (mut expander, mut all, mut waiting) = (Expander::new(length_bytes), Vec::new(), Vec::new());
        let (mut rest, mut lens) = (packed, pieces.iter().cycle());
        loop {
            let (taken, given) = expander.feed(&waiting, rest.is_empty())?;
            all.extend_from_slice(given);
            waiting.drain(..taken);
            if taken > 0 {
                continue;
            }
            let Some(len) = lens.next().filter(|_| !rest.is_empty()) else { break };
            let (now, later) = rest.split_at(rest.len().min(*len));
            waiting.extend_from_slice(now);
            rest = later;
        }
        match waiting.is_empty() && expander.left_bytes() == 0 {
            true => Ok(all),
            false => Err(Malformed),
        }
    }

    #[test]
    fn pieces_give_what_the_whole_gives() {
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        for _ in 0..60 {
            let mut text = Vec::new();
            for _ in 0..random.usize(1..4_000) {
                match random.u32(..3) {
                    0 => text.push(random.u8(..)),
                    1 => text.extend(std::iter::repeat_n(random.u8(..4), random.usize(..900))),
                    _ => {
                        let from = random.usize(..=text.len());
                        text.extend_from_within(from..text.len().min(from + random.usize(..300)));
                    }
                }
            }
            let mut packed = Vec::new();
            Compressor::new().append(&text, &mut packed);
            let pieces: Vec<usize> = (0..5).map(|_| random.usize(1..9_000)).collect();
            assert!(expand_pieces(&packed, text.len() as u64, &pieces) == Ok(text.clone()));
            for wrong in [text.len() as u64 - 1, text.len() as u64 + 1] {
                assert_eq!(expand_pieces(&packed, wrong, &pieces), Err(Malformed));
            }
            let at = random.usize(..packed.len());
            packed[at] ^= 1 << random.u32(..8);
            let whole = decompress(&packed, text.len());
            assert!(expand_pieces(&packed, text.len() as u64, &pieces).ok() == whole);
        }
    }
}
