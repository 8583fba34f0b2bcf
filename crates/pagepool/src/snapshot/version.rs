//! Versions of pages, and where they are.

use std::sync::Arc;

use super::frames::Frame;
use super::sink::Spill;
use crate::device::PageBuf;
use crate::pagefile::Spilled;
use crate::{CheckpointError, PageBytes};

/// Where the version of a page is that a reader wants.
pub enum Version<'c> {
    /// In the page's place, unless a writer comes first: it is copied as of the cut, and if that fails there is another
    /// answer.
    InPlace,
    /// In a frame, for as long as this one is held.
    Frame(Frame<'c>),
    /// In the page file, at a slot that nobody else gets as long as this is held.
    Spilled(Arc<SpilledImage>),
    /// Nowhere: it could not be kept.
    Lost(Box<CheckpointError>),
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

    /// # Errors
    /// If the device fails, or the content is not what was written.
    pub fn read(&self, into: &mut PageBytes) -> Result<(), CheckpointError> {
        let mut aligned = PageBuf::ZERO;
        let spilled = self.spilled.as_ref().expect("taken out at the end alone");
        self.spill.read_spill(spilled, &mut aligned.0)?;
        *into = aligned.0;
        Ok(())
    }
}

impl Drop for SpilledImage {
    fn drop(&mut self) {
        self.spilled.take().into_iter().for_each(|spilled| self.spill.release_spill(spilled));
    }
}
