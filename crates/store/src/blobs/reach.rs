//! How much of a value an operation needs in memory: as little as it looks at or changes.

use std::ops::Range;

use stillframe_pagepool::{PageId, Pool, Restart, SharedGuard, PAGE_SIZE};

use super::blob::{Blob, BlobPlace};
use crate::pages::Pages;
use crate::stop::{Follow, Stop};

/// Shorter values are copied sooner than read in parts.
pub const SENDING_MIN_BYTES: u64 = 256 * 1024;
/// Of a name a leaf has so many bytes at most; they are kept at hand.
pub(crate) const HEAD_BYTES: usize = 1024;
/// From so many bytes on they need not be in memory when their reader begins.
pub(crate) const UNSEEN_MIN_BYTES: u64 = 1 << 20;

/// How far into a value an operation reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Not at all: it replaces, removes or renames the value, or asks for its length.
    Nothing,
    /// It reads the bytes `first..=last`; negative numbers count from the end.
    Read { first: i64, last: i64 },
    /// The same, but so many bytes that they are sent from where they lie are not needed yet.
    Send { first: i64, last: i64 },
    /// It writes so many bytes at `offset`.
    Write { offset: u64, len_bytes: u64 },
    /// It writes so many bytes behind the last one.
    Append { len_bytes: u64 },
}

impl Reach {
    pub const WHOLE: Reach = Reach::Read { first: 0, last: -1 };
    pub const SENT: Reach = Reach::Send { first: 0, last: -1 };

    /// The bytes of a blob, from its start on; within its place.
    fn bytes(self, blob: &Blob) -> Range<u64> {
        let len = u64::from(blob.len_bytes);
        let written = |offset: u64, len_bytes: u64| {
            // A gap before what is written is filled with zeros.
            offset.min(len.saturating_sub(1))..offset.saturating_add(len_bytes).min(blob.memory_bytes())
        };
        match self {
            Reach::Nothing => 0..0,
            Reach::Read { first, last } => inclusive(first, last, len),
            Reach::Send { first, last } => {
                let range = inclusive(first, last, len);
                let is_sent = is_object(blob) && range.end - range.start >= UNSEEN_MIN_BYTES;
                if is_sent {
                    0..0
                } else {
                    range
                }
            }
            Reach::Write { offset, len_bytes } => written(offset, len_bytes),
            Reach::Append { len_bytes } => written(len, len_bytes),
        }
    }

    /// Indices of the pages of a blob's slab or object. A slot of a slab may be left to others: all of it counts.
    pub(crate) fn pages(self, blob: &Blob) -> Range<u32> {
        match blob.place {
            BlobPlace::Slab { .. } => pages_of(blob, 0..blob.memory_bytes()),
            BlobPlace::Object { .. } => pages_of(blob, self.bytes(blob)),
        }
    }
}

fn is_object(blob: &Blob) -> bool {
    matches!(blob.place, BlobPlace::Object { .. })
}

/// Bytes `first..=last` of something of this length, either counted from the end if it is negative.
fn inclusive(first: i64, last: i64, len: u64) -> Range<u64> {
    let at = |index: i64| match u64::try_from(index) {
        Ok(index) => index,
        Err(_) => len.saturating_sub(index.unsigned_abs()),
    };
    let (first, end) = (at(first), at(last).saturating_add(1).min(len));
    first.min(end)..end
}

/// Indices of the pages of a slab or object that have these bytes of a blob.
pub(super) fn pages_of(blob: &Blob, bytes: Range<u64>) -> Range<u32> {
    if bytes.is_empty() {
        return 0..0;
    }
    let (start, end) = (blob.start() + bytes.start, blob.start() + bytes.end);
    (start / PAGE_SIZE as u64) as u32..end.div_ceil(PAGE_SIZE as u64) as u32
}

/// Page of a blob by its index.
pub(super) fn page_at(blob: &Blob, index: u32) -> PageId {
    PageId(blob.pid.0.saturating_add(index))
}

/// Adds the head and these pages of a blob to `missing`, as far as they are.
pub(super) fn add_missing(pool: &Pool, blob: &Blob, indices: Range<u32>, missing: &mut Vec<PageId>) {
    let pages = indices.map(|index| page_at(blob, index));
    missing.extend([blob.pid].into_iter().chain(pages).filter(|page| pool.residency().is_missing(*page)));
}

/// Latches a blob with these bytes of it in memory.
///
/// # Errors
/// [`Stop::Missing`] with all pages that are; [`Stop::LargerThanMemory`].
pub(super) fn latch_with<'p>(
    pages: &'p Pages,
    blob: &Blob,
    bytes: Range<u64>,
) -> Result<SharedGuard<'p>, Stop> {
    let indices = pages_of(blob, bytes);
    if !pages.all_resident() {
        pages.check_together(u64::from(indices.end - indices.start) * PAGE_SIZE as u64)?;
    }
    let missing = |more: PageId| {
        let mut missing = vec![more];
        add_missing(&pages.pool, blob, indices.clone(), &mut missing);
        Stop::Missing(missing)
    };
    let guard = match pages.pool.follow_shared(blob.pid) {
        Err(Stop::Fault(page)) => return Err(missing(page)),
        guard => guard?,
    };
    if !pages.all_resident() {
        for index in indices.clone() {
            match guard.object_page(index) {
                Err(Restart::Fault(page)) => return Err(missing(page)),
                page => drop(page?),
            }
        }
    }
    Ok(guard)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(len_bytes: u32, page_count: u32) -> Blob {
        Blob { pid: PageId(7), len_bytes, place: BlobPlace::Object { page_count } }
    }

    #[test]
    fn what_is_reached_is_counted_from_either_end() {
        let blob = object(4096 * 10 + 1, 12);
        let pages = |reach: Reach| reach.pages(&blob);
        assert_eq!(pages(Reach::Nothing), 0..0);
        assert_eq!(pages(Reach::WHOLE), 0..11);
        assert_eq!(pages(Reach::Read { first: 4095, last: 4096 }), 0..2);
        assert_eq!(pages(Reach::Read { first: -1, last: -1 }), 10..11);
        assert_eq!(pages(Reach::Read { first: i64::MIN, last: i64::MAX }), 0..11);
        assert_eq!(pages(Reach::Read { first: 5, last: 4 }), 0..0);
        assert_eq!(pages(Reach::Read { first: 1 << 40, last: 1 << 41 }), 0..0);
        assert_eq!(pages(Reach::SENT), 0..11, "it is copied");
        assert_eq!(object(1 << 20, 256).pages_of(Reach::SENT), 0..0);
        assert_eq!(pages(Reach::Write { offset: 4096, len_bytes: 1 }), 1..2);
        assert_eq!(pages(Reach::Write { offset: 4096 * 11 + 5, len_bytes: 1 }), 10..12, "with the gap");
        assert_eq!(pages(Reach::Write { offset: 1 << 40, len_bytes: 1 << 30 }), 10..12, "within the place");
        assert_eq!(pages(Reach::Append { len_bytes: 4095 }), 10..11);
        assert_eq!(pages(Reach::Append { len_bytes: 4096 }), 10..12);
        assert_eq!(object(8192, 2).pages_of(Reach::Append { len_bytes: 9 }), 1..2);
    }

    impl Blob {
        fn pages_of(&self, reach: Reach) -> Range<u32> {
            reach.pages(self)
        }
    }
}
