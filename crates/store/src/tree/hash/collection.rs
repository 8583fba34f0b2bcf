//! The body of a record whose value is a collection: its elements, or where they lie.
//!
//! ```text
//! byte 0       bits 0-1 form: 0 packed   1 packed, outside of the leaf   2 one tree   3 two trees
//!              2 elements have deadlines   4-7 encoding, as OBJECT ENCODING names it
//! [8 bytes]    the earliest deadline of an element, milliseconds since the Unix epoch, if bit 2
//! packed       the elements
//! outside      blob (12 bytes)
//! trees        number of elements (8 bytes); of each tree the root's page (4) and the tag (4)
//! ```

use stillframe_pagepool::PageId;

use crate::blobs::{Blob, BLOB_BYTES};
use crate::key::UnixMillis;
use crate::tree::trees::{Tree, NO_DATABASE};
use crate::value::Encoding;

const FORM_PACKED: u8 = 0;
const FORM_OUTSIDE: u8 = 1;
const FORM_TREE: u8 = 2;
const FORM_TREES: u8 = 3;
const FORM_MASK: u8 = 3;
const TIMED: u8 = 1 << 2;
const ENCODING_SHIFT: u32 = 4;

const ENCODINGS: [Encoding; 6] = [
    Encoding::ListPack,
    Encoding::HashTable,
    Encoding::IntSet,
    Encoding::QuickList,
    Encoding::SkipList,
    Encoding::Stream,
];

/// Whether the body with this first byte refers to other pages.
#[inline(always)]
pub(super) fn is_outside(head: u8) -> bool {
    head & FORM_MASK != FORM_PACKED
}

/// Whether the elements of the body with this first byte have deadlines.
#[inline(always)]
pub(super) fn is_timed(head: u8) -> bool {
    head & TIMED != 0
}

/// The trees of a collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grown {
    pub element_count: u64,
    pub first: Tree,
    /// Sorted sets have two.
    pub second: Option<Tree>,
}

impl Grown {
    pub fn trees(&self) -> impl Iterator<Item = Tree> {
        [Some(self.first), self.second].into_iter().flatten()
    }
}

/// What a collection is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content<'a> {
    Packed(&'a [u8]),
    Outside(Blob),
    Trees(Grown),
}

/// The body of a record, decoded or to be encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Collection<'a> {
    pub encoding: Encoding,
    /// Not later than any deadline of an element; `None` if there is none.
    pub earliest: Option<UnixMillis>,
    pub content: Content<'a>,
}

fn number<const N: usize>(body: &mut &[u8]) -> Option<[u8; N]> {
    let (number, rest) = body.split_first_chunk::<N>()?;
    *body = rest;
    Some(*number)
}

fn tree(body: &mut &[u8]) -> Option<Tree> {
    let root = PageId(u32::from_le_bytes(number(body)?));
    Some(Tree { db: NO_DATABASE, root, tag: u32::from_le_bytes(number(body)?) })
}

impl<'a> Collection<'a> {
    /// `None` if the body is malformed.
    #[inline]
    pub fn parse(body: &'a [u8]) -> Option<Collection<'a>> {
        let (&head, mut body) = body.split_first()?;
        let encoding = *ENCODINGS.get(usize::from(head >> ENCODING_SHIFT))?;
        let earliest = match is_timed(head) {
            true => Some(i64::from_le_bytes(number(&mut body)?)),
            false => None,
        };
        let content = match head & FORM_MASK {
            FORM_PACKED => Content::Packed(body),
            FORM_OUTSIDE => Content::Outside(Blob::parse(body).filter(|_| body.len() == BLOB_BYTES)?),
            form => {
                let element_count = u64::from_le_bytes(number(&mut body)?);
                let first = tree(&mut body)?;
                let second = if form == FORM_TREES { Some(tree(&mut body)?) } else { None };
                Content::Trees(Grown { element_count, first, second })
            }
        };
        Some(Collection { encoding, earliest, content })
    }

    /// Appends the body to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let form = match &self.content {
            Content::Packed(_) => FORM_PACKED,
            Content::Outside(_) => FORM_OUTSIDE,
            Content::Trees(Grown { second: None, .. }) => FORM_TREE,
            Content::Trees(_) => FORM_TREES,
        };
        let code = ENCODINGS.iter().position(|encoding| *encoding == self.encoding).unwrap_or(0) as u8;
        let timed = if self.earliest.is_some() { TIMED } else { 0 };
        out.push(form | timed | code << ENCODING_SHIFT);
        if let Some(earliest) = self.earliest {
            out.extend_from_slice(&earliest.to_le_bytes());
        }
        match &self.content {
            Content::Packed(elements) => out.extend_from_slice(elements),
            Content::Outside(blob) => {
                let at = out.len();
                out.resize(at + BLOB_BYTES, 0);
                blob.encode(&mut out[at..]);
            }
            Content::Trees(grown) => {
                out.extend_from_slice(&grown.element_count.to_le_bytes());
                for tree in grown.trees() {
                    out.extend_from_slice(&tree.root.0.to_le_bytes());
                    out.extend_from_slice(&tree.tag.to_le_bytes());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blobs::BlobPlace;

    #[test]
    fn bodies_come_back_as_they_were() {
        let tree = |root, tag| Tree { db: NO_DATABASE, root: PageId(root), tag };
        let blob = Blob { pid: PageId(9), len_bytes: 700, place: BlobPlace::Slab { class: 3, slot: 5 } };
        let grown = Grown { element_count: 1 << 40, first: tree(7, 8), second: None };
        let contents = [
            Content::Packed(b""),
            Content::Packed(b"\x01a\x01b"),
            Content::Outside(blob),
            Content::Trees(grown),
            Content::Trees(Grown { second: Some(tree(1, u32::MAX)), ..grown }),
        ];
        for content in contents {
            for encoding in ENCODINGS {
                for earliest in [None, Some(0), Some(i64::MAX)] {
                    let collection = Collection { encoding, earliest, content };
                    let mut body = Vec::new();
                    collection.encode(&mut body);
                    assert_eq!(Collection::parse(&body), Some(collection));
                    assert_eq!(is_outside(body[0]), !matches!(content, Content::Packed(_)));
                    assert_eq!(is_timed(body[0]), earliest.is_some());
                    if !matches!(content, Content::Packed(_)) {
                        let cut = (0..body.len()).find(|cut| Collection::parse(&body[..*cut]).is_some());
                        assert_eq!(cut, None, "cut off");
                    }
                }
            }
        }
        assert_eq!(Collection::parse(&[6 << ENCODING_SHIFT]), None, "an encoding that nobody knows");
    }
}
