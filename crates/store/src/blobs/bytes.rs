//! Reading and writing the bytes of a latched slab or object.

use std::cell::RefCell;
use std::ops::Range;

use stillframe_pagepool::device::PageBuf;
use stillframe_pagepool::{ExclusiveGuard, PageId, Pool, Restart, SharedGuard, PAGE_SIZE};

use super::blob::{Blob, BlobPlace};
use super::reach::{add_missing, page_at, pages_of, SENDING_MIN_BYTES};
use crate::page::Page;
use crate::stop::{stop_at, Follow, Stop};
use crate::value::PageRun;

/// So many pages of a blob are brought in together: it may be larger than memory.
const TOGETHER_PAGES_MAX: u32 = 64;

/// What a blob is made of, in order.
#[derive(Clone, Copy)]
pub(crate) enum Part<'a> {
    Bytes(&'a [u8]),
    Zeros(u64),
}

impl Part<'_> {
    pub fn len_bytes(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::Zeros(count) => *count,
        }
    }
}

/// The pages of a latched slab or object.
pub(crate) struct LatchedRun<'p> {
    pub guard: SharedGuard<'p>,
    failed: RefCell<Option<Restart>>,
}

impl<'p> LatchedRun<'p> {
    pub fn new(guard: SharedGuard<'p>) -> LatchedRun<'p> {
        LatchedRun { guard, failed: RefCell::new(None) }
    }

    /// Why a page could not be read, if so.
    pub fn check(self) -> Result<(), Stop> {
        match self.failed.into_inner() {
            Some(restart) => Err(restart.into()),
            None => Ok(()),
        }
    }
}

impl PageRun for LatchedRun<'_> {
    fn with_page(&self, index: u32, f: &mut dyn FnMut(&Page)) -> bool {
        match self.guard.object_page(index) {
            Ok(page) => {
                f(page);
                true
            }
            Err(restart) => {
                self.failed.borrow_mut().get_or_insert(restart);
                false
            }
        }
    }
}

/// Writes parts from byte `offset` of an object on. Zeros are passed over if the object has them already.
pub(super) fn write_parts(
    guard: &mut ExclusiveGuard<'_>,
    mut offset: u64,
    parts: &[Part<'_>],
    zeroed: bool,
) -> Result<(), Stop> {
    for part in parts {
        let end = offset + part.len_bytes();
        let start = offset;
        let skip = zeroed && matches!(part, Part::Zeros(_));
        while offset < end && !skip {
            let in_page = (offset % PAGE_SIZE as u64) as usize;
            let len = (PAGE_SIZE - in_page).min((end - offset) as usize);
            let page = guard.object_page_mut((offset / PAGE_SIZE as u64) as u32)?;
            let out = &mut page[in_page..in_page + len];
            match part {
                Part::Bytes(bytes) => {
                    let from = (offset - start) as usize;
                    out.copy_from_slice(&bytes[from..from + len]);
                }
                Part::Zeros(_) => out.fill(0),
            }
            offset += len as u64;
        }
        offset = end;
    }
    Ok(())
}

/// Whether the pages that hold bytes `start..end` of a latched object are in memory.
pub(super) fn check_resident(guard: &ExclusiveGuard<'_>, start: u64, end: u64) -> Result<(), Stop> {
    let mut missing = Vec::new();
    for index in start / PAGE_SIZE as u64..end.div_ceil(PAGE_SIZE as u64) {
        match guard.object_page(index as u32) {
            Err(Restart::Fault(page)) => missing.push(page),
            page => drop(page?),
        }
    }
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Stop::Missing(missing))
    }
}

pub(super) fn page_count_of(len_bytes: u64) -> u32 {
    len_bytes.div_ceil(PAGE_SIZE as u64) as u32
}

pub(super) fn damaged_slab(pid: PageId) -> Stop {
    Stop::Damaged(format!("page {}: a slab was expected", pid.0).into())
}

/// Whether an element is so long that its pages are not brought in for a command that looks at it: where they are missing they are read
/// past memory.
pub(super) fn is_far(blob: &Blob) -> bool {
    matches!(blob.place, BlobPlace::Object { .. }) && u64::from(blob.len_bytes) >= SENDING_MIN_BYTES
}

/// Gives a blob's bytes part by part until `f` has seen enough. What is missing of a long one is read past memory, which waits
/// for the device.
///
/// # Errors
/// [`Stop::Missing`] with the page that is, and some of those after it.
pub(super) fn with_bytes(pool: &Pool, blob: &Blob, mut f: impl FnMut(&[u8]) -> bool) -> Result<(), Stop> {
    let mut given = 0;
    match with_resident(pool, blob, &mut given, &mut f) {
        Err(Stop::Missing(_)) if is_far(blob) => past_memory(pool, blob, given..blob.len_bytes.into(), f),
        result => result,
    }
}

/// Gives some of a blob's bytes part by part until `f` has seen enough, whether they are in memory or not: nothing is brought
/// in, and this waits for the device.
///
/// # Errors
/// Pages that cannot be read.
pub(super) fn past_memory(
    pool: &Pool,
    blob: &Blob,
    bytes: Range<u64>,
    mut f: impl FnMut(&[u8]) -> bool,
) -> Result<(), Stop> {
    let (mut at, end) = (blob.start() + bytes.start, blob.start() + bytes.end);
    let mut copies: Vec<PageBuf> = Vec::new();
    while at < end {
        let first = (at / PAGE_SIZE as u64) as u32;
        let behind = (end.div_ceil(PAGE_SIZE as u64) as u32).min(first + TOGETHER_PAGES_MAX);
        copies.resize((behind - first) as usize, PageBuf::ZERO);
        let pages = (first..behind).map(|index| page_at(blob, index));
        let mut wanted: Vec<_> = pages.zip(&mut copies).collect();
        pool.residency().copy_unchanging(&mut wanted).map_err(|restart| stop_at(pool, restart))?;
        for copy in &copies {
            let in_page = (at % PAGE_SIZE as u64) as usize;
            let len = (PAGE_SIZE - in_page).min((end - at) as usize);
            at += len as u64;
            if !f(&copy.0[in_page..in_page + len]) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Gives a blob's bytes page by page until `f` has seen enough; how many it has seen.
fn with_resident(
    pool: &Pool,
    blob: &Blob,
    given: &mut u64,
    f: &mut impl FnMut(&[u8]) -> bool,
) -> Result<(), Stop> {
    let guard = match pool.follow_shared(blob.pid) {
        Err(Stop::Fault(page)) => return Err(missing_from(pool, blob, 0, page)),
        guard => guard?,
    };
    let mut offset = blob.start();
    let end = offset + u64::from(blob.len_bytes);
    while offset < end {
        let in_page = (offset % PAGE_SIZE as u64) as usize;
        let len = (PAGE_SIZE - in_page).min((end - offset) as usize);
        let index = (offset / PAGE_SIZE as u64) as u32;
        let page = match guard.object_page(index) {
            Err(Restart::Fault(page)) => return Err(missing_from(pool, blob, index, page)),
            page => page?,
        };
        offset += len as u64;
        *given += len as u64;
        if !f(&page[in_page..in_page + len]) {
            break;
        }
    }
    Ok(())
}

#[cold]
fn missing_from(pool: &Pool, blob: &Blob, index: u32, page: PageId) -> Stop {
    let end = pages_of(blob, 0..u64::from(blob.len_bytes)).end;
    let mut missing = vec![page];
    add_missing(pool, blob, index + 1..end.min(index.saturating_add(TOGETHER_PAGES_MAX)), &mut missing);
    Stop::Missing(missing)
}
