//! A thread that only looks runs operations as ever, and changes nothing: each is stopped where it would.

use std::ops::ControlFlow;

use stillframe_store::{
    DbId, Deadline, Draw, End, FieldMode, Key, Looking, NewValue, OpError, Options, RangeLimit, ScoreRule,
    ScoredRange, Worker,
};
use stillframe_testkit::TempDir;

use crate::open;

const DB: DbId = DbId(0);

type Operation = fn(&mut Worker, &Key<'_>, &[&[u8]]) -> Result<(), OpError>;

/// Operations on a key of each type, which all change something.
const CHANGES: &[(&str, Operation)] = &[
    ("h", |w, key, new| {
        w.hash_at(DB, key).set(&[(new[0], new[1])], FieldMode::All, Deadline::Keep).map(drop)
    }),
    ("h", |w, key, _| w.hash_at(DB, key).renew(b"7", |_| Ok::<_, ()>(b"renewed")).map(drop)),
    ("h", |w, key, _| w.hash_at(DB, key).remove(&[b"7", b"9"]).map(drop)),
    ("h", |w, key, _| w.hash_at(DB, key).set_deadline(&[b"7"], Some(9_999_999_999_999)).map(drop)),
    ("s", |w, key, new| w.set_at(DB, key).add(new).map(drop)),
    ("s", |w, key, _| w.set_at(DB, key).remove(&[b"7"]).map(drop)),
    ("s", |w, key, _| w.set_at(DB, key).pop(1, |_| (), |_| ()).map(drop)),
    ("s", |w, key, _| w.set_at(DB, key).pop(5, |_| (), |_| ()).map(drop)),
    ("s", |w, key, new| w.set_at(DB, key).replace(new, None)),
    ("z", |w, key, new| w.sorted_set_at(DB, key).put(&[(2.5, new[0])], &ScoreRule::default()).map(drop)),
    ("z", |w, key, _| w.sorted_set_at(DB, key).put(&[(2.5, b"7")], &ScoreRule::default()).map(drop)),
    ("z", |w, key, _| w.sorted_set_at(DB, key).remove(&[b"7"]).map(drop)),
    ("z", |w, key, _| {
        let range = ScoredRange::Ranks { first: 1, last: 5 };
        w.sorted_set_at(DB, key).remove_range(&range, false, RangeLimit::NONE, |_, _| ()).map(drop)
    }),
    ("l", |w, key, new| w.list_at(DB, key).push(End::Left, new, false).map(drop)),
    ("l", |w, key, _| w.list_at(DB, key).pop(End::Right, 3, |_| (), |_| ()).map(drop)),
    ("l", |w, key, new| w.list_at(DB, key).set(7, new[0]).map(drop)),
    ("l", |w, key, new| w.list_at(DB, key).insert(true, b"7", new[0]).map(drop)),
    ("l", |w, key, _| w.list_at(DB, key).remove(0, b"7").map(drop)),
    ("l", |w, key, _| w.list_at(DB, key).trim(3, -4).map(drop)),
    ("t", |w, key, new| {
        w.set(DB, key, NewValue::Bytes { bytes: new[1], raw: true }, Deadline::Clear).map(drop)
    }),
    ("t", |w, key, _| w.set_deadline(DB, key, Some(9_999_999_999_999)).map(drop)),
    ("h", |w, key, _| w.remove(DB, key).map(drop)),
    ("z", |w, key, _| w.rename((DB, key), (DB, &w.key(b"new"))).map(drop)),
    ("l", |w, key, _| w.copy((DB, key), (DB, &w.key(b"new"))).map(drop)),
    ("s", |w, key, _| w.copy((DB, key), (DB, &w.key(b"new"))).map(drop)),
];

fn fill(worker: &mut Worker, suffix: &str, count: u32) {
    let key = |name: &str| format!("{name}{suffix}").into_bytes();
    for number in 0..count {
        let element = number.to_string().into_bytes();
        let name = key("h");
        worker
            .hash_at(DB, &worker.key(&name))
            .set(&[(&element, &element)], FieldMode::All, Deadline::Keep)
            .unwrap();
        let name = key("s");
        worker.set_at(DB, &worker.key(&name)).add(&[&element]).unwrap();
        let name = key("z");
        let scored: &[(f64, &[u8])] = &[(f64::from(number), &element)];
        worker.sorted_set_at(DB, &worker.key(&name)).put(scored, &ScoreRule::default()).unwrap();
        let name = key("l");
        worker.list_at(DB, &worker.key(&name)).push(End::Right, &[&element], false).unwrap();
    }
    let name = key("t");
    let value = NewValue::Bytes { bytes: &[7; 600], raw: true };
    worker.set(DB, &worker.key(&name), value, Deadline::Clear).unwrap();
}

#[test]
fn a_look_changes_nothing() {
    let dir = TempDir::new("looking");
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    worker.set_now(1);
    let long = vec![b'x'; 900];
    let new: [&[u8]; 2] = [b"new", &long];
    for (suffix, count) in [("small", 20), ("large", 3_000)] {
        fill(&mut worker, suffix, count);
        let (changes, pages) = (store.change_count(), store.pool().allocated_pages());
        for (index, (name, change)) in CHANGES.iter().enumerate() {
            let name = format!("{name}{suffix}").into_bytes();
            let key = worker.key(&name);
            let looking = Looking::begin();
            let looked = change(&mut worker, &key, &new);
            drop(looking);
            assert!(matches!(looked, Err(OpError::Looking)), "operation {index} on {suffix}: {looked:?}");
            worker.quiesce();
        }
        assert_eq!((store.change_count(), store.pool().allocated_pages()), (changes, pages), "{suffix}");
        let counts = [
            worker.hash_at(DB, &worker.key(format!("h{suffix}").as_bytes())).len().unwrap(),
            worker.set_at(DB, &worker.key(format!("s{suffix}").as_bytes())).len().unwrap(),
            worker.list_at(DB, &worker.key(format!("l{suffix}").as_bytes())).len().unwrap(),
        ];
        assert_eq!(counts, [u64::from(count); 3]);
        // Nothing was in the way but the look.
        for (index, (name, change)) in CHANGES.iter().enumerate() {
            let name = format!("{name}{suffix}").into_bytes();
            let key = worker.key(&name);
            change(&mut worker, &key, &new).unwrap_or_else(|error| panic!("operation {index}: {error}"));
        }
        assert!(store.change_count() > changes);
    }
    worker.idle(|| store.check()).unwrap();
}

/// Choices that begin with the same seed are the same, as long as the data is.
#[test]
fn a_seed_says_what_is_drawn() {
    let dir = TempDir::new("seeds");
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    fill(&mut worker, "", 3_000);
    let mut draw = |seed: u64| {
        let (key, mut drawn) = (worker.key(b"s"), Vec::new());
        worker.begin_choices(seed);
        let push = |member: &[u8]| {
            drawn.push(member.to_vec());
            ControlFlow::Continue(())
        };
        worker.set_at(DB, &key).random(Draw::Distinct(5), |_| (), push).unwrap();
        drawn.push(worker.database(DB).random_key().unwrap().unwrap());
        drawn
    };
    for seed in 0..50 {
        assert_eq!(draw(seed), draw(seed));
        assert_ne!(draw(seed), draw(seed + 1));
    }
}
