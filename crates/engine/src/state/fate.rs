//! Whether a slow script may still be ended from outside.

use crate::sync::atomic::{AtomicU8, Ordering};

/// Of one run, between its worker and the thread that wants to end it.
///
/// ```text
///          ┌── change: it is about to change something ──▶ CHANGED, for good: it runs to its end
///   OPEN ──┤
///          └── end ──▶ ENDED, for good: it changes nothing
/// ```
/// One of the two comes first, and the other is told (SC3).
#[derive(Default)]
pub struct Fate(AtomicU8);

const OPEN: u8 = 0;
const CHANGED: u8 = 1;
const ENDED: u8 = 2;

impl Fate {
    /// The run is about to change something. False: it has been ended, and must not.
    #[must_use]
    pub fn change(&self) -> bool {
        self.decide(CHANGED)
    }

    /// Ends the run. False: it has changed something.
    #[must_use]
    pub fn end(&self) -> bool {
        self.decide(ENDED)
    }

    pub fn has_changed(&self) -> bool {
        self.0.load(Ordering::Acquire) == CHANGED
    }

    fn decide(&self, to: u8) -> bool {
        match self.0.compare_exchange(OPEN, to, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(decided) => decided == to,
        }
    }
}
