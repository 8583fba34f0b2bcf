//! What a command works with that concerns its connection and no data: it can be run without a worker, too (SC4).

use std::sync::Arc;

use crate::command::{CmdError, CmdResult};
use crate::config::{Config, OnSignal, Settings};
use crate::log;
use crate::protocol::need::Need;
use crate::protocol::reply::Reply;
use crate::server::Server;
use crate::state::busy::{Kind, Slow};
use crate::state::clients::ClientInfo;
use crate::state::exceptions::Matter;
use crate::state::inbox::Taken;
use crate::state::listener::Heard;
use crate::state::session::{Ending, Session};

/// A connection's side of a command's surroundings.
pub struct Talk<'a, 'r> {
    pub client: &'a mut Session,
    pub reply: &'a mut Reply<'r>,
    /// What others see of the client.
    pub peer: &'a Arc<ClientInfo>,
    /// The configuration in force, without a lock.
    pub config: &'a Arc<Config>,
    /// Room for what the connection has been told, on its way to the output.
    pub heard: &'a mut Vec<Heard>,
    /// Not for commands: the data can be reached from there.
    pub(super) server: &'a Server,
}

impl Talk<'_, '_> {
    pub fn settings(&self) -> &Settings {
        &self.config.settings
    }

    /// Forgets the watches.
    pub fn unwatch_all(&mut self) {
        self.server.watches.unwatch_all(self.client);
    }

    /// Leaves the transaction and forgets the watches.
    pub fn end_transaction(&mut self) {
        self.client.transaction = None;
        self.unwatch_all();
    }

    /// The client listens to nothing any more.
    pub fn stop_listening(&mut self) {
        stop_listening(self.server, self.client);
    }

    /// Writes what the client has been told by now.
    pub fn hear(&mut self) {
        self.hear_at(self.reply.out.len());
    }

    /// Writes what the client has been told before the reply that begins at byte `at` of the output. What its own command has told to
    /// monitors goes behind the reply.
    #[cold]
    pub fn hear_at(&mut self, at: usize) {
        let Some(listener) = self.client.listener.as_ref().filter(|listener| listener.has_heard()) else {
            return;
        };
        let (resp3, own_id) = (self.reply.resp3, self.client.id);
        let (mut before, mut behind, mut need) = (Vec::new(), Vec::new(), Need::default());
        let taken = listener.take(self.heard, |heard| {
            let is_behind = !behind.is_empty() || matches!(heard, Heard::Line(id, _) if *id == own_id);
            let to = if is_behind { &mut behind } else { &mut before };
            to.extend_from_slice(heard.bytes(resp3));
            heard.add_need(&mut need);
        });
        self.client.need.join(&need);
        let at = at.max(self.client.hears_from).min(self.reply.out.len());
        self.reply.out.insert(at, &before);
        self.client.late.move_from(at, before.len());
        self.reply.out.extend(&behind);
        self.client.hears_from = if behind.is_empty() { at + before.len() } else { self.reply.out.len() };
        if taken == Taken::Over {
            self.reply.out.give_up();
        }
    }

    /// The command has been answered by what is in the output from byte `at` on.
    #[cold]
    pub fn end_reply(&mut self, at: usize) {
        if self.client.ending != Ending::Open {
            self.stop_listening();
        }
        self.hear_at(at);
        let from = std::mem::take(&mut self.client.hears_from).max(at);
        if self.client.late.first_place().is_some_and(|place| place > from) {
            self.client.late.begin();
        }
        if let Some(listener) = &self.client.listener {
            listener.bound(self.client.output_limit(&self.config.settings).hard_bytes);
        }
        self.client.drop_silent_listener();
    }

    /// What it is told from now on goes behind the reply so far.
    pub fn hear_behind(&mut self) {
        if self.client.listener.is_some() {
            self.client.hears_from = self.reply.out.len();
        }
    }

    /// `SCRIPT KILL`, `FUNCTION KILL`: ends the slow script, or function.
    ///
    /// # Errors
    /// Nothing runs that may be ended so.
    pub fn kill(&mut self, kind: Kind) -> CmdResult {
        self.server.busy.kill(kind).map_err(|error| CmdError::from(error.to_string()))?;
        log::warning("Lua script killed by user with SCRIPT KILL.");
        self.reply.ok();
        Ok(())
    }

    /// What is slow.
    pub fn slow(&self) -> Option<Arc<Slow>> {
        self.server.busy.first()
    }

    /// Function libraries and functions.
    pub fn library_counts(&self) -> (u64, u64) {
        self.server.scripts.library_counts()
    }

    /// What other commands are answered while a script runs for long.
    pub fn busy_text(&self) -> &'static str {
        // It may have ended just now; its clients learn that with the next command.
        self.server.busy.text().unwrap_or(Kind::Script.busy_text())
    }

    /// Ends the server without a save, whatever runs.
    pub fn end_server(&self) {
        log::warning("User requested shutdown...");
        self.server.busy.leave();
        self.server.shut_down(OnSignal::NoSave, false, None);
    }
}

/// The client listens to nothing any more, and monitors nothing. What it has been told waits in its inbox.
pub(super) fn stop_listening(server: &Server, client: &mut Session) {
    if std::mem::take(&mut client.is_monitor) {
        let mut monitors = server.monitors.lock();
        monitors.retain(|m| m.client.id != client.id);
        server.exceptions.set(Matter::MONITORED, !monitors.is_empty());
    }
    if !client.subscriptions.is_empty() {
        server.pubsub.unsubscribe_all(client.id, &mut client.subscriptions);
    }
}
