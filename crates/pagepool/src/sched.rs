//! The scheduling class of threads that work in the background.
//!
//! Where the process may use one processor, a thread that works in the background takes that from those who serve. So its long
//! steps run in the kernel's idle class there, which gives way at once to any thread that wants to run. A thread of that class
//! may stand still for long, with whatever it has locked. So it locks nothing that others wait for, or raises itself before.
//!
//! ```text
//!               idly, on one processor               promptly; urgent; 10 s without a share
//!   NORMAL ───────────────────────────────▶ IDLE ────────────────────────────────────────────▶ RAISED
//!     ▲                                     │  ▲                                                │  │
//!     ├──────────── the step ends ──────────┘  └── done; urgent no more; a minute has passed ───┘  │
//!     └──────────────────────────────────────────────────────────────────────── the step ends ─────┘
//! ```
//! NORMAL and RAISED are `SCHED_OTHER`, IDLE is `SCHED_IDLE`. A thread is RAISED too where the system does not let it go idle and
//! come back (seccomp; from the idle class back to the normal one leads only `CAP_SYS_NICE`, or `RLIMIT_NICE` of 20). It rests
//! after its steps then, and so does one that is RAISED because it got no share: 1 ms in 20.
//!
//! Whether a thread gets a share is looked at from outside, by a thread that sleeps (`sf-watch`): one that stands still in the midst
//! of a step cannot.
//!
//! Threads that have not enrolled, those who serve among them, do everything at once.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::thread::{gettid, sched_getaffinity, Pid};
use rustix::time::{clock_gettime, ClockId};

use crate::held::Held;

/// How often a thread looks which processors the process may use.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A thread that has waited for the processor for most of this time is raised.
const STARVES_AFTER: Duration = Duration::from_secs(10);
/// For so long.
const RAISED_FOR: Duration = Duration::from_secs(60);
/// What a raised thread has run before it rests, and how many times as long it rests (1 ms in 20).
const RAISED_RUN: Duration = Duration::from_millis(1);
const RAISED_REST: u32 = 19;
/// The same where the idle class cannot be had: such a thread takes a quarter.
const REFUSED_RUN: Duration = Duration::from_micros(100);
const REFUSED_REST: u32 = 3;

/// Of a thread that works in the background.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Class {
    /// It is not in a long step, or there are several processors.
    Normal,
    /// It runs when nobody else wants to.
    Idle,
    /// It is in a long step, and is not idle.
    Raised,
}

impl Class {
    const ALL: [Class; 3] = [Class::Normal, Class::Idle, Class::Raised];

    /// What `INFO` calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Normal => "normal",
            Class::Idle => "idle",
            Class::Raised => "raised",
        }
    }
}

/// What the system lets threads of this process do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    /// They may become idle and come back.
    Full,
    /// They may become idle, and would stay so.
    OneWay,
    /// They may not become idle.
    Refused,
}

impl Support {
    /// What `INFO` calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Support::Full => "full",
            Support::OneWay => "one-way",
            Support::Refused => "refused",
        }
    }
}

/// How background threads are scheduled now.
#[derive(Clone, Debug)]
pub struct Report {
    /// Whether the process may use one processor alone.
    pub is_single: bool,
    pub support: Support,
    /// Name and class of each.
    pub threads: Vec<(String, Class)>,
    /// Steps that have been done in the idle class since the start.
    pub idle_step_count: u64,
}

/// What others see of a thread, and may do to it.
struct Enrolled {
    name: String,
    id: Pid,
    /// A [`Class`].
    class: AtomicU8,
    /// Whether the kernel has the thread in the idle class: changed with it. The thread may be idle while it has this locked, so
    /// others only try (Y1).
    is_idle: Mutex<bool>,
    /// It got no share: it is raised until then, in milliseconds since [`beginning`].
    starved_until_ms: AtomicU64,
}

impl Enrolled {
    fn is_starved(&self) -> bool {
        now_ms() < self.starved_until_ms.load(Ordering::Relaxed)
    }

    /// IDLE → RAISED, by another thread.
    fn raise(&self) {
        self.starved_until_ms.store(now_ms() + RAISED_FOR.as_millis() as u64, Ordering::Relaxed);
        // The thread that has it locked is about to see that.
        let Some(mut is_idle) = self.is_idle.try_lock() else { return };
        if *is_idle && set_kernel_class(Some(self.id), false) {
            *is_idle = false;
            self.class.store(Class::Raised as u8, Ordering::Relaxed);
        }
    }
}

static ENROLLED: Mutex<Vec<Weak<Enrolled>>> = Mutex::new(Vec::new());
static IS_WATCHED: AtomicBool = AtomicBool::new(false);
static IDLE_STEP_COUNT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OWN: OnceCell<OwnClass> = const { OnceCell::new() };
}

/// What a thread has got of the processor so far.
#[derive(Clone, Copy)]
struct Share {
    at: Instant,
    ran: Duration,
    waited: Duration,
}

impl Share {
    /// Of a thread of this process, if the kernel says.
    fn of(thread: Pid) -> Option<Share> {
        let path = format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero());
        let text = std::fs::read_to_string(path).ok()?;
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse().ok());
        let (ran, waited) = (fields.next()??, fields.next()??);
        let from = Duration::from_nanos;
        Some(Share { at: Instant::now(), ran: from(ran), waited: from(waited) })
    }

    /// Whether the thread has been kept from running since `before`.
    fn is_starved_since(&self, before: &Share) -> bool {
        let waited = self.waited.saturating_sub(before.waited);
        let ran = self.ran.saturating_sub(before.ran);
        waited * 2 > self.at - before.at && ran * (RAISED_REST + 1) < waited
    }
}

/// The class of the thread that has it.
struct OwnClass {
    shown: Arc<Enrolled>,
    /// Whether the process may use one processor, and when the thread last looked.
    is_single: Cell<bool>,
    looked_at: Cell<Option<Instant>>,
    is_in_step: Cell<bool>,
    prompt_depth: Cell<u32>,
    is_urgent: Cell<bool>,
    /// Time of the processor that the thread had used when it last rested.
    rested_at: Cell<Duration>,
}

impl OwnClass {
    fn new(name: &str) -> OwnClass {
        let shown = Arc::new(Enrolled {
            name: name.to_owned(),
            id: gettid(),
            class: AtomicU8::new(Class::Normal as u8),
            is_idle: Mutex::new(false),
            starved_until_ms: AtomicU64::new(0),
        });
        let mut enrolled = ENROLLED.lock();
        enrolled.retain(|thread| thread.strong_count() > 0);
        enrolled.push(Arc::downgrade(&shown));
        OwnClass {
            shown,
            is_single: Cell::new(false),
            looked_at: Cell::new(None),
            is_in_step: Cell::new(false),
            prompt_depth: Cell::new(0),
            is_urgent: Cell::new(false),
            rested_at: Cell::new(Duration::ZERO),
        }
    }

    fn is_single(&self) -> bool {
        let now = Instant::now();
        if self.looked_at.get().is_none_or(|at| now - at >= LOOK_AGAIN) {
            self.is_single.set(may_use_one_processor());
            self.looked_at.set(Some(now));
        }
        self.is_single.get()
    }

    /// Has the kernel's class follow.
    fn apply(&self) {
        let is_in_step = self.is_in_step.get();
        let wants_idle = is_in_step
            && self.prompt_depth.get() == 0
            && !self.is_urgent.get()
            && !self.shown.is_starved()
            && support() == Support::Full;
        if wants_idle && !IS_WATCHED.swap(true, Ordering::Relaxed) {
            start_watch();
        }
        let mut is_idle = self.shown.is_idle.lock();
        if wants_idle != *is_idle && set_kernel_class(None, wants_idle) {
            *is_idle = wants_idle;
            IDLE_STEP_COUNT.fetch_add(u64::from(wants_idle), Ordering::Relaxed);
        }
        let class = match (is_in_step, *is_idle) {
            (_, true) => Class::Idle,
            (true, false) => Class::Raised,
            (false, false) => Class::Normal,
        };
        self.shown.class.store(class as u8, Ordering::Relaxed);
    }

    fn idly<R>(&self, work: impl FnOnce() -> R) -> R {
        if self.is_in_step.get() || self.prompt_depth.get() > 0 || !self.is_single() {
            return work();
        }
        Held::assert_none();
        let step = Undo(self, |own| own.is_in_step.set(false));
        self.is_in_step.set(true);
        self.apply();
        let result = work();
        drop(step);
        self.rest();
        result
    }

    fn promptly<R>(&self, work: impl FnOnce() -> R) -> R {
        let _raised = Undo(self, |own| own.prompt_depth.set(own.prompt_depth.get() - 1));
        self.prompt_depth.set(self.prompt_depth.get() + 1);
        if self.is_in_step.get() {
            self.apply();
        }
        work()
    }

    fn give_way(&self) {
        if self.prompt_depth.get() > 0 || !self.is_single() {
            return;
        }
        if self.is_in_step.get() {
            if self.shown.is_starved() {
                self.apply();
            }
            return self.rest();
        }
        self.idly(std::thread::yield_now);
    }

    fn set_urgent(&self, is_urgent: bool) {
        if self.is_urgent.replace(is_urgent) != is_urgent && self.is_in_step.get() {
            self.apply();
        }
    }

    /// Rests after what the thread has run in the normal class although others were to go first.
    fn rest(&self) {
        let (run, rest) = match (support(), self.shown.is_starved()) {
            (Support::Full, false) => return,
            (Support::Full, true) => (RAISED_RUN, RAISED_REST),
            _ => (REFUSED_RUN, REFUSED_REST),
        };
        let used = used_processor_time();
        let ran = used.saturating_sub(self.rested_at.get());
        if ran < run {
            return;
        }
        // What it ran long ago, on several processors or because it was urgent, is nobody's loss.
        if !self.is_urgent.get() {
            std::thread::sleep(rest * ran.min(8 * run));
        }
        self.rested_at.set(used);
    }
}

/// Undoes a change of a thread's class when it goes, also if the thread unwinds.
struct Undo<'o>(&'o OwnClass, fn(&OwnClass));

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        let was_in_step = self.0.is_in_step.get();
        (self.1)(self.0);
        if was_in_step {
            self.0.apply();
        }
    }
}

/// The calling thread works in the background from now on.
pub fn enroll(name: &str) {
    OWN.with(|own| own.get_or_init(|| OwnClass::new(name)).apply());
}

fn with_own<R>(f: impl FnOnce(Option<&OwnClass>) -> R) -> R {
    // What a thread drops at its end may come here.
    match OWN.try_with(|_| ()) {
        Ok(()) => OWN.with(|own| f(own.get())),
        Err(_) => f(None),
    }
}

/// Does a step of background work of which nobody is to notice: in the idle class, where the process may use one processor.
/// The caller holds no lock and no latch, and takes none within that others wait for but by [`promptly`] (Y1). A thread that is
/// started within would be idle for good, unless by that.
pub fn idly<R>(work: impl FnOnce() -> R) -> R {
    with_own(|own| match own {
        Some(own) => own.idly(work),
        None => work(),
    })
}

/// Does what others may wait for, with a lock or a claim, and not in the idle class: neither a part of a step, nor a step within
/// (Y1).
pub fn promptly<R>(work: impl FnOnce() -> R) -> R {
    with_own(|own| match own {
        Some(own) => own.promptly(work),
        None => work(),
    })
}

/// Between two short steps of background work: lets any thread go first that wants to run on the one processor that there is. The
/// caller holds no lock and no latch, and no cut waits for it.
pub fn give_way() {
    with_own(|own| own.into_iter().for_each(OwnClass::give_way));
}

/// Whether somebody is going to wait for what this thread does from now on: then it is not idle, nor does it rest.
pub fn set_urgent(is_urgent: bool) {
    with_own(|own| own.into_iter().for_each(|own| own.set_urgent(is_urgent)));
}

/// Whether a step of this thread may take long and not be divided: nobody waits for its end.
pub fn may_take_long() -> bool {
    with_own(|own| own.is_none_or(|own| !own.is_single() || support() == Support::Full))
}

/// Whether this thread gives way to others because there is one processor.
pub fn gives_way() -> bool {
    with_own(|own| own.is_some_and(OwnClass::is_single))
}

/// How background threads are scheduled now.
pub fn report() -> Report {
    let class_of = |thread: &Enrolled| Class::ALL[usize::from(thread.class.load(Ordering::Relaxed)) % 3];
    let threads: Vec<_> = ENROLLED.lock().iter().filter_map(Weak::upgrade).collect();
    Report {
        is_single: may_use_one_processor(),
        support: support(),
        threads: threads.iter().map(|thread| (thread.name.clone(), class_of(thread))).collect(),
        idle_step_count: IDLE_STEP_COUNT.load(Ordering::Relaxed),
    }
}

/// Whether the process may use one processor alone, by its affinity or by the quota of its control group.
fn may_use_one_processor() -> bool {
    if std::thread::available_parallelism().is_ok_and(|count| count.get() > 1) {
        return false;
    }
    let own_count = sched_getaffinity(None).map_or(0, |own| own.count());
    // If it is not the thread's own affinity, it is the quota.
    own_count != 1 || has_one_processor_for_all()
}

/// Whether all threads have the same one processor: a few may have been put aside.
fn has_one_processor_for_all() -> bool {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return true };
    let ids = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    // One that has ended meanwhile has none.
    let sets = ids.filter_map(|id| sched_getaffinity(Some(Pid::from_raw(id)?)).ok());
    let mut first = None;
    sets.into_iter().all(|set| set.count() == 1 && *first.get_or_insert(set) == set)
}

/// Finds out with a thread that may be lost.
fn support() -> Support {
    static SUPPORT: OnceLock<Support> = OnceLock::new();
    let probe = || match (set_kernel_class(None, true), set_kernel_class(None, false)) {
        (true, true) => Support::Full,
        (true, false) => Support::OneWay,
        (false, _) => Support::Refused,
    };
    *SUPPORT.get_or_init(|| {
        let probed = std::thread::Builder::new().name("sf-probe".into()).spawn(probe);
        probed.ok().and_then(|thread| thread.join().ok()).unwrap_or(Support::Refused)
    })
}

/// Puts a thread, or the calling one, into the idle class, or the normal one. False if the system refuses.
fn set_kernel_class(thread: Option<Pid>, is_idle: bool) -> bool {
    let thread = thread.map_or(0, Pid::as_raw_pid);
    let policy = if is_idle { libc::SCHED_IDLE } else { libc::SCHED_OTHER };
    let priority: libc::c_int = 0;
    // SAFETY: A3: the kernel reads one number, `struct sched_param`, during the call, and memory stays as it is.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread, policy, &raw const priority) == 0 }
}

/// When this process first asked.
fn beginning() -> Instant {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    *BEGINNING.get_or_init(Instant::now)
}

fn now_ms() -> u64 {
    beginning().elapsed().as_millis() as u64
}

/// Starts the thread that raises those which get no share.
fn start_watch() {
    // Without it the idle class still gives a three hundredth of what others take.
    let started = std::thread::Builder::new().name("sf-watch".into()).spawn(watch);
    IS_WATCHED.store(started.is_ok(), Ordering::Relaxed);
}

/// Looks after all threads until none is left.
fn watch() {
    let mut before: HashMap<Pid, Share> = HashMap::new();
    loop {
        std::thread::sleep(STARVES_AFTER / 4);
        let threads: Vec<_> = ENROLLED.lock().iter().filter_map(Weak::upgrade).collect();
        if threads.is_empty() {
            return IS_WATCHED.store(false, Ordering::Relaxed);
        }
        before.retain(|id, _| threads.iter().any(|thread| thread.id == *id));
        for thread in threads {
            if before.get(&thread.id).is_some_and(|before| before.at.elapsed() < STARVES_AFTER) {
                continue;
            }
            let Some(share) = Share::of(thread.id) else { continue };
            if before.insert(thread.id, share).is_some_and(|before| share.is_starved_since(&before)) {
                thread.raise();
            }
        }
    }
}

fn used_processor_time() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec.max(0) as u64, used.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(ran_ms: u64, waited_ms: u64) -> Share {
        let from = Duration::from_millis;
        Share { at: Instant::now() + from(ran_ms + waited_ms), ran: from(ran_ms), waited: from(waited_ms) }
    }

    #[test]
    fn a_thread_that_hardly_runs_although_it_could_is_starved() {
        let before = share(0, 0);
        assert!(share(30, 9_970).is_starved_since(&before));
        assert!(!share(2_000, 8_000).is_starved_since(&before), "it has a share");
        let asleep = Share { at: before.at + STARVES_AFTER, ..share(5, 400) };
        assert!(!asleep.is_starved_since(&before), "it had nothing to do");
        assert!(Share::of(gettid()).is_some(), "the kernel says");
    }

    #[test]
    fn a_thread_that_has_not_enrolled_does_all_at_once() {
        std::thread::spawn(|| {
            give_way();
            set_urgent(true);
            assert_eq!(idly(|| promptly(|| 3)), 3);
            assert!(may_take_long() && !gives_way());
        })
        .join()
        .unwrap();
    }

    /// The kernel's word for the calling thread's class: 5 is idle.
    fn kernel_policy() -> u32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let after_name = stat.rsplit_once(") ").unwrap().1;
        after_name.split(' ').nth(38).unwrap().parse().unwrap()
    }

    /// In a step it is idle, raised where it takes a lock, and as before afterwards, also if it unwinds.
    #[test]
    fn the_class_follows_the_step() {
        if support() != Support::Full {
            return;
        }
        let body = || {
            enroll("test");
            let own_class = || {
                let found = report().threads.into_iter().find(|(name, _)| name == "test");
                found.map(|(_, class)| class)
            };
            OWN.with(|own| {
                let own = own.get().unwrap();
                own.is_single.set(true);
                own.looked_at.set(Some(Instant::now() + Duration::from_secs(3600)));
            });
            idly(|| {
                assert_eq!((kernel_policy(), own_class()), (5, Some(Class::Idle)));
                promptly(|| assert_eq!((kernel_policy(), own_class()), (0, Some(Class::Raised))));
                assert_eq!(kernel_policy(), 5);
                set_urgent(true);
                assert_eq!((kernel_policy(), own_class()), (0, Some(Class::Raised)));
                set_urgent(false);
                assert_eq!(kernel_policy(), 5);
                let child = promptly(|| std::thread::spawn(kernel_policy).join().unwrap());
                assert_eq!((child, kernel_policy()), (0, 5), "what it starts then is not idle");
            });
            assert_eq!((kernel_policy(), own_class()), (0, Some(Class::Normal)));
            let unwound = std::panic::catch_unwind(|| idly(|| panic!("on purpose")));
            assert_eq!((unwound.is_err(), kernel_policy()), (true, 0));
            let shown = OWN.with(|own| own.get().unwrap().shown.clone());
            idly(|| {
                assert_eq!(kernel_policy(), 5);
                promptly(|| std::thread::scope(|scope| drop(scope.spawn(|| shown.raise()).join())));
                assert_eq!((kernel_policy(), own_class()), (0, Some(Class::Raised)), "it got no share");
            });
            shown.starved_until_ms.store(0, Ordering::Relaxed);
            let raise_from_outside = |idle: &Enrolled| {
                *idle.is_idle.lock() = true;
                idle.raise();
                assert!(!*idle.is_idle.lock());
            };
            raise_from_outside(&shown);
            assert_eq!(kernel_policy(), 0);
        };
        std::thread::spawn(body).join().unwrap();
    }
}
