//! The barrier under the model checker: the real `src/barrier.rs` over loom's atomics and locks. A command is a look at a
//! cell, the barrier's action a change of it, and the checker complains where they meet. What the barrier is made of can
//! be spoilt, and then the checker must find that.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

#[path = "loom_sync/mod.rs"]
mod locks;

/// What `barrier.rs` is made of.
mod sync {
    pub use crate::locks::{ArcMutexGuard, Mutex, MutexGuard, RawMutex};
    pub use loom::thread;
    use std::ops::Sub;
    pub use std::sync::OnceLock;
    use std::time::Duration;

    use loom::sync::atomic::{fence, Ordering};

    use crate::{is_spoilt, locks, Mistake};

    /// Loom takes sequentially consistent accesses for acquiring and releasing ones; fences make up for it.
    pub mod atomic {
        pub use loom::sync::atomic::Ordering;
        use loom::sync::atomic::{fence, AtomicU32 as Inner};

        use crate::{is_spoilt, Mistake};

        fn ordered<R>(ordering: Ordering, access: impl FnOnce(Ordering) -> R) -> R {
            if is_spoilt(Mistake::RelaxedAccesses) {
                return access(Ordering::Relaxed);
            }
            let is_total = ordering == Ordering::SeqCst && !is_spoilt(Mistake::NoTotalOrder);
            is_total.then(|| fence(Ordering::SeqCst));
            let result = access(ordering);
            is_total.then(|| fence(Ordering::SeqCst));
            result
        }

        fn for_load(ordering: Ordering) -> Ordering {
            if ordering == Ordering::SeqCst {
                Ordering::Acquire
            } else {
                ordering
            }
        }

        fn for_store(ordering: Ordering) -> Ordering {
            if ordering == Ordering::SeqCst {
                Ordering::Release
            } else {
                ordering
            }
        }

        pub struct AtomicU32(Inner);

        impl AtomicU32 {
            pub fn new(value: u32) -> AtomicU32 {
                AtomicU32(Inner::new(value))
            }

            pub fn load(&self, ordering: Ordering) -> u32 {
                ordered(ordering, |ordering| self.0.load(for_load(ordering)))
            }

            pub fn store(&self, value: u32, ordering: Ordering) {
                ordered(ordering, |ordering| self.0.store(value, for_store(ordering)));
            }
        }

        pub struct AtomicBool(AtomicU32);

        impl AtomicBool {
            pub fn new(value: bool) -> AtomicBool {
                AtomicBool(AtomicU32::new(u32::from(value)))
            }

            pub fn load(&self, ordering: Ordering) -> bool {
                self.0.load(ordering) != 0
            }

            pub fn store(&self, value: bool, ordering: Ordering) {
                self.0.store(u32::from(value), ordering);
            }
        }
    }

    pub struct Condvar(locks::Condvar);

    impl Condvar {
        pub fn new() -> Condvar {
            Condvar(locks::Condvar::new())
        }

        pub fn wait<T>(&self, guard: &mut locks::MutexGuard<'_, T>) {
            self.0.wait(guard);
        }

        /// Time passes when the caller says so.
        pub fn wait_for<T>(&self, guard: &mut locks::MutexGuard<'_, T>, _limit: Duration) {
            self.wait(guard);
        }

        pub fn notify_all(&self) {
            if !is_spoilt(Mistake::LostWakeUp) {
                self.0.notify_all();
            }
        }
    }

    pub fn light_fence() {
        if !is_spoilt(Mistake::NoFenceBetweenTurns) {
            fence(Ordering::SeqCst);
        }
    }

    pub fn heavy_fence(_otherwise: impl FnOnce()) {
        fence(Ordering::SeqCst);
    }

    pub fn pause(_wait_count: u32) {
        thread::yield_now();
    }

    /// A clock by which whoever looks has always spun for long enough.
    #[derive(Clone, Copy)]
    pub struct Instant;

    impl Instant {
        pub fn now() -> Instant {
            Instant
        }

        pub fn elapsed(&self) -> Duration {
            Duration::from_secs(1)
        }
    }

    impl Sub for Instant {
        type Output = Duration;

        fn sub(self, _earlier: Instant) -> Duration {
            Duration::ZERO
        }
    }
}

/// What the barrier measures is of no interest here.
mod metrics {
    #[derive(Default)]
    pub struct Histogram {}

    impl Histogram {
        pub fn record(&self, _took: std::time::Duration) {}
    }
}

#[allow(dead_code)]
#[path = "../src/barrier.rs"]
mod barrier;

/// Whether keys are locked: it is built on the barrier.
#[path = "../../store/src/keyspace/sharing.rs"]
mod sharing;

use barrier::{Barrier, Member};
use sharing::Sharing;
use sync::Mutex;

/// What is spoilt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    None,
    /// Accesses of the members' states and of the request have no order among all threads.
    NoTotalOrder,
    /// They order nothing at all.
    RelaxedAccesses,
    /// Whoever sleeps is not woken.
    LostWakeUp,
    /// A member works on while it counts as idle.
    WorksWhileIdle,
    /// What a member does after a turn may be seen before it.
    NoFenceBetweenTurns,
    /// Whoever evicts a page waits for nobody.
    NoGrace,
    /// A command does not take the mark off a page that it touches.
    NoTouch,
    /// A handle that comes beside a worker without locks does not wait for it.
    SharesAtOnce,
    /// What a member does while it waits looks at what others change.
    LooksMeanwhile,
}

thread_local! {
    /// Loom runs all threads of a model on the thread of the test.
    static MISTAKE: Cell<Mistake> = const { Cell::new(Mistake::None) };
}

fn is_spoilt(mistake: Mistake) -> bool {
    MISTAKE.with(Cell::get) == mistake
}

/// What commands look at and actions change.
struct World {
    barrier: Arc<Barrier>,
    data: UnsafeCell<u32>,
    /// Of a page whose content is `data`.
    page: AtomicU32,
    /// Changes that have been given up.
    given_up: AtomicU32,
}

/// States of the page.
const TOUCHED: u32 = 0;
const MARKED: u32 = 1;
const GONE: u32 = 2;

// SAFETY: B1: that commands and actions do not meet at the cell is what the model checks.
unsafe impl Sync for World {}

impl World {
    fn command(&self) {
        // SAFETY: B1: that nobody changes it meanwhile is what the model checks.
        self.data.with(|place| unsafe { *place });
    }

    fn change(&self) {
        // SAFETY: B1: that nobody else runs is what the model checks.
        self.data.with_mut(|place| unsafe { *place += 1 });
    }

    fn cut(world: &Arc<World>) {
        let at_cut = world.clone();
        world.barrier.run(move || at_cut.change()).unwrap();
    }

    /// A command that finds the page in memory and looks at it later, without another look at its state.
    fn command_on_page(&self) {
        let mut state = self.page.load(Ordering::Acquire);
        while state == MARKED && !is_spoilt(Mistake::NoTouch) {
            match self.page.compare_exchange(MARKED, TOUCHED, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => state = TOUCHED,
                Err(now) => state = now,
            }
        }
        if state != GONE {
            self.command();
        }
    }

    /// Marks the page, and takes it away if nobody touches it before every member has been between two commands.
    fn evict(world: &Arc<World>) {
        let _ = world.page.compare_exchange(TOUCHED, MARKED, Ordering::Relaxed, Ordering::Relaxed);
        if !is_spoilt(Mistake::NoGrace) {
            world.barrier.wait_for_turns();
        }
        if world.page.compare_exchange(MARKED, GONE, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            world.change();
        }
    }

    fn idle(&self, member: &Member) {
        member.idle(|| {
            if is_spoilt(Mistake::WorksWhileIdle) {
                self.command();
                thread::yield_now();
                self.command();
            }
        });
    }
}

type Step = fn(&Arc<World>);

/// Every interleaving of `steps`, each a thread; `changes` are made in all, and one more if the page is evicted.
fn explore(mistake: Mistake, steps: &[Step], changes: u32) {
    MISTAKE.with(|spoilt| spoilt.set(mistake));
    let steps = steps.to_vec();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let world = Arc::new(World {
            barrier: Arc::default(),
            data: UnsafeCell::new(0),
            page: AtomicU32::new(TOUCHED),
            given_up: AtomicU32::new(0),
        });
        let spawn = |&step: &Step| {
            let world = world.clone();
            thread::spawn(move || step(&world))
        };
        let threads: Vec<_> = steps.iter().map(spawn).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // SAFETY: B1: everybody is gone.
        let made = world.data.with(|place| unsafe { *place });
        let evicted = u32::from(world.page.load(Ordering::Relaxed) == GONE);
        let given_up = world.given_up.load(Ordering::Relaxed);
        assert_eq!(made + given_up, changes + evicted, "no action is lost");
    });
}

/// A worker: a command, a look at the barrier, a command, and it is gone.
fn work(world: &Arc<World>) {
    let member = world.barrier.join();
    world.command();
    member.quiesce();
    world.command();
}

/// A worker that does something of its own while it stands still; at most once.
struct Aside {
    world: Arc<World>,
    own: Option<Box<u32>>,
}

impl Aside {
    fn pass(&mut self) {
        // Nobody but this thread has it (B6).
        drop(self.own.take());
        if is_spoilt(Mistake::LooksMeanwhile) {
            self.world.command();
            thread::yield_now();
            self.world.command();
        }
    }
}

fn stand_aside(world: &Arc<World>) {
    let mut aside = Aside { world: world.clone(), own: Some(Box::new(0)) };
    let member = world.barrier.join();
    world.command();
    member.quiesce_meanwhile(&mut || aside.pass());
    world.command();
    member.idle_meanwhile(|| (), &mut || aside.pass());
    world.command();
}

/// A worker that wants to stop others while another one may have stopped it.
fn stop_others_aside(world: &Arc<World>) {
    let mut aside = Aside { world: world.clone(), own: Some(Box::new(0)) };
    let member = world.barrier.join();
    let standstill = member.stop_others_meanwhile(Some(&mut || aside.pass())).unwrap().unwrap();
    world.change();
    drop(standstill);
    world.command();
}

fn standing_aside(mistake: Mistake) {
    explore(mistake, &[World::cut, stand_aside], 1);
    explore(mistake, &[stop_others, stand_aside], 2);
    explore(mistake, &[stop_others_aside, stand_aside], 1);
}

/// A worker that has nothing to do for a while.
fn rest(world: &Arc<World>) {
    let member = world.barrier.join();
    world.idle(&member);
    world.command();
}

/// A worker whose command is several steps, which nobody comes between.
fn stop_others(world: &Arc<World>) {
    let member = world.barrier.join();
    world.command();
    let standstill = member.stop_others().unwrap().unwrap();
    world.change();
    member.quiesce();
    world.idle(&member);
    member.idle_for_turns(|| ());
    World::cut(world);
    drop(standstill);
    world.command();
}

/// A worker whose commands look at a page.
fn use_page(world: &Arc<World>) {
    let member = world.barrier.join();
    world.command_on_page();
    member.quiesce();
    world.command_on_page();
}

/// The same between two rests.
fn use_page_between_rests(world: &Arc<World>) {
    let member = world.barrier.join();
    member.idle(|| ());
    world.command_on_page();
    member.idle(|| ());
}

/// A worker that looks at a page while nobody else runs.
fn use_page_alone(world: &Arc<World>) {
    let member = world.barrier.join();
    let standstill = member.stop_others().unwrap().unwrap();
    world.command_on_page();
    member.quiesce();
    world.command_on_page();
    drop(standstill);
}

/// The same with a rest in between, in which nobody is let in but who waits for turns.
fn use_page_alone_between_rests(world: &Arc<World>) {
    let member = world.barrier.join();
    let standstill = member.stop_others().unwrap().unwrap();
    member.idle_for_turns(|| ());
    world.command_on_page();
    member.idle_for_turns(|| ());
    world.command_on_page();
    drop(standstill);
}

/// The barrier's action looks at a page.
fn use_page_in_action(world: &Arc<World>) {
    let at_cut = world.clone();
    world.barrier.run(move || at_cut.command_on_page()).unwrap();
}

fn eviction_beside_workers(mistake: Mistake) {
    explore(mistake, &[World::evict, use_page], 0);
    explore(mistake, &[World::evict, use_page_between_rests], 0);
    explore(mistake, &[World::evict, use_page, use_page_between_rests], 0);
}

fn eviction_beside_standstill(mistake: Mistake) {
    explore(mistake, &[World::evict, use_page_alone], 0);
    explore(mistake, &[World::evict, use_page_alone_between_rests], 0);
}

fn eviction_beside_action(mistake: Mistake) {
    explore(mistake, &[World::evict, use_page_in_action], 0);
    explore(mistake, &[World::evict, use_page_in_action, use_page], 0);
}

fn cut_beside_workers(mistake: Mistake) {
    explore(mistake, &[World::cut, work], 1);
    explore(mistake, &[World::cut, rest], 1);
    explore(mistake, &[World::cut, work, rest], 1);
}

fn two_cuts(mistake: Mistake) {
    explore(mistake, &[World::cut, World::cut, work], 2);
}

fn standstill_beside_worker(mistake: Mistake) {
    explore(mistake, &[stop_others, work], 2);
}

fn standstill_beside_cut(mistake: Mistake) {
    explore(mistake, &[stop_others, World::cut], 3);
}

fn two_standstills(mistake: Mistake) {
    explore(mistake, &[stop_others, stop_others], 4);
}

/// A cut for which nobody waits: it happens or is given up.
fn impatient_cut(world: &Arc<World>) {
    world.barrier.set_patience(Some(Duration::ZERO));
    let at_cut = world.clone();
    if world.barrier.run(move || at_cut.change()).is_err() {
        world.given_up.fetch_add(1, Ordering::Relaxed);
    }
}

/// A cut that panics, as its initiator finds.
fn panicking_cut(world: &Arc<World>) {
    let at_cut = world.clone();
    let cut = move || {
        at_cut.change();
        std::panic::resume_unwind(Box::new("of the action's"));
    };
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.barrier.run(cut)));
    assert!(found.is_err_and(|panic| panic.downcast_ref() == Some(&"of the action's")));
}

fn impatience(mistake: Mistake) {
    explore(mistake, &[impatient_cut, work], 1);
    explore(mistake, &[impatient_cut, work, rest], 1);
}

fn panics(mistake: Mistake) {
    explore(mistake, &[panicking_cut, work], 1);
    explore(mistake, &[panicking_cut, World::cut, work], 2);
}

/// What workers and handles change: without a lock while one worker has it to itself.
struct Keys {
    barrier: Arc<Barrier>,
    sharing: Sharing<Mutex<()>>,
    data: UnsafeCell<u32>,
}

// SAFETY: B1: that no two operations meet at the cell is what the model checks.
unsafe impl Sync for Keys {}

impl Keys {
    fn operate(&self) {
        let _lock = self.sharing.locks().map(Mutex::lock);
        // SAFETY: C10: that nobody changes it meanwhile is what the model checks.
        self.data.with(|place| unsafe { *place });
        thread::yield_now();
        // SAFETY: C10: that nobody else is at it is what the model checks.
        self.data.with_mut(|place| unsafe { *place += 1 });
    }

    fn share(self: &Arc<Self>) {
        if self.sharing.is_shared() || self.sharing.try_share(Mutex::default) {
            return;
        }
        let keys = self.clone();
        match is_spoilt(Mistake::SharesAtOnce) {
            true => self.sharing.share(Mutex::default),
            false => drop(self.barrier.run(move || keys.sharing.share(Mutex::default)).unwrap()),
        }
    }

    /// Two operations of a nonblocking worker.
    fn batch(self: &Arc<Self>) {
        let member = self.barrier.join_resting();
        if !self.sharing.come(true) {
            self.share();
        }
        member.resume();
        self.operate();
        member.quiesce();
        self.operate();
        drop(member);
        self.sharing.go(true);
    }

    /// An operation of a handle.
    fn handle(self: &Arc<Self>) {
        let member = self.barrier.join_resting();
        let _ = self.sharing.come(false);
        self.share();
        member.resume();
        self.operate();
        member.rest();
        self.sharing.go(false);
    }
}

fn explore_keys(mistake: Mistake, steps: &[fn(&Arc<Keys>)], changes: u32) {
    MISTAKE.with(|spoilt| spoilt.set(mistake));
    let steps = steps.to_vec();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let keys = Arc::new(Keys {
            barrier: Arc::default(),
            sharing: Sharing::new(false, Mutex::default),
            data: UnsafeCell::new(0),
        });
        let spawn = |&step: &fn(&Arc<Keys>)| {
            let keys = keys.clone();
            thread::spawn(move || step(&keys))
        };
        let threads: Vec<_> = steps.iter().map(spawn).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // SAFETY: B1: everybody is gone.
        assert_eq!(keys.data.with(|place| unsafe { *place }), changes, "no operation is lost");
    });
}

fn handle_beside_batch(mistake: Mistake) {
    explore_keys(mistake, &[Keys::batch, Keys::handle], 3);
    explore_keys(mistake, &[Keys::batch, Keys::handle, Keys::handle], 4);
}

fn two_batches(mistake: Mistake) {
    explore_keys(mistake, &[Keys::batch, Keys::batch], 4);
}

fn two_handles(mistake: Mistake) {
    explore_keys(mistake, &[Keys::handle, Keys::handle], 2);
}

const MODELS: [fn(Mistake); 14] = [
    impatience,
    panics,
    handle_beside_batch,
    two_batches,
    two_handles,
    cut_beside_workers,
    two_cuts,
    standstill_beside_worker,
    standstill_beside_cut,
    two_standstills,
    standing_aside,
    eviction_beside_workers,
    eviction_beside_standstill,
    eviction_beside_action,
];

#[test]
fn nobody_runs_beside_an_action() {
    MODELS.iter().for_each(|model| model(Mistake::None));
}

/// The checker finds what goes wrong: each model can fail.
#[test]
fn every_mistake_is_found() {
    let cases: [(Mistake, fn(Mistake)); 19] = [
        (Mistake::LostWakeUp, impatience),
        (Mistake::LostWakeUp, panics),
        (Mistake::SharesAtOnce, handle_beside_batch),
        (Mistake::SharesAtOnce, two_batches),
        (Mistake::NoTotalOrder, cut_beside_workers),
        (Mistake::RelaxedAccesses, cut_beside_workers),
        (Mistake::LostWakeUp, cut_beside_workers),
        (Mistake::WorksWhileIdle, cut_beside_workers),
        (Mistake::LostWakeUp, two_cuts),
        (Mistake::NoTotalOrder, standstill_beside_worker),
        (Mistake::LostWakeUp, standstill_beside_cut),
        (Mistake::LostWakeUp, two_standstills),
        (Mistake::LostWakeUp, standing_aside),
        (Mistake::LooksMeanwhile, standing_aside),
        (Mistake::NoGrace, eviction_beside_workers),
        (Mistake::NoTouch, eviction_beside_workers),
        (Mistake::NoFenceBetweenTurns, eviction_beside_workers),
        (Mistake::NoGrace, eviction_beside_standstill),
        (Mistake::NoGrace, eviction_beside_action),
    ];
    for (mistake, model) in cases {
        let found = std::panic::catch_unwind(|| model(mistake)).is_err();
        assert!(found, "{mistake:?} goes unnoticed");
    }
}
