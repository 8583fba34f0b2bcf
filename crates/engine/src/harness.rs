//! A server without sockets, for tests: commands in, replies out.

use std::path::Path;
use std::sync::Arc;

use stillframe_store::{Listener, Options, Store, Worker};

use crate::commands::REGISTRY;
use crate::config::Config;
use crate::dispatch::call::Outcome;
use crate::dispatch::ctx::{Ctx, Registry};
use crate::dispatch::{self};
use crate::protocol::args::{ArgRange, Args};
use crate::protocol::reply::{Reply, ReplyBuf};
use crate::server::Server;
use crate::sockets::NoSockets;
use crate::state::clients::{Arrival, ClientInfo};
use crate::state::door::DoorKind;
use crate::state::local::Local;
use crate::state::session::Session;
use crate::state::stats::WorkerStats;

/// A client that has come from there, over no socket.
pub(crate) fn arrival(addr: &str) -> Arrival {
    let (addr, laddr) = (addr.to_owned(), "127.0.0.1:6379".to_owned());
    Arrival { door: DoorKind::Program, addr, laddr, is_local: true, fd: -1 }
}

/// One worker and one client.
pub struct Harness {
    pub server: Arc<Server>,
    pub worker: Worker,
    pub client: Session,
    pub info: Arc<ClientInfo>,
    pub stats: Arc<WorkerStats>,
    pub(crate) local: Local,
    registry: &'static Registry,
}

impl Harness {
    /// # Errors
    /// Those of opening the store, or of the system.
    pub fn new(dir: &Path) -> Result<Harness, Box<dyn std::error::Error>> {
        Harness::with_commands(dir, &REGISTRY)
    }

    /// The same with these commands.
    pub(crate) fn with_commands(
        dir: &Path,
        registry: &'static Registry,
    ) -> Result<Harness, Box<dyn std::error::Error>> {
        Harness::heard_by(dir, registry, Vec::new())
    }

    /// The same; these hear of what changes, after those of the server's own.
    pub(crate) fn heard_by(
        dir: &Path,
        registry: &'static Registry,
        further: Vec<Arc<dyn Listener>>,
    ) -> Result<Harness, Box<dyn std::error::Error>> {
        let store = Store::open(dir, Options { checkpoint_on_drop: false, ..Options::default() })?;
        let mut config = Config::default();
        config.allow_debug();
        let worker = store.nonblocking_worker()?;
        let server = Server::new(store, config, Arc::new(NoSockets), registry.rows().len(), further)?;
        let stats = server.workers[0].stats.clone();
        let id = server.clients.new_id();
        let info = Arc::new(ClientInfo::new(id, arrival("127.0.0.1:1"), 0));
        server.clients.add(info.clone());
        Ok(Harness {
            server,
            worker,
            client: Session::new(id, true),
            info,
            local: Local::new(0, stats.clone()),
            stats,
            registry,
        })
    }

    /// Runs a command and returns its reply as it would be on the wire.
    pub fn run(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut buf = Vec::new();
        let mut ranges = Vec::new();
        for word in words {
            ranges.push(ArgRange { start: buf.len() as u32, len: word.len() as u32 });
            buf.extend_from_slice(word);
        }
        let args = Args::new(&buf, &ranges);
        let mut out = ReplyBuf::default();
        let resp3 = self.client.resp3;
        let config = self.server.config();
        let mut ctx = Ctx {
            worker: &mut self.worker,
            client: &mut self.client,
            reply: Reply { out: &mut out, resp3 },
            server: &self.server,
            stats: &self.stats,
            peer: &self.info,
            config: &config,
            local: &mut self.local,
            registry: self.registry,
        };
        match dispatch::dispatch(&mut ctx, &args) {
            Outcome::Done => {}
            Outcome::Fault(_) => ctx.reply.error(b"ERR pages are not in memory"),
            Outcome::Paused => ctx.reply.error(b"ERR paused"),
        }
        out.bytes().to_vec()
    }
}
