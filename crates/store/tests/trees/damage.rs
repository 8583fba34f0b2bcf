//! Pages that cannot be read: what is on them is an error, everything else goes on, and nothing leaks in the end.

use std::sync::Arc;

use stillframe_pagepool::device::{FaultRates, SimDevice};
use stillframe_pagepool::PAGE_SIZE;
use stillframe_store::{DbId, Deadline, NewValue, Store, Tree, TreeError};
use stillframe_testkit::seed;

use crate::{
    after_crash, assert_same, content, open, options, random_key, random_value, wait_until_tidy,
    wait_until_warm, Model,
};

fn is_damaged<R: std::fmt::Debug>(result: Result<R, TreeError>) -> bool {
    match result {
        Ok(_) => false,
        Err(TreeError::Damaged(why)) => {
            assert!(why.contains("simulated device"), "no place is named: {why}");
            true
        }
        Err(error) => panic!("{error}"),
    }
}

/// A saved store with a tree of random records and a few keys in a database.
fn saved(model: &Model) -> Vec<u8> {
    let device = Arc::new(SimDevice::new(1));
    let store = open(&device);
    let mut worker = store.nonblocking_worker().unwrap();
    for number in 0..500 {
        let name = format!("key:{number}");
        let key = worker.key(name.as_bytes());
        worker.set(DbId(0), &key, NewValue::Int(number), Deadline::Clear).unwrap();
    }
    drop(worker);
    let tree = store.tree("t").unwrap();
    for (key, value) in model {
        assert!(!tree.put(key, value).unwrap());
    }
    store.tree("other").unwrap().put("a", "b").unwrap();
    store.checkpoint().unwrap();
    device.image()
}

fn random_model(random: &mut fastrand::Rng, count: usize) -> Model {
    let mut model = Model::new();
    while model.len() < count {
        model.insert(random_key(random), random_value(random));
    }
    model
}

fn corrupt(image: &[u8], slot: usize, at: usize) -> Arc<SimDevice> {
    let device = Arc::new(SimDevice::from_image(1, image.to_vec()));
    device.corrupt((slot * PAGE_SIZE + at) as u64, 1, |bytes| bytes[0] ^= 4);
    device
}

/// Slots that hold a page of this kind, as it says itself.
fn slots_of_kind(image: &[u8], kind: u8) -> Vec<usize> {
    let slots = (0..).zip(image.chunks(PAGE_SIZE)).skip(3);
    slots
        .filter(|(_, page)| page[0] == kind && page[16..].iter().any(|byte| *byte != page[16]))
        .map(|(slot, _)| slot)
        .collect()
}

/// What a damaged page has is an error to who asks for it, and a right answer is the only other one.
fn check_reads(tree: &Tree, model: &Model) -> usize {
    let mut error_count = 0;
    for (key, value) in model {
        match tree.get(key) {
            Ok(found) => assert!(found.as_ref() == Some(value), "{key:?}"),
            result => error_count += usize::from(is_damaged(result)),
        }
    }
    error_count
}

#[test]
fn a_damaged_page_is_never_served_and_does_not_keep_a_dropped_tree() {
    let mut random = fastrand::Rng::with_seed(seed());
    let model = random_model(&mut random, 1_500);
    let image = saved(&model);
    let (mut refused, mut lost_lists, mut errors, mut whole) = (0, 0, 0, 0);
    for slot in 0..image.len() / PAGE_SIZE {
        let device = corrupt(&image, slot, random.usize(..PAGE_SIZE));
        let Ok(store) = Store::open_on(device.clone(), options()) else {
            refused += 1;
            continue;
        };
        match store.tree("t") {
            Err(TreeError::Damaged(_)) => {
                lost_lists += 1;
                // Saves keep it as it is.
                store.checkpoint().unwrap();
                assert!(matches!(store.tree_names(), Err(TreeError::Damaged(_))));
                let mut worker = store.nonblocking_worker().unwrap();
                let key = worker.key(b"key:7");
                worker.idle(|| wait_until_warm(&store));
                assert!(worker.get(DbId(0), &key, |_| ()).unwrap().is_some());
                continue;
            }
            tree => {
                let tree = tree.unwrap();
                match check_reads(&tree, &model) {
                    0 => whole += 1,
                    _ => {
                        errors += 1;
                        assert!(tree.iter().any(|record| record.is_err()));
                    }
                }
            }
        }
        wait_until_warm(&store);
        let other = store.tree("other").unwrap();
        assert!(other.get("a").is_ok_and(|found| found.is_some()) || is_damaged(other.get("a")));
        drop(other);
        assert!(store.drop_tree("t").unwrap());
        store.checkpoint().unwrap();
        // What a damaged slab keeps in use goes with the last data.
        store.nonblocking_worker().unwrap().database(DbId(0)).flush().unwrap();
        assert!(store.drop_tree("other").unwrap());
        wait_until_tidy(&store);
        store.check().unwrap();
    }
    assert!(
        refused > 3 && lost_lists == 1 && errors > 20 && whole > 5,
        "{refused} {lost_lists} {errors} {whole}"
    );
}

/// The pages of a dropped tree are free in the end, also those that only a damaged one led to; and nothing else is.
#[test]
fn what_only_a_damaged_page_led_to_is_found() {
    let mut random = fastrand::Rng::with_seed(seed());
    let model = random_model(&mut random, 3_000);
    let image = saved(&model);
    let leaves = slots_of_kind(&image, 7);
    assert!(leaves.len() > 50);
    for slot in [leaves[3], leaves[leaves.len() / 2]] {
        let device = corrupt(&image, slot, 3_000);
        let store = open(&device);
        wait_until_warm(&store);
        // Trees that no cut has seen yet are not taken for leaks.
        let new = store.tree("new").unwrap();
        new.bulk_load((0..3_000u32).map(|number| (number.to_be_bytes(), [1; 600]))).unwrap();
        assert!(store.drop_tree("t").unwrap());
        wait_until_tidy(&store);
        let report = store.check().unwrap();
        assert_eq!((report.tree_count, report.tree_record_count, report.key_count), (2, 3_001, 500));
        assert_eq!(content(&new).len(), 3_000);
    }
}

/// A transaction that meets a damaged page in the middle is undone: what it had put, replaced and removed by then.
#[test]
fn a_transaction_that_meets_damage_is_undone() {
    let mut random = fastrand::Rng::with_seed(seed());
    let model = random_model(&mut random, 3_000);
    let image = saved(&model);
    let leaves = slots_of_kind(&image, 7);
    let mut undone = 0;
    for _ in 0..6 {
        let device = corrupt(&image, *random.choice(&leaves).unwrap(), 3_000);
        let store = open(&device);
        wait_until_warm(&store);
        let tree = store.tree("t").unwrap();
        let pages = store.pool().allocated_pages();
        let lost: Vec<_> = model.keys().filter(|key| tree.get(key).is_err()).cloned().collect();
        // A page of a long value may begin as a leaf does. Its key alone is lost, and is put without a look at the page.
        if lost.len() == 1 {
            continue;
        }
        for _ in 0..20 {
            let keys: Vec<_> = (0..200).map(|_| random.choice(model.keys()).unwrap()).collect();
            let result = tree.transaction(|tx| {
                for key in &keys {
                    match random.u32(..3) {
                        0 => tx.remove(key)?,
                        _ => tx.put(key, random_value(&mut random))?,
                    }
                    tx.put(random_key(&mut random), random_value(&mut random))?;
                }
                match lost.first() {
                    Some(key) => tx.put(key, b"in the lost leaf"),
                    None => Err(TreeError::NotEmpty),
                }
            });
            if lost.is_empty() {
                continue;
            }
            assert!(is_damaged(result));
            undone += 1;
            assert_eq!(tree.len(), Ok(model.len() as u64));
        }
        let found = model.keys().filter(|key| !lost.contains(key));
        let found: Model =
            found.map(|key| (key.clone(), tree.get(key).unwrap().unwrap_or_default())).collect();
        let expected = model.iter().filter(|(key, _)| !lost.contains(key));
        let expected: Model = expected.map(|(key, value)| (key.clone(), value.clone())).collect();
        assert_same(&found, &expected, "after transactions that were undone");
        wait_until_tidy(&store);
        // Leaves that have been divided for it stay so; no value does.
        let more = store.pool().allocated_pages() - pages.min(store.pool().allocated_pages());
        assert!(more < 400, "{more} pages more");
        store.drop_tree("t").unwrap();
        wait_until_tidy(&store);
        store.check().unwrap();
    }
    assert!(undone > 0);
}

/// Reads that fail now and then, while the tree is changed: no answer is wrong, and what is saved is whole.
#[test]
fn failing_reads_are_errors_and_never_data() {
    let mut random = fastrand::Rng::with_seed(seed());
    let mut error_count = 0;
    for round in 0..12 {
        let mut model = random_model(&mut random, 800);
        let device = Arc::new(SimDevice::from_image(round, saved(&model)));
        let store = open(&device);
        device.set_rates(FaultRates { read_error: 0.6, ..FaultRates::default() });
        {
            let Ok(tree) = store.tree("t") else { continue };
            for _ in 0..300 {
                let (key, value) = (random_key(&mut random), random_value(&mut random));
                match random.u32(..3) {
                    0 => match tree.put(&key, &value) {
                        Ok(was) => assert_eq!(was, model.insert(key, value).is_some()),
                        result => error_count += usize::from(is_damaged(result)),
                    },
                    1 => match tree
                        .transaction(|tx| tx.put(&key, &value).and_then(|()| tx.remove(b"user:00001:1")))
                    {
                        Ok(()) => {
                            model.insert(key, value);
                            model.remove(&b"user:00001:1"[..]);
                        }
                        result => error_count += usize::from(is_damaged(result)),
                    },
                    _ => match tree.get(&key) {
                        Ok(found) => assert_eq!(found.as_ref(), model.get(&key)),
                        result => error_count += usize::from(is_damaged(result)),
                    },
                }
            }
        }
        let is_saved = store.checkpoint().is_ok();
        device.clear_faults();
        if is_saved {
            let store = open(&after_crash(&device));
            let tree = store.tree("t").unwrap();
            assert_same(&content(&tree), &model, "what was saved");
            assert_eq!(tree.len(), Ok(model.len() as u64));
            wait_until_warm(&store);
            wait_until_tidy(&store);
            store.check().unwrap();
        }
    }
    assert!(error_count > 0);
}
