//! The evictor: gives the memory of pages back that are in the page file, and writes those that are not.
//!
//! ```text
//!   MARKED by the clock ──▶ every member has been between two commands ──▶ dirty? copied, written to a free slot
//!                                                                             │
//!         a touch at any time takes the mark off: the page stays              ▼
//!         EVICTED ◀── memory given back ◀── located, clean ◀── claimed: MOVING
//! ```
//! What a command has touched it finds in memory until it ends, because the mark has to be there before the wait and after
//! it (R3). So nobody reads memory that is given back, no copy is taken of a page that somebody is writing, and a command
//! that has looked whether its pages are there meets no fault afterwards.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::background::{Background, StopSign};
use super::clock::Clock;
use super::room::Room;
use super::scrub::Scrubbing;
use super::supply::Supply;
use super::turns::Turns;
use crate::device::PageBuf;
use crate::page::{end_eviction_and_wake, Mark};
use crate::pagefile::{PageFile, WrittenBack};
use crate::sched::{self, promptly};
use crate::snapshot::Core;
use crate::{PageBytes, PageId, PoolError};

/// Pages that are evicted together (1 MB).
const BATCH_PAGES: usize = 256;
/// The same where others want the one processor that there is.
const BATCH_PAGES_GIVING_WAY: usize = 64;
/// Of these, those that are written with one call: reads that somebody waits for come in between.
const WRITE_PAGES: usize = 64;
/// Pages whose memory is given back at once: nobody has them meanwhile.
const GIVE_BACK_PAGES: usize = 64;
/// After a round in which nothing could go.
const REST: Duration = Duration::from_millis(10);
/// Between two rounds while nothing can be written: so long what has been read stays for sure.
const REST_OF_READERS: Duration = Duration::from_millis(50);
/// After a write that failed, until the next.
const REST_AFTER_ERROR: Duration = Duration::from_millis(200);

/// Waits until each member of the barrier has been between two commands.
pub type WaitForTurns = Box<dyn Fn() + Send + Sync>;

struct Shared {
    core: Arc<Core>,
    supply: Arc<Supply>,
    room: Arc<Room>,
    file: Arc<PageFile>,
    scrubbing: Arc<Scrubbing>,
    turns: Arc<Turns>,
    wait_for_turns: WaitForTurns,
    stop: StopSign,
}

/// A page that may go, and what has been written of it if that was to be.
struct Victim {
    page: PageId,
    mark: Mark,
    written: Option<WrittenBack>,
}

impl Shared {
    /// Evicts up to `count` pages. Returns how many, and whether a write failed.
    fn evict(&self, clock: &mut Clock, count: usize, may_write: bool) -> (usize, bool) {
        let must_stay =
            |page| self.room.is_kept(page) || self.scrubbing.is_marked(page) || self.turns.holds(page);
        let may_go = |page| (may_write || self.core.is_clean(page)) && !must_stay(page);
        let rounds = if may_write { 2 } else { 1 };
        let picked = clock.pick(&self.core, || self.supply.used_ranges(), count, rounds, may_go);
        if picked.is_empty() {
            return (0, false);
        }
        self.room.awaiting_turns(&self.wait_for_turns);
        let (mut victims, dirty) = self.sort(picked);
        let is_written = self.write_back(dirty, &mut victims);
        victims.sort_unstable_by_key(|victim| victim.page);
        let evicted = self.give_back(victims);
        (evicted, !is_written)
    }

    /// Clean pages, and dirty ones.
    fn sort(&self, picked: Vec<(PageId, Mark)>) -> (Vec<Victim>, Vec<(PageId, Mark)>) {
        let (clean, dirty): (Vec<_>, Vec<_>) =
            picked.into_iter().partition(|&(page, _)| self.core.is_clean(page));
        let victims = clean.into_iter().map(|(page, mark)| Victim { page, mark, written: None });
        (victims.collect(), dirty)
    }

    /// Writes copies of dirty pages to free slots, in ascending order. False if that failed.
    fn write_back(&self, mut dirty: Vec<(PageId, Mark)>, victims: &mut Vec<Victim>) -> bool {
        if dirty.is_empty() {
            return true;
        }
        dirty.sort_unstable_by_key(|(page, _)| *page);
        let mut copies = vec![PageBuf::ZERO; dirty.len()];
        let copied: Vec<_> = dirty
            .iter()
            .zip(&mut copies)
            .filter_map(|(&(page, mark), copy)| {
                let is_idle = self.core.pages.copy_idle(page, mark, &mut copy.0);
                is_idle.then_some(((page, mark), &copy.0))
            })
            .collect();
        copied.chunks(WRITE_PAGES).all(|part| self.write_part(part, victims))
    }

    /// Copies of pages that go to the device together. False if that failed.
    fn write_part(&self, copied: &[((PageId, Mark), &PageBytes)], victims: &mut Vec<Victim>) -> bool {
        let pages: Vec<_> = copied.iter().map(|((page, _), copy)| (*page, *copy)).collect();
        let metrics = &self.core.metrics;
        let written = self.file.write_back(&pages);
        self.room.note_written(written.is_ok());
        match written {
            Ok(written) => {
                metrics.written_back_page_count.fetch_add(written.len() as u64, Ordering::Relaxed);
                let marks = copied.iter().map(|((_, mark), _)| *mark);
                victims.extend(written.into_iter().zip(marks).map(|(written, mark)| Victim {
                    page: written.page(),
                    mark,
                    written: Some(written),
                }));
                true
            }
            Err(_) => {
                metrics.write_back_error_count.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    /// MARKED → MOVING → EVICTED, those that nobody has touched. Returns how many.
    fn give_back(&self, victims: Vec<Victim>) -> usize {
        let mut evicted = 0;
        let mut victims = victims.into_iter().peekable();
        while victims.peek().is_some() {
            let claimed: Vec<PageId> =
                victims.by_ref().take(GIVE_BACK_PAGES).filter_map(|victim| self.claim(victim)).collect();
            let begin = Instant::now();
            self.core.pages.give_back_pages(&claimed);
            let taken_ns = begin.elapsed().as_nanos() as u64;
            self.core.metrics.give_back_ns.fetch_add(taken_ns, Ordering::Relaxed);
            self.room.note_absent(claimed.len() as u64);
            for page in &claimed {
                end_eviction_and_wake(&self.core.pages.descriptor(*page).state);
            }
            evicted += claimed.len();
            self.supply.finish_deferred_frees();
        }
        self.core.metrics.evicted_page_count.fetch_add(evicted as u64, Ordering::Relaxed);
        evicted
    }

    /// MARKED → MOVING; what has been written of the page is its location. `None` if somebody has touched it.
    fn claim(&self, victim: Victim) -> Option<PageId> {
        let Victim { page, mark, written } = victim;
        let descriptor = self.core.pages.descriptor(page);
        if !descriptor.state.claim(mark) {
            written.into_iter().for_each(|written| self.file.drop_written(written));
            return None;
        }
        if let Some(written) = written {
            self.file.set_location(page, written);
            descriptor.epochs.set_written_back();
        }
        Some(page)
    }
}

/// The thread.
pub struct Evictor {
    thread: Background,
}

impl Evictor {
    /// # Errors
    /// [`PoolError::Thread`].
    pub fn start(
        core: Arc<Core>,
        supply: Arc<Supply>,
        room: Arc<Room>,
        file: Arc<PageFile>,
        (scrubbing, turns): (Arc<Scrubbing>, Arc<Turns>),
        wait_for_turns: WaitForTurns,
    ) -> Result<Evictor, PoolError> {
        let stop = StopSign::default();
        let shared =
            Shared { core, supply, room, file, scrubbing, turns, wait_for_turns, stop: stop.clone() };
        Ok(Evictor { thread: Background::start("sf-evict", stop, move || run(&shared))? })
    }

    /// Ends the thread.
    pub fn shut_down(&self) {
        self.thread.shut_down();
    }
}

fn run(shared: &Shared) {
    shared.room.set_evictor(std::thread::current());
    let mut clock = Clock::default();
    let mut failed_at: Option<Instant> = None;
    while !shared.stop.is_given() {
        if !shared.room.is_short() {
            shared.room.note_round(true);
            std::thread::park();
            continue;
        }
        if !shared.room.evicts() {
            shared.room.begin_evicting();
            shared.core.pages.avoid_huge();
        }
        let may_write = failed_at.is_none_or(|at| at.elapsed() > REST_AFTER_ERROR);
        let mut left = shared.room.excess_pages(may_write) as usize;
        if left == 0 {
            shared.room.note_round(true);
            std::thread::park_timeout(REST);
        }
        while left > 0 && !shared.stop.is_given() {
            let batch_pages = if sched::gives_way() { BATCH_PAGES_GIVING_WAY } else { BATCH_PAGES };
            // Memory may be full before it ends, and then somebody waits for it.
            let (evicted, has_failed) =
                promptly(|| shared.evict(&mut clock, left.min(batch_pages), may_write));
            shared.room.note_round(evicted > 0);
            left = left.saturating_sub(evicted);
            if may_write {
                failed_at = has_failed.then(Instant::now);
            }
            if failed_at.is_some() {
                // What goes now has just been read, by somebody who is to find it: it is marked in one round, and goes in
                // the next.
                std::thread::sleep(REST_OF_READERS);
                break;
            }
            if evicted == 0 {
                std::thread::park_timeout(REST);
                break;
            }
        }
    }
}
