//! Values of all types, those that are not stored passed over when asked, named otherwise. The commands are in
//! `fixtures/types.txt`.

use crate::bytes::{dump, entry, string};
use stillframe_testkit::Reply;

use crate::checks::is_same_value;
use crate::redis::{temp_dir, Redis};
use crate::{bytes_value, read_all, skipping, text};
use stillframe_store::rdb::{Entry, HashField, Next, RdbValue, ReadErrorKind, Reader, ReaderOptions};

const COMMANDS: &str = include_str!("fixtures/types.txt");
pub const REDIS_6: &[u8] = include_bytes!("fixtures/redis-6.0.16.rdb");
pub const VALKEY_8: &[u8] = include_bytes!("fixtures/valkey-8.0.1.rdb");

pub const REDIS_8: &[u8] = include_bytes!("fixtures/redis-8.2.3.rdb");
pub const VALKEY_9: &[u8] = include_bytes!("fixtures/valkey-9.1.2.rdb");

fn number_strings(prefix: &str, numbers: impl Iterator<Item = u32>) -> Vec<Vec<u8>> {
    numbers.map(|number| format!("{prefix}{number}").into_bytes()).collect()
}

fn strings(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn fields(pairs: Vec<(Vec<u8>, Vec<u8>, Option<i64>)>) -> RdbValue {
    let field = |(field, value, deadline_ms)| HashField { field, value, deadline_ms };
    RdbValue::Hash(pairs.into_iter().map(field).collect())
}

/// The collections of `COMMANDS`.
fn expected_collections() -> Vec<(&'static str, RdbValue)> {
    let padded = |number: u32| format!("element {number}{}", "x".repeat(number as usize % 60)).into_bytes();
    let scored = |member: Vec<u8>, score: f64| (member, score);
    let thirds =
        (1..=150).map(|number| scored(format!("member:{number}").into_bytes(), f64::from(number) / 3.0));
    let small_scores = [("c", f64::NEG_INFINITY), ("a", 1.0), ("b", 2.5), ("d", f64::INFINITY)];
    let pair = |field: &str, value: String| (field.as_bytes().to_vec(), value.into_bytes(), None);
    vec![
        ("hash:small", fields(vec![pair("f", "v".into()), pair("g", "2".into())])),
        ("hash:table", fields(vec![pair("f", "v".repeat(100)), pair("g", "1".into())])),
        (
            "list:big-elements",
            RdbValue::List(strings(&[&"big".repeat(4000), "small", &"large".repeat(3000)])),
        ),
        ("list:nodes", RdbValue::List((1..=300).map(padded).collect())),
        ("list:other-db", RdbValue::List(strings(&["x"]))),
        ("list:small", RdbValue::List(strings(&["a", "b", "c", "1", "2", "3"]))),
        ("set:ints", RdbValue::Set(strings(&["1", "2", "3", "70000", "5000000000"]))),
        ("set:small", RdbValue::Set(strings(&["a", "b", "c"]))),
        ("set:table", RdbValue::Set(number_strings("member:", 1..201))),
        (
            "zset:small",
            RdbValue::SortedSet(small_scores.map(|(member, score)| scored(member.into(), score)).into()),
        ),
        ("zset:table", RdbValue::SortedSet(thirds.collect())),
    ]
}

/// The collections of `fixtures/deadlines.txt`.
fn expected_deadlines() -> Vec<(&'static str, RdbValue)> {
    let pair =
        |field: &str, value: &str, at_ms| (field.as_bytes().to_vec(), value.as_bytes().to_vec(), at_ms);
    let few = vec![
        pair("a", "1", Some(4_102_444_800_123)),
        pair("b", "2", None),
        pair("c", "three", Some(4_102_444_800_999)),
    ];
    let field = |number: i64| {
        let at_ms = (number % 3 == 1).then_some(4_102_444_800_000 + 1000 * number);
        pair(&format!("field:{number}"), &format!("value {number}"), at_ms)
    };
    vec![("hash:deadlines", fields(few)), ("hash:deadlines-table", fields((1..=600).map(field).collect()))]
}

/// The entries of a stream as text.
fn entries_of(value: &RdbValue) -> Vec<String> {
    let mut all = Vec::new();
    let read: Result<(), ()> = value.for_each(|element| {
        element.for_each_entry(|id, parts| {
            let parts: Vec<_> = parts.iter().map(|part| String::from_utf8_lossy(part)).collect();
            all.push(format!("{id} {}", parts.join(" ")));
        });
        Ok(())
    });
    read.expect("nothing fails");
    all
}

/// Records of a stream that are neither its head nor have entries.
fn other_count(value: &RdbValue) -> usize {
    let mut count = 0;
    let read: Result<(), ()> = value.for_each(|element| {
        let mut has_entries = false;
        element.for_each_entry(|_, _| has_entries = true);
        count += usize::from(!has_entries && element.stream_marks().is_none());
        Ok(())
    });
    read.expect("nothing fails");
    count
}

/// Checks that `dump` holds what `COMMANDS` make.
fn check(dump: &[u8], version: u32) {
    let mut reader = Reader::new(dump, skipping());
    let mut entries: Vec<Entry> = reader.by_ref().collect::<Result<_, _>>().expect("read the dump");
    assert_eq!(reader.version(), version);
    assert_eq!(reader.offset_bytes(), dump.len() as u64);
    let counts: Vec<(&str, u64)> =
        reader.skipped_keys().iter().map(|(family, skipped)| (*family, skipped.key_count)).collect();
    assert_eq!(counts, []);
    let streams: Vec<RdbValue> = ["stream:plain", "stream:groups"]
        .iter()
        .map(|key| {
            let at = entries.iter().position(|entry| entry.key == key.as_bytes()).expect("a stream");
            entries.remove(at).value
        })
        .collect();
    assert_eq!(entries_of(&streams[0]), ["2-1 f v g w"]);
    let numbered: Vec<String> = (1..=250).map(|number| format!("{number}-0 field value {number}")).collect();
    assert_eq!(entries_of(&streams[1]), numbered);
    // Two groups; two consumers, their names, and what they own; seven entries are pending.
    assert_eq!((other_count(&streams[0]), other_count(&streams[1])), (0, 2 + 2 + 2 + 7 + 7));
    assert!(reader.aux(if [11, 80].contains(&version) { "valkey-ver" } else { "redis-ver" }).is_some());

    let log_log =
        entries.iter().position(|entry| entry.key == b"hll:str").expect("the HyperLogLog is a string");
    assert!(text(entries.remove(log_log).value).starts_with(b"HYLL"));
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    let string = |key: &'static str, value: &[u8]| (key, bytes_value(value));
    let mut expected = vec![
        string("str:expiring", b"soon"),
        string("str:int", b"12345"),
        string(
            "str:long-key-long-key-long-key-long-key-long-key-long-key-long-key-long-key",
            b"under a long key",
        ),
        string("str:max", b"9223372036854775807"),
        string("str:other-db", b"-77"),
        string("str:packed", &b"compressible ".repeat(40)),
        string("str:text", b"plain text"),
    ];
    expected.extend(expected_collections());
    if [12, 80].contains(&version) {
        expected.extend(expected_deadlines());
    }
    expected.sort_by_key(|(key, _)| *key);
    let deadline = |key: &str| ["str:expiring", "hash:small"].contains(&key).then_some(4_102_444_800_123);
    assert_eq!(entries.len(), expected.len());
    for (entry, (key, value)) in entries.into_iter().zip(expected) {
        assert_eq!(entry.key, key.as_bytes());
        assert_eq!(entry.db, if key.ends_with(":other-db") { 9 } else { 0 });
        assert_eq!(entry.meta.expire_at_ms, deadline(key));
        assert!(is_same_value(&entry.value, &value), "{key}: {:?}", entry.value);
    }
}

#[test]
fn dumps_of_old_and_new_servers_are_read() {
    check(REDIS_6, 9);
    check(VALKEY_8, 11);
    check(REDIS_8, 12);
    check(VALKEY_9, 80);
}

fn redis_with_types() -> Redis {
    let mut redis = Redis::start(temp_dir(), &[]);
    for line in COMMANDS.lines() {
        if let Reply::Error(error) = redis.inline(line) {
            panic!("{line}: {}", error.escape_ascii());
        }
    }
    redis
}

#[test]
fn a_dump_of_the_installed_redis_is_read() {
    let mut redis = redis_with_types();
    check(&redis.save(), 10);
    redis.run("CONFIG SET rdbcompression no");
    check(&redis.save(), 10);
    // The same in the encodings of large collections.
    let dir = temp_dir();
    std::fs::copy(redis.dump_path(), dir.join("dump.rdb")).expect("copy the dump");
    let large = ["--hash-max-listpack-entries", "0", "--zset-max-listpack-entries", "0"];
    let large_lists = ["--set-max-intset-entries", "0", "--list-compress-depth", "1"];
    let mut redis = Redis::start(dir, &[&large[..], &large_lists].concat());
    let encoding = redis.run("OBJECT ENCODING hash:small");
    assert_eq!(encoding, Reply::Bulk(b"hashtable".to_vec()));
    check(&redis.save(), 10);
}

#[test]
fn function_libraries_come_among_what_is_next_and_are_no_entries() {
    let mut redis = Redis::start(temp_dir(), &[]);
    let source = b"#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    redis.command(&[b"FUNCTION", b"LOAD", source]);
    redis.run("SET k v");
    let dump = redis.save();
    for options in [ReaderOptions::default(), skipping()] {
        let mut reader = Reader::new(dump.as_slice(), options.clone());
        let entries: Vec<Entry> = reader.by_ref().map(|entry| entry.expect("read the dump")).collect();
        assert_eq!((entries.len(), reader.skipped_function_count()), (1, 1));
        let mut reader = Reader::new(dump.as_slice(), options);
        assert_eq!(reader.next_up_to(0).expect("a library"), Some(Next::Library { source: source.to_vec() }));
        assert!(matches!(reader.next_up_to(0), Ok(Some(Next::Long { .. }))));
        assert_eq!((reader.next_up_to(0).expect("the end"), reader.skipped_function_count()), (None, 0));
    }
}

/// Every other type of the format, as `(code, name, value)`. The collections hold "a" and "1".
pub fn other_types() -> Vec<(u8, &'static str, Vec<u8>)> {
    let blob = |bytes: &[u8]| [&[bytes.len() as u8], bytes].concat();
    let ziplist = blob(b"\x11\0\0\0\x0d\0\0\0\x02\0\0\x01a\x03\x011\xff");
    let listpack = blob(b"\x0c\0\0\0\x02\0\x81a\x02\x01\x01\xff");
    let intset = blob(b"\x02\0\0\0\x02\0\0\0\x01\0\x02\0");
    let a1 = [string("a"), string("1")].concat();
    // One entry: live, gone, fields, "a", 0; flags, milliseconds, number, "1", words.
    let node = blob(
        b"\x1c\0\0\0\x0a\0\x01\x01\0\x01\x01\x01\x81a\x02\0\x01\x02\x01\0\x01\0\x01\x01\x01\x04\x01\xff",
    );
    let text_scores = [&string("a")[..], &string("1.5"), &string("b"), &[254], &string("c"), &[255]].concat();
    let module = [&b"\x81"[..], &[0x11; 8], b"\x01\x05\x02\x07\x03abcd\x04abcdefgh\x05\x02hi\0"].concat();
    vec![
        (1, "list", [&[2][..], &a1].concat()),
        (2, "set", [&[2][..], &a1].concat()),
        (3, "sorted set", [&[3][..], &text_scores].concat()),
        (4, "hash", [&[1][..], &a1].concat()),
        (5, "sorted set", [&[1][..], &string("a"), &1.5f64.to_le_bytes()].concat()),
        (7, "module", module),
        (9, "hash", blob(b"\x01\x01a\x01\x001\xff")),
        (10, "list", ziplist.clone()),
        (11, "set", intset),
        (12, "sorted set", ziplist.clone()),
        (13, "hash", ziplist.clone()),
        (14, "list", [&[1][..], &ziplist].concat()),
        (15, "stream", stream(&node, b"", b"", b"")),
        (16, "hash", listpack.clone()),
        (17, "sorted set", listpack.clone()),
        (18, "list", [&[2, 2][..], &listpack, &[1], &string("plain")].concat()),
        (19, "stream", stream(&node, b"\x05\0\0\0\x01", b"\x01", b"")),
        (20, "set", listpack.clone()),
        (21, "stream", stream(&node, b"\x05\0\0\0\x01", b"\x01", b"01234567")),
    ]
}

/// A stream of one node, with a group that has a consumer and a pending entry; the parts in `counters`,
/// `entries_read` and `active_time` depend on the revision.
fn stream(listpack: &[u8], counters: &[u8], entries_read: &[u8], active_time: &[u8]) -> Vec<u8> {
    let id = [[0; 15].as_slice(), &[1]].concat();
    let node = [&b"\x01\x10"[..], &id, listpack].concat();
    let group = [&string("group")[..], b"\x05\0", entries_read].concat();
    let pending = [&b"\x01"[..], &id, b"01234567\x01"].concat();
    let consumer = [&string("consumer")[..], b"01234567", active_time, b"\x01", &id].concat();
    [&node[..], b"\x01\x05\0", counters, b"\x01", &group, &pending, b"\x01", &consumer].concat()
}

/// Whether a type is not stored.
fn is_unsupported(code: u8) -> bool {
    code == 7
}

/// A dump with each of the other types between two strings, and the number of the others.
pub fn all_types_dump(codes: impl Fn(u8) -> bool) -> (Vec<u8>, u64) {
    let mut body = entry(0, "first", &string("1st"));
    let mut other_count = 0;
    for (code, _, value) in other_types().into_iter().filter(|(code, ..)| codes(*code)) {
        body.extend_from_slice(&entry(code, &format!("key{code}"), &value));
        other_count += 1;
    }
    body.extend_from_slice(&entry(0, "last", &string("2nd")));
    (dump(9, &body), other_count)
}

#[test]
fn every_type_is_read_or_passed_over() {
    let (bytes, _) = all_types_dump(|_| true);
    let mut reader = Reader::new(bytes.as_slice(), skipping());
    let entries: Vec<Entry> = reader.by_ref().map(|entry| entry.expect("read the dump")).collect();
    let (first, last) = (entries.first().expect("an entry"), entries.last().expect("an entry"));
    assert_eq!((first.key.as_slice(), last.key.as_slice()), (&b"first"[..], &b"last"[..]));
    let a1 = strings(&["a", "1"]);
    let hash = fields(vec![(b"a".to_vec(), b"1".to_vec(), None)]);
    for Entry { key, value, .. } in &entries[1..entries.len() - 1] {
        let expected = match &key[3..] {
            b"1" | b"10" | b"14" => RdbValue::List(a1.clone()),
            b"18" => RdbValue::List(strings(&["a", "1", "plain"])),
            b"2" | b"20" => RdbValue::Set(a1.clone()),
            b"11" => RdbValue::Set(strings(&["1", "2"])),
            b"3" => RdbValue::SortedSet(vec![
                (b"a".to_vec(), 1.5),
                (b"b".to_vec(), f64::INFINITY),
                (b"c".to_vec(), f64::NEG_INFINITY),
            ]),
            b"5" => RdbValue::SortedSet(vec![(b"a".to_vec(), 1.5)]),
            b"12" | b"17" => RdbValue::SortedSet(vec![(b"a".to_vec(), 1.0)]),
            b"15" | b"19" | b"21" => {
                assert_eq!((entries_of(value), other_count(value)), (vec!["0-1 a 1".to_owned()], 5));
                continue;
            }
            _ => hash.clone(),
        };
        assert_eq!(*value, expected, "{}", key.escape_ascii());
    }
    let skipped_count = other_types().iter().filter(|(code, ..)| is_unsupported(*code)).count() as u64;
    assert_eq!(reader.skipped_keys().values().map(|skipped| skipped.key_count).sum::<u64>(), skipped_count);
    assert_eq!(reader.skipped_keys()["module"].first_key, b"key7");
    assert_eq!(entries.len() as u64 - 2 + skipped_count, other_types().len() as u64);
}

#[test]
fn redis_loads_the_hand_made_values() {
    // Modules and types newer than 7.0 it does not know.
    let (bytes, other_count) = all_types_dump(|code| ![7, 20, 21].contains(&code));
    let dir = temp_dir();
    std::fs::write(dir.join("dump.rdb"), bytes).expect("write the dump");
    let mut redis = Redis::start(dir, &[]);
    assert_eq!(redis.run("DBSIZE"), Reply::Int(other_count as i64 + 2));
    for (key, kind) in
        [("key1", "list"), ("key3", "zset"), ("key9", "hash"), ("key14", "list"), ("key18", "list")]
    {
        assert_eq!(redis.run(&format!("TYPE {key}")), Reply::Simple(kind.into()), "{key}");
    }
}

#[test]
fn every_type_that_is_not_stored_is_named_with_its_key() {
    for (code, family, value) in other_types().into_iter().filter(|(code, ..)| is_unsupported(*code)) {
        let body = [&b"\xfe\x03"[..], &entry(code, "a\"key", &value)].concat();
        let error =
            read_all(&dump(9, &body), ReaderOptions::default()).expect_err("the type is not supported");
        let message = error.to_string();
        let begin = format!("unsupported type {family} (RDB type {code}, ");
        let end = ") at key \"a\\\"key\" in db 3, byte 18 of dump.rdb: this version does not store it; \
                   start with `--rdb-skip-unsupported yes` to leave such keys out";
        assert!(message.starts_with(&begin) && message.ends_with(end), "{message}");
    }
}

#[test]
fn a_long_key_is_named_by_its_beginning() {
    let body = [&b"\x07\x80\0\x01\0\0"[..], &[b'k'; 65_536], b"\0"].concat();
    let message = read_all(&dump(9, &body), ReaderOptions::default()).expect_err("a module").to_string();
    assert!(message.contains("kkk...\" in db 0, byte 65551 of") && message.len() < 400, "{message}");
}

#[test]
fn a_module_value_of_the_first_version_cannot_be_passed_over() {
    let bytes = dump(9, &entry(6, "key", b"\x81\x11\x11\x11\x11\x11\x11\x11\x11whatever"));
    let error = read_all(&bytes, skipping()).expect_err("its length is unknown");
    assert!(matches!(error.kind, ReadErrorKind::UnsupportedType { code: 6, .. }), "{error}");
    assert!(!error.to_string().contains("--rdb-skip-unsupported"), "{error}");
}
