//! What all workers share.

use stillframe_store::Store;

use crate::watch::WatchTable;

pub struct Server {
    pub store: Store,
    pub watches: WatchTable,
    pub worker_count: usize,
    pub database_count: u32,
    /// Off after `DEBUG SET-ACTIVE-EXPIRE 0`.
    pub active_expire: std::sync::atomic::AtomicBool,
}
