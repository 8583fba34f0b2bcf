//! What a start does with the files of a log that has been read.

use std::io::IoSlice;
use std::sync::Arc;

use stillframe_pagepool::device::{Shelf, ShelfNumber};
use stillframe_pagepool::PAGE_SIZE;

use crate::bytes::AlignedBytes;
use crate::chain::Found;
use crate::error::JournalError;
use crate::files::{Files, Role};
use crate::names::Place;
use crate::options::JournalOptions;
use crate::scan::Candidate;

/// Makes what was read durable, and takes away what could be taken for its continuation.
///
/// What a process wrote before it was killed can be read although it is not on the disk. What is torn must not appear again
/// when another copy of the disk is read.
///
/// # Errors
/// Those of the shelf.
pub fn settle(shelf: &dyn Shelf, found: &Found) -> Result<(), JournalError> {
    let last = found.chain.len().saturating_sub(1);
    for (index, (file, _, end)) in found.chain.iter().enumerate() {
        let device = shelf.open(*file)?;
        if index == last && end + PAGE_SIZE as u64 <= device.len()? {
            let zeros = AlignedBytes::new(PAGE_SIZE);
            device.write_at(*end, &[IoSlice::new(zeros.get())])?;
        }
        device.sync_data()?;
    }
    Ok(())
}

/// The files as the journal needs them to go on.
pub fn files_after(shelf: &Arc<dyn Shelf>, from: Place, found: &Found, options: &JournalOptions) -> Files {
    let files: Vec<(ShelfNumber, Role, u64)> = found
        .candidates
        .iter()
        .map(|candidate| (candidate.file, role_of(candidate, from, found), candidate.byte_count))
        .collect();
    Files::new(shelf.clone(), options.segment_bytes, options.size_limit_bytes, &files, found.next_number)
}

/// An older checkpoint may need whatever is before the end of the chain, though the newest does not: what was appended before
/// its cut may have been written behind the cut's segment. So only what is behind the end is free.
fn role_of(candidate: &Candidate, from: Place, found: &Found) -> Role {
    if let Some((_, segment, _)) = found.chain.iter().find(|(file, _, _)| *file == candidate.file) {
        return Role::Segment(*segment);
    }
    let last = found.chain.last().map_or(from.segment, |(_, segment, _)| from.segment.max(*segment));
    match candidate.head {
        Some(head) if head.log == from.log && head.segment <= last => Role::Segment(head.segment),
        // Torn, or begun and never used.
        Some(head) if head.log == from.log => Role::Free,
        Some(_) => Role::Other,
        None if candidate.number() <= last => Role::Segment(candidate.number()),
        None => Role::Free,
    }
}
