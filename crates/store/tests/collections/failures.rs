//! Operations in which something fails at each of their places, one after the other: memory is refused, page numbers have run out, a
//! page is missing, a page is damaged. Whatever an operation answers then, what it has told makes exactly what the store has.
//!
//! `STILLFRAME_SEQUENCES=n` says how many sequences of operations are tried.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use stillframe_pagepool::device::SimDevice;
use stillframe_pagepool::failing::{Failing, Failure};
use stillframe_store::{
    Conditions, DbId, Effect, Key, Listener, OpError, Options, Position, Step, Store, Worker, WorkerId,
};
use stillframe_testkit::{seed, within, PATIENCE};

use crate::effects::{add, content_of, name, operation_on, Collection, Content, Replayed, DATABASES};

/// Few, so that all of them are looked at after each operation.
const NAMES: u32 = 4;
/// Operations of a sequence: each with one kind of failure, at all of its places.
const OPERATIONS: u32 = 3;
/// Sequences after which the store is opened anew.
const SEQUENCES_A_LIFE: u64 = 50;
/// Operations with which such a life begins, and in which nothing fails.
const FIRST_OPERATIONS: u32 = 100;

fn sequence_count(usually: u64) -> u64 {
    let count = std::env::var("STILLFRAME_SEQUENCES").ok().and_then(|count| count.parse().ok());
    let count = count.unwrap_or(usually);
    println!("STILLFRAME_SEQUENCES={count}");
    count
}

/// Opens what a device has, as a store of which pages may be missing, as far as it knows, and checks all of it. What stays in use
/// beside damage is found then.
fn open(device: &Arc<SimDevice>, worker_count: usize, listener: Arc<dyn Listener>) -> Store {
    let options = Options {
        database_count: DATABASES,
        worker_count,
        tiered_bytes: 64 << 20,
        huge_pages: false,
        pool_backend: stillframe_testkit::pool_backend(),
        ..Options::default()
    };
    let store = Store::open_on(device.clone(), options).expect("the store opens");
    store.pool().residency().wait_until_warm();
    assert!(within(PATIENCE, || store.is_tidy()), "something is not freed");
    store.check().unwrap_or_else(|error| panic!("{error}"));
    store.pool().room().conditions().set(Conditions::EVICTING, true);
    assert!(store.listen(vec![listener]));
    store
}

/// Saves a store whose life ends.
fn save(store: &Store, worker: &mut Worker) {
    worker.idle(|| store.checkpoint()).expect("the store is saved");
}

fn begin(worker: &mut Worker, random: &mut fastrand::Rng) {
    for _ in 0..FIRST_OPERATIONS {
        match operation_on(worker, random, NAMES) {
            Ok(()) | Err(OpError::WrongType) => worker.quiesce(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// What fails in an operation: at one place, or from that on.
#[derive(Clone, Copy, Debug)]
struct Plan {
    failure: Failure,
    goes_on: bool,
    /// Of the operation.
    seed: u64,
}

impl Plan {
    fn draw(random: &mut fastrand::Rng) -> Plan {
        // Few operations need memory, or pages, and those that do not are done at once.
        let failure = match random.u32(..8) {
            0..3 => Failure::NoMemory,
            3..6 => Failure::NoPages,
            6 => Failure::Missing,
            _ => Failure::Damaged,
        };
        Plan { failure, goes_on: random.bool(), seed: random.u64(..) }
    }

    fn expects(&self, error: &OpError) -> bool {
        match self.failure {
            Failure::NoMemory => matches!(error, OpError::OutOfMemory { .. }),
            Failure::NoPages | Failure::Damaged => matches!(error, OpError::Damaged(_)),
            Failure::Missing => matches!(error, OpError::Fault(_)),
        }
    }

    /// Whether an operation that ends with an error has changed nothing at all.
    fn undoes(&self) -> bool {
        matches!(self.failure, Failure::NoMemory | Failure::Missing)
    }

    /// Runs the operation with the failure at its first place, then at its second, until there is none left; calls `look` after each
    /// time, with whether the operation has been done. How often it ended with an error.
    fn run(&self, worker: &mut Worker, mut look: impl FnMut(&mut Worker, u64, bool)) -> u64 {
        let mut errors = 0;
        for places_before in 0.. {
            let failing = Failing::begin(self.failure, places_before, self.goes_on);
            let result = operation_on(worker, &mut fastrand::Rng::with_seed(self.seed), NAMES);
            let failed_count = failing.failed_count();
            drop(failing);
            worker.quiesce();
            let is_done = match result {
                Ok(()) | Err(OpError::WrongType) => true,
                Err(error) => {
                    let is_expected = failed_count > 0 && self.expects(&error);
                    assert!(is_expected, "{self:?} at {places_before}: {error:?}");
                    false
                }
            };
            errors += u64::from(!is_done);
            look(worker, places_before, is_done);
            if failed_count == 0 {
                return errors;
            }
        }
        unreachable!()
    }
}

/// What there is to be seen of it now.
fn seen(content: &Content, now: i64) -> Content {
    let is_live = |deadline: Option<i64>| deadline.is_none_or(|deadline| deadline > now);
    let mut content = content.clone();
    content.retain(|_, (collection, deadline)| {
        if let Collection::Hash(fields) = collection {
            fields.retain(|_, (_, deadline)| is_live(*deadline));
        }
        is_live(*deadline) && !collection.is_empty()
    });
    content
}

/// What the worker finds at all keys.
fn read(worker: &mut Worker) -> Content {
    let mut content = Content::new();
    for (db, number) in (0..DATABASES).flat_map(|db| (0..NAMES).map(move |number| (db, number))) {
        let of_key = name(number);
        let key = worker.key(&of_key);
        let Some(entry) = worker.entry(DbId(db), &key).expect("the key can be read") else { continue };
        let mut made = None;
        let each = |element: stillframe_store::Element<'_>| {
            add(&mut made, element);
            ControlFlow::Continue(())
        };
        worker.collection_at(DbId(db), &key).for_each(|_, _| (), each).expect("elements can be read");
        if let Some(made) = made {
            content.insert((db, of_key), (made, entry.deadline));
        }
        worker.quiesce();
    }
    content
}

/// Runs a sequence and looks, after each time that an operation has been tried, whether the store has what was told. How often each
/// failure has ended an operation is added to `errors`.
fn run_sequence(
    worker: &mut Worker,
    random: &mut fastrand::Rng,
    replayed: &Replayed,
    errors: &mut BTreeMap<String, u64>,
) {
    let now = worker.now();
    for _ in 0..OPERATIONS {
        let plan = Plan::draw(random);
        let mut before = read(worker);
        let look = |worker: &mut Worker, place: u64, is_done: bool| {
            let (found, told) = (read(worker), replayed.content());
            let is_told = seen(&told, now) == seen(&found, now);
            let is_undone = is_done || !plan.undoes() || seen(&found, now) == seen(&before, now);
            let times = format!("{plan:?} at place {place}, done: {is_done}");
            assert!(is_told, "{times}: there is\n{found:?}\ntold was\n{told:?}\nbefore\n{before:?}");
            assert!(is_undone, "{times}: an error, and there is\n{found:?}\nbefore\n{before:?}");
            before = found;
        };
        *errors.entry(format!("{:?}", plan.failure)).or_insert(0) += plan.run(worker, look);
    }
}

#[test]
fn what_is_told_is_what_is_there_wherever_an_operation_fails() {
    let (mut random, device) = (fastrand::Rng::with_seed(seed()), Arc::new(SimDevice::new(1)));
    let (replayed, mut now, mut errors) = (Arc::new(Replayed::default()), 1_000_000, BTreeMap::new());
    for _ in 0..sequence_count(400).div_ceil(SEQUENCES_A_LIFE) {
        let store = open(&device, 1, replayed.clone());
        let mut worker = store.nonblocking_worker().unwrap();
        worker.set_now(now);
        assert_eq!(content_of(&store, &mut worker), replayed.content(), "what was saved");
        begin(&mut worker, &mut random);
        for _ in 0..SEQUENCES_A_LIFE {
            now += random.i64(0..2);
            worker.set_now(now);
            run_sequence(&mut worker, &mut random, &replayed, &mut errors);
        }
        assert_eq!(content_of(&store, &mut worker), replayed.content());
        save(&store, &mut worker);
    }
    open(&device, 1, replayed);
    println!("operations that failed: {errors:?}");
    assert!(errors.len() == 4 && errors.values().all(|count| *count > 10), "{errors:?}");
}

/// Keys, each with its database; `None`: all keys.
type Touched = Option<BTreeSet<(u32, Vec<u8>)>>;

fn touched(effect: &Effect<'_>) -> Touched {
    let of = |places: &[(DbId, Key<'_>)]| {
        Some(places.iter().map(|(db, key)| (db.0, key.bytes.to_vec())).collect::<BTreeSet<_>>())
    };
    match *effect {
        Effect::Set { db, key, .. } | Effect::Write { db, key, .. } => of(&[(db, key)]),
        Effect::Element { db, key, .. } | Effect::Replace { db, key } => of(&[(db, key)]),
        Effect::Deadline { db, key, .. } | Effect::Delete { db, key } => of(&[(db, key)]),
        Effect::Expire { db, key } | Effect::Evict { db, key } => of(&[(db, key)]),
        Effect::Move { from, to, .. } | Effect::Copy { from, to } => of(&[from, to]),
        Effect::Flush { .. } | Effect::Swap { .. } => None,
        Effect::LibrarySet { .. } | Effect::LibraryRemoved { .. } | Effect::LibrariesRemoved => of(&[]),
    }
}

/// Replays effects as they are heard, and holds against them that this is the order of their steps' positions: no step touches what
/// another one touches that is still told, and each has a higher position than those before it that have touched the same.
struct InOrder {
    replayed: Arc<Replayed>,
    order: Mutex<Order>,
}

#[derive(Default)]
struct Order {
    /// What the steps have touched that have not ended.
    told: BTreeMap<WorkerId, Vec<Touched>>,
    /// The last position of each key, of all keys, and of any.
    last: BTreeMap<(u32, Vec<u8>), u64>,
    last_of_all: u64,
    last_of_any: u64,
    wrong: Vec<String>,
}

fn overlap(a: &Touched, b: &Touched) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => !a.is_disjoint(b),
        _ => true,
    }
}

impl Listener for InOrder {
    fn hear(&self, step: &Step, effect: &Effect<'_>) {
        let (mut order, touched) = (self.order.lock(), touched(effect));
        let mut others = order.told.iter().filter(|(worker, _)| **worker != step.worker);
        if others.any(|(_, told)| told.iter().any(|other| overlap(other, &touched))) {
            order.wrong.push(format!("{effect:?} within another step"));
        }
        order.told.entry(step.worker).or_default().push(touched);
        self.replayed.hear(step, effect);
    }

    fn end(&self, step: &Step, Position(position): Position) {
        let mut order = self.order.lock();
        for touched in order.told.remove(&step.worker).unwrap_or_default() {
            let last = match &touched {
                Some(keys) => keys.iter().filter_map(|key| order.last.get(key).copied()).max(),
                None => Some(order.last_of_any),
            };
            // A step may touch a key several times.
            let last = last.unwrap_or(0).max(order.last_of_all);
            if last > position {
                order.wrong.push(format!("{touched:?} at {position}, behind {last}"));
            }
            match touched {
                Some(keys) => order.last.extend(keys.into_iter().map(|key| (key, position))),
                None => order.last_of_all = position,
            }
        }
        order.last_of_any = order.last_of_any.max(position);
    }
}

/// Runs sequences as one of two workers; returns how many operations have failed.
fn work(store: &Store, seed: u64, now: i64) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut worker = store.nonblocking_worker().unwrap();
    worker.set_now(now);
    let sequences = SEQUENCES_A_LIFE / 2 * u64::from(OPERATIONS);
    (0..sequences).map(|_| Plan::draw(&mut random).run(&mut worker, |_, _, _| ())).sum()
}

#[test]
fn what_two_workers_tell_is_what_is_there_in_the_order_of_positions() {
    let (mut random, device) = (fastrand::Rng::with_seed(seed()), Arc::new(SimDevice::new(1)));
    let (replayed, mut errors) = (Arc::new(Replayed::default()), 0);
    for life in 0..sequence_count(400).div_ceil(SEQUENCES_A_LIFE) {
        let heard = Arc::new(InOrder { replayed: replayed.clone(), order: Mutex::default() });
        let (store, now) = (open(&device, 2, heard.clone()), 1_000_000 + life as i64 * 10);
        let mut worker = store.nonblocking_worker().unwrap();
        worker.set_now(now);
        assert_eq!(content_of(&store, &mut worker), replayed.content(), "what was saved");
        begin(&mut worker, &mut random);
        let seeds = [random.u64(..), random.u64(..)];
        errors += worker.idle(|| {
            std::thread::scope(|scope| {
                let works = seeds.map(|seed| {
                    scope.spawn({
                        let store = &store;
                        move || work(store, seed, now)
                    })
                });
                works.map(|work| work.join().expect("the worker comes to its end")).iter().sum::<u64>()
            })
        });
        assert_eq!(heard.order.lock().wrong, Vec::<String>::new());
        assert_eq!(content_of(&store, &mut worker), replayed.content());
        save(&store, &mut worker);
    }
    open(&device, 1, replayed);
    assert!(errors > 100, "only {errors}");
}
