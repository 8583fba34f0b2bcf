//! What writers of both kinds of epoch share when nothing is free to keep a row in: they give it to the image themselves.

use std::sync::{Arc, Mutex, PoisonError};

use crate::image::{Help, ImageError};
use crate::rows::{Place, RowId};
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub struct Helpers<C> {
    image: Arc<dyn Help<C>>,
    /// Rows of the cut that writers have given to the image.
    row_count: AtomicU32,
    has_failed: AtomicBool,
    /// The first error of a writer that helped.
    failure: Mutex<Option<ImageError>>,
}

impl<C> Helpers<C> {
    pub fn new(image: Arc<dyn Help<C>>) -> Helpers<C> {
        Helpers {
            image,
            row_count: AtomicU32::new(0),
            has_failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    fn failure(&self) -> std::sync::MutexGuard<'_, Option<ImageError>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a new cut.
    pub fn begin(&self) {
        self.row_count.store(0, Ordering::Relaxed);
        self.has_failed.store(false, Ordering::Relaxed);
        self.failure().take();
    }

    /// Gives a row that the caller has claimed to the image.
    pub fn emit(&self, copies: &C, row: RowId, place: Place) {
        if let Err(error) = self.image.emit(copies, row, place) {
            self.failure().get_or_insert(error);
            self.has_failed.store(true, Ordering::Release);
        }
        self.count();
    }

    /// A row that the caller has claimed is not for the sweep.
    pub fn count(&self) {
        self.row_count.fetch_add(1, Ordering::Release);
    }

    /// Rows that have been given by now.
    pub fn row_count(&self) -> u32 {
        self.row_count.load(Ordering::Acquire)
    }

    /// # Errors
    /// The first of a writer that helped.
    pub fn check(&self) -> Result<(), ImageError> {
        if !self.has_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(self.failure().take().unwrap_or_else(|| ImageError::new("a writer could not help")))
    }
}
