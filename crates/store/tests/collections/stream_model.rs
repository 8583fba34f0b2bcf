//! Streams with groups, changed and read through their handles.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use stillframe_store::{
    AddRule, EntryRange, GroupRead, GroupStart, NewId, PendingRange, Store, StreamEntry, StreamError,
    StreamGroup, StreamId, Trim,
};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// A stream as it should be.
#[derive(Clone, Default)]
pub struct Stream {
    pub entries: BTreeMap<StreamId, Fields>,
    last: StreamId,
    added_count: u64,
    max_deleted: StreamId,
    groups: BTreeMap<Vec<u8>, Group>,
}

#[derive(Clone, Default)]
struct Group {
    last: StreamId,
    consumers: BTreeSet<Vec<u8>>,
    /// The owner, and how often the entry was delivered.
    pending: BTreeMap<StreamId, (Vec<u8>, u64)>,
}

/// Streams that there are, by key.
pub type Model = BTreeMap<Vec<u8>, Stream>;

pub fn names() -> impl Iterator<Item = Vec<u8>> {
    (0..3).map(|number| format!("stream:{number}").into_bytes())
}

fn group_name(random: &mut fastrand::Rng) -> Vec<u8> {
    format!("group:{}", random.u32(..3)).into_bytes()
}

fn consumer_name(random: &mut fastrand::Rng) -> Vec<u8> {
    format!("consumer:{}", random.u32(..4)).into_bytes()
}

/// Mostly short; some values lie outside of blocks.
fn fields(random: &mut fastrand::Rng) -> Fields {
    let value = |random: &mut fastrand::Rng| match random.u32(..60) {
        0 => vec![random.alphanumeric() as u8; random.usize(900..6_000)],
        _ => format!("{}", random.u32(..10_000)).into_bytes(),
    };
    (0..random.usize(1..4)).map(|number| (format!("f{number}").into_bytes(), value(random))).collect()
}

fn is_entry(found: &StreamEntry, (id, fields): (&StreamId, &Fields)) -> bool {
    found.id == *id && found.fields == *fields
}

impl Stream {
    /// An ID of an entry, or one near it, or of none.
    fn some_id(&self, random: &mut fastrand::Rng) -> StreamId {
        let at = random.usize(..self.entries.len() + 1);
        let id = self.entries.keys().nth(at).copied().unwrap_or(self.last);
        match random.u32(..6) {
            0 => id.next().unwrap(),
            1 => id.previous().unwrap_or(id),
            _ => id,
        }
    }

    /// Mostly of the last entries, which consumers have.
    fn some_ids(&self, random: &mut fastrand::Rng) -> Vec<StreamId> {
        (0..random.usize(..6)).map(|_| self.some_id(random)).collect()
    }

    /// How many entries go; without nodes it would be as many of an approximate trim.
    fn exact_count(&self, to: Cut) -> u64 {
        match to {
            Cut::Len(most) => (self.entries.len() as u64).saturating_sub(most),
            Cut::Id(first) => self.entries.range(..first).count() as u64,
        }
    }

    fn trim(&mut self, to: Cut, is_exact: bool, count: u64) {
        let most = self.exact_count(to);
        assert!(if is_exact { count == most } else { count <= most }, "{count} of {most} entries went");
        (0..count).for_each(|_| drop(self.entries.pop_first()));
    }

    fn add(&mut self, id: StreamId, fields: Fields) {
        assert!(id > self.last, "{id} after {}", self.last);
        self.entries.insert(id, fields);
        (self.last, self.added_count) = (id, self.added_count + 1);
    }
}

impl Group {
    fn owned(&self, consumer: &[u8]) -> impl Iterator<Item = StreamId> + '_ {
        let consumer = consumer.to_vec();
        self.pending.iter().filter(move |(_, (owner, _))| *owner == consumer).map(|(id, _)| *id)
    }

    /// Whether something was done with a pending entry; what was claimed goes to `found`.
    fn claim(
        &mut self,
        entries: &BTreeMap<StreamId, Fields>,
        (id, consumer, is_idle): (StreamId, &[u8], bool),
        found: &mut Vec<StreamEntry>,
    ) -> bool {
        let Some((_, count)) = self.pending.get(&id).cloned() else { return false };
        match entries.get(&id) {
            None => drop(self.pending.remove(&id)),
            Some(_) if !is_idle => return false,
            Some(fields) => {
                self.consumers.insert(consumer.to_vec());
                self.pending.insert(id, (consumer.to_vec(), count + 1));
                found.push(StreamEntry { id, fields: fields.clone() });
            }
        }
        true
    }
}

#[derive(Clone, Copy)]
enum Cut {
    Len(u64),
    Id(StreamId),
}

fn some_trim(stream: &Stream, random: &mut fastrand::Rng) -> (Cut, Trim, bool) {
    let len = stream.entries.len() as u64;
    let (cut, trim) = match random.bool() {
        true => {
            let most = random.u64(len.saturating_sub(100)..len + 10);
            (Cut::Len(most), Trim::max_len(most))
        }
        false => {
            let id = stream.entries.keys().nth(random.usize(..150)).copied().unwrap_or_default();
            (Cut::Id(id), Trim::min_id(id))
        }
    };
    let is_exact = random.bool();
    (cut, if is_exact { trim } else { trim.approximately() }, is_exact)
}

/// Applies a random change to the store and to the model.
pub fn step(store: &Store, model: &mut Model, random: &mut fastrand::Rng) {
    let name = format!("stream:{}", random.u32(..3)).into_bytes();
    match random.u32(..100) {
        0..40 => append(store, model, &name, random),
        40..44 => remove_or_trim(store, model, &name, random),
        44..52 => make_or_end_group(store, model, &name, random),
        52..54 => look(store, model, &name, random),
        _ => use_group(store, model, &name, random),
    }
}

fn append(store: &Store, model: &mut Model, name: &[u8], random: &mut fastrand::Rng) {
    let (handle, was_there) = (store.stream(name), model.contains_key(name));
    let mut stream = model.get(name).cloned().unwrap_or_default();
    let (last, fields) = (stream.last, fields(random));
    match random.u32(..10) {
        // IDs of now, and several appended at a time.
        0..4 => {
            for _ in 0..random.u32(1..40) {
                let id = handle.append(&fields).unwrap();
                stream.add(id, fields.clone());
            }
        }
        4..6 => {
            let id = StreamId::new((last.ms + random.u64(..4)).saturating_sub(1), random.u64(..4));
            match handle.append_at(id, &fields) {
                Ok(given) => {
                    assert_eq!(given, id);
                    stream.add(id, fields);
                }
                Err(StreamError::IdIsZero) => return assert_eq!(id, StreamId::MIN),
                Err(StreamError::IdNotAbove) => return assert!(id <= last, "{id} {last}"),
                Err(error) => panic!("{error}"),
            }
        }
        6..8 => {
            let ms = last.ms + random.u64(..2);
            let id = handle.append_at(NewId::OfMillis(ms), &fields).unwrap();
            let seq = if ms == last.ms { last.seq + 1 } else { 0 };
            assert_eq!(id, StreamId::new(ms, seq));
            stream.add(id, fields);
        }
        _ => {
            let (cut, trim, is_exact) = some_trim(&stream, random);
            let rule = AddRule { only_present: random.bool(), trim: Some(trim) };
            match handle.append_with(NewId::Any, &fields, &rule) {
                Ok(appended) => {
                    assert!(was_there || !rule.only_present);
                    stream.add(appended.id, fields);
                    stream.trim(cut, is_exact, appended.trimmed_count);
                }
                Err(StreamError::NoStream) => return assert!(!was_there && rule.only_present),
                Err(error) => panic!("{error}"),
            }
        }
    }
    model.insert(name.to_vec(), stream);
}

fn remove_or_trim(store: &Store, model: &mut Model, name: &[u8], random: &mut fastrand::Rng) {
    let handle = store.stream(name);
    let Some(stream) = model.get_mut(name) else {
        assert_eq!(handle.remove(&[StreamId::new(1, 1)]).unwrap(), 0);
        return assert_eq!(handle.trim(&Trim::max_len(0)).unwrap(), 0);
    };
    if random.u32(..3) == 0 {
        let (cut, trim, is_exact) = some_trim(stream, random);
        let count = handle.trim(&trim).unwrap();
        return stream.trim(cut, is_exact, count);
    }
    let ids = stream.some_ids(random);
    let removed: BTreeSet<StreamId> =
        ids.iter().copied().filter(|id| stream.entries.remove(id).is_some()).collect();
    stream.max_deleted = stream.max_deleted.max(removed.last().copied().unwrap_or_default());
    assert_eq!(handle.remove(&ids).unwrap(), removed.len() as u64);
}

fn make_or_end_group(store: &Store, model: &mut Model, name: &[u8], random: &mut fastrand::Rng) {
    let (handle, group) = (store.stream(name), group_name(random));
    let stream = model.get(name).cloned();
    let some_id = stream.as_ref().map(|stream| stream.some_id(random)).unwrap_or_default();
    let (start, last) = match random.u32(..3) {
        0 => (GroupStart::FIRST, StreamId::MIN),
        1 => (GroupStart::LAST, stream.as_ref().map_or(StreamId::MIN, |stream| stream.last)),
        _ => (GroupStart::after(some_id), some_id),
    };
    match random.u32(..8) {
        0 => {
            let was_there = model.get_mut(name).is_some_and(|stream| stream.groups.remove(&group).is_some());
            assert_eq!(handle.destroy_group(&group).unwrap(), was_there);
        }
        1..3 => match handle.group(&group).set_start(&start) {
            Ok(()) => {
                model.get_mut(name).unwrap().groups.get_mut(&group).expect("a group that is not there").last =
                    last
            }
            Err(StreamError::NoStream) => assert!(stream.is_none()),
            Err(StreamError::NoGroup) => assert!(!stream.unwrap().groups.contains_key(&group)),
            Err(error) => panic!("{error}"),
        },
        _ => {
            let groups = &mut model.entry(name.to_vec()).or_default().groups;
            assert_eq!(handle.create_group(&group, &start).unwrap(), !groups.contains_key(&group));
            groups.entry(group).or_insert_with(|| Group { last, ..Group::default() });
        }
    }
}

fn use_group(store: &Store, model: &mut Model, name: &[u8], random: &mut fastrand::Rng) {
    let (group, consumer) = (group_name(random), consumer_name(random));
    let handle = store.stream(name).group(&group);
    let ids = model.get(name).map(|stream| stream.some_ids(random)).unwrap_or_default();
    let Some(Stream { entries, groups, .. }) = model.get_mut(name) else {
        return assert!(matches!(handle.read(&consumer, 1), Err(StreamError::NoStream)));
    };
    let Some(group) = groups.get_mut(&group) else {
        return assert!(matches!(handle.ack(&ids), Err(StreamError::NoGroup)));
    };
    match random.u32(..20) {
        0..7 => {
            let most = random.u64(..30);
            let behind = entries.range(group.last.next().unwrap()..).take(most as usize);
            let expected: Vec<_> = behind.map(|(id, fields)| (*id, fields.clone())).collect();
            let found = handle.read(&consumer, most).unwrap();
            assert!(found.iter().map(|entry| (entry.id, entry.fields.clone())).eq(expected.iter().cloned()));
            for (id, _) in expected {
                group.consumers.insert(consumer.clone());
                group.pending.insert(id, (consumer.clone(), 1));
                group.last = id;
            }
        }
        7..9 => read_again(&handle, entries, group, (&consumer, random)),
        9..13 => {
            let mut ids = ids;
            ids.extend(group.pending.keys().filter(|_| random.u32(..3) == 0).take(20));
            let count = ids.iter().filter(|id| group.pending.remove(*id).is_some()).count();
            assert_eq!(handle.ack(&ids).unwrap(), count as u64);
        }
        13..15 => {
            let mut ids = ids;
            ids.extend(group.pending.keys().filter(|_| random.u32(..3) == 0).take(5));
            let is_idle = random.u32(..4) > 0;
            let mut expected = Vec::new();
            for id in &ids {
                group.claim(entries, (*id, &consumer, is_idle), &mut expected);
            }
            assert_eq!(handle.claim(&consumer, &ids, idle(is_idle)).unwrap(), expected);
        }
        15..17 => auto_claim(&handle, entries, group, (&consumer, random)),
        17 => {
            assert_eq!(handle.add_consumer(&consumer).unwrap(), group.consumers.insert(consumer.clone()));
        }
        18 => {
            let owned: Vec<StreamId> = group.owned(&consumer).collect();
            let expected = group.consumers.remove(&consumer).then_some(owned.len() as u64);
            owned.iter().for_each(|id| drop(group.pending.remove(id)));
            assert_eq!(handle.remove_consumer(&consumer).unwrap(), expected);
        }
        _ => read_without_owning(&handle, entries, group, consumer),
    }
}

/// Entries that are given, and owned by no consumer.
fn read_without_owning(
    handle: &StreamGroup,
    entries: &BTreeMap<StreamId, Fields>,
    group: &mut Group,
    consumer: Vec<u8>,
) {
    let asked = GroupRead { history_after: None, most: 5, no_ack: true };
    let found = RefCell::new(Vec::new());
    let done = handle.read_with(
        &consumer,
        &asked,
        || found.borrow_mut().clear(),
        |id, parts| found.borrow_mut().push((id, parts.is_some())),
    );
    let expected: Vec<_> =
        entries.range(group.last.next().unwrap()..).take(5).map(|(id, _)| (*id, true)).collect();
    assert_eq!(done.unwrap().has_nothing, expected.is_empty());
    assert_eq!(found.into_inner(), expected);
    if let Some((id, _)) = expected.last() {
        group.last = *id;
        group.consumers.insert(consumer);
    }
}

/// A time after which nothing, or everything, is idle.
fn idle(is_idle: bool) -> Duration {
    if is_idle {
        Duration::ZERO
    } else {
        Duration::from_secs(1_000_000)
    }
}

fn read_again(
    handle: &StreamGroup,
    entries: &BTreeMap<StreamId, Fields>,
    group: &mut Group,
    (consumer, random): (&[u8], &mut fastrand::Rng),
) {
    let owned: Vec<StreamId> = group.owned(consumer).collect();
    let after = owned.get(random.usize(..owned.len() + 4)).copied().unwrap_or_default();
    let most = random.u64(..30);
    let found = handle.read_again(consumer, after, most).unwrap();
    group.consumers.insert(consumer.to_vec());
    let (mut there, mut gone) = (Vec::new(), Vec::new());
    for id in owned.into_iter().filter(|id| *id > after).take(most as usize) {
        match entries.get(&id) {
            Some(fields) => {
                there.push(StreamEntry { id, fields: fields.clone() });
                group.pending.get_mut(&id).unwrap().1 += 1;
            }
            None => gone.push(id),
        }
    }
    assert_eq!((found.entries, found.gone), (there, gone));
}

fn auto_claim(
    handle: &StreamGroup,
    entries: &BTreeMap<StreamId, Fields>,
    group: &mut Group,
    (consumer, random): (&[u8], &mut fastrand::Rng),
) {
    let from = group.pending.keys().nth(random.usize(..40)).copied().unwrap_or_default();
    let (most, is_idle) = (random.usize(1..6), random.u32(..4) > 0);
    let mut looked_at: Vec<StreamId> = group.pending.range(from..).map(|(id, _)| *id).collect();
    let mut next = looked_at.get(10 * most).copied().unwrap_or_default();
    looked_at.truncate(10 * most);
    let (mut expected, mut gone, mut done_count) = (Vec::new(), Vec::new(), 0);
    for id in looked_at {
        if done_count == most {
            next = id;
            break;
        }
        if group.claim(entries, (id, consumer, is_idle), &mut expected) {
            done_count += 1;
            gone.extend((!entries.contains_key(&id)).then_some(id));
        }
    }
    let (found, claimed) = handle.auto_claim(consumer, from, most as u64, idle(is_idle)).unwrap();
    assert_eq!(found, expected);
    assert_eq!((claimed.next, claimed.gone), (next, gone));
}

/// Looks at a part of a stream, in one of several ways.
fn look(store: &Store, model: &Model, name: &[u8], random: &mut fastrand::Rng) {
    let handle = store.stream(name);
    let Some(stream) = model.get(name) else {
        assert!(handle.info().unwrap().is_none() && handle.is_empty().unwrap());
        assert_eq!(handle.last_id().unwrap(), StreamId::MIN);
        assert!(handle.groups().unwrap().is_empty());
        return assert!(handle.range(.., 5).unwrap().is_empty() && handle.rev(.., 5).unwrap().is_empty());
    };
    let (one, other) = (stream.some_id(random), stream.some_id(random));
    let (from, to) = (one.min(other), one.max(other));
    let most = random.usize(..60);
    let found = handle.range(from..=to, most as u64).unwrap();
    assert!(found.len() == stream.entries.range(from..=to).take(most).count());
    assert!(found.iter().zip(stream.entries.range(from..=to)).all(|(found, entry)| is_entry(found, entry)));
    let found = handle.rev(from..to, most as u64).unwrap();
    assert!(found.len() == stream.entries.range(from..to).take(most).count());
    let expected = stream.entries.range(from..to).rev();
    assert!(found.iter().zip(expected).all(|(found, entry)| is_entry(found, entry)));
    let found = handle.get(one).unwrap();
    assert_eq!(found.as_ref().map(|found| &found.fields), stream.entries.get(&one));
    assert!(found.is_none_or(|found| found.get("f0").is_some() && found.get("none").is_none()));
}

/// Compares one stream, and its groups, in every way in which they are read.
pub fn compare(store: &Store, model: &Model, name: &[u8]) {
    let (handle, stream) = (store.stream(name), model.get(name));
    let info = handle.info().unwrap();
    assert_eq!(info.is_some(), stream.is_some());
    let (Some(info), Some(stream)) = (info, stream) else { return };
    assert_eq!(handle.len().unwrap(), stream.entries.len() as u64);
    let first = stream.entries.keys().next().copied().unwrap_or_default();
    assert_eq!((info.first, info.last, info.max_deleted), (first, stream.last, stream.max_deleted));
    assert_eq!((info.added_count, info.group_count), (stream.added_count, stream.groups.len() as u64));
    let found = RefCell::new(Vec::new());
    let give = |id, parts: &[&[u8]]| {
        found.borrow_mut().push((id, parts.iter().map(|part| part.to_vec()).collect::<Vec<_>>()));
        ControlFlow::Continue(())
    };
    handle.for_each(&EntryRange::of(..), || found.borrow_mut().clear(), give).unwrap();
    let flat = |fields: &Fields| fields.iter().flat_map(|(f, v)| [f.clone(), v.clone()]).collect::<Vec<_>>();
    let expected = stream.entries.iter().map(|(id, fields)| (*id, flat(fields)));
    assert!(found.into_inner().into_iter().eq(expected));
    let groups = handle.groups().unwrap();
    assert!(groups.iter().map(|group| &group.name).eq(stream.groups.keys()));
    for (name, group) in &stream.groups {
        compare_group(&handle.group(name), name, group);
    }
}

fn compare_group(handle: &StreamGroup, name: &[u8], group: &Group) {
    let info = handle.info().unwrap();
    assert_eq!((&info.name[..], info.last), (name, group.last));
    assert_eq!(info.consumer_count, group.consumers.len() as u64);
    assert_eq!(info.pending_count, group.pending.len() as u64);
    let summary = handle.pending().unwrap();
    let end = |id: Option<&StreamId>| id.copied().unwrap_or_default();
    assert_eq!(summary.count, group.pending.len() as u64);
    assert_eq!(summary.first, end(group.pending.keys().next()));
    assert_eq!(summary.last, end(group.pending.keys().next_back()));
    let owners = group.consumers.iter().map(|name| (name.clone(), group.owned(name).count() as u64));
    let owners: Vec<_> = owners.collect();
    assert!(summary.consumers.iter().eq(owners.iter().filter(|(_, count)| *count > 0)));
    let consumers = handle.consumers().unwrap();
    assert!(consumers
        .into_iter()
        .map(|consumer| (consumer.name, consumer.pending_count))
        .eq(owners.iter().cloned()));
    let entries = handle.pending_entries(&PendingRange::of(.., u64::MAX)).unwrap();
    let expected = group.pending.iter().map(|(id, (owner, count))| (*id, owner.clone(), *count));
    assert!(entries.into_iter().map(|entry| (entry.id, entry.consumer, entry.count)).eq(expected));
    for name in &group.consumers {
        let wanted = PendingRange::of(.., 7).owned_by(name);
        let entries = handle.pending_entries(&wanted).unwrap();
        assert!(entries.into_iter().map(|entry| entry.id).eq(group.owned(name).take(7)));
    }
}
