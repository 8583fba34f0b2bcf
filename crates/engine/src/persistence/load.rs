//! Loading a dump: `dump.rdb` at the start, or whatever else gives the bytes of one.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use stillframe_store::rdb::{
    CollectionKind, Cut, Entry, KeyMeta, Next, OnUnsupported, RdbString, RdbValue, ReadError, Reader,
    ReaderOptions,
};
use stillframe_store::{
    library_name, Access, Cause, DbId, Deadline, Fault, Incoming, NewValue, OpError, Worker,
};

use crate::clock::unix_ms;
use crate::config::Settings;
use crate::eviction::Eviction;
use crate::log;
use crate::persistence::delay;
use crate::state::elements::Batch;
use crate::state::loading::Loading;
use crate::text::number;

/// Values up to this length are held while they are read; longer ones go to their pages as they come.
const HELD_BYTES: u64 = 256 << 10;
/// Bytes of such a value that are put in their place between two looks at the barrier.
const STEP_BYTES: usize = 256 << 10;

/// Which state of a store a dump holds, if it says so.
///
/// # Errors
/// It cannot be read, or is none.
pub fn cut_of(path: &Path) -> Result<Option<Cut>, LoadError> {
    let file = File::open(path).map_err(|source| LoadError::Io { path: path.into(), source })?;
    let options = ReaderOptions { file_name: path.display().to_string(), ..ReaderOptions::default() };
    Ok(Reader::new(file, options).into_cut()?)
}

/// Why a dump could not be loaded.
#[derive(thiserror::Error, Debug)]
pub enum LoadError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("RDB has duplicated key '{key}' in DB {db}: {path}")]
    Twin { path: PathBuf, db: u32, key: String },
    #[error("{path}: storing key {key:?} of database {db}: {source}")]
    Store { path: PathBuf, db: u32, key: String, source: OpError },
    #[error("{path}: Library '{name}' already exists: the dump has two function libraries of this name")]
    LibraryTwin { path: PathBuf, name: String },
    #[error("{path}: storing a function library: {source}")]
    Library { path: PathBuf, source: OpError },
}

/// Progress of a load is logged so often.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Keys that are loaded between two looks at whether there is room for what is known of their accesses.
const KEYS_PER_SETTLING: u64 = 1024;

/// What became of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    Whole,
    /// There is no such file.
    Missing,
    /// The server was told to stop.
    Stopped,
}

/// What becomes of a key of a dump that is there already: it comes twice, or the store was not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twins {
    /// The dump is refused, as in Redis: which of the two was meant nobody knows.
    Refused,
    /// The one in the dump takes the place of the other.
    Replace,
}

/// What a load works with.
pub struct Load<'a> {
    pub settings: &'a Settings,
    pub progress: &'a Loading,
    pub eviction: &'a Eviction,
    pub is_stopping: &'a AtomicBool,
    pub twins: Twins,
    /// [`Cause::Load`] unless what is loaded changes data that the log of changes has.
    pub cause: Cause,
    /// How many microseconds it rests after a key, as of now; below zero, one once in so many keys.
    pub key_delay_us: &'a dyn Fn() -> i32,
}

/// Loads a dump into a store, if the file exists, as long as nobody wants to stop. Keys that have expired are left out, and so
/// are fields of hashes. Function libraries come in with the keys.
///
/// # Errors
/// The first thing that cannot be read or stored, with its place.
pub fn load_dump(worker: &mut Worker, path: &Path, load: &Load<'_>) -> Result<Loaded, LoadError> {
    match File::open(path) {
        Ok(file) => {
            load.progress.open(file.metadata().map_or(0, |m| m.len()));
            load_from(worker, file, path, load)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Loaded::Missing),
        Err(source) => Err(LoadError::Io { path: path.into(), source }),
    }
}

/// The same of a dump that `dump` gives the bytes of; errors and the log call it `path`.
///
/// # Errors
/// As of [`load_dump`].
pub(super) fn load_from(
    worker: &mut Worker,
    dump: impl Read,
    path: &Path,
    load: &Load<'_>,
) -> Result<Loaded, LoadError> {
    let cause = worker.steps().set_cause(load.cause);
    let loaded = load_keys(worker, dump, path, load);
    worker.steps().set_cause(cause);
    loaded
}

fn load_keys(
    worker: &mut Worker,
    dump: impl Read,
    path: &Path,
    load: &Load<'_>,
) -> Result<Loaded, LoadError> {
    let Load { settings, progress, eviction, is_stopping, .. } = *load;
    let mut reader = Reader::new(dump, reader_options(path, settings));
    let start = Instant::now();
    let mut logged_at = start;
    let (mut key_count, mut expired_count) = (0, 0);
    worker.set_now(unix_ms());
    while let Some(next) = reader.next_up_to(HELD_BYTES)? {
        if is_stopping.load(Ordering::Acquire) {
            return Ok(Loaded::Stopped);
        }
        let (db, key, meta, content) = match parts_of(next) {
            Part::Key(parts) => parts,
            Part::Library(source) => {
                store_library(worker, &source, path, load.twins)?;
                continue;
            }
        };
        let deadline = meta.expire_at_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        if deadline.is_some_and(|d| d <= worker.now()) {
            expired_count += 1;
        } else {
            make_room(worker, settings, eviction, key_count);
            let name = || String::from_utf8_lossy(&key).into_owned();
            let at_key = |source| LoadError::Store { path: path.into(), db, key: name(), source };
            if !make_way(worker, (DbId(db), &key), load.twins).map_err(at_key)? {
                return Err(LoadError::Twin { path: path.into(), db, key: name() });
            }
            let stored = match content {
                Content::Held(value) => {
                    store_held(worker, DbId(db), &key, &value, deadline).map(|()| Kept::Whole)
                }
                Content::Long { length_bytes } => receive(worker, &mut reader, length_bytes, is_stopping)?
                    .and_then(|value| {
                        let Some(value) = value else { return Ok(Kept::Stopped) };
                        let value = NewValue::Incoming(&value);
                        store_when_there(worker, DbId(db), &key, value, deadline).map(|()| Kept::Whole)
                    }),
                Content::Elements(kind) => {
                    store_elements(worker, &mut reader, (DbId(db), &key), kind, deadline, is_stopping)?
                }
            };
            match stored.map_err(at_key)? {
                Kept::Stopped => return Ok(Loaded::Stopped),
                Kept::Nothing => expired_count += 1,
                Kept::Whole => key_count += 1,
            }
            note_access(worker, DbId(db), &key, meta);
        }
        if key_count + expired_count == 1 {
            progress.set_writer_memory_bytes(writer_memory_bytes(&reader));
        }
        progress.advance(reader.offset_bytes(), key_count, expired_count);
        // Under DEBUG RELOAD, which is alone, this lets nobody in.
        worker.idle_for_turns(|| {
            delay::rest((load.key_delay_us)(), || is_stopping.load(Ordering::Acquire));
        });
        log_progress(&mut logged_at, path, progress, key_count);
    }
    log_end(&reader, path, (key_count, expired_count), start);
    Ok(Loaded::Whole)
}

fn log_progress(logged_at: &mut Instant, path: &Path, progress: &Loading, key_count: u64) {
    if logged_at.elapsed() > PROGRESS_INTERVAL {
        *logged_at = Instant::now();
        let percent = progress.status().percent();
        log::notice(format!("Loading {}: {key_count} keys, {percent:.0} %", path.display()));
    }
}

/// Whether the next key of the dump may be stored: it is not there, or goes.
///
/// # Errors
/// Its page cannot be read.
fn make_way(worker: &mut Worker, (db, name): (DbId, &[u8]), twins: Twins) -> Result<bool, OpError> {
    let key = worker.key(name);
    let is_there = when_there(worker, |worker| Ok(worker.entry(db, &key)?.is_some()))?;
    if is_there && twins == Twins::Replace {
        when_there(worker, |worker| worker.remove(db, &key))?;
    }
    Ok(!is_there || twins == Twins::Replace)
}

fn reader_options(path: &Path, settings: &Settings) -> ReaderOptions {
    ReaderOptions {
        file_name: path.display().to_string(),
        on_unsupported: if settings.rdb_skip_unsupported { OnUnsupported::Skip } else { OnUnsupported::Fail },
        verify_checksum: settings.rdb_checksum,
        db_count: settings.databases,
    }
}

/// What there is to say of a dump that has been loaded.
fn log_end(reader: &Reader<impl Read>, path: &Path, (key_count, expired_count): (u64, u64), start: Instant) {
    if reader.has_trailing_data() {
        log::warning(format!(
            "{} goes on after the end of the dump; what is there was left alone",
            path.display()
        ));
    }
    log_skipped(reader);
    log::notice(format!("Done loading RDB, keys loaded: {key_count}, keys expired: {expired_count}."));
    log::notice(format!("DB loaded from disk: {:.3} seconds", start.elapsed().as_secs_f64()));
}

/// Lets keys go for the next one, if a policy says so, but not for those that are being freed. What cannot be evicted yet is,
/// once all is loaded.
fn make_room(worker: &mut Worker, settings: &Settings, eviction: &Eviction, key_count: u64) {
    if settings.evicts_keys() && !worker.store().is_freeing_databases() {
        eviction.make_room(worker, settings);
    }
    if key_count % KEYS_PER_SETTLING == 0 {
        worker.store().accesses().settle();
    }
}

/// Takes over what the dump says of the accesses to a key.
fn note_access(worker: &mut Worker, db: DbId, key: &[u8], meta: KeyMeta) {
    let idle = meta.lru_idle_s.map(|seconds| Access::Idle { seconds });
    let frequency = meta.lfu_count.map(|count| Access::Frequency { count });
    let key = worker.key(key);
    for access in [idle, frequency].into_iter().flatten() {
        worker.set_access(db, &key, access);
    }
}

/// As the dump's header says; 0 if it does not.
fn writer_memory_bytes(reader: &Reader<impl Read>) -> u64 {
    let text = reader.aux("used-mem").and_then(|text| std::str::from_utf8(text).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// What was left out.
fn log_skipped(reader: &Reader<impl Read>) {
    for (kind, skipped) in reader.skipped_keys() {
        log::warning(format!(
            "Left out {} keys of type {kind}, the first is {:?} in database {}",
            skipped.key_count,
            String::from_utf8_lossy(&skipped.first_key),
            skipped.first_key_db
        ));
    }
}

/// What an entry has for a value.
enum Content {
    Held(RdbValue),
    /// It goes to its place as it comes.
    Long {
        length_bytes: u64,
    },
    /// So does a collection.
    Elements(CollectionKind),
}

enum Part {
    Key((u32, Vec<u8>, KeyMeta, Content)),
    /// The source of a function library.
    Library(Vec<u8>),
}

fn parts_of(next: Next) -> Part {
    Part::Key(match next {
        Next::Entry(Entry { db, key, meta, value }) => (db, key, meta, Content::Held(value)),
        Next::Long { db, key, meta, length_bytes } => (db, key, meta, Content::Long { length_bytes }),
        Next::Collection { db, key, meta, kind, .. } => (db, key, meta, Content::Elements(kind)),
        Next::Library { source } => return Part::Library(source),
    })
}

/// Keeps a function library, which need not compile: that it does not is said when its functions are called.
fn store_library(worker: &mut Worker, source: &[u8], path: &Path, twins: Twins) -> Result<(), LoadError> {
    let failed = |source| LoadError::Library { path: path.into(), source };
    let name = library_name(source).map_err(|error| failed(error.into()))?;
    let is_there = when_there(worker, |worker| Ok(worker.libraries().names()?.contains(&name)));
    if is_there.map_err(failed)? && twins == Twins::Refused {
        return Err(LoadError::LibraryTwin { path: path.into(), name });
    }
    when_room(worker, |worker| worker.libraries().set(&name, source).map(drop)).map_err(failed)
}

/// What has become of an entry of a dump.
enum Kept {
    Whole,
    /// All of its fields have expired.
    Nothing,
    /// The server is to stop.
    Stopped,
}

/// Takes a collection to its place, some elements at a time, however much memory there is.
///
/// # Errors
/// The dump cannot be read, or an element comes twice; and, within, there is no place for it.
fn store_elements(
    worker: &mut Worker,
    reader: &mut Reader<impl Read>,
    (db, name): (DbId, &[u8]),
    kind: CollectionKind,
    deadline: Option<i64>,
    is_stopping: &AtomicBool,
) -> Result<Result<Kept, OpError>, ReadError> {
    let (key, mut batch, mut has_more) = (worker.key(name), Batch::new(kind), true);
    let mut is_there = false;
    batch.come_from(reader.is_packed());
    while has_more {
        while !batch.is_full() && has_more {
            match reader.element()? {
                // It counts as absent, also for one of its name that comes after it.
                Some(element) if !element.is_live(worker.now()) => continue,
                Some(element) => batch.push(element),
                None => has_more = false,
            }
        }
        if is_stopping.load(Ordering::Acquire) {
            return Ok(Ok(Kept::Stopped));
        }
        if batch.is_empty() {
            break;
        }
        if let Err(error) = place_long(worker, &mut batch) {
            return Ok(Err(error));
        }
        match when_there(worker, |worker| batch.store(worker, db, &key)) {
            Ok(true) => is_there = true,
            Ok(false) => return Err(reader.refuse_duplicate()),
            Err(error) => return Ok(Err(error)),
        }
        worker.idle_for_turns(|| ());
    }
    if !is_there {
        return Ok(Ok(Kept::Nothing));
    }
    let dated =
        deadline.map_or(Ok(true), |at| when_there(worker, |worker| worker.set_deadline(db, &key, Some(at))));
    Ok(dated.map(|_| Kept::Whole))
}

/// Puts the long elements of a batch into their pages, part by part.
///
/// # Errors
/// There is no place for them.
fn place_long(worker: &mut Worker, batch: &mut Batch) -> Result<(), OpError> {
    while !when_there(worker, |worker| batch.place(worker))? {
        worker.idle_for_turns(|| ());
    }
    Ok(())
}

/// Takes a long value to its place piece by piece, however much memory there is. `None` if the server is to stop.
///
/// # Errors
/// The dump cannot be read; and, within, there is no place for the value.
fn receive(
    worker: &mut Worker,
    reader: &mut Reader<impl Read>,
    length_bytes: u64,
    is_stopping: &AtomicBool,
) -> Result<Result<Option<Incoming>, OpError>, ReadError> {
    let mut incoming = match when_there(worker, |worker| worker.begin_incoming(length_bytes)) {
        Ok(incoming) => incoming,
        Err(error) => return Ok(Err(error)),
    };
    let mut piece = Vec::new();
    while reader.piece(|bytes| piece.extend_from_slice(bytes))? {
        if is_stopping.load(Ordering::Acquire) {
            return Ok(Ok(None));
        }
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let step = &rest[..rest.len().min(STEP_BYTES)];
            let taken = when_there(worker, |_| match incoming.awaited_room() {
                Some(fault) => Err(fault.into()),
                None => incoming.append(step),
            });
            match taken {
                Ok(count) => rest = &rest[count..],
                Err(error) => return Ok(Err(error)),
            }
            worker.idle_for_turns(|| ());
        }
        piece.clear();
    }
    Ok(Ok(Some(incoming)))
}

/// Does a step. Where there was a page file, slabs with free slots may still have to be read, and where memory is full others
/// have to go; nobody is served before the load has ended, so it waits for them here.
fn when_there<R>(
    worker: &mut Worker,
    mut step: impl FnMut(&mut Worker) -> Result<R, OpError>,
) -> Result<R, OpError> {
    let store = worker.store().clone();
    loop {
        let fault = match step(worker) {
            Err(OpError::Fault(fault)) => fault,
            done => return done,
        };
        let (done, is_done) = std::sync::mpsc::channel();
        let tell = move || {
            // The receiver is here until it has been told.
            let _ = done.send(());
        };
        store.load(fault, Box::new(tell));
        let _ = worker.idle_for_turns(|| is_done.recv());
    }
}

fn store_held(
    worker: &mut Worker,
    db: DbId,
    key: &[u8],
    value: &RdbValue,
    deadline: Option<i64>,
) -> Result<(), OpError> {
    let value = match value {
        RdbValue::String(RdbString::Int(number)) => NewValue::Int(*number),
        RdbValue::String(RdbString::Bytes(bytes)) => number::encode(bytes),
        _ => return Err(OpError::Damaged("a value of a type that cannot be stored".into())),
    };
    store_when_there(worker, db, key, value, deadline)
}

fn store_when_there(
    worker: &mut Worker,
    db: DbId,
    key: &[u8],
    value: NewValue<'_>,
    deadline: Option<i64>,
) -> Result<(), OpError> {
    let deadline = deadline.map_or(Deadline::Clear, Deadline::At);
    when_room(worker, |worker| {
        let key = worker.key(key);
        worker.set(db, &key, value, deadline).map(drop)
    })
}

/// Does a step that stores something, once there is room for it.
fn when_room<R>(
    worker: &mut Worker,
    mut step: impl FnMut(&mut Worker) -> Result<R, OpError>,
) -> Result<R, OpError> {
    let mut looks_for_room = true;
    when_there(worker, |worker| {
        let store = worker.store();
        if std::mem::take(&mut looks_for_room) && store.is_full() && !store.is_stuck() {
            return Err(Fault::room().into());
        }
        step(worker)
    })
}
