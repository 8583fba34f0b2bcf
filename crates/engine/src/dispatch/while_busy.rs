//! Dispatch without a worker: what clients are told while a script runs for long.
//!
//! The checks are those of dispatch, in the same order. Then nearly everything is refused, by a text of its own (`-BUSY`). What is
//! not is queued, concerns the connection alone ([`Talk`]), or waits until there is a worker again.

use std::sync::Arc;

use crate::command::{flag, CmdError, CmdResult, CommandId};
use crate::config::Config;
use crate::dispatch::ctx::{Command, Found, Registry};
use crate::dispatch::lookup::row_of;
use crate::dispatch::talk::Talk;
use crate::dispatch::{
    admit_change, admit_client, exec, is_cross_protocol, lookup, subscribed, warn_of_attack,
};
use crate::protocol::args::Args;
use crate::protocol::reply::{Reply, ReplyBuf};
use crate::server::Server;
use crate::state::clients::{ClientInfo, Clients};
use crate::state::exceptions::Matter;
use crate::state::listener::Heard;
use crate::state::session::{Ending, Session};
use crate::state::stats::ServerStats;

/// How a command is carried out that clients may send while a script runs for long.
#[derive(Clone, Copy)]
pub enum WhileBusy {
    Now(fn(&mut Talk<'_, '_>, &Args<'_>) -> CmdResult),
    /// Once there is a worker again, unless this refuses it.
    Later(fn(&Session) -> CmdResult),
}

/// Those commands, by the names of their rows.
pub type Rows = &'static [(&'static str, WhileBusy)];

/// What became of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Given,
    /// It stays in the input, and so does what comes behind it.
    Later,
}

/// What was called meanwhile, to be counted by a worker.
#[derive(Default, Debug)]
pub struct Called {
    pub rejected: Vec<CommandId>,
    pub run: Vec<CommandId>,
}

/// Of many calls of one command only so many are remembered.
const CALLS_MAX: usize = 1 << 16;

impl Called {
    fn note(to: &mut Vec<CommandId>, id: CommandId) {
        if to.len() < CALLS_MAX {
            to.push(id);
        }
    }
}

/// The server as a thread without a worker sees it: there is no way to the data from here (SC4).
pub struct Front {
    server: Arc<Server>,
    registry: &'static Registry,
    rows: Rows,
}

/// Where a command comes from, and where its reply goes.
pub struct Caller<'a> {
    pub client: &'a mut Session,
    pub peer: &'a Arc<ClientInfo>,
    pub out: &'a mut ReplyBuf,
    pub heard: &'a mut Vec<Heard>,
    pub called: &'a mut Called,
}

impl Front {
    pub fn new(server: Arc<Server>, registry: &'static Registry, rows: Rows) -> Front {
        Front { server, registry, rows }
    }

    /// Answers a command.
    pub fn answer(&self, caller: Caller<'_>, config: &Arc<Config>, args: &Args<'_>) -> Answer {
        if !self.server.busy.is_on() && !self.is_left() {
            // The script has ended, and its client may know that: the worker answers, which is about to take the connections back.
            return Answer::Later;
        }
        let Caller { client, peer, out, heard, called } = caller;
        let mark = out.mark();
        let mut reply = Reply { resp3: client.resp3, out };
        let mut talk = Talk { client, reply: &mut reply, peer, config, heard, server: &self.server };
        let found = match lookup(self.registry, args) {
            Err(_) if is_cross_protocol(args.at(0)) => {
                warn_of_attack(&self.server);
                talk.client.ending = Ending::AtOnce;
                return Answer::Given;
            }
            Err(error) => {
                self.reject(&mut talk, called, row_of(self.registry, args).ok(), error);
                None
            }
            Ok(found) => Some(found),
        };
        if let Some(found) = found {
            talk.client.last_command = Some(found.id);
            match self.admit(&talk, found.command) {
                Err(error) => self.reject(&mut talk, called, Some(found), error),
                Ok(_) if talk.client.transaction.is_some() && !exec::runs_inside(found.command) => {
                    exec::queue(&mut talk, found, args);
                }
                Ok(WhileBusy::Later(admit)) => match admit(talk.client) {
                    Ok(()) => return Answer::Later,
                    Err(error) => self.fail(&mut talk, error),
                },
                Ok(WhileBusy::Now(run)) => {
                    Called::note(&mut called.run, found.id);
                    let before = talk.reply.out.mark();
                    if let Err(error) = run(&mut talk, args) {
                        talk.reply.out.back_to(before);
                        self.fail(&mut talk, error);
                    }
                }
            }
        }
        let has_pushed = std::mem::take(&mut talk.client.has_pushed);
        if talk.client.reply_mode.is_silent() && !has_pushed {
            talk.reply.out.back_to(mark);
        }
        talk.client.reply_mode.end_command();
        if talk.client.listener.is_some() {
            talk.end_reply(mark.len);
        }
        Answer::Given
    }

    /// The checks, in dispatch's order.
    fn admit(&self, talk: &Talk<'_, '_>, command: &Command) -> Result<WhileBusy, CmdError> {
        let (settings, matter) = (talk.settings(), self.server.exceptions.now());
        admit_client(settings, talk.client, talk.peer, command)?;
        if matter.has(Matter::REFUSES_CHANGES) {
            admit_change(&self.server, settings, command.flags, matter)?;
        }
        subscribed::admit(talk.client, command)?;
        let row = self.rows.iter().find(|(name, _)| *name == command.name).map(|(_, row)| *row);
        match row.filter(|_| command.is(flag::ALLOW_BUSY)) {
            Some(row) => Ok(row),
            None => Err(talk.busy_text().into()),
        }
    }

    fn fail(&self, talk: &mut Talk<'_, '_>, error: CmdError) {
        let text = error.into_text();
        self.server.count_error(&text);
        talk.reply.error(&text);
    }

    /// Answers a command that may not run; a transaction that it belongs to is broken.
    fn reject(&self, talk: &mut Talk<'_, '_>, called: &mut Called, found: Option<Found>, error: CmdError) {
        if let Some(found) = found {
            Called::note(&mut called.rejected, found.id);
            if exec::is_exec(found.command) {
                return exec::abort(talk, &error.into_text());
            }
        }
        if let Some(transaction) = &mut talk.client.transaction {
            transaction.is_broken = true;
        }
        self.fail(talk, error);
    }
}

/// What a thread with connections needs.
impl Front {
    pub fn config(&self) -> Arc<Config> {
        self.server.config()
    }

    pub fn clients(&self) -> &Clients {
        &self.server.clients
    }

    pub fn stats(&self) -> &ServerStats {
        &self.server.stats
    }

    pub fn worker_count(&self) -> usize {
        self.server.worker_count
    }

    /// Up to where of the log output may leave, by what it needs.
    pub fn limit_offset(&self) -> u64 {
        self.server.reply_gate.limit_offset()
    }

    /// Whether the server ends without waiting for anything: nobody is answered any more.
    pub fn is_left(&self) -> bool {
        self.server.busy.is_left()
    }

    pub fn count_error(&self, text: &[u8]) {
        self.server.count_error(text);
    }

    /// The client listens to nothing any more.
    pub fn stop_listening(&self, client: &mut Session) {
        subscribed::stop(&self.server, client);
    }

    /// The client has gone.
    pub fn forget(&self, client: &mut Session) {
        self.server.clients.remove(client.id);
        self.server.watches.unwatch_all(client);
        self.stop_listening(client);
    }
}
