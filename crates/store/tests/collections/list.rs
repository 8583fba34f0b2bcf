//! Lists.

use stillframe_store::{Options, Store, Worker};
use stillframe_testkit::{seed, TempDir};

use crate::model::list::{compare, names, step, Model};
use crate::{check, open};

fn compare_all(store: &Store, worker: &mut Worker, model: &Model, random: &mut fastrand::Rng) {
    for name in names() {
        compare(store, worker, model, &name, random).expect("a whole store");
    }
    check(store, worker);
}

#[test]
fn lists_are_what_a_model_is() {
    let (dir, seed) = (TempDir::new("lists"), seed());
    let (mut random, mut model) = (fastrand::Rng::with_seed(seed), Model::new());
    for round in 0..4 {
        let store = open(&dir, Options::default());
        let mut worker = store.nonblocking_worker().unwrap();
        assert_eq!(store.is_new(), round == 0);
        if round > 0 {
            // What is not in memory is met in the midst of operations.
            (0..200).for_each(|_| step(&store, &mut worker, &mut model, &mut random).expect("a whole store"));
        }
        compare_all(&store, &mut worker, &model, &mut random);
        for _ in 0..3 {
            (0..500).for_each(|_| step(&store, &mut worker, &mut model, &mut random).expect("a whole store"));
            compare_all(&store, &mut worker, &model, &mut random);
        }
        worker.idle(|| store.checkpoint()).unwrap();
    }
}
