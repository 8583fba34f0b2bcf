//! A store lives, and ends by a kill or a crash at any time, again and again.

use std::collections::BTreeMap;

use stillframe_pagepool::device::Fault;
use stillframe_store::log::{LogStatus, Offset, SyncPolicy};
use stillframe_store::{digest, Store};

use crate::machine::{log_options, Machine};
use crate::ops::{Ops, Scope};

/// What a store had when its log ended at an offset.
type States = BTreeMap<Offset, String>;

pub fn digest_of(store: &Store) -> String {
    digest::of_all(&store.view().unwrap(), 0).unwrap()
}

pub fn end_of(store: &Store) -> Offset {
    store.log().report().journal.expect("there is a log").end
}

struct Life<'r> {
    random: &'r mut fastrand::Rng,
    states: States,
    /// Everything before it was acknowledged as durable.
    durable: Offset,
}

impl Life<'_> {
    fn run(&mut self, store: &Store, count: u32) {
        let scope = if self.random.bool() { Scope::TimedFields } else { Scope::AsRedis };
        let mut ops = Ops::new(self.random.u64(..), scope);
        let mut worker = store.worker();
        self.states.insert(end_of(store), digest_of(store));
        for _ in 0..count {
            ops.run(&mut worker);
            self.states.insert(end_of(store), digest_of(store));
            match self.random.u32(..40) {
                // What fails has promised nothing.
                0 => drop(store.checkpoint()),
                1 => {
                    let end = end_of(store);
                    if store.log().sync().is_ok() {
                        self.durable = self.durable.max(end);
                    }
                }
                2 => {
                    let policy = policy(self.random);
                    store.log().set(Some(log_options(policy)));
                }
                _ => {}
            }
        }
        let report = store.log().report().journal.expect("there is a log");
        self.durable = self.durable.max(report.durable);
    }

    /// What is there after the crash is what was there at the end of some unit, and nothing that was acknowledged is missing.
    fn check(&mut self, store: &Store) {
        let end = end_of(store);
        assert!(end >= self.durable, "the log ends at {end}, and was durable up to {}", self.durable);
        match self.states.get(&end) {
            Some(expected) => assert_eq!(*expected, digest_of(store), "at {end}"),
            // Between two units of one operation: expiry is a unit of its own.
            None => assert!(
                self.states.range(..end).next().is_some() && self.states.range(end..).next().is_some()
            ),
        }
        self.states.split_off(&Offset(end.0 + 1));
        self.states.insert(end, digest_of(store));
        self.durable = end;
    }
}

fn policy(random: &mut fastrand::Rng) -> SyncPolicy {
    [SyncPolicy::Always, SyncPolicy::EverySecond, SyncPolicy::Never][random.usize(..3)]
}

fn run_lives(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut machine = Machine::new(seed);
    let mut store = machine.open(Some(log_options(policy(&mut random)))).unwrap();
    let mut life = Life { random: &mut random, states: States::new(), durable: Offset(0) };
    for _ in 0..6 {
        let is_crash = life.random.bool();
        if is_crash && life.random.bool() {
            let call = machine.shelf.call_count() + life.random.u64(..40);
            machine.shelf.schedule(call, Fault::Crash);
        }
        let count = life.random.u32(1..120);
        life.run(&store, count);
        let seed = life.random.u64(..);
        machine = if is_crash { machine.crash(seed) } else { machine.kill(seed) };
        drop(store);
        store = machine.open(Some(log_options(policy(life.random)))).unwrap();
        assert_eq!(store.log().report().status, LogStatus::On);
        life.check(&store);
    }
}

#[test]
fn what_was_durable_is_there_after_each_crash() {
    let count = std::env::var("STILLFRAME_SEQUENCES").ok().and_then(|count| count.parse().ok()).unwrap_or(12);
    let first = stillframe_testkit::seed();
    for seed in first..first.saturating_add(count) {
        println!("seed {seed}");
        run_lives(seed);
    }
}
