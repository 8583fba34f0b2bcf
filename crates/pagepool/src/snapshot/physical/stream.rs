//! The stream that runs.

use std::sync::Arc;

use stillframe_algorithms::RowId;

use super::super::sink::Sink;
use super::marks::{Mark, Marks};
use crate::page::{Descriptor, Epoch};

/// The cut that an algorithm is putting into an image, over the durable one.
pub struct Stream {
    pub cut: Epoch,
    pub durable: Epoch,
    pub ranges: Vec<(u32, u32)>,
    pub sink: Arc<dyn Sink>,
}

impl Stream {
    /// Whether content written in `written`, as it is now, is to be streamed.
    pub fn needs(&self, written: Epoch) -> bool {
        self.durable < written && written <= self.cut
    }

    /// Whether a page was free at the cut, and not at the durable one.
    pub fn needs_tombstone(&self, freed: Epoch) -> bool {
        self.durable < freed && freed <= self.cut
    }

    /// The same as of the cut: whoever has modified the page since has marked it, and then raised its epoch.
    pub fn needs_row(&self, descriptor: &Descriptor, marks: &Marks, row: RowId) -> bool {
        // In this order: a page that is used again first gets a new write epoch, and then ceases to be free.
        let freed = descriptor.epochs.freed();
        let written = descriptor.epochs.written();
        match marks.get(row) {
            Mark::Needed => true,
            Mark::Tombstone | Mark::Done => false,
            Mark::Unknown => self.needs(written) && freed.is_none_or(|freed| freed > self.cut),
        }
    }
}
