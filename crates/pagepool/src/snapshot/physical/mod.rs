//! The algorithms of `stillframe-algorithms` over the pages of a pool. A page is a row there; its copies are frames, or lie in
//! memory beside the pages.
//!
//! From the ground up: `rows` numbers pages as rows, `marks` remembers what the stream has to do with each, `wants` says how an
//! algorithm may want its copies, `ahead` has memory ready for them, `copies` says where they lie, `stream` is what runs, and
//! `image` where rows are put. `list` has the algorithms, and `adapter` is the [`Snapshotter`](super::Snapshotter) around any
//! of them.

mod adapter;
mod ahead;
mod copies;
mod image;
mod list;
mod marks;
mod rows;
mod stream;
mod wants;

pub use adapter::{Physical, WaitForTurns};
pub use list::PoolAlgorithm;
