//! A large argument whose bytes go from the socket to their pages, past the input buffer.
//!
//! ```text
//!            begin                      all bytes there              its command is executed
//!   (none) ─────────▶ RECEIVING ─────────────────────▶ RECEIVED ─────────────────────────────▶ (none)
//!                        │ no room, or more than the limits allow
//!                        └─────────▶ (none): what has come is in the input buffer again
//! ```
//! The buffer keeps the first bytes of the argument, for who shows it; [`Received`] tells the parser so.

use std::os::fd::OwnedFd;

use rustix::io::{readv, Errno};
use stillframe_store::{Incoming, OpError};

use crate::net::conn::{Input, ReadEvent};
use crate::protocol::args::{ArgRange, Args};
use crate::protocol::request::Received;

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
        let is_next = self.done == self.parsed && self.incoming.is_none();
        if !is_next || awaited.len_bytes < RECEIVE_MIN_BYTES {
            return None;
        }
        let absolute = |r: &ArgRange| ArgRange { start: r.start + self.parsed as u32, len: r.len };
        Some((awaited.before.iter().map(absolute).collect(), u64::from(awaited.len_bytes)))
    }

    /// (none) → RECEIVING: the bytes that have come of the large argument move to their place.
    pub fn begin_receiving(&mut self, incoming: Incoming) {
        let Some(awaited) = self.parser.awaited() else { return };
        let at = self.parsed + awaited.at;
        self.incoming = Some(incoming);
        while self.is_receiving() && self.received_bytes() < self.buf.len() - at {
            let from = at + self.received_bytes();
            let Input { incoming: Some(incoming), buf, .. } = self else { return };
            let end = buf.len().min(from + READ_BYTES);
            if incoming.append(&buf[from..end]).is_err() {
                // Nothing has left the buffer yet.
                self.incoming = None;
                return;
            }
        }
        let taken = self.received_bytes();
        let kept_bytes = taken.min(KEPT_BYTES);
        self.buf.drain(at + kept_bytes..at + taken);
        self.parser.set_received(Some(Received { at, kept_bytes }));
    }

    /// Whether the next bytes of the socket belong to a large argument.
    pub fn is_receiving(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| !incoming.is_complete())
    }

    /// Bytes that are in their place and not in the buffer.
    pub fn received_bytes(&self) -> usize {
        self.incoming.as_ref().map_or(0, |incoming| incoming.filled_bytes() as usize)
    }

    /// Takes bytes of the large argument from the socket.
    pub(super) fn receive(&mut self, fd: &OwnedFd) -> ReadEvent {
        let Some(incoming) = &mut self.incoming else { return ReadEvent::NothingYet };
        if let Some(fault) = incoming.awaited_room() {
            return ReadEvent::Missing(fault);
        }
        let (mut result, mut room_bytes) = (Ok(0), 0);
        let filled = incoming.fill(READ_BYTES, |room| {
            room_bytes = room.iter().map(|part| part.len()).sum();
            result = loop {
                match readv(fd, room) {
                    Err(Errno::INTR) => {}
                    result => break result,
                }
            };
            result.unwrap_or(0)
        });
        match filled {
            Ok(()) => {}
            Err(OpError::Fault(fault)) => return ReadEvent::Missing(fault),
            Err(_) => return self.give_up_receiving(),
        }
        match result {
            Ok(0) => ReadEvent::Closed,
            Ok(count) => ReadEvent::Bytes { count, is_all: count < room_bytes },
            Err(Errno::AGAIN) => ReadEvent::NothingYet,
            Err(_) => ReadEvent::Closed,
        }
    }

    /// RECEIVING → (none). The command will tell the client why there is no room.
    fn give_up_receiving(&mut self) -> ReadEvent {
        let (Some(incoming), Some(received)) = (self.incoming.take(), self.parser.received()) else {
            return ReadEvent::Closed;
        };
        self.parser.set_received(None);
        self.buf.truncate(received.at);
        match incoming.read(|bytes| self.buf.extend_from_slice(bytes)) {
            // Another look at the socket follows.
            Ok(()) => ReadEvent::Bytes { count: 0, is_all: false },
            Err(_) => ReadEvent::Closed,
        }
    }

    /// RECEIVED → (none); from RECEIVING if nobody wants the command any more.
    pub(super) fn end_receiving(&mut self) {
        self.incoming = None;
        self.parser.set_received(None);
    }

    /// The commands up to `end` have been executed.
    pub fn executed(&mut self, end: usize) {
        self.done = end;
        if self.parser.received().is_some_and(|received| received.at < end) {
            self.end_receiving();
        }
    }

    /// A parsed command's arguments, with the large one if it has that.
    pub fn args<'a>(&'a self, ranges: &'a [ArgRange]) -> Args<'a> {
        let args = Args::new(&self.buf, ranges);
        match (&self.incoming, self.parser.received()) {
            (Some(incoming), Some(received)) => args.with_incoming(received.at, incoming),
            _ => args,
        }
    }
}
