//! From units to a store: one unit after the other ([`Applier`]), and all of a log at a start.

mod apply;
mod recover;

pub use apply::{Applier, ApplyError};
pub(crate) use recover::check_log;
pub use recover::{Replayed, UnreadLog};
