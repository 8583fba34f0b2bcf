//! A packed sorted set: members and scores in turn, by ascending score, then member.
//!
//! ```text
//! score        an integer of up to 53 bits: its bytes, the lowest first, as few as it takes, at most 7
//!              any other: the 8 bytes of the number
//! ```

use std::cmp::Ordering;
use std::ops::Range;

use crate::blobs::Bytes;
use crate::tree::sorted_set::sortable;
use crate::types::packed::{elements, is_same, packed_bytes, packed_bytes_of, splice};

const SCORE_MAX_BYTES: usize = 8;
/// Greatest integer, and less the least, that all integers up to have a number for.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// A member with its score, and where both lie.
#[derive(Clone, Debug)]
pub(super) struct Scored<'a> {
    pub member: &'a [u8],
    pub score: f64,
    range: Range<usize>,
}

/// The bytes of a score, and how many they are.
fn encode(score: f64) -> ([u8; SCORE_MAX_BYTES], usize) {
    let is_integer = score.abs() <= INTEGER_MAX && score.trunc() == score;
    if !is_integer || score.to_bits() == (-0.0f64).to_bits() {
        return (score.to_le_bytes(), SCORE_MAX_BYTES);
    }
    let integer = score as i64;
    let sign_bits = if integer < 0 { integer.leading_ones() } else { integer.leading_zeros() };
    let len = if integer == 0 { 0 } else { (u64::BITS + 1 - sign_bits).div_ceil(8) as usize };
    (integer.to_le_bytes(), len)
}

fn decode(bytes: &[u8]) -> Option<f64> {
    if let Ok(number) = bytes.try_into() {
        return Some(f64::from_le_bytes(number)).filter(|score| !score.is_nan());
    }
    if bytes.len() > SCORE_MAX_BYTES {
        return None;
    }
    let sign = bytes.last().map_or(0, |last| if last & 0x80 == 0 { 0 } else { -1 });
    Some(bytes.iter().rev().fold(sign, |above, byte| above << 8 | i64::from(*byte)) as f64)
}

/// The members of a run; ends early where it is malformed.
pub(super) fn members(run: &[u8]) -> impl Iterator<Item = Scored<'_>> {
    let mut elements = elements(run);
    std::iter::from_fn(move || {
        let (member, score) = (elements.next()?, elements.next()?);
        let range = member.range.start..score.range.end;
        Some(Scored { member: member.bytes, score: decode(score.bytes)?, range })
    })
}

/// All members, to be gone through by their ranks.
pub(super) fn all(run: &[u8]) -> Vec<Scored<'_>> {
    let mut all = Vec::with_capacity(len(run) as usize);
    all.extend(members(run));
    all
}

/// How many members there are: their scores are not looked at.
pub(super) fn len(run: &[u8]) -> u64 {
    elements(run).count() as u64 / 2
}

/// Finds a member. Of the others the scores are not looked at.
pub(super) fn find<'a>(run: &'a [u8], member: &[u8]) -> Option<Scored<'a>> {
    let mut elements = elements(run);
    loop {
        let (other, score) = (elements.next()?, elements.next()?);
        if is_same(other.bytes, member) {
            let range = other.range.start..score.range.end;
            return Some(Scored { member: other.bytes, score: decode(score.bytes)?, range });
        }
    }
}

/// Bytes that a member takes at most.
pub(super) fn most_bytes(member: &[u8]) -> usize {
    packed_bytes(member) + 1 + SCORE_MAX_BYTES
}

/// The same of one that may lie elsewhere.
pub(super) fn most_bytes_of(member: &Bytes<'_>) -> usize {
    packed_bytes_of(member) + 1 + SCORE_MAX_BYTES
}

/// The order of members.
pub(super) fn compare(a: (f64, &[u8]), b: (f64, &[u8])) -> Ordering {
    (sortable(a.0), a.1).cmp(&(sortable(b.0), b.1))
}

/// Gives a member a score, whether it is there or not.
pub(super) fn put(run: &mut Vec<u8>, member: &[u8], score: f64) {
    remove(run, member);
    let after = members(run).find(|other| compare((other.score, other.member), (score, member)).is_gt());
    let at = after.map_or(run.len(), |other| other.range.start);
    insert(run, at, member, score);
}

/// Adds a member that comes after all others.
pub(super) fn push(run: &mut Vec<u8>, member: &[u8], score: f64) {
    insert(run, run.len(), member, score);
}

fn insert(run: &mut Vec<u8>, at: usize, member: &[u8], score: f64) {
    let (bytes, len) = encode(score);
    splice(run, at..at, &[member, &bytes[..len]]);
}

/// Removes a member; whether it was there.
pub(super) fn remove(run: &mut Vec<u8>, member: &[u8]) -> bool {
    let place = find(run, member).map(|scored| scored.range);
    place.map(|place| run.drain(place)).is_some()
}

/// Removes the members of some ranks, of which there are so many.
pub(super) fn remove_ranks(run: &mut Vec<u8>, ranks: &Range<u64>) {
    let of = |rank: u64| members(run).nth(rank as usize).map(|scored| scored.range);
    if let (Some(first), Some(last)) = (of(ranks.start), of(ranks.end.saturating_sub(1))) {
        if first.start < last.end {
            run.drain(first.start..last.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_come_back_as_they_were() {
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        let integers = (0..=53).flat_map(|bits| [-1i64, 0, 1].map(|more| (1i64 << bits) + more));
        let integers = integers.flat_map(|integer| [integer as f64, -integer as f64]);
        let others = [0.0, -0.0, 0.5, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 1e17, -1e17];
        let any: Vec<f64> = (0..1_000).map(|_| f64::from_bits(random.u64(..))).collect();
        for score in integers.chain(others).chain(any.into_iter().filter(|score| !score.is_nan())) {
            let (bytes, len) = encode(score);
            assert_eq!(decode(&bytes[..len]).map(f64::to_bits), Some(score.to_bits()), "{score}");
        }
        assert_eq!((encode(0.0).1, encode(-128.0).1, encode(128.0).1, encode(0.1).1), (0, 1, 2, 8));
        assert!(decode(&[0; 9]).is_none() && decode(&f64::NAN.to_le_bytes()).is_none());
    }

    #[test]
    fn a_run_is_sorted() {
        let mut run = Vec::new();
        for (member, score) in [("b", 2.0), ("a", 2.0), ("c", -1.5), ("b", 0.0), ("d", -0.0), ("e", 9.0)] {
            put(&mut run, member.as_bytes(), score);
        }
        let all: Vec<_> = all(&run).iter().map(|scored| (scored.member, scored.score)).collect();
        assert_eq!(all, [(&b"c"[..], -1.5), (b"b", 0.0), (b"d", 0.0), (b"a", 2.0), (b"e", 9.0)]);
        remove_ranks(&mut run, &(1..3));
        assert!(remove(&mut run, b"e") && !remove(&mut run, b"e"));
        assert!(members(&run).map(|scored| scored.member).eq([b"c", b"a"]));
    }
}
