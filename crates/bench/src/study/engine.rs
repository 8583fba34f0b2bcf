//! What the driver needs of a way to take snapshots.

use std::sync::atomic::AtomicBool;

use crate::error::Result;

/// One client writes and cuts, one thread saves.
///
/// ```text
///   write* ── cut ──▶ write*, and beside it access ── cut ──▶ ...
/// ```
pub trait Engine: Sync {
    /// Whether a thread of its own serves the client's writes.
    const HAS_SERVER: bool = false;

    /// Sets one word of a row.
    fn write(&self, row: u32, word: u32, value: u64);

    /// Takes a cut. The client calls it, between two writes.
    fn cut(&self) -> Result<()>;

    /// Makes an image of the cut, durable on return.
    fn access(&self) -> Result<()>;

    /// What the thread of its own does, until it is told to stop.
    fn serve(&self, stop: &AtomicBool) -> Result<()> {
        let _ = stop;
        Ok(())
    }

    /// The rows as they are now. The client calls it.
    fn content(&self) -> Vec<u8>;

    /// The rows of the last image.
    fn image(&self) -> Result<Vec<u8>>;

    /// Length of the last image's file.
    fn image_bytes(&self) -> u64;

    /// Rows that the client had to write to the image itself, because there was nowhere to keep them.
    fn helped_rows(&self) -> u64 {
        0
    }

    /// The most memory that other processes had for it.
    fn memory_elsewhere_bytes(&self) -> u64 {
        0
    }
}
