//! What a write costs while a cut is open: one copy for each page of the cut that it changes for the first time.

use stillframe_store::{DbId, Deadline, NewValue, Options, Store, Worker};
use stillframe_testkit::TempDir;

use crate::open;

const DB: DbId = DbId(0);
/// 256 pages, all of them full.
const LARGE: usize = 1 << 20;
/// In a slab.
const MIDDLE: usize = 2000;
/// In another slab.
const LONGER: usize = 3000;

fn set(worker: &mut Worker, name: &str, value: NewValue<'_>) {
    let key = worker.key(name.as_bytes());
    worker.set(DB, &key, value, Deadline::Keep).unwrap();
}

fn set_bytes(worker: &mut Worker, name: &str, len: usize) {
    set(worker, name, NewValue::Bytes { bytes: &vec![b'b'; len], raw: false });
}

fn write_range(worker: &mut Worker, name: &str, offset: usize, len: usize) {
    let key = worker.key(name.as_bytes());
    worker.string_at(DB, &key).write_range(offset as u64, &vec![b'r'; len]).unwrap();
}

fn remove(worker: &mut Worker, name: &str) {
    let key = worker.key(name.as_bytes());
    assert!(worker.remove(DB, &key).unwrap());
}

/// A value that has come into its place before the command that stores it.
fn set_incoming(worker: &mut Worker, name: &str, len: usize) {
    let mut incoming = worker.begin_incoming(len as u64).unwrap();
    while !incoming.is_complete() {
        incoming.append(&vec![0; len]).unwrap();
    }
    set(worker, name, NewValue::Incoming(&incoming));
}

/// Pages that are copied because of `write`, the first one after a cut.
fn captures(store: &Store, worker: &mut Worker, write: impl FnOnce(&mut Worker)) -> u64 {
    let count = || store.pool().metrics().capture.summary().count;
    let view = worker.idle(|| store.view()).unwrap();
    let before = count();
    write(worker);
    let copied = count() - before;
    drop(view);
    copied
}

#[test]
fn a_write_copies_the_pages_that_it_changes() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    for name in ["small", "gone"] {
        set_bytes(&mut worker, name, 100);
    }
    for name in ["middle", "middle-gone", "middle-other"] {
        set_bytes(&mut worker, name, MIDDLE);
    }
    set_bytes(&mut worker, "longer", LONGER);
    for name in ["large", "large-gone"] {
        set_bytes(&mut worker, name, LARGE);
    }
    set(&mut worker, "count", NewValue::Int(1));
    type Write = fn(&mut Worker);
    let writes: [(&str, u64, Write); 17] = [
        ("SET of a new key", 1, |w| set_bytes(w, "new", 100)),
        ("SET of a small value", 1, |w| set_bytes(w, "small", 100)),
        ("INCR", 1, |w| set(w, "count", NewValue::Int(2))),
        ("APPEND to a small value", 1, |w| write_range(w, "small", 100, 10)),
        ("SETRANGE in a small value", 1, |w| write_range(w, "small", 50, 10)),
        ("DEL of a small value", 1, |w| remove(w, "gone")),
        ("SET of a value in a slab, as long as before", 1, |w| set_bytes(w, "middle", MIDDLE)),
        ("SET of a value in a slab, longer: the leaf, both heads, and the new slot's other page", 4, |w| {
            set_bytes(w, "middle", LONGER)
        }),
        ("DEL of a value in a slab: the leaf and the slab's head", 2, |w| remove(w, "middle-gone")),
        ("the first SETRANGE in a large value: a page, and the leaf says that it is raw", 2, |w| {
            write_range(w, "large", LARGE / 2, 100)
        }),
        ("SETRANGE in a large value", 1, |w| write_range(w, "large", LARGE / 2, 100)),
        ("SETRANGE over the end of a page", 2, |w| write_range(w, "large", LARGE / 2 - 50, 100)),
        ("APPEND to a large value: the leaf, the new page is the object's own", 1, |w| {
            write_range(w, "large", LARGE, 100)
        }),
        ("SET of a large value, shorter than before", 1, |w| set_bytes(w, "large", LARGE / 2)),
        ("SET of a large value that came in parts", 1, |w| set_incoming(w, "large", LARGE)),
        ("SET of a large value from one buffer, as long as before", 1, |w| set_bytes(w, "large", LARGE)),
        ("DEL of a large value", 1, |w| remove(w, "large-gone")),
    ];
    for (name, expected, write) in writes {
        assert_eq!(captures(&store, &mut worker, write), expected, "{name}");
    }
    // What has been copied for a cut, or was made after it, costs no more.
    let twice = |worker: &mut Worker| (0..2).for_each(|_| set_bytes(worker, "small", 100));
    assert_eq!(captures(&store, &mut worker, twice), 1);
}
