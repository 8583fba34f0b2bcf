//! The bytes of a page, and what its first byte says. `docs/internals/format-records.md` gives all formats byte by byte.

pub(crate) use stillframe_pagepool::PAGE_SIZE;

/// The bytes of a page.
pub(crate) type Page = [u8; PAGE_SIZE];

/// First byte of every page that the store formats (an object's data pages have none).
pub(crate) const KIND_LEAF: u8 = 1;
pub(crate) const KIND_INNER: u8 = 2;
pub(crate) const KIND_SLAB: u8 = 3;
pub(crate) const KIND_CATALOG: u8 = 4;
pub(crate) const KIND_DISCARDS: u8 = 5;
pub(crate) const KIND_ORDERED_LEAF: u8 = 7;
/// A catalog that refers to a list of named trees: one without is a catalog as ever.
pub(crate) const KIND_CATALOG_WITH_NAMES: u8 = 8;
pub(crate) const KIND_NAMES: u8 = 9;
/// The same where function libraries are among the named trees: versions that know none refuse it.
pub(crate) const KIND_CATALOG_WITH_LIBRARIES: u8 = 13;
/// One of a store that has streams, or has had one since it was last empty: versions that know none refuse it.
pub(crate) const KIND_CATALOG_WITH_STREAMS: u8 = 14;
// 6 was an inner node of another format.
pub(crate) const KIND_ORDERED_INNER: u8 = 10;
pub(crate) const KIND_LIST_LEAF: u8 = 11;
pub(crate) const KIND_LIST_INNER: u8 = 12;

#[inline(always)]
pub(crate) fn get_u16(page: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([page[at], page[at + 1]])
}

#[inline(always)]
pub(crate) fn get_u32(page: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&page[at..at + 4]);
    u32::from_le_bytes(bytes)
}

#[inline(always)]
pub(crate) fn get_u64(page: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&page[at..at + 8]);
    u64::from_le_bytes(bytes)
}

#[inline(always)]
pub(crate) fn put_u16(page: &mut Page, at: usize, value: u16) {
    page[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

#[inline(always)]
pub(crate) fn put_u32(page: &mut Page, at: usize, value: u32) {
    page[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

#[inline(always)]
pub(crate) fn put_u64(page: &mut Page, at: usize, value: u64) {
    page[at..at + 8].copy_from_slice(&value.to_le_bytes());
}
