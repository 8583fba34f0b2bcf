//! Sorted sets.

use std::collections::BTreeMap;

use stillframe_store::{DbId, Element, LexBound, Options, RangeLimit, ScoredRange, Store, Value, Worker};
use stillframe_testkit::{seed, TempDir};

use crate::model::sorted_set::{compare, names, range, step, Model};
use crate::{check, open};

const DB: DbId = DbId(0);

fn compare_all(store: &Store, worker: &mut Worker, model: &Model, random: &mut fastrand::Rng) {
    for name in names() {
        compare(store, worker, model, &name, random).expect("a whole store");
    }
}

fn check_view(store: &Store, worker: &mut Worker, model: &Model) {
    let view = worker.idle(|| store.view()).expect("a view");
    let mut seen = Model::new();
    view.for_each(|entry| {
        let Value::Collection(collection) = entry.value else { panic!("a sorted set") };
        let mut set = BTreeMap::new();
        let mut last = f64::NEG_INFINITY;
        collection.for_each(&mut |element| {
            let Element::Scored { member, score } = element else { panic!("{element:?}") };
            assert!(last <= score);
            last = score;
            set.insert(member.to_vec(), score);
            Ok(())
        })?;
        assert_eq!(collection.element_count()?, set.len() as u64);
        seen.insert(entry.key.to_vec(), set);
        Ok::<(), stillframe_store::SaveError>(())
    })
    .expect("whole");
    let expected: Model = model.clone().into_iter().filter(|(_, set)| !set.is_empty()).collect();
    assert_eq!(seen, expected);
}

fn sequence(options: &Options) {
    let mut random = fastrand::Rng::with_seed(seed());
    let (dir, mut model) = (TempDir::new("sorted-sets"), Model::new());
    for _ in 0..4 {
        let store = open(&dir, options.clone());
        let mut worker = store.worker();
        for _ in 0..400 {
            step(&store, &mut worker, &mut model, &mut random).expect("a whole store");
            worker.idle(|| ());
        }
        compare_all(&store, &mut worker, &model, &mut random);
        check(&store, &mut worker);
        check_view(&store, &mut worker, &model);
        worker.idle(|| store.checkpoint()).expect("a save");
    }
}

#[test]
fn sorted_sets_are_maps_and_orders() {
    sequence(&Options { huge_pages: false, ..Options::default() });
}

#[test]
fn sorted_sets_of_members_that_share_hashes() {
    sequence(&Options { huge_pages: false, hash_bits: 8, ..Options::default() });
}

#[test]
fn sorted_sets_larger_than_memory() {
    sequence(&Options { huge_pages: false, tiered_bytes: 12 << 20, ..Options::default() });
}

#[test]
fn names_are_compared_where_scores_are_alike() {
    let (dir, member) = (TempDir::new("sorted-by-name"), |number: u32| format!("{number:05}").into_bytes());
    let store = open(&dir, Options { huge_pages: false, ..Options::default() });
    let mut worker = store.worker();
    for count in [100, 4_000] {
        let key = worker.key(b"names");
        let mut members: Vec<_> = (0..count).map(|number| (member(number), 1.5)).collect();
        worker.sorted_set_replace(DB, &key, &mut members).unwrap();
        let (low, high) = (member(7), member(80));
        let between = ScoredRange::Lex { min: LexBound::Excluded(&low), max: LexBound::Included(&high) };
        let found = range(&store, &mut worker, b"names", &between, true, RangeLimit::NONE).unwrap();
        let expected: Vec<_> = (8..=80).rev().map(|number| (member(number), 1.5)).collect();
        assert_eq!(found, expected);
        let all = ScoredRange::Lex { min: LexBound::Min, max: LexBound::Max };
        assert_eq!(worker.sorted_set_count(DB, &key, &all).unwrap(), Some(u64::from(count)));
        let none = ScoredRange::Lex { min: LexBound::Included(&high), max: LexBound::Included(&low) };
        assert_eq!(worker.sorted_set_count(DB, &key, &none).unwrap(), Some(0));
    }
}
