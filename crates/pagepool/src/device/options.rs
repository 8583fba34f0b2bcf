//! How a file is read and written, by name.

use std::fmt;

/// What does many operations of one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IoEngine {
    /// `io_uring` where the system lets it, else threads.
    #[default]
    Auto,
    /// `io_uring`, or the file is not opened.
    IoUring,
    /// Threads that wait in `preadv` and `pwritev`.
    Threads,
}

impl IoEngine {
    /// All of them, the default first.
    pub const ALL: [IoEngine; 3] = [IoEngine::Auto, IoEngine::IoUring, IoEngine::Threads];
    /// Their names, in the same order.
    pub const NAMES: [&'static str; 3] = ["auto", "io_uring", "threads"];

    pub fn by_name(name: &str) -> Option<IoEngine> {
        by_name(&IoEngine::ALL, &IoEngine::NAMES, name)
    }
}

/// Whether operations go around the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DirectIo {
    /// With `O_DIRECT` where the file system takes it, else through the page cache.
    #[default]
    Auto,
    /// With `O_DIRECT`, or the file is not opened.
    Yes,
    /// Through the page cache.
    No,
}

impl DirectIo {
    /// All of them, the default first.
    pub const ALL: [DirectIo; 3] = [DirectIo::Auto, DirectIo::Yes, DirectIo::No];
    /// Their names, in the same order.
    pub const NAMES: [&'static str; 3] = ["auto", "yes", "no"];

    pub fn by_name(name: &str) -> Option<DirectIo> {
        by_name(&DirectIo::ALL, &DirectIo::NAMES, name)
    }
}

/// How a write is made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SyncMethod {
    /// By a write and an `fdatasync`, until it is measured that the other is faster.
    #[default]
    Auto,
    /// By a write with `RWF_DSYNC`.
    Dsync,
    /// By a write and an `fdatasync`.
    Fdatasync,
}

impl SyncMethod {
    /// All of them, the default first.
    pub const ALL: [SyncMethod; 3] = [SyncMethod::Auto, SyncMethod::Dsync, SyncMethod::Fdatasync];
    /// Their names, in the same order.
    pub const NAMES: [&'static str; 3] = ["auto", "dsync", "fdatasync"];

    pub fn by_name(name: &str) -> Option<SyncMethod> {
        by_name(&SyncMethod::ALL, &SyncMethod::NAMES, name)
    }
}

impl fmt::Display for SyncMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SyncMethod::Auto => "auto",
            SyncMethod::Dsync => "dsync",
            SyncMethod::Fdatasync => "fdatasync",
        })
    }
}

fn by_name<T: Copy>(all: &[T], names: &[&str], name: &str) -> Option<T> {
    let at = names.iter().position(|other| *other == name)?;
    all.get(at).copied()
}

/// How a file is read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IoOptions {
    pub engine: IoEngine,
    pub direct: DirectIo,
}
