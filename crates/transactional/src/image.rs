//! What takes the rows of a snapshot.

use std::collections::BTreeMap;
use std::convert::Infallible;

use crate::cut::{CommitSeq, SessionSeq};
use crate::row::{RowId, Shape};

/// Number of a session, never given twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u32);

/// Which transactions an image has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Prefix {
    /// All up to this commit, and none after.
    Commits(CommitSeq),
    /// Of each session all up to this one, and none after. A session that is not named began later, or an image before has
    /// named all that it did.
    Sessions(BTreeMap<SessionId, SessionSeq>),
}

/// What an image is told before its rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CutInfo {
    /// The first is 1.
    pub cut_number: u64,
    pub prefix: Prefix,
    /// All rows come; else those that have changed since the last image that ended well.
    pub is_full: bool,
}

/// Takes rows in ascending order, each once. After the first error nothing more comes, and the image is void.
pub trait Image {
    type Error;

    /// # Errors
    /// The snapshot fails with it.
    fn begin(&mut self, cut: &CutInfo) -> Result<(), Self::Error>;

    /// Shape of `words`: one row.
    ///
    /// # Errors
    /// The snapshot fails with it.
    fn row(&mut self, row: RowId, words: &[u64]) -> Result<(), Self::Error>;

    /// All rows have come: from now on this is the image.
    ///
    /// # Errors
    /// The snapshot fails with it; the image before is the image still.
    fn end(&mut self) -> Result<(), Self::Error>;
}

/// An image in memory, into which incremental ones are merged. What has come of an image that fails is forgotten.
pub struct MemoryImage {
    row_words: usize,
    words: Vec<u64>,
    coming: Vec<(RowId, u64)>,
    coming_words: Vec<u64>,
    cut: Option<CutInfo>,
    coming_cut: Option<CutInfo>,
}

impl MemoryImage {
    /// Of rows that are all zero.
    #[must_use]
    pub fn new(shape: Shape) -> MemoryImage {
        MemoryImage {
            row_words: shape.row_words(),
            words: vec![0; shape.bytes() / 8],
            coming: Vec::new(),
            coming_words: Vec::new(),
            cut: None,
            coming_cut: None,
        }
    }

    /// That of the last image that ended well.
    #[must_use]
    pub fn cut(&self) -> Option<&CutInfo> {
        self.cut.as_ref()
    }

    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn words_of(&self, row: RowId) -> &[u64] {
        &self.words[row.index() * self.row_words..][..self.row_words]
    }
}

impl Image for MemoryImage {
    type Error = Infallible;

    fn begin(&mut self, cut: &CutInfo) -> Result<(), Infallible> {
        self.coming.clear();
        self.coming_words.clear();
        self.coming_cut = Some(cut.clone());
        Ok(())
    }

    fn row(&mut self, row: RowId, words: &[u64]) -> Result<(), Infallible> {
        self.coming.push((row, self.coming_words.len() as u64));
        self.coming_words.extend_from_slice(words);
        Ok(())
    }

    fn end(&mut self) -> Result<(), Infallible> {
        for &(row, first) in &self.coming {
            let words = &self.coming_words[first as usize..][..self.row_words];
            self.words[row.index() * self.row_words..][..self.row_words].copy_from_slice(words);
        }
        self.cut = self.coming_cut.take();
        Ok(())
    }
}
