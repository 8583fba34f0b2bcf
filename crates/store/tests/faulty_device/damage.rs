//! Disks that damage data without a word, and reads that fail: an error or an older checkpoint, never wrong data.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stillframe_pagepool::device::{Fault, FaultRates, SimDevice};
use stillframe_pagepool::PAGE_SIZE;
use stillframe_store::DbId;

use crate::model::{open, open_accepting, Content, Entry, Opened};

const CHANGE_COUNT: u32 = 120;

/// Two checkpoints, as a device holds them.
struct Sample {
    image: Vec<u8>,
    previous: Content,
    newest: Content,
}

/// What a damaged device serves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    /// It does not open.
    Refused,
    /// The checkpoint before the newest, all of it.
    Previous,
    /// The same but for keys that cannot be read.
    PreviousErrors,
    /// The newest but for keys that cannot be read.
    Errors,
    /// The newest, all of it.
    Newest,
}

/// Applies changes until there are a few, and saves.
fn save_changes(opened: &mut Opened, content: &mut Content, rng: &mut fastrand::Rng) {
    opened.change_some(content, rng, CHANGE_COUNT);
    opened.checkpoint().expect("a checkpoint");
}

impl Sample {
    fn new(seed: u64) -> Sample {
        let mut rng = fastrand::Rng::with_seed(seed);
        let device = Arc::new(SimDevice::new(seed));
        let mut opened = open(&device).expect("a new store");
        let mut content = Content::new();
        save_changes(&mut opened, &mut content, &mut rng);
        save_changes(&mut opened, &mut content, &mut rng);
        let previous = content.clone();
        save_changes(&mut opened, &mut content, &mut rng);
        assert_ne!(previous, content);
        Sample { image: device.image(), previous, newest: content }
    }

    fn device(&self, seed: u64) -> Arc<SimDevice> {
        Arc::new(SimDevice::from_image(seed, self.image.clone()))
    }
}

/// Fails if the device serves anything but one of the checkpoints, newest first, or that with errors in place of
/// values. Errors must name the device and the byte.
fn outcome(device: &Arc<SimDevice>, checkpoints: &[&Content]) -> Outcome {
    match open(device) {
        Ok(mut opened) => outcome_of(&mut opened, checkpoints),
        Err(error) => {
            assert_named(&error.to_string());
            Outcome::Refused
        }
    }
}

fn outcome_of(opened: &mut Opened, checkpoints: &[&Content]) -> Outcome {
    let keys: BTreeSet<_> = checkpoints.iter().flat_map(|content| content.keys()).collect();
    let mut misfits = vec![Vec::new(); checkpoints.len()];
    let mut error_count = 0;
    for id in keys {
        match opened.read(id.0, &id.1) {
            Err(reason) => {
                assert_named(&reason);
                error_count += 1;
            }
            Ok(found) => {
                for (content, misfits) in checkpoints.iter().zip(&mut misfits) {
                    let expected = content.get(id);
                    if expected != found.as_ref() {
                        let key = String::from_utf8_lossy(&id.1);
                        misfits.push(format!(
                            "{}:{key}: {}, not {}",
                            id.0,
                            shown(found.as_ref()),
                            shown(expected)
                        ));
                    }
                }
            }
        }
    }
    let Some(served) = misfits.iter().position(Vec::is_empty) else {
        panic!("what is served is none of the checkpoints: {misfits:#?}");
    };
    match (served, error_count) {
        (0, 0) => Outcome::Newest,
        (0, _) => Outcome::Errors,
        (_, 0) => Outcome::Previous,
        _ => Outcome::PreviousErrors,
    }
}

fn shown(entry: Option<&Entry>) -> String {
    entry.map_or("nothing".to_owned(), |entry| format!("{} bytes", entry.value.len()))
}

fn assert_named(text: &str) {
    let has_place = text.contains("byte") || text.contains("is not a page file");
    assert!(text.contains("simulated device") && has_place, "no place is named: {text}");
}

#[test]
fn a_damaged_slot_is_never_served() {
    let seed = stillframe_testkit::seed_or(31);
    let sample = Sample::new(seed);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut seen = BTreeMap::new();
    for slot in 0..sample.image.len() / PAGE_SIZE {
        let device = sample.device(seed);
        let at = slot * PAGE_SIZE + rng.usize(..PAGE_SIZE);
        let bit = rng.u8(..8);
        device.corrupt(at as u64, 1, |bytes| bytes[0] ^= 1 << bit);
        *seen.entry(outcome(&device, &[&sample.newest, &sample.previous])).or_insert(0) += 1;
    }
    println!("{seen:?}");
    for expected in [Outcome::Refused, Outcome::Errors, Outcome::Newest] {
        assert!(seen.contains_key(&expected), "{seen:?}");
    }
    assert!(!seen.contains_key(&Outcome::Previous), "an older one was served unasked: {seen:?}");
    assert!(!seen.contains_key(&Outcome::PreviousErrors), "{seen:?}");
}

/// Where the newest checkpoint does not load, the one before it is served to who accepts that loss and no other.
#[test]
fn an_older_checkpoint_is_served_only_if_the_loss_is_accepted() {
    let seed = stillframe_testkit::seed_or(35);
    let sample = Sample::new(seed);
    let mut counts = [0; 2];
    for slot in 0..sample.image.len() / PAGE_SIZE {
        let device = sample.device(seed);
        device.corrupt((slot * PAGE_SIZE) as u64 + 20, 1, |bytes| bytes[0] ^= 1);
        let Err(error) = open(&device) else { continue };
        let text = error.to_string();
        let Some((_, rest)) = text.split_once("'accept-loss-after-checkpoint ") else {
            // Pages of the map that both checkpoints share: without them neither loads.
            assert!(text.contains("no checkpoint can be loaded"), "{text}");
            counts[0] += 1;
            continue;
        };
        let digits = rest.split('\'').next().unwrap_or_default();
        let accepted: u64 = digits.parse().expect("a number");
        assert!(open_accepting(&device, Some(accepted + 1)).is_err());
        let mut opened = open_accepting(&device, Some(accepted)).expect("the loss is accepted");
        assert!(opened.store.recovery_note().is_some_and(|note| note.contains("is lost")));
        assert_eq!(outcome_of(&mut opened, &[&sample.newest, &sample.previous]), Outcome::Previous);
        opened.wait_until_warm();
        opened.checkpoint().expect("it is whole");
        drop(opened);
        // From then on it is the last one that was saved.
        assert_eq!(outcome(&device, &[&sample.newest, &sample.previous]), Outcome::Previous);
        counts[1] += 1;
    }
    assert!(counts[0] <= 3 && counts[1] > 3, "{counts:?}");
}

/// The first checkpoint of all: in place of it there is nothing but the empty store, which nobody takes for the data.
#[test]
fn damage_to_the_first_checkpoint_never_opens_an_empty_store() {
    let seed = stillframe_testkit::seed_or(36);
    let mut rng = fastrand::Rng::with_seed(seed);
    let device = Arc::new(SimDevice::new(seed));
    let mut opened = open(&device).expect("a new store");
    let mut content = Content::new();
    save_changes(&mut opened, &mut content, &mut rng);
    drop(opened);
    let image = device.image();
    for slot in 0..image.len() / PAGE_SIZE {
        for call in [None, Some(slot as u64)] {
            let device = Arc::new(SimDevice::from_image(seed, image.clone()));
            match call {
                None => {
                    let at = slot * PAGE_SIZE + rng.usize(..PAGE_SIZE);
                    device.corrupt(at as u64, 1, |bytes| bytes[0] ^= 2);
                }
                Some(call) => (call..call + 3).for_each(|call| device.schedule(call, Fault::Error)),
            }
            let outcome = outcome(&device, &[&content, &Content::new()]);
            assert!(
                outcome != Outcome::Previous && outcome != Outcome::PreviousErrors,
                "{slot}: {outcome:?}"
            );
        }
    }
}

/// A write that the disk damages and acknowledges, in every call of a checkpoint.
#[test]
fn a_write_damaged_in_silence_is_never_served() {
    let seed = stillframe_testkit::seed_or(32);
    let sample = Sample::new(seed);
    let mut seen = BTreeSet::new();
    for fault in [Fault::LostWrite, Fault::TornWrite, Fault::MisdirectedWrite, Fault::BitFlip] {
        for call in 0.. {
            let mut rng = fastrand::Rng::with_seed(seed);
            let device = sample.device(seed + call);
            let mut opened = open(&device).expect("an undamaged store");
            opened.wait_until_warm();
            let first = device.call_count();
            device.schedule(first + call, fault);
            let mut content = sample.newest.clone();
            opened.change_some(&mut content, &mut rng, CHANGE_COUNT);
            let is_saved = opened.checkpoint().is_ok();
            let is_past_the_end = device.call_count() <= first + call;
            drop(opened);
            device.clear_faults();
            let outcome = match open(&device) {
                // One large write in the wrong place may take the maps of two checkpoints with it.
                Err(error) if fault == Fault::MisdirectedWrite => {
                    assert_named(&error.to_string());
                    Outcome::Refused
                }
                Err(error) => panic!("{fault:?} in call {call}: {error}"),
                Ok(mut opened) => {
                    let outcome = outcome_of(&mut opened, &[&content, &sample.newest, &sample.previous]);
                    // What loses the checkpoint is noticed when it is taken.
                    let is_there = matches!(outcome, Outcome::Newest | Outcome::Errors);
                    assert!(
                        is_there || !is_saved,
                        "{fault:?} in call {call}: {outcome:?} after a complete save"
                    );
                    outcome
                }
            };
            seen.insert(outcome);
            if is_past_the_end {
                break;
            }
        }
    }
    assert!(seen.len() > 2, "{seen:?}");
}

#[test]
fn a_read_that_fails_is_an_error_and_not_data() {
    let seed = stillframe_testkit::seed_or(33);
    let sample = Sample::new(seed);
    let mut seen = BTreeSet::new();
    for fault in [Fault::Error, Fault::BitFlip] {
        for call in 0..40 {
            let device = sample.device(seed + call);
            device.schedule(call, fault);
            seen.insert(outcome(&device, &[&sample.newest, &sample.previous]));
        }
    }
    assert!(seen.contains(&Outcome::Newest) && seen.len() > 1, "{seen:?}");
}

/// With errors of reads at random while the store is changed: no value is ever wrong, and a save that succeeds is
/// complete.
#[test]
fn random_read_errors_lose_nothing_that_is_saved() {
    let seed = stillframe_testkit::seed_or(34);
    let sample = Sample::new(seed);
    let mut error_count = 0;
    for round in 0..30 {
        let mut rng = fastrand::Rng::with_seed(seed + round);
        let device = sample.device(seed + round);
        let mut opened = open(&device).expect("an undamaged store");
        device.set_rates(FaultRates { read_error: 0.6, ..FaultRates::default() });
        let mut content = sample.newest.clone();
        for _ in 0..CHANGE_COUNT {
            error_count += usize::from(opened.try_change(&mut content, &mut rng).is_err());
        }
        let is_saved = opened.checkpoint().is_ok();
        drop(opened);
        device.clear_faults();
        device.crash();
        // The superblock is there before it is read back: a save that fails then may have been one.
        let outcome = outcome(&device, &[&content, &sample.newest]);
        assert!(
            outcome == Outcome::Newest || (outcome == Outcome::Previous && !is_saved),
            "round {round}: {outcome:?}"
        );
    }
    assert!(error_count > 0);
}

/// A database with a damaged leaf is emptied: all its pages are free again, those that cannot be read too.
#[test]
fn a_damaged_leaf_does_not_keep_a_flushed_tree() {
    let device = Arc::new(SimDevice::new(1));
    let mut opened = open(&device).expect("a new store");
    let empty_page_count = opened.store.pool().stats().allocated_pages;
    for number in 0..6_000 {
        opened.add(&mut Content::new(), &format!("of-a-leaf-{number}"), 60, &mut fastrand::Rng::new());
    }
    opened.add(&mut Content::new(), "large", 300_000, &mut fastrand::Rng::new());
    opened.checkpoint().expect("a checkpoint");
    drop(opened);
    let image = device.image();
    let is_leaf = |page: &[u8]| page[0] == 1 && page.windows(10).any(|bytes| bytes == b"of-a-leaf-");
    let leaves: Vec<_> = (0..).zip(image.chunks(PAGE_SIZE)).filter(|(_, page)| is_leaf(page)).collect();
    assert!(leaves.len() > 100);
    let damaged = leaves[leaves.len() / 2].0 * PAGE_SIZE as u64;
    device.corrupt(damaged + 2_000, 1, |bytes| bytes[0] ^= 1);
    let mut opened = open(&device).expect("all but a leaf is whole");
    opened.wait_until_warm();
    opened.worker.database(DbId(0)).flush().expect("databases can be emptied always");
    opened.wait_until_tidy();
    assert_eq!(opened.store.pool().stats().allocated_pages, empty_page_count);
    opened.check();
    opened.checkpoint().expect("a checkpoint");
    drop(opened);
    device.crash();
    let mut opened = open(&device).expect("an undamaged store");
    opened.check();
    assert!(opened.content().is_empty());
}
