//! The barrier that brings every worker between two commands (RCU-like quiescence).
//!
//! ```text
//!   member:  RUNNING ── request seen, or idle ──▶ QUIESCENT ── released ──▶ RUNNING
//!   barrier: OPEN ── run ──▶ REQUESTED ── last member arrives: action runs there ──▶ OPEN
//!            OPEN ── stop_others ──▶ REQUESTED ── last member arrives ──▶ HELD ── Standstill dropped ──▶ OPEN
//! ```
//! The *last arriver* runs the action, so a cut does not wait for the scheduler to wake the initiator. No guard
//! lives across `quiesce` (invariant B1), and an initiator holds no latch or lock that a member may want (B2).
//! While a member holds the barrier nobody else runs and no other action is let in (B3).

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::metrics::Histogram;
// The standard library's and `parking_lot`'s here, and loom's in `tests/loom_barrier.rs`, which includes this file.
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::thread::{self, ThreadId};
use crate::sync::{heavy_fence, light_fence, pause, ArcMutexGuard, Condvar, Instant, Mutex, RawMutex};

const QUIESCENT: u32 = 0;
const RUNNING: u32 = 1;

/// Arrived members spin this long before they sleep: the usual cut is over by then.
const SPIN_BEFORE_SLEEP: Duration = Duration::from_micros(20);

/// What an initiator wants once every member is quiescent.
enum Action {
    Run(Box<dyn FnOnce() + Send>),
    /// The barrier stays closed until that thread, a member, opens it.
    Hold(ThreadId),
}

#[repr(align(128))]
struct MemberState {
    state: AtomicU32,
    /// How often it has been between two commands; only the member counts it up.
    turns: AtomicU32,
}

/// What a run of the barrier cost.
#[derive(Clone, Copy, Debug)]
pub struct BarrierTimes {
    /// From the request until the last member had arrived.
    pub wait: Duration,
    /// How long the action took, while nobody ran.
    pub action: Duration,
}

struct Pending {
    action: Option<Action>,
    requested_at: Instant,
    times: Option<BarrierTimes>,
    /// The thread that holds the barrier closed.
    holder: Option<ThreadId>,
}

/// The barrier; shared by all workers of a pool.
pub struct Barrier {
    requested: AtomicBool,
    members: Mutex<Vec<Arc<MemberState>>>,
    pending: Mutex<Pending>,
    released: Condvar,
    /// Serialises initiators.
    initiator: Arc<Mutex<()>>,
    /// From a request until the last member had arrived.
    pub wait: Histogram,
    /// How long running members stood at the barrier.
    pub worker_wait: Histogram,
}

impl Default for Barrier {
    fn default() -> Self {
        let pending = Pending { action: None, requested_at: Instant::now(), times: None, holder: None };
        Barrier {
            requested: AtomicBool::new(false),
            members: Mutex::new(Vec::new()),
            pending: Mutex::new(pending),
            released: Condvar::new(),
            initiator: Arc::default(),
            wait: Histogram::default(),
            worker_wait: Histogram::default(),
        }
    }
}

impl Barrier {
    /// Runs `action` while every member is quiescent, and returns what it cost. Must not be called by a running
    /// member (it would wait for itself): a worker calls it inside [`Member::idle`]. For whoever holds the barrier
    /// closed it runs at once.
    pub fn run(&self, action: impl FnOnce() + Send + 'static) -> BarrierTimes {
        if self.is_held_here() {
            let begun_at = Instant::now();
            action();
            return BarrierTimes { wait: Duration::ZERO, action: begun_at.elapsed() };
        }
        let _one_at_a_time = self.initiator.lock();
        self.request(Action::Run(Box::new(action)));
        let mut pending = self.pending.lock();
        while pending.times.is_none() {
            self.released.wait(&mut pending);
        }
        pending.times.take().expect("the loop above ends when it is there")
    }

    /// OPEN → REQUESTED; the caller is the only initiator.
    fn request(&self, action: Action) {
        let mut pending = self.pending.lock();
        pending.action = Some(action);
        pending.requested_at = Instant::now();
        pending.times = None;
        self.requested.store(true, Ordering::SeqCst);
        drop(pending);
        self.complete_if_last();
    }

    /// REQUESTED → OPEN or HELD, by whoever finds every member quiescent.
    fn complete_if_last(&self) {
        let mut pending = self.pending.lock();
        if pending.action.is_none() || !self.all_quiescent() {
            return;
        }
        let Some(action) = pending.action.take() else { return };
        let arrived_at = Instant::now();
        // A member that wakes up now sees `requested` and steps back before it runs anything.
        match action {
            Action::Run(action) => {
                action();
                self.requested.store(false, Ordering::SeqCst);
            }
            Action::Hold(holder) => pending.holder = Some(holder),
        }
        let wait = arrived_at - pending.requested_at;
        self.wait.record(wait);
        pending.times = Some(BarrierTimes { wait, action: arrived_at.elapsed() });
        self.released.notify_all();
    }

    /// Whether this thread holds the barrier closed.
    fn is_held_here(&self) -> bool {
        self.requested.load(Ordering::Relaxed) && self.pending.lock().holder == Some(thread::current().id())
    }

    /// Waits until the hold that was requested begins: others stand by then, so it spins first.
    fn wait_for_hold(&self) {
        let since = Instant::now();
        while since.elapsed() < SPIN_BEFORE_SLEEP {
            if self.pending.lock().times.take().is_some() {
                return;
            }
            std::hint::spin_loop();
        }
        let mut pending = self.pending.lock();
        while pending.times.take().is_none() {
            self.released.wait(&mut pending);
        }
    }

    /// HELD → OPEN.
    fn release(&self) {
        let mut pending = self.pending.lock();
        pending.holder = None;
        self.requested.store(false, Ordering::SeqCst);
        self.released.notify_all();
    }

    fn all_quiescent(&self) -> bool {
        self.members.lock().iter().all(|m| m.state.load(Ordering::SeqCst) == QUIESCENT)
    }

    /// Waits until each member has been between two commands since the call, or stands by, and until no action of the
    /// barrier that was under way is (a grace period of RCU). Whoever waits lets nobody stand still. Not to be called by a
    /// running member.
    pub fn wait_for_turns(&self) {
        heavy_fence(|| {
            self.run(|| ());
        });
        let running = |m: &MemberState| m.state.load(Ordering::Acquire) == RUNNING;
        let since: Vec<_> = {
            let members = self.members.lock();
            members.iter().map(|m| (m.clone(), m.turns.load(Ordering::Acquire))).collect()
        };
        for (member, turns) in since {
            let mut wait_count = 0;
            while running(&member) && member.turns.load(Ordering::Acquire) == turns {
                wait_count += 1;
                pause(wait_count);
            }
        }
        drop(self.pending.lock());
    }

    /// A new member, running.
    pub fn join(self: &Arc<Self>) -> Member {
        let state = Arc::new(MemberState { state: AtomicU32::new(QUIESCENT), turns: AtomicU32::new(0) });
        self.members.lock().push(state.clone());
        let member = Member { barrier: self.clone(), state, _not_sync: PhantomData };
        member.enter();
        member
    }
}

/// A worker's part in the barrier; of one thread at a time.
pub struct Member {
    barrier: Arc<Barrier>,
    state: Arc<MemberState>,
    _not_sync: PhantomData<Cell<()>>,
}

impl Member {
    /// Between two commands: lets a requested action happen.
    #[inline(always)]
    pub fn quiesce(&self) {
        if self.barrier.requested.load(Ordering::Relaxed) {
            self.stand_by();
        } else {
            self.count_turn();
        }
    }

    /// What the member does from here on it does after whatever was before a heavy fence of another thread that reads the
    /// number as it was before (R3).
    #[inline(always)]
    fn count_turn(&self) {
        let turns = &self.state.turns;
        turns.store(turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        light_fence();
    }

    #[cold]
    fn stand_by(&self) {
        if self.barrier.is_held_here() {
            return;
        }
        self.count_turn();
        let since = Instant::now();
        self.leave();
        self.enter();
        self.barrier.worker_wait.record(since.elapsed());
    }

    /// Waits until no other member runs, and keeps it so until the result is dropped: cuts and the actions of others
    /// wait, too. Meanwhile `idle`, `quiesce` and `Barrier::run` of this thread let nobody in. To be called between
    /// two commands: what has been asked for before happens first.
    pub fn stop_others(&self) -> Standstill {
        assert!(!self.barrier.is_held_here(), "a member stops the others once");
        self.leave();
        let turn = self.barrier.initiator.lock_arc();
        self.barrier.request(Action::Hold(thread::current().id()));
        self.barrier.wait_for_hold();
        // For those who wait for turns it runs. The barrier does not look at members while it is held.
        self.state.state.store(RUNNING, Ordering::SeqCst);
        Standstill { barrier: self.barrier.clone(), state: self.state.clone(), _turn: turn }
    }

    /// Whether this thread has stopped the others.
    pub fn has_stopped_others(&self) -> bool {
        self.barrier.is_held_here()
    }

    /// Runs `f` as quiescent (a sleep in poll, a wait for another thread).
    pub fn idle<R>(&self, f: impl FnOnce() -> R) -> R {
        if self.barrier.is_held_here() {
            return f();
        }
        self.leave();
        let result = f();
        self.enter();
        result
    }

    /// The same, and if this thread has stopped the others, who waits for turns does not wait for it meanwhile. Nobody is let in.
    pub fn idle_for_turns<R>(&self, f: impl FnOnce() -> R) -> R {
        if !self.barrier.is_held_here() {
            return self.idle(f);
        }
        // The barrier does not look at members while it is held.
        self.state.state.store(QUIESCENT, Ordering::SeqCst);
        let result = f();
        self.count_turn();
        self.state.state.store(RUNNING, Ordering::SeqCst);
        result
    }

    /// RUNNING → QUIESCENT, until [`Member::resume`]: nobody waits for a thread that is not at work. Not while it has
    /// stopped the others.
    #[inline]
    pub fn rest(&self) {
        self.leave();
    }

    /// QUIESCENT → RUNNING, after what is requested.
    #[inline]
    pub fn resume(&self) {
        self.count_turn();
        self.enter();
    }

    /// RUNNING → QUIESCENT.
    fn leave(&self) {
        self.state.state.store(QUIESCENT, Ordering::SeqCst);
        if self.barrier.requested.load(Ordering::SeqCst) {
            self.barrier.complete_if_last();
        }
    }

    /// QUIESCENT → RUNNING, unless an action is requested; then after it.
    fn enter(&self) {
        loop {
            self.state.state.store(RUNNING, Ordering::SeqCst);
            if !self.barrier.requested.load(Ordering::SeqCst) {
                return;
            }
            self.leave();
            self.wait_for_release();
        }
    }

    fn wait_for_release(&self) {
        let since = Instant::now();
        while self.barrier.requested.load(Ordering::Acquire) {
            if since.elapsed() < SPIN_BEFORE_SLEEP {
                std::hint::spin_loop();
                continue;
            }
            let mut pending = self.barrier.pending.lock();
            if self.barrier.requested.load(Ordering::Acquire) {
                self.barrier.released.wait(&mut pending);
            }
        }
    }
}

/// While it lives, its member is the only one that runs. It stays in its thread.
#[must_use]
pub struct Standstill {
    barrier: Arc<Barrier>,
    state: Arc<MemberState>,
    /// Other initiators wait until the barrier is open again and the member counts as running.
    _turn: ArcMutexGuard<RawMutex, ()>,
}

impl Drop for Standstill {
    fn drop(&mut self) {
        self.state.state.store(RUNNING, Ordering::SeqCst);
        self.barrier.release();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.state.state.store(QUIESCENT, Ordering::SeqCst);
        self.barrier.members.lock().retain(|m| !Arc::ptr_eq(m, &self.state));
        if self.barrier.requested.load(Ordering::SeqCst) {
            self.barrier.complete_if_last();
        }
    }
}
