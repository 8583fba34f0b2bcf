//! A page file that somebody has made up, every checksum of which fits: what is in it may be wrong, but it is served or refused
//! without a panic, and nothing hangs. Replay a failure with `STILLFRAME_SEED=<seed>`; `STILLFRAME_SEEDS` says how many from
//! that one on.

mod collections;
mod edits;
#[allow(dead_code)]
#[path = "../faulty_device/model.rs"]
mod model;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use stillframe_pagepool::device::SimDevice;
use stillframe_pagepool::{PageId, PAGE_SIZE};
use stillframe_store::DbId;

use model::{open, Content, Opened, DATABASE_COUNT};

/// The longest that one seed takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// What threads panicked with, those of the store as well.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn what_is_made_up_is_served_or_refused() {
    each_seed(serve_what_is_made_up);
}

#[test]
fn collections_that_are_made_up_are_served_or_refused() {
    each_seed(serve_collections_that_are_made_up);
}

/// Whoever changes a record holds its leaf, and would wait for itself if it followed a reference to there.
#[test]
fn references_to_their_own_leaf_are_told_at_once() {
    each_seed(serve_references_to_their_own_leaf);
}

/// What fuzzing does with bytes of its own (`fuzz/fuzz_targets/collections.rs`).
#[test]
fn edited_pages_are_served_or_refused() {
    each_seed(|seed| {
        let mut rng = Rng::with_seed(seed);
        let bytes: Vec<u8> = (0..8 * rng.usize(1..12)).map(|_| rng.u8(..) >> rng.u32(..8)).collect();
        edits::serve(&bytes);
    });
}

fn each_seed(serve: fn(u64)) {
    // Panics are those of the whole process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    std::panic::set_hook(Box::new(|panic| {
        let trace = std::backtrace::Backtrace::force_capture();
        PANICS.lock().expect("a line").push(format!("{panic}\n{trace}"));
    }));
    let mut seeds = stillframe_testkit::seeds(20_261_123, 40);
    let failure = seeds.find_map(|seed| Some((seed, failure_of(seed, serve)?)));
    drop(std::panic::take_hook());
    if let Some((seed, failure)) = failure {
        panic!("STILLFRAME_SEED={seed}: {failure}");
    }
}

/// How it went wrong.
fn failure_of(seed: u64, serve: fn(u64)) -> Option<String> {
    let (done, is_done) = channel();
    std::thread::spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(|| serve(seed)));
        // Who waits may have given up.
        let _ = done.send(result.is_ok());
    });
    let ended = is_done.recv_timeout(PATIENCE);
    let panics = std::mem::take(&mut *PANICS.lock().expect("a line"));
    match ended {
        Err(_) => Some(format!("it hangs; panics: {panics:#?}")),
        Ok(_) => panics.into_iter().next(),
    }
}

fn serve_what_is_made_up(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let device = Arc::new(SimDevice::new(seed));
    {
        let mut opened = open(&device).expect("a new store");
        let mut content = Content::new();
        opened.change_some(&mut content, &mut rng, 200);
        opened.wait_until_tidy();
        make_up(&opened, &mut rng);
        opened.checkpoint().expect("nothing fails");
    }
    // Nothing is promised of what is there, not even that it opens.
    if let Ok(mut opened) = open(&device) {
        use_all(&mut opened, &mut rng);
    }
    if let Ok(mut opened) = open(&device) {
        use_all(&mut opened, &mut rng);
    }
}

fn serve_references_to_their_own_leaf(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let mut opened = open(&Arc::new(SimDevice::new(seed))).expect("a new store");
    let keys: Vec<Vec<u8>> = (0..40).map(|nth| vec![nth; [3, 300, 2_000][rng.usize(..3)]]).collect();
    let lens: Vec<usize> = keys.iter().map(|_| [10, 700, 5_000, 100_000][rng.usize(..4)]).collect();
    keys.iter().zip(&lens).for_each(|(key, len)| {
        opened.put(0, key, &vec![0xee; *len]).expect("an undamaged store");
    });
    opened.wait_until_tidy();
    let known: Vec<u32> =
        keys.iter().map(|key| key.len() as u32).chain(lens.iter().map(|len| *len as u32)).collect();
    assert!(refer_to_own_leaf(&opened, &known) > 20);
    for key in &keys {
        let answers = [
            opened.read(0, key).map(drop),
            opened.run(|worker| {
                worker.string_at(DbId(0), &worker.key(key)).write_range(40, &[9; 300]).map(drop)
            }),
            opened.put(0, key, b"short").map(drop),
            opened.remove(0, key).map(drop),
        ];
        for reason in answers.into_iter().filter_map(Result::err) {
            assert!(!reason.contains("never got through"), "{} bytes: {reason}", key.len());
        }
    }
}

/// Lets what is as long as one of these, by its reference, lie in the page of the reference. Tells how often.
fn refer_to_own_leaf(opened: &Opened, known_lens: &[u32]) -> usize {
    let pool = opened.store.pool();
    let end = pool.stats().allocated_pages as u32 + 200;
    let is_in_use = |page: u32| pool.residency().is_in_use(PageId(page));
    let mut edit_count = 0;
    for page in (1..end).map(PageId) {
        let Ok(mut guard) = pool.exclusive(page) else { continue };
        let bytes = guard.page_mut();
        for at in 0..PAGE_SIZE - 12 {
            let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
            if is_in_use(word(at)) && known_lens.contains(&word(at + 4)) && word(at + 4) > 255 {
                bytes[at..at + 4].copy_from_slice(&page.0.to_le_bytes());
                edit_count += 1;
            }
        }
    }
    edit_count
}

fn serve_collections_that_are_made_up(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let device = Arc::new(SimDevice::new(seed));
    {
        let mut opened = open(&device).expect("a new store");
        collections::make(&mut opened, &mut rng, &collections::SIZES);
        // Trees that are still to be freed are damaged as well.
        if rng.bool() {
            opened.wait_until_tidy();
        }
        make_up(&opened, &mut rng);
        if rng.bool() {
            collections::use_all(&mut opened, &mut rng);
        }
        drop(opened.checkpoint());
    }
    for _ in 0..2 {
        if let Ok(mut opened) = open(&device) {
            collections::use_all(&mut opened, &mut rng);
            use_all(&mut opened, &mut rng);
        }
    }
}

/// Writes nonsense into some pages.
fn make_up(opened: &Opened, rng: &mut Rng) {
    let pool = opened.store.pool();
    let end = pool.stats().allocated_pages as u32 + 200;
    let in_use: Vec<PageId> = (1..end).map(PageId).filter(|&page| pool.exclusive(page).is_ok()).collect();
    for _ in 0..rng.u32(1..6) {
        let page = in_use[rng.usize(..in_use.len())];
        let other = in_use[rng.usize(..in_use.len())];
        let copy = *pool.exclusive(other).expect("it has been looked at").page();
        let mut guard = pool.exclusive(page).expect("it has been looked at");
        let bytes = guard.page_mut();
        match rng.u8(..6) {
            // Where a pid may be: children of nodes by each format, the next leaf of a chain, or the page's own.
            5 => {
                let at = [28, 8, 16, 24, 96, 100, 160, 164, 342 * 8, 342 * 8 + 4][rng.usize(..10)];
                let number = if rng.bool() { page.0 } else { other.0 };
                bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
            0 => bytes.copy_from_slice(&copy),
            1 => {
                let (from, to) = (rng.usize(..PAGE_SIZE - 256), rng.usize(..PAGE_SIZE - 256));
                let len = rng.usize(1..256);
                bytes[to..to + len].copy_from_slice(&copy[from..from + len]);
            }
            2 => {
                let at = 4 * rng.usize(..PAGE_SIZE / 4);
                let number = if rng.bool() { in_use[rng.usize(..in_use.len())].0 } else { rng.u32(..) };
                bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
            3 => (0..rng.u32(1..20)).for_each(|_| bytes[rng.usize(..128)] = rng.u8(..)),
            _ => (0..rng.u32(1..40)).for_each(|_| bytes[rng.usize(..PAGE_SIZE)] = rng.u8(..)),
        }
    }
}

/// Everything that a client may do. What it finds does not matter.
fn use_all(opened: &mut Opened, rng: &mut Rng) {
    let keys = all_keys(opened);
    drop(opened.store.check());
    for _ in 0..200 {
        let (db, key) = match keys.is_empty() || rng.bool() {
            true => (0, format!("small-{}", rng.u8(..120)).into_bytes()),
            false => keys[rng.usize(..keys.len())].clone(),
        };
        match rng.u8(..6) {
            0 | 1 => drop(opened.read(db, &key)),
            2 => drop(opened.put(db, &key, &vec![7; [10, 600, 5_000, 100_000][rng.usize(..4)]])),
            3 => drop(opened.run(|worker| {
                worker.string_at(DbId(db), &worker.key(&key)).write_range(40, &[9; 300]).map(drop)
            })),
            4 => drop(opened.remove(db, &key)),
            _ => drop(opened.run(|worker| worker.entry(DbId(db), &worker.key(&key)).map(drop))),
        }
    }
    // A save may find that it cannot write what is not as it should be.
    drop(opened.checkpoint());
    drop(opened.worker.database(DbId(0)).flush());
    for _ in 0..50 {
        if opened.store.is_tidy() {
            break;
        }
        opened.worker.idle(|| std::thread::sleep(Duration::from_millis(1)));
    }
    drop(opened.checkpoint());
}

/// Keys that a scan finds, until it fails.
fn all_keys(opened: &mut Opened) -> Vec<(u32, Vec<u8>)> {
    let mut keys = Vec::new();
    for db in 0..DATABASE_COUNT {
        if let Ok(found) = opened.scan(db) {
            keys.extend(found.into_iter().map(|key| (db, key)));
        }
    }
    keys
}
