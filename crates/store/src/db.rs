//! Which logical database.

/// Number of a logical database (`SELECT`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct DbId(pub u32);
