//! Collections of every type and form, and everything that is done with them.

use std::ops::ControlFlow;
use std::sync::mpsc::channel;

use fastrand::Rng;
use stillframe_store::{
    DbId, Deadline, Draw, Element, End, FieldMode, LexBound, OpError, RangeLimit, SaveError, ScoreBound,
    ScoreRule, ScoredRange, UnixMillis, Value, Worker,
};

use crate::model::Opened;

const DB: DbId = DbId(0);
/// Deadlines are about this time.
const LATER: UnixMillis = 2_000;
/// Elements of a collection, by its name: in the record, in a slab, in a tree of one leaf or two, in a tree of nodes.
pub const SIZES: [(&str, usize); 4] = [("packed", 12), ("outside", 120), ("grown", 400), ("deep", 9_000)];
/// Without the last: quickly made.
pub const SMALL_SIZES: [(&str, usize); 3] = [SIZES[0], SIZES[1], SIZES[2]];
const TYPES: [&str; 4] = ["list", "hash", "set", "scored"];

fn key_of(kind: &str, size: &str) -> Vec<u8> {
    format!("{kind}-{size}").into_bytes()
}

fn member(rng: &mut Rng, count: usize) -> Vec<u8> {
    let name = format!("element:{:06}", rng.usize(..count.max(1)));
    match rng.u32(..60) {
        0 => vec![b'l'; rng.usize(450..700)],
        1 => [name.as_bytes(), &vec![b'x'; rng.usize(..300)][..]].concat(),
        _ => name.into_bytes(),
    }
}

/// Makes one collection of each type and size.
pub fn make(opened: &mut Opened, rng: &mut Rng, sizes: &[(&str, usize)]) {
    for kind in TYPES {
        for (size, count) in sizes {
            let key = key_of(kind, size);
            let mut left = *count;
            while left > 0 {
                let elements: Vec<Vec<u8>> = (0..left.min(100)).map(|_| member(rng, 2 * count)).collect();
                left -= elements.len();
                let done = run(opened, |worker| put(worker, kind, &key, &elements));
                done.expect("an undamaged store");
                opened.worker.quiesce();
            }
        }
    }
    for (size, _) in sizes {
        let key = key_of("hash", size);
        let fields: Vec<Vec<u8>> = (0..8).map(|_| member(rng, 40)).collect();
        let fields: Vec<&[u8]> = fields.iter().map(|field| &field[..]).collect();
        run(opened, |worker| worker.hash_at(DB, &worker.key(&key)).set_deadline(&fields, Some(LATER)))
            .expect("an undamaged store");
    }
}

fn put(worker: &mut Worker, kind: &str, key: &[u8], elements: &[Vec<u8>]) -> Result<(), OpError> {
    let key = worker.key(key);
    let members: Vec<&[u8]> = elements.iter().map(|element| &element[..]).collect();
    match kind {
        "list" => worker.list_at(DB, &key).push(End::Right, &members, false).map(drop),
        "hash" => {
            let pairs: Vec<(&[u8], &[u8])> = members.iter().map(|member| (*member, *member)).collect();
            worker.hash_at(DB, &key).set(&pairs, FieldMode::All, Deadline::Keep).map(drop)
        }
        "set" => worker.set_at(DB, &key).add(&members).map(drop),
        _ => {
            let score =
                |member: &[u8]| f64::from(member.iter().map(|byte| u32::from(*byte)).sum::<u32>() % 90);
            let scored: Vec<(f64, &[u8])> = members.iter().map(|member| (score(member), *member)).collect();
            worker.sorted_set_at(DB, &key).put(&scored, &ScoreRule::default()).map(drop)
        }
    }
}

/// Loads after which an operation is taken for one that never ends.
const LOADS_MAX: u32 = 20_000;

/// Runs an operation until its pages are in memory, or it ends in another way.
fn run<T>(
    opened: &mut Opened,
    mut operation: impl FnMut(&mut Worker) -> Result<T, OpError>,
) -> Result<T, OpError> {
    for _ in 0..LOADS_MAX {
        opened.worker.quiesce();
        match operation(&mut opened.worker) {
            Err(OpError::Fault(fault)) => {
                let (sender, receiver) = channel();
                opened.store.load(fault, Box::new(move || sender.send(()).expect("the test waits")));
                opened.worker.idle(|| receiver.recv().expect("the load ends"));
            }
            result => return result,
        }
    }
    panic!("{:?} after {LOADS_MAX} loads", operation(&mut opened.worker).err())
}

/// Everything that is done with collections. What it finds does not matter.
pub fn use_all(opened: &mut Opened, rng: &mut Rng) {
    for _ in 0..300 {
        let (kind, (size, count)) = (TYPES[rng.usize(..4)], SIZES[rng.usize(..4)]);
        let (key, element) = (key_of(kind, size), member(rng, 2 * count));
        let what = rng.fork();
        let _ = match kind {
            "list" => run(opened, |worker| use_list(worker, &key, &element, &mut what.clone())),
            "hash" => run(opened, |worker| use_hash(worker, &key, &element, &mut what.clone())),
            "set" => run(opened, |worker| use_set(worker, &key, &element, &mut what.clone())),
            _ => run(opened, |worker| use_scored(worker, &key, &element, &mut what.clone())),
        };
        if rng.u32(..30) == 0 {
            let other = key_of(TYPES[rng.usize(..4)], "copy");
            let _ = run(opened, |worker| worker.copy((DB, &worker.key(&key)), (DB, &worker.key(&other))));
            let _ = run(opened, |worker| worker.rename((DB, &worker.key(&other)), (DB, &worker.key(&key))));
        }
    }
    view(opened, rng);
    // Fields expire.
    opened.worker.set_now(LATER + 1);
    let _ = opened.worker.upkeep().expire_cycle(std::time::Duration::from_millis(50), |_, _| ());
    for kind in TYPES {
        for (size, _) in SIZES {
            if rng.bool() {
                let _ = run(opened, |worker| worker.remove(DB, &worker.key(&key_of(kind, size))));
            }
        }
    }
}

/// As a dump sees them.
fn view(opened: &mut Opened, rng: &mut Rng) {
    let store = opened.store.clone();
    let Ok(view) = opened.worker.idle(|| store.view()) else { return };
    let read = opened.worker.idle(|| {
        view.for_each_readable::<SaveError>(
            |entry| match entry.value {
                Value::Collection(collection) => {
                    let _ = collection.element_count();
                    let _ = collection.for_each(&mut |_: Element<'_>| Ok(()));
                    let (range, is_downwards) = (scored_range(rng), rng.bool());
                    if let Ok(ranks) = collection.scored_ranks(&range, is_downwards, RangeLimit::NONE) {
                        let _ = collection.for_each_scored(ranks, is_downwards, &mut |_| Ok(()));
                    }
                    Ok(())
                }
                _ => Ok(()),
            },
            &mut |_| (),
        )
    });
    drop(read);
}

fn use_list(worker: &mut Worker, key: &[u8], element: &[u8], rng: &mut Rng) -> Result<(), OpError> {
    let key = worker.key(key);
    let (index, end) = (rng.i64(-500..500), if rng.bool() { End::Left } else { End::Right });
    match rng.u32(..10) {
        0 => worker.list_at(DB, &key).push(end, &[element, b"", element], false).map(drop),
        1 => worker.list_at(DB, &key).pop(end, rng.u64(1..40), |_| (), |_| ()).map(drop),
        2 => worker.list_at(DB, &key).set(index, element).map(drop),
        3 => worker.list_at(DB, &key).insert(rng.bool(), element, b"inserted").map(drop),
        4 => worker.list_at(DB, &key).remove(rng.i64(-3..4), element).map(drop),
        5 => {
            let stop = rng.i64(-500..500);
            worker.list_at(DB, &key).range(index, stop, |_| (), |_| ControlFlow::Continue(())).map(drop)
        }
        6 => worker.list_at(DB, &key).trim(rng.i64(..40), -rng.i64(1..40)).map(drop),
        7 => worker.list_at(DB, &key).index(index, |_| ()).map(drop),
        8 => worker.list_at(DB, &key).pos(element, rng.bool(), 0, |_| true).map(drop),
        _ => worker.list_at(DB, &key).move_to(end, (&key, End::Left), |_| ()).map(drop),
    }
}

fn use_hash(worker: &mut Worker, key: &[u8], field: &[u8], rng: &mut Rng) -> Result<(), OpError> {
    let key = worker.key(key);
    match rng.u32(..9) {
        0 => {
            let deadline = [Deadline::Keep, Deadline::Clear, Deadline::At(LATER)][rng.usize(..3)];
            worker
                .hash_at(DB, &key)
                .set(&[(field, field), (b"other", b"")], FieldMode::All, deadline)
                .map(drop)
        }
        1 => worker.hash_at(DB, &key).remove(&[field, b"other"]).map(drop),
        2 => {
            let deadline = rng.bool().then(|| LATER + rng.i64(-1_500..1_500));
            worker.hash_at(DB, &key).set_deadline(&[field], deadline).map(drop)
        }
        3 => worker.hash_at(DB, &key).get([field, b"other"].into_iter(), |_, _| ()).map(drop),
        4 => worker.hash_at(DB, &key).deadlines([field].into_iter(), |_, _| ()).map(drop),
        5 => worker.hash_at(DB, &key).len().map(drop),
        6 => worker.hash_at(DB, &key).for_each(|_| (), |_| ControlFlow::Continue(())).map(drop),
        7 => worker.hash_at(DB, &key).scan(rng.u64(..) >> rng.u32(..64), 20, |_| ()).map(drop),
        _ => worker.hash_at(DB, &key).random(draw(rng), |_| (), |_| ControlFlow::Continue(())).map(drop),
    }
}

fn draw(rng: &mut Rng) -> Draw {
    let count = rng.u64(1..200);
    if rng.bool() {
        Draw::Distinct(count)
    } else {
        Draw::Repeated(count)
    }
}

fn use_set(worker: &mut Worker, key: &[u8], member: &[u8], rng: &mut Rng) -> Result<(), OpError> {
    let key = worker.key(key);
    match rng.u32(..8) {
        0 => worker.set_at(DB, &key).add(&[member, b"7", b""]).map(drop),
        1 => worker.set_at(DB, &key).remove(&[member, b"7"]).map(drop),
        2 => worker.set_at(DB, &key).contains([member].into_iter(), |_, _| ()).map(drop),
        3 => worker.set_at(DB, &key).len().map(drop),
        4 => worker.set_at(DB, &key).for_each(|_| (), |_| ControlFlow::Continue(())).map(drop),
        5 => worker.set_at(DB, &key).scan(rng.u64(..) >> rng.u32(..64), 20, |_| ()).map(drop),
        6 => worker.set_at(DB, &key).random(draw(rng), |_| (), |_| ControlFlow::Continue(())).map(drop),
        _ => worker.set_at(DB, &key).pop(rng.u64(1..60), |_| (), |_| ()).map(drop),
    }
}

fn scored_range(rng: &mut Rng) -> ScoredRange<'static> {
    let first = rng.i64(-300..300);
    match rng.u32(..3) {
        0 => ScoredRange::Ranks { first, last: first + rng.i64(..90) },
        1 => ScoredRange::Scores { min: ScoreBound::Included(7.0), max: ScoreBound::Excluded(30.0) },
        _ => ScoredRange::Lex { min: LexBound::Excluded(b"e"), max: LexBound::Max },
    }
}

fn use_scored(worker: &mut Worker, key: &[u8], member: &[u8], rng: &mut Rng) -> Result<(), OpError> {
    let (key, range) = (worker.key(key), scored_range(rng));
    let (is_downwards, score) = (rng.bool(), f64::from(rng.i32(-90..90)));
    match rng.u32(..8) {
        0 => {
            let rule = ScoreRule { adds: rng.bool(), ..ScoreRule::default() };
            worker.sorted_set_at(DB, &key).put(&[(score, member), (-0.0, b"")], &rule).map(drop)
        }
        1 => worker.sorted_set_at(DB, &key).remove(&[member, b""]).map(drop),
        2 => worker
            .sorted_set_at(DB, &key)
            .remove_range(&range, is_downwards, RangeLimit { skipped: 1, most: 30 }, |_, _| ())
            .map(drop),
        3 => worker.sorted_set_at(DB, &key).scores([member].into_iter(), |_, _| ()).map(drop),
        4 => worker.sorted_set_at(DB, &key).rank(member, is_downwards).map(drop),
        5 => worker.sorted_set_at(DB, &key).count(&range).map(drop),
        6 => {
            let go_on = |_: &[u8], _: f64| ControlFlow::Continue(());
            worker
                .sorted_set_at(DB, &key)
                .range(&range, is_downwards, RangeLimit::NONE, |_| (), go_on)
                .map(drop)
        }
        _ => worker.sorted_set_at(DB, &key).scan(rng.u64(..) >> rng.u32(..64), 20, |_, _| ()).map(drop),
    }
}
