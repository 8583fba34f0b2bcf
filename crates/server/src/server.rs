//! What all workers share.

use stillframe_store::Store;

use crate::watch::WatchTable;

pub struct Server {
    pub store: Store,
    pub watches: WatchTable,
    pub worker_count: usize,
    pub database_count: u32,
}
