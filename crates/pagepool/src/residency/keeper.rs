//! The keeper of the frames: a thread that has some with memory ready before they are taken, and gives the memory back of
//! what nobody needs, a chunk of 2 MB at a time.
//!
//! ```text
//!   few free frames ──▶ chunks get memory, until there are enough
//!   many, for a while ──▶ chunks without a page go back ──▶ still many: sparse chunks are drained, their pages move
//! ```
//! A page moves as it is evicted: marked first, and moved only if nobody has touched it since, once every member of the
//! barrier has been between two commands (R6). What is in use all the time stays where it is, and its chunk with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::background::{Background, StopSign};
use super::evictor::WaitForTurns;
use super::room::Room;
use super::stock::{RESERVE_PAGES, RESERVE_PART, STOCK_PAGES, TRIM_AGAIN, TRIM_DELAY, TRIM_PAUSE};
use super::supply::Supply;
use crate::pagefile::PageFile;
use crate::sched::{self, give_way, idly, promptly};
use crate::snapshot::Core;
use crate::space::{Arena, CHUNK_FRAMES};
use crate::{PageId, PoolError};

/// Chunks that are drained together: their pages are found in one walk through all descriptors.
const DRAIN_CHUNKS: u32 = 64;
/// Pages that are marked and moved together.
const BATCH_PAGES: usize = 512;
/// The same where others are to go first.
const BATCH_PAGES_GIVING_WAY: usize = 32;
/// Free frames above the reserve for which it is not worth moving pages (8 MB).
const SLACK_FRAMES: u32 = 4 * CHUNK_FRAMES;
/// When the keeper looks again whether a chunk is free, while there is more than the reserve.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Walks in which nothing became free, when everything is to go, before that is given up.
const PURGE_ATTEMPTS: u32 = 20;

struct Shared {
    core: Arc<Core>,
    supply: Arc<Supply>,
    room: Arc<Room>,
    wait_for_turns: WaitForTurns,
    /// What the arena is lent to.
    file: Option<Arc<PageFile>>,
    /// Chunks get memory before somebody wants a frame.
    is_ahead: bool,
    /// Whether everything that is free is to go, at once.
    purge: AtomicBool,
    stop: StopSign,
}

impl Shared {
    /// Free frames that stay.
    fn reserve(&self, arena: &Arena) -> u32 {
        let used = arena.backed_frames().saturating_sub(arena.free_frames());
        RESERVE_PAGES + used / RESERVE_PART + arena.expected_frames()
    }

    /// Free frames below which chunks are to get memory: none if all together may not be more.
    fn low_mark(&self, arena: &Arena) -> u32 {
        let may_grow = |limit: u64| u64::from(arena.backed_frames()) < limit;
        u32::from(self.is_ahead && self.room.limit_pages().is_none_or(may_grow)) * (STOCK_PAGES / 2)
    }

    fn is_low(&self, arena: &Arena) -> bool {
        arena.backed_frames() > 0 && arena.free_frames() < self.low_mark(arena)
    }

    fn discard_chunk(&self, arena: &Arena) -> bool {
        arena.discard_chunk(|chunk| self.file.iter().for_each(|file| file.take_back(chunk)))
    }

    /// Drains sparse chunks, so that at most about `kept` free frames are left. False if none has become free.
    fn compact(&self, arena: &Arena, kept: u32) -> bool {
        let excess = arena.free_frames().saturating_sub(kept) / CHUNK_FRAMES;
        let chunks = arena.begin_draining(excess.min(DRAIN_CHUNKS));
        if chunks.is_empty() {
            return false;
        }
        let batch_pages = if sched::gives_way() { BATCH_PAGES_GIVING_WAY } else { BATCH_PAGES };
        for batch in idly(|| self.pages_in(&chunks)).chunks(batch_pages) {
            if self.stop.is_given() {
                break;
            }
            give_way();
            self.relocate(batch, &chunks);
        }
        arena.end_draining(&chunks) > 0
    }

    /// Pages that lie in these chunks.
    fn pages_in(&self, chunks: &[u32]) -> Vec<PageId> {
        let ids = promptly(|| self.supply.used_ranges())
            .into_iter()
            .flat_map(|(start, end)| (start..end).map(PageId));
        ids.filter(|page| self.is_in(chunks, *page)).collect()
    }

    fn is_in(&self, chunks: &[u32], page: PageId) -> bool {
        let frame = self.core.pages.descriptor(page).state.frame();
        frame != 0 && chunks.contains(&(frame / CHUNK_FRAMES))
    }

    /// Moves those of the pages to other chunks that nobody touches meanwhile.
    fn relocate(&self, pages: &[PageId], chunks: &[u32]) {
        let mark = |page: &PageId| Some((*page, self.core.pages.descriptor(*page).state.mark()?));
        let marked: Vec<_> = pages.iter().filter_map(mark).collect();
        (self.wait_for_turns)();
        let mut count = 0;
        for (page, mark) in marked.into_iter().filter(|(page, _)| self.is_in(chunks, *page)) {
            count += u64::from(self.core.pages.relocate(page, mark));
        }
        self.core.metrics.relocated_page_count.fetch_add(count, Ordering::Relaxed);
        // A free that came by a page on its way has been put off.
        self.supply.finish_deferred_frees();
    }
}

/// The thread.
pub struct Keeper {
    shared: Arc<Shared>,
    thread: Background,
}

impl Keeper {
    /// Of a pool whose pages lie in frames, which have been lent to `file`; `is_ahead` if they are to have memory before somebody
    /// takes them.
    ///
    /// # Errors
    /// [`PoolError::Thread`].
    pub fn start(
        core: Arc<Core>,
        supply: Arc<Supply>,
        room: Arc<Room>,
        wait_for_turns: WaitForTurns,
        file: Option<Arc<PageFile>>,
        is_ahead: bool,
    ) -> Result<Keeper, PoolError> {
        let (purge, stop) = (AtomicBool::new(false), StopSign::default());
        let shared = Shared { core, supply, room, wait_for_turns, file, is_ahead, purge, stop: stop.clone() };
        let shared = Arc::new(shared);
        let for_thread = shared.clone();
        Ok(Keeper { shared, thread: Background::start("sf-frames", stop, move || run(&for_thread))? })
    }

    /// The bound of memory has changed.
    pub fn wake(&self) {
        self.thread.wake();
    }

    /// Asks for the memory of everything that is free to be given back, at once.
    pub fn purge(&self) {
        self.shared.purge.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Ends the thread.
    pub fn shut_down(&self) {
        self.thread.shut_down();
    }
}

fn run(shared: &Shared) {
    let Some(arena) = shared.core.pages.arena() else { return };
    arena.set_keeper(std::thread::current());
    let mut times = Times::default();
    while !shared.stop.is_given() {
        give_way();
        if shared.purge.swap(false, Ordering::Relaxed) {
            purge(shared, arena);
        }
        if shared.is_low(arena) {
            let is_wanted = || arena.free_frames() < STOCK_PAGES && shared.low_mark(arena) > 0;
            while !shared.stop.is_given() && is_wanted() && arena.populate_chunk() {}
        }
        let pause = give_back(shared, arena, &mut times);
        // Who takes or gives from here on wakes it; what is so already is seen now.
        let above = if pause.is_none() { shared.reserve(arena) } else { u32::MAX };
        arena.wake_keeper(shared.low_mark(arena), above);
        if shared.is_low(arena) || arena.free_frames() > above || shared.purge.load(Ordering::Relaxed) {
            arena.wake_keeper(0, u32::MAX);
            continue;
        }
        match pause {
            Some(pause) => std::thread::park_timeout(pause),
            None => std::thread::park(),
        }
        arena.wake_keeper(0, u32::MAX);
    }
}

/// When the keeper may go on.
#[derive(Default)]
struct Times {
    /// With giving memory back, since there is more than the reserve.
    give_back_at: Option<Instant>,
    /// With moving pages, since that was in vain.
    compact_at: Option<Instant>,
}

/// Gives some memory back, if there has been more of it than the reserve for a while. Returns after how long to go on.
fn give_back(shared: &Shared, arena: &Arena, times: &mut Times) -> Option<Duration> {
    let kept = shared.reserve(arena);
    if arena.free_frames() <= kept {
        times.give_back_at = None;
        return None;
    }
    let now = Instant::now();
    let due = *times.give_back_at.get_or_insert(now + TRIM_DELAY);
    if now < due {
        return Some(due - now);
    }
    if arena.free_frames() >= kept + CHUNK_FRAMES && shared.discard_chunk(arena) {
        return Some(TRIM_PAUSE);
    }
    if arena.free_frames() > kept + SLACK_FRAMES && times.compact_at.is_none_or(|at| at <= now) {
        if shared.compact(arena, kept) {
            return Some(TRIM_PAUSE);
        }
        times.compact_at = Some(now + TRIM_AGAIN);
    }
    // Pages are freed and evicted, and chunks become whole by that.
    Some(LOOK_AGAIN)
}

/// Gives everything back that is free.
fn purge(shared: &Shared, arena: &Arena) {
    arena.expect(0);
    let mut attempts_left = PURGE_ATTEMPTS;
    while attempts_left > 0 && !shared.stop.is_given() {
        give_way();
        if !shared.discard_chunk(arena) && !shared.compact(arena, 0) {
            attempts_left -= 1;
            std::thread::sleep(TRIM_PAUSE);
        }
        if arena.free_frames() < CHUNK_FRAMES {
            break;
        }
    }
}
