//! Waiting for a latch, and waking whoever waits.

use parking_lot_core::{ParkResult, DEFAULT_PARK_TOKEN, DEFAULT_UNPARK_TOKEN};

use super::latch::{Refused, StateWord, Wanted};

/// Attempts before a contended latch parks.
pub const SPIN_COUNT: u32 = 64;

/// Takes a latch by `attempt`; parks while somebody holds it in a way that excludes it.
pub fn acquire(
    word: &StateWord,
    wanted: Wanted,
    attempt: impl Fn() -> Result<(), Refused>,
) -> Result<(), Refused> {
    loop {
        for _ in 0..SPIN_COUNT {
            match attempt() {
                Err(Refused::Held) => std::hint::spin_loop(),
                other => return other,
            }
        }
        park(word, wanted);
    }
}

/// As [`StateWord::touch`], of a page that the latch of another one covers: waits while its bytes move (R6).
#[inline(always)]
pub fn touch_covered(word: &StateWord) -> bool {
    match word.touch_covered() {
        Some(is_resident) => is_resident,
        None => touch_relocating(word),
    }
}

#[cold]
fn touch_relocating(word: &StateWord) -> bool {
    loop {
        for _ in 0..SPIN_COUNT {
            match word.touch_covered() {
                Some(is_resident) => return is_resident,
                None => std::hint::spin_loop(),
            }
        }
        park(word, Wanted::EndOfRelocation);
    }
}

/// Waits until a page is not on its way in or out any more. For threads that may wait for the disk.
pub fn wait_for_move(word: &StateWord) {
    while park(word, Wanted::EndOfMove) {}
}

/// Parks while the word refuses what is wanted; false if it does not.
#[cold]
fn park(word: &StateWord, wanted: Wanted) -> bool {
    if !word.announce_waiter(wanted) {
        return false;
    }
    let key = word as *const StateWord as usize;
    // SAFETY: L1: the key is the word's own address, used by nothing else; the callbacks neither panic nor park.
    let _: ParkResult = unsafe {
        parking_lot_core::park(key, || word.still_waiting(), || {}, |_, _| {}, DEFAULT_PARK_TOKEN, None)
    };
    true
}

#[cold]
fn wake(word: &StateWord) {
    let key = word as *const StateWord as usize;
    // SAFETY: L1: as in `park`.
    unsafe { parking_lot_core::unpark_all(key, DEFAULT_UNPARK_TOKEN) };
}

/// Gives up an exclusive latch.
#[inline(always)]
pub fn unlock_and_wake(word: &StateWord) {
    if word.unlock() {
        wake(word);
    }
}

/// How a load has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loaded {
    /// Somebody asked for the page.
    Wanted,
    /// Nobody has yet: it goes before others if memory runs short.
    Ahead,
    Failed,
}

/// Ends a load: the page is in memory now, or could not be read.
pub fn end_load_and_wake(word: &StateWord, loaded: Loaded) {
    let is_awaited = match loaded {
        Loaded::Failed => word.load_failed(),
        loaded => word.loaded(loaded == Loaded::Wanted),
    };
    if is_awaited {
        wake(word);
    }
}

/// Ends an eviction: the page's memory has been given back.
pub fn end_eviction_and_wake(word: &StateWord) {
    if word.moved_out() {
        wake(word);
    }
}

/// Ends a page's move to another frame.
pub fn relocated_and_wake(word: &StateWord, frame: u32) {
    if word.end_relocation(frame) {
        wake(word);
    }
}

/// Gives up a latch together with the page.
pub fn evict_and_wake(word: &StateWord) {
    if word.evict() {
        wake(word);
    }
}

/// Gives up a shared latch.
#[inline(always)]
pub fn unshare_and_wake(word: &StateWord) {
    if word.unshare() {
        wake(word);
    }
}

#[cfg(test)]
mod tests {
    use super::{Refused, StateWord, Wanted};
    use crate::page::Met;

    #[test]
    fn edges() {
        let word = StateWord::new_evicted();
        assert_eq!(word.try_lock(), Err(Refused::Absent));
        assert_eq!(word.try_share(), Err(Refused::Absent));
        assert!(word.begin_life() && !word.begin_life());
        assert_eq!(word.try_share(), Err(Refused::Held));
        assert!(!word.unlock());
        let version = word.read_version().unwrap();
        assert!(word.try_share().is_ok() && word.try_share().is_ok());
        assert!(word.validate(version), "a shared latch changes nothing");
        assert_eq!(word.try_lock(), Err(Refused::Held));
        assert!(word.announce_waiter(Wanted::Exclusive) && !word.announce_waiter(Wanted::Shared));
        assert!(!word.unshare());
        assert!(word.unshare(), "the last reader wakes the waiting writer");
        assert!(word.try_lock().is_ok() && word.is_resident(), "what is merely latched is in memory");
        assert!(!word.validate(version), "a writer is at it");
        assert!(!word.unlock());
        assert!(!word.validate(version), "a writer has been at it");
        assert!(word.try_lock().is_ok() && !word.evict() && !word.is_resident());
    }

    /// A page that is being read is absent for everybody; only its loader is waited for.
    #[test]
    fn edges_of_a_load() {
        let word = StateWord::new_evicted();
        assert!(!word.announce_waiter(Wanted::EndOfMove), "nobody loads");
        for is_good in [false, true] {
            assert!(word.begin_load() && !word.begin_load() && !word.begin_life());
            assert!(!word.is_resident());
            assert_eq!(word.try_lock(), Err(Refused::Absent));
            assert_eq!(word.try_share(), Err(Refused::Absent));
            assert_eq!(word.read_version().err(), Some(Refused::Absent));
            assert!(!word.announce_waiter(Wanted::Exclusive) && !word.announce_waiter(Wanted::Shared));
            assert!(word.announce_waiter(Wanted::EndOfMove) && word.still_waiting());
            assert_eq!(word.retire(), None, "a page that is being read is not used again");
            assert!(if is_good { word.loaded(true) } else { word.load_failed() }, "who waits is woken");
            assert!(!word.still_waiting() && !word.announce_waiter(Wanted::EndOfMove));
            assert_eq!(word.is_resident(), is_good);
        }
        let version = word.read_version().unwrap();
        assert!(word.try_share().is_ok() && word.retire().is_none() && !word.unshare());
        assert!(word.retire() == Some(true) && !word.is_resident() && !word.validate(version));
        assert_eq!(word.retire(), Some(false), "what was never read can be retired too");
    }

    /// Every access takes the mark off, and only what has it still is evicted.
    #[test]
    fn edges_of_an_eviction() {
        let word = StateWord::new_evicted();
        assert_eq!(word.meet(), Met::Passed);
        assert!(word.begin_load() && !word.loaded(false));
        let Met::Idle(mark) = word.meet() else { panic!("what was brought in ahead is marked") };
        let accesses: [&dyn Fn(); 4] = [
            &|| assert!(word.touch()),
            &|| assert!(word.read_version().is_ok()),
            &|| assert!(word.try_share().is_ok() && !word.unshare()),
            &|| assert!(word.try_lock().is_ok() && !word.unlock()),
        ];
        for access in accesses {
            assert!(matches!(word.meet(), Met::Idle(_)));
            access();
            assert!(!word.is_idle(mark) && !word.claim(mark));
            assert_eq!(word.meet(), Met::Touched);
        }
        let Met::Idle(mark) = word.meet() else { panic!("nobody has touched it") };
        let version = word.residence().unwrap();
        assert!(word.is_still_resident(version) && word.claim(mark) && !word.is_still_resident(version));
        assert_eq!((word.try_share(), word.try_lock()), (Err(Refused::Absent), Err(Refused::Absent)));
        assert!(!word.touch() && word.retire().is_none() && word.announce_waiter(Wanted::EndOfMove));
        assert!(word.moved_out() && !word.is_resident() && word.residence().is_none());
    }

    /// Evictor, keeper and walks mark pages. Who has waited since a mark of its own does not take that of another for it.
    #[test]
    fn a_mark_that_has_been_taken_off_does_not_come_back() {
        let word = StateWord::new_evicted();
        assert!(word.begin_load() && !word.loaded(true));
        let marks: [&dyn Fn(); 2] =
            [&|| assert_eq!(word.meet(), Met::Touched), &|| assert!(word.mark().is_some())];
        for first in marks {
            for second in marks {
                assert!(word.touch());
                first();
                let Met::Idle(mark) = word.meet() else { panic!("nobody has touched it") };
                assert!(
                    word.is_idle(mark) && word.mark() == Some(mark),
                    "who finds it marked shares the mark"
                );
                assert!(word.touch());
                second();
                assert!(!word.is_idle(mark) && !word.claim(mark) && !word.begin_relocation(mark));
            }
        }
    }
}
