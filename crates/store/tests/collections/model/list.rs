//! Lists.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

use stillframe_store::{DbId, End, Insertion, Key, Setting, Store, Worker};

use super::{tried, Tried};

pub type Model = BTreeMap<Vec<u8>, VecDeque<Vec<u8>>>;

const DB: DbId = DbId(0);

pub fn names() -> impl Iterator<Item = Vec<u8>> {
    (0..4).map(|number| format!("list:{number}").into_bytes())
}

/// Few different ones, so that they are found; some that lie outside of blocks.
fn item(random: &mut fastrand::Rng) -> Vec<u8> {
    let number = random.u32(..200);
    let len = if number < 4 { 500 * number as usize + 300 } else { 3 };
    format!("{number:0len$}").into_bytes()
}

/// Applies a random change to the store and to the model. An error has changed neither.
pub fn step(store: &Store, worker: &mut Worker, model: &mut Model, random: &mut fastrand::Rng) -> Tried {
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
                tried(store, worker, |worker| worker.list_at(DB, &key).push(end, &given, only_if_exists))?;
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
            tried(store, worker, |worker| {
                popped.clear();
                worker.list_at(DB, &key).pop(end, count, |_| (), |item| popped.push(item.to_vec()))
            })?;
            let mut pop = || if end == End::Left { list.pop_front() } else { list.pop_back() };
            let expected: Vec<_> = (0..count).map_while(|_| pop()).collect();
            assert_eq!(popped, expected);
        }
        65..75 => {
            let (index, item) = (random.i64(-3_000..3_000), item(random));
            let set = tried(store, worker, |worker| worker.list_at(DB, &key).set(index, &item))?;
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
                tried(store, worker, |worker| worker.list_at(DB, &key).insert(is_before, &pivot, &item))?;
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
        _ => remove_some(store, worker, list, &key, random)?,
    }
    model.retain(|_, list| !list.is_empty());
    worker.quiesce();
    Ok(())
}

/// Removes items by value, or at the ends.
fn remove_some(
    store: &Store,
    worker: &mut Worker,
    list: &mut VecDeque<Vec<u8>>,
    key: &Key<'_>,
    random: &mut fastrand::Rng,
) -> Tried {
    if random.bool() {
        let (count, item) = (random.i64(-3..4), item(random));
        let removed = tried(store, worker, |worker| worker.list_at(DB, key).remove(count, &item))?;
        let mut places: Vec<usize> = (0..list.len()).filter(|at| list[*at] == item).collect();
        if count < 0 {
            places.reverse();
        }
        places.truncate(if count == 0 { usize::MAX } else { count.unsigned_abs() as usize });
        places.sort_unstable();
        assert_eq!(removed, places.len() as u64);
        places.iter().rev().for_each(|at| drop(list.remove(*at)));
        return Ok(());
    }
    let (start, stop) = (random.i64(-2_500..400), random.i64(-400..3_000));
    tried(store, worker, |worker| worker.list_at(DB, key).trim(start, stop))?;
    let len = list.len() as i64;
    let at = |index: i64| if index < 0 { index + len } else { index };
    let (start, stop) = (at(start).max(0), at(stop).min(len - 1));
    let kept = if start > stop { 0..0 } else { start as usize..stop as usize + 1 };
    *list = list.range(kept).cloned().collect();
    Ok(())
}

/// Moves an item of a list to another or to itself, or copies it.
fn go_between(
    store: &Store,
    worker: &mut Worker,
    model: &mut Model,
    name: &[u8],
    random: &mut fastrand::Rng,
) -> Tried {
    let target = format!("list:{}", random.u32(..4)).into_bytes();
    let (key, to) = (worker.key(name), worker.key(&target));
    let list = model.get(name).cloned().unwrap_or_default();
    if random.u32(..4) == 0 && target != name && !list.is_empty() {
        assert!(tried(store, worker, |worker| worker.copy((DB, &key), (DB, &to)))?);
        model.insert(target, list);
    } else {
        let [from_end, to_end] = [(); 2].map(|()| if random.bool() { End::Left } else { End::Right });
        let mut moved = None;
        let is_moved = tried(store, worker, |worker| {
            worker.list_at(DB, &key).move_to(from_end, (&to, to_end), |item| moved = Some(item.to_vec()))
        })?;
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
    Ok(())
}

/// Compares one list in every way in which it is read.
pub fn compare(
    store: &Store,
    worker: &mut Worker,
    model: &Model,
    name: &[u8],
    random: &mut fastrand::Rng,
) -> Tried {
    let key = worker.key(name);
    let list = model.get(name).cloned().unwrap_or_default();
    assert_eq!(tried(store, worker, |worker| worker.list_at(DB, &key).len())?, list.len() as u64);
    let mut found = Vec::new();
    let is_there = tried(store, worker, |worker| {
        found.clear();
        let add = |item: &[u8]| {
            found.push(item.to_vec());
            ControlFlow::Continue(())
        };
        worker.list_at(DB, &key).range(0, -1, |_| (), add)
    })?;
    assert_eq!(is_there, !list.is_empty());
    assert!(found.iter().eq(&list));
    let (item, is_upwards) = (item(random), random.bool());
    let mut places = Vec::new();
    tried(store, worker, |worker| {
        places.clear();
        worker.list_at(DB, &key).pos(&item, is_upwards, u64::MAX, |index| {
            places.push(index as usize);
            true
        })
    })?;
    places.sort_unstable();
    assert!(places.into_iter().eq((0..list.len()).filter(|at| list[*at] == item)));
    Ok(())
}
