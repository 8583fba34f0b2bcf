//! A map without the module, for tests: pages without memory read as zero, and a write to one is a fault that ends the process.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use super::abi::{Opcode, Run};
use crate::PAGE_SIZE;

static IS_SIMULATED: AtomicBool = AtomicBool::new(false);

/// For tests: maps that this process opens from now on need no module. They are far slower than those that do.
pub fn simulate_exmap() {
    IS_SIMULATED.store(true, Ordering::Relaxed);
}

pub(super) fn is_simulated() -> bool {
    IS_SIMULATED.load(Ordering::Relaxed)
}

/// See the module.
pub(super) struct SimulatedMap {
    base: NonNull<u8>,
    byte_len: usize,
    /// What the next calls fail with.
    #[cfg(test)]
    failures: parking_lot::Mutex<std::collections::VecDeque<i32>>,
}

impl SimulatedMap {
    pub fn new(byte_len: usize) -> io::Result<SimulatedMap> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: M1: a fresh private mapping at an address of the kernel's choice aliases nothing.
        let raw = unsafe { libc::mmap(std::ptr::null_mut(), byte_len, libc::PROT_READ, flags, -1, 0) };
        if raw == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(SimulatedMap {
            base: NonNull::new(raw.cast()).expect("no mapping is at address zero"),
            byte_len,
            #[cfg(test)]
            failures: parking_lot::Mutex::default(),
        })
    }

    /// Each of the next calls fails with one of these numbers.
    #[cfg(test)]
    pub fn fail_next(&self, errnos: &[i32]) {
        self.failures.lock().extend(errnos);
    }

    #[cfg(test)]
    pub fn failures_left(&self) -> usize {
        self.failures.lock().len()
    }

    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub fn act(&self, opcode: Opcode, runs: &[Run]) -> io::Result<()> {
        #[cfg(test)]
        if let Some(errno) = self.failures.lock().pop_front() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        runs.iter().try_for_each(|&(page, count)| {
            let start = self.base.as_ptr().wrapping_add(page as usize * PAGE_SIZE).cast();
            let byte_len = count as usize * PAGE_SIZE;
            // SAFETY: M1: the range lies in the mapping. M8: the caller owns it.
            let result = unsafe {
                match opcode {
                    Opcode::Alloc => libc::mprotect(start, byte_len, libc::PROT_READ | libc::PROT_WRITE),
                    Opcode::Free => match libc::madvise(start, byte_len, libc::MADV_DONTNEED) {
                        0 => libc::mprotect(start, byte_len, libc::PROT_READ),
                        failed => failed,
                    },
                }
            };
            if result == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        })
    }
}

impl Drop for SimulatedMap {
    fn drop(&mut self) {
        // SAFETY: M1: the mapping is owned and nobody refers to it after the owner is gone.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.byte_len) };
    }
}
