//! The queue of connections whose output is held.

use std::collections::BTreeSet;

use crate::net::slots::SlotId;

/// The needs of connections with held output: the lowest of each.
#[derive(Default)]
pub struct HeldQueue {
    /// Offsets of the log; 0: it depends on a step that runs still.
    pub by_need: BTreeSet<(u64, SlotId)>,
    /// The gate has been asked for the first of them.
    pub has_asked: bool,
}

impl HeldQueue {
    /// The lowest of all.
    pub fn lowest_offset(&self) -> Option<u64> {
        self.by_need.first().map(|(need_offset, _)| *need_offset)
    }

    /// Connections with a need up to this one.
    pub fn up_to(&self, limit_offset: u64) -> Vec<SlotId> {
        self.by_need.range(..=(limit_offset, SlotId(u32::MAX))).map(|(_, id)| *id).collect()
    }
}
