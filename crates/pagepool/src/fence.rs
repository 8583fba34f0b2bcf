//! A pair of fences of which one costs nothing, because the other makes every thread of the process pass a full one.

use std::sync::atomic::{compiler_fence, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and its registration.
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

/// Waits this often before it sleeps.
const SPINS_BEFORE_SLEEP: u32 = 100;
const NAP: Duration = Duration::from_micros(20);

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: A2: a fence has no effect but on the order of memory accesses.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// For those who pass often.
#[inline(always)]
pub fn light_fence() {
    compiler_fence(Ordering::SeqCst);
}

/// For who passes seldom. `otherwise` orders the same where the kernel does not help.
pub fn heavy_fence(otherwise: impl FnOnce()) {
    static IS_REGISTERED: OnceLock<bool> = OnceLock::new();
    let is_registered = *IS_REGISTERED.get_or_init(|| membarrier(REGISTER_PRIVATE_EXPEDITED));
    if !(is_registered && membarrier(PRIVATE_EXPEDITED)) {
        otherwise();
    }
}

/// The `wait_count`-th look at something that others are about to change was in vain.
pub fn pause(wait_count: u32) {
    if wait_count < SPINS_BEFORE_SLEEP {
        std::hint::spin_loop();
    } else {
        std::thread::sleep(NAP);
    }
}
