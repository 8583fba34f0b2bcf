//! The connections of one worker at the desk.

use std::collections::HashSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::event::{epoll, Timespec};
use stillframe_engine::config::Config;
use stillframe_engine::dispatch::while_busy::{Answer, Called, Caller, Front};
use stillframe_engine::log;
use stillframe_engine::protocol::args::ArgRange;
use stillframe_engine::protocol::reply::Reply;
use stillframe_engine::protocol::request::{Limits, Parsed};
use stillframe_engine::state::clients::ClientInfo;
use stillframe_engine::state::listener::Heard;
use stillframe_engine::state::session::Ending;
use stillframe_engine::state::token::Token;

use crate::desk::tied::Tied;
use crate::net::conn::{
    Conn, Hold, Peer, ReadEvent, WriteEvent, LISTEN_TOKEN, OUTPUT_FULL_BYTES, WAKE_TOKEN,
};
use crate::net::slots::SlotId;
use crate::net::spare::SpareBuffers;
use crate::net::watched;

/// Events taken at once.
const EVENT_COUNT: usize = 1024;
/// Commands of one connection in a round.
const CONN_COMMANDS: usize = 256;

/// See the module.
pub struct Table {
    tied: Tied,
    called: Called,
    config: Arc<Config>,
    events: Vec<epoll::Event>,
    /// Connections to be served in the next round.
    again: Vec<SlotId>,
    /// Connections whose next command waits for a worker.
    later: HashSet<SlotId>,
    /// Connections with output that may not leave yet.
    held: HashSet<SlotId>,
    spare: SpareBuffers,
    heard: Vec<Heard>,
    ranges: Vec<ArgRange>,
}

impl Table {
    /// What was taken apart and not executed is looked at anew; any of the sockets may have something.
    pub fn begin(mut tied: Tied, wake: BorrowedFd<'_>, config: Arc<Config>) -> Table {
        // The worker's messages stay where they are.
        let _ = epoll::delete(&tied.epoll, wake);
        let all: Vec<SlotId> = tied.slots.ids().collect();
        for &id in &all {
            let Some(conn) = tied.slots.get(id) else { continue };
            if conn.input.parsed != conn.input.done {
                conn.input.rewind();
                conn.protocol_error = None;
            }
        }
        Table {
            tied,
            called: Called::default(),
            config,
            events: Vec::with_capacity(EVENT_COUNT),
            again: all,
            later: HashSet::new(),
            held: HashSet::new(),
            spare: SpareBuffers::default(),
            heard: Vec::new(),
            ranges: Vec::new(),
        }
    }

    /// For the worker.
    pub fn end(mut self, wake: BorrowedFd<'_>) -> Tied {
        let data = epoll::EventData::new_u64(WAKE_TOKEN);
        if let Err(error) = epoll::add(&self.tied.epoll, wake, data, epoll::EventFlags::IN) {
            log::warning(format!("A worker cannot be told of messages any more: {error}"));
        }
        self.tied.called = Some(self.called);
        self.tied
    }

    pub fn worker(&self) -> usize {
        self.tied.worker
    }

    pub fn epoll(&self) -> &OwnedFd {
        &self.tied.epoll
    }

    /// Whether there is more to do without an event.
    pub fn goes_on(&self) -> bool {
        !self.again.is_empty()
    }

    pub fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    pub fn follow(&mut self, config: &Arc<Config>) {
        self.config = config.clone();
    }

    /// Takes over a new connection.
    pub fn add(&mut self, socket: OwnedFd, info: Arc<ClientInfo>, front: &Front) {
        let conn = Conn::new(socket, info, self.config.settings.requirepass.is_empty());
        let token = self.tied.slots.add(Box::new(conn));
        let Some(id) = self.tied.slots.find(token) else { return };
        let Some(conn) = self.tied.slots.get(id) else { return };
        conn.info.set_token(token);
        match watched::watch(&self.tied.epoll, conn, token) {
            true => self.again.push(id),
            false => self.close(id, front),
        }
    }

    /// Notes which connections have something; whether somebody wants to connect.
    pub fn take_events(&mut self) -> bool {
        self.events.clear();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A failure is an interruption: what there is is told the next time.
        let _ = epoll::wait(&*self.tied.epoll, spare_capacity(&mut self.events), Some(&at_once));
        let mut is_door_open = false;
        for event in &self.events {
            let (flags, data) = (event.flags, event.data.u64());
            is_door_open |= data == LISTEN_TOKEN;
            let Some(id) = self.tied.slots.find(Token(data)).filter(|_| data < LISTEN_TOKEN) else {
                continue;
            };
            let closed = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            if let Some(conn) = self.tied.slots.get(id).filter(|_| flags.intersects(closed)) {
                conn.peer.hangs_up();
            }
            self.again.push(id);
        }
        is_door_open
    }

    /// One round: each connection that has something, once.
    pub fn serve(&mut self, front: &Front) {
        let mut ids = std::mem::take(&mut self.again);
        ids.extend(self.held.drain());
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            if front.is_left() {
                return;
            }
            self.serve_one(id, front);
        }
    }

    fn serve_one(&mut self, id: SlotId, front: &Front) {
        let Some(conn) = self.tied.slots.get(id) else { return };
        // Commands that wait for something else, or values that go to their pages, are the worker's.
        if !matches!(conn.hold, Hold::Free | Hold::Full) || !conn.input.incoming.is_empty() {
            return;
        }
        if conn.hold == Hold::Free && conn.session.ending == Ending::Open && !self.later.contains(&id) {
            self.read(id);
            self.answer(id, front);
        }
        self.flush(id, front);
    }

    fn read(&mut self, id: SlotId) {
        let Some(conn) = self.tied.slots.get(id).filter(|conn| conn.wants_input()) else { return };
        match conn.input.read(&mut conn.wire, &mut self.spare) {
            ReadEvent::Bytes { is_all, .. } => {
                if !is_all || conn.wire.has_pending() || conn.peer.is_read_on() {
                    self.again.push(id);
                }
            }
            ReadEvent::NothingYet if conn.peer == Peer::Deaf => conn.peer.ends(),
            ReadEvent::NothingYet | ReadEvent::Missing(_) => {}
            ReadEvent::Closed => conn.peer.ends(),
        }
    }

    /// Answers the commands that are there as a whole.
    fn answer(&mut self, id: SlotId, front: &Front) {
        let Table { tied, called, config, again, later, spare, heard, ranges, .. } = self;
        let Some(conn) = tied.slots.get(id) else { return };
        let settings = &config.settings;
        if conn.input.waiting_bytes() > settings.query_buffer_limit_bytes {
            conn.log_query_limit(front.stats());
            return self.close(id, front);
        }
        let limits = Limits {
            max_bulk_bytes: settings.max_bulk_bytes,
            is_authenticated: conn.session.is_authenticated || settings.requirepass.is_empty(),
        };
        for count in 0..=CONN_COMMANDS {
            if count == CONN_COMMANDS {
                again.push(id);
                break;
            }
            ranges.clear();
            match conn.input.parse(ranges, limits) {
                Parsed::Command { end } => {
                    conn.output.set_hard_limit(conn.session.output_limit(settings).hard_bytes);
                    let Conn { session, info, input, output, .. } = &mut *conn;
                    let caller = Caller { client: session, peer: info, out: &mut output.buf, heard, called };
                    match front.answer(caller, config, &input.args(ranges)) {
                        Answer::Given => input.executed(end),
                        Answer::Later => {
                            later.insert(id);
                            input.rewind();
                            break;
                        }
                    }
                    conn.end_if_over();
                    if conn.output.pending_bytes() > OUTPUT_FULL_BYTES {
                        conn.hold = Hold::Full;
                    }
                    if conn.hold != Hold::Free || conn.session.ending != Ending::Open || front.is_left() {
                        break;
                    }
                }
                Parsed::Nothing { end } => {
                    conn.session.reply_mode.end_command();
                    conn.input.executed(end);
                }
                Parsed::Incomplete { .. } => {
                    if conn.peer.has_sent() {
                        conn.session.ending = Ending::AfterReply;
                    }
                    break;
                }
                Parsed::Error(text) => {
                    refuse(conn, &text, front);
                    break;
                }
            }
        }
        if conn.session.ending != Ending::Open {
            front.stop_listening(&mut conn.session);
            conn.input.discard();
        }
        conn.input.recycle(false, spare);
    }

    /// Writes what may leave. Closes the connection if that was the last, or if the client leaves too much unread.
    fn flush(&mut self, id: SlotId, front: &Front) {
        let token = self.tied.slots.token(id);
        let Some(conn) = self.tied.slots.get(id) else { return };
        let is_unread = conn.is_unread_for_too_long(&self.config.settings);
        if conn.session.ending == Ending::AtOnce || is_unread {
            if conn.output.buf.is_over() || is_unread {
                log::warning(format!(
                    "Client id={} addr={} closed for overcoming of output buffer limits.",
                    conn.info.id, conn.info.addr
                ));
                front.stats().output_limit_closed.fetch_add(1, Relaxed);
            }
            return self.close(id, front);
        }
        // The pages of a large value are looked at by workers.
        if conn.output.buf.first_value().is_some() {
            return;
        }
        let free_bytes = free_bytes(conn, front);
        match conn.output.write(&mut conn.wire, free_bytes, |_| ()) {
            WriteEvent::Drained if conn.session.ending == Ending::AfterReply => return self.close(id, front),
            WriteEvent::Drained | WriteEvent::Blocked | WriteEvent::Missing => {}
            WriteEvent::Unfinished => self.again.push(id),
            WriteEvent::Held => drop(self.held.insert(id)),
            WriteEvent::Closed | WriteEvent::Unreadable => {
                // What has arrived is looked at all the same.
                if !conn.peer.is_deaf() {
                    conn.peer.turns_deaf();
                    front.stop_listening(&mut conn.session);
                    self.again.push(id);
                }
                conn.output.discard();
                if conn.session.ending == Ending::AfterReply {
                    return self.close(id, front);
                }
            }
        }
        if conn.hold == Hold::Full && conn.output.pending_bytes() < OUTPUT_FULL_BYTES / 2 {
            conn.hold = Hold::Free;
            self.again.push(id);
        }
        if watched::update(&self.tied.epoll, conn, token) {
            self.again.push(id);
        }
    }

    fn close(&mut self, id: SlotId, front: &Front) {
        self.held.remove(&id);
        self.later.remove(&id);
        let Some(mut conn) = self.tied.slots.remove(id) else { return };
        front.forget(&mut conn.session);
        conn.wire.close();
    }
}

/// How many bytes of its output may leave now, by what they need (G1). What is held stays in the worker's queue.
fn free_bytes(conn: &mut Conn, front: &Front) -> usize {
    if conn.session.need.is_nothing() {
        return usize::MAX;
    }
    let limit_offset = front.limit_offset();
    let settled_offset = conn.session.need.settled_offset();
    if limit_offset == u64::MAX || settled_offset.is_some_and(|need_offset| need_offset <= limit_offset) {
        return usize::MAX;
    }
    conn.output.note_need(settled_offset);
    conn.output.held.free_bytes(limit_offset)
}

/// Answers what is no request.
fn refuse(conn: &mut Conn, text: &str, front: &Front) {
    let mut reply = Reply { resp3: conn.session.resp3, out: &mut conn.output.buf };
    reply.error(format!("ERR {text}").as_bytes());
    conn.session.ending = Ending::AfterReply;
    log::verbose(format!("{text} from client id={} addr={}", conn.info.id, conn.info.addr));
    front.stats().protocol_errors.fetch_add(1, Relaxed);
    front.count_error(b"ERR");
}
