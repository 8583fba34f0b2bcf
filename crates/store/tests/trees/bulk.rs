//! Bulk loads.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use stillframe_pagepool::device::SimDevice;
use stillframe_store::{Store, Tree, TreeError};
use stillframe_testkit::seed;

use crate::{
    after_crash, assert_same, content, open, random_key, random_value, wait_until_tidy, wait_until_warm,
    Model,
};

fn check(store: &Store, record_count: u64) {
    wait_until_warm(store);
    wait_until_tidy(store);
    assert_eq!(store.check().unwrap().tree_record_count, record_count);
}

#[test]
fn a_tree_is_what_was_loaded() {
    let mut random = fastrand::Rng::with_seed(seed());
    for count in [0, 1, 2, 40, 3_000, 9_000] {
        let device = Arc::new(SimDevice::new(1));
        let store = open(&device);
        let mut model = Model::new();
        for _ in 0..count {
            model.insert(random_key(&mut random), random_value(&mut random));
        }
        let tree = store.tree("t").unwrap();
        assert_eq!(tree.bulk_load(&model), Ok(model.len() as u64));
        assert_same(&content(&tree), &model, "loaded");
        check(&store, model.len() as u64);
        // What was loaded can be changed, in leaves and nodes that are nearly full.
        for _ in 0..2_000 {
            let key = random_key(&mut random);
            match random.bool() {
                true => assert_eq!(tree.remove(&key).unwrap(), model.remove(&key).is_some()),
                false => {
                    let value = random_value(&mut random);
                    assert_eq!(tree.put(&key, &value).unwrap(), model.insert(key, value).is_some());
                }
            }
        }
        store.checkpoint().unwrap();
        let store = open(&after_crash(&device));
        assert_same(&content(&store.tree("t").unwrap()), &model, "after a restart");
        check(&store, model.len() as u64);
    }
}

/// Keys that share nearly everything, and then nothing: bounds that are far apart leave no prefix out.
#[test]
fn keys_with_long_common_starts_are_loaded() {
    let store = open(&Arc::new(SimDevice::new(1)));
    let mut model = Model::new();
    for group in [b'a', b'b', b'z'] {
        for number in 0..3_000u32 {
            let key = [&[group; 480][..], &number.to_be_bytes()].concat();
            model.insert(key, vec![group; (number % 3) as usize]);
        }
    }
    let tree = store.tree("t").unwrap();
    tree.bulk_load(&model).unwrap();
    assert_same(&content(&tree), &model, "loaded");
    check(&store, model.len() as u64);
}

#[test]
fn leaves_are_nearly_full() {
    let store = open(&Arc::new(SimDevice::new(1)));
    let tree = store.tree("t").unwrap();
    tree.bulk_load((0..100_000u64).map(|number| (number.to_be_bytes(), [7; 120]))).unwrap();
    let pages = store.check().unwrap().tree_page_count;
    // 28 records of 140 bytes have room in a leaf.
    assert!(pages < 100_000 / 27 * 102 / 100, "{pages} pages");
}

#[test]
fn a_load_that_fails_leaves_an_empty_tree() {
    let store = open(&Arc::new(SimDevice::new(1)));
    let tree = store.tree("t").unwrap();
    let empty_pages = store.pool().allocated_pages();
    let long = vec![9u8; 2_000];
    let records = |count: u32| (0..count).map(|number| (number.to_be_bytes().to_vec(), &long));
    for count in [0, 5, 5_000] {
        let repeated = records(count).chain(records(1)).chain(records(1));
        assert_eq!(tree.bulk_load(repeated), Err(TreeError::NotAscending), "{count}");
        let too_long = records(count).chain([(vec![255; 513], &long)]);
        assert_eq!(tree.bulk_load(too_long), Err(TreeError::KeyTooLong));
        let panics = records(count).chain(std::iter::from_fn(|| panic!("in the caller's iterator")));
        assert!(catch_unwind(AssertUnwindSafe(|| tree.bulk_load(panics))).is_err());
        assert_eq!((tree.len(), tree.iter().next()), (Ok(0), None));
        check(&store, 0);
        assert_eq!(store.pool().allocated_pages(), empty_pages, "after {count} records");
    }
    store.set_maxmemory_bytes(store.used_memory_bytes() + (2 << 20));
    assert!(matches!(tree.bulk_load(records(5_000)), Err(TreeError::OutOfMemory { .. })));
    check(&store, 0);
    assert_eq!(store.pool().allocated_pages(), empty_pages);
    store.set_maxmemory_bytes(0);
    tree.put("x", "").unwrap();
    assert_eq!(tree.bulk_load(records(1)), Err(TreeError::NotEmpty));
    tree.remove("x").unwrap();
    assert_eq!(tree.bulk_load(records(1)), Ok(1));
}

/// Cuts come while a load is under way, from its own thread: they show an empty tree, and its pages are garbage to them.
#[test]
fn a_cut_during_a_load_shows_an_empty_tree() {
    let device = Arc::new(SimDevice::new(1));
    let store = open(&device);
    let (tree, source) = (store.tree("t").unwrap(), store.tree("source").unwrap());
    let mut random = fastrand::Rng::with_seed(seed());
    let mut model = Model::new();
    while model.len() < 12_000 {
        model.insert(random_key(&mut random), random_value(&mut random));
        model.insert(random.u64(..).to_be_bytes().to_vec(), vec![1; 100]);
    }
    source.bulk_load(&model).unwrap();
    let mut saved = Vec::new();
    let reader = store.tree("t").unwrap();
    let records = source.iter().enumerate().map(|(number, record)| {
        if number % 1_500 == 700 {
            store.checkpoint().unwrap();
            saved.push(device.image());
            assert_eq!(reader.len(), Ok(0));
        }
        record.unwrap()
    });
    assert_eq!(tree.bulk_load(records), Ok(model.len() as u64));
    assert_same(&content(&tree), &model, "loaded from another tree");
    check(&store, 2 * model.len() as u64);
    assert!(saved.len() > 5);
    for image in saved {
        let store = open(&Arc::new(SimDevice::from_image(1, image)));
        assert_eq!(store.tree("t").unwrap().iter().next(), None);
        check(&store, model.len() as u64);
    }
}

#[test]
fn a_tree_may_be_dropped_while_it_is_loaded() {
    let store = open(&Arc::new(SimDevice::new(1)));
    let load = |tree: &Tree| {
        tree.bulk_load((0..20_000u32).map(|number| {
            if number == 15_000 {
                assert!(store.drop_tree("t").unwrap());
            }
            (number.to_be_bytes(), [1; 100])
        }))
    };
    let tree = store.tree("t").unwrap();
    assert_eq!(load(&tree), Err(TreeError::Dropped));
    assert!(store.tree_names().unwrap().is_empty());
    check(&store, 0);
}

/// A tree that has been built aside is garbage to a cut, or part of the data, and never both: what opens the checkpoint would free it.
#[test]
fn what_has_been_loaded_is_data_to_every_cut() {
    let device = Arc::new(SimDevice::new(1));
    let store = open(&device);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                store.tree("loaded").unwrap().bulk_load([("key", "value")]).unwrap();
                store.drop_tree("loaded").unwrap();
            }
        });
        let all_is_well = catch_unwind(AssertUnwindSafe(|| {
            (0..60).for_each(|_| {
                store.checkpoint().unwrap();
                let again = open(&after_crash(&device));
                wait_until_tidy(&again);
                again.check().unwrap();
                for name in again.tree_names().unwrap() {
                    let found = content(&again.tree(&name).unwrap());
                    assert!(found.is_empty() || found == Model::from([(b"key".to_vec(), b"value".to_vec())]));
                }
            })
        }));
        is_over.store(true, Ordering::Relaxed);
        all_is_well.unwrap_or_else(|panic| resume_unwind(panic));
    });
}
