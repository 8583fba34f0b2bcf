//! Units: what one step adds to the stream, all of it or nothing.
//!
//! ```text
//!   unit = [ SELECT db ]  ( command  |  MULTI  command ...  EXEC )
//! ```
//! The SELECT in front depends on what is before the unit in the stream, so the stream's owner puts it there ([`Selected`]).

use std::sync::Arc;

use stillframe_journal::{Body, BodyError, Piece};

use super::command::{self, Malformed};
use crate::blobs::Sending;
use crate::error::OpError;
use crate::step::WorkerId;
use crate::DbId;

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";
/// Room for what stands around a word: its head, and the ends of lines.
const WORD_FRAME_BYTES: usize = 16;
/// So much of a body is copied at a time.
const PART_BYTES: u64 = 1 << 20;
/// A buffer that was larger is not kept for the next unit.
const KEPT_BYTES: usize = 1 << 20;

impl Body for Sending {
    fn len_bytes(&self) -> u64 {
        Sending::len_bytes(self)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), BodyError> {
        let mut filled = 0;
        let copied = self.with_copies(offset, out.len(), |part| {
            let end = (filled + part.len()).min(out.len());
            out[filled..end].copy_from_slice(&part[..end - filled]);
            filled = end;
        });
        copied.map_err(|error| BodyError(error.to_string()))?;
        match filled == out.len() {
            true => Ok(()),
            false => Err(BodyError("a large value ends before its length".to_owned())),
        }
    }
}

/// What units are given to: a log, the feeder of replicas.
pub trait Consumer: Send + Sync {
    /// Takes a unit behind all that it has taken. The locks of the unit's keys are held, so that units that touch the same key
    /// come in the order of their changes: this must neither wait nor use the store.
    fn append(&self, unit: &Unit);

    /// A change has been made of which no unit could be made: the stream does not lead to the store's data from here on.
    fn fail(&self, error: &OpError);
}

/// The bytes of a unit, large ones by reference.
#[derive(Default)]
pub struct Unit {
    /// With MULTI in front, whether it is needed or not.
    bytes: Vec<u8>,
    /// Where in `bytes` the unit begins.
    start: usize,
    /// Bodies, and before which of `bytes` they come, in order.
    bodies: Vec<(usize, Arc<dyn Body>)>,
    first_db: Option<DbId>,
    last_db: Option<DbId>,
    command_count: u64,
    /// Whose step it is.
    worker: WorkerId,
}

impl Unit {
    /// Makes it empty; what it had room for it keeps.
    pub(super) fn clear(&mut self, worker: WorkerId) {
        self.worker = worker;
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.bytes.extend_from_slice(MULTI);
        self.bodies.clear();
        (self.start, self.first_db, self.last_db, self.command_count) = (0, None, None, 0);
    }

    /// A command follows, in this database if it depends on one.
    pub(super) fn begin_command(&mut self, db: Option<DbId>, word_count: u64) {
        if let Some(db) = db {
            if self.last_db.is_some_and(|last| last != db) {
                put_select(&mut self.bytes, db);
            }
            self.first_db.get_or_insert(db);
            self.last_db = Some(db);
        }
        self.command_count += 1;
        put_head(&mut self.bytes, b'*', word_count);
    }

    /// Puts words behind those that are there, with the bodies that lie among them.
    pub(super) fn put(&mut self, words: &[u8], bodies: impl IntoIterator<Item = (usize, Arc<dyn Body>)>) {
        let base = self.bytes.len();
        self.bodies.extend(bodies.into_iter().map(|(at, body)| (base + at, body)));
        self.bytes.extend_from_slice(words);
    }

    pub(super) fn word(&mut self, word: &[u8]) {
        put_word(&mut self.bytes, word);
    }

    /// All of its commands are there. False if there is none.
    pub(super) fn finish(&mut self) -> bool {
        match self.command_count {
            0 | 1 => self.start = MULTI.len(),
            _ => self.bytes.extend_from_slice(EXEC),
        }
        self.command_count > 0
    }

    /// The database in which it begins: the one to be selected before it. `None` if its commands depend on none.
    pub fn first_db(&self) -> Option<DbId> {
        self.first_db
    }

    /// The database that is selected behind it, if it depends on any.
    pub fn last_db(&self) -> Option<DbId> {
        self.last_db
    }

    /// The worker whose step it is. That worker's thread holds the locks of the step's keys.
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// Commands, without those that only delimit or select.
    pub fn command_count(&self) -> u64 {
        self.command_count
    }

    /// All its bytes, without a SELECT in front.
    pub fn len_bytes(&self) -> u64 {
        let bodies: u64 = self.bodies.iter().map(|(_, body)| body.len_bytes()).sum();
        (self.bytes.len() - self.start) as u64 + bodies
    }

    /// Bytes that it holds in memory.
    pub fn held_bytes(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// All its bytes, if they are in memory together.
    pub fn whole(&self) -> Option<&[u8]> {
        self.bodies.is_empty().then(|| &self.bytes[self.start..])
    }

    /// All its bytes in order.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let ends = self.bodies.iter().map(|(at, body)| (*at, Some(body))).chain([(self.bytes.len(), None)]);
        let mut from = self.start;
        ends.flat_map(move |(end, body)| {
            let bytes = &self.bytes[std::mem::replace(&mut from, end)..end];
            [Some(Piece::Bytes(bytes)), body.map(Piece::Body)].into_iter().flatten()
        })
    }

    /// Copies all of it, bodies included, to `out`.
    ///
    /// # Errors
    /// A body cannot be read.
    pub fn append_to(&self, out: &mut Vec<u8>) -> Result<(), OpError> {
        for piece in self.pieces() {
            match piece {
                Piece::Bytes(bytes) => out.extend_from_slice(bytes),
                Piece::Body(body) => append_body(&**body, out)?,
            }
        }
        Ok(())
    }
}

fn append_body(body: &dyn Body, out: &mut Vec<u8>) -> Result<(), OpError> {
    let mut at = 0;
    while at < body.len_bytes() {
        let (base, part) = (out.len(), PART_BYTES.min(body.len_bytes() - at));
        out.resize(base + part as usize, 0);
        body.read_at(at, &mut out[base..]).map_err(|error| OpError::Damaged(error.0.into()))?;
        at += part;
    }
    Ok(())
}

/// Which database a stream's last command has selected.
#[derive(Clone, Copy, Default, Debug)]
pub struct Selected(Option<DbId>);

impl Selected {
    /// Writes what has to come before a unit that is appended now: a SELECT, or nothing.
    pub fn put_before(&mut self, unit: &Unit, out: &mut Vec<u8>) {
        let Some(first) = unit.first_db else { return };
        if self.0 != Some(first) {
            put_select(out, first);
        }
        self.0 = unit.last_db;
    }

    /// From here on the stream may be replayed without what is before: the next unit has a SELECT.
    pub fn cut(&mut self) {
        self.0 = None;
    }
}

/// Where the first unit of `bytes` ends; `None` if not all of it is there.
///
/// # Errors
/// [`Malformed`].
pub fn unit_len(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let (mut at, mut is_inside) = (0, false);
    loop {
        let Some(read) = command::next(bytes, at)? else { return Ok(None) };
        at = read.place.end;
        match &command::upper(read.words[0])[..] {
            b"SELECT" => {}
            b"MULTI" => is_inside = true,
            b"EXEC" => return Ok(Some(at)),
            _ if is_inside => {}
            _ => return Ok(Some(at)),
        }
    }
}

/// Most heads have one digit or two: they are written in one piece.
fn put_head(out: &mut Vec<u8>, tag: u8, count: u64) {
    match count {
        0..10 => out.extend_from_slice(&[tag, b'0' + count as u8, b'\r', b'\n']),
        10..100 => {
            let (tens, ones) = (b'0' + (count / 10) as u8, b'0' + (count % 10) as u8);
            out.extend_from_slice(&[tag, tens, ones, b'\r', b'\n']);
        }
        _ => {
            out.push(tag);
            put_digits(out, count);
            out.extend_from_slice(b"\r\n");
        }
    }
}

pub(super) fn put_digits(out: &mut Vec<u8>, number: u64) {
    let start = out.len();
    let mut rest = number;
    loop {
        out.push(b'0' + (rest % 10) as u8);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out[start..].reverse();
}

/// The head of a word of so many bytes, which are to follow, and an end of line.
pub(super) fn put_word_head(out: &mut Vec<u8>, len_bytes: u64) {
    put_head(out, b'$', len_bytes);
}

pub(super) fn put_word(out: &mut Vec<u8>, word: &[u8]) {
    out.reserve(word.len() + WORD_FRAME_BYTES);
    put_word_head(out, word.len() as u64);
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

/// The command that selects the database of that number.
pub(crate) fn put_select_of(db: u32, out: &mut Vec<u8>) {
    put_select(out, DbId(db));
}

fn put_select(out: &mut Vec<u8>, db: DbId) {
    put_head(out, b'*', 2);
    put_word(out, b"SELECT");
    put_word(out, db.0.to_string().as_bytes());
}
