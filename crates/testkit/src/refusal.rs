//! A system that refuses what it is asked: as old kernels, containers and administrators do.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Number of a call of the system.
pub type SystemCall = libc::c_long;

/// What `io_uring` consists of.
pub const IO_URING: [SystemCall; 3] =
    [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// From now on this thread's calls of `refused` fail with the error of number `errno`; so do those of threads and processes
/// that it starts. There is no way back.
///
/// # Panics
/// If the system has no such filters.
pub fn refuse(refused: &[SystemCall], errno: i32) {
    let rules: BTreeMap<_, _> = refused.iter().map(|call| (*call, Vec::new())).collect();
    let action = SeccompAction::Errno(errno.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().expect("a known processor");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch).expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a program");
    seccompiler::apply_filter(&program).expect("the kernel takes filters");
}

/// Runs `work` on a thread of its own that is refused that, as of [`refuse`].
///
/// # Panics
/// As that, and if `work` does.
pub fn with_refused<T: Send>(refused: &[SystemCall], errno: i32, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let filtered = scope.spawn(|| {
            refuse(refused, errno);
            work()
        });
        filtered.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
