//! Opening a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stillframe_pagepool::device::{Device, DirLock, LockError, Shelf};
use stillframe_pagepool::pagefile::{PageFile, PageFileError};

use crate::error::{OpenError, Refusal};
use crate::log::LogHome;
use crate::replay::UnreadLog;
use crate::store::Store;
use crate::Options;

/// Name of the page file in a store's directory.
pub(crate) const PAGE_FILE: &str = "stillframe.pages";
/// Name of the directory of the log there.
pub(crate) const LOG_DIR: &str = "log";

impl Store {
    /// Opens or creates the store kept in `dir`.
    ///
    /// # Errors
    /// [`OpenError`] names the file and the reason; nothing has been changed on disk.
    pub fn open(dir: &Path, options: Options) -> Result<Store, OpenError> {
        open_unread(dir, options)?.read(&mut |_| true).map(|(store, _)| store)
    }

    /// Opens or creates a store on a device of the caller's, a faulty one in tests say. Its [`Store::dir`] is empty,
    /// and nothing keeps a second store off the device.
    ///
    /// # Errors
    /// [`OpenError`] names the device and the reason; nothing has been changed on it.
    pub fn open_on(device: Arc<dyn Device>, options: Options) -> Result<Store, OpenError> {
        let (store, place) = Store::over(device, options, PathBuf::new(), None, LogHome::Nowhere)?;
        UnreadLog::of(store, place).read(&mut |_| true).map(|(store, _)| store)
    }
}

/// Opens or creates the store kept in `dir`, and leaves its log to be read: a server tells of that meanwhile.
///
/// # Errors
/// As of [`Store::open`].
pub fn open_unread(dir: &Path, options: Options) -> Result<UnreadLog, OpenError> {
    std::fs::create_dir_all(dir).map_err(|source| OpenError::Io { path: dir.into(), source })?;
    let lock = DirLock::acquire(dir).map_err(|error| match error {
        LockError::Held { dir, .. } => OpenError::Locked(dir),
        LockError::Io { path, source } => OpenError::Io { path, source },
    })?;
    let path = dir.join(PAGE_FILE);
    let device = PageFile::open_or_create_at(&path, options.io).map_err(|error| match error {
        PageFileError::Device(error) if error.is_refusal() || error.is_in_use() => {
            OpenError::Refused(Refusal::Device(error))
        }
        error if path.is_dir() => OpenError::Refused(Refusal::Directory(error)),
        error => OpenError::PageFile(error),
    })?;
    let home = LogHome::Dir(dir.join(LOG_DIR), options.io);
    let (store, place) = Store::over(Arc::new(device), options, dir.into(), Some(lock), home)?;
    Ok(UnreadLog::of(store, place))
}

/// Opens or creates a store on a device, with its log on a shelf; as of [`Store::open_on`].
///
/// # Errors
/// As of that.
pub fn open_on_with_log(
    device: Arc<dyn Device>,
    shelf: Arc<dyn Shelf>,
    options: Options,
) -> Result<Store, OpenError> {
    let (store, place) = Store::over(device, options, PathBuf::new(), None, LogHome::Shelf(shelf))?;
    UnreadLog::of(store, place).read(&mut |_| true).map(|(store, _)| store)
}
