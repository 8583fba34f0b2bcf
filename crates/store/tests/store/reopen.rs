//! What a start would find, beside the store that is open.

use std::sync::Arc;

use stillframe_pagepool::device::SimDevice;
use stillframe_store::digest::Difference;
use stillframe_store::log::LogOptions;
use stillframe_store::{digest, Cause, DbId, Deadline, NewValue, Options, ReopenError, Reopened, Store};
use stillframe_testkit::TempDir;

use crate::open;

fn set(store: &Store, key: &str, value: &str, cause: Cause) {
    let mut worker = store.worker();
    worker.steps().set_cause(cause);
    let key = worker.key(key.as_bytes());
    let value = NewValue::Bytes { bytes: value.as_bytes(), raw: false };
    worker.set(DbId(1), &key, value, Deadline::Clear).unwrap();
}

fn options() -> Options {
    Options { log: Some(LogOptions::default()), checkpoint_on_drop: false, ..Options::default() }
}

fn key(name: &[u8]) -> Option<Difference> {
    Some(Difference::Key { db: DbId(1), key: name.to_vec() })
}

fn difference(store: &Store, dir: &TempDir) -> Option<Difference> {
    let path = dir.path().join("second");
    let second = Reopened::new(store, &path, options()).unwrap();
    let (here, there) = (store.view().unwrap(), second.store().view().unwrap());
    let found = digest::first_difference((store, &here), (second.store(), &there), 0).unwrap();
    drop((there, second));
    assert!(!path.exists(), "its directory goes with it");
    found
}

#[test]
fn a_second_store_has_what_a_start_would_find() {
    let dir = TempDir::new("reopen");
    let store = open(&dir, options());
    set(&store, "a", "1", Cause::Call);
    store.checkpoint().unwrap();
    set(&store, "b", "2", Cause::Call);
    assert_eq!(difference(&store, &dir), None);
    // Not told to the log: as if an effect had been forgotten.
    set(&store, "b", "3", Cause::Load);
    assert_eq!(difference(&store, &dir), key(b"b"));
    store.checkpoint().unwrap();
    assert_eq!(difference(&store, &dir), None);
    set(&store, "c", "4", Cause::Load);
    assert_eq!(difference(&store, &dir), key(b"c"));
    set(&store, "a", "5", Cause::Call);
    assert_eq!(difference(&store, &dir), key(b"c"), "the others go on");
}

#[test]
fn without_a_log_that_is_the_last_checkpoint() {
    let dir = TempDir::new("reopen-no-log");
    let store = open(&dir, Options { log: None, ..options() });
    set(&store, "a", "1", Cause::Call);
    store.checkpoint().unwrap();
    assert_eq!(difference(&store, &dir), None);
    set(&store, "b", "2", Cause::Call);
    assert_eq!(difference(&store, &dir), key(b"b"));
    let nowhere = Store::open_on(Arc::new(SimDevice::new(1)), Options::default()).unwrap();
    let refused = Reopened::new(&nowhere, &dir.path().join("second"), options());
    assert!(matches!(refused, Err(ReopenError::NoDir)));
}

#[test]
fn a_directory_that_is_in_the_way_is_named_and_left() {
    let dir = TempDir::new("reopen-taken");
    let store = open(&dir, options());
    let path = dir.path().join("second");
    std::fs::create_dir(&path).unwrap();
    let Err(error) = Reopened::new(&store, &path, options()) else { panic!("it is taken") };
    assert!(error.to_string().contains("second"), "{error}");
    assert!(path.exists());
}
