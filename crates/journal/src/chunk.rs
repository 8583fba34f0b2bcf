//! What is appended, on its way to blocks.

use std::sync::Arc;

use crate::block::{HEADER_BYTES, NO_BEGIN};
use crate::bytes::AlignedBytes;
use crate::names::Offset;
use crate::seams::Body;

/// A block in the making: payload of the stream behind room for its header.
pub struct Chunk {
    pub block: AlignedBytes,
    pub payload_bytes: usize,
    /// Of the first byte.
    pub offset: Offset,
    pub last_end: u32,
    pub first_begin: u32,
    pub unit_count: u32,
    pub unix_ms: u64,
    pub database: u32,
}

impl Chunk {
    /// Empty; a block of so many bytes.
    pub fn new(block_bytes: usize) -> Chunk {
        Chunk {
            block: AlignedBytes::new(block_bytes),
            payload_bytes: 0,
            offset: Offset(0),
            last_end: 0,
            first_begin: NO_BEGIN,
            unit_count: 0,
            unix_ms: 0,
            database: 0,
        }
    }

    /// Makes it empty again, to begin at `offset`.
    pub fn reset(&mut self, offset: Offset, database: u32) {
        self.payload_bytes = 0;
        self.offset = offset;
        self.last_end = 0;
        self.first_begin = NO_BEGIN;
        self.unit_count = 0;
        self.unix_ms = 0;
        self.database = database;
    }

    /// Bytes that still have room.
    pub fn room_bytes(&self) -> usize {
        self.block.len() - HEADER_BYTES - self.payload_bytes
    }

    /// A unit begins with the next byte, of which there is room for one at least.
    pub fn begin_unit(&mut self, now_unix_ms: impl FnOnce() -> u64) {
        if self.first_begin == NO_BEGIN {
            self.first_begin = self.payload_bytes as u32;
            self.unix_ms = now_unix_ms();
        }
    }

    /// A unit ends with the last byte.
    pub fn end_unit(&mut self) {
        self.last_end = self.payload_bytes as u32;
        self.unit_count += 1;
    }

    /// Where the next bytes go.
    pub fn room(&mut self) -> &mut [u8] {
        let at = HEADER_BYTES + self.payload_bytes;
        &mut self.block.get_mut()[at..]
    }

    /// Takes as many of the bytes as there is room for, and returns how many.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let byte_count = bytes.len().min(self.room_bytes());
        self.room()[..byte_count].copy_from_slice(&bytes[..byte_count]);
        self.payload_bytes += byte_count;
        byte_count
    }
}

/// What is too large to be copied under the lock.
#[derive(Clone)]
pub enum Large {
    Bytes(Arc<Vec<u8>>),
    Body(Arc<dyn Body>),
}

impl Large {
    pub fn len_bytes(&self) -> u64 {
        match self {
            Large::Bytes(bytes) => bytes.len() as u64,
            Large::Body(body) => body.len_bytes(),
        }
    }
}

/// A large part of a unit.
pub struct Link {
    pub large: Large,
    pub offset: Offset,
    /// Whether the unit begins with it.
    pub is_begin: bool,
    /// Whether the unit ends with it.
    pub is_end: bool,
    pub unix_ms: u64,
    pub database: u32,
}

/// What the writer takes, in the stream's order.
pub enum Part {
    Chunk(Chunk),
    Link(Link),
}
