//! A copy of a large value, made part by part before any key refers to it, so that memory need not hold the value and
//! nobody waits for the whole copy.
//!
//! ```text
//!            begin                     all bytes there           a key refers to it, if the value is still what it was
//!   (none) ─────────▶ being copied ─────────────────────▶ whole ──────────────────────────────────────────▶ part of the data
//! ```
//! The value stays as it is meanwhile, as for any reader: who changes it makes another one.

use std::io::IoSlice;

use super::blob::Blob;
use super::incoming::Incoming;
use super::sending::Sending;
use crate::error::OpError;

/// Bytes copied between two looks at the barrier.
const STEP_BYTES: usize = 256 * 1024;

/// A copy that is being made; see the module. What no key has come to refer to is freed when it is dropped.
#[derive(Debug)]
pub struct Duplicate {
    from: Sending,
    to: Incoming,
}

/// Copies that have been made of the long elements of a collection, before it is copied.
#[derive(Clone, Copy)]
pub(crate) struct Made<'c>(pub &'c [Duplicate]);

impl<'c> Made<'c> {
    pub const NONE: Made<'static> = Made(&[]);

    /// The copy of these bytes, if there is one that nothing refers to yet.
    pub fn copy_of(self, blob: &Blob) -> Option<&'c Incoming> {
        self.0.iter().find(|copy| copy.is_of(blob)).map(Duplicate::copy)
    }
}

impl Duplicate {
    pub(crate) fn new(from: Sending, to: Incoming) -> Duplicate {
        Duplicate { from, to }
    }

    /// Copies the next part. Returns whether that was the last.
    ///
    /// # Errors
    /// [`OpError::Fault`]: pages that are missing, or room. Others: it cannot be had, now or for ever.
    pub fn step(&mut self) -> Result<bool, OpError> {
        if self.to.is_complete() {
            return Ok(true);
        }
        if let Some(fault) = self.to.awaited_room() {
            return Err(fault.into());
        }
        let Duplicate { from, to } = self;
        let start = to.filled_bytes();
        let append = |parts: &[IoSlice<'_>]| parts.iter().try_for_each(|part| to.append(part).map(drop));
        from.with_parts(start, STEP_BYTES, append)??;
        Ok(to.is_complete())
    }

    /// The value that it is a copy of.
    pub(crate) fn source(&self) -> Blob {
        self.from.blob()
    }

    pub(crate) fn copy(&self) -> &Incoming {
        &self.to
    }

    /// Whether it is a whole copy of these bytes that nothing refers to yet.
    pub(crate) fn is_of(&self, blob: &Blob) -> bool {
        self.source() == *blob && self.to.is_complete() && !self.to.is_used()
    }
}
