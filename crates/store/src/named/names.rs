//! The list of named trees: an object of its own that the catalog refers to. It is written anew, elsewhere, by a cut that
//! finds it changed.
//!
//! ```text
//! 0  kind u8 | 4 tree_count u32 | 8 byte_count u32: of all of it | 12 reserved u32
//! 16 trees, one after the other: root u32 | tag u32 | record_count u64 | name_bytes u8 | the name
//! ```

use stillframe_pagepool::{PageId, Pool, PAGE_SIZE};

use crate::page::KIND_NAMES;
use crate::stop::Stop;

/// Trees that callers may have.
pub(crate) const TREES_MAX: usize = 4096;
/// Bytes of a name, at most; a caller's has one at least.
pub(crate) const NAME_MAX_BYTES: usize = 255;
/// The name of the tree of function libraries, which no caller's tree can have.
pub(crate) const LIBRARIES_NAME: &[u8] = b"";

const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 17;
/// Pages of the longest list.
const PAGES_MAX: u32 =
    ((HEADER_BYTES + (TREES_MAX + 1) * (ENTRY_BYTES + NAME_MAX_BYTES)) / PAGE_SIZE) as u32 + 1;

/// Where the list is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NamesPlace {
    pub pid: PageId,
    pub page_count: u32,
}

impl NamesPlace {
    /// `None` unless it can be one.
    pub fn new(pid: u32, page_count: u32) -> Option<NamesPlace> {
        let is_one = pid != 0 && (1..=PAGES_MAX).contains(&page_count);
        is_one.then_some(NamesPlace { pid: PageId(pid), page_count })
    }

    pub fn pages(self) -> impl Iterator<Item = PageId> {
        (self.pid.0..self.pid.0.saturating_add(self.page_count)).map(PageId)
    }
}

/// A tree as the list has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NameEntry {
    pub name: Vec<u8>,
    pub root: PageId,
    pub tag: u32,
    pub record_count: u64,
}

pub(crate) fn encode(entries: &[NameEntry]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    for entry in entries {
        bytes.extend_from_slice(&entry.root.0.to_le_bytes());
        bytes.extend_from_slice(&entry.tag.to_le_bytes());
        bytes.extend_from_slice(&entry.record_count.to_le_bytes());
        bytes.push(entry.name.len() as u8);
        bytes.extend_from_slice(&entry.name);
    }
    bytes[0] = KIND_NAMES;
    bytes[4..8].copy_from_slice(&(entries.len() as u32).to_le_bytes());
    let byte_count = bytes.len() as u32;
    bytes[8..12].copy_from_slice(&byte_count.to_le_bytes());
    bytes
}

/// Takes some bytes off the front.
fn take<'b, const N: usize>(bytes: &mut &'b [u8]) -> Option<&'b [u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(taken)
}

/// `None` if it is no list.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<NameEntry>> {
    let header = take::<HEADER_BYTES>(&mut &*bytes)?;
    let word = |at: usize| Some(u32::from_le_bytes(*header.get(at..)?.first_chunk::<4>()?) as usize);
    let (count, byte_count) = (word(4)?, word(8)?);
    if header[0] != KIND_NAMES || count > TREES_MAX + 1 {
        return None;
    }
    let mut rest = bytes.get(HEADER_BYTES..byte_count)?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let root = PageId(u32::from_le_bytes(*take(&mut rest)?));
        let tag = u32::from_le_bytes(*take(&mut rest)?);
        let record_count = u64::from_le_bytes(*take(&mut rest)?);
        let [name_bytes] = *take::<1>(&mut rest)?;
        let (name, after) = rest.split_at_checked(usize::from(name_bytes))?;
        rest = after;
        entries.push(NameEntry { name: name.to_vec(), root, tag, record_count });
    }
    let are_sorted = entries.windows(2).all(|pair| pair[0].name < pair[1].name);
    (rest.is_empty() && are_sorted).then_some(entries)
}

/// Writes a list to an object of its own.
///
/// # Errors
/// There are no pages for it.
pub(crate) fn write(pool: &Pool, bytes: &[u8]) -> Result<NamesPlace, Stop> {
    let page_count = bytes.len().div_ceil(PAGE_SIZE) as u32;
    let mut guard = pool.allocate_object(page_count, page_count)?;
    for (index, chunk) in (0..).zip(bytes.chunks(PAGE_SIZE)) {
        let page = guard.object_page_mut(index)?;
        page[..chunk.len()].copy_from_slice(chunk);
        page[chunk.len()..].fill(0);
    }
    Ok(NamesPlace { pid: guard.id(), page_count })
}

/// Reads a list, bringing its pages in.
///
/// # Errors
/// [`Stop::Damaged`].
pub(crate) fn read(pool: &Pool, place: NamesPlace) -> Result<Vec<NameEntry>, Stop> {
    let pages: Vec<PageId> = place.pages().collect();
    loop {
        pool.residency().load_at_once(&pages);
        match read_resident(pool, place) {
            Err(Stop::Fault(_)) => {}
            result => return result,
        }
    }
}

fn read_resident(pool: &Pool, place: NamesPlace) -> Result<Vec<NameEntry>, Stop> {
    let guard = pool.shared(place.pid)?;
    let mut bytes = Vec::with_capacity(place.page_count as usize * PAGE_SIZE);
    for index in 0..place.page_count {
        bytes.extend_from_slice(guard.object_page(index)?);
    }
    decode(&bytes).ok_or_else(|| not_names(place.pid))
}

pub(crate) fn not_names(pid: PageId) -> Stop {
    Stop::Damaged(format!("page {}: the list of named trees was expected", pid.0).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(random: &mut fastrand::Rng) -> Vec<NameEntry> {
        let name = |random: &mut fastrand::Rng| -> Vec<u8> {
            (0..random.usize(..1 + NAME_MAX_BYTES)).map(|_| random.u8(..)).collect()
        };
        let mut entries: Vec<NameEntry> = (0..random.usize(..40))
            .map(|_| NameEntry {
                name: name(random),
                root: PageId(random.u32(..)),
                tag: random.u32(..),
                record_count: random.u64(..),
            })
            .collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries.dedup_by(|a, b| a.name == b.name);
        entries
    }

    #[test]
    fn a_list_comes_back_and_a_damaged_one_never_panics() {
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        for _ in 0..200 {
            let list = entries(&mut random);
            let mut bytes = encode(&list);
            assert_eq!(decode(&bytes), Some(list));
            bytes.extend_from_slice(&[0; 99]);
            for _ in 0..20 {
                let at = random.usize(..bytes.len());
                bytes[at] ^= 1 << random.u32(..8);
                let _ = decode(&bytes);
            }
            let _ = decode(&bytes[..random.usize(..bytes.len())]);
        }
    }
}
