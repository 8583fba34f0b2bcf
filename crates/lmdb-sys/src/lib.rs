//! LMDB, opened as the benchmark does: the one call of its binding that is not safe by itself.

use std::path::Path;

pub use heed;
use heed::{Env, EnvFlags, EnvOpenOptions, WithoutTls};

/// The environment in `dir`, with room for `tree_count` trees and `reader_count` transactions at once that read.
///
/// The file is written through its mapping and made durable by `force_sync` only. The kernel does not read ahead. `map_bytes`
/// is the most that the file can grow to; it takes addresses, no memory.
///
/// # Errors
/// The directory is missing or has a file that is not LMDB's, or there are no addresses left.
pub fn open(
    dir: &Path,
    map_bytes: usize,
    tree_count: u32,
    reader_count: u32,
) -> heed::Result<Env<WithoutTls>> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(map_bytes).max_dbs(tree_count).max_readers(reader_count);
    let flags = EnvFlags::WRITE_MAP
        | EnvFlags::MAP_ASYNC
        | EnvFlags::NO_SYNC
        | EnvFlags::NO_META_SYNC
        | EnvFlags::NO_READ_AHEAD
        | EnvFlags::NO_MEM_INIT;
    // SAFETY: X1: no other process has the file, and one that a crash left half written is never opened. So it changes
    // through this environment only, whose own locks hold: the flags leave out none of them.
    unsafe { options.flags(flags).open(dir) }
}
