//! A bound of memory holds for handles and workers, and what has been freed comes back by itself.

use std::time::{Duration, Instant};

use stillframe_store::{OpError, OpenError, Options, Store, TreeError};
use stillframe_testkit::TempDir;

use crate::{open, set};

/// Waits until nothing is about to be freed.
fn settle(store: &Store) {
    let since = Instant::now();
    while store.unused_memory_bytes() > 0 || !store.is_tidy() {
        assert!(since.elapsed() < Duration::from_secs(60), "freed memory never comes back");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Removes so many records, if they are there, and stores them again.
fn rewrite(store: &Store, what: &str, count: u32) {
    let (tree, set) = (store.tree("t").unwrap(), store.sorted_set("z"));
    let names = || (0..count).map(|number| format!("{number:06}"));
    let is_tree = what == "tree";
    for name in names() {
        let _ = if is_tree { tree.remove(name).unwrap() } else { set.remove(name).unwrap() };
    }
    for name in names() {
        let _ = if is_tree { tree.put(name, [b'v'; 1000]).unwrap() } else { set.insert(&name, 1.0).unwrap() };
    }
}

/// What a tree frees is used again, without a checkpoint, and is counted as long as it takes memory.
#[test]
fn freed_nodes_come_back_without_a_cut() {
    const COUNT: u32 = 6_000;
    for what in ["tree", "sorted set"] {
        for has_saved in [false, true] {
            let dir = TempDir::new("freed");
            let store = open(&dir, Options::default());
            rewrite(&store, what, COUNT);
            if has_saved {
                store.checkpoint().unwrap();
            }
            settle(&store);
            let (at_first, frames) = (store.used_memory_bytes(), store.pool().stats().frame_bytes);
            for _ in 0..4 {
                rewrite(&store, what, COUNT);
                let used = store.used_memory_bytes();
                assert!(used >= at_first / 2, "{what}: {used} of {at_first} bytes are counted");
                settle(&store);
                let used = store.used_memory_bytes();
                assert!(
                    (at_first * 9 / 10..at_first * 12 / 10).contains(&used),
                    "{what}: {used}, not {at_first}"
                );
            }
            let grown = store.pool().stats().frame_bytes.saturating_sub(frames);
            assert!(grown < at_first + (16 << 20), "{what}: memory has grown by {grown} bytes");
            store.check().unwrap();
        }
    }
}

/// A bound of data holds beside removals, and what is removed makes room at once.
#[test]
fn removed_records_make_room_under_a_bound() {
    const COUNT: u32 = 6_000;
    let dir = TempDir::new("bound");
    let store = open(&dir, Options { maxmemory_bytes: 14 << 20, ..Options::default() });
    for _ in 0..4 {
        rewrite(&store, "tree", COUNT);
        assert!(store.used_memory_bytes() <= 15 << 20);
    }
    let tree = store.tree("t").unwrap();
    let refused = (COUNT..10 * COUNT).find_map(|i| tree.put(format!("{i:06}"), [b'v'; 1000]).err());
    assert!(matches!(refused, Some(TreeError::OutOfMemory { .. })), "{refused:?}");
    let refused = (0..).find_map(|i| store.hash("h").set(format!("{i}"), [b'v'; 1000]).err());
    assert!(matches!(refused, Some(OpError::OutOfMemory { .. })), "{refused:?}");
}

/// Workers obey the bound, as handles do.
#[test]
fn a_bound_of_memory_bounds_workers() {
    const BOUND: u64 = 16 << 20;
    let dir = TempDir::new("workers");
    let store = open(&dir, Options { memory_bytes: BOUND, ..Options::default() });
    let mut worker = store.worker();
    let mut most = 0;
    for number in 0..40_000u32 {
        set(&mut worker, &format!("{:08x}", number.wrapping_mul(2_654_435_761)), &[b'v'; 1000]).unwrap();
        most = most.max(store.pool().room().resident_pages() * 4096);
    }
    assert!(most <= BOUND, "{most} bytes of pages");
    let key = worker.key(b"h");
    for number in 0..8_000 {
        let field = format!("{number}");
        let pair = [(field.as_bytes(), &[b'v'; 1000][..])];
        let all = stillframe_store::FieldMode::All;
        worker.hash_at(crate::DB, &key).set(&pair, all, stillframe_store::Deadline::Clear).unwrap();
        most = most.max(store.pool().room().resident_pages() * 4096);
    }
    assert!(most <= BOUND, "{most} bytes of pages");
    assert_eq!(store.db_stats(crate::DB).key_count, 40_001);
}

/// A bound says what it leaves for pages, before and after, and none is taken that leaves too little.
#[test]
fn a_bound_says_what_it_leaves_for_pages() {
    let options = Options { memory_bytes: 32 << 20, ..Options::default() };
    let shares = options.memory_shares().unwrap();
    assert!(shares.page_bytes >= 24 << 20, "{shares:?}");
    let dir = TempDir::new("shares");
    let store = open(&dir, options);
    let now = store.memory_shares().unwrap();
    assert_eq!(store.memory_page_count(), Some(now.page_bytes / 4096));
    assert!(now.page_bytes + now.snapshot_bytes + now.staging_bytes + now.side_bytes <= 32 << 20);
    drop(store);
    let earlier = Options { memory_bytes: 0, tiered_bytes: 32 << 20, ..Options::default() };
    assert_eq!(earlier.memory_shares(), Some(shares));
    let smaller = Options { memory_bytes: 64 << 20, tiered_bytes: 32 << 20, ..Options::default() };
    assert_eq!(smaller.memory_shares(), Some(shares));
    assert_eq!(Options::default().memory_shares(), None);
    let dir = TempDir::new("too-small");
    let options = Options { memory_bytes: 4 << 20, ..Options::default() };
    match Store::open(dir.path(), options) {
        Err(OpenError::Refused(refusal)) => {
            assert!(refusal.to_string().contains("memory_bytes is 4194304"), "{refusal}");
        }
        other => panic!("{:?}", other.map(drop)),
    }
}

/// Several elements are set in one step also where other threads take the slots outside of leaves that were looked at: the answer
/// counts all of them.
#[test]
fn what_has_begun_comes_to_its_end() {
    const THREADS: u64 = 4;
    const STEPS: u32 = 4_000;
    let dir = TempDir::new("steps");
    let store =
        open(&dir, Options { memory_bytes: 16 << 20, snapshot_memory_bytes: 1 << 20, ..Options::default() });
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                let hash = store.hash(format!("h{thread}"));
                for step in 0..STEPS {
                    let mut value = || vec![b'v'; random.usize(100..4_000)];
                    let pairs = [(); 5].map(|()| value());
                    let names = [0, 1, 2, 3, 4].map(|number| format!("{step}:{number}"));
                    let fields: Vec<_> =
                        names.iter().zip(&pairs).map(|(name, value)| (name.as_bytes(), &value[..])).collect();
                    assert_eq!(hash.set_all(&fields).unwrap(), 5, "thread {thread}, step {step}");
                    // Slots come free that have been out of memory for long.
                    for _ in 0..5 {
                        let old = format!("{}:{}", random.u32(..=step), random.u32(..5));
                        hash.remove(old).unwrap();
                    }
                }
            });
        }
    });
    store.check().unwrap();
}
