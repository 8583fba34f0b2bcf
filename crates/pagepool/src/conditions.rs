//! One word that says what is the matter with a store: one load before a command says that nothing is.

use std::sync::atomic::{AtomicU32, Ordering};

/// Conditions that commands look at, a bit each. A bit is changed where the condition begins or ends, and nowhere else.
#[derive(Default, Debug)]
pub struct Conditions(AtomicU32);

impl Conditions {
    /// Pages may have been evicted.
    pub const EVICTING: u32 = 1;
    /// Pages may be missing after a restart.
    pub const WARMING_UP: u32 = 1 << 1;
    /// Any page may be missing.
    pub const MISSING_PAGES: u32 = Conditions::EVICTING | Conditions::WARMING_UP;
    /// The bits from this one on belong to the owner of the store.
    pub const FIRST_FREE: u32 = 1 << 8;

    /// All that hold now.
    #[inline(always)]
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// These begin or end.
    pub fn set(&self, bits: u32, holds: bool) {
        // A thread that looks at the word after a page has gone finds it set.
        match holds {
            true => self.0.fetch_or(bits, Ordering::SeqCst),
            false => self.0.fetch_and(!bits, Ordering::SeqCst),
        };
    }
}
