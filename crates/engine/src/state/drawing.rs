//! Random elements, as many as a client asks for: more of them than are written at once come part by part, as the client
//! takes them.
//!
//! ```text
//!   command ── the first part ──▶ Drawing ──┐ the client has taken most of it: the next part
//!                                  ▲ └──────┘
//!                                  └──────────── the last part ──▶ (none): the client's next command
//! ```
//! Each part is drawn from the elements that there are then. If the key has none any more, those are given again that have been
//! drawn first: a reply has as many elements as it has announced.

use std::ops::ControlFlow;

use stillframe_store::{DbId, Draw, Given, OpError, Worker};

use crate::protocol::reply::Reply;

/// A part has so many bytes, but for its last element, and so many elements at most.
const PART_BYTES: usize = 128 << 10;
const PART_ELEMENTS: u64 = 4096;
/// Elements that are kept, as long as they have no more than so many bytes together; one at least.
const KEPT_MAX: usize = 256;
const KEPT_BYTES: usize = 64 << 10;

/// What is drawn from, and what is written of each element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drawn {
    Members,
    Fields { with_values: bool },
    Scored { with_scores: bool },
}

impl Drawn {
    /// Writes the header of so many elements.
    pub fn begin(self, reply: &mut Reply<'_>, element_count: u64) {
        reply.array(element_count.saturating_mul(self.value_count(reply.resp3)) as usize);
    }

    /// Values of the reply that an element takes.
    fn value_count(self, resp3: bool) -> u64 {
        let is_pair =
            matches!(self, Drawn::Fields { with_values: true } | Drawn::Scored { with_scores: true });
        if is_pair && !resp3 {
            2
        } else {
            1
        }
    }
}

/// A reply that is being written.
#[derive(Debug)]
pub struct Drawing {
    db: DbId,
    key: Vec<u8>,
    drawn: Drawn,
    left_count: u64,
    /// Elements that have been drawn, as they have been written.
    kept: Vec<Vec<u8>>,
    kept_bytes: usize,
    /// Its next part is going to be written, or waits for pages.
    pub is_listed: bool,
}

impl Drawing {
    pub fn new(db: DbId, key: &[u8], drawn: Drawn, element_count: u64) -> Drawing {
        let (key, kept) = (key.to_vec(), Vec::new());
        Drawing { db, key, drawn, left_count: element_count, kept, kept_bytes: 0, is_listed: false }
    }

    pub fn is_done(&self) -> bool {
        self.left_count == 0
    }

    /// What it draws from.
    pub fn key(&self) -> (DbId, &[u8]) {
        (self.db, &self.key)
    }

    /// Memory that it holds.
    pub fn byte_count(&self) -> usize {
        self.key.len() + self.kept_bytes + size_of::<Drawing>()
    }

    /// Values of the reply that are still to come.
    pub fn left_values(&self, resp3: bool) -> u64 {
        self.left_count.saturating_mul(self.drawn.value_count(resp3))
    }

    /// Writes the next part.
    ///
    /// # Errors
    /// [`OpError`]; what has been written up to then counts.
    pub fn write_part(&mut self, worker: &mut Worker, reply: &mut Reply<'_>) -> Result<(), OpError> {
        let (before, start) = (self.left_count, reply.out.len());
        match self.draw(worker, reply, start) {
            Ok(()) | Err(OpError::WrongType) => {}
            Err(error) => return Err(error),
        }
        if self.left_count == before {
            self.repeat(reply, start);
        }
        Ok(())
    }

    fn draw(&mut self, worker: &mut Worker, reply: &mut Reply<'_>, start: usize) -> Result<(), OpError> {
        let (db, drawn) = (self.db, self.drawn);
        let count = self.left_count.min(PART_ELEMENTS);
        let name = std::mem::take(&mut self.key);
        let key = worker.key(&name);
        let mut note = |reply: &mut Reply<'_>, at: usize| self.note(reply, at, start);
        let done = match drawn {
            Drawn::Members => worker.set_at(db, &key).random(
                Draw::Repeated(count),
                |_| (),
                |member| {
                    let at = reply.out.len();
                    reply.bulk(member);
                    note(reply, at)
                },
            ),
            Drawn::Fields { with_values } => worker.hash_at(db, &key).random(
                Draw::Repeated(count),
                |_| (),
                |found| {
                    let at = reply.out.len();
                    if with_values && reply.resp3 {
                        reply.array(2);
                    }
                    reply.bulk(found.field);
                    if with_values {
                        reply.bulk(found.value);
                    }
                    note(reply, at)
                },
            ),
            Drawn::Scored { with_scores } => {
                let choose = |len: u64| (0..count).map(|_| fastrand::u64(..len)).collect();
                worker.sorted_set_at(db, &key).pick(choose, |member, score| {
                    let at = reply.out.len();
                    reply.member(Given::Here(member), score, with_scores);
                    note(reply, at)
                })
            }
        };
        self.key = name;
        done.map(drop)
    }

    /// An element has been written, from byte `at` on. Whether the part goes on.
    fn note(&mut self, reply: &Reply<'_>, at: usize, start: usize) -> ControlFlow<()> {
        self.left_count -= 1;
        let written = reply.out.bytes().get(at..).unwrap_or_default();
        if self.kept.is_empty()
            || (self.kept.len() < KEPT_MAX && self.kept_bytes + written.len() <= KEPT_BYTES)
        {
            self.kept_bytes += written.len();
            self.kept.push(written.to_vec());
        }
        match reply.out.len() - start >= PART_BYTES || reply.out.is_over() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn repeat(&mut self, reply: &mut Reply<'_>, start: usize) {
        for _ in 0..self.left_count.min(PART_ELEMENTS) {
            let Some(element) = fastrand::choice(&self.kept) else { return };
            reply.out.extend(element);
            self.left_count -= 1;
            if reply.out.len() - start >= PART_BYTES || reply.out.is_over() {
                return;
            }
        }
    }
}
