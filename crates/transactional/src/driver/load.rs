//! What a benchmark asks for.

use std::time::Duration;

use super::keys::Keys;
use crate::row::{Shape, ShapeError};

/// What is done.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    pub row_count: u32,
    pub row_bytes: usize,
    pub thread_count: usize,
    pub duration: Duration,
    /// Rows that a transaction reads.
    pub read_count: usize,
    /// Rows of which it reads a word and overwrites some.
    pub update_count: usize,
    /// Words of 8 bytes that an update overwrites.
    pub update_words: usize,
    pub keys: Keys,
    /// From the beginning of a cut to the next, unless its image takes longer; none: there are no cuts.
    pub cut_every: Option<Duration>,
    /// Transactions of all threads a second, at even intervals; none: each thread begins one as the last has ended.
    pub rate_per_s: Option<f64>,
    pub seed: u64,
}

impl Default for Load {
    fn default() -> Load {
        Load {
            row_count: 1 << 20,
            row_bytes: 64,
            thread_count: 2,
            duration: Duration::from_secs(10),
            read_count: 8,
            update_count: 2,
            update_words: 1,
            keys: Keys::Uniform,
            cut_every: Some(Duration::from_secs(2)),
            rate_per_s: None,
            seed: 1,
        }
    }
}

/// A load that cannot be run.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Shape(#[from] ShapeError),
    #[error("a Zipf distribution has no exponent {0}")]
    Zipf(f64),
    #[error("{0} rows of a transaction, or threads, or words, or transactions a second, cannot be had")]
    Count(f64),
}

impl Load {
    /// Of its rows, if it can be run.
    pub(super) fn shape(&self) -> Result<Shape, LoadError> {
        let shape = Shape::new(self.row_count, self.row_bytes)?;
        let row_count = self.read_count + self.update_count;
        let counts = [
            (row_count, row_count >= 1 && row_count <= self.row_count as usize),
            (self.thread_count, self.thread_count >= 1),
            (self.update_words, (1..=shape.row_words()).contains(&self.update_words)),
        ];
        if let Some((count, _)) = counts.iter().find(|(_, is_right)| !is_right) {
            return Err(LoadError::Count(*count as f64));
        }
        match self.rate_per_s {
            Some(rate) if !(rate > 0.0 && rate.is_finite()) => Err(LoadError::Count(rate)),
            _ => Ok(shape),
        }
    }
}
