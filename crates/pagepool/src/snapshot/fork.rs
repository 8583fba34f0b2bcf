//! `fork`, the baseline: the kernel copies the page table at the cut, and each page at its first write after it.
//!
//! The child of a threaded process may neither allocate nor lock, so it only reads its copy of memory and fills a
//! ring shared with the parent, whose saver thread hands the pages on. Views are those of `epoch`: a child could
//! serve them too, but nobody compares that.
//!
//! ```text
//!   child:  FILLING ── ring full: sleep ──▶ FILLING ── all ranges scanned ──▶ DONE ── _exit(0)
//! ```

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::core::{Core, BATCH_PAGES};
use super::epoch::EpochSnapshotter;
use super::frames::FrameWish;
use super::seam::{Snapshotter, StreamPlan};
use super::sink::Progress;
use super::version::Version;
use crate::page::Epoch;
use crate::space::{Extent, MapError};
use crate::{CheckpointError, PageBytes, PageId, Reason, PAGE_SIZE};

/// Pages that fit into the ring.
const RING_PAGES: u32 = 4 * BATCH_PAGES as u32;
/// How long either side sleeps when it has nothing to do.
const NAP: Duration = Duration::from_micros(50);
/// Tag of a page that was free at the cut: no content follows.
const TOMBSTONE: u32 = 1 << 31;

/// Shared between parent and child; head and tail count pages and never wrap (2^32 pages are 16 TB).
#[repr(C)]
struct Ring {
    /// Pages put in by the child.
    head: AtomicU32,
    /// Pages taken out by the parent.
    tail: AtomicU32,
    done: AtomicU32,
    /// Page numbers that the child has looked at.
    scanned: AtomicU32,
    tags: [AtomicU32; RING_PAGES as usize],
}

/// A mapping that parent and child share: the ring, then its pages.
struct SharedRing {
    base: *mut u8,
}

// SAFETY: M1: a mapping owned by the value; F1: head and tail order who writes and who reads a page.
unsafe impl Send for SharedRing {}
// SAFETY: M1, F1: as above.
unsafe impl Sync for SharedRing {}

const PAGES_OFFSET: usize = std::mem::size_of::<Ring>().next_multiple_of(PAGE_SIZE);
const RING_BYTES: usize = PAGES_OFFSET + RING_PAGES as usize * PAGE_SIZE;

impl SharedRing {
    fn new() -> Result<SharedRing, MapError> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: M1: a fresh mapping aliases nothing.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), RING_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if base == libc::MAP_FAILED {
            return Err(MapError { byte_len: RING_BYTES, source: std::io::Error::last_os_error() });
        }
        Ok(SharedRing { base: base.cast() })
    }

    /// Empties it for the next child, while there is none.
    fn reset(&self) {
        let ring = self.ring();
        [&ring.head, &ring.tail, &ring.done, &ring.scanned]
            .iter()
            .for_each(|field| field.store(0, Ordering::Relaxed));
    }

    fn ring(&self) -> &Ring {
        // SAFETY: M1, M3: in the mapping, aligned to a page, atomics that start as zero.
        unsafe { &*self.base.cast::<Ring>() }
    }

    fn page(&self, position: u32) -> *mut PageBytes {
        let offset = PAGES_OFFSET + (position % RING_PAGES) as usize * PAGE_SIZE;
        self.base.wrapping_add(offset).cast()
    }
}

impl Drop for SharedRing {
    fn drop(&mut self) {
        // SAFETY: M1: owned, and nobody refers to it any more.
        unsafe { libc::munmap(self.base.cast(), RING_BYTES) };
    }
}

fn child_error(what: &str) -> CheckpointError {
    CheckpointError::Child(format!("{what}: {}", std::io::Error::last_os_error()).into())
}

struct Stream {
    plan: StreamPlan,
    child: libc::pid_t,
    /// Set once the child has been waited for: its id may be somebody else's from then on.
    reaped: AtomicBool,
}

/// See the module.
pub struct ForkSnapshotter {
    views: EpochSnapshotter,
    ring: SharedRing,
    stream: Mutex<Option<Arc<Stream>>>,
}

impl ForkSnapshotter {
    /// # Errors
    /// [`MapError`].
    pub fn new(views: EpochSnapshotter) -> Result<ForkSnapshotter, MapError> {
        Ok(ForkSnapshotter { views, ring: SharedRing::new()?, stream: Mutex::default() })
    }

    /// Takes what the child has put in. Returns how many pages.
    fn drain(&self, stream: &Stream, progress: &Progress) -> Result<u32, CheckpointError> {
        let ring = self.ring.ring();
        let (tail, head) = (ring.tail.load(Ordering::Relaxed), ring.head.load(Ordering::Acquire));
        let count = (head - tail).min(BATCH_PAGES as u32);
        let mut pages = Vec::with_capacity(count as usize);
        for position in tail..tail + count {
            let tag = ring.tags[(position % RING_PAGES) as usize].load(Ordering::Relaxed);
            if tag & TOMBSTONE != 0 {
                stream.plan.sink.free_page(PageId(tag & !TOMBSTONE))?;
            } else {
                // SAFETY: F1: the child does not touch positions between tail and head.
                pages.push((PageId(tag), unsafe { &*self.ring.page(position) }));
            }
        }
        if !pages.is_empty() {
            stream.plan.sink.write_pages(&pages)?;
            progress.pages_written.fetch_add(pages.len() as u64, Ordering::Relaxed);
        }
        ring.tail.store(tail + count, Ordering::Release);
        Ok(count)
    }
}

/// Closes every file: a connection that the parent closes must not stay open, nor its lock be held and its sockets be
/// bound after its end, for as long as the child lives.
fn let_go_of_files() {
    // SAFETY: K1: async-signal-safe.
    unsafe { libc::syscall(libc::SYS_close_range, libc::STDERR_FILENO + 1, libc::c_uint::MAX, 0) };
}

/// The child's life. Must not allocate, lock, unwind or return.
fn child_main(core: &Core, cut: Epoch, plan: &StreamPlan, ring: &SharedRing, parent: libc::pid_t) -> ! {
    let_go_of_files();
    let shared = ring.ring();
    let (mut head, mut scanned) = (0, 0);
    for &(start, end) in &plan.ranges {
        for page in (start..end).map(PageId) {
            shared.scanned.store(scanned, Ordering::Relaxed);
            scanned += 1;
            let epochs = &core.pages.descriptor(page).epochs;
            let tombstone = epochs.freed().is_some_and(|freed| plan.durable < freed);
            let content =
                epochs.freed().is_none() && plan.durable < epochs.written() && epochs.written() <= cut;
            if !tombstone && !content {
                continue;
            }
            while head - shared.tail.load(Ordering::Acquire) == RING_PAGES {
                nap(parent);
            }
            if content {
                // SAFETY: F1: the parent does not touch positions from head on. M1: both in their mappings; the
                // child's copy of the page does not change.
                unsafe { std::ptr::copy_nonoverlapping(core.pages.address(page), ring.page(head), 1) };
            }
            let tag = page.0 | if tombstone { TOMBSTONE } else { 0 };
            shared.tags[(head % RING_PAGES) as usize].store(tag, Ordering::Relaxed);
            head += 1;
            shared.head.store(head, Ordering::Release);
        }
    }
    shared.scanned.store(scanned, Ordering::Relaxed);
    shared.done.store(1, Ordering::Release);
    // SAFETY: K1: ends the child without running destructors or exit handlers of the parent's state.
    unsafe { libc::_exit(0) }
}

/// Waits for the parent to take something out; ends the child if it has died. (The kernel's death signal would come
/// with the end of the thread that forked.)
fn nap(parent: libc::pid_t) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: NAP.as_nanos() as i64 };
    // SAFETY: K1: async-signal-safe calls with valid arguments.
    unsafe {
        libc::nanosleep(&time, std::ptr::null_mut());
        if libc::getppid() != parent {
            libc::_exit(1);
        }
    }
}

impl Snapshotter for ForkSnapshotter {
    fn begin_stream(&self, core: &Core, plan: StreamPlan) -> Result<Epoch, CheckpointError> {
        // Locked by whoever ends a stream, until its child is gone.
        let Some(mut current) = self.stream.try_lock().filter(|current| current.is_none()) else {
            return Err(CheckpointError::InProgress);
        };
        self.ring.reset();
        let cut = core.cut().ok_or(CheckpointError::EpochsExhausted)?;
        // SAFETY: K1: a call without arguments that cannot fail.
        let parent = unsafe { libc::getpid() };
        // SAFETY: K1: the child runs `child_main` only, which neither allocates, locks nor returns.
        let child = unsafe { libc::fork() };
        match child {
            -1 => return Err(child_error("fork")),
            0 => child_main(core, cut, &plan, &self.ring, parent),
            _ => {}
        }
        *current = Some(Arc::new(Stream { plan, child, reaped: AtomicBool::new(false) }));
        Ok(cut)
    }

    fn run_stream(&self, core: &Core, progress: &Progress) -> Result<(), CheckpointError> {
        let _ = core;
        let Some(stream) = self.stream.lock().clone() else { return Ok(()) };
        loop {
            // Order matters: what is put in before `done` is seen is seen by the drain after it.
            let done = self.ring.ring().done.load(Ordering::Acquire) == 1;
            let scanned = self.ring.ring().scanned.load(Ordering::Relaxed);
            progress.pages_scanned.store(scanned.into(), Ordering::Relaxed);
            if self.drain(&stream, progress)? > 0 {
                continue;
            }
            if done {
                return Ok(());
            }
            let mut status = 0;
            // SAFETY: K2: waits for the own child; the status is a valid place.
            // An error means that somebody else has waited for it, or that children are not waited for at all.
            let ended = unsafe { libc::waitpid(stream.child, &mut status, libc::WNOHANG) } != 0;
            stream.reaped.fetch_or(ended, Ordering::Relaxed);
            if ended && self.ring.ring().done.load(Ordering::Acquire) == 0 {
                let text = format!("it ended early (wait status {status}); is memory short?");
                return Err(CheckpointError::Child(text.into()));
            }
            std::thread::sleep(NAP);
        }
    }

    fn end_stream(&self, _core: &Core) {
        let mut current = self.stream.lock();
        let Some(stream) = current.take().filter(|stream| !stream.reaped.load(Ordering::Relaxed)) else {
            return;
        };
        // SAFETY: K2: the own child, not waited for yet.
        unsafe {
            libc::kill(stream.child, libc::SIGKILL);
            libc::waitpid(stream.child, std::ptr::null_mut(), 0);
        }
    }

    fn begin_view(&self, core: &Core) -> Result<Epoch, CheckpointError> {
        self.views.begin_view(core)
    }

    fn locate<'c>(&self, core: &'c Core, cut: Epoch, page: PageId) -> Version<'c> {
        self.views.locate(core, cut, page)
    }

    /// The first write after a fork would copy 2 MB.
    fn takes_huge_pages(&self) -> bool {
        false
    }

    /// The child has what was in memory at the cut.
    fn takes_evictions(&self) -> bool {
        false
    }

    /// The kernel finds the memory for what a stream needs; only views want frames.
    fn frame_wish(&self, data_pages: u64) -> FrameWish {
        FrameWish { stream: 0, ahead: 0, ..self.views.frame_wish(data_pages) }
    }

    fn end_view(&self, core: &Core, cut: Epoch) {
        self.views.end_view(core, cut);
    }

    fn before_first_write(&self, core: &Core, page: PageId) {
        self.views.before_first_write(core, page);
    }

    fn would_capture(&self, core: &Core, page: PageId) -> bool {
        self.views.would_capture(core, page)
    }

    fn before_free_of_damaged(&self, core: &Core, page: PageId, reason: &Reason) {
        self.views.before_free_of_damaged(core, page, reason);
    }

    fn keep_freed(&self, core: &Core, extent: Extent) -> bool {
        self.views.keep_freed(core, extent)
    }

    fn before_reuse(&self, core: &Core, page: PageId, freed: Epoch) {
        self.views.before_reuse(core, page, freed);
    }

    fn take_released(&self, core: &Core, limit: usize) -> Vec<Extent> {
        self.views.take_released(core, limit)
    }

    fn held_bytes(&self, core: &Core) -> u64 {
        self.views.held_bytes(core)
    }

    fn peak_held_bytes(&self, core: &Core) -> u64 {
        self.views.peak_held_bytes(core)
    }

    fn relieve(&self, core: &Core, page_count: u32) {
        self.views.relieve(core, page_count);
    }
}
