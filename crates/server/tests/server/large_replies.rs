//! Replies with many elements: written beside the worker, from a picture, in bounded memory.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::harness::*;

const FIELDS: usize = 60_000;

fn fill(c: &mut Client, fields: usize, value_bytes: usize) {
    for first in (0..fields).step_by(500) {
        let mut words = vec![b"HSET".to_vec(), b"h".to_vec()];
        for number in first..(first + 500).min(fields) {
            words.push(format!("field:{number}").into_bytes());
            words.push(vec![b'v'; value_bytes]);
        }
        c.queue(&words);
        c.flush().unwrap();
        c.read();
    }
}

/// Makes a sorted set of so many members.
fn fill_scored(c: &mut Client, key: &str, members: usize, member: impl Fn(usize) -> (String, Vec<u8>)) {
    for first in (0..members).step_by(500) {
        let mut words = vec![b"ZADD".to_vec(), key.as_bytes().to_vec()];
        for number in first..(first + 500).min(members) {
            let (score, member) = member(number);
            words.extend([score.into_bytes(), member]);
        }
        c.queue(&words);
    }
    c.flush().unwrap();
    (0..members.div_ceil(500)).for_each(|_| drop(c.read()));
}

fn pairs(reply: Reply) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let Reply::Array(elements) = reply else { panic!("{reply:?}") };
    let bytes = |reply: &Reply| match reply {
        Reply::Bulk(bytes) => bytes.clone(),
        other => panic!("{other:?}"),
    };
    let pairs: BTreeMap<_, _> =
        elements.chunks_exact(2).map(|pair| (bytes(&pair[0]), bytes(&pair[1]))).collect();
    assert_eq!(pairs.len() * 2, elements.len(), "a field came twice");
    pairs
}

/// Fields that another client sets all at once, in one command, are all there or none of them.
#[test]
fn a_large_hash_is_shown_as_of_one_moment() {
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--workers", workers]);
        let mut c = server.connect();
        fill(&mut c, FIELDS, 20);
        let mut writer = server.connect();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let stop = &stop;
            scope.spawn(|| {
                let mut round = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    round += 1;
                    let value = round.to_string();
                    let mut words = vec!["HSET", "h"];
                    let fields = ["field:1", "field:30000", "field:59999", "field:777", "field:45000"];
                    fields.iter().for_each(|field| words.extend([*field, value.as_str()]));
                    writer.queue(&words);
                    writer.flush().unwrap();
                    writer.read();
                }
            });
            for _ in 0..5 {
                c.queue_line("HGETALL h");
                c.queue_line("PING");
                c.flush().unwrap();
                let found = pairs(c.read());
                assert_eq!(
                    c.read(),
                    Reply::Simple("PONG".into()),
                    "replies come in the order of the commands"
                );
                assert_eq!(found.len(), FIELDS);
                let values: Vec<_> = ["field:1", "field:30000", "field:59999"]
                    .map(|field| found[field.as_bytes()].clone())
                    .into();
                assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "{values:?}");
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}

/// Has a command sent by a client that does not read: the server does not hold the reply, of some 60 MB, and serves others
/// meanwhile. The reply when it is read.
fn left_waiting(server: &TestServer, command: &str) -> Reply {
    let (mut c, mut idle) = (server.connect(), server.connect());
    let before = server.resident_bytes();
    idle.queue_line(command);
    idle.flush().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(server.thread_count("stream"), 1);
    (0..1_000).for_each(|_| drop(c.run("GET k")));
    let more = server.resident_bytes().saturating_sub(before);
    assert!(more < 24 << 20, "{more} bytes for the reply of {command} that waits");
    idle.read()
}

#[test]
fn a_reply_that_nobody_reads_takes_little_memory() {
    let server = TestServer::start(&[]);
    fill(&mut server.connect(), FIELDS, 1_000);
    assert_eq!(pairs(left_waiting(&server, "HGETALL h")).len(), FIELDS, "and it comes when it is read");
}

#[test]
fn a_range_of_a_sorted_set_that_nobody_reads_takes_little_memory() {
    let server = TestServer::start(&[]);
    let member = |number: usize| format!("{number:01000}").into_bytes();
    fill_scored(&mut server.connect(), "z", FIELDS, |number| (number.to_string(), member(number)));
    let found = left_waiting(&server, "ZREVRANGE z 0 -1");
    assert_eq!(found.items().len(), FIELDS, "and it comes when it is read");
    for (number, found) in (0..FIELDS).rev().zip(found.items()) {
        assert!(*found == Reply::Bulk(member(number)), "member {number}: {found:?}");
    }
}

/// Who leaves in the midst of a reply leaves nothing behind; what has been deleted meanwhile is an answer like any other.
#[test]
fn a_client_may_leave_in_the_midst_of_a_reply() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    fill(&mut c, FIELDS, 100);
    for _ in 0..40 {
        let mut leaving = server.connect();
        leaving.queue_line("HGETALL h");
        leaving.flush().unwrap();
    }
    c.queue_line("HGETALL h");
    c.queue_line("DEL h");
    c.queue_line("HGETALL h");
    c.flush().unwrap();
    assert_eq!(pairs(c.read()).len(), FIELDS);
    assert_eq!(c.read(), Reply::Int(1));
    assert!(pairs(c.read()).is_empty());
    assert!(stillframe_testkit::within(Duration::from_secs(10), || server.thread_count("stream") == 0));
}

/// A range that is written part by part begins and ends anywhere in the list, whose nodes are of more than one level.
#[test]
fn a_large_range_of_a_list_is_that_range() {
    const ITEMS: usize = 90_000;
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    let item = |index: usize| format!("{index:0200}").into_bytes();
    for first in (0..ITEMS).step_by(1_000) {
        let mut command: Vec<Vec<u8>> = vec![b"RPUSH".to_vec(), b"l".to_vec()];
        command.extend((first..first + 1_000).map(item));
        c.queue(&command);
    }
    c.flush().unwrap();
    (0..ITEMS / 1_000).for_each(|_| drop(c.read()));
    for (start, stop) in
        [(0, -1), (45_017, 70_000), (-25_000, -1), (9_690, 29_800), (69_999, 200_000), (1, 20_000)]
    {
        let from = if start < 0 { ITEMS as i64 + start } else { start } as usize;
        let to = if stop < 0 { ITEMS as i64 + stop } else { stop.min(ITEMS as i64 - 1) } as usize;
        let found = c.run(&format!("LRANGE l {start} {stop}"));
        assert_eq!(found.items().len(), to - from + 1, "{start} to {stop}");
        for (index, found) in (from..).zip(found.items()) {
            assert!(*found == Reply::Bulk(item(index)), "item {index} of {start} to {stop}: {found:?}");
        }
    }
}

/// Ranges of a sorted set and whether they are of so many members that they are written part by part. `z` has scores, three
/// members to each, `n` has one score.
const RANGES: &[(&str, usize)] = &[
    ("ZRANGE z 0 -1", 60_000),
    ("ZRANGE z 0 -1 WITHSCORES", 60_000),
    ("ZRANGE z 30017 -3 WITHSCORES", 29_981),
    ("ZRANGE z 10017 40000 REV WITHSCORES", 29_984),
    ("ZREVRANGE z -45000 -2 WITHSCORES", 44_999),
    ("ZREVRANGE z 5 30000", 29_996),
    ("ZRANGEBYSCORE z (100.5 +inf WITHSCORES", 59_697),
    ("ZRANGEBYSCORE z 100.5 9000 WITHSCORES LIMIT 77 21000", 21_000),
    ("ZRANGEBYSCORE z (-inf (-0.5", 0),
    ("ZREVRANGEBYSCORE z +inf -inf LIMIT 5 30000", 30_000),
    ("ZREVRANGEBYSCORE z (9000.5 3.5 WITHSCORES", 26_991),
    ("ZRANGE z 2 9999999 BYSCORE LIMIT 3 -1", 59_990),
    ("ZRANGE z (9999.5 -inf BYSCORE REV WITHSCORES LIMIT 1 25000", 25_000),
    ("ZRANGEBYLEX n - +", 60_000),
    ("ZRANGEBYLEX n [000300 (045000 LIMIT 10 30000", 30_000),
    ("ZREVRANGEBYLEX n + (000100", 59_899),
    ("ZREVRANGEBYLEX n [047000 [000003 LIMIT 100 22000", 22_000),
    ("ZREVRANGEBYLEX n - +", 0),
    ("ZRANGE n - [030000 BYLEX", 30_001),
    ("ZRANGE n + - BYLEX REV LIMIT 20000 25000", 25_000),
    ("ZRANGE z 60000 -1", 0),
    ("ZRANGE none 0 -1 WITHSCORES", 0),
];

/// A range that is written part by part is that which is written at once in a transaction.
#[test]
fn a_large_range_of_a_sorted_set_is_that_range() {
    const MEMBERS: usize = 60_000;
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    let score = |number: usize| match number {
        0 => "-inf".into(),
        59_999 => "inf".into(),
        _ => format!("{}.5", number / 3),
    };
    fill_scored(&mut c, "z", MEMBERS, |number| (score(number), format!("member:{number:0100}").into_bytes()));
    fill_scored(&mut c, "n", MEMBERS, |number| ("7".into(), format!("{number:06}").into_bytes()));
    for protocol in [2, 3] {
        c.run(&format!("HELLO {protocol}"));
        for (command, count) in RANGES {
            let found = c.run(command);
            c.ok("MULTI");
            c.run(command);
            let expected = c.run("EXEC").items()[0].clone();
            let is_flat = protocol == 2 && command.contains("WITHSCORES");
            let per_member = if is_flat { 2 } else { 1 };
            assert_eq!(found.items().len(), count * per_member, "{command} in RESP{protocol}");
            let differ = found.items().iter().zip(expected.items()).position(|(a, b)| a != b);
            assert_eq!(differ, None, "{command} in RESP{protocol}");
            assert_eq!(found, expected);
        }
    }
    assert!(matches!(&c.run("ZRANGE z 0 -1 WITHSCORES").items()[1], Reply::Array(pair)
        if matches!(&pair[1], Reply::Scalar(b',', score) if score == b"0.5")));
    for command in ["ZRANGE z 0 -1", "DEL z", "ZRANGE z 0 -1", "PING"] {
        c.queue_line(command);
    }
    c.flush().unwrap();
    assert_eq!(c.read().items().len(), MEMBERS, "others of its commands wait");
    assert_eq!(c.read(), Reply::Int(1));
    assert!(c.read().items().is_empty());
    assert_eq!(c.read(), Reply::Simple(b"PONG".to_vec()));
}

/// A payload that is written part by part is that which is written at once in a transaction, and Redis takes it.
#[test]
fn a_large_payload_is_that_payload() {
    const ELEMENTS: usize = 30_000;
    let (server, dir) = (TestServer::start(&[]), temp_dir());
    let (redis, _) = stillframe_testkit::Launch::at_socket("redis-server", &dir).start();
    let (mut c, mut redis) = (server.connect(), redis.client());
    // Compressed, or not; in several nodes of a list.
    let element = |number: usize| format!("{number:0width$}", width = 5 + number % 60).into_bytes();
    for (command, key) in [("SADD", "s"), ("RPUSH", "l")] {
        for first in (0..ELEMENTS).step_by(500) {
            let mut words = vec![command.as_bytes().to_vec(), key.as_bytes().to_vec()];
            words.extend((first..first + 500).map(element));
            c.queue(&words);
        }
    }
    c.flush().unwrap();
    (0..2 * ELEMENTS / 500).for_each(|_| drop(c.read()));
    fill(&mut c, ELEMENTS, 70);
    fill_scored(&mut c, "z", ELEMENTS, |number| (format!("{}.25", number / 3), element(number)));
    c.ok("CONFIG SET rdbcompression yes");
    for (key, count) in [("h", "HLEN"), ("s", "SCARD"), ("l", "LLEN"), ("z", "ZCARD")] {
        let found = c.run(&format!("DUMP {key}"));
        c.ok("MULTI");
        c.run(&format!("DUMP {key}"));
        assert!(found == c.run("EXEC").items()[0], "{key}: {:?} bytes", found.bytes().map(<[u8]>::len));
        let payload = found.bytes().expect("a payload");
        assert_eq!(redis.run_bytes(&[b"RESTORE", key.as_bytes(), b"0", payload]), Reply::ok(), "{key}");
        assert_eq!(redis.run(&format!("{count} {key}")), Reply::Int(ELEMENTS as i64));
        assert_eq!(c.run_bytes(&[b"RESTORE", key.as_bytes(), b"0", payload, b"REPLACE"]), Reply::ok());
    }
    assert_eq!(redis.run("LINDEX l 29999"), Reply::Bulk(element(29_999)));
    assert_eq!(redis.run("HGET h field:777"), Reply::Bulk(vec![b'v'; 70]));
    // Fields whose time is over are not in it; the others are in a newer form.
    c.run("HPEXPIRE h 1 FIELDS 2 field:1 field:2");
    c.run("HPEXPIRE h 100000 FIELDS 1 field:3");
    std::thread::sleep(Duration::from_millis(20));
    let found = c.run("DUMP h");
    let payload = found.bytes().expect("a payload");
    assert_eq!(c.run_bytes(&[b"RESTORE", b"copy", b"0", payload]), Reply::ok());
    assert_eq!(c.run("HLEN copy"), Reply::Int(ELEMENTS as i64 - 2));
    let left = c.run("HPTTL copy FIELDS 4 field:1 field:2 field:3 field:4");
    assert!(
        matches!(left.items(), [Reply::Int(-2), Reply::Int(-2), Reply::Int(1..), Reply::Int(-1)]),
        "{left:?}"
    );
}

#[test]
fn a_payload_that_nobody_reads_takes_little_memory() {
    let server = TestServer::start(&["--rdbcompression", "no"]);
    fill(&mut server.connect(), FIELDS, 1_000);
    let found = left_waiting(&server, "DUMP h");
    let payload = found.bytes().expect("a payload");
    assert!(payload.len() > FIELDS * 1_000, "{} bytes", payload.len());
    let mut c = server.connect();
    assert_eq!(c.run_bytes(&[b"RESTORE", b"copy", b"0", payload]), Reply::ok());
    assert_eq!(c.run("HLEN copy"), Reply::Int(FIELDS as i64));
}

/// What takes the place of a collection between a command and its picture is dumped like anything else.
#[test]
fn a_payload_is_of_whatever_is_there() {
    let server = TestServer::start(&["--workers", "2"]);
    let (mut c, mut other) = (server.connect(), server.connect());
    fill(&mut c, 25_000, 10);
    let (mut large, mut small, mut none) = (0, 0, 0);
    for _ in 0..100 {
        for command in ["RENAME h away", "SET h x", "RENAME away h"] {
            other.queue_line(command);
        }
        c.queue_line("DUMP h");
        c.flush().unwrap();
        other.flush().unwrap();
        match c.read() {
            Reply::Bulk(payload) if payload.len() > 100_000 => large += 1,
            Reply::Bulk(payload) => {
                assert_eq!(c.run_bytes(&[b"RESTORE", b"copy", b"0", &payload, b"REPLACE"]), Reply::ok());
                assert_eq!(c.run("GET copy"), Reply::Bulk(b"x".to_vec()));
                small += 1;
            }
            reply => {
                assert!(reply.is_null(), "{reply:?}");
                none += 1;
            }
        }
        (0..3).for_each(|_| assert_eq!(other.read(), Reply::ok()));
    }
    println!("{large} of the hash, {small} of the string, {none} times there was nothing");
    assert!(large > 0);
}
