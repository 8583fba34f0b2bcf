//! The stream of effects: which step they belong to, and which listeners hear of them.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::effect::Effect;
use crate::listener::{Contained, Ear, Listener, LISTENERS_MAX};
use crate::step::{Call, Cause, Position, Step, WorkerId};
use crate::UnixMillis;

/// Bits of the callers' listeners begin here.
const FIRST_INDEX: usize = 1;

/// The listeners of a store, and the positions of its steps.
#[derive(Default)]
pub(crate) struct Steps {
    listeners: OnceLock<Box<[Arc<dyn Listener>]>>,
    /// The store's own, its log: it hears before all others.
    first: OnceLock<Arc<dyn Listener>>,
    /// A bit for each that follows steps.
    following: AtomicU32,
    /// A bit for each that wants to hear.
    attending: Arc<AtomicU32>,
    workers: AtomicU32,
    position: LastPosition,
}

/// Where a panic ends the process there is nothing to contain.
fn contained(listener: Arc<dyn Listener>) -> Arc<dyn Listener> {
    if cfg!(panic = "unwind") {
        Arc::new(Contained(listener))
    } else {
        listener
    }
}

/// All workers write here, and only read what lies beside it.
#[repr(align(64))]
#[derive(Default)]
struct LastPosition(AtomicU64);

impl Steps {
    /// Lets `listeners` hear of every change from now on. False, and nothing has changed, if there are some already, or these are too
    /// many.
    pub fn listen(&self, listeners: Vec<Arc<dyn Listener>>) -> bool {
        if listeners.len() > LISTENERS_MAX {
            return false;
        }
        let is_first = self.listeners.set(listeners.into_iter().map(contained).collect()).is_ok();
        if is_first {
            let listeners = self.listeners.get().into_iter().flatten().enumerate();
            listeners.for_each(|(index, listener)| self.admit(FIRST_INDEX + index, listener));
        }
        is_first
    }

    /// Lets the store's own listener hear, before all others. Once.
    pub fn listen_first(&self, listener: Arc<dyn Listener>) {
        let listener = self.first.get_or_init(|| contained(listener));
        self.admit(0, listener);
    }

    fn admit(&self, index: usize, listener: &Arc<dyn Listener>) {
        self.following.fetch_or(u32::from(listener.follows_steps()) << index, Ordering::Relaxed);
        listener.attend(Ear::new(self.attending.clone(), index));
    }

    /// Calls `f` with the listeners of these bits.
    fn for_each(&self, bits: u32, f: impl Fn(&dyn Listener)) {
        if bits & 1 != 0 {
            self.first.get().into_iter().for_each(|listener| f(&**listener));
        }
        let bits = bits >> FIRST_INDEX;
        let all = self.listeners.get().into_iter().flatten().enumerate();
        let told = all.take_while(|(index, _)| bits >> index != 0);
        told.filter(|(index, _)| bits >> index & 1 != 0).for_each(|(_, listener)| f(&**listener));
    }
}

/// What a worker is at in the stream of effects. Only the worker's thread uses it, but for the time that all stand still.
///
/// ```text
///                  open                      first effect                    close
///     BETWEEN ────────────────▶ OPEN ─────────────────────────▶ TOLD ─────────────────▶ BETWEEN
///        │ first effect of an operation                                                    ▲
///        └──────────────────────────────▶ TOLD ALONE ── end_operation: before the lock goes ─┘
/// ```
/// Invariants E1 to E3. `BETWEEN`: nobody has heard of anything that is not over; a cut may come. `OPEN`, `TOLD`: the caller holds the locks of all keys
/// that it changes, or is alone, until `close`. `TOLD ALONE`: the operation holds its key's lock.
pub(crate) struct Acting {
    steps: Arc<Steps>,
    worker: WorkerId,
    /// Several operations are one step.
    is_open: AtomicBool,
    /// The listeners that have heard of the step.
    told: AtomicU32,
    present: Mutex<Present>,
}

struct Present {
    /// The one that is told, or was told last.
    step: Step,
    /// Of what the worker does now.
    cause: Cause,
}

impl Acting {
    pub fn new(steps: &Arc<Steps>) -> Arc<Acting> {
        let worker = WorkerId(steps.workers.fetch_add(1, Ordering::Relaxed));
        let step = Step { worker, cause: Cause::Call, now: 0, call: Call::default() };
        Arc::new(Acting {
            steps: steps.clone(),
            worker,
            is_open: AtomicBool::new(false),
            told: AtomicU32::new(0),
            present: Mutex::new(Present { step, cause: Cause::Call }),
        })
    }

    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// From now on operations are parts of one step.
    #[inline(always)]
    pub fn open(&self) {
        debug_assert!(self.is_between(), "a step within a step");
        self.is_open.store(true, Ordering::Relaxed);
    }

    #[inline(always)]
    pub fn close(&self) {
        debug_assert!(self.is_open(), "no step is open");
        self.is_open.store(false, Ordering::Relaxed);
        self.end_operation();
    }

    /// Ends a step that its caller has left open.
    pub fn close_left_open(&self) {
        self.is_open.store(false, Ordering::Relaxed);
        self.end_operation();
    }

    /// Ends the step of an operation, unless the operation is part of one.
    #[inline(always)]
    pub fn end_operation(&self) {
        if self.told.load(Ordering::Relaxed) != 0 && !self.is_open() {
            self.end();
        }
    }

    #[cold]
    fn end(&self) {
        let (told, step) = (self.told.load(Ordering::Relaxed), self.present.lock().step);
        self.told.store(0, Ordering::Relaxed);
        let told = told & self.steps.following.load(Ordering::Relaxed);
        if told == 0 {
            return;
        }
        let position = Position(self.steps.position.0.fetch_add(1, Ordering::AcqRel) + 1);
        self.steps.for_each(told, |listener| listener.end(&step, position));
    }

    /// Whether the caller's step is open.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Whether no step has begun.
    pub fn is_between(&self) -> bool {
        !self.is_open() && self.told.load(Ordering::Relaxed) == 0
    }

    /// The caller's next call begins.
    pub fn name_call(&self, name: Option<&'static str>) {
        let call = &mut self.present.lock().step.call;
        *call = Call { number: call.number + 1, name };
    }

    /// What the worker does from now on has this cause. Returns the one before.
    pub fn set_cause(&self, cause: Cause) -> Cause {
        std::mem::replace(&mut self.present.lock().cause, cause)
    }

    /// Tells of an effect, if anybody wants to hear; `now` is the worker's clock.
    #[inline(always)]
    pub fn tell(&self, now: UnixMillis, effect: &Effect<'_>) {
        let attending = self.steps.attending.load(Ordering::Acquire);
        if attending != 0 {
            self.tell_to(attending, now, effect);
        }
    }

    #[inline(never)]
    fn tell_to(&self, attending: u32, now: UnixMillis, effect: &Effect<'_>) {
        let told = self.told.load(Ordering::Relaxed);
        let step = if told == 0 { self.begin(now) } else { self.present.lock().step };
        self.told.store(told | attending, Ordering::Relaxed);
        let begins = attending & !told & self.steps.following.load(Ordering::Relaxed);
        self.steps.for_each(begins, |listener| listener.begin(&step));
        self.steps.for_each(attending, |listener| listener.hear(&step, effect));
    }

    fn begin(&self, now: UnixMillis) -> Step {
        let present = &mut *self.present.lock();
        let is_part = self.is_open() && present.cause == Cause::Expiry;
        // What expires within a step of the caller's is part of that.
        let cause = if is_part { Cause::Call } else { present.cause };
        present.step = Step { now, cause, ..present.step };
        present.step
    }
}

/// Ends the step of an operation when it is dropped: before the operation's lock is.
pub(crate) struct EndOfOperation(pub Arc<Acting>);

impl Drop for EndOfOperation {
    fn drop(&mut self) {
        self.0.end_operation();
    }
}

/// What the worker does has another cause until this is dropped.
pub(crate) struct Because {
    acting: Arc<Acting>,
    before: Cause,
}

impl Because {
    pub fn of(acting: &Arc<Acting>, cause: Cause) -> Because {
        Because { acting: acting.clone(), before: acting.set_cause(cause) }
    }
}

impl Drop for Because {
    fn drop(&mut self) {
        self.acting.set_cause(self.before);
    }
}
