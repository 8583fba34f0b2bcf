//! What a store knows of the accesses to its keys, for eviction.

use crate::keyspace::Keyspace;
use crate::{Access, DbId, Tracking, UnixMillis};

/// What is known of accesses to keys.
#[derive(Clone, Copy)]
pub struct Accesses<'s>(pub(crate) &'s Keyspace);

impl Accesses<'_> {
    /// Tracks accesses to keys in this way from now on, or no more: as if all had been made now. It takes 6 to 8 bytes a key
    /// ([`Accesses::memory_bytes`]), which count as used. Rates may change without that.
    pub fn track(&self, tracking: Option<Tracking>, now: UnixMillis) {
        self.0.track(tracking, now);
    }

    /// Lets what is tracked keep pace with the number of keys. To be called now and then.
    pub fn settle(&self) {
        self.0.settle_stamps();
    }

    /// Memory that tracking takes.
    pub fn memory_bytes(&self) -> u64 {
        self.0.stamps_bytes()
    }

    /// What is known of the accesses to a key, if they are tracked.
    pub fn of(&self, db: DbId, key: &[u8], now: UnixMillis) -> Option<Access> {
        self.0.access(now, db, key)
    }
}
