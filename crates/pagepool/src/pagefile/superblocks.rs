//! Which superblocks a file has, and which of them to write anew.

use super::superblock::Superblock;

/// The durable superblock and what lies in the place of the other.
pub(super) struct Superblocks {
    pub current: Superblock,
    /// Slot of the current one, 0 or 1.
    pub place: u32,
    pub other: Other,
    /// The greatest generation seen in this file or announced.
    pub newest_generation: u64,
}

/// What the superblock that is not the current one names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Other {
    /// The previous checkpoint; its slots are protected.
    Previous,
    /// The same as the current one.
    Mirror,
    /// Nothing that can be loaded, or slots that are not protected: to be overwritten before any slot is.
    Unprotected,
}

/// Which copies of the superblock are to be written anew, in this order; each is durable before the next is begun, so
/// that at any time the checkpoint is named by an intact one.
#[derive(Default)]
pub(super) struct Repairs {
    /// The witness names another checkpoint, or cannot be read.
    pub witness: bool,
    /// Places whose superblock cannot be read, or is not the one that was acknowledged there.
    pub places: Vec<u32>,
    /// The witness announces what has turned out to be durable.
    pub confirmation: bool,
}
