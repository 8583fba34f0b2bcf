//! Hashes, whose fields have deadlines while the clock goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use stillframe_store::{DbId, Deadline, Draw, FieldMode, OpError, Store, UnixMillis, Worker};

use super::{tried, Tried};

const DB: DbId = DbId(0);
const NAMES: u32 = 8;
/// The clock moves on by steps of so much; the active expiry looks at seconds.
const TICK_MS: i64 = 1_000;

/// Values and deadlines by field, also of those whose time is over.
type Hash = BTreeMap<Vec<u8>, (Vec<u8>, Option<UnixMillis>)>;

#[derive(Clone)]
pub struct Model {
    hashes: BTreeMap<Vec<u8>, Hash>,
    now: UnixMillis,
}

impl Default for Model {
    fn default() -> Model {
        Model { hashes: BTreeMap::new(), now: 1_700_000_000_000 }
    }
}

impl Model {
    /// The time that it is here, and has to be for the worker.
    pub fn now(&self) -> UnixMillis {
        self.now
    }

    /// Hashes with a field whose time is not over.
    pub fn live_count(&self) -> usize {
        names().filter(|name| !self.live(name).is_empty()).count()
    }

    fn is_live(&self, deadline: Option<UnixMillis>) -> bool {
        deadline.is_none_or(|deadline| deadline > self.now)
    }

    /// The value and the deadline of a field whose time is not over.
    fn find(&self, name: &[u8], field: &[u8]) -> Option<(Vec<u8>, Option<UnixMillis>)> {
        self.hashes.get(name)?.get(field).filter(|(_, deadline)| self.is_live(*deadline)).cloned()
    }

    fn live(&self, name: &[u8]) -> Hash {
        let mut hash = self.hashes.get(name).cloned().unwrap_or_default();
        hash.retain(|_, (_, deadline)| self.is_live(*deadline));
        hash
    }

    /// Sets a field; whether it was absent.
    fn set(&mut self, name: &[u8], field: &[u8], value: &[u8], deadline: Deadline) -> bool {
        let before = self.find(name, field);
        let deadline = match deadline {
            Deadline::Keep => before.as_ref().and_then(|(_, deadline)| *deadline),
            Deadline::Clear => None,
            Deadline::At(at) => Some(at),
        };
        self.hashes.entry(name.to_vec()).or_default().insert(field.to_vec(), (value.to_vec(), deadline));
        before.is_none()
    }

    /// Removes a field; whether it was there, its time not over.
    fn remove(&mut self, name: &[u8], field: &[u8]) -> bool {
        let was_there = self.find(name, field).is_some();
        if let Some(hash) = self.hashes.get_mut(name) {
            hash.remove(field);
        }
        was_there
    }
}

fn bytes(random: &mut fastrand::Rng, longest: usize) -> Vec<u8> {
    let len = match random.u32(..20) {
        0 => random.usize(..=longest),
        1 => random.usize(..=longest.min(500)),
        _ => random.usize(..24),
    };
    (0..len).map(|_| random.u8(b'a'..=b'z')).collect()
}

pub fn names() -> impl Iterator<Item = Vec<u8>> {
    (0..NAMES).map(|number| format!("hash:{number}").into_bytes())
}

/// The first names are of small hashes.
fn name_of(random: &mut fastrand::Rng) -> (Vec<u8>, u32) {
    let number = random.u32(..NAMES);
    (format!("hash:{number}").into_bytes(), if number < 3 { 12 } else { 3_000 })
}

fn field_of(random: &mut fastrand::Rng, field_count: u32) -> Vec<u8> {
    match random.u32(..50) {
        0 => bytes(random, 1_000),
        _ => format!("field:{}", random.u32(..field_count)).into_bytes(),
    }
}

fn later(random: &mut fastrand::Rng, now: UnixMillis) -> UnixMillis {
    now + TICK_MS * random.i64(1..40)
}

fn set(store: &Store, worker: &mut Worker, model: &mut Model, random: &mut fastrand::Rng) -> Tried {
    let (name, field_count) = name_of(random);
    let key = worker.key(&name);
    let deadline = match random.u32(..6) {
        0 => Deadline::Keep,
        1 => Deadline::At(later(random, model.now)),
        _ => Deadline::Clear,
    };
    if random.u32(..12) == 0 {
        let (field, value) = (field_of(random, field_count), bytes(random, 600));
        let pair: [(&[u8], &[u8]); 1] = [(&field, &value)];
        let added =
            tried(store, worker, |worker| worker.hash_at(DB, &key).set(&pair, FieldMode::Absent, deadline))?;
        let is_absent = model.find(&name, &field).is_none();
        assert_eq!(added, u64::from(is_absent));
        if is_absent {
            model.set(&name, &field, &value, deadline);
        }
        return Ok(());
    }
    let longest = if field_count < 20 { 300 } else { 20_000 };
    let count = random.usize(1..if field_count < 20 { 4 } else { 30 });
    let pairs: Vec<_> = (0..count).map(|_| (field_of(random, field_count), bytes(random, longest))).collect();
    let given: Vec<(&[u8], &[u8])> = pairs.iter().map(|(f, v)| (&f[..], &v[..])).collect();
    let added =
        tried(store, worker, |worker| worker.hash_at(DB, &key).set(&given, FieldMode::All, deadline))?;
    let new = pairs.iter().filter(|(f, v)| model.set(&name, f, v, deadline)).count();
    assert_eq!(added, new as u64);
    Ok(())
}

/// Makes of a value a longer one, or a new one, or refuses to.
fn renew(store: &Store, worker: &mut Worker, model: &mut Model, random: &mut fastrand::Rng) -> Tried {
    let (name, field_count) = name_of(random);
    let (key, field, more) = (worker.key(&name), field_of(random, field_count), bytes(random, 300));
    let refuses = random.u32(..8) == 0;
    let renewed = |old: Option<&[u8]>| match old {
        _ if refuses => Err("refused"),
        Some(old) if old.len() < 400 => Ok([old, &more].concat()),
        _ => Ok(more.clone()),
    };
    let done = tried(store, worker, |worker| worker.hash_at(DB, &key).renew(&field, renewed))?;
    let expected = renewed(model.find(&name, &field).as_ref().map(|(value, _)| &value[..]));
    assert_eq!(done, expected.as_ref().map(drop).map_err(|refused| *refused));
    if let Ok(value) = expected {
        model.set(&name, &field, &value, Deadline::Keep);
    }
    Ok(())
}

fn change_fields(store: &Store, worker: &mut Worker, model: &mut Model, random: &mut fastrand::Rng) -> Tried {
    let (name, field_count) = name_of(random);
    let key = worker.key(&name);
    let fields: Vec<_> = if random.u32(..30) == 0 {
        // All but a few, so that a large one becomes small again.
        model.live(&name).into_keys().skip(random.usize(..30)).collect()
    } else {
        let count = random.usize(1..if field_count < 20 { 6 } else { 60 });
        (0..count).map(|_| field_of(random, field_count)).collect()
    };
    let given: Vec<&[u8]> = fields.iter().map(|field| &field[..]).collect();
    if random.bool() {
        let removed = tried(store, worker, |worker| worker.hash_at(DB, &key).remove(&given))?;
        assert_eq!(removed, fields.iter().filter(|field| model.remove(&name, field)).count() as u64);
        return Ok(());
    }
    let deadline = if random.u32(..4) == 0 { None } else { Some(later(random, model.now)) };
    let set = tried(store, worker, |worker| worker.hash_at(DB, &key).set_deadline(&given, deadline))?;
    let mut there = 0;
    for field in &fields {
        if let Some((value, _)) = model.find(&name, field) {
            there += 1;
            model.set(&name, field, &value, deadline.map_or(Deadline::Clear, Deadline::At));
        }
    }
    assert_eq!(set, there);
    Ok(())
}

fn change_key(store: &Store, worker: &mut Worker, model: &mut Model, random: &mut fastrand::Rng) -> Tried {
    let ((name, _), (target, _)) = (name_of(random), name_of(random));
    let (key, to) = (worker.key(&name), worker.key(&target));
    match random.u32(..3) {
        0 if target != name => {
            tried(store, worker, |worker| worker.copy((DB, &key), (DB, &to)))?;
            // One without fields is none, and what is there already stays.
            if let Some(copied) = model.hashes.get(&name).filter(|_| !model.live(&name).is_empty()).cloned() {
                model.hashes.insert(target, copied);
            } else {
                tried(store, worker, |worker| worker.remove(DB, &to))?;
                model.hashes.remove(&target);
            }
        }
        1 => {
            tried(store, worker, |worker| worker.remove(DB, &key))?;
            model.hashes.remove(&name);
        }
        _ if !model.live(&name).is_empty() => {
            tried(store, worker, |worker| worker.rename((DB, &key), (DB, &to)))?;
            if let Some(moved) = model.hashes.remove(&name) {
                model.hashes.insert(target, moved);
            }
        }
        _ => {}
    }
    Ok(())
}

/// Applies a random change to the store and to the model. An error has changed neither.
pub fn step(store: &Store, worker: &mut Worker, model: &mut Model, random: &mut fastrand::Rng) -> Tried {
    match random.u32(..100) {
        0..45 => set(store, worker, model, random)?,
        45..60 => renew(store, worker, model, random)?,
        60..92 => change_fields(store, worker, model, random)?,
        92..95 => change_key(store, worker, model, random)?,
        95..98 => {
            model.now += TICK_MS * random.i64(1..6);
            worker.set_now(model.now);
        }
        _ => drop(tried(store, worker, |worker| {
            worker.upkeep().expire_cycle(Duration::from_millis(1), |_, _| {})
        })?),
    }
    worker.quiesce();
    Ok(())
}

/// Everything that there is to be read of a hash.
fn compare_hash(store: &Store, worker: &mut Worker, name: &[u8], hash: &Hash) -> Tried {
    let key = worker.key(name);
    let (mut found, mut announced) = (BTreeMap::new(), 0);
    tried(store, worker, |worker| {
        found.clear();
        worker.hash_at(DB, &key).for_each(
            |count| announced = count,
            |given| {
                assert!(found.insert(given.field.to_vec(), given.value.to_vec()).is_none(), "given twice");
                ControlFlow::Continue(())
            },
        )
    })?;
    let values: BTreeMap<_, _> =
        hash.iter().map(|(field, (value, _))| (field.clone(), value.clone())).collect();
    assert_eq!(announced, hash.len() as u64);
    assert_eq!(found, values);
    let fields: Vec<&[u8]> = hash.keys().map(|field| &field[..]).chain([&b"no such field"[..]]).collect();
    tried(store, worker, |worker| {
        worker.hash_at(DB, &key).get(fields.iter().copied(), |index, value| {
            assert_eq!(value, hash.get(fields[index]).map(|(value, _)| &value[..]));
        })
    })?;
    tried(store, worker, |worker| {
        worker.hash_at(DB, &key).deadlines(fields.iter().copied(), |index, deadline| {
            assert_eq!(deadline, hash.get(fields[index]).map(|(_, deadline)| *deadline));
        })
    })?;
    let (mut cursor, mut scanned) = (0, BTreeMap::new());
    loop {
        let mut given = Vec::new();
        let next = tried(store, worker, |worker| {
            given.clear();
            worker.hash_at(DB, &key).scan(cursor, 10, |found| {
                given.push((found.field.to_vec(), found.value.to_vec()));
            })
        })?;
        for (field, value) in given {
            assert!(scanned.insert(field, value).is_none(), "scanned twice");
        }
        cursor = next.unwrap_or(0);
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(scanned, values);
    draw(store, worker, name, &values)
}

/// Random fields are some of those that there are.
fn draw(store: &Store, worker: &mut Worker, name: &[u8], values: &BTreeMap<Vec<u8>, Vec<u8>>) -> Tried {
    let (key, len) = (worker.key(name), values.len() as u64);
    for draw in [Draw::Distinct(1), Draw::Distinct(len / 5), Draw::Distinct(len / 2), Draw::Distinct(len + 1)]
        .into_iter()
        .chain([Draw::Repeated(7)])
    {
        let (mut given, mut announced) = (Vec::new(), 0);
        tried(store, worker, |worker| {
            given.clear();
            worker.hash_at(DB, &key).random(
                draw,
                |count| announced = count,
                |found| {
                    assert_eq!(values.get(found.field).map(|value| &value[..]), Some(found.value));
                    given.push(found.field.to_vec());
                    ControlFlow::Continue(())
                },
            )
        })?;
        let is_distinct = given.iter().collect::<BTreeSet<_>>().len() == given.len();
        let expected = match draw {
            Draw::Distinct(count) => count.min(len),
            Draw::Repeated(count) => {
                if len == 0 {
                    0
                } else {
                    count
                }
            }
        };
        assert_eq!((announced, given.len() as u64), (expected, expected), "{draw:?} of {len}");
        assert!(is_distinct || matches!(draw, Draw::Repeated(_)));
    }
    Ok(())
}

/// Compares one hash in every way in which it is read.
pub fn compare(store: &Store, worker: &mut Worker, model: &Model, name: &[u8]) -> Tried {
    let (key, live) = (worker.key(name), model.live(name));
    let len = tried(store, worker, |worker| worker.hash_at(DB, &key).len())?;
    assert!(len >= live.len() as u64);
    compare_hash(store, worker, name, &live)
}

/// Lets the active expiry do all that there is to do: then there is nothing left of what has expired.
pub fn expire_all(store: &Store, worker: &mut Worker, model: &mut Model) -> Tried {
    for name in names() {
        let live = model.live(&name);
        model.hashes.insert(name, live);
    }
    let mut rounds = 0;
    while !is_clean(store, worker, model)? {
        tried(store, worker, |worker| worker.upkeep().expire_cycle(Duration::from_secs(1), |_, _| {}))?;
        worker.idle(|| std::thread::sleep(Duration::from_millis(1)));
        rounds += 1;
        assert!(rounds < 10_000, "what has expired is never removed");
    }
    for name in names() {
        let key = worker.key(&name);
        let is_there = tried(store, worker, |worker| worker.entry(DB, &key))?.is_some();
        assert_eq!(is_there, !model.hashes[&name].is_empty(), "{}", String::from_utf8_lossy(&name));
    }
    Ok(())
}

/// Whether what has expired has been removed from everywhere.
fn is_clean(store: &Store, worker: &mut Worker, model: &Model) -> Result<bool, OpError> {
    for name in names() {
        let key = worker.key(&name);
        if tried(store, worker, |worker| worker.hash_at(DB, &key).len())? != model.hashes[&name].len() as u64
        {
            return Ok(false);
        }
    }
    Ok(true)
}
