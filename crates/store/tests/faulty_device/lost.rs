//! Going on beside pages that are lost: what walks over keys pass over, what can be written, and that nothing leaks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stillframe_pagepool::device::SimDevice;
use stillframe_pagepool::PAGE_SIZE;
use stillframe_store::{DbId, OpError};

use crate::model::{open, Content, Entry, Opened, DATABASE_COUNT};

const LEAF: u8 = 1;
const INNER: u8 = 2;
const SLAB: u8 = 3;
const OTHER_DB: u32 = DATABASE_COUNT - 1;

/// A saved store, and how many pages it takes when it is empty.
struct Saved {
    device: Arc<SimDevice>,
    content: Content,
    empty_page_count: u64,
}

fn value(number: usize, len: usize) -> Vec<u8> {
    let mut value = vec![0; len];
    fastrand::Rng::with_seed(number as u64).fill(&mut value);
    value
}

impl Saved {
    /// Small values, with every tenth of them one in a slab and every hundredth an object.
    fn new(key_count: usize) -> Saved {
        let device = Arc::new(SimDevice::new(1));
        let mut opened = open(&device).expect("a new store");
        let empty_page_count = opened.allocated_page_count();
        let mut content = Content::new();
        for number in 0..key_count {
            let len = match number {
                _ if number % 100 == 0 => 20_000,
                _ if number % 10 == 0 => 1_500,
                _ => 30,
            };
            let db = if number % 50 == 7 { OTHER_DB } else { 0 };
            opened.put(db, &key(number), &value(number, len)).expect("an undamaged store");
            let entry = Entry { value: value(number, len), deadline: None };
            content.insert((db, key(number)), entry);
        }
        opened.checkpoint().expect("a checkpoint");
        drop(opened);
        Saved { device, content, empty_page_count }
    }

    /// Slots of the file whose first byte says that they hold a page of this kind, of the tree of database 0 if it is
    /// one of a tree.
    fn slots(&self, kind: u8) -> Vec<usize> {
        let image = self.device.image();
        let tag_at = if kind == INNER { 4 } else { 24 };
        let is_it = |page: &[u8]| page[0] == kind && (kind == SLAB || page[tag_at] == 1) && page[1] < 64;
        (3..)
            .zip(image.chunks(PAGE_SIZE).skip(3))
            .filter(|(_, page)| is_it(page))
            .map(|(slot, _)| slot)
            .collect()
    }

    /// The slot with this part of a value.
    fn slot_with(&self, part: &[u8]) -> usize {
        let image = self.device.image();
        let at = image.windows(part.len()).position(|bytes| bytes == part).expect("a page with it");
        at / PAGE_SIZE
    }

    fn corrupt(&self, slot: usize) {
        self.device.corrupt((slot * PAGE_SIZE) as u64 + 2_000, 1, |bytes| bytes[0] ^= 1);
    }

    fn open(&self) -> Opened {
        let mut opened = open(&self.device).expect("the catalog is whole");
        opened.wait_until_warm();
        opened
    }

    /// Keys of database 0 that cannot be read.
    fn lost(&self, opened: &mut Opened) -> BTreeSet<Vec<u8>> {
        let keys = self.content.keys().filter(|(db, _)| *db == 0).map(|(_, key)| key.clone());
        let lost: BTreeSet<_> = keys.filter(|key| opened.read(0, key).is_err()).collect();
        assert!(!lost.is_empty());
        lost
    }

    fn keys_of(&self, db: u32) -> BTreeSet<Vec<u8>> {
        self.content.keys().filter(|(of, _)| *of == db).map(|(_, key)| key.clone()).collect()
    }
}

fn key(number: usize) -> Vec<u8> {
    format!("key-of-a-leaf-{number}").into_bytes()
}

/// Fails unless everything can be reached, also after a save and a restart.
fn assert_nothing_leaks(device: &Arc<SimDevice>, mut opened: Opened) -> Opened {
    opened.wait_until_tidy();
    opened.check();
    opened.checkpoint().expect("a checkpoint");
    drop(opened);
    device.crash();
    let mut opened = open(device).expect("an undamaged store");
    opened.check();
    opened
}

#[test]
fn walks_pass_over_a_lost_leaf_on_request() {
    let saved = Saved::new(3_000);
    let leaves = saved.slots(LEAF);
    [leaves[3], leaves[leaves.len() / 2]].iter().for_each(|slot| saved.corrupt(*slot));
    let mut opened = saved.open();
    let lost = saved.lost(&mut opened);
    assert!(opened.scan(0).is_err(), "a walk is whole or fails");
    opened.store.damage().set_skips(true);
    for _ in 0..2 {
        let found = opened.scan(0).expect("the rest can be read");
        assert!(found.iter().collect::<BTreeSet<_>>().len() == found.len(), "a key is given once");
        let expected: BTreeSet<_> = saved.keys_of(0).difference(&lost).cloned().collect();
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
        assert_eq!(opened.store.damage().skip_stats().passed_count, 2);
    }
    for _ in 0..1_000 {
        let drawn = opened.run(|worker| worker.database(DbId(0)).random_key()).expect("the rest can be read");
        assert!(drawn.is_some_and(|key| !lost.contains(&key)));
    }
    let notes = opened.store.damage().take_notes();
    assert!(notes.len() == 2 && notes.iter().all(|note| note.contains("byte")), "{notes:?}");
    assert_eq!(opened.store.damage().take_notes(), Vec::<String>::new());
    assert!(opened.read(0, lost.first().expect("some")).is_err(), "what is lost is not absent");
    opened.store.damage().set_skips(false);
    assert!(opened.scan(0).is_err());
}

/// A leaf, or the node above many, is given up when one of its keys is written: the others of it are gone then, and so is
/// what only they referred to.
#[test]
fn a_key_of_a_lost_part_can_be_written_on_request() {
    for kind in [LEAF, INNER] {
        let saved = Saved::new(30_000);
        let slots = saved.slots(kind);
        // Above the leaves, and below the root.
        let image = saved.device.image();
        let slot = slots.into_iter().rev().find(|slot| kind == LEAF || image[slot * PAGE_SIZE + 1] == 1);
        saved.corrupt(slot.expect("a page of a tree"));
        let mut opened = saved.open();
        let lost: Vec<_> = saved.lost(&mut opened).into_iter().collect();
        assert!(lost.len() > if kind == LEAF { 5 } else { 1_000 }, "{} keys", lost.len());
        assert!(opened.put(0, &lost[0], b"new").is_err(), "it is an error without the policy");
        assert!(opened.remove(0, &lost[0]).is_err());
        opened.store.damage().set_skips(true);
        assert!(opened.read(0, &lost[0]).is_err(), "to read is no reason");
        opened.put(0, &lost[0], b"new").expect("it can be written");
        let note = opened.store.damage().take_notes().concat();
        assert!(note.contains("given up") && note.contains("byte"), "{note}");
        let is_gone = |opened: &mut Opened, key: &[u8]| opened.read(0, key) == Ok(None);
        assert!(lost[1..].iter().all(|key| is_gone(&mut opened, key)));
        opened.store.damage().set_skips(false);
        let mut expected: BTreeSet<_> = saved.keys_of(0);
        expected.retain(|key| !lost[1..].contains(key));
        let assert_all = |opened: &mut Opened| {
            let found: BTreeSet<_> = opened.scan(0).expect("nothing is damaged").into_iter().collect();
            assert_eq!(found, expected);
            assert_eq!(opened.store.db_stats(DbId(0)).key_count, expected.len() as u64);
            assert_eq!(opened.scan(OTHER_DB).expect("whole").len(), saved.keys_of(OTHER_DB).len());
        };
        opened.wait_until_tidy();
        assert_eq!(opened.store.damage().skip_stats().given_up_count, 1);
        assert_all(&mut opened);
        let mut opened = assert_nothing_leaks(&saved.device, opened);
        assert_all(&mut opened);
    }
}

/// A value is removed or replaced although it cannot be read, whichever of its pages is damaged.
#[test]
fn a_key_with_a_damaged_value_can_be_written() {
    let saved = Saved::new(2_000);
    let (object, other) = (value(100, 20_000), value(300, 20_000));
    let mut slots = vec![saved.slot_with(&object[..200]), saved.slot_with(&other[9_000..9_200])];
    // A page in the middle of a slab, and the first of another.
    slots.push(saved.slot_with(&value(510, 1_500)[600..800]));
    let slabs = saved.slots(SLAB);
    slots.push(*slabs.iter().rev().find(|slot| !slots.contains(slot)).expect("a slab"));
    slots.iter().for_each(|slot| saved.corrupt(*slot));
    let mut opened = saved.open();
    let mut lost = saved.lost(&mut opened);
    assert!(lost.contains(&key(100)) && lost.contains(&key(300)) && lost.contains(&key(510)));
    assert!(lost.len() > 10, "a slab has many");
    let mut expected = saved.content.clone();
    for (number, key) in lost.iter().enumerate() {
        let id = (0, key.clone());
        let old_len = expected[&id].value.len();
        match number % 3 {
            0 => {
                assert_eq!(opened.remove(0, key), Ok(true), "{}", String::from_utf8_lossy(key));
                expected.remove(&id);
                continue;
            }
            // Of a size that is written in place if it can be.
            1 => expected.insert(id, Entry { value: value(7, old_len - 3), deadline: None }),
            _ => expected.insert(id, Entry { value: value(8, 10), deadline: None }),
        };
        let new = &expected[&(0, key.clone())].value;
        opened.put(0, key, new).unwrap_or_else(|text| panic!("{}: {text}", String::from_utf8_lossy(key)));
    }
    lost.clear();
    // And others of these sizes can be stored, which go to slabs with damage in them.
    for number in 0..400 {
        let (key, value) = (format!("more-{number}").into_bytes(), value(number, 1_500));
        opened.put(0, &key, &value).expect("there are other places");
        expected.insert((0, key), Entry { value, deadline: None });
    }
    for number in (0..400).step_by(2) {
        let key = format!("more-{number}").into_bytes();
        assert_eq!(opened.remove(0, &key), Ok(true));
        expected.remove(&(0, key));
    }
    assert!(opened.content() == expected);
    opened.checkpoint().expect("a checkpoint");
    drop(opened);
    saved.device.crash();
    let mut opened = saved.open();
    assert!(opened.content() == expected);
    // When everything is removed, everything is free.
    [0, OTHER_DB]
        .iter()
        .for_each(|db| opened.worker.database(DbId(*db)).flush().expect("it can be emptied always"));
    opened.wait_until_tidy();
    assert_eq!(opened.allocated_page_count(), saved.empty_page_count);
    assert_nothing_leaks(&saved.device, opened);
}

/// Databases are emptied of which leaves, a node, the root, and slabs are damaged, one or all: nothing of them stays, not
/// even what nothing but a lost leaf led to, and the other database stays as it is.
#[test]
fn a_flush_leaves_nothing_that_only_lost_pages_led_to() {
    for (name, all) in [("one", false), ("all", true)] {
        let saved = Saved::new(30_000);
        let leaves = saved.slots(LEAF);
        leaves.iter().step_by(leaves.len() / 5).for_each(|slot| saved.corrupt(*slot));
        saved.corrupt(saved.slots(INNER)[1]);
        if all {
            saved.slots(SLAB).iter().step_by(4).for_each(|slot| saved.corrupt(*slot));
        }
        let mut opened = saved.open();
        opened.worker.database(DbId(0)).flush().expect("it can be emptied always");
        if all {
            opened.worker.database(DbId(OTHER_DB)).flush().expect("it can be emptied always");
        }
        opened.wait_until_tidy();
        if all {
            assert_eq!(opened.allocated_page_count(), saved.empty_page_count, "{name}");
        }
        let mut opened = assert_nothing_leaks(&saved.device, opened);
        let mut expected = saved.content.clone();
        expected.retain(|(db, _), _| !all && *db != 0);
        assert!(opened.content() == expected, "{name}");
    }
}

/// That something may have leaked is remembered over a restart.
#[test]
fn what_may_have_leaked_is_found_after_a_restart() {
    let saved = Saved::new(6_000);
    let leaves = saved.slots(LEAF);
    saved.corrupt(leaves[leaves.len() / 2]);
    saved.corrupt(leaves[leaves.len() / 3]);
    let mut opened = saved.open();
    let lost: Vec<_> = saved.lost(&mut opened).into_iter().collect();
    opened.store.damage().set_skips(true);
    opened.remove(0, &lost[0]).expect("it can be removed");
    // The other leaf may refer to anything, so nothing is freed yet.
    let still_lost = lost.iter().find(|key| opened.read(0, key).is_err()).expect("the other leaf");
    opened.checkpoint().expect("a checkpoint");
    drop(opened);
    saved.device.crash();
    let mut opened = saved.open();
    opened.store.damage().set_skips(true);
    assert_eq!(opened.remove(0, still_lost), Ok(false));
    assert_nothing_leaks(&saved.device, opened);
}

#[test]
fn an_operation_that_needs_what_is_lost_says_so() {
    let saved = Saved::new(3_000);
    let leaves = saved.slots(LEAF);
    saved.corrupt(leaves[leaves.len() / 2]);
    let mut opened = saved.open();
    let lost = saved.lost(&mut opened);
    opened.store.damage().set_skips(true);
    let key = lost.first().expect("some");
    let appended = opened.run(|worker| worker.string_at(DbId(0), &worker.key(key)).write_range(3, b"x"));
    assert!(appended.is_err(), "half a value is not the value");
    let expiring = opened.run(|worker| worker.set_deadline(DbId(0), &worker.key(key), Some(1 << 40)));
    assert!(expiring.is_err());
    assert!(matches!(opened.worker.touch(DbId(0), &opened.worker.key(key)), Err(OpError::Damaged(_))));
    assert_eq!(opened.store.damage().skip_stats().given_up_count, 0);
}

/// The thread that collects garbage looks for what has leaked beside a store that is closed: neither waits in vain.
#[test]
fn a_store_is_closed_while_leaked_pages_are_looked_for() {
    let saved = Saved::new(3_000);
    let leaves = saved.slots(LEAF);
    saved.corrupt(leaves[leaves.len() / 2]);
    let mut opened = saved.open();
    let lost = saved.lost(&mut opened).into_iter().next().expect("some");
    for round in 0..100 {
        opened.wait_until_warm();
        opened.store.damage().set_skips(true);
        opened.remove(0, &lost).expect("it can be removed");
        let until = Instant::now() + Duration::from_micros(round * 20);
        opened.worker.idle(|| while Instant::now() < until {});
        drop(opened);
        opened = saved.open();
    }
}
