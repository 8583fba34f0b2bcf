//! Requests for pages in the background: each is done once, when its own pages are there or it is known why not.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::time::Duration;

use stillframe_pagepool::device::{Device, FaultRates, FileDevice, IoOptions, SimDevice};
use stillframe_pagepool::pagefile::USER_HEADER_BYTES;
use stillframe_pagepool::snapshot::Progress;
use stillframe_pagepool::{PageId, Pool, PoolOptions, Restart, SnapshotKind};
use stillframe_testkit::TempDir;

use crate::support::*;

const PAGE_COUNT: u32 = 2000;
const REQUESTS: usize = 400;
const TIMEOUT: Duration = Duration::from_secs(60);

fn fill_of(index: usize) -> u8 {
    (index % 250) as u8 + 1
}

fn open(device: &Arc<dyn Device>, memory_pages: Option<u64>) -> Arc<Pool> {
    let options = PoolOptions { memory_pages, ..options(SnapshotKind::Epoch, 1 << 20) };
    Pool::open(device.clone(), &options).unwrap().0
}

/// A page file with pages that say which they are.
fn fill(device: &Arc<dyn Device>) -> Vec<PageId> {
    let pool = open(device, None);
    let pages = fill_pool(&pool, PAGE_COUNT);
    pages.iter().enumerate().for_each(|(index, page)| fill_page(&pool, *page, fill_of(index)));
    pool.checkpoint(|| Ok([0; USER_HEADER_BYTES]), &Progress::default()).unwrap();
    pages
}

/// Asks for pages from two threads, in requests of any length that overlap; whoever is told looks for them.
fn ask(pool: &Arc<Pool>, pages: &[PageId], seed: u64, is_there: fn(&Pool, PageId, u8)) {
    let (done, is_done) = mpsc::channel();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let done = done.clone();
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed ^ thread);
                for _ in 0..REQUESTS {
                    let most = *rng.choice(&[1, 1, 3, 40, 300]).unwrap();
                    let wanted: Vec<usize> =
                        (0..rng.usize(1..=most)).map(|_| rng.usize(..pages.len())).collect();
                    let ids = wanted.iter().map(|index| pages[*index]).collect();
                    let done = done.clone();
                    pool.residency().load_in_background(ids, Box::new(move || done.send(wanted).unwrap()));
                }
            });
        }
        drop(done);
        for _ in 0..2 * REQUESTS {
            let wanted = is_done.recv_timeout(TIMEOUT).expect("each request is done");
            wanted.into_iter().for_each(|index| is_there(pool, pages[index], fill_of(index)));
        }
        assert!(is_done.recv_timeout(TIMEOUT).is_err(), "each is done once");
    });
    assert_eq!(pool.metrics().fault.summary().count, 2 * REQUESTS as u64);
}

fn is_in_memory(pool: &Pool, page: PageId, fill: u8) {
    assert!(pool.shared(page).expect("it is there").page() == &filled(fill));
}

/// It may have gone again.
fn is_right_or_absent(pool: &Pool, page: PageId, fill: u8) {
    match pool.shared(page) {
        Ok(guard) => assert!(guard.page() == &filled(fill)),
        Err(Restart::Fault(_)) => {}
        Err(other) => panic!("{other:?}"),
    }
}

fn is_right_or_known(pool: &Pool, page: PageId, fill: u8) {
    match pool.shared(page) {
        Ok(guard) => assert!(guard.page() == &filled(fill)),
        // Later the device may be asked again.
        Err(Restart::Damaged(_) | Restart::Fault(_)) => {}
        Err(other) => panic!("{other:?}"),
    }
}

fn each_device(test: impl Fn(Arc<dyn Device>)) {
    test(Arc::new(SimDevice::new(1)));
    let dir = TempDir::new("requests");
    test(Arc::new(FileDevice::create(&dir.join("pages"), IoOptions::default()).unwrap()));
}

#[test]
fn requests_end_when_their_pages_are_there() {
    seeds(|seed| {
        each_device(|device| {
            let pages = fill(&device);
            ask(&open(&device, None), &pages, seed, is_in_memory);
        });
    });
}

/// With less memory than one of the requests wants.
#[test]
fn requests_end_although_memory_is_short() {
    seeds(|seed| {
        each_device(|device| {
            let pages = fill(&device);
            let pool = open(&device, Some(200));
            ask(&pool, &pages, seed, is_right_or_absent);
            assert!(pool.room().resident_pages() <= 200, "{} pages", pool.room().resident_pages());
        });
    });
}

/// A read that fails, or brings something else, is nothing to the pages beside it.
#[test]
fn requests_end_although_pages_cannot_be_read() {
    seeds(|seed| {
        let sim = Arc::new(SimDevice::new(seed));
        let device: Arc<dyn Device> = sim.clone();
        let pages = fill(&device);
        let damaged = PageId(pages[7].0);
        let place = sim.image().chunks(4096).position(|found| found == filled(fill_of(7))).unwrap();
        sim.corrupt(place as u64 * 4096 + 9, 1, |bytes| bytes[0] ^= 4);
        let pool = open(&device, None);
        sim.set_rates(FaultRates { read_error: 0.3, ..FaultRates::default() });
        ask(&pool, &pages, seed, is_right_or_known);
        sim.set_rates(FaultRates::default());
        pool.residency().load(&[damaged]);
        let found = pool.shared(damaged).map(|guard| *guard.page());
        assert!(found.as_ref().is_ok_and(|page| page == &filled(fill_of(7))) || found.is_err());
        assert!(pages.iter().enumerate().any(|(index, page)| {
            fill_of(index) == fill_of(7) && matches!(pool.shared(*page), Err(Restart::Damaged(_)))
        }));
    });
}

/// Whoever waits for the pages of a pool that closes is told.
#[test]
fn requests_end_with_the_pool() {
    each_device(|device| {
        let pages = fill(&device);
        for _ in 0..20 {
            let pool = open(&device, None);
            let (told, is_open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
            for chunk in pages.chunks(50) {
                let (told, is_open) = (told.clone(), is_open.clone());
                let done = move || {
                    assert!(is_open.load(Ordering::SeqCst), "nobody is told afterwards");
                    told.fetch_add(1, Ordering::SeqCst);
                };
                pool.residency().load_in_background(chunk.to_vec(), Box::new(done));
            }
            drop(pool);
            is_open.store(false, Ordering::SeqCst);
            assert_eq!(told.load(Ordering::SeqCst), pages.len().div_ceil(50));
        }
    });
}
