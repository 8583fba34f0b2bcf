//! Commands without a server: a program opens the data, and runs commands as a client of its own. There is no socket.
//!
//! ```text
//!   program's threads                     threads of the engine, one a worker
//!   Client::execute ── bytes ──▶ desk ──▶ parse, dispatch, reply ── bytes ──▶ Client
//!   Client::wait    ◀────────── messages, replies of commands that have waited
//! ```

mod client;
mod desk;
mod executor;
mod guest;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::thread::JoinHandle;

use crate::chores;
use crate::commands::REGISTRY;
use crate::config::Config;
use crate::data::{self, DataError, Opened};
use crate::log;
use crate::logging;
use crate::server::Server;
use crate::sockets::{NoSockets, Sockets};
use crate::state::busy::{KillError, Kind};
use crate::state::clients::{Arrival, ClientInfo};
use crate::state::door::DoorKind;
use crate::state::token::Token;

pub use client::Client;
pub use desk::Closed;
use desk::{Desk, Request};
use executor::Executor;

/// Why an engine did not start.
#[derive(thiserror::Error, Debug)]
pub enum EngineError {
    #[error(transparent)]
    Data(#[from] DataError),
    #[error("Can't start a thread of the engine: {0}")]
    System(#[from] std::io::Error),
}

/// Runs commands on the data of a directory, for clients that are the program's own. Any thread may use it.
///
/// It has a thread for each worker (`workers` of the settings), and two that save and scrub. Whatever a server with the same
/// settings does beside commands, it does: keys expire, save points save, memory stays within its bound. Its log goes where the
/// server's does, to the standard output or `logfile`, and is the process's.
///
/// What has not been saved, and is not in the log (`appendonly`), is lost when the engine is dropped, as with a server that is stopped:
/// see `SAVE`.
///
/// ```
/// use stillframe_engine::{Config, Engine};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = stillframe_testkit::TempDir::new("engine");
/// # let dir = dir.path();
/// let engine = Engine::open(dir, Config::default())?;
/// let mut client = engine.connect()?;
/// assert_eq!(client.call(&["SET", "greeting", "hello"])?, b"+OK\r\n");
/// // As on a connection: any number of commands, replies in their order.
/// let replies = client.execute(b"APPEND greeting world\r\nGET greeting\r\nLPOP greeting\r\n")?;
/// let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
/// assert_eq!(replies, format!(":10\r\n$10\r\nhelloworld\r\n{wrong_type}").as_bytes());
/// assert_eq!(client.call(&["SAVE"])?, b"+OK\r\n");
/// # Ok(())
/// # }
/// ```
pub struct Engine {
    server: Arc<Server>,
    desks: Vec<Arc<Desk>>,
    next_worker: AtomicUsize,
    threads: Vec<JoinHandle<()>>,
}

impl Engine {
    /// Opens the data of a directory, which is there, with the settings of a server, and loads the dump if that has the data.
    /// Settings of sockets have no effect.
    ///
    /// # Errors
    /// [`EngineError`]; nothing runs then.
    pub fn open(dir: &Path, config: Config) -> Result<Engine, EngineError> {
        Engine::open_with(dir, config, Arc::new(NoSockets))
    }

    /// The same for a program that has sockets of its own, and lets commands see and change them.
    ///
    /// # Errors
    /// [`EngineError`]; nothing runs then.
    pub fn open_with(
        dir: &Path,
        mut config: Config,
        sockets: Arc<dyn Sockets>,
    ) -> Result<Engine, EngineError> {
        let dir = std::path::absolute(dir)?;
        config.set_dir(&dir);
        log::set_level(config.settings.loglevel);
        if let Some(path) = &config.settings.logfile {
            log::set_file(path)?;
        }
        let Opened { store, unread, dump } = data::open(&dir, &config.settings)?;
        let server = Server::new(store, config, sockets, REGISTRY.rows().len(), Vec::new())?;
        logging::watch(&server);
        server.loading.begin();
        data::read(&server, dump.as_deref(), unread)?;
        logging::begin(&server);
        server.end_loading();
        let mut engine =
            Engine { server, desks: Vec::new(), next_worker: AtomicUsize::new(0), threads: Vec::new() };
        // An engine that is dropped ends the threads that it has by then.
        for index in 0..engine.server.worker_count {
            engine.start_worker(index)?;
        }
        engine.threads.extend(chores::start_threads(&engine.server)?);
        Ok(engine)
    }

    /// Starts a worker's thread and waits until that is set up.
    fn start_worker(&mut self, index: usize) -> std::io::Result<()> {
        let desk = Arc::new(Desk::new(self.server.workers[index].mailbox.clone()));
        let (tell, told) = mpsc::channel();
        let (server, at) = (self.server.clone(), desk.clone());
        let run = move || match Executor::new(server, at, index, &REGISTRY) {
            Ok(executor) => {
                drop(tell.send(Ok(())));
                executor.run();
            }
            Err(error) => drop(tell.send(Err(error))),
        };
        self.threads.push(std::thread::Builder::new().name(format!("worker-{index}")).spawn(run)?);
        self.desks.push(desk);
        told.recv().unwrap_or_else(|_| Err(std::io::Error::other("a worker ended before it had begun")))
    }

    /// Ends the script that has been running for longer than `busy-reply-threshold`, as `SCRIPT KILL` does. Its worker serves nobody
    /// meanwhile, so that no client could ask for that.
    ///
    /// # Errors
    /// None runs for so long, or it has changed something.
    pub fn kill_script(&self) -> Result<(), KillError> {
        self.server.busy.kill(Kind::Script)
    }

    /// A new client, with a session of its own: database 0, RESP2, no transaction.
    ///
    /// # Errors
    /// [`Closed`]: a command has ended the engine (`SHUTDOWN`).
    pub fn connect(&self) -> Result<Client, Closed> {
        let worker = self.next_worker.fetch_add(1, Ordering::Relaxed) % self.desks.len();
        let id = self.server.clients.new_id();
        let name = format!("program:{id}");
        let arrival =
            Arrival { door: DoorKind::Program, addr: name.clone(), laddr: name, is_local: true, fd: -1 };
        let info = Arc::new(ClientInfo::new(id, arrival, worker));
        info.set_token(Token(id));
        let (giver, given) = mpsc::channel();
        let desk = self.desks[worker].clone();
        desk.ask(Request::Connect(info.clone(), giver))?;
        Ok(Client::new(info, desk, given))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.server.stop();
        for thread in self.threads.drain(..) {
            // A thread that has panicked has said so; there is nothing to add.
            let _ = thread.join();
        }
        // Before the server goes, whom the log's threads know.
        if let Err(error) = self.server.store.log().close() {
            log::warning(format!("What the log has not made durable is lost: {error}"));
        }
    }
}
