//! Fields, items and members that are longer than memory: what can be written can be read, popped, copied and dumped.

use std::time::Duration;

use rustix::process::Signal;
use stillframe_testkit::within;

use crate::harness::*;
use crate::parts::{bulk, connect, used_pages, value, MEGABYTE};

/// Of a long element: memory has some 26 MB for pages.
const LEN: usize = 30 * MEGABYTE + 4_321;
const MEMORY: [&str; 2] = ["--maxmemory", "32mb"];
/// Longer than anything here takes that does not wait for ever.
const NO_HANG: Duration = Duration::from_secs(60);

fn start(workers: &str) -> TestServer {
    TestServer::start(&[&MEMORY[..], &["--workers", workers]].concat())
}

/// What a process may take: 3 % above what it was told, and 64 MB.
fn assert_bounded(server: &TestServer) {
    let (peak, most) = (server.peak_resident_bytes() / MEGABYTE as u64, 32 * 103 / 100 + 64);
    assert!(peak <= most, "{peak} MB were in memory, not {most} MB");
}

fn array(items: &[&[u8]]) -> Reply {
    Reply::Array(items.iter().map(|item| bulk(item)).collect())
}

/// So that what is in memory goes.
fn displace(client: &mut Client) {
    let filler = vec![b'f'; MEGABYTE];
    for number in 0..40 {
        assert_eq!(client.run_bytes(&[b"SET", format!("filler:{number}").as_bytes(), &filler]), Reply::ok());
    }
}

#[track_caller]
fn expect(client: &mut Client, words: &[&[u8]], expected: &Reply) {
    let reply = client.run_bytes(words);
    let shown: Vec<String> =
        words.iter().map(|word| word[..word.len().min(20)].escape_ascii().to_string()).collect();
    assert!(reply == *expected, "{shown:?}: {reply:.100?}");
}

#[test]
fn fields_are_read() {
    for workers in ["1", "2"] {
        let server = start(workers);
        let (mut c, long) = (connect(&server), value(LEN));
        let before = used_pages(&mut c);
        expect(&mut c, &[b"HSET", b"h", b"f", &long, b"g", b"1"], &Reply::Int(2));
        displace(&mut c);
        expect(&mut c, &[b"HSTRLEN", b"h", b"f"], &Reply::Int(LEN as i64));
        expect(&mut c, &[b"HEXISTS", b"h", b"f"], &Reply::Int(1));
        expect(&mut c, &[b"HGET", b"h", b"f"], &bulk(&long));
        expect(&mut c, &[b"HMGET", b"h", b"g", b"f"], &array(&[b"1", &long]));
        let all = c.run("HGETALL h");
        let fields: Vec<&[u8]> = all.items().iter().filter_map(Reply::bytes).collect();
        assert!(fields == [&b"f"[..], &long, b"g", b"1"] || fields == [&b"g"[..], b"1", b"f", &long]);
        assert_eq!(c.run("HVALS h").items().len(), 2);
        // Its bytes come into pages, also if they replace others, are not wanted, or wait for EXEC.
        expect(&mut c, &[b"HSET", b"h", b"f", &long[1..]], &Reply::Int(0));
        expect(&mut c, &[b"HSETNX", b"h", b"f", &long], &Reply::Int(0));
        c.ok("MULTI");
        expect(&mut c, &[b"HSET", b"h", b"e", &long], &Reply::Simple("QUEUED".into()));
        expect(&mut c, &[b"HGET", b"h", b"f"], &Reply::Simple("QUEUED".into()));
        expect(&mut c, &[b"HGET", b"h", b"e"], &Reply::Simple("QUEUED".into()));
        let replies = Reply::Array(vec![Reply::Int(1), bulk(&long[1..]), bulk(&long)]);
        expect(&mut c, &[b"EXEC"], &replies);
        expect(&mut c, &[b"HDEL", b"h", b"f", b"e"], &Reply::Int(2));
        // A name.
        expect(&mut c, &[b"HSET", b"h", &long, &long], &Reply::Int(1));
        expect(&mut c, &[b"HSET", b"h", &long, b"short"], &Reply::Int(0));
        displace(&mut c);
        expect(&mut c, &[b"HGET", b"h", &long], &bulk(b"short"));
        expect(&mut c, &[b"HGET", b"h", &long[1..]], &Reply::NullBulk);
        expect(&mut c, &[b"HKEYS", b"h"], &array_of(&mut connect(&server), &long));
        expect(&mut c, &[b"HDEL", b"h", &long], &Reply::Int(1));
        c.ok("FLUSHALL");
        assert!(within(NO_HANG, || used_pages(&mut c) <= before + 8), "{}", used_pages(&mut c));
        assert_bounded(&server);
    }
}

/// The fields of `h` in the order in which it has them.
fn array_of(client: &mut Client, long: &[u8]) -> Reply {
    let first_is_long = client.run("HVALS h").items()[0] == bulk(b"short");
    match first_is_long {
        true => array(&[long, b"g"]),
        false => array(&[b"g", long]),
    }
}

#[test]
fn a_queue_is_never_stuck() {
    for workers in ["1", "2"] {
        let server = start(workers);
        let (mut c, mut other, long) = (connect(&server), connect(&server), value(LEN));
        let before = used_pages(&mut c);
        expect(&mut c, &[b"RPUSH", b"l", b"a", &long, b"b"], &Reply::Int(3));
        displace(&mut c);
        expect(&mut c, &[b"LINDEX", b"l", b"1"], &bulk(&long));
        expect(&mut c, &[b"LRANGE", b"l", b"0", b"-1"], &array(&[b"a", &long, b"b"]));
        expect(&mut c, &[b"LPOS", b"l", &long], &Reply::Int(1));
        expect(&mut c, &[b"LPOS", b"l", &long[1..]], &Reply::NullBulk);
        expect(&mut c, &[b"LINSERT", b"l", b"BEFORE", &long, b"x"], &Reply::Int(4));
        expect(&mut c, &[b"LSET", b"l", b"0", &long[7..]], &Reply::ok());
        expect(&mut c, &[b"LPOP", b"l"], &bulk(&long[7..]));
        expect(&mut c, &[b"LREM", b"l", b"0", b"x"], &Reply::Int(1));
        // From one list to another, and round one.
        expect(&mut c, &[b"LMOVE", b"l", b"m", b"LEFT", b"RIGHT"], &bulk(&long));
        expect(&mut c, &[b"RPOPLPUSH", b"m", b"m"], &bulk(&long));
        expect(&mut c, &[b"RPUSH", b"m", b"c"], &Reply::Int(2));
        expect(&mut c, &[b"LMOVE", b"m", b"m", b"LEFT", b"RIGHT"], &bulk(&long));
        expect(&mut c, &[b"LRANGE", b"m", b"0", b"-1"], &array(&[b"c", &long]));
        displace(&mut c);
        expect(&mut c, &[b"RPOP", b"m", b"5"], &array(&[&long, b"c"]));
        expect(&mut c, &[b"LREM", b"l", b"0", &long], &Reply::Int(0));
        // To a client that waits, perhaps of another worker.
        let mut waiting: Vec<Client> = (0..2).map(|_| connect(&server)).collect();
        for waits in &mut waiting {
            waits.send("BLPOP q 0");
            assert!(waits.is_silent());
        }
        waiting.push(connect(&server));
        waiting[2].send("BLMOVE q r LEFT LEFT 0");
        assert!(waiting[2].is_silent());
        expect(&mut other, &[b"RPUSH", b"q", &long, &long[1..], &long[2..]], &Reply::Int(3));
        assert!(waiting[0].read() == array(&[b"q", &long]));
        assert!(waiting[1].read() == array(&[b"q", &long[1..]]));
        assert!(waiting[2].read() == bulk(&long[2..]));
        expect(&mut c, &[b"LPOP", b"r"], &bulk(&long[2..]));
        expect(&mut c, &[b"EXISTS", b"q", b"r"], &Reply::Int(0));
        // What has been popped stays until it has been sent, and goes then.
        expect(&mut c, &[b"RPUSH", b"l", &long], &Reply::Int(2));
        other.send("RPOP l");
        assert!(within(NO_HANG, || c.run("LLEN l") == Reply::Int(1)));
        expect(&mut c, &[b"FLUSHALL"], &Reply::ok());
        assert!(other.read() == bulk(&long));
        expect(&mut c, &[b"RPUSH", b"l", &long], &Reply::Int(1));
        let mut gone = connect(&server);
        gone.send("LPOP l");
        drop(gone);
        assert!(within(NO_HANG, || c.run("EXISTS l") == Reply::Int(0)));
        assert!(within(NO_HANG, || used_pages(&mut c) <= before + 8), "{}", used_pages(&mut c));
        assert_bounded(&server);
    }
}

#[test]
fn members_are_looked_for_scored_and_popped() {
    for workers in ["1", "2"] {
        let server = start(workers);
        let (mut c, long) = (connect(&server), value(LEN));
        let before = used_pages(&mut c);
        expect(&mut c, &[b"SADD", b"s", &long], &Reply::Int(1));
        expect(&mut c, &[b"SADD", b"s", &long, b"a"], &Reply::Int(1));
        displace(&mut c);
        expect(&mut c, &[b"SISMEMBER", b"s", &long], &Reply::Int(1));
        expect(
            &mut c,
            &[b"SMISMEMBER", b"s", &long[1..], &long],
            &Reply::Array(vec![Reply::Int(0), Reply::Int(1)]),
        );
        expect(&mut c, &[b"SREM", b"s", b"a"], &Reply::Int(1));
        expect(&mut c, &[b"SMEMBERS", b"s"], &array(&[&long]));
        expect(&mut c, &[b"SRANDMEMBER", b"s"], &bulk(&long));
        expect(&mut c, &[b"SMOVE", b"s", b"t", &long], &Reply::Int(1));
        expect(&mut c, &[b"SPOP", b"t"], &bulk(&long));
        expect(&mut c, &[b"EXISTS", b"s", b"t"], &Reply::Int(0));
        expect(&mut c, &[b"ZADD", b"z", b"1.5", &long, b"2", b"b"], &Reply::Int(2));
        displace(&mut c);
        expect(&mut c, &[b"ZSCORE", b"z", &long], &bulk(b"1.5"));
        expect(&mut c, &[b"ZSCORE", b"z", &long[1..]], &Reply::NullBulk);
        expect(&mut c, &[b"ZRANK", b"z", &long], &Reply::Int(0));
        expect(&mut c, &[b"ZINCRBY", b"z", b"1", &long], &bulk(b"2.5"));
        expect(&mut c, &[b"ZRANGE", b"z", b"0", b"-1", b"WITHSCORES"], &array(&[b"b", b"2", &long, b"2.5"]));
        expect(&mut c, &[b"ZADD", b"z", b"0", &long], &Reply::Int(0));
        expect(&mut c, &[b"ZPOPMIN", b"z"], &array(&[&long, b"0"]));
        expect(&mut c, &[b"ZADD", b"z", &long, b"x"], &Reply::Error("ERR value is not a valid float".into()));
        expect(&mut c, &[b"ZADD", b"z", b"1", &long], &Reply::Int(1));
        expect(&mut c, &[b"ZREM", b"z", &long], &Reply::Int(1));
        expect(&mut c, &[b"ZCARD", b"z"], &Reply::Int(1));
        c.ok("FLUSHALL");
        assert!(within(NO_HANG, || used_pages(&mut c) <= before + 8), "{}", used_pages(&mut c));
        assert_bounded(&server);
    }
}

#[test]
fn collections_with_long_elements_are_copied() {
    for workers in ["1", "2"] {
        let server = start(workers);
        let (mut c, long) = (connect(&server), value(LEN));
        let before = used_pages(&mut c);
        expect(&mut c, &[b"HSET", b"h", b"f", &long], &Reply::Int(1));
        expect(&mut c, &[b"RPUSH", b"l", b"a", &long], &Reply::Int(2));
        expect(&mut c, &[b"SADD", b"s", &long], &Reply::Int(1));
        expect(&mut c, &[b"ZADD", b"z", b"1.5", &long], &Reply::Int(1));
        for key in ["h", "l", "s", "z"] {
            expect(&mut c, &[b"COPY", key.as_bytes(), b"to"], &Reply::Int(1));
            expect(&mut c, &[b"DEL", key.as_bytes()], &Reply::Int(1));
            expect(&mut c, &[b"RENAME", b"to", key.as_bytes()], &Reply::ok());
        }
        c.ok("MULTI");
        expect(&mut c, &[b"COPY", b"l", b"m"], &Reply::Simple("QUEUED".into()));
        expect(&mut c, &[b"EXEC"], &Reply::Array(vec![Reply::Int(1)]));
        assert!(c.save_in_background("BGSAVE"));
        let server = server.restarted(Signal::KILL, &[&MEMORY[..], &["--workers", workers]].concat());
        let mut c = connect(&server);
        c.wait_until_loaded();
        expect(&mut c, &[b"HGET", b"h", b"f"], &bulk(&long));
        expect(&mut c, &[b"RPOP", b"l"], &bulk(&long));
        expect(&mut c, &[b"RPOP", b"m"], &bulk(&long));
        expect(&mut c, &[b"SISMEMBER", b"s", &long], &Reply::Int(1));
        expect(&mut c, &[b"ZSCORE", b"z", &long], &bulk(b"1.5"));
        c.ok("FLUSHALL");
        assert!(within(NO_HANG, || used_pages(&mut c) <= before + 8), "{}", used_pages(&mut c));
        assert_bounded(&server);
    }
}

/// A thread that writes a dump or a payload holds one element at a time.
#[test]
fn collections_with_long_elements_are_dumped_and_restored() {
    let server = start("2");
    let (mut c, long) = (connect(&server), value(LEN));
    expect(&mut c, &[b"HSET", b"h", b"f", &long], &Reply::Int(1));
    expect(&mut c, &[b"RPUSH", b"l", b"a", &long], &Reply::Int(2));
    expect(&mut c, &[b"SADD", b"s", &long], &Reply::Int(1));
    expect(&mut c, &[b"ZADD", b"z", b"1.5", &long], &Reply::Int(1));
    for key in ["h", "l", "s", "z"] {
        let payload = c.run(&format!("DUMP {key}"));
        let payload = payload.bytes().expect("a payload");
        expect(&mut c, &[b"RESTORE", b"to", b"0", payload], &Reply::ok());
        expect(&mut c, &[b"DEL", key.as_bytes()], &Reply::Int(1));
        expect(&mut c, &[b"RENAME", b"to", key.as_bytes()], &Reply::ok());
    }
    assert!(c.save_in_background("BGSAVE RDB"));
    let more = ["--snapshot-format", "rdb"];
    let server = server.restarted(Signal::KILL, &[&MEMORY[..], &more[..]].concat());
    let mut c = connect(&server);
    c.wait_until_loaded();
    expect(&mut c, &[b"HGET", b"h", b"f"], &bulk(&long));
    expect(&mut c, &[b"LRANGE", b"l", b"0", b"-1"], &array(&[b"a", &long]));
    expect(&mut c, &[b"SPOP", b"s"], &bulk(&long));
    expect(&mut c, &[b"ZSCORE", b"z", &long], &bulk(b"1.5"));
}

/// Elements that are not long, but do not fit into memory together: a reply with all of them comes all the same.
#[test]
fn a_reply_larger_than_memory_comes_to_its_end() {
    let server = start("1");
    let (mut c, item) = (connect(&server), value(100_000));
    const COUNT: usize = 600;
    for number in 0..COUNT {
        let name = number.to_string();
        expect(&mut c, &[b"HSET", b"h", name.as_bytes(), &item], &Reply::Int(1));
        expect(&mut c, &[b"RPUSH", b"l", &item], &Reply::Int(number as i64 + 1));
    }
    for call in ["HVALS h", "LRANGE l 0 -1"] {
        let reply = c.run(call);
        assert!(
            reply.items().len() == COUNT && reply.items().iter().all(|found| *found == bulk(&item)),
            "{call}"
        );
    }
    let payload = c.run("DUMP l");
    assert!(payload.bytes().is_some_and(|payload| payload.len() > COUNT * 1_000), "{payload:.60?}");
}

#[test]
fn most_of_maxmemory_is_for_data() {
    for (maxmemory, least_megabytes) in [("32mb", 23), ("64mb", 46), ("100mb", 72), ("200mb", 145)] {
        let server = TestServer::start(&["--maxmemory", maxmemory]);
        let mut c = connect(&server);
        let pages: usize = c.info("data_pages_in_memory_max").parse().expect("a number");
        assert!(pages * 4096 >= least_megabytes * MEGABYTE, "{maxmemory}: {pages} pages");
        let share: usize = c.info("maxmemory_for_data_pages").parse().expect("a number");
        assert_eq!(share, pages * 4096);
        assert!(server.log().contains("pages of data get"), "{}", server.log());
        // Where data stays in memory, what is known of accesses takes little.
        c.ok("CONFIG SET maxmemory-policy noeviction");
        let used = |c: &mut Client| c.info("used_memory").parse::<usize>().expect("a number");
        let before = used(&mut c);
        c.ok("CONFIG SET maxmemory-policy allkeys-lru");
        assert!(used(&mut c) <= before + 64 * 1024, "{} bytes more", used(&mut c) - before);
        let bound = used(&mut c) + 100_000;
        c.ok(&format!("CONFIG SET maxmemory {bound}"));
        c.ok("SET k v");
    }
}
