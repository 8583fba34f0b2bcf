//! What a command function works with.

use std::sync::Arc;

use stillframe_store::{DbId, Key, Worker};

use crate::command::{self, CmdResult, Row, Touch};
use crate::config::Config;
use crate::dispatch::talk::Talk;
use crate::persistence::{SaveWaiter, When};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::protocol::reply::{Mark, Reply, ReplyBuf};
use crate::server::Server;
use crate::state::clients::ClientInfo;
use crate::state::local::Local;
use crate::state::session::{LateReply, Session, Within};
use crate::state::stats::WorkerStats;

/// A command function.
pub type Handler = fn(&mut Ctx<'_>, &Args<'_>) -> CmdResult;
pub type Command = Row<Handler>;
pub type Found = command::Found<Handler>;
pub type Registry = command::Registry<Handler>;

/// The surroundings of one command. The fields are disjoint borrows, so that a value can be copied from its
/// page straight into the reply:
///
/// ```text
/// let Ctx { worker, reply, client, .. } = ctx;
/// worker.get(client.db, &key, |value| reply.bulk_value(&value))
/// ```
///
/// A command that returns [`stillframe_store::OpError::Fault`] runs again from its start later: it must not have
/// changed anything before (what it wrote to `reply` is taken back). What it needs is there before it runs
/// ([`crate::dispatch::prepare`]), so that only commands of one change, and those that change nothing, can see a fault at all.
pub struct Ctx<'a> {
    pub worker: &'a mut Worker,
    pub client: &'a mut Session,
    pub reply: Reply<'a>,
    pub server: &'a Arc<Server>,
    pub stats: &'a WorkerStats,
    /// What others see of the client.
    pub peer: &'a Arc<ClientInfo>,
    /// The configuration in force, without a lock.
    pub config: &'a Arc<Config>,
    pub local: &'a mut Local,
    /// All commands that there are.
    pub registry: &'static Registry,
}

impl<'a> Ctx<'a> {
    /// The part of them that concerns the connection alone.
    pub fn talk(&mut self) -> Talk<'_, 'a> {
        Talk {
            client: self.client,
            reply: &mut self.reply,
            peer: self.peer,
            config: self.config,
            heard: &mut self.local.heard,
            server: self.server,
        }
    }
}

impl Ctx<'_> {
    /// The same surroundings for a command that runs within this one: in the place of another client, or as another session of this
    /// one. The reply goes to `out`.
    pub fn inner<'i>(
        &'i mut self,
        client: &'i mut Session,
        peer: &'i Arc<ClientInfo>,
        out: &'i mut ReplyBuf,
    ) -> Ctx<'i> {
        Ctx {
            worker: &mut *self.worker,
            reply: Reply { resp3: client.resp3, out },
            client,
            server: self.server,
            stats: self.stats,
            peer,
            config: self.config,
            local: &mut *self.local,
            registry: self.registry,
        }
    }

    /// The key at an argument index, hashed (once a command for the first one).
    pub fn key<'k>(&self, args: &Args<'k>, index: usize) -> Key<'k> {
        args.hashed_key(index).unwrap_or_else(|| self.worker.key(args.at(index)))
    }

    /// A key was looked up for reading.
    pub fn looked_up(&self, key: &Key<'_>, found: bool) {
        if self.client.within == Within::Look {
            return;
        }
        self.stats.looked_up(found);
        if !found {
            self.server.notifier.note_miss(self.worker.steps().worker(), self.client.db, key.bytes);
        }
    }

    /// The command's reply comes later, as a [`crate::state::mailbox::Message::Reply`]; until then the client's further
    /// commands wait. The command returns `Ok` and has written nothing.
    pub fn reply_later(&mut self) -> LateReply {
        if self.client.within.is_transaction() {
            self.reply.out.send_values(false);
        }
        self.reply.out.note_value();
        self.client.late.promise(self.reply.out.len())
    }

    /// The same for a reply that the saver gives.
    pub fn wait_for_save(&mut self, when: When) -> SaveWaiter {
        SaveWaiter { client: self.peer.clone(), reply: self.reply_later(), when }
    }

    /// Takes back what has been written since `mark` if the client is not to be answered. What is pushed is no reply.
    pub fn hold_back(&mut self, mark: Mark) {
        let has_pushed = std::mem::take(&mut self.client.has_pushed);
        if self.client.reply_mode.is_silent() && !has_pushed {
            self.client.late.drop_from(mark.len);
            self.reply.out.back_to(mark);
        }
    }

    /// The selected database.
    pub fn db(&self) -> DbId {
        self.client.db
    }

    /// Lets what the command has changed since `before`, a reading of [`Worker::change_count`], count as so many changes
    /// towards the save points, where Redis counts in another way than the store.
    pub fn count_as(&mut self, before: u64, change_count: u64) {
        let counted = self.worker.change_count() - before;
        self.stats.recount_changes(change_count.wrapping_sub(counted));
    }

    /// Counts changes towards the save points that are none to the store.
    pub fn count_more(&mut self, change_count: u64) {
        self.stats.recount_changes(change_count);
    }
}

impl Command {
    /// A command whose first argument names one of the rows that follow it.
    pub const fn container(name: &'static str, arity: i32, flags: u32) -> Command {
        let mut command = Command::new(name, arity, flags, Touch::Nothing, needs_a_subcommand);
        command.is_container = true;
        command
    }
}

fn needs_a_subcommand(_: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    Err(errors::SYNTAX.into())
}
