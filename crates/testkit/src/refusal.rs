//! A system that refuses what it is asked: as old kernels, containers and administrators do.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Number of a call of the system.
pub type SystemCall = libc::c_long;

/// What `io_uring` consists of.
pub const IO_URING: [SystemCall; 3] =
    [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Runs `work` on a thread whose calls of `refused` fail with the error of number `errno`; so do those of threads and
/// processes that it starts.
///
/// # Panics
/// If the system has no such filters, or if `work` does.
pub fn with_refused<T: Send>(refused: &[SystemCall], errno: i32, work: impl FnOnce() -> T + Send) -> T {
    let rules: BTreeMap<_, _> = refused.iter().map(|call| (*call, Vec::new())).collect();
    let action = SeccompAction::Errno(errno.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().expect("a known processor");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch).expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a program");
    std::thread::scope(|scope| {
        let filtered = scope.spawn(|| {
            seccompiler::apply_filter(&program).expect("the kernel takes filters");
            work()
        });
        filtered.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
