//! Edits of the pages of a store that has collections of every form, from any bytes. Used by a seeded test and by fuzzing.

use std::sync::Arc;

use fastrand::Rng;
use stillframe_pagepool::device::SimDevice;
use stillframe_pagepool::{PageId, PAGE_SIZE};

use crate::collections;
use crate::model::{open, Opened};

/// Which page in use, where, and what is written there.
const EDIT_BYTES: usize = 8;

/// Makes the store, edits its pages as the bytes say, with checksums that fit, and does everything with what there is then. The
/// bytes decide that, too.
pub fn serve(bytes: &[u8]) {
    let seed = bytes.iter().fold(0, |seed: u64, byte| seed.rotate_left(7) ^ u64::from(*byte));
    let mut rng = Rng::with_seed(seed);
    let device = Arc::new(SimDevice::new(seed));
    {
        let mut opened = open(&device).expect("a new store");
        // The same store each time: only so do the same bytes meet the same pages.
        collections::make(&mut opened, &mut Rng::with_seed(7), &collections::SMALL_SIZES);
        opened.wait_until_tidy();
        edit(&opened, bytes);
        // A save may find that it cannot write what is not as it should be.
        drop(opened.checkpoint());
    }
    if let Ok(mut opened) = open(&device) {
        collections::use_all(&mut opened, &mut rng);
        drop(opened.store.check());
        drop(opened.checkpoint());
    }
}

fn edit(opened: &Opened, bytes: &[u8]) {
    let pool = opened.store.pool();
    let end = pool.stats().allocated_pages as u32 + 200;
    let in_use: Vec<PageId> = (1..end).map(PageId).filter(|&page| pool.exclusive(page).is_ok()).collect();
    for edit in bytes.chunks_exact(EDIT_BYTES) {
        let half = |at: usize| usize::from(u16::from_le_bytes([edit[at], edit[at + 1]]));
        let (page, at) = (in_use[half(0) % in_use.len()], half(2) % PAGE_SIZE);
        let mut guard = pool.exclusive(page).expect("it has been looked at");
        // Counts and lengths have two bytes, pids have four.
        let len = if half(2) & 0x8000 != 0 { 2 } else { 4 }.min(PAGE_SIZE - at);
        guard.page_mut()[at..at + len].copy_from_slice(&edit[4..4 + len]);
    }
}
