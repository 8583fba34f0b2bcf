//! Collections against models: through growth, restarts, missing pages and copies. A failure is replayed with
//! `STILLFRAME_SEED=<seed>`.

mod effects;
mod handles;
mod hash;
mod list;
mod set;
mod sorted_set;

use std::sync::mpsc;

use stillframe_store::{Fault, OpError, Options, Store, Worker};
use stillframe_testkit::TempDir;

fn open(dir: &TempDir, options: Options) -> Store {
    let options = Options { pool_backend: stillframe_testkit::pool_backend(), ..options };
    Store::open(dir.path(), options).expect("the store opens")
}

fn load(store: &Store, worker: &mut Worker, fault: Fault) {
    let (sender, receiver) = mpsc::channel();
    store.load(fault, Box::new(move || sender.send(()).expect("the waiter is there")));
    worker.idle(|| receiver.recv()).expect("the load reports");
}

/// Runs an operation as a server does: on a fault, which has changed nothing, loads and runs it again.
fn retried<R>(
    store: &Store,
    worker: &mut Worker,
    mut operation: impl FnMut(&mut Worker) -> Result<R, OpError>,
) -> R {
    for _ in 0..10_000 {
        match operation(worker) {
            Ok(result) => return result,
            Err(OpError::Fault(fault)) => load(store, worker, fault),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the pages never come");
}

/// Waits until what nothing refers to is free, and checks everything.
fn check(store: &Store, worker: &mut Worker) {
    while !store.is_tidy() {
        worker.idle(|| std::thread::sleep(std::time::Duration::from_millis(1)));
    }
    worker.idle(|| store.check()).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn on_array() {
    stillframe_testkit::run_suite_on_array(&[]);
}
