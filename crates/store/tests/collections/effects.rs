//! Effects, applied to maps in their order, make what the store has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use stillframe_store::{
    AddRule, Bytes, Change, ClaimRule, DbId, Deadline, Effect, Element, End, FieldMode, GroupRead,
    GroupStart, Key, Listener, Marks, NewId, OpError, Options, RangeLimit, SaveError, ScoreRule, ScoredRange,
    Step, Store, StreamId, Trim, TrimTo, UnixMillis, Value, Worker,
};
use stillframe_testkit::{seed, TempDir};

use crate::{check, open, retried};

pub const DATABASES: u32 = 2;
/// The database behind them is for what nobody looks at.
pub const FILLER_DB: u32 = DATABASES;

#[derive(Clone, PartialEq, Debug)]
pub enum Collection {
    Hash(BTreeMap<Vec<u8>, (Vec<u8>, Option<UnixMillis>)>),
    List(VecDeque<Vec<u8>>),
    Set(BTreeMap<Vec<u8>, ()>),
    SortedSet(BTreeMap<Vec<u8>, f64>),
    Stream(Stream),
}

/// A stream without its groups.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Stream {
    entries: BTreeMap<StreamId, Vec<Vec<u8>>>,
    last: StreamId,
    added_count: u64,
    max_deleted: StreamId,
}

impl Stream {
    fn apply(&mut self, change: Change<'_>) {
        match change {
            Change::EntryAdded { id, parts } => {
                assert!(id > self.last, "an entry is not behind the last");
                self.entries.insert(id, parts.iter().map(|part| part.to_vec()).collect());
                (self.last, self.added_count) = (id, self.added_count + 1);
            }
            Change::EntryRemoved { id } => {
                assert!(self.entries.remove(&id).is_some(), "what was removed is not there");
                self.max_deleted = self.max_deleted.max(id);
            }
            Change::EntriesTrimmed { first, count } => {
                let before = self.entries.len() as u64;
                self.entries.retain(|id, _| first.is_some_and(|first| *id >= first));
                assert_eq!(before - self.entries.len() as u64, count);
                assert_eq!(self.entries.keys().next().copied(), first);
            }
            Change::StreamMarked { last, added_count, max_deleted } => {
                (self.last, self.added_count, self.max_deleted) = (last, added_count, max_deleted);
            }
            // What groups have is told, and held against their counts by `Store::check`.
            Change::GroupSet { .. }
            | Change::GroupRemoved { .. }
            | Change::ConsumerAdded { .. }
            | Change::ConsumerRemoved { .. }
            | Change::PendingSet { .. }
            | Change::PendingRemoved { .. } => {}
            other => panic!("{other:?} of a stream"),
        }
    }
}

fn is_of_stream(change: &Change<'_>) -> bool {
    matches!(
        change,
        Change::EntryAdded { .. }
            | Change::EntryRemoved { .. }
            | Change::EntriesTrimmed { .. }
            | Change::StreamMarked { .. }
            | Change::GroupSet { .. }
            | Change::GroupRemoved { .. }
            | Change::ConsumerAdded { .. }
            | Change::ConsumerRemoved { .. }
            | Change::PendingSet { .. }
            | Change::PendingRemoved { .. }
    )
}

impl Collection {
    pub fn is_empty(&self) -> bool {
        match self {
            Collection::Hash(fields) => fields.is_empty(),
            Collection::List(items) => items.is_empty(),
            Collection::Set(members) => members.is_empty(),
            Collection::SortedSet(members) => members.is_empty(),
            // It stays when its entries have gone.
            Collection::Stream(_) => false,
        }
    }

    fn empty_for(change: &Change<'_>) -> Collection {
        match change {
            Change::Field { .. } | Change::FieldDeadline { .. } => Collection::Hash(BTreeMap::new()),
            Change::FieldRemoved { .. } | Change::FieldExpired { .. } => Collection::Hash(BTreeMap::new()),
            Change::Member { .. } | Change::MemberRemoved { .. } => Collection::Set(BTreeMap::new()),
            Change::Scored { .. } | Change::ScoredRemoved { .. } => Collection::SortedSet(BTreeMap::new()),
            change if is_of_stream(change) => Collection::Stream(Stream::default()),
            _ => Collection::List(VecDeque::new()),
        }
    }

    fn apply(&mut self, change: &Change<'_>) {
        match (self, *change) {
            (Collection::Hash(fields), Change::Field { field, value, deadline }) => {
                fields.insert(vec(field), (vec(value), deadline));
            }
            (Collection::Hash(fields), Change::FieldDeadline { field, deadline }) => {
                fields.get_mut(&vec(field)).expect("a deadline of no field").1 = deadline;
            }
            (Collection::Hash(fields), Change::FieldRemoved { field } | Change::FieldExpired { field }) => {
                assert!(fields.remove(&vec(field)).is_some(), "what was removed is not there");
            }
            (Collection::Set(members), Change::Member { member }) => {
                assert!(members.insert(vec(member), ()).is_none(), "it is there already");
            }
            (Collection::Set(members), Change::MemberRemoved { member }) => {
                assert!(members.remove(&vec(member)).is_some(), "what was removed is not there");
            }
            (Collection::SortedSet(members), Change::Scored { member, score }) => {
                members.insert(vec(member), score);
            }
            (Collection::SortedSet(members), Change::ScoredRemoved { member }) => {
                assert!(members.remove(&vec(member)).is_some(), "what was removed is not there");
            }
            (Collection::List(items), change) => apply_to_list(items, change),
            (Collection::Stream(stream), change) => stream.apply(change),
            (collection, change) => panic!("{change:?} of {collection:?}"),
        }
    }
}

/// An element as it has been announced.
fn vec(bytes: Bytes<'_>) -> Vec<u8> {
    bytes.to_vec().expect("bytes without damage")
}

fn apply_to_list(items: &mut VecDeque<Vec<u8>>, change: Change<'_>) {
    match change {
        Change::Pushed { end: End::Left, item } => items.push_front(vec(item)),
        Change::Pushed { end: End::Right, item } => items.push_back(vec(item)),
        Change::Popped { end: End::Left, item_count } => drop(items.drain(..item_count as usize)),
        Change::Popped { end: End::Right, item_count } => items.truncate(items.len() - item_count as usize),
        Change::Item { index, item } => items[index as usize] = vec(item),
        Change::ItemInserted { is_before, pivot, item } => {
            let index = items.iter().position(|item| *item == vec(pivot)).expect("the pivot is there");
            items.insert(if is_before { index } else { index + 1 }, vec(item));
        }
        Change::ItemsRemoved { item, count } => {
            for _ in 0..count.unsigned_abs() {
                let mut indices = 0..items.len();
                let is_same = |index: &usize| items[*index] == vec(item);
                let index = if count > 0 { indices.find(is_same) } else { indices.rfind(is_same) };
                items.remove(index.expect("what was removed is there"));
            }
        }
        other => panic!("{other:?} of a list"),
    }
}

pub type Content = BTreeMap<(u32, Vec<u8>), (Collection, Option<UnixMillis>)>;

/// What effects make of nothing, how many have been heard, keys that have lost what they had to what follows, and whether something
/// was told that cannot be.
#[derive(Default)]
pub struct Replayed(Mutex<Content>, AtomicU64, Mutex<BTreeSet<(u32, Vec<u8>)>>, AtomicBool);

impl Replayed {
    pub fn content(&self) -> Content {
        assert!(!self.3.load(Ordering::Relaxed), "something was told that cannot be: see above");
        self.0.lock().clone()
    }

    pub fn heard_count(&self) -> u64 {
        self.1.load(Ordering::Relaxed)
    }
}

fn place((db, key): (DbId, Key<'_>)) -> (u32, Vec<u8>) {
    (db.0, key.bytes.to_vec())
}

impl Listener for Replayed {
    fn hear(&self, _: &Step, effect: &Effect<'_>) {
        // The store would catch it, and go on.
        if catch_unwind(AssertUnwindSafe(|| self.apply(effect))).is_err() {
            self.3.store(true, Ordering::Relaxed);
        }
    }
}

impl Replayed {
    fn apply(&self, effect: &Effect<'_>) {
        let mut content = self.0.lock();
        self.1.fetch_add(1, Ordering::Relaxed);
        match *effect {
            Effect::Element { db, key, change, is_new } => {
                let place = place((db, key));
                let was_there = content.contains_key(&place) || self.2.lock().remove(&place);
                assert_eq!(is_new, !was_there, "{change:?}");
                let new = || (Collection::empty_for(&change), None);
                let (collection, _) = content.entry(place.clone()).or_insert_with(new);
                collection.apply(&change);
            }
            Effect::Replace { db, key } => {
                if content.remove(&place((db, key))).is_some() {
                    self.2.lock().insert(place((db, key)));
                }
            }
            Effect::Delete { db, key } | Effect::Expire { db, key } | Effect::Evict { db, key } => {
                drop(content.remove(&place((db, key))))
            }
            Effect::Deadline { db, key, deadline } => {
                content.get_mut(&place((db, key))).expect("a deadline of no key").1 = deadline;
            }
            Effect::Move { from, to, .. } => {
                let moved = content.remove(&place(from)).expect("what was moved is not there");
                content.insert(place(to), moved);
            }
            Effect::Copy { from, to } => {
                let copied = content[&place(from)].clone();
                content.insert(place(to), copied);
            }
            Effect::Flush { db, .. } => content.retain(|(of, _), _| *of != db.0),
            Effect::LibrarySet { .. } | Effect::LibraryRemoved { .. } | Effect::LibrariesRemoved => {
                panic!("nobody has libraries here")
            }
            Effect::Swap { a, b, .. } => {
                let other = |db: u32| {
                    if db == a.0 {
                        b.0
                    } else if db == b.0 {
                        a.0
                    } else {
                        db
                    }
                };
                *content = std::mem::take(&mut *content)
                    .into_iter()
                    .map(|((db, key), value)| ((other(db), key), value))
                    .collect();
            }
            Effect::Set { db: DbId(FILLER_DB), .. } => {}
            Effect::Set { .. } | Effect::Write { .. } => panic!("nobody makes strings here"),
        }
    }
}

/// Puts an element that is read into the collection that is being read.
pub fn add(made: &mut Option<Collection>, element: Element<'_>) {
    if let Element::Record { .. } = element {
        let new = || Collection::Stream(Stream::default());
        let Collection::Stream(stream) = made.get_or_insert_with(new) else { panic!("no stream") };
        if let Some((last, added_count, max_deleted)) = element.stream_marks() {
            (stream.last, stream.added_count, stream.max_deleted) = (last, added_count, max_deleted);
        }
        element.for_each_entry(|id, parts| {
            let parts = parts.iter().map(|part| part.to_vec()).collect();
            assert!(stream.entries.insert(id, parts).is_none(), "an entry comes twice");
        });
        return;
    }
    let change = match element {
        Element::Field { field, value, deadline } => {
            Change::Field { field: field.into(), value: value.into(), deadline }
        }
        Element::Member(member) => Change::Member { member: member.into() },
        Element::Scored { member, score } => Change::Scored { member: member.into(), score },
        Element::Item(item) => Change::Pushed { end: End::Right, item: item.into() },
        Element::Record { .. } => unreachable!("see above"),
    };
    made.get_or_insert_with(|| Collection::empty_for(&change)).apply(&change);
}

/// What a view has; what has been emptied is a key that a removal is about to take.
pub fn content_of(store: &Store, worker: &mut Worker) -> Content {
    let mut content = Content::new();
    let view = worker.idle(|| store.view()).unwrap();
    view.for_each(|entry| {
        if entry.db == DbId(FILLER_DB) {
            return Ok(());
        }
        let Value::Collection(view) = entry.value else { panic!("a string") };
        let mut made: Option<Collection> = None;
        view.for_each(&mut |element| {
            add(&mut made, element);
            Ok(())
        })?;
        let made = made.expect("a collection has an element");
        content.insert((entry.db.0, entry.key.to_vec()), (made, entry.deadline));
        Ok::<(), SaveError>(())
    })
    .unwrap();
    content
}

fn word(random: &mut fastrand::Rng) -> Vec<u8> {
    match random.u32(..40) {
        0 => vec![random.alphanumeric() as u8; random.usize(450..3_000)],
        _ => format!("{}", random.u32(..400)).into_bytes(),
    }
}

fn words(random: &mut fastrand::Rng) -> Vec<Vec<u8>> {
    (0..random.usize(1..30)).map(|_| word(random)).collect()
}

/// The name of a key, of so many.
pub fn name(number: u32) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

/// Runs an operation on two keys as a command does: both are locked, and it is a step.
fn on_both<R>(
    worker: &mut Worker,
    keys: [(DbId, &Key<'_>); 2],
    operation: impl FnOnce(&mut Worker) -> R,
) -> R {
    let _locks = worker.lock(&keys.map(|(db, key)| (db, *key)), true);
    worker.steps().begin();
    let result = operation(worker);
    worker.steps().end();
    result
}

/// An operation of sets, or of whole collections.
fn of_sets(
    worker: &mut Worker,
    (random, name_count): (&mut fastrand::Rng, u32),
    number: u32,
    (db, key): (DbId, &Key<'_>),
    given: &[&[u8]],
) -> Result<(), OpError> {
    match number {
        100..108 => drop(worker.set_at(db, key).add(given)?),
        108..110 => drop(worker.set_at(db, key).remove(given)?),
        110..112 => drop(worker.set_at(db, key).pop(random.u64(1..40), |_| (), |_| ())?),
        112..114 => {
            let to_name = name(random.u32(..name_count));
            let to = worker.key(&to_name);
            on_both(worker, [(db, key), (db, &to)], |worker| worker.set_at(db, key).move_to(&to, given[0]))?;
        }
        114..116 => {
            let distinct: BTreeSet<&[u8]> = given.iter().copied().collect();
            worker.set_at(db, key).replace(&distinct.into_iter().collect::<Vec<_>>(), None)?;
        }
        116..118 => {
            let mut members: Vec<_> = given.iter().map(|word| (word.to_vec(), 1.5)).collect();
            members.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            members.dedup();
            worker.sorted_set_at(db, key).replace(&mut members)?;
        }
        _ => {
            let to_name = name(random.u32(..name_count));
            let ends = if random.bool() { (End::Left, End::Right) } else { (End::Right, End::Left) };
            let to = worker.key(&to_name);
            on_both(worker, [(db, key), (db, &to)], |worker| {
                worker.list_at(db, key).move_to(ends.0, (&to, ends.1), |_| ())
            })?;
        }
    }
    Ok(())
}

/// An operation of streams. Few IDs are in use, so that most that are removed or acknowledged are there.
fn of_streams(
    worker: &mut Worker,
    random: &mut fastrand::Rng,
    (db, key): (DbId, &Key<'_>),
    given: &[&[u8]],
) -> Result<(), OpError> {
    let mut some_id = || StreamId::new(random.u64(..300), random.u64(..2));
    let (id, other) = (some_id(), some_id());
    let parts = &given[..given.len() / 2 * 2];
    let group: &[u8] = if random.bool() { b"one" } else { b"two" };
    let consumer: &[u8] = if random.bool() { b"a" } else { b"b" };
    let trim = Trim {
        to: if random.bool() { TrimTo::Length(random.u64(..40)) } else { TrimTo::Id(id) },
        approximately: random.bool().then(|| random.u64(..50)),
    };
    let mut stream = worker.stream_at(db, key);
    match random.u32(..20) {
        0..7 => {
            let last = stream.info()?.map_or(0, |info| info.last.ms);
            let trim = (random.u8(..4) == 0).then_some(trim);
            let rule = AddRule { only_present: random.u8(..8) == 0, trim };
            worker.stream_at(db, key).add(NewId::OfMillis(last + random.u64(..4)), parts, &rule)?;
        }
        7..9 => drop(stream.remove(&[id, other])?),
        9..11 => drop(stream.trim(&trim)?),
        11 => drop(stream.set_marks(|info, _| {
            Some(Marks { last: info.last, added_count: info.added_count + 1, max_deleted: id })
        })?),
        12 => drop(stream.group(group).create(&GroupStart { after: Some(id), read_count: None }, true)?),
        13..16 => {
            let history_after = (random.u8(..3) == 0).then_some(id);
            let asked = GroupRead { history_after, most: random.u64(..20), no_ack: random.u8(..5) == 0 };
            let _ = stream.group(group).read(consumer, &asked, || (), |_, _| ())?;
        }
        16 => drop(stream.group(group).acknowledge(&[id, other])?),
        17 => {
            let rule = ClaimRule::new(0, random.bool());
            let _ =
                stream.group(group).auto_claim(consumer, (id, random.u64(1..20)), &rule, || (), |_, _| ())?;
        }
        18 => drop(stream.group(group).remove_consumer(consumer)?),
        _ => drop(stream.group(group).remove()?),
    }
    Ok(())
}

/// One operation; those on keys of another type change nothing.
pub fn operation(worker: &mut Worker, random: &mut fastrand::Rng) -> Result<(), OpError> {
    operation_on(worker, random, 12)
}

/// The same on one key, or two, of so many names.
pub fn operation_on(worker: &mut Worker, random: &mut fastrand::Rng, name_count: u32) -> Result<(), OpError> {
    let (db, number) = (DbId(random.u32(..DATABASES)), random.u32(..name_count));
    let (of_key, words, one) = (name(number), words(random), word(random));
    let key = worker.key(&of_key);
    let given: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
    match random.u32(..145) {
        120..145 => of_streams(worker, random, (db, &key), &given)?,
        number @ 100..120 => of_sets(worker, (random, name_count), number, (db, &key), &given)?,
        0..15 => {
            let pairs: Vec<_> = given.iter().map(|word| (*word, &one[..])).collect();
            worker.hash_at(db, &key).set(&pairs, FieldMode::All, Deadline::Clear)?;
        }
        15..18 => drop(worker.hash_at(db, &key).remove(&given)?),
        18..20 => {
            let deadline = random.bool().then(|| worker.now() + 1 + random.i64(0..20));
            worker.hash_at(db, &key).set_deadline(&given, deadline)?;
        }
        20..35 => {
            let scored: Vec<_> = given.iter().map(|word| (f64::from(random.u32(..50)), *word)).collect();
            let rule = ScoreRule { adds: random.bool() && scored.len() == 1, ..ScoreRule::default() };
            worker.sorted_set_at(db, &key).put(&scored, &rule)?;
        }
        35..38 => drop(worker.sorted_set_at(db, &key).remove(&given)?),
        38..41 => {
            let first = random.i64(-20..20);
            let range = ScoredRange::Ranks { first, last: first + random.i64(0..30) };
            worker.sorted_set_at(db, &key).remove_range(
                &range,
                random.bool(),
                RangeLimit::NONE,
                |_, _| (),
            )?;
        }
        41..55 => {
            let end = if random.bool() { End::Left } else { End::Right };
            worker.list_at(db, &key).push(end, &given, random.u8(..5) == 0)?;
        }
        55..60 => {
            let end = if random.bool() { End::Left } else { End::Right };
            worker.list_at(db, &key).pop(end, random.u64(1..40), |_| (), |_| ())?;
        }
        60..63 => drop(worker.list_at(db, &key).set(random.i64(-50..50), &one)?),
        63..66 => drop(worker.list_at(db, &key).insert(random.bool(), &words[0], &one)?),
        66..69 => drop(worker.list_at(db, &key).remove(random.i64(-3..3), &one)?),
        69..71 => drop(worker.list_at(db, &key).trim(random.i64(0..20), random.i64(-20..0))?),
        71..76 => drop(worker.remove(db, &key)?),
        76..80 => drop(worker.set_deadline(
            db,
            &key,
            random.bool().then(|| worker.now() + 1 + random.i64(0..20)),
        )?),
        80..90 => {
            let (to_db, to_number) = (DbId(random.u32(..DATABASES)), random.u32(..name_count));
            let to_name = name(to_number);
            let to = worker.key(&to_name);
            let (renames, is_same) = (random.bool(), (db, number) == (to_db, to_number));
            if is_same {
                return Ok(());
            }
            on_both(worker, [(db, &key), (to_db, &to)], |worker| match renames {
                true => worker.rename((db, &key), (to_db, &to)),
                false => worker.copy((db, &key), (to_db, &to)),
            })?;
        }
        90..98 => drop(worker.hash_at(db, &key).for_each(|_| (), |_| ControlFlow::Continue(()))?),
        98 => worker.database(db).flush()?,
        _ => worker.database(db).swap_with(DbId(random.u32(..DATABASES)))?,
    }
    Ok(())
}

#[test]
fn effects_of_elements_make_the_same_collections() {
    let mut random = fastrand::Rng::with_seed(seed());
    for _ in 0..3 {
        let dir = TempDir::new("effects");
        let store = open(&dir, Options { database_count: DATABASES, ..Options::default() });
        let replayed = Arc::new(Replayed::default());
        assert!(store.listen(vec![replayed.clone()]));
        let (mut worker, mut now) = (store.nonblocking_worker().unwrap(), 1_000_000);
        for round in 0..4_000 {
            now += random.i64(0..2);
            worker.set_now(now);
            let seed = random.u64(..);
            // Once more after a fault, the same.
            retried(&store, &mut worker, |worker| {
                match operation(worker, &mut fastrand::Rng::with_seed(seed)) {
                    Err(OpError::WrongType) => Ok(()),
                    result => result,
                }
            });
            worker.quiesce();
            if round % 500 == 499 {
                let (found, expected) = (content_of(&store, &mut worker), replayed.content());
                assert!(expected.values().all(|(collection, _)| !collection.is_empty()));
                assert_eq!(found, expected);
                check(&store, &mut worker);
            }
        }
    }
}
