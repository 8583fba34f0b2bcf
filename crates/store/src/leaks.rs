//! Whether pages or slots of slabs may be in use to which nothing leads, because others are lost or could not be read.
//!
//! ```text
//!             a page of a tree is given up                     everything has been looked at
//!   TIDY ────────────────────────────────────▶ MAY LEAK, DUE ──────────────────────────────▶ TIDY
//!     │                                         ▲        │
//!     │ something stays in use                  │        │ it is being looked
//!     ▼        another page is given up, or a   │        ▼
//!   MAY LEAK ───────── database is emptied ─────┴─── MAY LEAK ──▶ as it was, if a page on the way cannot be read
//! ```
//! The next start finds MAY LEAK in the catalog, and looks: it begins as MAY LEAK, DUE. What stays in use while everything is
//! being looked at may have come after the look.

use std::sync::atomic::{AtomicU8, Ordering};

const MAY_LEAK: u8 = 1;
const DUE: u8 = 2;
/// Something stays in use since it was begun to look.
const MORE: u8 = 4;

/// See the module. Each edge is one step.
#[derive(Default)]
pub(crate) struct Leaks(AtomicU8);

impl Leaks {
    pub fn new(may_leak: bool) -> Leaks {
        Leaks(AtomicU8::new(if may_leak { MAY_LEAK | DUE } else { 0 }))
    }

    /// TIDY, MAY LEAK → MAY LEAK, DUE
    pub fn ask(&self) {
        self.0.fetch_or(MAY_LEAK | DUE, Ordering::AcqRel);
    }

    /// TIDY → MAY LEAK: something stays in use whose time will come when everything is looked at.
    pub fn note_leak(&self) {
        self.0.fetch_or(MAY_LEAK | MORE, Ordering::AcqRel);
    }

    pub fn may_leak(&self) -> bool {
        self.0.load(Ordering::Acquire) & MAY_LEAK != 0
    }

    pub fn is_due(&self) -> bool {
        self.0.load(Ordering::Acquire) & DUE != 0
    }

    /// MAY LEAK, DUE → MAY LEAK
    pub fn begin(&self) {
        self.0.fetch_and(!(DUE | MORE), Ordering::AcqRel);
    }

    /// MAY LEAK → TIDY, unless more has been lost meanwhile
    pub fn end(&self) {
        let ended = |bits: u8| if bits & (DUE | MORE) == 0 { 0 } else { bits };
        let updated = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| Some(ended(bits)));
        debug_assert!(updated.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_ends_what_was_there_before_it() {
        for make in [Leaks::ask, Leaks::note_leak] {
            let leaks = Leaks::default();
            make(&leaks);
            assert!(leaks.may_leak());
            leaks.begin();
            assert!(leaks.may_leak() && !leaks.is_due());
            leaks.end();
            assert!(!leaks.may_leak() && !leaks.is_due());
        }
    }

    #[test]
    fn what_comes_during_a_look_is_left() {
        for (make, is_due) in [(Leaks::ask as fn(&Leaks), true), (Leaks::note_leak, false)] {
            let leaks = Leaks::new(true);
            leaks.begin();
            make(&leaks);
            leaks.end();
            assert!(leaks.may_leak());
            assert_eq!(leaks.is_due(), is_due);
        }
    }
}
