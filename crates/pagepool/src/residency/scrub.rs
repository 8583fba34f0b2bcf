//! Scrubbing: what lies in the page file is verified while its pages are in memory, and healed from there.
//!
//! ```text
//!                 found bad                          checkpoint: written anew, changed or freed
//!   slot good ──────────────▶ page in memory: MARKED ──────────────────────────────────────────▶ healed
//!                    │                          ▲ │ checkpoint fails, or the page was changed after its cut
//!                    │                          └─┘
//!                    └──────▶ page not in memory: damage, as if a command had asked for it
//! ```
//! What is in memory of a MARKED page is the only good copy there is: it is not evicted before it has been healed.
//!
//! Healing neither latches the page nor raises its write epoch, so it costs neither writers nor snapshots anything: the
//! checkpoint copies it as its sweep does, and the checksum in the map says that the copy is what is to be there (D8).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::loader::Residency;
use crate::device::PageBuf;
use crate::page::Epoch;
use crate::pagefile::{BadSlot, CheckpointWriter, Slot};
use crate::{CheckpointError, PageId};

/// Pages that a step of scrubbing verifies (1 MB).
pub const SCRUB_STEP_PAGES: usize = 256;

/// State of scrubbing; part of the pool.
#[derive(Default)]
pub struct Scrubbing {
    /// Pages in memory that the next checkpoint is to write anew, and the slot of each that was found bad.
    marked: Mutex<HashMap<PageId, Slot>>,
    page_count: AtomicU64,
    bad_page_count: AtomicU64,
    healed_page_count: AtomicU64,
}

/// What has been scrubbed since the pool was opened.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ScrubStats {
    /// Pages looked at, each as often as it was.
    pub page_count: u64,
    /// Of those, pages newly found bad in the page file.
    pub bad_page_count: u64,
    /// Of those, pages that a checkpoint no longer has in the bad slot.
    pub healed_page_count: u64,
}

/// What a step of scrubbing found.
#[derive(Clone, Default, Debug)]
pub struct ScrubReport {
    /// Where to go on; none: the whole page file has been looked at.
    pub next: Option<PageId>,
    /// Pages looked at.
    pub page_count: u64,
    /// Newly found bad slots whose pages are in memory: the next checkpoint writes these anew.
    pub to_heal: Vec<BadSlot>,
    /// Newly found bad slots whose pages are nowhere else.
    pub lost: Vec<BadSlot>,
}

impl Scrubbing {
    /// As of [`crate::Pool::scrub`].
    pub fn step(&self, residency: &Residency, from: PageId) -> ScrubReport {
        let mut report = ScrubReport::default();
        let Some(file) = residency.file() else { return report };
        let pages = file.mapped_from(from, SCRUB_STEP_PAGES);
        report.next = pages.last().filter(|_| pages.len() == SCRUB_STEP_PAGES).map(|last| PageId(last.0 + 1));
        report.page_count = pages.len() as u64;
        for bad in file.verify_slots(&pages) {
            if let Some(is_new) = self.mark(residency, &bad) {
                report.to_heal.extend(is_new.then_some(bad));
            } else if residency.damage_in_place(bad.pid).is_none() {
                // Says whether it is damaged, or has been freed.
                residency.load(&[bad.pid]);
                report.lost.extend(residency.damage_in_place(bad.pid).map(|_| bad));
            }
        }
        let bad_count = report.to_heal.len() + report.lost.len();
        self.page_count.fetch_add(report.page_count, Ordering::Relaxed);
        self.bad_page_count.fetch_add(bad_count as u64, Ordering::Relaxed);
        report
    }

    /// Keeps a page in memory until it has been healed. Whether that slot of it was not known to be bad; `None` if the page is
    /// not in memory.
    fn mark(&self, residency: &Residency, bad: &BadSlot) -> Option<bool> {
        let known = self.marked.lock().insert(bad.pid, bad.slot);
        // An access: if the evictor has looked whether the page is marked before it was, it does not claim it now.
        if residency.core().pages.touch(bad.pid) {
            return Some(known != Some(bad.slot));
        }
        let mut marks = self.marked.lock();
        match known {
            Some(slot) => marks.insert(bad.pid, slot),
            None => marks.remove(&bad.pid),
        };
        None
    }

    /// Whether a page has to stay in memory for now.
    pub fn is_marked(&self, page: PageId) -> bool {
        self.marked.lock().contains_key(&page)
    }

    pub fn stats(&self) -> ScrubStats {
        ScrubStats {
            page_count: self.page_count.load(Ordering::Relaxed),
            bad_page_count: self.bad_page_count.load(Ordering::Relaxed),
            healed_page_count: self.healed_page_count.load(Ordering::Relaxed),
        }
    }

    /// Adds to a checkpoint, all of whose changed pages have been handed over, the marked pages that did not change before
    /// its cut. Returns those of them that it does not have in their bad slots.
    pub fn heal(
        &self,
        residency: &Residency,
        writer: &CheckpointWriter,
        cut: Epoch,
    ) -> Result<Vec<(PageId, Slot)>, CheckpointError> {
        let Some(file) = residency.file() else { return Ok(Vec::new()) };
        let mut marks = self.marked.lock();
        // Where a mark came after the checkpoint that made up for it there is nothing to do.
        marks.retain(|page, slot| file.slot_of(*page) == Some(*slot));
        let mut marked: Vec<_> = marks.iter().map(|(page, slot)| (*page, *slot)).collect();
        drop(marks);
        for batch in marked.chunks(SCRUB_STEP_PAGES) {
            let mut copies = vec![PageBuf::ZERO; batch.len()];
            let copied = batch.iter().zip(&mut copies).filter_map(|((page, _), copy)| {
                let is_copied = residency.core().pages.is_resident(*page)
                    && residency.core().pages.copy_as_of(*page, cut, &mut copy.0);
                is_copied.then_some((*page, &copy.0))
            });
            writer.rewrite_pages(&copied.collect::<Vec<_>>())?;
        }
        marked.retain(|(page, _)| writer.has_anew(*page));
        Ok(marked)
    }

    /// The checkpoint that has these pages anew is durable.
    pub fn note_healed(&self, pages: &[(PageId, Slot)]) {
        let mut marks = self.marked.lock();
        for (page, slot) in pages {
            if marks.get(page) == Some(slot) {
                marks.remove(page);
            }
        }
        self.healed_page_count.fetch_add(pages.len() as u64, Ordering::Relaxed);
    }
}
