//! One batch of commands: what is known of each.

use stillframe_engine::dispatch::ctx::Found;
use stillframe_engine::protocol::args::ArgRange;
use stillframe_store::{DbId, ElementAhead, Key};

use crate::net::slots::SlotId;

/// A parsed command that waits for its turn in the batch.
pub struct Item {
    pub slot: SlotId,
    /// Its arguments in [`Batch::ranges`].
    pub first_range: u32,
    pub range_count: u32,
    /// Where the next command starts in the connection's input.
    pub end: usize,
    /// `None`: there is no such command, or not with so many arguments; dispatch gives the error.
    pub found: Option<Found>,
    /// The key of a command with its key in a fixed place.
    pub key: Option<BatchKey>,
}

/// A key that was hashed and looked for ahead of its command.
pub struct BatchKey {
    /// Its place among the arguments.
    pub arg: u32,
    /// The connection's database then; a `SELECT` in between only makes the hint stale.
    pub db: DbId,
    pub key: Key<'static>,
    /// The command before is about the same key: what is known of that is known of this.
    pub is_as_before: bool,
    /// What the command looks for in the collection there.
    pub element: Option<BatchElement>,
}

/// An element of a large collection, looked for ahead of its command.
pub struct BatchElement {
    /// Its place among the arguments.
    pub arg: u32,
    pub ahead: ElementAhead,
}

#[derive(Default)]
pub struct Batch {
    pub items: Vec<Item>,
    pub ranges: Vec<ArgRange>,
    /// Connections whose output is to be written.
    pub touched: Vec<SlotId>,
    /// Connections to go on with in the next batch, and whether their socket has more to read.
    pub again: Vec<(SlotId, bool)>,
}
