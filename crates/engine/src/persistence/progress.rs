use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far a dump is, in keys; all zero while none is written.
#[derive(Default, Debug)]
pub struct DumpProgress {
    pub done_keys: AtomicU64,
    pub total_keys: AtomicU64,
    /// The server is to end: no rests between keys any more.
    pub is_hurried: AtomicBool,
}

impl DumpProgress {
    pub fn reset(&self) {
        [&self.done_keys, &self.total_keys].iter().for_each(|keys| keys.store(0, Ordering::Relaxed));
    }
}
