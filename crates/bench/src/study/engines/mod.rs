//! The ways to take snapshots, behind one seam.

mod captured;
pub mod forked;
pub mod physical;
pub mod protected;
pub mod serialised;
