//! Restarts: what comes back is the state at the cut, and pages that are not back yet are waited for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use stillframe_pagepool::device::SimDevice;
use stillframe_pagepool::PAGE_SIZE;
use stillframe_store::{DbId, Deadline, NewValue, Store, Transaction, Tree};
use stillframe_testkit::seed;

use crate::held_up::HeldUp;
use crate::{
    after_crash, assert_same, content, open, options, random_key, random_value, wait_until_tidy,
    wait_until_warm, Model,
};

/// Keys of the writer's rounds.
const KEY_COUNT: u64 = 3_000;

/// A removal, or a put of what nobody puts again.
fn write_round(tree: &Tree, number: u64) {
    let key = (number * 7 % KEY_COUNT).to_be_bytes();
    let done = match number % 5 {
        0 => tree.remove(key),
        _ => tree.put(key, value_of_round(number)),
    };
    done.unwrap();
}

fn value_of_round(number: u64) -> Vec<u8> {
    [&number.to_be_bytes()[..], &[7; 700][..number as usize % 700]].concat()
}

fn apply_round(model: &mut Model, number: u64) {
    let key = (number * 7 % KEY_COUNT).to_be_bytes();
    match number % 5 {
        0 => model.remove(&key[..]),
        _ => model.insert(key.to_vec(), value_of_round(number)),
    };
}

#[test]
fn a_cut_shows_a_state_between_two_operations() {
    let device = Arc::new(SimDevice::new(1));
    let store = open(&device);
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writer = {
        let (store, stop, count) = (store.clone(), stop.clone(), count.clone());
        std::thread::spawn(move || {
            let tree = store.tree("data").unwrap();
            while !stop.load(Ordering::Relaxed) {
                write_round(&tree, count.fetch_add(1, Ordering::Relaxed));
            }
        })
    };
    let (mut model, mut applied_count) = (Model::new(), 0);
    for round in 0..12 {
        std::thread::sleep(std::time::Duration::from_millis(5));
        store.checkpoint().unwrap();
        let most = count.load(Ordering::Relaxed);
        let store = open(&after_crash(&device));
        let tree = store.tree("data").unwrap();
        let found = content(&tree);
        assert_eq!(tree.len().unwrap(), found.len() as u64);
        while found != model {
            assert!(
                applied_count < most,
                "round {round}: {} records of no state that there was",
                found.len()
            );
            apply_round(&mut model, applied_count);
            applied_count += 1;
        }
        wait_until_warm(&store);
        store.check().unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert!(applied_count > 1_000, "{applied_count}");
}

/// A checkpoint with a tree whose pages come after 16 MB of others, which the warm-up is held up at.
fn held_up(records: &Model) -> Arc<HeldUp> {
    let device = HeldUp::new(SimDevice::new(1));
    device.open();
    let store = Store::open_on(device.clone(), options()).unwrap();
    let filler = store.tree("filler").unwrap();
    for number in 0..40_000u32 {
        filler.put(number.to_be_bytes(), [7; 400]).unwrap();
    }
    let tree = store.tree("t").unwrap();
    records.iter().for_each(|(key, value)| assert!(!tree.put(key, value).unwrap()));
    store.checkpoint().unwrap();
    HeldUp::new(SimDevice::from_image(1, device.inner.image()))
}

#[test]
fn operations_wait_for_the_pages_that_they_miss() {
    let mut random = fastrand::Rng::with_seed(seed());
    let mut model = Model::new();
    while model.len() < 5_000 {
        model.insert(random_key(&mut random), random_value(&mut random));
    }
    let device = held_up(&model);
    let image = device.inner.image();
    for round in 0..4 {
        let device = HeldUp::new(SimDevice::from_image(round, image.clone()));
        let (store, mut model) = (Store::open_on(device.clone(), options()).unwrap(), model.clone());
        let tree = store.tree("t").unwrap();
        match round {
            0 => assert_same(&content(&tree), &model, "a walk"),
            1 => {
                let keys: Vec<_> = model.keys().cloned().collect();
                let values = tree.get_many(&keys).unwrap();
                assert!(values.into_iter().map(Option::unwrap).eq(model.values().cloned()));
            }
            _ => change_all(&tree, &mut model, &mut random, round == 3),
        }
        assert!(store.is_warming_up());
        // A cut does not need them.
        store.checkpoint().unwrap();
        let restarted = open(&Arc::new(SimDevice::from_image(1, device.inner.image())));
        assert_same(&content(&restarted.tree("t").unwrap()), &model, "after another restart");
        device.open();
        for store in [&store, &restarted] {
            wait_until_warm(store);
            wait_until_tidy(store);
            store.check().unwrap();
        }
        assert_same(&content(&tree), &model, "in the end");
    }
}

fn change_all(tree: &Tree, model: &mut Model, random: &mut fastrand::Rng, in_transactions: bool) {
    let mut keys: Vec<_> = model.keys().cloned().collect();
    random.shuffle(&mut keys);
    for some in keys.chunks(8).take(200) {
        let value = |random: &mut fastrand::Rng| random.bool().then(|| random_value(random));
        let changes: Vec<_> = some.iter().map(|key| (key, value(random))).collect();
        let is_done = in_transactions && {
            let apply = |tx: &mut Transaction<'_>| {
                changes.iter().try_for_each(|(key, value)| match value {
                    Some(value) => tx.put(key, value),
                    None => tx.remove(key),
                })
            };
            tree.transaction(apply).is_ok()
        };
        for (key, value) in changes {
            let was_there = match &value {
                _ if is_done => true,
                Some(value) => tree.put(key, value).unwrap(),
                None => tree.remove(key).unwrap(),
            };
            assert!(was_there);
            match value {
                Some(value) => model.insert(key.clone(), value),
                None => model.remove(key),
            };
        }
    }
}

/// A file without named trees is one that versions before them open, and they refuse one with them.
#[test]
fn a_file_without_trees_is_as_ever() {
    let device = Arc::new(SimDevice::new(1));
    let store = open(&device);
    let mut worker = store.nonblocking_worker().unwrap();
    let key = worker.key(b"key");
    worker.set(DbId(0), &key, NewValue::Int(5), Deadline::Clear).unwrap();
    drop(worker);
    let kinds = |device: &SimDevice| {
        let image = device.image();
        let slots = image.chunks(PAGE_SIZE).skip(3);
        // Heads of catalogs, as far as they are current: each save writes one.
        slots.filter(|page| page[28..32] == 2u32.to_le_bytes()).map(|page| page[0]).collect::<Vec<u8>>()
    };
    store.checkpoint().unwrap();
    assert_eq!(kinds(&device), [4]);
    store.tree("t").unwrap();
    store.checkpoint().unwrap();
    assert_eq!(kinds(&device), [4, 8]);
    store.drop_tree("t").unwrap();
    wait_until_tidy(&store);
    for _ in 0..3 {
        store.checkpoint().unwrap();
    }
    let found = kinds(&device);
    assert!(found.len() > 2 && found.iter().filter(|kind| **kind == 8).count() <= 1, "{found:?}");
    let store = open(&after_crash(&device));
    assert!(store.tree_names().unwrap().is_empty());
    wait_until_warm(&store);
    store.check().unwrap();
}
