//! Frames for second places, with memory before a cut, so that neither a writer nor the pass beside it waits for the kernel
//! to clear 2 MB.

use super::super::core::Core;
use super::wants::Places;
use crate::page::Epoch;
use crate::space::{Arena, CHUNK_FRAMES};
use crate::PageId;

/// Frames beside those that the stream takes: for pages that begin meanwhile.
const SPARE_FRAMES: u32 = 2 * CHUNK_FRAMES;
/// Frames for what is written while a stream runs, where no stream before has shown how much that is (16 MB).
const FIRST_FRAMES: u32 = 8 * CHUNK_FRAMES;

/// Populates what the stream of the next cut is going to take, as things are now. Not in the barrier, and not by a worker.
pub fn populate(core: &Core, places: Places, ranges: &[(u32, u32)], durable: Epoch) {
    let Some(arena) = core.pages.arena() else { return };
    let wanted = wanted_frames(core, arena, places, ranges, durable);
    arena.expect(wanted);
    arena.populate_free(wanted + SPARE_FRAMES);
}

/// So many free frames stay until then: as many as have just been let go.
pub fn expect(core: &Core, frames: usize) {
    core.pages.arena().into_iter().for_each(|arena| arena.expect(frames as u32));
}

fn wanted_frames(core: &Core, arena: &Arena, places: Places, ranges: &[(u32, u32)], durable: Epoch) -> u32 {
    let pages = ranges.iter().flat_map(|&(start, end)| (start..end).map(PageId));
    let is_in_memory = |page: &PageId| {
        let descriptor = core.pages.descriptor(*page);
        descriptor.is_in_use() && descriptor.state.is_resident()
    };
    let single = pages.filter(|page| is_in_memory(page) && !core.pages.has_second(*page));
    match places {
        // The pass copies what has changed.
        Places::TwoKept => {
            single.filter(|page| core.pages.descriptor(*page).epochs.written() > durable).count() as u32
        }
        // Writers copy what they write for the first time.
        _ => (single.count() as u32).min(arena.expected_frames().max(FIRST_FRAMES)),
    }
}
