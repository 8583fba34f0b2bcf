//! Elements in one run of bytes: what a small collection is made of.
//!
//! ```text
//! element      length, 7 bits a byte, the lowest first, bit 7 set on all but the last; the bytes
//! ```

use std::collections::HashSet;
use std::ops::Range;

use crate::blobs::Bytes;
use crate::error::OpError;

/// Longest run, in bytes: it is copied at each change, and a walk through it takes a fraction of a microsecond.
pub(crate) const PACKED_MAX_BYTES: usize = 4096;

/// Whether members that are packed together are given once each.
///
/// # Errors
/// [`OpError::Twice`].
pub(crate) fn check_twins<'m>(mut members: impl Iterator<Item = &'m [u8]>) -> Result<(), OpError> {
    let mut seen = HashSet::new();
    match members.all(|member| seen.insert(member)) {
        true => Ok(()),
        false => Err(OpError::Twice),
    }
}

/// Bytes of an element and its length.
pub(crate) fn packed_bytes(element: &[u8]) -> usize {
    packed_len(element.len())
}

fn packed_len(len: usize) -> usize {
    let bits = usize::BITS - len.leading_zeros();
    (bits.div_ceil(7).max(1)) as usize + len
}

/// Bytes that an element would take, wherever it lies.
pub(crate) fn packed_bytes_of(element: &Bytes<'_>) -> usize {
    packed_len(usize::try_from(element.len()).unwrap_or(usize::MAX / 2))
}

/// Appends an element.
pub(crate) fn push(run: &mut Vec<u8>, element: &[u8]) {
    splice(run, run.len()..run.len(), &[element]);
}

/// Puts elements in the place of those at `range`, a range of bytes on the bounds of elements.
pub(crate) fn splice(run: &mut Vec<u8>, range: Range<usize>, elements: &[&[u8]]) {
    let bytes: usize = elements.iter().map(|element| packed_bytes(element)).sum();
    let (end, tail_bytes) = (range.start + bytes, run.len() - range.end);
    run.resize(run.len().max(end + tail_bytes), 0);
    run.copy_within(range.end..range.end + tail_bytes, end);
    run.truncate(end + tail_bytes);
    let mut place = &mut run[range.start..end];
    for element in elements {
        place = put(place, element);
    }
}

/// Writes an element; returns the place behind it.
fn put<'p>(mut place: &'p mut [u8], element: &[u8]) -> &'p mut [u8] {
    let (length_bytes, mut length) = (packed_bytes(element) - element.len(), element.len());
    for (index, byte) in place[..length_bytes].iter_mut().enumerate() {
        *byte = length as u8 & 0x7f | if index + 1 < length_bytes { 0x80 } else { 0 };
        length >>= 7;
    }
    place = &mut place[length_bytes..];
    let (bytes, behind) = place.split_at_mut(element.len());
    bytes.copy_from_slice(element);
    behind
}

/// Goes through a run; ends early where it is malformed.
#[derive(Clone, Copy)]
pub(crate) struct Elements<'a> {
    run: &'a [u8],
    at: usize,
}

/// An element and where it lies, its length included.
#[derive(Clone, Debug)]
pub(crate) struct Element<'a> {
    pub bytes: &'a [u8],
    pub range: Range<usize>,
}

pub(crate) fn elements(run: &[u8]) -> Elements<'_> {
    Elements { run, at: 0 }
}

/// Whether an element is the one that is looked for. Names of one collection tend to begin alike, so their ends are looked at
/// first.
#[inline(always)]
pub(crate) fn is_same(element: &[u8], wanted: &[u8]) -> bool {
    element.len() == wanted.len() && element.last() == wanted.last() && element == wanted
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        let (mut length, mut shift, mut at) = (0usize, 0, self.at);
        loop {
            let byte = *self.run.get(at)?;
            at += 1;
            length |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
            if shift > 28 {
                return None;
            }
        }
        let end = at.checked_add(length)?;
        let element = Element { bytes: self.run.get(at..end)?, range: self.at..end };
        self.at = end;
        Some(element)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_back_in_their_order() {
        let long = vec![7; 20_000];
        let all: [&[u8]; 5] = [b"", b"a", &long[..127], &long[..128], &long];
        let mut run = Vec::new();
        all.iter().for_each(|element| push(&mut run, element));
        assert_eq!(run.len(), all.iter().map(|element| packed_bytes(element)).sum::<usize>());
        assert!(elements(&run).map(|element| element.bytes).eq(all));
        let third = elements(&run).nth(2).unwrap().range;
        splice(&mut run, third, &[b"x", b"yy"]);
        let expected: [&[u8]; 6] = [b"", b"a", b"x", b"yy", &long[..128], &long];
        assert!(elements(&run).map(|element| element.bytes).eq(expected));
    }

    #[test]
    fn what_is_malformed_ends_the_walk() {
        for run in [
            &[1][..],
            &[0x80],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[5, 1, 2],
            &[0xff, 0xff, 0xff, 0xff, 0x7f, 0],
        ] {
            assert_eq!(elements(run).count(), 0, "{run:?}");
        }
    }
}
