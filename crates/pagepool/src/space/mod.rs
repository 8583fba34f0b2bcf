//! Which page numbers are free, and the address space behind them.

mod alloc;
mod arena;
mod backend;
mod discards;
mod exmap;
mod extent;
mod forked;
mod memory;
mod protected;
mod small_zone;

pub use alloc::{Allocator, Layout};
pub use arena::{Arena, CHUNK_FRAMES};
pub use backend::{PoolBackend, UnknownPoolBackend};
pub use exmap::ExmapMemory;
pub use extent::Extent;
pub use forked::ForkedWriter;
pub use memory::{
    populate_idly, AnonMemory, HeapMemory, MapError, Memory, VirtualArray, ZeroInit, HUGE_PAGE_SIZE,
};
pub use protected::WriteProtection;
pub use small_zone::CHUNK_PAGES;
