//! What a start would find now, as a second store: to be held against what is in memory.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use stillframe_journal::JournalError;

use crate::error::{OpenError, SaveError};
use crate::opening::{open_unread, LOG_DIR, PAGE_FILE};
use crate::store::Store;
use crate::Options;

/// Why there is no second store.
#[derive(thiserror::Error, Debug)]
pub enum ReopenError {
    #[error("the store is in no directory of its own")]
    NoDir,
    #[error("the log has not become durable: {0}")]
    Log(#[from] JournalError),
    #[error(transparent)]
    Save(#[from] SaveError),
    #[error("a start would fail: {0}")]
    Open(#[from] OpenError),
    #[error("the page file and the log cannot be copied to {dir}: {source}")]
    Copy { dir: PathBuf, source: std::io::Error },
}

/// A second store of the last checkpoint and what the log has behind it. Its directory is removed with it.
pub struct Reopened {
    // In this order they go.
    store: Store,
    _dir: OwnDir,
}

impl Reopened {
    /// Opens what a start of `store` would find, copied to the directory `dir`, which must not be there. The caller sees to it that nobody changes
    /// the store meanwhile.
    ///
    /// # Errors
    /// [`ReopenError`]; nothing of the first store has been changed.
    pub fn new(store: &Store, dir: &Path, options: Options) -> Result<Reopened, ReopenError> {
        if store.dir().as_os_str().is_empty() {
            return Err(ReopenError::NoDir);
        }
        store.log().sync()?;
        let own = OwnDir::make(dir)?;
        // A checkpoint would use the slots and the segments of the one before it again.
        let copied = store.shared.while_not_saving(|| copy(store.dir(), dir))?;
        copied.map_err(|source| ReopenError::Copy { dir: dir.to_owned(), source })?;
        let options = Options { log: None, checkpoint_on_drop: false, ..options };
        let (second, _) = open_unread(dir, options)?.read(&mut |_| true)?;
        Ok(Reopened { store: second, _dir: own })
    }

    pub fn store(&self) -> &Store {
        &self.store
    }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::copy(from.join(PAGE_FILE), to.join(PAGE_FILE))?;
    if !from.join(LOG_DIR).is_dir() {
        return Ok(());
    }
    std::fs::create_dir(to.join(LOG_DIR))?;
    for entry in std::fs::read_dir(from.join(LOG_DIR))? {
        let name = entry?.file_name();
        match std::fs::copy(from.join(LOG_DIR).join(&name), to.join(LOG_DIR).join(&name)) {
            // No segment goes while no checkpoint is taken: that was a spare.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            copied => drop(copied?),
        }
    }
    Ok(())
}

/// A directory that is removed with its files.
struct OwnDir(PathBuf);

impl OwnDir {
    fn make(dir: &Path) -> Result<OwnDir, ReopenError> {
        std::fs::create_dir(dir).map_err(|source| ReopenError::Copy { dir: dir.to_owned(), source })?;
        Ok(OwnDir(dir.to_owned()))
    }
}

impl Drop for OwnDir {
    fn drop(&mut self) {
        // What is left is in the way of the next one alone, which says so.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
