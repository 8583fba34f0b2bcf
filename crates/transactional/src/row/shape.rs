//! How many rows there are, and their numbers.

/// What a transaction's first write of a row is going to change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    Part,
    /// Each word, so nothing is needed of what the row was.
    Whole,
}

/// Number of a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowId(pub u32);

impl RowId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// How many rows there are, and how long each is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    row_count: u32,
    row_words: usize,
}

/// A shape that no store has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a store has rows of 64 to 1024 bytes, in steps of 8, and at least one: not {row_count} of {row_bytes}"
)]
pub struct ShapeError {
    pub row_count: u32,
    pub row_bytes: usize,
}

impl Shape {
    /// # Errors
    /// Rows are 64 to 1024 bytes long, in steps of 8, and there is at least one.
    pub fn new(row_count: u32, row_bytes: usize) -> Result<Shape, ShapeError> {
        let is_possible = row_count > 0 && row_bytes % 8 == 0 && (64..=1024).contains(&row_bytes);
        is_possible
            .then_some(Shape { row_count, row_words: row_bytes / 8 })
            .ok_or(ShapeError { row_count, row_bytes })
    }

    #[must_use]
    pub fn row_count(self) -> u32 {
        self.row_count
    }

    /// Words of 8 bytes in a row.
    #[must_use]
    pub fn row_words(self) -> usize {
        self.row_words
    }

    /// All rows, once.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.row_count as usize * self.row_words * 8
    }

    pub fn rows(self) -> impl Iterator<Item = RowId> {
        (0..self.row_count).map(RowId)
    }

    /// One of `T` a row.
    pub(crate) fn one_each<T>(self, make: impl Fn() -> T) -> Box<[T]> {
        (0..self.row_count).map(|_| make()).collect()
    }
}
