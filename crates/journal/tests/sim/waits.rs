//! Policies, stalls, bounds and failures.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stillframe_journal::{Journal, JournalError, JournalOptions, Offset, Piece, SyncPolicy, Watcher};
use stillframe_pagepool::device::{DeviceOp, Fault, Shelf, ShelfNumber, SimShelf};

use crate::support::{check, options, Mirror, Told, Value, SEGMENT_BYTES};

/// Longest that a test waits for something that is to come.
const PATIENCE: Duration = Duration::from_secs(20);

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Holds up operations of one kind, and counts them.
#[derive(Default)]
struct Stall {
    is_on: AtomicBool,
    count: AtomicU64,
}

impl Stall {
    fn of(shelf: &SimShelf, op: DeviceOp) -> Arc<Stall> {
        let stall = Arc::new(Stall::default());
        let inside = stall.clone();
        shelf.before_each(Arc::new(move |_, what| {
            if what == op {
                inside.count.fetch_add(1, Ordering::SeqCst);
                wait_until("the stall ends", || !inside.is_on.load(Ordering::SeqCst));
            }
        }));
        stall
    }

    fn set(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::SeqCst);
    }
}

fn begin(shelf: &SimShelf, options: JournalOptions) -> (Journal, Mirror, Arc<Told>) {
    let told = Arc::new(Told::default());
    let journal = Journal::begin(Arc::new(shelf.same()), Offset(0), options, told.clone()).unwrap();
    wait_until("the spares", || journal.report().spare_count == 2);
    (journal, Mirror::new(Offset(0)), told)
}

/// While one sync is under way all others gather: they share the next one.
#[test]
fn what_arrives_during_a_sync_is_the_next_batch() {
    let shelf = SimShelf::new(1);
    let (journal, mut mirror, told) = begin(&shelf, options(SyncPolicy::Always));
    let stall = Stall::of(&shelf, DeviceOp::Sync);
    stall.set(true);
    mirror.append(&journal, None, b"first", None);
    wait_until("the first sync", || stall.count.load(Ordering::SeqCst) == 1);
    for _ in 0..50 {
        mirror.append(&journal, None, b"one of many", None);
    }
    assert_eq!(journal.durable(), Offset(0), "nothing is durable before its sync has ended");
    stall.set(false);
    wait_until("durable", || journal.durable() == mirror.end());
    assert_eq!(stall.count.load(Ordering::SeqCst), 2);
    wait_until("told", || told.durable.load(Ordering::SeqCst) == mirror.end().0);
    let report = journal.report();
    assert_eq!((report.unit_count, report.sync_count), (51, 2));
}

#[test]
fn a_second_without_policy_syncs_nothing_until_somebody_asks() {
    let shelf = SimShelf::new(1);
    let (journal, mut mirror, _) = begin(&shelf, options(SyncPolicy::Never));
    let stall = Stall::of(&shelf, DeviceOp::Sync);
    mirror.append(&journal, None, b"written", None);
    wait_until("written", || journal.report().buffered_bytes == 0);
    std::thread::sleep(Duration::from_millis(1_200));
    assert_eq!((stall.count.load(Ordering::SeqCst), journal.durable()), (0, Offset(0)));
    journal.make_durable(mirror.end()).unwrap();
    assert_eq!(stall.count.load(Ordering::SeqCst), 1);
    // To `Always`: what was written without a sync gets one.
    mirror.append(&journal, None, b"written too", None);
    wait_until("written", || journal.report().buffered_bytes == 0);
    journal.set_sync(SyncPolicy::Always);
    wait_until("durable", || journal.durable() == mirror.end());
}

#[test]
fn once_a_second_is_once_a_second() {
    let shelf = SimShelf::new(1);
    // One segment is enough, since the begin of each is synced too.
    let options = JournalOptions { segment_bytes: 4 << 20, ..options(SyncPolicy::EverySecond) };
    let (journal, mut mirror, _) = begin(&shelf, options);
    let stall = Stall::of(&shelf, DeviceOp::Sync);
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(2_500) {
        mirror.append(&journal, None, b"again and again", None);
        std::thread::sleep(Duration::from_millis(5));
    }
    let count = stall.count.load(Ordering::SeqCst);
    assert!((2..=4).contains(&count), "{count} syncs");
    assert!(journal.durable() > Offset(0) && journal.has_room());
    wait_until("durable", || journal.durable() == mirror.end());
}

/// A sync that stalls: writing goes on; after two seconds there is no room until it has ended.
#[test]
fn a_sync_that_takes_two_seconds_makes_writers_wait() {
    let shelf = SimShelf::new(1);
    let (journal, mut mirror, told) = begin(&shelf, options(SyncPolicy::EverySecond));
    let stall = Stall::of(&shelf, DeviceOp::Sync);
    stall.set(true);
    mirror.append(&journal, None, b"before", None);
    wait_until("the sync", || stall.count.load(Ordering::SeqCst) == 1);
    mirror.append(&journal, None, b"during", None);
    wait_until("written", || journal.report().buffered_bytes == 0);
    assert!(journal.has_room() && journal.report().pending_sync_count == 1);
    wait_until("late", || !journal.has_room());
    wait_until("told", || *told.rooms.lock() == [false]);
    assert_eq!(journal.report().delayed_sync_count, 1);
    stall.set(false);
    wait_until("room", || journal.has_room());
    wait_until("told", || *told.rooms.lock() == [false, true]);
    wait_until("durable", || journal.durable() == mirror.end());
}

/// Append waits for nothing, whatever the device does; the bound is told, and taken back below three fourths.
#[test]
fn a_full_memory_is_told() {
    let shelf = SimShelf::new(1);
    let (journal, mut mirror, told) = begin(&shelf, options(SyncPolicy::Always));
    let stall = Stall::of(&shelf, DeviceOp::Write);
    stall.set(true);
    for _ in 0..64 {
        mirror.append(&journal, None, &[1; 4096], None);
    }
    assert!(journal.has_room(), "256 KB may wait");
    mirror.append(&journal, None, b"one more", None);
    assert!(!journal.has_room() && journal.buffered_bytes() > 256 << 10);
    wait_until("told", || *told.rooms.lock() == [false]);
    stall.set(false);
    wait_until("room", || journal.has_room());
    wait_until("told", || *told.rooms.lock() == [false, true]);
    journal.make_durable(mirror.end()).unwrap();
    assert_eq!(journal.buffered_bytes(), 0);
}

/// After a sync that failed nothing more is durable, though the next one would succeed.
#[test]
fn a_failed_sync_is_the_end() {
    for (policy, op) in [
        (SyncPolicy::Always, DeviceOp::Sync),
        (SyncPolicy::EverySecond, DeviceOp::Sync),
        (SyncPolicy::Always, DeviceOp::Write),
    ] {
        let shelf = SimShelf::new(1);
        let (journal, mut mirror, told) = begin(&shelf, options(policy));
        mirror.append(&journal, None, b"durable", None);
        journal.make_durable(mirror.end()).unwrap();
        let (durable, faulty) = (mirror.end(), shelf.same());
        shelf.before_each(Arc::new(move |_, what| {
            if what == op {
                faulty.schedule(faulty.call_count(), Fault::Error);
            }
        }));
        mirror.append(&journal, None, b"not durable", None);
        let error = journal.make_durable(mirror.end()).unwrap_err();
        assert!(error.to_string().contains("cannot be written"), "{error}");
        shelf.before_each(Arc::new(|_, _| {}));
        mirror.append(&journal, None, b"only counted", None);
        assert!(journal.make_durable(mirror.end()).is_err());
        assert_eq!(journal.durable(), durable);
        wait_until("dropped", || journal.report().buffered_bytes == 0);
        assert!(journal.failure().is_some());
        wait_until("told", || told.failures.lock().len() == 1);
        assert!(journal.close().is_err());
        assert_eq!(told.failures.lock().len(), 1, "told once");
    }
}

#[test]
fn a_value_that_cannot_be_read_is_the_end() {
    let shelf = SimShelf::new(1);
    let (journal, mut mirror, told) = begin(&shelf, options(SyncPolicy::Always));
    mirror.append(&journal, None, b"good", None);
    journal.make_durable(mirror.end()).unwrap();
    let place = stillframe_journal::Place { offset: Offset(0), ..journal.cut() };
    let value = Value { len_bytes: 100_000, salt: 0, is_broken: true };
    mirror.append(&journal, None, b"front", Some(value));
    assert!(journal.make_durable(mirror.end()).is_err());
    wait_until("told", || matches!(told.failures.lock()[..], [JournalError::Body { .. }]));
    drop(journal);
    assert_eq!(check(&shelf, place, None).unwrap().1.end, Offset(4));
}

/// Space lacks for the next spares, then for the next segment; what was appended meanwhile is written when there is some.
#[test]
fn lacking_space_passes() {
    let shelf = SimShelf::new(1);
    let (journal, mut mirror, told) = begin(&shelf, options(SyncPolicy::Always));
    let place = mirror.cut(&journal);
    shelf.set_capacity(3 * SEGMENT_BYTES);
    for _ in 0..20 {
        mirror.append(&journal, None, &[2; 5_000], None);
        journal.make_durable(mirror.end()).unwrap();
    }
    wait_until("told", || *told.spaces.lock() == [true]);
    assert!(journal.report().no_space);
    // They fit into two segments, however many of them the writer puts into one block.
    for _ in 0..10 {
        mirror.append(&journal, None, &[3; 5_000], None);
    }
    let end = mirror.end();
    std::thread::sleep(Duration::from_millis(100));
    assert!(journal.durable() < end && journal.failure().is_none());
    // A checkpoint names a later place: segments are free again.
    let later = stillframe_journal::Place { segment: journal.report().segment, ..place };
    journal.release_below(later);
    wait_until("durable", || journal.durable() == end);
    wait_until("told", || told.spaces.lock().last() == Some(&false) || journal.report().no_space);
    shelf.set_capacity(u64::MAX);
    wait_until("told", || told.spaces.lock().last() == Some(&false));
    assert_eq!(journal.close().unwrap(), end);
}

/// Units go on while there is one segment to come, and space for no other.
#[test]
fn a_second_spare_is_not_needed() {
    let shelf = SimShelf::new(1);
    let (journal, mut mirror, told) = begin(&shelf, options(SyncPolicy::Always));
    shelf.set_capacity(3 * SEGMENT_BYTES);
    while journal.report().spare_count > 1 {
        mirror.append(&journal, None, &[2; 5_000], None);
        journal.make_durable(mirror.end()).unwrap();
    }
    // More than the time between two attempts.
    std::thread::sleep(Duration::from_millis(1200));
    assert!(!journal.report().no_space && told.spaces.lock().is_empty());
}

#[test]
fn a_limit_is_lacking_space() {
    let shelf = SimShelf::new(1);
    let limit = JournalOptions { size_limit_bytes: Some(3 * SEGMENT_BYTES), ..options(SyncPolicy::Always) };
    let (journal, mut mirror, told) = begin(&shelf, limit);
    mirror.append(&journal, None, &[2; 150_000], None);
    journal.make_durable(mirror.end()).unwrap();
    wait_until("told", || *told.spaces.lock() == [true]);
    mirror.append(&journal, None, &[2; 150_000], None);
    let error = journal.close().unwrap_err();
    assert!(matches!(error, JournalError::NoSpace { .. }), "{error}");
}

/// Panics when it is told that something is durable.
struct Broken;

impl Watcher for Broken {
    fn durable(&self, _: Offset) {
        panic!("the watcher is broken, as the test wants it");
    }

    fn room(&self, _: bool) {}
    fn failed(&self, _: &JournalError) {}
    fn no_space(&self, _: bool) {}
}

/// Nobody waits for a thread that is not there any more.
#[test]
fn a_panic_of_a_watcher_ends_the_log() {
    for policy in [SyncPolicy::Always, SyncPolicy::EverySecond] {
        let shelf = Arc::new(SimShelf::new(1));
        let journal = Journal::begin(shelf, Offset(0), options(policy), Arc::new(Broken)).unwrap();
        let append =
            |bytes: &[u8]| journal.append(None, &mut [Piece::Bytes(bytes)].into_iter(), bytes.len() as u64);
        // Durable before the watcher was told.
        journal.make_durable(append(b"first")).unwrap();
        wait_until("failed", || journal.failure().is_some());
        let error = journal.make_durable(append(b"second")).unwrap_err();
        assert!(error.to_string().contains("fault of the program"), "{error}");
    }
}

/// A spare that has lost its name is not written to.
#[test]
fn a_spare_that_has_been_removed_is_the_end() {
    let shelf = SimShelf::new(1);
    let (journal, mut mirror, _) = begin(&shelf, options(SyncPolicy::Always));
    let next = ShelfNumber(journal.report().segment.0 + 1);
    shelf.remove(next).unwrap();
    mirror.append(&journal, None, &[2; 150_000], None);
    let error = journal.make_durable(mirror.end()).unwrap_err();
    assert!(error.to_string().contains("removed, renamed or replaced"), "{error}");
}

/// A SELECT is put where the stream has another database, and at the first unit after a cut.
#[test]
fn databases_are_selected() {
    let shelf = SimShelf::new(1);
    let (journal, mut mirror, _) = begin(&shelf, options(SyncPolicy::Always));
    let place = mirror.cut(&journal);
    for databases in [Some((0, 0)), Some((0, 1)), None, Some((1, 1)), Some((2, 2))] {
        mirror.append(&journal, databases, b"u", None);
    }
    mirror.cut(&journal);
    mirror.append(&journal, Some((2, 2)), b"u", None);
    assert_eq!(mirror.bytes, b"<SELECT 0>uuuu<SELECT 2>u<SELECT 2>u");
    journal.close().unwrap();
    assert_eq!(check(&shelf, place, None).unwrap().0.bytes, mirror.bytes);
}
