//! Frames for pages: memory in chunks of 2 MB that huge pages back, and which frames of each are free.
//!
//! ```text
//!                 open: a taker, or the keeper ahead of any         begin_draining
//!   chunk:  EMPTY ────────────────────────────────────────▶ READY ────────────────▶ DRAINING: nobody takes a frame there
//!             ▲                                              │  ▲                      │
//!             └────── KEEPER'S: memory is given back ◀───────┘  └───── end_draining ───┘
//!                                         no frame is held
//!
//!   frame:  free ── take ──▶ a taker's ── the state word of a page names it ──▶ a page's ── no word names it ──▶ give ──▶ free
//! ```
//! Frames are taken from the lowest chunk that has any, so that those above become free. What there is to do ahead of takers
//! and after givers is a thread's, the keeper's, which is woken when free frames run short, or are more than it wants. Who
//! knows that many are going to be taken populates them himself before that, and says so: these the keeper leaves.

use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::atomic::{fence, AtomicBool, AtomicU32, Ordering};
use std::sync::OnceLock;
use std::thread::Thread;

use parking_lot::Mutex;

use super::memory::{populate_idly, Memory, HUGE_PAGE_SIZE};
use crate::sched::may_take_long;
use crate::PAGE_SIZE;

/// Frames of a chunk.
pub const CHUNK_FRAMES: u32 = (HUGE_PAGE_SIZE / PAGE_SIZE) as u32;
const CHUNK_WORDS: usize = CHUNK_FRAMES as usize / 64;
/// Chunks beyond those that all pages together fill: for frame 0, and for pages that move from frame to frame.
const SPARE_CHUNKS: u32 = 2;

/// Chunks whose frames a state word can name (4 TB).
const CHUNKS_MAX: u64 = (1 << 30) / CHUNK_FRAMES as u64;

/// Bytes of address space of an arena for so many pages, each of which may have so many places: of all that there can be, where
/// these are more than frames that can be named.
pub fn memory_bytes(page_count: u32, places: u32) -> usize {
    let chunk_count = (u64::from(page_count) * u64::from(places)).div_ceil(u64::from(CHUNK_FRAMES));
    (chunk_count + u64::from(SPARE_CHUNKS)).min(CHUNKS_MAX) as usize * HUGE_PAGE_SIZE
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Empty,
    Keepers,
    Ready,
    Draining,
}

/// 512 frames.
struct Chunk {
    state: State,
    free_count: u32,
    /// A bit a frame.
    free: [u64; CHUNK_WORDS],
}

impl Chunk {
    const WHOLE: Chunk =
        Chunk { state: State::Empty, free_count: CHUNK_FRAMES, free: [u64::MAX; CHUNK_WORDS] };

    fn is_whole(&self) -> bool {
        self.free_count == CHUNK_FRAMES
    }

    fn used_count(&self) -> u32 {
        CHUNK_FRAMES - self.free_count
    }

    /// The lowest free frame.
    fn take(&mut self) -> Option<u32> {
        let word = self.free.iter().position(|word| *word != 0)?;
        let bit = self.free[word].trailing_zeros();
        self.free[word] &= self.free[word] - 1;
        self.free_count -= 1;
        Some(word as u32 * 64 + bit)
    }

    fn give(&mut self, frame: u32) {
        let (word, bit) = (frame as usize / 64, 1 << (frame % 64));
        assert!(self.free[word] & bit == 0, "frame {frame} of a chunk is free already");
        self.free[word] |= bit;
        self.free_count += 1;
    }
}

#[derive(Default)]
struct Chunks {
    /// Those that have ever been opened, by number.
    all: Vec<Chunk>,
    chunk_limit: u32,
    /// READY, with free frames.
    ready: BTreeSet<u32>,
    /// READY, with nothing but free frames.
    whole: BTreeSet<u32>,
    /// EMPTY, of those that have ever been opened.
    empty: BTreeSet<u32>,
    /// Free frames of chunks that have memory.
    free_count: u32,
    /// Chunks that have memory.
    backed_count: u32,
}

impl Chunks {
    fn take(&mut self) -> Option<u32> {
        let number = match self.ready.first() {
            Some(&number) => number,
            None => self.open_any()?,
        };
        let chunk = &mut self.all[number as usize];
        let was_whole = chunk.is_whole();
        let frame = chunk.take()?;
        if was_whole {
            self.whole.remove(&number);
        }
        if chunk.free_count == 0 {
            self.ready.remove(&number);
        }
        self.free_count -= 1;
        Some(number * CHUNK_FRAMES + frame)
    }

    /// Makes a chunk ready that has no memory yet; where there is none, one that is being drained.
    fn open_any(&mut self) -> Option<u32> {
        if let Some(number) = self.choose_empty() {
            self.set_ready(number);
            return Some(number);
        }
        let has_some = |chunk: &Chunk| chunk.state == State::Draining && chunk.free_count > 0;
        let number = self.all.iter().position(has_some)? as u32;
        self.end_draining(number);
        Some(number)
    }

    /// EMPTY → KEEPER'S, of the lowest. Its frames count as free from now on.
    fn choose_empty(&mut self) -> Option<u32> {
        let number = match self.empty.pop_first() {
            Some(number) => number,
            None => {
                let number = self.all.len() as u32;
                let chunk = (number < self.chunk_limit).then_some(Chunk::WHOLE)?;
                self.all.push(chunk);
                if number == 0 {
                    // Frame 0 is nobody's.
                    self.all[0].take();
                }
                number
            }
        };
        self.all[number as usize].state = State::Keepers;
        self.free_count += self.all[number as usize].free_count;
        self.backed_count += 1;
        Some(number)
    }

    /// → READY.
    fn set_ready(&mut self, number: u32) {
        let chunk = &mut self.all[number as usize];
        chunk.state = State::Ready;
        if chunk.free_count > 0 {
            self.ready.insert(number);
        }
        if chunk.is_whole() {
            self.whole.insert(number);
        }
    }

    fn give(&mut self, frame: u32) {
        let number = frame / CHUNK_FRAMES;
        let chunk = &mut self.all[number as usize];
        chunk.give(frame % CHUNK_FRAMES);
        self.free_count += 1;
        if chunk.state == State::Ready && (chunk.free_count == 1 || chunk.is_whole()) {
            self.set_ready(number);
        }
    }

    fn end_draining(&mut self, number: u32) {
        if self.all[number as usize].state == State::Draining {
            self.set_ready(number);
        }
    }

    /// READY → DRAINING, of up to `count` chunks, those with the fewest pages, as long as the others have room for these.
    fn begin_draining(&mut self, count: u32) -> Vec<u32> {
        let is_sparse =
            |chunk: &Chunk| chunk.state == State::Ready && chunk.used_count() <= SPARSE_FRAMES_MAX;
        let mut sparse: Vec<(u32, u32)> = (0..self.all.len() as u32)
            .map(|number| (number, &self.all[number as usize]))
            .filter(|(_, chunk)| is_sparse(chunk) && !chunk.is_whole())
            .map(|(number, chunk)| (chunk.used_count(), number))
            .collect();
        // Of those with as few the higher ones, away from where frames are taken.
        sparse.sort_unstable_by_key(|&(used, number)| (used, u32::MAX - number));
        let mut room = self.free_count;
        let mut to_move = 0;
        let mut chosen = Vec::new();
        // Chunk 0 cannot become empty.
        for (used, number) in sparse.into_iter().filter(|&(_, number)| number != 0).take(count as usize) {
            room -= CHUNK_FRAMES - used;
            to_move += used;
            if to_move > room {
                break;
            }
            self.all[number as usize].state = State::Draining;
            self.ready.remove(&number);
            chosen.push(number);
        }
        chosen
    }
}

/// Chunks with more pages than that are not worth moving them.
const SPARSE_FRAMES_MAX: u32 = CHUNK_FRAMES / 8 * 7;

/// See the module.
pub struct Arena {
    memory: Box<dyn Memory>,
    chunks: Mutex<Chunks>,
    /// As of the last change of `chunks`.
    free_count: AtomicU32,
    backed_count: AtomicU32,
    keeper: OnceLock<Thread>,
    /// Whether huge pages are to back chunks.
    is_huge: AtomicBool,
    /// Free frames that are going to be taken.
    expected: AtomicU32,
    /// Free frames below which, and above which, the keeper is woken.
    wake_below: AtomicU32,
    wake_above: AtomicU32,
}

impl Arena {
    /// For `page_count` pages; [`memory_bytes`] says how much memory that takes.
    pub fn new(memory: Box<dyn Memory>, page_count: u32) -> Arena {
        assert!(memory_bytes(page_count, 1) <= memory.byte_len(), "M4: more frames than pages");
        let chunk_limit = (memory.byte_len() / HUGE_PAGE_SIZE) as u32;
        Arena {
            memory,
            chunks: Mutex::new(Chunks { chunk_limit, ..Chunks::default() }),
            free_count: AtomicU32::new(0),
            backed_count: AtomicU32::new(0),
            keeper: OnceLock::new(),
            is_huge: AtomicBool::new(false),
            expected: AtomicU32::new(0),
            wake_below: AtomicU32::new(0),
            wake_above: AtomicU32::new(u32::MAX),
        }
    }

    /// The memory of all frames, which chunk 0 begins, and its length in bytes.
    pub fn memory(&self) -> (NonNull<u8>, usize) {
        (self.memory.base(), self.memory.byte_len())
    }

    /// Huge pages are to back the chunks that get their memory ahead of those who take frames.
    pub fn prefer_huge(&self) {
        self.is_huge.store(true, Ordering::Relaxed);
    }

    /// Frames with memory that nobody holds.
    pub fn free_frames(&self) -> u32 {
        self.free_count.load(Ordering::Relaxed)
    }

    /// Frames with memory.
    pub fn backed_frames(&self) -> u32 {
        self.backed_count.load(Ordering::Relaxed) * CHUNK_FRAMES
    }

    pub fn backed_bytes(&self) -> u64 {
        u64::from(self.backed_frames()) * PAGE_SIZE as u64
    }

    pub fn free_bytes(&self) -> u64 {
        u64::from(self.free_frames()) * PAGE_SIZE as u64
    }

    /// Takes a frame, whatever it holds.
    #[inline]
    pub fn take(&self) -> u32 {
        let mut chunks = self.chunks.lock();
        let frame = chunks.take().expect("M4: there are more frames than pages");
        self.note(chunks);
        // Whoever sees a byte that is written from here on sees that no state word names the frame (P13).
        fence(Ordering::Release);
        frame
    }

    /// Takes frames back that no state word names.
    pub fn give(&self, frames: impl Iterator<Item = u32>) {
        let mut chunks = self.chunks.lock();
        frames.for_each(|frame| chunks.give(frame));
        self.note(chunks);
    }

    fn note(&self, chunks: parking_lot::MutexGuard<'_, Chunks>) {
        let (free, backed) = (chunks.free_count, chunks.backed_count);
        self.free_count.store(free, Ordering::Relaxed);
        self.backed_count.store(backed, Ordering::Relaxed);
        drop(chunks);
        let is_awaited =
            free < self.wake_below.load(Ordering::Relaxed) || free > self.wake_above.load(Ordering::Relaxed);
        if is_awaited {
            self.keeper.get().into_iter().for_each(Thread::unpark);
        }
    }

    /// Who is woken.
    pub fn set_keeper(&self, thread: Thread) {
        let _ = self.keeper.set(thread);
    }

    /// From now on the keeper is woken if there are fewer free frames than `below`, or more than `above`. Who then finds
    /// that there are already sees it; who changes that later wakes it.
    pub fn wake_keeper(&self, below: u32, above: u32) {
        let _nobody_notes = self.chunks.lock();
        self.wake_below.store(below, Ordering::Relaxed);
        self.wake_above.store(above, Ordering::Relaxed);
    }

    /// From now on so many free frames keep their memory, since they are going to be taken.
    pub fn expect(&self, frames: u32) {
        let before = self.expected.swap(frames, Ordering::Relaxed);
        if frames < before {
            self.keeper.get().into_iter().for_each(Thread::unpark);
        }
    }

    /// As of [`Arena::expect`].
    pub fn expected_frames(&self) -> u32 {
        self.expected.load(Ordering::Relaxed)
    }

    /// Sees to it that so many frames are free and have memory, as long as there are any more.
    pub fn populate_free(&self, frames: u32) {
        while self.free_frames() < frames && self.populate_chunk() {}
    }

    /// Gives a chunk memory ahead of those who take frames; false if there is none left.
    pub fn populate_chunk(&self) -> bool {
        let mut chunks = self.chunks.lock();
        let Some(number) = chunks.choose_empty() else { return false };
        drop(chunks);
        let start = number as usize * HUGE_PAGE_SIZE;
        // Nobody else takes a frame there before it is READY (M10).
        if self.is_huge.load(Ordering::Relaxed) && may_take_long() {
            self.memory.prefer_huge(start, HUGE_PAGE_SIZE);
        }
        populate_idly(&*self.memory, start, HUGE_PAGE_SIZE);
        let mut chunks = self.chunks.lock();
        chunks.set_ready(number);
        self.note(chunks);
        true
    }

    /// Gives the memory of a chunk back of which no frame is held, the highest; false if there is none. `before` is told which.
    pub fn discard_chunk(&self, before: impl FnOnce(u32)) -> bool {
        let mut chunks = self.chunks.lock();
        let Some(number) = chunks.whole.pop_last() else { return false };
        chunks.ready.remove(&number);
        chunks.all[number as usize].state = State::Keepers;
        chunks.free_count -= CHUNK_FRAMES;
        self.note(chunks);
        before(number);
        let start = number as usize * HUGE_PAGE_SIZE;
        self.memory.discard(start, HUGE_PAGE_SIZE);
        if self.is_huge.load(Ordering::Relaxed) {
            self.memory.refuse_huge(start, HUGE_PAGE_SIZE);
        }
        let mut chunks = self.chunks.lock();
        chunks.backed_count -= 1;
        chunks.all[number as usize].state = State::Empty;
        chunks.empty.insert(number);
        self.note(chunks);
        true
    }

    /// Chooses up to `count` chunks with few pages, from which no frame is taken until [`Arena::end_draining`]; as many as the
    /// pages of which fit elsewhere.
    pub fn begin_draining(&self, count: u32) -> Vec<u32> {
        self.chunks.lock().begin_draining(count)
    }

    /// DRAINING → READY. Returns how many have become whole.
    pub fn end_draining(&self, chunks_drained: &[u32]) -> usize {
        let mut chunks = self.chunks.lock();
        chunks_drained.iter().for_each(|&number| chunks.end_draining(number));
        chunks_drained.iter().filter(|&number| chunks.whole.contains(number)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::HeapMemory;
    use std::collections::HashSet;

    const PAGES: u32 = 8 * CHUNK_FRAMES;

    fn arena() -> Arena {
        Arena::new(Box::new(HeapMemory::new(memory_bytes(PAGES, 1))), PAGES)
    }

    fn check(arena: &Arena, held: &HashSet<u32>) {
        let chunks = arena.chunks.lock();
        let backed = |chunk: &&Chunk| chunk.state != State::Empty;
        let free: u32 = chunks.all.iter().filter(backed).map(|chunk| chunk.free_count).sum();
        assert_eq!(chunks.free_count, free);
        assert_eq!(chunks.backed_count as usize, chunks.all.iter().filter(backed).count());
        // Frame 0 is neither free nor held.
        assert_eq!(free + held.len() as u32 + 1, chunks.backed_count.max(1) * CHUNK_FRAMES);
        for (number, chunk) in chunks.all.iter().enumerate() {
            let ones: u32 = chunk.free.iter().map(|word| word.count_ones()).sum();
            let (number, is_ready) = (number as u32, chunk.state == State::Ready);
            assert_eq!(ones, chunk.free_count);
            assert_eq!(chunks.ready.contains(&number), is_ready && ones > 0);
            assert_eq!(chunks.whole.contains(&number), is_ready && chunk.is_whole());
            assert_eq!(chunks.empty.contains(&number), chunk.state == State::Empty);
        }
    }

    /// Takes and gives at random beside a keeper: no frame is two people's, and none is lost.
    #[test]
    fn each_frame_is_held_once() {
        let seed = stillframe_testkit::seed();
        let (mut rng, arena) = (fastrand::Rng::with_seed(seed), arena());
        let mut held: HashSet<u32> = HashSet::new();
        let mut draining: Vec<u32> = Vec::new();
        for step in 0..60_000 {
            let is_growing = step / 10_000 % 2 == 0;
            if rng.u32(..10) < if is_growing { 7 } else { 3 } {
                if held.len() < PAGES as usize {
                    let frame = arena.take();
                    assert!(frame != 0 && held.insert(frame), "frame {frame} twice");
                }
            } else if let Some(&frame) = held.iter().next() {
                held.remove(&frame);
                arena.give(std::iter::once(frame));
            }
            match rng.u32(..400) {
                0 => drop(arena.populate_chunk()),
                1 => drop(arena.discard_chunk(|_| ())),
                2 if draining.is_empty() => draining = arena.begin_draining(rng.u32(..4)),
                3 => drop(arena.end_draining(&std::mem::take(&mut draining))),
                _ => {}
            }
            // Not before the first is taken: there is no chunk then.
            if step % 1000 == 999 {
                check(&arena, &held);
            }
        }
        arena.end_draining(&draining);
        arena.give(held.drain());
        while arena.discard_chunk(|_| ()) {}
        check(&arena, &held);
        assert_eq!(arena.backed_frames(), CHUNK_FRAMES, "all memory is given back but for frame 0's chunk");
        // All that there are can be had, and no more are promised.
        let all: HashSet<u32> = (0..PAGES).map(|_| arena.take()).collect();
        assert_eq!(all.len() as u32, PAGES);
    }

    /// Pages move out of chunks with few, as long as they fit elsewhere, and nobody takes a frame there meanwhile.
    #[test]
    fn sparse_chunks_are_drained() {
        let arena = arena();
        let frames: Vec<u32> = (0..4 * CHUNK_FRAMES).map(|_| arena.take()).collect();
        let is_left = |frame: &&u32| **frame % 8 == 0 || **frame < CHUNK_FRAMES;
        arena.give(frames.iter().filter(|frame| !is_left(frame)).copied());
        let victims = arena.begin_draining(100);
        assert!(victims.len() >= 2 && !victims.contains(&0), "{victims:?}");
        let movers: Vec<u32> = frames
            .iter()
            .filter(is_left)
            .copied()
            .filter(|frame| victims.contains(&(frame / CHUNK_FRAMES)))
            .collect();
        let backed = arena.backed_frames();
        for frame in movers {
            let to = arena.take();
            assert!(!victims.contains(&(to / CHUNK_FRAMES)), "frame {to} is in a chunk that is drained");
            arena.give(std::iter::once(frame));
        }
        assert_eq!(arena.backed_frames(), backed, "they fit");
        assert_eq!(arena.end_draining(&victims), victims.len());
        victims.iter().for_each(|_| assert!(arena.discard_chunk(|_| ())));
        assert!(!arena.discard_chunk(|_| ()));
    }
}
