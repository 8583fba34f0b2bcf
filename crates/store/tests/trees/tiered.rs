//! Trees of four times the memory that there may be.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stillframe_pagepool::device::SimDevice;
use stillframe_store::{Options, Store, TreeError};
use stillframe_testkit::seed;

use crate::{after_crash, assert_same, content, options, Model};

/// As little as there can be: 2,048 pages in memory.
fn open(device: &Arc<SimDevice>) -> Store {
    let options = Options { tiered_bytes: 1 << 20, ..options() };
    Store::open_on(device.clone(), options).expect("the store opens")
}

const RECORDS: u64 = 60_000;
/// Hot records that are looked up for every 32 records of a walk.
const HOT_A_STEP: usize = 4;

fn record(number: u64, round: u64) -> (Vec<u8>, Vec<u8>) {
    let value = [&round.to_be_bytes()[..], &[number as u8; 500]].concat();
    (number.to_be_bytes().to_vec(), value[..500].to_vec())
}

/// A writer changes pairs of records in transactions, readers look at them, a saver saves; all of it has to be read and
/// written back again and again.
#[test]
fn a_tree_is_larger_than_memory() {
    let device = Arc::new(SimDevice::new(1));
    let store = open(&device);
    let tree = store.tree("t").unwrap();
    tree.bulk_load((0..RECORDS).map(|number| record(number, 0))).unwrap();
    let mut model: Model = (0..RECORDS).map(|number| record(number, 0)).collect();
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let store = &store;
        let reader = scope.spawn(move || {
            let (tree, mut random) = (store.tree("t").unwrap(), fastrand::Rng::with_seed(seed() ^ 1));
            while !stop.load(Ordering::Relaxed) {
                let first = random.u64(..RECORDS / 2);
                let pair = [first, RECORDS - 1 - first].map(|number| record(number, 0).0);
                let [one, other] = tree
                    .transaction(|tx| Ok::<_, TreeError>([tx.get(&pair[0])?, tx.get(&pair[1])?]))
                    .unwrap();
                assert_eq!(one.map(|value| value[..8].to_vec()), other.map(|value| value[..8].to_vec()));
                assert!(tree.get_many(&pair).unwrap().iter().all(Option::is_some));
            }
        });
        let saver = scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                store.checkpoint().unwrap();
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let (since, mut random) = (Instant::now(), fastrand::Rng::with_seed(seed()));
        let mut round = 0;
        while since.elapsed() < Duration::from_secs(3) && !reader.is_finished() && !saver.is_finished() {
            round += 1;
            let first = random.u64(..RECORDS / 2);
            let pair = [first, RECORDS - 1 - first].map(|number| record(number, round));
            let put = |(key, value): &(Vec<u8>, Vec<u8>)| (key.clone(), value.clone());
            tree.transaction(|tx| pair.iter().map(put).try_for_each(|(key, value)| tx.put(key, value)))
                .unwrap();
            model.extend(pair);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let (resident, most) = (store.pool().room().resident_pages(), store.pool().room().limit_pages().unwrap());
    assert!(resident <= most + 64, "{resident} pages are in memory, {most} may be");
    let metrics = store.pool().metrics();
    let counts = [&metrics.evicted_page_count, &metrics.written_back_page_count, &metrics.loaded_page_count];
    assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) > 1_000), "{counts:?}");
    assert_same(&content(&tree), &model, "before the crash");
    store.checkpoint().unwrap();
    let after = open(&after_crash(&device));
    assert_same(&content(&after.tree("t").unwrap()), &model, "after the crash");
}

/// Looks hot records up after each step of something else; which part of them was in memory.
fn hit_rate_beside(step: &mut dyn FnMut() -> bool, tree: &stillframe_store::Tree, store: &Store) -> f64 {
    let loaded = || store.pool().metrics().loaded_page_count.load(Ordering::Relaxed);
    let mut random = fastrand::Rng::with_seed(seed());
    let (mut looked_up, mut missed) = (0, 0);
    loop {
        let goes_on = step();
        let before = loaded();
        for _ in 0..HOT_A_STEP {
            // One record in each of some 500 leaves.
            let hot = random.u64(..500) * (RECORDS / 500);
            assert!(tree.get(hot.to_be_bytes()).unwrap().is_some());
            looked_up += 1;
        }
        missed += loaded() - before;
        if !goes_on {
            return 1.0 - missed as f64 / f64::from(looked_up);
        }
    }
}

/// A walk through four times the memory leaves the pages in memory that others use.
#[test]
fn a_walk_does_not_displace_what_is_used() {
    let device = Arc::new(SimDevice::new(1));
    let store = open(&device);
    let tree = store.tree("t").unwrap();
    tree.bulk_load((0..RECORDS).map(|number| record(number, 0))).unwrap();
    store.checkpoint().unwrap();
    // Until the hot set is there.
    let mut rounds = 0..2_000;
    hit_rate_beside(&mut || rounds.next().is_some(), &tree, &store);
    let mut records = tree.iter();
    let beside_walk = hit_rate_beside(
        &mut || (0..32).all(|_| records.next_with(|_, _| ()).unwrap().is_some()),
        &tree,
        &store,
    );
    // It is 0.93 if the pages that the walk leaves behind stay as long as others.
    assert!(beside_walk > 0.955, "{beside_walk}");
}
