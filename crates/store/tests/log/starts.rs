//! What a start makes of page files and logs.

use std::sync::Arc;

use stillframe_pagepool::device::Fault;
use stillframe_store::log::{LogStatus, SyncPolicy};
use stillframe_store::{libraries_version, DbId, Deadline, NewValue, OpenError, Store};

use crate::content::content_of;
use crate::lives::digest_of;
use crate::machine::{log_options, Machine};

fn set(store: &Store, key: &str, value: &str) {
    let mut worker = store.worker();
    let key = worker.key(key.as_bytes());
    let value = NewValue::Bytes { bytes: value.as_bytes(), raw: false };
    worker.set(DbId(0), &key, value, Deadline::Clear).unwrap();
}

fn open(machine: &Machine) -> Store {
    machine.open(Some(log_options(SyncPolicy::Never))).unwrap()
}

#[test]
fn a_log_is_replayed_whatever_is_asked_for() {
    let machine = Machine::new(1);
    let store = open(&machine);
    set(&store, "a", "1");
    store.checkpoint().unwrap();
    set(&store, "b", "2");
    store.log().sync().unwrap();
    let expected = digest_of(&store);
    for _ in 0..2 {
        // Without a log from now on: twice, since nothing is saved in between.
        let store = machine.crash(2).open(None).unwrap();
        assert_eq!((digest_of(&store), store.log().report().status), (expected.clone(), LogStatus::Off));
    }
    // A checkpoint without a log ends it.
    let machine = machine.crash(3);
    let store = machine.open(None).unwrap();
    store.checkpoint().unwrap();
    set(&store, "c", "3");
    let machine = machine.crash(4);
    let store = machine.open(None).unwrap();
    assert_eq!(digest_of(&store), expected);
    assert_eq!(machine.shelf.images().len(), 0, "the log has been removed");
}

#[test]
fn a_log_begins_and_ends_while_the_store_is_open() {
    let machine = Machine::new(1);
    let store = machine.open(None).unwrap();
    set(&store, "a", "1");
    store.log().set(Some(log_options(SyncPolicy::Never)));
    assert_eq!(store.log().report().status, LogStatus::Off);
    store.checkpoint().unwrap();
    assert_eq!(store.log().report().status, LogStatus::On);
    set(&store, "b", "2");
    store.log().sync().unwrap();
    let machine = machine.crash(2);
    let store = machine.open(None).unwrap();
    assert_eq!(content_of(&store).len(), 2);
    store.checkpoint().unwrap();
    drop(store);
    let store = machine.kill(3).open(None).unwrap();
    assert_eq!(content_of(&store).len(), 2);
}

/// A page file without its log, and a log without its page file, are refused by name.
#[test]
fn halves_are_refused() {
    let machine = Machine::new(1);
    let store = open(&machine);
    set(&store, "a", "1");
    store.checkpoint().unwrap();
    set(&store, "b", "2");
    store.log().sync().unwrap();
    drop(store);
    let half = Machine { device: Machine::new(2).device, shelf: Arc::new(machine.shelf.kill()) };
    let error = half.open(Some(log_options(SyncPolicy::Never))).err().unwrap();
    assert!(matches!(error, OpenError::LogAlone { .. }), "{error}");
    let half = Machine { device: machine.device.clone(), shelf: Machine::new(2).shelf };
    for log in [None, Some(log_options(SyncPolicy::Never))] {
        let error = half.open(log).err().unwrap();
        assert!(error.to_string().contains("is missing"), "{error}");
    }
}

/// The log reaches back to the checkpoint before the newest: if that one is damaged nothing is lost, and nobody has to accept anything.
#[test]
fn a_damaged_newest_checkpoint_costs_nothing() {
    let machine = Machine::new(1);
    let store = open(&machine);
    for number in 0..50 {
        set(&store, &format!("key:{number}"), &"x".repeat(300));
        if number % 20 == 5 {
            store.checkpoint().unwrap();
        }
    }
    store.log().sync().unwrap();
    let expected = digest_of(&store);
    drop(store);
    let machine = machine.kill(2);
    let mut fell_back = 0;
    // The newest of the two, and the witness.
    for place in 0..2u64 {
        let hurt = machine.copy(3 + place);
        for slot in [place, 2] {
            hurt.device.corrupt(slot * 4096 + 200, 8, |bytes| bytes.fill(0xee));
        }
        let store = open(&hurt);
        fell_back += u32::from(store.recovery_note().is_some_and(|note| note.contains("nothing is lost")));
        assert_eq!(digest_of(&store), expected, "place {place}");
        set(&store, "later", "1");
        store.log().sync().unwrap();
        let again = hurt.crash(7);
        drop(store);
        assert_eq!(content_of(&open(&again)).len(), 51);
    }
    assert!(fell_back > 0);
}

/// After a failed sync nothing more is durable in the log; a checkpoint makes durable what is in memory, and begins another one.
#[test]
fn a_log_that_has_failed_is_followed_by_another() {
    let machine = Machine::new(1);
    let store = machine.open(Some(log_options(SyncPolicy::Always))).unwrap();
    set(&store, "a", "1");
    store.log().sync().unwrap();
    let calls = machine.shelf.call_count();
    (calls..calls + 4).for_each(|call| machine.shelf.schedule(call, Fault::Error));
    set(&store, "b", "2");
    store.log().sync().expect_err("the disk has failed");
    assert_eq!(store.log().report().status, LogStatus::Failed);
    set(&store, "c", "3");
    machine.shelf.clear_faults();
    store.checkpoint().unwrap();
    assert_eq!(store.log().report().status, LogStatus::On);
    set(&store, "d", "4");
    store.log().sync().unwrap();
    let expected = digest_of(&store);
    let store = machine.crash(2).open(None).unwrap();
    assert_eq!((content_of(&store).len(), digest_of(&store)), (4, expected));
}

/// A store that has never been saved, whose log is asked for while it is open, and the start after that: whatever either is at when the power
/// fails, the next one opens.
#[test]
fn a_log_may_be_cut_off_while_it_begins() {
    let mut begun_count = 0;
    for first_call in 0..40 {
        let machine = Machine::new(first_call);
        let store = machine.open(None).unwrap();
        set(&store, "a", "1");
        store.log().set(Some(log_options(SyncPolicy::Always)));
        machine.crash_in(first_call);
        let is_saved = store.checkpoint().is_ok();
        let machine = machine.crash(first_call);
        drop(store);
        for second_call in 0..40 {
            let machine = machine.copy(second_call);
            machine.crash_in(second_call);
            let is_open = machine.open(Some(log_options(SyncPolicy::Always))).is_ok();
            begun_count += u32::from(!is_saved && !is_open);
            let machine = machine.crash(second_call);
            for log in [Some(log_options(SyncPolicy::Always)), None] {
                let opened = machine.copy(second_call).open(log);
                let store =
                    opened.unwrap_or_else(|error| panic!("calls {first_call}, {second_call}: {error}"));
                assert!(content_of(&store).len() == 1 || !is_saved, "calls {first_call}, {second_call}");
            }
        }
    }
    assert!(begun_count > 100, "{begun_count}");
}

/// Of a checkpoint, of the log behind it, or of a log that a checkpoint begins.
#[test]
fn function_libraries_are_in_the_log() {
    let source =
        |name: &str, len: usize| [format!("#!lua name={name}\n--").as_bytes(), &vec![b'x'; len]].concat();
    let list = |store: &Store| store.worker().libraries().list().unwrap();
    let machine = Machine::new(1);
    let store = open(&machine);
    let set = |store: &Store, name: &str, len: usize| {
        store.worker().libraries().set(name, &source(name, len)).unwrap();
    };
    set(&store, "a", 0);
    set(&store, "b", 2_000_000);
    store.log().sync().unwrap();
    let expected = list(&store);
    let machine = machine.crash(2);
    let store = open(&machine);
    assert_eq!(list(&store), expected, "without a checkpoint");
    store.checkpoint().unwrap();
    set(&store, "a", 5_000);
    set(&store, "c", 300);
    assert!(store.worker().libraries().remove("b").unwrap());
    store.log().sync().unwrap();
    let expected = list(&store);
    let machine = machine.crash(3);
    let store = open(&machine);
    assert_eq!((list(&store), expected.len()), (expected, 2), "beside a checkpoint");
    assert!(libraries_version(&store) > 0);
    assert!(store.worker().libraries().clear().unwrap());
    store.log().sync().unwrap();
    let machine = machine.crash(4);
    let store = open(&machine);
    assert!(list(&store).is_empty());
    store.checkpoint().unwrap();
    store.check().unwrap();
}
