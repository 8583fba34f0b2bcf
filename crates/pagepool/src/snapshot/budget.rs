//! What snapshots may hold (invariant S7).

use crate::sync::atomic::{AtomicU64, Ordering};

/// Pages that snapshots hold, in frames and in quarantine, and how many they may.
pub struct Budget {
    /// A setting: nothing is ordered by it.
    limit_pages: std::sync::atomic::AtomicU64,
    held_pages: AtomicU64,
    peak_pages: AtomicU64,
}

impl Budget {
    pub fn new(limit_pages: u64) -> Budget {
        Budget {
            limit_pages: limit_pages.into(),
            held_pages: AtomicU64::new(0),
            peak_pages: AtomicU64::new(0),
        }
    }

    pub fn limit_pages(&self) -> u64 {
        self.limit_pages.load(Ordering::Relaxed)
    }

    /// Moves the bound. What is held already stays, and is paid off as ever if it is too much now.
    pub fn set_limit_pages(&self, limit_pages: u64) {
        self.limit_pages.store(limit_pages, Ordering::Relaxed);
    }

    /// Takes a page if there is room: looked at and taken in one step, so that no two take the last.
    pub fn try_take(&self) -> bool {
        let limit_pages = self.limit_pages();
        let more = |held: u64| (held < limit_pages).then_some(held + 1);
        match self.held_pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(before) => {
                self.note(before + 1);
                true
            }
            Err(_) => false,
        }
    }

    /// Takes pages, room or not: what is freed takes no memory by being kept. The caller pays for what is too much, and
    /// then calls [`Budget::note_peak`].
    pub fn take(&self, page_count: u64) {
        self.held_pages.fetch_add(page_count, Ordering::Relaxed);
    }

    pub fn give(&self, page_count: u64) {
        self.held_pages.fetch_sub(page_count, Ordering::Relaxed);
    }

    /// Whether more is held than may be.
    pub fn is_exceeded(&self) -> bool {
        self.held_pages() > self.limit_pages()
    }

    /// Whether more than half of what may be held is.
    pub fn is_short(&self) -> bool {
        self.held_pages() > self.limit_pages() / 2
    }

    pub fn held_pages(&self) -> u64 {
        self.held_pages.load(Ordering::Relaxed)
    }

    pub fn note_peak(&self) {
        self.note(self.held_pages());
    }

    fn note(&self, held_pages: u64) {
        if held_pages > self.peak_pages.load(Ordering::Relaxed) {
            self.peak_pages.fetch_max(held_pages, Ordering::Relaxed);
        }
    }

    pub fn restart_peak(&self) {
        self.peak_pages.store(self.held_pages(), Ordering::Relaxed);
    }

    pub fn peak_pages(&self) -> u64 {
        self.peak_pages.load(Ordering::Relaxed)
    }
}
