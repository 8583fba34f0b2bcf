//! Freed extents whose content a cut still needs, in their place.
//!
//! ```text
//!            ┌──▶ UNSWEPT ── streamed, or the stream has ended ──┬─ a view sees it ──▶ VIEWED
//!   freed ───┼──────────────── a view sees it ───────────────────│──────────────────▶   │
//!            └── needed by nobody: never here                    └── nobody does ──▶ RELEASED ◀── the view
//!                                                                                    ended, or spilled it
//! ```
//! Whoever works on an extent takes it out of its list, so that nobody else lets it go (invariant P3).

use std::collections::VecDeque;

use super::core::Core;
use super::views::Views;
use crate::space::Extent;
use crate::sync::Mutex;

/// An extent in one of the lists.
pub struct Kept {
    pub extent: Extent,
    /// Pages of the extent before this one have been dealt with: streamed, or spilled.
    pub next: u32,
}

#[derive(Default)]
struct Lists {
    /// Needed by the running stream, perhaps by views too.
    unswept: VecDeque<Kept>,
    /// Needed by views alone.
    viewed: VecDeque<Kept>,
    /// Needed by nobody: to be allocated again.
    released: Vec<Extent>,
}

/// See the module.
#[derive(Default)]
pub struct Quarantine {
    lists: Mutex<Lists>,
}

impl Quarantine {
    /// Keeps a freed extent for the running stream; the caller sees to it that the stream does not end meanwhile.
    pub fn keep_for_stream(&self, core: &Core, extent: Extent) {
        core.frames.budget().take(u64::from(extent.page_count));
        self.lists.lock().unswept.push_back(Kept { extent, next: 0 });
    }

    /// Keeps a freed extent if a view sees any page of it; says whether.
    pub fn keep_for_views(&self, core: &Core, views: &Views, extent: Extent) -> bool {
        if views.is_empty() {
            return false;
        }
        // With the lists locked: a view may end meanwhile (S6).
        let mut lists = self.lists.lock();
        let is_seen = sees_any(core, views, extent);
        if is_seen {
            core.frames.budget().take(u64::from(extent.page_count));
            lists.viewed.push_back(Kept { extent, next: 0 });
        }
        is_seen
    }

    /// Takes an extent of which pages are to be streamed; give it back with [`Quarantine::put_back_unswept`] or
    /// [`Quarantine::settle`].
    pub fn take_unswept(&self) -> Option<Kept> {
        self.lists.lock().unswept.pop_front()
    }

    pub fn put_back_unswept(&self, kept: Kept) {
        self.lists.lock().unswept.push_front(kept);
    }

    /// Takes an extent that only views need; give it back with [`Quarantine::settle`].
    pub fn take_viewed(&self) -> Option<Kept> {
        self.lists.lock().viewed.pop_front()
    }

    /// UNSWEPT, VIEWED → VIEWED or RELEASED, of an extent that no stream needs any more.
    pub fn settle(&self, core: &Core, views: &Views, kept: Kept) {
        // As in `keep_for_views`.
        let mut lists = self.lists.lock();
        if sees_any(core, views, kept.extent) {
            return lists.viewed.push_back(kept);
        }
        // Nobody needs it, and no view that begins later will.
        core.frames.budget().give(u64::from(kept.extent.page_count));
        lists.released.push(kept.extent);
    }

    /// The stream has ended: only views may need what was kept for it.
    pub fn settle_unswept(&self, core: &Core, views: &Views) {
        let unswept = std::mem::take(&mut self.lists.lock().unswept);
        unswept.into_iter().for_each(|kept| self.settle(core, views, Kept { next: 0, ..kept }));
    }

    /// A view has ended, and its cut is out of `views`.
    pub fn settle_viewed(&self, core: &Core, views: &Views) {
        let viewed = std::mem::take(&mut self.lists.lock().viewed);
        viewed.into_iter().for_each(|kept| self.settle(core, views, kept));
    }

    /// Takes up to `limit` released extents.
    pub fn take_released(&self, limit: usize) -> Vec<Extent> {
        let released = &mut self.lists.lock().released;
        let keep = released.len().saturating_sub(limit);
        released.split_off(keep)
    }
}

fn sees_any(core: &Core, views: &Views, extent: Extent) -> bool {
    views.see_in_place(extent.pages().map(|page| core.pages.descriptor(page)))
}
