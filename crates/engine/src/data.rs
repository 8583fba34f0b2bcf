//! Opening the data: the page file, or the dump where that has the data.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stillframe_store::replay::{Replayed, UnreadLog};
use stillframe_store::{open_unread, Cause, DbId, Layout, OpError, OpenError, Options, Store, Worker};
use stillframe_units::redis_bytes;

use crate::config::{Settings, SnapshotFormat};
use crate::log;
use crate::persistence::{self, Load, LoadError, Loaded, Twins};
use crate::server::Server;

const REPLAY_TOLD_EVERY: Duration = Duration::from_secs(2);

/// Why the data cannot be served.
#[derive(thiserror::Error, Debug)]
pub enum DataError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{source}. There is also {dump}: to start from that instead, move the page file away")]
    OpenBesideDump { source: OpenError, dump: PathBuf },
    #[error("Fatal error loading the DB: {0}. Exiting.")]
    Load(#[from] LoadError),
    #[error(
        "The page file has {key_count} keys in databases from {database_count} on, which 'databases {database_count}' \
         would hide: start with 'databases {needed_count}' or more"
    )]
    HiddenDatabases { database_count: u32, needed_count: u32, key_count: u64 },
    #[error(
        "'{path}' is an append-only file of Redis, and the page file beside it is new: import it first (start Redis on it, BGSAVE, \
         and start here from that dump.rdb), or move it away to begin empty. With 'appendonly no' it is left alone"
    )]
    AppendOnlyFile { path: PathBuf },
    #[error(
        "{torn_byte_count} bytes at the end of the log were of a unit that had not been written to its end. Nobody has been told that it \
         was durable: start with 'aof-load-truncated yes' to cut it off"
    )]
    TornLog { torn_byte_count: u64 },
    #[error("Can't empty the page file's data before loading the dump: {0}")]
    Flush(#[source] OpError),
    #[error("Can't work on the data: {0}")]
    Worker(#[source] OpError),
}

/// A store that has been opened; its log is still to be read.
pub struct Opened {
    pub store: Store,
    pub unread: UnreadLog,
    /// The dump that has the data, if the page file has not: see [`read`].
    pub dump: Option<PathBuf>,
}

/// Opens the store in a directory as the settings say, and says in the log what there is.
///
/// # Errors
/// [`DataError`]; the directory is as it was.
pub fn open(dir: &Path, settings: &Settings) -> Result<Opened, DataError> {
    let unread = open_unread(dir, store_options(settings))
        .map_err(|error| explain_refusal(error, dir.join(&settings.dbfilename)))?;
    let store = unread.store().clone();
    log_io(&store);
    log_memory(&store, settings);
    store.damage().set_skips(settings.skips_damage);
    store.set_collection_limits(&settings.collection_limits);
    if let Some(note) = store.recovery_note() {
        log::warning(note);
    }
    check_databases(&store, settings.databases)?;
    look_for_append_only_file(&store, dir, settings)?;
    // What the log has came after the checkpoint.
    let dump = if unread.is_there() { None } else { dump_to_load(&store, dir, settings)? };
    Ok(Opened { store, unread, dump })
}

impl Opened {
    /// Whether clients have to wait until [`read`] has returned.
    pub fn is_to_be_read(&self) -> bool {
        self.dump.is_some() || self.unread.is_there() || self.store.log().options().is_some()
    }
}

/// Reads what there is beside the checkpoint into a server's store, the dump that has the data or what the log has, and begins the
/// log.
///
/// # Errors
/// [`DataError`]; what has been read by then is in memory alone.
pub fn read(server: &Server, dump: Option<&Path>, unread: UnreadLog) -> Result<Loaded, DataError> {
    if let Some(path) = dump {
        match load(server, path)? {
            Loaded::Stopped => return Ok(Loaded::Stopped),
            Loaded::Whole | Loaded::Missing => {}
        }
    }
    let (since, is_there) = (Instant::now(), unread.is_there());
    let mut told = since;
    let mut go_on = |so_far: Replayed| {
        server.loading.advance(so_far.byte_count, so_far.unit_count, 0);
        if told.elapsed() > REPLAY_TOLD_EVERY {
            told = Instant::now();
            log::notice(format!(
                "Replaying the log: {} units, {}",
                so_far.unit_count,
                redis_bytes(so_far.byte_count)
            ));
        }
        !server.is_stopping.load(Ordering::Acquire)
    };
    if !server.config().settings.log.loads_torn {
        let torn_byte_count = unread.torn_byte_count()?;
        if torn_byte_count > 0 {
            return Err(DataError::TornLog { torn_byte_count });
        }
    }
    let (store, replayed) = match unread.read(&mut go_on) {
        Err(OpenError::Stopped) => return Ok(Loaded::Stopped),
        read => read?,
    };
    if is_there {
        log_replay(&replayed, since.elapsed());
    }
    if let Some(journal) = store.log().report().journal {
        log::notice(format!("The log goes on at byte {} of its stream", journal.end));
    }
    Ok(Loaded::Whole)
}

fn log_replay(replayed: &Replayed, time: Duration) {
    log::notice(format!(
        "The log was replayed: {} units, {}, in {:.3} seconds",
        replayed.unit_count,
        redis_bytes(replayed.byte_count),
        time.as_secs_f64()
    ));
    if replayed.torn_byte_count > 0 {
        log::warning(format!(
            "{} bytes at the end of the log were of a unit that had not been written to its end: nobody has been told that it was durable",
            replayed.torn_byte_count
        ));
    }
}

/// Names append-only files of Redis beside a new page file. Nothing that is there is dropped: with `appendonly yes` they would be
/// expected to be read.
fn look_for_append_only_file(store: &Store, dir: &Path, settings: &Settings) -> Result<(), DataError> {
    if !store.is_new() {
        return Ok(());
    }
    let paths = settings.append_names.iter().map(|name| dir.join(name));
    let Some(path) = paths.into_iter().find(|path| path.exists()) else { return Ok(()) };
    if settings.log.is_on {
        return Err(DataError::AppendOnlyFile { path });
    }
    log::warning(format!(
        "{} is an append-only file of Redis and is not read: start Redis on it, BGSAVE, and start here from that dump.rdb",
        path.display()
    ));
    Ok(())
}

/// Reads the dump that has the data into the store, in place of what is there.
fn load(server: &Server, path: &Path) -> Result<Loaded, DataError> {
    let config = server.config();
    let settings = &config.settings;
    let mut worker = server.store.nonblocking_worker().map_err(DataError::Worker)?;
    if !server.store.is_new() {
        flush_all(&mut worker, settings).map_err(DataError::Flush)?;
    }
    let load = Load {
        settings,
        progress: &server.loading,
        eviction: &server.eviction,
        is_stopping: &server.is_stopping,
        twins: Twins::Refused,
        cause: Cause::Load,
        key_delay_us: &|| server.config().settings.key_load_delay_us,
    };
    Ok(persistence::load_dump(&mut worker, path, &load)?)
}

/// `maxmemory` as a bound of the data is not among them: it is decided once, before a command, and not by the store in the
/// middle of one.
pub(crate) fn store_options(settings: &Settings) -> Options {
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
        log: settings.log_options(),
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
fn check_databases(store: &Store, database_count: u32) -> Result<(), DataError> {
    let has_keys = |db: &u32| store.db_stats(DbId(*db)).key_count > 0;
    let Some(last) = (database_count..store.database_count()).rfind(has_keys) else { return Ok(()) };
    let key_count = (database_count..=last).map(|db| store.db_stats(DbId(db)).key_count).sum();
    Err(DataError::HiddenDatabases { database_count, needed_count: last + 1, key_count })
}

/// Adds what else there is to start from.
fn explain_refusal(error: OpenError, dump: PathBuf) -> DataError {
    match error {
        source @ (OpenError::PageFile(_) | OpenError::Damaged(_)) if dump.is_file() => {
            DataError::OpenBesideDump { source, dump }
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

fn flush_all(worker: &mut Worker, settings: &Settings) -> Result<(), OpError> {
    (0..settings.databases).try_for_each(|db| worker.database(DbId(db)).flush())?;
    // Those of the dump come in their place.
    worker.libraries().clear().map(drop)
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::io;

    use stillframe_store::Reason;
    use stillframe_testkit::TempDir;

    use super::*;

    #[test]
    fn a_page_file_that_cannot_be_read_is_the_cause_also_beside_a_dump() {
        let dir = TempDir::new("beside");
        let (pages, dump) = (dir.path().join("stillframe.pages"), dir.path().join("dump.rdb"));
        std::fs::write(pages, [7; 100_000]).unwrap();
        let refused = || Store::open(dir.path(), Options::default()).err().unwrap();
        let without = explain_refusal(refused(), dump.clone());
        assert!(matches!(&without, DataError::Open(OpenError::PageFile(_))), "{without:?}");
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

    #[test]
    fn what_keeps_data_from_being_served_keeps_its_cause() {
        let denied = || io::Error::from_raw_os_error(13);
        let (path, damaged) = (PathBuf::from("p"), || OpError::Damaged(Reason::of(&denied())));
        let stored = LoadError::Store { path: path.clone(), db: 0, key: "k".to_owned(), source: damaged() };
        let errors = [
            DataError::from(OpenError::Io { path: path.clone(), source: denied() }),
            DataError::from(LoadError::Io { path, source: denied() }),
            DataError::from(stored),
            DataError::Flush(damaged()),
            DataError::Worker(damaged()),
        ];
        for error in errors {
            let mut causes =
                std::iter::successors(error.source(), |cause: &&(dyn Error + 'static)| (*cause).source());
            let cause = causes.find_map(|cause| cause.downcast_ref::<io::Error>());
            assert_eq!(cause.and_then(io::Error::raw_os_error), Some(13), "{error:?}");
        }
    }
}
