//! What the driver needs of a way to take snapshots.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::draw::Update;
use crate::error::Result;

/// Sets the word of an update, or each word of its row.
#[inline(always)]
pub fn store<const WHOLE: bool>(row: &[AtomicU64], word: u32, value: u64) {
    match WHOLE {
        true => row.iter().for_each(|word| word.store(value, Ordering::Relaxed)),
        false => row[word as usize].store(value, Ordering::Relaxed),
    }
}

/// One client writes and cuts, one thread saves.
///
/// ```text
///   write* ── cut ──▶ write*, and beside it access ── cut ──▶ ...
/// ```
pub trait Engine: Sync {
    /// Whether a thread of its own serves the client's writes.
    const HAS_SERVER: bool = false;

    /// Sets one word of a row, or all of them.
    fn write<const WHOLE: bool>(&self, update: Update, value: u64);

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
