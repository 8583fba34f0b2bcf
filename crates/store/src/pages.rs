//! What is known of a store's pages as a whole: how many there may be, whether some are missing, whether some are lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use stillframe_pagepool::{Pool, PAGE_SIZE};

use crate::leaks::Leaks;
use crate::stop::Stop;

/// Memory of a page beside its content: its descriptor and its place in the snapshot's tables.
const DESCRIPTOR_BYTES: u64 = 24;

pub(crate) struct Pages {
    pub pool: Arc<Pool>,
    /// Upper bound of memory; 0 is none.
    limit_bytes: AtomicU64,
    /// Memory that is taken beside the pool, by what belongs to pages.
    pub beside_bytes: Arc<AtomicU64>,
    /// Whether every page is in memory, so that nothing needs to be asked for.
    all_resident: AtomicBool,
    pub leaks: Leaks,
}

impl Pages {
    pub fn new(pool: Arc<Pool>, limit_bytes: u64, may_leak: bool) -> Pages {
        Pages {
            pool,
            limit_bytes: AtomicU64::new(limit_bytes),
            beside_bytes: Arc::default(),
            all_resident: AtomicBool::new(true),
            leaks: Leaks::new(may_leak),
        }
    }

    pub fn used_bytes(&self) -> u64 {
        self.pool.allocated_pages() * (PAGE_SIZE as u64 + DESCRIPTOR_BYTES)
            + self.beside_bytes.load(Ordering::Relaxed)
    }

    pub fn set_limit_bytes(&self, bytes: u64) {
        self.limit_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether `page_count` more pages may be allocated.
    pub fn admit(&self, page_count: u32) -> Result<(), Stop> {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let more = u64::from(page_count) * PAGE_SIZE as u64;
        if limit_bytes != 0 && self.used_bytes() + more > limit_bytes {
            return Err(Stop::OutOfMemory { limit_bytes });
        }
        Ok(())
    }

    #[inline(always)]
    pub fn all_resident(&self) -> bool {
        self.all_resident.load(Ordering::Relaxed)
    }

    /// After a restart: pages may be missing.
    pub fn note_missing(&self) {
        self.all_resident.store(false, Ordering::Relaxed);
    }

    /// Notes, after a restart, that no page is missing any more.
    #[cold]
    pub fn note_residence(&self) {
        if !self.pool.is_warming_up() && !self.pool.has_damage() {
            self.all_resident.store(true, Ordering::Relaxed);
        }
    }
}
