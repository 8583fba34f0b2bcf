//! Where a store's log is kept.

use std::path::PathBuf;
use std::sync::Arc;

use stillframe_journal::{Journal, JournalError, Place};
use stillframe_pagepool::device::{FileShelf, IoOptions, Shelf};

use crate::error::OpenError;

/// Where a store's log is kept.
pub(crate) enum LogHome {
    /// Nowhere: the store's device has no directory.
    Nowhere,
    /// In a directory that is made when there is a log.
    Dir(PathBuf, IoOptions),
    Shelf(Arc<dyn Shelf>),
}

impl LogHome {
    /// The shelf, which is made if there is none.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn shelf(&self) -> Result<Arc<dyn Shelf>, JournalError> {
        match self {
            LogHome::Nowhere => Err(JournalError::NoShelf),
            LogHome::Dir(dir, io) => Ok(Arc::new(FileShelf::open(dir, *io)?)),
            LogHome::Shelf(shelf) => Ok(shelf.clone()),
        }
    }

    /// The shelf as it is, to be read; `None`: there is none.
    pub fn shelf_to_read(&self) -> Option<Arc<dyn Shelf>> {
        match self {
            LogHome::Nowhere => None,
            LogHome::Dir(dir, io) => dir.is_dir().then(|| Arc::new(FileShelf::open_to_read(dir, *io)) as _),
            LogHome::Shelf(shelf) => Some(shelf.clone()),
        }
    }

    /// What error messages call it.
    pub fn name(&self) -> String {
        match self {
            LogHome::Nowhere => String::new(),
            LogHome::Dir(dir, _) => dir.display().to_string(),
            LogHome::Shelf(shelf) => shelf.name().to_owned(),
        }
    }

    /// # Errors
    /// A log is there, of a page file that is not.
    pub fn check_empty(&self) -> Result<(), OpenError> {
        let Some(shelf) = self.shelf_to_read() else { return Ok(()) };
        match shelf.list().map_err(|error| OpenError::Log(error.into()))?.is_empty() {
            true => Ok(()),
            false => Err(OpenError::LogAlone { dir: shelf.name().to_owned() }),
        }
    }

    /// Whether all of a log from `place` on can be read.
    pub fn reaches(&self, place: Place) -> bool {
        let read =
            |shelf: Arc<dyn Shelf>| Journal::check::<()>(&*shelf, place, None, &mut |_, _| Ok(0)).is_ok();
        self.shelf_to_read().is_some_and(read)
    }
}
