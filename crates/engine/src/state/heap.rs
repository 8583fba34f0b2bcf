//! When the heap is given back: what clients and commands have freed would stay with the process otherwise.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use stillframe_store::heap;

use crate::log;

/// Memory that nobody is known to use has to have grown by so much since the heap was trimmed last.
const GROWN_MIN_BYTES: u64 = 32 << 20;

/// What is known of the heap.
///
/// ```text
///   at rest ── unused memory has grown, or MEMORY PURGE ──▶ being trimmed, by a thread of its own ──▶ at rest
/// ```
#[derive(Debug)]
pub struct Heap {
    is_trimming: AtomicBool,
    /// The least memory of unknown use since the last time, in bytes.
    floor_bytes: AtomicU64,
}

impl Default for Heap {
    fn default() -> Heap {
        Heap { is_trimming: AtomicBool::new(false), floor_bytes: AtomicU64::new(u64::MAX) }
    }
}

impl Heap {
    /// Whether it is time to trim the heap, if the process has so much in memory and the use of so much of that is known. To
    /// be asked now and then.
    fn is_due(&self, resident_bytes: u64, known_bytes: u64) -> bool {
        let unknown_bytes = resident_bytes.saturating_sub(known_bytes);
        let floor_bytes = self.floor_bytes.fetch_min(unknown_bytes, Ordering::Relaxed).min(unknown_bytes);
        unknown_bytes - floor_bytes >= GROWN_MIN_BYTES
    }

    /// Trims the heap if that may be worth it.
    pub fn settle(self: &Arc<Heap>, resident_bytes: u64, known_bytes: u64) {
        if self.is_due(resident_bytes, known_bytes) {
            self.trim();
        }
    }

    /// Trims the heap in the background, unless that is under way.
    pub fn trim(self: &Arc<Heap>) {
        if self.is_trimming.swap(true, Ordering::AcqRel) {
            return;
        }
        let of_thread = self.clone();
        let run = move || {
            heap::trim();
            of_thread.end();
        };
        if let Err(error) = std::thread::Builder::new().name("heap".into()).spawn(run) {
            log::warning(format!("Can't start the thread that gives memory back: {error}"));
            self.end();
        }
    }

    fn end(&self) {
        // What is left now is the measure for the next time.
        self.floor_bytes.store(u64::MAX, Ordering::Relaxed);
        self.is_trimming.store(false, Ordering::Release);
    }
}

/// Memory in use by the process, in bytes.
pub fn resident_bytes() -> u64 {
    // Not `statm`, which counts pages: what asks for their size does not run under valgrind.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    kilobytes.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: u64 = 1 << 20;

    #[test]
    fn the_system_says_what_the_process_has() {
        assert!((MEGABYTE..1 << 40).contains(&resident_bytes()));
    }

    #[test]
    fn it_is_trimmed_when_unused_memory_has_grown() {
        let heap = Heap::default();
        assert!(!heap.is_due(500 * MEGABYTE, 0), "the first look");
        assert!(!heap.is_due(531 * MEGABYTE, 0) && heap.is_due(532 * MEGABYTE, 0));
        assert!(!heap.is_due(900 * MEGABYTE, 400 * MEGABYTE), "it is in use");
        // They have gone, and left it.
        assert!(heap.is_due(900 * MEGABYTE, 0));
        heap.end();
        assert!(!heap.is_due(880 * MEGABYTE, 0), "what could be given back has been");
        // The use of more is known than there is.
        assert!(!heap.is_due(100 * MEGABYTE, 200 * MEGABYTE) && heap.is_due(32 * MEGABYTE, 0));
    }
}
