//! What a thread does, as a list without end that its seed makes, and what it leaves in its structures.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Accounts of the bank that all threads share, and what they have together.
pub const ACCOUNTS: u64 = 300;
pub const MONEY: u64 = ACCOUNTS * 1_000;
/// A tree is dropped, and filled from the leaves up, once in so many operations.
const RELOAD_EVERY: u64 = 3_000;
/// Names that a structure has at most.
const NAMES: u64 = 4_000;

pub type Record = (Vec<u8>, Vec<u8>);

/// One call of the library, which a cut sees as a whole or not at all.
#[derive(Clone, Debug)]
pub enum Op {
    TreePut(Record),
    TreeRemove(Vec<u8>),
    /// Writes, and whether they are kept or the body fails in the end.
    TreeTransaction {
        writes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
        is_kept: bool,
    },
    /// Removes what is from one key to another, in a transaction.
    TreeRemoveRange(Vec<u8>, Vec<u8>),
    TreeDrop,
    /// Ascending; not done unless the tree is empty.
    TreeFill(Vec<Record>),
    HashSet(Vec<Record>),
    HashRemove(Vec<u8>),
    /// Appends a byte to the value, or makes it.
    HashRenew(Vec<u8>, u8),
    ListPush {
        is_front: bool,
        items: Vec<Vec<u8>>,
    },
    ListPop {
        is_front: bool,
    },
    ListSet(i64, Vec<u8>),
    ListTrim(i64, i64),
    SetAdd(Vec<Vec<u8>>),
    SetRemove(Vec<u8>),
    SortedInsert(Vec<u8>, f64),
    SortedAdd(Vec<u8>, f64),
    SortedRemove(Vec<u8>),
    /// Counts one up in a hash that all share.
    Count,
    /// Moves money in a tree that all share.
    Transfer {
        from: u64,
        to: u64,
        amount: u64,
    },
}

/// What an operation answers, as far as the thread's own structures decide that.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    None,
    Is(bool),
    Count(u64),
    Value(Option<Vec<u8>>),
    Score(Option<f64>),
}

impl Answer {
    /// In few words.
    pub fn told(&self) -> String {
        match self {
            Answer::Value(Some(bytes)) => format!("{} bytes", bytes.len()),
            other => format!("{other:?}"),
        }
    }
}

/// Decides all of a thread's operations.
#[derive(Clone, Copy)]
pub struct Script {
    pub seed: u64,
    pub thread: u64,
}

fn name(random: &mut fastrand::Rng) -> Vec<u8> {
    let number = random.u64(..NAMES);
    match number % 10 {
        0 => [&b"a long name "[..], &[b'n'; 200], &number.to_be_bytes()].concat(),
        1 => number.to_be_bytes().to_vec(),
        _ => format!("name:{number}").into_bytes(),
    }
}

/// Mostly short; of every place that a value can have.
fn value(random: &mut fastrand::Rng) -> Vec<u8> {
    let len = match random.u32(..2_000) {
        0 => random.usize(300_000..1_400_000),
        1..=9 => random.usize(4_000..70_000),
        10..=99 => random.usize(1_000..4_000),
        100..=199 => 0,
        _ => random.usize(..150),
    };
    let mut bytes = vec![random.u8(..); len];
    bytes.iter_mut().take(8).for_each(|byte| *byte = random.u8(..));
    bytes
}

fn short(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = value(random);
    bytes.truncate(100);
    bytes
}

fn score(random: &mut fastrand::Rng) -> f64 {
    match random.u32(..50) {
        0 => f64::INFINITY,
        1 => f64::NEG_INFINITY,
        2 => -0.0,
        3 => f64::MIN_POSITIVE,
        _ => f64::from(random.i32(-500..500)) / 4.0,
    }
}

impl Script {
    /// The operation of this number.
    pub fn op(self, number: u64) -> Op {
        let words = [self.seed, self.thread, number];
        let mixed = words
            .iter()
            .fold(0_u64, |sum, word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (sum >> 29));
        let random = &mut fastrand::Rng::with_seed(mixed);
        match number % RELOAD_EVERY {
            1_000 => return Op::TreeDrop,
            1_001 => {
                let records: BTreeMap<_, _> =
                    (0..random.usize(..800)).map(|_| (name(random), value(random))).collect();
                return Op::TreeFill(records.into_iter().collect());
            }
            _ => {}
        }
        match random.u32(..100) {
            0..=14 => Op::TreePut((name(random), value(random))),
            15..=22 => Op::TreeRemove(name(random)),
            23..=28 => {
                let write = |random: &mut fastrand::Rng| (name(random), random.bool().then(|| value(random)));
                let writes = (0..random.usize(..12)).map(|_| write(random)).collect();
                Op::TreeTransaction { writes, is_kept: random.u32(..4) > 0 }
            }
            29 => {
                let (a, b) = (name(random), name(random));
                Op::TreeRemoveRange(a.clone().min(b.clone()), a.max(b))
            }
            30..=39 => Op::HashSet((0..random.usize(1..6)).map(|_| (name(random), value(random))).collect()),
            40..=44 => Op::HashRemove(name(random)),
            45..=47 => Op::HashRenew(name(random), random.u8(..)),
            48..=55 => {
                let items = (0..random.usize(1..5)).map(|_| value(random)).collect();
                Op::ListPush { is_front: random.bool(), items }
            }
            56..=63 => Op::ListPop { is_front: random.bool() },
            64..=66 => Op::ListSet(random.i64(-50..50), short(random)),
            67 => {
                let last = if random.u32(..8) == 0 { random.i64(200..800) } else { random.i64(-20..0) };
                Op::ListTrim(random.i64(..20), last)
            }
            68..=74 => Op::SetAdd((0..random.usize(1..6)).map(|_| name(random)).collect()),
            75..=78 => Op::SetRemove(name(random)),
            79..=83 => Op::SortedInsert(name(random), score(random)),
            84..=86 => Op::SortedAdd(name(random), f64::from(random.i32(-8..8)) / 2.0),
            87..=90 => Op::SortedRemove(name(random)),
            91..=94 => Op::Count,
            _ => {
                let (from, to) = (random.u64(..ACCOUNTS), random.u64(..ACCOUNTS));
                Op::Transfer { from, to, amount: random.u64(..100) }
            }
        }
    }
}

/// What a thread's structures hold.
#[derive(Default)]
pub struct Model {
    pub tree: BTreeMap<Vec<u8>, Vec<u8>>,
    pub hash: HashMap<Vec<u8>, Vec<u8>>,
    pub list: VecDeque<Vec<u8>>,
    pub set: BTreeSet<Vec<u8>>,
    pub sorted: HashMap<Vec<u8>, f64>,
    /// How often it has counted up.
    pub count: u64,
}

impl Model {
    pub fn apply(&mut self, op: &Op) -> Answer {
        match op {
            Op::TreePut((key, value)) => Answer::Is(self.tree.insert(key.clone(), value.clone()).is_some()),
            Op::TreeRemove(key) => Answer::Is(self.tree.remove(key).is_some()),
            Op::TreeTransaction { writes, is_kept: true } => self.write_all(writes),
            Op::TreeRemoveRange(from, to) => self.remove_range(from, to),
            Op::TreeDrop => {
                self.tree.clear();
                Answer::None
            }
            Op::TreeFill(records) if self.tree.is_empty() => {
                self.tree.extend(records.iter().cloned());
                Answer::Count(records.len() as u64)
            }
            Op::TreeTransaction { .. } | Op::TreeFill(_) | Op::Transfer { .. } => Answer::None,
            Op::HashSet(pairs) => {
                let is_new = |(key, value): &Record| self.hash.insert(key.clone(), value.clone()).is_none();
                Answer::Count(pairs.iter().map(is_new).filter(|is_new| *is_new).count() as u64)
            }
            Op::HashRemove(field) => Answer::Is(self.hash.remove(field).is_some()),
            Op::HashRenew(field, byte) => {
                self.hash.entry(field.clone()).or_default().push(*byte);
                Answer::None
            }
            Op::ListPush { .. } | Op::ListPop { .. } | Op::ListSet(..) | Op::ListTrim(..) => {
                self.apply_to_list(op)
            }
            Op::SetAdd(members) => {
                let added = members.iter().map(|member| u64::from(self.set.insert(member.clone())));
                Answer::Count(added.sum())
            }
            Op::SetRemove(member) => Answer::Is(self.set.remove(member)),
            Op::SortedInsert(member, score) => {
                Answer::Is(self.sorted.insert(member.clone(), *score).is_none())
            }
            Op::SortedAdd(member, more) => {
                let score = self.sorted.entry(member.clone()).or_default();
                *score += more;
                Answer::Score(Some(*score))
            }
            Op::SortedRemove(member) => Answer::Is(self.sorted.remove(member).is_some()),
            Op::Count => {
                self.count += 1;
                Answer::None
            }
        }
    }

    fn write_all(&mut self, writes: &[(Vec<u8>, Option<Vec<u8>>)]) -> Answer {
        for (key, value) in writes {
            match value {
                Some(value) => drop(self.tree.insert(key.clone(), value.clone())),
                None => drop(self.tree.remove(key)),
            }
        }
        Answer::None
    }

    fn remove_range(&mut self, from: &[u8], to: &[u8]) -> Answer {
        let before = self.tree.len();
        self.tree.retain(|key, _| !(from..to).contains(&&key[..]));
        Answer::Count((before - self.tree.len()) as u64)
    }

    fn apply_to_list(&mut self, op: &Op) -> Answer {
        let list = &mut self.list;
        let position = |index: i64, len: usize| if index < 0 { index + len as i64 } else { index };
        match op {
            Op::ListPush { is_front, items } => {
                for item in items {
                    match is_front {
                        true => list.push_front(item.clone()),
                        false => list.push_back(item.clone()),
                    }
                }
                Answer::Count(list.len() as u64)
            }
            Op::ListPop { is_front: true } => Answer::Value(list.pop_front()),
            Op::ListPop { .. } => Answer::Value(list.pop_back()),
            Op::ListSet(index, item) => {
                let at = usize::try_from(position(*index, list.len())).ok();
                let place = at.and_then(|at| list.get_mut(at));
                Answer::Is(place.map(|place| *place = item.clone()).is_some())
            }
            Op::ListTrim(first, last) => {
                let (first, last) = (position(*first, list.len()), position(*last, list.len()));
                let keeps = (0..list.len() as i64).filter(|at| (first..=last).contains(at));
                let kept: VecDeque<_> = keeps.map(|at| std::mem::take(&mut list[at as usize])).collect();
                *list = kept;
                Answer::None
            }
            _ => Answer::None,
        }
    }
}
