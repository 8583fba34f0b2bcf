//! Hashes, whose fields have deadlines while the clock goes on.

use stillframe_store::{DbId, Options, Store, Worker};
use stillframe_testkit::{seed, TempDir};

use crate::model::hash::{compare, expire_all, names, step, Model};
use crate::{check, open};

fn compare_all(store: &Store, worker: &mut Worker, model: &mut Model) {
    for name in names() {
        compare(store, worker, model, &name).expect("a whole store");
    }
    check(store, worker);
    expire_all(store, worker, model).expect("a whole store");
    assert_eq!(store.db_stats(DbId(0)).key_count, model.live_count() as u64);
    check(store, worker);
}

#[test]
fn hashes_are_what_a_model_is() {
    let (dir, seed) = (TempDir::new("hashes"), seed());
    // Few bits: fields of one hash make chains.
    let hash_bits = if seed % 2 == 0 { 64 } else { 10 };
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = Model::default();
    for round in 0..4 {
        let store = open(&dir, Options { hash_bits, ..Options::default() });
        let mut worker = store.nonblocking_worker().unwrap();
        worker.set_now(model.now());
        assert_eq!(store.is_new(), round == 0);
        if round > 0 {
            // What is not in memory is met in the midst of operations.
            (0..200).for_each(|_| step(&store, &mut worker, &mut model, &mut random).expect("a whole store"));
        }
        compare_all(&store, &mut worker, &mut model);
        for _ in 0..3 {
            (0..500).for_each(|_| step(&store, &mut worker, &mut model, &mut random).expect("a whole store"));
            compare_all(&store, &mut worker, &mut model);
        }
        worker.idle(|| store.checkpoint()).unwrap();
    }
}
