//! What it takes to get to a page that is in memory: the paper's Table 2. Each step of a buffer manager by addresses is one
//! row more; the baseline beside them finds a page's frame in a hash table, which nothing guards.

use std::hint::black_box;
use std::time::Instant;

use serde::Serialize;
use stillframe_pagepool::{PageId, Pool, PoolBackend, PoolOptions};

use crate::error::{BenchError, Result};
use crate::progress::Progress;

const PAGE_WORDS: usize = 512;
const PAGE_BYTES: u64 = 8 * PAGE_WORDS as u64;
/// Accesses between two looks at the clock.
const ROUND: u64 = 1 << 16;

type Page = [u64; PAGE_WORDS];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Way {
    Array,
    States,
    Versions,
    HashTable,
    VmcacheOptimistic,
    VmcacheShared,
    ArrayOptimistic,
    ArrayShared,
    ExmapOptimistic,
    ExmapShared,
}

impl Way {
    /// Those that every machine has.
    pub const WITHOUT_MODULE: [Way; 8] = [
        Way::Array,
        Way::States,
        Way::Versions,
        Way::HashTable,
        Way::VmcacheOptimistic,
        Way::VmcacheShared,
        Way::ArrayOptimistic,
        Way::ArrayShared,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Way::Array => "an array of pages",
            Way::States => "and the page's state beside it",
            Way::Versions => "and its version looked at again",
            Way::HashTable => "a hash table of frames, unguarded",
            Way::VmcacheOptimistic => "this pool, vmcache, optimistic",
            Way::VmcacheShared => "this pool, vmcache, latched shared",
            Way::ArrayOptimistic => "this pool, array, optimistic",
            Way::ArrayShared => "this pool, array, latched shared",
            Way::ExmapOptimistic => "this pool, exmap, optimistic",
            Way::ExmapShared => "this pool, exmap, latched shared",
        }
    }

    /// By version, and by latch.
    fn of(backend: PoolBackend) -> [Way; 2] {
        match backend {
            PoolBackend::Vmcache => [Way::VmcacheOptimistic, Way::VmcacheShared],
            PoolBackend::Array => [Way::ArrayOptimistic, Way::ArrayShared],
            PoolBackend::Exmap => [Way::ExmapOptimistic, Way::ExmapShared],
        }
    }
}

/// Nanoseconds of an access, each way, over that many bytes of pages.
///
/// # Errors
/// The pool cannot be made.
pub fn measure(bytes: u64, seconds: f64, backends: &[PoolBackend]) -> Result<Vec<(Way, f64)>> {
    let page_count = (bytes / PAGE_BYTES).max(1) as usize;
    let size = stillframe_units::human_bytes(bytes as f64);
    eprintln!("page accesses: {page_count} pages, {size}");
    let mut measured = in_arrays(page_count, seconds);
    for &backend in backends {
        measured.extend(in_pool(backend, page_count, seconds)?);
    }
    measured.iter().for_each(|(way, ns)| eprintln!("page accesses, {size}, {}: {ns:.1} ns", way.name()));
    Ok(measured)
}

/// Draws pages and hands them to `access` until the time is over.
fn time(page_count: usize, seconds: f64, mut access: impl FnMut(usize, usize) -> u64) -> f64 {
    let mut rng = fastrand::Rng::with_seed(1);
    let (begin, mut count, mut sum) = (Instant::now(), 0u64, 0u64);
    loop {
        for _ in 0..ROUND {
            // One number for both, so that little but the access is timed.
            let drawn = rng.u64(..);
            let page = (((drawn >> 32) * page_count as u64) >> 32) as usize;
            sum = sum.wrapping_add(access(page, drawn as usize % PAGE_WORDS));
        }
        count += ROUND;
        let elapsed = begin.elapsed();
        if elapsed.as_secs_f64() >= seconds {
            black_box(sum);
            return elapsed.as_nanos() as f64 / count as f64;
        }
    }
}

fn in_arrays(page_count: usize, seconds: f64) -> Vec<(Way, f64)> {
    let mut progress = Progress::new("page accesses: writing an array".to_owned(), page_count as u64);
    let mut pages: Vec<Page> = Vec::with_capacity(page_count);
    for number in 0..page_count as u64 {
        pages.push([number; PAGE_WORDS]);
        progress.add(1);
    }
    // Two words a page, as the pool's descriptors have.
    let states: Vec<[u64; 2]> = vec![[2, 0]; page_count];
    let table = FrameTable::new(page_count);
    vec![
        (Way::Array, time(page_count, seconds, |page, word| pages[page][word])),
        (
            Way::States,
            time(page_count, seconds, |page, word| match states[page][0] {
                0 => 0,
                _ => pages[page][word],
            }),
        ),
        (
            Way::Versions,
            time(page_count, seconds, |page, word| {
                let state = &states[page];
                let version = black_box(state)[0];
                let found = if version & 1 == 1 { 0 } else { pages[page][word] };
                if black_box(state)[0] == version {
                    found
                } else {
                    0
                }
            }),
        ),
        (
            Way::HashTable,
            time(page_count, seconds, |page, word| match table.frame(page as u32) {
                Some(frame) => pages[frame as usize][word],
                None => 0,
            }),
        ),
    ]
}

/// Open addressing, half full, from a page's number to its frame. Frames are in random order.
struct FrameTable {
    /// Page plus one, 0 for an empty slot, and frame.
    slots: Vec<(u32, u32)>,
    mask: usize,
}

impl FrameTable {
    fn new(page_count: usize) -> FrameTable {
        let slot_count = (2 * page_count).next_power_of_two();
        let mut table = FrameTable { slots: vec![(0, 0); slot_count], mask: slot_count - 1 };
        let mut frames: Vec<u32> = (0..page_count as u32).collect();
        fastrand::Rng::with_seed(2).shuffle(&mut frames);
        for (page, frame) in (0u32..).zip(frames) {
            let mut at = table.begin(page);
            while table.slots[at].0 != 0 {
                at = (at + 1) & table.mask;
            }
            table.slots[at] = (page + 1, frame);
        }
        table
    }

    fn begin(&self, page: u32) -> usize {
        (u64::from(page).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & self.mask
    }

    fn frame(&self, page: u32) -> Option<u32> {
        let mut at = self.begin(page);
        loop {
            match self.slots[at] {
                (0, _) => return None,
                (found, frame) if found == page + 1 => return Some(frame),
                _ => at = (at + 1) & self.mask,
            }
        }
    }
}

/// By version, and by latch.
fn in_pool(backend: PoolBackend, page_count: usize, seconds: f64) -> Result<Vec<(Way, f64)>> {
    let [by_version, by_latch] = Way::of(backend);
    let failed = |error: &dyn std::fmt::Display| BenchError::failed("a pool of pages", error);
    let pool = Pool::in_memory(&PoolOptions { backend, populates_ahead: false, ..PoolOptions::default() })
        .map_err(|error| failed(&error))?;
    let mut progress = Progress::new("page accesses: writing a pool".to_owned(), page_count as u64);
    let mut ids: Vec<PageId> = Vec::with_capacity(page_count);
    for number in 0..page_count as u64 {
        let mut guard = pool.allocate().map_err(|error| failed(&error))?;
        (0..PAGE_WORDS).for_each(|word| guard.set_word(word, number));
        ids.push(guard.id());
        progress.add(1);
    }
    // A new pool hands its first numbers out, in an order of its own; a table of them would be read beside the pages.
    ids.sort_unstable_by_key(|id| id.0);
    let first = ids[0].0;
    if ids.iter().enumerate().any(|(index, id)| id.0 != first + index as u32) {
        return Err(BenchError::Failed(
            "a new pool left gaps between the pages that it handed out".to_owned(),
        ));
    }
    let id = |page: usize| PageId(first + page as u32);
    let optimistic = time(page_count, seconds, |page, word| {
        let Ok(guard) = pool.optimistic(id(page)) else { return 0 };
        let found = guard.word(word);
        guard.validate().map_or(0, |()| found)
    });
    let shared = time(page_count, seconds, |page, word| match pool.shared(id(page)) {
        Ok(guard) => u64::from(guard.page()[8 * word]),
        Err(_) => 0,
    });
    Ok(vec![(by_version, optimistic), (by_latch, shared)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_a_frame_of_its_own() {
        let table = FrameTable::new(1000);
        let mut frames: Vec<u32> = (0..1000).map(|page| table.frame(page).unwrap()).collect();
        assert_ne!(frames, (0..1000).collect::<Vec<_>>());
        frames.sort_unstable();
        assert_eq!(frames, (0..1000).collect::<Vec<_>>());
        assert_eq!(table.frame(1000), None);
    }

    #[test]
    fn each_way_is_measured() {
        let measured = measure(64 * PAGE_BYTES, 0.01, &PoolBackend::WITHOUT_MODULE).unwrap();
        assert_eq!(measured.iter().map(|(way, _)| *way).collect::<Vec<_>>(), Way::WITHOUT_MODULE);
        assert!(measured.iter().all(|(_, ns)| *ns > 0.0 && *ns < 1e6), "{measured:?}");
    }
}
