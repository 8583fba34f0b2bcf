//! Collections of all sizes, and what a server says is in one.

use crate::redis::Redis;
use crate::strings::random_string;
use std::collections::BTreeMap;
use stillframe_store::rdb::{HashField, RdbValue};
use stillframe_testkit::Reply;

/// Far from now, in milliseconds since the Unix epoch.
pub const FAR_FUTURE_MS: i64 = 4_102_444_800_000;

fn bulks(reply: Reply) -> Vec<Vec<u8>> {
    let Reply::Array(replies) = reply else { panic!("{reply:?}") };
    let bulk = |reply| match reply {
        Reply::Bulk(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    replies.into_iter().map(bulk).collect()
}

/// What `redis` has under a key; deadlines of fields only if it knows them.
pub fn value_in(redis: &mut Redis, key: &[u8]) -> RdbValue {
    let Reply::Simple(kind) = redis.command(&[b"TYPE", key]) else { panic!("no type") };
    match kind.as_slice() {
        b"list" => RdbValue::List(bulks(redis.command(&[b"LRANGE", key, b"0", b"-1"]))),
        b"set" => RdbValue::Set(bulks(redis.command(&[b"SMEMBERS", key]))),
        b"zset" => {
            let pairs = bulks(redis.command(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]));
            let score = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
            let member = |pair: &[Vec<u8>]| (pair[0].clone(), score(&pair[1]).expect("a score"));
            RdbValue::SortedSet(pairs.chunks(2).map(member).collect())
        }
        b"hash" => hash_in(redis, key),
        other => panic!("{}: {}", key.escape_ascii(), other.escape_ascii()),
    }
}

fn hash_in(redis: &mut Redis, key: &[u8]) -> RdbValue {
    let pairs = bulks(redis.command(&[b"HGETALL", key]));
    let mut fields = Vec::new();
    for pair in pairs.chunks(2) {
        let reply = redis.command(&[b"HPEXPIRETIME", key, b"FIELDS", b"1", &pair[0]]);
        let deadline_ms = match reply {
            Reply::Array(times) => match times[..] {
                [Reply::Int(at_ms)] => (at_ms >= 0).then_some(at_ms),
                _ => panic!("{times:?}"),
            },
            Reply::Error(_) => None,
            other => panic!("{other:?}"),
        };
        fields.push(HashField { field: pair[0].clone(), value: pair[1].clone(), deadline_ms });
    }
    RdbValue::Hash(fields)
}

/// The command that adds all of a value, in its order, to nothing.
pub fn command_for(key: &[u8], value: &RdbValue) -> Vec<Vec<u8>> {
    let with =
        |name: &[u8], words: Vec<Vec<u8>>| [name.to_vec(), key.to_vec()].into_iter().chain(words).collect();
    match value {
        RdbValue::List(items) => with(b"RPUSH", items.clone()),
        RdbValue::Set(members) => with(b"SADD", members.clone()),
        RdbValue::SortedSet(members) => {
            let words = |(member, score): &(Vec<u8>, f64)| [score_text(*score), member.clone()];
            with(b"ZADD", members.iter().flat_map(words).collect())
        }
        RdbValue::Hash(fields) => {
            let words = |field: &HashField| [field.field.clone(), field.value.clone()];
            with(b"HSET", fields.iter().flat_map(words).collect())
        }
        _ => panic!("a collection"),
    }
}

fn score_text(score: f64) -> Vec<u8> {
    format!("{score:e}").into_bytes()
}

fn distinct(random: &mut fastrand::Rng, count: usize, max_len: usize) -> Vec<Vec<u8>> {
    let mut names = BTreeMap::new();
    while names.len() < count {
        // The number of the round makes enough of them, the hash of chance their order.
        let mut name = random_string(random, max_len);
        if random.bool() {
            name.extend_from_slice(names.len().to_string().as_bytes());
        }
        names.insert(name, random.u64(..));
    }
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_by_key(|(_, order)| *order);
    names.into_iter().map(|(name, _)| name).collect()
}

fn random_score(random: &mut fastrand::Rng) -> f64 {
    match random.u8(0..6) {
        0 => f64::from(random.i32(..)),
        1 => f64::INFINITY,
        2 => random.i64(..) as f64,
        3 => f64::from_bits(random.u64(..)),
        4 => 0.0,
        _ => random.f64(),
    }
}

/// A collection of one of the four kinds, of about so many elements, mostly short ones.
pub fn random_collection(random: &mut fastrand::Rng, max_count: usize) -> RdbValue {
    let count = random.usize(1..=max_count);
    let max_len = if random.u8(0..4) == 0 { 300 } else { 64 };
    match random.u8(0..5) {
        0 => RdbValue::List((0..count).map(|_| random_string(random, 20 * max_len)).collect()),
        1 => RdbValue::Set(distinct(random, count, max_len)),
        2 => {
            let bits = random.u32(1..64);
            let numbers: std::collections::BTreeSet<i64> =
                (0..count).map(|_| random.i64(..) >> bits).collect();
            RdbValue::Set(numbers.into_iter().map(|number| number.to_string().into_bytes()).collect())
        }
        3 => {
            let member = |member| {
                let score = random_score(random);
                (member, if score.is_nan() { 1.5 } else { score })
            };
            let members = distinct(&mut fastrand::Rng::with_seed(count as u64), count, max_len);
            RdbValue::SortedSet(members.into_iter().map(member).collect())
        }
        _ => {
            let fields = distinct(random, count, max_len);
            let field = |field| HashField { field, value: random_string(random, max_len), deadline_ms: None };
            RdbValue::Hash(fields.into_iter().map(field).collect())
        }
    }
}

/// The same, in which some fields of every hash have a deadline.
pub fn with_deadlines(random: &mut fastrand::Rng, value: &mut RdbValue) {
    if let RdbValue::Hash(fields) = value {
        for field in fields {
            field.deadline_ms = random.bool().then(|| FAR_FUTURE_MS + random.i64(0..1 << 40));
        }
    }
}
