//! The stream of effects as Redis commands: what a log keeps and what replicas are sent.
//!
//! ```text
//!   steps ──Encoder──▶ units ──Consumer──▶ bytes ──Applier──▶ a store
//! ```
//! A step becomes one [`Unit`]: canonical commands that any Redis-like server runs, and [`crate::replay::Applier`] without a server. The table is in
//! docs/internals/decisions.md.
//!
//! - `unit`: a unit's bytes, what they are given to, and where a unit ends.
//! - `group`: commands as they are put together.
//! - `encode`: from effects to commands.
//! - `command`: from bytes to commands, all of a unit at once; `replay` runs them.

pub(crate) mod command;
mod encode;
mod group;
mod unit;

pub use command::Malformed;
pub use encode::{Encoded, Encoder};
pub use stillframe_journal::{Body, BodyError, Piece};
pub(crate) use unit::put_select_of;
pub use unit::{unit_len, Consumer, Selected, Unit};
