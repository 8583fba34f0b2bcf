//! Handles on streams, held against a model: through restarts with and without a log, and with little memory.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use stillframe_store::log::LogOptions;
use stillframe_store::{
    AddRule, GroupRead, GroupStart, NewId, OpError, Options, Store, StreamError, StreamId, Trim,
};
use stillframe_testkit::{seed, TempDir};

use crate::effects::{content_of, Replayed, DATABASES};
use crate::stream_model::{compare, names, step, Model};
use crate::{check, open};

const ROUNDS: u32 = 4;
const STEPS_A_ROUND: u32 = 1_500;

fn compare_all(store: &Store, model: &Model) {
    names().for_each(|name| compare(store, model, &name));
}

/// Lives of a store, at the end of each of which `end` is called; what it leaves is there in the next.
fn live(
    options: &Options,
    mut before_steps: impl FnMut(&Store, u32),
    mut end: impl FnMut(&Store, &mut fastrand::Rng),
) {
    let (dir, seed) = (TempDir::new("streams"), seed());
    let (mut random, mut model) = (fastrand::Rng::with_seed(seed), Model::new());
    let replayed = Arc::new(Replayed::default());
    for round in 0..ROUNDS {
        let store = open(&dir, options.clone());
        assert!(store.listen(vec![replayed.clone()]));
        before_steps(&store, round);
        if round > 0 {
            // What is not in memory is met in the midst of operations.
            (0..200).for_each(|_| step(&store, &mut model, &mut random));
        }
        compare_all(&store, &model);
        for number in 0..STEPS_A_ROUND {
            step(&store, &mut model, &mut random);
            if number % 500 == 499 {
                before_steps(&store, round);
                compare_all(&store, &model);
            }
        }
        // What listeners were told makes what the store has.
        let mut worker = store.worker();
        assert_eq!(content_of(&store, &mut worker), replayed.content());
        check(&store, &mut worker);
        end(&store, &mut random);
    }
    assert!(
        model.values().map(|stream| stream.entries.len()).sum::<usize>() > 100,
        "there is hardly anything"
    );
}

#[test]
fn streams_are_what_a_model_is() {
    let options = Options { database_count: DATABASES, ..Options::default() };
    live(&options, |_, _| (), |store, _| assert!(store.checkpoint().unwrap().bytes_written > 0));
}

/// Nothing is in the page file but what a checkpoint in the middle has put there: the log has the rest.
#[test]
fn a_log_has_what_handles_on_streams_do() {
    let log = Some(LogOptions::default());
    let options = Options { database_count: DATABASES, log, checkpoint_on_drop: false, ..Options::default() };
    let end = |store: &Store, random: &mut fastrand::Rng| {
        if random.bool() {
            store.checkpoint().unwrap();
            let id = store.stream("behind").append(&[("f", "v")]).unwrap();
            assert_eq!(store.stream("behind").remove(&[id]).unwrap(), 1);
        }
        store.log().sync().unwrap();
    };
    live(&options, |_, _| (), end);
}

/// Streams go out of memory between operations, which bring them in again.
#[test]
fn streams_larger_than_memory_are_what_a_model_is() {
    const FILLERS: u32 = 240;
    let options = Options { database_count: DATABASES, tiered_bytes: 1 << 20, ..Options::default() };
    let fill = |store: &Store, _| {
        for number in 0..FILLERS {
            let filler = store.hash(format!("filler:{number}"));
            if filler.get_with("f", |value| value.len()).unwrap().is_none() {
                filler.set("f", vec![number as u8; 100_000]).unwrap();
            }
        }
    };
    let mut counts = [0; 2];
    live(&options, fill, |store, _| {
        let metrics = store.pool().metrics();
        let of_life = [&metrics.evicted_page_count, &metrics.loaded_page_count];
        counts.iter_mut().zip(of_life).for_each(|(count, more)| *count += more.load(Ordering::Relaxed));
        store.checkpoint().unwrap();
    });
    assert!(counts.iter().all(|count| *count > 1_000), "evicted and loaded: {counts:?}");
}

/// IDs of two threads are different, ascend in each, and all entries are there; a group gives each to one consumer.
#[test]
fn threads_append_to_one_stream_and_share_a_group() {
    const THREADS: u64 = 2;
    const ENTRIES: u64 = 3_000;
    let dir = TempDir::new("streams");
    let options = Options { worker_count: THREADS as usize + 1, ..Options::default() };
    let store = open(&dir, options.clone());
    let work = |thread: u64| {
        let (stream, group) = (store.stream("shared"), store.stream("shared").group("group"));
        let (mut appended, mut got) = (Vec::new(), Vec::new());
        for number in 0..ENTRIES {
            let value = format!("{thread}:{number}").into_bytes();
            appended.push((stream.append(&[("from", &value)]).unwrap(), value));
            if number % 10 == 9 {
                for entry in group.read(format!("consumer:{thread}"), 8).unwrap() {
                    got.push(entry.id);
                    if got.len() % 2 == 0 {
                        assert_eq!(group.ack(&[entry.id]).unwrap(), 1);
                    }
                }
            }
        }
        assert!(appended.windows(2).all(|pair| pair[0].0 < pair[1].0) && got.is_sorted());
        (appended, got)
    };
    assert!(store.stream("shared").create_group("group", &GroupStart::FIRST).unwrap());
    let ended: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        for _ in 0..3 {
            store.checkpoint().unwrap();
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let entries: BTreeMap<StreamId, Vec<u8>> =
        ended.iter().flat_map(|(appended, _)| appended.iter().cloned()).collect();
    let got: BTreeSet<StreamId> = ended.iter().flat_map(|(_, got)| got.iter().copied()).collect();
    let got_count: usize = ended.iter().map(|(_, got)| got.len()).sum();
    assert_eq!((entries.len() as u64, got.len()), (THREADS * ENTRIES, got_count));
    let expected_pending: usize = ended.iter().map(|(_, got)| got.len().div_ceil(2)).sum();
    store.checkpoint().unwrap();
    drop(store);

    let store = open(&dir, options);
    let found = store.stream("shared").range(.., u64::MAX).unwrap();
    assert!(found.into_iter().map(|entry| (entry.id, entry.fields[0].1.clone())).eq(entries));
    let group = store.stream("shared").group("group");
    assert_eq!(group.info().unwrap().last, *got.last().unwrap());
    assert_eq!(group.pending().unwrap().count, expected_pending as u64);
}

/// One call goes over many leaves, which are joined on its way; calls over others between them leave the rest alone.
#[test]
fn what_is_acknowledged_at_once_goes_and_the_rest_stays() {
    let (dir, mut random) = (TempDir::new("acknowledged"), fastrand::Rng::with_seed(seed()));
    let store = open(&dir, Options::default());
    let stream = store.stream("stream");
    let ids: Vec<StreamId> = (0..12_000).map(|_| stream.append(&[("field", "value")]).unwrap()).collect();
    assert!(stream.create_group("group", &GroupStart::FIRST).unwrap());
    let group = stream.group("group");
    for (consumer, chunk) in ["one", "two", "three"].iter().cycle().zip(ids.chunks(500)) {
        assert_eq!(group.read(consumer, 500).unwrap().len(), chunk.len());
    }
    let mut pending: BTreeSet<StreamId> = ids.iter().copied().collect();
    while !pending.is_empty() {
        let first = random.usize(..pending.len());
        let mut some: Vec<StreamId> =
            pending.iter().copied().skip(first).take(random.usize(1..900)).collect();
        if random.bool() {
            some.retain(|_| random.bool());
        }
        random.shuffle(&mut some);
        assert_eq!(group.ack(&some).unwrap(), some.len() as u64);
        for id in &some {
            pending.remove(id);
        }
        assert_eq!(group.ack(&some).unwrap(), 0);
        assert_eq!(group.info().unwrap().pending_count, pending.len() as u64);
        store.check().unwrap();
    }
}

#[test]
fn what_cannot_be_is_an_error_of_its_own() {
    let dir = TempDir::new("streams");
    let store = open(&dir, Options::default());
    store.hash("hash").set("f", "v").unwrap();
    let (hash, stream) = (store.stream("hash"), store.stream("stream"));
    let field = [("f", "v")];
    assert!(matches!(hash.append(&field), Err(StreamError::Op(OpError::WrongType))));
    assert!(matches!(hash.len(), Err(OpError::WrongType)));
    assert!(matches!(hash.range(.., 1), Err(OpError::WrongType)));
    assert!(matches!(hash.create_group("g", &GroupStart::LAST), Err(OpError::WrongType)));
    assert!(matches!(hash.group("g").read("c", 1), Err(StreamError::Op(OpError::WrongType))));

    let group = stream.group("g");
    assert!(matches!(group.info(), Err(StreamError::NoStream)));
    assert!(matches!(stream.append(&field[..0]), Err(StreamError::NoFields)));
    let only_present = AddRule { only_present: true, trim: Some(Trim::max_len(3)) };
    assert!(matches!(stream.append_with(NewId::Any, &field, &only_present), Err(StreamError::NoStream)));
    assert!(matches!(stream.append_at(StreamId::MIN, &field), Err(StreamError::IdIsZero)));
    assert!(stream.info().unwrap().is_none(), "what is refused makes no stream");

    let id = StreamId::new(5, 5);
    assert_eq!(stream.append_at(id, &field).unwrap(), id);
    for id in [id, id.previous().unwrap()] {
        assert!(matches!(stream.append_at(id, &field), Err(StreamError::IdNotAbove)));
    }
    assert!(matches!(stream.append_at(NewId::OfMillis(4), &field), Err(StreamError::IdNotAbove)));
    assert!(matches!(group.read("c", 1), Err(StreamError::NoGroup)));
    assert!(matches!(group.ack(&[id]), Err(StreamError::NoGroup)));
    assert!(matches!(group.claim("c", &[id], Duration::ZERO), Err(StreamError::NoGroup)));
    assert!(matches!(group.pending(), Err(StreamError::NoGroup)));
    assert!(!stream.destroy_group("g").unwrap() && !store.stream("none").destroy_group("g").unwrap());

    assert_eq!(stream.append_at(StreamId::MAX, &field).unwrap(), StreamId::MAX);
    assert!(matches!(stream.append(&field), Err(StreamError::IdsExhausted)));
    assert_eq!(stream.len().unwrap(), 2);
}

/// A closure uses no store, and may panic: nothing has changed then.
#[test]
fn closures_of_a_group_neither_use_the_store_nor_leave_half_a_change() {
    let dir = TempDir::new("streams");
    let store = open(&dir, Options::default());
    let stream = store.stream("stream");
    assert!(stream.create_group("g", &GroupStart::FIRST).unwrap());
    let ids = [(); 3].map(|()| stream.append(&[("f", "v")]).unwrap());
    let group = stream.group("g");
    let asked = GroupRead { history_after: None, most: 2, no_ack: false };
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        group.read_with("c", &asked, || (), |id, _| assert!(id < ids[1], "as it should"))
    }));
    assert!(panicked.is_err());
    let info = group.info().unwrap();
    assert_eq!((info.last, info.pending_count, info.consumer_count), (StreamId::MIN, 0, 0));
    let mut refused = 0;
    let use_store = |_: StreamId, _: Option<&[&[u8]]>| {
        refused += u32::from(matches!(stream.append(&[("f", "v")]), Err(StreamError::Op(OpError::Busy))));
    };
    group.read_with("c", &asked, || (), use_store).unwrap();
    assert_eq!((refused, group.pending().unwrap().count), (2, 2));
    // So does one that is given what it has again.
    let again = GroupRead { history_after: Some(StreamId::MIN), ..asked };
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        group.read_with("c", &again, || (), |id, _| assert!(id < ids[1], "as it should"))
    }));
    assert!(panicked.is_err());
    assert_eq!(group.read_again("c", StreamId::MIN, 9).unwrap().entries.len(), 2);
    let counts = group.pending_entries(&stillframe_store::PendingRange::of(.., 9)).unwrap();
    assert!(counts.iter().all(|entry| entry.count == 2), "{counts:?}");
    store.check().unwrap();
}
