//! Checkpoints and restarts: what comes back is the last completed checkpoint.

use std::sync::mpsc;

use stillframe_store::{DbId, Deadline, Fault, NewValue, OpError, Options, Store, Worker};

use crate::contract::{wait_for_garbage, Mix, Run};
use stillframe_testkit::{seed, TempDir};

use crate::open;

/// Pages of the catalog in use; each checkpoint has its own.
const CATALOG_PAGES: u64 = 2;

#[test]
fn a_store_comes_back_as_of_its_last_checkpoint() {
    let dir = TempDir::new("store");
    let options = Options { database_count: 2, checkpoint_on_drop: false, ..Options::default() };
    let mut run = Run::new(seed(), Mix { key_count: 1_500, value_max: 40_000, databases: 2 });
    for round in 0..4 {
        let store = open(&dir, options.clone());
        assert_eq!(store.is_new(), round == 0);
        let mut worker = store.nonblocking_worker().unwrap();
        wait_until_warm(&store, &mut worker);
        run.compare(&store, &mut worker);
        for _ in 0..6_000 {
            run.step(&mut worker);
        }
        let report = worker.idle(|| store.checkpoint()).unwrap();
        assert!(report.pages_changed > 0);
        assert_eq!(store.changes_since_save(), 0);
        let saved = run.model.clone();
        for _ in 0..500 {
            run.step(&mut worker);
        }
        assert!(store.changes_since_save() > 0);
        run.model = saved;
    }
    let store = open(&dir, options);
    let mut worker = store.nonblocking_worker().unwrap();
    wait_until_warm(&store, &mut worker);
    run.compare_view(&store, &mut worker);
    run.compare(&store, &mut worker);
}

pub fn wait_until_warm(store: &Store, worker: &mut Worker) {
    while store.is_warming_up() {
        worker.idle(|| std::thread::sleep(std::time::Duration::from_millis(1)));
    }
    worker.quiesce();
}

fn load(store: &Store, worker: &mut Worker, fault: Fault) {
    let (sender, receiver) = mpsc::channel();
    store.load(fault, Box::new(move || sender.send(()).expect("the waiter is there")));
    worker.idle(|| receiver.recv()).expect("the load reports");
}

/// Runs an operation as a server does: on a fault, load and run it again.
fn retried<R>(
    store: &Store,
    worker: &mut Worker,
    mut operation: impl FnMut(&mut Worker) -> Result<R, OpError>,
) -> R {
    for _ in 0..10_000 {
        match operation(worker) {
            Ok(result) => return result,
            Err(OpError::Fault(fault)) => load(store, worker, fault),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the pages never come");
}

fn value_of(number: u32) -> Vec<u8> {
    let len = [20, 700, 5_000, 50_000][number as usize % 4];
    vec![number as u8; len]
}

/// Right after a restart every operation either succeeds or faults without having changed anything.
#[test]
fn operations_fault_before_they_change_anything() {
    let dir = TempDir::new("store");
    let db = DbId(0);
    let names: Vec<String> = (0..3_000u32).map(|i| format!("key:{i}")).collect();
    {
        let store = open(&dir, Options::default());
        let mut worker = store.nonblocking_worker().unwrap();
        for (number, name) in (0..).zip(&names) {
            let key = worker.key(name.as_bytes());
            let bytes = value_of(number);
            worker.set(db, &key, NewValue::Bytes { bytes: &bytes, raw: false }, Deadline::Clear).unwrap();
        }
        worker.idle(|| store.checkpoint()).unwrap();
    }
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    assert_eq!(store.db_stats(db).key_count, names.len() as u64);
    let mut random = fastrand::Rng::with_seed(seed());
    let mut expected: Vec<Vec<u8>> = (0..names.len() as u32).map(value_of).collect();
    let mut order: Vec<usize> = (0..names.len()).collect();
    random.shuffle(&mut order);
    for index in order {
        let name = names[index].as_bytes();
        match random.u32(..4) {
            0 => expected[index] = vec![7; random.usize(..20_000)],
            1 => {
                let length = retried(&store, &mut worker, |worker| {
                    worker.string_at(db, &worker.key(name)).write_range(10, b"written")
                });
                assert_eq!(length, expected[index].len() as u64);
                expected[index][10..17].copy_from_slice(b"written");
                continue;
            }
            _ => {
                let key = worker.key(name);
                while let Err(OpError::Fault(fault)) = worker.resolve(&[(db, key)]) {
                    load(&store, &mut worker, fault);
                }
                let found = worker.get(db, &key, |value| value.to_vec()).expect("resolved");
                assert!(found.as_deref() == Some(&expected[index]));
                continue;
            }
        }
        let bytes = &expected[index];
        assert!(retried(&store, &mut worker, |worker| {
            let value = NewValue::Bytes { bytes, raw: false };
            worker.set(db, &worker.key(name), value, Deadline::Clear)
        }));
    }
    wait_until_warm(&store, &mut worker);
    wait_for_garbage(&store, &mut worker);
    for (name, bytes) in names.iter().zip(&expected) {
        let found = worker.get(db, &worker.key(name.as_bytes()), |value| value.to_vec()).unwrap();
        assert!(found.as_ref() == Some(bytes), "{name}");
    }
    assert_eq!(store.check().unwrap().key_count, names.len() as u64);
}

/// Deadlines are found again after a restart, although no page says when its leaf is due.
#[test]
fn expiry_goes_on_after_a_restart() {
    let dir = TempDir::new("store");
    let db = DbId(3);
    {
        let store = open(&dir, Options::default());
        let mut worker = store.nonblocking_worker().unwrap();
        worker.set_now(1_000);
        for i in 0..2_000 {
            let name = format!("key:{i}");
            let key = worker.key(name.as_bytes());
            let deadline = if i % 2 == 0 { Deadline::At(60_000) } else { Deadline::Clear };
            worker.set(db, &key, NewValue::Int(i), deadline).unwrap();
        }
        worker.idle(|| store.checkpoint()).unwrap();
    }
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    wait_until_warm(&store, &mut worker);
    worker.set_now(70_000);
    let mut expired = 0;
    worker
        .upkeep()
        .expire_cycle(std::time::Duration::from_secs(5), |at, _| expired += u32::from(at == db))
        .unwrap();
    assert_eq!((expired, worker.expired_counts().0), (1_000, 1_000));
    assert_eq!(store.db_stats(db).key_count, 1_000);
    assert_eq!(store.db_stats(db).deadline_count, 0);
    store.check().unwrap();
}

/// Counts of a save say nothing once it has ended, and the next one does not add to them.
#[test]
fn the_progress_of_a_save_ends_with_it() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    for round in 0..3 {
        for i in 0..2_000 {
            let name = format!("key:{i}");
            worker.set(DbId(0), &worker.key(name.as_bytes()), NewValue::Int(round), Deadline::Clear).unwrap();
        }
        worker.idle(|| store.checkpoint()).unwrap();
        let progress = store.save_progress();
        assert!(!progress.running && (progress.pages_done, progress.pages_total) == (0, 0), "{progress:?}");
    }
}

/// A flushed database whose pages are not freed yet when the process ends does not leak them.
#[test]
fn garbage_survives_a_restart() {
    let dir = TempDir::new("store");
    {
        let store = open(&dir, Options::default());
        let mut worker = store.nonblocking_worker().unwrap();
        for i in 0..40_000 {
            let name = format!("key:{i}");
            let key = worker.key(name.as_bytes());
            let value = NewValue::Bytes { bytes: &[1; 900], raw: false };
            worker.set(DbId(0), &key, value, Deadline::Clear).unwrap();
        }
        worker.database(DbId(0)).flush().unwrap();
        worker.idle(|| store.checkpoint()).unwrap();
    }
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    wait_until_warm(&store, &mut worker);
    wait_for_garbage(&store, &mut worker);
    assert_eq!(store.check().unwrap().key_count, 0);
}

/// What changes nothing dirties no page.
#[test]
fn reads_and_refused_writes_leave_pages_clean() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    let db = DbId(0);
    for number in 0..2_000u32 {
        let (name, bytes) = (number.to_string(), value_of(number));
        let key = worker.key(name.as_bytes());
        worker.set(db, &key, NewValue::Bytes { bytes: &bytes, raw: false }, Deadline::Clear).unwrap();
    }
    worker.idle(|| store.checkpoint()).unwrap();
    for number in 0..2_000u32 {
        let name = number.to_string();
        let mut key = worker.key(name.as_bytes());
        worker.prefetch().all(db, std::slice::from_mut(&mut key));
        assert_eq!(worker.get(db, &key, |value| value.len()).unwrap(), Some(value_of(number).len() as u64));
        assert!(worker.touch(db, &key).unwrap() && worker.entry(db, &key).unwrap().is_some());
        assert!(worker.set_deadline(db, &key, None).unwrap());
        let absent = format!("absent:{number}");
        assert!(!worker.remove(db, &worker.key(absent.as_bytes())).unwrap());
        assert!(!worker.set_deadline(db, &worker.key(absent.as_bytes()), Some(5)).unwrap());
    }
    assert!(worker.database(db).random_key().unwrap().is_some());
    while worker.database(db).scan(0, 10_000, |_, _| ()).unwrap() != 0 {}
    assert_eq!(worker.idle(|| store.checkpoint()).unwrap().pages_changed, CATALOG_PAGES);
}

/// A write to a part of a large value dirties the page that it touches, and no other.
#[test]
fn writes_into_large_values_dirty_single_pages() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    let (db, key) = (DbId(0), worker.key(b"large"));
    let value = vec![1; 8 << 20];
    worker.set(db, &key, NewValue::Bytes { bytes: &value, raw: true }, Deadline::Clear).unwrap();
    worker.idle(|| store.checkpoint()).unwrap();
    worker.string_at(db, &key).write_range(5 << 20, b"changed").unwrap();
    assert_eq!(worker.idle(|| store.checkpoint()).unwrap().pages_changed, CATALOG_PAGES + 1);
}

#[test]
fn a_directory_is_used_by_one_store_at_a_time() {
    let dir = TempDir::new("store");
    let _store = open(&dir, Options::default());
    let error = Store::open(dir.path(), Options::default()).err().expect("locked");
    assert!(error.to_string().contains("in use"), "{error}");
}
