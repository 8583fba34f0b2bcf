//! More data than memory: `maxmemory` bounds the process, and everything is there all the same.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::{prlimit, Pid, Resource, Rlimit, Signal};
use stillframe_testkit::within;

use crate::harness::*;

const MEGABYTE: u64 = 1 << 20;

/// Longer than anything here takes that does not wait for ever.
const NO_HANG: Duration = Duration::from_secs(25);

/// The value of a key: in its leaf, in a slab or in pages of its own, and like no other.
fn value(number: u64, version: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(number ^ (version << 40));
    let length = match number % 4 {
        0 => rng.usize(1..400),
        1 => rng.usize(500..9_000),
        _ => rng.usize(10_000..60_000),
    };
    let mut bytes = vec![0; length];
    rng.fill(&mut bytes);
    bytes
}

fn key(number: u64) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

fn store(client: &mut Client, numbers: impl Iterator<Item = u64>, version: u64) {
    let numbers: Vec<u64> = numbers.collect();
    for some in numbers.chunks(16) {
        some.iter().for_each(|&number| client.queue(&[&b"SET"[..], &key(number), &value(number, version)]));
        client.flush().unwrap();
        some.iter().for_each(|number| assert_eq!(client.read(), Reply::ok(), "{number}"));
    }
}

fn check(client: &mut Client, numbers: impl Iterator<Item = u64>, version: u64) {
    for number in numbers {
        let reply = client.run_bytes(&[b"GET", &key(number)]);
        assert!(reply.bytes() == Some(&value(number, version)[..]), "{number}: {reply:.80?}");
    }
}

fn all_keys(client: &mut Client) -> (BTreeSet<Vec<u8>>, BTreeSet<Vec<u8>>) {
    let names = |reply: &Reply| -> BTreeSet<Vec<u8>> {
        reply.items().iter().map(|key| key.bytes().expect("a key").to_vec()).collect()
    };
    let listed = names(&client.run("KEYS *"));
    let (mut scanned, mut cursor) = (BTreeSet::new(), "0".to_owned());
    loop {
        let reply = client.run(&format!("SCAN {cursor} COUNT 100"));
        scanned.extend(names(&reply.items()[1]));
        cursor = reply.items()[0].text();
        if cursor == "0" {
            return (listed, scanned);
        }
    }
}

fn count(client: &mut Client, name: &str) -> u64 {
    client.info(name).parse().unwrap_or_else(|_| panic!("{name} is no number"))
}

/// What a process may take: 3 % above what it was told, and 64 MB for its threads, buffers and side arrays.
fn assert_bounded(server: &TestServer, maxmemory_bytes: u64) {
    let (peak, most) = (server.peak_resident_bytes(), maxmemory_bytes * 103 / 100 + 64 * MEGABYTE);
    assert!(peak <= most, "{} MB were in memory, not {} MB", peak / MEGABYTE, most / MEGABYTE);
}

const KEY_COUNT: u64 = 9_000;

#[test]
fn memory_is_bounded_and_the_data_is_whole() {
    let dir = temp_dir();
    let start = |maxmemory: &str| {
        TestServer::start_in(&dir, &["--workers", "2", "--maxmemory", maxmemory, "--snapshot-memory", "8mb"])
    };
    let server = start("40mb");
    let (mut client, mut saver) = (server.connect(), server.connect());
    for part in 0..4 {
        assert!(!saver.run("BGSAVE").is_error());
        store(&mut client, (0..KEY_COUNT).filter(|number| number % 4 == part), 0);
        assert!(saver.try_wait_for_save().expect("INFO"));
    }
    // Half of it once more, while a cut needs what it was.
    assert!(!saver.run("BGSAVE RDB").is_error());
    store(&mut client, (0..KEY_COUNT).step_by(2), 1);
    assert!(saver.try_wait_for_save().expect("INFO"));
    assert!(count(&mut client, "data_pages") * 4096 > 150 * MEGABYTE);
    assert!(count(&mut client, "data_pages_evicted") > 20_000);
    check(&mut client, (0..KEY_COUNT).step_by(2), 1);
    check(&mut client, (1..KEY_COUNT).step_by(2), 0);
    assert!(saver.save_in_background("BGSAVE"));
    assert_bounded(&server, 40 * MEGABYTE);
    drop((client, saver));
    server.signal(Signal::KILL);
    drop(server);

    let server = start("16mb");
    let mut client = server.connect();
    client.wait_until_loaded();
    check(&mut client, (0..KEY_COUNT).step_by(2), 1);
    check(&mut client, (1..KEY_COUNT).step_by(2), 0);
    let expected: BTreeSet<Vec<u8>> = (0..KEY_COUNT).map(key).collect();
    let (listed, scanned) = all_keys(&mut client);
    assert!(listed == expected && scanned == expected);
    assert!(client.save_in_background("BGSAVE RDB"));
    assert_bounded(&server, 16 * MEGABYTE);
    client.ok("FLUSHALL");
    assert_eq!(client.run("DBSIZE"), Reply::Int(0));
    store(&mut client, 0..500, 2);
    check(&mut client, 0..500, 2);
    assert!(client.save_in_background("BGSAVE"));
    assert_eq!(client.run("DBSIZE"), Reply::Int(500));
    assert_bounded(&server, 16 * MEGABYTE);
}

/// The bound is moved while the server runs.
#[test]
fn maxmemory_is_changed_at_run_time() {
    let server = TestServer::start(&["--workers", "2", "--snapshot-memory", "1mb"]);
    let mut client = server.connect();
    store(&mut client, 0..2_000, 0);
    assert_eq!(count(&mut client, "data_pages_evicted"), 0);
    let in_memory = |client: &mut Client| count(client, "data_pages_in_memory") * 4096;
    let before = in_memory(&mut client);
    assert!(before > 32 * MEGABYTE);
    for round in 1..4 {
        client.ok("CONFIG SET maxmemory 12mb");
        let is_small = within(NO_HANG, || in_memory(&mut client) <= 12 * MEGABYTE);
        assert!(is_small, "{} bytes are in memory", in_memory(&mut client));
        store(&mut client, (0..2_000).step_by(3), round);
        client.ok(if round == 2 { "CONFIG SET maxmemory 0" } else { "CONFIG SET maxmemory 100mb" });
        check(&mut client, (0..2_000).step_by(3), round);
        check(&mut client, (0..2_000).filter(|number| number % 3 != 0), 0);
        assert!(in_memory(&mut client) > 32 * MEGABYTE, "there is room for what has been read");
    }
    assert!(count(&mut client, "data_pages_evicted") > 0);
}

/// A value that memory does not hold is refused or served, and the server goes on.
#[test]
fn a_value_larger_than_memory_stops_nobody() {
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--workers", workers, "--maxmemory", "8mb"]);
        let (mut client, mut other) = (server.connect(), server.connect());
        store(&mut other, 0..300, 0);
        let long = vec![b'v'; 24 << 20];
        client.stream.set_read_timeout(Some(NO_HANG)).unwrap();
        let set = client.run_bytes(&[b"SET", b"long", &long]);
        assert_eq!(set.text(), "OK");
        check(&mut other, 0..300, 0);
        let steps: [&[&[u8]]; 7] = [
            &[b"GETRANGE", b"long", b"20000000", b"20000002"],
            &[b"APPEND", b"long", &long[..1000]],
            &[b"SETRANGE", b"long", b"12000000", b"abc"],
            &[b"BITCOUNT", b"long"],
            &[b"COPY", b"long", b"longer"],
            &[b"MSET", b"a", &long[..6 << 20], b"b", &long[..6 << 20], b"c", b"d"],
            &[b"GET", b"long"],
        ];
        for step in steps {
            let reply = client.run_bytes(step);
            println!("{}: {reply:.100?}", step[0].escape_ascii());
        }
        check(&mut other, 0..300, 0);
        assert!(other.save_in_background("BGSAVE"));
        let _ = client.run("DEL long longer a b c");
        check(&mut other, 0..300, 0);
        store(&mut other, 300..400, 0);
        check(&mut other, 300..400, 0);
    }
}

/// A disk without space for what has to leave memory: who stores is refused, who reads is served, and once there is space
/// again everything goes on.
#[test]
fn a_full_disk_refuses_writes_and_loses_nothing() {
    for workers in ["1", "2"] {
        let server =
            TestServer::start(&["--workers", workers, "--maxmemory", "12mb", "--snapshot-memory", "1mb"]);
        let (mut client, mut other) = (server.connect(), server.connect());
        client.stream.set_read_timeout(Some(NO_HANG)).unwrap();
        other.stream.set_read_timeout(Some(NO_HANG)).unwrap();
        store(&mut client, 0..1_000, 0);
        let limit_file = |most_bytes| {
            let limit = Rlimit { current: most_bytes, maximum: None };
            prlimit(Pid::from_raw(server.pid() as i32), Resource::Fsize, limit)
                .expect("a limit of one's own");
        };
        let page_file_bytes = server.dir.join("stillframe.pages").metadata().unwrap().len();
        limit_file(Some(page_file_bytes));
        let mut stored_count = 1_000;
        let refusal = loop {
            let reply = client.run_bytes(&[b"SET", &key(stored_count), &value(stored_count, 0)]);
            if reply != Reply::ok() {
                break reply.text();
            }
            stored_count += 1;
            assert!(stored_count < 20_000, "a full disk takes everything");
        };
        assert!(refusal.starts_with("OOM command not allowed"), "{refusal}");
        // What is there is served, beside those that are refused.
        check(&mut other, 0..stored_count, 0);
        assert!(other.run_bytes(&[b"GET", &key(stored_count)]).bytes().is_none());
        assert!(!other.save_in_background("BGSAVE"), "there is no space for a save either");
        limit_file(None);
        let goes_on =
            || client.run_bytes(&[b"SET", &key(stored_count), &value(stored_count, 0)]) == Reply::ok();
        assert!(within(NO_HANG, goes_on), "writes are refused although there is space");
        store(&mut client, stored_count..stored_count + 500, 0);
        check(&mut other, 0..stored_count + 500, 0);
        assert!(other.save_in_background("BGSAVE"));
        assert_eq!(other.run("DBSIZE"), Reply::Int(stored_count as i64 + 500));
    }
}

/// Keys that do not fit into memory: walks over them come to their end, also in a transaction that has changed something.
#[test]
fn walks_over_more_keys_than_memory_end() {
    for workers in ["1", "2"] {
        let server =
            TestServer::start(&["--workers", workers, "--maxmemory", "12mb", "--snapshot-memory", "1mb"]);
        let mut client = server.connect();
        client.stream.set_read_timeout(Some(NO_HANG)).unwrap();
        let value = [b'v'; 300];
        let numbers: Vec<u64> = (0..100_000).collect();
        for some in numbers.chunks(500) {
            some.iter().for_each(|&number| client.queue(&[&b"SET"[..], &key(number), &value]));
            client.flush().unwrap();
            some.iter().for_each(|_| assert_eq!(client.read(), Reply::ok()));
        }
        assert!(count(&mut client, "data_pages") * 4096 > 2 * 12 * MEGABYTE);
        let (listed, scanned) = all_keys(&mut client);
        assert!(listed.len() == numbers.len() && listed == scanned);
        for _ in 0..50 {
            assert!(listed.contains(client.run("RANDOMKEY").bytes().expect("a key")));
        }
        client.ok("MULTI");
        let queued = ["SET new 1", "RANDOMKEY", "SCAN 0 COUNT 1000", "KEYS *", "RANDOMKEY", "DBSIZE"];
        queued.iter().for_each(|command| assert_eq!(client.run(command).text(), "QUEUED"));
        let replies = client.run("EXEC");
        let [set, random, scan, keys, other, size] = replies.items() else { panic!("{replies:.200?}") };
        assert_eq!(set, &Reply::ok());
        assert!(random.bytes().is_some() && other.bytes().is_some(), "{random:?} {other:?}");
        assert!(!scan.items()[1].items().is_empty());
        assert_eq!(keys.items().len(), numbers.len() + 1);
        assert_eq!(size, &Reply::Int(numbers.len() as i64 + 1));
    }
}

/// A command that needs more of a collection at a time than memory holds says so, and changes nothing.
#[test]
fn what_never_fits_is_refused() {
    const FIELDS: u64 = 150_000;
    let server = TestServer::start(&["--maxmemory", "12mb", "--snapshot-memory", "4mb"]);
    let mut client = server.connect();
    for kind in ["HSET h", "ZADD z", "RPUSH l"] {
        let (command, key) = kind.split_once(' ').expect("a command and a key");
        for numbers in (0..FIELDS).collect::<Vec<_>>().chunks(500) {
            let mut call = vec![command.as_bytes().to_vec(), key.as_bytes().to_vec()];
            for number in numbers {
                if command != "RPUSH" {
                    call.push(number.to_string().into_bytes());
                }
                call.push(format!("{number:064}").into_bytes());
            }
            let call: Vec<&[u8]> = call.iter().map(|arg| &arg[..]).collect();
            assert!(matches!(client.run_bytes(&call), Reply::Int(_)));
        }
    }
    for call in ["COPY h to", "COPY z to", "COPY l to", "ZUNIONSTORE to 1 z"] {
        let reply = client.run(call);
        assert!(
            reply.text().starts_with("ERR what this command needs at a time is larger"),
            "{call}: {reply:?}"
        );
        assert_eq!(client.run("EXISTS to"), Reply::Int(0), "{call}");
    }
    let counts = ["HLEN h", "ZCARD z", "LLEN l"].map(|call| client.run(call));
    assert_eq!(counts, [const { Reply::Int(FIELDS as i64) }; 3]);
    assert_eq!(client.run("HGET h 777").text(), format!("{:064}", 777));
}
