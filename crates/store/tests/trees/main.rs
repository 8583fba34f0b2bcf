//! Named trees against a model. A failure is replayed with `STILLFRAME_SEED=<seed>`.

mod bulk;
mod damage;
#[path = "../support/held_up.rs"]
mod held_up;
mod large;
mod model;
mod restart;
mod threads;
mod tiered;
mod transactions;

use std::collections::BTreeMap;
use std::sync::Arc;

use stillframe_pagepool::device::SimDevice;
use stillframe_store::{Options, Store, Tree};

pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

pub fn options() -> Options {
    let pool_backend = stillframe_testkit::pool_backend();
    Options { huge_pages: false, database_count: 2, pool_backend, ..Options::default() }
}

pub fn open(device: &Arc<SimDevice>) -> Store {
    Store::open_on(device.clone(), options()).expect("the store opens")
}

/// What a start finds after a crash now.
pub fn after_crash(device: &Arc<SimDevice>) -> Arc<SimDevice> {
    Arc::new(SimDevice::from_image(1, device.image()))
}

pub fn wait_until_warm(store: &Store) {
    store.pool().residency().wait_until_warm();
}

/// Waits until what was removed is free.
pub fn wait_until_tidy(store: &Store) {
    for _ in 0..5_000 {
        if store.is_tidy() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("the garbage is never collected");
}

/// Keys of few letters, of long common starts, of any bytes, and as long as can be.
pub fn random_key(random: &mut fastrand::Rng) -> Vec<u8> {
    match random.u32(..20) {
        0..=1 => (0..random.usize(..6)).map(|_| [0, b'a', 0xff][random.usize(..3)]).collect(),
        2..=9 => format!("user:{:05}:{}", random.u32(..3_000), random.u32(..3)).into_bytes(),
        10..=14 => u64::from(random.u32(..20_000)).to_be_bytes().to_vec(),
        15..=18 => (0..random.usize(..3)).map(|_| random.u8(..)).collect(),
        _ => {
            let start = [b'x'; 300][..random.usize(..300)].to_vec();
            [&start[..], &random.u16(..).to_be_bytes(), &[b'y'; 210][..random.usize(..210)]].concat()
        }
    }
}

/// Mostly short values, and some of every place that a value can have.
pub fn random_value(random: &mut fastrand::Rng) -> Vec<u8> {
    let len = match random.u32(..40) {
        0..=29 => random.usize(..150),
        30..=35 => random.usize(..=1024),
        36..=37 => random.usize(900..11_000),
        38 => random.usize(11_000..70_000),
        _ => 0,
    };
    let mut value = vec![random.u8(..); len];
    if let Some(last) = value.last_mut() {
        *last = random.u8(..);
    }
    value
}

pub fn content(tree: &Tree) -> Model {
    let records: Vec<_> = tree.iter().map(|record| record.expect("a whole tree")).collect();
    assert!(records.windows(2).all(|pair| pair[0].0 < pair[1].0), "out of order");
    records.into_iter().collect()
}

/// Short texts for assertions about large maps.
pub fn assert_same(found: &Model, expected: &Model, when: &str) {
    let differs = |key: &&Vec<u8>| found.get(*key) != expected.get(*key);
    let mut keys = found.keys().chain(expected.keys());
    if let Some(key) = keys.find(differs) {
        let [found, expected] = [found, expected].map(|map| map.get(key).map(Vec::len));
        panic!("{when}: {key:?} has {found:?} bytes, not {expected:?}");
    }
}
