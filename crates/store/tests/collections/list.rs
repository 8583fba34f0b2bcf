//! Lists.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

use stillframe_store::{DbId, End, Insertion, Key, Options, Setting, Store, Worker};
use stillframe_testkit::{seed, TempDir};

use crate::{check, open, retried};

type Model = BTreeMap<Vec<u8>, VecDeque<Vec<u8>>>;

const DB: DbId = DbId(0);

/// Few different ones, so that they are found; some that lie outside of blocks.
fn item(random: &mut fastrand::Rng) -> Vec<u8> {
    let number = random.u32(..200);
    let len = if number < 4 { 500 * number as usize + 300 } else { 3 };
    format!("{number:0len$}").into_bytes()
}

fn step(store: &Store, worker: &mut Worker, model: &mut Model, random: &mut fastrand::Rng) {
    let name = format!("list:{}", random.u32(..4)).into_bytes();
    let key = worker.key(&name);
    let list = model.entry(name.clone()).or_default();
    let end = if random.bool() { End::Left } else { End::Right };
    match random.u32(..112) {
        100.. => return go_between(store, worker, model, &name, random),
        0..50 => {
            let items: Vec<_> = (0..random.usize(1..80)).map(|_| item(random)).collect();
            let given: Vec<&[u8]> = items.iter().map(|item| &item[..]).collect();
            let only_if_exists = random.u32(..5) == 0;
            let len =
                retried(store, worker, |worker| worker.list_push(DB, &key, end, &given, only_if_exists));
            if !only_if_exists || !list.is_empty() {
                for item in items {
                    if end == End::Left {
                        list.push_front(item)
                    } else {
                        list.push_back(item)
                    }
                }
            }
            assert_eq!(len, list.len() as u64);
        }
        50..65 => {
            let count = random.u64(..60);
            let mut popped = Vec::new();
            retried(store, worker, |worker| {
                popped.clear();
                worker.list_pop(DB, &key, end, count, |_| (), |item| popped.push(item.to_vec()))
            });
            let mut pop = || if end == End::Left { list.pop_front() } else { list.pop_back() };
            let expected: Vec<_> = (0..count).map_while(|_| pop()).collect();
            assert_eq!(popped, expected);
        }
        65..75 => {
            let (index, item) = (random.i64(-3_000..3_000), item(random));
            let set = retried(store, worker, |worker| worker.list_set(DB, &key, index, &item));
            let at = if index < 0 { index + list.len() as i64 } else { index };
            let place = usize::try_from(at).ok().and_then(|at| list.get_mut(at));
            match place {
                Some(place) => *place = item,
                None => assert_ne!(set, Setting::Done),
            }
        }
        75..85 => {
            let (pivot, item, is_before) = (item(random), item(random), random.bool());
            let inserted =
                retried(store, worker, |worker| worker.list_insert(DB, &key, is_before, &pivot, &item));
            let expected = match list.iter().position(|item| *item == pivot) {
                Some(at) => {
                    list.insert(if is_before { at } else { at + 1 }, item);
                    Insertion::Done(list.len() as u64)
                }
                None if list.is_empty() => Insertion::NoList,
                None => Insertion::NoPivot,
            };
            assert_eq!(inserted, expected);
        }
        _ => remove_some(store, worker, list, &key, random),
    }
    model.retain(|_, list| !list.is_empty());
    worker.quiesce();
}

/// Removes items by value, or at the ends.
fn remove_some(
    store: &Store,
    worker: &mut Worker,
    list: &mut VecDeque<Vec<u8>>,
    key: &Key<'_>,
    random: &mut fastrand::Rng,
) {
    if random.bool() {
        let (count, item) = (random.i64(-3..4), item(random));
        let removed = retried(store, worker, |worker| worker.list_remove(DB, key, count, &item));
        let mut places: Vec<usize> = (0..list.len()).filter(|at| list[*at] == item).collect();
        if count < 0 {
            places.reverse();
        }
        places.truncate(if count == 0 { usize::MAX } else { count.unsigned_abs() as usize });
        places.sort_unstable();
        assert_eq!(removed, places.len() as u64);
        places.iter().rev().for_each(|at| drop(list.remove(*at)));
        return;
    }
    let (start, stop) = (random.i64(-2_500..400), random.i64(-400..3_000));
    retried(store, worker, |worker| worker.list_trim(DB, key, start, stop));
    let len = list.len() as i64;
    let at = |index: i64| if index < 0 { index + len } else { index };
    let (start, stop) = (at(start).max(0), at(stop).min(len - 1));
    let kept = if start > stop { 0..0 } else { start as usize..stop as usize + 1 };
    *list = list.range(kept).cloned().collect();
}

/// Moves an item of a list to another or to itself, or copies it.
fn go_between(
    store: &Store,
    worker: &mut Worker,
    model: &mut Model,
    name: &[u8],
    random: &mut fastrand::Rng,
) {
    let target = format!("list:{}", random.u32(..4)).into_bytes();
    let (key, to) = (worker.key(name), worker.key(&target));
    let list = model.get(name).cloned().unwrap_or_default();
    if random.u32(..4) == 0 && target != name && !list.is_empty() {
        assert!(retried(store, worker, |worker| worker.copy((DB, &key), (DB, &to))));
        model.insert(target, list);
    } else {
        let [from_end, to_end] = [(); 2].map(|()| if random.bool() { End::Left } else { End::Right });
        let mut moved = None;
        let is_moved = retried(store, worker, |worker| {
            worker.list_move(DB, (&key, from_end), (&to, to_end), |item| moved = Some(item.to_vec()))
        });
        let list = model.entry(name.to_vec()).or_default();
        let expected = if from_end == End::Left { list.pop_front() } else { list.pop_back() };
        assert_eq!(is_moved, expected.is_some());
        assert_eq!(moved, expected);
        let target = model.entry(target).or_default();
        match to_end {
            End::Left => expected.into_iter().for_each(|item| target.push_front(item)),
            End::Right => target.extend(expected),
        }
    }
    model.retain(|_, list| !list.is_empty());
    worker.quiesce();
}

fn compare(store: &Store, worker: &mut Worker, model: &Model, random: &mut fastrand::Rng) {
    for name in (0..4).map(|number| format!("list:{number}").into_bytes()) {
        let key = worker.key(&name);
        let list = model.get(&name).cloned().unwrap_or_default();
        assert_eq!(retried(store, worker, |worker| worker.list_len(DB, &key)), list.len() as u64);
        let mut found = Vec::new();
        let is_there = retried(store, worker, |worker| {
            found.clear();
            let add = |item: &[u8]| {
                found.push(item.to_vec());
                ControlFlow::Continue(())
            };
            worker.list_range(DB, &key, 0, -1, |_| (), add)
        });
        assert_eq!(is_there, !list.is_empty());
        assert!(found.iter().eq(&list));
        let (item, is_upwards) = (item(random), random.bool());
        let mut places = Vec::new();
        retried(store, worker, |worker| {
            places.clear();
            worker.list_pos(DB, &key, &item, is_upwards, u64::MAX, |index| {
                places.push(index as usize);
                true
            })
        });
        places.sort_unstable();
        assert!(places.into_iter().eq((0..list.len()).filter(|at| list[*at] == item)));
    }
    check(store, worker);
}

#[test]
fn lists_are_what_a_model_is() {
    let (dir, seed) = (TempDir::new("lists"), seed());
    let (mut random, mut model) = (fastrand::Rng::with_seed(seed), Model::new());
    for round in 0..4 {
        let store = open(&dir, Options::default());
        let mut worker = store.worker();
        assert_eq!(store.is_new(), round == 0);
        if round > 0 {
            // What is not in memory is met in the midst of operations.
            (0..200).for_each(|_| step(&store, &mut worker, &mut model, &mut random));
        }
        compare(&store, &mut worker, &model, &mut random);
        for _ in 0..3 {
            (0..500).for_each(|_| step(&store, &mut worker, &mut model, &mut random));
            compare(&store, &mut worker, &model, &mut random);
        }
        worker.idle(|| store.checkpoint()).unwrap();
    }
}
