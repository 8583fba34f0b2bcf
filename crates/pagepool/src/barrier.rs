//! The barrier that brings every worker between two commands (RCU-like quiescence).
//!
//! ```text
//!   member:  RUNNING ── request seen, or idle ──▶ QUIESCENT ── released ──▶ RUNNING
//!   barrier: OPEN ── run ──▶ REQUESTED ── last member arrives: action runs there, or panics ──▶ OPEN
//!            OPEN ── stop_others ──▶ REQUESTED ── last member arrives ──▶ HELD ── Standstill dropped ──▶ OPEN
//!                                        └── a member has not come for too long: Late ──▶ OPEN
//! ```
//! The *last arriver* runs the action, so a cut does not wait for the scheduler to wake the initiator. No guard
//! lives across `quiesce` (invariant B1), and an initiator holds no latch or lock that a member may want (B2).
//! While a member holds the barrier nobody else runs and no other action is let in (B3). A member that does not come is
//! named, and a request that has a limit is given up after that (B4). What a member does while it waits touches nothing that
//! others may change then (B6).

use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use crate::metrics::Histogram;
// The standard library's and `parking_lot`'s here, and loom's in `tests/loom_barrier.rs`, which includes this file.
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::thread::{self, ThreadId};
use crate::sync::{
    heavy_fence, light_fence, pause, ArcMutexGuard, Condvar, Instant, Mutex, MutexGuard, RawMutex,
};

const QUIESCENT: u32 = 0;
const RUNNING: u32 = 1;

/// Arrived members spin this long before they sleep: the usual cut is over by then.
const SPIN_BEFORE_SLEEP: Duration = Duration::from_micros(20);
/// How often a member that waits does what it has to do meanwhile.
const MEANWHILE_PERIOD: Duration = Duration::from_millis(10);
/// A thread that a request has waited for so long is named in the log.
const NAME_AFTER: Duration = Duration::from_secs(1);

/// A request of the barrier was given up: a thread that is at work on the pool has not come between two commands.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error(
    "thread {thread} has been in one operation for {} ms, and nobody waits longer than that for it to end",
    waited.as_millis()
)]
pub struct Late {
    /// Name and number of the thread; of the first, if there are several.
    pub thread: String,
    /// How long the request has waited.
    pub waited: Duration,
}

thread_local! {
    static IS_ACTING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs the action of a barrier, while everybody stands still: it may wait for nobody.
#[inline]
pub fn is_acting() -> bool {
    IS_ACTING.get()
}

/// This thread runs an action until it is dropped.
struct Acting;

impl Acting {
    fn begin() -> Acting {
        IS_ACTING.set(true);
        Acting
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        IS_ACTING.set(false);
    }
}

/// What an initiator wants once every member is quiescent.
enum Action {
    Run(Box<dyn FnOnce() + Send>),
    /// The barrier stays closed until that thread, a member, opens it.
    Hold(ThreadId, Arc<str>),
}

#[repr(align(128))]
struct MemberState {
    state: AtomicU32,
    /// How often it has been between two commands; only the member counts it up.
    turns: AtomicU32,
    /// The thread that it is of, to be named. Not of the protocol.
    thread: std::sync::Mutex<Arc<str>>,
}

/// Name and number of this thread.
fn name_of_this() -> Arc<str> {
    let this = std::thread::current();
    let number = rustix::thread::gettid().as_raw_nonzero();
    format!("'{}' ({number})", this.name().unwrap_or("without a name")).into()
}

impl MemberState {
    fn new() -> MemberState {
        MemberState {
            state: AtomicU32::new(QUIESCENT),
            turns: AtomicU32::new(0),
            thread: std::sync::Mutex::new(name_of_this()),
        }
    }

    fn is_running(&self) -> bool {
        self.state.load(Ordering::SeqCst) != QUIESCENT
    }

    fn thread(&self) -> std::sync::MutexGuard<'_, Arc<str>> {
        // A name is whole whatever panics.
        self.thread.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
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
    /// What the action has panicked with: the initiator's panic.
    panic: Option<Box<dyn Any + Send>>,
    /// The thread that holds the barrier closed.
    holder: Option<ThreadId>,
    /// Its name.
    holder_name: Option<Arc<str>>,
}

/// The barrier; shared by all workers of a pool.
pub struct Barrier {
    requested: AtomicBool,
    members: Mutex<Vec<Arc<MemberState>>>,
    pending: Mutex<Pending>,
    released: Condvar,
    /// Serialises initiators.
    initiator: Arc<Mutex<()>>,
    /// How long a request waits, in milliseconds; `u32::MAX`: without end.
    patience_ms: AtomicU32,
    /// From a request until the last member had arrived.
    pub wait: Histogram,
    /// How long running members stood at the barrier.
    pub worker_wait: Histogram,
}

impl Default for Barrier {
    fn default() -> Self {
        let pending = Pending {
            action: None,
            requested_at: Instant::now(),
            times: None,
            panic: None,
            holder: None,
            holder_name: None,
        };
        Barrier {
            requested: AtomicBool::new(false),
            members: Mutex::new(Vec::new()),
            pending: Mutex::new(pending),
            released: Condvar::new(),
            initiator: Arc::default(),
            patience_ms: AtomicU32::new(u32::MAX),
            wait: Histogram::default(),
            worker_wait: Histogram::default(),
        }
    }
}

impl Barrier {
    /// From now on no request waits longer than that; `None`: without end.
    pub fn set_patience(&self, patience: Option<Duration>) {
        let ms = patience.map_or(u32::MAX, |limit| u32::try_from(limit.as_millis()).unwrap_or(u32::MAX));
        self.patience_ms.store(ms, Ordering::Relaxed);
    }

    fn patience(&self) -> Option<Duration> {
        let ms = self.patience_ms.load(Ordering::Relaxed);
        (ms != u32::MAX).then(|| Duration::from_millis(u64::from(ms)))
    }

    /// Runs `action` while every member is quiescent, and returns what it cost. Must not be called by a running
    /// member (it would wait for itself): a worker calls it inside [`Member::idle`]. For whoever holds the barrier
    /// closed it runs at once. What it panics with is raised here.
    ///
    /// # Errors
    /// [`Late`], if the barrier has a limit; the action has not run then.
    pub fn run(&self, action: impl FnOnce() + Send + 'static) -> Result<BarrierTimes, Late> {
        if self.is_held_here() {
            let begun_at = Instant::now();
            action();
            return Ok(BarrierTimes { wait: Duration::ZERO, action: begun_at.elapsed() });
        }
        let one_at_a_time = match self.patience() {
            None => self.initiator.lock(),
            Some(limit) => self.initiator.try_lock_for(limit).ok_or_else(|| self.held_for(limit))?,
        };
        self.request(Action::Run(Box::new(action)));
        let mut pending = self.pending.lock();
        let times = self.await_action(&mut pending)?;
        let panic = pending.panic.take();
        drop(pending);
        drop(one_at_a_time);
        panic.map_or(Ok(times), |panic| resume_unwind(panic))
    }

    /// Another initiator has not been done for so long.
    fn held_for(&self, waited: Duration) -> Late {
        let pending = self.pending.lock();
        let thread = pending.holder_name.clone().unwrap_or_else(|| self.straggler());
        Late { thread: thread.to_string(), waited }
    }

    /// A thread that keeps a request waiting.
    fn straggler(&self) -> Arc<str> {
        let members = self.members.lock();
        let running = members.iter().find(|member| member.is_running());
        running.map_or_else(|| "that has just ended".into(), |member| member.thread().clone())
    }

    /// Waits until what has been requested has happened. Names the thread that it waits for; gives up after the limit.
    fn await_action(&self, pending: &mut MutexGuard<'_, Pending>) -> Result<BarrierTimes, Late> {
        let limit = self.patience();
        let mut name_after = Some(NAME_AFTER);
        loop {
            if let Some(times) = pending.times.take() {
                return Ok(times);
            }
            let waited = pending.requested_at.elapsed();
            if limit.is_some_and(|limit| waited >= limit) {
                return Err(self.give_up(pending, waited));
            }
            if name_after.is_some_and(|after| waited >= after) {
                name_after = None;
                let thread = self.straggler();
                log::warn!("A cut has waited {waited:?} for thread {thread}, which is in an operation; everybody waits meanwhile");
                continue;
            }
            match [name_after, limit].into_iter().flatten().min() {
                Some(until) => {
                    self.released.wait_for(pending, until.saturating_sub(waited));
                }
                None => self.released.wait(pending),
            }
        }
    }

    /// REQUESTED → OPEN: nobody has run the action, and nobody will.
    fn give_up(&self, pending: &mut Pending, waited: Duration) -> Late {
        let late = Late { thread: self.straggler().to_string(), waited };
        pending.action = None;
        self.requested.store(false, Ordering::SeqCst);
        self.released.notify_all();
        log::warn!("A cut is given up: {late}");
        late
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
        // A member that goes while its thread runs an action: nothing else is pending.
        if is_acting() {
            return;
        }
        let mut pending = self.pending.lock();
        if pending.action.is_none() || !self.all_quiescent() {
            return;
        }
        let Some(action) = pending.action.take() else { return };
        let arrived_at = Instant::now();
        // A member that wakes up now sees `requested` and steps back before it runs anything.
        match action {
            Action::Run(action) => {
                // This thread has nothing to do with it, and all others wait.
                let acting = Acting::begin();
                pending.panic = catch_unwind(AssertUnwindSafe(action)).err();
                drop(acting);
                self.requested.store(false, Ordering::SeqCst);
            }
            Action::Hold(holder, name) => {
                pending.holder = Some(holder);
                pending.holder_name = Some(name);
            }
        }
        let wait = arrived_at - pending.requested_at;
        self.wait.record(wait);
        pending.times = Some(BarrierTimes { wait, action: arrived_at.elapsed() });
        self.released.notify_all();
    }

    /// Whether this thread holds the barrier closed.
    pub fn is_held_here(&self) -> bool {
        // Nobody holds it while an action runs, under that lock.
        self.requested.load(Ordering::Relaxed)
            && !is_acting()
            && self.pending.lock().holder == Some(thread::current().id())
    }

    /// Waits until the hold that was requested begins: others stand by then, so it spins first.
    fn wait_for_hold(&self) -> Result<(), Late> {
        let since = Instant::now();
        while since.elapsed() < SPIN_BEFORE_SLEEP {
            if self.pending.lock().times.take().is_some() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.await_action(&mut self.pending.lock()).map(drop)
    }

    /// HELD → OPEN.
    fn release(&self) {
        let mut pending = self.pending.lock();
        pending.holder = None;
        pending.holder_name = None;
        self.requested.store(false, Ordering::SeqCst);
        self.released.notify_all();
    }

    fn all_quiescent(&self) -> bool {
        !self.members.lock().iter().any(|member| member.is_running())
    }

    /// Waits until each member has been between two commands since the call, or stands by, and until no action of the
    /// barrier that was under way is (a grace period of RCU). Whoever waits lets nobody stand still. Not to be called by a
    /// running member.
    pub fn wait_for_turns(&self) {
        let mut grace = self.begin_grace();
        let mut wait_count = 0;
        while !grace.is_over(self) {
            wait_count += 1;
            pause(wait_count);
        }
    }

    /// Begins such a grace period, for a caller that does not wait for its end.
    pub fn begin_grace(&self) -> Grace {
        heavy_fence(|| {
            // Where the kernel does not help everybody has to come once.
            let mut wait_count = 0;
            while self.run(|| ()).is_err() {
                wait_count += 1;
                pause(wait_count);
            }
        });
        let members = self.members.lock();
        let running = members.iter().filter(|member| member.state.load(Ordering::Acquire) == RUNNING);
        Grace { awaited: running.map(|m| (m.clone(), m.turns.load(Ordering::Acquire))).collect() }
    }

    fn add_member(self: &Arc<Self>) -> Member {
        let state = Arc::new(MemberState::new());
        self.members.lock().push(state.clone());
        Member { barrier: self.clone(), state, _not_sync: PhantomData }
    }

    /// A new member, running.
    pub fn join(self: &Arc<Self>) -> Member {
        let member = self.add_member();
        member.enter();
        member
    }

    /// A new member that rests: it waits for nobody.
    pub fn join_resting(self: &Arc<Self>) -> Member {
        self.add_member()
    }
}

/// A grace period: see [`Barrier::begin_grace`].
pub struct Grace {
    /// Members that have not been between two commands yet, and how often they had been.
    awaited: Vec<(Arc<MemberState>, u32)>,
}

impl Grace {
    /// Whether it is over. Waits for nothing but an action of the barrier that is under way.
    pub fn is_over(&mut self, barrier: &Barrier) -> bool {
        self.awaited.retain(|(member, turns)| {
            member.state.load(Ordering::Acquire) == RUNNING && member.turns.load(Ordering::Acquire) == *turns
        });
        let is_over = self.awaited.is_empty();
        if is_over {
            drop(barrier.pending.lock());
        }
        is_over
    }
}

/// A worker's part in the barrier; of one thread at a time.
pub struct Member {
    barrier: Arc<Barrier>,
    state: Arc<MemberState>,
    _not_sync: PhantomData<Cell<()>>,
}

impl Member {
    /// As it says itself: only its thread changes that.
    #[inline]
    fn is_running(&self) -> bool {
        self.state.state.load(Ordering::Relaxed) == RUNNING
    }

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

    /// The same where that takes no wait; if it would take one it has not happened, and the result is false.
    #[inline(always)]
    pub fn try_quiesce(&self) -> bool {
        let is_free = !self.barrier.requested.load(Ordering::Relaxed);
        if is_free {
            self.count_turn();
        }
        is_free
    }

    /// As [`Member::quiesce`]. Once it has stood still for 10 ms, and every 10 ms from then on, it calls `meanwhile`, which may
    /// touch nothing that others change while it is quiescent (B6).
    #[cold]
    pub fn quiesce_meanwhile(&self, meanwhile: &mut dyn FnMut()) {
        match self.barrier.requested.load(Ordering::Relaxed) {
            true => self.stand_by_meanwhile(Some(meanwhile)),
            false => self.count_turn(),
        }
    }

    #[cold]
    fn stand_by(&self) {
        self.stand_by_meanwhile(None);
    }

    fn stand_by_meanwhile(&self, meanwhile: Option<&mut dyn FnMut()>) {
        if !self.is_running() || self.barrier.is_held_here() {
            return;
        }
        self.count_turn();
        let since = Instant::now();
        self.leave();
        self.enter_meanwhile(meanwhile);
        self.barrier.worker_wait.record(since.elapsed());
    }

    /// Waits until no other member runs, and keeps it so until the result is dropped: cuts and the actions of others
    /// wait, too. Meanwhile `idle`, `quiesce` and `Barrier::run` of this thread let nobody in. To be called between
    /// two commands: what has been asked for before happens first. `None`: this thread has stopped the others already.
    ///
    /// # Errors
    /// As of [`Barrier::run`].
    pub fn stop_others(&self) -> Result<Option<Standstill>, Late> {
        self.stop_others_meanwhile(None)
    }

    /// The same. While another thread has stopped this one it calls `meanwhile` as [`Member::quiesce_meanwhile`] does.
    ///
    /// # Errors
    /// As of [`Barrier::run`].
    pub fn stop_others_meanwhile(
        &self,
        meanwhile: Option<&mut dyn FnMut()>,
    ) -> Result<Option<Standstill>, Late> {
        let barrier = &self.barrier;
        if barrier.is_held_here() {
            return Ok(None);
        }
        let rests = (!self.is_running()).then(|| self.state.clone());
        let is_resting = rests.is_some();
        self.leave();
        match self.hold(rests, meanwhile) {
            Ok(standstill) => {
                // For threads that wait for turns it runs. The barrier does not look at members while it is held.
                self.state.state.store(RUNNING, Ordering::SeqCst);
                Ok(Some(standstill))
            }
            Err(late) => {
                // The caller goes on as it was.
                if !is_resting {
                    self.enter();
                }
                Err(late)
            }
        }
    }

    /// OPEN → HELD, when it is this thread's turn.
    fn hold(
        &self,
        rests: Option<Arc<MemberState>>,
        meanwhile: Option<&mut dyn FnMut()>,
    ) -> Result<Standstill, Late> {
        let barrier = &self.barrier;
        let turn = match meanwhile {
            Some(meanwhile) => self.await_turn(meanwhile)?,
            None => match barrier.patience() {
                None => barrier.initiator.lock_arc(),
                Some(limit) => {
                    barrier.initiator.try_lock_arc_for(limit).ok_or_else(|| barrier.held_for(limit))?
                }
            },
        };
        barrier.request(Action::Hold(thread::current().id(), self.state.thread().clone()));
        barrier.wait_for_hold()?;
        Ok(Standstill { barrier: barrier.clone(), rests, _turn: turn })
    }

    /// Waits until no other thread is an initiator.
    fn await_turn(&self, meanwhile: &mut dyn FnMut()) -> Result<ArcMutexGuard<RawMutex, ()>, Late> {
        let (barrier, since) = (&self.barrier, Instant::now());
        loop {
            if let Some(turn) = barrier.initiator.try_lock_arc_for(MEANWHILE_PERIOD) {
                return Ok(turn);
            }
            meanwhile();
            if let Some(limit) = barrier.patience().filter(|limit| since.elapsed() >= *limit) {
                return Err(barrier.held_for(limit));
            }
        }
    }

    /// Whether this thread has stopped the others.
    pub fn has_stopped_others(&self) -> bool {
        self.barrier.is_held_here()
    }

    /// Runs `f` as quiescent (a sleep in poll, a wait for another thread).
    pub fn idle<R>(&self, f: impl FnOnce() -> R) -> R {
        // One that rests goes on resting.
        if !self.is_running() || self.barrier.is_held_here() {
            return f();
        }
        self.leave();
        // Also where `f` panics: the caller goes on as it was.
        let _back = Back(self);
        f()
    }

    /// The same; while others go on afterwards it calls `meanwhile` as [`Member::quiesce_meanwhile`] does.
    pub fn idle_meanwhile<R>(&self, f: impl FnOnce() -> R, meanwhile: &mut dyn FnMut()) -> R {
        if !self.is_running() || self.barrier.is_held_here() {
            return f();
        }
        self.leave();
        let back = Back(self);
        let result = f();
        std::mem::forget(back);
        self.enter_meanwhile(Some(meanwhile));
        result
    }

    /// The same, and if this thread has stopped the others, who waits for turns does not wait for it meanwhile. Nobody is let in.
    pub fn idle_for_turns<R>(&self, f: impl FnOnce() -> R) -> R {
        if !self.barrier.is_held_here() {
            return self.idle(f);
        }
        // The barrier does not look at members while it is held.
        self.state.state.store(QUIESCENT, Ordering::SeqCst);
        let _back = BackFromTurns(self);
        f()
    }

    /// The thread that calls this is the member's from now on: to be told when a member goes to another thread.
    pub fn belongs_here(&self) {
        *self.state.thread() = name_of_this();
    }

    /// RUNNING → QUIESCENT, until [`Member::resume`]: nobody waits for a thread that is not at work.
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
        self.enter_meanwhile(None);
    }

    fn enter_meanwhile(&self, mut meanwhile: Option<&mut dyn FnMut()>) {
        loop {
            self.state.state.store(RUNNING, Ordering::SeqCst);
            // A thread that has stopped the others is let in.
            if !self.barrier.requested.load(Ordering::SeqCst) || self.barrier.is_held_here() {
                return;
            }
            self.leave();
            self.wait_for_release(&mut meanwhile);
        }
    }

    fn wait_for_release(&self, meanwhile: &mut Option<&mut dyn FnMut()>) {
        let since = Instant::now();
        while self.barrier.requested.load(Ordering::Acquire) {
            if since.elapsed() < SPIN_BEFORE_SLEEP {
                std::hint::spin_loop();
                continue;
            }
            if let Some(meanwhile) = meanwhile.as_deref_mut().filter(|_| since.elapsed() >= MEANWHILE_PERIOD)
            {
                // Not under the lock, which others take to let this member go.
                meanwhile();
            }
            let mut pending = self.barrier.pending.lock();
            if !self.barrier.requested.load(Ordering::Acquire) {
                return;
            }
            match meanwhile {
                None => self.barrier.released.wait(&mut pending),
                Some(_) => {
                    self.barrier.released.wait_for(&mut pending, MEANWHILE_PERIOD);
                }
            }
        }
    }
}

/// Ends [`Member::idle`].
struct Back<'m>(&'m Member);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        self.0.enter();
    }
}

/// Ends [`Member::idle_for_turns`] of a thread that has stopped the others.
struct BackFromTurns<'m>(&'m Member);

impl Drop for BackFromTurns<'_> {
    fn drop(&mut self) {
        self.0.count_turn();
        self.0.enter();
    }
}

/// While it lives, its member is the only one that runs. It stays in its thread.
#[must_use]
pub struct Standstill {
    barrier: Arc<Barrier>,
    /// The member, if it rested before: it does so afterwards.
    rests: Option<Arc<MemberState>>,
    /// Other initiators wait until the barrier is open again and the member counts as running.
    _turn: ArcMutexGuard<RawMutex, ()>,
}

impl Drop for Standstill {
    fn drop(&mut self) {
        self.rests.iter().for_each(|member| member.state.store(QUIESCENT, Ordering::SeqCst));
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
