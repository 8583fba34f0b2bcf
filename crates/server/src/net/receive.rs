//! Large arguments whose bytes go from the socket to their pages, past the input buffer, one after the other.
//!
//! ```text
//!            begin                      all bytes there              its command is executed
//!   (none) ─────────▶ RECEIVING ─────────────────────▶ RECEIVED ─────────────────────────────▶ (none)
//!                        │ no room, or more than the limits allow
//!                        └─────────▶ (none): what has come is in the input buffer again
//! ```
//! The buffer keeps the first bytes of the argument, for who shows it; [`Received`] tells the parser so.

use stillframe_engine::protocol::args::{ArgRange, Args};
use stillframe_engine::protocol::request::Received;
use stillframe_store::{Incoming, OpError};

use crate::net::conn::{Input, ReadEvent};
use crate::net::wire::{Wire, WireError};

/// Shorter arguments are not worth the calls.
const RECEIVE_MIN_BYTES: u32 = 256 << 10;
/// Bytes of an argument that stay in the buffer; the slow log shows no more.
const KEPT_BYTES: usize = 128;
/// Bytes taken from the socket at once.
const READ_BYTES: usize = 256 << 10;

impl Input {
    /// The arguments that have arrived of a command that waits for a large one, and the length of that in bytes. None
    /// while commands before it have not been executed.
    pub fn large_argument(&self) -> Option<(Vec<ArgRange>, u64)> {
        let awaited = self.parser.awaited()?;
        let is_begun = self.parser.received().last().is_some_and(|it| it.at == self.parsed + awaited.at);
        if self.done != self.parsed || is_begun || awaited.len_bytes < RECEIVE_MIN_BYTES {
            return None;
        }
        let absolute = |r: &ArgRange| ArgRange { start: r.start + self.parsed as u32, len: r.len };
        Some((awaited.before.iter().map(absolute).collect(), u64::from(awaited.len_bytes)))
    }

    /// (none) → RECEIVING: the bytes that have come of the large argument move to their place.
    pub fn begin_receiving(&mut self, mut incoming: Incoming) {
        let Some(awaited) = self.parser.awaited() else { return };
        let (at, index) = (self.parsed + awaited.at, awaited.before.len());
        while !incoming.is_complete() && (incoming.filled_bytes() as usize) < self.buf.len() - at {
            let from = at + incoming.filled_bytes() as usize;
            let end = self.buf.len().min(from + READ_BYTES);
            if incoming.append(&self.buf[from..end]).is_err() {
                // Nothing has left the buffer yet.
                return;
            }
        }
        let taken = incoming.filled_bytes() as usize;
        let kept_bytes = taken.min(KEPT_BYTES);
        self.buf.drain(at + kept_bytes..at + taken);
        self.incoming.push((index, incoming));
        self.parser.received_mut().push(Received { at, kept_bytes });
    }

    /// Whether the next bytes of the socket belong to a large argument.
    pub fn is_receiving(&self) -> bool {
        self.incoming.last().is_some_and(|(_, incoming)| !incoming.is_complete())
    }

    /// Bytes that are in their place and not in the buffer.
    pub fn received_bytes(&self) -> usize {
        self.incoming.iter().map(|(_, incoming)| incoming.filled_bytes() as usize).sum()
    }

    /// Takes bytes of the large argument from the socket.
    pub(super) fn receive(&mut self, wire: &mut Wire) -> ReadEvent {
        let Some((_, incoming)) = self.incoming.last_mut() else { return ReadEvent::NothingYet };
        if let Some(fault) = incoming.awaited_room() {
            return ReadEvent::Missing(fault);
        }
        let (mut result, mut room_bytes) = (Err(WireError::Closed), 0);
        let filled = incoming.fill(READ_BYTES, |room| {
            room_bytes = room.iter().map(|part| part.len()).sum();
            result = wire.recv_parts(room);
            result.unwrap_or(0)
        });
        match filled {
            Ok(()) => ReadEvent::of(result, room_bytes),
            Err(OpError::Fault(fault)) => ReadEvent::Missing(fault),
            Err(_) => self.give_up_receiving(),
        }
    }

    /// RECEIVING → (none). The command will tell the client why there is no room.
    fn give_up_receiving(&mut self) -> ReadEvent {
        let popped = (self.incoming.pop(), self.parser.received_mut().pop());
        let (Some((_, incoming)), Some(received)) = popped else { return ReadEvent::Closed };
        self.buf.truncate(received.at);
        match incoming.read(|bytes| self.buf.extend_from_slice(bytes)) {
            // Another look at the socket follows.
            Ok(()) => ReadEvent::Bytes { count: 0, is_all: false },
            Err(_) => ReadEvent::Closed,
        }
    }

    /// RECEIVED → (none); from RECEIVING if nobody wants the command any more.
    pub(super) fn end_receiving(&mut self) {
        self.incoming.clear();
        self.parser.received_mut().clear();
    }

    /// The values that belong to the command that has just been queued, with their indices among its arguments.
    pub fn take_incoming(&mut self) -> Vec<(usize, Incoming)> {
        std::mem::take(&mut self.incoming)
    }

    /// The commands up to `end` have been executed.
    pub fn executed(&mut self, end: usize) {
        self.done = end;
        if self.parser.received().first().is_some_and(|received| received.at < end) {
            self.end_receiving();
        }
    }

    /// A parsed command's arguments, with the large ones if it has some.
    pub fn args<'a>(&'a self, ranges: &'a [ArgRange]) -> Args<'a> {
        let args = Args::new(&self.buf, ranges);
        match self.parser.received().first() {
            Some(first) if ranges.iter().any(|range| range.start as usize == first.at) => {
                args.with_incoming(&self.incoming)
            }
            _ => args,
        }
    }
}
