//! Memory from the kernel module exmap: given to pages before they are written, and taken in batches.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use super::memory::{MapError, Memory, VirtualArray};
use crate::exmap::{Exmap, Run};
use crate::PAGE_SIZE;

/// See the module.
pub struct ExmapMemory {
    map: Arc<Exmap>,
    /// A bit a page: it has memory. Changed by the page's owner alone (M2), whose neighbours in a word have other owners.
    given: VirtualArray<AtomicU64>,
}

impl ExmapMemory {
    /// All of a map, whose pages have no memory yet.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn new(map: Exmap) -> Result<ExmapMemory, MapError> {
        let given = VirtualArray::new((map.byte_len() / PAGE_SIZE).div_ceil(64))?;
        Ok(ExmapMemory { map: Arc::new(map), given })
    }

    fn has_memory(&self, page: u32) -> bool {
        self.given.get(page as usize / 64).load(Ordering::Relaxed) & 1 << (page % 64) != 0
    }

    fn note(&self, (start, count): Run, is_given: bool) {
        for page in start..start + count {
            let (word, bit) = (self.given.get(page as usize / 64), 1 << (page % 64));
            match is_given {
                true => word.fetch_or(bit, Ordering::Relaxed),
                false => word.fetch_and(!bit, Ordering::Relaxed),
            };
        }
    }

    /// The runs of pages in these ranges that have memory, or have none.
    fn runs(&self, parts: &[(usize, usize)], are_given: bool) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::with_capacity(parts.len());
        for &(start, byte_len) in parts {
            let pages = (start / PAGE_SIZE) as u32..((start + byte_len).div_ceil(PAGE_SIZE)) as u32;
            for page in pages.filter(|page| self.has_memory(*page) == are_given) {
                match runs.last_mut().filter(|(first, count)| first + *count == page) {
                    Some((_, count)) => *count += 1,
                    None => runs.push((page, 1)),
                }
            }
        }
        runs
    }

    /// Pages that have memory, or have none, get the other. They are the caller's.
    fn turn(&self, parts: &[(usize, usize)], is_given: bool) {
        let runs = self.runs(parts, !is_given);
        if runs.is_empty() {
            return;
        }
        match is_given {
            true => self.map.give(&runs),
            false => self.map.take(&runs),
        }
        runs.into_iter().for_each(|run| self.note(run, is_given));
    }
}

impl Memory for ExmapMemory {
    fn base(&self) -> NonNull<u8> {
        self.map.base()
    }

    fn byte_len(&self) -> usize {
        self.map.byte_len()
    }

    fn populate(&self, _start: usize, _byte_len: usize) {}

    fn prefer_huge(&self, _start: usize, _byte_len: usize) {}

    fn discard(&self, start: usize, byte_len: usize) {
        self.turn(&[(start, byte_len)], false);
    }

    fn discard_parts(&self, parts: &[(usize, usize)]) {
        self.turn(parts, false);
    }

    fn is_given(&self) -> bool {
        true
    }

    fn give(&self, parts: &[(usize, usize)]) {
        self.turn(parts, true);
    }

    fn exmap(&self) -> Option<&Arc<Exmap>> {
        Some(&self.map)
    }
}
