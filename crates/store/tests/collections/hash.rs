//! Hashes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stillframe_store::{DbId, FieldMode, Options, Store, Worker};
use stillframe_testkit::{seed, TempDir};

use crate::{check, open, retried};

type Model = BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>;

const DB: DbId = DbId(0);

fn bytes(random: &mut fastrand::Rng, longest: usize) -> Vec<u8> {
    let len = match random.u32(..20) {
        0 => random.usize(..=longest),
        1 => random.usize(..=longest.min(500)),
        _ => random.usize(..24),
    };
    (0..len).map(|_| random.u8(b'a'..=b'z')).collect()
}

fn step(store: &Store, worker: &mut Worker, model: &mut Model, random: &mut fastrand::Rng) {
    let name = format!("hash:{}", random.u32(..8)).into_bytes();
    let key = worker.key(&name);
    let field = |random: &mut fastrand::Rng| match random.u32(..50) {
        0 => bytes(random, 1_000),
        _ => format!("field:{}", random.u32(..3_000)).into_bytes(),
    };
    match random.u32(..100) {
        0..70 => {
            let pairs: Vec<_> =
                (0..random.usize(1..30)).map(|_| (field(random), bytes(random, 20_000))).collect();
            let given: Vec<(&[u8], &[u8])> = pairs.iter().map(|(f, v)| (&f[..], &v[..])).collect();
            let added = retried(store, worker, |worker| worker.hash_set(DB, &key, &given, FieldMode::All));
            let hash = model.entry(name.clone()).or_default();
            let new = pairs.into_iter().filter(|(f, v)| hash.insert(f.clone(), v.clone()).is_none()).count();
            assert_eq!(added, new as u64);
        }
        70..75 => {
            let (field, value) = (field(random), bytes(random, 600));
            let pair: [(&[u8], &[u8]); 1] = [(&field, &value)];
            let added = retried(store, worker, |worker| worker.hash_set(DB, &key, &pair, FieldMode::Absent));
            let hash = model.entry(name.clone()).or_default();
            assert_eq!(added, u64::from(!hash.contains_key(&field)));
            hash.entry(field).or_insert(value);
        }
        75..97 => {
            let fields: Vec<_> = (0..random.usize(1..60)).map(|_| field(random)).collect();
            let given: Vec<&[u8]> = fields.iter().map(|field| &field[..]).collect();
            let removed = retried(store, worker, |worker| worker.hash_remove(DB, &key, &given));
            let hash = model.entry(name.clone()).or_default();
            assert_eq!(removed, fields.iter().filter(|field| hash.remove(*field).is_some()).count() as u64);
        }
        97 => {
            let target = format!("hash:{}", random.u32(..8)).into_bytes();
            let to = worker.key(&target);
            if target != name {
                retried(store, worker, |worker| worker.copy((DB, &key), (DB, &to)));
                if let Some(copied) = model.get(&name).cloned() {
                    model.insert(target, copied);
                }
            }
        }
        98 => {
            retried(store, worker, |worker| worker.remove(DB, &key));
            model.remove(&name);
        }
        _ => {
            let target = format!("hash:{}", random.u32(..8)).into_bytes();
            let to = worker.key(&target);
            retried(store, worker, |worker| worker.rename((DB, &key), (DB, &to)));
            if let Some(moved) = model.remove(&name) {
                model.insert(target, moved);
            }
        }
    }
    model.retain(|_, hash| !hash.is_empty());
    worker.quiesce();
}

fn compare(store: &Store, worker: &mut Worker, model: &Model) {
    for name in (0..8).map(|number| format!("hash:{number}").into_bytes()) {
        let key = worker.key(&name);
        let hash = model.get(&name).cloned().unwrap_or_default();
        assert_eq!(retried(store, worker, |worker| worker.hash_len(DB, &key)), hash.len() as u64);
        let (mut found, mut announced) = (BTreeMap::new(), 0);
        retried(store, worker, |worker| {
            found.clear();
            worker.hash_for_each(
                DB,
                &key,
                |count| announced = count,
                |field, value| {
                    assert!(found.insert(field.to_vec(), value.to_vec()).is_none(), "given twice");
                    ControlFlow::Continue(())
                },
            )
        });
        assert_eq!(announced, hash.len() as u64);
        assert_eq!(found, hash);
        let fields: Vec<&[u8]> = hash.keys().map(|field| &field[..]).chain([&b"no such field"[..]]).collect();
        retried(store, worker, |worker| {
            worker.hash_get(DB, &key, fields.iter().copied(), |index, value| {
                assert_eq!(value, hash.get(fields[index]).map(|value| &value[..]));
            })
        });
    }
    check(store, worker);
}

#[test]
fn hashes_are_what_a_model_is() {
    let (dir, seed) = (TempDir::new("hashes"), seed());
    // Few bits: fields of one hash make chains.
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
