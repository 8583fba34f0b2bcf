//! Which keys go when memory is full, and what has to be known of them for that.

/// Among which keys one is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Candidates {
    All,
    /// Those that have a deadline.
    WithDeadline,
}

/// Which of them goes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preference {
    LeastRecentlyUsed,
    LeastFrequentlyUsed,
    Random,
    /// The one whose deadline comes first.
    SoonestDeadline,
}

/// How keys are evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EvictionPolicy {
    pub candidates: Candidates,
    pub preference: Preference,
}

impl EvictionPolicy {
    /// All that there are, by their names in Redis.
    pub const NAMED: [(&'static str, EvictionPolicy); 7] = {
        use Candidates::{All, WithDeadline};
        use Preference::{LeastFrequentlyUsed, LeastRecentlyUsed, Random, SoonestDeadline};
        const fn policy(candidates: Candidates, preference: Preference) -> EvictionPolicy {
            EvictionPolicy { candidates, preference }
        }
        [
            ("volatile-lru", policy(WithDeadline, LeastRecentlyUsed)),
            ("volatile-lfu", policy(WithDeadline, LeastFrequentlyUsed)),
            ("volatile-random", policy(WithDeadline, Random)),
            ("volatile-ttl", policy(WithDeadline, SoonestDeadline)),
            ("allkeys-lru", policy(All, LeastRecentlyUsed)),
            ("allkeys-lfu", policy(All, LeastFrequentlyUsed)),
            ("allkeys-random", policy(All, Random)),
        ]
    };

    pub fn by_name(name: &str) -> Option<EvictionPolicy> {
        EvictionPolicy::NAMED.iter().find(|(known, _)| *known == name).map(|(_, policy)| *policy)
    }
}

/// What is remembered of accesses to keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tracking {
    /// When the last one was, in seconds.
    Recency,
    /// A counter that rises with the logarithm of their number, as in Redis: one access raises a counter of 5 + n by 1 with
    /// a probability of 1 in n * `log_factor` + 1. It falls by 1 in `decay_minutes`; 0 is never.
    Frequency { log_factor: u32, decay_minutes: u32 },
}

/// What is known of the accesses to a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Seconds since the last one.
    Idle { seconds: u64 },
    /// The logarithmic counter, as of now.
    Frequency { count: u8 },
}

/// What an attempt to evict a key came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evicted {
    /// Keys are gone that took so much memory, their leaf's free space not counted.
    Keys { evicted_count: u64, expired_count: u64, memory_bytes: u64 },
    /// There may be some, but their pages are not in memory, or what has been removed has not been freed yet.
    Later,
    /// There is no key that may go.
    Nothing,
}
