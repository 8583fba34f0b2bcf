//! Sets.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use stillframe_store::{DbId, Draw, Encoding, Options, Store, Worker};
use stillframe_testkit::{seed, TempDir};

use crate::{check, open, retried};

const DB: DbId = DbId(0);
const NAMES: u32 = 9;
const INTSET_ENTRIES: usize = 512;
/// What a pop leaves is looked at anew if it is not more than one in so many of what goes.
const KEPT_SHARE: usize = 5;

#[derive(Clone, Default)]
struct Set {
    members: BTreeSet<Vec<u8>>,
    is_table: bool,
}

type Model = BTreeMap<Vec<u8>, Set>;

fn is_integer(member: &[u8]) -> bool {
    let number = std::str::from_utf8(member).ok().and_then(|text| text.parse::<i64>().ok());
    number.is_some_and(|number| number.to_string().as_bytes() == member)
}

impl Set {
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

fn refs(members: &[Vec<u8>]) -> Vec<&[u8]> {
    members.iter().map(|member| &member[..]).collect()
}

fn pop(store: &Store, worker: &mut Worker, model: &mut Model, random: &mut fastrand::Rng) {
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
    let found = retried(store, worker, |worker| {
        popped.clear();
        announced = 0;
        worker.set_pop(
            DB,
            &key,
            count as u64,
            |count| announced = count,
            |member| popped.push(member.to_vec()),
        )
    });
    assert_eq!(found, !set.members.is_empty());
    assert_eq!(popped.len(), count.min(set.members.len()));
    assert_eq!(announced, popped.len() as u64);
    assert!(popped.iter().all(|member| set.members.remove(member)), "what is not there is popped");
    let is_little = set.members.len() * KEPT_SHARE <= popped.len() && set.members.len() <= INTSET_ENTRIES;
    if is_little && !popped.is_empty() && set.members.iter().all(|member| is_integer(member)) {
        set.is_table = false;
    }
}

fn move_member(store: &Store, worker: &mut Worker, model: &mut Model, random: &mut fastrand::Rng) {
    let ((from, number), (to, _)) = (name_of(random), name_of(random));
    let some = model.get(&from).and_then(|set| set.members.iter().nth(random.usize(..30))).cloned();
    let member = some.unwrap_or_else(|| member_of(random, number));
    let (from_key, to_key) = (worker.key(&from), worker.key(&to));
    let moved = retried(store, worker, |worker| worker.set_move(DB, &from_key, &to_key, &member));
    let is_there = model.get(&from).is_some_and(|set| set.members.contains(&member));
    assert_eq!(moved, is_there);
    if is_there && from != to {
        model.entry(from).or_default().members.remove(&member);
        model.entry(to).or_default().add(&member);
    }
}

/// The whole of one set, in part or together with another's, takes the place of a third.
fn replace(store: &Store, worker: &mut Worker, model: &mut Model, random: &mut fastrand::Rng) {
    let ((one, _), (other, _), (to, _)) = (name_of(random), name_of(random), name_of(random));
    let mut set = Set::default();
    for member in [&one, &other].into_iter().filter_map(|name| model.get(name)).flat_map(|set| &set.members) {
        if random.u32(..5) > 0 {
            set.add(member);
        }
    }
    if set.members.is_empty() {
        return;
    }
    let (key, given): (_, Vec<Vec<u8>>) = (worker.key(&to), set.members.iter().cloned().collect());
    retried(store, worker, |worker| worker.set_replace(DB, &key, &refs(&given)));
    model.insert(to, set);
}

fn change_key(store: &Store, worker: &mut Worker, model: &mut Model, random: &mut fastrand::Rng) {
    let ((name, _), (target, _)) = (name_of(random), name_of(random));
    let (key, to) = (worker.key(&name), worker.key(&target));
    match random.u32(..3) {
        0 if target != name => {
            retried(store, worker, |worker| worker.copy((DB, &key), (DB, &to)));
            if let Some(copied) = model.get(&name).cloned() {
                model.insert(target, copied);
            }
        }
        1 => {
            retried(store, worker, |worker| worker.remove(DB, &key));
            model.remove(&name);
        }
        _ => {
            retried(store, worker, |worker| worker.rename((DB, &key), (DB, &to)));
            if let Some(moved) = model.remove(&name) {
                model.insert(target, moved);
            }
        }
    }
}

fn step(store: &Store, worker: &mut Worker, model: &mut Model, random: &mut fastrand::Rng) {
    match random.u32(..100) {
        0..55 => {
            let (name, number) = name_of(random);
            let (key, members) = (worker.key(&name), members_of(random, number));
            let added = retried(store, worker, |worker| worker.set_add(DB, &key, &refs(&members)));
            let set = model.entry(name).or_default();
            assert_eq!(added, members.iter().filter(|member| set.add(member)).count() as u64);
        }
        55..75 => {
            let (name, number) = name_of(random);
            let (key, members) = (worker.key(&name), members_of(random, number));
            let removed = retried(store, worker, |worker| worker.set_remove(DB, &key, &refs(&members)));
            let set = model.entry(name).or_default();
            let there = members.iter().filter(|member| set.members.remove(*member)).count();
            assert_eq!(removed, there as u64);
        }
        75..85 => pop(store, worker, model, random),
        85..93 => move_member(store, worker, model, random),
        93..96 => replace(store, worker, model, random),
        _ => change_key(store, worker, model, random),
    }
    model.retain(|_, set| !set.members.is_empty());
    worker.quiesce();
}

fn all_of(store: &Store, worker: &mut Worker, name: &[u8]) -> Vec<Vec<u8>> {
    let (key, mut found, mut announced) = (worker.key(name), Vec::new(), 0);
    retried(store, worker, |worker| {
        (found, announced) = (Vec::new(), 0);
        worker.set_for_each(
            DB,
            &key,
            |count| announced = count,
            |member| {
                found.push(member.to_vec());
                ControlFlow::Continue(())
            },
        )
    });
    assert_eq!(announced, found.len() as u64);
    found
}

fn scanned(store: &Store, worker: &mut Worker, name: &[u8]) -> Vec<Vec<u8>> {
    let (key, mut cursor, mut found) = (worker.key(name), 0, Vec::new());
    loop {
        let mut given = Vec::new();
        let next = retried(store, worker, |worker| {
            given.clear();
            worker.set_scan(DB, &key, cursor, 10, |member| given.push(member.to_vec()))
        });
        found.append(&mut given);
        cursor = next.unwrap_or(0);
        if cursor == 0 {
            return found;
        }
    }
}

fn compare_draws(store: &Store, worker: &mut Worker, name: &[u8], set: &BTreeSet<Vec<u8>>) {
    let (key, len) = (worker.key(name), set.len() as u64);
    let distinct = [1, len / 5, len / 2, len + 1].map(Draw::Distinct);
    for draw in distinct.into_iter().chain([Draw::Repeated(7)]) {
        let (mut given, mut announced) = (Vec::new(), 0);
        retried(store, worker, |worker| {
            (given, announced) = (Vec::new(), 0);
            worker.set_random(
                DB,
                &key,
                draw,
                |count| announced = count,
                |member| {
                    given.push(member.to_vec());
                    ControlFlow::Continue(())
                },
            )
        });
        let expected = match draw {
            Draw::Distinct(count) => count.min(len),
            Draw::Repeated(count) => count * u64::from(len > 0),
        };
        assert_eq!((announced, given.len() as u64), (expected, expected), "{draw:?} of {len}");
        assert!(given.iter().all(|member| set.contains(member)));
        let is_distinct = given.iter().collect::<BTreeSet<_>>().len() == given.len();
        assert!(is_distinct || matches!(draw, Draw::Repeated(_)));
    }
}

fn compare(store: &Store, worker: &mut Worker, model: &Model) {
    for name in (0..NAMES).map(|number| format!("set:{number}").into_bytes()) {
        let (key, set) = (worker.key(&name), model.get(&name).cloned().unwrap_or_default());
        assert_eq!(retried(store, worker, |worker| worker.set_len(DB, &key)), set.members.len() as u64);
        let encoding =
            retried(store, worker, |worker| worker.entry(DB, &key)).and_then(|entry| entry.encoding);
        let expected = if set.members.is_empty() { None } else { Some(set.encoding()) };
        assert_eq!(encoding, expected, "{}", String::from_utf8_lossy(&name));
        for mut found in [all_of(store, worker, &name), scanned(store, worker, &name)] {
            // As Redis gives the integers of a small set.
            if !set.is_table && found.len() < 100 {
                let number = |member: &Vec<u8>| String::from_utf8_lossy(member).parse::<i64>().ok();
                assert!(found.is_sorted_by_key(number));
            }
            found.sort();
            assert!(found.iter().eq(&set.members), "{}", String::from_utf8_lossy(&name));
        }
        let asked: Vec<&[u8]> = set.members.iter().map(|m| &m[..]).chain([&b"no such member"[..]]).collect();
        retried(store, worker, |worker| {
            worker.set_contains(DB, &key, asked.iter().copied(), |index, is_there| {
                assert_eq!(is_there, set.members.contains(asked[index]));
            })
        });
        compare_draws(store, worker, &name, &set.members);
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
        let mut worker = store.worker();
        assert_eq!(store.is_new(), round == 0);
        if round > 0 {
            // What is not in memory is met in the midst of operations.
            (0..200).for_each(|_| step(&store, &mut worker, &mut model, &mut random));
        }
        compare(&store, &mut worker, &model);
        for _ in 0..3 {
            (0..500).for_each(|_| step(&store, &mut worker, &mut model, &mut random));
            compare(&store, &mut worker, &model);
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
    let mut worker = store.worker();
    // Of one leaf, of a few, and of many.
    for member_count in [150, 400, 1_500] {
        let (name, mut times) = (format!("set:{member_count}").into_bytes(), BTreeMap::new());
        let key = worker.key(&name);
        let members: Vec<Vec<u8>> =
            (0..member_count).map(|number| format!("a rather long member {number}").into_bytes()).collect();
        worker.set_replace(DB, &key, &refs(&members)).unwrap();
        let draw = Draw::Repeated(u64::from(DRAWS / 2));
        let count = |times: &mut BTreeMap<Vec<u8>, u32>, member: &[u8]| {
            *times.entry(member.to_vec()).or_default() += 1;
        };
        worker
            .set_random(
                DB,
                &key,
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
            worker.set_pop(DB, &key, 1, |_| {}, |member| popped = member.to_vec()).unwrap();
            count(&mut times, &popped);
            worker.set_add(DB, &key, &[&popped]).unwrap();
        }
        assert_even(&times, member_count, DRAWS);
    }
    check(&store, &mut worker);
}
