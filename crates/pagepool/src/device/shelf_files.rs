//! A [`Shelf`] that is a directory of files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;

use super::file::{os_error, rename_file, retry, sync_parent, FileDevice};
use super::options::IoOptions;
use super::seam::{Device, DeviceError, DeviceErrorKind, DeviceOp};
use super::shelf::{Shelf, ShelfNumber};

/// How the names of files end.
const ENDING: &str = ".log";
/// Digits of a name, at least.
const DIGITS: usize = 8;

/// A directory with files `00000017.log`.
pub struct FileShelf {
    dir: PathBuf,
    name: String,
    options: IoOptions,
    is_to_read: bool,
}

impl FileShelf {
    /// The shelf in the directory `dir`, which is made durably if there is none.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(dir: &Path, options: IoOptions) -> Result<FileShelf, DeviceError> {
        let shelf = FileShelf::at(dir, options, false);
        match rustix::fs::mkdir(dir, 0o750.into()) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(os_error(&shelf.name, DeviceOp::Open, 0, 0, errno)),
        }
        sync_parent(dir).map_err(|errno| os_error(&shelf.name, DeviceOp::Name, 0, 0, errno))?;
        Ok(shelf)
    }

    /// The shelf in the directory `dir`, where nothing is changed: what would change it fails.
    #[must_use]
    pub fn open_to_read(dir: &Path, options: IoOptions) -> FileShelf {
        FileShelf::at(dir, options, true)
    }

    fn at(dir: &Path, options: IoOptions, is_to_read: bool) -> FileShelf {
        FileShelf { dir: dir.to_owned(), name: dir.display().to_string(), options, is_to_read }
    }

    fn path(&self, number: ShelfNumber) -> PathBuf {
        self.dir.join(format!("{number}{ENDING}"))
    }

    fn error(&self, number: ShelfNumber, op: DeviceOp, errno: Errno) -> DeviceError {
        os_error(&self.device_name(number), op, 0, 0, errno)
    }

    fn must_change(&self, number: ShelfNumber, op: DeviceOp) -> Result<(), DeviceError> {
        match self.is_to_read {
            true => Err(self.error(number, op, Errno::ROFS)),
            false => Ok(()),
        }
    }

    fn must_be_free(&self, number: ShelfNumber, op: DeviceOp) -> Result<(), DeviceError> {
        match rustix::fs::statat(CWD, self.path(number), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.error(number, op, errno)),
            Ok(_) => Err(self.error(number, op, Errno::EXIST)),
        }
    }

    fn sync_names(&self, number: ShelfNumber) -> Result<(), DeviceError> {
        sync_parent(&self.path(number)).map_err(|errno| self.error(number, DeviceOp::Name, errno))
    }
}

impl Shelf for FileShelf {
    fn name(&self) -> &str {
        &self.name
    }

    fn device_name(&self, number: ShelfNumber) -> String {
        self.path(number).display().to_string()
    }

    fn list(&self) -> Result<Vec<ShelfNumber>, DeviceError> {
        let fail = |error: std::io::Error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            os_error(&self.name, DeviceOp::List, 0, 0, errno)
        };
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(&self.dir).map_err(fail)? {
            let name = entry.map_err(fail)?.file_name();
            numbers.extend(name.to_str().and_then(number_of));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn create(&self, number: ShelfNumber) -> Result<Arc<dyn Device>, DeviceError> {
        self.must_change(number, DeviceOp::Open)?;
        self.must_be_free(number, DeviceOp::Open)?;
        let device = FileDevice::create(&self.path(number), self.options)?;
        self.sync_names(number)?;
        Ok(Arc::new(device))
    }

    fn open(&self, number: ShelfNumber) -> Result<Arc<dyn Device>, DeviceError> {
        let path = self.path(number);
        let device = match self.is_to_read {
            true => FileDevice::open_to_read(&path, self.options)?,
            false => FileDevice::open(&path, self.options)?,
        };
        device.forget_cached();
        Ok(Arc::new(device))
    }

    fn renumber(&self, from: ShelfNumber, to: ShelfNumber) -> Result<Arc<dyn Device>, DeviceError> {
        self.must_change(from, DeviceOp::Name)?;
        self.must_be_free(to, DeviceOp::Name)?;
        rename_file(&self.path(from), &self.path(to))
            .map_err(|errno| self.error(from, DeviceOp::Name, errno))?;
        self.sync_names(to)?;
        self.open(to)
    }

    fn remove(&self, number: ShelfNumber) -> Result<(), DeviceError> {
        self.must_change(number, DeviceOp::Remove)?;
        retry(|| rustix::fs::unlink(self.path(number)))
            .map_err(|errno| self.error(number, DeviceOp::Remove, errno))?;
        self.sync_names(number)
    }
}

/// The number that a file's name says; none for a name that no shelf gives.
fn number_of(name: &str) -> Option<ShelfNumber> {
    let digits = name.strip_suffix(ENDING)?;
    let number = ShelfNumber(digits.parse().ok()?);
    (digits.len() >= DIGITS && number.to_string() == digits).then_some(number)
}

impl DeviceError {
    /// Whether a device of that number is there already.
    pub fn is_taken(&self) -> bool {
        self.kind == DeviceErrorKind::Os(Errno::EXIST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_a_shelf_gives_are_numbers() {
        assert_eq!(number_of("00000017.log"), Some(ShelfNumber(17)));
        assert_eq!(number_of("4294967295.log"), Some(ShelfNumber(u32::MAX)));
        for name in
            ["17.log", "000000017.log", "00000017.log.old", "00000017", "+0000017.log", "4294967296.log"]
        {
            assert_eq!(number_of(name), None, "{name}");
        }
    }
}
