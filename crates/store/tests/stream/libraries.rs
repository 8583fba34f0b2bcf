//! Function libraries in the stream: in a store that the units are applied to, and in `redis-server`.

use std::collections::BTreeMap;

use stillframe_store::replay::ApplyError;
use stillframe_store::stream::Malformed;
use stillframe_store::{libraries_version, Cause, DbId, Deadline, NewValue, Store, Worker};
use stillframe_testkit::seeds;

use crate::bytes::{shown, unit};
use crate::redis::Redis;
use crate::Pair;

type Libraries = BTreeMap<String, Vec<u8>>;

fn source(name: &str, filling: usize) -> Vec<u8> {
    let quoted = ["", "'", "\""][filling % 3];
    let text =
        format!("#!lua name={quoted}{name}{quoted}\nredis.register_function('f_{name}', function() end)\n--");
    [text.as_bytes(), &vec![b'x'; filling]].concat()
}

fn list(store: &Store) -> Libraries {
    store.worker().libraries().list().unwrap().into_iter().collect()
}

fn operate(worker: &mut Worker, random: &mut fastrand::Rng) {
    let made: Libraries = (0..random.usize(1..4))
        .map(|_| {
            let name = format!("lib_{}", random.u32(..5));
            let filling = [0, 30, 2_000, 300_000][random.usize(..4)] + random.usize(..9);
            (name.clone(), source(&name, filling))
        })
        .collect();
    let several: Vec<(&str, &[u8])> = made.iter().map(|(name, source)| (&name[..], &source[..])).collect();
    let key = worker.key(b"k");
    match random.u32(..12) {
        0 => worker.libraries().clear().map(drop).unwrap(),
        1..3 => worker.libraries().remove(several[0].0).map(drop).unwrap(),
        3..5 => worker.libraries().replace_all(&several).map(drop).unwrap(),
        5..7 => worker.libraries().set_all(&several).map(drop).unwrap(),
        7..9 => worker.set(DbId(1), &key, NewValue::Int(random.i64(..)), Deadline::Clear).map(drop).unwrap(),
        _ => worker.libraries().set(several[0].0, several[0].1).map(drop).unwrap(),
    }
}

/// Single changes, and several in one step with keys.
#[test]
fn units_make_the_same_libraries_in_a_store_and_in_redis() {
    let mut redis = Redis::start();
    for seed in seeds(1, 3) {
        redis.empty();
        redis.send(&[unit("FUNCTION FLUSH")]);
        let (mut pair, mut random) = (Pair::new("stream-libraries"), fastrand::Rng::with_seed(seed));
        let source = pair.source.clone();
        let mut worker = source.worker();
        for _ in 0..40 {
            let version = libraries_version(&pair.applied);
            if random.bool() {
                let alone = worker.stop_others().unwrap();
                worker.steps().begin();
                (0..3).for_each(|_| operate(&mut worker, &mut random));
                worker.steps().end();
                drop(alone);
            } else {
                operate(&mut worker, &mut random);
            }
            let (before, units) = (list(&pair.applied), pair.catch_up());
            assert_eq!(list(&pair.applied), list(&pair.source));
            if list(&pair.applied) != before {
                assert!(libraries_version(&pair.applied) > version);
            }
            pair.assert_same();
            redis.send(&units);
            assert_eq!(redis.libraries(), list(&pair.source), "seed {seed}");
            assert_eq!(redis.digest(), pair.digest(), "seed {seed}");
        }
        pair.applied.check().unwrap();
    }
}

#[test]
fn libraries_are_these_commands() {
    let mut pair = Pair::new("stream-libraries-table");
    let store = pair.source.clone();
    let mut worker = store.worker();
    let [a, other_a, b] = [source("a", 60), source("a", 70), source("b", 80)];
    let mut told = |f: &dyn Fn(&mut Worker)| {
        f(&mut worker);
        pair.catch_up().iter().map(|unit| shown(unit)).collect::<Vec<_>>()
    };
    let load = |source: &[u8]| format!("FUNCTION LOAD REPLACE ({} bytes)", source.len());
    let set = |worker: &mut Worker, source: &[u8]| worker.libraries().set("a", source).map(drop).unwrap();
    assert_eq!(told(&|worker| set(worker, &a)), [load(&a)]);
    assert_eq!(told(&|worker| set(worker, &other_a)), [load(&other_a)]);
    let both: [(&str, &[u8]); 2] = [("b", &b), ("a", &a)];
    let several = |worker: &mut Worker| worker.libraries().set_all(&both).map(drop).unwrap();
    let unit = format!("MULTI | FUNCTION DELETE a | {} | {} | EXEC", load(&a), load(&b));
    assert_eq!(told(&several), [unit]);
    let replaced = |worker: &mut Worker| worker.libraries().replace_all(&both[..1]).map(drop).unwrap();
    assert_eq!(told(&replaced), [format!("MULTI | FUNCTION FLUSH | {} | EXEC", load(&b))]);
    assert_eq!(told(&|worker| assert!(worker.libraries().remove("b").unwrap())), ["FUNCTION DELETE b"]);
    assert!(told(&|worker| assert!(!worker.libraries().remove("b").unwrap())).is_empty());
    assert!(told(&|worker| assert!(!worker.libraries().clear().unwrap())).is_empty());
    told(&|worker| set(worker, &a));
    assert_eq!(told(&|worker| assert!(worker.libraries().clear().unwrap())), ["FUNCTION FLUSH"]);
    let load = |worker: &mut Worker| {
        worker.steps().set_cause(Cause::Load);
        set(worker, &a);
        worker.steps().set_cause(Cause::Call);
    };
    assert!(told(&load).is_empty());
}

/// Before the first change all of a unit is looked at.
#[test]
fn units_of_what_is_no_library_are_refused() {
    let mut pair = Pair::new("stream-libraries-refused");
    for (text, what) in [
        ("FUNCTION LOAD REPLACE code", "a library whose first line"),
        ("FUNCTION LOAD code", "other words"),
        ("FUNCTION DELETE", "other words"),
        ("FUNCTION STATS", "other words"),
        ("FUNCTION FLUSH ASYNC", "other words"),
    ] {
        for text in [text.to_owned(), format!("SELECT 0 | MULTI | SET k 1 | {text} | EXEC")] {
            let error = pair.applier.apply(&unit(&text)).unwrap_err();
            assert!(matches!(error, ApplyError::Malformed(Malformed::Words { .. })), "{text}: {error}");
            assert!(error.to_string().contains(what), "{text}: {error}");
        }
    }
    assert!(crate::content_of(&pair.applied).is_empty() && list(&pair.applied).is_empty());
    let error = pair.applier.apply(&unit("FUNCTION DELETE a")).unwrap_err();
    assert!(matches!(error, ApplyError::Differs { .. }), "{error}");
}
