//! Starting and ending a server.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use stillframe_store::{DbId, OpenError, Options, SnapshotKind, Store, Worker};

use crate::config::{Config, Settings, SnapshotFormat};
use crate::event_loop::EventLoop;
use crate::listen::{self, ListenError, Listener};
use crate::log;
use crate::persistence::{self, LoadError};
use crate::server::Server;

/// Descriptors that are not clients: files, listeners, epoll, the store's.
const RESERVED_DESCRIPTORS: u64 = 64;

/// Why the server did not start.
#[derive(thiserror::Error, Debug)]
pub enum StartError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("Fatal error loading the DB: {0}. Exiting.")]
    Load(#[from] LoadError),
    #[error("Can't start a thread or a poll descriptor: {0}")]
    System(#[from] std::io::Error),
    #[error("Can't empty the page file's data before loading the dump: {0}")]
    Flush(stillframe_store::OpError),
}

/// A server that runs in threads of this process.
pub struct Running {
    pub server: Arc<Server>,
    threads: Vec<JoinHandle<()>>,
    files: Vec<PathBuf>,
}

impl Running {
    /// Starts all threads; when this returns, clients can connect.
    ///
    /// # Errors
    /// The first thing that is in the way; nothing runs then.
    pub fn start(mut config: Config) -> Result<Running, StartError> {
        let settings = &config.settings;
        let dir = match &settings.dir {
            Some(dir) => dir.clone(),
            None => std::env::current_dir()?,
        };
        let listeners = listen::open(settings)?;
        let store = Store::open(&dir, store_options(settings))?;
        if let Some(note) = store.recovery_note() {
            log::warning(note);
        }
        load(&store, &dir, settings)?;
        raise_descriptor_limit(&mut config);
        let port = listeners.iter().find_map(Listener::tcp_port);
        let files = config.settings.unixsocket.iter().cloned().collect();
        let server = Server::new(store, config)?;
        server.tcp_port.store(port.map_or(0, usize::from), Ordering::Relaxed);
        let threads = start_threads(&server, listeners)?;
        Ok(Running { server, threads, files })
    }

    /// Waits until the server has been told to stop, and for its threads.
    pub fn wait(mut self) {
        self.server.wait_for_stop();
        for thread in self.threads {
            // A worker that has panicked has said so; there is nothing to add.
            let _ = thread.join();
        }
        self.files.push(persistence::temporary_path(self.server.store.dir()));
        for file in self.files {
            let _ = std::fs::remove_file(file);
        }
    }
}

fn store_options(settings: &Settings) -> Options {
    Options {
        database_count: settings.databases,
        maxmemory_bytes: settings.maxmemory_bytes,
        snapshot_kind: if settings.is_fork_snapshotter { SnapshotKind::Fork } else { SnapshotKind::Epoch },
        snapshot_memory_bytes: settings.snapshot_memory_bytes,
        huge_pages: settings.huge_pages,
        worker_count: settings.workers,
        ..Options::default()
    }
}

/// Loads `dump.rdb` where it is the data: with `snapshot-format rdb`, or as long as there is no checkpoint.
fn load(store: &Store, dir: &Path, settings: &Settings) -> Result<(), StartError> {
    let path = dir.join(&settings.dbfilename);
    let has_checkpoint = !store.is_new();
    if has_checkpoint && settings.snapshot_format == SnapshotFormat::Pages {
        if path.exists() {
            log::notice(format!(
                "Serving the last checkpoint of the page file; {} is not loaded (see 'snapshot-format')",
                path.display()
            ));
        }
        return Ok(());
    }
    if !path.exists() {
        return Ok(());
    }
    let mut worker = store.worker();
    if has_checkpoint {
        log::notice(format!("Serving {}; the page file's checkpoint is not used", path.display()));
        flush_all(&mut worker, settings).map_err(StartError::Flush)?;
    }
    persistence::load_dump(&mut worker, &path, settings)?;
    Ok(())
}

fn flush_all(worker: &mut Worker, settings: &Settings) -> Result<(), stillframe_store::OpError> {
    (0..settings.databases).try_for_each(|db| worker.flush_db(DbId(db)))
}

fn start_threads(server: &Arc<Server>, listeners: Vec<Listener>) -> std::io::Result<Vec<JoinHandle<()>>> {
    let mut threads = Vec::new();
    let mut listeners = Some(listeners);
    for index in 0..server.worker_count {
        let listeners = listeners.take().unwrap_or_default();
        match start_worker(server.clone(), index, listeners) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                server.stop();
                threads.into_iter().for_each(|thread| drop(thread.join()));
                return Err(error);
            }
        }
    }
    // It is not waited for: the end does not wait for a save that nobody asked to be the last, and a save that
    // is cut short leaves the one before it.
    let saver = server.clone();
    std::thread::Builder::new().name("saver".into()).spawn(move || persistence::run(&saver))?;
    Ok(threads)
}

/// Starts a worker's thread and waits until its loop is set up.
fn start_worker(
    server: Arc<Server>,
    index: usize,
    listeners: Vec<Listener>,
) -> std::io::Result<JoinHandle<()>> {
    let (tell, told) = std::sync::mpsc::channel();
    let run = move || match EventLoop::new(server, index, listeners) {
        Ok(event_loop) => {
            drop(tell.send(Ok(())));
            event_loop.run();
        }
        Err(error) => drop(tell.send(Err(error))),
    };
    let thread = std::thread::Builder::new().name(format!("worker-{index}")).spawn(run)?;
    match told.recv() {
        Ok(result) => result.map(|()| thread),
        Err(_) => Err(std::io::Error::other("a worker ended before it had begun")),
    }
}

/// Raises the limit of open files to what `maxclients` needs, or lowers `maxclients` to what is allowed.
fn raise_descriptor_limit(config: &mut Config) {
    let maxclients = config.settings.maxclients as u64;
    let wanted = maxclients + RESERVED_DESCRIPTORS;
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|c| *c < wanted) else { return };
    let allowed = limit.maximum.map_or(wanted, |max| max.min(wanted));
    let raised = setrlimit(
        Resource::Nofile,
        Rlimit { current: Some(wanted), maximum: limit.maximum.map(|m| m.max(wanted)) },
    )
    .or_else(|_| setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), ..limit }));
    let present = getrlimit(Resource::Nofile).current.unwrap_or(wanted);
    if raised.is_ok() && present >= wanted {
        log::notice(format!(
            "Increased maximum number of open files to {wanted} (it was originally set to {current})."
        ));
        return;
    }
    let reduced = present.saturating_sub(RESERVED_DESCRIPTORS).max(1);
    config.reduce_maxclients(reduced);
    log::warning(format!(
        "Current maximum open files is {present}. maxclients has been reduced to {reduced} to compensate for low \
         ulimit. If you need higher maxclients increase 'ulimit -n'."
    ));
}
