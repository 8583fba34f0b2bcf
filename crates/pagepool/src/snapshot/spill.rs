//! Versions of pages in the page file: those that are put there for want of memory, and those that lie there anyway.

use std::sync::Arc;

use crate::device::PageBuf;
use crate::pagefile::Spilled;
use crate::{CheckpointError, PageBytes, PageId};

/// Somewhere to put before-images of views that outgrow the budget.
pub trait Spill: Send + Sync {
    fn spill(&self, bytes: &PageBytes) -> Result<Spilled, CheckpointError>;
    fn read_spill(&self, spilled: &Spilled, into: &mut PageBytes) -> Result<(), CheckpointError>;
    /// Reads many, and tells what became of each, in order.
    fn read_spills(&self, wanted: &mut [(&Spilled, &mut PageBuf)]) -> Vec<Result<(), CheckpointError>> {
        wanted.iter_mut().map(|(spilled, into)| self.read_spill(spilled, &mut into.0)).collect()
    }

    fn release_spill(&self, spilled: Spilled);
    /// The content of a page that is not in memory, or is there as it is in the page file; `None` if there is none. Whoever
    /// asks looks afterwards whether the page has been modified meanwhile (S10).
    fn keep(&self, _page: PageId) -> Option<Spilled> {
        None
    }
}

/// Nowhere: for pools without a page file.
pub struct NoSpill;

impl Spill for NoSpill {
    fn spill(&self, _bytes: &PageBytes) -> Result<Spilled, CheckpointError> {
        Err(CheckpointError::Io(
            "the snapshot memory is used up and there is no page file to spill to".into(),
        ))
    }

    fn read_spill(&self, _spilled: &Spilled, _into: &mut PageBytes) -> Result<(), CheckpointError> {
        Err(CheckpointError::Io("nothing was spilled".into()))
    }

    fn release_spill(&self, _spilled: Spilled) {}
}

/// A before-image in the page file. Its slot goes back with it.
pub struct SpilledImage {
    spill: Arc<dyn Spill>,
    /// Taken out at the end alone.
    spilled: Option<Spilled>,
}

impl SpilledImage {
    /// # Errors
    /// If there is no room, or the device fails.
    pub fn write(spill: &Arc<dyn Spill>, content: &PageBytes) -> Result<SpilledImage, CheckpointError> {
        let spilled = Some(spill.spill(content)?);
        Ok(SpilledImage { spill: spill.clone(), spilled })
    }

    /// The content of a page as it lies in the page file, for as long as this is held; as of [`Spill::keep`].
    pub fn keep(spill: &Arc<dyn Spill>, page: PageId) -> Option<SpilledImage> {
        let spilled = spill.keep(page)?;
        Some(SpilledImage { spill: spill.clone(), spilled: Some(spilled) })
    }

    /// Where it is.
    pub fn spilled(&self) -> &Spilled {
        self.spilled.as_ref().expect("taken out at the end alone")
    }

    /// # Errors
    /// If the device fails, or the content is not what was written.
    pub fn read(&self, into: &mut PageBytes) -> Result<(), CheckpointError> {
        let mut aligned = PageBuf::ZERO;
        self.spill.read_spill(self.spilled(), &mut aligned.0)?;
        *into = aligned.0;
        Ok(())
    }

    /// Reads many with as few calls of the device as it can. All are in one page file. What became of each, in order.
    pub fn read_many(wanted: &mut [(&SpilledImage, &mut PageBuf)]) -> Vec<Result<(), CheckpointError>> {
        let Some((first, _)) = wanted.first() else { return Vec::new() };
        let spill = first.spill.clone();
        let spilled = wanted.iter_mut().map(|(image, into)| (image.spilled(), &mut **into));
        spill.read_spills(&mut spilled.collect::<Vec<_>>())
    }
}

impl Drop for SpilledImage {
    fn drop(&mut self) {
        self.spilled.take().into_iter().for_each(|spilled| self.spill.release_spill(spilled));
    }
}
