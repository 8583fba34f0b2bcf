//! Values larger than memory, and transactions that need more pages than there may be, in trees: they come and go in parts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use stillframe_pagepool::device::SimDevice;
use stillframe_store::{Options, Store, Tree, TreeError};
use stillframe_testkit::seed;

use crate::{after_crash, assert_same, content, options, wait_until_tidy, wait_until_warm, Model};

const MEGABYTE: usize = 1 << 20;
/// Longer than anything here takes that does not wait for ever.
const NO_HANG: Duration = Duration::from_secs(100);

/// As little as there can be: 2,048 pages in memory, 8 MB.
fn open(device: &Arc<SimDevice>) -> Store {
    let options = Options { tiered_bytes: 1 << 20, ..options() };
    Store::open_on(device.clone(), options).expect("the store opens")
}

/// Runs a test that would rather fail than wait for ever.
fn ends(test: impl FnOnce() + Send + 'static) {
    let (done, is_done) = std::sync::mpsc::channel();
    let test = std::thread::spawn(move || {
        test();
        done.send(()).expect("somebody waits");
    });
    if is_done.recv_timeout(NO_HANG) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        panic!("it has not ended after {NO_HANG:?}");
    }
    test.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn bytes(random: &mut fastrand::Rng, len: usize) -> Vec<u8> {
    let mut value = vec![0; len];
    random.fill(&mut value);
    value
}

/// Resident pages stay within the bound and what commands under way may take beyond it.
fn assert_bounded(store: &Store) {
    let (resident, most) =
        (store.pool().room().resident_pages(), store.pool().room().limit_pages().expect("a bound"));
    assert!(resident <= most + 64, "{resident} pages are in memory, {most} may be");
}

/// Each way to look at a record, of values of three times the memory among short ones.
fn check(tree: &Tree, model: &Model) {
    for (key, value) in model {
        assert!(tree.get(key).unwrap().as_ref() == Some(value), "{key:?}");
        assert_eq!(tree.get_with(key, |found| found == &value[..]).unwrap(), Some(true), "{key:?}");
    }
    let keys: Vec<_> = model.keys().chain([&b"none".to_vec()]).cloned().collect();
    let mut seen = 0;
    tree.get_many_with(&keys, |index, found| {
        assert!(found == model.get(&keys[index]).map(|value| &value[..]), "{:?}", keys[index]);
        seen += 1;
    })
    .unwrap();
    assert_eq!(seen, keys.len());
    assert_same(&content(tree), model, "upwards");
    let downwards: Vec<_> = tree.iter().rev().map(Result::unwrap).collect();
    assert!(downwards.iter().map(|(key, value)| (key, value)).eq(model.iter().rev()), "downwards");
}

#[test]
fn values_larger_than_memory_are_put_and_read_beside_a_saver() {
    ends(|| {
        let device = Arc::new(SimDevice::new(1));
        let store = open(&device);
        let tree = store.tree("t").unwrap();
        let (mut random, mut model) = (fastrand::Rng::with_seed(seed()), Model::new());
        let stop = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let store = &store;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    store.checkpoint().unwrap();
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            for number in 0..40u32 {
                let len = match number % 10 {
                    0 => 24 * MEGABYTE + 77,
                    5 => 5 * MEGABYTE,
                    _ => random.usize(..700_000),
                };
                // Some replace others.
                let (key, value) = (format!("k{:02}", number % 25).into_bytes(), bytes(&mut random, len));
                assert_eq!(tree.put(&key, &value), Ok(model.contains_key(&key)));
                assert_bounded(store);
                model.insert(key, value);
            }
            check(&tree, &model);
            assert_eq!(tree.remove("k00"), Ok(true));
            model.remove(&b"k00"[..]);
            stop.store(true, Ordering::Relaxed);
        });
        assert_bounded(&store);
        check(&tree, &model);
        store.checkpoint().unwrap();
        let after = crate::open(&after_crash(&device));
        check(&after.tree("t").unwrap(), &model);
        wait_until_warm(&after);
        wait_until_tidy(&after);
        assert_eq!(after.check().unwrap().tree_record_count, model.len() as u64);
    });
}

/// All of it or nothing, while a saver and readers look.
#[test]
fn a_transaction_writes_more_than_memory_in_one_step() {
    ends(|| {
        let device = Arc::new(SimDevice::new(1));
        let store = open(&device);
        let tree = store.tree("t").unwrap();
        let mut random = fastrand::Rng::with_seed(seed());
        let values = [bytes(&mut random, 20 * MEGABYTE), bytes(&mut random, 20 * MEGABYTE)];
        let small = bytes(&mut random, 100_000);
        let stop = &AtomicBool::new(false);
        let mut model = Model::new();
        std::thread::scope(|scope| {
            let store = &store;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    store.checkpoint().unwrap();
                    // What is saved is of one transaction: that all values begin with the same round.
                    let tree = store.tree("t").unwrap();
                    let first = |key: &str| tree.get_with(key, |value| value[..4].to_vec()).unwrap();
                    let [a, b] = tree.transaction(|_| Ok::<_, TreeError>([first("a"), first("b")])).unwrap();
                    assert_eq!(a, b);
                }
            });
            for round in 0..4u32 {
                let round_of = |value: &[u8]| [&round.to_be_bytes(), value].concat();
                let undone = round == 2;
                let done = tree.transaction(|tx| {
                    tx.put("a", round_of(&values[0]))?;
                    tx.put("b", round_of(&values[1]))?;
                    (0..60u32).try_for_each(|number| tx.put(number.to_be_bytes(), round_of(&small)))?;
                    assert!(tx.get("b")? == Some(round_of(&values[1])));
                    let seen = tx.get_with("a", <[u8]>::len)?;
                    assert_eq!(seen, Some(values[0].len() + 4));
                    if undone {
                        Err(TreeError::Busy)
                    } else {
                        Ok(())
                    }
                });
                assert_eq!(done.is_err(), undone);
                if !undone {
                    model.insert(b"a".to_vec(), round_of(&values[0]));
                    model.insert(b"b".to_vec(), round_of(&values[1]));
                    (0..60u32).for_each(|number| {
                        model.insert(number.to_be_bytes().to_vec(), round_of(&small));
                    });
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_same(&content(&tree), &model, "after transactions");
        assert_bounded(&store);
        store.checkpoint().unwrap();
        let after = crate::open(&after_crash(&device));
        assert_same(&content(&after.tree("t").unwrap()), &model, "after the crash");
        wait_until_warm(&after);
        wait_until_tidy(&after);
        assert_eq!(after.check().unwrap().tree_record_count, model.len() as u64);
    });
}

/// What must be in memory together and has no room there is refused with what it needs; nothing of it has happened.
#[test]
fn a_transaction_that_has_no_room_says_what_it_needs() {
    ends(|| {
        let store = open(&Arc::new(SimDevice::new(1)));
        let tree = store.tree("t").unwrap();
        tree.bulk_load((0..60_000u32).map(|number| (number.to_be_bytes(), [7; 500]))).unwrap();
        // A leaf each, four times the memory together; and many values of middle length.
        let scattered: Vec<_> = (0..60_000u32).step_by(7).map(|number| (number, vec![8; 500])).collect();
        let middling: Vec<_> = (0..400u32).map(|number| (number, vec![9; 30_000])).collect();
        for writes in [scattered, middling] {
            let refused = tree.transaction(|tx| {
                writes.iter().try_for_each(|(number, value)| tx.put(number.to_be_bytes(), value))
            });
            match refused {
                Err(TreeError::LargerThanMemory { needed_bytes, most_bytes }) => {
                    assert_eq!(most_bytes, store.pool().room().limit_pages().unwrap() / 2 * 4096);
                    assert!((10 << 20..80 << 20).contains(&needed_bytes), "{needed_bytes} bytes");
                }
                other => panic!("{other:?}"),
            }
            assert_bounded(&store);
            // The tree is open to others.
            assert_eq!(tree.put("between", "1").map(drop), Ok(()));
        }
        let near: Vec<u32> = (0..3_000).collect();
        tree.transaction(|tx| near.iter().try_for_each(|number| tx.put(number.to_be_bytes(), [6; 500])))
            .unwrap();
        let mut records = tree.range(..&b"between"[..]).map(Result::unwrap);
        assert!(records.by_ref().take(3_000).all(|(_, value)| value == [6; 500]));
        assert!(records.all(|(_, value)| value == [7; 500]));
    });
}

#[test]
fn values_larger_than_memory_are_loaded_in_bulk() {
    ends(|| {
        let device = Arc::new(SimDevice::new(1));
        let store = open(&device);
        let mut random = fastrand::Rng::with_seed(seed());
        let lens = [20 * MEGABYTE, 100, 300_000, 12 * MEGABYTE, 70_000];
        let model: Model =
            lens.iter().enumerate().map(|(at, len)| (vec![at as u8], bytes(&mut random, *len))).collect();
        let tree = store.tree("t").unwrap();
        std::thread::scope(|scope| {
            let saver = scope.spawn(|| store.checkpoint().unwrap());
            assert_eq!(tree.bulk_load(&model), Ok(lens.len() as u64));
            saver.join().unwrap();
        });
        check(&tree, &model);
        assert_bounded(&store);
        let descending = [([9], &model[&vec![0]]), ([8], &model[&vec![1]])];
        let other = store.tree("u").unwrap();
        assert_eq!(other.bulk_load(descending), Err(TreeError::NotAscending));
        store.checkpoint().unwrap();
        let after = crate::open(&after_crash(&device));
        check(&after.tree("t").unwrap(), &model);
        wait_until_warm(&after);
        wait_until_tidy(&after);
        assert_eq!(after.check().unwrap().tree_record_count, lens.len() as u64);
    });
}
