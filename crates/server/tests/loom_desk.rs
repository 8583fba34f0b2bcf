//! Lending connections under the model checker: whatever comes when, they have one owner, and come back (SC4). The counter is the
//! server's; around it are the steps of workers and of the desk's thread, which wait for each other as theirs do.

use std::cell::Cell;
use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

#[path = "../../pagepool/tests/loom_sync/mod.rs"]
mod locks;

mod sync {
    pub use crate::locks::{Condvar, Mutex};
}

#[allow(dead_code)]
#[path = "../src/desk/counter.rs"]
mod counter;

use counter::{Counter, Given, Taken};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    None,
    /// A worker that asks does not wake the desk.
    AsksInSilence,
}

thread_local! {
    /// Loom runs all threads of a model on the thread of the test.
    static MISTAKE: Cell<Mistake> = const { Cell::new(Mistake::None) };
}

fn is_spoilt(mistake: Mistake) -> bool {
    MISTAKE.with(Cell::get) == mistake
}

/// Connections: the thread that has them alone may change them.
struct Connections {
    worker: usize,
    served: loom::cell::Cell<u32>,
}

struct World {
    counter: Counter<Connections>,
    /// What the eventfd is to the desk.
    bell: locks::Mutex<bool>,
    rung: locks::Condvar,
    /// Threads of the desk there are, and were.
    attending: AtomicUsize,
}

impl World {
    fn ring(&self) {
        *self.bell.lock() = true;
        self.rung.notify_all();
    }

    fn attend(self: &Arc<World>) {
        assert_eq!(self.attending.fetch_add(1, Ordering::SeqCst), 0, "two threads at one desk");
        let mut tables: Vec<Connections> = Vec::new();
        loop {
            tables.extend(self.counter.take_given());
            let (due, stay) = tables.into_iter().partition(|table| self.counter.is_asked(table.worker));
            tables = stay;
            let due: Vec<Connections> = due;
            due.into_iter().for_each(|table| self.counter.give_back(table.worker, table));
            if tables.is_empty() {
                self.attending.fetch_sub(1, Ordering::SeqCst);
                if self.counter.leave() {
                    return;
                }
                self.attending.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            tables.iter().for_each(|table| table.served.set(table.served.get() + 1));
            let mut bell = self.bell.lock();
            while !*bell {
                self.rung.wait(&mut bell);
            }
            *bell = false;
        }
    }

    /// A worker whose script is slow so many times.
    fn work(self: &Arc<World>, worker: usize, rounds: u32) {
        let mut own = Connections { worker, served: loom::cell::Cell::new(0) };
        let mut desks = Vec::new();
        for _ in 0..rounds {
            match self.counter.give(worker, own) {
                Given::Wake => self.ring(),
                Given::Start => {
                    let world = self.clone();
                    desks.push(thread::spawn(move || world.attend()));
                }
            }
            own = match self.counter.ask(worker) {
                Taken::There(own) => own,
                Taken::Asked => {
                    if !is_spoilt(Mistake::AsksInSilence) {
                        self.ring();
                    }
                    self.counter.await_return(worker)
                }
                Taken::Nothing => panic!("it has been given"),
            };
            assert_eq!(own.worker, worker, "another's");
            own.served.set(own.served.get() + 1);
            assert!(matches!(self.counter.ask(worker), Taken::Nothing));
        }
        assert!(own.served.get() >= rounds);
        desks.into_iter().for_each(|desk| desk.join().unwrap());
    }
}

/// Every interleaving of workers that are slow so many times.
fn explore(mistake: Mistake, rounds: &[u32]) {
    MISTAKE.with(|spoilt| spoilt.set(mistake));
    let rounds = rounds.to_vec();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let world = Arc::new(World {
            counter: Counter::new(rounds.len()),
            bell: locks::Mutex::new(false),
            rung: locks::Condvar::new(),
            attending: AtomicUsize::new(0),
        });
        let spawn = |(worker, rounds): (usize, &u32)| {
            let (world, rounds) = (world.clone(), *rounds);
            thread::spawn(move || world.work(worker, rounds))
        };
        let workers: Vec<_> = rounds.iter().enumerate().map(spawn).collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

#[test]
fn a_worker_gets_back_what_it_has_lent() {
    explore(Mistake::None, &[1]);
    explore(Mistake::None, &[2]);
}

#[test]
fn two_workers_lend_at_a_time() {
    explore(Mistake::None, &[1, 1]);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_desk_has_to_be_woken() {
    explore(Mistake::AsksInSilence, &[1]);
}
