//! Writing a dump: all databases of a store as of a cut, or what can be read of a page file, to anything that takes bytes.
//!
//! What only a file has is in `dump_file.rs`.

use std::io::Write;
use std::sync::atomic::Ordering;

use stillframe_store::offline::Offline;
use stillframe_store::rdb::{
    Header, KeyMeta, SmallLimits, StringRef, WriteError, WriteVersion, Writer, WriterOptions,
};
use stillframe_store::sched::{give_way, idly, promptly};
use stillframe_store::{Access, DbId, DbStats, Lost, SaveError, Store, StrRef, Value, View, ViewEntry};

use crate::clock::unix_ms;
use crate::config::Settings;
use crate::log;
use crate::persistence::collections::{small_limits, write_collection, CollectionError};
use crate::persistence::delay;
use crate::persistence::progress::DumpProgress;

/// Values up to this length are gathered before they are written, so that they can be compressed.
const GATHERED_BYTES: u64 = 1 << 20;

/// Keys that are written before other threads may have the processor.
const KEYS_PER_LOOK: u64 = 32;

/// Losses that the log names one by one.
const LOGGED_LOSSES: u64 = 20;

/// Why a dump was not written to its end.
#[derive(thiserror::Error, Debug)]
pub enum DumpError {
    #[error(transparent)]
    Save(#[from] SaveError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl From<CollectionError> for DumpError {
    fn from(error: CollectionError) -> DumpError {
        match error {
            CollectionError::Save(error) => error.into(),
            CollectionError::Write(error) => error.into(),
        }
    }
}

/// A store as of a cut, on its way into a dump.
pub struct StoreDump<'s> {
    store: &'s Store,
    view: View,
    header: Header,
    stats: Vec<DbStats>,
    settings: &'s Settings,
    progress: &'s DumpProgress,
    losses: Losses,
}

impl<'s> StoreDump<'s> {
    /// Takes the cut. `at_cut` runs there, while every worker stands between two commands.
    ///
    /// # Errors
    /// There was no cut.
    pub fn take(
        store: &'s Store,
        settings: &'s Settings,
        progress: &'s DumpProgress,
        at_cut: impl FnOnce() + Send + 'static,
    ) -> Result<StoreDump<'s>, SaveError> {
        let view = store.view_telling(at_cut)?;
        let header = Header {
            ctime_unix_s: (unix_ms() / 1000) as u64,
            used_memory_bytes: store.used_memory_bytes(),
            aof_base: false,
            cut: view.cut(),
        };
        let stats = (0..settings.databases).map(|db| view.db_stats(DbId(db))).collect();
        Ok(StoreDump { store, view, header, stats, settings, progress, losses: Losses::default() })
    }

    /// Writes all databases and function libraries to `out`, from the first byte of the dump to the last; the log calls it `name`. May be called again,
    /// for an output that begins anew. Returns `out` and how many keys are in it.
    ///
    /// # Errors
    /// A page cannot be read, or `out` has failed: what it has got is no dump.
    pub fn write<W: Write>(
        &mut self,
        out: W,
        version: WriteVersion,
        name: &str,
    ) -> Result<(W, u64), DumpError> {
        let StoreDump { store, view, header, stats, settings, progress, losses } = self;
        let (now, tracking) = (unix_ms(), settings.tracking());
        // Leaves of the store are latched for that.
        let access = |db, key: &[u8]| tracking.and_then(|_| promptly(|| store.accesses().of(db, key, now)));
        let mut dump = DumpWriter::new(out, version, *header, settings, stats, &access, progress)?;
        if !settings.skips_damage {
            idly(|| view.for_each_library(|_, source| dump.library(source)))?;
            idly(|| view.for_each(|entry| dump.entry(&entry)))?;
            return dump.finish();
        }
        let mut told = losses.again(|count, lost| {
            if count <= LOGGED_LOSSES {
                promptly(|| log::warning(format!("Left out of {name}: {lost}")));
            }
        });
        idly(|| view.for_each_readable_library(|_, source| dump.library(source), &mut told))?;
        idly(|| view.for_each_readable(|entry| dump.entry(&entry), &mut told))?;
        dump.finish()
    }

    /// How many times something was left out because it could not be read.
    pub fn loss_count(&self) -> u64 {
        self.losses.count
    }
}

/// Writes what can be read of a page file to `out`, likewise, and tells `lost` of the rest, unless `losses` has it from an
/// earlier round.
///
/// # Errors
/// As of [`StoreDump::write`].
pub fn write_readable<W: Write>(
    offline: &Offline,
    out: W,
    version: WriteVersion,
    settings: &Settings,
    losses: &mut Losses,
    lost: &mut dyn FnMut(Lost),
) -> Result<(W, u64), DumpError> {
    let header = Header { ctime_unix_s: (unix_ms() / 1000) as u64, ..Header::default() };
    let stats: Vec<_> = (0..offline.database_count()).map(|db| offline.db_stats(DbId(db))).collect();
    let progress = DumpProgress::default();
    let mut dump = DumpWriter::new(out, version, header, settings, &stats, &|_, _| None, &progress)?;
    let mut told = losses.again(|_, loss| lost(loss));
    offline.for_each_library(|_, source| dump.library(source), &mut told)?;
    offline.for_each(|entry| dump.entry(&entry), &mut told)?;
    drop(told);
    dump.finish()
}

/// What could not be read, in one round or, if all is written anew, in several that meet the same.
#[derive(Default)]
pub struct Losses {
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

/// A dump that is being written.
struct DumpWriter<'p, W> {
    writer: Writer<W>,
    limits: SmallLimits,
    /// Of each database, for its head.
    stats: &'p [DbStats],
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

impl<'p, W: Write> DumpWriter<'p, W> {
    fn new(
        out: W,
        version: WriteVersion,
        header: Header,
        settings: &Settings,
        stats: &'p [DbStats],
        access: Accesses<'p>,
        progress: &'p DumpProgress,
    ) -> Result<DumpWriter<'p, W>, DumpError> {
        progress.total_keys.store(stats.iter().map(|stats| stats.key_count).sum(), Ordering::Relaxed);
        let limits = small_limits(settings);
        let (compress, checksum) = (settings.rdb_compression, settings.rdb_checksum);
        let options = WriterOptions { version, compress, checksum, limits };
        let writer = Writer::new(out, header, options)?;
        Ok(DumpWriter {
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

    fn library(&mut self, source: &[u8]) -> Result<(), DumpError> {
        Ok(self.writer.library(source)?)
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

    /// Returns the output and how many keys are in it.
    fn finish(self) -> Result<(W, u64), DumpError> {
        Ok((self.writer.finish()?, self.key_count))
    }
}

fn write_value<W: Write>(
    writer: &mut Writer<W>,
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
