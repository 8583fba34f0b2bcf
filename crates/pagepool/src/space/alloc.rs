//! Which page ids are free.
//!
//! Ids are laid out so that nothing of this needs storing: at a restart free space is the complement of the page
//! file's map ([`Allocator::adopt`]).
//!
//! ```text
//! [0, small_end)                  extents of 1 to 16 pages (tree nodes, slabs), exact, buddy-allocated
//! [small_end + k * region_len..)  objects that own a block of 2^(k+5) pages, k = 0, 1, …
//! ```
//! When a size's region is used up the small zone takes its objects, exact: they grow by moving.
//!
//! A large object owns its whole power-of-two block, so it grows in place up to it; pages that are never written
//! take no memory. The id alone tells the block's size. Lowest ids go first, which keeps side arrays dense.

use std::collections::BTreeSet;

use super::extent::Extent;
use super::small_zone::{SmallZone, BLOCK_ORDER as SMALL_ORDER};
use crate::PageId;

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

    /// For servers under a tool that can map less, as valgrind: 4 GB of small pages and 1 GB for each of the 14 sizes.
    pub const COUNTED: Layout = Layout { small_end: 1 << 20, region_len: 1 << 18, max_order: 18 };

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

    /// Whether there can be an object of these pages: in the small zone anywhere, else at the begin of a block.
    pub fn has_place_for(&self, extent: Extent) -> bool {
        let Extent { start, page_count } = extent;
        let Some(end) = start.0.checked_add(page_count).filter(|&end| end <= self.page_count()) else {
            return false;
        };
        if start.0 < self.small_end {
            return end <= self.small_end;
        }
        let order = self.order_at(start.0);
        start.0 % (1 << order) == 0 && page_count <= 1 << order
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
    small: SmallZone,
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
        let small = SmallZone::new(1, layout.small_end);
        let regions = (FIRST_LARGE_ORDER..=layout.max_order)
            .map(|order| {
                let start = layout.region_start(order);
                Region { free: BTreeSet::new(), fresh: start, end: start + layout.region_len }
            })
            .collect();
        Allocator { layout, small, regions }
    }

    /// Takes `page_count` consecutive pages, aligned to the next power of two, with room to grow to `reserve_count` in
    /// place as far as there is any. `None` if the id space is exhausted.
    pub fn allocate(&mut self, page_count: u32, reserve_count: u32) -> Option<PageId> {
        let order = order_of(page_count.max(1));
        if order <= SMALL_ORDER && reserve_count <= page_count {
            return self.small.take(page_count).map(PageId);
        }
        let lowest = order.max(FIRST_LARGE_ORDER);
        let wanted = order_of(reserve_count.max(page_count)).clamp(lowest, self.layout.max_order.max(lowest));
        let in_region = (lowest..=wanted).rev().find_map(|order| {
            let region = self.regions.get_mut((order - FIRST_LARGE_ORDER) as usize)?;
            region.free.pop_first().or_else(|| {
                let start = region.fresh;
                region.fresh = start.checked_add(1 << order).filter(|&end| end <= region.end)?;
                Some(start)
            })
        });
        let small = &mut self.small;
        let exact = || if order <= SMALL_ORDER { small.take(page_count) } else { small.take_run(page_count) };
        in_region.or_else(exact).map(PageId)
    }

    /// Pages that an extent at `start` may grow to in place; for small extents that is what it has.
    pub fn capacity(&self, start: PageId, page_count: u32) -> u32 {
        if start.0 < self.layout.small_end {
            page_count
        } else {
            1 << self.layout.order_at(start.0)
        }
    }

    /// The place that is freed with a page and must be freed whole, `[start, end)`. In the small zone, where any pages can
    /// be freed together, it goes from that page to the end.
    pub fn block_at(&self, page: PageId) -> (PageId, u32) {
        if page.0 < self.layout.small_end {
            return (page, self.layout.small_end);
        }
        let block_len = 1 << self.layout.order_at(page.0);
        let start = page.0 / block_len * block_len;
        (PageId(start), start + block_len)
    }

    /// Gives a whole extent back.
    pub fn free(&mut self, start: PageId, page_count: u32) {
        if start.0 < self.layout.small_end {
            return self.small.give(start.0..start.0 + page_count);
        }
        let order = self.layout.order_at(start.0);
        assert_eq!(start.0 % (1 << order), 0, "large objects are freed whole");
        let new = self.regions[(order - FIRST_LARGE_ORDER) as usize].free.insert(start.0);
        assert!(new, "block {} freed twice", start.0);
    }

    /// The small zone.
    pub fn small(&mut self) -> &mut SmallZone {
        &mut self.small
    }

    /// The id ranges that have ever been in use, `[start, end)`.
    pub fn used_ranges(&self) -> Vec<(u32, u32)> {
        let mut ranges = vec![(1 << SMALL_ORDER, self.small.fresh())];
        for (i, region) in self.regions.iter().enumerate() {
            ranges.push((self.layout.region_start(i as u32 + FIRST_LARGE_ORDER), region.fresh));
        }
        ranges.retain(|(start, end)| start < end);
        ranges
    }

    /// Rebuilds free space from the runs of pages in use, ascending and disjoint, into an empty allocator.
    pub fn adopt(&mut self, runs: impl Iterator<Item = (PageId, u32)>) {
        let mut small_at = self.small.fresh();
        for (PageId(mut start), count) in runs {
            let end = start + count;
            // Neighbours may belong to different zones.
            if start < self.layout.small_end {
                // Free, and of no memory yet.
                self.small.give_trimmed(small_at..start);
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
        self.small.begin_fresh_at(small_at);
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

    /// No size has the small zone's ids for itself, nor is one refused while they last.
    #[test]
    fn growing_objects_find_ids_elsewhere() {
        let layout = Layout { small_end: 1 << 18, region_len: 1 << 12, max_order: 8 };
        for (count, reserve) in [(3, 6), (16, 32), (17, 17), (17, 34), (200, 400)] {
            let mut allocator = Allocator::new(layout);
            let mut objects = Vec::new();
            while let Some(object) = allocator.allocate(count, reserve) {
                assert!(allocator.capacity(object, count) >= count);
                objects.push((object, count));
            }
            let pages = objects.len() as u32 * count;
            assert!(
                pages > layout.small_end / 2,
                "objects of {count} with room for {reserve}: {pages} pages fit"
            );
            objects.sort_unstable();
            let overlap = objects.windows(2).find(|pair| pair[0].0 .0 + count > pair[1].0 .0);
            assert_eq!(overlap, None);
            // They survive a restart, and everything can be freed.
            let mut adopted = Allocator::new(layout);
            adopted.adopt(objects.iter().copied());
            let more = adopted.allocate(count, reserve);
            assert_eq!(more, None, "objects of {count} with room for {reserve}: two in one place");
            for &(object, count) in &objects {
                adopted.free(object, count);
                allocator.free(object, count);
            }
            let in_region = adopted.allocate(count, reserve).expect("everything is free");
            assert!(in_region.0 >= layout.small_end);
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
