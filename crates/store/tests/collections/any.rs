//! Collections of any type: what is done with their elements without a word of what they are.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::time::Duration;

use stillframe_store::rdb::{open_payload, CollectionKind, Parts, Payload, PayloadWriter, SmallLimits};
use stillframe_store::{
    Bytes, DbId, Deadline, NewElement, NewValue, OpError, Options, Store, UnixMillis, Value, Worker,
};
use stillframe_testkit::TempDir;

use crate::{check, open};

const DB: DbId = DbId(0);
const NOW: UnixMillis = 1_000_000;
const KINDS: [CollectionKind; 4] =
    [CollectionKind::List, CollectionKind::Set, CollectionKind::SortedSet, CollectionKind::Hash];

/// An element that a test puts, whole.
#[derive(Clone, PartialEq, PartialOrd, Debug)]
struct Held {
    name: Vec<u8>,
    value: Vec<u8>,
    score: f64,
    deadline: Option<UnixMillis>,
}

impl Held {
    fn of(parts: Parts<'_>) -> Held {
        let Parts { name, value, score, deadline } = parts;
        Held { name: name.to_vec(), value: value.to_vec(), score, deadline }
    }

    /// What a collection of this kind keeps of it.
    fn kept_by(&self, kind: CollectionKind) -> Held {
        let Held { name, value, score, deadline } = self;
        Held::of(kind.element(Parts { name, value, score: *score, deadline: *deadline }).parts())
    }
}

/// Some elements, one of which has a name outside of its leaf, and every third a deadline.
fn elements(count: u64) -> Vec<Held> {
    let name = |number: u64| match number {
        2 => vec![b'n'; 2_000],
        _ => format!("name {number}").into_bytes(),
    };
    let held = |number: u64| Held {
        name: name(number),
        value: format!("value {number}").into_bytes(),
        score: number as f64 / 4.0,
        deadline: (number % 3 == 0).then_some(NOW + 1 + number as i64),
    };
    (0..count).map(held).collect()
}

fn put(worker: &mut Worker, key: &[u8], kind: CollectionKind, elements: &[Held]) -> u64 {
    let elements: Vec<NewElement<'_>> = elements
        .iter()
        .map(|Held { name, value, score, deadline }| NewElement {
            name: Bytes::from(name),
            value: Bytes::from(value),
            score: *score,
            deadline: *deadline,
        })
        .collect();
    let key = worker.key(key);
    worker.collection_at(DB, &key).put(kind, &elements, false).expect("room")
}

/// What the collection at a key has, sorted but for a list's items.
fn given(worker: &mut Worker, key: &[u8]) -> (Option<CollectionKind>, Vec<Held>) {
    let (key, all) = (worker.key(key), RefCell::new(Vec::new()));
    let begin = |_, count| *all.borrow_mut() = Vec::with_capacity(count as usize);
    let kind = worker.collection_at(DB, &key).for_each(begin, |element| {
        all.borrow_mut().push(Held::of(element.parts()));
        ControlFlow::Continue(())
    });
    let kind = kind.expect("a collection, or nothing");
    (kind, sorted(all.into_inner(), kind))
}

fn sorted(mut all: Vec<Held>, kind: Option<CollectionKind>) -> Vec<Held> {
    if kind.is_some_and(CollectionKind::has_names) {
        all.sort_by(|a, b| a.partial_cmp(b).expect("scores are numbers"));
    }
    all
}

/// The elements of the collection at a key as a view has them, and those of the payload that it makes of them.
fn viewed(store: &Store, worker: &mut Worker, key: &[u8]) -> (Vec<Held>, Vec<Held>) {
    let view = worker.idle(|| store.view()).expect("a view");
    store
        .with_viewed(&view, DB, key, |entry| {
            let Some(Value::Collection(view)) = entry.map(|entry| entry.value) else {
                panic!("no collection")
            };
            let mut all = Vec::new();
            view.for_each(&mut |element| {
                all.push(Held::of(element.parts()));
                Ok(())
            })
            .expect("its pages");
            let limits = SmallLimits::default();
            let announced = view.announced(&limits, NOW).expect("its pages");
            let version = announced.oldest_version();
            let mut writer = PayloadWriter::begin(Vec::new(), announced, false, version, limits).unwrap();
            view.for_each(&mut |element| {
                writer.element(element).expect("what was announced");
                Ok(())
            })
            .expect("its pages");
            let payload = writer.finish().expect("as many as were announced");
            let Ok(Payload::Collection(mut read)) = open_payload(&payload) else { panic!("no collection") };
            let (kind, mut dumped) = (Some(read.kind()), Vec::new());
            while let Some(element) = read.element().expect("a payload") {
                dumped.push(Held::of(element.parts()));
            }
            (sorted(all, kind), sorted(dumped, kind))
        })
        .expect("a view")
}

/// A small one and a large one of each kind: put, given, counted, viewed, dumped, copied, measured, checked.
#[test]
fn every_kind_gives_what_was_put() {
    let dir = TempDir::new("any");
    let store = open(&dir, Options::default());
    let mut worker = store.worker();
    worker.set_now(NOW);
    for kind in KINDS {
        let mut measured = Vec::new();
        for count in [20, 3_000] {
            let name = format!("{} of {count}", kind.name()).into_bytes();
            let all = elements(count);
            let (first, rest) = all.split_at(7);
            assert_eq!(put(&mut worker, &name, kind, first), 7);
            assert_eq!(put(&mut worker, &name, kind, rest), count - 7);
            let expected = sorted(all.iter().map(|held| held.kept_by(kind)).collect(), Some(kind));
            assert!(given(&mut worker, &name) == (Some(kind), expected.clone()), "{kind:?} {count}");
            let (key, copy) = (worker.key(&name), worker.key(b"copy"));
            assert_eq!(worker.collection_at(DB, &key).len().expect("a collection"), count);
            assert!(viewed(&store, &mut worker, &name) == (expected.clone(), expected.clone()));
            assert!(worker.copy((DB, &key), (DB, &copy)).expect("room"));
            assert!(given(&mut worker, b"copy") == (Some(kind), expected));
            measured.push(worker.memory_bytes(DB, &key).expect("a collection").expect("it is there"));
            check(&store, &mut worker);
        }
        assert!(measured[0] < 8_192 && measured[1] > 5 * measured[0], "{kind:?}: {measured:?}");
    }
}

#[test]
fn a_taker_may_break_and_a_string_has_no_elements() {
    let dir = TempDir::new("any");
    let store = open(&dir, Options::default());
    let mut worker = store.worker();
    worker.set_now(NOW);
    for kind in KINDS {
        put(&mut worker, kind.name().as_bytes(), kind, &elements(5));
        let (key, mut taken) = (worker.key(kind.name().as_bytes()), 0);
        let begin = |begun, count| assert_eq!((begun, count), (kind, 5));
        let broken = worker.collection_at(DB, &key).for_each(begin, |_| {
            taken += 1;
            if taken == 2 {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        assert_eq!((broken.expect("a collection"), taken), (Some(kind), 2));
    }
    let (string, absent) = (worker.key(b"string"), worker.key(b"absent"));
    worker.set(DB, &string, NewValue::Int(7), Deadline::Clear).expect("room");
    assert!(matches!(worker.collection_at(DB, &string).len(), Err(OpError::WrongType)));
    let given = worker.collection_at(DB, &string).for_each(|_, _| (), |_| ControlFlow::Continue(()));
    assert!(matches!(given, Err(OpError::WrongType)));
    assert_eq!(worker.collection_at(DB, &absent).len().expect("nothing"), 0);
    let given = worker.collection_at(DB, &absent).for_each(|_, _| (), |_| ControlFlow::Continue(()));
    assert_eq!(given.expect("nothing"), None);
}

/// Fields whose time is over go from a small hash and from a large one, and from no other kind.
#[test]
fn what_has_expired_goes_from_the_kinds_that_have_deadlines() {
    let dir = TempDir::new("any");
    let store = open(&dir, Options::default());
    let mut worker = store.worker();
    worker.set_now(NOW);
    for (kind, count) in KINDS.into_iter().flat_map(|kind| [(kind, 20), (kind, 3_000)]) {
        let name = format!("{} of {count}", kind.name()).into_bytes();
        put(&mut worker, &name, kind, &elements(count));
    }
    worker.set_now(NOW + 100_000);
    worker
        .upkeep()
        .expire_cycle(Duration::from_secs(60), |_, _| panic!("a key has expired"))
        .expect("a cycle");
    for (kind, count) in KINDS.into_iter().flat_map(|kind| [(kind, 20), (kind, 3_000)]) {
        let name = format!("{} of {count}", kind.name()).into_bytes();
        let timed_count = elements(count).iter().filter(|held| held.deadline.is_some()).count();
        let left = if kind == CollectionKind::Hash { count - timed_count as u64 } else { count };
        let key = worker.key(&name);
        assert_eq!(worker.collection_at(DB, &key).len().expect("a collection"), left, "{kind:?} {count}");
    }
    check(&store, &mut worker);
}
