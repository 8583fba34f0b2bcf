//! What the types share when they give elements from copies of pages.

use stillframe_pagepool::{PageId, PAGE_SIZE};

use crate::blobs::Blob;
use crate::error::SaveError;
use crate::page::Page;
use crate::tree::hash::{Leaf, Record, RecordKey, RecordValue};
use crate::tree::{blank, Pages};
use crate::value::MAX_STRING_BYTES;
use crate::UnixMillis;

pub(super) fn damaged(what: &str) -> SaveError {
    SaveError::Damaged(format!("{what} is malformed").into())
}

pub(super) fn bad_record(pid: PageId) -> SaveError {
    damaged(&format!("a record of page {}", pid.0))
}

/// Gives the elements of a leaf, which has them in the order of their hashes, to `f`: name, value and deadline.
pub(super) fn for_each_record(
    pages: &dyn Pages,
    pid: PageId,
    leaf: &Page,
    mut f: impl FnMut(&[u8], &[u8], Option<UnixMillis>) -> Result<(), SaveError>,
) -> Result<(), SaveError> {
    let leaf = Leaf::new(leaf).ok_or_else(|| damaged("a leaf"))?;
    (0..leaf.count()).try_for_each(|slot| {
        let record = leaf.record(slot).ok_or_else(|| bad_record(pid))?;
        give_record(pages, &record, &mut f)
    })
}

#[inline]
fn give_record(
    pages: &dyn Pages,
    record: &Record<'_>,
    f: &mut impl FnMut(&[u8], &[u8], Option<UnixMillis>) -> Result<(), SaveError>,
) -> Result<(), SaveError> {
    let (mut long_name, mut long_value) = (Vec::new(), Vec::new());
    let name = match record.key {
        RecordKey::Inline(name) => name,
        RecordKey::Hash(_) => return Err(damaged("an element")),
        RecordKey::Out { blob, .. } => {
            read_blob(pages, &blob, &mut long_name)?;
            &long_name
        }
    };
    let value = match record.value {
        RecordValue::Bytes(value) => value,
        RecordValue::Blob(blob) => {
            read_blob(pages, &blob, &mut long_value)?;
            &long_value
        }
        RecordValue::Int(_) | RecordValue::Other { .. } => return Err(damaged("an element")),
    };
    f(name, value, record.deadline)
}

/// Appends the bytes of a blob.
pub(super) fn read_blob(pages: &dyn Pages, blob: &Blob, out: &mut Vec<u8>) -> Result<(), SaveError> {
    let (mut at, end) = (blob.start(), blob.start() + u64::from(blob.len_bytes));
    out.reserve_exact(u64::from(blob.len_bytes).min(MAX_STRING_BYTES) as usize);
    let mut page = blank();
    while at < end {
        let in_page = (at % PAGE_SIZE as u64) as usize;
        let len = (PAGE_SIZE - in_page).min((end - at) as usize);
        pages.read(PageId(blob.pid.0.saturating_add((at / PAGE_SIZE as u64) as u32)), &mut page)?;
        out.extend_from_slice(&page[in_page..in_page + len]);
        at += len as u64;
    }
    Ok(())
}
