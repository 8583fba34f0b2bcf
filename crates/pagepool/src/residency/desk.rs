//! Where requests for pages are left for the threads that bring them in.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::device::Bell;
use crate::PageId;

/// Pages that are to be brought in, or none: then it is room that is waited for.
pub struct Request {
    pub pages: Vec<PageId>,
    pub done: Box<dyn FnOnce() + Send>,
    pub since: Instant,
}

/// Where requests are left for the threads.
#[derive(Default)]
pub struct Desk {
    state: Mutex<DeskState>,
    /// Whether a thread waits for room.
    awaits_room: AtomicBool,
}

#[derive(Default)]
struct DeskState {
    is_open: bool,
    requests: VecDeque<Request>,
    bells: Vec<Arc<Bell>>,
}

impl DeskState {
    fn ring(&self) {
        self.bells.iter().for_each(|bell| bell.ring());
    }
}

impl Desk {
    /// Requests are served from now on, by the owner of this bell.
    pub fn open(&self, bell: Arc<Bell>) {
        let mut state = self.state.lock();
        state.is_open = true;
        state.bells.push(bell);
    }

    /// Nobody serves requests any more.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.is_open = false;
        state.ring();
    }

    /// Gives the request back if nobody serves it.
    pub fn leave(&self, request: Request) -> Option<Request> {
        let mut state = self.state.lock();
        if !state.is_open {
            return Some(request);
        }
        state.requests.push_back(request);
        state.ring();
        None
    }

    /// The request that has been here for longest.
    pub fn take(&self) -> Option<Request> {
        self.state.lock().requests.pop_front()
    }

    /// From now on threads are woken when the room changes: one waits for that.
    pub fn await_room(&self) {
        self.awaits_room.store(true, Ordering::SeqCst);
    }

    /// The room has changed.
    pub fn tell_of_room(&self) {
        if self.awaits_room.swap(false, Ordering::SeqCst) {
            self.state.lock().ring();
        }
    }
}
