//! The lock that keeps a second process out of a data directory.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// Name of the lock file in the data directory.
const LOCK_FILE: &str = "LOCK";
/// Who has just gone may hold the lock a moment longer: a process that it was forking off at that time, until this has become
/// its own program, or the kernel that clears up behind one that was killed.
const LINGERING: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// An exclusive `flock` on `<dir>/LOCK`, held until dropped; the kernel releases it when the process ends, however
/// it ends, so a left-over file is harmless. The file names the process that took it.
///
/// A forked child holds the lock too, until it exits or closes its files.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
    path: PathBuf,
}

/// Why a data directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error(
        "data directory '{dir}' is in use by process {holder}: stop that process or use another directory"
    )]
    Held {
        /// The directory.
        dir: PathBuf,
        /// Process id of the holder as its lock file says, or "?".
        holder: String,
    },
    /// The lock file cannot be created or locked.
    #[error("cannot lock data directory: '{path}': {source}")]
    Io {
        /// The lock file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl DirLock {
    /// Locks `dir`, which must exist; waits for somebody who has just gone, but not for one who stays.
    pub fn acquire(dir: &Path) -> Result<DirLock, LockError> {
        let path = dir.join(LOCK_FILE);
        let fail = |source| LockError::Io { path: path.clone(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(fail)?;
        match lock(&file) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                let known = file.read_to_string(&mut holder).is_ok() && !holder.trim().is_empty();
                let holder = if known { holder.trim().to_owned() } else { "?".to_owned() };
                return Err(LockError::Held { dir: dir.to_owned(), holder });
            }
            Err(errno) => return Err(fail(errno.into())),
        }
        // Only a help for the message above: a full disk must not keep the holder from starting.
        let _ = write_holder(&mut file);
        Ok(DirLock { _file: file, path })
    }

    /// The lock file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn lock(file: &File) -> Result<(), Errno> {
    let since = Instant::now();
    loop {
        let locked = rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
        if locked != Err(Errno::WOULDBLOCK) || since.elapsed() > LINGERING {
            return locked;
        }
        std::thread::sleep(PAUSE);
    }
}

fn write_holder(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}
