//! Starting and ending a server.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use stillframe_engine::chores;
use stillframe_engine::commands::REGISTRY;
use stillframe_engine::config::Config;
use stillframe_engine::data::{self, DataError, Opened};
use stillframe_engine::persistence::{self, Loaded};
use stillframe_engine::server::Server;

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
    /// The dump that has the data, if it is not in the page file.
    dump: Option<PathBuf>,
    failure: Arc<Mutex<Option<StartError>>>,
    threads: Vec<JoinHandle<()>>,
    files: Vec<PathBuf>,
}

impl Running {
    /// Starts all threads; when this returns, clients can connect. If the data is in a dump, they are told to wait for
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
        let Opened { store, dump } = data::open(&dir, settings)?;
        let files = config.settings.unixsocket.iter().cloned().collect();
        let doors = Arc::new(Doors::new(doors)?);
        let server = Server::new(store, config, doors.clone(), REGISTRY.rows().len(), Vec::new())?;
        if dump.is_some() {
            server.loading.begin();
        }
        let threads = start_threads(&server, &doors)?;
        Ok(Running { server, dump, failure: Arc::default(), threads, files })
    }

    /// Reads the dump that has the data, if one does, in a thread of its own, then lets clients at it and calls
    /// `on_ready`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn load(&self, on_ready: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let Some(path) = self.dump.clone() else {
            on_ready();
            return Ok(());
        };
        let (server, failure) = (self.server.clone(), self.failure.clone());
        let run = move || match data::load(&server, &path) {
            Ok(Loaded::Whole | Loaded::Missing) => {
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
            // A worker that has panicked has said so; there is nothing to add.
            let _ = thread.join();
        }
        self.files.push(persistence::temporary_path(self.server.store.dir()));
        for file in self.files {
            let _ = std::fs::remove_file(file);
        }
        self.failure.lock().take().map_or(Ok(()), Err)
    }
}

fn start_threads(server: &Arc<Server>, doors: &Arc<Doors>) -> std::io::Result<Vec<JoinHandle<()>>> {
    let mut threads = Vec::new();
    for index in 0..server.worker_count {
        match start_worker(server.clone(), doors.clone(), index) {
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
fn start_worker(server: Arc<Server>, doors: Arc<Doors>, index: usize) -> std::io::Result<JoinHandle<()>> {
    let (tell, told) = std::sync::mpsc::channel();
    let run = move || {
        seed_draws(server.config().settings.counted_seed, index as u64 + 1);
        match EventLoop::new(server, doors, index, &REGISTRY) {
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
