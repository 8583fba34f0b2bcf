//! The pool over a page file: checkpoints, restarts, crashes. Replay a failure with `STILLFRAME_SEED=<seed>`.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use stillframe_pagepool::device::{Device, DeviceError, DeviceErrorKind, DeviceOp, Fault, SimDevice};
use stillframe_pagepool::pagefile::{UserHeader, USER_HEADER_BYTES};
use stillframe_pagepool::snapshot::Progress;
use stillframe_pagepool::{CheckpointError, PageId, Pool, PoolOptions, Restart, SnapshotKind, PAGE_SIZE};
use stillframe_testkit::seed;

mod small_pool;

type Model = BTreeMap<PageId, (u32, u8)>;

fn options(kind: SnapshotKind) -> PoolOptions {
    small_pool::small_pool(kind, 1 << 20)
}

fn header(round: u8) -> UserHeader {
    [round; USER_HEADER_BYTES]
}

fn latch<T>(pool: &Pool, page: PageId, mut open: impl FnMut() -> Result<T, Restart>) -> T {
    loop {
        match open() {
            Ok(guard) => return guard,
            Err(Restart::Fault(missing)) => pool.residency().load(&[missing]),
            Err(Restart::Contended) => std::thread::yield_now(),
            Err(Restart::NoRoom | Restart::Looking) => panic!("there is no limit, and it does not look"),
            Err(Restart::Damaged(reason)) => panic!("{page:?}: {reason}"),
        }
    }
}

fn change(pool: &Pool, model: &mut Model, rng: &mut fastrand::Rng) {
    match rng.u32(..10) {
        0..=4 => {
            let count = *rng.choice(&[1, 1, 16, 30]).unwrap();
            let Ok(mut guard) = pool.allocate_object(count, count) else { return };
            let fill = rng.u8(..);
            (0..count).for_each(|index| guard.object_page_mut(index).unwrap().fill(fill));
            model.insert(guard.id(), (count, fill));
        }
        5 if !model.is_empty() => {
            let (&head, &(count, _)) = model.iter().nth(rng.usize(..model.len())).unwrap();
            let guard = latch(pool, head, || pool.exclusive(head));
            model.remove(&head);
            pool.free(guard, count);
        }
        _ if !model.is_empty() => {
            let (&head, &(count, _)) = model.iter().nth(rng.usize(..model.len())).unwrap();
            let fill = rng.u8(..);
            let mut guard = latch(pool, head, || pool.exclusive(head));
            for index in 0..count {
                let page = PageId(head.0 + index);
                latch(pool, page, || guard.object_page(index).map(|_| ()));
                guard.object_page_mut(index).unwrap().fill(fill);
            }
            model.insert(head, (count, fill));
        }
        _ => {}
    }
}

fn check(pool: &Pool, model: &Model) {
    for (&head, &(count, fill)) in model {
        let guard = latch(pool, head, || pool.shared(head));
        for index in 0..count {
            let page = PageId(head.0 + index);
            latch(pool, page, || guard.object_page(index).map(|_| ()));
            let found = guard.object_page(index).unwrap();
            assert!(
                found == &[fill; PAGE_SIZE],
                "{page:?} of {head:?}+{count}: {fill} expected, {} and {} found",
                found[0],
                found[4095]
            );
        }
    }
    let pages: u64 = model.values().map(|&(count, _)| u64::from(count)).sum();
    assert_eq!(pool.stats().allocated_pages, pages);
}

fn restarts(kind: SnapshotKind) {
    let seed = seed();
    let mut rng = fastrand::Rng::with_seed(seed);
    let device = Arc::new(SimDevice::new(seed));
    let (mut model, mut saved, mut round) = (Model::new(), Model::new(), 0u8);
    for restart in 0..12 {
        let as_device: Arc<dyn Device> = device.clone();
        let (pool, recovered) = Pool::open(as_device, &options(kind)).unwrap();
        assert_eq!(recovered.user_header, header(round), "restart {restart}");
        if rng.bool() {
            check(&pool, &saved);
        }
        model.clone_from(&saved);
        for _ in 0..rng.u32(1..5) {
            (0..rng.u32(..150)).for_each(|_| change(&pool, &mut model, &mut rng));
            round += 1;
            let stats = pool.checkpoint(move || Ok(header(round)), &Progress::default()).unwrap();
            assert!(stats.commit.written_bytes > 0);
            saved.clone_from(&model);
        }
        // Lost: no checkpoint follows.
        (0..50).for_each(|_| change(&pool, &mut model, &mut rng));
        drop(pool);
        device.crash();
    }
}

#[test]
fn epoch_restarts() {
    restarts(SnapshotKind::Epoch);
}

/// All the others.
#[test]
fn each_algorithm_restarts() {
    small_pool::kinds().filter(|&kind| kind != SnapshotKind::Epoch).for_each(restarts);
}

/// A damaged page is reported with its place and never served; the others are.
#[test]
fn damage_is_reported_and_not_served() {
    let device = Arc::new(SimDevice::new(1));
    let as_device: Arc<dyn Device> = device.clone();
    let (pool, _) = Pool::open(as_device.clone(), &options(SnapshotKind::Epoch)).unwrap();
    let pages: Vec<PageId> = (0..20)
        .map(|number| {
            let mut guard = pool.allocate().unwrap();
            guard.page_mut().fill(number + 1);
            guard.id()
        })
        .collect();
    pool.checkpoint(|| Ok(header(0)), &Progress::default()).unwrap();
    drop(pool);
    let image = device.image();
    let damaged_at =
        (0..image.len()).step_by(PAGE_SIZE).find(|&at| image[at..at + PAGE_SIZE] == [7; PAGE_SIZE]).unwrap();
    device.corrupt(damaged_at as u64 + 100, 1, |bytes| bytes[0] ^= 1);
    let (pool, _) = Pool::open(as_device, &options(SnapshotKind::Epoch)).unwrap();
    pool.residency().wait_until_warm();
    for (number, &page) in pages.iter().enumerate() {
        match pool.shared(page) {
            Ok(guard) => assert_eq!(guard.page(), &[number as u8 + 1; PAGE_SIZE]),
            Err(Restart::NoRoom | Restart::Looking) => panic!("there is no limit, and it does not look"),
            Err(Restart::Damaged(reason)) => {
                assert_eq!(number, 6);
                let offset = damaged_at.to_string();
                assert!(reason.contains(&offset), "the reason names the place {offset}: {reason}");
            }
            Err(other) => panic!("{page:?}: {other:?}"),
        }
    }
}

/// A device that fails for a while: its pages are tried again, and what has passed is forgotten. What is damaged for good
/// is counted until it is written anew.
#[test]
fn what_cannot_be_read_for_a_while_is_read_later() {
    let device = Arc::new(SimDevice::new(1));
    let as_device: Arc<dyn Device> = device.clone();
    let (pool, _) = Pool::open(as_device.clone(), &options(SnapshotKind::Epoch)).unwrap();
    let pages: Vec<PageId> = (0..5)
        .map(|number| {
            let mut guard = pool.allocate().unwrap();
            guard.page_mut().fill(number + 1);
            guard.id()
        })
        .collect();
    pool.checkpoint(|| Ok(header(0)), &Progress::default()).unwrap();
    drop(pool);
    // One failed read is not even noticed.
    let call_count = device.call_count();
    let (pool, _) = Pool::open(as_device.clone(), &options(SnapshotKind::Epoch)).unwrap();
    pool.residency().wait_until_warm();
    let reads = call_count..device.call_count();
    drop(pool);
    for call in 0..reads.count() as u64 {
        device.schedule(device.call_count() + call, Fault::Error);
        let (pool, _) = Pool::open(as_device.clone(), &options(SnapshotKind::Epoch)).unwrap();
        pool.residency().wait_until_warm();
        assert_eq!(pool.residency().damaged_pages().page_count, 0, "call {call}");
    }
    let (pool, _) = Pool::open(as_device, &options(SnapshotKind::Epoch)).unwrap();
    pool.residency().wait_until_warm();
    drop(pool);
    let failing = Arc::new(FailingReads { device, fails: AtomicBool::new(true) });
    let (pool, _) = Pool::open(failing.clone(), &options(SnapshotKind::Epoch)).unwrap();
    pool.residency().wait_until_warm();
    failing.fails.store(false, Ordering::SeqCst);
    assert_eq!(pool.residency().damaged_pages().page_count, pages.len());
    assert!(pool.residency().damaged_pages().examples[0].contains("Input/output error"));
    let Err(Restart::Damaged(reason)) = pool.shared(pages[0]).map(drop) else { panic!("it cannot be read") };
    let cause = reason.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    assert_eq!(cause.map(ToString::to_string).as_deref(), Some("Input/output error (os error 5)"));
    let is_readable = |page: &&PageId| match pool.shared(**page) {
        Err(Restart::Fault(missing)) => {
            pool.residency().load(&[missing]);
            pool.shared(**page).is_ok()
        }
        result => result.is_ok(),
    };
    assert_eq!(pages.iter().filter(is_readable).count(), 0, "not at once");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_eq!(pages.iter().filter(is_readable).count(), pages.len());
    assert_eq!(pool.residency().damaged_pages().page_count, 0);
}

/// A device that does not read what the warm-up asks for.
struct FailingReads {
    device: Arc<SimDevice>,
    fails: AtomicBool,
}

impl Device for FailingReads {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        let is_warm_up = std::thread::current().name() == Some("sf-warm-up");
        if is_warm_up && self.fails.load(Ordering::SeqCst) {
            let kind = DeviceErrorKind::Os(rustix::io::Errno::IO);
            return Err(DeviceError { device: "failing".into(), op: DeviceOp::Read, offset, len: 0, kind });
        }
        self.device.read_at(offset, bufs)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        self.device.write_at(offset, bufs)
    }

    fn sync_data(&self) -> Result<(), DeviceError> {
        self.device.sync_data()
    }

    fn len(&self) -> Result<u64, DeviceError> {
        self.device.len()
    }

    fn allocate(&self, len: u64) -> Result<(), DeviceError> {
        self.device.allocate(len)
    }

    fn truncate(&self, len: u64) -> Result<(), DeviceError> {
        self.device.truncate(len)
    }
}

/// A cut that fails is none: the checkpoint is not taken, and the next one has everything.
#[test]
fn a_cut_that_fails_fails_the_checkpoint() {
    let device = Arc::new(SimDevice::new(1));
    let as_device: Arc<dyn Device> = device.clone();
    let (pool, _) = Pool::open(as_device.clone(), &options(SnapshotKind::Epoch)).unwrap();
    let mut guard = pool.allocate().unwrap();
    guard.page_mut().fill(5);
    let page = guard.id();
    drop(guard);
    let failed = pool.checkpoint(|| Err(CheckpointError::Io("on purpose".into())), &Progress::default());
    assert_eq!(failed.unwrap_err().to_string(), "on purpose");
    assert_eq!(pool.file().unwrap().stats().pending_slots, 0);
    pool.checkpoint(|| Ok(header(3)), &Progress::default()).unwrap();
    drop(pool);
    let (pool, recovered) = Pool::open(as_device, &options(SnapshotKind::Epoch)).unwrap();
    assert_eq!(recovered.user_header, header(3));
    assert_eq!(latch(&pool, page, || pool.shared(page)).page(), &[5; PAGE_SIZE]);
}
