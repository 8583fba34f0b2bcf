//! The page pool: 4 KB pages that the store itself maps, latches and versions (vmcache, SIGMOD 2023),
//! with consistent snapshots of them and the page file they are kept in.
//!
//! It is not a key-value store: it knows pages and objects (runs of pages), never keys or values.
//! This is the only crate of the workspace with unsafe code; each block cites an invariant of `docs/design.md`.
#![deny(clippy::undocumented_unsafe_blocks)]
#![deny(unsafe_op_in_unsafe_fn)]

/// Number of a 4 KB page of the pool; page `pid` lies at `base + pid * 4096`. Zero is never allocated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageId(pub u32);

/// Bytes of a page.
pub const PAGE_SIZE: usize = 4096;
