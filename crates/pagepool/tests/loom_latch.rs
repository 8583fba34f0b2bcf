//! The state word under the model checker: every interleaving of small programs.

use loom::sync::Arc;
use loom::thread;

mod sync {
    pub use loom::sync::atomic;
}

#[allow(dead_code)]
#[path = "../src/page/latch.rs"]
mod latch;

use latch::{Met, StateWord, Wanted};
use sync::atomic::{AtomicU64, Ordering};

/// A page: its state and two words that a writer keeps equal.
struct Page {
    state: StateWord,
    words: [AtomicU64; 2],
}

impl Page {
    fn new() -> Arc<Page> {
        let page = Page { state: StateWord::new_evicted(), words: [AtomicU64::new(0), AtomicU64::new(0)] };
        assert!(page.state.begin_life());
        let _ = page.state.unlock();
        Arc::new(page)
    }

    fn try_increment(&self) -> bool {
        if self.state.try_lock().is_err() {
            return false;
        }
        let next = self.words[0].load(Ordering::Relaxed) + 1;
        self.words.iter().for_each(|word| word.store(next, Ordering::Relaxed));
        let _ = self.state.unlock();
        true
    }

    fn both(&self) -> (u64, u64) {
        (self.words[0].load(Ordering::Relaxed), self.words[1].load(Ordering::Relaxed))
    }
}

#[test]
fn optimistic_readers_see_one_writers_work() {
    loom::model(|| {
        let page = Page::new();
        let writer = page.clone();
        let thread = thread::spawn(move || writer.try_increment());
        // As guards do.
        if let Some(seen) = page.state.glance().or_else(|| page.state.read_version().ok()) {
            let (a, b) = page.both();
            if page.state.validate(seen) {
                assert_eq!(a, b, "a validated read is never torn");
            }
        }
        thread.join().unwrap();
    });
}

/// A reader that latches what it has seen has what it saw, also if it is not the first that has latched it since.
#[test]
fn a_latch_on_what_was_seen_is_on_that() {
    loom::model(|| {
        let page = Page::new();
        let writer = page.clone();
        let writing = thread::spawn(move || writer.try_increment());
        if let Some(seen) = page.state.glance() {
            let (before, _) = page.both();
            let is_latched = page.state.try_share().is_ok();
            if page.state.share_seen(seen) {
                assert_eq!(page.both(), (before, before), "nobody has written since");
                let _ = page.state.unshare();
            }
            if is_latched {
                let _ = page.state.unshare();
            }
        }
        writing.join().unwrap();
        assert!(page.try_increment(), "every latch has been given up");
    });
}

/// Shared latches change the word and not the version; the clock's mark is taken off by a reader, and is not overlooked later.
#[test]
fn optimistic_readers_see_through_latches_and_marks() {
    loom::model(|| {
        let page = Page::new();
        assert_eq!(page.state.meet(), Met::Touched);
        assert_eq!(page.state.glance(), None, "a glance takes no mark off");
        let (sharer, clock) = (page.clone(), page.clone());
        let sharing = thread::spawn(move || {
            if sharer.state.try_share().is_ok() {
                let _ = sharer.state.unshare();
            }
        });
        let evicting = thread::spawn(move || match clock.state.meet() {
            Met::Idle(mark) => clock.state.claim(mark),
            _ => false,
        });
        let seen = page.state.glance().or_else(|| page.state.read_version().ok());
        let is_valid = seen.is_some_and(|seen| page.state.validate(seen));
        let is_claimed = evicting.join().unwrap();
        sharing.join().unwrap();
        assert!(seen.is_some() || is_claimed, "a page in memory is read");
        assert!(!is_valid || !is_claimed, "a reader takes the mark off, and the page is not claimed");
    });
}

#[test]
fn shared_and_exclusive_exclude_each_other() {
    loom::model(|| {
        let page = Page::new();
        let writer = page.clone();
        let thread = thread::spawn(move || writer.try_increment());
        if page.state.try_share().is_ok() {
            let (a, b) = page.both();
            assert_eq!(a, b);
            let _ = page.state.unshare();
        }
        thread.join().unwrap();
        assert!(page.try_increment(), "every latch has been given up");
    });
}

#[test]
fn no_increment_is_lost() {
    loom::model(|| {
        let page = Page::new();
        let other = page.clone();
        let thread = thread::spawn(move || u64::from(other.try_increment()));
        let mine = u64::from(page.try_increment());
        let total = mine + thread.join().unwrap();
        assert_eq!(page.both(), (total, total));
    });
}

/// A waiter that announced itself is always told: either its announcement fails, or an unlock reports it.
#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let page = Page::new();
        assert!(page.state.try_lock().is_ok());
        let waiter = page.clone();
        let thread = thread::spawn(move || waiter.state.announce_waiter(Wanted::Exclusive));
        let woke = page.state.unlock();
        let announced = thread.join().unwrap();
        assert_eq!(woke, announced, "the unlocker wakes exactly those that announced themselves");
        assert!(!page.state.still_waiting());
    });
}

#[test]
fn the_last_reader_wakes() {
    loom::model(|| {
        let page = Page::new();
        assert!(page.state.try_share().is_ok() && page.state.try_share().is_ok());
        let (reader, waiter) = (page.clone(), page.clone());
        let reading = thread::spawn(move || reader.state.unshare());
        let waiting = thread::spawn(move || waiter.state.announce_waiter(Wanted::Exclusive));
        let woke_here = page.state.unshare();
        let woke_there = reading.join().unwrap();
        let announced = waiting.join().unwrap();
        // An announcement may come between the last reader's departure and its clearing of the bit; then the
        // waiter finds the bit gone under the parking lot's lock and tries again.
        assert!(woke_here || woke_there || !announced || !page.state.still_waiting());
    });
}
