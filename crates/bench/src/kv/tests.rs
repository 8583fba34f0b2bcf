//! Every system does what the model does.

use std::ops::ControlFlow;

use stillframe_testkit::TempDir;

use super::model::Model;
use super::*;
use crate::error::{BenchError, Result};

const TREES: [&str; 3] = ["a", "b", "c"];
const STEPS: usize = 3000;
const KEYS: u16 = 300;

pub fn options(dir: &TempDir) -> OpenOptions<'_> {
    OpenOptions { dir, trees: &TREES, memory_bytes: 64 << 20, disk_bytes_max: 64 << 20, thread_count: 2 }
}

fn key(number: u16) -> Vec<u8> {
    // Of two lengths, so that one may begin with another.
    match number % 3 {
        0 => number.to_be_bytes().to_vec(),
        _ => [&number.to_be_bytes()[..], &[7; 9]].concat(),
    }
}

/// What a transaction did and saw, to be compared.
type Seen = Vec<(Vec<u8>, Vec<u8>)>;

fn random_transaction(
    session: &mut dyn Session,
    access: Access,
    rng: &fastrand::Rng,
) -> Result<(Seen, Option<Verdict>)> {
    let mut seen = Vec::new();
    let done = session.transaction(access, &mut |txn| {
        // It may be run again.
        let mut rng = rng.clone();
        seen.clear();
        for _ in 0..rng.usize(1..8) {
            step(txn, access, &mut rng, &mut seen)?;
        }
        match rng.u8(..10) {
            0 => Ok(Verdict::Rollback),
            1 => Err(BenchError::Failed("its own".to_owned())),
            _ => Ok(Verdict::Commit),
        }
    });
    match done {
        Ok(done) => Ok((seen, Some(done.verdict))),
        Err(error) if error.to_string() == "its own" => Ok((seen, None)),
        Err(error) => Err(error),
    }
}

fn step(txn: &mut dyn Transaction, access: Access, rng: &mut fastrand::Rng, seen: &mut Seen) -> Result<()> {
    let (tree, at) = (TreeId(rng.usize(..TREES.len())), key(rng.u16(..KEYS)));
    match rng.u8(..8) {
        0..=2 if access == Access::Write => {
            let value = vec![rng.u8(..); rng.usize(..700)];
            txn.put(tree, &at, &value)?;
        }
        3 if access == Access::Write => {
            txn.remove(tree, &at)?;
        }
        6 => {
            let keys: Vec<_> = (0..rng.usize(1..40)).map(|_| key(rng.u16(..KEYS))).collect();
            let mut rows = vec![None; keys.len()];
            let bytes: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            txn.get_many(tree, &bytes, &mut |index, value| rows[index] = Some(value.to_vec()))?;
            let there = keys.into_iter().zip(rows).filter_map(|(key, row)| Some((key.to_vec(), row?)));
            seen.extend(there);
        }
        4 | 5 => {
            let to = key(rng.u16(..KEYS));
            let order = if rng.bool() { Order::Ascending } else { Order::Descending };
            let mut room = rng.usize(1..20);
            if at >= to {
                return Ok(());
            }
            txn.scan(tree, &at..&to, order, &mut |key, value| {
                seen.push((key.to_vec(), value.to_vec()));
                room -= 1;
                Ok(if room == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
        }
        _ => {
            let is_there = txn.get(tree, &at, &mut |value| seen.push((at.clone(), value.to_vec())))?;
            seen.push((at.clone(), vec![u8::from(is_there)]));
        }
    }
    Ok(())
}

fn all_rows(session: &mut dyn Session) -> Vec<Seen> {
    let mut all = vec![Seen::new(); TREES.len()];
    let read = session.transaction(Access::Read, &mut |txn| {
        for (tree, rows) in all.iter_mut().enumerate() {
            rows.clear();
            txn.scan(TreeId(tree), &[0][..]..&[0xff; 20][..], Order::Ascending, &mut |key, value| {
                rows.push((key.to_vec(), value.to_vec()));
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(Verdict::Commit)
    });
    read.unwrap();
    all
}

#[test]
fn every_system_does_as_the_model_does() {
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed());
    for system in System::all() {
        let name = system.name();
        let dir = TempDir::new(name);
        let model = Model::new(TREES.len());
        {
            let store = system.open(&options(&dir)).unwrap();
            let row = |tree: usize, number: u16| (TreeId(tree), key(number), vec![1; 100]);
            let numbers = || (0..KEYS).step_by(3);
            // One tree stays empty.
            let rows =
                || numbers().map(|number| row(0, number)).chain(numbers().map(|number| row(2, number)));
            store.bulk_load(&mut rows()).unwrap();
            model.bulk_load(&mut rows()).unwrap();
            let (mut session, mut expected) = (store.session().unwrap(), &model);
            for number in 0..STEPS {
                let access = if rng.u8(..4) == 0 { Access::Read } else { Access::Write };
                let seen = random_transaction(&mut *session, access, &rng).unwrap();
                let wanted = random_transaction(&mut expected, access, &rng).unwrap();
                assert_eq!(seen, wanted, "{name}, transaction {number}");
                let keys: Vec<Vec<u8>> = (0..4).map(|_| key(rng.u16(..KEYS))).collect();
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let (mut found, mut wanted) = (vec![None; 4], vec![None; 4]);
                session
                    .get_many(TreeId(1), &keys, &mut |at, value| found[at] = Some(value.to_vec()))
                    .unwrap();
                expected
                    .get_many(TreeId(1), &keys, &mut |at, value| wanted[at] = Some(value.to_vec()))
                    .unwrap();
                assert_eq!(found, wanted, "{name}, after transaction {number}");
            }
            assert_eq!(all_rows(&mut *session), all_rows(&mut expected), "{name}");
            drop(session);
            store.flush().unwrap();
        }
        // What was flushed is there when the store is opened again.
        let store = system.open(&options(&dir)).unwrap();
        assert_eq!(all_rows(&mut *store.session().unwrap()), all_rows(&mut &model), "{name}, reopened");
    }
}

/// Threads that add to the same few counters lose nothing.
#[test]
fn transactions_of_several_threads_are_apart() {
    const ADDITIONS: u64 = 400;
    for system in System::all() {
        let dir = TempDir::new(system.name());
        let store = system.open(&options(&dir)).unwrap();
        let add = |seed: u64| {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut session = store.session().unwrap();
            for _ in 0..ADDITIONS {
                let number = rng.u8(..3);
                let done = session.transaction(Access::Write, &mut |txn| {
                    let mut sum = 0;
                    txn.get(TreeId(0), &[number], &mut |value| {
                        sum = value[0] as u64 * 256 + value[1] as u64
                    })?;
                    let sum = sum + 1;
                    txn.put(TreeId(0), &[number], &[(sum / 256) as u8, sum as u8])?;
                    Ok(Verdict::Commit)
                });
                assert_eq!(done.unwrap().verdict, Verdict::Commit);
            }
        };
        std::thread::scope(|scope| {
            let threads = [1, 2].map(|seed| scope.spawn(move || add(seed)));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        let mut session = store.session().unwrap();
        let mut sum = 0;
        for number in 0..3 {
            let shown = &mut |value: &[u8]| sum += value[0] as u64 * 256 + value[1] as u64;
            session.get(TreeId(0), &[number], shown).unwrap();
        }
        assert_eq!(sum, 2 * ADDITIONS, "{}", system.name());
    }
}

#[test]
fn a_transaction_that_reads_does_not_write() {
    for system in System::all() {
        let dir = TempDir::new(system.name());
        let store = system.open(&options(&dir)).unwrap();
        let mut session = store.session().unwrap();
        let refused = session.transaction(Access::Read, &mut |txn| {
            assert!(txn.remove(TreeId(0), b"k").is_err());
            txn.put(TreeId(0), b"k", b"v").map(|()| Verdict::Commit)
        });
        assert!(refused.is_err(), "{}", system.name());
        assert!(!session.get(TreeId(0), b"k", &mut |_| ()).unwrap(), "{}", system.name());
    }
}
