//! Full images: each is written beside the last and takes its place.
//!
//! ```text
//!   begin: nothing in `Next` ──▶ blocks ──▶ seal, sync `Next` ──▶ `Next` takes the place of `Image`
//! ```

use std::sync::Arc;

use super::blocks::{Blocks, Rows};
use super::files::{FileKind, Files, ImageFileError};
use crate::image::{Image, ImageError};
use crate::rows::{Copies, Place, RowId};

/// The full images of one directory.
pub struct FullImages<F> {
    files: Arc<F>,
    row_len: usize,
    next: Arc<Blocks<F>>,
}

impl<F: Files> FullImages<F> {
    /// Images of rows of `row_len` bytes.
    pub fn new(files: Arc<F>, row_len: usize) -> FullImages<F> {
        let next = Arc::new(Blocks::new(files.clone(), FileKind::Next, row_len));
        FullImages { files, row_len, next }
    }

    /// Where writers give rows of the running image.
    pub fn help(&self) -> Arc<Blocks<F>> {
        self.next.clone()
    }

    /// Begins the image of a cut of `row_count` rows. There is one at a time, and it begins before its cut's first write.
    ///
    /// # Errors
    /// [`ImageFileError`] of the file system.
    pub fn begin(&self, row_count: u32) -> Result<FullWriter<'_, F>, ImageFileError> {
        self.files.clear(FileKind::Next).map_err(FileKind::Next.failed())?;
        self.next.begin(0);
        Ok(FullWriter { images: self, rows: Rows::default(), row_count })
    }

    /// The rows of the last image that finished, one after the other; `None` if there is none.
    ///
    /// # Errors
    /// [`ImageFileError`] if it cannot be read, or is not as it was written.
    pub fn load(&self) -> Result<Option<Vec<u8>>, ImageFileError> {
        let file = FileKind::Image;
        if self.files.read_at(file, 0, &mut [0]).map_err(file.failed())? == 0 {
            return Ok(None);
        }
        let image = Blocks::new(self.files.clone(), file, self.row_len);
        let (mut rows, mut seen) = (Vec::new(), Vec::new());
        let seal = image.read(|ids, bytes| {
            for (&id, row) in ids.iter().zip(bytes.chunks_exact(self.row_len)) {
                let (start, end) = (id as usize * self.row_len, (id as usize + 1) * self.row_len);
                rows.resize(rows.len().max(end), 0);
                seen.resize(seen.len().max(id as usize + 1), false);
                rows[start..end].copy_from_slice(row);
                if std::mem::replace(&mut seen[id as usize], true) {
                    return Err(file.damaged("a row twice", 0));
                }
            }
            Ok(())
        })?;
        if seen.len() != seal.row_count as usize || seen.contains(&false) {
            return Err(file.damaged("a row is missing", 0));
        }
        Ok(Some(rows))
    }
}

/// One full image on its way.
pub struct FullWriter<'i, F> {
    images: &'i FullImages<F>,
    rows: Rows,
    row_count: u32,
}

impl<F: Files, C: Copies> Image<C> for FullWriter<'_, F> {
    fn put(&mut self, copies: &C, row: RowId, place: Place) -> Result<(), ImageError> {
        self.rows.put(copies, row, place);
        Ok(())
    }

    fn take_back(&mut self) {
        self.rows.take_back(self.images.row_len);
    }

    fn has_room(&mut self) -> bool {
        self.rows.has_room()
    }

    fn drain(&mut self) -> Result<(), ImageError> {
        Ok(self.images.next.append(&mut self.rows)?)
    }

    fn finish(&mut self) -> Result<(), ImageError> {
        self.images.next.append(&mut self.rows)?;
        self.images.next.seal(self.row_count)?;
        Ok(self.images.files.replace_image().map_err(FileKind::Image.failed())?)
    }
}
