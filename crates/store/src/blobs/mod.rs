//! What lies outside leaves: long values and keys in slabs and objects, and what is to be freed of them and of trees.

mod blob;
mod bytes;
mod discards;
mod duplicate;
mod garbage;
mod given;
mod incoming;
mod reach;
mod sending;
mod slab;
mod slabs;
mod space;

pub(crate) use blob::{Blob, BlobPlace, BLOB_BYTES};
pub(crate) use bytes::{LatchedRun, Part};
#[cfg(test)]
pub(crate) use discards::PAGE_ENTRIES;
pub(crate) use discards::{not_discards, Discarded, Discards};
pub use duplicate::Duplicate;
pub(crate) use duplicate::Made;
pub(crate) use garbage::{Collected, Garbage, GarbageLists, OtherWork, PAUSE_MAX, PAUSE_MIN};
pub(crate) use given::Taking;
pub use given::{Bytes, Given};
pub use incoming::Incoming;
pub(crate) use incoming::INCOMING_MIN_BYTES;
pub(crate) use reach::UNSEEN_MIN_BYTES;
pub use reach::{Reach, SENDING_MIN_BYTES};
pub use sending::Sending;
pub(crate) use slab::{Class, Slab, CLASS_COUNT, SLAB_PAGE_COUNT};
pub use slabs::SlabNeeds;
pub(crate) use space::{Blobs, OBJECT_PAGES_MAX};
