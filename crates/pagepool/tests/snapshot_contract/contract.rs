//! Pictures of a pool at work.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use parking_lot::Mutex;
use stillframe_pagepool::device::SimDevice;
use stillframe_pagepool::pagefile::PageFile;
use stillframe_pagepool::snapshot::{NoSpill, Progress, Spill};
use stillframe_pagepool::HeapMemory;
use stillframe_pagepool::{Epoch, PageBytes, PageId, Pool, SnapshotKind, View, PAGE_SIZE};

use crate::support::*;
use crate::writers::*;

/// Budgets: as little as there can be, so that writers and frees pay; some; enough.
const BUDGETS: [u64; 3] = [0, 1 << 20, 64 << 20];

fn compare(image: &BTreeMap<PageId, PageBytes>, model: &Model, what: &str) {
    let missing: Vec<_> = model.pages.keys().filter(|page| !image.contains_key(page)).collect();
    let extra: Vec<_> = image.keys().filter(|page| !model.pages.contains_key(page)).collect();
    assert!(missing.is_empty() && extra.is_empty(), "{what}: missing {missing:?}, extra {extra:?}");
    for (page, expected) in &model.pages {
        assert!(image[page] == expected.bytes(), "{what}: {page:?} differs from the model at the cut");
    }
}

fn compare_view(view: &View, model: &Model, what: &str) {
    for (&page, expected) in &model.pages {
        let mut bytes = [0; PAGE_SIZE];
        view.read_page(page, &mut bytes).unwrap();
        assert!(bytes == expected.bytes(), "{what}: {page:?} differs from the model at the cut");
    }
}

/// Runs writers while `pictures` takes pictures, then checks that nothing is held.
fn with_writers(kind: SnapshotKind, pool: Pool, seed: u64, pictures: impl FnOnce(&Arc<Pool>, &SharedModel)) {
    let (pool, model) = (Arc::new(pool), SharedModel::default());
    let writers = Writers::start(&pool, &model, seed);
    pictures(&pool, &model);
    writers.stop();
    check_held(&pool, kind, model.lock().pages.len() as u64);
    assert_eq!(pool.stats().allocated_pages, model.lock().pages.len() as u64);
}

/// Nothing is held when all pictures have ended, but by algorithms that keep copies: Hourglass and Ping-Pong give them back as the
/// copies change roles, Zigzag when their pages are written again, and Piggyback keeps them.
fn check_held(pool: &Arc<Pool>, kind: SnapshotKind, page_count: u64) {
    let held_pages = || pool.stats().snapshot_held_bytes / PAGE_SIZE as u64;
    if matches!(kind, SnapshotKind::Hourglass | SnapshotKind::Pingpong) {
        for _ in 0..2 {
            stream(pool, Epoch(u32::MAX), Arc::new(Discard)).unwrap();
        }
    }
    let most = if matches!(kind, SnapshotKind::Zigzag | SnapshotKind::Piggyback) { page_count } else { 0 };
    assert!(held_pages() <= most, "{kind}: {} pages are held", held_pages());
}

/// Streams: the first is full, the others are increments on the image of those before. Some fail midway; those that
/// follow make up for it.
fn streams(kind: SnapshotKind, pool: Pool, seed: u64) {
    with_writers(kind, pool, seed, |pool, model| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let image = Arc::new(Image::default());
        let mut durable = Epoch(0);
        for round in 0..14 {
            let fails = round % 3 == 1;
            image.begin(fails.then(|| rng.u32(1..8)));
            let (at_cut, hook) = at_cut(model);
            match pool.stream(hook, durable, image.clone(), &Progress::default()) {
                Ok(cut) => {
                    image.commit();
                    compare(&image.pages.lock(), &at_cut.lock(), &format!("seed {seed}: stream {round}"));
                    durable = cut;
                }
                Err(error) => assert!(fails, "seed {seed}: stream {round}: {error}"),
            }
        }
    });
}

/// Views, three at a time, closed in another order, beside streams.
fn views(kind: SnapshotKind, pool: Pool, seed: u64) {
    with_writers(kind, pool, seed, |pool, model| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut open: Vec<(View, SharedModel)> = Vec::new();
        for round in 0..14 {
            let (at_view, hook) = at_cut(model);
            open.push((pool.view_after(hook).unwrap(), at_view));
            if round % 5 == 0 {
                let (at_stream, hook) = at_cut(model);
                let image = Arc::new(Image::default());
                image.begin(None);
                pool.stream(hook, Epoch(0), image.clone(), &Progress::default()).unwrap();
                image.commit();
                compare(&image.pages.lock(), &at_stream.lock(), &format!("seed {seed}: stream {round}"));
            }
            if open.len() == 3 {
                let (view, model) = open.swap_remove(rng.usize(..3));
                compare_view(&view, &model.lock(), &format!("seed {seed}: view {round}"));
            }
        }
    });
}

fn pool(kind: SnapshotKind, budget: u64) -> Pool {
    Pool::new(&options(kind, budget), Arc::new(NoSpill)).unwrap()
}

/// A pool whose views spill to a page file.
fn spilling_pool(kind: SnapshotKind, budget: u64) -> Pool {
    let (file, _) = PageFile::create_or_open(Arc::new(SimDevice::new(1))).unwrap();
    let spill: Arc<dyn Spill> = file;
    Pool::new(&options(kind, budget), spill).unwrap()
}

/// For every algorithm and budget.
fn everywhere(check: impl Fn(SnapshotKind, u64)) {
    // A budget is for before-images of views alone where the stream has none of its own.
    for kind in kinds() {
        let has_frames = matches!(kind, SnapshotKind::Epoch | SnapshotKind::Fork);
        let budgets = if has_frames { &BUDGETS[..] } else { &BUDGETS[..1] };
        budgets.iter().for_each(|&budget| check(kind, budget));
    }
}

#[test]
fn streams_of_each_algorithm() {
    everywhere(|kind, budget| seeds(|seed| streams(kind, pool(kind, budget), seed)));
}

#[test]
fn views_of_each_algorithm() {
    everywhere(|kind, budget| seeds(|seed| views(kind, spilling_pool(kind, budget), seed)));
}

#[test]
fn epoch_on_the_heap() {
    let kind = SnapshotKind::Epoch;
    let options = options(kind, 1 << 20);
    let memory = || Box::new(HeapMemory::new(options.memory_bytes()));
    seeds(|seed| streams(kind, Pool::with_memory(memory(), &options, Arc::new(NoSpill)).unwrap(), seed));
}

/// Without a page file a view that outgrows the budget fails, and says why; it never shows something else.
#[test]
fn a_view_without_room_fails() {
    let pool = Arc::new(pool(SnapshotKind::Epoch, 0));
    let pages: Vec<_> = (0..200).map(|_| new_object(&pool, 1, 1)).collect();
    let view = pool.view_after(|| ()).unwrap();
    pages.iter().for_each(|&page| fill_page(&pool, page, 2));
    let mut lost = 0;
    for &page in &pages {
        let mut bytes = filled(0);
        match view.read_page(page, &mut bytes) {
            Ok(()) => assert!(bytes == filled(1)),
            Err(error) => {
                assert!(error.to_string().contains("snapshot memory"), "{error}");
                lost += 1;
            }
        }
    }
    assert_eq!(lost, 200 - 64);
    assert_eq!(pool.stats().snapshot_held_bytes, 64 * PAGE_SIZE as u64);
}

/// Pages that nobody writes again after an image has failed: their copies go all the same.
#[test]
fn copies_are_let_go_after_a_failed_stream() {
    kinds().for_each(|kind| {
        let pool = Arc::new(pool(kind, 1 << 20));
        let pages = fill_pool(&pool, 300);
        for fill in 2..5 {
            pages.iter().for_each(|&page| fill_page(&pool, page, fill));
            let image = Arc::new(Image::default());
            image.begin(Some(0));
            stream(&pool, Epoch(0), image).expect_err("the sink fails");
        }
        check_held(&pool, kind, 300);
    });
}

/// A damaged page may refer to anything: to a page that came after the cut, or to none.
#[test]
fn a_view_does_not_read_what_was_not_there() {
    everywhere(|kind, budget| {
        let pool = Arc::new(pool(kind, budget));
        let view = pool.view_after(|| ()).unwrap();
        let later = new_object(&pool, 1, 1);
        fill_page(&pool, later, 2);
        for page in [later, PageId(u32::MAX)] {
            let error = view.read_page(page, &mut filled(0)).expect_err("it was not there").to_string();
            assert!(error.contains(&format!("page {}", page.0)) && error.contains("damaged"), "{error}");
        }
    });
}

/// Whoever looks while a stream runs sees how far it is.
#[test]
fn each_algorithm_tells_how_far_a_stream_is() {
    kinds().for_each(progress_is_told);
}

fn progress_is_told(kind: SnapshotKind) {
    let pool = Arc::new(pool(kind, 1 << 20));
    fill_pool(&pool, 3000);
    let (progress, seen) = (Arc::new(Progress::default()), Arc::new(Mutex::new(Vec::new())));
    let (told, into) = (progress.clone(), seen.clone());
    let hook = move |_: &[PageId]| into.lock().push(told.pages_scanned.load(Ordering::Relaxed));
    let sink = Arc::new(Hooked { inner: Arc::new(Discard), hook });
    pool.stream(|| (), Epoch(0), sink, &progress).unwrap();
    let total = progress.pages_total.load(Ordering::Relaxed);
    let seen = seen.lock();
    assert!(total >= 3000 && seen.iter().any(|scanned| (1..total).contains(scanned)), "{total}: {seen:?}");
    assert!(seen.is_sorted());
    assert_eq!(progress.pages_scanned.load(Ordering::Relaxed), total);
}
