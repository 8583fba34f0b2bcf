//! Where an algorithm puts rows: those that the stream needs go on to its sink, in batches.

use std::sync::atomic::Ordering;

use stillframe_algorithms::{Image, ImageError, Place, RowId};

use super::super::core::{Core, BATCH_PAGES};
use super::super::frames::Frame;
use super::super::sink::Progress;
use super::copies::Access;
use super::marks::{Mark, Marks};
use super::stream::Stream;
use super::wants::Wants;
use crate::{CheckpointError, PageId};

/// See the module.
pub struct PageImage<'a> {
    core: &'a Core,
    stream: &'a Stream,
    marks: &'a Marks,
    progress: &'a Progress,
    /// Copies that wait to be handed on.
    staged: Vec<(PageId, RowId, Frame<'a>)>,
    /// Whether the last row that was put is among them.
    is_last_staged: bool,
    page_count: u64,
    row_count: u64,
    /// The first that went wrong.
    pub failure: Option<CheckpointError>,
}

impl<'a> PageImage<'a> {
    pub fn new(
        core: &'a Core,
        stream: &'a Stream,
        marks: &'a Marks,
        progress: &'a Progress,
        row_count: u32,
    ) -> PageImage<'a> {
        let page_count = stream.ranges.iter().map(|(start, end)| u64::from(end - start)).sum();
        PageImage {
            core,
            stream,
            marks,
            progress,
            staged: Vec::with_capacity(BATCH_PAGES),
            is_last_staged: false,
            page_count,
            row_count: u64::from(row_count).max(1),
            failure: None,
        }
    }

    fn fail(&mut self, error: CheckpointError) -> ImageError {
        let reason = error.to_string();
        self.failure.get_or_insert(error);
        ImageError::new(reason)
    }

    fn hand_on(&mut self) -> Result<(), ImageError> {
        let mut staged = std::mem::take(&mut self.staged);
        staged.sort_unstable_by_key(|(page, ..)| *page);
        let pages: Vec<_> = staged.iter().map(|(page, _, frame)| (*page, frame.bytes())).collect();
        if !pages.is_empty() {
            self.stream.sink.write_pages(&pages).map_err(|error| self.fail(error))?;
        }
        staged.iter().for_each(|(_, row, _)| self.marks.set(*row, Mark::Done));
        self.progress.pages_written.fetch_add(pages.len() as u64, Ordering::Relaxed);
        self.is_last_staged = false;
        Ok(())
    }
}

impl<W: Wants> Image<Access<'_, W>> for PageImage<'_> {
    fn put(&mut self, copies: &Access<'_, W>, row: RowId, place: Place) -> Result<(), ImageError> {
        let scanned = u64::from(row.0) * self.page_count / self.row_count;
        self.progress.pages_scanned.fetch_max(scanned, Ordering::Relaxed);
        let page = copies.copies.rows.page(row);
        let descriptor = self.core.pages.try_descriptor(page);
        self.is_last_staged = descriptor.is_some_and(|d| self.stream.needs_row(d, self.marks, row));
        if !self.is_last_staged {
            return Ok(());
        }
        let Some(mut frame) = self.core.staging.take() else {
            unreachable!("F2: the one stream finds its {BATCH_PAGES} staging frames free")
        };
        if !copies.copy_out(place, frame.bytes_mut()) {
            let text = format!("page {} is not in memory, and the checkpoint needs it", page.0);
            return Err(self.fail(CheckpointError::Io(text.into())));
        }
        self.staged.push((page, row, frame));
        Ok(())
    }

    fn take_back(&mut self) {
        if std::mem::take(&mut self.is_last_staged) {
            self.staged.pop();
        }
    }

    fn has_room(&mut self) -> bool {
        self.staged.len() < BATCH_PAGES
    }

    fn drain(&mut self) -> Result<(), ImageError> {
        self.hand_on()
    }

    fn finish(&mut self) -> Result<(), ImageError> {
        self.hand_on()
    }
}
