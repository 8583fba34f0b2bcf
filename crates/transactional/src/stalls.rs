//! How long transactions and cuts were held up.

use std::time::{Duration, Instant};

/// The longest a session's transactions were held up around cuts: those that began between the beginning of a cut and its
/// end. Capturing is what an algorithm does before the first write of a row.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Stalls {
    pub begin_ns: u64,
    pub capture_ns: u64,
    pub commit_ns: u64,
}

impl Stalls {
    /// The longest of all.
    #[must_use]
    pub fn stall_ns(&self) -> u64 {
        self.begin_ns.max(self.capture_ns).max(self.commit_ns)
    }

    pub fn add(&mut self, other: &Stalls) {
        self.begin_ns = self.begin_ns.max(other.begin_ns);
        self.capture_ns = self.capture_ns.max(other.capture_ns);
        self.commit_ns = self.commit_ns.max(other.commit_ns);
    }
}

/// What a session has done.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SessionStats {
    pub commit_count: u64,
    /// Given up by who ran them.
    pub abort_count: u64,
    /// Begun anew because a row was locked.
    pub lock_restart_count: u64,
    /// Begun anew because they met what belongs after a cut.
    pub newer_restart_count: u64,
    /// The most times that one transaction was begun anew because a row was locked.
    pub lock_restarts_max: u32,
    pub stalls: Stalls,
}

impl SessionStats {
    pub fn add(&mut self, other: &SessionStats) {
        self.commit_count += other.commit_count;
        self.abort_count += other.abort_count;
        self.lock_restart_count += other.lock_restart_count;
        self.newer_restart_count += other.newer_restart_count;
        self.lock_restarts_max = self.lock_restarts_max.max(other.lock_restarts_max);
        self.stalls.add(&other.stalls);
    }
}

/// How long the parts of a snapshot took. Nobody is held up by any of it as such.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct CutTimes {
    /// From its beginning to the cut: CALC and CPR wait for transactions that began at rest.
    pub to_cut_ns: u64,
    /// From the cut until all transactions before it had ended.
    pub drain_ns: u64,
    /// The image.
    pub access_ns: u64,
    /// From its beginning to its end.
    pub total_ns: u64,
}

/// Runs `work`, and remembers in `longest_ns` how long it took if that is asked for.
#[inline]
pub fn timed<T>(is_wanted: bool, longest_ns: &mut u64, work: impl FnOnce() -> T) -> T {
    if !is_wanted {
        return work();
    }
    let begin = Instant::now();
    let done = work();
    *longest_ns = (*longest_ns).max(nanoseconds(begin.elapsed()));
    done
}

pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
