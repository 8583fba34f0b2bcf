//! What the tests have in common: options, a watcher that remembers, a mirror of the stream, values by reference.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use stillframe_journal::{
    Body, BodyError, Journal, JournalError, JournalOptions, Offset, Piece, Place, RecoverError, Recovery,
    SyncMethod, SyncPolicy, Watcher,
};
use stillframe_pagepool::device::{Shelf, SimShelf};

pub const SEGMENT_BYTES: u64 = JournalOptions::LEAST_SEGMENT_BYTES;

pub fn select(database: u32, command: &mut Vec<u8>) {
    command.extend_from_slice(format!("<SELECT {database}>").as_bytes());
}

pub fn options(sync: SyncPolicy) -> JournalOptions {
    JournalOptions {
        segment_bytes: SEGMENT_BYTES,
        memory_bytes: 256 << 10,
        sync,
        size_limit_bytes: None,
        method: SyncMethod::Fdatasync,
        select,
    }
}

/// Remembers what the journal tells.
#[derive(Default)]
pub struct Told {
    pub durable: AtomicU64,
    pub fell_back: AtomicBool,
    pub failures: Mutex<Vec<JournalError>>,
    pub rooms: Mutex<Vec<bool>>,
    pub spaces: Mutex<Vec<bool>>,
}

impl Watcher for Told {
    fn durable(&self, to: Offset) {
        if self.durable.fetch_max(to.0, Ordering::SeqCst) >= to.0 {
            self.fell_back.store(true, Ordering::SeqCst);
        }
    }

    fn room(&self, is_there: bool) {
        self.rooms.lock().push(is_there);
    }

    fn failed(&self, error: &JournalError) {
        self.failures.lock().push(error.clone());
    }

    fn no_space(&self, is_so: bool) {
        self.spaces.lock().push(is_so);
    }
}

/// A value of bytes that depend on their place.
pub struct Value {
    pub len_bytes: u64,
    pub salt: u8,
    pub is_broken: bool,
}

impl Value {
    pub fn byte(&self, at: u64) -> u8 {
        (at.wrapping_mul(31) >> 3) as u8 ^ self.salt
    }
}

impl Body for Value {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), BodyError> {
        if self.is_broken && offset > 0 {
            return Err(BodyError("the value's page 7 is damaged".to_owned()));
        }
        for (at, byte) in out.iter_mut().enumerate() {
            *byte = self.byte(offset + at as u64);
        }
        Ok(())
    }
}

/// What the stream should be.
#[derive(Clone, Debug)]
pub struct Mirror {
    pub begin: Offset,
    pub bytes: Vec<u8>,
    /// Ends of all units, and the begin.
    pub ends: Vec<Offset>,
    database: Option<u32>,
}

impl Mirror {
    pub fn new(begin: Offset) -> Mirror {
        Mirror { begin, bytes: Vec::new(), ends: vec![begin], database: None }
    }

    pub fn end(&self) -> Offset {
        *self.ends.last().unwrap()
    }

    /// Appends to both.
    pub fn append(
        &mut self,
        journal: &Journal,
        databases: Option<(u32, u32)>,
        bytes: &[u8],
        value: Option<Value>,
    ) {
        if let Some((first, last)) = databases {
            if self.database != Some(first) {
                select(first, &mut self.bytes);
            }
            self.database = Some(last);
        }
        let (front, back) = bytes.split_at(bytes.len() / 2);
        self.bytes.extend_from_slice(front);
        let mut len_bytes = bytes.len() as u64;
        let body = value.map(|value| {
            len_bytes += value.len_bytes;
            self.bytes.extend((0..value.len_bytes).map(|at| value.byte(at)));
            Arc::new(value) as Arc<dyn Body>
        });
        self.bytes.extend_from_slice(back);
        let body = body.as_ref().map(Piece::Body);
        let mut pieces = [Piece::Bytes(front)].into_iter().chain(body).chain([Piece::Bytes(back)]);
        let end = journal.append(databases, &mut pieces, len_bytes);
        assert_eq!(end, Offset(self.begin.0 + self.bytes.len() as u64), "each byte of a unit is counted");
        assert_eq!(journal.end(), end);
        if end != self.end() {
            self.ends.push(end);
        }
    }

    pub fn cut(&mut self, journal: &Journal) -> Place {
        self.database = None;
        let place = journal.cut();
        assert_eq!(place.offset, self.end());
        place
    }

    /// The stream ends at `end` after a start.
    pub fn cut_off(&mut self, end: Offset) {
        self.ends.retain(|other| *other <= end);
        assert_eq!(self.ends.last(), Some(&end), "a log ends where a unit ends");
        self.bytes.truncate(end.since(self.begin) as usize);
        self.database = None;
    }

    pub fn from(&self, offset: Offset) -> &[u8] {
        &self.bytes[offset.since(self.begin) as usize..]
    }
}

/// What a replay has handed over.
#[derive(Default, Debug)]
pub struct Replayed {
    pub bytes: Vec<u8>,
    pub run_ends: Vec<Offset>,
}

impl Replayed {
    pub fn take(&mut self, from: Place, at: Offset, run: &[u8]) -> Result<usize, Infallible> {
        assert_eq!(at, from.offset.plus(self.bytes.len() as u64), "runs come one behind the other");
        assert!(!run.is_empty());
        self.bytes.extend_from_slice(run);
        self.run_ends.push(at.plus(run.len() as u64));
        Ok(1)
    }
}

pub type Recovered = Result<(Replayed, Recovery), JournalError>;

pub fn check(shelf: &dyn Shelf, from: Place, clean_end: Option<Offset>) -> Recovered {
    let mut replayed = Replayed::default();
    let read = Journal::check(shelf, from, clean_end, &mut |at, run| replayed.take(from, at, run));
    read.map(|recovery| (replayed, recovery)).map_err(only_journal)
}

pub fn recover(
    shelf: SimShelf,
    from: Place,
    clean_end: Option<Offset>,
    options: JournalOptions,
    told: &Arc<Told>,
) -> Result<(Journal, Replayed, Recovery), JournalError> {
    let mut replayed = Replayed::default();
    let found = Journal::recover(Arc::new(shelf), from, clean_end, options, told.clone(), &mut |at, run| {
        replayed.take(from, at, run)
    });
    found.map(|(journal, recovery)| (journal, replayed, recovery)).map_err(only_journal)
}

fn only_journal(error: RecoverError<Infallible>) -> JournalError {
    match error {
        RecoverError::Journal(error) => error,
        RecoverError::Replay { source, .. } => match source {},
    }
}

/// Asserts that what was recovered is a prefix by units that has all that must be there.
pub fn assert_prefix(mirror: &Mirror, from: Place, replayed: &Replayed, recovery: &Recovery, least: Offset) {
    assert!(recovery.end >= least, "acknowledged up to {least}, recovered up to {}", recovery.end);
    assert_eq!(recovery.begin, from.offset);
    assert_eq!(recovery.end, from.offset.plus(replayed.bytes.len() as u64));
    assert!(mirror.from(from.offset).starts_with(&replayed.bytes), "what is recovered was appended");
    let is_end = |end: &Offset| mirror.ends.binary_search(end).is_ok();
    assert!(replayed.run_ends.iter().all(is_end), "runs are of whole units");
    assert_eq!(recovery.unit_count, replayed.run_ends.len() as u64);
    assert_eq!(recovery.replayed_bytes, replayed.bytes.len() as u64);
}
