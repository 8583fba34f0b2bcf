//! The state word of a page: latch, version and residence in 64 bits.
//!
//! ```text
//!                  begin_load             loaded
//!            ┌─────────────────▶ LOADING(v) ───▶ UNLOCKED(v+1)
//!            │  ┌─ load_failed ──────┘
//!            │  ▼
//!        EVICTED(v) ──────────── begin_life ──────────▶ EXCLUSIVE(v) ── unlock ──▶ UNLOCKED(v+1)
//!         ▲  │  ▲ │                                       │  ▲                       │  ▲  │
//!         │  └──┘ retire                                  │  └──────── try_lock ─────┤  │  │ (by nobody yet)
//!         │                                               │                          │  │  ▼
//!         ├────────────────────────── evict ──────────────┘                          │  │ MARKED(v) ── try_lock, retire
//!         └────────────────────────── retire ────────────────────────────────────────┘  │  │
//!                                                                              unshare  │  │ try_share
//!                                                                        SHARED(n, v) ──┘  │
//!                                                                          ▲  n+1 / n-1 ◀──┘
//!                                                                          └── try_share
//! ```
//! EVICTED and LOADING are *absent*: the page is not in memory for anybody, and whoever wants it faults instead of
//! waiting for the disk. Only `Pool::load` waits for the end of a load. All other states are *resident*, EXCLUSIVE too:
//! a latch is short. MARKED is for the clock of an eviction, which does not exist yet; all who meet it treat it as UNLOCKED.
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
const LOADING: u64 = 1;
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
    /// That the page is not LOADING any more.
    EndOfLoad,
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

impl StateWord {
    #[cfg(test)]
    pub fn new_evicted() -> StateWord {
        StateWord(AtomicU64::new(0))
    }

    /// Whether the page is in memory, latched or not.
    #[inline(always)]
    pub fn is_resident(&self) -> bool {
        tag(self.0.load(Ordering::Acquire)) > LOADING
    }

    /// EVICTED → LOADING. False if the page is not evicted.
    pub fn begin_load(&self) -> bool {
        self.leave_evicted(LOADING)
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

    /// LOADING → UNLOCKED, version raised. True if somebody waits for it.
    #[must_use]
    pub fn loaded(&self) -> bool {
        self.leave(LOADING, UNLOCKED)
    }

    /// LOADING → EVICTED, version raised. True if somebody waits for it.
    #[must_use]
    pub fn load_failed(&self) -> bool {
        self.leave(LOADING, EVICTED)
    }

    /// EVICTED, UNLOCKED, MARKED → EVICTED, version raised: of a page that has been marked as freed. False while it is
    /// latched or being read. It writes the word in any case: so a load that begins later sees the mark, and one that
    /// began earlier is seen here.
    pub fn retire(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while matches!(tag(word), EVICTED | UNLOCKED | MARKED) {
            let next = (EVICTED << TAG_SHIFT) | (word.wrapping_add(1) & VERSION_MASK);
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// UNLOCKED, MARKED → EXCLUSIVE.
    #[inline(always)]
    pub fn try_lock(&self) -> Result<(), Refused> {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            match tag(word) {
                UNLOCKED | MARKED => {}
                EVICTED | LOADING => return Err(Refused::Absent),
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
                EVICTED | LOADING => return Err(Refused::Absent),
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
                (Wanted::EndOfLoad, tag) => tag == LOADING,
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
        let word = self.0.load(Ordering::Acquire);
        match tag(word) {
            EVICTED | LOADING => Err(Refused::Absent),
            EXCLUSIVE => Err(Refused::Held),
            _ => Ok(Version(word & VERSION_MASK)),
        }
    }

    /// The version of a word that the caller holds exclusively.
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
}
