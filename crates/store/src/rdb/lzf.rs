//! LZF compression as liblzf 3.6 does it (`HLOG` 16, `VERY_FAST`), byte for byte, so that our payloads equal Redis's.
//!
//! ```text
//! 000LLLLL                     L + 1 literal bytes follow
//! LLLooooo oooooooo            copy L + 2 bytes from distance o + 1    (L < 7)
//! 111ooooo LLLLLLLL oooooooo   copy L + 9 bytes from distance o + 1
//! ```

const HASH_BITS: u32 = 16;
const HASH_SLOTS: usize = 1 << HASH_BITS;
pub(super) const MAX_LITERALS: usize = 1 << 5;
pub(super) const MAX_DISTANCE: usize = 1 << 13;
const MAX_MATCH: usize = (1 << 8) + (1 << 3);

/// The longest reference, 264 bytes, takes 3 bytes.
pub(super) const MAX_EXPANSION: usize = MAX_MATCH / 3;

/// A compressor with its hash table (256 KB), to be reused from string to string.
///
/// liblzf leaves its table uninitialised; here entries of earlier inputs lie below `base` and count as empty, so
/// neither clearing it nor chance is part of the result.
#[derive(Debug)]
pub struct Compressor {
    /// `base` + position of the last three bytes with this hash.
    slots: Box<[u32; HASH_SLOTS]>,
    base: u32,
}

impl Default for Compressor {
    fn default() -> Self {
        Self::new()
    }
}

impl Compressor {
    pub fn new() -> Self {
        Compressor { slots: Box::new([0; HASH_SLOTS]), base: 0 }
    }

    /// Compresses `input` to at most `max_output_bytes`; `None` if it does not fit.
    pub fn compress(&mut self, input: &[u8], max_output_bytes: usize) -> Option<Vec<u8>> {
        let input_len = u32::try_from(input.len()).ok()?;
        if input.len() < 3 {
            return None;
        }
        let end = match self.base.checked_add(input_len) {
            Some(end) => end,
            None => {
                self.slots.fill(0);
                self.base = 0;
                input_len
            }
        };
        let output = self.run(input, max_output_bytes);
        self.base = end;
        output
    }

    /// Appends `input` to a stream: compressed, or as literals if that is shorter. What earlier calls have appended is
    /// not referred to, so a long string may be compressed piece by piece.
    pub(super) fn append(&mut self, input: &[u8], output: &mut Vec<u8>) {
        let literal_bytes = input.len() + input.len().div_ceil(MAX_LITERALS);
        match self.compress(input, literal_bytes) {
            Some(packed) => output.extend_from_slice(&packed),
            None => put_literals(output, input),
        }
    }

    fn run(&mut self, input: &[u8], max_output_bytes: usize) -> Option<Vec<u8>> {
        let mut output = Vec::with_capacity(max_output_bytes.min(input.len()));
        let scan_end = input.len() - 2;
        let mut hash = Hash::before(input, 0);
        let mut run_start = 0;
        let mut at = 0;
        while at < scan_end {
            hash.roll(input, at);
            let Some(from) = self.earlier(hash, input, at) else {
                at += 1;
                continue;
            };
            put_literals(&mut output, &input[run_start..at]);
            if output.len() + 4 >= max_output_bytes {
                return None;
            }
            let len = match_len(input, from, at);
            put_reference(&mut output, at - from - 1, len);
            at += len;
            run_start = at;
            if at >= scan_end {
                break;
            }
            // Of the positions inside a match only the last two are entered.
            hash = Hash::before(input, at - 2);
            for inside in at - 2..at {
                hash.roll(input, inside);
                self.enter(hash, inside);
            }
        }
        // liblzf looks at its room here, before the last bytes and with the count of their run already placed.
        let literal_count = at - run_start;
        if output.len() + literal_count + literal_count / MAX_LITERALS + 1 + 3 > max_output_bytes {
            return None;
        }
        put_literals(&mut output, &input[run_start..]);
        Some(output)
    }

    fn enter(&mut self, hash: Hash, at: usize) -> u32 {
        std::mem::replace(&mut self.slots[hash.slot()], self.base + at as u32)
    }

    /// Enters `at` and returns the earlier position that a reference can name. Position 0 is never one.
    fn earlier(&mut self, hash: Hash, input: &[u8], at: usize) -> Option<usize> {
        let entry = self.enter(hash, at);
        if entry <= self.base {
            return None;
        }
        let from = (entry - self.base) as usize;
        let usable = at - from <= MAX_DISTANCE && input[from..from + 3] == input[at..at + 3];
        usable.then_some(from)
    }
}

/// The last three bytes, in the low 24 bits.
#[derive(Clone, Copy)]
struct Hash(u32);

impl Hash {
    /// To be rolled to `at` next.
    fn before(input: &[u8], at: usize) -> Self {
        Hash(u32::from(input[at]) << 8 | u32::from(input[at + 1]))
    }

    fn roll(&mut self, input: &[u8], at: usize) {
        self.0 = self.0 << 8 | u32::from(input[at + 2]);
    }

    fn slot(self) -> usize {
        (self.0 >> (24 - HASH_BITS)).wrapping_sub(self.0.wrapping_mul(5)) as usize % HASH_SLOTS
    }
}

/// Length of the match, as liblzf finds it: with 19 or more bytes left the first 19 are compared without a look at
/// the limit, else the last two bytes of the input are never part of a match.
fn match_len(input: &[u8], from: usize, at: usize) -> usize {
    let limit = (input.len() - at - 2).min(MAX_MATCH);
    let mut len = 3;
    if limit > 16 {
        while len < 19 {
            if input[from + len] != input[at + len] {
                return len;
            }
            len += 1;
        }
    }
    while len < limit && input[from + len] == input[at + len] {
        len += 1;
    }
    len
}

fn put_literals(output: &mut Vec<u8>, literals: &[u8]) {
    for run in literals.chunks(MAX_LITERALS) {
        output.push((run.len() - 1) as u8);
        output.extend_from_slice(run);
    }
}

fn put_reference(output: &mut Vec<u8>, offset: usize, len: usize) {
    let offset_high = (offset >> 8) as u8;
    let len_code = len - 2;
    if len_code < 7 {
        output.extend_from_slice(&[offset_high | (len_code as u8) << 5, offset as u8]);
    } else {
        output.extend_from_slice(&[offset_high | 7 << 5, (len_code - 7) as u8, offset as u8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdb::expand::decompress;

    fn round_trip(compressor: &mut Compressor, input: &[u8]) -> Option<usize> {
        let packed = compressor.compress(input, input.len().saturating_sub(4))?;
        assert_eq!(decompress(&packed, input.len()).as_deref(), Some(input));
        assert_eq!(decompress(&packed, input.len() - 1), None);
        assert_eq!(decompress(&packed, input.len() + 1), None);
        Some(packed.len())
    }

    #[test]
    fn strings_survive_and_repetitive_ones_shrink() {
        let mut compressor = Compressor::new();
        let mut random = fastrand::Rng::with_seed(7);
        for len in (0..600).chain([8191, 8192, 8193, 9000, 70_000]) {
            for alphabet in [1u8, 2, 4, 26, 255] {
                let input: Vec<u8> = (0..len).map(|_| random.u8(0..alphabet)).collect();
                let packed = round_trip(&mut compressor, &input);
                assert!(alphabet != 1 || len < 30 || packed.is_some_and(|packed| packed * 2 < len), "{len}");
            }
        }
    }

    #[test]
    fn pieces_make_one_stream() {
        let mut compressor = Compressor::new();
        let mut random = fastrand::Rng::with_seed(9);
        for _ in 0..200 {
            let (mut input, mut packed) = (Vec::new(), Vec::new());
            for _ in 0..random.usize(1..6) {
                let alphabet = [1, 3, 255][random.usize(..3)];
                let piece: Vec<u8> = (0..random.usize(1..3000)).map(|_| random.u8(0..alphabet)).collect();
                compressor.append(&piece, &mut packed);
                input.extend_from_slice(&piece);
            }
            assert_eq!(decompress(&packed, input.len()), Some(input));
        }
    }

    #[test]
    fn a_used_table_gives_what_a_fresh_one_gives() {
        let mut used = Compressor::new();
        let mut random = fastrand::Rng::with_seed(8);
        for _ in 0..500 {
            let input: Vec<u8> = (0..random.usize(21..400)).map(|_| random.u8(0..3)).collect();
            assert_eq!(used.compress(&input, input.len()), Compressor::new().compress(&input, input.len()));
        }
    }

    #[test]
    fn the_table_survives_its_base_wrapping() {
        let mut compressor = Compressor { base: u32::MAX - 100, ..Compressor::new() };
        let input = b"abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc";
        for _ in 0..3 {
            assert!(round_trip(&mut compressor, input).is_some());
        }
        assert!(compressor.base < 1000);
    }

    #[test]
    fn damaged_input_is_refused() {
        for (packed, len) in [
            (&b""[..], 1),
            (b"\x00", 1),
            (b"\x05abc", 6),
            (b"\x20\x00", 3),
            (b"\x00a\x20\x01", 4),
            (b"\x00a\xe0", 10),
            (b"\x00a\xe0\x00", 10),
            (b"\x00a\x20", 4),
            (b"\x00a", usize::MAX),
        ] {
            assert_eq!(decompress(packed, len), None, "{packed:?}");
        }
        assert_eq!(decompress(b"\x00a\x20\x00", 4).as_deref(), Some(&b"aaaa"[..]));
        assert_eq!(decompress(b"", 0).as_deref(), Some(&b""[..]));
    }
}
