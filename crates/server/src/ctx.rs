//! What a command function works with.

use std::sync::Arc;

use stillframe_store::{DbId, Key, Worker};

use crate::clients::ClientInfo;
use crate::command::Args;
use crate::config::Config;
use crate::local::Local;
use crate::persistence::{Waiter, When};
use crate::reply::Reply;
use crate::server::Server;
use crate::session::{LateReply, Session};
use crate::stats::WorkerStats;

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
/// ([`crate::prepare`]), so that only commands of one change, and those that change nothing, can see a fault at all.
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
}

impl Ctx<'_> {
    /// The key at an argument index, hashed (once a command for the first one).
    pub fn key<'k>(&self, args: &Args<'k>, index: usize) -> Key<'k> {
        args.hashed_key(index).unwrap_or_else(|| self.worker.key(args.at(index)))
    }

    /// The command's reply comes later, as a [`crate::mailbox::Message::Reply`]; until then the client's further
    /// commands wait. The command returns `Ok` and has written nothing.
    pub fn reply_later(&mut self) -> LateReply {
        self.client.late.expect(self.reply.out.len())
    }

    /// The same for a reply that the saver gives.
    pub fn wait_for_save(&mut self, when: When) -> Waiter {
        Waiter { client: self.peer.clone(), reply: self.reply_later(), when }
    }

    /// The selected database.
    pub fn db(&self) -> DbId {
        self.client.db
    }

    /// A key has been written, deleted or has another deadline: counts towards the save points, and
    /// transactions that watch it will not run. Call it while the command holds the key's lock, i.e. in the
    /// command function.
    pub fn modified(&mut self, db: DbId, key: &Key<'_>) {
        self.stats.add_changes(1);
        if !self.server.watches.is_empty() {
            self.server.watches.changed(db, key.hash, key.bytes);
        }
    }

    /// As [`Ctx::modified`] for a key that Redis does not count as a change of the data set, or counts
    /// differently: only the watches.
    pub fn touched(&mut self, db: DbId, key: &Key<'_>) {
        if !self.server.watches.is_empty() {
            self.server.watches.changed(db, key.hash, key.bytes);
        }
    }

    /// Counts changes towards the save points without naming a key (`FLUSHALL`).
    pub fn count_changes(&mut self, change_count: u64) {
        self.stats.add_changes(change_count);
    }

    /// To be called before `db` is emptied, or replaced by what is in `replaced_by` (`SWAPDB`: once for each of
    /// the two): watched keys that are in either count as changed, and so do those that cannot be looked at.
    pub fn before_flush(&mut self, db: DbId, replaced_by: Option<DbId>) {
        if self.server.watches.is_empty() {
            return;
        }
        let worker = &mut *self.worker;
        self.server.watches.changed_all(db, |bytes| {
            let key = worker.key(bytes);
            let mut may_be_in = |db| !matches!(worker.entry(db, &key), Ok(None));
            may_be_in(db) || replaced_by.is_some_and(&mut may_be_in)
        });
    }
}
