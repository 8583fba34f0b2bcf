//! Clients that wait for a key under the model checker: each is answered once, by one of those who may, and nothing that was
//! pushed is lost or left lying while somebody waits. The queues and claims are those of the server.

use loom::sync::{Arc, Mutex};
use loom::thread;
use std::sync::Arc as StdArc;

mod sync {
    #[derive(Default)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}

#[path = "../src/state/waiting/claim.rs"]
mod claim;

#[allow(dead_code)]
#[path = "../src/state/waiting/queues.rs"]
mod queues;

use claim::Claim;
use queues::{Arrival, Queues};

const KEY: u8 = 7;

/// A step in a wrong order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// Who finds nothing lets go of the key, and then waits.
    WaitsLater,
    /// Who pushes takes the element, and then looks whether the client waits still.
    TakesFirst,
}

struct Waiter {
    claim: Claim,
    arrival: Arrival,
    /// What it was told: an element, or that its time is over.
    told: Mutex<Vec<Option<u32>>>,
}

impl Waiter {
    fn tell(&self, what: Option<u32>) {
        self.told.lock().unwrap().push(what);
    }

    fn told(&self) -> Vec<Option<u32>> {
        self.told.lock().unwrap().clone()
    }
}

/// A list, whose lock is that of its key, and those who wait for it.
struct List {
    items: Mutex<Vec<u32>>,
    queues: Queues<u8, Waiter>,
    mistake: Mistake,
}

impl List {
    fn new(mistake: Mistake) -> Arc<List> {
        Arc::new(List { items: Mutex::new(Vec::new()), queues: Queues::default(), mistake })
    }

    fn wait(&self) -> StdArc<Waiter> {
        let make = |arrival| Waiter { claim: Claim::default(), arrival, told: Mutex::new(Vec::new()) };
        self.queues.add([KEY].into_iter(), make)
    }

    /// `BLPOP`. What it has found, or the waiter.
    fn pop(&self) -> Result<u32, StdArc<Waiter>> {
        let mut items = self.items.lock().unwrap();
        if let Some(item) = items.pop() {
            return Ok(item);
        }
        if self.mistake == Mistake::WaitsLater {
            drop(items);
        }
        Err(self.wait())
    }

    /// `RPUSH`, and what follows.
    fn push(&self, item: u32) {
        let mut items = self.items.lock().unwrap();
        items.push(item);
        let mut last = 0;
        while !items.is_empty() {
            let Some(waiter) = self.queues.next(KEY, last) else { return };
            last = waiter.arrival;
            let early = (self.mistake == Mistake::TakesFirst).then(|| items.pop());
            let is_served = waiter.claim.serve(|| {
                waiter.tell(early.unwrap_or_else(|| items.pop()));
                true
            });
            if is_served {
                self.queues.remove([KEY].into_iter(), waiter.arrival);
            }
        }
    }

    /// The time is over, `CLIENT UNBLOCK`, or the connection has gone.
    fn end(&self, waiter: &Waiter) {
        if waiter.claim.end() {
            self.queues.remove([KEY].into_iter(), waiter.arrival);
            waiter.tell(None);
        }
    }
}

fn check(body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(body);
}

/// A push meets two who end the wait.
fn push_meets_ends(mistake: Mistake) {
    check(move || {
        let list = List::new(mistake);
        let waiter = list.wait();
        let ends: Vec<_> = (0..2)
            .map(|_| {
                let (list, waiter) = (list.clone(), waiter.clone());
                thread::spawn(move || list.end(&waiter))
            })
            .collect();
        list.push(1);
        ends.into_iter().for_each(|end| end.join().unwrap());
        let left = list.items.lock().unwrap().clone();
        match waiter.told()[..] {
            [Some(1)] => assert!(left.is_empty()),
            [None] => assert_eq!(left, [1], "what nobody got is there still"),
            ref told => panic!("told {told:?}"),
        }
        assert!(!list.queues.has(KEY));
    });
}

#[test]
fn a_client_is_answered_once() {
    push_meets_ends(Mistake::None);
}

#[test]
#[should_panic(expected = "what nobody got is there still")]
fn an_element_that_is_taken_too_early_is_lost() {
    push_meets_ends(Mistake::TakesFirst);
}

#[test]
fn the_next_one_gets_what_the_first_does_not() {
    check(|| {
        let list = List::new(Mistake::None);
        let (first, second) = (list.wait(), list.wait());
        let end = {
            let (list, first) = (list.clone(), first.clone());
            thread::spawn(move || list.end(&first))
        };
        let pusher = {
            let list = list.clone();
            thread::spawn(move || list.push(1))
        };
        end.join().unwrap();
        pusher.join().unwrap();
        let told = (first.told(), second.told());
        assert!(told == (vec![Some(1)], vec![]) || told == (vec![None], vec![Some(1)]), "{told:?}");
        assert!(list.items.lock().unwrap().is_empty());
    });
}

/// Somebody comes to wait while another pushes.
fn wait_meets_push(mistake: Mistake) {
    check(move || {
        let list = List::new(mistake);
        let pusher = {
            let list = list.clone();
            thread::spawn(move || list.push(1))
        };
        let popped = list.pop();
        pusher.join().unwrap();
        match popped {
            Ok(item) => assert_eq!(item, 1),
            Err(waiter) => assert_eq!(waiter.told(), [Some(1)], "it waits for what is there"),
        }
    });
}

#[test]
fn nobody_waits_for_what_is_there() {
    wait_meets_push(Mistake::None);
}

#[test]
#[should_panic(expected = "it waits for what is there")]
fn who_waits_too_late_misses_a_push() {
    wait_meets_push(Mistake::WaitsLater);
}
