//! Tail, durable offset and waiters under the model checker: the real `src/tail.rs` and `src/progress.rs`, with a writer that does
//! the steps of `src/writer.rs`. A step can be taken wrongly, and then the checker must find what goes wrong.
#![allow(dead_code)]

#[path = "../src/block.rs"]
mod block;
#[path = "../src/bytes.rs"]
mod bytes;
#[path = "../src/chunk.rs"]
mod chunk;
#[path = "../src/progress.rs"]
mod progress;
#[path = "../src/tail.rs"]
mod tail;

/// What the sources name of the crate.
mod error {
    pub use stillframe_journal::JournalError;
}
mod names {
    pub use stillframe_journal::{LogId, Offset, SegmentNumber};
}
mod options {
    pub use stillframe_journal::SyncPolicy;
}
mod seams {
    pub use stillframe_journal::{Body, Piece};
}

/// Loom's locks with the faces of those that the journal uses.
mod sync {
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    pub use loom::sync::atomic;
    pub use std::sync::Arc;

    pub struct Mutex<T>(loom::sync::Mutex<T>);
    pub struct MutexGuard<'m, T>(Option<loom::sync::MutexGuard<'m, T>>);
    pub struct Condvar(loom::sync::Condvar);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().expect("no holder panics")))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().expect("gone only within a wait")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("gone only within a wait")
        }
    }

    impl Condvar {
        pub fn new() -> Condvar {
            Condvar(loom::sync::Condvar::new())
        }

        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().expect("gone only within a wait");
            guard.0 = Some(self.0.wait(held).expect("no holder panics"));
        }

        /// Nobody gives up here.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _limit: Duration) {
            self.wait(guard);
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use chunk::Part;
use names::Offset;
use options::SyncPolicy;
use progress::Progress;
use seams::Piece;
use tail::{Stop, Tail, Wish};

/// A step taken wrongly, or left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    None,
    /// What has been taken counts as durable before it is on the disk.
    PublishedBeforeSync,
    /// The end is published that the stream has now, not the one that was taken.
    PublishedTheEnd,
    /// A waiting thread does not tell the writer.
    NotWanted,
    /// After a failure the next success is published.
    WentOnAfterFailure,
}

struct World {
    tail: Tail,
    progress: Progress,
    /// Everything before it is on the disk.
    disk: AtomicU64,
    mistake: Mistake,
}

/// As many bytes gathered before anybody writes as nobody here appends: only a thread that asks has something written.
const GATHERED_BYTES: u64 = 1 << 20;

impl World {
    fn new(mistake: Mistake) -> Arc<World> {
        Arc::new(World {
            tail: Tail::new(Offset(0), 4096, 1 << 20, SyncPolicy::Never, |_, _| {}),
            progress: Progress::new(Offset(0)),
            disk: AtomicU64::new(0),
            mistake,
        })
    }

    fn append(&self, bytes: &[u8]) -> Offset {
        self.tail.append(None, &mut [Piece::Bytes(bytes)].into_iter(), bytes.len() as u64).0
    }

    /// `Journal::make_durable`.
    fn make_durable(&self, to: Offset) -> bool {
        if self.mistake != Mistake::NotWanted {
            self.tail.want(to);
        }
        let is_durable = self.progress.wait_for(to).is_ok();
        assert!(!is_durable || self.disk.load(Ordering::Acquire) >= to.0, "durable before it is on the disk");
        is_durable
    }

    /// `Writer::run`, for a device that fails at the write with that number.
    fn write(&self, fails_at: Option<u32>) {
        let (mut parts, mut chunks, mut seen, mut write_count) = (Vec::new(), Vec::new(), Offset(0), 0);
        loop {
            let wish = Wish { waiting_bytes: GATHERED_BYTES, wanted_beyond: seen, timeout: None };
            let view = self.tail.wait(wish);
            seen = view.wanted;
            if view.stop == Stop::Abandon {
                return;
            }
            if view.waiting_bytes > 0 && (view.wanted > self.progress.durable() || view.stop == Stop::Close) {
                let end = self.tail.take(&mut parts);
                if self.mistake == Mistake::PublishedBeforeSync {
                    self.progress.publish(end);
                }
                let byte_count: u64 = parts.iter().map(part_bytes).sum();
                chunks.extend(parts.drain(..).filter_map(|part| match part {
                    Part::Chunk(chunk) => Some(chunk),
                    Part::Link(_) => None,
                }));
                if fails_at == Some(write_count) {
                    self.fail();
                    if self.mistake != Mistake::WentOnAfterFailure {
                        return;
                    }
                } else {
                    self.disk.store(self.disk.load(Ordering::Acquire) + byte_count, Ordering::Release);
                    let end = if self.mistake == Mistake::PublishedTheEnd { self.tail.end() } else { end };
                    self.progress.publish(end);
                }
                write_count += 1;
                self.tail.give_back(byte_count, &mut chunks);
            }
            if view.stop == Stop::Close && self.progress.durable() >= self.tail.end() {
                return;
            }
        }
    }

    /// `Shared::fail`.
    fn fail(&self) {
        self.progress.fail(Arc::new(error::JournalError::Closed));
        if self.mistake != Mistake::WentOnAfterFailure {
            self.tail.die();
        }
    }
}

fn part_bytes(part: &Part) -> u64 {
    match part {
        Part::Chunk(chunk) => chunk.payload_bytes as u64,
        Part::Link(link) => link.large.len_bytes(),
    }
}

/// Two append and wait, the writer writes; at the end the log is closed.
fn two_workers(mistake: Mistake) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let world = World::new(mistake);
        let writer = thread::spawn({
            let world = world.clone();
            move || world.write(None)
        });
        let other = thread::spawn({
            let world = world.clone();
            move || {
                let end = world.append(b"of one worker");
                assert!(world.make_durable(end));
            }
        });
        let end = world.append(b"of the other");
        assert!(world.make_durable(end));
        other.join().unwrap();
        world.tail.end_with(Stop::Close);
        writer.join().unwrap();
        assert_eq!(world.progress.durable(), world.tail.end());
    });
}

/// One appends and does not wait; closing makes it durable all the same, whenever it comes.
fn closing(mistake: Mistake) {
    loom::model(move || {
        let world = World::new(mistake);
        let writer = thread::spawn({
            let world = world.clone();
            move || world.write(None)
        });
        world.append(b"a unit");
        world.tail.end_with(Stop::Close);
        writer.join().unwrap();
        assert_eq!(world.disk.load(Ordering::Acquire), world.tail.end().0);
    });
}

/// A write fails: waiting threads are told, and nothing is durable that is not on the disk.
fn failing(mistake: Mistake) {
    loom::model(move || {
        let world = World::new(mistake);
        let writer = thread::spawn({
            let world = world.clone();
            move || world.write(Some(0))
        });
        let end = world.append(b"lost");
        assert!(!world.make_durable(end), "nobody knows what is on the disk");
        let end = world.append(b"only counted");
        assert!(!world.make_durable(end), "after a failure nothing is durable");
        world.tail.end_with(Stop::Abandon);
        writer.join().unwrap();
        assert_eq!(world.progress.durable(), Offset(0));
    });
}

#[test]
fn everybody_is_told_when_units_are_on_the_disk() {
    two_workers(Mistake::None);
}

#[test]
fn closing_leaves_nothing_behind() {
    closing(Mistake::None);
}

#[test]
fn a_failure_reaches_all_who_wait() {
    failing(Mistake::None);
}

#[test]
#[should_panic(expected = "durable before it is on the disk")]
fn publishing_too_early_is_found() {
    two_workers(Mistake::PublishedBeforeSync);
}

#[test]
#[should_panic(expected = "durable before it is on the disk")]
fn publishing_the_end_is_found() {
    two_workers(Mistake::PublishedTheEnd);
}

#[test]
#[should_panic(expected = "deadlock")]
fn waiting_silently_is_found() {
    two_workers(Mistake::NotWanted);
}

/// `Progress` refuses it, so the model must end as without the mistake, but for units that are written to no purpose.
#[test]
fn a_success_after_a_failure_is_not_published() {
    failing(Mistake::WentOnAfterFailure);
}
