//! Dumps: writing one from a view, reading `dump.rdb` at the start.

use std::fs::File;
use std::io::Seek;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use stillframe_store::offline::Offline;
use stillframe_store::rdb::{
    CollectionKind, Cut, Element, Entry, Header, KeyMeta, Next, OnUnsupported, RdbString, RdbValue,
    ReadError, Reader, ReaderOptions, SmallLimits, StringRef, WriteError, WriteVersion, Writer,
    WriterOptions,
};
use stillframe_store::sched::{give_way, idly, promptly, set_urgent};
use stillframe_store::{
    Access, Cause, DbId, DbStats, Deadline, Fault, Incoming, Lost, NewValue, OpError, SaveError, Store,
    StrRef, UnixMillis, Value, ViewEntry, Worker,
};

use crate::clock::unix_ms;
use crate::config::Settings;
use crate::eviction::Eviction;
use crate::log;
use crate::persistence::collections::{small_limits, write_collection, CollectionError};
use crate::persistence::delay;
use crate::persistence::progress::DumpProgress;
use crate::state::elements::Batch;
use crate::state::loading::Loading;
use crate::text::number;

/// Values up to this length are gathered before they are written, so that they can be compressed.
const GATHERED_BYTES: u64 = 1 << 20;

/// Values up to this length are held while they are read; longer ones go to their pages as they come.
const HELD_BYTES: u64 = 256 << 10;
/// Bytes of such a value that are put in their place between two looks at the barrier.
const STEP_BYTES: usize = 256 << 10;

/// Keys that are written before other threads may have the processor.
const KEYS_PER_LOOK: u64 = 32;

/// Losses that the log names one by one.
const LOGGED_LOSSES: u64 = 20;

#[derive(thiserror::Error, Debug)]
enum DumpError {
    #[error(transparent)]
    Save(#[from] SaveError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("{0}; 'rdb-version auto' lets it be written")]
    Version(String),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
}

impl From<CollectionError> for DumpError {
    fn from(error: CollectionError) -> DumpError {
        match error {
            CollectionError::Save(error) => error.into(),
            CollectionError::Write(error) => error.into(),
        }
    }
}

/// Where a dump is written before it takes its name.
pub fn temporary_path(dir: &Path) -> PathBuf {
    dir.join(format!("temp-{}.rdb", std::process::id()))
}

/// Writes all databases as of now into an RDB file: temporary file, fsync, rename, fsync of the directory.
/// Returns its length in bytes.
///
/// # Errors
/// What failed, with the path; the old file is then as it was.
pub fn write_dump(store: &Store, path: &Path, settings: &Settings) -> Result<u64, String> {
    write_dump_telling(store, path, settings, || (), || (), &DumpProgress::default())
}

/// The same. `at_cut` runs at the cut, while every worker stands between two commands, and `after_cut` right after it.
///
/// # Errors
/// As of [`write_dump`]; if there was no cut, `after_cut` is not called.
pub(super) fn write_dump_telling(
    store: &Store,
    path: &Path,
    settings: &Settings,
    at_cut: impl FnOnce() + Send + 'static,
    after_cut: impl FnOnce(),
    progress: &DumpProgress,
) -> Result<u64, String> {
    // What is in the way of the file is said before anybody is told that saving has begun.
    replace(path, |file| {
        let view = store.view_telling(at_cut)?;
        after_cut();
        let header = Header {
            ctime_unix_s: (unix_ms() / 1000) as u64,
            used_memory_bytes: store.used_memory_bytes(),
            aof_base: false,
            cut: view.cut(),
        };
        let stats: Vec<_> = (0..settings.databases).map(|db| view.db_stats(DbId(db))).collect();
        let (now, tracking) = (unix_ms(), settings.tracking());
        // Leaves of the store are latched for that.
        let access = |db, key: &[u8]| tracking.and_then(|_| promptly(|| store.access(db, key, now)));
        let mut losses = Losses::default();
        let written = in_a_version(file, path, settings, |file, version| {
            let mut dump = Dump::new(file, version, header, settings, stats.clone(), &access, progress)?;
            if !settings.skips_damage {
                idly(|| view.for_each(|entry| dump.entry(&entry)))?;
                return dump.finish();
            }
            let mut told = losses.again(|count, lost| {
                if count <= LOGGED_LOSSES {
                    promptly(|| log::warning(format!("Left out of {}: {lost}", path.display())));
                }
            });
            idly(|| view.for_each_readable(|entry| dump.entry(&entry), &mut told))?;
            dump.finish()
        })?;
        set_urgent(false);
        if losses.count > 0 {
            log::warning(format!(
                "{}: {} times something was left out ('damage-policy skip')",
                path.display(),
                losses.count
            ));
        }
        Ok(written)
    })
    .map(|(length_bytes, _)| length_bytes)
}

/// What could not be read, in one round or, if all is written anew, in two that meet the same.
#[derive(Default)]
struct Losses {
    count: u64,
}

impl Losses {
    /// Begins a round, which tells `f` of each that was not met before, and the how manieth it is.
    fn again<'l>(&'l mut self, mut f: impl FnMut(u64, Lost) + 'l) -> impl FnMut(Lost) + 'l {
        let mut met = 0;
        move |lost| {
            met += 1;
            if met > self.count {
                self.count = met;
                f(met, lost);
            }
        }
    }
}

/// Has `write` write the version of the format that is wanted. If that is left open, it is the older, which more servers read;
/// and if this has no form for a hash, because of its deadlines, all is written anew in the newer.
fn in_a_version(
    mut file: File,
    path: &Path,
    settings: &Settings,
    mut write: impl FnMut(File, WriteVersion) -> Result<(File, u64), DumpError>,
) -> Result<(File, u64), DumpError> {
    let at_path = |source| DumpError::Io { path: path.into(), source };
    let again = file.try_clone().map_err(at_path)?;
    let version = settings.rdb_version.unwrap_or_default();
    match write(again, version) {
        Err(DumpError::Write(error @ WriteError::FieldDeadlines { .. }))
            if settings.rdb_version.is_none() =>
        {
            file.rewind().and_then(|()| file.set_len(0)).map_err(at_path)?;
            let version = WriteVersion::Redis7_4;
            log::notice(format!("{}: {error}: it is written ('rdb-version auto')", path.display()));
            write(file, version)
        }
        Err(DumpError::Write(error @ WriteError::FieldDeadlines { .. })) => {
            Err(DumpError::Version(error.to_string()))
        }
        written => written,
    }
}

/// Writes what can be read of a page file into an RDB file, likewise, and tells `lost` of the rest. Returns how many keys.
///
/// # Errors
/// What failed, with the path.
pub fn write_salvaged(
    offline: &Offline,
    path: &Path,
    settings: &Settings,
    lost: &mut dyn FnMut(Lost),
) -> Result<u64, String> {
    replace(path, |file| {
        let header = Header { ctime_unix_s: (unix_ms() / 1000) as u64, ..Header::default() };
        let stats: Vec<_> = (0..offline.database_count()).map(|db| offline.db_stats(DbId(db))).collect();
        let progress = DumpProgress::default();
        let mut losses = Losses::default();
        in_a_version(file, path, settings, |file, version| {
            let stats = stats.clone();
            let mut dump = Dump::new(file, version, header, settings, stats, &|_, _| None, &progress)?;
            offline.for_each(|entry| dump.entry(&entry), &mut losses.again(|_, loss| lost(loss)))?;
            dump.finish()
        })
    })
    .map(|(_, key_count)| key_count)
}

/// Puts a file that `write` makes in place of the one at `path`. Returns its length and what `write` counted.
fn replace(
    path: &Path,
    write: impl FnOnce(File) -> Result<(File, u64), DumpError>,
) -> Result<(u64, u64), String> {
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temporary = temporary_path(dir);
    let at = |path: &Path| {
        let path = path.to_path_buf();
        move |source| DumpError::Io { path, source }
    };
    let replace = || -> Result<(u64, u64), DumpError> {
        let (file, count) = write(File::create(&temporary).map_err(at(&temporary))?)?;
        file.sync_all().map_err(at(&temporary))?;
        let length_bytes = file.metadata().map_err(at(&temporary))?.len();
        std::fs::rename(&temporary, path).map_err(at(path))?;
        File::open(dir).and_then(|d| d.sync_all()).map_err(at(dir))?;
        Ok((length_bytes, count))
    };
    replace().map_err(|error| {
        drop(std::fs::remove_file(&temporary));
        match error {
            DumpError::Write(error) => format!("{}: {error}", temporary.display()),
            other => other.to_string(),
        }
    })
}

/// A dump that is being written.
struct Dump<'p> {
    writer: Writer<File>,
    limits: SmallLimits,
    /// Of each database, for its head.
    stats: Vec<DbStats>,
    selected: Option<DbId>,
    key_count: u64,
    gathered: Vec<u8>,
    /// What is written beside a key of its accesses.
    access: Accesses<'p>,
    progress: &'p DumpProgress,
    /// See [`delay::rest`].
    key_delay_us: i32,
}

/// What is known of the accesses to a key.
type Accesses<'p> = &'p dyn Fn(DbId, &[u8]) -> Option<Access>;

impl Dump<'_> {
    fn new<'p>(
        file: File,
        version: WriteVersion,
        header: Header,
        settings: &Settings,
        stats: Vec<DbStats>,
        access: Accesses<'p>,
        progress: &'p DumpProgress,
    ) -> Result<Dump<'p>, DumpError> {
        progress.total_keys.store(stats.iter().map(|stats| stats.key_count).sum(), Ordering::Relaxed);
        let limits = small_limits(settings);
        let (compress, checksum) = (settings.rdb_compression, settings.rdb_checksum);
        let options = WriterOptions { version, compress, checksum, limits };
        let writer = Writer::new(file, header, options)?;
        Ok(Dump {
            writer,
            limits,
            stats,
            selected: None,
            key_count: 0,
            gathered: Vec::new(),
            access,
            progress,
            key_delay_us: settings.rdb_key_save_delay_us,
        })
    }

    fn entry(&mut self, entry: &ViewEntry<'_>) -> Result<(), DumpError> {
        if self.selected != Some(entry.db) {
            let stats = self.stats.get(entry.db.0 as usize).copied().unwrap_or_default();
            self.writer.select_db(entry.db.0, stats.key_count, stats.deadline_count)?;
            self.selected = Some(entry.db);
        }
        let mut meta =
            KeyMeta { expire_at_ms: entry.deadline.map(|d| d.max(0) as u64), ..KeyMeta::default() };
        match (self.access)(entry.db, entry.key) {
            Some(Access::Idle { seconds }) => meta.lru_idle_s = Some(seconds),
            Some(Access::Frequency { count }) => meta.lfu_count = Some(count),
            None => {}
        }
        match &entry.value {
            Value::String(value) => {
                write_value(&mut self.writer, entry.key, value, meta, &mut self.gathered)?;
            }
            Value::Collection(view) => {
                write_collection(&mut self.writer, entry.key, view, meta, &self.limits)?;
            }
        }
        self.key_count += 1;
        if self.key_count % KEYS_PER_LOOK == 0 {
            give_way();
        }
        self.progress.done_keys.store(self.key_count, Ordering::Relaxed);
        delay::rest(self.key_delay_us, || self.progress.is_hurried.load(Ordering::Relaxed));
        Ok(())
    }

    /// Returns the file and how many keys are in it.
    fn finish(self) -> Result<(File, u64), DumpError> {
        Ok((self.writer.finish()?, self.key_count))
    }
}

fn write_value(
    writer: &mut Writer<File>,
    key: &[u8],
    value: &StrRef<'_>,
    meta: KeyMeta,
    gathered: &mut Vec<u8>,
) -> Result<(), WriteError> {
    if let Some(number) = value.as_int() {
        return writer.string(key, StringRef::Int(number), meta);
    }
    if value.len() <= GATHERED_BYTES {
        gathered.clear();
        value.append_to(gathered);
        return writer.string(key, StringRef::Bytes(gathered), meta);
    }
    writer.long_string(key, value.len(), meta, |give| value.chunks(0, value.len(), give))
}

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
    /// How long it rests after a key, as of now; see [`delay::rest`].
    pub key_delay_us: &'a dyn Fn() -> i32,
}

/// Loads a dump into a store, if the file exists, as long as nobody wants to stop. Keys that have expired are left out, and so
/// are fields of hashes.
///
/// # Errors
/// The first thing that cannot be read or stored, with its place.
pub fn load_dump(worker: &mut Worker, path: &Path, load: &Load<'_>) -> Result<Loaded, LoadError> {
    let cause = worker.set_cause(Cause::Load);
    let loaded = load_keys(worker, path, load);
    worker.set_cause(cause);
    loaded
}

fn load_keys(worker: &mut Worker, path: &Path, load: &Load<'_>) -> Result<Loaded, LoadError> {
    let Load { settings, progress, eviction, is_stopping, .. } = *load;
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Loaded::Missing),
        Err(source) => return Err(LoadError::Io { path: path.into(), source }),
    };
    progress.open(file.metadata().map_or(0, |m| m.len()));
    let mut reader = Reader::new(file, reader_options(path, settings));
    let start = Instant::now();
    let mut logged_at = start;
    let (mut key_count, mut expired_count) = (0, 0);
    worker.set_now(unix_ms());
    while let Some(next) = reader.next_up_to(HELD_BYTES)? {
        if is_stopping.load(Ordering::Acquire) {
            return Ok(Loaded::Stopped);
        }
        let (db, key, meta, content) = parts_of(next);
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
        if logged_at.elapsed() > PROGRESS_INTERVAL {
            logged_at = Instant::now();
            let percent = progress.status().percent();
            log::notice(format!("Loading {}: {key_count} keys, {percent:.0} %", path.display()));
        }
    }
    log_end(&reader, path, (key_count, expired_count), start);
    Ok(Loaded::Whole)
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
fn log_end(reader: &Reader<File>, path: &Path, (key_count, expired_count): (u64, u64), start: Instant) {
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
        worker.store().settle_tracking();
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
fn writer_memory_bytes(reader: &Reader<File>) -> u64 {
    let text = reader.aux("used-mem").and_then(|text| std::str::from_utf8(text).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// What was left out.
fn log_skipped(reader: &Reader<File>) {
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

fn parts_of(next: Next) -> (u32, Vec<u8>, KeyMeta, Content) {
    match next {
        Next::Entry(Entry { db, key, meta, value }) => (db, key, meta, Content::Held(value)),
        Next::Long { db, key, meta, length_bytes } => (db, key, meta, Content::Long { length_bytes }),
        Next::Collection { db, key, meta, kind, .. } => (db, key, meta, Content::Elements(kind)),
    }
}

/// Whether it is a field whose time is over: it counts as absent, also for one of its name that comes after it.
fn has_expired(element: &Element<'_>, now: UnixMillis) -> bool {
    match element {
        Element::Field { deadline_ms: Some(at_ms), .. } => {
            UnixMillis::try_from(*at_ms).is_ok_and(|at| at <= now)
        }
        _ => false,
    }
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
    reader: &mut Reader<File>,
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
                Some(element) if has_expired(&element, worker.now()) => continue,
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
    reader: &mut Reader<File>,
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
    let mut looks_for_room = true;
    let deadline = deadline.map_or(Deadline::Clear, Deadline::At);
    when_there(worker, |worker| {
        let store = worker.store();
        if std::mem::take(&mut looks_for_room) && store.is_full() && !store.is_stuck() {
            return Err(Fault::room().into());
        }
        let key = worker.key(key);
        worker.set(db, &key, value, deadline).map(drop)
    })
}
