//! Background work where there is one processor: an idle thread holds nothing that others wait for, and none that allocates clears a
//! huge page.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
use stillframe_pagepool::sched::{self, Support};
use stillframe_pagepool::snapshot::NoSpill;
use stillframe_pagepool::{HeapMemory, Layout, Memory, PageId, Pool, PoolBackend, PoolOptions, PAGE_SIZE};
use stillframe_testkit::refuse;

const PATIENCE: Duration = Duration::from_secs(30);

/// The kernel's number of the idle class.
const IDLE: u32 = 5;

fn kernel_policy() -> u32 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    after_name.split(' ').nth(38).unwrap().parse().unwrap()
}

/// Runs `body` in a process of its own that may use one processor; its tests are those of this file by name.
fn on_one_processor(test: &str, body: impl FnOnce()) {
    const INNER: &str = "STILLFRAME_ON_ONE_PROCESSOR";
    if std::env::var(INNER).is_ok_and(|name| name == test) {
        return body();
    }
    let all = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap();
    let suite = std::env::current_exe().unwrap();
    // All its threads inherit it.
    let child = std::thread::spawn({
        let test = test.to_owned();
        move || {
            let mut one = CpuSet::new();
            one.set(first);
            sched_setaffinity(None, &one).unwrap();
            std::process::Command::new(suite)
                .args(["--exact", &test, "--nocapture", "--test-threads=1"])
                .env(INNER, &test)
                .output()
                .unwrap()
        }
    });
    let output = child.join().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// A thread that stands still in a long step, as one of the idle class does while others run.
#[derive(Default)]
struct Gate {
    /// Whether somebody stands there, and whether all may go on.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gate {
    fn stand(&self) {
        let mut state = self.state.lock().unwrap();
        if state.1 {
            return;
        }
        state.0 = true;
        self.changed.notify_all();
        let (_state, timeout) = self.changed.wait_timeout_while(state, PATIENCE, |state| !state.1).unwrap();
        assert!(!timeout.timed_out(), "somebody waits for a thread of the idle class");
    }

    fn wait_for_somebody(&self) {
        let state = self.state.lock().unwrap();
        let (_state, timeout) = self.changed.wait_timeout_while(state, PATIENCE, |state| !state.0).unwrap();
        assert!(!timeout.timed_out(), "nobody is idle");
    }

    fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

/// Memory in which an idle thread that populates stands still.
struct GatedMemory {
    inner: HeapMemory,
    gate: Arc<Gate>,
    seen: Arc<Seen>,
}

/// What threads of the background did.
#[derive(Default)]
struct Seen {
    idle_populated_bytes: AtomicU64,
    populated_bytes: AtomicU64,
    longest_populated_bytes: AtomicU64,
    /// Somebody gave memory back in the idle class, with the lock that this takes.
    discarded_idly: AtomicBool,
    discarded_bytes: AtomicU64,
    longest_discarded_bytes: AtomicU64,
}

impl Memory for GatedMemory {
    fn base(&self) -> NonNull<u8> {
        self.inner.base()
    }

    fn byte_len(&self) -> usize {
        self.inner.byte_len()
    }

    fn populate(&self, start: usize, byte_len: usize) {
        self.seen.populated_bytes.fetch_add(byte_len as u64, Ordering::Relaxed);
        self.seen.longest_populated_bytes.fetch_max(byte_len as u64, Ordering::Relaxed);
        if kernel_policy() == IDLE {
            self.seen.idle_populated_bytes.fetch_add(byte_len as u64, Ordering::Relaxed);
            self.gate.stand();
        }
        self.inner.populate(start, byte_len);
    }

    fn prefer_huge(&self, start: usize, byte_len: usize) {
        self.inner.prefer_huge(start, byte_len);
    }

    fn discard(&self, start: usize, byte_len: usize) {
        self.seen.discarded_idly.fetch_or(kernel_policy() == IDLE, Ordering::Relaxed);
        self.seen.discarded_bytes.fetch_add(byte_len as u64, Ordering::Relaxed);
        self.seen.longest_discarded_bytes.fetch_max(byte_len as u64, Ordering::Relaxed);
        self.inner.discard(start, byte_len);
    }
}

fn gated_pool(layout: Layout, backend: PoolBackend) -> (Arc<Pool>, Arc<Gate>, Arc<Seen>) {
    let options = PoolOptions { layout, backend, ..PoolOptions::default() };
    let (gate, seen) = (Arc::<Gate>::default(), Arc::<Seen>::default());
    let inner = HeapMemory::new(options.memory_bytes());
    let memory = GatedMemory { inner, gate: gate.clone(), seen: seen.clone() };
    (Arc::new(Pool::with_memory(Box::new(memory), &options, Arc::new(NoSpill)).unwrap()), gate, seen)
}

fn allocate(pool: &Pool, page_count: u32) -> PageId {
    pool.allocate_object(page_count, page_count).unwrap().id()
}

fn free(pool: &Pool, page: PageId, page_count: u32) {
    pool.free(pool.exclusive(page).unwrap(), page_count);
}

/// With the stock standing still in the idle class, a thread that allocates, frees and takes a view goes on.
#[test]
fn nobody_waits_for_an_idle_thread() {
    on_one_processor("nobody_waits_for_an_idle_thread", || {
        for backend in PoolBackend::WITHOUT_MODULE {
            let (pool, gate, seen) = gated_pool(Layout::TINY, backend);
            let first = allocate(&pool, 1);
            if sched::report().support != Support::Full {
                return;
            }
            gate.wait_for_somebody();
            let report = sched::report();
            assert!(report.is_single);
            let idle = report.threads.iter().filter(|(_, class)| class.name() == "idle");
            let idle: Vec<&str> = idle.map(|(name, _)| &name[..]).collect();
            let expected = if backend == PoolBackend::Array { "sf-frames" } else { "sf-stock" };
            assert!(idle.contains(&expected), "{idle:?}");
            for _ in 0..20 {
                let pages: Vec<PageId> = (0..400).map(|_| allocate(&pool, 1)).collect();
                let object = allocate(&pool, 64);
                let view = pool.view_after(|| ()).unwrap();
                free(&pool, object, 64);
                drop(view);
                pages.into_iter().for_each(|page| free(&pool, page, 1));
            }
            gate.open();
            free(&pool, first, 1);
            drop(pool);
            assert!(seen.idle_populated_bytes.load(Ordering::Relaxed) > 0);
            assert!(!seen.discarded_idly.load(Ordering::Relaxed), "with a lock");
        }
    });
}

/// A large object is given back in small steps, between which others have their turn.
#[test]
fn large_objects_go_in_small_steps() {
    on_one_processor("large_objects_go_in_small_steps", || {
        let layout = Layout { small_end: 1 << 14, region_len: 1 << 12, max_order: 12 };
        let (pool, gate, seen) = gated_pool(layout, PoolBackend::Vmcache);
        gate.open();
        let object = allocate(&pool, 4096);
        free(&pool, object, 4096);
        let whole = 4096 * PAGE_SIZE as u64;
        stillframe_testkit::eventually("it is given back", || {
            seen.discarded_bytes.load(Ordering::Relaxed) >= whole
        });
        assert!(seen.longest_discarded_bytes.load(Ordering::Relaxed) <= 256 << 10);
        assert_eq!(allocate(&pool, 4096), object, "and can be had again");
    });
}

/// Where the system refuses the class, background work goes on in short steps, and says so.
#[test]
fn without_the_idle_class_steps_are_short() {
    on_one_processor("without_the_idle_class_steps_are_short", || {
        refuse(&[libc::SYS_sched_setscheduler], libc::EPERM);
        let (pool, _gate, seen) = gated_pool(Layout::TINY, PoolBackend::Vmcache);
        let pages: Vec<PageId> = (0..600).map(|_| allocate(&pool, 1)).collect();
        stillframe_testkit::eventually("memory is populated", || {
            seen.populated_bytes.load(Ordering::Relaxed) > 1 << 20
        });
        assert!(seen.longest_populated_bytes.load(Ordering::Relaxed) <= 64 << 10);
        assert_eq!(seen.idle_populated_bytes.load(Ordering::Relaxed), 0);
        assert_eq!(sched::report().support, Support::Refused);
        pages.into_iter().for_each(|page| free(&pool, page, 1));
    });
}

/// Memory of the process in huge pages, in bytes.
fn huge_bytes() -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = smaps.lines().find(|line| line.starts_with("AnonHugePages:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Page faults of this thread that wanted no disk.
fn fault_count() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    after_name.split(' ').nth(7).unwrap().parse().unwrap()
}

/// Writes to new pages, 64 MB in all.
fn fill(pool: &Pool) -> Vec<PageId> {
    let new_page = |number: u64| {
        let mut guard = pool.allocate_object(1, 1).unwrap();
        guard.page_mut()[..8].copy_from_slice(&number.to_le_bytes());
        guard.id()
    };
    (0..16_384).map(new_page).collect()
}

/// With the stock stopped, each page that is first touched is one of 4 KB: none of 2 MB is cleared by a thread that allocates.
#[test]
fn who_allocates_clears_no_huge_page() {
    on_one_processor("who_allocates_clears_no_huge_page", || {
        for backend in PoolBackend::WITHOUT_MODULE {
            let options = PoolOptions { backend, populates_ahead: false, ..PoolOptions::default() };
            let pool = Pool::in_memory(&options).unwrap();
            let first = allocate(&pool, 1);
            let (huge_before, faults_before) = (huge_bytes(), fault_count());
            let pages = fill(&pool);
            assert_eq!(huge_bytes(), huge_before, "of the filled pages, {backend}");
            assert!(fault_count() - faults_before >= 16_384, "each page is a fault of its own");
            pages.into_iter().for_each(|page| free(&pool, page, 1));
            pool.purge();
            fill(&pool);
            assert_eq!(huge_bytes(), huge_before, "after a purge, too, {backend}");
            free(&pool, first, 1);
        }
    });
}

/// What the stock populates lies in huge pages, where the system has any, and what has been given back does not.
#[test]
fn the_stock_populates_huge_pages() {
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if enabled.is_empty() || enabled.contains("[never]") {
        return;
    }
    on_one_processor("the_stock_populates_huge_pages", || {
        let pool = Pool::in_memory(&PoolOptions::default()).unwrap();
        let before = huge_bytes();
        let first = allocate(&pool, 1);
        stillframe_testkit::eventually("the stock is there", || huge_bytes() >= before + (4 << 20));
        free(&pool, first, 1);
    });
}
