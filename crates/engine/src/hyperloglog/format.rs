//! What both encodings have in common.

use super::hash::INDEX_BITS;

pub const REGISTER_COUNT: usize = 1 << INDEX_BITS;
/// Bytes before the registers.
pub const HEADER_BYTES: usize = 16;

/// The runs do not make up all registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupted;
