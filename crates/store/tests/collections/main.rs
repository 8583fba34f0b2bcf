//! Collections against models: through growth, restarts, missing pages and copies. A failure is replayed with
//! `STILLFRAME_SEED=<seed>`.

mod any;
mod effects;
#[cfg(debug_assertions)]
mod failures;
mod handles;
mod hash;
mod input;
mod list;
#[allow(dead_code)]
mod model;
mod set;
mod shortage;
mod sorted_set;
mod stream;
mod stream_model;

use stillframe_store::{OpError, Options, Store, Worker};
use stillframe_testkit::TempDir;

fn open(dir: &TempDir, options: Options) -> Store {
    let options = Options { pool_backend: stillframe_testkit::pool_backend(), ..options };
    Store::open(dir.path(), options).expect("the store opens")
}

/// Runs an operation of a store that is whole.
fn retried<R>(
    store: &Store,
    worker: &mut Worker,
    operation: impl FnMut(&mut Worker) -> Result<R, OpError>,
) -> R {
    model::tried(store, worker, operation).unwrap_or_else(|error| panic!("{error}"))
}

/// Waits until what nothing refers to is free, and checks everything.
fn check(store: &Store, worker: &mut Worker) {
    while !store.is_tidy() {
        worker.idle(|| std::thread::sleep(std::time::Duration::from_millis(1)));
    }
    worker.idle(|| store.check()).unwrap_or_else(|error| panic!("{error}"));
}
