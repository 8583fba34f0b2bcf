//! The process that is killed: opens the store, finds out where it was, and goes on from there.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Barrier;
use std::time::Duration;

use parking_lot::Mutex;
use stillframe_store::{Element, Options, SaveError, Store, Value, View};

use crate::ops::Script;
use crate::owner::{self, Owner};
use crate::slips;
use crate::strings::Strings;

/// Threads with handles; one more has a worker.
pub const OWNERS: usize = 4;
/// A thread that does nothing for so long hangs.
const HANGS_AFTER_S: u32 = 60;

/// What the parent asks for.
pub struct Task {
    pub dir: PathBuf,
    pub seed: u64,
    /// Decides how the store is opened, and the rest that does not belong to the scripts.
    pub round: u64,
    /// Operations that a checkpoint has, by thread.
    pub floors: Vec<u64>,
}

/// What all threads of a run look at.
struct Run {
    is_over: AtomicBool,
    /// The operation that each is about to do.
    at: Vec<AtomicU64>,
}

impl Run {
    fn goes_on(&self, thread: usize, number: u64) -> bool {
        self.at[thread].store(number, Ordering::SeqCst);
        !self.is_over.load(Ordering::SeqCst)
    }

    fn numbers(&self) -> Vec<u64> {
        self.at.iter().map(|number| number.load(Ordering::SeqCst)).collect()
    }
}

fn options(random: &mut fastrand::Rng) -> Options {
    const MB: u64 = 1 << 20;
    let memory_mb = [0, 16, 32, 96][random.usize(..4)];
    Options {
        database_count: 2,
        memory_bytes: memory_mb * MB,
        snapshot_memory_bytes: [MB, 4 * MB, 64 * MB][random.usize(..3)],
        huge_pages: random.bool(),
        pool_backend: stillframe_testkit::pool_backend(),
        ..Options::default()
    }
}

fn say(word: &str, numbers: &[u64]) {
    let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
    // Without a parent there is nobody to tell.
    let _ = writeln!(std::io::stdout(), "{word} {}", numbers.join(" "));
}

/// How the threads of a run find out together where the store is.
struct Start {
    /// Twice: each has found its structures; their sums have been compared.
    ready: Barrier,
    /// How often each has counted up, at least and at most.
    counts: Mutex<Vec<(u64, u64)>>,
    /// Counts beyond the least, of threads that cannot know of their last one.
    excess: AtomicU64,
}

pub fn run(task: &Task) {
    let mut random = fastrand::Rng::with_seed(task.seed.wrapping_mul(1_000).wrapping_add(task.round));
    let options = options(&mut random);
    let store =
        Store::open(&task.dir, options.clone()).unwrap_or_else(|error| panic!("{options:?}: {error}"));
    owner::open_bank(&store);
    let run =
        Run { is_over: AtomicBool::new(false), at: task.floors.iter().map(|_| AtomicU64::new(0)).collect() };
    let start = Start {
        ready: Barrier::new(OWNERS + 2),
        counts: Mutex::new(vec![(0, 0); OWNERS]),
        excess: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        let (store, run, start) = (&store, &run, &start);
        for thread in 0..OWNERS {
            let random = random.fork();
            scope.spawn(move || own(store, run, start, task, thread, random));
        }
        scope.spawn(|| keep_strings(store, run, start, task));
        let _ends = EndsRun;
        start.ready.wait();
        compare_sums(store, start);
        start.ready.wait();
        say("READY", &[]);
        let (of_checkpoints, of_views) = (random.fork(), random.fork());
        scope.spawn(move || checkpoints(store, run, of_checkpoints));
        scope.spawn(move || views(store, run, of_views));
        scope.spawn(|| watch(run));
        // A line, or the end of the parent.
        let _ = std::io::stdin().lock().lines().next();
        run.is_over.store(true, Ordering::SeqCst);
    });
    stillframe_testkit::eventually("a tidy store", || store.is_tidy());
    store.check().unwrap_or_else(|error| panic!("in the end: {error}"));
    store.close().unwrap_or_else(|error| panic!("the store does not close: {error}"));
    say("SAVED", &run.numbers());
}

/// A thread with handles.
fn own(store: &Store, run: &Run, start: &Start, task: &Task, thread: usize, mut random: fastrand::Rng) {
    let _ends = EndsRun;
    let mut owner = Owner::resume(store, Script { seed: task.seed, thread: thread as u64 });
    let (found, floor) = (owner.most_done(), task.floors[thread]);
    assert!(found >= floor, "thread {thread} has lost what was saved: {found} of {floor}");
    start.counts.lock()[thread] = owner.counts();
    start.ready.wait();
    start.ready.wait();
    let (least, most) = owner.counts();
    let take = |left: u64| left.checked_sub(1);
    owner.settle(most > least && start.excess.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok());
    owner.run(|number| {
        if random.u32(..200) == 0 {
            slips::slip_once(store, &mut random);
        }
        run.goes_on(thread, number)
    });
}

/// The thread with a worker.
fn keep_strings(store: &Store, run: &Run, start: &Start, task: &Task) {
    let _ends = EndsRun;
    let mut strings = Strings::resume(store, Script { seed: task.seed, thread: OWNERS as u64 });
    let (found, floor) = (strings.most_done(), task.floors[OWNERS]);
    assert!(found >= floor, "strings have lost what was saved: {found} of {floor}");
    start.ready.wait();
    start.ready.wait();
    strings.run(|number| run.goes_on(OWNERS, number));
}

/// Ends the process if a thread of it unwinds: the others would wait for it.
struct EndsRun;

impl Drop for EndsRun {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::exit(101);
        }
    }
}

/// All threads' structures are of one moment: what they count together is what each has counted.
fn compare_sums(store: &Store, start: &Start) {
    owner::audit(store);
    let (least, most) =
        start.counts.lock().iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
    let count = owner::shared_count(store);
    assert!((least..=most).contains(&count), "{count} counted together, {least} to {most} by each");
    start.excess.store(count - least, Ordering::SeqCst);
    // What an earlier process was about to free, or to use, is garbage of this one.
    stillframe_testkit::eventually("a tidy store", || store.is_tidy());
    store.check().unwrap_or_else(|error| panic!("after opening: {error}"));
}

fn checkpoints(store: &Store, run: &Run, mut random: fastrand::Rng) {
    let _ends = EndsRun;
    while !run.is_over.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(random.u64(5..300)));
        // What is done before the cut is in the checkpoint.
        let numbers = run.numbers();
        match store.checkpoint() {
            Ok(_) => say("SAVED", &numbers),
            Err(SaveError::InProgress) => {}
            Err(error) => panic!("checkpoint: {error}"),
        }
    }
}

/// A view that is walked twice is the same, whatever others do meanwhile.
fn views(store: &Store, run: &Run, mut random: fastrand::Rng) {
    let _ends = EndsRun;
    while !run.is_over.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(random.u64(5..400)));
        let view = match store.view() {
            Ok(view) => view,
            Err(error) => panic!("view: {error}"),
        };
        let first = content_of(&view);
        std::thread::sleep(Duration::from_millis(random.u64(..100)));
        assert_eq!(content_of(&view), first, "a view has changed");
    }
}

/// How many entries a view has, and a hash of what it gives, in its order.
fn content_of(view: &View) -> (u64, u64) {
    let (mut entry_count, mut hasher) = (0_u64, DefaultHasher::new());
    let walked = view.for_each(|entry| {
        entry_count += 1;
        hasher.write(entry.key);
        match &entry.value {
            Value::String(string) => string.chunks(0, u64::MAX, |chunk| hasher.write(chunk)),
            Value::Collection(collection) => collection.for_each(&mut |element| {
                match element {
                    Element::Field { field, value, .. } => (field, value).hash(&mut hasher),
                    Element::Record { key, value } => (key, value).hash(&mut hasher),
                    Element::Member(name) | Element::Item(name) => name.hash(&mut hasher),
                    Element::Scored { member, score } => (member, score.to_bits()).hash(&mut hasher),
                }
                Ok(())
            })?,
        }
        Ok::<(), SaveError>(())
    });
    walked.unwrap_or_else(|error| panic!("a walk of a view: {error}"));
    (entry_count, hasher.finish())
}

/// A thread of which nothing is heard for long hangs: the process ends, with what each was at.
fn watch(run: &Run) {
    let mut seen = run.numbers();
    let mut still_s = vec![0_u32; seen.len()];
    while !run.is_over.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_secs(1));
        let numbers = run.numbers();
        for (thread, number) in numbers.iter().enumerate() {
            still_s[thread] = if seen[thread] == *number { still_s[thread] + 1 } else { 0 };
        }
        seen = numbers;
        if still_s.iter().any(|still_s| *still_s >= HANGS_AFTER_S) {
            eprintln!("a thread hangs: {seen:?}, still for {still_s:?} s");
            std::process::exit(102);
        }
    }
}
