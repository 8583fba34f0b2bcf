//! Handles on collections: several threads, cuts between their operations, a restart.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use stillframe_store::{Draw, OpError, Options};
use stillframe_testkit::TempDir;

use crate::open;

/// Each thread has a hash of its own and one that all share; checkpoints come in between and wait for nobody who rests.
#[test]
fn threads_work_on_hashes_beside_checkpoints() {
    const THREADS: u64 = 3;
    const FIELDS: u64 = 2_000;
    let dir = TempDir::new("handles");
    let options = Options { worker_count: THREADS as usize + 1, ..Options::default() };
    let store = open(&dir, options.clone());
    let resting = store.hash("shared");
    assert!(resting.is_empty().unwrap());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let (own, shared) = (store.hash(format!("own:{thread}")), store.hash("shared"));
                for field in 0..FIELDS {
                    assert!(own.set(format!("f{field}"), format!("{thread}")).unwrap());
                    assert!(shared.set_new(format!("{thread}:{field}"), vec![b'x'; 40]).unwrap());
                }
                assert!(own.remove("f0").unwrap());
                assert_eq!(own.len().unwrap(), FIELDS - 1);
            });
        }
        for _ in 0..3 {
            store.checkpoint().unwrap();
        }
    });
    assert_eq!(resting.len().unwrap(), THREADS * FIELDS);
    store.checkpoint().unwrap();
    drop((resting, store));

    let store = open(&dir, options);
    let shared = store.hash("shared");
    let found = std::cell::Cell::new(0);
    let count = |_: &[u8], value: &[u8]| {
        assert_eq!(value, [b'x'; 40]);
        found.set(found.get() + 1);
        ControlFlow::Continue(())
    };
    shared.for_each(|| found.set(0), count).unwrap();
    assert_eq!((found.get(), shared.len().unwrap()), (THREADS * FIELDS, THREADS * FIELDS));
    assert_eq!(store.hash("own:1").get("f7").unwrap().as_deref(), Some(&b"1"[..]));
}

/// A small set and a large one: each gives what a set of the standard library has.
#[test]
fn sets_are_sets() {
    let dir = TempDir::new("handles");
    let store = open(&dir, Options::default());
    for (name, count) in [("small", 20), ("large", 3_000)] {
        let set = store.set(name);
        assert!(set.is_empty().unwrap() && set.pop().unwrap().is_none() && set.random().unwrap().is_none());
        let member = |number: usize| format!("member {number}").into_bytes();
        let mut model: BTreeSet<Vec<u8>> = (0..count).map(member).collect();
        for is_new in [true, false] {
            assert!((0..count).all(|number| set.add(member(number)).unwrap() == is_new));
        }
        assert!(set.remove(member(3)).unwrap() && !set.remove(member(3)).unwrap());
        model.remove(&member(3));
        assert!(set.contains(member(4)).unwrap() && !set.contains(member(3)).unwrap());
        assert!(model.contains(&set.random().unwrap().unwrap()));
        let drawn: BTreeSet<_> = set.draw(Draw::Distinct(9)).unwrap().into_iter().collect();
        assert!(drawn.len() == 9 && drawn.is_subset(&model));
        let popped = set.pop_many(count as u64 / 2).unwrap();
        assert_eq!(popped.len(), count / 2);
        for member in popped.into_iter().chain(set.pop().unwrap()) {
            assert!(model.remove(&member), "{}", String::from_utf8_lossy(&member));
        }
        let members: BTreeSet<_> = set.members().unwrap().into_iter().collect();
        assert_eq!(members, model);
        assert_eq!(set.len().unwrap(), model.len() as u64);
        assert_eq!(set.pop_many(u64::MAX).unwrap().len(), model.len());
        assert!(set.is_empty().unwrap() && set.members().unwrap().is_empty());
    }
    store.hash("hash").set("f", "v").unwrap();
    assert!(matches!(store.set("hash").add("m"), Err(OpError::WrongType)));
}

#[test]
fn a_handle_within_the_closure_of_another_is_refused() {
    let dir = TempDir::new("handles");
    let store = open(&dir, Options::default());
    let (a, b) = (store.hash("a"), store.hash("b"));
    a.set("f", "v").unwrap();
    let inner = a.get_with("f", |_| b.set("f", "v")).unwrap();
    assert!(matches!(inner, Some(Err(OpError::Busy))));
    assert!(b.set("f", "v").unwrap(), "and goes on afterwards");
}
