//! A record of another type under operations on strings, and under those that are for all types.

use stillframe_testkit::TempDir;

use crate::error::SaveError;
use crate::keyspace::{write, Put};
use crate::tree::hash::{Collection, Content};
use crate::walk::ViewEntry;
use crate::{
    DbId, Deadline, Encoding, EntryInfo, NewValue, OpError, Options, Store, Value, ValueType, Worker,
};

const DB: DbId = DbId(0);
const NEW: NewValue<'_> = NewValue::Bytes { bytes: b"new", raw: false };

fn plant(worker: &mut Worker, key: &[u8], value_type: ValueType, body: &[u8]) {
    let key = worker.key(key);
    let put = Put::Other { value_type, body };
    write::put(&mut worker.op(), DB, &key, put, Deadline::At(9_000)).unwrap();
}

fn open(dir: &TempDir) -> (Store, Worker) {
    let store = Store::open(dir.path(), Options { huge_pages: false, ..Options::default() }).unwrap();
    let worker = store.nonblocking_worker().unwrap();
    (store, worker)
}

fn entry(worker: &mut Worker, key: &[u8]) -> Option<EntryInfo> {
    let key = worker.key(key);
    worker.entry(DB, &key).unwrap()
}

#[test]
fn operations_on_strings_refuse_another_type_and_change_nothing() {
    let dir = TempDir::new("wrong-type");
    let (store, mut worker) = open(&dir);
    plant(&mut worker, b"list", ValueType::List, b"body");
    let key = worker.key(b"list");
    let read = worker.get(DB, &key, |_| panic!("there is no string"));
    assert!(matches!(read, Err(OpError::WrongType)), "{read:?}");
    for bytes in [&b""[..], b"x"] {
        let written = worker.string_at(DB, &key).write_range(0, bytes);
        assert!(matches!(written, Err(OpError::WrongType)), "{written:?}");
    }
    let info = entry(&mut worker, b"list").unwrap();
    assert_eq!((info.value_type, info.encoding, info.value_bytes), (ValueType::List, None, 0));
    assert!(matches!(info.must_be(ValueType::String), Err(OpError::WrongType)));
    assert!(info.must_be(ValueType::List).is_ok() && info.deadline == Some(9_000));
    store.check().unwrap();
    // A SET does not ask what was there.
    assert!(worker.set(DB, &key, NEW, Deadline::Clear).unwrap());
    assert_eq!(worker.get(DB, &key, |value| value.to_vec()).unwrap().unwrap(), b"new");
    assert_eq!(entry(&mut worker, b"list").unwrap().value_type, ValueType::String);
    store.check().unwrap();
}

#[test]
fn another_type_is_copied_moved_saved_and_removed_like_any_value() {
    let dir = TempDir::new("other-type");
    let (store, mut worker) = open(&dir);
    let mut body = Vec::new();
    let content = Content::Packed(b"");
    Collection { encoding: Encoding::ListPack, earliest: None, content }.encode(&mut body);
    plant(&mut worker, b"zset", ValueType::SortedSet, &body);
    let (zset, copy, moved) = (worker.key(b"zset"), worker.key(b"copy"), worker.key(b"moved"));
    assert!(worker.copy((DB, &zset), (DB, &copy)).unwrap());
    assert!(worker.rename((DB, &zset), (DB, &moved)).unwrap());
    assert!(worker.set_deadline(DB, &copy, None).unwrap());
    let view = worker.idle(|| store.view()).unwrap();
    let mut seen = Vec::new();
    let take = |entry: ViewEntry<'_>| {
        assert!(entry.value.as_string().is_none() && matches!(entry.value, Value::Collection(_)));
        seen.push((entry.key.to_vec(), entry.value.value_type(), entry.deadline));
        Ok::<(), SaveError>(())
    };
    view.for_each(take).unwrap();
    seen.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [(b"copy".to_vec(), None), (b"moved".to_vec(), Some(9_000))];
    let found: Vec<_> = seen
        .into_iter()
        .map(|(key, of, at)| {
            assert_eq!(of, ValueType::SortedSet);
            (key, at)
        })
        .collect();
    assert_eq!(found, expected);
    drop(view);
    worker.idle(|| store.checkpoint()).unwrap();
    drop((worker, store));
    let (store, mut worker) = open(&dir);
    worker.idle(|| store.pool().residency().wait_until_warm());
    assert_eq!(entry(&mut worker, b"copy").unwrap().value_type, ValueType::SortedSet);
    for key in [&b"copy"[..], b"moved"] {
        let key = worker.key(key);
        assert!(worker.remove(DB, &key).unwrap());
    }
    assert_eq!(store.check().unwrap().key_count, 0);
}
