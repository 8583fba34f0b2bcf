//! A client of the program's, as its worker's thread has it.

use std::sync::mpsc::Sender;
use std::sync::Arc;

use stillframe_store::OpError;

use crate::embedded::desk::Given;
use crate::protocol::args::ArgRange;
use crate::protocol::need::Need;
use crate::protocol::reply::{Reply, ReplyBuf};
use crate::protocol::request::{Limits, Parsed, Parser};
use crate::state::clients::ClientInfo;
use crate::state::inbox::Taken;
use crate::state::listener::Heard;
use crate::state::session::{Ending, Session};

/// Why the next commands of a client wait.
///
/// ```text
///   Free ── pages missing ──────────────────▶ Fault ───── they are in memory ──▶ Free
///        ── CLIENT PAUSE ───────────────────▶ Paused ──── time over, UNPAUSE ──▶ Free
///        ── a reply that comes later ───────▶ Blocked ─── it is there ─────────▶ Free
///        ── a reply of many random elements ▶ Drawing ─── it is written ───────▶ Free
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    Free,
    Fault,
    Paused,
    Blocked,
    Drawing,
}

pub struct Guest {
    pub session: Session,
    pub info: Arc<ClientInfo>,
    /// What has come and is not executed begins at byte `done`.
    pub input: Vec<u8>,
    pub done: usize,
    parser: Parser,
    pub out: ReplyBuf,
    pub hold: Hold,
    /// The program waits for the replies to what it has sent.
    pub is_asked: bool,
    given: Sender<Given>,
}

impl Guest {
    pub fn new(info: Arc<ClientInfo>, given: Sender<Given>) -> Guest {
        Guest {
            // The program has the data already: it needs no password.
            session: Session::new(info.id, true),
            info,
            input: Vec::new(),
            done: 0,
            parser: Parser::default(),
            out: ReplyBuf::default(),
            hold: Hold::Free,
            is_asked: false,
            given,
        }
    }

    /// Takes the next command apart; returns where it ends. None: there is none that is complete, or it has to wait.
    pub fn next_command(
        &mut self,
        ranges: &mut Vec<ArgRange>,
        limits: Limits,
    ) -> Option<Result<usize, String>> {
        while self.hold == Hold::Free && self.session.ending == Ending::Open {
            ranges.clear();
            match self.parser.next(&mut self.input, self.done, ranges, limits) {
                Parsed::Command { end } => return Some(Ok(end)),
                Parsed::Nothing { end } => {
                    self.session.reply_mode.end_command();
                    self.done = end;
                }
                Parsed::Incomplete { .. } => {
                    self.input.drain(..self.done);
                    self.done = 0;
                    return None;
                }
                Parsed::Error(text) => return Some(Err(text)),
            }
        }
        None
    }

    /// Says that what has come is no request, and ends.
    pub fn refuse(&mut self, text: &str) {
        let mut reply = Reply { resp3: self.session.resp3, out: &mut self.out };
        reply.error(format!("ERR {text}").as_bytes());
        self.session.ending = Ending::AfterReply;
    }

    /// A command has been executed, up to byte `end`.
    pub fn executed(&mut self, end: usize) {
        self.done = end;
        if self.session.drawing.is_some() {
            self.hold = Hold::Drawing;
        } else if let Some(at) = self.session.late.first_place() {
            self.session.late.hold(self.out.split_off_all(at));
            self.hold = Hold::Blocked;
        }
    }

    /// Writes what the client has been told. While a reply is half written that waits for the end of it (U3).
    pub fn hear(&mut self, spare: &mut Vec<Heard>) {
        if self.session.has_begun_reply() {
            return;
        }
        let Some(listener) = &self.session.listener else { return };
        let (out, resp3, mut need) = (&mut self.out, self.session.resp3, Need::default());
        let write = |heard: &Heard| {
            out.extend(heard.bytes(resp3));
            heard.add_need(&mut need);
        };
        if listener.take(spare, write) == Taken::Over {
            self.session.ending = Ending::AtOnce;
        }
        self.session.need.join(&need);
        self.session.drop_silent_listener();
    }

    /// Gives what there is to the program. While that waits for replies, they are kept until they are `all`. Returns how many bytes
    /// have been given.
    ///
    /// # Errors
    /// A large value cannot be read.
    pub fn give(&mut self, all: bool) -> Result<u64, OpError> {
        if self.is_asked && !all {
            return Ok(0);
        }
        let bytes = self.out.take_copied()?;
        let byte_count = bytes.len() as u64;
        let given = match std::mem::take(&mut self.is_asked) {
            true => Given::Answer(bytes),
            false if bytes.is_empty() => return Ok(0),
            false => Given::Later(bytes),
        };
        // A client that has gone takes nothing, and says so itself.
        let _ = self.given.send(given);
        Ok(byte_count)
    }
}
