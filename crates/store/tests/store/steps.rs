//! Steps: which changes are told as one, why, and to whom.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use stillframe_store::{
    Candidates, Cause, DbId, Deadline, Ear, Effect, EvictionPolicy, FieldMode, Listener, NewValue, Options,
    Position, Preference, Step, Store, Worker, WorkerId,
};
use stillframe_testkit::TempDir;

const DB: DbId = DbId(0);

#[derive(Clone, PartialEq, Debug)]
enum Heard {
    Begin(Cause),
    Effect(Option<&'static str>),
    End(u64),
}

/// What it hears; with an ear of its own it hears only while that is open.
#[derive(Default)]
struct Log {
    heard: Mutex<Vec<Heard>>,
    ear: Option<OnceLock<Ear>>,
}

impl Log {
    fn take(&self) -> Vec<Heard> {
        std::mem::take(&mut *self.heard.lock())
    }

    /// Causes and numbers of effects of the steps.
    fn steps(&self) -> Vec<(Cause, usize)> {
        let mut steps = Vec::new();
        for heard in self.take() {
            match heard {
                Heard::Begin(cause) => steps.push((cause, 0)),
                Heard::Effect(_) => steps.last_mut().expect("a step has begun").1 += 1,
                Heard::End(_) => {}
            }
        }
        steps
    }

    fn ear(&self) -> &Ear {
        self.ear.as_ref().and_then(OnceLock::get).expect("the listener has been told")
    }
}

impl Listener for Log {
    fn attend(&self, ear: Ear) {
        match &self.ear {
            Some(own) => drop(own.set(ear)),
            None => ear.open(),
        }
    }

    fn begin(&self, step: &Step) {
        self.heard.lock().push(Heard::Begin(step.cause));
    }

    fn hear(&self, step: &Step, _: &Effect<'_>) {
        self.heard.lock().push(Heard::Effect(step.call.name));
    }

    fn end(&self, _: &Step, Position(position): Position) {
        self.heard.lock().push(Heard::End(position));
    }
}

fn open() -> (Store, Worker, Arc<Log>, TempDir) {
    let dir = TempDir::new("steps");
    let store = crate::open(&dir, Options { huge_pages: false, ..Options::default() });
    let log = Arc::new(Log::default());
    assert!(store.listen(vec![log.clone()]));
    let mut worker = store.nonblocking_worker().unwrap();
    worker.set_now(1_000);
    (store, worker, log, dir)
}

fn set(worker: &mut Worker, name: &str, deadline: Deadline) {
    let key = worker.key(name.as_bytes());
    worker.set(DB, &key, NewValue::Int(1), deadline).unwrap();
}

fn get(worker: &mut Worker, name: &str) -> bool {
    let key = worker.key(name.as_bytes());
    worker.get(DB, &key, |_| ()).unwrap().is_some()
}

#[test]
fn an_operation_is_a_step() {
    let (_store, mut worker, log, _dir) = open();
    let (key, pairs) = (worker.key(b"h"), [(&b"a"[..], &b"1"[..]), (b"b", b"2"), (b"c", b"3")]);
    worker.hash_at(DB, &key).set(&pairs, FieldMode::All, Deadline::Clear).unwrap();
    assert!(!get(&mut worker, "nothing"));
    worker.hash_at(DB, &key).remove(&[&b"a"[..], b"b", b"c"]).unwrap();
    // The key goes with its last field.
    assert_eq!(log.steps(), [(Cause::Call, 3), (Cause::Call, 4)]);
    worker.database(DB).flush().unwrap();
    assert_eq!(log.take(), [Heard::Begin(Cause::Call), Heard::Effect(None), Heard::End(3)]);
}

#[test]
fn several_operations_are_one_step_if_they_are_to_be() {
    let (_store, mut worker, log, _dir) = open();
    worker.steps().begin();
    worker.steps().name_call(Some("first"));
    set(&mut worker, "a", Deadline::Clear);
    worker.steps().name_call(None);
    set(&mut worker, "b", Deadline::Clear);
    assert!(get(&mut worker, "a"));
    worker.steps().end();
    // Without a change there is none.
    worker.steps().begin();
    assert!(get(&mut worker, "a"));
    worker.steps().end();
    set(&mut worker, "c", Deadline::Clear);
    let first = [Heard::Begin(Cause::Call), Heard::Effect(Some("first")), Heard::Effect(None), Heard::End(1)];
    let second = [Heard::Begin(Cause::Call), Heard::Effect(None), Heard::End(2)];
    assert_eq!(log.take(), [&first[..], &second[..]].concat());
}

#[test]
fn a_step_that_is_left_open_ends_with_its_worker() {
    let (_store, mut worker, log, _dir) = open();
    worker.steps().begin();
    set(&mut worker, "a", Deadline::Clear);
    drop(worker);
    assert_eq!(log.take(), [Heard::Begin(Cause::Call), Heard::Effect(None), Heard::End(1)]);
}

#[test]
fn what_expires_is_a_step_of_its_own() {
    let (_store, mut worker, log, _dir) = open();
    for name in ["a", "b", "c", "d", "e"] {
        set(&mut worker, name, Deadline::At(1_010));
    }
    log.take();
    worker.set_now(1_010);
    assert!(!get(&mut worker, "a"));
    assert_eq!(log.steps(), [(Cause::Expiry, 1)]);
    // Within a step of the caller's it is part of that: whatever follows there stands on it.
    worker.steps().begin();
    assert!(!get(&mut worker, "b"));
    set(&mut worker, "b", Deadline::Clear);
    worker.steps().end();
    assert_eq!(log.steps(), [(Cause::Call, 2)]);
    // A write in its place is one step with it.
    set(&mut worker, "c", Deadline::Clear);
    assert_eq!(log.steps(), [(Cause::Call, 2)]);
    worker.set_now(100_000);
    worker.upkeep().expire_cycle(Duration::from_secs(1), |_, _| {}).unwrap();
    assert_eq!(log.steps(), [(Cause::Expiry, 1); 2]);
}

#[test]
fn expired_fields_go_in_a_step_and_evictions_in_theirs() {
    let (_store, mut worker, log, _dir) = open();
    let (key, pairs) = (worker.key(b"h"), [(&b"a"[..], &b"1"[..]), (b"b", b"2"), (b"c", b"3")]);
    worker.hash_at(DB, &key).set(&pairs, FieldMode::All, Deadline::Clear).unwrap();
    worker.hash_at(DB, &key).set_deadline(&[&b"a"[..], b"b"], Some(1_010)).unwrap();
    log.take();
    worker.set_now(100_000);
    worker.upkeep().expire_cycle(Duration::from_secs(1), |_, _| {}).unwrap();
    assert_eq!(log.steps(), [(Cause::Expiry, 2)]);
    let policy = EvictionPolicy { candidates: Candidates::All, preference: Preference::Random };
    worker.upkeep().evict(policy, 5).unwrap();
    assert_eq!(log.steps(), [(Cause::Eviction, 1)]);
    assert_eq!(worker.steps().set_cause(Cause::Load), Cause::Call);
    set(&mut worker, "k", Deadline::Clear);
    assert_eq!((log.steps(), worker.steps().set_cause(Cause::Call)), (vec![(Cause::Load, 1)], Cause::Load));
}

#[test]
fn a_listener_hears_while_its_ear_is_open() {
    let dir = TempDir::new("ears");
    let store = crate::open(&dir, Options { huge_pages: false, ..Options::default() });
    let closed = || Arc::new(Log { ear: Some(OnceLock::new()), ..Log::default() });
    let (first, second) = (closed(), closed());
    assert!(store.listen(vec![first.clone(), second.clone()]));
    let mut worker = store.nonblocking_worker().unwrap();
    worker.set_now(1_000);
    set(&mut worker, "a", Deadline::Clear);
    second.ear().open();
    set(&mut worker, "a", Deadline::Clear);
    assert!(first.take().is_empty(), "its ear is closed");
    // Positions are of the steps that somebody has heard.
    let whole = |position| vec![Heard::Begin(Cause::Call), Heard::Effect(None), Heard::End(position)];
    assert_eq!(second.take(), whole(1));
    // One that begins to hear within a step hears its beginning before the rest.
    worker.steps().begin();
    set(&mut worker, "a", Deadline::Clear);
    first.ear().open();
    set(&mut worker, "b", Deadline::Clear);
    second.ear().close();
    set(&mut worker, "c", Deadline::Clear);
    worker.steps().end();
    let two = [Heard::Begin(Cause::Call), Heard::Effect(None), Heard::Effect(None), Heard::End(2)];
    assert_eq!((first.take(), second.take()), (two.to_vec(), two.to_vec()));
    first.ear().close();
    set(&mut worker, "d", Deadline::Clear);
    assert!(first.take().is_empty() && second.take().is_empty());
}

#[test]
fn a_handle_is_a_worker_of_its_own() {
    let (store, worker, log, _dir) = open();
    drop(worker);
    log.take();
    let (hash, list) = (store.hash("h"), store.list("l"));
    hash.set("a", "1").unwrap();
    list.push_back("x").unwrap();
    list.push_back("y").unwrap();
    store.set("s").add("m").unwrap();
    store.set("s").remove("m").unwrap();
    assert_eq!(
        log.steps(),
        [(Cause::Call, 1), (Cause::Call, 1), (Cause::Call, 1), (Cause::Call, 1), (Cause::Call, 2)]
    );
}

/// The step that is told, the position of the last one, and steps that were told within others: a panic would be caught.
#[derive(Default)]
struct Alternating(Mutex<(Option<WorkerId>, u64)>, AtomicU64);

impl Alternating {
    fn check(&self, is_right: bool) {
        self.1.fetch_add(u64::from(!is_right), Ordering::Relaxed);
    }
}

impl Listener for Alternating {
    fn begin(&self, step: &Step) {
        self.check(self.0.lock().0.replace(step.worker).is_none());
    }

    fn hear(&self, step: &Step, _: &Effect<'_>) {
        self.check(self.0.lock().0 == Some(step.worker));
        std::thread::yield_now();
    }

    fn end(&self, step: &Step, position: Position) {
        // A worker that did not wait for the key's lock would begin now.
        std::thread::sleep(Duration::from_micros(20));
        let (worker, last) = std::mem::replace(&mut *self.0.lock(), (None, position.0));
        self.check(worker == Some(step.worker) && last + 1 == position.0);
    }
}

/// Of two workers that change the same key, each always with two operations, no step is told within the other's.
#[test]
fn steps_on_a_key_are_told_one_after_the_other() {
    let dir = TempDir::new("alternating");
    let store = crate::open(&dir, Options { worker_count: 2, huge_pages: false, ..Options::default() });
    let told = Arc::new(Alternating::default());
    assert!(store.listen(vec![told.clone()]));
    std::thread::scope(|scope| {
        for number in 0..2 {
            let store = &store;
            scope.spawn(move || {
                let mut worker = store.nonblocking_worker().unwrap();
                for round in 0..2_000 {
                    worker.set_now(1_000 + round);
                    let key = worker.key(b"k");
                    if round % 3 == number {
                        // An operation that locks for itself.
                        worker.set(DB, &key, NewValue::Int(round), Deadline::At(1_001 + round)).unwrap();
                    } else {
                        let _locks = worker.lock(&[(DB, key)], true);
                        worker.steps().begin();
                        worker.set(DB, &key, NewValue::Int(round), Deadline::Clear).unwrap();
                        worker.remove(DB, &key).unwrap();
                        worker.steps().end();
                    }
                    worker.quiesce();
                }
            });
        }
    });
    assert_eq!(told.1.load(Ordering::Relaxed), 0, "steps are told within each other");
    assert!(told.0.lock().1 >= 4_000);
}
