//! Wakes a thread that may be waiting for the disk at the same time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// Wakes a stream: an `eventfd`, which a ring can wait for beside its operations. Rung only when the stream says that it is
/// about to sleep, so that it costs others nothing while there is work.
///
/// ```text
///   AWAKE ── arm ──▶ ARMED ── ring, disarm ──▶ AWAKE      between `arm` and its sleep the stream looks once more
/// ```
pub struct Bell {
    fd: OwnedFd,
    is_armed: AtomicBool,
}

impl Bell {
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> Result<Bell, Errno> {
        Ok(Bell { fd: eventfd(0, EventfdFlags::CLOEXEC)?, is_armed: AtomicBool::new(false) })
    }

    /// Wakes the stream if it sleeps, or is about to.
    pub fn ring(&self) {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            self.strike();
        }
    }

    /// From now on who rings wakes the stream.
    pub fn arm(&self) {
        self.is_armed.store(true, Ordering::SeqCst);
    }

    pub fn disarm(&self) {
        self.is_armed.store(false, Ordering::SeqCst);
    }

    /// Whatever the stream does, its next sleep ends at once.
    pub(super) fn strike(&self) {
        // The counter cannot overflow: each sleep takes it back to zero.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Sleeps until it is rung, or for so long.
    pub(super) fn wait(&self, timeout: Option<Duration>) {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        if poll(&mut fds, timeout.as_ref()).is_ok_and(|count| count > 0) {
            let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        }
        self.disarm();
    }
}
