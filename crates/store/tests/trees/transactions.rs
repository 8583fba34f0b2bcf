//! Transactions of one thread: what they read, what stays of them, what they refuse.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{mpsc, Arc};
use std::time::Duration;

use stillframe_pagepool::device::SimDevice;
use stillframe_store::{Options, Store, Transaction, Tree, TreeError};
use stillframe_testkit::{seed, within};

use crate::{
    after_crash, assert_same, content, open, options, random_key, random_value, wait_until_tidy,
    wait_until_warm, Model,
};

/// The error that a transaction's own code ends with.
#[derive(Debug, PartialEq)]
struct Undo(Option<TreeError>);

impl From<TreeError> for Undo {
    fn from(error: TreeError) -> Undo {
        Undo(Some(error))
    }
}

/// Writes and reads at random; the model goes along.
fn steps(tx: &mut Transaction<'_>, model: &mut Model, random: &mut fastrand::Rng) -> Result<(), TreeError> {
    for _ in 0..random.usize(..60) {
        let key = random_key(random);
        match random.u32(..10) {
            0..=4 => {
                let value = random_value(random);
                tx.put(&key, &value)?;
                model.insert(key, value);
            }
            5..=6 => {
                let key = model.range(key.clone()..).next().map_or(key, |(key, _)| key.clone());
                tx.remove(&key)?;
                model.remove(&key);
            }
            7 => {
                let found: Vec<_> = tx.range(&key[..]..).take(20).map(Result::unwrap).collect();
                assert!(found.iter().map(|(key, value)| (key, value)).eq(model.range(key..).take(20)));
            }
            8 => {
                let found: Vec<_> = tx.range(..&key[..]).rev().take(20).map(Result::unwrap).collect();
                assert!(found.iter().map(|(key, value)| (key, value)).eq(model.range(..key).rev().take(20)));
            }
            _ => {
                let keys = [key, random_key(random)];
                tx.get_many_with(&keys, |index, found| {
                    assert_eq!(found, model.get(&keys[index]).map(|value| &value[..]));
                })?;
                assert_eq!(tx.get(&keys[0])?.as_ref(), model.get(&keys[0]));
            }
        }
    }
    Ok(())
}

#[test]
fn a_transaction_happens_or_does_not() {
    let mut device = Arc::new(SimDevice::new(1));
    let mut store = open(&device);
    let mut random = fastrand::Rng::with_seed(seed());
    let mut model = Model::new();
    for round in 0..5 {
        let tree = store.tree("t").unwrap();
        for number in 0..300 {
            let mut after = model.clone();
            let undone = random.u32(..4) == 0;
            let result = tree.transaction(|tx| {
                steps(tx, &mut after, &mut random)?;
                if undone {
                    return Err(Undo(None));
                }
                Ok(number)
            });
            assert_eq!(result, if undone { Err(Undo(None)) } else { Ok(number) });
            if !undone {
                model = after;
            }
            assert_eq!(tree.len().unwrap(), model.len() as u64);
        }
        assert_same(&content(&tree), &model, "after transactions");
        drop(tree);
        store.checkpoint().unwrap();
        device = after_crash(&device);
        store = open(&device);
        assert_same(&content(&store.tree("t").unwrap()), &model, "after a restart");
        wait_until_warm(&store);
        wait_until_tidy(&store);
        assert_eq!(store.check().unwrap().tree_record_count, model.len() as u64, "round {round}");
    }
}

/// A large one, into an empty tree: leaves and nodes are made while it is applied.
#[test]
fn a_transaction_of_many_writes_is_one_step() {
    let store = open(&Arc::new(SimDevice::new(1)));
    let tree = store.tree("t").unwrap();
    let fill = |tx: &mut Transaction<'_>| {
        (0..30_000u32).try_for_each(|number| tx.put(number.to_be_bytes(), [number as u8; 100]))
    };
    tree.transaction(fill).unwrap();
    assert_eq!(tree.len(), Ok(30_000));
    let clear = |tx: &mut Transaction<'_>| {
        (0..30_000u32)
            .filter(|number| number % 100 > 0)
            .try_for_each(|number| tx.remove(number.to_be_bytes()))
    };
    tree.transaction(clear).unwrap();
    assert_eq!((tree.len(), content(&tree).len()), (Ok(300), 300));
    let report = store.check().unwrap();
    assert!(report.tree_page_count < 40, "{report:?}");
}

#[test]
fn a_panic_undoes_a_transaction() {
    let store = open(&Arc::new(SimDevice::new(1)));
    let tree = store.tree("t").unwrap();
    tree.put("a", "1").unwrap();
    let result = catch_unwind(AssertUnwindSafe(|| {
        tree.transaction(|tx| {
            tx.put("a", "2")?;
            assert!(tx.get("a")?.is_none(), "it is there");
            Ok::<_, TreeError>(())
        })
    }));
    assert!(result.is_err());
    let in_closure = catch_unwind(AssertUnwindSafe(|| tree.get_with("a", |_| panic!("in an operation"))));
    assert!(in_closure.is_err());
    assert_eq!(tree.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(tree.put("a", "3").unwrap());
    store.checkpoint().unwrap();
}

/// What would wait for itself is refused; what need not wait is not.
#[test]
fn a_thread_in_a_transaction_writes_by_it_alone() {
    let store = open(&Arc::new(SimDevice::new(1)));
    let (tree, other) = (store.tree("t").unwrap(), store.tree("u").unwrap());
    other.put("there", "too").unwrap();
    tree.transaction(|tx| {
        tx.put("a", "1")?;
        for tree in [&tree, &other, &store.tree("t")?] {
            assert_eq!(tree.put("b", ""), Err(TreeError::InTransaction));
            assert_eq!(tree.remove("b"), Err(TreeError::InTransaction));
            assert_eq!(tree.bulk_load([("b", "")]), Err(TreeError::InTransaction));
            assert_eq!(tree.transaction(|_| Ok::<_, TreeError>(())), Err(TreeError::InTransaction));
        }
        assert_eq!((tree.get("a")?, tx.get("a")?), (None, Some(b"1".to_vec())));
        assert_eq!(other.get("there")?, Some(b"too".to_vec()));
        // A cut between two of its steps shows none of it.
        store.checkpoint().unwrap();
        Ok::<_, TreeError>(())
    })
    .unwrap();
    assert_eq!(tree.get("a").unwrap(), Some(b"1".to_vec()));
    assert!(!tree.put("b", "").unwrap());
    let dropped = tree.transaction(|tx| {
        tx.put("c", "")?;
        assert!(store.drop_tree("t")?);
        Ok::<_, TreeError>(())
    });
    assert_eq!(dropped, Err(TreeError::Dropped));
    wait_until_tidy(&store);
    store.check().unwrap();
}

/// While a transaction's code runs, readers go on and see nothing of it, writers wait.
#[test]
fn readers_pass_a_transaction_and_writers_wait() {
    let store = open(&Arc::new(SimDevice::new(1)));
    let tree = store.tree("t").unwrap();
    tree.put("a", "0").unwrap();
    let (begun, has_begun) = mpsc::channel();
    let writer = {
        let store = store.clone();
        std::thread::spawn(move || {
            let tree = store.tree("t").unwrap();
            has_begun.recv().unwrap();
            // Waits for the end of the transaction, and is not lost.
            assert!(tree.put("a", "written").unwrap());
        })
    };
    tree.transaction(|tx| {
        assert_eq!(tx.get("a")?.as_deref(), Some(&b"0"[..]));
        begun.send(()).unwrap();
        let reader = {
            let store = store.clone();
            std::thread::spawn(move || {
                let tree = store.tree("t").unwrap();
                for _ in 0..50 {
                    assert_eq!(tree.get("a").unwrap().as_deref(), Some(&b"0"[..]));
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            })
        };
        reader.join().unwrap();
        assert_eq!(tx.get("a")?.as_deref(), Some(&b"0"[..]), "the writer has not waited");
        tx.put("a", "1")
    })
    .unwrap();
    writer.join().unwrap();
    assert_eq!(tree.get("a").unwrap().as_deref(), Some(&b"written"[..]));
}

/// Where memory ends in the middle of a transaction, nothing of it stays, not even its long values.
#[test]
fn a_transaction_without_room_leaves_nothing() {
    let device = Arc::new(SimDevice::new(1));
    let options = Options { maxmemory_bytes: 4 << 20, ..options() };
    let store = Store::open_on(device, options).unwrap();
    let tree = store.tree("t").unwrap();
    let mut random = fastrand::Rng::with_seed(seed());
    let (mut refused, mut done) = (0, 0);
    let mut model = Model::new();
    while refused < 30 {
        let mut after = model.clone();
        let len = [100, 700, 30_000][random.usize(..3)];
        let result = tree.transaction(|tx| {
            for _ in 0..1 + random.usize(..200_000 / len) {
                let (key, value) = (random.u16(..).to_be_bytes(), vec![random.u8(..); len]);
                tx.put(key, &value)?;
                after.insert(key.to_vec(), value);
            }
            Ok::<_, TreeError>(())
        });
        match result {
            Ok(()) => {
                model = after;
                done += 1;
            }
            Err(TreeError::OutOfMemory { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        assert_eq!(tree.len().unwrap(), model.len() as u64);
    }
    assert!(done > 10, "{done}");
    assert_same(&content(&tree), &model, "at the end of memory");
    // What frees memory needs none.
    let keys: Vec<_> = model.keys().cloned().collect();
    let clear = |tx: &mut Transaction<'_>| keys.iter().try_for_each(|key| tx.remove(key));
    tree.transaction(clear).unwrap();
    wait_until_tidy(&store);
    assert_eq!(store.check().unwrap().tree_record_count, 0);
    // What readers may still have been at comes back after them.
    let is_back = within(Duration::from_secs(60), || store.used_memory_bytes() < 1 << 20);
    assert!(is_back, "{}", store.used_memory_bytes());
    check_usable(&tree);
}

fn check_usable(tree: &Tree) {
    assert!(!tree.put("x", vec![1; 5_000]).unwrap());
    assert!(tree.remove("x").unwrap());
}
