//! The state word of a page: latch, version and residence in 64 bits.
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
//! wants it faults instead of waiting for the disk. Only `Pool::load` waits for the end of a move. All other states are
//! *resident*, EXCLUSIVE too: a latch is short. MARKED is a resident page that nobody has touched since the clock of the
//! eviction came by (vmcache, section 3.4): every access takes the mark off, and the evictor claims only what has it still.
//!
//! The version rises when an exclusive latch is given up, a load ends or a page is retired, so an optimistic reader that
//! sees the same version before and after has read what no writer touched. A waiter bit sends unlockers to the parking
//! lot; without it they never look there.

// `sync` is the standard library's here and loom's in `tests/loom_latch.rs`, which includes this file.
use crate::sync::atomic::{fence, AtomicU64, Ordering};

const TAG_SHIFT: u32 = 56;
const TAG_ONE: u64 = 1 << TAG_SHIFT;
const WAITERS: u64 = 1 << 55;
const VERSION_MASK: u64 = WAITERS - 1;

const EVICTED: u64 = 0;
const MOVING: u64 = 1;
const EXCLUSIVE: u64 = 2;
const MARKED: u64 = 3;
const UNLOCKED: u64 = 4;
const MAX_SHARED: u64 = 255;

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

/// A version as seen by an optimistic reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version(u64);

/// A MARKED word as the clock found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark(u64);

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
                let marked = with_tag(word, MARKED);
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

    /// EVICTED, UNLOCKED, MARKED → EVICTED, version raised: of a page that has been marked as freed. `None` while it is
    /// latched or being read, else whether it was in memory. It writes the word in any case: so a load that begins later
    /// sees the mark, and one that began earlier is seen here.
    pub fn retire(&self) -> Option<bool> {
        let mut word = self.0.load(Ordering::Relaxed);
        while matches!(tag(word), EVICTED | UNLOCKED | MARKED) {
            let next = (EVICTED << TAG_SHIFT) | (word.wrapping_add(1) & VERSION_MASK);
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed) {
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
            let shared = match tag(word) {
                EVICTED | MOVING => return Err(Refused::Absent),
                EXCLUSIVE | MAX_SHARED => return Err(Refused::Held),
                MARKED => with_tag(word, UNLOCKED + 1),
                _ => word + TAG_ONE,
            };
            match self.0.compare_exchange_weak(word, shared, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
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
            let version = word.wrapping_add(1) & VERSION_MASK;
            let next = (to << TAG_SHIFT) | version;
            match self.0.compare_exchange_weak(word, next, Ordering::Release, Ordering::Relaxed) {
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
                (_, EXCLUSIVE | MAX_SHARED) => true,
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

    /// Begins an optimistic read.
    #[inline(always)]
    pub fn read_version(&self) -> Result<Version, Refused> {
        let word = self.unmarked(self.0.load(Ordering::Acquire));
        match tag(word) {
            EVICTED | MOVING => Err(Refused::Absent),
            EXCLUSIVE => Err(Refused::Held),
            _ => Ok(Version(word & VERSION_MASK)),
        }
    }

    /// The version of a word that the caller holds.
    #[inline(always)]
    pub fn held_version(&self) -> Version {
        Version(self.0.load(Ordering::Relaxed) & VERSION_MASK)
    }

    /// Ends an optimistic read: true if nobody has written since `version` was read.
    #[inline(always)]
    pub fn validate(&self, version: Version) -> bool {
        fence(Ordering::Acquire);
        let word = self.0.load(Ordering::Relaxed);
        tag(word) > EXCLUSIVE && word & VERSION_MASK == version.0
    }

    /// The version of a page in memory, whoever holds it; none of one that is absent. For readers of content that a latch
    /// says nothing of: two equal ones say that it has been in memory throughout (P11).
    pub fn residence(&self) -> Option<Version> {
        let word = self.0.load(Ordering::Acquire);
        (tag(word) > MOVING).then_some(Version(word & VERSION_MASK))
    }

    /// Whether the page has been in memory ever since that was asked.
    pub fn is_still_resident(&self, since: Version) -> bool {
        fence(Ordering::Acquire);
        let word = self.0.load(Ordering::Relaxed);
        tag(word) > MOVING && word & VERSION_MASK == since.0
    }
}
