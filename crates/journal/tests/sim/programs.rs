//! Random programs over a machine that crashes, by seed.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stillframe_journal::{Journal, JournalOptions, Offset, Place, SyncMethod, SyncPolicy};
use stillframe_pagepool::device::{Fault, SimShelf};

use crate::support::{assert_prefix, check, options, recover, Mirror, Told, Value};

const POLICIES: [SyncPolicy; 3] = [SyncPolicy::Always, SyncPolicy::EverySecond, SyncPolicy::Never];
/// Starts of one program.
const STARTS: usize = 4;

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

struct Program {
    rng: fastrand::Rng,
    shelf: SimShelf,
    mirror: Mirror,
    told: Arc<Told>,
    /// What superblocks name, the newest last; nobody needs what is below the first.
    places: Vec<Place>,
    /// The end of a clean stop.
    clean_end: Option<Offset>,
    acknowledged: Offset,
}

impl Program {
    fn options(&mut self) -> JournalOptions {
        let method = [SyncMethod::Fdatasync, SyncMethod::Dsync, SyncMethod::Auto][self.rng.usize(..3)];
        JournalOptions { method, ..options(POLICIES[self.rng.usize(..3)]) }
    }

    /// The journal's threads do as much as they like before the next operation.
    fn append(&mut self, journal: &Journal) {
        let rng = &mut self.rng;
        let len = match rng.u8(..20) {
            0 => rng.usize(..70_000),
            1..=3 => rng.usize(..9_000),
            _ => rng.usize(..300),
        };
        let bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
        let databases = rng.bool().then(|| (rng.u32(..3), rng.u32(..3)));
        let value = (rng.u8(..30) == 0).then(|| Value {
            len_bytes: rng.u64(..100_000),
            salt: rng.u8(..),
            is_broken: rng.u8(..20) == 0,
        });
        self.mirror.append(journal, databases, &bytes, value);
    }

    fn make_durable(&mut self, journal: &Journal) {
        let to = self.mirror.ends[self.rng.usize(..self.mirror.ends.len())];
        if journal.make_durable(to).is_ok() {
            assert!(journal.durable() >= to);
            self.acknowledged = self.acknowledged.max(to);
        }
    }

    fn checkpoint(&mut self, journal: &Journal) {
        let place = self.mirror.cut(journal);
        if journal.make_durable(place.offset).is_err() {
            return;
        }
        self.acknowledged = self.acknowledged.max(place.offset);
        self.places.push(place);
        if self.places.len() > 2 {
            self.places.remove(0);
        }
        if self.rng.bool() {
            journal.release_below(self.places[0]);
        }
    }

    fn work(&mut self, journal: &Journal) {
        for _ in 0..self.rng.usize(..40) {
            match self.rng.u8(..20) {
                0..=12 => self.append(journal),
                13..=15 => self.make_durable(journal),
                16 => self.checkpoint(journal),
                17 => journal.set_sync(POLICIES[self.rng.usize(..3)]),
                18 => std::thread::sleep(Duration::from_micros(self.rng.u64(..300))),
                _ => assert_eq!(journal.report().end, self.mirror.end()),
            }
        }
    }

    fn schedule_fault(&mut self) {
        let fault = match self.rng.u8(..10) {
            0..=4 => Fault::Crash,
            5 | 6 => Fault::Error,
            _ => return,
        };
        let call = self.shelf.call_count() + self.rng.u64(..80);
        self.shelf.schedule(call, fault);
    }

    /// Ends the journal and the process in one way or another.
    fn end(&mut self, journal: Journal) {
        self.clean_end = None;
        match self.rng.u8(..4) {
            0 => {
                if let Ok(end) = journal.close() {
                    assert_eq!(end, self.mirror.end());
                    self.acknowledged = end;
                    self.clean_end = Some(end);
                }
                self.shelf = self.shelf.crash();
            }
            1 => {
                self.shelf = self.shelf.kill();
                drop(journal);
                // After an error the simulated device shows what is not on the disk.
                if self.rng.bool() || !self.told.failures.lock().is_empty() {
                    self.shelf = self.shelf.crash();
                }
            }
            _ => {
                self.shelf = self.shelf.crash();
                drop(journal);
            }
        }
        let told = Offset(self.told.durable.load(Ordering::SeqCst));
        self.acknowledged = self.acknowledged.max(told);
        assert!(!self.told.fell_back.load(Ordering::SeqCst), "the durable offset only rises");
    }

    /// Starts again, and holds what is found against what was appended.
    fn start(&mut self) -> Journal {
        let least = self.acknowledged;
        let from = *self.places.last().unwrap();
        let (replayed, found) = check(&self.shelf, from, self.clean_end).expect("nothing is damaged");
        assert_prefix(&self.mirror, from, &replayed, &found, least);
        let oldest = self.places[0];
        let (replayed, longer) = check(&self.shelf, oldest, self.clean_end).expect("from the one before too");
        assert_prefix(&self.mirror, oldest, &replayed, &longer, least);
        assert_eq!(longer.end, found.end, "an older checkpoint and a longer replay give the same");
        assert!(self.clean_end.is_none() || found.is_clean);
        if self.rng.bool() {
            self.crash_while_starting(from);
        }
        self.told = Arc::new(Told::default());
        let shelf = self.shelf.kill();
        self.shelf = shelf.kill();
        let (options, shelf) = (self.options(), self.shelf.same());
        let (journal, replayed, recovery) =
            recover(shelf, from, self.clean_end, options, &self.told).unwrap();
        assert_prefix(&self.mirror, from, &replayed, &recovery, least);
        assert!(journal.durable() == recovery.end && journal.end() == recovery.end);
        self.mirror.cut_off(recovery.end);
        // Whatever was recovered has been served, so it counts from now on.
        self.acknowledged = recovery.end;
        journal
    }

    /// A start that the machine does not survive.
    fn crash_while_starting(&mut self, from: Place) {
        let shelf = self.shelf.kill();
        let call = shelf.call_count() + self.rng.u64(..60);
        shelf.schedule(call, Fault::Crash);
        let options = self.options();
        if let Ok((journal, _, recovery)) =
            recover(shelf.same(), from, self.clean_end, options, &Arc::new(Told::default()))
        {
            self.acknowledged = self.acknowledged.max(recovery.end);
            drop(journal);
        }
        self.shelf = shelf.crash();
    }
}

fn run(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let shelf = SimShelf::new(rng.u64(..));
    let told = Arc::new(Told::default());
    let at = Offset(rng.u64(..1 << 40));
    let mirror = Mirror::new(at);
    let mut program =
        Program { rng, shelf, mirror, told, places: Vec::new(), clean_end: None, acknowledged: at };
    let options = program.options();
    let shelf = Arc::new(program.shelf.same());
    let mut journal = Journal::begin(shelf, at, options, program.told.clone()).unwrap();
    program.places.push(program.mirror.cut(&journal));
    for _ in 0..STARTS {
        program.schedule_fault();
        program.work(&journal);
        program.end(journal);
        journal = program.start();
    }
}

#[test]
fn what_is_recovered_is_a_prefix_by_units_with_all_that_was_acknowledged() {
    let count = from_env("STILLFRAME_SEQUENCES").unwrap_or(1_000);
    let first = from_env("STILLFRAME_SEED").unwrap_or(1);
    println!("STILLFRAME_SEQUENCES={count} STILLFRAME_SEED={first}");
    let began = Instant::now();
    for seed in first..first + count {
        let ran = std::panic::catch_unwind(|| run(seed));
        assert!(ran.is_ok(), "STILLFRAME_SEED={seed}");
    }
    println!("{:?}", began.elapsed());
}
