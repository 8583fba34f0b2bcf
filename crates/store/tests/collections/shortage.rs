//! Operations that memory is refused to at each place where they need some, and that miss each page that they need: such an
//! operation has changed nothing, and told nothing. What takes things away is not refused any.

use std::sync::Arc;

use stillframe_pagepool::device::SimDevice;
use stillframe_store::{
    DbId, Deadline, End, FieldMode, Key, Listener, NewValue, OpError, Options, RangeLimit, ScoreRule,
    ScoredRange, Step, Store, Worker,
};
use stillframe_testkit::{seed, TempDir};

use crate::effects::{content_of, operation, Content, Replayed, DATABASES, FILLER_DB};
use crate::model::load;
use crate::{check, open, retried};

const DB: DbId = DbId(0);
const PAGE_BYTES: u64 = 4096;

/// Without what is expired, which may have gone meanwhile.
fn live(mut content: Content, worker: &Worker) -> Content {
    content.retain(|_, (_, deadline)| deadline.is_none_or(|deadline| deadline > worker.now()));
    content
}

/// Runs an operation with more memory each time it wants some, until it has enough. How often it did not have enough.
fn with_ever_more_memory(
    store: &Store,
    worker: &mut Worker,
    replayed: &Replayed,
    mut operation: impl FnMut(&mut Worker) -> Result<(), OpError>,
) -> u64 {
    let before = live(replayed.content(), worker);
    for shortage in 0.. {
        let heard_count = replayed.heard_count();
        store.set_maxmemory_bytes(store.used_memory_bytes() + shortage * PAGE_BYTES);
        let result = operation(worker);
        worker.quiesce();
        match result {
            Ok(()) | Err(OpError::WrongType) => return shortage,
            Err(OpError::OutOfMemory { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        let after = live(replayed.content(), worker);
        assert_eq!(after, before, "it has told of changes");
        if replayed.heard_count() == heard_count {
            assert_eq!(live(content_of(store, worker), worker), before, "it has changed something");
        }
    }
    unreachable!()
}

#[test]
fn what_memory_is_refused_to_has_changed_nothing() {
    let mut random = fastrand::Rng::with_seed(seed());
    let mut shortages = 0;
    for _ in 0..2 {
        let dir = TempDir::new("shortage");
        let store = open(&dir, Options { database_count: DATABASES, ..Options::default() });
        let replayed = Arc::new(Replayed::default());
        assert!(store.listen(vec![replayed.clone()]));
        let (mut worker, mut now) = (store.nonblocking_worker().unwrap(), 1_000_000);
        for round in 0..1_500 {
            now += random.i64(0..2);
            worker.set_now(now);
            let seed = random.u64(..);
            let mut run = |worker: &mut Worker| operation(worker, &mut fastrand::Rng::with_seed(seed));
            match round % 3 {
                0 => shortages += with_ever_more_memory(&store, &mut worker, &replayed, &mut run),
                _ => {
                    store.set_maxmemory_bytes(0);
                    retried(&store, &mut worker, |worker| match run(worker) {
                        Err(OpError::WrongType) => Ok(()),
                        result => result,
                    });
                    worker.quiesce();
                }
            }
            if round % 100 == 99 {
                store.set_maxmemory_bytes(0);
                assert_eq!(content_of(&store, &mut worker), replayed.content());
                check(&store, &mut worker);
            }
        }
    }
    assert!(shortages > 100, "only {shortages}");
}

/// Strings for which, beside collections, there is no room in memory.
const FILLER_COUNT: u32 = 400;
const FILLER_BYTES: usize = 100_000;
const FILLERS_A_TIME: u32 = 160;

fn filler(number: u32) -> Vec<u8> {
    format!("filler:{number}").into_bytes()
}

#[test]
fn what_misses_a_page_has_changed_nothing() {
    let mut random = fastrand::Rng::with_seed(seed());
    let replayed = Arc::new(Replayed::default());
    let options = Options {
        database_count: FILLER_DB + 1,
        tiered_bytes: 1 << 20,
        pool_backend: stillframe_testkit::pool_backend(),
        ..Options::default()
    };
    let store = Store::open_on(Arc::new(SimDevice::new(1)), options).expect("the store opens");
    assert!(store.listen(vec![replayed.clone()]));
    let (mut worker, mut faults, mut now) = (store.nonblocking_worker().unwrap(), 0, 1_000_000);
    for number in 0..FILLER_COUNT {
        let value = NewValue::Bytes { bytes: &[number as u8; FILLER_BYTES], raw: false };
        retried(&store, &mut worker, |worker| {
            let (db, name) = (DbId(FILLER_DB), filler(number));
            worker.set(db, &worker.key(&name), value, Deadline::Clear)
        });
        worker.quiesce();
    }
    for round in 0..100 {
        // What the collections have goes out of memory.
        for number in 0..FILLERS_A_TIME {
            retried(&store, &mut worker, |worker| {
                let name = filler((round * 7 + number) % FILLER_COUNT);
                worker.get(DbId(FILLER_DB), &worker.key(&name), |value| value.len())
            });
            worker.quiesce();
        }
        for _ in 0..5 {
            now += random.i64(0..2);
            worker.set_now(now);
            let seed = random.u64(..);
            let before = live(replayed.content(), &worker);
            loop {
                match operation(&mut worker, &mut fastrand::Rng::with_seed(seed)) {
                    Ok(()) | Err(OpError::WrongType) => break,
                    Err(OpError::Fault(fault)) => {
                        assert_eq!(live(replayed.content(), &worker), before, "it has told of changes");
                        faults += 1;
                        load(&store, &mut worker, fault);
                    }
                    Err(error) => panic!("{error}"),
                }
                worker.quiesce();
            }
            worker.quiesce();
        }
        if round % 25 == 24 {
            assert_eq!(content_of(&store, &mut worker), replayed.content());
            check(&store, &mut worker);
        }
    }
    assert!(faults > 10, "only {faults}");
}

/// Elements of which so many make a collection that lies outside of its leaf, and half as many one that has been in it.
fn element(number: usize) -> Vec<u8> {
    format!("{number:03}-{}", "x".repeat(60)).into_bytes()
}

/// A way to take one element out of a collection.
type Take = fn(&mut Worker, &Key<'_>, &[u8]) -> Result<bool, OpError>;

fn kinds() -> [(&'static str, Take); 8] {
    [
        ("hash", |worker, key, element| Ok(worker.hash_at(DB, key).remove(&[element])? == 1)),
        ("set", |worker, key, element| Ok(worker.set_at(DB, key).remove(&[element])? == 1)),
        ("set", |worker, key, _| worker.set_at(DB, key).pop(1, |_| (), |_| ())),
        ("zset", |worker, key, element| Ok(worker.sorted_set_at(DB, key).remove(&[element])? == 1)),
        ("zset", |worker, key, _| {
            let range = ScoredRange::Ranks { first: 0, last: 0 };
            Ok(worker.sorted_set_at(DB, key).remove_range(&range, false, RangeLimit::NONE, |_, _| ())?
                == Some(1))
        }),
        ("list", |worker, key, element| Ok(worker.list_at(DB, key).remove(1, element)? == 1)),
        ("list", |worker, key, _| worker.list_at(DB, key).pop(End::Left, 1, |_| (), |_| ())),
        ("list", |worker, key, _| worker.list_at(DB, key).trim(1, -1)),
    ]
}

fn make(worker: &mut Worker, kind: &str, key: &Key<'_>, elements: &[Vec<u8>]) -> Result<(), OpError> {
    let all: Vec<&[u8]> = elements.iter().map(|element| &element[..]).collect();
    match kind {
        "hash" => {
            let pairs: Vec<(&[u8], &[u8])> = all.iter().map(|field| (*field, &b"v"[..])).collect();
            worker.hash_at(DB, key).set(&pairs, FieldMode::All, Deadline::Clear).map(drop)
        }
        "set" => worker.set_at(DB, key).add(&all).map(drop),
        "zset" => {
            let scored: Vec<(f64, &[u8])> = (0..).map(f64::from).zip(all).collect();
            worker.sorted_set_at(DB, key).put(&scored, &ScoreRule::default()).map(drop)
        }
        _ => worker.list_at(DB, key).push(End::Right, &all, false).map(drop),
    }
}

/// Hears how many things have changed.
#[derive(Default)]
struct Counting(std::sync::atomic::AtomicU64);

impl Listener for Counting {
    fn hear(&self, _: &Step, _: &stillframe_store::Effect<'_>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Stores strings until nothing fits into any leaf.
fn fill(worker: &mut Worker) {
    for len in [400, 200, 100, 40, 10, 0] {
        for number in 0.. {
            let (name, value) = (format!("filler:{len}:{number}"), vec![7; len]);
            let key = worker.key(name.as_bytes());
            if worker.set(DB, &key, NewValue::Bytes { bytes: &value, raw: false }, Deadline::Clear).is_err() {
                break;
            }
        }
    }
}

#[test]
fn a_removal_needs_no_memory() {
    const ELEMENTS: usize = 30;
    const KEYS: usize = 12;
    let dir = TempDir::new("removal");
    let store = open(&dir, Options { maxmemory_bytes: 4 << 20, ..Options::default() });
    let counting = Arc::new(Counting::default());
    assert!(store.listen(vec![counting.clone()]));
    let heard = || counting.0.load(std::sync::atomic::Ordering::Relaxed);
    let mut worker = store.nonblocking_worker().unwrap();
    let elements: Vec<Vec<u8>> = (0..ELEMENTS).map(element).collect();
    let names: Vec<(usize, Vec<u8>)> = (0..KEYS * kinds().len())
        .map(|number| {
            (number % kinds().len(), format!("{}:{number}", kinds()[number % kinds().len()].0).into_bytes())
        })
        .collect();
    for (kind, name) in &names {
        let key = worker.key(name);
        make(&mut worker, kinds()[*kind].0, &key, &elements).expect("there is room");
    }
    fill(&mut worker);
    for (number, element) in elements.iter().enumerate() {
        for (kind, name) in &names {
            let (key, before, used) = (worker.key(name), heard(), store.used_memory_bytes());
            let is_taken = kinds()[*kind].1(&mut worker, &key, element);
            assert!(matches!(is_taken, Ok(true)), "{} {number}: {is_taken:?}", kinds()[*kind].0);
            // The element, and with the last one the key.
            let expected = if number + 1 < ELEMENTS { 1 } else { 2 };
            assert_eq!(heard() - before, expected, "{} {number}", kinds()[*kind].0);
            assert!(store.used_memory_bytes() <= used.max(4 << 20), "it took memory");
            worker.quiesce();
        }
        if number % 10 == 9 {
            check(&store, &mut worker);
        }
    }
}

#[test]
fn several_elements_are_refused_together() {
    let dir = TempDir::new("together");
    let store = open(&dir, Options::default());
    let counting = Arc::new(Counting::default());
    assert!(store.listen(vec![counting.clone()]));
    let mut worker = store.nonblocking_worker().unwrap();
    let (key, many) = (worker.key(b"h"), (0..2_000).map(element).collect::<Vec<_>>());
    make(&mut worker, "hash", &key, &many).expect("there is room");
    let long = vec![1; 100_000];
    let before = counting.0.load(std::sync::atomic::Ordering::Relaxed);
    store.set_maxmemory_bytes(store.used_memory_bytes() + (150 << 10));
    let pairs: [(&[u8], &[u8]); 3] = [(b"a", b"1"), (b"b", &long), (b"c", &long)];
    let result = worker.hash_at(DB, &key).set(&pairs, FieldMode::All, Deadline::Clear);
    assert!(matches!(result, Err(OpError::OutOfMemory { .. })), "{result:?}");
    assert_eq!(worker.hash_at(DB, &key).len().unwrap(), 2_000);
    assert_eq!(counting.0.load(std::sync::atomic::Ordering::Relaxed), before);
    // A sum that is no number is found before the first is stored.
    let (key, infinity) = (worker.key(b"z"), f64::INFINITY);
    store.set_maxmemory_bytes(0);
    make(&mut worker, "zset", &key, &many).expect("there is room");
    let before = counting.0.load(std::sync::atomic::Ordering::Relaxed);
    let scored: [(f64, &[u8]); 3] = [(1.0, b"new"), (infinity, b"sum"), (-infinity, b"sum")];
    let rule = ScoreRule { adds: true, ..ScoreRule::default() };
    assert!(worker.sorted_set_at(DB, &key).put(&scored, &rule).unwrap().is_nan);
    assert_eq!(worker.sorted_set_at(DB, &key).len().unwrap(), 2_000);
    assert_eq!(counting.0.load(std::sync::atomic::Ordering::Relaxed), before);
}
