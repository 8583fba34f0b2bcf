//! Snapshots: one trait (`Snapshotter`), one file an algorithm, one list of them ([`SnapshotKind`]).
//!
//! Words (cut, capture, sweep, view, stream) are in `docs/guide/glossary.md`.

mod budget;
mod core;
mod epoch;
mod fork;
mod frames;
mod images;
mod kind;
mod physical;
mod quarantine;
mod running;
mod seam;
mod sink;
mod spill;
mod version;
mod views;

pub(crate) use core::Core;
pub(crate) use frames::FrameWish;
pub use kind::{SnapshotKind, UnknownSnapshotKind};
pub(crate) use seam::{Snapshotter, StreamPlan};
pub use sink::{Progress, Sink};
pub use spill::{NoSpill, Spill, SpilledImage};
pub(crate) use version::Version;
