//! Which views are open.

use crate::page::{Descriptor, Epoch};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::RwLock;

/// Cuts of the open views.
///
/// Whoever keeps something for a view asks [`Views::see`] under the lock of the table where he puts it, and the end
/// of a view takes its cut out before it goes through the tables: what is kept is seen by a view that will come by.
#[derive(Default)]
pub struct Views {
    cuts: RwLock<Vec<Epoch>>,
    count: AtomicU32,
}

impl Views {
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    pub fn begin(&self, cut: Epoch) {
        self.cuts.write().push(cut);
        self.count.fetch_add(1, Ordering::Release);
    }

    pub fn end(&self, cut: Epoch) {
        let mut cuts = self.cuts.write();
        if let Some(at) = cuts.iter().position(|&c| c == cut) {
            cuts.swap_remove(at);
            self.count.fetch_sub(1, Ordering::Release);
        }
    }

    /// Whether a view sees the version of a page that lived over `[written, superseded)`; none is still alive.
    pub fn see(&self, written: Epoch, superseded: Option<Epoch>) -> bool {
        !self.is_empty() && sees(&self.cuts.read(), written, superseded)
    }

    /// Whether a view sees the version that is in the place of any of these pages.
    pub fn see_in_place<'d>(&self, mut descriptors: impl Iterator<Item = &'d Descriptor>) -> bool {
        if self.is_empty() {
            return false;
        }
        let cuts = self.cuts.read();
        descriptors.any(|d| sees(&cuts, d.epochs.written(), d.epochs.freed()))
    }
}

fn sees(cuts: &[Epoch], written: Epoch, superseded: Option<Epoch>) -> bool {
    cuts.iter().any(|&cut| written <= cut && superseded.is_none_or(|end| cut < end))
}
