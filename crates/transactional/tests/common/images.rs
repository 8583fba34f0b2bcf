//! An image that checks what it is told, and can fail or take its time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use stillframe_transactional::{CutInfo, Image, MemoryImage, Prefix, RowId, SessionId, SessionSeq, Shape};

/// Where it fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    AtBegin,
    AfterRows(u32),
    PanicAfterRows(u32),
    AtEnd,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed;

/// Keeps the last image that ended well, in [`MemoryImage`].
pub struct CheckedImage {
    pub merged: MemoryImage,
    pub failure: Option<Failure>,
    /// After each so many rows it sleeps a little.
    pub nap_every: Option<u32>,
    points: BTreeMap<SessionId, SessionSeq>,
    shape: Shape,
    is_full: bool,
    row_count: u32,
    last_row: Option<RowId>,
}

impl CheckedImage {
    pub fn new(shape: Shape) -> CheckedImage {
        CheckedImage {
            merged: MemoryImage::new(shape),
            failure: None,
            nap_every: None,
            points: BTreeMap::new(),
            shape,
            is_full: false,
            row_count: 0,
            last_row: None,
        }
    }

    /// That of the image; sessions that it does not name are as far as the images before it said.
    pub fn prefix(&self) -> Prefix {
        match &self.merged.cut().expect("an image that ended well").prefix {
            Prefix::Sessions(_) => Prefix::Sessions(self.points.clone()),
            commits => commits.clone(),
        }
    }

    fn check(&self, failure: Failure) -> Result<(), Failed> {
        (self.failure != Some(failure)).then_some(()).ok_or(Failed)
    }
}

fn never(result: Result<(), Infallible>) {
    result.unwrap_or_else(|never| match never {});
}

impl Image for CheckedImage {
    type Error = Failed;

    fn begin(&mut self, cut: &CutInfo) -> Result<(), Failed> {
        (self.is_full, self.row_count, self.last_row) = (cut.is_full, 0, None);
        self.check(Failure::AtBegin)?;
        never(self.merged.begin(cut));
        Ok(())
    }

    fn row(&mut self, row: RowId, words: &[u64]) -> Result<(), Failed> {
        assert!(self.last_row.is_none_or(|last| last < row), "{row:?} after {:?}", self.last_row);
        assert!(row.0 < self.shape.row_count() && words.len() == self.shape.row_words());
        self.check(Failure::AfterRows(self.row_count))?;
        assert_ne!(self.failure, Some(Failure::PanicAfterRows(self.row_count)), "as it was told");
        (self.last_row, self.row_count) = (Some(row), self.row_count + 1);
        if self.nap_every.is_some_and(|every| self.row_count % every == 0) {
            std::thread::sleep(Duration::from_micros(20));
        }
        never(self.merged.row(row, words));
        Ok(())
    }

    fn end(&mut self) -> Result<(), Failed> {
        assert!(!self.is_full || self.row_count == self.shape.row_count(), "{} rows", self.row_count);
        self.check(Failure::AtEnd)?;
        never(self.merged.end());
        if let Some(CutInfo { prefix: Prefix::Sessions(newer), .. }) = self.merged.cut() {
            self.points.extend(newer.iter().map(|(session, seq)| (*session, *seq)));
        }
        Ok(())
    }
}
