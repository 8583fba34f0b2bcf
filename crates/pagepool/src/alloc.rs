//! Which page ids are free.
//!
//! Ids are laid out so that nothing of this needs storing: at a restart free space is the complement of the page
//! file's map ([`Allocator::adopt`]).
//!
//! ```text
//! [0, small_end)                  extents of 1 to 16 pages (tree nodes, slabs), exact, buddy-allocated
//! [small_end + k * region_len..)  objects that own a block of 2^(k+5) pages, k = 0, 1, …
//! ```
//! A large object owns its whole power-of-two block, so it grows in place up to it; pages that are never written
//! take no memory. The id alone tells the block's size. Lowest ids go first, which keeps side arrays dense.

use std::collections::BTreeSet;

use crate::PageId;

/// Extents up to this order (16 pages) live in the small zone.
const SMALL_ORDER: u32 = 4;
const FIRST_LARGE_ORDER: u32 = SMALL_ORDER + 1;

/// Layout of the id space, in pages.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub small_end: u32,
    /// Ids given to each order of large blocks.
    pub region_len: u32,
    /// Order of the largest block.
    pub max_order: u32,
}

impl Layout {
    /// 1 TB of small pages and 128 GB for each of 14 sizes up to 1 GB: 3 TB of address space.
    pub const FULL: Layout = Layout { small_end: 1 << 28, region_len: 1 << 25, max_order: 18 };

    /// For tests on the heap: 64 MB of small pages, large blocks up to 1 MB.
    pub const TINY: Layout = Layout { small_end: 1 << 14, region_len: 1 << 10, max_order: 8 };

    /// End of the id space.
    pub fn page_count(&self) -> u32 {
        self.small_end + (self.max_order - SMALL_ORDER) * self.region_len
    }

    fn region_start(&self, order: u32) -> u32 {
        self.small_end + (order - FIRST_LARGE_ORDER) * self.region_len
    }

    fn order_at(&self, page: u32) -> u32 {
        (page - self.small_end) / self.region_len + FIRST_LARGE_ORDER
    }
}

/// Buddy allocator of the small zone.
struct Small {
    /// Free blocks by order, lowest first.
    free: [BTreeSet<u32>; SMALL_ORDER as usize + 1],
    /// Pages from here to `end` have never been used.
    fresh: u32,
    end: u32,
}

impl Small {
    fn take(&mut self, order: u32) -> Option<u32> {
        let found = (order..=SMALL_ORDER).find(|&o| !self.free[o as usize].is_empty());
        let (start, mut have) = match found {
            Some(have) => (self.free[have as usize].pop_first()?, have),
            None => {
                let start = self.fresh;
                self.fresh = start.checked_add(1 << SMALL_ORDER).filter(|&end| end <= self.end)?;
                (start, SMALL_ORDER)
            }
        };
        while have > order {
            have -= 1;
            self.free[have as usize].insert(start + (1 << have));
        }
        Some(start)
    }

    fn give_block(&mut self, mut start: u32, mut order: u32) {
        while order < SMALL_ORDER && self.free[order as usize].remove(&(start ^ (1 << order))) {
            start &= !(1 << order);
            order += 1;
        }
        let new = self.free[order as usize].insert(start);
        assert!(new, "page {start} freed twice");
    }

    /// Frees any range by cutting it into aligned blocks.
    fn give(&mut self, mut start: u32, end: u32) {
        while start < end {
            let order = start.trailing_zeros().min((end - start).ilog2()).min(SMALL_ORDER);
            self.give_block(start, order);
            start += 1 << order;
        }
    }
}

/// Blocks of one order.
struct Region {
    free: BTreeSet<u32>,
    fresh: u32,
    end: u32,
}

impl Region {
    /// Pages `[start, end)` are in use, none between those adopted before and them.
    fn adopt(&mut self, order: u32, start: u32, end: u32) {
        let (first_block, last_end) = (start >> order << order, end.next_multiple_of(1 << order));
        self.free.extend((self.fresh.min(first_block)..first_block).step_by(1 << order));
        self.fresh = self.fresh.max(last_end);
    }
}

/// The allocator; the pool wraps it in a lock.
pub struct Allocator {
    layout: Layout,
    small: Small,
    /// Indexed by order - [`FIRST_LARGE_ORDER`].
    regions: Vec<Region>,
}

/// The order of the smallest block that holds `page_count` pages.
fn order_of(page_count: u32) -> u32 {
    page_count.next_power_of_two().trailing_zeros()
}

impl Allocator {
    pub fn new(layout: Layout) -> Allocator {
        let block = 1 << layout.max_order;
        assert!(layout.small_end % block == 0 && layout.region_len % block == 0, "blocks are aligned");
        // Block 0 stays unused, so that id 0 means none.
        let small = Small { free: Default::default(), fresh: 1 << SMALL_ORDER, end: layout.small_end };
        let regions = (FIRST_LARGE_ORDER..=layout.max_order)
            .map(|order| {
                let start = layout.region_start(order);
                Region { free: BTreeSet::new(), fresh: start, end: start + layout.region_len }
            })
            .collect();
        Allocator { layout, small, regions }
    }

    /// Takes `page_count` consecutive pages with room to grow to `reserve_count` in place, aligned to the next
    /// power of two. `None` if the id space is exhausted.
    pub fn allocate(&mut self, page_count: u32, reserve_count: u32) -> Option<PageId> {
        let order = order_of(page_count.max(1));
        if order <= SMALL_ORDER && reserve_count <= page_count {
            let start = self.small.take(order)?;
            self.small.give(start + page_count, start + (1 << order));
            return Some(PageId(start));
        }
        let lowest = order.max(FIRST_LARGE_ORDER);
        let wanted = order_of(reserve_count.max(page_count)).clamp(lowest, self.layout.max_order.max(lowest));
        (lowest..=wanted).rev().find_map(|order| {
            let region = self.regions.get_mut((order - FIRST_LARGE_ORDER) as usize)?;
            region.free.pop_first().map(PageId).or_else(|| {
                let start = region.fresh;
                region.fresh = start.checked_add(1 << order).filter(|&end| end <= region.end)?;
                Some(PageId(start))
            })
        })
    }

    /// Pages that an extent at `start` may grow to in place; for small extents that is what it has.
    pub fn capacity(&self, start: PageId, page_count: u32) -> u32 {
        if start.0 < self.layout.small_end {
            page_count
        } else {
            1 << self.layout.order_at(start.0)
        }
    }

    /// Gives a whole extent back.
    pub fn free(&mut self, start: PageId, page_count: u32) {
        if start.0 < self.layout.small_end {
            self.small.give(start.0, start.0 + page_count);
            return;
        }
        let order = self.layout.order_at(start.0);
        assert_eq!(start.0 % (1 << order), 0, "large objects are freed whole");
        let new = self.regions[(order - FIRST_LARGE_ORDER) as usize].free.insert(start.0);
        assert!(new, "block {} freed twice", start.0);
    }

    /// End of the small zone's ids that have ever been in use.
    pub fn small_used_end(&self) -> u32 {
        self.small.fresh
    }

    /// The id ranges that have ever been in use, `[start, end)`.
    pub fn used_ranges(&self) -> Vec<(u32, u32)> {
        let mut ranges = vec![(1 << SMALL_ORDER, self.small.fresh)];
        for (i, region) in self.regions.iter().enumerate() {
            ranges.push((self.layout.region_start(i as u32 + FIRST_LARGE_ORDER), region.fresh));
        }
        ranges.retain(|(start, end)| start < end);
        ranges
    }

    /// Rebuilds free space from the runs of pages in use, ascending and disjoint, into an empty allocator.
    pub fn adopt(&mut self, runs: impl Iterator<Item = (PageId, u32)>) {
        let mut small_at = self.small.fresh;
        for (PageId(mut start), count) in runs {
            let end = start + count;
            // Neighbours may belong to different zones.
            if start < self.layout.small_end {
                self.small.give(small_at, start);
                small_at = end.min(self.layout.small_end);
                start = small_at;
            }
            while start < end {
                let order = self.layout.order_at(start);
                let zone_end = end.min(self.layout.region_start(order + 1));
                self.regions[(order - FIRST_LARGE_ORDER) as usize].adopt(order, start, zone_end);
                start = zone_end;
            }
        }
        let fresh = small_at.next_multiple_of(1 << SMALL_ORDER);
        self.small.give(small_at, fresh);
        self.small.fresh = fresh;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Random allocations never overlap, stay aligned, and survive an adoption of the pages in use.
    #[test]
    fn extents_are_disjoint_and_adopted() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut allocator = Allocator::new(Layout::TINY);
        let mut held: BTreeMap<u32, u32> = BTreeMap::new();
        for step in 0..20_000 {
            if step % 5_000 == 4_999 {
                allocator = Allocator::new(Layout::TINY);
                allocator.adopt(held.iter().map(|(&p, &n)| (PageId(p), n)));
            }
            if rng.bool() && !held.is_empty() {
                let nth = rng.usize(..held.len());
                let (&start, &count) = held.iter().nth(nth).unwrap();
                held.remove(&start);
                allocator.free(PageId(start), count);
                continue;
            }
            let count = *rng.choice(&[1, 1, 1, 3, 16, 17, 40, 256]).unwrap();
            let Some(PageId(start)) = allocator.allocate(count, rng.u32(..64)) else { continue };
            let before = held.range(..=start).next_back().map_or(0, |(&p, &n)| p + n);
            let after = held.range(start..).next().map_or(u32::MAX, |(&p, _)| p);
            assert!(before <= start && start + count <= after, "step {step}: extent overlaps");
            assert_eq!(start % count.next_power_of_two(), 0);
            held.insert(start, count);
        }
    }

    /// The page file knows runs of pages, not objects: a run may go from one zone into the next.
    #[test]
    fn runs_across_zones_are_adopted() {
        let mut before = Allocator::new(Layout::TINY);
        let mut held: Vec<(u32, u32)> = Vec::new();
        for count in [1, 16, 32, 64, 128] {
            held.extend(std::iter::from_fn(|| before.allocate(count, count)).map(|page| (page.0, count)));
        }
        held.sort_unstable();
        let mut runs: Vec<(PageId, u32)> = Vec::new();
        for &(start, count) in &held {
            match runs.last_mut().filter(|(first, len)| first.0 + *len == start) {
                Some((_, len)) => *len += count,
                None => runs.push((PageId(start), count)),
            }
        }
        assert_eq!(runs.len(), 1, "everything is in use, side by side");
        let mut after = Allocator::new(Layout::TINY);
        after.adopt(runs.into_iter());
        let new = after.allocate(256, 256).expect("the last zone is free");
        assert!(new.0 >= Layout::TINY.region_start(8));
        for count in [1, 16, 32, 64, 128] {
            let reused = after.allocate(count, count);
            assert!(reused.is_none_or(|page| page.0 >= Layout::TINY.region_start(8)), "{reused:?} is in use");
        }
    }

    #[test]
    fn everything_freed_is_everything_available() {
        let mut allocator = Allocator::new(Layout::TINY);
        let all: Vec<_> = std::iter::from_fn(|| allocator.allocate(1, 1)).collect();
        assert_eq!(all.len() as u32, Layout::TINY.small_end - (1 << SMALL_ORDER));
        all.iter().for_each(|&p| allocator.free(p, 1));
        assert_eq!(std::iter::from_fn(|| allocator.allocate(16, 16)).count(), all.len() / 16);
    }
}
