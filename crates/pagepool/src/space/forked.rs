//! A process that has memory as it was at the fork, and writes it out: the plainest snapshot that there is, for comparison.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::AtomicU64;

/// Bytes that the child hands to the system in one call.
const WRITE_BYTES: usize = 1 << 20;

/// A child process that writes words, as they were when it was made, to a file.
///
/// ```text
///   child:  WRITING ── all written ──▶ SYNCING ──▶ _exit(0)       any call fails: _exit(errno)
/// ```
#[derive(Debug)]
pub struct ForkedWriter {
    child: libc::pid_t,
    is_reaped: bool,
}

impl ForkedWriter {
    /// Forks; the time that this call takes is that of the fork. The child writes the words to the file, from where it
    /// stands, and syncs it.
    ///
    /// # Errors
    /// The system does not allow another process, or has no memory for its page table.
    pub fn fork(words: &[AtomicU64], file: BorrowedFd<'_>) -> io::Result<ForkedWriter> {
        // SAFETY: K1: a call without arguments that cannot fail.
        let parent = unsafe { libc::getpid() };
        // SAFETY: K1: the child runs `child_main` only, which neither allocates, locks nor returns.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => child_main(words, file.as_raw_fd(), parent),
            child => Ok(ForkedWriter { child, is_reaped: false }),
        }
    }

    /// Number of the process.
    pub fn pid(&self) -> u32 {
        self.child.unsigned_abs()
    }

    /// Whether the child has ended, without waiting for it.
    ///
    /// # Errors
    /// It could not write everything, or was killed.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        self.reap(libc::WNOHANG)
    }

    /// Waits for the end of the child.
    ///
    /// # Errors
    /// It could not write everything, or was killed.
    pub fn wait(mut self) -> io::Result<()> {
        self.reap(0).map(drop)
    }

    fn reap(&mut self, flags: libc::c_int) -> io::Result<bool> {
        if self.is_reaped {
            return Ok(true);
        }
        let mut status = 0;
        loop {
            // SAFETY: K2: the own child, not waited for yet; the status is a valid place.
            match unsafe { libc::waitpid(self.child, &mut status, flags) } {
                0 => return Ok(false),
                -1 => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => {
                        self.is_reaped = true;
                        return Err(error);
                    }
                },
                _ => break,
            }
        }
        self.is_reaped = true;
        match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
            (true, 0) => Ok(true),
            (true, errno) => Err(io::Error::from_raw_os_error(errno)),
            (false, _) => Err(io::Error::other(format!("the child was killed (wait status {status})"))),
        }
    }
}

impl Drop for ForkedWriter {
    fn drop(&mut self) {
        if !self.is_reaped {
            // SAFETY: K2: the own child, not waited for yet.
            unsafe {
                libc::kill(self.child, libc::SIGKILL);
                libc::waitpid(self.child, std::ptr::null_mut(), 0);
            }
        }
    }
}

/// The child's life. Must not allocate, lock, unwind or return.
fn child_main(words: &[AtomicU64], file: libc::c_int, parent: libc::pid_t) -> ! {
    let (mut at, end) = (0, std::mem::size_of_val(words));
    // SAFETY: K1: async-signal-safe calls; M1: `at` and what is written of the words lie in them, and nothing changes the
    // child's copy of them.
    unsafe {
        while at < end {
            if libc::getppid() != parent {
                libc::_exit(libc::ESRCH);
            }
            let from = words.as_ptr().cast::<u8>().add(at);
            let written = libc::write(file, from.cast(), WRITE_BYTES.min(end - at));
            match written {
                -1 if *libc::__errno_location() == libc::EINTR => {}
                -1 => libc::_exit(*libc::__errno_location()),
                written => at += written.unsigned_abs(),
            }
        }
        let synced = libc::fdatasync(file);
        libc::_exit(if synced == 0 { 0 } else { *libc::__errno_location() })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn the_file_has_what_was_there_at_the_fork() {
        let dir = stillframe_testkit::TempDir::new("forked");
        let path = dir.join("image");
        let words: Vec<AtomicU64> = (0..300_000).map(AtomicU64::new).collect();
        let file = std::fs::File::create(&path).unwrap();
        let child = ForkedWriter::fork(&words, file.as_fd()).unwrap();
        words.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        child.wait().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let numbers = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        assert!(numbers.eq(0..300_000), "{} bytes", bytes.len());
    }

    #[test]
    fn a_child_that_cannot_write_says_why() {
        let words: Vec<AtomicU64> = (0..10).map(AtomicU64::new).collect();
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut child = ForkedWriter::fork(&words, file.as_fd()).unwrap();
        let error = loop {
            match child.has_ended() {
                Ok(false) => std::thread::yield_now(),
                Ok(true) => panic!("it wrote to what is open for reading"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }
}
