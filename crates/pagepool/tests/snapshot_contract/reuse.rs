//! What becomes of freed pages: when they are used again, with what content, and who gives their memory back.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use stillframe_pagepool::snapshot::NoSpill;
use stillframe_pagepool::{HeapMemory, Memory};
use stillframe_pagepool::{Layout, PageId, Pool, PoolBackend, PoolOptions, SnapshotKind, PAGE_SIZE};

use crate::support::*;

/// Counts what is given back, and how much of it by the test's own thread.
struct CountingMemory {
    inner: HeapMemory,
    own_thread: thread::ThreadId,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    own_discards: AtomicU64,
    discarded_bytes: AtomicU64,
}

impl Memory for CountingMemory {
    fn base(&self) -> NonNull<u8> {
        self.inner.base()
    }

    fn byte_len(&self) -> usize {
        self.inner.byte_len()
    }

    fn populate(&self, start: usize, byte_len: usize) {
        self.inner.populate(start, byte_len);
    }

    fn prefer_huge(&self, start: usize, byte_len: usize) {
        self.inner.prefer_huge(start, byte_len);
    }

    fn discard(&self, start: usize, byte_len: usize) {
        let own = thread::current().id() == self.own_thread;
        self.counts.own_discards.fetch_add(u64::from(own), Ordering::Relaxed);
        self.counts.discarded_bytes.fetch_add(byte_len as u64, Ordering::Relaxed);
        self.inner.discard(start, byte_len);
    }
}

fn counting_pool() -> (Arc<Pool>, Arc<Counts>) {
    let options = PoolOptions { huge_pages: false, ..options(SnapshotKind::Epoch, 16 << 20) };
    let inner = HeapMemory::new(options.memory_bytes());
    let counts = Arc::new(Counts::default());
    let memory = CountingMemory { inner, own_thread: thread::current().id(), counts: counts.clone() };
    (Arc::new(Pool::with_memory(Box::new(memory), &options, Arc::new(NoSpill)).unwrap()), counts)
}

fn wait_until(condition: impl Fn() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < Duration::from_secs(20), "it does not come");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A view lets many extents go at once: who allocates next does not give back the memory of all of them.
#[test]
fn an_allocation_gives_back_next_to_nothing_itself() {
    let (pool, counts) = counting_pool();
    let objects: Vec<PageId> = (0..24).map(|_| new_object(&pool, 32, 1)).collect();
    let view = pool.view_after(|| ()).unwrap();
    objects.iter().for_each(|&object| free_object(&pool, object, 32));
    drop(view);
    assert_eq!(counts.own_discards.load(Ordering::Relaxed), 0);
    new_object(&pool, 1, 1);
    let own = counts.own_discards.load(Ordering::Relaxed);
    assert!(own <= 1, "an allocation gives {own} extents back");
    match pool.backend() {
        PoolBackend::Vmcache | PoolBackend::Exmap => {
            wait_until(|| counts.discarded_bytes.load(Ordering::Relaxed) == 24 * 32 * PAGE_SIZE as u64);
        }
        // One page is in use, and chunks are given memory ahead.
        PoolBackend::Array => wait_until(|| {
            let stats = pool.stats();
            stats.frame_bytes - stats.free_frame_bytes <= 2 * PAGE_SIZE as u64
        }),
    }
    // Nothing is lost: the ids of all can be had again.
    let again: Vec<PageId> =
        (0..32).map_while(|_| pool.allocate_object(32, 32).ok().map(|o| o.id())).collect();
    assert_eq!(again.len(), Layout::TINY.region_len as usize / 32);
}

/// Small pages: those above the reserve go back after a while, the rest when asked for; never one in use.
#[test]
fn free_small_pages_give_their_memory_back() {
    let (pool, counts) = counting_pool();
    let pages = fill_pool(&pool, 12_000);
    let (kept, freed): (Vec<PageId>, Vec<PageId>) = pages.iter().partition(|page| page.0 % 8 == 0);
    freed.iter().for_each(|&page| free_object(&pool, page, 1));
    let discarded_pages = || counts.discarded_bytes.load(Ordering::Relaxed) / PAGE_SIZE as u64;
    wait_until(|| discarded_pages() > 5_000);
    thread::sleep(Duration::from_millis(50));
    let is_reserve_kept = match pool.backend() {
        PoolBackend::Vmcache | PoolBackend::Exmap => discarded_pages() < 7_500,
        PoolBackend::Array => pool.stats().free_frame_bytes > 4_096 * PAGE_SIZE as u64,
    };
    assert!(is_reserve_kept);
    pool.purge();
    // Chunks of frames go whole, but for that of frame 0, and one that is in part in use.
    let unused_pages = if pool.backend() == PoolBackend::Array { 2 * 512 } else { 0 };
    wait_until(|| discarded_pages() >= freed.len() as u64 - unused_pages);
    assert_eq!(counts.own_discards.load(Ordering::Relaxed), 0);
    for page in kept {
        assert!(pool.shared(page).unwrap().page() == &filled(1), "{page:?} is in use");
    }
    fill_pool(&pool, freed.len() as u32);
    assert_eq!(pool.stats().allocated_pages, 12_000);
}

/// A page that others may be reading without a latch is not used for anything else before they are done.
#[test]
fn a_node_lingers_until_nobody_reads_it() {
    let pool = Pool::in_memory(&options(SnapshotKind::Epoch, 1 << 20)).unwrap();
    let member = pool.join();
    let pages: Vec<PageId> = (0..40).map(|_| new_object(&pool, 1, 1)).collect();
    pool.free_node(pool.exclusive(pages[7]).unwrap());
    assert_eq!(pool.stats().allocated_pages, 39);
    let before: Vec<PageId> = (0..100).map(|_| new_object(&pool, 1, 2)).collect();
    assert!(!before.contains(&pages[7]), "somebody may still read it");
    member.idle(|| pool.at_barrier(|_| ())).unwrap();
    assert_eq!(new_object(&pool, 1, 2), pages[7], "the lowest free page");
}

/// Objects with room to grow start as zeros, wherever they find a place.
#[test]
fn objects_that_may_grow_are_zero_in_any_zone() {
    let pool = Pool::in_memory(&options(SnapshotKind::Epoch, 0)).unwrap();
    let dirty = fill_pool(&pool, 4000);
    dirty.iter().for_each(|&page| free_object(&pool, page, 1));
    let mut in_small_zone = 0;
    for _ in 0..200 {
        let mut object = pool.allocate_object(3, 6).unwrap();
        in_small_zone += u32::from(object.id().0 < Layout::TINY.small_end);
        for index in 0..3 {
            assert!(object.object_page(index).unwrap() == &filled(0), "page {index} of a new object is zero");
            object.object_page_mut(index).unwrap().fill(9);
        }
        let is_small = object.id().0 < Layout::TINY.small_end;
        assert_eq!(pool.extend(&mut object, 3, 6), !is_small, "there it grows by moving");
    }
    assert!(in_small_zone > 100);
}
