//! Starting and ending a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use stillframe_store::{sched, DbId, Layout, OpError, OpenError, Options, Store, Worker};
use stillframe_units::redis_bytes;
use stillframe_engine::commands::REGISTRY;
use stillframe_engine::config::{Config, Settings, SnapshotFormat};
use stillframe_engine::log;
use stillframe_engine::persistence::{self, Load, LoadError, Loaded, Twins};
use stillframe_engine::scrub;
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
    Open(#[from] OpenError),
    #[error("{source}. There is also {dump}: to start from that instead, move the page file away")]
    OpenBesideDump { source: OpenError, dump: PathBuf },
    #[error("Fatal error loading the DB: {0}. Exiting.")]
    Load(#[from] LoadError),
    #[error("Can't start a thread or a poll descriptor: {0}")]
    System(#[from] std::io::Error),
    #[error(
        "The page file has {key_count} keys in databases from {database_count} on, which 'databases {database_count}' \
         would hide: start with 'databases {needed_count}' or more"
    )]
    HiddenDatabases { database_count: u32, needed_count: u32, key_count: u64 },
    #[error("Can't empty the page file's data before loading the dump: {0}")]
    Flush(#[source] OpError),
    #[error("Can't work on the data: {0}")]
    Worker(#[source] OpError),
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
        let store = Store::open(&dir, store_options(settings))
            .map_err(|error| explain_refusal(error, dir.join(&settings.dbfilename)))?;
        log_io(&store);
        log_memory(&store, settings);
        store.damage().set_skips(settings.skips_damage);
        store.set_collection_limits(&settings.collection_limits);
        if let Some(note) = store.recovery_note() {
            log::warning(note);
        }
        check_databases(&store, settings.databases)?;
        let dump = dump_to_load(&store, &dir, settings)?;
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
        let run = move || match load_into(&server, &path) {
            Ok(Loaded::Whole | Loaded::Missing) => {
                server.end_loading();
                on_ready();
            }
            Ok(Loaded::Stopped) => {}
            Err(error) => {
                *failure.lock() = Some(error);
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

/// `maxmemory` as a bound of the data is not among them: it is decided once, before a command, and not by the store in the
/// middle of one.
fn store_options(settings: &Settings) -> Options {
    Options {
        database_count: settings.databases,
        tiered_bytes: settings.tiered_bytes(),
        snapshot_kind: settings.snapshot_kind,
        pool_backend: settings.pool_backend(),
        snapshot_memory_bytes: settings.snapshot_memory_bytes,
        huge_pages: settings.huge_pages,
        io: settings.io,
        worker_count: settings.workers,
        layout: if settings.counted_seed.is_some() { Layout::COUNTED } else { Layout::FULL },
        // As in Redis a save waits for a command that takes long.
        cut_patience: None,
        accept_loss_after_checkpoint: settings.accept_loss_after_checkpoint,
        checkpoint_on_drop: false,
        ..Options::default()
    }
}

/// Says what reads and writes the page file.
fn log_io(store: &Store) {
    let Some(io) = store.io_report() else { return };
    let because = |note: &str| if note.is_empty() { String::new() } else { format!(" ({note})") };
    let engine_note = because(io.engine_note.as_deref().unwrap_or_default());
    let cache = if io.is_direct { "around" } else { "through" };
    let direct_note = because(io.direct_note.unwrap_or_default());
    let buffers = match (&io.buffers_note, io.has_registered_buffers) {
        (Some(note), _) => format!("; its buffers are not registered ({note}). Raising 'ulimit -l' may help"),
        (None, true) => "; its buffers are registered".to_owned(),
        (None, false) => String::new(),
    };
    log::notice(format!(
        "The page file is read and written by {}{engine_note}, {cache} the page cache{direct_note}{buffers}",
        io.engine
    ));
}

/// Says how `maxmemory` is divided, if data may be larger than that.
fn log_memory(store: &Store, settings: &Settings) {
    let Some(shares) = store.memory_shares() else { return };
    let of_wanted = match settings.snapshot_memory_bytes {
        wanted if wanted > shares.snapshot_bytes => {
            format!(" (an eighth; 'snapshot-memory' is {})", redis_bytes(wanted))
        }
        _ => String::new(),
    };
    log::notice(format!(
        "Of maxmemory, {}, pages of data get {}, snapshots {}{of_wanted}, what is on its way to and from the page file {}, what \
         is known of all pages {}, which grows with the data; what the process takes without data is not part of it",
        redis_bytes(shares.all_bytes),
        redis_bytes(shares.page_bytes),
        redis_bytes(shares.snapshot_bytes),
        redis_bytes(shares.staging_bytes),
        redis_bytes(shares.side_bytes),
    ));
}

/// Refuses to hide keys: with fewer databases than were saved nobody would find them, and every dump would leave them out.
fn check_databases(store: &Store, database_count: u32) -> Result<(), StartError> {
    let has_keys = |db: &u32| store.db_stats(DbId(*db)).key_count > 0;
    let Some(last) = (database_count..store.database_count()).rfind(has_keys) else { return Ok(()) };
    let key_count = (database_count..=last).map(|db| store.db_stats(DbId(db)).key_count).sum();
    Err(StartError::HiddenDatabases { database_count, needed_count: last + 1, key_count })
}

/// Adds what else there is to start from.
fn explain_refusal(error: OpenError, dump: PathBuf) -> StartError {
    match error {
        source @ (OpenError::PageFile(_) | OpenError::Damaged(_)) if dump.is_file() => {
            StartError::OpenBesideDump { source, dump }
        }
        other => other.into(),
    }
}

/// The dump, where it is the data: where it is known to be newer than the page file's checkpoint, as long as there is no
/// checkpoint, and with `snapshot-format rdb` unless it is known to be older. Says which of the two is served where both
/// are there.
fn dump_to_load(store: &Store, dir: &Path, settings: &Settings) -> Result<Option<PathBuf>, LoadError> {
    let path = dir.join(&settings.dbfilename);
    let file = match std::fs::metadata(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if !store.is_new() && settings.snapshot_format == SnapshotFormat::Rdb {
                let shown = path.display();
                log::notice(format!("Serving the last checkpoint of the page file; there is no {shown}"));
            }
            return Ok(None);
        }
        Err(source) => return Err(LoadError::Io { path, source }),
    };
    if store.is_new() {
        return Ok(Some(path));
    }
    let is_wanted = settings.snapshot_format == SnapshotFormat::Rdb;
    // A dump that cannot be read is an error if it is loaded.
    let cut = if file.is_file() { persistence::cut_of(&path).ok().flatten() } else { None };
    let (is_served, why) = match cut.and_then(|cut| store.is_older_than(cut)) {
        Some(true) => (true, "the dump was saved after it"),
        Some(false) if cut.is_some_and(|cut| cut.change_count > 0) => (false, "it was saved after the dump"),
        _ => (is_wanted, "see 'snapshot-format'"),
    };
    let shown = path.display();
    match is_served {
        true => log::notice(format!("Serving {shown}; the page file's checkpoint is not used ({why})")),
        false => log::notice(format!(
            "Serving the last checkpoint of the page file; {shown} is not loaded ({why})"
        )),
    }
    Ok(is_served.then_some(path))
}

fn load_into(server: &Server, path: &Path) -> Result<Loaded, StartError> {
    let config = server.config();
    let settings = &config.settings;
    let mut worker = server.store.nonblocking_worker().map_err(StartError::Worker)?;
    if !server.store.is_new() {
        flush_all(&mut worker, settings).map_err(StartError::Flush)?;
    }
    let load = Load {
        settings,
        progress: &server.loading,
        eviction: &server.eviction,
        is_stopping: &server.is_stopping,
        twins: Twins::Refused,
        key_delay_us: &|| server.config().settings.key_load_delay_us,
    };
    Ok(persistence::load_dump(&mut worker, path, &load)?)
}

fn flush_all(worker: &mut Worker, settings: &Settings) -> Result<(), OpError> {
    (0..settings.databases).try_for_each(|db| worker.database(DbId(db)).flush())
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
    // It is not waited for: the end does not wait for a save that nobody asked to be the last, and a save that
    // is cut short leaves the one before it.
    let saver = server.clone();
    std::thread::Builder::new().name("saver".into()).spawn(move || {
        sched::enroll("saver");
        persistence::run(&saver);
    })?;
    // Nor is what reads only.
    let scrubber = server.clone();
    std::thread::Builder::new().name("scrubber".into()).spawn(move || {
        sched::enroll("scrubber");
        scrub::run(&*scrubber, &scrubber.scrubber);
    })?;
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

    use stillframe_testkit::TempDir;

    use super::*;

    #[test]
    fn a_page_file_that_cannot_be_read_is_the_cause_also_beside_a_dump() {
        let dir = TempDir::new("beside");
        let (pages, dump) = (dir.path().join("stillframe.pages"), dir.path().join("dump.rdb"));
        std::fs::write(pages, [7; 100_000]).unwrap();
        let refused = || Store::open(dir.path(), Options::default()).err().unwrap();
        let without = explain_refusal(refused(), dump.clone());
        assert!(matches!(&without, StartError::Open(OpenError::PageFile(_))), "{without:?}");
        std::fs::write(&dump, "REDIS").unwrap();
        let beside = explain_refusal(refused(), dump.clone());
        let shown = dump.display();
        assert_eq!(
            beside.to_string(),
            format!("{without}. There is also {shown}: to start from that instead, move the page file away")
        );
        let cause = beside.source().and_then(|cause| cause.downcast_ref());
        assert!(matches!(cause, Some(OpenError::PageFile(_))), "{beside:?}");
    }
}
