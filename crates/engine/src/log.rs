//! The server's log, in Redis's form: `pid:M 01 Jan 2025 12:00:00.000 * text`. Times are UTC.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use stillframe_units::Utc;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Debug,
    Verbose,
    Notice,
    Warning,
}

static LEAST: AtomicU8 = AtomicU8::new(Level::Notice as u8);
static TARGET: Mutex<Option<LogFile>> = Mutex::new(None);

/// A file that is appended to under its name: once another file has that name, or none, as after a rotation, lines go to a
/// new one.
struct LogFile {
    path: PathBuf,
    file: File,
    /// Device and inode.
    identity: (u64, u64),
}

impl LogFile {
    fn open(path: &Path) -> std::io::Result<LogFile> {
        let file = File::options().create(true).append(true).open(path)?;
        let meta = file.metadata()?;
        Ok(LogFile { path: path.to_owned(), file, identity: (meta.dev(), meta.ino()) })
    }

    fn is_there(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.identity)
    }

    fn append(&mut self, line: &[u8]) -> std::io::Result<()> {
        if !self.is_there() {
            // Without a new file the old one has the line.
            if let Ok(anew) = LogFile::open(&self.path) {
                *self = anew;
            }
        }
        self.file.write_all(line)
    }
}

pub fn set_level(number: u8) {
    LEAST.store(number, Ordering::Relaxed);
}

/// Appends to a file from now on instead of the standard output.
///
/// # Errors
/// The file cannot be opened.
pub fn set_file(path: &Path) -> std::io::Result<()> {
    let file = LogFile::open(&std::path::absolute(path)?)?;
    *TARGET.lock() = Some(file);
    Ok(())
}

pub fn is_on(level: Level) -> bool {
    level as u8 >= LEAST.load(Ordering::Relaxed)
}

/// Writes a line; a failing log must not stop the server.
pub fn write(level: Level, text: &str) {
    if !is_on(level) {
        return;
    }
    let mark = ['.', '-', '*', '#'][level as usize];
    let line = format!("{}:M {} {mark} {text}\n", std::process::id(), Utc::now().log_time());
    match &mut *TARGET.lock() {
        Some(file) => drop(file.append(line.as_bytes())),
        None => drop(std::io::stdout().write_all(line.as_bytes())),
    }
}

/// Takes what the store says into this log.
struct Store;

impl ::log::Log for Store {
    fn enabled(&self, line: &::log::Metadata<'_>) -> bool {
        line.level() <= ::log::Level::Warn
    }

    fn log(&self, line: &::log::Record<'_>) {
        if self.enabled(line.metadata()) {
            warning(line.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// From now on the store's warnings are in this log, too.
pub fn hear_the_store() {
    // A second server in the same process has it already.
    if ::log::set_logger(&Store).is_ok() {
        ::log::set_max_level(::log::LevelFilter::Warn);
    }
}

pub fn notice(text: impl AsRef<str>) {
    write(Level::Notice, text.as_ref());
}

pub fn warning(text: impl AsRef<str>) {
    write(Level::Warning, text.as_ref());
}

pub fn verbose(text: impl AsRef<str>) {
    write(Level::Verbose, text.as_ref());
}
