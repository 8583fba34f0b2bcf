//! What the server should hold: operations, what they do and what they are answered. For lanes and for ledgers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stillframe_testkit::Reply;

/// The database of the counter that all lanes share.
pub const SHARED_DB: u32 = 0;
/// The lane's own share of that counter.
const OWN_SHARE: &str = "own-share";
/// Strings that have grown beyond this are set anew.
const GROWTH_LIMIT_BYTES: usize = 400 << 10;
/// 2100-01-01: deadlines that no test lives to see.
const FAR_AHEAD_MS: i64 = 4_102_444_800_000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub value: Arc<Vec<u8>>,
    pub deadline_ms: Option<i64>,
}

/// One database.
pub type Keyspace = BTreeMap<String, Entry>;

/// Bytes that are like no other blob's.
#[derive(Clone, Copy, Debug)]
pub struct Blob {
    pub tag: u64,
    pub len: usize,
}

impl Blob {
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        fastrand::Rng::with_seed(self.tag).fill(&mut bytes);
        bytes
    }
}

/// What a lane does next. Valid when it was generated: no operation fails.
#[derive(Clone, Debug)]
pub enum Op {
    Get {
        key: String,
    },
    Set {
        key: String,
        blob: Blob,
        deadline_ms: Option<i64>,
    },
    Append {
        key: String,
        blob: Blob,
    },
    SetRange {
        key: String,
        offset: usize,
        blob: Blob,
    },
    Remove {
        keys: Vec<String>,
        verb: &'static str,
    },
    ExpireAt {
        key: String,
        deadline_ms: i64,
    },
    Incr {
        key: String,
    },
    Rename {
        from: String,
        to: String,
    },
    Copy {
        from: String,
        to: String,
    },
    /// Empties the database, but for the share of the counter.
    Flush {
        share: i64,
    },
    /// Two keys at once.
    Pair {
        number: u32,
        blob: Blob,
    },
    /// A counter that all lanes share, and the own share of it, at once.
    IncrShared,
}

fn pair_keys(number: u32) -> [String; 2] {
    [format!("p:{number}:a"), format!("p:{number}:b")]
}

/// The number that a counter holds; none is zero.
pub fn count_of(space: &Keyspace, key: &str) -> i64 {
    let text = |entry: &Entry| String::from_utf8_lossy(&entry.value).parse();
    space.get(key).map_or(0, |entry| text(entry).unwrap_or_else(|_| panic!("{key} is not a number")))
}

/// The lane's share of the counter that all share.
pub fn own_share(space: &Keyspace) -> i64 {
    count_of(space, OWN_SHARE)
}

/// The keys that are not the same in both.
pub fn differences(one: &Keyspace, other: &Keyspace) -> BTreeSet<String> {
    let keys = one.keys().chain(other.keys());
    keys.filter(|key| one.get(*key) != other.get(*key)).cloned().collect()
}

/// As a plain `SET`.
pub fn put(space: &mut Keyspace, key: &str, value: Vec<u8>) {
    space.insert(key.to_owned(), Entry { value: Arc::new(value), deadline_ms: None });
}

fn increment(space: &mut Keyspace, key: &str) -> i64 {
    let count = count_of(space, key) + 1;
    *value_mut(space, key) = count.to_string().into_bytes();
    count
}

/// The value of a key that is created if it is missing, to be changed.
fn value_mut<'s>(space: &'s mut Keyspace, key: &str) -> &'s mut Vec<u8> {
    let entry = space.entry(key.to_owned());
    Arc::make_mut(&mut entry.or_insert_with(|| Entry { value: Arc::default(), deadline_ms: None }).value)
}

impl Op {
    /// The commands that a lane with the database `db` sends.
    pub fn commands(&self, db: u32) -> Vec<Vec<Vec<u8>>> {
        let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        let with_blob = |line: &str, blob: &Blob| {
            let mut args = words(line);
            args.push(blob.bytes());
            args
        };
        match self {
            Op::Get { key } => vec![words(&format!("GET {key}"))],
            Op::Set { key, blob, deadline_ms } => {
                let mut args = with_blob(&format!("SET {key}"), blob);
                if let Some(ms) = deadline_ms {
                    args.extend(words(&format!("PXAT {ms}")));
                }
                vec![args]
            }
            Op::Append { key, blob } => vec![with_blob(&format!("APPEND {key}"), blob)],
            Op::SetRange { key, offset, blob } => vec![with_blob(&format!("SETRANGE {key} {offset}"), blob)],
            Op::Remove { keys, verb } => vec![words(&format!("{verb} {}", keys.join(" ")))],
            Op::ExpireAt { key, deadline_ms } => vec![words(&format!("PEXPIREAT {key} {deadline_ms}"))],
            Op::Incr { key } => vec![words(&format!("INCR {key}"))],
            Op::Rename { from, to } => vec![words(&format!("RENAME {from} {to}"))],
            Op::Copy { from, to } => vec![words(&format!("COPY {from} {to} REPLACE"))],
            Op::Flush { share } => {
                ["MULTI", "FLUSHDB", &format!("SET {OWN_SHARE} {share}"), "EXEC"].map(words).to_vec()
            }
            Op::Pair { number, blob } => {
                let [a, b] = pair_keys(*number);
                let sets = [with_blob(&format!("SET {a}"), blob), with_blob(&format!("SET {b}"), blob)];
                let [first, second] = sets;
                vec![words("MULTI"), first, second, words("EXEC")]
            }
            Op::IncrShared => [
                "MULTI",
                &format!("INCR {OWN_SHARE}"),
                &format!("SELECT {SHARED_DB}"),
                "INCR shared",
                &format!("SELECT {db}"),
                "EXEC",
            ]
            .map(words)
            .to_vec(),
        }
    }

    /// Does it, and returns what the commands are answered; `None` is anything but an error.
    pub fn apply(&self, space: &mut Keyspace) -> Vec<Option<Reply>> {
        let reply = match self {
            Op::Get { key } => {
                space.get(key).map_or(Reply::NullBulk, |entry| Reply::Bulk(entry.value.to_vec()))
            }
            Op::Set { key, blob, deadline_ms } => {
                let (value, deadline_ms) = (Arc::new(blob.bytes()), *deadline_ms);
                space.insert(key.clone(), Entry { value, deadline_ms });
                Reply::ok()
            }
            Op::Append { key, blob } => {
                let value = value_mut(space, key);
                value.extend(blob.bytes());
                Reply::Int(value.len() as i64)
            }
            Op::SetRange { key, offset, blob } => {
                let (value, end) = (value_mut(space, key), offset + blob.len);
                value.resize(end.max(value.len()), 0);
                value[*offset..end].copy_from_slice(&blob.bytes());
                Reply::Int(value.len() as i64)
            }
            Op::Remove { keys, .. } => {
                Reply::Int(keys.iter().filter(|key| space.remove(key.as_str()).is_some()).count() as i64)
            }
            Op::ExpireAt { key, deadline_ms } => {
                let entry = space.get_mut(key).expect("a key that is there");
                entry.deadline_ms = Some(*deadline_ms);
                Reply::Int(1)
            }
            Op::Incr { key } => Reply::Int(increment(space, key)),
            Op::Rename { from, to } => {
                let entry = space.remove(from).expect("a key that is there");
                space.insert(to.clone(), entry);
                Reply::ok()
            }
            Op::Copy { from, to } => {
                space.insert(to.clone(), space[from].clone());
                Reply::Int(1)
            }
            Op::Flush { share } => {
                space.clear();
                put(space, OWN_SHARE, share.to_string().into_bytes());
                return pair_in_transaction();
            }
            Op::Pair { number, blob } => {
                pair_keys(*number).iter().for_each(|key| put(space, key, blob.bytes()));
                return pair_in_transaction();
            }
            Op::IncrShared => {
                increment(space, OWN_SHARE);
                let mut replies = vec![Some(Reply::ok())];
                replies.extend(vec![Some(Reply::queued()); 4]);
                replies.push(None);
                return replies;
            }
        };
        vec![Some(reply)]
    }

    /// The keys that it may change; `None` is all of them.
    pub fn touched(&self) -> Option<Vec<String>> {
        Some(match self {
            Op::Get { .. } => Vec::new(),
            Op::Set { key, .. }
            | Op::Append { key, .. }
            | Op::SetRange { key, .. }
            | Op::ExpireAt { key, .. }
            | Op::Incr { key } => vec![key.clone()],
            Op::Remove { keys, .. } => keys.clone(),
            Op::Rename { from, to } | Op::Copy { from, to } => vec![from.clone(), to.clone()],
            Op::Flush { .. } => return None,
            Op::Pair { number, .. } => pair_keys(*number).to_vec(),
            Op::IncrShared => vec![OWN_SHARE.to_owned()],
        })
    }
}

/// Kinds of keys, by the length of their values: in the leaf, in a slab, in pages of their own.
const CLASSES: [(&str, u32, std::ops::Range<usize>); 4] =
    [("s", 2000, 0..120), ("m", 150, 500..2_000), ("l", 20, 4_000..20_000), ("x", 3, 100_000..700_000)];

/// Makes up operations.
pub struct Generator {
    rng: fastrand::Rng,
    next_tag: u64,
    /// Growing and shrinking take turns, so that leaves split and merge.
    is_shrinking: bool,
}

impl Generator {
    /// Blobs of generators with different `number` differ.
    pub fn new(seed: u64, number: u64) -> Generator {
        let rng = fastrand::Rng::with_seed(seed ^ number << 32);
        Generator { rng, next_tag: number << 48, is_shrinking: false }
    }

    fn blob(&mut self, len: usize) -> Blob {
        self.next_tag += 1;
        Blob { tag: self.next_tag, len }
    }

    fn class(&mut self) -> usize {
        match self.rng.u32(..100) {
            0..=74 => 0,
            75..=94 => 1,
            95..=98 => 2,
            _ => 3,
        }
    }

    fn key(&mut self, class: usize) -> String {
        let (name, count, _) = &CLASSES[class];
        format!("{name}:{}", self.rng.u32(..*count))
    }

    /// A key of the class that is there, if one is found soon.
    fn present(&mut self, space: &Keyspace, class: usize) -> Option<String> {
        (0..4).map(|_| self.key(class)).find(|key| space.contains_key(key))
    }

    pub fn next(&mut self, space: &Keyspace) -> Op {
        if self.rng.u32(..1500) == 0 {
            self.is_shrinking = !self.is_shrinking;
        }
        let class = self.class();
        match self.rng.u32(..100) {
            0..=9 => Op::Get { key: self.key(class) },
            10..=17 => self.grow(space, class),
            18..=25 => self.overwrite(space, class),
            26..=33 => self.remove(),
            34..=38 => Op::Incr { key: format!("n:{}", self.rng.u32(..20)) },
            39..=45 => {
                let len = if self.rng.u32(..20) == 0 { 20_000 } else { self.rng.usize(..1500) };
                Op::Pair { number: self.rng.u32(..60), blob: self.blob(len) }
            }
            46..=48 => Op::IncrShared,
            49..=53 => self.relate(space, class).unwrap_or(Op::Get { key: self.key(class) }),
            54 if self.rng.u32(..50) == 0 => Op::Flush { share: own_share(space) },
            _ if self.is_shrinking => self.remove(),
            _ => self.set(class),
        }
    }

    fn set(&mut self, class: usize) -> Op {
        let len = self.rng.usize(CLASSES[class].2.clone());
        let deadline_ms = (self.rng.u32(..8) == 0).then(|| FAR_AHEAD_MS + self.next_tag as i64 % 1_000_000);
        Op::Set { key: self.key(class), blob: self.blob(len), deadline_ms }
    }

    fn grow(&mut self, space: &Keyspace, class: usize) -> Op {
        let (key, len) = (self.key(class), self.rng.usize(1..CLASSES[class].2.end / 2));
        if space.get(&key).is_some_and(|entry| entry.value.len() + len > GROWTH_LIMIT_BYTES) {
            return self.set(class);
        }
        Op::Append { key, blob: self.blob(len) }
    }

    fn overwrite(&mut self, space: &Keyspace, class: usize) -> Op {
        let key = self.key(class);
        let old_len = space.get(&key).map_or(0, |entry| entry.value.len());
        let len = 1 + self.rng.usize(..300.min(CLASSES[class].2.end));
        let offset = self.rng.usize(..=old_len + 50);
        Op::SetRange { key, offset, blob: self.blob(len) }
    }

    fn remove(&mut self) -> Op {
        let class = self.class();
        let keys = (0..1 + self.rng.usize(..6)).map(|_| self.key(class)).collect::<Vec<_>>();
        Op::Remove { keys, verb: if self.rng.bool() { "DEL" } else { "UNLINK" } }
    }

    /// An operation on a key that must be there.
    fn relate(&mut self, space: &Keyspace, class: usize) -> Option<Op> {
        let (from, to) = (self.present(space, class)?, self.key(class));
        Some(match self.rng.u32(..3) {
            0 if from != to => Op::Rename { from, to },
            1 if from != to => Op::Copy { from, to },
            _ => {
                self.next_tag += 1;
                Op::ExpireAt { key: from, deadline_ms: FAR_AHEAD_MS + self.next_tag as i64 % 1_000_000 }
            }
        })
    }
}

/// Replies to `MULTI`, two commands that are answered with OK, and `EXEC`.
fn pair_in_transaction() -> Vec<Option<Reply>> {
    let all = Reply::Array(vec![Reply::ok(), Reply::ok()]);
    [Reply::ok(), Reply::queued(), Reply::queued(), all].map(Some).to_vec()
}
