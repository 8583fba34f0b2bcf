//! A connection: its wire, input, output and session.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use std::sync::Arc;
use std::time::Instant;

use stillframe_engine::config::Settings;
use stillframe_engine::log;
use stillframe_engine::protocol::args::ArgRange;
use stillframe_engine::protocol::need::Need;
use stillframe_engine::protocol::reply::{Replies, ReplyBuf, UNCOUNTED_OUTPUT_BYTES};
use stillframe_engine::protocol::request::{Limits, Parsed, Parser};
use stillframe_engine::state::clients::ClientInfo;
use stillframe_engine::state::inbox::Taken;
use stillframe_engine::state::listener::Heard;
use stillframe_engine::state::session::{Ending, Session};
use stillframe_engine::state::stats::ServerStats;
use stillframe_store::rdb::LongPayload;
use stillframe_store::{Fault, Incoming, OpError};

use crate::net::held::HeldParts;
use crate::net::spare::SpareBuffers;
use crate::net::wire::{Wire, WireError};

/// Bytes that a first read has room for. Doubles up to [`READ_MAX_BYTES`] while reads fill it.
const READ_MIN_BYTES: usize = 1024;
const READ_MAX_BYTES: usize = 64 * 1024;
/// Bytes written to a connection before others are served.
const WRITE_MAX_BYTES: usize = 1 << 20;
/// Bytes of a large value that are written at once.
const VALUE_PART_BYTES: usize = 256 * 1024;
/// An empty buffer that has grown beyond this is given back at once.
const KEEP_BYTES: usize = 256 * 1024;

/// Bytes received and not yet executed.
///
/// ```text
///   0          done           parsed          len
///   | executed | in the batch | not yet taken |
/// ```
#[derive(Debug)]
pub struct Input {
    pub buf: Vec<u8>,
    /// End of what has been executed.
    pub done: usize,
    /// End of what has been parsed.
    pub parsed: usize,
    pub(super) parser: Parser,
    read_bytes: usize,
    /// What the last parse said is missing from the command that has begun.
    missing: usize,
    /// Where the bytes of large arguments of the next command to be executed go, by their indices; all but the last are
    /// there. The parser has as many `Received`.
    pub incoming: Vec<(usize, Incoming)>,
    /// Nothing is read until pages of that are in memory, or there is room for more.
    pub is_awaiting_pages: bool,
}

/// What a read brought.
#[derive(Debug)]
pub enum ReadEvent {
    /// `is_all`: the socket had no more at that time.
    Bytes {
        count: usize,
        is_all: bool,
    },
    NothingYet,
    /// Pages of the value that comes are missing, or room for it.
    Missing(Fault),
    /// The peer has closed, or the socket has failed.
    Closed,
}

impl ReadEvent {
    /// Of a read that had so many bytes of room.
    pub(super) fn of(result: Result<usize, WireError>, room_bytes: usize) -> ReadEvent {
        match result {
            Ok(count) => ReadEvent::Bytes { count, is_all: count < room_bytes },
            Err(WireError::WouldBlock) => ReadEvent::NothingYet,
            Err(WireError::Closed) => ReadEvent::Closed,
        }
    }
}

impl Default for Input {
    fn default() -> Self {
        Input {
            buf: Vec::new(),
            done: 0,
            parsed: 0,
            parser: Parser::default(),
            read_bytes: READ_MIN_BYTES,
            missing: 0,
            incoming: Vec::new(),
            is_awaiting_pages: false,
        }
    }
}

impl Input {
    /// Reads what there is, at most as much as there is room for after growing by a bounded step: an announced
    /// length reserves memory only as its bytes arrive.
    pub fn read(&mut self, wire: &mut Wire, spare: &mut SpareBuffers) -> ReadEvent {
        if self.is_awaiting_pages {
            return ReadEvent::NothingYet;
        }
        if self.is_receiving() {
            return self.receive(wire);
        }
        if self.buf.capacity() == 0 {
            self.buf = spare.take();
        }
        self.make_room();
        let room = self.buf.capacity() - self.buf.len();
        let result = wire.recv(&mut self.buf);
        if result == Ok(room) {
            self.read_bytes = (self.read_bytes * 2).min(READ_MAX_BYTES);
        }
        ReadEvent::of(result, room)
    }

    fn make_room(&mut self) {
        let wanted = self.missing.clamp(self.read_bytes, self.read_bytes.max(self.buf.len()));
        if self.buf.capacity() - self.buf.len() >= wanted.min(READ_MAX_BYTES) {
            return;
        }
        // Moving costs no more than the bytes that have been executed since the last time.
        if self.done > 0 && self.done >= self.buf.len() - self.done {
            self.compact();
        }
        self.buf.reserve_exact(wanted);
    }

    fn compact(&mut self) {
        self.buf.drain(..self.done);
        self.parsed -= self.done;
        self.parser.received_mut().iter_mut().for_each(|received| received.at -= self.done);
        self.done = 0;
    }

    /// Takes the next command apart; its ranges in `buf` are appended to `ranges`.
    pub fn parse(&mut self, ranges: &mut Vec<ArgRange>, limits: Limits) -> Parsed {
        let parsed = self.parser.next(&mut self.buf, self.parsed, ranges, limits);
        match parsed {
            Parsed::Command { end } => self.parsed = end,
            Parsed::Nothing { end } => self.parsed = end,
            Parsed::Incomplete { missing } => self.missing = missing,
            Parsed::Error(_) => {}
        }
        parsed
    }

    /// Takes back what is parsed but not executed: it will be parsed again.
    pub fn rewind(&mut self) {
        self.parsed = self.done;
        self.parser.reset();
    }

    /// Drops everything that has not been executed.
    pub fn discard(&mut self) {
        self.buf.clear();
        self.done = 0;
        self.parsed = 0;
        self.parser.reset();
        self.end_receiving();
    }

    /// After a batch: forgets what has been executed where that is free. `is_all_executed` says that nothing of
    /// what was parsed waits.
    pub fn recycle(&mut self, is_all_executed: bool, spare: &mut SpareBuffers) {
        if is_all_executed {
            self.done = self.parsed;
        }
        if self.done == self.buf.len() {
            self.buf.clear();
            self.done = 0;
            self.parsed = 0;
            self.missing = 0;
            spare.take_over(&mut self.buf);
            if self.buf.capacity() > KEEP_BYTES {
                self.shrink();
            }
        }
    }

    /// Gives the memory of an idle connection back.
    pub fn shrink(&mut self) {
        if self.buf.is_empty() {
            self.buf = Vec::new();
            self.read_bytes = READ_MIN_BYTES;
        }
    }

    /// Bytes received and not executed.
    pub fn waiting_bytes(&self) -> usize {
        self.buf.len() - self.done + self.received_bytes()
    }
}

/// Replies not yet sent.
#[derive(Debug)]
pub struct Output {
    pub buf: ReplyBuf,
    /// Bytes of the buffer that are sent, and of the large value that belongs there.
    sent: usize,
    sent_of_value: usize,
    /// Pages of large values that are to be brought in, and whether some are on their way.
    wanted: Option<Fault>,
    is_loading: bool,
    /// What of it may not leave yet.
    pub held: HeldParts,
    /// The next unsent byte may not.
    is_held: bool,
    /// Bytes that might have left with the last write, and for which the socket had no room.
    left_free_bytes: usize,
    /// Since when the soft limit is exceeded.
    pub over_soft_limit_since: Option<Instant>,
}

impl Default for Output {
    fn default() -> Self {
        let mut buf = ReplyBuf::default();
        buf.send_values(true);
        Output {
            buf,
            sent: 0,
            sent_of_value: 0,
            wanted: None,
            is_loading: false,
            held: HeldParts::default(),
            is_held: false,
            left_free_bytes: 0,
            over_soft_limit_since: None,
        }
    }
}

/// What a write achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteEvent {
    Drained,
    /// The socket takes no more for now.
    Blocked,
    /// The next page of a large value is not in memory.
    Missing,
    /// It takes more, but others want to be served.
    Unfinished,
    /// The rest tells of what is not durable yet.
    Held,
    /// What is to be written cannot be read: the connection ends.
    Unreadable,
    /// Nobody takes it.
    Closed,
}

impl Output {
    pub fn pending_bytes(&self) -> usize {
        self.buf.total_bytes() - self.sent - self.sent_of_value
    }

    /// Memory that it holds, with the values that are still to be sent.
    pub fn held_bytes(&self) -> usize {
        self.buf.capacity() + self.buf.total_bytes() - self.buf.len()
    }

    /// Bounds what commands append; 0 is no bound.
    pub fn set_hard_limit(&mut self, limit_bytes: u64) {
        let max_bytes = match usize::try_from(limit_bytes) {
            Ok(limit @ 1..) => limit.saturating_add(self.sent + self.sent_of_value + UNCOUNTED_OUTPUT_BYTES),
            _ => usize::MAX,
        };
        self.buf.set_max_bytes(max_bytes);
    }

    /// Unsent output as the limits count it.
    pub fn counted_bytes(&self) -> u64 {
        self.pending_bytes().saturating_sub(UNCOUNTED_OUTPUT_BYTES) as u64
    }

    /// Writes as much as the socket takes, but not without end, and no more than `free_bytes`; `count_bytes` is told how much
    /// that was.
    pub fn write(
        &mut self,
        wire: &mut Wire,
        free_bytes: usize,
        count_bytes: impl FnMut(usize),
    ) -> WriteEvent {
        let event = self.write_free(wire, free_bytes, count_bytes);
        self.left_free_bytes = match event {
            WriteEvent::Drained | WriteEvent::Held => 0,
            _ if free_bytes == usize::MAX => self.pending_bytes(),
            _ => 0,
        };
        event
    }

    fn write_free(
        &mut self,
        wire: &mut Wire,
        free_bytes: usize,
        mut count_bytes: impl FnMut(usize),
    ) -> WriteEvent {
        let mut written = 0;
        self.is_held = false;
        while self.pending_bytes() > 0 {
            if written >= free_bytes {
                self.is_held = true;
                self.drop_sent();
                return WriteEvent::Held;
            }
            if written >= WRITE_MAX_BYTES {
                return WriteEvent::Unfinished;
            }
            match self.write_some(wire, free_bytes - written) {
                Ok(Ok(count)) => {
                    written += count;
                    if !self.held.is_empty() {
                        self.held.sent(count);
                    }
                    count_bytes(count);
                }
                Ok(Err(WireError::WouldBlock)) => {
                    self.drop_sent();
                    return WriteEvent::Blocked;
                }
                Err(OpError::Fault(fault)) => {
                    self.want(fault);
                    return WriteEvent::Missing;
                }
                // Nothing can make room for it at present: it is tried again.
                Err(OpError::NoRoom) => return WriteEvent::Missing,
                // A page that cannot be read any more: the length is announced.
                Err(_) => return WriteEvent::Unreadable,
                Ok(Err(WireError::Closed)) => return WriteEvent::Closed,
            }
        }
        self.buf.clear(KEEP_BYTES);
        self.sent = 0;
        WriteEvent::Drained
    }

    /// One write: of at most so many bytes of the buffer, up to the next large value, or of that. A value may leave as a whole or not
    /// at all.
    fn write_some(
        &mut self,
        wire: &mut Wire,
        most_bytes: usize,
    ) -> Result<Result<usize, WireError>, OpError> {
        let buffered = self.buf.len();
        let (at, value) = match self.buf.first_value() {
            Some((at, value, payload)) if at == self.sent => (at, Some((value, payload))),
            Some((at, ..)) => (at, None),
            None => (buffered, None),
        };
        let Some((value, payload)) = value else {
            let end = at.min(self.sent.saturating_add(most_bytes));
            let sent = wire.send(&self.buf.bytes()[self.sent..end]);
            self.sent += sent.unwrap_or(0);
            return Ok(sent);
        };
        let send_part = |parts: &[IoSlice<'_>]| {
            let sent = wire.send_parts(parts);
            payload.into_iter().for_each(|payload| update(payload, parts, sent.unwrap_or(0)));
            sent
        };
        let sent = value.with_parts(self.sent_of_value as u64, VALUE_PART_BYTES, send_part)?;
        self.sent_of_value += sent.unwrap_or(0);
        let ahead = if self.is_loading { None } else { value.ahead(self.sent_of_value as u64) };
        if self.sent_of_value as u64 == value.len_bytes() {
            self.buf.drop_first_value();
            self.sent_of_value = 0;
        }
        ahead.into_iter().for_each(|fault| self.want(fault));
        Ok(sent)
    }

    fn want(&mut self, fault: Fault) {
        if !self.is_loading {
            self.wanted = Some(fault);
        }
    }

    /// Pages that are to be brought in; the caller sees to that and tells when they are there.
    pub fn take_wanted(&mut self) -> Option<Fault> {
        let wanted = self.wanted.take();
        self.is_loading |= wanted.is_some();
        wanted
    }

    /// What [`Output::take_wanted`] gave is in memory.
    pub fn end_loading(&mut self) {
        self.is_loading = false;
    }

    /// Moves what is left to the front once that costs no more than what has been sent.
    fn drop_sent(&mut self) {
        if self.sent >= self.buf.len() - self.sent {
            self.buf.drop_front(self.sent);
            self.sent = 0;
        }
    }

    /// Drops everything: nobody takes it.
    pub fn discard(&mut self) {
        self.buf.discard();
        (self.sent, self.sent_of_value) = (0, 0);
        (self.wanted, self.over_soft_limit_since) = (None, None);
        self.held.clear();
        self.left_free_bytes = 0;
    }

    /// Notes what all of the output needs that is not noted yet. What has been left over from a time when nothing was held needs nothing.
    pub fn note_need(&mut self, need_offset: Option<u64>) {
        if self.held.is_empty() {
            self.held.note(std::mem::take(&mut self.left_free_bytes), 0);
        }
        if let Some(need_offset) = need_offset {
            self.held.note(self.pending_bytes(), need_offset);
        }
    }

    /// Whether there is something that leaves as soon as the socket takes it.
    pub fn awaits_socket(&self) -> bool {
        self.pending_bytes() > 0 && !self.is_held
    }

    /// Gives the memory of an idle connection back.
    pub fn shrink(&mut self) {
        if self.buf.is_empty() {
            self.buf.clear(0);
        }
    }
}

/// Tells a payload of the first `count` bytes of some parts.
fn update(payload: &mut LongPayload, parts: &[IoSlice<'_>], count: usize) {
    let mut left = count;
    for part in parts {
        let sent = part.len().min(left);
        payload.update(&part[..sent]);
        left -= sent;
    }
}

/// Why a connection's commands wait although they are there.
///
/// ```text
///            page fault                     pages in memory
///   Free ------------------> Fault ------------------------------> Free
///        CLIENT PAUSE                       time over, UNPAUSE
///        ------------------> Paused -----------------------------> Free
///        SAVE, SHUTDOWN, .. (reply later)   reply is there
///        ------------------> Blocked ----------------------------> Free
///        much unsent output                 written
///        ------------------> Full -------------------------------> Free
///        reply of many random elements      its last part is written
///        ------------------> Drawing ----------------------------> Free
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    Free,
    Fault,
    Paused,
    Blocked,
    Full,
    Drawing,
}

/// What epoll reports for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    pub read: bool,
    pub write: bool,
}

/// What the other end of a connection does still. Whatever has arrived before its end is executed.
///
/// ```text
///            FIN, reset            read to the end                    all of that executed
///   Sends ---------------> HungUp ----------------> HasSent ---------------------------------> closed, once the
///                                                      ^  whatever waits for a key waits no longer     replies are taken
///            a write fails         read as far as it has arrived
///   Sends, HungUp --------> Deaf ----------------------+  nothing is written any more
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    Sends,
    /// It has ended its side: the socket is read to the end without a further event.
    HungUp,
    /// Nobody takes replies: they are dropped from now on.
    Deaf,
    /// Nothing more will come.
    HasSent {
        is_deaf: bool,
    },
}

impl Peer {
    pub fn is_deaf(self) -> bool {
        matches!(self, Peer::Deaf | Peer::HasSent { is_deaf: true })
    }

    pub fn has_sent(self) -> bool {
        matches!(self, Peer::HasSent { .. })
    }

    /// Whether the socket is to be read again, though there may be no further event.
    pub fn is_read_on(self) -> bool {
        matches!(self, Peer::HungUp | Peer::Deaf)
    }

    pub fn hangs_up(&mut self) {
        if *self == Peer::Sends {
            *self = Peer::HungUp;
        }
    }

    /// The end of the input has been read.
    pub fn ends(&mut self) {
        *self = Peer::HasSent { is_deaf: self.is_deaf() };
    }

    /// A write has failed.
    pub fn turns_deaf(&mut self) {
        *self = if self.has_sent() { Peer::HasSent { is_deaf: true } } else { Peer::Deaf };
    }
}

/// Tokens beyond those of connections, whose top bit is clear.
pub const WAKE_TOKEN: u64 = u64::MAX;
pub const LISTEN_TOKEN: u64 = u64::MAX - 1;

/// A client that has so much unsent output waits until it reads.
pub const OUTPUT_FULL_BYTES: usize = 1 << 20;

/// A client that waits and has so much unexecuted input is not read any more.
const INPUT_FULL_BYTES: usize = 64 << 20;

pub struct Conn {
    pub wire: Wire,
    pub session: Session,
    pub info: Arc<ClientInfo>,
    pub input: Input,
    pub output: Output,
    pub hold: Hold,
    /// What is wrong with the input; told to the client after the replies of the commands before it.
    pub protocol_error: Option<String>,
    /// As registered with epoll.
    pub interest: Interest,
    pub peer: Peer,
    /// In the list of connections to be served without waiting for epoll.
    pub is_ready: bool,
    /// In the list of connections that the present batch has written for.
    pub is_touched: bool,
    /// Who writes a large reply goes on when its last part has gone to the socket.
    pub part_written: Option<Sender<()>>,
    /// Where it is in the queue of those whose output is held: the lowest need of that.
    pub held_at: Option<u64>,
}

impl Conn {
    /// One that has just come in.
    pub fn new(socket: OwnedFd, info: Arc<ClientInfo>, is_authenticated: bool) -> Conn {
        Conn {
            session: Session::new(info.id, is_authenticated),
            wire: Wire::new(info.door, socket),
            info,
            input: Input::default(),
            output: Output::default(),
            hold: Hold::Free,
            protocol_error: None,
            interest: Interest { read: true, write: false },
            peer: Peer::Sends,
            is_ready: false,
            is_touched: false,
            part_written: None,
            held_at: None,
        }
    }

    /// Whether the soft limit of `client-output-buffer-limit`, or a hard one that has been lowered, says that
    /// the client must go.
    pub fn is_unread_for_too_long(&mut self, settings: &Settings) -> bool {
        let Conn { output, session, .. } = self;
        let limit = session.output_limit(settings);
        let counted = output.counted_bytes() + session.heard_bytes() as u64;
        if limit.hard_bytes > 0 && counted > limit.hard_bytes {
            return true;
        }
        if limit.soft_bytes == 0 || counted <= limit.soft_bytes {
            output.over_soft_limit_since = None;
            return false;
        }
        output.over_soft_limit_since.get_or_insert_with(Instant::now).elapsed() > limit.soft_time
    }

    /// It is about to be closed because it has sent too much that cannot be executed.
    pub fn log_query_limit(&self, stats: &ServerStats) {
        log::warning(format!(
            "Closing client that reached max query buffer length: id={} addr={}, {} bytes waiting",
            self.info.id,
            self.info.addr,
            self.input.waiting_bytes()
        ));
        stats.query_limit_closed.fetch_add(1, Relaxed);
    }

    /// A reply that has not fit the hard limit ends the connection.
    pub fn end_if_over(&mut self) {
        if self.output.buf.is_over() {
            self.session.ending = Ending::AtOnce;
        }
    }

    /// What holds after a command: with it the next ones are executed, or wait.
    pub fn go_on_as(&mut self, hold: Hold) {
        self.hold = hold;
        self.end_if_over();
        if hold != Hold::Free {
            self.input.rewind();
            self.protocol_error = None;
        }
    }

    /// Appends bytes that no command of this connection has written just now.
    pub fn append(&mut self, bytes: &[u8], hard_limit_bytes: u64) {
        self.output.set_hard_limit(hard_limit_bytes);
        self.output.buf.extend(bytes);
        self.end_if_over();
    }

    /// Writes what the client has been told. While a reply is half written that waits for the end of it (U3).
    pub fn hear(&mut self, spare: &mut Vec<Heard>, hard_limit_bytes: u64) {
        let Some(listener) = &self.session.listener else { return };
        listener.bound(hard_limit_bytes);
        self.output.set_hard_limit(hard_limit_bytes);
        let (out, resp3, mut need) = (&mut self.output.buf, self.session.resp3, Need::default());
        let is_over = if self.session.has_begun_reply() {
            listener.is_over()
        } else {
            let write = |heard: &Heard| {
                out.extend(heard.bytes(resp3));
                heard.add_need(&mut need);
            };
            listener.take(spare, write) == Taken::Over
        };
        self.session.need.join(&need);
        if is_over {
            out.give_up();
        }
        if !self.session.has_begun_reply() {
            self.session.drop_silent_listener();
        }
        self.end_if_over();
    }

    /// The same of replies that may have large values.
    pub fn append_replies(&mut self, replies: Replies, hard_limit_bytes: u64) {
        self.session.need.join(replies.need());
        self.output.set_hard_limit(hard_limit_bytes);
        self.output.buf.append(replies);
        self.end_if_over();
    }

    /// Whether more is to be read now.
    pub fn wants_input(&self) -> bool {
        let is_full = self.hold != Hold::Free && self.input.waiting_bytes() >= INPUT_FULL_BYTES;
        !is_full && self.session.ending == Ending::Open && !self.peer.has_sent()
    }
}
