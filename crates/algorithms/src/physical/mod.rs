//! The algorithms, one file each. Sections are those of Li et al., TKDE 2019.

pub mod cou;
pub mod epoch;
pub mod epoch_parts;
pub mod hourglass;
pub mod naive;
pub mod piggyback;
pub mod pingpong;
pub mod zigzag;

mod helpers;

pub use cou::Cou;
pub use epoch::{Epoch, EpochOptions, SweepOrder};
pub use epoch_parts::{EpochParts, LONG_ROW_LEN};
pub use hourglass::Hourglass;
pub use naive::Naive;
pub use piggyback::Piggyback;
pub use pingpong::PingPong;
pub use zigzag::Zigzag;
