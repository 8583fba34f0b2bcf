//! What snapshots hold stays within the budget, however fast others write, allocate and free.

use std::sync::Arc;
use std::thread;

use stillframe_pagepool::device::SimDevice;
use stillframe_pagepool::pagefile::PageFile;
use stillframe_pagepool::snapshot::{NoSpill, Spill};
use stillframe_pagepool::{Epoch, Layout, PageId, Pool, PoolOptions, SnapshotKind, View, PAGE_SIZE};

use crate::support::*;

const BUDGET_PAGES: u64 = 1024;
const BUDGET: u64 = BUDGET_PAGES * PAGE_SIZE as u64;

fn pool(spill: Arc<dyn Spill>) -> Arc<Pool> {
    let layout = Layout { small_end: 1 << 14, region_len: 1 << 13, max_order: 12 };
    let options = PoolOptions { layout, ..options(SnapshotKind::Epoch, BUDGET) };
    Arc::new(Pool::new(&options, spill).unwrap())
}

fn peak_pages(pool: &Pool) -> u64 {
    pool.stats().snapshot_peak_held_bytes / PAGE_SIZE as u64
}

/// Runs `work` while a stream is held up at its first batch: what has to be written, the workers write themselves.
fn with_held_up_stream(pool: &Arc<Pool>, work: impl FnOnce()) -> Arc<Image> {
    let (gate, image) = (Arc::new(Gate::default()), Arc::new(Image::default()));
    let saver_gate = gate.clone();
    let hook = move |_: &[PageId]| {
        if thread::current().name() == Some("saver") {
            saver_gate.pass();
        }
    };
    let (saver_pool, sink) = (pool.clone(), Arc::new(Hooked { inner: image.clone(), hook }));
    let saver = move || stream(&saver_pool, Epoch(0), sink).unwrap();
    let saver = thread::Builder::new().name("saver".into()).spawn(saver).unwrap();
    gate.wait_for_visitor();
    work();
    gate.open();
    saver.join().unwrap();
    assert_eq!(pool.stats().snapshot_held_bytes, 0);
    image.commit();
    image
}

fn check_image(image: &Image, pages: impl Iterator<Item = PageId>, fill: u8) {
    let found = image.pages.lock();
    pages.for_each(|page| assert!(found.get(&page) == Some(&filled(fill)), "{page:?} as of the cut"));
}

fn object_pages(heads: &[PageId], page_count: u32) -> impl Iterator<Item = PageId> + '_ {
    heads.iter().flat_map(move |head| (0..page_count).map(|index| PageId(head.0 + index)))
}

fn check_view(view: &View, pages: impl Iterator<Item = PageId>, fill: u8) {
    for page in pages {
        let mut bytes = filled(0);
        view.read_page(page, &mut bytes).unwrap();
        assert!(bytes == filled(fill), "{page:?} as of the cut, found {}", bytes[0]);
    }
}

#[test]
fn overwrites_faster_than_the_saver() {
    let pool = pool(Arc::new(NoSpill));
    let pages = fill_pool(&pool, 6000);
    let image = with_held_up_stream(&pool, || {
        thread::scope(|scope| {
            for part in pages.chunks(3000) {
                scope.spawn(|| part.iter().for_each(|&page| fill_page(&pool, page, 2)));
            }
        });
        assert!(peak_pages(&pool) >= BUDGET_PAGES, "the budget is used");
        assert!(pool.metrics().help.summary().count > 0, "writers help");
    });
    check_image(&image, pages.iter().copied(), 1);
    assert!(peak_pages(&pool) <= BUDGET_PAGES, "{} pages held", peak_pages(&pool));
    assert!(pool.stats().snapshot_resident_bytes <= BUDGET + (2 << 20));
}

/// Small values grow: new extents are allocated, old ones freed; before-images and freed pages share the budget.
fn churn(old_count: u32, new_count: u32, object_count: u32) {
    let pool = pool(Arc::new(NoSpill));
    let pages = fill_pool(&pool, 1500);
    let objects: Vec<PageId> = (0..object_count).map(|_| new_object(&pool, old_count, 1)).collect();
    let image = with_held_up_stream(&pool, || {
        for (number, &object) in objects.iter().enumerate() {
            pages.get(number).into_iter().for_each(|&page| fill_page(&pool, page, 2));
            new_object(&pool, new_count, 2);
            free_object(&pool, object, old_count);
        }
        assert!(peak_pages(&pool) + u64::from(old_count) >= BUDGET_PAGES, "the budget is used");
    });
    check_image(&image, pages.iter().copied().chain(object_pages(&objects, old_count)), 1);
    assert!(
        peak_pages(&pool) <= BUDGET_PAGES,
        "{old_count} for {new_count}: {} pages held",
        peak_pages(&pool)
    );
}

#[test]
fn allocating_new_and_freeing_old() {
    churn(1, 1, 3000);
    churn(16, 1, 300);
    churn(3, 16, 600);
    churn(100, 110, 30);
    churn(250, 1, 16);
}

/// The same for a view, whose pages are spilled.
#[test]
fn freeing_what_a_view_sees() {
    for (old_count, new_count, object_count) in [(1, 1, 3000), (16, 1, 300), (3, 16, 600), (100, 110, 30)] {
        let (file, _) = PageFile::create_or_open(Arc::new(SimDevice::new(1))).unwrap();
        let pool = pool(file.clone());
        let pages = fill_pool(&pool, 600);
        let objects: Vec<PageId> = (0..object_count).map(|_| new_object(&pool, old_count, 1)).collect();
        let view = pool.view_after(|| ()).unwrap();
        for (number, &object) in objects.iter().enumerate() {
            pages.get(number).into_iter().for_each(|&page| fill_page(&pool, page, 2));
            free_object(&pool, object, old_count);
            new_object(&pool, new_count, 2);
        }
        assert!(peak_pages(&pool) <= BUDGET_PAGES, "{old_count}: {} pages held", peak_pages(&pool));
        check_view(&view, pages.iter().copied().chain(object_pages(&objects, old_count)), 1);
        assert!(file.stats().spilled_slots > 0, "the budget is used");
        drop(view);
        assert_eq!((pool.stats().snapshot_held_bytes, file.stats().spilled_slots), (0, 0));
    }
}

/// An object larger than the budget is kept when it is freed, and paid off by those who allocate.
#[test]
fn an_object_larger_than_the_budget() {
    let pool = pool(Arc::new(NoSpill));
    let (object, small) = (new_object(&pool, 4096, 1), new_object(&pool, 1, 1));
    let image = with_held_up_stream(&pool, || {
        free_object(&pool, object, 4096);
        assert_eq!(pool.stats().snapshot_held_bytes, 4096 * PAGE_SIZE as u64);
        fill_page(&pool, small, 2);
        assert_eq!(pool.stats().snapshot_held_bytes, 4096 * PAGE_SIZE as u64);
        new_object(&pool, 4096, 2);
        assert_eq!(pool.stats().snapshot_held_bytes, 0);
    });
    check_image(&image, object_pages(&[object], 4096).chain([small]), 1);
}
