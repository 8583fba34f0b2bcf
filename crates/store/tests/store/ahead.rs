//! Views of more data than memory holds: they read ahead, past memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::Arc;

use stillframe_pagepool::device::{HookedDevice, SimDevice};
use stillframe_pagepool::PAGE_SIZE;
use stillframe_store::{DbId, Deadline, Lost, NewValue, OpError, Options, SaveError, Store, View, Worker};

const DB: DbId = DbId(0);

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store with 8 MB of memory.
fn open(device: &Arc<HookedDevice>) -> Store {
    let options = Options {
        tiered_bytes: 8 << 20,
        snapshot_memory_bytes: 1 << 20,
        pool_backend: stillframe_testkit::pool_backend(),
        ..Options::default()
    };
    Store::open_on(device.clone(), options).unwrap()
}

/// Sets a key, however often pages or memory have to be waited for.
fn set(store: &Store, worker: &mut Worker, key: &[u8], value: &[u8]) {
    loop {
        worker.quiesce();
        let key = worker.key(key);
        match worker.set(DB, &key, NewValue::Bytes { bytes: value, raw: true }, Deadline::Clear) {
            Ok(_) => return,
            Err(OpError::Fault(fault)) => {
                let (done, is_done) = channel();
                store.load(fault, Box::new(move || done.send(()).expect("the test waits")));
                worker.idle(|| is_done.recv()).expect("the load ends");
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// Values in leaves, in slabs and in objects, a few of which are longer than a view reads at once; some keys are long.
fn entry(rng: &mut fastrand::Rng, number: u32) -> (Vec<u8>, Vec<u8>) {
    let key_bytes = if rng.u8(..10) == 0 { 700 } else { 10 };
    let value_bytes = match rng.u32(..1000) {
        0..=1 => rng.usize(4_000_000..6_000_000),
        2..=20 => rng.usize(10_000..300_000),
        21..=500 => rng.usize(500..9_000),
        _ => rng.usize(..400),
    };
    let mut value = vec![0; value_bytes];
    rng.fill(&mut value);
    (format!("{number:0key_bytes$}").into_bytes(), value)
}

fn fill(store: &Store, worker: &mut Worker, rng: &mut fastrand::Rng) -> Content {
    let content: Content = (0..4_000).map(|number| entry(rng, number)).collect();
    content.iter().for_each(|(key, value)| set(store, worker, key, value));
    content
}

/// What a view shows, and what it leaves out.
fn seen(view: &View) -> (Content, Vec<Lost>) {
    let (mut content, mut lost) = (Content::new(), Vec::new());
    let take = |entry: stillframe_store::ViewEntry<'_>| {
        let value = entry.value.as_string().unwrap().to_vec();
        assert!(content.insert(entry.key.to_vec(), value).is_none(), "a key is shown once");
        Ok::<(), SaveError>(())
    };
    view.for_each_readable(take, |what| lost.push(what)).unwrap();
    (content, lost)
}

/// While the view is read, all that it shows is overwritten or removed.
#[test]
fn a_view_shows_data_larger_than_memory_while_it_changes() {
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let store = open(&HookedDevice::new(SimDevice::new(1)));
    let mut worker = store.nonblocking_worker().unwrap();
    let content = fill(&store, &mut worker, &mut rng);
    let view = worker.idle(|| store.view()).unwrap();
    let reader = std::thread::spawn(move || seen(&view));
    while !reader.is_finished() {
        let (key, _) = content.iter().nth(rng.usize(..content.len())).unwrap();
        let value_bytes = rng.usize(..5_000);
        set(&store, &mut worker, key, &vec![7; value_bytes]);
    }
    let (found, lost) = worker.idle(|| reader.join()).unwrap();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(found == content, "{} of {} keys", found.len(), content.len());
}

/// A check goes through data larger than memory, and does not bring it in.
#[test]
fn data_larger_than_memory_is_checked() {
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let store = open(&HookedDevice::new(SimDevice::new(1)));
    let mut worker = store.nonblocking_worker().unwrap();
    let content = fill(&store, &mut worker, &mut rng);
    worker.idle(|| store.checkpoint()).unwrap();
    let before = store.pool().room().resident_pages();
    let report = worker.idle(|| store.check()).unwrap();
    assert_eq!(report.key_count, content.len() as u64);
    let after = store.pool().room().resident_pages();
    assert!(
        report.object_page_count > 2 * before && after <= before + 1_000,
        "{before} pages before, {after} after"
    );
}

/// A view asks for many pages at once, does not bring them into memory, and a damaged one costs its own value alone.
#[test]
fn a_view_reads_ahead_and_past_a_damaged_page() {
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let device = HookedDevice::new(SimDevice::new(1));
    let store = open(&device);
    let mut worker = store.nonblocking_worker().unwrap();
    let content = fill(&store, &mut worker, &mut rng);
    worker.idle(|| store.checkpoint()).unwrap();
    let data_pages = content.values().map(Vec::len).sum::<usize>() / PAGE_SIZE;
    let (before, read_count) = (store.pool().room().resident_pages(), Arc::new(AtomicUsize::new(0)));
    assert!(data_pages as u64 > 2 * before, "{data_pages} pages of data, {before} in memory");
    let count = read_count.clone();
    device.before_read(Arc::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let view = worker.idle(|| store.view()).unwrap();
    let (found, lost) = seen(&view);
    assert!(found == content && lost.is_empty(), "{lost:?}");
    let (read_count, after) = (read_count.load(Ordering::Relaxed), store.pool().room().resident_pages());
    assert!(read_count < data_pages / 4, "{read_count} reads of {data_pages} pages");
    assert!(after <= before, "{before} pages were in memory, {after} are");

    // A page of each object; some may be in memory, most are not.
    let damaged: BTreeMap<&[u8], &Vec<u8>> = (content.iter().filter(|(_, value)| value.len() > 50_000))
        .map(|(key, value)| (&value[5 * PAGE_SIZE..6 * PAGE_SIZE], key))
        .collect();
    let image = device.inner().image();
    for (number, _) in image.chunks(PAGE_SIZE).enumerate().filter(|(_, page)| damaged.contains_key(page)) {
        device.inner().corrupt((number * PAGE_SIZE) as u64, 1, |bytes| bytes[0] ^= 4);
    }
    let (found, lost) = seen(&view);
    let is_damaged = |key: &Vec<u8>| damaged.values().any(|damaged| *damaged == key);
    let is_told = |lost: &Lost| matches!(lost, Lost::Value { key, .. } if is_damaged(key));
    assert!(lost.len() > damaged.len() / 4 && lost.iter().all(is_told), "{lost:?}");
    assert_eq!(found.len(), content.len() - lost.len());
    assert!(found.iter().all(|(key, value)| content[key] == *value));
}
