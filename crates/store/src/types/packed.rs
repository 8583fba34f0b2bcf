//! Elements in one run of bytes: what a small collection is made of.
//!
//! ```text
//! element      length, 7 bits a byte, the lowest first, bit 7 set on all but the last; the bytes
//! ```

use std::ops::Range;

/// Longest run, in bytes: it is copied at each change, and a walk through it takes a fraction of a microsecond.
pub(crate) const PACKED_MAX_BYTES: usize = 4096;

/// Bytes of an element and its length.
pub(crate) fn packed_bytes(element: &[u8]) -> usize {
    let bits = usize::BITS - element.len().leading_zeros();
    (bits.div_ceil(7).max(1)) as usize + element.len()
}

/// Appends an element.
pub(crate) fn push(run: &mut Vec<u8>, element: &[u8]) {
    put_length(run, element.len());
    run.extend_from_slice(element);
}

fn put_length(run: &mut Vec<u8>, mut length: usize) {
    while length > 0x7f {
        run.push(length as u8 | 0x80);
        length >>= 7;
    }
    run.push(length as u8);
}

/// Puts elements in the place of those at `range`, a range of bytes on the bounds of elements.
pub(crate) fn splice(run: &mut Vec<u8>, range: Range<usize>, elements: &[&[u8]]) {
    let mut bytes = Vec::with_capacity(elements.iter().map(|element| packed_bytes(element)).sum());
    elements.iter().for_each(|element| push(&mut bytes, element));
    run.splice(range, bytes);
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
