//! The seam to the files of one directory, and the operating system's.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::image::ImageError;

/// A file of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// The image.
    Image,
    /// What is to become the image.
    Next,
    /// Rows that are to be merged into the image.
    Journal,
}

impl FileKind {
    pub const ALL: [FileKind; 3] = [FileKind::Image, FileKind::Next, FileKind::Journal];

    /// Its name in the directory.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FileKind::Image => "rows.image",
            FileKind::Next => "rows.next",
            FileKind::Journal => "rows.journal",
        }
    }
}

/// What the files of an image are asked. A write need not be durable, nor whole after a crash, before a `sync` that came
/// after it has returned.
pub trait Files: Send + Sync {
    /// Writes all bytes, into a new file if there is none.
    ///
    /// # Errors
    /// As the system has them.
    fn write_at(&self, file: FileKind, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reads as many bytes as there are, up to `into.len()`. A file that is not there has none.
    ///
    /// # Errors
    /// As the system has them.
    fn read_at(&self, file: FileKind, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Makes durable what has been written.
    ///
    /// # Errors
    /// As the system has them. Nothing written since the last one that returned is believed then.
    fn sync(&self, file: FileKind) -> io::Result<()>;

    /// Leaves nothing in a file.
    ///
    /// # Errors
    /// As the system has them.
    fn clear(&self, file: FileKind) -> io::Result<()>;

    /// `Next`, which has been synced, takes the place of `Image`: at once, and durably when it returns.
    ///
    /// # Errors
    /// As the system has them. Either is the image then.
    fn replace_image(&self) -> io::Result<()>;
}

/// Why an image cannot be opened or written.
#[derive(thiserror::Error, Debug)]
pub enum ImageFileError {
    #[error("{}: {source}", .file.name())]
    Io { file: FileKind, source: io::Error },
    #[error("{}: {what} at byte {offset}", .file.name())]
    Damaged { file: FileKind, what: &'static str, offset: u64 },
}

impl From<ImageFileError> for ImageError {
    fn from(error: ImageFileError) -> ImageError {
        ImageError::new(error.to_string())
    }
}

impl FileKind {
    /// The error of an operation on it.
    pub(super) fn failed(self) -> impl FnOnce(io::Error) -> ImageFileError {
        move |source| ImageFileError::Io { file: self, source }
    }

    pub(super) fn damaged(self, what: &'static str, offset: u64) -> ImageFileError {
        ImageFileError::Damaged { file: self, what, offset }
    }
}

/// A directory of the operating system.
pub struct Directory {
    path: PathBuf,
    /// Those that are open, in the order of [`FileKind::ALL`].
    open: Mutex<[Option<Arc<File>>; 3]>,
}

impl Directory {
    /// A directory that is there.
    #[must_use]
    pub fn new(path: &Path) -> Directory {
        Directory { path: path.to_owned(), open: Mutex::default() }
    }

    fn open(&self, kind: FileKind) -> io::Result<Arc<File>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &open[kind as usize] {
            return Ok(file.clone());
        }
        let path = self.path.join(kind.name());
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        // The name of a new file is durable before what is in it is relied on.
        File::open(&self.path)?.sync_all()?;
        Ok(open[kind as usize].insert(Arc::new(file)).clone())
    }
}

impl Files for Directory {
    fn write_at(&self, file: FileKind, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.open(file)?.write_all_at(bytes, offset)
    }

    fn read_at(&self, file: FileKind, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let file = self.open(file)?;
        let mut done = 0;
        while done < into.len() {
            match file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(len) => done += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn sync(&self, file: FileKind) -> io::Result<()> {
        self.open(file)?.sync_data()
    }

    fn clear(&self, file: FileKind) -> io::Result<()> {
        self.open(file)?.set_len(0)
    }

    fn replace_image(&self) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let path = |kind: FileKind| self.path.join(kind.name());
        std::fs::rename(path(FileKind::Next), path(FileKind::Image))?;
        open[FileKind::Image as usize] = open[FileKind::Next as usize].take();
        File::open(&self.path)?.sync_all()
    }
}
