//! Pages that are still being brought in: frees, allocations and views meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

use stillframe_pagepool::device::{Device, HookedDevice, SimDevice};
use stillframe_pagepool::pagefile::USER_HEADER_BYTES;
use stillframe_pagepool::snapshot::Progress;
use stillframe_pagepool::{CheckpointError, PageId, Pool, Restart, SnapshotKind, PAGE_SIZE};

use crate::support::*;

/// Gates before the reads of the first pages with these contents.
fn gates<const COUNT: usize>(device: &HookedDevice, fills: [u8; COUNT]) -> [Arc<Gate>; COUNT] {
    let gates = fills.map(|fill| (offset_of(device, fill), Arc::new(Gate::default())));
    let passed = gates.clone();
    device.before_read(Arc::new(move |read| {
        let range = read.offset..read.offset + read.byte_len;
        let in_the_way = passed.iter().find(|(place, _)| range.contains(place));
        in_the_way.into_iter().for_each(|(_, gate)| gate.pass());
    }));
    gates.map(|(_, gate)| gate)
}

fn offset_of(device: &HookedDevice, fill: u8) -> u64 {
    let image = device.inner().image();
    let page = filled(fill);
    (image.chunks(PAGE_SIZE).position(|found| found == page).unwrap() * PAGE_SIZE) as u64
}

const BUDGET: u64 = 1 << 20;
/// Content of pages that only fill the page file.
const SMALL: u8 = 200;

fn open(device: &Arc<HookedDevice>) -> Arc<Pool> {
    let device: Arc<dyn Device> = device.clone();
    Pool::open(device, &options(SnapshotKind::Epoch, BUDGET)).unwrap().0
}

fn checkpoint(pool: &Arc<Pool>) {
    pool.checkpoint(|| Ok([0; USER_HEADER_BYTES]), &Progress::default()).unwrap();
}

/// A page file with `small_count` small pages before an object of 40 pages with contents 1, 2, …
fn device_with_object(small_count: u32) -> (Arc<HookedDevice>, PageId) {
    let device = HookedDevice::new(SimDevice::new(1));
    let pool = open(&device);
    (0..small_count).for_each(|_| fill_page(&pool, new_object(&pool, 1, 0), SMALL));
    let mut object = pool.allocate_object(40, 40).unwrap();
    (0..40).for_each(|index| object.object_page_mut(index).unwrap().fill(index as u8 + 1));
    let head = object.id();
    drop(object);
    checkpoint(&pool);
    (device, head)
}

/// Pages of a freed object are not used again, nor is their memory given back, while a loader reads into them.
#[test]
fn an_object_is_freed_while_it_is_read() {
    // The warm-up is held up in its first batch, then in its second, which is the object but for its head.
    let (device, head) = device_with_object(3000);
    let [first_batch, second_batch] = gates(&device, [SMALL, 6]);
    let pool = open(&device);
    first_batch.wait_for_visitor();
    pool.residency().load(&[head]);
    let object = pool.try_exclusive(head).unwrap();
    first_batch.open();
    second_batch.wait_for_visitor();
    pool.free(object, 40);
    let meanwhile = pool.allocate_object(40, 40).unwrap();
    assert_ne!(meanwhile.id(), head, "pages that are being read are not used again");
    second_batch.open();
    pool.residency().wait_until_warm();
    let after = pool.allocate_object(40, 40).unwrap();
    assert_eq!(after.id(), head, "they are used again once they have been read");
    for index in 0..40 {
        assert!(after.object_page(index).unwrap() == &filled(0), "page {index} of a new object is zero");
    }
    assert_eq!(pool.stats().allocated_pages, 3080);
}

/// A free that a loader holds up is over before a checkpoint takes the pages off the map: what views see of them, in the page
/// file or in memory, is kept until then. `beside` runs until then.
fn hold_up_a_free(beside: impl Fn(&Pool) + Sync) {
    let (device, head) = device_with_object(3000);
    let [first_batch, second_batch] = gates(&device, [SMALL, 6]);
    let pool = open(&device);
    first_batch.wait_for_visitor();
    pool.residency().load(&[head]);
    let mut object = pool.try_exclusive(head).unwrap();
    object.object_page_mut(0).unwrap().fill(77);
    drop(object);
    first_batch.open();
    second_batch.wait_for_visitor();
    let view = pool.view_after(|| ()).unwrap();
    pool.free(pool.try_exclusive(head).unwrap(), 40);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let saver = scope.spawn(|| checkpoint(&pool));
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                beside(&pool);
            }
        });
        let since = Instant::now();
        while !saver.is_finished() && since.elapsed() < Duration::from_millis(300) {
            thread::sleep(Duration::from_millis(1));
        }
        second_batch.open();
        is_over.store(true, Ordering::Relaxed);
    });
    pool.residency().wait_until_warm();
    for index in 0..40 {
        let mut page = [0; PAGE_SIZE];
        view.read_page(PageId(head.0 + index), &mut page).unwrap();
        let expected = if index == 0 { 77 } else { index as u8 + 1 };
        assert!(page == filled(expected), "page {index}");
    }
    drop(view);
    assert_eq!(pool.stats().allocated_pages, 3000);
}

#[test]
fn a_view_sees_an_object_whose_free_is_held_up() {
    hold_up_a_free(|_| thread::sleep(Duration::from_millis(1)));
}

/// Who allocates takes the free up and puts it off again: all the time, whenever the checkpoint looks.
#[test]
fn a_view_sees_an_object_whose_free_is_tried_again_and_again() {
    hold_up_a_free(|pool| {
        let page = new_object(pool, 1, 0);
        pool.free(pool.try_exclusive(page).unwrap(), 1);
    });
}

/// A page that somebody has latched is in memory: an object of which one page is latched, by a stale hint say, is whole.
#[test]
fn a_latched_page_is_in_memory() {
    let pool = Pool::in_memory(&options(SnapshotKind::Epoch, BUDGET)).unwrap();
    let head = new_object(&pool, 4, 7);
    let hint = PageId(head.0 + 2);
    let latch = pool.exclusive(hint).unwrap();
    assert!(pool.is_resident(hint));
    let object = pool.shared(head).unwrap();
    assert!(object.object_page(2).unwrap() == &filled(7));
    drop((latch, object));
    let _latch = pool.shared(hint).unwrap();
    assert!(pool.exclusive(head).unwrap().object_page_mut(2).is_ok());
}

/// A page that somebody reads is not in memory, for anybody: who wants it faults at once instead of waiting for the disk.
#[test]
fn a_page_that_is_read_is_not_in_memory() {
    let (device, head) = device_with_object(0);
    let [gate] = gates(&device, [1]);
    let pool = open(&device);
    gate.wait_for_visitor();
    let (asked, answered) = mpsc::channel();
    let asker = pool.clone();
    thread::spawn(move || {
        let fault = Some(Restart::Fault(head));
        let all_fault = [
            asker.optimistic(head).err() == fault,
            asker.shared(head).err() == fault,
            asker.exclusive(head).err() == fault,
            asker.try_exclusive(head).err() == fault,
            !asker.is_resident(head),
        ];
        asked.send(all_fault).unwrap();
    });
    let all_fault = answered.recv_timeout(Duration::from_secs(10)).expect("nobody waits for the disk");
    assert_eq!(all_fault, [true; 5]);
    gate.open();
    pool.residency().load(&[head]);
    assert!(pool.shared(head).unwrap().page() == &filled(1), "who loads waits for the page");
}

/// The warm-up ends when nobody reads any more, not when its own last read has ended.
#[test]
fn the_warm_up_waits_for_other_loaders() {
    let (device, head) = device_with_object(3000);
    let (warm_up, loader) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let gates = [("sf-warm-up", warm_up.clone()), ("sf-load", loader.clone())];
    device.before_read(Arc::new(move |read| {
        let of_thread = gates.iter().filter(|(name, _)| read.thread.starts_with(name));
        of_thread.for_each(|(_, gate)| gate.pass());
    }));
    let pool = open(&device);
    warm_up.wait_for_visitor();
    pool.residency().load_in_background(vec![PageId(head.0 + 5)], Box::new(|| ()));
    loader.wait_for_visitor();
    warm_up.open();
    thread::sleep(Duration::from_millis(200));
    assert!(pool.residency().is_warming_up(), "a page is still being read");
    loader.open();
    pool.residency().wait_until_warm();
    assert!(pool.shared(head).unwrap().object_page(5).unwrap() == &filled(6));
}

/// A view shows what is in the page file, also when it is asked for while that is still being read; and who changes it
/// afterwards, or frees it, changes nothing of the view.
#[test]
fn a_view_begins_before_the_end_of_the_warm_up() {
    let (device, head) = device_with_object(3000);
    let [first_batch] = gates(&device, [SMALL]);
    let pool = open(&device);
    first_batch.wait_for_visitor();
    let view = pool.view_after(|| ()).unwrap();
    let shown = |index: u32| {
        let mut bytes = filled(0);
        view.read_page(PageId(head.0 + index), &mut bytes).unwrap();
        bytes
    };
    assert!(!pool.is_resident(head) && shown(5) == filled(6));
    pool.residency().load(&[head, PageId(head.0 + 5)]);
    let mut object = pool.try_exclusive(head).unwrap();
    object.object_page_mut(5).unwrap().fill(77);
    pool.free(object, 40);
    assert!((0..40).all(|index| shown(index) == filled(index as u8 + 1)));
    first_batch.open();
    // Nor does a checkpoint that has the object no more.
    (0..2).for_each(|_| checkpoint(&pool));
    assert!((0..40).all(|index| shown(index) == filled(index as u8 + 1)));
    drop(view);
    assert_eq!(pool.file().unwrap().stats().spilled_slots, 0, "nothing is kept for nobody");
}

/// A damaged page is an error in a view too, with its place, until it is freed and used again.
#[test]
fn a_view_reports_damage() {
    let (device, head) = device_with_object(0);
    let offset = offset_of(&device, 6);
    device.inner().corrupt(offset + 7, 1, |bytes| bytes[0] ^= 1);
    let pool = open(&device);
    pool.residency().wait_until_warm();
    let view = pool.view_after(|| ()).unwrap();
    let damaged = PageId(head.0 + 5);
    for index in 0..40 {
        let mut bytes = filled(0);
        match view.read_page(PageId(head.0 + index), &mut bytes) {
            Ok(()) => assert!(index != 5 && bytes == filled(index as u8 + 1), "page {index}"),
            Err(CheckpointError::Io(reason)) => {
                assert!(index == 5 && reason.contains(&offset.to_string()), "page {index}: {reason}");
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    free_object(&pool, head, 40);
    assert_eq!(pool.residency().damaged_pages().page_count, 0, "it is in use no more");
    let read = view.read_page(damaged, &mut filled(0));
    assert!(
        matches!(read, Err(CheckpointError::Io(_))),
        "freed after the cut, and damaged all the same: {read:?}"
    );
    drop(view);
    // Its memory is given back in the background before it can be used again.
    let since = Instant::now();
    while new_object(&pool, 40, 9) != head {
        assert!(since.elapsed() < Duration::from_secs(20), "the pages are not used again");
        thread::sleep(Duration::from_millis(1));
    }
    let view = pool.view_after(|| ()).unwrap();
    let mut bytes = filled(0);
    view.read_page(damaged, &mut bytes).unwrap();
    assert!(bytes == filled(9));
    free_object(&pool, head, 40);
    assert_eq!(pool.shared(damaged).err(), Some(Restart::Fault(damaged)), "freed, not damaged");
}

/// The same when freed pages that the view sees are moved to the page file, as snapshots hold too much: what a damaged page
/// has in memory is nobody's content.
#[test]
fn a_damaged_page_is_not_kept_for_a_view() {
    let (device, head) = device_with_object(400);
    device.inner().corrupt(offset_of(&device, 6) + 7, 1, |bytes| bytes[0] ^= 1);
    let pool = open(&device);
    pool.residency().wait_until_warm();
    let small: Vec<_> = (0..head.0).map(PageId).filter(|page| pool.is_resident(*page)).collect();
    small.iter().for_each(|&page| fill_page(&pool, page, 76));
    let view = pool.view_after(|| ()).unwrap();
    let damaged = PageId(head.0 + 5);
    // The budget is 256 pages; each of these, which are not in the page file as they are, is kept for the view, and the
    // object's come on top.
    small.iter().for_each(|&page| fill_page(&pool, page, 77));
    let (before, since) = (pool.file().unwrap().stats().spilled_slots, Instant::now());
    free_object(&pool, head, 40);
    // Allocations pay off what is above the budget.
    while pool.file().unwrap().stats().spilled_slots < before + 39 {
        assert!(since.elapsed() < Duration::from_secs(20), "nothing is spilled");
        new_object(&pool, 1, 78);
    }
    for index in (0..40).filter(|index| *index != 5) {
        let mut bytes = filled(0);
        view.read_page(PageId(head.0 + index), &mut bytes).unwrap();
        assert!(bytes == filled(index as u8 + 1), "page {index}");
    }
    let mut bytes = filled(0);
    let read = view.read_page(damaged, &mut bytes);
    assert!(
        matches!(&read, Err(CheckpointError::Io(reason)) if reason.contains("byte")),
        "{read:?}: {}",
        bytes[0]
    );
}

/// A page number that a damaged file has made up is an error, not a panic.
#[test]
fn there_is_no_such_page() {
    let (device, head) = device_with_object(0);
    let pool = open(&device);
    for page in [PageId(u32::MAX), PageId(1 << 30)] {
        assert!(matches!(pool.shared(page), Err(Restart::Damaged(_))));
        assert!(matches!(pool.exclusive(page), Err(Restart::Damaged(_))));
        assert!(matches!(pool.try_exclusive(page), Err(Restart::Damaged(_))));
        assert!(matches!(pool.optimistic(page), Err(Restart::Damaged(_))));
        assert!(!pool.is_resident(page));
        pool.residency().load(&[page]);
        let view = pool.view_after(|| ()).unwrap();
        assert!(view.read_page(page, &mut filled(0)).is_err());
    }
    pool.residency().wait_until_warm();
    let object = pool.shared(head).unwrap();
    assert!(matches!(object.object_page(u32::MAX), Err(Restart::Damaged(_))));
    // Nor is one that nobody has allocated found.
    let unused = PageId(head.0 + 40);
    pool.residency().load(&[unused]);
    assert!(matches!(pool.shared(unused), Err(Restart::Damaged(_))));
}

/// What is copied past memory is what the pages have, while others bring them in and the evictor writes them back and lets
/// them go; it brings none in itself.
#[test]
fn pages_that_nobody_changes_are_copied_past_memory() {
    let device = HookedDevice::new(SimDevice::new(1));
    let pool = open(&device);
    pool.set_memory_pages(Some(256));
    let fill_of = |index: u32| (index % 199) as u8 + 1;
    let head = {
        // What a member of the barrier has found in memory stays there until it is between two commands.
        let _member = pool.join();
        let mut object = pool.allocate_object(1_000, 1_000).unwrap();
        (0..1_000).for_each(|index| object.object_page_mut(index).unwrap().fill(fill_of(index)));
        object.id()
    };
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    for round in 0..200 {
        let first = random.u32(..900);
        if round % 3 == 0 {
            let wanted: Vec<PageId> = (first..first + 20).map(|index| PageId(head.0 + index)).collect();
            pool.residency().load(&wanted);
        }
        let mut copies = vec![stillframe_pagepool::device::PageBuf::ZERO; 100];
        let before = pool.metrics().loaded_page_count.load(std::sync::atomic::Ordering::Relaxed);
        let mut wanted: Vec<_> = copies
            .iter_mut()
            .enumerate()
            .map(|(at, into)| (PageId(head.0 + first + at as u32), into))
            .collect();
        pool.residency().copy_unchanging(&mut wanted).unwrap();
        let after = pool.metrics().loaded_page_count.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(after, before, "it brings none in");
        for (at, copy) in copies.iter().enumerate() {
            assert!(
                copy.0 == filled(fill_of(first + at as u32)),
                "page {at} from {first} on in round {round}"
            );
        }
    }
    let evicted = pool.metrics().evicted_page_count.load(std::sync::atomic::Ordering::Relaxed);
    assert!(evicted > 500, "{evicted} pages have been evicted");
    let mut none = [(PageId(u32::MAX), &mut stillframe_pagepool::device::PageBuf::ZERO.clone())];
    assert!(matches!(pool.residency().copy_unchanging(&mut none), Err(Restart::Damaged(_))));
}
