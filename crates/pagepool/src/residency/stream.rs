//! The threads that bring in what commands wait for. One takes requests as they come and keeps the device busy with their pages;
//! a request is done when its own pages are there.
//!
//! ```text
//!   a page of a request:   WANTED ── room, begin_load ──▶ UNDER WAY ── read, verified ──▶ in memory, or damaged
//!                            │ ▲                                                             │
//!             MOVING by others │ it is absent again                                          │
//!                            ▼ │                                                             ▼
//!                          WITH OTHERS ──────── it is there ─────────────────────▶ its ticket is let go
//! ```
//! The last ticket of a request that is let go says that it is done.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::desk::Request;
use super::loader::{Begun, Residency};
use super::room::Prospect;
use crate::device::{Bell, Rest};
use crate::metrics::PoolMetrics;
use crate::page::Loaded;
use crate::pagefile::{PageError, PageFeed};
use crate::{PageBytes, PageId, PoolError};

/// Pages of a request that are begun before those of the next: a long one does not keep short ones waiting.
const TURN_PAGES: usize = 32;
/// When those that others are bringing in, or giving back, are looked at again.
const LOOK_AT_OTHERS: Duration = Duration::from_micros(200);
/// When who waits for room is looked at again, if nobody says that there is some.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(20);

/// Part of a request; the last one that goes says that it is done.
struct Ticket<'r> {
    done: Option<Box<dyn FnOnce() + Send>>,
    since: Instant,
    metrics: &'r PoolMetrics,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.metrics.fault.record(self.since.elapsed());
        self.done.take().into_iter().for_each(|done| done());
    }
}

/// A request of which pages have not been begun.
struct Pending<'r> {
    pages: std::vec::IntoIter<PageId>,
    ticket: Rc<Ticket<'r>>,
}

/// What one of the threads has to do.
pub struct Loader<'r> {
    residency: &'r Residency,
    pending: VecDeque<Pending<'r>>,
    /// Pages of the first of `pending` until it is the turn of the next.
    turn_left: usize,
    under_way: HashMap<PageId, Vec<Rc<Ticket<'r>>>>,
    with_others: Vec<(PageId, Rc<Ticket<'r>>)>,
    for_room: Vec<Ticket<'r>>,
    /// A page is wanted that there is no room for.
    lacks_room: bool,
}

impl<'r> Loader<'r> {
    pub fn new(residency: &'r Residency) -> Loader<'r> {
        Loader {
            residency,
            pending: VecDeque::new(),
            turn_left: TURN_PAGES,
            under_way: HashMap::new(),
            with_others: Vec::new(),
            for_room: Vec::new(),
            lacks_room: false,
        }
    }

    fn take_requests(&mut self) {
        let metrics = &self.residency.core.metrics;
        while let Some(Request { pages, done, since }) = self.residency.desk.take() {
            let ticket = Ticket { done: Some(done), since, metrics };
            match pages.is_empty() {
                true => self.for_room.push(ticket),
                false => {
                    let pages = pages.into_iter();
                    self.pending.push_back(Pending { pages, ticket: Rc::new(ticket) });
                }
            }
        }
    }

    /// The pool closes: who waits hears of it, and asks again in vain.
    fn drop_requests(&mut self) {
        self.take_requests();
        self.pending.clear();
        self.with_others.clear();
        self.for_room.clear();
    }

    /// Looks at what does not tell of itself.
    fn look_again(&mut self) {
        if !self.for_room.is_empty() && self.look_for_room(0) != Prospect::Later {
            self.for_room.clear();
        }
        let pages = &self.residency.core.pages;
        let is_moving = |page| pages.try_descriptor(page).is_some_and(|it| it.state.is_moving());
        for index in (0..self.with_others.len()).rev() {
            if !is_moving(self.with_others[index].0) {
                let (page, ticket) = self.with_others.swap_remove(index);
                // In memory, or absent again.
                self.pending.push_front(Pending { pages: vec![page].into_iter(), ticket });
                self.turn_left = TURN_PAGES;
            }
        }
    }

    /// The next page that is wanted, in turn.
    fn next_wanted(&mut self) -> Option<(PageId, Rc<Ticket<'r>>)> {
        loop {
            let first = self.pending.front_mut()?;
            if self.turn_left == 0 {
                self.turn_left = TURN_PAGES;
                self.pending.rotate_left(1);
                continue;
            }
            let Some(page) = first.pages.next() else {
                self.pending.pop_front();
                self.turn_left = TURN_PAGES;
                continue;
            };
            self.turn_left -= 1;
            return Some((page, first.ticket.clone()));
        }
    }

    /// Whether another page may be under way.
    fn prospect(&self) -> Prospect {
        let room = &self.residency.room;
        let count = self.under_way.len();
        if !room.is_limited() {
            return Prospect::Now;
        }
        match count >= room.batch_pages() {
            true => Prospect::Later,
            false => self.look_for_room(count as u64 + 1),
        }
    }

    /// Whether there is room for so many pages; if later, this thread is told then.
    fn look_for_room(&self, page_count: u64) -> Prospect {
        let room = &self.residency.room;
        match room.look_for(page_count) {
            Prospect::Later => {
                self.residency.desk.await_room();
                // What came before.
                room.look_for(page_count)
            }
            prospect => prospect,
        }
    }
}

impl<'r> PageFeed<'r> for Loader<'r> {
    fn next(&mut self) -> Option<(PageId, &'r mut PageBytes)> {
        if self.residency.is_stopping() {
            self.drop_requests();
            return None;
        }
        self.take_requests();
        self.look_again();
        self.lacks_room = false;
        loop {
            let (page, ticket) = self.next_wanted()?;
            if let Some(tickets) = self.under_way.get_mut(&page) {
                tickets.push(ticket);
                continue;
            }
            if self.residency.core.pages.is_resident(page) {
                continue;
            }
            match self.prospect() {
                Prospect::Now => {}
                Prospect::Later => {
                    self.lacks_room = true;
                    self.pending.push_front(Pending { pages: vec![page].into_iter(), ticket });
                    return None;
                }
                // It stays absent, and who asks for it is told why.
                Prospect::Never => continue,
            }
            match self.residency.begin_load(page) {
                Begun::Yes(buffer) => {
                    self.under_way.insert(page, vec![ticket]);
                    return Some((page, buffer));
                }
                Begun::ByOthers => self.with_others.push((page, ticket)),
                Begun::No => {}
            }
        }
    }

    fn end(&mut self, page: PageId, result: Result<(), PageError>) {
        self.residency.end_load(page, Loaded::Wanted, result.err().as_ref());
        // Whoever waited for nothing else hears of it.
        self.under_way.remove(&page);
    }

    fn rest(&mut self) -> Rest {
        if self.residency.is_stopping() {
            return Rest::Over;
        }
        match (self.with_others.is_empty(), self.lacks_room || !self.for_room.is_empty()) {
            (false, _) => Rest::For(LOOK_AT_OTHERS),
            (true, true) => Rest::For(LOOK_FOR_ROOM),
            (true, false) => Rest::UntilRung,
        }
    }
}

impl Residency {
    /// Starts the threads that load what is asked for.
    ///
    /// # Errors
    /// [`PoolError::Thread`]; [`PoolError::Bell`].
    pub(crate) fn start_loaders(self: &Arc<Self>) -> Result<(), PoolError> {
        let Some(file) = self.file() else { return Ok(()) };
        let desk = Arc::downgrade(&self.desk);
        self.room
            .set_listener(Box::new(move || desk.upgrade().into_iter().for_each(|desk| desk.tell_of_room())));
        for number in 0..file.stream_count() {
            let bell = Arc::new(Bell::new().map_err(PoolError::Bell)?);
            self.desk.open(bell.clone());
            let (residency, file) = (self.clone(), file.clone());
            let serve = move || file.serve_reads(&bell, &mut Loader::new(&residency));
            self.spawn(&format!("sf-load-{number}"), serve)?;
        }
        Ok(())
    }
}
