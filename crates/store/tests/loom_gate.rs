//! The gate of commands on several keys under the model checker: who reads keys without locks never sees half of one.

use loom::sync::{Arc, Mutex};
use loom::thread;

mod sync {
    pub use loom::sync::atomic;
}

#[path = "../src/keyspace/gate.rs"]
mod gate;

use gate::Gate;

/// Two keys in leaves of their own; one stripe for both.
struct Store {
    gate: Gate,
    stripe: Mutex<()>,
    leaves: [Mutex<u32>; 2],
}

impl Store {
    /// `MSET`: both keys get the next value.
    fn set_both(&self) {
        let _locks = self.stripe.lock();
        self.gate.enter();
        for leaf in &self.leaves {
            *leaf.lock().unwrap() += 1;
        }
        self.gate.leave();
    }

    /// The same with keys of other stripes.
    fn set_others(&self) {
        self.gate.enter();
        self.gate.leave();
    }

    /// `GET`.
    fn get(&self, key: usize) -> u32 {
        let _lock = (!self.gate.is_clear()).then(|| self.stripe.lock());
        let value = *self.leaves[key].lock().unwrap();
        value
    }
}

/// Whoever has seen the new value of one key sees no older one of the other, while `others` come and go.
fn run(others: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let leaves = [Mutex::new(0), Mutex::new(0)];
        let store = Arc::new(Store { gate: Gate::default(), stripe: Mutex::new(()), leaves });
        let spawn = |body: fn(&Store)| {
            let store = store.clone();
            thread::spawn(move || body(&store))
        };
        let mut threads = vec![spawn(Store::set_both)];
        threads.extend((0..others).map(|_| spawn(Store::set_others)));
        let seen = [store.get(0), store.get(1)];
        assert!(seen[0] <= seen[1], "half of a command: {seen:?}");
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!([store.get(0), store.get(1)], [1, 1]);
    });
}

#[test]
fn a_reader_sees_all_of_a_command_or_nothing() {
    run(0);
}

#[test]
fn one_that_leaves_lets_no_reader_past_another() {
    run(1);
}
