//! What a thread does to pages: as ever, or only look, or carry out what it has looked at.
//!
//! ```text
//!            Looking::begin                Carrying::begin
//!   LOOKING ◀────────────── FREE ──────────────▶ CARRYING OUT
//!      └──────── dropped ───▶ ▲ ◀──── dropped ────┘
//! ```
//! A transaction first looks, as often as it takes, until all of its pages are in memory, and then is carried out to its end
//! (C9). A thread that looks runs the same operations, and is stopped where the first of them would change something.

use std::cell::Cell;
use std::marker::PhantomData;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Free,
    Looking,
    Carrying,
}

thread_local! {
    static PHASE: Cell<Phase> = const { Cell::new(Phase::Free) };
}

/// Whether this thread only looks.
#[inline(always)]
pub fn is_looking() -> bool {
    PHASE.get() == Phase::Looking
}

/// Whether this thread carries out what must come to its end.
#[inline(always)]
pub fn is_carrying() -> bool {
    PHASE.get() == Phase::Carrying
}

/// While it lives, this thread latches no page to change it and allocates none: an operation that asks for one is told
/// [`crate::Restart::Looking`], or that the page is missing.
#[must_use]
pub struct Looking {
    before: Phase,
    _of_thread: PhantomData<*const ()>,
}

impl Looking {
    pub fn begin() -> Looking {
        Looking { before: PHASE.replace(Phase::Looking), _of_thread: PhantomData }
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        PHASE.set(self.before);
    }
}

/// While it lives, this thread must come to the end of what it does: whatever memory says, it is told which pages are missing,
/// and brings them in ([`crate::Residency::load_at_once`]).
#[must_use]
pub struct Carrying {
    before: Phase,
    _of_thread: PhantomData<*const ()>,
}

impl Carrying {
    pub fn begin() -> Carrying {
        Carrying { before: PHASE.replace(Phase::Carrying), _of_thread: PhantomData }
    }
}

impl Drop for Carrying {
    fn drop(&mut self) {
        PHASE.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_ends_with_its_guard() {
        let carrying = Carrying::begin();
        assert!(is_carrying() && !is_looking());
        let looking = Looking::begin();
        assert!(is_looking() && !is_carrying());
        drop(looking);
        assert!(is_carrying());
        std::thread::spawn(|| assert!(!is_carrying() && !is_looking())).join().unwrap();
        drop(carrying);
        assert!(!is_carrying() && !is_looking());
    }
}
