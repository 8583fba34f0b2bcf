//! Collections, written by Redis and read here, and the other way round: by content.

use crate::checks::{announced, is_same_value, payload, payload_of};
use crate::model::{command_for, random_collection, value_in, with_deadlines};
use crate::read_all;
use crate::redis::{temp_dir, Redis};
use stillframe_store::rdb::{
    open_payload, parse_payload, Announced, Element, Entry, HashField, Header, KeyMeta, Payload,
    PayloadWriter, RdbValue, ReaderOptions, SmallLimits, WriteError, WriteVersion, Writer, WriterOptions,
};
use stillframe_testkit::{seed, Reply};

/// Collections under numbered keys; the last is large.
fn collections(random: &mut fastrand::Rng, count: usize) -> Vec<RdbValue> {
    let size = |index: usize| [4, 30, 200, 700][index % 4];
    let mut values: Vec<_> = (0..count).map(|index| random_collection(random, size(index))).collect();
    values.push(RdbValue::List((0..30_000).map(|i| format!("item {i}").into_bytes()).collect()));
    values.push(RdbValue::List(vec![b"before".to_vec(), vec![b'x'; 3 << 20], b"after".to_vec()]));
    values
}

fn key_of(index: usize) -> Vec<u8> {
    format!("key {index}").into_bytes()
}

/// A dump of them, written here.
fn written(values: &[RdbValue], options: WriterOptions, is_small: bool) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Header::default(), options).expect("a header");
    writer.select_db(0, values.len() as u64, 0).expect("a database");
    for (index, value) in values.iter().enumerate() {
        let announced = announced(value, &options.limits, is_small).expect("a collection");
        let meta =
            KeyMeta { expire_at_ms: (index % 3 == 0).then_some(4_102_444_800_000), ..KeyMeta::default() };
        writer.begin_collection(&key_of(index), announced, meta).expect("a key");
        value.for_each(|element| writer.element(element)).expect("an element");
    }
    writer.finish().expect("the end")
}

fn check_entries(bytes: &[u8], values: &[RdbValue]) {
    let entries = read_all(bytes, ReaderOptions::default()).expect("read the dump");
    assert_eq!(entries.len(), values.len());
    for Entry { key, value, .. } in entries {
        let index = (0..values.len()).find(|index| key_of(*index) == key).expect("a key that was written");
        assert!(is_same_value(&value, &values[index]), "{}", key.escape_ascii());
    }
}

#[test]
fn collections_are_read_as_redis_saved_them() {
    let mut random = fastrand::Rng::with_seed(seed());
    let values = collections(&mut random, 100);
    let low = ["--hash-max-listpack-entries", "5", "--zset-max-listpack-entries", "5"];
    let low_rest = ["--set-max-intset-entries", "5", "--list-max-listpack-size", "3"];
    for args in [&[][..], &[&low[..], &low_rest].concat()] {
        let mut redis = Redis::start(temp_dir(), args);
        for (index, value) in values.iter().enumerate() {
            let reply = redis
                .command(&command_for(&key_of(index), value).iter().map(Vec::as_slice).collect::<Vec<_>>());
            assert!(matches!(reply, Reply::Int(_)), "{reply:?}");
        }
        check_entries(&redis.save(), &values);
        redis.run("CONFIG SET rdbcompression no");
        check_entries(&redis.save(), &values);
    }
}

#[test]
fn redis_loads_the_collections_that_are_written() {
    let mut random = fastrand::Rng::with_seed(seed());
    let values = collections(&mut random, 100);
    for (compress, is_small) in [(true, true), (false, true), (true, false)] {
        let options = WriterOptions { compress, ..WriterOptions::default() };
        let bytes = written(&values, options, is_small);
        check_entries(&bytes, &values);
        let dir = temp_dir();
        std::fs::write(dir.join("dump.rdb"), bytes).expect("write dump.rdb");
        let mut redis = Redis::start(dir, &[]);
        let mut other = Redis::start(temp_dir(), &[]);
        for (index, value) in values.iter().enumerate() {
            let key = key_of(index);
            assert!(is_same_value(&value_in(&mut redis, &key), value), "{index}");
            other.command(&command_for(&key, value).iter().map(Vec::as_slice).collect::<Vec<_>>());
            let encoding = |redis: &mut Redis| redis.command(&[b"OBJECT", b"ENCODING", &key]);
            assert_eq!(encoding(&mut redis), encoding(&mut other), "{index}");
            let deadline = if index % 3 == 0 { 4_102_444_800_000 } else { -1 };
            assert_eq!(redis.command(&[b"PEXPIRETIME", &key]), Reply::Int(deadline));
        }
        // The order of a sorted set and of a list is what the server goes by.
        for (index, value) in values.iter().enumerate() {
            if matches!(value, RdbValue::SortedSet(_) | RdbValue::List(_)) {
                assert_eq!(
                    value_in(&mut redis, &key_of(index)),
                    value_in(&mut other, &key_of(index)),
                    "{index}"
                );
            }
        }
    }
}

/// Without compression or with it: lists, and what is small, whose order is known.
#[test]
fn payloads_of_collections_equal_those_of_redis() {
    let mut random = fastrand::Rng::with_seed(seed());
    let mut redis = Redis::start(temp_dir(), &[]);
    let (mut equal_count, limits) = (0, SmallLimits::default());
    for compress in [true, false] {
        for index in 0..400 {
            let value = random_collection(&mut random, [4, 30, 200, 700][index % 4]);
            redis.run("DEL k");
            redis.command(&command_for(b"k", &value).iter().map(Vec::as_slice).collect::<Vec<_>>());
            let Reply::Bulk(theirs) = redis.run("DUMP k") else { panic!("no payload") };
            let ours = payload_of(&value, limits, compress).expect("a payload");
            if ![2, 4, 5].contains(&theirs[0]) {
                let at = ours.iter().zip(&theirs).position(|(a, b)| a != b);
                let part = |bytes: &[u8]| {
                    bytes[at.unwrap_or(0)..].escape_ascii().take(60).map(char::from).collect::<String>()
                };
                assert!(ours == theirs, "{at:?} of {}: {} {}", ours.len(), part(&ours), part(&theirs));
                equal_count += 1;
            }
            assert_eq!(ours[0], theirs[0], "{value:?}");
            assert!(is_same_value(&parse_payload(&theirs).expect("a payload of redis"), &value));
            redis.run("DEL k");
            assert_eq!(redis.command(&[b"RESTORE", b"k", b"0", &ours]), Reply::ok());
            assert!(is_same_value(&value_in(&mut redis, b"k"), &value));
        }
        redis.run("CONFIG SET rdbcompression no");
    }
    assert!(equal_count > 300, "{equal_count}");
}

/// A program that knows deadlines of fields reads what is written for it, if `STILLFRAME_DEADLINE_SERVER` names one.
#[test]
fn deadlines_of_fields_are_written_for_the_version_that_knows_them() {
    let mut random = fastrand::Rng::with_seed(seed());
    let mut values = collections(&mut random, 100);
    values.iter_mut().for_each(|value| with_deadlines(&mut random, value));
    let options = WriterOptions { version: WriteVersion::Redis7_4, ..WriterOptions::default() };
    for is_small in [true, false] {
        let bytes = written(&values, options, is_small);
        assert!(bytes.starts_with(b"REDIS0012\xfa\x09redis-ver\x057.4.0"));
        check_entries(&bytes, &values);
        let Ok(program) = std::env::var("STILLFRAME_DEADLINE_SERVER") else { continue };
        let dir = temp_dir();
        std::fs::write(dir.join("dump.rdb"), bytes).expect("write dump.rdb");
        let mut redis = Redis::start_program(&program, dir, &[]);
        for (index, value) in values.iter().enumerate() {
            assert!(is_same_value(&value_in(&mut redis, &key_of(index)), value), "{index}");
            let payload = payload_of(value, SmallLimits::default(), true).expect("a payload");
            assert_eq!(redis.command(&[b"RESTORE", b"k", b"0", &payload, b"REPLACE"]), Reply::ok());
            assert!(is_same_value(&value_in(&mut redis, b"k"), value), "{index}");
            let Reply::Bulk(payload) = redis.run("DUMP k") else { panic!("no payload") };
            assert!(is_same_value(&parse_payload(&payload).expect("a payload"), value));
        }
        check_entries_of_server(&mut redis, &values);
    }
}

fn check_entries_of_server(redis: &mut Redis, values: &[RdbValue]) {
    redis.run("DEL k");
    check_entries(&redis.save(), values);
}

#[test]
fn deadlines_of_fields_are_refused_for_a_version_without_them() {
    let hash = Announced::Hash { field_count: 1, is_small: true, least_deadline_ms: Some(5) };
    let mut writer = Writer::new(Vec::new(), Header::default(), WriterOptions::default()).expect("a header");
    let error = writer.begin_collection(b"h", hash, KeyMeta::default()).expect_err("no form for it");
    assert_eq!(
        error.to_string(),
        "hash \"h\" has fields with deadlines, for which version 10 of the format (Redis 7.0) has no form: \
         version 12 has one (Redis 7.4)"
    );
    assert!(matches!(writer.finish(), Err(WriteError::Failed)));
    let payload =
        PayloadWriter::begin(Vec::new(), hash, true, WriteVersion::Redis7_0, SmallLimits::default());
    assert!(matches!(payload, Err(WriteError::FieldDeadlines { .. })));
}

/// Redis takes 0 as no deadline, in Valkey's form 0 is a moment: what has expired must not live for ever.
#[test]
fn a_deadline_at_the_start_of_1970_stays_one() {
    let field = HashField { field: b"f".to_vec(), value: b"v".to_vec(), deadline_ms: Some(0) };
    let value = RdbValue::Hash(vec![field]);
    for hash_max_listpack_entries in [0, 9] {
        let limits = SmallLimits { hash_max_listpack_entries, ..SmallLimits::default() };
        let written = payload_of(&value, limits, false).expect("a payload");
        let Ok(RdbValue::Hash(fields)) = parse_payload(&written) else { panic!("a hash") };
        assert_eq!(fields[0].deadline_ms, Some(1));
    }
    payload(b"\x16\x01\x01f\x01v\0\0\0\0\0\0\0\0");
}

#[test]
fn other_elements_than_announced_are_refused() {
    let start = |announced| {
        let mut writer =
            Writer::new(Vec::new(), Header::default(), WriterOptions::default()).expect("a header");
        writer.begin_collection(b"k", announced, KeyMeta::default()).map(|()| writer)
    };
    for is_small in [true, false] {
        let set = |member_count| Announced::Set { member_count, is_small };
        assert!(matches!(start(set(0)).map(drop), Err(WriteError::EmptyCollection)));
        let mut writer = start(set(2)).expect("a set");
        writer.element(Element::Member(b"1")).expect("a member");
        let error = writer.select_db(1, 0, 0).expect_err("one is missing");
        assert!(matches!(error, WriteError::TooFewElements { announced_count: 2, missing_count: 1 }));
        let mut writer = start(set(1)).expect("a set");
        writer.element(Element::Member(b"1")).expect("a member");
        assert!(matches!(writer.element(Element::Member(b"2")), Err(WriteError::TooManyElements { .. })));
        let mut writer = start(set(1)).expect("a set");
        assert!(matches!(writer.element(Element::Item(b"1")), Err(WriteError::WrongElement)));
        let mut writer = start(Announced::SortedSet { member_count: 1, is_small }).expect("a sorted set");
        let not_a_number = Element::Scored { member: b"m", score: f64::NAN };
        assert!(matches!(writer.element(not_a_number), Err(WriteError::WrongElement)));
        let hash = Announced::Hash { field_count: 1, is_small, least_deadline_ms: None };
        let field = Element::Field { field: b"f", value: b"v", deadline: Some(5) };
        assert!(matches!(start(hash).expect("a hash").element(field), Err(WriteError::WrongElement)));
    }
    for node_count in [0, 2] {
        let mut writer = start(Announced::List { item_count: 1, node_count }).expect("a list");
        assert!(matches!(writer.element(Element::Item(b"i")), Err(WriteError::WrongElement)));
    }
}

#[test]
fn the_elements_of_a_payload_come_one_by_one() {
    let members = (0..1000).map(|i| (format!("member {i}").into_bytes(), f64::from(i))).collect();
    let payload = payload_of(&RdbValue::SortedSet(members), SmallLimits::default(), true).expect("a payload");
    let Ok(Payload::Collection(mut elements)) = open_payload(&payload) else { panic!("a collection") };
    assert_eq!(elements.count_hint(), Some(1000));
    for i in 0..1000 {
        let expected = format!("member {i}");
        let expected = Element::Scored { member: expected.as_bytes(), score: f64::from(i) };
        assert_eq!(elements.element(), Ok(Some(expected)));
    }
    assert_eq!(elements.element(), Ok(None));
    assert_eq!(elements.element(), Ok(None));
}
