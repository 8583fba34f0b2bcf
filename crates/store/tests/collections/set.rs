//! Sets.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stillframe_store::{DbId, Draw, Options, Store, Worker};
use stillframe_testkit::{seed, TempDir};

use crate::model::set::{compare, names, refs, step, Model};
use crate::{check, open};

const DB: DbId = DbId(0);

fn compare_all(store: &Store, worker: &mut Worker, model: &Model) {
    for name in names() {
        compare(store, worker, model, &name).expect("a whole store");
    }
    check(store, worker);
}

#[test]
fn sets_are_what_a_model_is() {
    let (dir, seed) = (TempDir::new("sets"), seed());
    // Few bits: members of one hash make chains.
    let hash_bits = if seed % 2 == 0 { 64 } else { 10 };
    let (mut random, mut model) = (fastrand::Rng::with_seed(seed), Model::new());
    for round in 0..4 {
        let store = open(&dir, Options { hash_bits, ..Options::default() });
        let mut worker = store.nonblocking_worker().unwrap();
        assert_eq!(store.is_new(), round == 0);
        if round > 0 {
            // What is not in memory is met in the midst of operations.
            (0..200).for_each(|_| step(&store, &mut worker, &mut model, &mut random).expect("a whole store"));
        }
        compare_all(&store, &mut worker, &model);
        for _ in 0..3 {
            (0..500).for_each(|_| step(&store, &mut worker, &mut model, &mut random).expect("a whole store"));
            compare_all(&store, &mut worker, &model);
        }
        worker.idle(|| store.checkpoint()).unwrap();
    }
}

/// Members of a large set are drawn as often as one another, within what chance allows.
fn assert_even(times: &BTreeMap<Vec<u8>, u32>, member_count: u32, draw_count: u32) {
    assert_eq!(times.len(), member_count as usize);
    let expected = f64::from(draw_count) / f64::from(member_count);
    let square = |count: &u32| (f64::from(*count) - expected).powi(2) / expected;
    let (chi_square, freedom) = (times.values().map(square).sum::<f64>(), f64::from(member_count - 1));
    let limit = freedom + 7.0 * (2.0 * freedom).sqrt();
    assert!(chi_square < limit, "chi square {chi_square:.0} of at most {limit:.0}");
}

#[test]
fn members_are_drawn_evenly() {
    const DRAWS: u32 = 60_000;
    let dir = TempDir::new("draws");
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    // Of one leaf, of a few, and of many.
    for member_count in [150, 400, 1_500] {
        let (name, mut times) = (format!("set:{member_count}").into_bytes(), BTreeMap::new());
        let key = worker.key(&name);
        let members: Vec<Vec<u8>> =
            (0..member_count).map(|number| format!("a rather long member {number}").into_bytes()).collect();
        worker.set_at(DB, &key).replace(&refs(&members), None).unwrap();
        let draw = Draw::Repeated(u64::from(DRAWS / 2));
        let count = |times: &mut BTreeMap<Vec<u8>, u32>, member: &[u8]| {
            *times.entry(member.to_vec()).or_default() += 1;
        };
        worker
            .set_at(DB, &key)
            .random(
                draw,
                |_| {},
                |member| {
                    count(&mut times, member);
                    ControlFlow::Continue(())
                },
            )
            .unwrap();
        // What is popped comes back.
        for _ in 0..DRAWS / 2 {
            let mut popped = Vec::new();
            worker.set_at(DB, &key).pop(1, |_| {}, |member| popped = member.to_vec()).unwrap();
            count(&mut times, &popped);
            worker.set_at(DB, &key).add(&[&popped]).unwrap();
        }
        assert_even(&times, member_count, DRAWS);
    }
    check(&store, &mut worker);
}
