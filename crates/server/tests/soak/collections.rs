//! Hashes, lists, sets and sorted sets, small and large: each is what the commands on it make it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use stillframe_testkit::Reply;

use crate::conn::{words, Conn, Words};
use crate::Soak;

/// Collections of each type; those with higher numbers grow larger.
const COUNT: usize = 12;
/// Elements that collection `n` may have: 16, 24, 54, .. 90,000.
const FIRST_SIZE: f64 = 16.0;
const SIZE_FACTOR: f64 = 2.2;

pub struct Collections {
    rng: fastrand::Rng,
    hashes: Vec<HashMap<u64, u64>>,
    lists: Vec<VecDeque<u64>>,
    sets: Vec<BTreeSet<u64>>,
    sorted_sets: Vec<BTreeMap<u64, i64>>,
}

/// A command, and the reply that is due.
type Step = (Words, Reply);

fn int(number: impl TryInto<i64>) -> Reply {
    Reply::Int(number.try_into().unwrap_or(i64::MAX))
}

fn bulk(number: impl ToString) -> Reply {
    Reply::Bulk(number.to_string().into_bytes())
}

fn bulk_or_null(number: Option<impl ToString>) -> Reply {
    number.map_or(Reply::NullBulk, bulk)
}

fn most(number: usize) -> u64 {
    (FIRST_SIZE * SIZE_FACTOR.powi(number as i32)) as u64
}

impl Collections {
    pub fn new(run: &Soak) -> Collections {
        Collections {
            rng: run.rng(2),
            hashes: vec![HashMap::new(); COUNT],
            lists: vec![VecDeque::new(); COUNT],
            sets: vec![BTreeSet::new(); COUNT],
            sorted_sets: vec![BTreeMap::new(); COUNT],
        }
    }

    pub fn run(&mut self, run: &Soak) {
        let mut conn = run.connect("collections");
        while run.goes_on() {
            if self.rng.u32(..400) == 0 {
                self.check_one(&mut conn);
                continue;
            }
            let count = self.rng.usize(1..64);
            let (commands, expected): (Vec<Words>, Vec<Reply>) = (0..count).map(|_| self.step()).unzip();
            let replies = conn.run_all(&commands);
            for ((command, reply), expected) in commands.iter().zip(&replies).zip(&expected) {
                let line = || String::from_utf8_lossy(&command.join(&b' ')).into_owned();
                assert_eq!(reply, expected, "{}", line());
            }
        }
    }

    fn step(&mut self) -> Step {
        let at = self.rng.usize(..COUNT);
        let element = self.rng.u64(..most(at));
        match self.rng.u32(..4) {
            0 => self.hash_step(at, element),
            1 => self.list_step(at, element),
            2 => self.set_step(at, element),
            _ => self.sorted_set_step(at, element),
        }
    }

    fn hash_step(&mut self, at: usize, field: u64) -> Step {
        let (hash, value) = (&mut self.hashes[at], self.rng.u64(..1 << 40));
        match self.rng.u32(..8) {
            0..4 => {
                let is_new = hash.insert(field, value).is_none();
                (words(&format!("HSET hash:{at} f{field} {value}")), int(u8::from(is_new)))
            }
            4 => {
                let sum = hash.entry(field).or_insert(0);
                *sum += 7;
                (words(&format!("HINCRBY hash:{at} f{field} 7")), int(*sum))
            }
            5 => {
                let was_there = hash.remove(&field).is_some();
                (words(&format!("HDEL hash:{at} f{field}")), int(u8::from(was_there)))
            }
            6 => (words(&format!("HLEN hash:{at}")), int(hash.len())),
            _ => (words(&format!("HGET hash:{at} f{field}")), bulk_or_null(hash.get(&field))),
        }
    }

    fn list_step(&mut self, at: usize, item: u64) -> Step {
        let list = &mut self.lists[at];
        let is_full = list.len() as u64 >= most(at);
        match self.rng.u32(..8) {
            0 | 1 if !is_full => {
                list.push_back(item);
                (words(&format!("RPUSH list:{at} {item}")), int(list.len()))
            }
            2 | 3 if !is_full => {
                list.push_front(item);
                (words(&format!("LPUSH list:{at} {item}")), int(list.len()))
            }
            0 | 4 => (words(&format!("LPOP list:{at}")), bulk_or_null(list.pop_front())),
            1 | 5 => (words(&format!("RPOP list:{at}")), bulk_or_null(list.pop_back())),
            6 => {
                let index = self.rng.usize(..list.len() + 1);
                (words(&format!("LINDEX list:{at} {index}")), bulk_or_null(list.get(index)))
            }
            _ => {
                let from = self.rng.usize(..list.len() + 1);
                let items = list.iter().skip(from).take(20).map(bulk).collect();
                (words(&format!("LRANGE list:{at} {from} {}", from + 19)), Reply::Array(items))
            }
        }
    }

    fn set_step(&mut self, at: usize, member: u64) -> Step {
        let set = &mut self.sets[at];
        match self.rng.u32(..6) {
            0..3 => {
                let is_new = set.insert(member);
                (words(&format!("SADD set:{at} {member}")), int(u8::from(is_new)))
            }
            3 => {
                let was_there = set.remove(&member);
                (words(&format!("SREM set:{at} {member}")), int(u8::from(was_there)))
            }
            4 => (words(&format!("SCARD set:{at}")), int(set.len())),
            _ => {
                let is_there = set.contains(&member);
                (words(&format!("SISMEMBER set:{at} {member}")), int(u8::from(is_there)))
            }
        }
    }

    fn sorted_set_step(&mut self, at: usize, member: u64) -> Step {
        let (set, score) = (&mut self.sorted_sets[at], self.rng.i64(-1_000_000..1_000_000));
        match self.rng.u32(..7) {
            0..3 => {
                let is_new = set.insert(member, score).is_none();
                (words(&format!("ZADD zset:{at} {score} {member}")), int(u8::from(is_new)))
            }
            3 => {
                let was_there = set.remove(&member).is_some();
                (words(&format!("ZREM zset:{at} {member}")), int(u8::from(was_there)))
            }
            4 => (words(&format!("ZCARD zset:{at}")), int(set.len())),
            // A rank is counted in the model.
            5 if at < COUNT / 2 && set.contains_key(&member) => {
                let key = |member: u64, score: i64| (score, member.to_string());
                let own = key(member, set[&member]);
                let rank = set.iter().filter(|(member, score)| key(**member, **score) < own).count();
                (words(&format!("ZRANK zset:{at} {member}")), int(rank))
            }
            _ => (words(&format!("ZSCORE zset:{at} {member}")), bulk_or_null(set.get(&member))),
        }
    }

    /// Takes a collection out and back, and compares all of it.
    fn check_one(&mut self, conn: &mut Conn<'_>) {
        let at = self.rng.usize(..COUNT);
        let name = *self.rng.choice(["hash", "list", "set", "zset"].iter()).expect("one");
        let key = format!("{name}:{at}");
        let dump = conn.run_line(&format!("DUMP {key}"));
        if let Some(payload) = dump.bytes() {
            let mut restore = words("RESTORE other 0");
            restore.extend([payload.to_vec(), b"REPLACE".to_vec()]);
            assert_eq!(conn.run(restore), Reply::ok());
            conn.expect(&format!("COPY other {key} REPLACE"), Reply::Int(1));
            conn.expect("DEL other", Reply::Int(1));
        }
        self.check(conn, name, at);
    }

    /// All of a collection is as it should be.
    fn check(&self, conn: &mut Conn<'_>, name: &str, at: usize) {
        let texts = |reply: Reply| reply.items().iter().map(Reply::text).collect::<Vec<_>>();
        let sorted = |mut texts: Vec<String>| {
            texts.sort_unstable();
            texts
        };
        let pairs = |texts: Vec<String>| sorted(texts.chunks(2).map(|pair| pair.join(" ")).collect());
        let (found, expected) = match name {
            "hash" => {
                let expected = self.hashes[at].iter().map(|(field, value)| format!("f{field} {value}"));
                (pairs(texts(conn.run_line(&format!("HGETALL hash:{at}")))), sorted(expected.collect()))
            }
            "list" => {
                let expected = self.lists[at].iter().map(u64::to_string);
                (texts(conn.run_line(&format!("LRANGE list:{at} 0 -1"))), expected.collect())
            }
            "set" => {
                let expected = self.sets[at].iter().map(u64::to_string);
                (sorted(texts(conn.run_line(&format!("SMEMBERS set:{at}")))), sorted(expected.collect()))
            }
            _ => {
                let mut expected: Vec<(i64, String)> =
                    self.sorted_sets[at].iter().map(|(member, score)| (*score, member.to_string())).collect();
                expected.sort_unstable();
                let expected = expected.into_iter().flat_map(|(score, member)| [member, score.to_string()]);
                (texts(conn.run_line(&format!("ZRANGE zset:{at} 0 -1 WITHSCORES"))), expected.collect())
            }
        };
        assert!(found == expected, "{name}:{at}: {} elements, not {}", found.len(), expected.len());
    }

    pub fn check_all(&self, run: &Soak) {
        let mut conn = run.connect("collections, all");
        for at in 0..COUNT {
            ["hash", "list", "set", "zset"].into_iter().for_each(|name| self.check(&mut conn, name, at));
        }
    }
}
