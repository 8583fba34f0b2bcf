//! Starting and ending a server.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use stillframe_engine::chores;
use stillframe_engine::commands::REGISTRY;
use stillframe_engine::config::Config;
use stillframe_engine::data::{self, DataError, Opened};
use stillframe_engine::persistence::{self, Loaded};
use stillframe_engine::server::Server;
use stillframe_engine::{log, logging};
use stillframe_store::replay::UnreadLog;

use crate::desk::Desk;
use crate::event_loop::EventLoop;
use crate::net::descriptors;
use crate::net::listen::{self, Doors, ListenError};

/// Why the server did not start.
#[derive(thiserror::Error, Debug)]
pub enum StartError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Descriptors(#[from] descriptors::NotEnough),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error("The log cannot be written: {0}")]
    LogFailed(String),
    #[error("Can't start a thread or a poll descriptor: {0}")]
    System(#[from] std::io::Error),
}

impl StartError {
    /// The TCP port that could not be listened on, if that was it.
    pub fn refused_port(&self) -> Option<u16> {
        match self {
            StartError::Listen(ListenError::Tcp { port, .. }) => Some(*port),
            _ => None,
        }
    }
}

/// A server that runs in threads of this process.
pub struct Running {
    pub server: Arc<Server>,
    /// What is to be read before clients are served.
    opened: Option<(Option<PathBuf>, UnreadLog)>,
    failure: Arc<Mutex<Option<StartError>>>,
    threads: Vec<JoinHandle<()>>,
    files: Vec<PathBuf>,
}

impl Running {
    /// Starts all threads; when this returns, clients can connect. If there is data in a dump or in the log, they are told to wait for
    /// it until [`Running::load`] has read it.
    ///
    /// # Errors
    /// The first thing that is in the way; nothing runs then.
    pub fn start(mut config: Config) -> Result<Running, StartError> {
        let maxclients = config.settings.maxclients;
        let allowed = descriptors::make_room_at_start(maxclients, config.settings.workers)?;
        if allowed < maxclients {
            config.reduce_maxclients(allowed as u64);
        }
        let settings = &config.settings;
        let dir = match &settings.dir {
            Some(dir) => dir.clone(),
            None => std::env::current_dir()?,
        };
        let doors = listen::open(settings)?;
        seed_draws(settings.counted_seed, 0);
        let opened = data::open(&dir, settings)?;
        let is_to_be_read = opened.is_to_be_read();
        let Opened { store, unread, dump } = opened;
        let files = config.settings.unixsocket.iter().cloned().collect();
        let doors = Arc::new(Doors::new(doors)?);
        let server = Server::new(store, config, doors.clone(), REGISTRY.rows().len(), Vec::new())?;
        logging::watch(&server);
        if is_to_be_read {
            server.loading.begin();
        }
        let threads = start_threads(&server, &doors)?;
        let opened = is_to_be_read.then_some((dump, unread));
        Ok(Running { server, opened, failure: Arc::default(), threads, files })
    }

    /// Reads what the checkpoint has not, if there is something, in a thread of its own, then lets clients at the data and calls
    /// `on_ready`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn load(&mut self, on_ready: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let Some((dump, unread)) = self.opened.take() else {
            on_ready();
            return Ok(());
        };
        let (server, failure) = (self.server.clone(), self.failure.clone());
        let run = move || match data::read(&server, dump.as_deref(), unread) {
            Ok(Loaded::Whole | Loaded::Missing) => {
                logging::begin(&server);
                server.end_loading();
                on_ready();
            }
            Ok(Loaded::Stopped) => {}
            Err(error) => {
                *failure.lock() = Some(error.into());
                server.stop();
            }
        };
        std::thread::Builder::new().name("loader".into()).spawn(run).map(drop)
    }

    /// Waits until the server has been told to stop, and for the threads that serve; not for a dump that is being read,
    /// which has changed nothing on disk: its disk may hang.
    ///
    /// # Errors
    /// Why the data could not be loaded.
    pub fn wait(mut self) -> Result<(), StartError> {
        self.server.wait_for_stop();
        for thread in self.threads {
            while !thread.is_finished() && !self.server.busy.holds_up_end() {
                std::thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                // A worker that has panicked has said so; there is nothing to add.
                let _ = thread.join();
            }
        }
        if let Err(error) = self.server.store.log().close() {
            log::warning(format!("What the log has not made durable is lost: {error}"));
        }
        self.files.push(persistence::temporary_path(self.server.store.dir()));
        for file in self.files {
            let _ = std::fs::remove_file(file);
        }
        let fatal = self.server.data_log.fatal().map(StartError::LogFailed);
        self.failure.lock().take().or(fatal).map_or(Ok(()), Err)
    }
}

fn start_threads(server: &Arc<Server>, doors: &Arc<Doors>) -> std::io::Result<Vec<JoinHandle<()>>> {
    let mut threads = Vec::new();
    let desk = Arc::new(Desk::new(server, doors)?);
    for index in 0..server.worker_count {
        match start_worker(server.clone(), doors.clone(), desk.clone(), index) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                server.stop();
                threads.into_iter().for_each(|thread| drop(thread.join()));
                return Err(error);
            }
        }
    }
    // The saver is not joined: the end does not wait for a save that nobody asked to be the last, and a save that is cut short
    // leaves the one before. The scrubber is not joined either: it only reads.
    drop(chores::start_threads(server)?);
    Ok(threads)
}

/// What this thread draws at random, the `number`th of those that do, follows from the seed if there is one.
fn seed_draws(seed: Option<u64>, number: u64) {
    seed.into_iter().for_each(|seed| fastrand::seed(seed.wrapping_add(number)));
}

/// Starts a worker's thread and waits until its loop is set up.
fn start_worker(
    server: Arc<Server>,
    doors: Arc<Doors>,
    desk: Arc<Desk>,
    index: usize,
) -> std::io::Result<JoinHandle<()>> {
    let (tell, told) = std::sync::mpsc::channel();
    let run = move || {
        seed_draws(server.config().settings.counted_seed, index as u64 + 1);
        match EventLoop::new(server, doors, desk, index, &REGISTRY) {
            Ok(event_loop) => {
                drop(tell.send(Ok(())));
                event_loop.run();
            }
            Err(error) => drop(tell.send(Err(error))),
        }
    };
    let thread = std::thread::Builder::new().name(format!("worker-{index}")).spawn(run)?;
    match told.recv() {
        Ok(result) => result.map(|()| thread),
        Err(_) => Err(std::io::Error::other("a worker ended before it had begun")),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::io;

    use stillframe_store::OpenError;

    use super::*;

    #[test]
    fn what_keeps_a_server_from_starting_keeps_its_cause() {
        let denied = || io::Error::from_raw_os_error(13);
        let path = PathBuf::from("p");
        let opened = OpenError::Io { path: path.clone(), source: denied() };
        let errors = [
            StartError::from(ListenError::Unix { path, reason: denied() }),
            StartError::from(DataError::from(opened)),
            StartError::from(denied()),
        ];
        for error in errors {
            let mut causes =
                std::iter::successors(error.source(), |cause: &&(dyn Error + 'static)| (*cause).source());
            let cause = causes.find_map(|cause| cause.downcast_ref::<io::Error>());
            assert_eq!(cause.and_then(io::Error::raw_os_error), Some(13), "{error:?}");
        }
    }
}
