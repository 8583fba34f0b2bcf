//! Images that incremental algorithms bring up to date in place, by way of a journal.
//!
//! ```text
//!   begin ──▶ blocks in `Journal` ──▶ seal, sync `Journal`: durable ──▶ rows into `Image`, sync ──▶ merged
//!                                            ▲                                                       │
//!   open, or begin after an error: is the journal sealed? ── its rows once more ─────────────────────┘
//! ```
//!
//! The journal is written anew only when all of the last one is durable in the image. An unsealed one is as if it were not
//! there: nothing of it has been merged. An older one that a crash brings back has been merged before, and no younger one has (H11).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use super::blocks::{Blocks, Rows};
use super::files::{FileKind, Files, ImageFileError};
use crate::hooks::{mutate, mutated, Hooks};
use crate::image::{Image, ImageError};
use crate::rows::{Copies, Place, RowId};

const IMAGE: FileKind = FileKind::Image;

/// Bytes before the first row.
const HEAD_LEN: u64 = 4096;

/// Magic u32, row length u32, row count u32, CRC-32C of these u32.
const MAGIC: u32 = u32::from_le_bytes(*b"SFRM");

/// The merged image of one directory.
pub struct MergedImages<F> {
    files: Arc<F>,
    row_len: usize,
    journal: Blocks<F>,
    generation: AtomicU64,
    /// The journal may be sealed and durable, and not be merged. After a seal that failed it is not: the image stays as it
    /// is, and the next journal overwrites this one.
    is_merge_owed: AtomicBool,
    hooks: Hooks,
}

impl<F: Files> MergedImages<F> {
    /// Opens the image of rows of `row_len` bytes, and ends the merge that a crash has come between.
    ///
    /// # Errors
    /// [`ImageFileError`] of the file system.
    pub fn open(files: Arc<F>, row_len: usize) -> Result<MergedImages<F>, ImageFileError> {
        MergedImages::open_with_hooks(files, row_len, Hooks::default())
    }

    /// The same, for tests.
    ///
    /// # Errors
    /// [`ImageFileError`] of the file system.
    pub fn open_with_hooks(
        files: Arc<F>,
        row_len: usize,
        hooks: Hooks,
    ) -> Result<MergedImages<F>, ImageFileError> {
        let images = MergedImages {
            journal: Blocks::new(files.clone(), FileKind::Journal, row_len),
            files,
            row_len,
            generation: AtomicU64::new(0),
            is_merge_owed: AtomicBool::new(true),
            hooks,
        };
        images.settle()?;
        Ok(images)
    }

    /// Begins to bring the image to a cut of `row_count` rows. There is one at a time.
    ///
    /// # Errors
    /// [`ImageFileError`] of the file system.
    pub fn begin(&self, row_count: u32) -> Result<MergedWriter<'_, F>, ImageFileError> {
        self.settle()?;
        self.journal.begin(self.generation.fetch_add(1, Ordering::Relaxed) + 1);
        Ok(MergedWriter { images: self, rows: Rows::default(), row_count })
    }

    /// The rows of the last image that finished, one after the other; `None` if there is none. Not during an image.
    ///
    /// # Errors
    /// [`ImageFileError`] if it cannot be read, or its head is not as it was written.
    pub fn load(&self) -> Result<Option<Vec<u8>>, ImageFileError> {
        self.settle()?;
        let mut head = [0; 16];
        if self.files.read_at(IMAGE, 0, &mut head).map_err(IMAGE.failed())? < head.len() {
            return Ok(None);
        }
        let row_count = u32::from_le_bytes(head[8..12].try_into().expect("four bytes"));
        if head != self.head(row_count) {
            return Err(IMAGE.damaged("no head of this image", 0));
        }
        // Rows that came and were not written are not in the file, and are zero.
        let mut rows = vec![0; row_count as usize * self.row_len];
        self.files.read_at(IMAGE, HEAD_LEN, &mut rows).map_err(IMAGE.failed())?;
        Ok(Some(rows))
    }

    fn head(&self, row_count: u32) -> [u8; 16] {
        let mut head = [0; 16];
        head[..4].copy_from_slice(&MAGIC.to_le_bytes());
        head[4..8].copy_from_slice(&(self.row_len as u32).to_le_bytes());
        head[8..12].copy_from_slice(&row_count.to_le_bytes());
        let sum = crc32c::crc32c(&head[..12]).to_le_bytes();
        head[12..].copy_from_slice(&sum);
        head
    }

    /// Merges the journal if it is sealed, and has not been merged.
    fn settle(&self) -> Result<(), ImageFileError> {
        if !self.is_merge_owed.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.journal.read(|_, _| Ok(())) {
            Ok(seal) => {
                self.generation.fetch_max(seal.generation, Ordering::Relaxed);
                // A process that was killed may have left it in the system's memory alone.
                self.files.sync(FileKind::Journal).map_err(FileKind::Journal.failed())?;
                self.merge(seal.row_count)?;
            }
            Err(ImageFileError::Damaged { .. }) => self.pass_unsealed()?,
            Err(error) => return Err(error),
        }
        self.is_merge_owed.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// The journal is not sealed. Blocks of the next one are not to be taken for its blocks, nor these for those.
    fn pass_unsealed(&self) -> Result<(), ImageFileError> {
        self.files.clear(FileKind::Journal).map_err(FileKind::Journal.failed())?;
        self.files.sync(FileKind::Journal).map_err(FileKind::Journal.failed())
    }

    /// Writes the rows of the journal, which is durable, to their places.
    fn merge(&self, row_count: u32) -> Result<(), ImageFileError> {
        let write = |offset, bytes: &[u8]| self.files.write_at(IMAGE, offset, bytes).map_err(IMAGE.failed());
        let rows = self.journal.read(|ids, bytes| {
            let mut start = 0;
            while start < ids.len() {
                // Neighbours go in one write.
                let run = (start + 1..ids.len()).find(|&at| ids[at] != ids[at - 1] + 1).unwrap_or(ids.len());
                let offset = HEAD_LEN + u64::from(ids[start]) * self.row_len as u64;
                write(offset, &bytes[start * self.row_len..run * self.row_len])?;
                start = run;
            }
            Ok(())
        });
        if !mutated!(self.hooks, MergeWithoutJournal) {
            rows?;
        }
        write(0, &self.head(row_count))?;
        self.files.sync(IMAGE).map_err(IMAGE.failed())
    }
}

/// One image on its way.
pub struct MergedWriter<'i, F> {
    images: &'i MergedImages<F>,
    rows: Rows,
    row_count: u32,
}

impl<F: Files> MergedWriter<'_, F> {
    fn finish_journal(&mut self) -> Result<(), ImageFileError> {
        self.images.journal.append(&mut self.rows)?;
        if !mutated!(self.images.hooks, MergeWithoutJournal) {
            mutate!(self.images.hooks, MergeOfUnsyncedJournal => {
                self.images.is_merge_owed.store(true, Ordering::Relaxed);
            });
            self.images.journal.seal(self.row_count)?;
            self.images.is_merge_owed.store(true, Ordering::Relaxed);
        }
        self.images.merge(self.row_count)?;
        self.images.is_merge_owed.store(false, Ordering::Relaxed);
        Ok(())
    }
}

impl<F: Files, C: Copies> Image<C> for MergedWriter<'_, F> {
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
        Ok(self.images.journal.append(&mut self.rows)?)
    }

    fn finish(&mut self) -> Result<(), ImageError> {
        Ok(self.finish_journal()?)
    }
}
