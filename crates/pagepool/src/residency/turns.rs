//! One at a time, of those that wait in vain for all their pages together, keeps what has come for it.
//!
//! ```text
//!   ask_turn ──▶ IN THE QUEUE ── those before it have let go ──▶ HAS COME: what it holds is not evicted
//!                     │                                               │
//!                     └──────────────── dropped ──────────────────────┘──▶ the next one's turn comes
//! ```
//! A command that reads many pages beside others may find each time that some of them have gone again. With its turn it misses each page
//! once more at most, so it comes to its end as long as memory has room for what it needs.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::room::Room;
use crate::PageId;

/// Of the pages that may be in memory so many fourths may be held.
const HELD_FOURTHS: u64 = 3;

type Told = Box<dyn FnOnce() + Send>;

struct Waiting {
    number: u64,
    /// Called when its turn has come, or never will.
    told: Option<Told>,
}

#[derive(Default)]
struct State {
    /// Whose turn it is first.
    queue: VecDeque<Waiting>,
    held: HashSet<PageId>,
}

/// Whose turn it is, and what is held.
pub struct Turns {
    room: Arc<Room>,
    next_number: AtomicU64,
    /// Whether anything is held.
    any_held: AtomicBool,
    state: Mutex<State>,
}

impl Turns {
    pub(crate) fn new(room: Arc<Room>) -> Turns {
        Turns {
            room,
            next_number: AtomicU64::new(1),
            any_held: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// A place in the queue: when its turn has come, it keeps what has been brought in for it.
    pub fn ask(self: &Arc<Self>) -> Turn {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        self.state.lock().queue.push_back(Waiting { number, told: None });
        Turn { turns: Arc::downgrade(self), number }
    }

    /// Calls `told` when the turn of that number has come; at once if it has, or has been given up.
    pub fn when_come(&self, number: u64, told: Told) {
        let mut state = self.state.lock();
        match state.queue.iter_mut().skip(1).find(|waiting| waiting.number == number) {
            Some(waiting) => waiting.told = Some(told),
            None => {
                drop(state);
                told();
            }
        }
    }

    fn has_come(&self, number: u64) -> bool {
        self.state.lock().queue.front().is_some_and(|first| first.number == number)
    }

    /// Whether a page stays in memory for whose turn it is.
    #[inline]
    pub(crate) fn holds(&self, page: PageId) -> bool {
        if !self.any_held.load(Ordering::Acquire) {
            return false;
        }
        let state = self.state.lock();
        // The limit may have been lowered since.
        state.held.len() as u64 <= self.most_held() && state.held.contains(&page)
    }

    fn most_held(&self) -> u64 {
        self.room.limit_pages().unwrap_or(u64::MAX) / 4 * HELD_FOURTHS
    }

    /// Holds pages that are about to be brought in, too. False, and nothing is held any more, if that is too much.
    fn hold(&self, number: u64, pages: &[PageId]) -> bool {
        let mut state = self.state.lock();
        if state.queue.front().is_none_or(|first| first.number != number) {
            return false;
        }
        state.held.extend(pages);
        let is_too_much = state.held.len() as u64 > self.most_held();
        if is_too_much {
            state.held = HashSet::new();
        }
        self.any_held.store(!state.held.is_empty(), Ordering::Release);
        !is_too_much
    }

    /// Leaves the queue, and lets go of what is held.
    fn leave(&self, number: u64) {
        let mut state = self.state.lock();
        let Some(at) = state.queue.iter().position(|waiting| waiting.number == number) else { return };
        let left = state.queue.remove(at).and_then(|waiting| waiting.told);
        let mut next = None;
        if at == 0 {
            state.held = HashSet::new();
            self.any_held.store(false, Ordering::Release);
            next = state.queue.front_mut().and_then(|first| first.told.take());
        }
        drop(state);
        left.into_iter().chain(next).for_each(|told| told());
    }
}

/// A place in the queue; given up when dropped.
pub struct Turn {
    turns: Weak<Turns>,
    number: u64,
}

impl Turn {
    /// By which others call it ([`crate::Turns::when_come`]).
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it has come.
    pub fn has_come(&self) -> bool {
        self.turns.upgrade().is_none_or(|turns| turns.has_come(self.number))
    }

    /// Keeps pages in memory, from when they come until this is dropped. To be called before they are asked for. False, and
    /// none is kept any more, if they are too many with those before, or the turn has not come.
    #[must_use]
    pub fn hold(&self, pages: &[PageId]) -> bool {
        self.turns.upgrade().is_some_and(|turns| turns.hold(self.number, pages))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.upgrade().into_iter().for_each(|turns| turns.leave(self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    fn pages(numbers: std::ops::Range<u32>) -> Vec<PageId> {
        numbers.map(PageId).collect()
    }

    #[test]
    fn turns_come_in_order_and_pass_what_is_held() {
        let turns = Arc::new(Turns::new(Arc::new(Room::new(Some(400)))));
        let [first, second, third] = [(); 3].map(|()| turns.ask());
        assert!(first.has_come() && !second.has_come() && !third.has_come());
        assert!(first.hold(&pages(0..200)) && first.hold(&pages(100..300)));
        assert!(!second.hold(&pages(500..501)), "it is not its turn");
        assert!(turns.holds(PageId(299)) && !turns.holds(PageId(500)));
        let told = Arc::new(AtomicU32::new(0));
        let tell = |number| {
            let told = told.clone();
            turns.when_come(number, Box::new(move || _ = told.fetch_add(1, Ordering::Relaxed)));
        };
        tell(second.number());
        tell(third.number());
        assert_eq!(told.load(Ordering::Relaxed), 0);
        // One that goes is told, too: nobody waits for it in vain.
        drop(second);
        assert_eq!(told.load(Ordering::Relaxed), 1);
        drop(first);
        assert_eq!(told.load(Ordering::Relaxed), 2);
        assert!(third.has_come() && !turns.holds(PageId(299)));
        tell(third.number());
        assert_eq!(told.load(Ordering::Relaxed), 3, "it has come");
        drop(third);
        assert!(turns.ask().has_come());
    }

    #[test]
    fn more_than_memory_is_not_held() {
        let room = Arc::new(Room::new(Some(400)));
        let turns = Arc::new(Turns::new(room.clone()));
        let turn = turns.ask();
        assert!(turn.hold(&pages(0..300)));
        assert!(!turn.hold(&pages(300..301)) && !turns.holds(PageId(7)), "three fourths are held at most");
        assert!(turn.hold(&pages(0..300)) && turns.holds(PageId(7)));
        room.set_limit(Some(200));
        assert!(!turns.holds(PageId(7)), "less memory holds less");
        drop(turns);
        assert!(turn.has_come() && !turn.hold(&pages(0..1)), "the pool has gone");
    }
}
