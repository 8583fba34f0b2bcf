//! A record: one key with its value or the reference to it, as it lies in a leaf.
//!
//! ```text
//! byte 0       bits 0-1 value length, bits 8-9   2-4 value kind   5 raw   6 deadline   7 key out of line
//! byte 1       key length (0 for a key out of line)
//! byte 2       value length, bits 0-7
//! [8 bytes]    deadline, milliseconds since the Unix epoch, if bit 6
//! key          its bytes; out of line: hash (8 bytes) and blob (12 bytes)
//! value        strings, kind 0: bytes   1: integer (8 bytes)   2: blob (12 bytes)
//!              collections (`Collection`): 3: list   4: set   5: sorted set   6: hash   7: stream
//! ```
//! A record of an index has no key, but the upper bits of its hash: what has that hash lies elsewhere, and the value leads
//! to it. Byte 0 says so by what no other record has, an integer that is raw and whose key is out of line.
//!
//! ```text
//! byte 0       0xa4
//! bytes 1-5    bits 24-63 of the hash
//! bytes 6-13   the value
//! ```

use stillframe_pagepool::PageId;

use super::collection::{self, Collection, Content};
use crate::blobs::{Blob, BLOB_BYTES};
use crate::key::UnixMillis;
use crate::value::ValueType;

/// The longest key kept in its record, in bytes.
pub(crate) const KEY_INLINE_MAX_BYTES: usize = 255;
/// The longest value kept in its record, in bytes; longer ones would waste leaves.
pub(crate) const VALUE_INLINE_MAX_BYTES: usize = 448;
/// The longest run of packed elements in a record: beside the first byte of the body and a deadline.
pub(crate) const PACKED_INLINE_MAX_BYTES: usize = VALUE_INLINE_MAX_BYTES - 1 - 8;
/// Header, deadline, key and value at their longest.
pub(crate) const RECORD_MAX_BYTES: usize = 3 + 8 + KEY_INLINE_MAX_BYTES + VALUE_INLINE_MAX_BYTES;

const HEADER_BYTES: usize = 3;
const DEADLINE_BYTES: usize = 8;
const OUT_KEY_BYTES: usize = 8 + BLOB_BYTES;

const KIND_BYTES: u8 = 0;
const KIND_INT: u8 = 1;
const KIND_BLOB: u8 = 2;
/// Types other than string, from kind 3 on.
const OTHER_TYPES: [ValueType; 5] =
    [ValueType::List, ValueType::Set, ValueType::SortedSet, ValueType::Hash, ValueType::Stream];

fn type_of(kind: u8) -> Option<ValueType> {
    OTHER_TYPES.get(usize::from(kind).checked_sub(3)?).copied()
}

/// Of a string that is kept as bytes, or of another type.
fn kind_of(value_type: ValueType) -> u8 {
    OTHER_TYPES.iter().position(|other| *other == value_type).map_or(KIND_BYTES, |index| index as u8 + 3)
}

const RAW: u8 = 1 << 5;
const DEADLINE: u8 = 1 << 6;
const KEY_OUT: u8 = 1 << 7;

/// Byte 0 of a record of an index.
const INDEX: u8 = KEY_OUT | RAW | KIND_INT << 2;
/// Bits of a hash that an index leaves out. Those that are left tell a trillion members apart.
pub(crate) const INDEX_HASH_SHIFT: u32 = 24;
const INDEX_HASH_BYTES: usize = 5;
const INDEX_VALUE_BYTES: usize = 8;
/// Bytes of a record of an index.
pub(crate) const INDEX_RECORD_BYTES: usize = 1 + INDEX_HASH_BYTES + INDEX_VALUE_BYTES;

/// A hash as an index has it.
#[inline(always)]
pub(crate) fn index_hash(hash: u64) -> u64 {
    hash >> INDEX_HASH_SHIFT << INDEX_HASH_SHIFT
}

/// A record's key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordKey<'a> {
    Inline(&'a [u8]),
    /// A key over [`KEY_INLINE_MAX_BYTES`], with its hash.
    Out {
        hash: u64,
        blob: Blob,
    },
    /// The hash of a member that lies elsewhere, as [`index_hash`] leaves it. The value is an integer.
    Hash(u64),
}

/// A record's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordValue<'a> {
    Int(i64),
    Bytes(&'a [u8]),
    Blob(Blob),
    /// A collection; `body` is what [`Collection`] parses.
    Other {
        value_type: ValueType,
        body: &'a [u8],
    },
}

/// A record, decoded or to be encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record<'a> {
    pub key: RecordKey<'a>,
    pub value: RecordValue<'a>,
    pub raw: bool,
    pub deadline: Option<UnixMillis>,
}

/// What a record refers to outside of its leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reference {
    Blob(Blob),
    /// A tree that belongs to this record alone, by its root.
    Tree(PageId),
}

impl Reference {
    /// Whether whoever follows it comes to this page at once.
    pub fn leads_to(&self, pid: PageId) -> bool {
        match self {
            Reference::Blob(blob) => blob.has_page(pid),
            Reference::Tree(root) => *root == pid,
        }
    }
}

/// Lengths and flags of an encoded record, without its bytes.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    flags: u8,
    /// The first byte of a collection's body; 0 of others.
    body_head: u8,
    key_bytes: usize,
    value_bytes: usize,
}

impl Header {
    /// Reads the header at the start of `bytes`; `None` if they are too few.
    #[inline(always)]
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let &[flags, key_len, value_low, ..] = bytes else { return None };
        if flags == INDEX {
            return Some(Header::of_index());
        }
        let key_bytes = if flags & KEY_OUT != 0 { OUT_KEY_BYTES } else { usize::from(key_len) };
        let value_bytes = usize::from(value_low) | usize::from(flags & 3) << 8;
        let mut header = Header { flags, body_head: 0, key_bytes, value_bytes };
        if header.kind() > KIND_BLOB && value_bytes > 0 {
            header.body_head = *bytes.get(header.value_start())?;
        }
        Some(header)
    }

    /// Two bytes of the hash lie where other records have lengths.
    fn of_index() -> Header {
        let key_bytes = 1 + INDEX_HASH_BYTES - HEADER_BYTES;
        Header { flags: INDEX, body_head: 0, key_bytes, value_bytes: INDEX_VALUE_BYTES }
    }

    /// Whether the record is of an index.
    #[inline(always)]
    pub fn is_index(&self) -> bool {
        self.flags == INDEX
    }

    #[inline(always)]
    fn key_start(&self) -> usize {
        HEADER_BYTES + if self.flags & DEADLINE != 0 { DEADLINE_BYTES } else { 0 }
    }

    #[inline(always)]
    pub fn value_start(&self) -> usize {
        self.key_start() + self.key_bytes
    }

    /// Bytes of the whole record.
    #[inline(always)]
    pub fn record_bytes(&self) -> usize {
        self.value_start() + self.value_bytes
    }

    #[inline(always)]
    pub fn has_deadline(&self) -> bool {
        self.flags & DEADLINE != 0
    }

    /// Whether the record, or an element of its collection, has a deadline.
    #[inline(always)]
    pub fn is_timed(&self) -> bool {
        self.has_deadline() || collection::is_timed(self.body_head)
    }

    /// Whether key or value, or a part of it, lies outside the leaf.
    #[inline(always)]
    pub fn is_outside(&self) -> bool {
        self.flags & KEY_OUT != 0 && !self.is_index()
            || self.kind() == KIND_BLOB
            || collection::is_outside(self.body_head)
    }

    #[inline(always)]
    fn kind(&self) -> u8 {
        (self.flags >> 2) & 7
    }

    /// Whether the record's value is the body of a collection that `body` may take the place of: it is as long and has the same
    /// first byte.
    #[inline(always)]
    pub fn has_body_like(&self, body: &[u8]) -> bool {
        self.body_head != 0 && body.first() == Some(&self.body_head) && body.len() == self.value_bytes
    }

    /// Whether the record at the start of `bytes` has this key in line.
    #[inline(always)]
    pub fn key_is(&self, bytes: &[u8], key: &[u8]) -> bool {
        self.flags & KEY_OUT == 0
            && self.key_bytes == key.len()
            && bytes.get(self.key_start()..self.value_start()) == Some(key)
    }
}

impl<'a> Record<'a> {
    /// Decodes the record at the start of `bytes`; `None` if it is malformed or cut off.
    #[inline(always)]
    pub fn parse(bytes: &'a [u8]) -> Option<Record<'a>> {
        let header = Header::parse(bytes)?;
        let bytes = bytes.get(..header.record_bytes())?;
        let deadline = match header.has_deadline() {
            true => Some(i64::from_le_bytes(bytes.get(3..11)?.try_into().ok()?)),
            false => None,
        };
        let key = bytes.get(header.key_start()..header.value_start())?;
        let key = match header.flags & KEY_OUT {
            0 => RecordKey::Inline(key),
            _ if header.is_index() => {
                let &[_, hash_0, hash_1, hash_2, hash_3, hash_4, ..] = bytes else { return None };
                RecordKey::Hash(u64::from_le_bytes([0, 0, 0, hash_0, hash_1, hash_2, hash_3, hash_4]))
            }
            _ => RecordKey::Out {
                hash: u64::from_le_bytes(key.get(..8)?.try_into().ok()?),
                blob: Blob::parse(key.get(8..)?)?,
            },
        };
        let value = bytes.get(header.value_start()..)?;
        let value = match header.kind() {
            KIND_BYTES if value.len() <= VALUE_INLINE_MAX_BYTES => RecordValue::Bytes(value),
            KIND_INT => RecordValue::Int(i64::from_le_bytes(value.try_into().ok()?)),
            KIND_BLOB => RecordValue::Blob(Blob::parse(value)?),
            kind if value.len() <= VALUE_INLINE_MAX_BYTES => {
                RecordValue::Other { value_type: type_of(kind)?, body: value }
            }
            _ => return None,
        };
        Some(Record { key, value, raw: header.flags & RAW != 0, deadline })
    }

    /// A record of an index.
    pub fn of_index(hash: u64, value: u64) -> Record<'static> {
        let (key, value) = (RecordKey::Hash(index_hash(hash)), RecordValue::Int(value as i64));
        Record { key, value, raw: true, deadline: None }
    }

    #[inline(always)]
    pub fn value_type(&self) -> ValueType {
        match self.value {
            RecordValue::Int(_) | RecordValue::Bytes(_) | RecordValue::Blob(_) => ValueType::String,
            RecordValue::Other { value_type, .. } => value_type,
        }
    }

    /// The collection that the record has; `None` of a string, and if it is malformed.
    #[inline]
    pub fn collection(&self) -> Option<Collection<'a>> {
        match self.value {
            RecordValue::Other { body, .. } => Collection::parse(body),
            _ => None,
        }
    }

    /// The earliest time at which the record, or an element of its collection, expires.
    #[inline]
    pub fn earliest_deadline(&self) -> Option<UnixMillis> {
        let of_element = self.collection().and_then(|collection| collection.earliest);
        self.deadline.into_iter().chain(of_element).min()
    }

    /// What the value refers to.
    pub fn value_references(&self) -> impl Iterator<Item = Reference> {
        let (mut blob, mut grown) = (None, None);
        match self.value {
            RecordValue::Blob(outside) => blob = Some(outside),
            RecordValue::Other { .. } => match self.collection().map(|collection| collection.content) {
                Some(Content::Outside(outside)) => blob = Some(outside),
                Some(Content::Trees(trees)) => grown = Some(trees),
                Some(Content::Packed(_)) | None => {}
            },
            RecordValue::Int(_) | RecordValue::Bytes(_) => {}
        }
        let trees = grown.into_iter().flat_map(|grown| grown.trees());
        blob.into_iter().map(Reference::Blob).chain(trees.map(|tree| Reference::Tree(tree.root)))
    }

    /// What key and value refer to.
    pub fn references(&self) -> impl Iterator<Item = Reference> {
        let key = match self.key {
            RecordKey::Inline(_) | RecordKey::Hash(_) => None,
            RecordKey::Out { blob, .. } => Some(Reference::Blob(blob)),
        };
        key.into_iter().chain(self.value_references())
    }

    /// The header that [`Record::encode`] writes.
    #[inline(always)]
    pub fn header(&self) -> Header {
        let value_bytes = self.value_bytes();
        let kind = match self.value {
            RecordValue::Bytes(_) => KIND_BYTES,
            RecordValue::Int(_) => KIND_INT,
            RecordValue::Blob(_) => KIND_BLOB,
            RecordValue::Other { value_type, .. } => kind_of(value_type),
        };
        let (key_flag, key_bytes) = match self.key {
            RecordKey::Inline(key) => (0, key.len()),
            RecordKey::Out { .. } => (KEY_OUT, OUT_KEY_BYTES),
            RecordKey::Hash(_) => return Header::of_index(),
        };
        let raw = if self.raw { RAW } else { 0 };
        let deadline = if self.deadline.is_some() { DEADLINE } else { 0 };
        let flags = (value_bytes >> 8) as u8 | kind << 2 | key_flag | raw | deadline;
        let body_head = match self.value {
            RecordValue::Other { body, .. } => body.first().copied().unwrap_or(0),
            _ => 0,
        };
        Header { flags, body_head, key_bytes, value_bytes }
    }

    /// Bytes that [`Record::encode`] writes.
    #[inline(always)]
    pub fn encoded_bytes(&self) -> usize {
        self.header().record_bytes()
    }

    #[inline(always)]
    fn value_bytes(&self) -> usize {
        match self.value {
            RecordValue::Int(_) => 8,
            RecordValue::Bytes(bytes) => bytes.len(),
            RecordValue::Blob(_) => BLOB_BYTES,
            RecordValue::Other { body, .. } => body.len(),
        }
    }

    /// Writes the record to `out`, which has exactly [`Record::encoded_bytes`] bytes.
    #[inline(always)]
    pub fn encode(&self, out: &mut [u8]) {
        let header = self.header();
        debug_assert!(header.value_bytes <= VALUE_INLINE_MAX_BYTES.max(BLOB_BYTES));
        out[0] = header.flags;
        out[2] = header.value_bytes as u8;
        let mut at = HEADER_BYTES;
        if let Some(deadline) = self.deadline {
            out[at..at + DEADLINE_BYTES].copy_from_slice(&deadline.to_le_bytes());
            at += DEADLINE_BYTES;
        }
        match self.key {
            RecordKey::Inline(key) => {
                out[1] = key.len() as u8;
                out[at..at + key.len()].copy_from_slice(key);
                at += key.len();
            }
            RecordKey::Out { hash, blob } => {
                out[1] = 0;
                out[at..at + 8].copy_from_slice(&hash.to_le_bytes());
                blob.encode(&mut out[at + 8..at + OUT_KEY_BYTES]);
                at += OUT_KEY_BYTES;
            }
            RecordKey::Hash(hash) => {
                let hash = (hash >> INDEX_HASH_SHIFT).to_le_bytes();
                at = 1 + INDEX_HASH_BYTES;
                out[1..at].copy_from_slice(&hash[..INDEX_HASH_BYTES]);
            }
        }
        match self.value {
            RecordValue::Bytes(bytes) => out[at..].copy_from_slice(bytes),
            RecordValue::Int(value) => out[at..].copy_from_slice(&value.to_le_bytes()),
            RecordValue::Blob(blob) => blob.encode(&mut out[at..]),
            RecordValue::Other { body, .. } => out[at..].copy_from_slice(body),
        }
    }
}

#[cfg(test)]
mod tests {
    use stillframe_pagepool::PageId;

    use super::*;
    use crate::blobs::BlobPlace;

    #[test]
    fn each_type_of_collections_has_a_code() {
        for value_type in ValueType::ALL.into_iter().filter(|value_type| *value_type != ValueType::String) {
            assert_eq!(type_of(kind_of(value_type)), Some(value_type));
        }
    }

    fn round_trip(record: Record<'_>) {
        let mut out = vec![0xee; record.encoded_bytes()];
        record.encode(&mut out);
        assert_eq!(Record::parse(&out), Some(record));
        out.extend([1, 2, 3]);
        assert_eq!(Record::parse(&out), Some(record), "trailing bytes belong to another record");
        for cut in 0..record.encoded_bytes() {
            assert_eq!(Record::parse(&out[..cut]), None, "cut off at {cut}");
        }
    }

    #[test]
    fn records_come_back_as_they_were() {
        let slab = Blob { pid: PageId(7), len_bytes: 600, place: BlobPlace::Slab { class: 40, slot: 239 } };
        let object = Blob {
            pid: PageId(u32::MAX),
            len_bytes: 1 << 29,
            place: BlobPlace::Object { page_count: 1 << 17 },
        };
        let key = [b'k'; KEY_INLINE_MAX_BYTES];
        let value = [b'v'; VALUE_INLINE_MAX_BYTES];
        for key in [
            RecordKey::Inline(b""),
            RecordKey::Inline(b"a"),
            RecordKey::Inline(&key),
            RecordKey::Out { hash: u64::MAX - 1, blob: object },
        ] {
            for value in [
                RecordValue::Bytes(b""),
                RecordValue::Bytes(&value[..255]),
                RecordValue::Bytes(&value[..256]),
                RecordValue::Bytes(&value),
                RecordValue::Int(i64::MIN),
                RecordValue::Blob(slab),
                RecordValue::Blob(object),
                RecordValue::Other { value_type: ValueType::SortedSet, body: &value },
                RecordValue::Other { value_type: ValueType::List, body: b"" },
            ] {
                let can_be_raw = !matches!(value, RecordValue::Int(_));
                for (raw, deadline) in
                    [(false, None), (can_be_raw, Some(1)), (can_be_raw, None), (false, Some(i64::MAX))]
                {
                    round_trip(Record { key, value, raw, deadline });
                }
            }
        }
    }

    #[test]
    fn a_record_of_an_index_keeps_the_upper_bits_of_a_hash() {
        for hash in [0, 1 << 24, u64::MAX, 0x0123_4567_89ab_cdef] {
            for value in [0, 1, u64::MAX, 1.5f64.to_bits()] {
                let record = Record::of_index(hash, value);
                assert_eq!(record.encoded_bytes(), INDEX_RECORD_BYTES);
                assert!(!record.header().is_outside() && !record.header().has_deadline());
                assert_eq!(record.key, RecordKey::Hash(hash & !0xff_ffff));
                round_trip(record);
            }
        }
        let mut bytes = [0; INDEX_RECORD_BYTES];
        Record::of_index(u64::MAX, u64::MAX).encode(&mut bytes);
        assert_eq!(bytes[0], 0xa4);
        let header = Header::parse(&bytes).unwrap();
        (0..6).for_each(|len| assert!(!header.key_is(&bytes, &[0xff; 6][..len]), "it is no key's"));
    }

    #[test]
    fn every_kind_is_of_one_type() {
        for kind in 3..8u8 {
            let value_type = type_of(kind).unwrap();
            assert_eq!(kind_of(value_type), kind);
            let bytes = [kind << 2, 1, 2, b'k', 8, 9];
            let parsed = Record::parse(&bytes).unwrap();
            assert_eq!(parsed.value, RecordValue::Other { value_type, body: &[8, 9] });
            assert_eq!(parsed.value_type(), value_type);
        }
        assert_eq!(
            Record::parse(&[KIND_INT << 2, 0, 7, 1, 2, 3, 4, 5, 6, 7]),
            None,
            "an integer has 8 bytes"
        );
    }

    #[test]
    fn the_common_header_has_three_bytes() {
        let record = Record {
            key: RecordKey::Inline(&[b'k'; 16]),
            value: RecordValue::Bytes(&[b'v'; 100]),
            raw: true,
            deadline: None,
        };
        assert_eq!(record.encoded_bytes(), 119);
    }
}
