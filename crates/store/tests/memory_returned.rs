//! Memory that is freed goes back to the system. Alone in its process, whose resident memory it looks at.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stillframe_pagepool::device::{Device, SimDevice};
use stillframe_store::{DbId, Deadline, NewValue, Options, Store, Worker};

const DB: DbId = DbId(0);
const KEY_COUNT: u32 = 300_000;

fn resident_mb() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    (statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096) >> 20
}

fn fill(worker: &mut Worker) {
    for number in 0..KEY_COUNT {
        let bytes = format!("key:{number}");
        let key = worker.key(bytes.as_bytes());
        worker.set(DB, &key, NewValue::Bytes { bytes: &[7; 200], raw: true }, Deadline::Clear).unwrap();
        worker.quiesce();
    }
}

fn remove_all(worker: &mut Worker) {
    for number in 0..KEY_COUNT {
        let bytes = format!("key:{number}");
        let key = worker.key(bytes.as_bytes());
        worker.remove(DB, &key).unwrap();
        worker.quiesce();
    }
}

/// Waits for that little memory, and says how much it is.
fn wait_for(worker: &mut Worker, at_most_mb: u64) -> u64 {
    let since = Instant::now();
    while resident_mb() > at_most_mb && since.elapsed() < Duration::from_secs(20) {
        worker.idle(|| std::thread::sleep(Duration::from_millis(10)));
    }
    resident_mb()
}

#[test]
fn memory_goes_back_after_a_flush_and_after_deletes() {
    for huge_pages in [false, true] {
        let device: Arc<dyn Device> = Arc::new(SimDevice::new(1));
        let store = Store::open_on(device, Options { huge_pages, ..Options::default() }).unwrap();
        let mut worker = store.nonblocking_worker().unwrap();
        let empty = resident_mb();
        for round in 0..2 {
            fill(&mut worker);
            let full = resident_mb();
            assert!(full > empty + 65, "{full} MB full, {empty} MB empty");
            if round == 0 {
                worker.database(DB).flush().unwrap();
            } else {
                remove_all(&mut worker);
            }
            // Inner nodes are free for other use only after the next cut, and a huge page goes back whole.
            let at_most = if huge_pages && round > 0 { full - 20 } else { empty + 32 };
            let left = wait_for(&mut worker, at_most);
            println!("huge pages {huge_pages}, round {round}: {empty} MB empty, {full} full, {left} flushed");
            assert!(left <= at_most, "{left} MB are left of {full}, {empty} before");
        }
        worker.idle(|| store.pool().at_barrier(|_| ())).unwrap();
        store.pool().purge();
        let left = wait_for(&mut worker, empty + 16);
        println!("huge pages {huge_pages}: {left} MB purged, {} MB used", store.used_memory_bytes() >> 20);
        assert!(left <= empty + 16, "{left} MB are left, {empty} before");
        store.check().unwrap();
    }
}
