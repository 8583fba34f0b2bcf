//! What is known of pages that could not be brought in.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::pagefile::PageError;
use crate::reason::Reason;
use crate::PageId;

/// After so long a page that could not be read is read again when somebody asks for it.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// A page that could not be read again after so long may be given up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// Why a page is not in memory although it was to be brought in.
///
/// ```text
///   CONTENT WRONG ─────────────────────────────────┐ give_up
///                                                  ▼
///   DEVICE FAILED ── failed again, 10 s later ──▶ GIVEN UP: stays absent until it is freed
///     │    ▲  └─ read again, if somebody asks ──▶ in memory
///     └────┘ failed again
/// ```
struct Damage {
    reason: Reason,
    /// Nothing is known about the page but that the device failed: that may pass. When it failed first, and last.
    device_failed: Option<(Instant, Instant)>,
    is_given_up: bool,
}

impl Damage {
    fn may_have_passed(&self) -> bool {
        !self.is_given_up && self.device_failed.is_some_and(|(_, last)| last.elapsed() > READ_AGAIN)
    }

    fn may_be_given_up(&self) -> bool {
        self.device_failed.is_none_or(|(first, last)| last.duration_since(first) >= GIVE_UP_AFTER)
    }
}

/// Pages of the last checkpoint that are neither in memory nor can be brought in.
#[derive(Clone, Default, Debug)]
pub struct DamagedPages {
    pub page_count: usize,
    /// What is wrong with some of them.
    pub examples: Vec<Reason>,
}

/// Reasons that [`DamagedPages`] gives.
const EXAMPLE_COUNT: usize = 8;

/// Damage by page.
#[derive(Default)]
pub struct DamageLog {
    damaged: Mutex<HashMap<PageId, Damage>>,
    any_damaged: AtomicBool,
}

impl DamageLog {
    /// Whether there has ever been any.
    pub fn is_any(&self) -> bool {
        self.any_damaged.load(Ordering::Acquire)
    }

    /// A page could not be brought in.
    pub fn note(&self, error: &PageError) {
        let mut damaged = self.damaged.lock();
        let before = damaged.get(&error.pid()).and_then(|damage| damage.device_failed);
        let device_failed = matches!(error, PageError::Device { .. }).then(|| {
            let now = Instant::now();
            (before.map_or(now, |(first, _)| first), now)
        });
        let damage = Damage { reason: Reason::of(error), device_failed, is_given_up: false };
        damaged.insert(error.pid(), damage);
        drop(damaged);
        self.any_damaged.store(true, Ordering::Release);
    }

    /// These pages have been read.
    pub fn forget(&self, pages: impl Iterator<Item = PageId>) {
        if self.any_damaged.load(Ordering::Acquire) {
            let mut damaged = self.damaged.lock();
            pages.for_each(|page| drop(damaged.remove(&page)));
        }
    }

    /// What `look` makes of the damage of a page, if that could not be brought in.
    fn of<T>(&self, page: PageId, look: impl FnOnce(&Damage) -> T) -> Option<T> {
        if !self.any_damaged.load(Ordering::Acquire) {
            return None;
        }
        self.damaged.lock().get(&page).map(look)
    }

    /// Why a page could not be brought in.
    pub fn reason(&self, page: PageId) -> Option<Reason> {
        self.of(page, |damage| damage.reason.clone())
    }

    /// Whether it is worth another try to bring a page in.
    pub fn may_have_passed(&self, page: PageId) -> bool {
        self.of(page, Damage::may_have_passed).unwrap_or(false)
    }

    pub fn is_given_up(&self, page: PageId) -> bool {
        self.of(page, |damage| damage.is_given_up).unwrap_or(false)
    }

    /// Whether the device has failed to read a page only lately.
    pub fn may_yet_be_had(&self, page: PageId) -> bool {
        self.of(page, |damage| !damage.is_given_up && !damage.may_be_given_up()).unwrap_or(false)
    }

    /// DAMAGED → GIVEN UP; for whoever has made the page LOADING. False if it may yet be had.
    pub fn give_up(&self, page: PageId) -> bool {
        let mut damaged = self.damaged.lock();
        let damage = damaged.get_mut(&page).filter(|damage| damage.may_be_given_up());
        damage.map(|damage| damage.is_given_up = true).is_some()
    }

    /// What there is of damage to pages for which `still_counts`; the rest is forgotten.
    pub fn report(&self, still_counts: impl Fn(PageId) -> bool) -> DamagedPages {
        let mut found = DamagedPages::default();
        if !self.is_any() {
            return found;
        }
        let mut damaged = self.damaged.lock();
        damaged.retain(|page, _| still_counts(*page));
        found.page_count = damaged.len();
        let reasons = damaged.values().map(|damage| damage.reason.clone());
        found.examples = reasons.take(EXAMPLE_COUNT).collect();
        found
    }
}
