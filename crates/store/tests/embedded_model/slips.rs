//! What new users do: panics that are caught in callbacks, and calls of the store within them. Each ends, with a value or an
//! error; none hangs, and none leaves anything behind for the others.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

use stillframe_store::{OpError, Store, TreeError};

/// Unwinds out of a callback, without a word on the error output.
fn slip() -> ! {
    resume_unwind(Box::new("slip"))
}

fn panics(what: &str, run: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err(), "{what} swallows a panic");
}

/// The calling thread has none of its own structures in here.
pub fn slip_once(store: &Store, random: &mut fastrand::Rng) {
    let (hash, sorted) = (store.hash("slips"), store.sorted_set("slipping scores"));
    hash.set("field", "value").expect("a field");
    sorted.insert("member", 1.0).expect("a member");
    let tree = store.tree("slips").expect("a tree");
    tree.put("key", "value").expect("a record");
    match random.u32(..9) {
        0 => panics("a hash", || drop(hash.get_with("field", |_| slip()))),
        1 => panics("renew", || drop(hash.renew("field", |_| -> Vec<u8> { slip() }))),
        2 => panics("a walk", || {
            let all = stillframe_store::ScoredRange::Ranks { first: 0, last: -1 };
            drop(sorted.for_each(&all, false, || (), |_, _| slip()));
        }),
        3 => panics("a tree", || drop(tree.get_with("key", |_| slip()))),
        4 => panics("a transaction", || {
            drop(tree.transaction(|tree| -> Result<(), TreeError> {
                tree.put("key", "never")?;
                slip()
            }));
        }),
        5 => {
            let within = hash.get_with("field", |_| (store.checkpoint().is_err(), store.view().is_err()));
            assert_eq!(within.expect("a field"), Some((true, true)), "a cut within a callback");
        }
        6 => {
            let within = hash.get_with("field", |_| store.drop_tree("slips").is_err());
            assert_eq!(within.expect("a field"), Some(true), "a tree dropped within a callback");
        }
        7 => {
            let within = hash.get_with("field", |_| matches!(hash.len(), Err(OpError::Busy)));
            assert_eq!(within.expect("a field"), Some(true), "a handle within a callback of its own");
            // Whether that is a value or an error is left open.
            hash.get_with("field", |_| drop(tree.get("key"))).expect("a field");
        }
        _ => {
            tree.get_with("key", |_| drop(hash.get("field"))).expect("a record");
        }
    }
    assert_eq!(
        tree.get("key").expect("a record").as_deref(),
        Some(&b"value"[..]),
        "a slip has changed something"
    );
    assert_eq!(
        hash.get("field").expect("a field").as_deref(),
        Some(&b"value"[..]),
        "a slip has changed something"
    );
}
