//! The file of a dump: a temporary file, fsync, rename, fsync of the directory. The old file stays until then.

use std::fs::File;
use std::io::Seek;
use std::path::{Path, PathBuf};

use stillframe_store::offline::Offline;
use stillframe_store::rdb::{WriteError, WriteVersion};
use stillframe_store::sched::set_urgent;
use stillframe_store::{Lost, SaveError, Store};

use crate::config::Settings;
use crate::log;
use crate::persistence::dump::{write_readable, DumpError, Losses, StoreDump};
use crate::persistence::progress::DumpProgress;

/// Why there is no new file.
#[derive(thiserror::Error, Debug)]
pub enum DumpFileError {
    #[error(transparent)]
    Save(#[from] SaveError),
    #[error("{path}: {source}")]
    Write { path: PathBuf, source: WriteError },
    #[error("{0}; 'rdb-version auto' lets it be written")]
    Version(#[source] WriteError),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
}

/// Where a dump is written before it takes its name.
pub fn temporary_path(dir: &Path) -> PathBuf {
    dir.join(format!("temp-{}.rdb", std::process::id()))
}

/// Writes all databases as of now into an RDB file. Returns its length in bytes.
///
/// # Errors
/// What failed, with the path; the old file is then as it was.
pub fn write_dump(store: &Store, path: &Path, settings: &Settings) -> Result<u64, DumpFileError> {
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
) -> Result<u64, DumpFileError> {
    // What is in the way of the file is said before anybody is told that saving has begun.
    Replacement::of(path)
        .put(|replacement, file| {
            let mut dump = StoreDump::take(store, settings, progress, at_cut)?;
            after_cut();
            let name = path.display().to_string();
            let written =
                replacement.in_a_version(file, settings, |file, version| dump.write(file, version, &name))?;
            set_urgent(false);
            let loss_count = dump.loss_count();
            if loss_count > 0 {
                log::warning(format!(
                    "{name}: {loss_count} times something was left out ('damage-policy skip')"
                ));
            }
            Ok(written)
        })
        .map(|(length_bytes, _)| length_bytes)
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
) -> Result<u64, DumpFileError> {
    let mut losses = Losses::default();
    Replacement::of(path)
        .put(|replacement, file| {
            replacement.in_a_version(file, settings, |file, version| {
                write_readable(offline, file, version, settings, &mut losses, lost)
            })
        })
        .map(|(_, key_count)| key_count)
}

/// A file that is written beside the one at `path`, to take its place.
struct Replacement<'p> {
    path: &'p Path,
    dir: &'p Path,
    temporary: PathBuf,
}

impl<'p> Replacement<'p> {
    fn of(path: &'p Path) -> Replacement<'p> {
        let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Replacement { path, dir, temporary: temporary_path(dir) }
    }

    /// Puts the file that `write` makes in its place. Returns its length and what `write` counted.
    fn put(
        &self,
        write: impl FnOnce(&Self, File) -> Result<(File, u64), DumpFileError>,
    ) -> Result<(u64, u64), DumpFileError> {
        let at = |path: &Path| {
            let path = path.to_path_buf();
            move |source| DumpFileError::Io { path, source }
        };
        let temporary = &self.temporary;
        let put = || -> Result<(u64, u64), DumpFileError> {
            let (file, count) = write(self, File::create(temporary).map_err(at(temporary))?)?;
            file.sync_all().map_err(at(temporary))?;
            let length_bytes = file.metadata().map_err(at(temporary))?.len();
            std::fs::rename(temporary, self.path).map_err(at(self.path))?;
            File::open(self.dir).and_then(|dir| dir.sync_all()).map_err(at(self.dir))?;
            Ok((length_bytes, count))
        };
        put().inspect_err(|_| drop(std::fs::remove_file(temporary)))
    }

    /// Has `write` write the version of the format that is wanted. If that is left open, it is the older, which more servers read;
    /// and if this has no form for a hash, because of its deadlines, all is written anew in the newer: a file can begin anew.
    fn in_a_version(
        &self,
        mut file: File,
        settings: &Settings,
        mut write: impl FnMut(File, WriteVersion) -> Result<(File, u64), DumpError>,
    ) -> Result<(File, u64), DumpFileError> {
        let at_path = |source| DumpFileError::Io { path: self.path.into(), source };
        let at_temporary = |error| match error {
            DumpError::Save(error) => DumpFileError::Save(error),
            DumpError::Write(source) => DumpFileError::Write { path: self.temporary.clone(), source },
        };
        let again = file.try_clone().map_err(at_path)?;
        match (write(again, settings.rdb_version.unwrap_or_default()), settings.rdb_version) {
            (Err(DumpError::Write(error @ WriteError::FieldDeadlines { .. })), None) => {
                file.rewind().and_then(|()| file.set_len(0)).map_err(at_path)?;
                log::notice(format!("{}: {error}: it is written ('rdb-version auto')", self.path.display()));
                write(file, WriteVersion::Redis7_4).map_err(at_temporary)
            }
            (Err(DumpError::Write(error @ WriteError::FieldDeadlines { .. })), Some(_)) => {
                Err(DumpFileError::Version(error))
            }
            (written, _) => written.map_err(at_temporary),
        }
    }
}
