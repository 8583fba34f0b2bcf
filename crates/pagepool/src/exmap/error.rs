//! Why there is no map.

use std::io;

use crate::PAGE_SIZE;

/// Why a map could not be had.
#[derive(thiserror::Error, Debug)]
pub enum ExmapError {
    /// There is no device.
    #[error(
        "the pool backend 'exmap' needs the kernel module exmap, and there is no /dev/exmap: load it (modprobe exmap; \
         docs/guide/kernel-module.md says how it is built), or set 'pool-backend' to 'auto'"
    )]
    NoModule,
    /// It is for others.
    #[error(
        "this user may not open /dev/exmap: add it to the group exmap (its udev rule gives the device to it), or set \
         'pool-backend' to 'auto'"
    )]
    NotAllowed,
    /// The module is of another version.
    #[error(
        "the kernel module exmap is of another version than this program: install the one that comes with it"
    )]
    OtherVersion,
    /// More than the user may lock.
    #[error(
        "the pool backend 'exmap' locks its memory, {} MB, and this user may lock {} MB: raise `ulimit -l` (LimitMEMLOCK= of a \
         unit), or lower 'maxmemory'",
        pool_bytes >> 20,
        limit_bytes >> 20
    )]
    MemoryLock { pool_bytes: u64, limit_bytes: u64 },
    /// The system has not so much memory, or the user's processes lock too much together.
    #[error(
        "no memory for the pool backend 'exmap', which locks {} MB: the memory of the machine or of the cgroup is too small for \
         the tables of such a pool (lower 'maxmemory'), or other processes of this user lock memory, too, which count together \
         (raise `ulimit -l`, LimitMEMLOCK= of a unit)",
        pool_bytes >> 20
    )]
    NoMemory { pool_bytes: u64 },
    /// Anything else.
    #[error("exmap: {op} failed: {source}")]
    System { op: &'static str, source: io::Error },
}

impl ExmapError {
    pub(super) fn at(op: &'static str, source: io::Error) -> ExmapError {
        ExmapError::System { op, source }
    }

    pub(super) fn of_open(source: io::Error) -> ExmapError {
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => ExmapError::NoModule,
            Some(libc::EACCES | libc::EPERM) => ExmapError::NotAllowed,
            _ => ExmapError::at("open", source),
        }
    }

    pub(super) fn of_setup(source: io::Error, pool_pages: u64) -> ExmapError {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
        let pool_bytes = pool_pages * PAGE_SIZE as u64;
        match (source.raw_os_error(), limit) {
            (Some(libc::EINVAL | libc::E2BIG), _) => ExmapError::OtherVersion,
            (Some(libc::ENOMEM | libc::EPERM), Some(limit_bytes)) if limit_bytes < pool_bytes => {
                ExmapError::MemoryLock { pool_bytes, limit_bytes }
            }
            (Some(libc::ENOMEM), _) => ExmapError::NoMemory { pool_bytes },
            _ => ExmapError::at("setup", source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setups_that_fail_say_what_may_be_done() {
        let of = |errno| ExmapError::of_setup(io::Error::from_raw_os_error(errno), 1 << 20).to_string();
        assert!(of(libc::EINVAL).contains("another version"), "{}", of(libc::EINVAL));
        // From a module that is older than the program.
        assert!(of(libc::E2BIG).contains("another version"), "{}", of(libc::E2BIG));
        assert!(of(libc::ENOMEM).contains("4096 MB"), "{}", of(libc::ENOMEM));
        assert!(of(libc::ENOMEM).contains("ulimit -l"), "{}", of(libc::ENOMEM));
        assert!(of(libc::EBADFD).starts_with("exmap: setup failed: "), "{}", of(libc::EBADFD));
    }
}
