//! What is known of a leaf beside its page, never captured by a snapshot: that it is a leaf, its earliest deadline,
//! when it was last accessed. Forgotten at a restart and learned again at the first descent to the leaf.
//!
//! Above the deadlines is a tree of lower bounds, so that the search for what is due looks at little else:
//!
//! ```text
//! level  3: 128 bounds  ─▶ 2: a bound for each chunk ─▶ 1: 128 bounds in the chunk ─▶ 0: the leaves' deadlines
//! ```
//! A bound is lowered with a deadline below it, and raised by a search that finds nothing due below it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use stillframe_pagepool::{prefetch_value, PageId};

use super::bounds::{self, OPEN};
use crate::key::UnixMillis;

/// Words below a bound.
const FAN_OUT: usize = 128;
/// Pages of a chunk: 64 MB of them.
const CHUNK_PAGES: usize = FAN_OUT * FAN_OUT;
/// Chunks at most: 2^28 page ids, 1 TB. Leaves are single pages and never lie beyond.
const CHUNK_COUNT: usize = FAN_OUT * FAN_OUT;
/// Level of the uppermost bounds.
const TOP_LEVEL: u32 = 3;

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

impl Entry {
    /// The earliest deadline in seconds, or [`OPEN`].
    fn deadline_s(&self) -> u32 {
        match self.due_s.load(Ordering::Relaxed) {
            UNKNOWN | NEVER => OPEN,
            due_s => due_s,
        }
    }
}

struct Chunk {
    entries: [Entry; CHUNK_PAGES],
    bounds: [AtomicU32; FAN_OUT],
}

fn open_bound() -> AtomicU32 {
    AtomicU32::new(OPEN)
}

impl Chunk {
    fn new() -> Box<Chunk> {
        Box::new(Chunk {
            entries: std::array::from_fn(|_| Entry::default()),
            bounds: std::array::from_fn(|_| open_bound()),
        })
    }
}

pub(crate) struct Side {
    chunks: Box<[OnceLock<Box<Chunk>>]>,
    /// Memory that all of it takes counts there.
    memory_bytes: Arc<AtomicU64>,
    /// Bounds of the chunks.
    chunk_bounds: Box<[AtomicU32]>,
    top_bounds: [AtomicU32; FAN_OUT],
    /// Above all leaves that have been registered with a deadline.
    page_end: AtomicU32,
}

/// Access times count in 100 ms and wrap after 13 years.
pub(crate) fn tick_of(now: UnixMillis) -> u32 {
    (now / 100) as u32
}

fn encode(deadline: Option<UnixMillis>) -> u32 {
    deadline.map_or(NEVER, |ms| (ms / 1000).clamp(2, i64::from(u32::MAX)) as u32)
}

impl Side {
    pub fn new(memory_bytes: Arc<AtomicU64>) -> Side {
        Side {
            chunks: (0..CHUNK_COUNT).map(|_| OnceLock::new()).collect(),
            memory_bytes,
            chunk_bounds: (0..CHUNK_COUNT).map(|_| open_bound()).collect(),
            top_bounds: std::array::from_fn(|_| open_bound()),
            page_end: AtomicU32::new(0),
        }
    }

    #[inline(always)]
    fn entry(&self, pid: PageId) -> Option<&Entry> {
        let pid = pid.0 as usize;
        Some(&self.chunks.get(pid / CHUNK_PAGES)?.get()?.entries[pid % CHUNK_PAGES])
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
            self.memory_bytes.fetch_add(size_of::<Chunk>() as u64, Ordering::Relaxed);
            Chunk::new()
        });
        chunk.entries[pid.0 as usize % CHUNK_PAGES].due_s.store(encode(deadline), Ordering::Relaxed);
        if deadline.is_some() {
            self.page_end.fetch_max(pid.0 + 1, Ordering::Relaxed);
            bounds::lower(&self.bounds_above(chunk, pid.0 as usize), encode(deadline));
        }
    }

    /// The bounds above a page's entry.
    fn bounds_above<'a>(&'a self, chunk: &'a Chunk, pid: usize) -> [&'a AtomicU32; TOP_LEVEL as usize] {
        let (group, chunk_number) = (pid / FAN_OUT, pid / CHUNK_PAGES);
        let top = &self.top_bounds[chunk_number / FAN_OUT];
        [&chunk.bounds[group % FAN_OUT], &self.chunk_bounds[chunk_number], top]
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
        if let Some(entry) = self.entry(pid) {
            let known = entry.due_s.load(Ordering::Relaxed);
            if known == NEVER || encode(Some(deadline)) < known {
                self.set(pid, Some(deadline));
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

    /// Above all pages that [`Side::next_with_deadline`] finds.
    pub fn page_end(&self) -> PageId {
        PageId(self.page_end.load(Ordering::Relaxed))
    }

    /// The next leaf at or after `from` that has a deadline, or `None` up to the end.
    pub fn next_with_deadline(&self, from: PageId) -> Option<PageId> {
        self.next_due(from, i64::from(OPEN - 1) * 1000)
    }

    /// The next leaf at or after `from` that may have a deadline not after `now`, or `None` up to the end.
    pub fn next_due(&self, from: PageId, now: UnixMillis) -> Option<PageId> {
        let now_s = u32::try_from(now / 1000).unwrap_or(0);
        let mut search = Search { side: self, from: from.0 as usize, now_s, looked_at: 0 };
        search.next()
    }

    /// What is known at a level: a leaf's deadline or a bound.
    fn due_s(&self, level: u32, index: usize) -> u32 {
        let chunk = |number: usize| self.chunks[number].get();
        match level {
            0 => chunk(index / CHUNK_PAGES)
                .map_or(OPEN, |chunk| chunk.entries[index % CHUNK_PAGES].deadline_s()),
            1 => chunk(index / FAN_OUT)
                .map_or(OPEN, |chunk| chunk.bounds[index % FAN_OUT].load(Ordering::Relaxed)),
            2 => self.chunk_bounds[index].load(Ordering::Relaxed),
            _ => self.top_bounds[index].load(Ordering::Relaxed),
        }
    }

    /// Makes a bound the least of what is below it.
    fn raise(&self, level: u32, index: usize) {
        let below = (index * FAN_OUT..(index + 1) * FAN_OUT).map(|child| self.due_s(level - 1, child));
        match level {
            1 => {
                let Some(chunk) = self.chunks[index / FAN_OUT].get() else { return };
                bounds::raise(&self.bounds_above(chunk, index * FAN_OUT), below);
            }
            2 => bounds::raise(&[&self.chunk_bounds[index], &self.top_bounds[index / FAN_OUT]], below),
            _ => bounds::raise(&[&self.top_bounds[index]], below),
        }
    }
}

/// A search for what is due.
struct Search<'a> {
    side: &'a Side,
    from: usize,
    now_s: u32,
    looked_at: usize,
}

impl Search<'_> {
    fn next(&mut self) -> Option<PageId> {
        let first = self.from / CHUNK_PAGES / FAN_OUT;
        let found = (first..FAN_OUT).find_map(|index| self.next_below(TOP_LEVEL, index))?;
        Some(PageId(found as u32))
    }

    fn next_below(&mut self, level: u32, index: usize) -> Option<usize> {
        self.looked_at += 1;
        if self.side.due_s(level, index) > self.now_s {
            return None;
        }
        if level == 0 {
            return Some(index);
        }
        let first = self.from >> ((level - 1) * FAN_OUT.ilog2());
        let children = first.max(index * FAN_OUT)..(index + 1) * FAN_OUT;
        let found = children.into_iter().find_map(|child| self.next_below(level - 1, child));
        if found.is_none() {
            self.looked_at += FAN_OUT;
            self.side.raise(level, index);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_found_in_page_order() {
        let side = Side::new(Arc::default());
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
        let side = Side::new(Arc::default());
        side.set(PageId(1), Some(-5));
        assert_eq!(side.next_due(PageId(0), 3_000), Some(PageId(1)));
    }

    #[test]
    fn idle_time_counts_from_the_last_access() {
        let side = Side::new(Arc::default());
        side.set(PageId(9), None);
        assert_eq!(side.idle_ms(PageId(9), 50), 0);
        side.touch(PageId(9), tick_of(12_000));
        assert_eq!(side.idle_ms(PageId(9), tick_of(15_000)), 3_000);
    }

    /// What is found from the first page on, and how many words were looked at.
    fn pass(side: &Side, now: UnixMillis) -> (Vec<PageId>, usize) {
        let (mut found, mut looked_at, mut from) = (Vec::new(), 0, 0);
        loop {
            let mut search = Search { side, from, now_s: (now / 1000) as u32, looked_at: 0 };
            let next = search.next();
            looked_at += search.looked_at;
            let Some(pid) = next else { return (found, looked_at) };
            from = pid.0 as usize + 1;
            found.push(pid);
        }
    }

    #[test]
    fn a_search_costs_what_is_due_and_not_what_is_there() {
        const PAGE_COUNT: u32 = 13_000_000; // 50 GB
        const LATER: UnixMillis = 2_000_000_000_000;
        let (side, now) = (Side::new(Arc::default()), 1_700_000_000_000);
        (0..PAGE_COUNT).for_each(|pid| side.set(PageId(pid), (pid % 3 == 0).then_some(LATER)));
        assert_eq!(pass(&side, now), (vec![], FAN_OUT));
        let due: Vec<_> = (0..100).map(|number| PageId(number * 129_001)).collect();
        due.iter().for_each(|pid| side.add_deadline(*pid, now));
        // Down to each leaf, on to the end of what is around it, and once more for the new bounds.
        let most = FAN_OUT + due.len() * 3 * TOP_LEVEL as usize * FAN_OUT;
        for _ in 0..2 {
            let (found, looked_at) = pass(&side, now);
            assert_eq!(found, due);
            assert!(looked_at <= most, "{looked_at} words for {} leaves", due.len());
        }
        due.iter().for_each(|pid| side.set(*pid, Some(LATER)));
        let (found, looked_at) = pass(&side, now);
        assert!(found.is_empty() && looked_at <= most, "{looked_at} words");
        assert_eq!(pass(&side, now), (vec![], FAN_OUT), "nothing is left of it");
        side.forget(due[7]);
        let (found, _) = pass(&side, LATER);
        assert_eq!(
            found.len(),
            PAGE_COUNT.div_ceil(3) as usize + due.iter().filter(|pid| pid.0 % 3 > 0).count() - 1
        );
    }

    #[test]
    fn what_is_found_is_what_is_due() {
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        let side = Side::new(Arc::default());
        let mut model = std::collections::BTreeMap::new();
        for step in 0..60_000 {
            // Few chunks, far from each other, and one whose group has no first chunk.
            let chunk = [0, 1, 127, 128, 5_001, CHUNK_COUNT as u32 - 1][random.usize(..6)];
            let pid = PageId(chunk * CHUNK_PAGES as u32 + random.u32(..400) * 41);
            let deadline = random.i64(2_000..1_000_000);
            match random.u32(..10) {
                0..=2 => {
                    let deadline = random.bool().then_some(deadline);
                    side.set(pid, deadline);
                    model.insert(pid, deadline);
                }
                3..=5 => {
                    side.add_deadline(pid, deadline);
                    if let Some(known) = model.get_mut(&pid) {
                        *known = Some(known.map_or(deadline, |known| known.min(deadline)));
                    }
                }
                6..=7 => {
                    side.forget(pid);
                    model.remove(&pid);
                }
                _ => {
                    let (from, now) = (pid, random.i64(0..1_000_000));
                    let is_due = |deadline: &Option<i64>| deadline.is_some_and(|ms| ms / 1000 <= now / 1000);
                    let due = model.range(from..).find(|(_, deadline)| is_due(deadline)).map(|(pid, _)| *pid);
                    assert_eq!(side.next_due(from, now), due, "step {step}");
                }
            }
        }
    }
}
