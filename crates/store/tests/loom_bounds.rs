//! The bounds above deadlines under the model checker: whoever raises them misses none that comes in between.

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::Arc;
use loom::thread;

mod sync {
    pub use loom::sync::atomic;
}

#[allow(dead_code)]
#[path = "../src/tree/hash/bounds.rs"]
mod bounds;

use bounds::{lower, raise, OPEN};

/// Two leaves below a group, two groups below the top.
struct Tree {
    leaves: [AtomicU32; 2],
    groups: [AtomicU32; 2],
    top: AtomicU32,
}

impl Tree {
    /// Bounds that are too low, as a visit leaves them.
    fn new() -> Arc<Tree> {
        let word = AtomicU32::new;
        Arc::new(Tree { leaves: [word(OPEN), word(OPEN)], groups: [word(1), word(OPEN)], top: word(1) })
    }

    fn add(&self, leaf: usize, deadline: u32) {
        self.leaves[leaf].store(deadline, Ordering::Relaxed);
        lower(&[&self.groups[0], &self.top], deadline);
    }

    fn visit_group(&self) {
        let get = |word: &AtomicU32| word.load(Ordering::Relaxed);
        raise(&[&self.groups[0], &self.top], self.leaves.iter().map(get));
    }

    fn visit(&self) {
        self.visit_group();
        raise(&[&self.top], self.groups.iter().map(|word| word.load(Ordering::Relaxed)));
    }

    fn check(&self) {
        let get = |word: &AtomicU32| word.load(Ordering::Relaxed);
        let least = get(&self.leaves[0]).min(get(&self.leaves[1]));
        assert!(get(&self.groups[0]) <= least && get(&self.top) <= least, "a deadline is above its bound");
    }
}

fn run(preemption_count: usize, threads: Vec<fn(&Tree)>) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemption_count);
    model.check(move || {
        let tree = Tree::new();
        let spawned: Vec<_> = threads
            .iter()
            .map(|&body| {
                let tree = tree.clone();
                thread::spawn(move || body(&tree))
            })
            .collect();
        spawned.into_iter().for_each(|thread| thread.join().unwrap());
        tree.check();
    });
}

#[test]
fn a_deadline_that_comes_during_a_visit_is_kept() {
    run(3, vec![|tree| tree.add(0, 7), |tree| tree.visit()]);
}

#[test]
fn so_it_is_beside_an_earlier_and_a_later_one() {
    let add = |tree: &Tree| {
        tree.add(0, 7);
        tree.add(1, 9);
    };
    run(3, vec![add, |tree| tree.visit()]);
}

#[test]
fn so_it_is_during_two_visits() {
    run(3, vec![|tree| tree.add(0, 7), |tree| tree.visit(), |tree| tree.visit_group()]);
}
