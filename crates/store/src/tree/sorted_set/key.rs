//! The key of a member in the order: its score, then the member.
//!
//! ```text
//!   whole   score (8)   the member, up to 493 bytes
//!   long    score (8)   the first 494 bytes of the member   its hash (8)   number, negative zero (2)
//! ```
//! The value of a whole member has no bytes, but one if its score is the negative zero, which is ordered as zero is. That of
//! a long one is a reference to where the member lies. Long members that begin alike are ordered by their hashes, not by
//! what comes after the first 494 bytes; those with the same hash by a number.

use smallvec::SmallVec;

use crate::blobs::Blob;
use crate::tree::ordered::{Stored, KEY_MAX_BYTES};

pub(super) const SCORE_BYTES: usize = 8;
const HASH_BYTES: usize = 8;
const NUMBER_BYTES: usize = 2;
/// Bytes of a long member in its key. No whole member is as long, so that no whole one lies among long ones.
pub(super) const START_BYTES: usize = KEY_MAX_BYTES - SCORE_BYTES - HASH_BYTES - NUMBER_BYTES;
const NUMBER_AT: usize = KEY_MAX_BYTES - NUMBER_BYTES;
/// Numbers of long members of one score, start and hash.
pub(super) const NUMBER_MAX: u16 = u16::MAX >> 1;

/// Most members are short.
pub(super) type OrderKey = SmallVec<[u8; 64]>;

/// A score in the order of unsigned numbers; zero and negative zero are one. It is no NaN.
#[inline(always)]
pub(crate) fn sortable(score: f64) -> u64 {
    let bits = (score + 0.0).to_bits();
    match bits >> 63 {
        0 => bits | 1 << 63,
        _ => !bits,
    }
}

fn score_of(sortable: u64) -> f64 {
    f64::from_bits(match sortable >> 63 {
        0 => !sortable,
        _ => sortable & !(1 << 63),
    })
}

pub(super) fn is_long(member: &[u8]) -> bool {
    member.len() >= START_BYTES
}

fn is_negative_zero(score: f64) -> bool {
    score.to_bits() == (-0.0f64).to_bits()
}

/// The key of a member that is not long.
#[inline(always)]
pub(super) fn whole_key(score: f64, member: &[u8]) -> OrderKey {
    let mut key = OrderKey::new();
    key.extend_from_slice(&sortable(score).to_be_bytes());
    key.extend_from_slice(member);
    key
}

/// The value of a member that is not long.
pub(super) fn whole_value(score: f64) -> Stored<'static> {
    match is_negative_zero(score) {
        true => Stored::inline(&[1]),
        false => Stored::NONE,
    }
}

/// The key of a long member.
pub(super) fn long_key(score: f64, member: &[u8], hash: u64, number: u16) -> OrderKey {
    let mut key = whole_key(score, &member[..START_BYTES]);
    key.extend_from_slice(&hash.to_be_bytes());
    let last = number.min(NUMBER_MAX) << 1 | u16::from(is_negative_zero(score));
    key.extend_from_slice(&last.to_be_bytes());
    key
}

/// The number of a long member's key if it has score, start and hash of another.
pub(super) fn number_among(key: &[u8], other: &OrderKey) -> Option<u16> {
    let number = key.strip_prefix(other.get(..NUMBER_AT)?)?;
    Some(u16::from_be_bytes(number.try_into().ok()?) >> 1)
}

/// The hash that the key of a long member has.
pub(super) fn hash_in(key: &[u8]) -> Option<u64> {
    let hash = key.get(NUMBER_AT - HASH_BYTES..NUMBER_AT)?;
    Some(u64::from_be_bytes(hash.try_into().ok()?))
}

/// What a record of the order says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scored<'a> {
    pub score: f64,
    pub member: Member<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Member<'a> {
    Whole(&'a [u8]),
    Long(Blob),
}

/// `None` if the record is malformed.
#[inline(always)]
pub(crate) fn parse<'a>(key: &'a [u8], value: Stored<'_>) -> Option<Scored<'a>> {
    let (score, rest) = key.split_first_chunk::<SCORE_BYTES>()?;
    let score = score_of(u64::from_be_bytes(*score));
    let (member, is_negative) = match value.is_outside {
        false => (Member::Whole(rest), !value.bytes.is_empty()),
        true => (Member::Long(value.blob()?), key.last()? & 1 != 0),
    };
    Some(Scored { score: if is_negative { -score } else { score }, member })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_ordered_as_numbers() {
        let mut scores = vec![0.0, 1.0, 0.1, 1e300, 5e-324, f64::MAX, f64::INFINITY, 3.0, 1e-300];
        scores.extend(scores.clone().iter().skip(1).map(|score| -score));
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        scores.extend((0..500).map(|_| f64::from_bits(random.u64(..))).filter(|score| !score.is_nan()));
        scores.sort_by(f64::total_cmp);
        for pair in scores.windows(2).filter(|pair| pair[0] != pair[1]) {
            assert!(sortable(pair[0]) < sortable(pair[1]), "{pair:?}");
        }
        for score in scores {
            assert_eq!(score_of(sortable(score)), score);
        }
        assert_eq!(sortable(-0.0), sortable(0.0));
    }

    #[test]
    fn a_key_says_score_and_member() {
        let long = [b'x'; 600];
        let blob = Blob::parse(&[7; 12]).unwrap();
        let mut reference = [0; 12];
        blob.encode(&mut reference);
        for score in [0.0, -0.0, 1.5, f64::NEG_INFINITY] {
            let key = whole_key(score, b"member");
            let scored = parse(&key, whole_value(score)).unwrap();
            assert_eq!(scored.score.to_bits(), score.to_bits());
            assert!(matches!(scored.member, Member::Whole(b"member")));
            let key = long_key(score, &long, 0x0102_0304_0506_0708, 5);
            assert_eq!((key.len(), hash_in(&key)), (KEY_MAX_BYTES, Some(0x0102_0304_0506_0708)));
            let scored = parse(&key, Stored { bytes: &reference, is_outside: true }).unwrap();
            assert_eq!(scored.score.to_bits(), score.to_bits());
            assert!(matches!(scored.member, Member::Long(found) if found == blob));
            assert_eq!(number_among(&key, &long_key(score, &long, 0x0102_0304_0506_0708, 9)), Some(5));
            assert_eq!(number_among(&key, &long_key(score, &long, 1, 5)), None);
        }
        assert!(parse(b"short", Stored::NONE).is_none());
    }
}
