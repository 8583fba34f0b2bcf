//! The gate of a tree's transactions under the model checker: the real `src/named/gate.rs` over loom's atomics. A record is
//! two numbers that are the same to all who are inside. What the gate is made of can be spoilt, and then the checker must
//! find that.

use std::cell::Cell;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

mod sync {
    /// Loom takes sequentially consistent accesses for acquiring and releasing ones; fences make up for it.
    pub mod atomic {
        pub use loom::sync::atomic::Ordering;
        use loom::sync::atomic::{fence, AtomicU32 as Inner};

        use crate::IS_SPOILT;

        fn total<R>(ordering: Ordering, access: impl FnOnce() -> R) -> R {
            let is_total = ordering == Ordering::SeqCst && !IS_SPOILT.get();
            is_total.then(|| fence(Ordering::SeqCst));
            let result = access();
            is_total.then(|| fence(Ordering::SeqCst));
            result
        }

        pub struct AtomicU32(Inner);

        impl AtomicU32 {
            pub fn new(value: u32) -> AtomicU32 {
                AtomicU32(Inner::new(value))
            }

            pub fn load(&self, ordering: Ordering) -> u32 {
                total(ordering, || self.0.load(Ordering::Acquire))
            }

            pub fn store(&self, value: u32, ordering: Ordering) {
                total(ordering, || self.0.store(value, Ordering::Release));
            }
        }
    }
}

thread_local! {
    /// Accesses are in no total order. All threads of a model are one of the system's.
    static IS_SPOILT: Cell<bool> = const { Cell::new(false) };
}

#[path = "../src/named/gate.rs"]
mod gate;

use gate::{Gate, GateSeat, KeptOut, Visit};

struct Tree {
    gate: Gate,
    turn: Mutex<()>,
    places: [GateSeat; 2],
    record: [AtomicU32; 2],
}

impl Tree {
    fn wait(&self, kept_out: KeptOut) {
        self.gate.set(kept_out);
        while !self.places.iter().all(|place| place.is_out(kept_out)) {
            thread::yield_now();
        }
    }

    fn numbers(&self) -> u32 {
        let [one, other] = [0, 1].map(|index: usize| self.record[index].load(Ordering::Relaxed));
        assert_eq!(one, other, "a change is torn");
        one
    }

    fn set(&self, value: u32) {
        self.record.iter().for_each(|number| number.store(value, Ordering::Relaxed));
    }

    /// Adds one to what it has read before, while readers go on.
    fn transaction(&self) {
        let turn = self.turn.lock().unwrap();
        self.wait(KeptOut::Writers);
        let read = self.numbers();
        self.wait(KeptOut::All);
        self.set(read + 1);
        self.gate.set(KeptOut::Nobody);
        drop(turn);
    }

    fn visit<R>(&self, place: usize, visit: Visit, f: impl FnOnce() -> R) -> R {
        let place = &self.places[place];
        if !place.try_enter(&self.gate, visit) {
            let turn = self.turn.lock().unwrap();
            assert!(place.try_enter(&self.gate, visit), "who has the turn finds the gate open");
            drop(turn);
        }
        let result = f();
        place.leave();
        result
    }

    fn read(&self, place: usize) -> u32 {
        self.visit(place, Visit::Reads, || self.numbers())
    }

    /// Adds ten.
    fn write(&self, place: usize) {
        self.visit(place, Visit::Writes, || self.set(self.numbers() + 10));
    }
}

fn run(visits: fn(&Tree)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let tree = Arc::new(Tree {
            gate: Gate::new(),
            turn: Mutex::new(()),
            places: [GateSeat::new(), GateSeat::new()],
            record: [AtomicU32::new(0), AtomicU32::new(0)],
        });
        let other = tree.clone();
        let visitor = thread::spawn(move || visits(&other));
        tree.transaction();
        visitor.join().unwrap();
        let expected = tree.read(0);
        assert!(expected == 1 || expected == 11, "{expected}: an update is lost");
    });
}

fn reads(tree: &Tree) {
    let [before, after] = [tree.read(1), tree.read(1)];
    assert!(before <= after);
}

fn writes(tree: &Tree) {
    tree.write(1);
    assert!(tree.read(1) >= 10);
}

#[test]
fn nobody_meets_a_transaction() {
    run(reads);
    run(writes);
}

#[test]
#[should_panic]
fn without_a_total_order_a_reader_does() {
    IS_SPOILT.set(true);
    run(reads);
}

#[test]
#[should_panic]
fn without_a_total_order_a_writer_does() {
    IS_SPOILT.set(true);
    run(writes);
}
