//! Places on the earth, kept as scores of sorted sets: geohashes, distances, and which scores a search has to look at.
//!
//! A score is the number of the cell of the finest grid that a place is in. Cells that are near mostly have near numbers, and all
//! parts of a coarse cell have numbers in a row: so a search looks at a few ranges of scores.
//!
//! Scores, distances and the order of results are those of Redis 7.0 to the last digit.

mod cell;
mod nearest;
mod place;
mod score;
mod search;

pub use nearest::sort_first;
pub use place::{distance_m, GeoPoint};
pub use score::{place_of, score_of, text_of};
pub use search::{Search, Shape};
