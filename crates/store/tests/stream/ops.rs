//! Operations of all types, of whole databases, in transactions, with time that passes and keys that are evicted.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use stillframe_store::{
    AddRule, ClaimRule, DbId, Deadline, End, EvictionPolicy, FieldMode, GroupRead, GroupStart, Key, Marks,
    NewId, NewValue, OpError, RangeLimit, ScoreRule, ScoredRange, StreamId, StreamInfo, Trim, TrimTo,
    UnixMillis, Worker,
};

pub const DATABASES: u32 = 3;
const KEYS: u32 = 14;
/// In a time that a server's own clock does not reach: it expires nothing but by what it is told.
const BEGIN: UnixMillis = 4_102_444_800_000;

/// What Redis 7.0 has, or all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    AsRedis,
    TimedFields,
}

/// Generated operations.
pub struct Ops {
    random: fastrand::Rng,
    scope: Scope,
    now: UnixMillis,
}

type Done = Result<(), OpError>;

fn name(random: &mut fastrand::Rng) -> Vec<u8> {
    match random.u32(..30) {
        // Too long for a leaf.
        0 => format!("long:{}:{}", random.u32(..3), "x".repeat(700)).into_bytes(),
        _ => format!("key:{}", random.u32(..KEYS)).into_bytes(),
    }
}

fn word(random: &mut fastrand::Rng) -> Vec<u8> {
    match random.u32(..60) {
        0 => Vec::new(),
        1 => vec![random.alphanumeric() as u8; random.usize(450..3_000)],
        2 => b"a\r\nb\0c $3".to_vec(),
        3 => vec![0xff, random.u8(..), b'\n'],
        _ => format!("{}", random.u32(..200)).into_bytes(),
    }
}

fn words(random: &mut fastrand::Rng) -> Vec<Vec<u8>> {
    let count = if random.u8(..50) == 0 { random.usize(200..2_500) } else { random.usize(1..20) };
    (0..count).map(|_| word(random)).collect()
}

fn score(random: &mut fastrand::Rng) -> f64 {
    match random.u32(..30) {
        0 => f64::INFINITY,
        1 => f64::NEG_INFINITY,
        2 => random.f64() * 1e-9,
        3 => random.f64() * 1e20,
        4 => -random.f64(),
        _ => f64::from(random.u32(..50)),
    }
}

fn end(random: &mut fastrand::Rng) -> End {
    if random.bool() {
        End::Left
    } else {
        End::Right
    }
}

impl Ops {
    pub fn new(seed: u64, scope: Scope) -> Ops {
        Ops { random: fastrand::Rng::with_seed(seed), scope, now: BEGIN }
    }

    fn deadline(&mut self) -> UnixMillis {
        self.now + self.random.i64(1..60)
    }

    fn some_deadline(&mut self) -> Option<UnixMillis> {
        self.random.bool().then(|| self.deadline())
    }

    /// One step: an operation, or several together.
    pub fn run(&mut self, worker: &mut Worker) {
        self.now += self.random.i64(0..3);
        worker.set_now(self.now);
        match self.random.u32(..100) {
            0..10 => self.transaction(worker),
            10..13 => {
                let policy = EvictionPolicy::by_name("allkeys-random").unwrap();
                worker.upkeep().evict(policy, 5).map(drop).unwrap();
            }
            13..16 => drop(worker.upkeep().expire_cycle(Duration::from_millis(1), |_, _| ()).unwrap()),
            _ => self.operation(worker),
        }
    }

    /// Several operations as one step, alone or with the locks of two keys.
    fn transaction(&mut self, worker: &mut Worker) {
        if self.random.bool() {
            let alone = worker.stop_others().unwrap();
            worker.steps().begin();
            (0..self.random.u32(0..6)).for_each(|_| self.operation(worker));
            worker.steps().end();
            return drop(alone);
        }
        let (db, names) =
            (DbId(self.random.u32(..DATABASES)), [name(&mut self.random), name(&mut self.random)]);
        let keys = [worker.key(&names[0]), worker.key(&names[1])];
        // Where it has been alone so far, a worker takes locks from its first operation on.
        worker.entry(db, &keys[0]).map(drop).unwrap();
        let locks = worker.lock(&keys.map(|key| (db, key)), true);
        worker.steps().begin();
        for _ in 0..self.random.u32(0..6) {
            let key = &keys[self.random.usize(..2)];
            let number = self.random.u32(..100);
            settle(self.on_key(worker, number, db, key));
        }
        worker.steps().end();
        drop(locks);
    }

    fn operation(&mut self, worker: &mut Worker) {
        let (db, name) = (DbId(self.random.u32(..DATABASES)), name(&mut self.random));
        let key = worker.key(&name);
        let number = self.random.u32(..130);
        settle(match number {
            0..100 => self.on_key(worker, number, db, &key),
            100..128 => self.on_keys(worker, number, db, &key),
            128 => worker.database(db).flush(),
            _ => worker.database(db).swap_with(DbId(self.random.u32(..DATABASES))),
        });
    }

    fn on_key(&mut self, worker: &mut Worker, number: u32, db: DbId, key: &Key<'_>) -> Done {
        if self.random.u8(..6) == 0 {
            return self.stream(worker, db, key);
        }
        match number {
            0..24 => self.string(worker, number, db, key),
            24..44 => self.list(worker, number, db, key),
            44..60 => self.hash(worker, number, db, key),
            60..72 => self.set(worker, number, db, key),
            72..88 => self.sorted_set(worker, number, db, key),
            88..92 => worker.remove(db, key).map(drop),
            92..97 => worker.set_deadline(db, key, self.some_deadline()).map(drop),
            97..99 => self.restore(worker, db, key),
            _ => worker.entry(db, key).map(drop),
        }
    }

    fn string(&mut self, worker: &mut Worker, number: u32, db: DbId, key: &Key<'_>) -> Done {
        let value = word(&mut self.random);
        let bytes = NewValue::Bytes { bytes: &value, raw: self.random.bool() };
        match number {
            0..5 => worker.set(db, key, bytes, Deadline::Clear).map(drop),
            5..8 => worker.set(db, key, bytes, Deadline::Keep).map(drop),
            8..11 => worker.set(db, key, bytes, Deadline::At(self.now + self.random.i64(-2..40))).map(drop),
            11..15 => worker.set(db, key, NewValue::Int(self.random.i64(..)), Deadline::Keep).map(drop),
            15 => worker.string_at(db, key).set_until(bytes, self.now - 1).map(drop),
            16..20 => {
                let len = worker.get(db, key, |value| value.len())?.unwrap_or(0);
                worker.string_at(db, key).write_range(len, &value).map(drop)
            }
            _ => worker.string_at(db, key).write_range(self.random.u64(..900), &value).map(drop),
        }
    }

    fn list(&mut self, worker: &mut Worker, number: u32, db: DbId, key: &Key<'_>) -> Done {
        let random = &mut self.random;
        let (words, one) = (words(random), word(random));
        let given: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
        let mut list = worker.list_at(db, key);
        match number {
            24..32 => list.push(end(random), &given, random.u8(..5) == 0).map(drop),
            32..36 => list.pop(end(random), random.u64(1..30), |_| (), |_| ()).map(drop),
            36..38 => list.set(random.i64(-30..30), &one).map(drop),
            38..40 => list.insert(random.bool(), &words[0], &one).map(drop),
            40..42 => list.remove(random.i64(-3..3), &one).map(drop),
            _ => list.trim(random.i64(0..10), random.i64(-10..0)).map(drop),
        }
    }

    fn hash(&mut self, worker: &mut Worker, number: u32, db: DbId, key: &Key<'_>) -> Done {
        let (words, one) = (words(&mut self.random), word(&mut self.random));
        let given: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
        let pairs: Vec<_> = given.iter().map(|word| (*word, &one[..])).collect();
        let is_timed = self.scope == Scope::TimedFields;
        let at = Deadline::At(self.deadline());
        match number {
            44..50 => worker.hash_at(db, key).set(&pairs, FieldMode::All, Deadline::Clear).map(drop),
            50 => worker.hash_at(db, key).set(&pairs, FieldMode::Absent, Deadline::Clear).map(drop),
            51..53 if is_timed => worker.hash_at(db, key).set(&pairs, FieldMode::All, at).map(drop),
            53..55 if is_timed => {
                worker.hash_at(db, key).set(&pairs, FieldMode::All, Deadline::Keep).map(drop)
            }
            55..57 if is_timed => {
                let deadline = self.some_deadline();
                worker.hash_at(db, key).set_deadline(&given, deadline).map(drop)
            }
            57 => worker.hash_at(db, key).for_each(|_| (), |_| ControlFlow::Continue(())).map(drop),
            58 => {
                let renew = |_: Option<&[u8]>| Ok::<_, ()>(one.clone());
                worker.hash_at(db, key).renew(given[0], renew).map(drop)
            }
            _ => worker.hash_at(db, key).remove(&given).map(drop),
        }
    }

    fn set(&mut self, worker: &mut Worker, number: u32, db: DbId, key: &Key<'_>) -> Done {
        let random = &mut self.random;
        let words = words(random);
        let given: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
        match number {
            60..66 => worker.set_at(db, key).add(&given).map(drop),
            66..68 => worker.set_at(db, key).remove(&given).map(drop),
            68..70 => worker.set_at(db, key).pop(random.u64(1..30), |_| (), |_| ()).map(drop),
            _ => {
                let distinct: BTreeSet<&[u8]> = given.iter().copied().collect();
                worker.set_at(db, key).replace(&distinct.into_iter().collect::<Vec<_>>(), None)
            }
        }
    }

    fn sorted_set(&mut self, worker: &mut Worker, number: u32, db: DbId, key: &Key<'_>) -> Done {
        let random = &mut self.random;
        let words = words(random);
        let given: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
        let mut sorted_set = worker.sorted_set_at(db, key);
        match number {
            72..80 => {
                let scored: Vec<_> = given.iter().map(|word| (score(random), *word)).collect();
                let rule = ScoreRule { only_greater: random.u8(..4) == 0, ..ScoreRule::default() };
                sorted_set.put(&scored, &rule).map(drop)
            }
            80..83 => sorted_set.remove(&given).map(drop),
            83..86 => {
                let first = random.i64(-20..20);
                let range = ScoredRange::Ranks { first, last: first + random.i64(0..30) };
                sorted_set.remove_range(&range, random.bool(), RangeLimit::NONE, |_, _| ()).map(drop)
            }
            _ => {
                let distinct: BTreeSet<Vec<u8>> = words.into_iter().collect();
                let mut members: Vec<_> = distinct.into_iter().map(|word| (word, score(random))).collect();
                sorted_set.replace(&mut members)
            }
        }
    }

    fn stream(&mut self, worker: &mut Worker, db: DbId, key: &Key<'_>) -> Done {
        let random = &mut self.random;
        let words = words(random);
        let parts: Vec<&[u8]> =
            words.iter().chain(&words).take(2 * words.len().min(40)).map(|word| &word[..]).collect();
        let mut some_id = || StreamId::new(random.u64(..200), random.u64(..2));
        let (id, other) = (some_id(), some_id());
        let group: &[u8] = if random.bool() { b"one" } else { b"two" };
        let consumer: &[u8] = if random.bool() { b"a" } else { b"b" };
        let to = if random.bool() { TrimTo::Length(random.u64(..60)) } else { TrimTo::Id(id) };
        let trim = Trim { to, approximately: random.bool().then_some(0) };
        let mut stream = worker.stream_at(db, key);
        match random.u32(..16) {
            0..6 => {
                let last = stream.info()?.map_or(0, |info| info.last.ms);
                let rule = AddRule { only_present: false, trim: (random.u8(..5) == 0).then_some(trim) };
                worker
                    .stream_at(db, key)
                    .add(NewId::OfMillis(last + random.u64(..3)), &parts, &rule)
                    .map(drop)
            }
            6 => stream.remove(&[id, other]).map(drop),
            7 => stream.trim(&trim).map(drop),
            8 => {
                let marks = |info: StreamInfo, _| {
                    let max_deleted = id.min(info.last);
                    Some(Marks { last: info.last, added_count: info.added_count + 1, max_deleted })
                };
                stream.set_marks(marks).map(drop)
            }
            9 => {
                let start = GroupStart { after: Some(id), read_count: random.bool().then_some(3) };
                stream.group(group).create(&start, true).map(drop)
            }
            10..12 => {
                let history_after = (random.u8(..3) == 0).then_some(id);
                let asked = GroupRead { history_after, most: random.u64(..20), no_ack: random.u8(..5) == 0 };
                stream.group(group).read(consumer, &asked, || (), |_, _| ()).map(drop)
            }
            12 => stream.group(group).acknowledge(&[id, other]).map(drop),
            13 => {
                let rule = ClaimRule::new(0, random.bool());
                stream.group(group).auto_claim(consumer, (id, 10), &rule, || (), |_, _| ()).map(drop)
            }
            14 => stream.group(group).remove_consumer(consumer).map(drop),
            _ => stream.group(group).remove().map(drop),
        }
    }

    /// A list in the place of whatever is there, with its deadline, as `RESTORE` does.
    fn restore(&mut self, worker: &mut Worker, db: DbId, key: &Key<'_>) -> Done {
        let words = words(&mut self.random);
        let given: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
        worker.make_way(db, key, given.iter().map(|word| word.len()))?;
        worker.list_at(db, key).push(End::Right, &given, false)?;
        match self.some_deadline() {
            Some(deadline) => worker.set_deadline(db, key, Some(deadline)).map(drop),
            None => Ok(()),
        }
    }

    fn on_keys(&mut self, worker: &mut Worker, number: u32, db: DbId, key: &Key<'_>) -> Done {
        let (to_db, to_name) = (DbId(self.random.u32(..DATABASES)), name(&mut self.random));
        let to = worker.key(&to_name);
        let is_same = (db, key.bytes) == (to_db, to.bytes);
        let member = word(&mut self.random);
        worker.entry(db, key)?;
        let _locks = worker.lock(&[(db, *key), (db, to), (to_db, *key), (to_db, to)], true);
        match number {
            100..106 => worker.rename((db, key), (db, &to)).map(drop),
            106..110 if to_db != db => worker.rename((db, key), (to_db, key)).map(drop),
            110 if !is_same => worker.rename((db, key), (to_db, &to)).map(drop),
            111..118 if !is_same => worker.copy((db, key), (to_db, &to)).map(drop),
            118..122 => worker.set_at(db, key).move_to(&to, &member).map(drop),
            _ => {
                let ends = (end(&mut self.random), end(&mut self.random));
                worker.list_at(db, key).move_to(ends.0, (&to, ends.1), |_| ()).map(drop)
            }
        }
    }
}

/// One on a key of another type changes nothing.
fn settle(done: Done) {
    match done {
        Ok(()) | Err(OpError::WrongType) => {}
        Err(error) => panic!("{error}"),
    }
}
