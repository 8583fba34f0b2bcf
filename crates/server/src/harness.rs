//! A server without sockets, for tests: commands in, replies out.

use std::path::Path;
use std::sync::Arc;

use stillframe_store::{Options, Store, Worker};

use crate::clients::ClientInfo;
use crate::command::{ArgRange, Args};
use crate::ctx::Ctx;
use crate::dispatch::{self, Outcome};
use crate::reply::Reply;
use crate::server::Server;
use crate::session::Session;
use crate::stats::WorkerStats;
use crate::watch::WatchTable;

/// One worker and one client.
pub struct Harness {
    pub server: Arc<Server>,
    pub worker: Worker,
    pub client: Session,
    pub info: ClientInfo,
    pub stats: WorkerStats,
}

impl Harness {
    /// # Errors
    /// Those of opening the store.
    pub fn new(dir: &Path) -> Result<Harness, stillframe_store::OpenError> {
        let store = Store::open(dir, Options::default())?;
        let worker = store.worker();
        let server = Arc::new(Server {
            store,
            watches: WatchTable::default(),
            worker_count: 1,
            database_count: Options::default().database_count,
            active_expire: std::sync::atomic::AtomicBool::new(true),
        });
        Ok(Harness {
            server,
            worker,
            client: Session::new(1, true),
            info: ClientInfo::default(),
            stats: WorkerStats::default(),
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
        let mut out = Vec::new();
        let resp3 = self.client.resp3;
        let mut ctx = Ctx {
            worker: &mut self.worker,
            client: &mut self.client,
            reply: Reply { out: &mut out, resp3 },
            server: &self.server,
            stats: &self.stats,
            peer: &self.info,
        };
        if let Outcome::Fault(_) = dispatch::dispatch(&mut ctx, &args) {
            ctx.reply.error(b"ERR pages are not in memory");
        }
        out
    }
}
