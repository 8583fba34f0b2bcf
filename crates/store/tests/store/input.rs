//! What an embedder may get wrong with a worker: an error says so, and the data is what it was.

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stillframe_pagepool::device::DeviceError;
use stillframe_pagepool::pagefile::PageFileError;
use stillframe_store::{
    Access, DbId, Deadline, EvictionPolicy, Incoming, NewValue, OpError, OpenError, Options, Reach, Refusal,
    SlabNeeds, Store, Worker,
};
use stillframe_testkit::TempDir;

use crate::open;

const DB: DbId = DbId(0);
const LONG: u64 = 2_000_000;

fn bytes(bytes: &[u8]) -> NewValue<'_> {
    NewValue::Bytes { bytes, raw: true }
}

fn is_no_database<R: std::fmt::Debug>(result: Result<R, OpError>, number: u32) {
    let OpError::NoDatabase { db, database_count } = result.expect_err("there is no such database") else {
        panic!("another error")
    };
    assert_eq!((db, database_count), (DbId(number), 16));
}

#[test]
fn a_database_that_there_is_not_is_an_error() {
    let dir = TempDir::new("input");
    let store = open(&dir, Options::default());
    let mut worker = store.worker();
    let mut key = worker.key(b"k");
    worker.set(DB, &key, bytes(b"v"), Deadline::Clear).unwrap();
    for number in [16, 99, u32::MAX] {
        let db = DbId(number);
        is_no_database(worker.set(db, &key, bytes(b"v"), Deadline::Clear), number);
        is_no_database(worker.set(db, &key, bytes(b"v"), Deadline::At(1)), number);
        is_no_database(worker.string_at(db, &key).set_until(bytes(b"v"), 1), number);
        is_no_database(worker.string_at(db, &key).write_range(1, b"v"), number);
        is_no_database(worker.get(db, &key, |value| value.len()), number);
        is_no_database(worker.string_at(db, &key).get_part(|_| 0..1, |value| value.len()), number);
        is_no_database(worker.string_at(db, &key).begin_sending(|len| 0..len), number);
        is_no_database(worker.string_at(db, &key).begin_duplicate(false), number);
        is_no_database(worker.collection_at(db, &key).begin_copies(), number);
        is_no_database(worker.collection_at(db, &key).exceeds(1), number);
        is_no_database(worker.entry(db, &key), number);
        is_no_database(worker.touch(db, &key), number);
        is_no_database(worker.memory_bytes(db, &key), number);
        is_no_database(worker.set_deadline(db, &key, Some(1)), number);
        is_no_database(worker.remove(db, &key), number);
        is_no_database(worker.make_way(db, &key, [1].into_iter()), number);
        is_no_database(worker.rename((db, &key), (DB, &key)), number);
        is_no_database(worker.rename((DB, &key), (db, &key)), number);
        is_no_database(worker.copy((db, &key), (DB, &key)), number);
        is_no_database(worker.copy((DB, &key), (db, &key)), number);
        is_no_database(worker.database(db).scan(0, 10, |_, _| ()), number);
        is_no_database(worker.database(db).random_key(), number);
        is_no_database(worker.database(db).flush(), number);
        is_no_database(worker.database(db).swap_with(DB), number);
        is_no_database(worker.database(DB).swap_with(db), number);
        is_no_database(collections(&mut worker, db, 0), number);
        is_no_database(collections(&mut worker, db, 1), number);
        is_no_database(collections(&mut worker, db, 2), number);
        is_no_database(collections(&mut worker, db, 3), number);
        is_no_database(collections(&mut worker, db, 4), number);
        // What cannot say so does nothing.
        worker.prefetch().all(db, &mut [key]);
        worker.prefetch().node(db, &mut key);
        worker.set_access(db, &key, Access::Idle { seconds: 1 });
        drop(worker.lock(&[(db, key)], true));
        assert_eq!(store.db_stats(db).key_count, 0);
        assert!(store.accesses().of(db, b"k", 0).is_none());
        let view = worker.idle(|| store.view()).unwrap();
        assert_eq!(view.db_stats(db).key_count, 0);
        assert!(store.with_viewed(&view, db, b"k", |entry| entry.is_none()).unwrap());
    }
    assert_eq!(worker.get(DB, &key, |value| value.to_vec()).unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(worker.change_count(), 1);
    worker.idle(|| store.check()).unwrap();
}

fn collections(worker: &mut Worker, db: DbId, case: u32) -> Result<(), OpError> {
    let (key, one) = (worker.key(b"c"), [&b"m"[..]]);
    match case {
        0 => worker.set_at(db, &key).add(&one).map(drop),
        1 => worker.list_at(db, &key).push(stillframe_store::End::Left, &one, false).map(drop),
        2 => worker.sorted_set_at(db, &key).put(&[(1.0, one[0])], &Default::default()).map(drop),
        3 => worker.hash_at(db, &key).len().map(drop),
        _ => worker.set_at(db, &key).replace(&one, None),
    }
}

fn come(worker: &mut Worker, len_bytes: u64) -> Incoming {
    let mut incoming = worker.begin_incoming(LONG).unwrap();
    incoming.append(&vec![7; len_bytes as usize]).unwrap();
    incoming
}

#[test]
fn a_value_that_has_not_come_is_not_stored() {
    let (dir, other_dir) = (TempDir::new("input"), TempDir::new("input"));
    let (store, other) = (open(&dir, Options::default()), open(&other_dir, Options::default()));
    let (mut worker, mut stranger) = (store.worker(), other.worker());
    let (key, next) = (worker.key(b"k"), worker.key(b"next"));
    worker.set(DB, &key, bytes(b"old"), Deadline::Clear).unwrap();
    let half = come(&mut worker, LONG / 2);
    let error = worker.set(DB, &key, NewValue::Incoming(&half), Deadline::Clear).unwrap_err();
    assert!(matches!(error, OpError::Incomplete { filled_bytes: 1_000_000, len_bytes: LONG }), "{error}");
    let error = worker.string_at(DB, &key).set_until(NewValue::Incoming(&half), i64::MAX).unwrap_err();
    assert!(matches!(error, OpError::Incomplete { .. }), "{error}");
    let foreign = come(&mut stranger, LONG);
    let error = worker.set(DB, &key, NewValue::Incoming(&foreign), Deadline::Clear).unwrap_err();
    assert!(matches!(error, OpError::OtherStore), "{error}");
    assert!(matches!(worker.begin_reading(&foreign), Err(OpError::OtherStore)));
    assert_eq!(worker.get(DB, &key, |value| value.to_vec()).unwrap().as_deref(), Some(&b"old"[..]));
    let whole = come(&mut worker, LONG);
    worker.set(DB, &key, NewValue::Incoming(&whole), Deadline::Clear).unwrap();
    let error = worker.set(DB, &next, NewValue::Incoming(&whole), Deadline::Clear).unwrap_err();
    assert!(matches!(error, OpError::Used), "{error}");
    assert!(matches!(worker.begin_incoming(1), Err(OpError::TooSmall)));
    drop((half, foreign, whole));
    worker.idle(|| store.check()).unwrap();
    worker.idle(|| store.checkpoint()).unwrap();
}

/// A copy of a long value that is not whole, is used again, or is taken to another store.
#[test]
fn a_copy_is_used_once_and_whole() {
    let (dir, other_dir) = (TempDir::new("input"), TempDir::new("input"));
    let (store, other) = (open(&dir, Options::default()), open(&other_dir, Options::default()));
    let (mut worker, mut stranger) = (store.worker(), other.worker());
    let value: Vec<u8> = (0..LONG).map(|at| at as u8).collect();
    let keys = [worker.key(b"source"), worker.key(b"a"), worker.key(b"b"), worker.key(b"c")];
    worker.set(DB, &keys[0], bytes(&value), Deadline::Clear).unwrap();
    let mut copy = worker.string_at(DB, &keys[0]).begin_duplicate(false).unwrap().expect("it is long");
    let error = worker.string_at(DB, &keys[0]).replace_by_duplicate(&copy).unwrap_err();
    assert!(matches!(error, OpError::Incomplete { .. }), "{error}");
    assert!(worker.copy_duplicate((DB, &keys[0]), (DB, &keys[1]), &copy).unwrap(), "another copy is made");
    while !copy.step().unwrap() {
        worker.quiesce();
    }
    let error = stranger.copy_duplicate((DB, &keys[0]), (DB, &keys[1]), &copy).unwrap_err();
    assert!(matches!(error, OpError::OtherStore), "{error}");
    assert!(worker.copy_duplicate((DB, &keys[0]), (DB, &keys[2]), &copy).unwrap());
    assert!(worker.copy_duplicate((DB, &keys[0]), (DB, &keys[3]), &copy).unwrap(), "and again");
    let error = worker.string_at(DB, &keys[0]).replace_by_duplicate(&copy).unwrap_err();
    assert!(matches!(error, OpError::Used), "{error}");
    drop(copy);
    worker.remove(DB, &keys[2]).unwrap();
    for key in [&keys[0], &keys[1], &keys[3]] {
        assert!(worker.get(DB, key, |found| found.to_vec()).unwrap().as_ref() == Some(&value));
    }
    worker.idle(|| store.check()).unwrap();
}

/// The hash of a key is its store's: under that of another one nothing would be found.
#[test]
fn a_key_is_of_the_store_that_made_it() {
    let (dir, other_dir) = (TempDir::new("input"), TempDir::new("input"));
    let (store, other) = (open(&dir, Options::default()), open(&other_dir, Options::default()));
    let (mut worker, stranger) = (store.worker(), other.worker());
    let (own, foreign) = (worker.key(b"own"), stranger.key(b"k"));
    worker.set(DB, &own, NewValue::Int(1), Deadline::Clear).unwrap();
    let errors = [
        worker.set(DB, &foreign, NewValue::Int(1), Deadline::Clear).map(drop),
        worker.string_at(DB, &foreign).write_range(0, b"v").map(drop),
        worker.rename((DB, &own), (DB, &foreign)).map(drop),
        worker.rename((DB, &own), (DbId(1), &foreign.detach().attach(b"k"))).map(drop),
        worker.copy((DB, &own), (DB, &foreign)).map(drop),
        worker.set_at(DB, &foreign).add(&[&b"m"[..]]).map(drop),
        worker.set_at(DB, &foreign).replace(&[b"m"], None),
    ];
    for error in errors {
        assert!(matches!(error, Err(OpError::OtherStore)), "{error:?}");
    }
    assert_eq!(store.db_stats(DB).key_count, 1);
    worker.idle(|| store.check()).unwrap();
}

#[test]
fn the_others_are_stopped_once() {
    let dir = TempDir::new("input");
    let store = open(&dir, Options { worker_count: 2, ..Options::default() });
    let mut worker = store.worker();
    let alone = worker.stop_others().unwrap();
    assert!(matches!(worker.stop_others(), Err(OpError::Busy)));
    let key = worker.key(b"k");
    worker.set(DB, &key, bytes(b"v"), Deadline::Clear).unwrap();
    drop(alone);
    drop(worker.stop_others().unwrap());
    // It may go last.
    let alone = worker.stop_others().unwrap();
    drop((worker, store));
    drop(alone);
    assert_eq!(open(&dir, Options::default()).db_stats(DB).key_count, 1);
}

fn unix_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

#[test]
fn a_worker_has_the_systems_clock_until_it_is_set() {
    let dir = TempDir::new("input");
    let store = open(&dir, Options::default());
    let mut worker = store.worker();
    let (key, late) = (worker.key(b"k"), worker.key(b"late"));
    let start = unix_ms();
    assert!(worker.now() >= start);
    worker.set(DB, &key, bytes(b"v"), Deadline::At(start + 50)).unwrap();
    worker.set(DB, &late, bytes(b"v"), Deadline::At(start + 3_600_000)).unwrap();
    assert!(!worker.set(DB, &worker.key(b"past"), bytes(b"v"), Deadline::At(1_000)).unwrap());
    std::thread::sleep(Duration::from_millis(100));
    assert!(worker.get(DB, &key, |value| value.len()).unwrap().is_none());
    assert_eq!((store.db_stats(DB).key_count, worker.expired_counts().0), (1, 1));
    worker.set_now(start + 3_600_001);
    assert_eq!(worker.now(), start + 3_600_001);
    assert!(worker.get(DB, &late, |value| value.len()).unwrap().is_none());
    assert_eq!(store.nonblocking_worker().unwrap().now(), 0, "the caller sets it");
}

/// Numbers from the ends of their types.
#[test]
fn extreme_numbers_do_no_harm() {
    let dir = TempDir::new("input");
    let store = open(&dir, Options::default());
    let mut worker = store.worker();
    let key = worker.key(b"k");
    store.accesses().track(Some(stillframe_store::Tracking::Recency), i64::MIN);
    store.accesses().track(Some(stillframe_store::Tracking::Recency), i64::MAX);
    for now in [i64::MIN, -1, i64::MAX - 1] {
        worker.set_now(now);
        worker.set(DB, &key, bytes(b"v"), Deadline::At(i64::MAX)).unwrap();
        assert_eq!(worker.get(DB, &key, |value| value.len()).unwrap(), Some(1));
        assert!(!worker.set(DB, &worker.key(b"past"), bytes(b"v"), Deadline::At(i64::MIN)).unwrap());
        worker.upkeep().expire_cycle(Duration::MAX, |_, _| ()).unwrap();
        assert_eq!(worker.database(DB).scan(u64::MAX, usize::MAX, |_, _| ()).unwrap(), 0);
        let field = [(&b"f"[..], &b"v"[..])];
        let hash = worker.key(b"h");
        worker
            .hash_at(DB, &hash)
            .set(&field, stillframe_store::FieldMode::All, Deadline::At(i64::MAX))
            .unwrap();
        worker.hash_at(DB, &hash).set_deadline(&[b"f"], Some(i64::MIN)).unwrap();
        worker.upkeep().expire_cycle(Duration::ZERO, |_, _| ()).unwrap();
    }
    assert!(matches!(worker.string_at(DB, &key).write_range(u64::MAX, b"v"), Err(OpError::TooLarge)));
    worker.resolve_reaching([(DB, key, Reach::WHOLE)].into_iter(), &SlabNeeds::any(usize::MAX)).unwrap();
    worker.upkeep().evict(EvictionPolicy::by_name("allkeys-lru").expect("a policy"), usize::MAX).unwrap();
    let part = worker.string_at(DB, &key).get_part(|len| u64::MAX..len, |value| value.len()).unwrap();
    assert!(part.is_none_or(|len| len == 1));
    worker.idle(|| store.check()).unwrap();
}

#[test]
fn a_view_is_asked_by_its_own_store() {
    let (dir, other_dir) = (TempDir::new("input"), TempDir::new("input"));
    let (store, other) = (open(&dir, Options::default()), open(&other_dir, Options::default()));
    store.hash("h").set("f", "v").unwrap();
    let view = store.view().unwrap();
    assert!(store.with_viewed(&view, DB, b"h", |entry| entry.is_some()).unwrap());
    assert!(other.with_viewed(&view, DB, b"h", |_| ()).unwrap_err().to_string().contains("another store"));
}

fn refusal(result: Result<Store, OpenError>) -> OpenError {
    result.err().expect("it is refused")
}

#[test]
fn errors_of_opening_name_what_is_in_the_way() {
    let dir = TempDir::new("input");
    let store = open(&dir, Options::default());
    let error = refusal(Store::open(dir.path(), Options::default()));
    assert!(matches!(error, OpenError::Locked(_)) && error.to_string().contains("of this one"), "{error}");
    let view = store.view().unwrap();
    drop(store);
    let error = refusal(Store::open(dir.path(), Options::default()));
    assert!(matches!(&error, OpenError::Refused(Refusal::Device(_))), "{error:?}");
    assert!(error.to_string().contains("a view of a store"), "{error}");
    assert!(error.source().is_some_and(|cause| cause.is::<DeviceError>()), "{error:?}");
    drop(view);
    let many = Options { database_count: 1_000_000_000, ..Options::default() };
    assert!(matches!(refusal(Store::open(dir.path(), many)), OpenError::Refused(Refusal::Databases { .. })));
    drop(open(&dir, Options::default()));
    let taken = TempDir::new("input");
    std::fs::create_dir(taken.path().join("stillframe.pages")).unwrap();
    let error = refusal(Store::open(taken.path(), Options::default()));
    assert!(matches!(&error, OpenError::Refused(Refusal::Directory(_))), "{error:?}");
    assert!(error.to_string().contains("directory"), "{error}");
    assert!(error.source().is_some_and(|cause| cause.is::<PageFileError>()), "{error:?}");
    let other = TempDir::new("input");
    std::fs::write(other.path().join("stillframe.pages"), [7; 100_000]).unwrap();
    let error = refusal(Store::open(other.path(), Options::default()));
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    assert!(matches!(cause, Some(PageFileError::NotAPageFile { .. })), "{error:?}");
}
