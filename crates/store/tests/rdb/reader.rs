//! Dumps of strings, written by Redis and read here.

use stillframe_testkit::seed;

use crate::redis::{temp_dir, Redis};
use crate::strings::random_string;
use crate::{read_all, text};
use std::collections::BTreeMap;
use stillframe_store::rdb::{Entry, RdbString, RdbValue, Reader, ReaderOptions};

type Model = BTreeMap<(u32, Vec<u8>), (Vec<u8>, Option<u64>)>;

const FAR_FUTURE_MS: u64 = 4_102_444_800_000;

/// Strings of all kinds in 16 databases, some with a deadline.
fn fill(redis: &mut Redis, random: &mut fastrand::Rng, per_db_count: usize) -> Model {
    let mut model = Model::new();
    for db in 0..16u32 {
        let mut commands = vec![vec![b"SELECT".to_vec(), db.to_string().into_bytes()]];
        for _ in 0..per_db_count {
            let key = random_string(random, 100);
            let value = random_string(random, 2000);
            let deadline = random.bool().then(|| FAR_FUTURE_MS + random.u64(0..1 << 40));
            let mut set = vec![b"SET".to_vec(), key.clone(), value.clone()];
            if let Some(at_ms) = deadline {
                set.extend([b"PXAT".to_vec(), at_ms.to_string().into_bytes()]);
            }
            commands.push(set);
            model.insert((db, key), (value, deadline));
        }
        redis.pipeline(&commands);
    }
    redis.run("SELECT 0");
    model
}

fn to_model(entries: Vec<Entry>) -> Model {
    let count = entries.len();
    let model: Model = entries
        .into_iter()
        .map(|entry| ((entry.db, entry.key), (text(entry.value), entry.meta.expire_at_ms)))
        .collect();
    assert_eq!(model.len(), count, "a key came twice");
    model
}

#[test]
fn all_kinds_of_strings_are_read_as_redis_saved_them() {
    let mut random = fastrand::Rng::with_seed(seed());
    let mut redis = Redis::start(temp_dir(), &[]);
    let mut model = fill(&mut redis, &mut random, 150);
    let big: Vec<u8> = (0..20 << 20).map(|_| random.u8(..)).collect();
    redis.command(&[b"SET", b"big", &big]);
    model.insert((0, b"big".to_vec()), (big, None));
    let big_packed = b"0123456789".repeat(1 << 20);
    redis.command(&[b"SET", b"big packed", &big_packed]);
    model.insert((0, b"big packed".to_vec()), (big_packed, None));
    let read = |bytes: &[u8]| to_model(read_all(bytes, ReaderOptions::default()).expect("read the dump"));
    assert!(read(&redis.save()) == model);
    redis.run("CONFIG SET rdbcompression no");
    assert!(read(&redis.save()) == model);
}

#[test]
fn a_dump_without_checksum_is_read() {
    let mut redis = Redis::start(temp_dir(), &["--rdbchecksum", "no"]);
    redis.run("SET k 1");
    let bytes = redis.save();
    assert!(bytes.ends_with(&[0; 8]));
    let entries = read_all(&bytes, ReaderOptions::default()).expect("read the dump");
    assert_eq!(entries[0].value, RdbValue::String(RdbString::Int(1)));
}

#[test]
fn access_data_is_read() {
    let mut redis = Redis::start(temp_dir(), &["--maxmemory-policy", "allkeys-lfu"]);
    redis.run("SET k v");
    let entries = read_all(&redis.save(), ReaderOptions::default()).expect("read the dump");
    assert!(entries[0].meta.lfu_count.is_some_and(|count| (5..8).contains(&count)));
    assert_eq!(entries[0].meta.lru_idle_s, None);

    let mut redis = Redis::start(temp_dir(), &["--maxmemory-policy", "allkeys-lru"]);
    redis.run("SET k v");
    let entries = read_all(&redis.save(), ReaderOptions::default()).expect("read the dump");
    assert!(entries[0].meta.lru_idle_s.is_some_and(|idle_s| idle_s < 20));
    assert_eq!(entries[0].meta.lfu_count, None);
}

#[test]
fn input_may_come_in_any_pieces() {
    struct Trickle<'a>(&'a [u8], fastrand::Rng);
    impl std::io::Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            if self.1.u8(0..4) == 0 {
                return Err(std::io::ErrorKind::Interrupted.into());
            }
            let step = self.1.usize(1..8).min(out.len());
            self.0.read(&mut out[..step])
        }
    }
    let bytes = crate::types::VALKEY_8;
    let whole = read_all(bytes, crate::skipping()).expect("read the dump");
    let trickle = Trickle(bytes, fastrand::Rng::with_seed(seed()));
    let pieces: Result<Vec<Entry>, _> = Reader::new(trickle, crate::skipping()).collect();
    assert_eq!(pieces.expect("read the dump"), whole);
}
