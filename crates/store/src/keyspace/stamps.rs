//! When keys were last accessed, or how often: beside the pages, so that a read changes none of them.
//!
//! A stamp of 24 bits is Redis's: seconds, or minutes (16 bits) and a counter (8 bits). It is kept with 8 bits of the key's
//! hash in a group of four, one to a quarter of a cache line:
//!
//! ```text
//! key's hash, tree's tag ─▶ group ─▶ four words:  tag 8 bits | stamp 24 bits      (0: free)
//! ```
//! Loads and stores are relaxed, and nobody waits: a stamp may get lost between two threads. A key without a stamp takes the
//! place of the coldest one of its group. So a key without a stamp is at least as cold as all of a full group. Two keys of a
//! group that have the same tag (1 in 60 keys) share a stamp, and a cold one may seem warm.
//!
//! There are more groups as there are more keys (linear hashing): a new group begins with a copy of the one that it is split
//! from. What belongs to the other half is never met again, and goes as the coldest.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::policy::{Access, Tracking};
use crate::UnixMillis;

/// Stamps of a group.
const GROUP_STAMPS: usize = 4;
/// Groups of a chunk: 4 KB of them, so that few keys take little.
const CHUNK_GROUPS: usize = 1 << 8;
const CHUNK_BYTES: u64 = (CHUNK_GROUPS * size_of::<Group>()) as u64;
/// Chunks of a row of them, and rows at most: stamps for 500M keys. With more keys groups are fuller.
const ROW_CHUNKS: usize = 1 << 9;
const ROW_BYTES: u64 = (ROW_CHUNKS * size_of::<OnceLock<Chunk>>()) as u64;
const ROW_COUNT: usize = 1 << 10;
const CHUNK_COUNT: usize = ROW_CHUNKS * ROW_COUNT;
/// Groups that are added at once (1 MB): nobody waits for more.
const ADDED_MAX: u32 = 1 << 16;
const STAMP_BITS: u32 = 24;
const STAMP_MASK: u32 = (1 << STAMP_BITS) - 1;
/// Counter of a key that is new.
const NEW_COUNT: u32 = 5;
const COUNT_BITS: u32 = 8;
const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;
const MINUTES_MASK: u32 = 0xffff;
const SECONDS_PER_MINUTE: i64 = 60;
const MILLIS_PER_SECOND: i64 = 1000;

#[repr(align(16))]
struct Group([AtomicU32; GROUP_STAMPS]);

type Chunk = Box<[Group; CHUNK_GROUPS]>;
type Row = Box<[OnceLock<Chunk>]>;

/// The stamps of one way of tracking.
pub(crate) struct Stamps {
    counts: bool,
    /// Of [`Tracking::Frequency`].
    log_factor: AtomicU32,
    decay_minutes: AtomicU32,
    /// Chunks in rows; both are made as they are wanted.
    rows: Box<[OnceLock<Row>]>,
    group_count: AtomicU32,
    /// Held by who adds groups.
    growth: Mutex<()>,
    /// Memory that all of it takes counts there.
    memory_bytes: Arc<AtomicU64>,
    /// Stands for a key that has no stamp: as if it had been made when tracking began.
    first_stamp: u32,
}

/// Whose stamp it is.
#[derive(Clone, Copy)]
pub(crate) struct StampKey {
    mixed: u64,
}

impl StampKey {
    pub fn new(tree_tag: u32, hash: u64) -> StampKey {
        // Rounds of multiplication and folding: hashes are ordered by their upper bits, groups chosen by the lower.
        let mixed = (hash ^ (u64::from(tree_tag) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        StampKey { mixed: (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) }
    }

    /// Not 0.
    fn tag(self) -> u32 {
        ((self.mixed >> 56) as u32).max(1)
    }

    fn group(self, group_count: u32) -> u32 {
        let (low, mask) = ((self.mixed >> 20) as u32, group_count.next_power_of_two() - 1);
        match low & mask {
            group if group < group_count => group,
            group => group & (mask >> 1),
        }
    }
}

/// A moment in both units of stamps.
#[derive(Clone, Copy, Default)]
pub(crate) struct StampClock {
    seconds: u32,
    minutes: u32,
}

impl StampClock {
    pub fn at(now: UnixMillis) -> StampClock {
        let seconds = now / MILLIS_PER_SECOND;
        StampClock {
            seconds: seconds as u32 & STAMP_MASK,
            minutes: (seconds / SECONDS_PER_MINUTE) as u32 & MINUTES_MASK,
        }
    }
}

impl Tracking {
    fn rates(self) -> (u32, u32) {
        match self {
            Tracking::Recency => (0, 0),
            Tracking::Frequency { log_factor, decay_minutes } => (log_factor, decay_minutes),
        }
    }

    /// The stamp of a key that is new.
    fn new_stamp(self, now: StampClock) -> u32 {
        match self {
            Tracking::Recency => now.seconds,
            Tracking::Frequency { .. } => now.minutes << COUNT_BITS | NEW_COUNT,
        }
    }

    /// What an access makes of a stamp.
    fn accessed(self, stamp: u32, now: StampClock) -> u32 {
        let Tracking::Frequency { log_factor, .. } = self else { return now.seconds };
        let count = self.count(stamp, now);
        let above_new = count.saturating_sub(NEW_COUNT);
        let is_raised =
            count < COUNT_MAX && fastrand::f64() * (f64::from(above_new) * f64::from(log_factor) + 1.0) < 1.0;
        now.minutes << COUNT_BITS | (count + u32::from(is_raised))
    }

    /// The counter of a stamp, less what it has fallen by.
    fn count(self, stamp: u32, now: StampClock) -> u32 {
        let Tracking::Frequency { decay_minutes, .. } = self else { return 0 };
        let minutes = now.minutes.wrapping_sub(stamp >> COUNT_BITS) & MINUTES_MASK;
        (stamp & COUNT_MAX).saturating_sub(minutes.checked_div(decay_minutes).unwrap_or(0))
    }

    fn access(self, stamp: u32, now: StampClock) -> Access {
        match self {
            Tracking::Recency => {
                Access::Idle { seconds: u64::from(now.seconds.wrapping_sub(stamp) & STAMP_MASK) }
            }
            Tracking::Frequency { .. } => Access::Frequency { count: self.count(stamp, now) as u8 },
        }
    }

    /// The stamp of a key of which so much is known; none if it is not what is tracked.
    fn stamp_of(self, access: Access, now: StampClock) -> Option<u32> {
        match (self, access) {
            (Tracking::Recency, Access::Idle { seconds }) => {
                let seconds = seconds.min(u64::from(STAMP_MASK)) as u32;
                Some(now.seconds.wrapping_sub(seconds) & STAMP_MASK)
            }
            (Tracking::Frequency { .. }, Access::Frequency { count }) => {
                Some(now.minutes << COUNT_BITS | u32::from(count))
            }
            _ => None,
        }
    }
}

/// The greater, the colder.
pub(super) fn coldness(access: Access) -> u64 {
    match access {
        Access::Idle { seconds } => seconds,
        Access::Frequency { count } => u64::from(u8::MAX - count),
    }
}

impl Stamps {
    pub fn new(tracking: Tracking, now: UnixMillis, memory_bytes: Arc<AtomicU64>) -> Stamps {
        let rows: Box<[_]> = (0..ROW_COUNT).map(|_| OnceLock::new()).collect();
        memory_bytes.fetch_add(size_of_val(&*rows) as u64, Ordering::Relaxed);
        let (log_factor, decay_minutes) = tracking.rates();
        let stamps = Stamps {
            counts: matches!(tracking, Tracking::Frequency { .. }),
            log_factor: AtomicU32::new(log_factor),
            decay_minutes: AtomicU32::new(decay_minutes),
            rows,
            group_count: AtomicU32::new(1),
            growth: Mutex::default(),
            memory_bytes,
            first_stamp: tracking.new_stamp(StampClock::at(now)),
        };
        stamps.make_chunk(0);
        stamps
    }

    fn tracking(&self) -> Tracking {
        match self.counts {
            false => Tracking::Recency,
            true => Tracking::Frequency {
                log_factor: self.log_factor.load(Ordering::Relaxed),
                decay_minutes: self.decay_minutes.load(Ordering::Relaxed),
            },
        }
    }

    /// Goes on with other rates; whether it tracks in that way.
    fn take_rates(&self, tracking: Tracking) -> bool {
        let (log_factor, decay_minutes) = tracking.rates();
        self.log_factor.store(log_factor, Ordering::Relaxed);
        self.decay_minutes.store(decay_minutes, Ordering::Relaxed);
        self.counts == matches!(tracking, Tracking::Frequency { .. })
    }

    /// Memory that all of it takes.
    pub fn bytes(&self) -> u64 {
        let rows = self.rows.iter().filter_map(OnceLock::get);
        let bytes = |row: &Row| {
            ROW_BYTES + row.iter().filter(|chunk| chunk.get().is_some()).count() as u64 * CHUNK_BYTES
        };
        size_of_val(&*self.rows) as u64 + rows.map(bytes).sum::<u64>()
    }

    fn make_chunk(&self, chunk: usize) {
        let row = self.rows[chunk / ROW_CHUNKS].get_or_init(|| {
            self.memory_bytes.fetch_add(ROW_BYTES, Ordering::Relaxed);
            (0..ROW_CHUNKS).map(|_| OnceLock::new()).collect()
        });
        row[chunk % ROW_CHUNKS].get_or_init(|| {
            self.memory_bytes.fetch_add(CHUNK_BYTES, Ordering::Relaxed);
            Box::new([const { Group([const { AtomicU32::new(0) }; GROUP_STAMPS]) }; CHUNK_GROUPS])
        });
    }

    #[inline]
    fn at(&self, group: u32) -> Option<&Group> {
        let (chunk, group) = (group as usize / CHUNK_GROUPS, group as usize % CHUNK_GROUPS);
        Some(&self.rows.get(chunk / ROW_CHUNKS)?.get()?[chunk % ROW_CHUNKS].get()?[group])
    }

    fn group(&self, key: StampKey) -> Option<&Group> {
        self.at(key.group(self.group_count.load(Ordering::Acquire)))
    }

    /// Makes room for the stamps of so many keys, or some of it.
    pub fn grow_for(&self, key_count: u64) {
        let Some(_growing) = self.growth.try_lock() else { return };
        let most = (CHUNK_COUNT * CHUNK_GROUPS) as u64;
        // One and a half stamps a key: most groups are not full.
        let wanted = (key_count.saturating_mul(3) / 8).clamp(1, most) as u32;
        let group_count = self.group_count.load(Ordering::Relaxed);
        for group in group_count..wanted.min(group_count.saturating_add(ADDED_MAX)) {
            self.make_chunk(group as usize / CHUNK_GROUPS);
            let split = group ^ 1 << group.ilog2();
            if let (Some(from), Some(to)) = (self.at(split), self.at(group)) {
                for (from, to) in from.0.iter().zip(&to.0) {
                    to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            }
            self.group_count.store(group + 1, Ordering::Release);
        }
    }

    fn coldness_of(&self, stamp: u32, now: StampClock) -> u64 {
        coldness(self.tracking().access(stamp, now))
    }

    /// Puts a stamp in the key's place, or in that of the coldest of its group. `make` is given the key's stamp, if it has one.
    fn put(&self, key: StampKey, now: StampClock, make: impl FnOnce(Option<u32>) -> u32) {
        let Some(group) = self.group(key) else { return };
        let (tag, mut coldest) = (key.tag(), (&group.0[0], 0));
        for word in &group.0 {
            let known = word.load(Ordering::Relaxed);
            if known >> STAMP_BITS == tag {
                let stamped = tag << STAMP_BITS | make(Some(known & STAMP_MASK));
                if stamped != known {
                    word.store(stamped, Ordering::Relaxed);
                }
                return;
            }
            let coldness = if known == 0 { u64::MAX } else { self.coldness_of(known & STAMP_MASK, now) };
            if coldness > coldest.1 {
                coldest = (word, coldness);
            }
        }
        coldest.0.store(tag << STAMP_BITS | make(None), Ordering::Relaxed);
    }

    /// A key that has not been there before.
    #[cold]
    #[inline(never)]
    pub fn begin(&self, key: StampKey, now: StampClock) {
        self.put(key, now, |_| self.tracking().new_stamp(now));
    }

    /// The key has been accessed.
    #[cold]
    #[inline(never)]
    pub fn touch(&self, key: StampKey, now: StampClock) {
        let unknown = self.unknown(key, now);
        self.put(key, now, |known| self.tracking().accessed(known.unwrap_or(unknown), now));
    }

    /// Takes over what is known of the key from elsewhere.
    pub fn set(&self, key: StampKey, now: StampClock, access: Access) {
        if let Some(stamp) = self.tracking().stamp_of(access, now) {
            self.put(key, now, |_| stamp);
        }
    }

    /// The key is gone.
    #[cold]
    #[inline(never)]
    pub fn forget(&self, key: StampKey) {
        let words = self.group(key).into_iter().flat_map(|group| &group.0);
        let is_key = |word: &&AtomicU32| word.load(Ordering::Relaxed) >> STAMP_BITS == key.tag();
        words.filter(is_key).for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// What is known of the key's accesses.
    pub fn access(&self, key: StampKey, now: StampClock) -> Access {
        let words = self.group(key).into_iter().flat_map(|group| &group.0);
        let known =
            words.map(|word| word.load(Ordering::Relaxed)).find(|word| word >> STAMP_BITS == key.tag());
        let stamp = known.map_or_else(|| self.unknown(key, now), |word| word & STAMP_MASK);
        self.tracking().access(stamp, now)
    }

    /// The stamp of a key that has none: that of the coldest of its group if that is full.
    fn unknown(&self, key: StampKey, now: StampClock) -> u32 {
        let Some(group) = self.group(key) else { return self.first_stamp };
        let words = group.0.each_ref().map(|word| word.load(Ordering::Relaxed));
        match words.contains(&0) {
            true => self.first_stamp,
            false => {
                let stamps = words.map(|word| word & STAMP_MASK);
                stamps
                    .into_iter()
                    .max_by_key(|stamp| self.coldness_of(*stamp, now))
                    .unwrap_or(self.first_stamp)
            }
        }
    }
}

impl Drop for Stamps {
    fn drop(&mut self) {
        self.memory_bytes.fetch_sub(self.bytes(), Ordering::Relaxed);
    }
}

/// The stamps of a key space, if a policy needs any.
#[derive(Default)]
pub(crate) struct Tracker {
    /// Rises as they are exchanged, so that a worker need not lock to see that they are the same.
    version: AtomicU64,
    stamps: Mutex<Option<Arc<Stamps>>>,
}

impl Tracker {
    /// Begins to track in this way, or ends it. What is tracked as it was stays.
    pub fn track(&self, tracking: Option<Tracking>, now: UnixMillis, memory_bytes: &Arc<AtomicU64>) {
        let mut stamps = self.stamps.lock();
        match (&*stamps, tracking) {
            (Some(old), Some(new)) if old.take_rates(new) => return,
            _ => {}
        }
        *stamps = tracking.map(|tracking| Arc::new(Stamps::new(tracking, now, memory_bytes.clone())));
        self.version.fetch_add(1, Ordering::Release);
    }

    /// All keys are gone, and what is known of them. Tracking goes on.
    pub fn begin_anew(&self, now: UnixMillis) {
        let mut stamps = self.stamps.lock();
        if let Some(old) = stamps.take() {
            *stamps = Some(Arc::new(Stamps::new(old.tracking(), now, old.memory_bytes.clone())));
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// The stamps, if there are any.
    pub fn stamps(&self) -> Option<Arc<Stamps>> {
        self.stamps.lock().clone()
    }

    /// Brings a worker's handle up to date.
    pub fn refresh(&self, tracked: &mut Tracked, now: UnixMillis) {
        if self.version.load(Ordering::Acquire) != tracked.version {
            tracked.version = self.version.load(Ordering::Acquire);
            tracked.stamps = self.stamps();
        }
        if tracked.stamps.is_some() {
            tracked.clock = StampClock::at(now);
        }
    }
}

/// A worker's handle on the stamps.
#[derive(Default)]
pub(crate) struct Tracked {
    version: u64,
    pub stamps: Option<Arc<Stamps>>,
    pub clock: StampClock,
    /// Reads and writes do not count as accesses (`CLIENT NO-TOUCH`).
    pub is_still: bool,
}

impl Tracked {
    /// A key has been looked up.
    #[inline(always)]
    pub fn touch(&self, tree_tag: u32, hash: u64) {
        if let Some(stamps) = &self.stamps {
            if !self.is_still {
                stamps.touch(StampKey::new(tree_tag, hash), self.clock);
            }
        }
    }

    /// The same for who is asked to do so.
    pub fn touch_always(&self, tree_tag: u32, hash: u64) {
        if let Some(stamps) = &self.stamps {
            stamps.touch(StampKey::new(tree_tag, hash), self.clock);
        }
    }

    /// A key has been made.
    #[inline(always)]
    pub fn begin(&self, tree_tag: u32, hash: u64) {
        if let Some(stamps) = &self.stamps {
            stamps.begin(StampKey::new(tree_tag, hash), self.clock);
        }
    }

    /// A key has been removed.
    #[inline(always)]
    pub fn forget(&self, tree_tag: u32, hash: u64) {
        if let Some(stamps) = &self.stamps {
            stamps.forget(StampKey::new(tree_tag, hash));
        }
    }

    /// A key has another name now.
    #[inline(always)]
    pub fn rename(&self, from: (u32, u64), to: (u32, u64)) {
        if let Some(stamps) = &self.stamps {
            let (from, to) = (StampKey::new(from.0, from.1), StampKey::new(to.0, to.1));
            stamps.set(to, self.clock, stamps.access(from, self.clock));
            stamps.forget(from);
        }
    }

    /// Takes over what is known of a key from elsewhere.
    pub fn set(&self, tree_tag: u32, hash: u64, access: Access) {
        if let Some(stamps) = &self.stamps {
            stamps.set(StampKey::new(tree_tag, hash), self.clock, access);
        }
    }

    /// What is known of a key's accesses, if they are tracked.
    pub fn access(&self, tree_tag: u32, hash: u64) -> Option<Access> {
        let stamps = self.stamps.as_ref()?;
        Some(stamps.access(StampKey::new(tree_tag, hash), self.clock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LFU: Tracking = Tracking::Frequency { log_factor: 10, decay_minutes: 1 };

    fn stamps(tracking: Tracking, key_count: u64, now: UnixMillis) -> Stamps {
        let stamps = Stamps::new(tracking, now, Arc::default());
        stamps.grow_for(key_count);
        stamps
    }

    fn key(number: u64) -> StampKey {
        // Hashes are as good as random.
        StampKey::new(7, fastrand::Rng::with_seed(number).u64(..))
    }

    fn seconds(access: Access) -> u64 {
        let Access::Idle { seconds } = access else { panic!("{access:?}") };
        seconds
    }

    fn count(access: Access) -> u8 {
        let Access::Frequency { count } = access else { panic!("{access:?}") };
        count
    }

    #[test]
    fn keys_that_are_used_keep_their_stamps_whatever_else_comes() {
        let seed = stillframe_testkit::seed();
        let stamps = stamps(Tracking::Recency, 20_000, 0);
        let numbered = |kind: u64, number: u64| key(seed.wrapping_add(kind << 40).wrapping_add(number));
        let (hot, idle) = (|number| numbered(1, number), |number| numbered(2, number));
        let passing = |round: u64, number| numbered(3 + round, number);
        (0..8_000).for_each(|number| stamps.begin(idle(number), StampClock::at(0)));
        for round in 0..20 {
            let now = StampClock::at(1000 * round as i64);
            (0..2_000).for_each(|number| stamps.touch(hot(number), now));
            for number in 0..10_000 {
                stamps.begin(passing(round, number), now);
                if round > 0 {
                    stamps.forget(passing(round - 1, number));
                }
            }
        }
        let now = StampClock::at(20_000);
        let known = (0..2_000).filter(|number| seconds(stamps.access(hot(*number), now)) == 1).count();
        assert!(known > 1_900, "{known} hot keys are known");
        let old = (0..8_000).filter(|number| seconds(stamps.access(idle(*number), now)) >= 19).count();
        assert!(old > 6_500, "{old} idle keys seem so");
    }

    #[test]
    fn more_keys_make_more_groups_and_forget_nothing() {
        let stamps = stamps(LFU, 1, 0);
        let now = StampClock::at(0);
        let is_there = |number| count(stamps.access(key(number), now)) >= 100;
        for number in 0..10_000 {
            stamps.grow_for(number + 1);
            stamps.set(key(number), now, Access::Frequency { count: 100 + (number % 100) as u8 });
        }
        let known = (0..10_000).filter(|number| is_there(*number)).count();
        assert_eq!(known, 10_000, "a full group's coldest is the least that a key can be");
        // What was copied for the other half of a group goes as keys are met.
        let now = StampClock::at(60_000);
        (0..10_000).for_each(|number| stamps.set(key(number), now, Access::Frequency { count: 250 }));
        let exact = (0..10_000).filter(|number| count(stamps.access(key(*number), now)) == 250);
        let exact = exact.count();
        assert!(exact > 9_000, "{exact} stamps are exact");
        assert_eq!(stamps.bytes(), stamps.memory_bytes.load(Ordering::Relaxed));
    }

    #[test]
    fn few_keys_take_little() {
        let stamps = stamps(Tracking::Recency, 2048, 0);
        assert!(stamps.bytes() < 64 << 10, "{} bytes", stamps.bytes());
        let before = stamps.bytes();
        stamps.grow_for(3000);
        assert!(stamps.bytes() <= before + (8 << 10), "it grows in small steps");
    }

    #[test]
    fn counters_rise_by_the_logarithm_and_fall_with_time() {
        let stamps = stamps(LFU, 1, 0);
        let now = StampClock::at(0);
        stamps.begin(key(1), now);
        assert_eq!(count(stamps.access(key(1), now)), 5);
        fastrand::seed(stillframe_testkit::seed());
        // Redis's table for a factor of 10: 10, 18 and 142 after 100, 1000 and 100k hits. Counters rise by chance: it is the
        // mean of many.
        let bounds = [(10, 6, 8), (100, 8, 13), (1_000, 15, 22), (100_000, 120, 165)];
        for (accesses, least, most) in bounds {
            let counts = (0..100).map(|_| {
                stamps.begin(key(1), now);
                (0..accesses).for_each(|_| stamps.touch(key(1), now));
                u32::from(count(stamps.access(key(1), now)))
            });
            let mean = f64::from(counts.sum::<u32>()) / 100.0;
            assert!((f64::from(least)..=f64::from(most)).contains(&mean), "{accesses} accesses: {mean}");
        }
        let before = count(stamps.access(key(1), now));
        let later = StampClock::at(30 * 60_000);
        assert_eq!(count(stamps.access(key(1), later)), before - 30);
        assert!(stamps.take_rates(Tracking::Frequency { log_factor: 0, decay_minutes: 0 }));
        assert_eq!(count(stamps.access(key(1), later)), before, "nothing falls");
        (0..300).for_each(|_| stamps.touch(key(1), later));
        assert_eq!(count(stamps.access(key(1), later)), u8::MAX, "each access counts");
        assert!(!stamps.take_rates(Tracking::Recency));
    }

    #[test]
    fn a_key_without_a_stamp_is_as_old_as_tracking_or_as_the_coldest_beside_it() {
        let stamps = stamps(Tracking::Recency, 1, 10_000);
        let now = StampClock::at(60_000);
        assert_eq!(seconds(stamps.access(key(0), now)), 50);
        // All in one group.
        for number in 1..=4 {
            stamps.set(key(number), now, Access::Idle { seconds: 10 * number });
        }
        assert_eq!(seconds(stamps.access(key(9), now)), 40);
        stamps.begin(key(9), now);
        assert_eq!(seconds(stamps.access(key(9), now)), 0);
        assert_eq!(
            seconds(stamps.access(key(4), now)),
            30,
            "it had to go, and is as cold as the coldest left"
        );
        stamps.forget(key(3));
        assert_eq!(seconds(stamps.access(key(3), now)), 50);
        let wrapped = StampClock::at((1 << STAMP_BITS) * 1000 + 9_000);
        stamps.set(key(5), now, Access::Frequency { count: 200 });
        assert_eq!(seconds(stamps.access(key(9), wrapped)), (1 << STAMP_BITS) + 9 - 60);
    }

    #[test]
    fn memory_is_given_back_when_tracking_ends() {
        let (tracker, memory_bytes) = (Tracker::default(), Arc::new(AtomicU64::new(0)));
        let mut tracked = Tracked::default();
        tracker.track(Some(Tracking::Recency), 0, &memory_bytes);
        tracker.refresh(&mut tracked, 5_000);
        tracked.begin(1, 2);
        tracker.refresh(&mut tracked, 9_000);
        assert_eq!(tracked.access(1, 2), Some(Access::Idle { seconds: 4 }));
        tracked.is_still = true;
        tracked.touch(1, 2);
        assert_eq!(tracked.access(1, 2), Some(Access::Idle { seconds: 4 }));
        tracker.track(Some(Tracking::Recency), 9_000, &memory_bytes);
        tracker.refresh(&mut tracked, 9_000);
        assert_eq!(tracked.access(1, 2), Some(Access::Idle { seconds: 4 }), "what is tracked stays");
        tracker.track(Some(LFU), 9_000, &memory_bytes);
        tracker.refresh(&mut tracked, 9_000);
        assert_eq!(tracked.access(1, 2), Some(Access::Frequency { count: 5 }));
        assert!(memory_bytes.load(Ordering::Relaxed) > 0);
        tracker.track(None, 9_000, &memory_bytes);
        tracker.refresh(&mut tracked, 9_000);
        assert_eq!((tracked.access(1, 2), memory_bytes.load(Ordering::Relaxed)), (None, 0));
    }
}
