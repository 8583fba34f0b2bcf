//! The stream's bytes as units, in two halves: where units end is known from the blocks' headers alone, so that the thread that reads
//! ahead need not wait for those before it to be replayed.

use crate::block::{Header, Kind};
use crate::error::RecoverError;
use crate::names::Offset;
use crate::report::Recovery;

/// The listener of a replay: gets the offset of the first byte and whole units, and says how many they were.
pub type Replay<'r, E> = dyn FnMut(Offset, &[u8]) -> Result<usize, E> + 'r;

/// A block's payload as far as it is replayed.
pub struct Payload {
    /// Where the bytes that are not handed over yet begin: those of blocks before, then these.
    pub at: Offset,
    pub bytes: Vec<u8>,
    /// How many of `bytes` end units.
    pub whole_bytes: usize,
    /// A later start has cut off what was there of a unit.
    pub drops_begun: bool,
}

/// Where units end, by the headers.
pub struct Ends {
    /// Behind the last whole unit.
    unit_end: Offset,
    /// Bytes that are there of the unit that begins at `unit_end`.
    begun_bytes: u64,
    block_count: u64,
    is_clean: bool,
}

impl Ends {
    pub fn new(at: Offset) -> Ends {
        Ends { unit_end: at, begun_bytes: 0, block_count: 0, is_clean: false }
    }

    pub fn unit_end(&self) -> Offset {
        self.unit_end
    }

    pub fn take(&mut self, header: &Header, payload: &[u8]) -> Payload {
        self.block_count += 1;
        self.is_clean = header.kind == Kind::End;
        let (at, drops_begun) = (self.unit_end, header.offset == self.unit_end);
        if drops_begun {
            self.begun_bytes = 0;
        }
        // Only the first block has bytes from before the cut.
        let skipped = if self.begun_bytes == 0 { at.since(header.offset) } else { 0 };
        let skipped = (skipped as usize).min(payload.len());
        let ended = (header.last_end as usize).max(skipped);
        let whole_bytes = ended - skipped;
        if whole_bytes > 0 {
            self.unit_end = at.plus(self.begun_bytes + whole_bytes as u64);
            self.begun_bytes = 0;
        }
        self.begun_bytes += (payload.len() - ended) as u64;
        Payload { at, bytes: payload[skipped..].to_vec(), whole_bytes, drops_begun }
    }

    /// What was found, but for the number of units.
    pub fn into_recovery(self, begin: Offset) -> Recovery {
        Recovery {
            begin,
            end: self.unit_end,
            replayed_bytes: self.unit_end.since(begin),
            unit_count: 0,
            block_count: self.block_count,
            torn_bytes: self.begun_bytes,
            is_clean: self.is_clean,
        }
    }
}

/// Units that are handed over.
#[derive(Default)]
pub struct Units {
    /// What is there of the unit that has begun.
    begun: Vec<u8>,
    unit_count: u64,
}

impl Units {
    /// # Errors
    /// Those of `replay`.
    pub fn take<E>(&mut self, payload: &Payload, replay: &mut Replay<'_, E>) -> Result<(), RecoverError<E>> {
        if payload.drops_begun {
            self.begun.clear();
        }
        let (whole, rest) = payload.bytes.split_at(payload.whole_bytes);
        if !whole.is_empty() {
            let fail = |source| RecoverError::Replay { at: payload.at, source };
            let count = if self.begun.is_empty() {
                replay(payload.at, whole).map_err(fail)?
            } else {
                self.begun.extend_from_slice(whole);
                replay(payload.at, &self.begun).map_err(fail)?
            };
            self.unit_count += count as u64;
            self.begun.clear();
        }
        self.begun.extend_from_slice(rest);
        Ok(())
    }

    pub fn unit_count(&self) -> u64 {
        self.unit_count
    }
}
