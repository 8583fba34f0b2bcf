//! The state word of a page: latch, version, residence and frame in 64 bits.
//!
//! ```text
//!     8 bits   1           25 bits     30 bits
//!   | state | waiters | version     | frame, 0: none |
//! ```
//!
//! ```text
//!                  begin_load               loaded
//!            ┌─────────────────▶ MOVING(v) ───────────▶ UNLOCKED(v+1), or MARKED(v+1)
//!            │  ┌─ load_failed ──┘   ▲
//!            │  │  moved_out         └───────────────── claim ────────────────────┐
//!            │  ▼                                                                 │
//!        EVICTED(v) ──────────── begin_life ──────────▶ EXCLUSIVE(v) ── unlock ──▶│UNLOCKED(v+1)
//!         ▲  │  ▲ │                                       │  ▲                    │  ▲  │  ▲
//!         │  └──┘ retire                                  │  └───── try_lock ─────│──┤  │  │ touch, read_version
//!         │                                               │                       │  │  ▼  │
//!         ├────────────────────────── evict ──────────────┘                       └─ MARKED(v) ── try_lock, retire
//!         └────────────────────────── retire ───────────────────────────────────────┘ │  │
//!                                                                             unshare │  │ try_share
//!                                                                        SHARED(n, v)─┘  │
//!                                                                          ▲  n+1 / n-1 ◀┘
//!                                                                          └── try_share
//! ```
//! EVICTED and MOVING, which is on its way in or out, are *absent*: the page is not in memory for anybody, and whoever
//! wants it faults instead of waiting for the disk. Only `Residency::load` waits for the end of a move. All other states are
//! *resident*, EXCLUSIVE too: a latch is short. MARKED is a resident page that nobody has touched since the clock of the
//! eviction came by (vmcache, section 3.4): every access takes the mark off, and the evictor claims only what has it still.
//!
//! ```text
//!        MARKED(v) ── begin_relocation ──▶ RELOCATING(v) ── end_relocation ──▶ UNLOCKED(v+1), in another frame
//! ```
//! RELOCATING is resident, and for who wants a latch it is a latch; it is no longer than a copy. Who needs no latch because
//! that of another page covers this one waits for its end, too (R6).
//!
//! The version rises when an exclusive latch is given up, a load ends, a page is retired or its frame goes, so an optimistic
//! reader that sees the same version before and after has read what no writer touched. It rises when a page is marked, too:
//! several threads mark pages, and each claims only under the mark that it has seen (R2). The version comes round after 33
//! million of those: a reader would have to sleep through exactly so many. A waiter bit sends unlockers to the parking lot;
//! without it they never look there.
//!
//! Where memory is in frames, the word names that of the page, so that who reads that the page is in memory reads with the
//! same load where. A page in memory has a frame, and one on its way may have; a freed one keeps its own until it is let go
//! (P14). Where the page's number says where it lies there are no frames, and the bits stay zero.

// `sync` is the standard library's here and loom's in `tests/loom_latch.rs`, which includes this file.
use crate::sync::atomic::{fence, AtomicU64, Ordering};

const TAG_SHIFT: u32 = 56;
const TAG_ONE: u64 = 1 << TAG_SHIFT;
const WAITERS: u64 = 1 << 55;
const FRAME_MASK: u64 = (1 << FRAME_BITS) - 1;
const VERSION_ONE: u64 = 1 << FRAME_BITS;
const VERSION_MASK: u64 = (WAITERS - 1) & !FRAME_MASK;

const EVICTED: u64 = 0;
const MOVING: u64 = 1;
const RELOCATING: u64 = 2;
const EXCLUSIVE: u64 = 3;
const MARKED: u64 = 4;
const UNLOCKED: u64 = 5;
const MAX_SHARED: u64 = 255;

/// Bits of the number of a frame (4 TB of them).
pub const FRAME_BITS: u32 = 30;

/// Why a latch was not taken at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Somebody holds it in a way that excludes the request.
    Held,
    /// The page is not in memory, or not yet, or not allocated.
    Absent,
}

/// What a thread that parks waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    Shared,
    Exclusive,
    /// That the page is not MOVING any more.
    EndOfMove,
    /// That it is not RELOCATING any more.
    EndOfRelocation,
}

/// The word. All zero is evicted (or never allocated), so a restart writes nothing.
#[derive(Debug)]
pub struct StateWord(AtomicU64);

const fn tag(word: u64) -> u64 {
    word >> TAG_SHIFT
}

const fn with_tag(word: u64, tag: u64) -> u64 {
    (word & (TAG_ONE - 1)) | (tag << TAG_SHIFT)
}

/// The word after a change that readers must notice: of that state, version raised, the frame as it was, nobody waiting.
const fn next(word: u64, tag: u64) -> u64 {
    (tag << TAG_SHIFT) | (word.wrapping_add(VERSION_ONE) & VERSION_MASK) | (word & FRAME_MASK)
}

/// The word with one more reader that has it latched.
#[inline(always)]
const fn with_sharer(word: u64) -> Result<u64, Refused> {
    // One comparison for the common states.
    if word.wrapping_sub(UNLOCKED << TAG_SHIFT) < (MAX_SHARED - UNLOCKED) << TAG_SHIFT {
        return Ok(word + TAG_ONE);
    }
    match tag(word) {
        MARKED => Ok(with_tag(word, UNLOCKED + 1)),
        EVICTED | MOVING => Err(Refused::Absent),
        _ => Err(Refused::Held),
    }
}

/// The word with a mark. Each mark is a new one: who knows an earlier one sees that the page has been touched in between,
/// whoever has marked it again since.
const fn with_mark(word: u64) -> u64 {
    next(word, MARKED) | (word & WAITERS)
}

/// Where a page's bytes were at some moment, and their version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(u64);

impl Place {
    const fn of(word: u64) -> Place {
        Place(word & (VERSION_MASK | FRAME_MASK))
    }

    /// The frame; 0 if there is none.
    #[inline(always)]
    pub fn frame(self) -> u32 {
        (self.0 & FRAME_MASK) as u32
    }
}

/// The word of a page in memory as a reader without a latch saw it, when nobody held the page exclusively or moved it, and
/// without the clock's mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen(u64);

impl Seen {
    /// Where the page lay, and its version.
    #[inline(always)]
    pub const fn place(self) -> Place {
        Place::of(self.0)
    }
}

/// Whether a word other than the one that was seen is of the same version, and nobody is writing: others may have latched the
/// page shared, or wait for it.
#[cold]
fn is_same_version(word: u64, seen: Seen) -> bool {
    tag(word) > EXCLUSIVE && Place::of(word) == seen.place()
}

/// A MARKED word as the clock found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark(u64);

impl Mark {
    /// Where the page lies.
    pub fn place(self) -> Place {
        Place::of(self.0)
    }
}

/// What the clock of the eviction meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Met {
    /// Absent, or latched.
    Passed,
    /// It has been touched since the clock came by; now it is MARKED.
    Touched,
    /// Nobody has touched it since the clock came by.
    Idle(Mark),
}

impl StateWord {
    #[cfg(test)]
    pub fn new_evicted() -> StateWord {
        StateWord(AtomicU64::new(0))
    }

    /// Whether the page is in memory, latched or not.
    #[inline(always)]
    pub fn is_resident(&self) -> bool {
        tag(self.0.load(Ordering::Acquire)) > MOVING
    }

    /// Whether the page is neither in memory nor on its way in or out.
    pub fn is_evicted(&self) -> bool {
        tag(self.0.load(Ordering::Acquire)) < MOVING
    }

    /// Whether the page is on its way in or out.
    pub fn is_moving(&self) -> bool {
        tag(self.0.load(Ordering::Acquire)) == MOVING
    }

    /// Whether the page is in memory, and this is an access: takes the clock's mark off.
    #[inline(always)]
    pub fn touch(&self) -> bool {
        let word = self.0.load(Ordering::Acquire);
        tag(self.unmarked(word)) > MOVING
    }

    /// The word after MARKED → UNLOCKED, if it was MARKED: from then on the evictor does not claim the page before it has
    /// marked it again.
    #[inline(always)]
    fn unmarked(&self, word: u64) -> u64 {
        if tag(word) == MARKED {
            self.take_mark_off(word)
        } else {
            word
        }
    }

    #[cold]
    fn take_mark_off(&self, mut word: u64) -> u64 {
        while tag(word) == MARKED {
            let unlocked = with_tag(word, UNLOCKED);
            match self.0.compare_exchange_weak(word, unlocked, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return unlocked,
                Err(now) => word = now,
            }
        }
        word
    }

    /// UNLOCKED → MARKED, by the clock, or by a walk that leaves the page behind.
    pub fn meet(&self) -> Met {
        let word = self.0.load(Ordering::Acquire);
        match tag(word) {
            MARKED => Met::Idle(Mark(word)),
            UNLOCKED => {
                let marked = with_mark(word);
                match self.0.compare_exchange(word, marked, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => Met::Touched,
                    Err(_) => Met::Passed,
                }
            }
            _ => Met::Passed,
        }
    }

    /// Whether nobody has touched the page since it was met.
    pub fn is_idle(&self, mark: Mark) -> bool {
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == mark.0
    }

    /// MARKED → MOVING, if nobody has touched the page since it was met.
    pub fn claim(&self, mark: Mark) -> bool {
        let claimed = with_tag(mark.0, MOVING);
        let is_claimed =
            self.0.compare_exchange(mark.0, claimed, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if is_claimed {
            // As in `try_lock`.
            fence(Ordering::Release);
        }
        is_claimed
    }

    /// EVICTED → MOVING. False if the page is not evicted.
    pub fn begin_load(&self) -> bool {
        self.leave_evicted(MOVING)
    }

    /// EVICTED → EXCLUSIVE: the page is allocated. False if the page is not evicted.
    pub fn begin_life(&self) -> bool {
        self.leave_evicted(EXCLUSIVE)
    }

    fn leave_evicted(&self, to: u64) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        tag(word) == EVICTED
            && self.0.compare_exchange(word, with_tag(word, to), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// MOVING → UNLOCKED, or MARKED, version raised. True if somebody waits for it.
    #[must_use]
    pub fn loaded(&self, is_wanted: bool) -> bool {
        self.leave(MOVING, if is_wanted { UNLOCKED } else { MARKED })
    }

    /// MOVING → EVICTED, version raised. True if somebody waits for it.
    #[must_use]
    pub fn load_failed(&self) -> bool {
        self.leave(MOVING, EVICTED)
    }

    /// MOVING → EVICTED, version raised: it has been claimed, and its memory given back. True if somebody waits.
    #[must_use]
    pub fn moved_out(&self) -> bool {
        self.leave(MOVING, EVICTED)
    }

    /// EVICTED, UNLOCKED, MARKED → EVICTED, version raised, frame kept: of a page that has been marked as freed. `None` while it is
    /// latched or being read, else whether it was in memory. It writes the word in any case: so a load that begins later
    /// sees the mark, and one that began earlier is seen here.
    pub fn retire(&self) -> Option<bool> {
        let mut word = self.0.load(Ordering::Relaxed);
        while matches!(tag(word), EVICTED | UNLOCKED | MARKED) {
            let retired = next(word, EVICTED);
            match self.0.compare_exchange_weak(word, retired, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(tag(word) != EVICTED),
                Err(now) => word = now,
            }
        }
        None
    }

    /// UNLOCKED, MARKED → EXCLUSIVE.
    #[inline(always)]
    pub fn try_lock(&self) -> Result<(), Refused> {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            match tag(word) {
                UNLOCKED | MARKED => {}
                EVICTED | MOVING => return Err(Refused::Absent),
                _ => return Err(Refused::Held),
            }
            let locked = with_tag(word, EXCLUSIVE);
            match self.0.compare_exchange_weak(word, locked, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    // Whoever sees a word written from here on sees the latch taken.
                    fence(Ordering::Release);
                    return Ok(());
                }
                Err(now) => word = now,
            }
        }
    }

    /// UNLOCKED, MARKED, SHARED(n) → SHARED(n+1).
    #[inline(always)]
    pub fn try_share(&self) -> Result<(), Refused> {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let shared = with_sharer(word)?;
            match self.0.compare_exchange_weak(word, shared, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
    }

    /// The same if nobody has written since an optimistic read began; else false, as if it is not to be had at once.
    #[inline(always)]
    pub fn share_seen(&self, seen: Seen) -> bool {
        // Most often the word is what it was.
        let mut word = seen.0;
        while Place::of(word) == seen.place() {
            let Ok(shared) = with_sharer(word) else { return false };
            match self.0.compare_exchange_weak(word, shared, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// EXCLUSIVE → UNLOCKED, version raised. True if somebody waits (the caller wakes them).
    #[inline(always)]
    #[must_use]
    pub fn unlock(&self) -> bool {
        self.leave(EXCLUSIVE, UNLOCKED)
    }

    /// EXCLUSIVE → EVICTED, version raised. True if somebody waits.
    #[must_use]
    pub fn evict(&self) -> bool {
        self.leave(EXCLUSIVE, EVICTED)
    }

    #[inline(always)]
    fn leave(&self, from: u64, to: u64) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(tag(word), from);
        loop {
            match self.0.compare_exchange_weak(word, next(word, to), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return word & WAITERS != 0,
                Err(now) => word = now,
            }
        }
    }

    /// SHARED(n) → SHARED(n-1) or UNLOCKED. True if it was the last and somebody waits.
    #[inline(always)]
    #[must_use]
    pub fn unshare(&self) -> bool {
        let before = self.0.fetch_sub(TAG_ONE, Ordering::Release);
        debug_assert!(tag(before) > UNLOCKED);
        if before & WAITERS == 0 || tag(before) != UNLOCKED + 1 {
            return false;
        }
        self.0.fetch_and(!WAITERS, Ordering::Relaxed);
        true
    }

    /// Announces a waiter for a word that refuses what is wanted; false if it would not any more.
    pub fn announce_waiter(&self, wanted: Wanted) -> bool {
        // Whoever waits for the end of a load and finds that it has come sees what the loader has noted.
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let held = match (wanted, tag(word)) {
                (Wanted::EndOfMove, tag) => tag == MOVING,
                (Wanted::EndOfRelocation, tag) => tag == RELOCATING,
                (_, RELOCATING | EXCLUSIVE | MAX_SHARED) => true,
                (Wanted::Exclusive, tag) => tag > UNLOCKED,
                (Wanted::Shared, _) => false,
            };
            if !held {
                return false;
            }
            if word & WAITERS != 0 {
                return true;
            }
            match self.0.compare_exchange_weak(word, word | WAITERS, Ordering::Relaxed, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Whether a waiter that announced itself should still sleep (checked under the parking lot's lock).
    pub fn still_waiting(&self) -> bool {
        self.0.load(Ordering::Relaxed) & WAITERS != 0
    }

    /// Begins an optimistic read, if that takes nothing but a look: what is read lies there. `None` says only that
    /// [`StateWord::read_version`] is to be asked.
    // The states of which a reader has nothing to do are the highest ones, so one comparison sorts out the mark and all that
    // refuses.
    #[inline(always)]
    pub fn glance(&self) -> Option<Seen> {
        let word = self.0.load(Ordering::Acquire);
        (word >= UNLOCKED << TAG_SHIFT).then_some(Seen(word))
    }

    /// Begins an optimistic read: what is read lies there. Takes the clock's mark off.
    pub fn read_version(&self) -> Result<Seen, Refused> {
        let word = self.unmarked(self.0.load(Ordering::Acquire));
        match tag(word) {
            EVICTED | MOVING => Err(Refused::Absent),
            RELOCATING | EXCLUSIVE => Err(Refused::Held),
            _ => Ok(Seen(word)),
        }
    }

    /// The version of a word that the caller holds.
    #[inline(always)]
    pub fn held_version(&self) -> Place {
        Place::of(self.0.load(Ordering::Relaxed))
    }

    /// Ends an optimistic read: true if nobody has written since it began.
    #[inline(always)]
    pub fn validate(&self, seen: Seen) -> bool {
        fence(Ordering::Acquire);
        let word = self.0.load(Ordering::Relaxed);
        // Most often nobody has so much as latched the page, and no part of the word need be looked at by itself.
        word == seen.0 || is_same_version(word, seen)
    }

    /// Where a page in memory lies, whoever holds it; none of one that is absent. For readers of content that a latch
    /// says nothing of: if it is still there afterwards it has been in memory throughout (P11).
    #[inline(always)]
    pub fn residence(&self) -> Option<Place> {
        let word = self.0.load(Ordering::Acquire);
        (tag(word) > MOVING).then_some(Place::of(word))
    }

    /// Whether the page has been in memory, and in its place, ever since that was asked.
    pub fn is_still_resident(&self, since: Place) -> bool {
        fence(Ordering::Acquire);
        let word = self.0.load(Ordering::Relaxed);
        tag(word) > MOVING && Place::of(word) == since
    }

    /// Where a page lies, in memory for those who look for it or not: one that has been freed may be kept in its place (P3).
    pub fn place(&self) -> Place {
        Place::of(self.0.load(Ordering::Acquire))
    }

    /// Whether the page has been in its place ever since that was asked.
    pub fn is_still_at(&self, since: Place) -> bool {
        fence(Ordering::Acquire);
        Place::of(self.0.load(Ordering::Relaxed)) == since
    }

    /// The frame of a page that cannot lose it meanwhile: the caller has latched, claimed or kept it. 0 if there is none.
    #[inline(always)]
    pub fn frame(&self) -> u32 {
        (self.0.load(Ordering::Relaxed) & FRAME_MASK) as u32
    }

    /// Gives a page without a frame one. The caller has made it MOVING or EXCLUSIVE.
    pub fn set_frame(&self, frame: u32) {
        let before = self.0.fetch_or(u64::from(frame), Ordering::Release);
        debug_assert!(before & FRAME_MASK == 0 && matches!(tag(before), MOVING | EXCLUSIVE));
    }

    /// Takes its frame away from a page that the caller has made MOVING, or that has been freed and retired; version raised.
    /// Who comes by a freed one, to load it, may have it for a moment, and leaves the frame alone. 0 if there was none.
    pub fn take_frame(&self) -> u32 {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            debug_assert!(tag(word) <= MOVING);
            let without = (next(word, tag(word)) & !FRAME_MASK) | (word & WAITERS);
            match self.0.compare_exchange_weak(word, without, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return (word & FRAME_MASK) as u32,
                Err(now) => word = now,
            }
        }
    }

    /// Names another frame, version raised: the page's content is there now, and its state and who waits for it stay. Returns
    /// the one before. The caller has latched the page, or the object that it is part of, or nobody else has the page.
    pub fn exchange_frame(&self, frame: u32) -> u32 {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            debug_assert!(tag(word) != MOVING && tag(word) != RELOCATING);
            let moved = (next(word, tag(word)) & !FRAME_MASK) | u64::from(frame) | (word & WAITERS);
            match self.0.compare_exchange_weak(word, moved, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return (word & FRAME_MASK) as u32,
                Err(now) => word = now,
            }
        }
    }

    /// UNLOCKED → MARKED, of a page that is to move to another frame; or as it is MARKED. None if it is neither.
    pub fn mark(&self) -> Option<Mark> {
        let word = self.0.load(Ordering::Acquire);
        match tag(word) {
            MARKED => Some(Mark(word)),
            UNLOCKED => {
                let marked = with_mark(word);
                let result = self.0.compare_exchange(word, marked, Ordering::Relaxed, Ordering::Relaxed);
                result.is_ok().then_some(Mark(marked))
            }
            _ => None,
        }
    }

    /// MARKED → RELOCATING, if nobody has touched the page since it was marked: its bytes are going to move.
    pub fn begin_relocation(&self, mark: Mark) -> bool {
        let relocating = with_tag(mark.0, RELOCATING);
        self.0.compare_exchange(mark.0, relocating, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// RELOCATING → UNLOCKED, version raised, in another frame. True if somebody waits.
    #[must_use]
    pub fn end_relocation(&self, frame: u32) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(tag(word), RELOCATING);
        loop {
            let moved = (next(word, UNLOCKED) & !FRAME_MASK) | u64::from(frame);
            match self.0.compare_exchange_weak(word, moved, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return word & WAITERS != 0,
                Err(now) => word = now,
            }
        }
    }

    /// As [`StateWord::touch`], of a page that the latch of another one covers. None while it is RELOCATING.
    #[inline(always)]
    pub fn touch_covered(&self) -> Option<bool> {
        match tag(self.unmarked(self.0.load(Ordering::Acquire))) {
            RELOCATING => None,
            tag => Some(tag > MOVING),
        }
    }
}
