//! Page files, by the version of their format.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rustix::process::Signal;
use stillframe_pagepool::device::SimDevice;
use stillframe_store::{Element, Options, SaveError, Store, Value, ValueType, ViewEntry};

use crate::data::{Bytes, Content, Data};
use crate::harness::*;
use crate::{expected, golden, is_update, keep, served, unpack};

const PAGES: &str = "stillframe.pages";

fn options() -> Options {
    Options { huge_pages: false, pool_backend: stillframe_testkit::pool_backend(), ..Options::default() }
}

/// Has this build write one: keys by the server, trees and function libraries by the library.
fn write(data: &Data, dir: &Path) {
    let mut server = TestServer::start_in(dir, &[]);
    let mut client = server.connect();
    served::fill(&mut client, data);
    client.ok("SAVE");
    client.send("SHUTDOWN NOSAVE");
    assert!(server.wait().success());
    let store = Store::open(dir, options()).expect("a page file");
    for (name, records) in &data.trees {
        let tree = store.tree(name).expect("a tree");
        for (key, value) in records {
            tree.put(key, value).expect("a record");
        }
    }
    for (name, source) in &data.libraries {
        store.worker().libraries().set(name, source).expect("a library");
    }
    store.checkpoint().expect("a checkpoint");
}

/// As its first superblock says.
fn version_of(pages: &Path) -> u32 {
    let bytes = std::fs::read(pages).expect("a page file");
    assert!(bytes.starts_with(b"STILLPGF"));
    u32::from_le_bytes(*bytes[8..].first_chunk().expect("a superblock"))
}

/// An element: itself, its value, its deadline, its score.
type Row = (Bytes, Bytes, Option<i64>, f64);

fn rows_expected(content: &Content) -> Vec<Row> {
    let plain = |bytes: &Bytes| (bytes.clone(), Bytes::new(), None, 0.0);
    let score = |text: &[u8]| std::str::from_utf8(text).expect("a score").parse().expect("a score");
    match content {
        Content::String(bytes) => vec![plain(bytes)],
        Content::List(items) => items.iter().map(plain).collect(),
        Content::Set(members) => members.iter().map(plain).collect(),
        Content::SortedSet(members) => {
            members.iter().map(|(member, text)| (member.clone(), Bytes::new(), None, score(text))).collect()
        }
        Content::Hash(fields) => fields
            .iter()
            .map(|(field, (value, deadline_ms))| (field.clone(), value.clone(), *deadline_ms, 0.0))
            .collect(),
        Content::Stream(entries) => {
            let row = |(id, field, value): &(String, Bytes, Bytes)| {
                (id.clone().into_bytes(), [&field[..], b"=", value].concat(), None, 0.0)
            };
            entries.iter().map(row).collect()
        }
    }
}

fn rows_found(value: &Value<'_>) -> Result<Vec<Row>, SaveError> {
    let plain = |bytes: &[u8]| (bytes.to_vec(), Bytes::new(), None, 0.0);
    let collection = match value {
        Value::String(string) => return Ok(vec![plain(&string.to_vec())]),
        Value::Collection(collection) => collection,
    };
    let mut rows = Vec::new();
    collection.for_each(&mut |element| {
        if let Element::Record { .. } = element {
            element.for_each_entry(|id, parts| {
                rows.push((id.to_string().into_bytes(), parts.join(&b"="[..]), None, 0.0));
            });
            return Ok(());
        }
        rows.push(match element {
            Element::Item(bytes) | Element::Member(bytes) => plain(bytes),
            Element::Scored { member, score } => (member.to_vec(), Bytes::new(), None, score),
            Element::Field { field, value, deadline } => (field.to_vec(), value.to_vec(), deadline, 0.0),
            Element::Record { .. } => unreachable!("see above"),
        });
        Ok(())
    })?;
    if !matches!(collection.value_type(), ValueType::List | ValueType::Stream) {
        rows.sort_by(|a, b| a.0.cmp(&b.0));
    }
    Ok(rows)
}

/// Checks all keys through a view, and all records of trees.
fn check_store(store: &Store, data: &Data) {
    let mut expected: BTreeMap<_, _> =
        data.keys.iter().map(|key| ((key.db, key.name.clone()), key)).collect();
    let view = store.view().expect("a view");
    let read = view.for_each(|entry: ViewEntry<'_>| -> Result<(), SaveError> {
        let shown = format!("{}:{:.60}", entry.db.0, entry.key.escape_ascii().to_string());
        let key = expected
            .remove(&(entry.db.0, entry.key.to_vec()))
            .unwrap_or_else(|| panic!("{shown} is not expected"));
        assert_eq!(entry.deadline, key.deadline_ms, "{shown}");
        assert!(rows_found(&entry.value)? == rows_expected(&key.content), "{shown} is another");
        Ok(())
    });
    read.expect("a checkpoint that can be read");
    assert!(expected.is_empty(), "{} keys are missing", expected.len());
    assert_eq!(store.tree_names().expect("trees"), data.trees.keys().cloned().collect::<Vec<_>>());
    let libraries = store.worker().libraries().list().expect("libraries");
    assert!(libraries.into_iter().eq(data.libraries.clone()), "the libraries are others");
    for (name, records) in &data.trees {
        let tree = store.tree(name).expect("a tree");
        let found: Vec<_> = tree.iter().map(|record| record.expect("a record")).collect();
        assert!(found.iter().map(|(key, value)| (key, value)).eq(records), "{}", name.escape_ascii());
        assert_eq!(tree.len().expect("its length"), records.len() as u64);
    }
}

/// Checks, changes, saves, and checks what the next store makes of it.
fn check_stores(mut open: impl FnMut() -> Store, data: &Data) {
    let store = open();
    check_store(&store, data);
    let (hash, tree) = (store.hash("golden:new"), store.tree("golden:new").expect("a tree"));
    hash.set("field", "value").expect("a field");
    tree.put("key", "value").expect("a record");
    store.checkpoint().expect("a checkpoint");
    hash.remove("field").expect("the last field");
    drop((hash, tree));
    store.drop_tree("golden:new").expect("a tree");
    store.checkpoint().expect("a checkpoint");
    drop(store);
    check_store(&open(), data);
}

fn check_served(pages: &Path, data: &Data) {
    for args in [&["--workers", "1"][..], &["--workers", "2"], &["--maxmemory", "4mb"]] {
        let dir = temp_dir();
        std::fs::copy(pages, dir.join(PAGES)).expect("room");
        let server = TestServer::start_in(&dir, args);
        let mut client = server.connect();
        served::check(&mut client, data);
        client.run("SET golden:new 1");
        client.ok("SAVE");
        client.run("DEL golden:new");
        client.ok("SAVE");
        let mut server = server.restarted(Signal::KILL, args);
        let mut client = server.connect();
        served::check(&mut client, data);
        client.send("SHUTDOWN NOSAVE");
        assert!(server.wait().success());
        let checked = binary().arg("--check").arg(dir.join(PAGES)).output().expect("the program");
        assert!(checked.status.success(), "{checked:?}");
        // The server has kept what it does not serve.
        check_store(&Store::open(&dir, options()).expect("a page file"), data);
    }
}

fn check(version: u32, data: &Data, pages: &Path) {
    assert_eq!(version_of(pages), version);
    check_served(pages, data);
    let dir = temp_dir();
    std::fs::copy(pages, dir.join(PAGES)).expect("room");
    check_stores(|| Store::open(&dir, options()).expect("a page file"), data);
    let device = Arc::new(SimDevice::from_image(0, std::fs::read(pages).expect("a page file")));
    check_stores(|| Store::open_on(device.clone(), options()).expect("a page file"), data);
}

#[test]
fn page_files_of_earlier_revisions_open() {
    for (version, dir) in golden("pages") {
        let (data, work, packed) = (expected(&dir), temp_dir(), dir.join("stillframe.pages.gz"));
        let pages = work.join(PAGES);
        let is_new = is_update() && !packed.exists();
        if is_new {
            write(&data, &work);
        } else {
            unpack(&packed, &pages);
        }
        check(version, &data, &pages);
        if is_new {
            keep(&pages, &packed);
        }
    }
}

/// What a file is made by works, and the version that this build writes has its file.
#[test]
fn a_page_file_of_this_revision_opens() {
    let all = golden("pages");
    let newest = all.last().expect("one at least").0;
    for (_, dir) in all.into_iter().filter(|(version, _)| *version == newest) {
        let (data, work) = (expected(&dir), temp_dir());
        write(&data, &work);
        let version = version_of(&work.join(PAGES));
        assert_eq!(version, newest, "version {version} has no file: see README.md");
        check_store(&Store::open(&work, options()).expect("a page file"), &data);
    }
}
