//! Memory of second places: there before a cut that is going to want it, and not given back between two.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use stillframe_pagepool::snapshot::Progress;
use stillframe_pagepool::{Epoch, PageId, Pool, SnapshotKind, PAGE_SIZE};

use crate::support::*;

/// More than free pages keep memory for without anybody's asking.
const PAGE_COUNT: u32 = 8000;
/// Of those that stay free whatever is in use (16 MB).
const RESERVE_PAGES: u64 = 4096;

fn two_places() -> impl Iterator<Item = SnapshotKind> {
    kinds().filter(|kind| kind.has_two_places())
}

fn pool_of(kind: SnapshotKind) -> (Arc<Pool>, Vec<PageId>) {
    let pool = Pool::in_memory(&options(kind, 1 << 20)).unwrap();
    let pages = fill_pool(&pool, PAGE_COUNT);
    (pool, pages)
}

fn free_frames(pool: &Pool) -> u64 {
    pool.stats().free_frame_bytes / PAGE_SIZE as u64
}

/// How many frames were free, with memory, at the cut of a stream of what has changed since the last.
fn stream_and_free_at_cut(pool: &Arc<Pool>, durable: &mut Epoch) -> u64 {
    let free = Arc::new(AtomicU64::new(0));
    let (seen, of) = (free.clone(), pool.clone());
    let at_cut = move || seen.store(free_frames(&of), Ordering::Relaxed);
    *durable = pool.stream(at_cut, *durable, Arc::new(Discard), &Progress::default()).unwrap();
    free.load(Ordering::Relaxed)
}

/// The pass beside writers takes a frame a page that has changed, or writers take those of what they write.
#[test]
fn a_cut_finds_the_frames_that_its_stream_takes() {
    for kind in two_places() {
        let (pool, _) = pool_of(kind);
        let wanted = if kind == SnapshotKind::Piggyback { u64::from(PAGE_COUNT) } else { RESERVE_PAGES };
        let mut durable = Epoch(0);
        let free = stream_and_free_at_cut(&pool, &mut durable);
        assert!(free >= wanted, "{kind}: {free} of {wanted}");
    }
}

/// What a period has let go stays for the next, and goes back when that has not taken it.
#[test]
fn frames_that_the_next_period_takes_stay() {
    for kind in two_places().filter(|kind| *kind == SnapshotKind::Hourglass) {
        let (pool, pages) = pool_of(kind);
        let mut durable = Epoch(0);
        stream_and_free_at_cut(&pool, &mut durable);
        pages.iter().for_each(|&page| fill_page(&pool, page, 2));
        // The image of that period, and the one in which the copies before it are let go.
        (0..2).for_each(|_| {
            stream_and_free_at_cut(&pool, &mut durable);
        });
        thread::sleep(Duration::from_millis(600));
        let free = free_frames(&pool);
        assert!(free >= u64::from(PAGE_COUNT), "{kind}: {free}");
        // Nothing is written between these: nobody has taken any.
        stream_and_free_at_cut(&pool, &mut durable);
        let since = Instant::now();
        while free_frames(&pool) > u64::from(PAGE_COUNT) - 1000 {
            assert!(since.elapsed() < Duration::from_secs(20), "{kind}: {}", free_frames(&pool));
            thread::sleep(Duration::from_millis(5));
        }
    }
}
