//! Free pages of the small zone: a buddy allocator that knows which of them take memory.
//!
//! ```text
//!   in use ── give ──▶ FREE, resident ── take_for_trimming ──▶ the trimmer's ── give_trimmed ──▶ FREE, empty
//!     ▲                  │    ▲    ▲                                                               │ │ │
//!     └────── take ──────┘    │    └─────────────────── take_for_refill ───────────────────────────┘ │ │
//!     ▲                       └── give ── the stock's ◀── take_empty_chunk ──────────────────────────┘ │
//!     │                                     ▲                                                          │
//!     │   never used ─────── take_ahead ────┘                                                          │
//!     └─────┴───────────── take: the first touch brings memory ────────────────────────────────────────┘
//! ```
//! The lowest pages are handed out first and the highest trimmed first, so that what is in use moves together.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Extents up to this order (16 pages) are cut from and joined to blocks.
pub const BLOCK_ORDER: u32 = 4;
const BLOCK_PAGES: u32 = 1 << BLOCK_ORDER;

/// Pages that are trimmed together (2 MB): what a huge page backs.
pub const CHUNK_PAGES: u32 = 512;
/// Pages that have never been used and that nobody takes ahead of others: with fewer, none are left while somebody has some.
const KEPT_FRESH_PAGES: u32 = 8 * CHUNK_PAGES;
const CHUNK_WORDS: usize = CHUNK_PAGES as usize / 64;

/// Free pages that take no memory: a bit a page, by chunk.
#[derive(Default)]
struct Empty {
    chunks: BTreeMap<u32, [u64; CHUNK_WORDS]>,
    page_count: u32,
}

impl Empty {
    fn set(&mut self, pages: Range<u32>, is_empty: bool) {
        if self.chunks.is_empty() && !is_empty {
            return;
        }
        let mut start = pages.start;
        while start < pages.end {
            let chunk = start / CHUNK_PAGES;
            let end = pages.end.min((chunk + 1) * CHUNK_PAGES);
            let words = match is_empty {
                true => Some(self.chunks.entry(chunk).or_default()),
                false => self.chunks.get_mut(&chunk),
            };
            if let Some(words) = words {
                let count =
                    |words: &[u64; CHUNK_WORDS]| words.iter().map(|word| word.count_ones()).sum::<u32>();
                let before = count(words);
                for page in start..end {
                    let (word, bit) = ((page % CHUNK_PAGES / 64) as usize, 1 << (page % 64));
                    words[word] = if is_empty { words[word] | bit } else { words[word] & !bit };
                }
                let after = count(words);
                self.page_count = self.page_count - before + after;
                if after == 0 {
                    self.chunks.remove(&chunk);
                }
            }
            start = end;
        }
    }

    fn covers(&self, pages: Range<u32>) -> bool {
        let Some(words) = self.chunks.get(&(pages.start / CHUNK_PAGES)) else { return false };
        pages.into_iter().all(|page| words[(page % CHUNK_PAGES / 64) as usize] & (1 << (page % 64)) != 0)
    }
}

pub struct SmallZone {
    /// Free blocks by order, lowest first.
    free: [BTreeSet<u32>; BLOCK_ORDER as usize + 1],
    free_page_count: u32,
    empty: Empty,
    /// Pages from here to `end` have never been used.
    fresh: u32,
    end: u32,
}

impl SmallZone {
    /// Pages `[start, end)`, none of them ever used.
    pub fn new(start: u32, end: u32) -> SmallZone {
        let start = start.next_multiple_of(BLOCK_PAGES);
        SmallZone { free: Default::default(), free_page_count: 0, empty: Empty::default(), fresh: start, end }
    }

    pub fn fresh(&self) -> u32 {
        self.fresh
    }

    /// Free pages that take memory.
    pub fn resident_free_pages(&self) -> u32 {
        self.free_page_count - self.empty.page_count
    }

    pub fn used_pages(&self) -> u32 {
        self.fresh - self.free_page_count
    }

    /// An extent of at most 16 pages.
    pub fn take(&mut self, page_count: u32) -> Option<u32> {
        let order = page_count.next_power_of_two().trailing_zeros();
        let found = (order..=BLOCK_ORDER).find(|&o| !self.free[o as usize].is_empty());
        let (start, mut have) = match found {
            Some(have) => (self.free[have as usize].pop_first()?, have),
            None => (self.take_fresh(BLOCK_PAGES, BLOCK_PAGES)?, BLOCK_ORDER),
        };
        if found.is_some() {
            self.free_page_count -= 1 << have;
        }
        while have > order {
            have -= 1;
            self.free[have as usize].insert(start + (1 << have));
            self.free_page_count += 1 << have;
        }
        self.give(start + page_count..start + (1 << order));
        self.empty.set(start..start + page_count, false);
        Some(start)
    }

    /// An extent of any size, of pages that have never been used.
    pub fn take_run(&mut self, page_count: u32) -> Option<u32> {
        let align = page_count.checked_next_power_of_two()?.max(BLOCK_PAGES);
        let start = self.take_fresh(page_count, align)?;
        self.give(start + page_count..self.fresh);
        Some(start)
    }

    fn take_fresh(&mut self, page_count: u32, align: u32) -> Option<u32> {
        let before = self.fresh;
        let start = before.checked_next_multiple_of(align)?;
        let end = start.checked_add(page_count)?.checked_next_multiple_of(BLOCK_PAGES)?;
        self.fresh = Some(end).filter(|&end| end <= self.end)?;
        self.give(before..start);
        Some(start)
    }

    /// Frees pages, by cutting them into aligned blocks.
    pub fn give(&mut self, pages: Range<u32>) {
        let Range { mut start, end } = pages;
        while start < end {
            let order = start.trailing_zeros().min((end - start).ilog2()).min(BLOCK_ORDER);
            self.give_block(start, order);
            start += 1 << order;
        }
    }

    fn give_block(&mut self, mut start: u32, mut order: u32) {
        self.free_page_count += 1 << order;
        while order < BLOCK_ORDER && self.free[order as usize].remove(&(start ^ (1 << order))) {
            start &= !(1 << order);
            order += 1;
        }
        let new = self.free[order as usize].insert(start);
        assert!(new, "page {start} freed twice");
    }

    /// Everything before `first` is in use or has been given: makes what follows fresh, from a whole block on.
    pub fn begin_fresh_at(&mut self, first: u32) {
        self.fresh = first.next_multiple_of(BLOCK_PAGES);
        self.give(first..self.fresh);
    }

    /// Takes the free pages that take memory out of the last chunk before `below` that has free pages, all of which
    /// belong to the caller then; `whole` for chunks without a page in use alone. `None` at the beginning of the zone.
    pub fn take_for_trimming(&mut self, below: &mut u32, whole: bool) -> Option<Vec<Range<u32>>> {
        let last = self.free.iter().filter_map(|free| free.range(..*below).next_back()).max()?;
        let chunk = last / CHUNK_PAGES * CHUNK_PAGES;
        *below = chunk;
        let mut found = Vec::new();
        for (order, free) in self.free.iter().enumerate() {
            found.extend(free.range(chunk..chunk + CHUNK_PAGES).map(|&start| (start, order)));
        }
        let free_pages: u32 = found.iter().map(|(_, order)| 1 << order).sum();
        if whole && free_pages < CHUNK_PAGES {
            return Some(Vec::new());
        }
        found.retain(|&(start, order)| !self.empty.covers(start..start + (1 << order)));
        found.sort_unstable();
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for (start, order) in found {
            self.free[order].remove(&start);
            self.free_page_count -= 1 << order;
            self.empty.set(start..start + (1 << order), false);
            match ranges.last_mut().filter(|range| range.end == start) {
                Some(range) => range.end += 1 << order,
                None => ranges.push(start..start + (1 << order)),
            }
        }
        Some(ranges)
    }

    /// Takes pages back whose memory has been given to the system.
    pub fn give_trimmed(&mut self, pages: Range<u32>) {
        self.give(pages.clone());
        self.empty.set(pages, true);
    }

    /// Takes the next pages that have never been used, to the end of their chunk, or about `most`. They belong to the caller, who
    /// gives them as free ones once they have memory.
    pub fn take_ahead(&mut self, most: u32) -> Option<Range<u32>> {
        let most = most.clamp(1, CHUNK_PAGES).next_multiple_of(BLOCK_PAGES);
        let end = (self.fresh + 1).next_multiple_of(CHUNK_PAGES).min(self.fresh + most);
        if self.end.saturating_sub(end) < KEPT_FRESH_PAGES {
            return None;
        }
        Some(std::mem::replace(&mut self.fresh, end)..end)
    }

    /// Takes a chunk of nothing but free pages, none of which takes memory. They belong to the caller likewise.
    pub fn take_empty_chunk(&mut self) -> Option<Range<u32>> {
        let (&chunk, words) = self.empty.chunks.first_key_value()?;
        let pages = chunk * CHUNK_PAGES..(chunk + 1) * CHUNK_PAGES;
        if self.end - self.fresh < KEPT_FRESH_PAGES || words.iter().any(|word| *word != u64::MAX) {
            return None;
        }
        for start in pages.clone().step_by(BLOCK_PAGES as usize) {
            let is_whole = self.free[BLOCK_ORDER as usize].remove(&start);
            assert!(is_whole, "free pages are joined to whole blocks");
        }
        self.free_page_count -= CHUNK_PAGES;
        self.empty.set(pages.clone(), false);
        Some(pages)
    }

    /// Takes the free pages of a chunk that take no memory. They belong to the caller, who gives them as free ones with memory.
    pub fn take_empty_in(&mut self, chunk: u32) -> Vec<Range<u32>> {
        let Some(words) = self.empty.chunks.get(&chunk).copied() else { return Vec::new() };
        let pages = chunk * CHUNK_PAGES..(chunk + 1) * CHUNK_PAGES;
        let is_empty = |page: &u32| words[(page % CHUNK_PAGES / 64) as usize] & (1 << (page % 64)) != 0;
        let mut taken = Vec::new();
        for order in 0..=BLOCK_ORDER {
            let blocks: Vec<u32> = self.free[order as usize].range(pages.clone()).copied().collect();
            // A block of which a part takes memory stays.
            for start in
                blocks.into_iter().filter(|&start| (start..start + (1 << order)).all(|p| is_empty(&p)))
            {
                self.free[order as usize].remove(&start);
                self.free_page_count -= 1 << order;
                self.empty.set(start..start + (1 << order), false);
                taken.push(start..start + (1 << order));
            }
        }
        taken
    }

    /// The lowest free pages that take no memory, in one chunk: they are about to get some. They stay free.
    pub fn take_for_refill(&mut self) -> Option<Range<u32>> {
        let (&chunk, _) = self.empty.chunks.first_key_value()?;
        let pages = chunk * CHUNK_PAGES..(chunk + 1) * CHUNK_PAGES;
        let start = pages.clone().find(|&page| self.empty.covers(page..page + 1))?;
        let end = (start..pages.end).find(|&page| !self.empty.covers(page..page + 1)).unwrap_or(pages.end);
        self.empty.set(start..end, false);
        Some(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u32 = 64 * CHUNK_PAGES;

    /// Takes and gives at random beside a trimmer: nothing is handed out twice, and what takes memory is known.
    #[test]
    fn what_takes_memory_is_known() {
        for whole in [false, true] {
            let mut rng = fastrand::Rng::with_seed(11);
            let mut zone = SmallZone::new(BLOCK_PAGES, END);
            // Of each page: whether it takes memory, and whether it is in use.
            let mut resident = vec![false; END as usize];
            let mut held: Vec<Range<u32>> = Vec::new();
            let mut used = vec![false; END as usize];
            for step in 0..60_000 {
                let is_growing = step / 10_000 % 2 == 0;
                if rng.u32(..10) < if is_growing { 7 } else { 3 } {
                    let count = *rng.choice(&[1, 1, 1, 3, 16]).unwrap();
                    let Some(start) = zone.take(count) else { continue };
                    for page in start..start + count {
                        assert!(!std::mem::replace(&mut used[page as usize], true), "page {page} twice");
                        resident[page as usize] = true;
                    }
                    held.push(start..start + count);
                } else if !held.is_empty() {
                    let pages = held.swap_remove(rng.usize(..held.len()));
                    pages.clone().for_each(|page| used[page as usize] = false);
                    zone.give(pages);
                }
                if step % 500 == 0 {
                    trim(&mut zone, whole, &used, &mut resident);
                }
                if step % 700 == 0 {
                    let refilled = zone.take_for_refill().unwrap_or_default();
                    refilled.for_each(|page| resident[page as usize] = true);
                }
                if step % 300 == 0 {
                    let chunk = rng.u32(..END / CHUNK_PAGES);
                    let mut taken = match rng.u32(..3) {
                        0 => zone.take_empty_in(chunk),
                        1 => zone.take_empty_chunk().into_iter().collect(),
                        _ => zone.take_ahead(rng.u32(..600)).into_iter().collect(),
                    };
                    for page in taken.iter().cloned().flatten() {
                        let (is_used, was_resident) = (used[page as usize], resident[page as usize]);
                        assert!(!is_used && !was_resident, "page {page} is in use, or has memory");
                        resident[page as usize] = true;
                    }
                    taken.drain(..).for_each(|pages| zone.give(pages));
                }
            }
            held.drain(..).for_each(|pages| zone.give(pages));
            used.fill(false);
            trim(&mut zone, whole, &used, &mut resident);
            assert_eq!(zone.used_pages(), BLOCK_PAGES);
            // All but the first and the last chunk, which are not whole.
            let left = resident.iter().filter(|&&resident| resident).count() as u32;
            assert!(left <= zone.resident_free_pages() && left < 2 * CHUNK_PAGES, "{left} pages take memory");
        }
    }

    fn trim(zone: &mut SmallZone, whole: bool, used: &[bool], resident: &mut [bool]) {
        let mut below = u32::MAX;
        while let Some(ranges) = zone.take_for_trimming(&mut below, whole) {
            assert!(!whole || ranges.iter().all(|range| range.len() as u32 % BLOCK_PAGES == 0));
            for range in ranges {
                for page in range.clone() {
                    assert!(!used[page as usize], "page {page} is in use");
                    resident[page as usize] = false;
                }
                zone.give_trimmed(range);
            }
        }
        // Pages that have never been used are taken to have memory: at most those of a block each.
        let known = resident.iter().zip(used).filter(|(&resident, &used)| resident && !used).count() as u32;
        assert!(known <= zone.resident_free_pages());
    }

    #[test]
    fn runs_are_fresh_and_what_they_leave_is_free() {
        let mut zone = SmallZone::new(BLOCK_PAGES, 4 * CHUNK_PAGES);
        let run = zone.take_run(100).unwrap();
        assert_eq!(run % 128, 0);
        let singles: Vec<u32> = std::iter::from_fn(|| zone.take(1)).collect();
        assert!(singles.iter().all(|page| !(run..run + 100).contains(page)));
        assert_eq!(singles.len() as u32, 4 * CHUNK_PAGES - BLOCK_PAGES - 100);
        assert_eq!(zone.take_run(17), None);
    }
}
