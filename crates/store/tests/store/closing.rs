//! What is saved when a store goes, and what is said if it cannot be.

use std::process::Command;
use std::sync::Arc;

use stillframe_pagepool::device::SimDevice;
use stillframe_store::{DbId, Deadline, NewValue, Options, Store};
use stillframe_testkit::TempDir;

use crate::open;

const DB: DbId = DbId(0);

fn page_file(dir: &TempDir) -> Vec<u8> {
    std::fs::read(dir.path().join("stillframe.pages")).unwrap()
}

fn off() -> Options {
    Options { checkpoint_on_drop: false, ..Options::default() }
}

/// Each kind of change alone is enough, by whichever clone, handle or worker goes last.
#[test]
fn what_has_changed_is_saved() {
    let dir = TempDir::new("closing");
    let store = open(&dir, Options::default());
    let tree = store.tree("t").unwrap();
    drop(store);
    drop(tree);
    assert_eq!(open(&dir, off()).tree_names().unwrap(), [b"t"]);
    type Change = fn(&Store);
    let changes: [(&str, Change); 9] = [
        ("put", |store| {
            store.tree("t").unwrap().put("a", "1").unwrap();
        }),
        ("put over", |store| {
            store.tree("t").unwrap().put("a", "2").unwrap();
        }),
        ("transaction", |store| store.tree("t").unwrap().transaction(|tx| tx.put("b", "3")).unwrap()),
        ("remove", |store| {
            store.tree("t").unwrap().remove("a").unwrap();
        }),
        ("bulk", |store| {
            store.tree("bulk").unwrap().bulk_load([("x", "y")]).unwrap();
        }),
        ("drop", |store| {
            store.drop_tree("t").unwrap();
        }),
        ("hash", |store| {
            store.hash("h").set("f", "v").unwrap();
        }),
        ("worker", |store| {
            let mut worker = store.worker();
            let key = worker.key(b"k");
            worker.set(DB, &key, NewValue::Int(1), Deadline::Clear).unwrap();
        }),
        ("flush", |store| store.worker().database(DB).flush().unwrap()),
    ];
    for (what, change) in changes {
        let store = open(&dir, Options::default());
        let before = page_file(&dir);
        change(&store);
        drop(store);
        assert!(page_file(&dir) != before, "{what} is lost");
    }
    let store = open(&dir, off());
    assert_eq!(store.tree_names().unwrap(), [b"bulk"]);
    assert_eq!(store.tree("bulk").unwrap().get("x").unwrap().as_deref(), Some(&b"y"[..]));
    assert_eq!(store.db_stats(DB).key_count, 0);
}

#[test]
fn nothing_is_written_for_nothing() {
    let dir = TempDir::new("closing");
    let store = open(&dir, Options::default());
    store.hash("h").set("f", "v").unwrap();
    store.tree("t").unwrap().put("k", "v").unwrap();
    store.close().unwrap();
    let saved = page_file(&dir);
    let store = open(&dir, Options::default());
    assert_eq!(store.hash("h").get("f").unwrap().as_deref(), Some(&b"v"[..]));
    assert!(!store.hash("h").remove("other").unwrap() && !store.tree("t").unwrap().remove("other").unwrap());
    drop(store.view().unwrap());
    drop(store);
    open(&dir, Options::default()).close().unwrap();
    assert!(page_file(&dir) == saved);
    let store = open(&dir, off());
    store.hash("h").set("f", "other").unwrap();
    drop(store);
    assert!(page_file(&dir) == saved, "it is switched off");
}

/// Of several clones each may be closed; the last one gives the directory free.
#[test]
fn clones_are_closed_one_by_one() {
    let dir = TempDir::new("closing");
    let store = open(&dir, off());
    let (other, hash) = (store.clone(), store.hash("h"));
    hash.set("f", "1").unwrap();
    store.close().unwrap();
    assert_eq!(other.changes_since_save(), 0);
    hash.set("f", "2").unwrap();
    drop(hash);
    other.close().unwrap();
    let store = open(&dir, off());
    assert_eq!(store.hash("h").get("f").unwrap().as_deref(), Some(&b"2"[..]));
}

/// A store with a change on a device that takes no more.
fn unsaved() -> Store {
    let device = Arc::new(SimDevice::new(1));
    let store = Store::open_on(device.clone(), Options { huge_pages: false, ..Options::default() }).unwrap();
    store.hash("h").set("f", "v").unwrap();
    device.set_capacity(device.image().len() as u64);
    store
}

const CHILD: &str = "STILLFRAME_CLOSING_CHILD";

/// What cannot be saved is an error of `close`, which says no more then, and of a drop on standard error.
#[test]
fn an_error_is_not_silent() {
    match std::env::var(CHILD).as_deref() {
        Ok("close") => return assert!(unsaved().close().unwrap_err().to_string().contains("no space left")),
        Ok(_) => return drop(unsaved()),
        Err(_) => {}
    }
    for (way, is_told) in [("close", false), ("drop", true)] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["closing::an_error_is_not_silent", "--exact", "--nocapture"]).env(CHILD, way);
        let output = child.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
        let is_there = told.contains("what has changed since the last checkpoint could not be saved")
            && told.contains("no space left");
        assert_eq!(is_there, is_told, "{way}: {told}");
    }
}
