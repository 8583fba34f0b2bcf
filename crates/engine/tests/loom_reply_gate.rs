//! Held replies under the model checker: no reply shows a change that is not durable, and nobody sleeps over one that is (G1). Ends,
//! bell and needs are those of the engine; around them are its steps: a key and its lock, a log and its disk, a worker's mailbox.

use std::sync::Arc as StdArc;

use loom::sync::atomic::{fence, AtomicBool, AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;

mod sync {
    pub use loom::sync::atomic;
}

#[path = "../src/state/reply_gate/bell.rs"]
#[allow(dead_code)]
mod bell;

#[path = "../src/state/reply_gate/ends.rs"]
#[allow(dead_code)]
mod ends;

#[path = "../src/protocol/need.rs"]
#[allow(dead_code)]
mod need;

use bell::Bell;
use ends::Ends;
use need::{Need, RunningNeed};

const KEY: usize = 0;
const UNIT_BYTES: u64 = 10;
const WORKER: usize = 0;

/// A step in a wrong order, or none at all.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// A reader looks at the lock before it reads.
    LooksEarly,
    /// A reader does not look at the lock.
    LooksNever,
    /// A writer notes the end of its unit after it has let go of the lock.
    NotesLate,
    /// Output leaves whatever it needs.
    SendsAtOnce,
    /// The log says that bytes are durable before they are.
    SaysEarly,
    /// A worker asks after it has looked for the last time.
    AsksLate,
    /// The end of a step that others wait for rings nobody.
    SettlesSilently,
}

struct World {
    mistake: Mistake,
    value: AtomicBool,
    /// The key's lock: 1 while a writer has it.
    lock: AtomicU64,
    log_end: AtomicU64,
    /// What the disk has.
    disk_end: AtomicU64,
    ends: Ends,
    bell: Bell,
    /// The mailbox of the worker has something.
    is_woken: AtomicBool,
}

impl World {
    fn new(mistake: Mistake) -> Arc<World> {
        let bell = Bell::new(1);
        bell.set_holding(true, |_| {});
        Arc::new(World {
            mistake,
            value: AtomicBool::new(false),
            lock: AtomicU64::new(0),
            log_end: AtomicU64::new(0),
            disk_end: AtomicU64::new(0),
            ends: Ends::new(1),
            bell,
            is_woken: AtomicBool::new(false),
        })
    }

    fn wake(&self) {
        self.is_woken.store(true, Ordering::Release);
    }

    /// A command that changes the key.
    fn change(&self) -> u64 {
        self.lock.swap(1, Ordering::Acquire);
        self.value.store(true, Ordering::Release);
        let end_offset = self.log_end.fetch_add(UNIT_BYTES, Ordering::AcqRel) + UNIT_BYTES;
        if self.mistake != Mistake::NotesLate {
            self.ends.note(KEY, end_offset);
        }
        self.lock.swap(0, Ordering::Release);
        if self.mistake == Mistake::NotesLate {
            self.ends.note(KEY, end_offset);
        }
        end_offset
    }

    fn await_writer(&self) {
        while self.lock.load(Ordering::Relaxed) == 1 {
            thread::yield_now();
        }
        fence(Ordering::Acquire);
    }

    /// A command that reads the key. Returns what it has seen, and its need.
    fn read(&self) -> (bool, u64) {
        if self.mistake == Mistake::LooksEarly {
            self.await_writer();
        }
        let is_seen = self.value.load(Ordering::Acquire);
        if !matches!(self.mistake, Mistake::LooksEarly | Mistake::LooksNever) {
            self.await_writer();
        }
        (is_seen, self.ends.of(KEY))
    }

    /// The log's thread: what is there is made durable.
    fn sync(&self) {
        let end_offset = self.log_end.load(Ordering::Acquire);
        if self.mistake == Mistake::SaysEarly {
            self.bell.rise(end_offset, |_| self.wake());
        }
        self.disk_end.store(end_offset, Ordering::Release);
        self.bell.rise(end_offset, |_| self.wake());
    }

    fn may_leave(&self, need: &mut Need) -> bool {
        let limit_offset =
            if self.mistake == Mistake::SendsAtOnce { u64::MAX } else { self.bell.limit_offset() };
        need.settled_offset().is_some_and(|need_offset| need_offset <= limit_offset)
    }

    /// A worker with this output, before it sleeps. Whether the output has left.
    fn look(&self, need: &mut Need) -> bool {
        if self.mistake == Mistake::AsksLate && self.may_leave(need) {
            return true;
        }
        let offset = need.settled_offset().unwrap_or(0);
        self.bell.ask(WORKER, Some(offset));
        self.mistake != Mistake::AsksLate && self.may_leave(need)
    }
}

fn check(body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(body);
}

/// A reader's reply shows nothing that the disk does not have.
fn read_meets_change(mistake: Mistake) {
    check(move || {
        let world = World::new(mistake);
        let other = {
            let world = world.clone();
            thread::spawn(move || {
                world.change();
                world.sync();
            })
        };
        let (is_seen, need_offset) = world.read();
        assert!(!is_seen || need_offset >= UNIT_BYTES, "a change with an older need");
        let mut need = Need::default();
        need.raise(need_offset);
        if world.may_leave(&mut need) {
            let is_durable = world.disk_end.load(Ordering::Acquire) >= UNIT_BYTES;
            assert!(!is_seen || is_durable, "sent before it is durable");
        }
        other.join().unwrap();
    });
}

#[test]
fn a_read_has_the_need_of_what_it_has_met() {
    read_meets_change(Mistake::None);
}

#[test]
#[should_panic(expected = "older need")]
fn a_reader_that_has_looked_at_the_lock_before_may_meet_what_is_not_noted() {
    read_meets_change(Mistake::LooksEarly);
}

#[test]
#[should_panic(expected = "older need")]
fn without_a_look_at_the_lock_a_change_may_not_be_noted() {
    read_meets_change(Mistake::LooksNever);
}

#[test]
#[should_panic(expected = "older need")]
fn what_is_noted_without_the_lock_is_noted_late() {
    read_meets_change(Mistake::NotesLate);
}

#[test]
#[should_panic(expected = "sent before")]
fn without_the_wait_a_reply_shows_what_is_not_durable() {
    read_meets_change(Mistake::SendsAtOnce);
}

#[test]
#[should_panic(expected = "sent before")]
fn what_is_said_to_be_durable_early_leaves_early() {
    read_meets_change(Mistake::SaysEarly);
}

/// A worker whose output is held sleeps only if somebody will wake it.
fn sleep_meets_sync(mistake: Mistake) {
    check(move || {
        let world = World::new(mistake);
        let mut need = Need::default();
        need.raise(world.change());
        let other = {
            let world = world.clone();
            thread::spawn(move || world.sync())
        };
        let has_left = world.look(&mut need);
        other.join().unwrap();
        assert!(has_left || world.is_woken.load(Ordering::Acquire), "asleep over what is durable");
        assert!(has_left || world.may_leave(&mut need));
    });
}

#[test]
fn nobody_sleeps_over_what_is_durable() {
    sleep_meets_sync(Mistake::None);
}

#[test]
#[should_panic(expected = "asleep")]
fn a_worker_that_asks_after_its_last_look_is_not_woken() {
    sleep_meets_sync(Mistake::AsksLate);
}

/// What a step tells others, while it runs, leaves when the step's unit is durable, and then it does leave.
fn message_meets_end_of_step(mistake: Mistake) {
    check(move || {
        let world = World::new(mistake);
        let step: StdArc<RunningNeed> = StdArc::default();
        let mut need = Need::of_running(step.clone());
        let teller = {
            let world = world.clone();
            thread::spawn(move || {
                let end_offset = world.change();
                step.settle(end_offset);
                if world.mistake != Mistake::SettlesSilently {
                    world.bell.ring(0, |_| world.wake());
                }
            })
        };
        let log = {
            let world = world.clone();
            thread::spawn(move || world.sync())
        };
        let mut has_left = world.look(&mut need);
        if has_left {
            assert_eq!(world.disk_end.load(Ordering::Acquire), UNIT_BYTES, "sent before it is durable");
        }
        teller.join().unwrap();
        log.join().unwrap();
        // Whatever has come since it fell asleep is durable at the latest now.
        let was_durable = world.disk_end.load(Ordering::Acquire) == UNIT_BYTES;
        while !has_left && world.is_woken.swap(false, Ordering::AcqRel) {
            has_left = world.look(&mut need);
        }
        assert!(has_left || !was_durable, "asleep over what is durable");
        if !has_left {
            world.sync();
            assert!(world.is_woken.load(Ordering::Acquire) && world.look(&mut need));
        }
    });
}

#[test]
fn a_message_leaves_once_its_step_is_durable() {
    message_meets_end_of_step(Mistake::None);
}

#[test]
#[should_panic(expected = "asleep")]
fn a_step_that_ends_without_a_ring_leaves_a_worker_asleep() {
    message_meets_end_of_step(Mistake::SettlesSilently);
}

#[test]
#[should_panic(expected = "asleep")]
fn a_worker_that_asks_late_sleeps_over_the_end_of_a_step() {
    message_meets_end_of_step(Mistake::AsksLate);
}

/// The end of the policy releases whatever is held, and a failure wakes those who hold it.
#[test]
fn the_end_and_a_failure_wake_all() {
    for has_failed in [false, true] {
        check(move || {
            let world = World::new(Mistake::None);
            let mut need = Need::default();
            need.raise(world.change());
            let other = {
                let world = world.clone();
                thread::spawn(move || match has_failed {
                    true => world.bell.set_failed(true, |_| world.wake()),
                    false => world.bell.set_holding(false, |_| world.wake()),
                })
            };
            let has_left = world.look(&mut need) || world.bell.has_failed();
            other.join().unwrap();
            assert!(has_left || world.is_woken.load(Ordering::Acquire), "asleep");
            assert!(has_failed || world.may_leave(&mut need));
        });
    }
}
