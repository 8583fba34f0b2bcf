//! Function libraries: what of them survives, when others see them, and that a store without any is as ever.

use std::collections::BTreeMap;
use std::sync::Arc;

use stillframe_pagepool::device::SimDevice;
use stillframe_store::digest::{first_difference, Difference};
use stillframe_store::offline::Offline;
use stillframe_store::{
    libraries_version, DbId, Deadline, LibraryError, NewValue, OpError, Options, SaveError, Store, TreeError,
    Worker,
};
use stillframe_testkit::{seeds, TempDir};

use crate::open;

/// A library's source of about so many bytes.
pub fn source(name: &str, len_bytes: usize) -> Vec<u8> {
    let mut source =
        format!("#!lua name={name}\nredis.register_function('f_{name}', function() end)\n--").into_bytes();
    source.resize(source.len().max(len_bytes), b'x');
    source
}

type Libraries = BTreeMap<String, Vec<u8>>;

fn list(worker: &mut Worker) -> Libraries {
    let list = worker.libraries().list().unwrap();
    assert!(list.windows(2).all(|pair| pair[0].0 < pair[1].0), "sorted");
    list.into_iter().collect()
}

fn viewed(store: &Store) -> Libraries {
    let mut found = Libraries::new();
    let view = store.view().unwrap();
    view.for_each_library(|name, source| {
        found.insert(name.to_owned(), source.to_vec());
        Ok::<(), SaveError>(())
    })
    .unwrap();
    found
}

fn names(libraries: &Libraries) -> Vec<&str> {
    libraries.keys().map(String::as_str).collect()
}

/// Options of a store whose pages may be missing, in as little memory as there can be.
fn tiered() -> Options {
    Options {
        tiered_bytes: 1 << 20,
        huge_pages: false,
        pool_backend: stillframe_testkit::pool_backend(),
        checkpoint_on_drop: false,
        ..Options::default()
    }
}

#[test]
fn libraries_survive_a_checkpoint() {
    let dir = TempDir::new("libraries");
    let mut expected = Libraries::new();
    let lengths = [0, 300, 900, 1_100, 9_000, 70_000, 3 << 20];
    {
        let store = open(&dir, Options::default());
        let mut worker = store.worker();
        assert_eq!((list(&mut worker), libraries_version(&store)), (Libraries::new(), 0));
        assert!(!worker.libraries().clear().unwrap() && !worker.libraries().remove("a").unwrap());
        assert_eq!(libraries_version(&store), 0, "nothing has changed");
        for (number, len_bytes) in lengths.into_iter().enumerate() {
            let name = format!("lib_{number}");
            let source = source(&name, len_bytes);
            let version = worker.libraries().version();
            assert!(!worker.libraries().set(&name, &source).unwrap());
            assert!(worker.libraries().version() > version);
            expected.insert(name, source);
        }
        let changed = source("lib_1", 20_000);
        assert!(worker.libraries().set("lib_1", &changed).unwrap(), "it was there");
        expected.insert("lib_1".to_owned(), changed);
        assert!(worker.libraries().remove("lib_2").unwrap());
        assert!(!worker.libraries().remove("lib_2").unwrap());
        expected.remove("lib_2");
        assert_eq!(list(&mut worker), expected);
        (0..3).for_each(|db| worker.database(DbId(db)).flush().unwrap());
        store.checkpoint().unwrap();
        store.check().unwrap();
    }
    let store = open(&dir, Options::default());
    let mut worker = store.worker();
    assert!(libraries_version(&store) > 0, "they have come by opening");
    assert_eq!((list(&mut worker), viewed(&store)), (expected.clone(), expected.clone()));
    assert_eq!(worker.libraries().names().unwrap(), names(&expected));
    for (name, source) in &expected {
        assert_eq!(worker.libraries().get(name).unwrap().as_ref(), Some(source));
    }
    assert_eq!(worker.libraries().get("lib_2").unwrap(), None);
    assert_eq!(worker.libraries().get(&"n".repeat(600)).unwrap(), None);
    drop((worker, store));
    let offline = Offline::open(&dir.path().join("stillframe.pages"), false).unwrap();
    let mut found = Libraries::new();
    let mut lost = Vec::new();
    let read = offline.for_each_library(
        |name, source| {
            found.insert(name.to_owned(), source.to_vec());
            Ok::<(), SaveError>(())
        },
        |what| lost.push(what),
    );
    read.unwrap();
    assert_eq!((found, lost), (expected, Vec::new()));
    drop(offline);
    let store = open(&dir, Options::default());
    let mut worker = store.worker();
    assert!(worker.libraries().clear().unwrap());
    store.checkpoint().unwrap();
    store.check().unwrap();
    drop((worker, store));
    let store = open(&dir, Options::default());
    assert_eq!((list(&mut store.worker()), libraries_version(&store)), (Libraries::new(), 0));
}

/// The first bytes of the catalogs that a page file has.
fn catalog_kinds(device: &SimDevice) -> Vec<u8> {
    let image = device.image();
    let is_catalog = |page: &&[u8]| {
        let word = |at: usize| u32::from_le_bytes(*page[at..].first_chunk().unwrap());
        matches!(page[0], 4 | 8 | 13) && word(28) == Options::default().database_count
    };
    image.chunks_exact(4096).filter(is_catalog).map(|page| page[0]).collect()
}

/// Programs that know no libraries refuse a catalog of kind 13 by its number, and open all others.
#[test]
fn only_a_page_file_with_libraries_has_the_newer_format() {
    let newest_kind = |act: &dyn Fn(&Store, &mut Worker)| {
        let device = Arc::new(SimDevice::new(1));
        let options = Options { huge_pages: false, checkpoint_on_drop: false, ..Options::default() };
        let store = Store::open_on(device.clone(), options).unwrap();
        act(&store, &mut store.worker());
        store.checkpoint().unwrap();
        let kinds = catalog_kinds(&device);
        *kinds.iter().max().expect("a catalog")
    };
    let key = |worker: &mut Worker| {
        let key = worker.key(b"k");
        worker.set(DbId(0), &key, NewValue::Int(1), Deadline::Clear).unwrap();
    };
    let set = |worker: &mut Worker, name: &str| {
        worker.libraries().set(name, &source(name, 0)).unwrap();
    };
    assert_eq!(newest_kind(&|_, worker| key(worker)), 4);
    assert_eq!(newest_kind(&|store, _| drop(store.tree("t").unwrap())), 8);
    assert_eq!(newest_kind(&|_, worker| set(worker, "a")), 13);
    let removed = |_: &Store, worker: &mut Worker| {
        set(worker, "a");
        set(worker, "b");
        assert!(worker.libraries().remove("a").unwrap() && worker.libraries().remove("b").unwrap());
    };
    assert_eq!(newest_kind(&removed), 4);
    let cleared = |store: &Store, worker: &mut Worker| {
        drop(store.tree("t").unwrap());
        set(worker, "a");
        assert!(worker.libraries().clear().unwrap());
    };
    assert_eq!(newest_kind(&cleared), 8);
    let refused = |_: &Store, worker: &mut Worker| assert!(worker.libraries().set("a", b"return 1").is_err());
    assert_eq!(newest_kind(&refused), 4);
}

#[test]
fn no_name_of_a_tree_leads_to_libraries() {
    let dir = TempDir::new("libraries-names");
    let store = open(&dir, Options::default());
    let mut worker = store.worker();
    worker.libraries().set("a", &source("a", 0)).unwrap();
    let tree = store.tree("t").unwrap();
    tree.put("k", "v").unwrap();
    assert_eq!(store.tree_names().unwrap(), [b"t"]);
    assert!(matches!(store.tree(""), Err(TreeError::Name)));
    assert!(!store.drop_tree("").unwrap());
    assert_eq!(names(&list(&mut worker)), ["a"]);
    store.checkpoint().unwrap();
    store.check().unwrap();
    assert!(worker.libraries().clear().unwrap());
    assert_eq!(tree.get("k").unwrap().as_deref(), Some(&b"v"[..]));
}

#[test]
fn what_is_no_library_is_refused() {
    let dir = TempDir::new("libraries-refused");
    let store = open(&dir, Options::default());
    let mut worker = store.worker();
    worker.libraries().set("kept", &source("kept", 0)).unwrap();
    let version = libraries_version(&store);
    let refused = |result: Result<bool, OpError>| match result {
        Err(OpError::Library(error)) => error,
        other => panic!("{other:?}"),
    };
    let error = refused(worker.libraries().set("a", b"return 1"));
    assert!(matches!(error, LibraryError::Header(_)), "{error}");
    let error = refused(worker.libraries().set("a", &source("b", 0)));
    assert_eq!(error, LibraryError::OtherName { given: "a".to_owned(), own: "b".to_owned() });
    let long = "n".repeat(513);
    let error = refused(worker.libraries().set(&long, &source(&long, 0)));
    assert_eq!(error, LibraryError::NameTooLong { len_bytes: 513 });
    let error = refused(worker.libraries().set("a", &source("a", (16 << 20) + 1)));
    assert!(matches!(error, LibraryError::TooLong { .. }), "{error}");
    let source_a = source("a", 0);
    let twice: [(&str, &[u8]); 2] = [("a", &source_a), ("a", &source_a)];
    let error = refused(worker.libraries().replace_all(&twice).map(|_| true));
    assert_eq!(error, LibraryError::Twice { name: "a".to_owned() });
    let longest = "n".repeat(512);
    assert_eq!((names(&list(&mut worker)), libraries_version(&store)), (vec!["kept"], version));
    assert!(!worker.libraries().set(&longest, &source(&longest, 0)).unwrap());
    // Within a step others may wait for the keys of this worker.
    worker.steps().begin();
    assert!(matches!(worker.libraries().set("a", &source_a), Err(OpError::Busy)));
    assert!(matches!(worker.libraries().clear(), Err(OpError::Busy)));
    worker.steps().end();
    let alone = worker.stop_others().unwrap();
    worker.steps().begin();
    assert!(!worker.libraries().set("a", &source_a).unwrap());
    worker.steps().end();
    drop(alone);
    assert_eq!(list(&mut worker).len(), 3);
}

#[test]
fn several_are_kept_together() {
    let dir = TempDir::new("libraries-several");
    let store = open(&dir, Options::default());
    let mut worker = store.worker();
    let [a, b, c, other_b] = [source("a", 0), source("b", 5_000), source("c", 0), source("b", 30)];
    assert_eq!(worker.libraries().set_all(&[("b", &b), ("a", &a)]).unwrap(), 0);
    assert_eq!(worker.libraries().set_all(&[("c", &c), ("b", &other_b)]).unwrap(), 1);
    let expected: Libraries = [("a", &a), ("b", &other_b), ("c", &c)]
        .map(|(name, source)| (name.to_owned(), source.clone()))
        .into();
    assert_eq!(list(&mut worker), expected);
    assert_eq!(worker.libraries().replace_all(&[("c", &c), ("b", &b)]).unwrap(), 3);
    assert_eq!(names(&list(&mut worker)), ["b", "c"]);
    assert_eq!(worker.libraries().replace_all(&[]).unwrap(), 2);
    assert_eq!(list(&mut worker), Libraries::new());
    store.checkpoint().unwrap();
    store.check().unwrap();
}

/// A view and a checkpoint have them as of their cut, whatever comes after it.
#[test]
fn a_cut_has_all_of_a_change_or_nothing() {
    for seed in seeds(1, 2) {
        let device = Arc::new(SimDevice::new(seed));
        let store = Store::open_on(device.clone(), tiered()).unwrap();
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                let mut worker = store.worker();
                for round in 0..60usize {
                    let sources = ["x", "y"].map(|name| source(name, 200 + 37 * round));
                    let pair: [(&str, &[u8]); 2] = [("x", &sources[0]), ("y", &sources[1])];
                    let changed = match round % 5 {
                        4 => worker.libraries().clear().map(drop),
                        3 => worker.libraries().replace_all(&pair).map(drop),
                        _ => worker.libraries().set_all(&pair).map(drop),
                    };
                    changed.unwrap();
                }
                stop.store(true, std::sync::atomic::Ordering::Release);
            });
            while !stop.load(std::sync::atomic::Ordering::Acquire) {
                let found = viewed(store);
                assert!(found.is_empty() || names(&found) == ["x", "y"], "{:?}", names(&found));
                let lengths: Vec<usize> = found.values().map(Vec::len).collect();
                assert!(lengths.windows(2).all(|pair| pair[0] == pair[1]), "{lengths:?}");
                store.checkpoint().unwrap();
            }
        });
        store.check().unwrap();
    }
}

/// Ten times the memory: libraries are read one by one, and changed, also by a worker that does not wait.
#[test]
fn libraries_are_larger_than_memory() {
    let device = Arc::new(SimDevice::new(1));
    let store = Store::open_on(device.clone(), tiered()).unwrap();
    let memory_bytes = store.memory_page_count().expect("a bound") as usize * 4096;
    // In slabs, whose pages have to be in memory, and in objects, which are read past it.
    let (len_bytes, mut worker) = (10_000, store.worker());
    let count = 10 * memory_bytes / len_bytes;
    let name_of = |number: usize| format!("library_{number:05}");
    for first in (0..count).step_by(50) {
        let made: Vec<(String, Vec<u8>)> = (first..count.min(first + 50))
            .map(|number| (name_of(number), source(&name_of(number), len_bytes)))
            .collect();
        let borrowed: Vec<(&str, &[u8])> =
            made.iter().map(|(name, source)| (&name[..], &source[..])).collect();
        worker.libraries().set_all(&borrowed).unwrap();
    }
    for number in (0..count).step_by(count / 10) {
        let name = name_of(number);
        assert!(worker.libraries().set(&name, &source(&name, memory_bytes / 8)).unwrap());
    }
    store.checkpoint().unwrap();
    let refused = worker.libraries().list().map(|list| list.len());
    assert!(matches!(refused, Err(OpError::LargerThanMemory { .. })), "{refused:?}");
    assert_eq!(worker.libraries().names().unwrap().len(), count);
    let viewed = viewed(&store);
    assert_eq!(viewed.len(), count);
    drop((worker, store));
    let store = Store::open_on(device.clone(), tiered()).unwrap();
    let (mut worker, mut fault_count, mut removed_count) = (store.nonblocking_worker().unwrap(), 0, 0);
    let mut done = |worker: &mut Worker, step: &mut dyn FnMut(&mut Worker) -> Result<bool, OpError>| loop {
        match step(worker) {
            Err(OpError::Fault(fault)) => {
                fault_count += 1;
                let (told, done) = std::sync::mpsc::channel();
                let store = worker.store().clone();
                store.load(fault, Box::new(move || told.send(()).unwrap()));
                worker.idle(|| done.recv().unwrap());
            }
            result => return result.unwrap(),
        }
    };
    for number in (0..count).rev().step_by(5) {
        let name = name_of(number);
        let is_same =
            done(&mut worker, &mut |worker| Ok(worker.libraries().get(&name)?.as_ref() == viewed.get(&name)));
        assert!(is_same, "{name}");
        if number % 3 == 0 {
            let changed = source(&name, 100);
            assert!(done(&mut worker, &mut |worker| worker.libraries().set(&name, &changed)));
        } else if number % 3 == 1 {
            assert!(done(&mut worker, &mut |worker| worker.libraries().remove(&name)));
            removed_count += 1;
        }
        worker.quiesce();
    }
    assert!(fault_count > count / 100, "{fault_count}");
    worker.idle(|| store.checkpoint()).unwrap();
    drop(worker);
    store.check().unwrap();
    assert_eq!(self::viewed(&store).len(), count - removed_count);
}

#[test]
fn a_difference_of_libraries_is_found() {
    let dirs = [TempDir::new("libraries-one"), TempDir::new("libraries-other")];
    let stores = dirs.each_ref().map(|dir| open(dir, Options::default()));
    let difference = || {
        let views = stores.each_ref().map(|store| store.view().unwrap());
        first_difference((&stores[0], &views[0]), (&stores[1], &views[1]), 0).unwrap()
    };
    let library = |name: &str| Some(Difference::Library { name: name.to_owned() });
    for store in &stores {
        store.worker().libraries().set("b", &source("b", 0)).unwrap();
    }
    assert_eq!(difference(), None);
    stores[1].worker().libraries().set("c", &source("c", 0)).unwrap();
    assert_eq!(difference(), library("c"));
    stores[0].worker().libraries().set("b", &source("b", 99)).unwrap();
    assert_eq!(difference(), library("b"));
    assert_eq!(difference().unwrap().to_string(), "the function library 'b'");
}
