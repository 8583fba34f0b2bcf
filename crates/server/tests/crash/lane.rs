//! Load: each lane is a connection with a database of its own and knows everything it has asked for.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::instant::{Clock, Nanos, Span, NEVER};
use crate::model::{differences, Generator, Keyspace, Op};
use crate::process::{Client, Process};

pub struct Sent {
    op: Op,
    sent_ns: Nanos,
    acked_ns: Nanos,
}

pub struct Lane {
    pub db: u32,
    generator: Generator,
    rng: fastrand::Rng,
    /// The database when the history began.
    base: Keyspace,
    /// The database after all of the history.
    now: Keyspace,
    history: Vec<Sent>,
}

impl Lane {
    pub fn new(seed: u64, db: u32) -> Lane {
        Lane {
            db,
            generator: Generator::new(seed, u64::from(db)),
            rng: fastrand::Rng::with_seed(seed.wrapping_add(u64::from(db))),
            base: Keyspace::new(),
            now: Keyspace::new(),
            history: Vec::new(),
        }
    }

    pub fn op_count(&self) -> usize {
        self.history.len()
    }

    /// Sends operations until told to stop or until the connection breaks.
    pub fn run(&mut self, server: &Process, clock: Clock, stop: &AtomicBool) -> io::Result<()> {
        let mut conn = server.connect()?;
        conn.try_run(&format!("SELECT {}", self.db))?;
        while !stop.load(Ordering::Relaxed) {
            let batch_len = if self.rng.bool() { 1 } else { 1 + self.rng.usize(..16) };
            self.run_batch(&mut conn, clock, batch_len)?;
        }
        Ok(())
    }

    fn run_batch(&mut self, conn: &mut Client, clock: Clock, batch_len: usize) -> io::Result<()> {
        let first = self.history.len();
        let mut expected = Vec::new();
        for _ in 0..batch_len {
            let op = self.generator.next(&self.now);
            op.commands(self.db).iter().for_each(|args| conn.queue(args));
            expected.push(op.apply(&mut self.now));
            self.history.push(Sent { op, sent_ns: 0, acked_ns: NEVER });
        }
        let sent_ns = clock.now_ns();
        self.history[first..].iter_mut().for_each(|sent| sent.sent_ns = sent_ns);
        conn.flush()?;
        for (sent, replies) in self.history[first..].iter_mut().zip(expected) {
            for expected in replies {
                let reply = conn.try_read()?;
                let fits = expected.as_ref().map_or(!reply.is_error(), |expected| reply == *expected);
                assert!(fits, "{:?} in db {}: {reply:?} instead of {expected:?}", sent.op, self.db);
            }
            sent.acked_ns = clock.now_ns();
        }
        Ok(())
    }

    /// After how many operations of the history the database was as `found`.
    pub fn spans_of(&self, found: &Keyspace) -> Vec<Span> {
        let mut space = self.base.clone();
        let mut differing = differences(&space, found);
        let mut spans = Vec::new();
        for op_count in 0..=self.history.len() {
            if op_count > 0 {
                let op = &self.history[op_count - 1].op;
                op.apply(&mut space);
                match op.touched() {
                    None => differing = differences(&space, found),
                    Some(keys) => keys.into_iter().for_each(|key| match space.get(&key) == found.get(&key) {
                        true => drop(differing.remove(&key)),
                        false => drop(differing.insert(key)),
                    }),
                }
            }
            if differing.is_empty() {
                let from_ns = op_count.checked_sub(1).map_or(0, |last| self.history[last].sent_ns);
                let to_ns = self.history.get(op_count).map_or(NEVER, |next| next.acked_ns);
                spans.push(Span { op_count, from_ns, to_ns });
            }
        }
        spans
    }

    /// What is wrong with `found`, which the database never was: where it comes closest.
    pub fn explain(&self, found: &Keyspace) -> String {
        let mut space = self.base.clone();
        let mut best = (differences(&space, found), 0);
        for (index, sent) in self.history.iter().enumerate() {
            sent.op.apply(&mut space);
            // Few enough operations: this runs once, after a failure.
            let differing = differences(&space, found);
            if differing.len() <= best.0.len() {
                best = (differing, index + 1);
            }
        }
        let mut space = self.base.clone();
        self.history[..best.1].iter().for_each(|sent| drop(sent.op.apply(&mut space)));
        let mut text = format!(
            "db {}: not as after any of {} operations; closest after {}, where {} keys differ:\n",
            self.db,
            self.history.len(),
            best.1,
            best.0.len()
        );
        for key in best.0.iter().take(10) {
            let show = |space: &Keyspace| {
                space.get(key).map(|entry| {
                    let start = entry.value[..entry.value.len().min(12)].escape_ascii().to_string();
                    format!("{} bytes {start}, deadline {:?}", entry.value.len(), entry.deadline_ms)
                })
            };
            let expected = show(&space);
            text += &format!("  {key}: {:?} found, {expected:?} expected; ", show(found));
            let touching =
                |(_, sent): &(usize, &Sent)| sent.op.touched().is_none_or(|keys| keys.contains(key));
            let around: Vec<_> =
                self.history.iter().enumerate().filter(touching).map(|(i, _)| i + 1).collect();
            text += &format!("touched by operations {around:?}\n");
        }
        text
    }

    /// The database is now as `found`; history starts here.
    pub fn rewind(&mut self, found: Keyspace) {
        self.now = found.clone();
        self.base = found;
        self.history.clear();
    }
}
