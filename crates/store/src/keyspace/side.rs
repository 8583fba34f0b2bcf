//! What is known of a leaf beside its page, never captured by a snapshot: that it is a leaf, its earliest deadline,
//! when it was last accessed. Forgotten at a restart and learned again at the first descent to the leaf.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use stillframe_pagepool::{prefetch_value, PageId};

use crate::UnixMillis;

/// Pages of a chunk: 64 MB of them.
const CHUNK_PAGES: usize = 1 << 14;
/// Chunks at most: 2^28 page ids, 1 TB. Leaves are single pages and never lie beyond.
const CHUNK_COUNT: usize = 1 << 14;

/// `due_s` of a page that is no leaf or not known to be one.
const UNKNOWN: u32 = 0;
/// `due_s` of a leaf without deadlines.
const NEVER: u32 = 1;

#[derive(Default)]
struct Entry {
    /// Earliest deadline in seconds since the Unix epoch, at least 2; or [`UNKNOWN`] or [`NEVER`].
    due_s: AtomicU32,
    /// Last access, in the unit of [`tick_of`].
    accessed: AtomicU32,
}

pub(crate) struct Side {
    chunks: Box<[OnceLock<Box<[Entry]>>]>,
    chunk_count: AtomicU64,
}

/// Access times count in 100 ms and wrap after 13 years.
pub(crate) fn tick_of(now: UnixMillis) -> u32 {
    (now / 100) as u32
}

fn encode(deadline: Option<UnixMillis>) -> u32 {
    deadline.map_or(NEVER, |ms| (ms / 1000).clamp(2, i64::from(u32::MAX)) as u32)
}

impl Side {
    pub fn new() -> Side {
        Side { chunks: (0..CHUNK_COUNT).map(|_| OnceLock::new()).collect(), chunk_count: AtomicU64::new(0) }
    }

    pub fn memory_bytes(&self) -> u64 {
        self.chunk_count.load(Ordering::Relaxed) * (CHUNK_PAGES * size_of::<Entry>()) as u64
    }

    #[inline(always)]
    fn entry(&self, pid: PageId) -> Option<&Entry> {
        let pid = pid.0 as usize;
        self.chunks.get(pid / CHUNK_PAGES)?.get()?.get(pid % CHUNK_PAGES)
    }

    /// Whether the page is known to be a leaf. It stays one for as long as the caller has it latched.
    #[inline(always)]
    pub fn is_leaf(&self, pid: PageId) -> bool {
        self.entry(pid).is_some_and(|entry| entry.due_s.load(Ordering::Relaxed) != UNKNOWN)
    }

    /// Hints that the page's entry will be read soon.
    #[inline(always)]
    pub fn prefetch(&self, pid: PageId) {
        if let Some(entry) = self.entry(pid) {
            prefetch_value(entry);
        }
    }

    /// Registers a leaf that the caller has latched, with its earliest deadline.
    pub fn set(&self, pid: PageId, deadline: Option<UnixMillis>) {
        let Some(chunk) = self.chunks.get(pid.0 as usize / CHUNK_PAGES) else { return };
        let chunk = chunk.get_or_init(|| {
            self.chunk_count.fetch_add(1, Ordering::Relaxed);
            (0..CHUNK_PAGES).map(|_| Entry::default()).collect()
        });
        chunk[pid.0 as usize % CHUNK_PAGES].due_s.store(encode(deadline), Ordering::Relaxed);
    }

    /// The page, latched exclusively by the caller, is about to be freed.
    pub fn forget(&self, pid: PageId) {
        if let Some(entry) = self.entry(pid) {
            entry.due_s.store(UNKNOWN, Ordering::Relaxed);
            entry.accessed.store(0, Ordering::Relaxed);
        }
    }

    /// A record with this deadline has come to the leaf; the caller holds its exclusive latch.
    pub fn add_deadline(&self, pid: PageId, deadline: UnixMillis) {
        let due_s = encode(Some(deadline));
        if let Some(entry) = self.entry(pid) {
            let known = entry.due_s.load(Ordering::Relaxed);
            if known == NEVER || due_s < known {
                entry.due_s.store(due_s, Ordering::Relaxed);
            }
        }
    }

    /// The leaf was accessed at `tick`.
    #[inline(always)]
    pub fn touch(&self, pid: PageId, tick: u32) {
        if let Some(entry) = self.entry(pid) {
            if entry.accessed.load(Ordering::Relaxed) != tick {
                entry.accessed.store(tick, Ordering::Relaxed);
            }
        }
    }

    /// Milliseconds from the leaf's last access to `tick`; 0 if none is known.
    pub fn idle_ms(&self, pid: PageId, tick: u32) -> u64 {
        let accessed = self.entry(pid).map_or(0, |entry| entry.accessed.load(Ordering::Relaxed));
        if accessed == 0 {
            return 0;
        }
        u64::from(tick.wrapping_sub(accessed)) * 100
    }

    /// The next leaf at or after `from` that may have a deadline not after `now`, or `None` up to the end.
    pub fn next_due(&self, from: PageId, now: UnixMillis) -> Option<PageId> {
        let now_s = u32::try_from(now / 1000).unwrap_or(0);
        let from = from.0 as usize;
        let mut start = from % CHUNK_PAGES;
        for (number, chunk) in self.chunks.iter().enumerate().skip(from / CHUNK_PAGES) {
            let Some(entries) = chunk.get() else {
                start = 0;
                continue;
            };
            let is_due = |entry: &Entry| (2..=now_s).contains(&entry.due_s.load(Ordering::Relaxed));
            if let Some(found) = entries[start..].iter().position(is_due) {
                return Some(PageId((number * CHUNK_PAGES + start + found) as u32));
            }
            start = 0;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_found_in_page_order() {
        let side = Side::new();
        let far = PageId(3 * CHUNK_PAGES as u32 + 5);
        assert!(!side.is_leaf(far));
        side.set(far, Some(9_999));
        side.set(PageId(70), None);
        assert!(side.is_leaf(far) && side.is_leaf(PageId(70)) && !side.is_leaf(PageId(71)));
        assert_eq!(side.next_due(PageId(0), 8_000), None);
        assert_eq!(side.next_due(PageId(0), 9_000), Some(far), "a second is as fine as it gets");
        side.add_deadline(PageId(70), 5_000);
        side.add_deadline(PageId(70), 6_000);
        assert_eq!(side.next_due(PageId(0), 5_500), Some(PageId(70)));
        assert_eq!(side.next_due(PageId(71), 10_000), Some(far));
        side.forget(far);
        assert_eq!(side.next_due(PageId(71), 10_000), None);
        assert!(!side.is_leaf(far));
    }

    #[test]
    fn a_deadline_in_the_past_is_due_at_once() {
        let side = Side::new();
        side.set(PageId(1), Some(-5));
        assert_eq!(side.next_due(PageId(0), 3_000), Some(PageId(1)));
    }

    #[test]
    fn idle_time_counts_from_the_last_access() {
        let side = Side::new();
        side.set(PageId(9), None);
        assert_eq!(side.idle_ms(PageId(9), 50), 0);
        side.touch(PageId(9), tick_of(12_000));
        assert_eq!(side.idle_ms(PageId(9), tick_of(15_000)), 3_000);
    }
}
