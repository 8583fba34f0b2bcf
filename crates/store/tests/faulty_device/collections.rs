//! Collections of all types, in records and in trees of their own: what was saved of them is there after a crash, and what
//! cannot be read or written is an error that has changed nothing. With all pages in memory, and with few of them.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use stillframe_pagepool::device::{Device, Fault, FaultRates, SimDevice};
use stillframe_pagepool::PAGE_SIZE;
use stillframe_store::{DbId, Deadline, NewValue, OpError, OpenError, SaveError};

use crate::collections_model::{hash, list, load, set, sorted_set, tried, Tried};
use crate::model::{self, Opened};

const DB: DbId = DbId(0);
/// The key that tells which save it is that a store has been opened from.
const SAVE_KEY: &[u8] = b"save";
/// Changes that make collections of all sizes out of none.
const FIRST_CHANGES: u32 = 3_000;
/// Changes between two checkpoints, and beside one.
const CHANGE_COUNT: u32 = 60;
/// Strings that memory has no room for beside each other.
const FILLER_COUNT: u32 = 100;
const FILLER_BYTES: usize = 100_000;
const FILLERS_A_TIME: u32 = 30;
/// A page that could not be read is read again after a second.
const UNTIL_READ_AGAIN: Duration = Duration::from_millis(1_050);

/// How much memory a store has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Memory {
    /// All pages are there, once they have been loaded.
    Enough,
    /// Pages come and go.
    Little,
}

impl Memory {
    fn open(self, device: &Arc<SimDevice>) -> Result<Opened, OpenError> {
        match self {
            Memory::Enough => model::open(device),
            Memory::Little => model::open_in_little_memory(device),
        }
    }

    /// Opens the store of the models on an undamaged device.
    fn open_for(self, device: &Arc<SimDevice>, models: &Models) -> Opened {
        let mut opened = self.open(device).unwrap_or_else(|error| panic!("it does not open: {error}"));
        opened.worker.set_now(models.hashes.now());
        opened
    }
}

/// What a store holds.
#[derive(Clone, Default)]
struct Models {
    hashes: hash::Model,
    lists: list::Model,
    sets: set::Model,
    sorted_sets: sorted_set::Model,
    filler_count: u32,
    /// Which save it is that has this, or will.
    save: u64,
}

fn filler(number: u32) -> (Vec<u8>, Vec<u8>) {
    let mut value = vec![0; FILLER_BYTES];
    Rng::with_seed(u64::from(number)).fill(&mut value);
    (format!("filler:{number}").into_bytes(), value)
}

fn put(opened: &mut Opened, key: &[u8], value: &[u8]) -> Tried {
    let value = NewValue::Bytes { bytes: value, raw: false };
    opened.worker.quiesce();
    tried(&opened.store, &mut opened.worker, |worker| {
        worker.set(DB, &worker.key(key), value, Deadline::Clear).map(drop)
    })
}

impl Models {
    /// Applies a random change to the store and to the models. An error has changed neither.
    fn step(&mut self, opened: &mut Opened, rng: &mut Rng) -> Tried {
        opened.worker.quiesce();
        self.read_fillers(opened, rng);
        make_room(opened)?;
        let Opened { store, worker } = opened;
        let result = match rng.u8(..4) {
            0 => hash::step(store, worker, &mut self.hashes, rng),
            1 => list::step(store, worker, &mut self.lists, rng),
            2 => set::step(store, worker, &mut self.sets, rng),
            _ => sorted_set::step(store, worker, &mut self.sorted_sets, rng),
        };
        worker.quiesce();
        result
    }

    /// Now and then, and if there are any: reads so many that pages of collections have to go.
    fn read_fillers(&self, opened: &mut Opened, rng: &mut Rng) {
        if self.filler_count == 0 || rng.u8(..8) > 0 {
            return;
        }
        for _ in 0..FILLERS_A_TIME {
            let (key, value) = filler(rng.u32(..self.filler_count));
            let result = tried(&opened.store, &mut opened.worker, |worker| {
                worker.get(DB, &worker.key(&key), |found| found.to_vec() == value)
            });
            opened.worker.quiesce();
            match result {
                Ok(is_it) => assert_eq!(is_it, Some(true), "{}", String::from_utf8_lossy(&key)),
                Err(error) => assert_of_the_device(&[error]),
            }
        }
    }

    /// Returns the errors of the changes that did not happen.
    fn change(&mut self, opened: &mut Opened, rng: &mut Rng, count: u32) -> Vec<OpError> {
        (0..count).filter_map(|_| self.step(opened, rng).err()).collect()
    }

    /// Fails if anything of a collection is wrong. Returns which cannot be read, and why.
    fn unreadable(&self, opened: &mut Opened, rng: &mut Rng) -> Vec<(Vec<u8>, OpError)> {
        let Opened { store, worker } = opened;
        let mut tries: Vec<(Vec<u8>, Tried)> = Vec::new();
        for name in hash::names() {
            worker.quiesce();
            tries.push((name.clone(), hash::compare(store, worker, &self.hashes, &name)));
        }
        for name in list::names() {
            worker.quiesce();
            tries.push((name.clone(), list::compare(store, worker, &self.lists, &name, rng)));
        }
        for name in set::names() {
            worker.quiesce();
            tries.push((name.clone(), set::compare(store, worker, &self.sets, &name)));
        }
        for name in sorted_set::names() {
            worker.quiesce();
            tries.push((name.clone(), sorted_set::compare(store, worker, &self.sorted_sets, &name, rng)));
        }
        worker.quiesce();
        tries.into_iter().filter_map(|(name, tried)| Some((name, tried.err()?))).collect()
    }

    /// The store holds this and nothing else.
    fn assert_content(&mut self, opened: &mut Opened, rng: &mut Rng) {
        let unreadable = self.unreadable(opened, rng);
        assert!(unreadable.is_empty(), "{unreadable:?}");
        hash::expire_all(&opened.store, &mut opened.worker, &mut self.hashes).expect("an undamaged store");
        // Nothing is put into the models by what fails, but maybe a collection without elements.
        let list_count = self.lists.values().filter(|list| !list.is_empty()).count();
        let set_count = self.sets.values().filter(|set| !set.is_empty()).count();
        let sorted_set_count = self.sorted_sets.values().filter(|set| !set.is_empty()).count();
        let count = self.hashes.live_count() + list_count + set_count + sorted_set_count;
        let others = self.filler_count + u32::from(self.save > 0);
        assert_eq!(opened.store.db_stats(DB).key_count, count as u64 + u64::from(others));
    }

    /// The same, and no page is lost.
    fn assert_whole(&mut self, opened: &mut Opened, rng: &mut Rng) {
        self.assert_content(opened, rng);
        opened.check();
    }
}

/// As who stores something has to.
fn make_room(opened: &mut Opened) -> Tried {
    if opened.store.is_stuck() {
        return Err(OpError::NoRoom);
    }
    if opened.store.is_full() {
        load(&opened.store, &mut opened.worker, stillframe_store::Fault::room());
    }
    Ok(())
}

/// Takes a checkpoint, and applies changes while it is written. Returns what it has, and whether it is durable; and the errors
/// of changes.
fn save(
    models: &mut Models,
    opened: &mut Opened,
    rng: &mut Rng,
) -> (Models, Result<(), SaveError>, Vec<OpError>) {
    models.save += 1;
    if let Err(error) = put(opened, SAVE_KEY, models.save.to_string().as_bytes()) {
        // It is not the one that it says.
        models.save -= 1;
        return (models.clone(), Err(SaveError::Damaged(error.to_string().into())), vec![error]);
    }
    let at_cut = models.clone();
    let store = opened.store.clone();
    let (cut, is_cut) = channel();
    let saver = std::thread::spawn(move || {
        let tell = move || cut.send(()).expect("the worker waits");
        store.checkpoint_telling(tell, || ()).map(drop)
    });
    // If it fails before there is a cut, nobody tells of one.
    let _ = opened.worker.idle(|| is_cut.recv());
    let count = rng.u32(..CHANGE_COUNT);
    let errors = models.change(opened, rng, count);
    let result = opened.worker.idle(|| saver.join().expect("a checkpoint does not panic"));
    (at_cut, result, errors)
}

/// What a run left: what the last completed checkpoint has, and what a failed one was meant to have.
struct Left {
    saved: Models,
    in_flight: Option<Models>,
}

/// Changes and checkpoints, up to the first that fails. Only a device that has crashed is a reason for that, or for a change not
/// to happen.
fn run(device: &Arc<SimDevice>, opened: &mut Opened, rng: &mut Rng, found: Models, save_count: u32) -> Left {
    let (mut saved, mut models) = (found.clone(), found);
    for _ in 0..save_count {
        let count = rng.u32(..CHANGE_COUNT);
        let mut errors = models.change(opened, rng, count);
        let (at_cut, result, more) = save(&mut models, opened, rng);
        errors.extend(more);
        errors.retain(|error| !matches!(error, OpError::LargerThanMemory { .. }));
        let has_crashed = device.len().is_err();
        assert!(has_crashed || errors.is_empty(), "{errors:?}");
        if let Err(error) = result {
            assert!(has_crashed, "{error}");
            let unreadable = models.unreadable(opened, rng);
            assert!(unreadable.is_empty() || opened.store.pool().room().evicts(), "{unreadable:?}");
            return Left { saved, in_flight: Some(at_cut) };
        }
        saved = at_cut;
    }
    Left { saved, in_flight: None }
}

/// Opens the store after a crash and fails unless it holds one of the two.
fn reopen(memory: Memory, device: &Arc<SimDevice>, left: Left, rng: &mut Rng) -> (Opened, Models) {
    let mut opened = memory.open_for(device, &left.saved);
    let save = opened.read(DB.0, SAVE_KEY).expect("an undamaged store").expect("it has been saved");
    let save: u64 = String::from_utf8_lossy(&save.value).parse().expect("a number");
    let saves = [Some(left.saved.save), left.in_flight.as_ref().map(|models| models.save)];
    let mut models = [Some(left.saved), left.in_flight]
        .into_iter()
        .flatten()
        .find(|models| models.save == save)
        .unwrap_or_else(|| panic!("save {save} is there; allowed are {saves:?}"));
    opened.worker.set_now(models.hashes.now());
    models.assert_content(&mut opened, rng);
    (opened, models)
}

/// A saved store with collections of all sizes.
struct Base {
    memory: Memory,
    image: Vec<u8>,
    models: Models,
    /// Calls of the device until the store is open; then pages are loaded.
    open_call_count: u64,
}

impl Base {
    fn new(memory: Memory) -> Base {
        let (mut rng, device) = (Rng::with_seed(7), Arc::new(SimDevice::new(7)));
        let mut models = Models::default();
        let mut opened = memory.open_for(&device, &models);
        if memory == Memory::Little {
            for number in 0..FILLER_COUNT {
                let (key, value) = filler(number);
                make_room(&mut opened).expect("the device works");
                put(&mut opened, &key, &value).expect("the device works");
            }
            models.filler_count = FILLER_COUNT;
        }
        let errors = models.change(&mut opened, &mut rng, FIRST_CHANGES);
        assert!(errors.is_empty(), "{errors:?}");
        let (mut models, result, _) = save(&mut models, &mut opened, &mut rng);
        result.expect("the device works");
        drop(opened);
        models.assert_whole(&mut memory.open_for(&device, &models), &mut rng);
        let mut base = Base { memory, image: device.image(), models, open_call_count: 0 };
        let opens_without_calls_from = |call: &u64| {
            let device = base.device(0);
            (*call..1_000).for_each(|call| device.schedule(call, Fault::Error));
            memory.open(&device).is_ok()
        };
        base.open_call_count = (0..).find(opens_without_calls_from).expect("it opens");
        base
    }

    fn device(&self, seed: u64) -> Arc<SimDevice> {
        Arc::new(SimDevice::from_image(seed, self.image.clone()))
    }
}

/// Runs a test with each seed, and says which it was. Returns whether they are those by default, of which it is known what they
/// meet.
fn each_seed(first: u64, count: u64, mut test: impl FnMut(u64)) -> bool {
    for seed in stillframe_testkit::seeds(first, count) {
        println!("STILLFRAME_SEED={seed}");
        test(seed);
    }
    ["STILLFRAME_SEED", "STILLFRAME_SEEDS"].iter().all(|name| std::env::var_os(name).is_none())
}

fn crash_again_and_again(memory: Memory, first_seed: u64, seed_count: u64, call_count: u64) {
    let base = Base::new(memory);
    let mut outcomes = [0; 3];
    let is_default = each_seed(first_seed, seed_count, |seed| {
        let (mut rng, device) = (Rng::with_seed(seed), base.device(seed));
        let mut models = base.models.clone();
        let mut opened = memory.open_for(&device, &models);
        for _ in 0..3 {
            // Where pages are loaded from other threads the calls are others each time.
            opened.wait_until_warm();
            device.schedule(device.call_count() + rng.u64(..call_count), Fault::Crash);
            let left = run(&device, &mut opened, &mut rng, models, 3);
            drop(opened);
            device.clear_faults();
            device.crash();
            let in_flight = left.in_flight.as_ref().map(|models| models.save);
            (opened, models) = reopen(memory, &device, left, &mut rng);
            opened.check();
            outcomes[in_flight.map_or(2, |save| usize::from(save == models.save))] += 1;
        }
        let left = run(&device, &mut opened, &mut rng, models, 1);
        assert!(left.in_flight.is_none());
        drop(opened);
        device.crash();
        reopen(memory, &device, left, &mut rng).0.check();
    });
    println!("the last {}, the one in flight {}, no crash {}", outcomes[0], outcomes[1], outcomes[2]);
    assert!(!is_default || outcomes[0] + outcomes[1] > 0, "{outcomes:?}");
}

#[test]
fn a_crash_leaves_the_collections_of_a_checkpoint() {
    crash_again_and_again(Memory::Enough, 41, 8, 40);
}

#[test]
fn a_crash_leaves_collections_that_are_larger_than_memory() {
    crash_again_and_again(Memory::Little, 42, 5, 700);
}

/// Nothing but what a device that fails may lead to.
fn assert_of_the_device(errors: &[OpError]) {
    let is_of_it = |error: &OpError| match error {
        OpError::Damaged(text) => text.contains("simulated device"),
        OpError::NoRoom | OpError::LargerThanMemory { .. } => true,
        _ => false,
    };
    let others: Vec<_> = errors.iter().filter(|error| !is_of_it(error)).collect();
    assert!(others.is_empty(), "{others:?}");
}

/// For a while many reads fail: what has been changed has been changed, all of it, and everything else is as it was.
fn fail_reads_for_a_while(memory: Memory, first_seed: u64, seed_count: u64) {
    let base = Base::new(memory);
    let (mut error_count, mut change_count) = (0, 0);
    let is_default = each_seed(first_seed, seed_count, |seed| {
        let (mut rng, device) = (Rng::with_seed(seed), base.device(seed));
        let mut models = base.models.clone();
        let read_error = [0.05, 0.2, 0.7][rng.usize(..3)];
        if memory == Memory::Enough {
            let calls = base.open_call_count..base.open_call_count + 200;
            calls.filter(|_| rng.f64() < read_error).for_each(|call| device.schedule(call, Fault::Error));
        }
        let mut opened = memory.open_for(&device, &models);
        device.set_rates(FaultRates { read_error, ..FaultRates::default() });
        let mut errors = models.change(&mut opened, &mut rng, 4 * CHANGE_COUNT);
        error_count += errors.len() as u32;
        change_count += 4 * CHANGE_COUNT - errors.len() as u32;
        let unreadable = models.unreadable(&mut opened, &mut rng);
        errors.extend(unreadable.into_iter().map(|(_, error)| error));
        assert_of_the_device(&errors);
        device.clear_faults();
        opened.worker.idle(|| std::thread::sleep(UNTIL_READ_AGAIN));
        models.assert_content(&mut opened, &mut rng);
        let left = run(&device, &mut opened, &mut rng, models, 1);
        assert!(left.in_flight.is_none());
        drop(opened);
        device.crash();
        // Slots of slabs that could not be read stay in use until it is looked for them after a start.
        let (mut opened, _) = reopen(memory, &device, left, &mut rng);
        opened.wait_until_warm();
        opened.wait_until_tidy();
        opened.check();
        opened.worker.database(DB).flush().expect("databases can be emptied always");
        opened.wait_until_tidy();
        opened.check();
    });
    println!("{error_count} errors, {change_count} changes");
    // Where everything is loaded after a start, it may be there before it is asked for.
    let may_meet_none = !is_default || memory == Memory::Enough;
    assert!(may_meet_none || (error_count > 0 && change_count > 0), "{error_count} errors");
}

#[test]
fn reads_that_fail_after_a_start_change_no_collection() {
    fail_reads_for_a_while(Memory::Enough, 43, 4);
}

#[test]
fn reads_that_fail_beside_evictions_change_no_collection() {
    fail_reads_for_a_while(Memory::Little, 44, 4);
}

/// A damaged page: nothing of what is on it is served or changed. All else is.
fn damage_a_page(base: &Base, seed: u64) -> usize {
    let (mut rng, device) = (Rng::with_seed(seed), base.device(seed));
    let at = (rng.usize(..base.image.len() / PAGE_SIZE) * PAGE_SIZE + rng.usize(..PAGE_SIZE)) as u64;
    let damage = |device: &SimDevice| device.corrupt(at, 1, |bytes| bytes[0] ^= 4);
    damage(&device);
    let mut models = base.models.clone();
    let Ok(mut opened) = base.memory.open(&device) else { return 1 };
    opened.worker.set_now(models.hashes.now());
    let mut unreadable = models.unreadable(&mut opened, &mut rng);
    let mut errors = models.change(&mut opened, &mut rng, CHANGE_COUNT);
    unreadable.extend(models.unreadable(&mut opened, &mut rng));
    let names: BTreeSet<_> = unreadable.iter().map(|(name, _)| name.clone()).collect();
    errors.extend(unreadable.into_iter().map(|(_, error)| error));
    assert_of_the_device(&errors);
    let is_saved = opened.worker.idle({
        let store = opened.store.clone();
        move || store.checkpoint().is_ok()
    });
    drop(opened);
    device.crash();
    let mut opened = base.memory.open_for(&device, if is_saved { &models } else { &base.models });
    let still = if is_saved { &models } else { &base.models }.unreadable(&mut opened, &mut rng);
    assert!(is_saved, "what is whole cannot be saved beside a damaged page");
    let still: BTreeSet<_> = still.into_iter().map(|(name, _)| name).collect();
    assert!(still.is_subset(&names), "{:?} cannot be read any more", still.difference(&names));
    2 + usize::from(!names.is_empty())
}

#[test]
fn a_damaged_page_is_an_error_for_the_collections_on_it() {
    let base = Base::new(Memory::Enough);
    let mut outcomes = [0; 4];
    each_seed(45, 24, |seed| outcomes[damage_a_page(&base, seed)] += 1);
    println!("refused {}, nothing is lost {}, something is {}", outcomes[1], outcomes[2], outcomes[3]);
}

/// Saves fail: collections go on as they were, and a restart finds one of the two checkpoints.
fn fail_saves(memory: Memory, first_seed: u64, seed_count: u64) {
    let base = Base::new(memory);
    each_seed(first_seed, seed_count, |seed| {
        let (mut rng, device) = (Rng::with_seed(seed), base.device(seed));
        let mut models = base.models.clone();
        let mut opened = memory.open_for(&device, &models);
        opened.wait_until_warm();
        models.change(&mut opened, &mut rng, CHANGE_COUNT);
        device.set_rates(match seed % 3 {
            0 => FaultRates { write_error: 1.0, ..FaultRates::default() },
            1 => FaultRates { sync_error: 1.0, ..FaultRates::default() },
            _ => FaultRates { no_space: 1.0, ..FaultRates::default() },
        });
        let (at_cut, result, mut errors) = save(&mut models, &mut opened, &mut rng);
        let error = result.expect_err("the device fails").to_string();
        errors.extend(models.change(&mut opened, &mut rng, 2 * CHANGE_COUNT));
        let unreadable = models.unreadable(&mut opened, &mut rng);
        errors.extend(unreadable.into_iter().map(|(_, error)| error));
        errors.retain(|error| !matches!(error, OpError::LargerThanMemory { .. }));
        // Without a page that can be written there is no room for others.
        let is_no_room = |error: &OpError| matches!(error, OpError::NoRoom) && memory == Memory::Little;
        assert!(errors.iter().all(is_no_room), "{errors:?}");
        device.clear_faults();
        let (again, result, _) = save(&mut models, &mut opened, &mut rng);
        println!("first '{error}', then {result:?}, {} errors", errors.len());
        let left = match result {
            Ok(()) => Left { saved: again, in_flight: None },
            Err(_) => Left { saved: base.models.clone(), in_flight: Some(at_cut) },
        };
        assert_eq!(left.in_flight.is_none(), seed % 3 == 2, "only a lack of space may pass");
        drop(opened);
        device.crash();
        reopen(memory, &device, left, &mut rng).0.check();
    });
}

#[test]
fn collections_go_on_when_saves_fail() {
    fail_saves(Memory::Enough, 46, 3);
}

#[test]
fn collections_larger_than_memory_go_on_when_saves_fail() {
    fail_saves(Memory::Little, 46, 3);
}
