//! A page: where its bytes and its descriptor are, its latch, its epochs.

mod epochs;
mod latch;
mod parking;
mod places;
mod prefetch;
mod second;
mod table;

pub use epochs::{claim, is_claimed, Epoch};
pub use latch::{Mark, Met, Place, Refused, Seen, StateWord, Wanted};
pub use parking::{
    acquire, end_eviction_and_wake, end_load_and_wake, evict_and_wake, touch_covered, unlock_and_wake,
    unshare_and_wake, wait_for_move, Loaded, SPIN_COUNT,
};
pub use prefetch::{prefetch, prefetch_for_write, prefetch_lines, prefetch_value, prefetch_value_for_write};
pub use second::Side;
pub use table::{Descriptor, PageTable};
