//! The kernel module `exmap` from user space: a range of addresses whose pages are given and taken in batches, and into which
//! files are read by its descriptor (vmcache, SIGMOD 2023, section 4; `docs/internals/kernel-module.md`).
//!
//! It is not a memory of a pool: which pages have memory its users remember (`space/exmap.rs`).

mod abi;
mod error;
mod map;
mod simulated;

pub use abi::{ExmapStatistics, Run};
pub use error::ExmapError;
pub use map::Exmap;
pub use simulated::simulate_exmap;
