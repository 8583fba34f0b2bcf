//! Closures that an operation calls: they may panic, and they may call what they like.

use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use stillframe_store::{
    Effect, FieldMode, Listener, OpError, Options, SaveError, ScoredRange, Step, Store, TreeError, Worker,
};
use stillframe_testkit::TempDir;

use crate::{checkpoint_elsewhere, get, in_time, open, set, DB};

const ALL: ScoredRange<'static> = ScoredRange::Ranks { first: 0, last: -1 };

/// A store with something of every kind; of `count` elements each.
fn filled(dir: &TempDir, count: usize) -> Store {
    let store = open(dir, Options::default());
    let (tree, mut worker) = (store.tree("tree").unwrap(), store.worker());
    for number in 0..count {
        let name = format!("{number:05}");
        store.hash("hash").set(&name, "v").unwrap();
        store.list("list").push_back(&name).unwrap();
        store.set("set").add(&name).unwrap();
        store.sorted_set("sorted").insert(&name, number as f64).unwrap();
        tree.put(&name, "v").unwrap();
        set(&mut worker, &name, b"v").unwrap();
    }
    store
}

/// Every operation that calls a closure, by name: `f` is called in it at least once, unless it panics.
fn each_closure(store: &Store, mut f: impl FnMut(&str, &mut dyn FnMut(&mut dyn FnMut()))) {
    let (hash, list, the_set, sorted) =
        (store.hash("hash"), store.list("list"), store.set("set"), store.sorted_set("sorted"));
    let tree = store.tree("tree").unwrap();
    let mut worker = store.worker();
    let go_on = ControlFlow::<()>::Continue(());
    f("Hash::get_with", &mut |call| drop(hash.get_with("00001", |_| call())));
    f("Hash::for_each", &mut |call| {
        let give = |_: &[u8], _: &[u8]| {
            call();
            go_on
        };
        drop(hash.for_each(|| (), give));
    });
    f("Hash::renew", &mut |call| {
        let renew = |_: Option<&[u8]>| {
            call();
            "v"
        };
        drop(hash.renew("00001", renew));
    });
    f("List::for_each", &mut |call| {
        let give = |_: &[u8]| {
            call();
            go_on
        };
        drop(list.for_each(0, -1, || (), give));
    });
    f("Set::for_each", &mut |call| {
        let give = |_: &[u8]| {
            call();
            go_on
        };
        drop(the_set.for_each(|| (), give));
    });
    f("SortedSet::for_each", &mut |call| {
        let give = |_: &[u8], _: f64| {
            call();
            go_on
        };
        drop(sorted.for_each(&ALL, false, || (), give));
    });
    f("Tree::get_with", &mut |call| drop(tree.get_with("00001", |_| call())));
    f("Tree::get_many_with", &mut |call| drop(tree.get_many_with(&["00001", "00002"], |_, _| call())));
    let at = worker.key(b"00001");
    f("Worker::get", &mut |call| drop(worker.get(DB, &at, |_| call())));
    f("Worker::scan", &mut |call| drop(worker.database(DB).scan(0, 10, |_, _| call())));
    let at = worker.key(b"hash");
    f("HashAt::for_each", &mut |call| {
        let mut give = |_: stillframe_store::FieldRef<'_>| {
            call();
            go_on
        };
        drop(worker.hash_at(DB, &at).for_each(|_| (), &mut give));
    });
}

/// A panic that is caught, in each closure, of small collections and of large ones. Others go on.
#[test]
fn a_panic_in_a_closure_stops_nobody() {
    for count in [3, 3_000] {
        let dir = TempDir::new("panic");
        let store = filled(&dir, count);
        each_closure(&store, |name, run| {
            let caught = catch_unwind(AssertUnwindSafe(|| run(&mut || panic!("a bug of the caller's"))));
            assert!(caught.is_err(), "{name} calls its closure");
            checkpoint_elsewhere(&store).unwrap();
            let other = store.clone();
            in_time(name, move || {
                assert!(!other.hash("hash").set("00001", "v").unwrap(), "it is there");
                other.tree("tree").unwrap().put("00001", "v").unwrap();
                set(&mut other.worker(), "00001", b"v").unwrap();
            });
            run(&mut || ());
        });
        let (store, count) = (store.clone(), count as u64);
        in_time("a look at everything", move || {
            assert_eq!(store.hash("hash").len().unwrap(), count);
            assert_eq!(store.list("list").len().unwrap(), count);
            store.check().unwrap();
        });
    }
}

/// A panic while another thread waits at the barrier, and one in what all stand still for.
#[test]
fn a_panic_at_the_cut_is_its_initiators() {
    let dir = TempDir::new("panic-at-cut");
    let store = filled(&dir, 100);
    let is_over = Arc::new(AtomicBool::new(false));
    let (other, ends) = (store.clone(), is_over.clone());
    let beside = std::thread::spawn(move || {
        let hash = other.hash("beside");
        let mut count = 0u64;
        while !ends.load(Ordering::Relaxed) {
            hash.set(format!("{count}"), "v").unwrap();
            count += 1;
        }
        count
    });
    for _ in 0..20 {
        let saved = store.clone();
        let at_cut = in_time("a checkpoint", move || {
            catch_unwind(AssertUnwindSafe(|| saved.checkpoint_telling(|| panic!("at the cut"), || ())))
                .is_err()
        });
        let saved = store.clone();
        let after_cut = in_time("a checkpoint", move || {
            catch_unwind(AssertUnwindSafe(|| saved.checkpoint_telling(|| (), || panic!("after it")))).is_err()
        });
        let viewed = store.clone();
        let in_view = in_time("a view", move || {
            catch_unwind(AssertUnwindSafe(|| viewed.view_telling(|| panic!("at the cut")))).is_err()
        });
        assert!(at_cut && after_cut && in_view);
        checkpoint_elsewhere(&store).unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    let count = beside.join().unwrap();
    assert_eq!(store.hash("beside").len().unwrap(), count);
    store.checkpoint().unwrap();
}

/// Whatever waits for a cut, and every operation of another handle or worker, is refused in each closure; every time,
/// beside checkpoints, and nothing of it is done.
#[test]
fn what_would_wait_for_this_thread_is_refused_in_a_closure() {
    let dir = TempDir::new("closures");
    let store = filled(&dir, 200);
    let is_over = Arc::new(AtomicBool::new(false));
    let (other, ends) = (store.clone(), is_over.clone());
    let saver = std::thread::spawn(move || {
        let mut count = 0;
        while !ends.load(Ordering::Relaxed) || count == 0 {
            other.checkpoint().unwrap();
            count += 1;
        }
    });
    let tried = store.clone();
    in_time("a closure that uses the store", move || {
        let store = tried;
        let (hash, tree, mut worker) = (store.hash("h"), store.tree("tree").unwrap(), store.worker());
        let calls = AtomicU64::new(0);
        each_closure(&store, |name, run| {
            // What a scan gives is given after it.
            for _ in 0..20 * u32::from(name != "Worker::scan") {
                run(&mut || {
                    calls.fetch_add(1, Ordering::Relaxed);
                    assert!(matches!(store.checkpoint(), Err(SaveError::Busy)), "{name}");
                    assert!(matches!(store.view(), Err(SaveError::Busy)), "{name}");
                    assert!(matches!(store.drop_tree("tree"), Err(TreeError::Busy)), "{name}");
                    assert!(matches!(hash.set("f", "v"), Err(OpError::Busy)), "{name}");
                    assert!(matches!(store.list("l").push_back("v"), Err(OpError::Busy)), "{name}");
                    assert!(matches!(tree.put("new", "v"), Err(TreeError::Busy)), "{name}");
                    assert!(matches!(store.tree("new").map(drop), Err(TreeError::Busy)), "{name}");
                    assert!(matches!(set(&mut worker, "new", b"v"), Err(OpError::Busy)), "{name}");
                    assert!(matches!(worker.database(DB).flush(), Err(OpError::Busy)), "{name}");
                    assert!(matches!(store.nonblocking_worker(), Err(OpError::Busy)), "{name}");
                    assert!(store.check().is_err(), "{name}");
                    let mixed: Result<(), TreeError> = tree.transaction(|tx| tx.put("new", "v"));
                    assert!(matches!(mixed, Err(TreeError::Busy)), "{name}");
                });
            }
        });
        assert!(calls.into_inner() >= 20 * 10);
        assert_eq!(tree.get("new").unwrap(), None);
        assert_eq!(get(&mut worker, "new").unwrap(), None);
        // Between two operations all of it goes.
        assert!(hash.set("f", "v").unwrap() && !tree.put("new", "v").unwrap());
    });
    is_over.store(true, Ordering::Relaxed);
    saver.join().unwrap();
    store.checkpoint().unwrap();
}

/// What is between two operations, or in a transaction, may wait for cuts and use other handles.
#[test]
fn a_walk_and_a_transaction_may_use_other_handles() {
    let dir = TempDir::new("between");
    let store = filled(&dir, 50);
    in_time("a transaction", move || {
        let (tree, hash) = (store.tree("tree").unwrap(), store.hash("copy"));
        let mut walk = tree.iter();
        let copied = |name: &[u8], value: &[u8]| hash.set(name, value).unwrap();
        while walk.next_with(copied).unwrap().is_some() {
            store.checkpoint().unwrap();
        }
        assert_eq!(hash.len().unwrap(), 50);
        let done: Result<(), TreeError> = tree.transaction(|tx| {
            tx.put("00001", "new")?;
            hash.set("00001", "new").unwrap();
            store.checkpoint().unwrap();
            drop(store.view().unwrap());
            Ok(())
        });
        done.unwrap();
    });
}

/// A closure that waits for a thread that waits for a cut: nobody can go on. The cut is given up, and names the thread.
#[test]
fn a_cut_that_cannot_come_names_the_thread() {
    let dir = TempDir::new("late");
    let options = Options { cut_patience: Some(Duration::from_millis(300)), ..Options::default() };
    let store = open(&dir, options);
    store.hash("h").set("f", "v").unwrap();
    let (other, tree) = (store.clone(), store.clone());
    tree.tree("t").unwrap().put("k", "v").unwrap();
    let waits = move || {
        let saves = |store: &Store| {
            let store = store.clone();
            std::thread::spawn(move || {
                let dropped = store.drop_tree("t");
                assert!(matches!(dropped, Err(TreeError::Late(_))), "{dropped:?}");
                let flushed = store.worker().database(DB).flush();
                assert!(matches!(flushed, Err(OpError::Late(_))), "{flushed:?}");
                assert!(matches!(store.view(), Err(SaveError::Late(_))));
                store.checkpoint().map(drop)
            })
        };
        let found = other.hash("h").get_with("f", |_| saves(&other).join().unwrap());
        match found.unwrap().unwrap() {
            Err(SaveError::Late(late)) => late.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let thread = std::thread::Builder::new().name("the slow one".into()).spawn(waits).unwrap();
    let text = in_time("a closure that waits for a cut", move || thread.join().unwrap());
    assert!(text.contains("'the slow one'") && text.contains(" ms"), "{text}");
    checkpoint_elsewhere(&store).unwrap();
    assert_eq!(store.tree("t").unwrap().len().unwrap(), 1);
}

/// A listener that uses the store that it listens to.
struct Curious(Store, AtomicU64);

impl Listener for Curious {
    fn hear(&self, _: &Step, _: &Effect<'_>) {
        let tried = self.0.hash("log").set("a", "b");
        let saved = self.0.checkpoint();
        self.1.fetch_add(u64::from(matches!(tried, Err(OpError::Busy)) && saved.is_err()), Ordering::Relaxed);
    }
}

#[test]
fn a_listener_is_in_the_operation_that_it_hears_of() {
    let dir = TempDir::new("listener");
    let store = open(&dir, Options::default());
    let curious = Arc::new(Curious(store.clone(), AtomicU64::new(0)));
    assert!(store.listen(vec![curious.clone()]));
    in_time("a listener that uses the store", move || {
        store.hash("h").set("f", "v").unwrap();
        let mut worker: Worker = store.worker();
        set(&mut worker, "k", b"v").unwrap();
        let key = worker.key(b"h");
        let pair = [(&b"g"[..], &b"v"[..])];
        worker.hash_at(DB, &key).set(&pair, FieldMode::All, stillframe_store::Deadline::Clear).unwrap();
    });
    assert_eq!(curious.1.load(Ordering::Relaxed), 3);
}

/// One that panics at each change.
struct Panicking;

impl Listener for Panicking {
    fn hear(&self, _: &Step, _: &Effect<'_>) {
        // Past the hook of panics, which would say so each time.
        std::panic::resume_unwind(Box::new("a bug of the listener's"));
    }
}

#[test]
fn a_listener_that_panics_spoils_nothing() {
    let dir = TempDir::new("panicking-listener");
    let store = open(&dir, Options::default());
    assert!(store.listen(vec![Arc::new(Panicking)]));
    let listening = store.clone();
    in_time("changes that are told", move || {
        let store = listening;
        for number in 0..600 {
            let name = format!("{number:05}");
            assert!(store.hash("hash").set(&name, "v").unwrap());
            store.list("list").push_back(&name).unwrap();
            assert!(store.set("set").add(&name).unwrap());
            assert!(store.sorted_set("sorted").insert(&name, 1.0).unwrap());
        }
        assert_eq!(store.set("set").pop_many(100).unwrap().len(), 100);
        assert!(store.list("list").pop_front().unwrap().is_some());
        store.check().unwrap();
        store.worker().database(DB).flush().unwrap();
        assert!(store.hash("hash").is_empty().unwrap());
    });
    checkpoint_elsewhere(&store).unwrap();
}

/// What everybody stands still for may not wait for anybody.
#[test]
fn what_runs_at_the_cut_may_not_use_the_store() {
    let dir = TempDir::new("at-cut");
    let store = open(&dir, Options::default());
    store.hash("h").set("f", "v").unwrap();
    let at_cut = store.clone();
    let saved = store.clone();
    in_time("a checkpoint", move || {
        let use_it = move || {
            assert!(matches!(at_cut.hash("h").set("f", "w"), Err(OpError::Busy)));
            assert!(matches!(at_cut.tree("t").map(drop), Err(TreeError::Busy)));
            assert!(matches!(at_cut.view(), Err(SaveError::Busy)));
        };
        saved.checkpoint_telling(use_it, || ()).unwrap();
    });
}
