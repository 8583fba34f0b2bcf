//! Giving many small ranges of memory back with few system calls.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ranges of one call: as many as the kernel takes without allocating.
const PARTS_MAX: usize = 64;

/// What the process calls itself where a descriptor of a process is asked for (Linux 6.14; before that one is opened).
const PIDFD_SELF_PROCESS: libc::c_int = -10001;

/// How ranges are given back.
#[derive(Default)]
pub struct Discards {
    /// The kernel does not take several in one call (`process_madvise` gives memory back from Linux 6.13 on).
    is_single: AtomicBool,
}

impl Discards {
    /// Gives ranges `(start, byte_len)` behind `base` back, all of them in its mapping and owned by the caller (M1, M2).
    pub fn discard(&self, base: NonNull<u8>, parts: &[(usize, usize)]) {
        for group in parts.chunks(PARTS_MAX) {
            if group.len() == 1 || !self.discard_group(base, group) {
                group.iter().for_each(|&part| discard_one(base, part));
            }
        }
    }

    /// False if the kernel has not given all of them back.
    fn discard_group(&self, base: NonNull<u8>, group: &[(usize, usize)]) -> bool {
        if self.is_single.load(Ordering::Relaxed) {
            return false;
        }
        let mut ranges = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS_MAX];
        for (range, &(start, byte_len)) in ranges.iter_mut().zip(group) {
            *range = libc::iovec { iov_base: base.as_ptr().wrapping_add(start).cast(), iov_len: byte_len };
        }
        let wanted: usize = group.iter().map(|(_, byte_len)| byte_len).sum();
        // SAFETY: M1: the ranges lie in the mapping; M2: the caller owns them.
        let given = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                PIDFD_SELF_PROCESS,
                ranges.as_ptr(),
                group.len(),
                libc::MADV_DONTNEED,
                0,
            )
        };
        if given < 0 {
            self.is_single.store(true, Ordering::Relaxed);
        }
        given == wanted as libc::c_long
    }
}

fn discard_one(base: NonNull<u8>, (start, byte_len): (usize, usize)) {
    let address = base.as_ptr().wrapping_add(start).cast();
    // SAFETY: M1: the range lies in the mapping; M2: the caller owns it.
    let done = unsafe { libc::madvise(address, byte_len, libc::MADV_DONTNEED) == 0 };
    assert!(done, "madvise(MADV_DONTNEED) on an own mapping cannot fail");
}
