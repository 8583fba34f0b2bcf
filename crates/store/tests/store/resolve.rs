//! A command of several changes while pages are missing: what was resolved is all that it needs.

use std::sync::{mpsc, Arc};

use stillframe_pagepool::device::SimDevice;
use stillframe_store::{
    DbId, Deadline, Fault, Key, NewValue, OpError, Options, Reach, SlabNeeds, Store, Worker,
};

use stillframe_testkit::seed;

use crate::held_up::HeldUp;

const DB: DbId = DbId(0);

fn open(device: &Arc<HeldUp>) -> Store {
    let options = Options {
        database_count: 2,
        huge_pages: false,
        pool_backend: stillframe_testkit::pool_backend(),
        ..Options::default()
    };
    Store::open_on(device.clone(), options).unwrap()
}

fn set(worker: &mut Worker, name: &[u8], value: &[u8]) -> Result<bool, OpError> {
    let key = worker.key(name);
    worker.set(DB, &key, NewValue::Bytes { bytes: value, raw: true }, Deadline::Clear)
}

/// A checkpoint whose first 16 MB are of another database: what is behind them stays away.
fn checkpointed(fill: impl Fn(&mut Worker)) -> Arc<HeldUp> {
    let device = HeldUp::new(SimDevice::new(1));
    device.open();
    let store = open(&device);
    let mut worker = store.nonblocking_worker().unwrap();
    for number in 0..180_000 {
        let name = format!("other:{number}");
        let key = worker.key(name.as_bytes());
        let value = NewValue::Bytes { bytes: &[7; 100], raw: true };
        worker.set(DbId(1), &key, value, Deadline::Clear).unwrap();
    }
    fill(&mut worker);
    worker.idle(|| store.checkpoint()).unwrap();
    let image = device.inner.image();
    drop((worker, store));
    HeldUp::new(SimDevice::from_image(1, image))
}

fn load(store: &Store, worker: &mut Worker, fault: Fault) {
    let (done, is_done) = mpsc::channel();
    store.load(fault, Box::new(move || done.send(()).unwrap()));
    worker.idle(|| is_done.recv()).unwrap();
}

/// Runs `change` alone once everything is resolved, as a server runs a transaction.
fn alone<R>(
    store: &Store,
    names: &[Vec<u8>],
    change_count: usize,
    change: impl FnOnce(&mut Worker) -> R,
) -> R {
    let mut worker = store.nonblocking_worker().unwrap();
    loop {
        let alone = worker.stop_others().unwrap();
        let keys: Vec<(DbId, Key<'_>)> = names.iter().map(|name| (DB, worker.key(name))).collect();
        match worker.resolve_reaching(
            keys.iter().map(|(db, key)| (*db, *key, Reach::WHOLE)),
            &SlabNeeds::any(change_count),
        ) {
            Ok(()) => return change(&mut worker),
            Err(OpError::Fault(fault)) => {
                drop(alone);
                load(store, &mut worker, fault);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Two values of classes whose slabs are not in memory: neither SET may fault once both are resolved.
#[test]
fn slabs_with_free_slots_are_resolved() {
    let device = checkpointed(|worker| {
        set(worker, b"c1", &[1; 500]).unwrap();
        set(worker, b"c2", &[2; 2000]).unwrap();
    });
    let store = open(&device);
    let names = [b"a".to_vec(), b"b".to_vec()];
    alone(&store, &names, 4, |worker| {
        assert!(store.is_warming_up());
        assert!(!set(worker, b"a", &[1; 500]).unwrap());
        assert!(!set(worker, b"b", &[2; 2000]).unwrap());
    });
    device.open();
}

/// Values of all kinds, and names in line and out of line.
fn name_of(number: u32) -> Vec<u8> {
    let len = if number % 5 == 0 { 700 } else { 12 };
    format!("{number:0len$}").into_bytes()
}

fn value_of(random: &mut fastrand::Rng) -> Vec<u8> {
    let len = match random.u32(..10) {
        0..=2 => random.usize(..400),
        3..=7 => random.usize(449..10_000),
        _ => random.usize(11_000..100_000),
    };
    vec![random.u8(..); len]
}

/// Random changes of random keys after a restart with nearly nothing in memory: with what is resolved there, none of
/// them faults.
#[test]
fn no_operation_of_a_resolved_command_faults() {
    let seed = seed();
    let device = checkpointed(|worker| {
        let mut random = fastrand::Rng::with_seed(seed);
        for number in 0..3_000 {
            set(worker, &name_of(number), &value_of(&mut random)).unwrap();
        }
        // Slabs with free slots, in lists that are long.
        for number in (0..3_000).filter(|number| number % 3 > 0) {
            let name = name_of(number);
            let key = worker.key(&name);
            worker.remove(DB, &key).unwrap();
        }
    });
    let image = device.inner.image();
    device.open();
    for round in 0..6 {
        let device = HeldUp::new(SimDevice::from_image(round, image.clone()));
        let store = open(&device);
        let mut random = fastrand::Rng::with_seed(seed ^ (round + 1));
        for _ in 0..6 {
            let names: Vec<Vec<u8>> =
                (0..1 + random.usize(..6)).map(|_| name_of(random.u32(..3_000))).collect();
            alone(&store, &names, 4 * names.len(), |worker| {
                assert!(store.is_warming_up());
                for pair in names.windows(2).chain([&[names[0].clone(), names[0].clone()][..]]) {
                    change(worker, &mut random, &pair[0], &pair[1]).expect("all is there");
                }
            });
        }
        device.open();
        while store.is_warming_up() || !store.is_tidy() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        store.nonblocking_worker().unwrap().quiesce();
        store.check().unwrap();
    }
}

fn change(worker: &mut Worker, random: &mut fastrand::Rng, one: &[u8], other: &[u8]) -> Result<(), OpError> {
    let (from, to) = (worker.key(one), worker.key(other));
    match random.u32(..7) {
        0..=1 => drop(set(worker, one, &value_of(random))?),
        2 => drop(worker.remove(DB, &from)?),
        3 => {
            let len = worker.entry(DB, &from)?.map_or(0, |entry| entry.value_bytes);
            worker
                .string_at(DB, &from)
                .write_range(len.saturating_sub(random.u64(..50)), &value_of(random))?;
        }
        4 => drop(worker.rename((DB, &from), (DB, &to))?),
        5 => drop(worker.copy((DB, &from), (DB, &to))?),
        _ => drop(worker.set_deadline(DB, &from, Some(i64::MAX))?),
    }
    Ok(())
}
