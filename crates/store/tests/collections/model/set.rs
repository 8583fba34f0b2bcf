//! Sets.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use stillframe_store::{DbId, Draw, Encoding, OpError, Store, Worker};

use super::{tried, Tried};

const DB: DbId = DbId(0);
const NAMES: u32 = 9;
const INTSET_ENTRIES: usize = 512;
/// What a pop leaves is looked at anew if it is not more than one in so many of what goes.
const KEPT_SHARE: usize = 5;

#[derive(Clone, Default)]
pub struct Set {
    members: BTreeSet<Vec<u8>>,
    is_table: bool,
}

pub type Model = BTreeMap<Vec<u8>, Set>;

fn is_integer(member: &[u8]) -> bool {
    let number = std::str::from_utf8(member).ok().and_then(|text| text.parse::<i64>().ok());
    number.is_some_and(|number| number.to_string().as_bytes() == member)
}

impl Set {
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn add(&mut self, member: &[u8]) -> bool {
        let is_new = self.members.insert(member.to_vec());
        self.is_table |= self.members.len() > INTSET_ENTRIES || !is_integer(member);
        is_new
    }

    fn encoding(&self) -> Encoding {
        if self.is_table {
            Encoding::HashTable
        } else {
            Encoding::IntSet
        }
    }
}

pub fn names() -> impl Iterator<Item = Vec<u8>> {
    (0..NAMES).map(|number| format!("set:{number}").into_bytes())
}

/// The first names are of small sets, of integers every third.
fn name_of(random: &mut fastrand::Rng) -> (Vec<u8>, u32) {
    let number = random.u32(..NAMES);
    (format!("set:{number}").into_bytes(), number)
}

fn member_of(random: &mut fastrand::Rng, number: u32) -> Vec<u8> {
    let range = if number < 6 { 40 } else { 3_000 };
    match random.u32(..60) {
        0 if number >= 6 => vec![b'm'; random.usize(..1_000)],
        _ if number % 3 == 0 => (random.i64(..range) - range / 2).to_string().into_bytes(),
        _ => format!("member:{}", random.i64(..range)).into_bytes(),
    }
}

fn members_of(random: &mut fastrand::Rng, number: u32) -> Vec<Vec<u8>> {
    let count = random.usize(1..if number < 6 { 6 } else { 60 });
    (0..count).map(|_| member_of(random, number)).collect()
}

pub fn refs(members: &[Vec<u8>]) -> Vec<&[u8]> {
    members.iter().map(|member| &member[..]).collect()
}

fn pop(store: &Store, worker: &mut Worker, model: &mut Model, random: &mut fastrand::Rng) -> Tried {
    let (name, _) = name_of(random);
    let key = worker.key(&name);
    let set = model.entry(name.clone()).or_default();
    let count = match random.u32(..12) {
        0 => random.usize(..=set.members.len() + 1),
        1 => set.members.len() * 9 / 10,
        2..6 => random.usize(..9),
        _ => 1,
    };
    let (mut popped, mut announced) = (Vec::new(), 0);
    let found = tried(store, worker, |worker| {
        popped.clear();
        announced = 0;
        worker.set_at(DB, &key).pop(
            count as u64,
            |count| announced = count,
            |member| popped.push(member.to_vec()),
        )
    })?;
    assert_eq!(found, !set.members.is_empty());
    assert_eq!(popped.len(), count.min(set.members.len()));
    assert_eq!(announced, popped.len() as u64);
    assert!(popped.iter().all(|member| set.members.remove(member)), "what is not there is popped");
    let is_little = set.members.len() * KEPT_SHARE <= popped.len() && set.members.len() <= INTSET_ENTRIES;
    if is_little && !popped.is_empty() && set.members.iter().all(|member| is_integer(member)) {
        set.is_table = false;
    }
    Ok(())
}

fn move_member(store: &Store, worker: &mut Worker, model: &mut Model, random: &mut fastrand::Rng) -> Tried {
    let ((from, number), (to, _)) = (name_of(random), name_of(random));
    let some = model.get(&from).and_then(|set| set.members.iter().nth(random.usize(..30))).cloned();
    let member = some.unwrap_or_else(|| member_of(random, number));
    let (from_key, to_key) = (worker.key(&from), worker.key(&to));
    let moved = tried(store, worker, |worker| worker.set_at(DB, &from_key).move_to(&to_key, &member))?;
    let is_there = model.get(&from).is_some_and(|set| set.members.contains(&member));
    assert_eq!(moved, is_there);
    if is_there && from != to {
        model.entry(from).or_default().members.remove(&member);
        model.entry(to).or_default().add(&member);
    }
    Ok(())
}

/// The whole of one set, in part or together with another's, takes the place of a third.
fn replace(store: &Store, worker: &mut Worker, model: &mut Model, random: &mut fastrand::Rng) -> Tried {
    let ((one, _), (other, _), (to, _)) = (name_of(random), name_of(random), name_of(random));
    let mut set = Set::default();
    for member in [&one, &other].into_iter().filter_map(|name| model.get(name)).flat_map(|set| &set.members) {
        if random.u32(..5) > 0 {
            set.add(member);
        }
    }
    if set.members.is_empty() {
        return Ok(());
    }
    let (key, given): (_, Vec<Vec<u8>>) = (worker.key(&to), set.members.iter().cloned().collect());
    tried(store, worker, |worker| worker.set_at(DB, &key).replace(&refs(&given), None))?;
    model.insert(to, set);
    Ok(())
}

fn change_key(store: &Store, worker: &mut Worker, model: &mut Model, random: &mut fastrand::Rng) -> Tried {
    let ((name, _), (target, _)) = (name_of(random), name_of(random));
    let (key, to) = (worker.key(&name), worker.key(&target));
    match random.u32(..3) {
        0 if target != name => {
            tried(store, worker, |worker| worker.copy((DB, &key), (DB, &to)))?;
            if let Some(copied) = model.get(&name).cloned() {
                model.insert(target, copied);
            }
        }
        1 => {
            tried(store, worker, |worker| worker.remove(DB, &key))?;
            model.remove(&name);
        }
        _ => {
            tried(store, worker, |worker| worker.rename((DB, &key), (DB, &to)))?;
            if let Some(moved) = model.remove(&name) {
                model.insert(target, moved);
            }
        }
    }
    Ok(())
}

/// Applies a random change to the store and to the model. An error has changed neither.
pub fn step(store: &Store, worker: &mut Worker, model: &mut Model, random: &mut fastrand::Rng) -> Tried {
    match random.u32(..100) {
        0..55 => {
            let (name, number) = name_of(random);
            let (key, members) = (worker.key(&name), members_of(random, number));
            let added = tried(store, worker, |worker| worker.set_at(DB, &key).add(&refs(&members)))?;
            let set = model.entry(name).or_default();
            assert_eq!(added, members.iter().filter(|member| set.add(member)).count() as u64);
        }
        55..75 => {
            let (name, number) = name_of(random);
            let (key, members) = (worker.key(&name), members_of(random, number));
            let removed = tried(store, worker, |worker| worker.set_at(DB, &key).remove(&refs(&members)))?;
            let set = model.entry(name).or_default();
            let there = members.iter().filter(|member| set.members.remove(*member)).count();
            assert_eq!(removed, there as u64);
        }
        75..85 => pop(store, worker, model, random)?,
        85..93 => move_member(store, worker, model, random)?,
        93..96 => replace(store, worker, model, random)?,
        _ => change_key(store, worker, model, random)?,
    }
    model.retain(|_, set| !set.members.is_empty());
    worker.quiesce();
    Ok(())
}

fn all_of(store: &Store, worker: &mut Worker, name: &[u8]) -> Result<Vec<Vec<u8>>, OpError> {
    let (key, mut found, mut announced) = (worker.key(name), Vec::new(), 0);
    tried(store, worker, |worker| {
        (found, announced) = (Vec::new(), 0);
        worker.set_at(DB, &key).for_each(
            |count| announced = count,
            |member| {
                found.push(member.to_vec());
                ControlFlow::Continue(())
            },
        )
    })?;
    assert_eq!(announced, found.len() as u64);
    Ok(found)
}

fn scanned(store: &Store, worker: &mut Worker, name: &[u8]) -> Result<Vec<Vec<u8>>, OpError> {
    let (key, mut cursor, mut found) = (worker.key(name), 0, Vec::new());
    loop {
        let mut given = Vec::new();
        let next = tried(store, worker, |worker| {
            given.clear();
            worker.set_at(DB, &key).scan(cursor, 10, |member| given.push(member.to_vec()))
        })?;
        found.append(&mut given);
        cursor = next.unwrap_or(0);
        if cursor == 0 {
            return Ok(found);
        }
    }
}

fn compare_draws(store: &Store, worker: &mut Worker, name: &[u8], set: &BTreeSet<Vec<u8>>) -> Tried {
    let (key, len) = (worker.key(name), set.len() as u64);
    let distinct = [1, len / 5, len / 2, len + 1].map(Draw::Distinct);
    for draw in distinct.into_iter().chain([Draw::Repeated(7)]) {
        let (mut given, mut announced) = (Vec::new(), 0);
        tried(store, worker, |worker| {
            (given, announced) = (Vec::new(), 0);
            worker.set_at(DB, &key).random(
                draw,
                |count| announced = count,
                |member| {
                    given.push(member.to_vec());
                    ControlFlow::Continue(())
                },
            )
        })?;
        let expected = match draw {
            Draw::Distinct(count) => count.min(len),
            Draw::Repeated(count) => count * u64::from(len > 0),
        };
        assert_eq!((announced, given.len() as u64), (expected, expected), "{draw:?} of {len}");
        assert!(given.iter().all(|member| set.contains(member)));
        let is_distinct = given.iter().collect::<BTreeSet<_>>().len() == given.len();
        assert!(is_distinct || matches!(draw, Draw::Repeated(_)));
    }
    Ok(())
}

/// Compares one set in every way in which it is read.
pub fn compare(store: &Store, worker: &mut Worker, model: &Model, name: &[u8]) -> Tried {
    let (key, set) = (worker.key(name), model.get(name).cloned().unwrap_or_default());
    assert_eq!(tried(store, worker, |worker| worker.set_at(DB, &key).len())?, set.members.len() as u64);
    let encoding = tried(store, worker, |worker| worker.entry(DB, &key))?.and_then(|entry| entry.encoding);
    let expected = if set.members.is_empty() { None } else { Some(set.encoding()) };
    assert_eq!(encoding, expected, "{}", String::from_utf8_lossy(name));
    for mut found in [all_of(store, worker, name)?, scanned(store, worker, name)?] {
        // As Redis gives the integers of a small set.
        if !set.is_table && found.len() < 100 {
            let number = |member: &Vec<u8>| String::from_utf8_lossy(member).parse::<i64>().ok();
            assert!(found.is_sorted_by_key(number));
        }
        found.sort();
        assert!(found.iter().eq(&set.members), "{}", String::from_utf8_lossy(name));
    }
    let asked: Vec<&[u8]> = set.members.iter().map(|m| &m[..]).chain([&b"no such member"[..]]).collect();
    tried(store, worker, |worker| {
        worker.set_at(DB, &key).contains(asked.iter().copied(), |index, is_there| {
            assert_eq!(is_there, set.members.contains(asked[index]));
        })
    })?;
    compare_draws(store, worker, name, &set.members)
}
