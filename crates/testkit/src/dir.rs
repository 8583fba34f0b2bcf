//! Directories of tests.

use std::ffi::OsStr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A new directory that goes when it is dropped, unless a test has failed: then it is evidence.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// # Panics
    /// If the system has no room for one.
    #[must_use]
    pub fn new(name: &str) -> TempDir {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sf-{name}-{}-{number}", std::process::id()));
        // Left by a process of the same number that was killed.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap_or_else(|error| panic!("create {}: {error}", path.display()));
        TempDir(path)
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("kept for a look: {}", self.0.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

impl Deref for TempDir {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for TempDir {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<OsStr> for TempDir {
    fn as_ref(&self) -> &OsStr {
        self.0.as_os_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_a_name_are_two_and_both_go() {
        let (a, b) = (TempDir::new("dir"), TempDir::new("dir"));
        assert_ne!(a.path(), b.path());
        std::fs::write(a.join("file"), "x").unwrap();
        let paths = [a.path().to_owned(), b.path().to_owned()];
        drop((a, b));
        assert!(paths.iter().all(|path| !path.exists()));
    }
}
