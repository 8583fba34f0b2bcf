//! A read-only picture of all pages at a cut.

use std::sync::Arc;

use crate::device::PageBuf;
use crate::page::{wait_for_move, Epoch};
use crate::pool::Pool;
use crate::sched::{promptly, set_urgent};
use crate::snapshot::{SpilledImage, Version};
use crate::{BarrierTimes, CheckpointError, PageBytes, PageId, Reason};

/// A picture of the pool at a cut; pages that change keep their before-images until it is dropped.
pub struct View {
    pool: Arc<Pool>,
    cut: Epoch,
    barrier: BarrierTimes,
}

impl Pool {
    /// A read-only picture of all pages, in memory or not; `at_cut` runs in the barrier just before the cut, and what it
    /// writes belongs to the picture. Not to be called by a running member of the barrier.
    ///
    /// # Errors
    /// [`CheckpointError::EpochsExhausted`], [`CheckpointError::Late`].
    pub fn view_after(
        self: &Arc<Self>,
        at_cut: impl FnOnce() + Send + 'static,
    ) -> Result<View, CheckpointError> {
        let (cut, barrier) = self.at_barrier(|pool| {
            at_cut();
            pool.snapshotter().begin_view(pool.core())
        })?;
        Ok(View { pool: self.clone(), cut: cut?, barrier })
    }
}

impl View {
    /// What the cut cost.
    pub fn barrier_times(&self) -> BarrierTimes {
        self.barrier
    }

    /// Copies a page as of the cut. It must have been in use then.
    ///
    /// # Errors
    /// If the page is damaged, or its before-image could not be spilled to the page file or cannot be read back.
    pub fn read_page(&self, page: PageId, into: &mut PageBytes) -> Result<(), CheckpointError> {
        let Some(image) = self.copy_or_find(page, into)? else { return Ok(()) };
        let read = image.read(into);
        promptly(|| drop(image));
        read
    }

    /// Copies many pages as of the cut, each as [`View::read_page`] does. What lies in the page file is read with as few
    /// calls of the device as it can. What became of each, in order.
    ///
    /// # Errors
    /// Of each page its own: none spoils the others.
    pub fn read_pages(&self, pages: &mut [(PageId, &mut PageBuf)]) -> Vec<Result<(), CheckpointError>> {
        let mut results = Vec::with_capacity(pages.len());
        let mut images = Vec::new();
        for (page, into) in pages.iter_mut() {
            let found = self.copy_or_find(*page, &mut into.0);
            results.push(found.map(|image| images.extend(image.map(|image| (results.len(), image)))));
        }
        let mut rest = pages.iter_mut().enumerate();
        let wanted = images.iter().filter_map(|(index, image)| {
            let (_, (_, into)) = rest.by_ref().find(|(at, _)| at == index)?;
            Some((&**image, &mut **into))
        });
        let read = SpilledImage::read_many(&mut wanted.collect::<Vec<_>>());
        for ((index, _), result) in images.iter().zip(read) {
            results[*index] = result;
        }
        promptly(|| drop(images));
        results
    }

    /// Copies a page as of the cut, if it is in memory; else it lies in the page file as long as what is returned is held.
    fn copy_or_find(
        &self,
        page: PageId,
        into: &mut PageBytes,
    ) -> Result<Option<Arc<SpilledImage>>, CheckpointError> {
        let core = self.pool.core();
        let Some(descriptor) = core.pages.try_descriptor(page) else {
            return Err(CheckpointError::Io(no_such_page(page)));
        };
        // A writer that finds no room in the budget writes pages itself.
        set_urgent(core.frames.budget().is_short());
        if descriptor.epochs.written() <= self.cut && core.copy_as_of(page, self.cut, into) {
            return Ok(None);
        }
        promptly(|| self.find(page, into))
    }

    fn find(&self, page: PageId, into: &mut PageBytes) -> Result<Option<Arc<SpilledImage>>, CheckpointError> {
        let core = self.pool.core();
        loop {
            match self.pool.snapshotter().locate(core, self.cut, page) {
                Version::InPlace => {
                    if let Some(result) = self.copy_or_keep(page, into) {
                        return result;
                    }
                }
                Version::Frame(frame) => {
                    into.copy_from_slice(frame.bytes());
                    return Ok(None);
                }
                Version::Spilled(image) => return Ok(Some(image)),
                Version::Lost(error) => return Err(*error),
            }
        }
    }

    /// The same of a page that has not been written since the cut; `None` if it has been meanwhile. What is not in memory
    /// is read past it: a view does not displace what is in use.
    fn copy_or_keep(
        &self,
        page: PageId,
        into: &mut PageBytes,
    ) -> Option<Result<Option<Arc<SpilledImage>>, CheckpointError>> {
        let core = self.pool.core();
        let descriptor = core.pages.descriptor(page);
        if core.copy_as_of(page, self.cut, into) {
            return Some(Ok(None));
        }
        let was_freed_in_memory = || descriptor.epochs.freed().is_some() && !descriptor.epochs.is_in_file();
        // What the view sees is kept until it is there as an image, and the write epoch is raised in between (S2).
        let is_gone = || was_freed_in_memory() && core.pages.is_let_go(page);
        let unless_imaged = |error| (descriptor.epochs.written() <= self.cut).then_some(Err(error));
        let no_page = || CheckpointError::Io(no_such_page(page));
        if descriptor.state.is_resident() || !core.is_clean(page) {
            if is_gone() {
                return unless_imaged(no_page());
            }
            // Somebody writes it just now, or it is on its way out.
            wait_for_move(&descriptor.state);
            return None;
        }
        let image = self.pool.residency().image_in_file(page);
        // Whoever has modified it meanwhile has raised its epoch before (S10).
        if descriptor.epochs.written() > self.cut {
            return None;
        }
        Some(match image {
            Some(image) => Ok(Some(Arc::new(image))),
            None if is_gone() => return unless_imaged(no_page()),
            None if was_freed_in_memory() => {
                // Off the map by now.
                return core.pages.copy_kept_as_of(page, self.cut, into).then_some(Ok(None));
            }
            None => Err(no_page()),
        })
    }

    /// Pages that were in use at the cut, still are, and are none of those that `is_known` tells, as runs `[start, end)`.
    /// If nothing that is in use leads to any other page, nobody will ever come to these. Not to be called by a running
    /// member of the barrier.
    pub fn in_use_but(&self, is_known: impl Fn(PageId) -> bool) -> Vec<(u32, u32)> {
        let is_it = |page: &u32| !is_known(PageId(*page)) && self.is_in_use_since(PageId(*page));
        let found = runs_of(self.pool.supply().used_ranges(), is_it);
        // One that was being allocated just then, for the first time, had no epoch yet. Now it has.
        self.pool.barrier().wait_for_turns();
        runs_of(found, is_it)
    }

    /// Whether a page was in use at the cut and has been neither freed nor written since.
    fn is_in_use_since(&self, page: PageId) -> bool {
        let descriptor = self.pool.pages().descriptor(page);
        let epochs = &descriptor.epochs;
        epochs.freed().is_none()
            && epochs.written() <= self.cut
            && (descriptor.state.is_resident() || self.pool.file().is_some_and(|file| file.has_content(page)))
    }
}

fn no_such_page(page: PageId) -> Reason {
    format!("there is no page {}: what refers to it is damaged", page.0).into()
}

/// The pages of `ranges` that are wanted, as runs.
fn runs_of(ranges: Vec<(u32, u32)>, is_wanted: impl Fn(&u32) -> bool) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for page in ranges.into_iter().flat_map(|(start, end)| start..end).filter(is_wanted) {
        match runs.last_mut() {
            Some((_, end)) if *end == page => *end += 1,
            _ => runs.push((page, page + 1)),
        }
    }
    runs
}

impl Drop for View {
    fn drop(&mut self) {
        self.pool.snapshotter().end_view(self.pool.core(), self.cut);
    }
}
