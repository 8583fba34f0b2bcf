//! What a worker remembers of the keys that it has looked at, to evict the best of them.

use crate::{DbId, EvictionPolicy};

/// Keys that are remembered.
const REMEMBERED_MAX: usize = 16;

/// A key that may go.
pub(super) struct Victim {
    /// The greater, the better it goes.
    pub score: u64,
    pub db: DbId,
    pub hash: u64,
    pub bytes: Vec<u8>,
    pub memory_bytes: u64,
}

/// What one worker remembers of its samples, the best last.
#[derive(Default)]
pub(super) struct Choice {
    pub policy: Option<EvictionPolicy>,
    pub remembered: Vec<Victim>,
    /// The database whose turn it is if any key will do.
    pub next_db: u32,
}

impl Choice {
    pub fn remember(&mut self, victim: Victim) {
        let is_known = |known: &Victim| known.hash == victim.hash && known.db == victim.db;
        self.remembered.retain(|known| !is_known(known));
        let at = self.remembered.partition_point(|known| known.score < victim.score);
        self.remembered.insert(at, victim);
        if self.remembered.len() > REMEMBERED_MAX {
            self.remembered.remove(0);
        }
    }
}
