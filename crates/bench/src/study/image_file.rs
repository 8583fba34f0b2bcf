//! Files that images are written to. A new one takes the place of the last when it is complete and durable.
//!
//! ```text
//!   image.new:  append ──▶ ... ──▶ sync ── rename ──▶ image         a crash before leaves the last image
//! ```

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stillframe_algorithms::{Copies, Help, Image, ImageError, Place, RowId};

use crate::error::{BenchError, Context, Result};

/// Bytes that are written at once.
const BATCH_BYTES: usize = 1 << 20;
/// Before a run of rows: the first and how many, little-endian, 4 bytes each.
const HEAD_BYTES: usize = 8;

fn not_written(error: io::Error) -> ImageError {
    ImageError::new(error.to_string())
}

/// The file to be and its place.
pub struct Replacing {
    path: PathBuf,
    next_path: PathBuf,
    next: File,
}

impl Replacing {
    /// In a directory that is made if it is not there.
    pub fn new(dir: &Path) -> Result<Replacing> {
        fs::create_dir_all(dir).context(|| format!("create {}", dir.display()))?;
        let next_path = dir.join("image.new");
        let next = Replacing::create(&next_path).context(|| format!("create {}", next_path.display()))?;
        Ok(Replacing { path: dir.join("image"), next_path, next })
    }

    fn create(path: &Path) -> io::Result<File> {
        File::options().read(true).write(true).create(true).truncate(true).open(path)
    }

    /// What is to become the image.
    pub fn next(&self) -> &File {
        &self.next
    }

    /// Makes it the image; what comes goes to another. Returns the file of the image.
    pub fn commit(&mut self) -> io::Result<File> {
        self.next.sync_data()?;
        fs::rename(&self.next_path, &self.path)?;
        Ok(std::mem::replace(&mut self.next, Replacing::create(&self.next_path)?))
    }

    pub fn image_bytes(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |metadata| metadata.len())
    }

    pub fn read(&self) -> Result<Vec<u8>> {
        fs::read(&self.path).context(|| format!("read {}", self.path.display()))
    }
}

/// An image in runs of rows, in any order.
pub struct Runs {
    file: Arc<Mutex<Replacing>>,
    /// Rows that writers have written themselves.
    helped: Arc<AtomicU64>,
    row_len: usize,
    batch: Vec<u8>,
    /// Where in the batch the run begins that may go on.
    run_at: Option<usize>,
    next_row: u32,
    /// To go back to if the last row is taken back.
    before_last: (usize, Option<usize>, u32),
}

impl Runs {
    pub fn new(dir: &Path, row_len: usize) -> Result<Runs> {
        Ok(Runs {
            file: Arc::new(Mutex::new(Replacing::new(dir)?)),
            helped: Arc::default(),
            row_len,
            batch: Vec::with_capacity(BATCH_BYTES + HEAD_BYTES + row_len),
            run_at: None,
            next_row: 0,
            before_last: (0, None, 0),
        })
    }

    /// For writers that help.
    pub fn helper(&self) -> Helper {
        Helper { file: self.file.clone(), helped: self.helped.clone(), row_len: self.row_len }
    }

    /// Rows that writers have written themselves, of all images.
    pub fn helped(&self) -> u64 {
        self.helped.load(Ordering::Relaxed)
    }

    pub fn file(&self) -> std::sync::MutexGuard<'_, Replacing> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for a row's bytes, and says where.
    #[inline(always)]
    pub fn append(&mut self, row: u32) -> &mut [u8] {
        self.before_last = (self.batch.len(), self.run_at, self.next_row);
        let run_at = match self.run_at {
            Some(at) if self.next_row == row => at,
            _ => {
                let at = self.batch.len();
                self.batch.extend_from_slice(&row.to_le_bytes());
                self.batch.extend_from_slice(&0u32.to_le_bytes());
                *self.run_at.insert(at)
            }
        };
        self.set_count(run_at, row + 1);
        self.next_row = row + 1;
        let at = self.batch.len();
        self.batch.resize(at + self.row_len, 0);
        &mut self.batch[at..]
    }

    #[inline(always)]
    fn set_count(&mut self, run_at: usize, end_row: u32) {
        let first = u32::from_le_bytes(self.batch[run_at..run_at + 4].try_into().unwrap_or_default());
        self.batch[run_at + 4..run_at + HEAD_BYTES].copy_from_slice(&(end_row - first).to_le_bytes());
    }

    /// Runs as `append` would make them.
    pub fn append_runs(&mut self, runs: &[u8]) {
        self.batch.extend_from_slice(runs);
        self.run_at = None;
    }

    fn forget_last(&mut self) {
        let (len, run_at, next_row) = self.before_last;
        self.batch.truncate(len);
        (self.run_at, self.next_row) = (run_at, next_row);
        if let Some(at) = run_at {
            self.set_count(at, next_row);
        }
    }

    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.batch.len() >= BATCH_BYTES
    }

    pub fn write(&mut self) -> io::Result<()> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file.next().write_all(&self.batch);
        drop(file);
        self.batch.clear();
        self.run_at = None;
        written
    }

    pub fn commit(&mut self) -> io::Result<()> {
        self.write()?;
        self.file().commit().map(drop)
    }

    /// The rows of the last image.
    ///
    /// # Errors
    /// A row is there twice or not at all.
    pub fn rows(&self, row_count: u32) -> Result<Vec<u8>> {
        let bytes = self.file().read()?;
        let mut rows = vec![0; row_count as usize * self.row_len];
        let mut is_there = vec![false; row_count as usize];
        let mut rest = &bytes[..];
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap_or_default()) as usize;
        while rest.len() > HEAD_BYTES {
            let (first, count) = (number(&rest[..4]), number(&rest[4..HEAD_BYTES]));
            let end = HEAD_BYTES + count * self.row_len;
            if first + count > row_count as usize || end > rest.len() || count == 0 {
                return Err(BenchError::Failed(format!("an image has a run of {count} rows at row {first}")));
            }
            for (row, bytes) in (first..).zip(rest[HEAD_BYTES..end].chunks_exact(self.row_len)) {
                if std::mem::replace(&mut is_there[row], true) {
                    return Err(BenchError::Failed(format!("an image has row {row} twice")));
                }
                rows[row * self.row_len..(row + 1) * self.row_len].copy_from_slice(bytes);
            }
            rest = &rest[end..];
        }
        match is_there.iter().position(|is_there| !is_there) {
            Some(row) => Err(BenchError::Failed(format!("an image lacks row {row}"))),
            None => Ok(rows),
        }
    }
}

/// Takes rows of writers into the same file.
pub struct Helper {
    file: Arc<Mutex<Replacing>>,
    helped: Arc<AtomicU64>,
    row_len: usize,
}

impl<C: Copies> Help<C> for Helper {
    fn emit(&self, copies: &C, row: RowId, place: Place) -> std::result::Result<(), ImageError> {
        self.helped.fetch_add(1, Ordering::Relaxed);
        let mut run = vec![0; HEAD_BYTES + self.row_len];
        run[..4].copy_from_slice(&row.0.to_le_bytes());
        run[4..HEAD_BYTES].copy_from_slice(&1u32.to_le_bytes());
        copies.read(place, &mut run[HEAD_BYTES..]);
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file.next().write_all(&run);
        written.map_err(not_written)
    }
}

/// The image of an incremental algorithm: rows that have changed, merged with the last image into a new one (Cao et al., SIGMOD
/// 2011). So each checkpoint is a full one, as the paper has it. Rows come in ascending order.
pub struct Merged {
    file: Replacing,
    last: Option<File>,
    row_len: usize,
    row_count: u32,
    /// Some rows in a row, of the last image, into which what is put goes.
    window: Vec<u8>,
    window_start: u64,
    is_begun: bool,
}

impl Merged {
    pub fn new(dir: &Path, row_len: usize, row_count: u32) -> Result<Merged> {
        let window = Vec::with_capacity(BATCH_BYTES.next_multiple_of(row_len));
        let file = Replacing::new(dir)?;
        Ok(Merged { file, last: None, row_len, row_count, window, window_start: 0, is_begun: false })
    }

    pub fn file(&self) -> &Replacing {
        &self.file
    }

    fn len(&self) -> u64 {
        u64::from(self.row_count) * self.row_len as u64
    }

    /// The window with the row at this place of the file, after those before it.
    fn move_to(&mut self, place: u64) -> io::Result<()> {
        let window_len = BATCH_BYTES.next_multiple_of(self.row_len) as u64;
        if !self.is_begun {
            (self.is_begun, self.window_start) = (true, 0);
            self.load(window_len)?;
        }
        while place >= self.window_start + self.window.len() as u64 && !self.window.is_empty() {
            self.file.next().write_all_at(&self.window, self.window_start)?;
            self.window_start += self.window.len() as u64;
            self.load(window_len)?;
        }
        Ok(())
    }

    fn load(&mut self, window_len: u64) -> io::Result<()> {
        let len = window_len.min(self.len() - self.window_start);
        self.window.resize(len as usize, 0);
        match &self.last {
            Some(last) => last.read_exact_at(&mut self.window, self.window_start),
            None => Ok(()),
        }
    }
}

impl<C: Copies> Image<C> for Merged {
    fn put(&mut self, copies: &C, row: RowId, place: Place) -> std::result::Result<(), ImageError> {
        let at = u64::from(row.0) * self.row_len as u64;
        if !self.is_begun || at >= self.window_start + self.window.len() as u64 {
            self.move_to(at).map_err(not_written)?;
        }
        let Some(at) = at.checked_sub(self.window_start) else {
            return Err(ImageError::new("rows are merged in ascending order"));
        };
        copies.read(place, &mut self.window[at as usize..at as usize + self.row_len]);
        Ok(())
    }

    fn take_back(&mut self) {
        unreachable!("what an incremental algorithm puts is not being written");
    }

    fn has_room(&mut self) -> bool {
        true
    }

    fn drain(&mut self) -> std::result::Result<(), ImageError> {
        Ok(())
    }

    fn finish(&mut self) -> std::result::Result<(), ImageError> {
        self.move_to(self.len()).map_err(not_written)?;
        self.is_begun = false;
        self.last = Some(self.file.commit().map_err(not_written)?);
        Ok(())
    }
}

impl<C: Copies> Image<C> for Runs {
    #[inline]
    fn put(&mut self, copies: &C, row: RowId, place: Place) -> std::result::Result<(), ImageError> {
        copies.read(place, self.append(row.0));
        Ok(())
    }

    fn take_back(&mut self) {
        self.forget_last();
    }

    #[inline]
    fn has_room(&mut self) -> bool {
        !self.is_full()
    }

    fn drain(&mut self) -> std::result::Result<(), ImageError> {
        self.write().map_err(not_written)
    }

    fn finish(&mut self) -> std::result::Result<(), ImageError> {
        self.commit().map_err(not_written)
    }
}

#[cfg(test)]
mod tests {
    use stillframe_algorithms::{CopyId, RowCopies};

    use super::*;
    use crate::study::memory::{rows, Counted};

    const ROWS: u32 = 40_000;

    fn copies() -> Counted {
        let array = rows(ROWS, 64, false).unwrap();
        (0..ROWS).for_each(|row| array.write(row, 8, &u64::from(row).to_le_bytes()));
        Counted(RowCopies::over(Box::new([array])))
    }

    fn expected(row: u32, rows: &[u8]) -> bool {
        rows[row as usize * 64 + 8..][..8] == u64::from(row).to_le_bytes()
    }

    #[test]
    fn runs_come_back_in_any_order_and_without_what_was_taken_back() {
        let dir = stillframe_testkit::TempDir::new("runs-image");
        let copies = copies();
        let mut image = Runs::new(&dir, 64).unwrap();
        let helper = image.helper();
        for row in (0..ROWS / 2).chain((ROWS / 2..ROWS).rev()).map(RowId) {
            let place = Place::of(row, CopyId::D);
            match row.0 % 100 {
                99 => helper.emit(&copies, row, place).unwrap(),
                7 => {
                    image.put(&copies, row, place).unwrap();
                    Image::<Counted>::take_back(&mut image);
                    image.put(&copies, row, place).unwrap();
                }
                _ => image.put(&copies, row, place).unwrap(),
            }
            if !Image::<Counted>::has_room(&mut image) {
                Image::<Counted>::drain(&mut image).unwrap();
            }
        }
        Image::<Counted>::finish(&mut image).unwrap();
        let rows = image.rows(ROWS).unwrap();
        assert!((0..ROWS).all(|row| expected(row, &rows)));
        assert!(image.rows(ROWS + 1).unwrap_err().to_string().contains("lacks row 40000"));
        // A second image takes its place, and is not complete.
        image.put(&copies, RowId(3), Place::of(RowId(3), CopyId::D)).unwrap();
        Image::<Counted>::finish(&mut image).unwrap();
        assert!(image.rows(ROWS).unwrap_err().to_string().contains("lacks row 0"));
    }

    #[test]
    fn what_has_not_changed_is_merged_from_the_last_image() {
        let dir = stillframe_testkit::TempDir::new("merged-image");
        let copies = copies();
        let mut image = Merged::new(&dir, 64, ROWS).unwrap();
        let place = |row| Place::of(RowId(row), CopyId::D);
        (0..ROWS).for_each(|row| image.put(&copies, RowId(row), place(row)).unwrap());
        Image::<Counted>::finish(&mut image).unwrap();
        copies.0.array(CopyId::D).write(5, 8, &7u64.to_le_bytes());
        copies.0.array(CopyId::D).write(39_999, 8, &9u64.to_le_bytes());
        image.put(&copies, RowId(39_999), place(39_999)).unwrap();
        assert!(image.put(&copies, RowId(5), place(5)).is_err());
        Image::<Counted>::finish(&mut image).unwrap();
        let rows = image.file().read().unwrap();
        assert!((0..ROWS - 1).all(|row| expected(row, &rows)));
        assert_eq!(rows[39_999 * 64 + 8..][..8], 9u64.to_le_bytes());
    }
}
