//! A program that has the store in its own process, and what it may do to it: whatever compiles neither damages data nor
//! stops the others.

mod callbacks;
mod memory;
mod sharing;
mod workers;

use std::sync::mpsc;
use std::time::Duration;

use stillframe_store::{DbId, Deadline, NewValue, OpError, Options, Store, Worker};
use stillframe_testkit::TempDir;

pub const DB: DbId = DbId(0);
/// A call that has not come back after that never will.
const HUNG_AFTER: Duration = Duration::from_secs(60);

pub fn open(dir: &TempDir, options: Options) -> Store {
    let options = Options { huge_pages: false, pool_backend: stillframe_testkit::pool_backend(), ..options };
    Store::open(dir.path(), options).expect("the store opens")
}

/// Runs `f` in a thread of its own, which must end.
pub fn in_time<R: Send + 'static>(what: &str, f: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || drop(sender.send(f())));
    match receiver.recv_timeout(HUNG_AFTER) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what} hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it has panicked"))
        }
    }
}

/// A checkpoint by another thread.
pub fn checkpoint_elsewhere(store: &Store) -> Result<(), stillframe_store::SaveError> {
    let store = store.clone();
    in_time("a checkpoint", move || store.checkpoint().map(drop))
}

pub fn set(worker: &mut Worker, name: &str, value: &[u8]) -> Result<bool, OpError> {
    let key = worker.key(name.as_bytes());
    worker.set(DB, &key, NewValue::Bytes { bytes: value, raw: true }, Deadline::Clear)
}

pub fn get(worker: &mut Worker, name: &str) -> Result<Option<Vec<u8>>, OpError> {
    let key = worker.key(name.as_bytes());
    worker.get(DB, &key, |value| value.to_vec())
}
