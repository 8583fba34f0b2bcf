//! Commands, views and saves while pages are on their way in, and hints that have become stale.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

use stillframe_pagepool::device::{Device, Gate, HookedDevice, SimDevice};
use stillframe_pagepool::PAGE_SIZE;
use stillframe_store::{DbId, Deadline, Fault, NewValue, OpError, Options, SaveError, Store, Worker};

const DB: DbId = DbId(0);

fn open(device: &Arc<HookedDevice>, worker_count: usize) -> Store {
    let device: Arc<dyn Device> = device.clone();
    let options = Options {
        database_count: 2,
        huge_pages: false,
        worker_count,
        pool_backend: stillframe_testkit::pool_backend(),
        ..Options::default()
    };
    Store::open_on(device, options).unwrap()
}

fn set(worker: &mut Worker, key: &[u8], value: &[u8]) -> Result<bool, OpError> {
    let key = worker.key(key);
    worker.set(DB, &key, NewValue::Bytes { bytes: value, raw: true }, Deadline::Clear)
}

/// What GET answers: the length that it announces, and the bytes that follow.
fn get(worker: &mut Worker, key: &[u8]) -> Result<(u64, Vec<u8>), OpError> {
    let key = worker.key(key);
    let reply = worker.get(DB, &key, |value| (value.len(), value.to_vec()))?;
    Ok(reply.expect("the key is there"))
}

/// Bytes that name their page.
fn pattern(first: u32, page_count: u32) -> Vec<u8> {
    let words = PAGE_SIZE / size_of::<u32>();
    (first..first + page_count)
        .flat_map(|page| std::iter::repeat_n(page.to_le_bytes(), words).flatten())
        .collect()
}

fn load(store: &Store, fault: Fault) -> mpsc::Receiver<()> {
    let (done, is_done) = mpsc::channel();
    store.load(fault, Box::new(move || done.send(()).unwrap()));
    is_done
}

/// A store with the values A and B, whose warm-up is held up in A and whose loader of B in the second part of it.
struct TwoLoaders {
    device: Arc<HookedDevice>,
    warm_up: Arc<Gate>,
    loader: Arc<Gate>,
    value: Vec<u8>,
}

impl TwoLoaders {
    fn new() -> TwoLoaders {
        let device = HookedDevice::new(SimDevice::new(1));
        let value = pattern(1_000_000, 3000);
        {
            let store = open(&device, 1);
            let mut worker = store.nonblocking_worker().unwrap();
            set(&mut worker, b"A", &pattern(0, 4000)).unwrap();
            set(&mut worker, b"B", &value).unwrap();
            worker.idle(|| store.checkpoint()).unwrap();
        }
        let (warm_up, loader) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
        let (in_warm_up, in_loader) = (warm_up.clone(), loader.clone());
        let (warm_bytes, load_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        device.before_read(Arc::new(move |read| {
            let passes = |bytes: &AtomicU64, limit| bytes.fetch_add(read.byte_len, Ordering::SeqCst) > limit;
            if read.thread == "sf-warm-up" && passes(&warm_bytes, 9 << 20) {
                in_warm_up.pass();
            }
            if read.thread.starts_with("sf-load") && passes(&load_bytes, 6 << 20) {
                in_loader.pass();
            }
        }));
        TwoLoaders { device, warm_up, loader, value }
    }

    /// Opens the store and brings both to their gates, then lets the warm-up go on.
    fn open(&self) -> (Store, Worker, mpsc::Receiver<()>) {
        let store = open(&self.device, 1);
        self.warm_up.wait_for_visitor();
        let mut worker = store.nonblocking_worker().unwrap();
        let key = worker.key(b"B");
        let Err(OpError::Fault(fault)) = worker.resolve(&[(DB, key)]) else { panic!("B is not in memory") };
        let is_done = load(&store, fault);
        self.loader.wait_for_visitor();
        self.warm_up.open();
        worker.idle(|| std::thread::sleep(Duration::from_millis(200)));
        worker.quiesce();
        (store, worker, is_done)
    }
}

fn wait_until_warm(store: &Store, worker: &mut Worker) {
    while store.is_warming_up() {
        worker.idle(|| std::thread::sleep(Duration::from_millis(1)));
    }
    worker.quiesce();
}

/// The value of B in a view, or why there is none.
fn viewed(store: &Store) -> Result<Vec<u8>, SaveError> {
    let mut found = Vec::new();
    store.view()?.for_each(|entry| {
        if entry.key == b"B" {
            found = entry.value.as_string().unwrap().to_vec();
        }
        Ok::<(), SaveError>(())
    })?;
    Ok(found)
}

/// The warm-up has read all that it reads itself, and another loader still reads: what that reads is not there yet.
#[test]
fn nothing_is_served_that_is_still_being_read() {
    let two = TwoLoaders::new();
    let (store, mut worker, is_done) = two.open();
    assert!(store.is_warming_up(), "a loader still reads");
    assert!(matches!(get(&mut worker, b"B"), Err(OpError::Fault(_))), "B is not in memory");
    let for_viewer = store.clone();
    let viewer = std::thread::spawn(move || viewed(&for_viewer));
    worker.idle(|| std::thread::sleep(Duration::from_millis(20)));
    two.loader.open();
    worker.idle(|| is_done.recv()).unwrap();
    assert!(worker.idle(|| viewer.join()).unwrap().unwrap() == two.value, "a view shows the value");
    wait_until_warm(&store, &mut worker);
    let (announced, bytes) = get(&mut worker, b"B").unwrap();
    assert!(announced == two.value.len() as u64 && bytes == two.value);
}

/// What another loader reads last turns out to be damaged: an error, in every way to read it, and no short reply.
#[test]
fn damage_that_another_loader_finds_last_is_an_error() {
    let two = TwoLoaders::new();
    let image = two.device.inner().image();
    let wanted = pattern(1_002_500, 1);
    let place = image.chunks(PAGE_SIZE).position(|page| page == wanted).unwrap() * PAGE_SIZE;
    two.device.inner().corrupt(place as u64 + 9, 1, |bytes| bytes[0] ^= 4);
    let (store, mut worker, is_done) = two.open();
    two.loader.open();
    worker.idle(|| is_done.recv()).unwrap();
    wait_until_warm(&store, &mut worker);
    assert!(store.pool().residency().has_damage());
    let error = get(&mut worker, b"B").expect_err("a page of B is damaged");
    assert!(matches!(&error, OpError::Damaged(text) if text.contains(&place.to_string())), "{error:?}");
    let view = worker.idle(|| viewed(&store));
    assert!(
        matches!(&view, Err(SaveError::Checkpoint(why)) if why.to_string().contains(&place.to_string())),
        "{view:?}"
    );
    assert_eq!(get(&mut worker, b"A").unwrap().0, 4000 * PAGE_SIZE as u64, "the rest is served");
}

/// While the warm-up waits for the disk no worker waits with it, nor does a cut.
#[test]
fn workers_do_not_wait_for_the_warm_ups_disk() {
    let device = HookedDevice::new(SimDevice::new(1));
    let key_count = 120_000;
    {
        let store = open(&device, 1);
        let mut worker = store.nonblocking_worker().unwrap();
        for number in 0..key_count {
            set(&mut worker, format!("key:{number}").as_bytes(), &[7; 100]).unwrap();
        }
        worker.idle(|| store.checkpoint()).unwrap();
    }
    let warm_up = Arc::new(Gate::default());
    let (in_warm_up, warm_bytes) = (warm_up.clone(), AtomicU64::new(0));
    device.before_read(Arc::new(move |read| {
        let so_far = warm_bytes.load(Ordering::SeqCst);
        if read.thread == "sf-warm-up" {
            warm_bytes.fetch_add(read.byte_len, Ordering::SeqCst);
            if so_far >= 8 << 20 {
                in_warm_up.pass();
            }
        }
    }));
    let store = open(&device, 1);
    warm_up.wait_for_visitor();
    let (has_cut, faults) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (resolved, all_resolved) = mpsc::channel();
        let (store, has_cut, faults) = (&store, &has_cut, &faults);
        scope.spawn(move || {
            let mut worker = store.nonblocking_worker().unwrap();
            for number in (0..key_count).step_by(100) {
                let bytes = format!("key:{number}");
                let key = worker.key(bytes.as_bytes());
                faults.fetch_add(u64::from(worker.resolve(&[(DB, key)]).is_err()), Ordering::Relaxed);
                worker.quiesce();
            }
            let _ = resolved.send(());
            while !has_cut.load(Ordering::Acquire) {
                worker.quiesce();
            }
        });
        let is_resolved = all_resolved.recv_timeout(Duration::from_secs(10));
        let saved = is_resolved.is_ok().then(|| store.checkpoint());
        // Before anything is asserted: or the test would hang with whoever hangs.
        has_cut.store(true, Ordering::Release);
        warm_up.open();
        assert!(is_resolved.is_ok(), "a worker waits for the disk");
        saved.expect("a cut").expect("a save");
    });
    assert!(faults.into_inner() > 0, "some pages are still on their way");
}

/// Leaves that a batch has found are joined and freed, and their pages are in somebody's value when it uses them.
#[test]
fn a_stale_hint_hides_no_page_of_a_value() {
    let store = open(&HookedDevice::new(SimDevice::new(1)), 2);
    let mut worker = store.nonblocking_worker().unwrap();
    let names: Vec<Vec<u8>> = (0..3000).map(|number| format!("key:{number}").into_bytes()).collect();
    for name in &names {
        set(&mut worker, name, &[7; 100]).unwrap();
    }
    let mut hinted: Vec<_> = names.iter().map(|name| worker.key(name)).collect();
    worker.prefetch().all(DB, &mut hinted);
    for name in &names {
        let key = worker.key(name);
        worker.remove(DB, &key).unwrap();
    }
    let value = pattern(0, 8);
    let objects: Vec<_> = (0..12).map(|number| format!("object:{number}")).collect();
    for name in &objects {
        set(&mut worker, name.as_bytes(), &value).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (other_store, stop, hinted) = (store.clone(), &stop, &hinted);
        scope.spawn(move || {
            let mut other = other_store.nonblocking_worker().unwrap();
            while !stop.load(Ordering::Relaxed) {
                for key in hinted.iter().step_by(7) {
                    other.remove(DB, key).unwrap();
                    other.quiesce();
                }
            }
        });
        let since = Instant::now();
        let mut wrong = None;
        while since.elapsed() < Duration::from_secs(2) && wrong.is_none() {
            for name in &objects {
                let reply = get(&mut worker, name.as_bytes());
                let replaced = set(&mut worker, name.as_bytes(), &value);
                let is_whole =
                    matches!(&reply, Ok((len, bytes)) if *len == bytes.len() as u64 && *bytes == value);
                if !is_whole || replaced.is_err() {
                    wrong = Some((reply.map(|(len, bytes)| (len, bytes.len())), replaced));
                }
                worker.quiesce();
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(wrong.is_none(), "announced and given, and replaced: {wrong:?}");
    });
}
