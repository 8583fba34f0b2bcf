//! Collections in dumps and payloads, beside redis-server: what one has written the other reads, and it is the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use stillframe_testkit::{Launch, Process};

use crate::harness::*;

/// Longer than a string may be inside of any page.
const LONG_BYTES: usize = 70_000;

fn redis_in(dir: &Path) -> Process {
    Launch::at_socket("redis-server", dir).start().0
}

/// A string that is hard to take for another: of any length, some empty, some numbers.
fn element(number: usize) -> Vec<u8> {
    match number % 7 {
        0 => number.to_string().into_bytes(),
        1 => format!("-{number}").into_bytes(),
        2 => format!("{number:>070}").into_bytes(),
        3 => vec![number as u8; 20 + number % 300],
        _ => format!("element:{number}").into_bytes(),
    }
}

fn run(client: &mut Client, command: &str, key: &str, words: &[Vec<u8>]) {
    for some in words.chunks(1000) {
        let line = [command.as_bytes(), key.as_bytes()].into_iter().chain(some.iter().map(|word| &word[..]));
        let reply = client.run_bytes(&line.collect::<Vec<_>>());
        assert!(!reply.is_error(), "{command} {key}: {}", reply.text());
    }
}

/// Puts keys of all types and sizes into two databases.
fn fill(client: &mut Client) {
    let elements = |count: usize| (0..count).map(element);
    let numbers = |from: i64, count: i64| (from..from + count).map(|number| number.to_string().into_bytes());
    let odd =
        || vec![Vec::new(), vec![b'z'; LONG_BYTES], b"\0\r\n\xff".to_vec(), vec![b'y'; 64], vec![b'w'; 65]];
    for db in [0, 5] {
        client.ok(&format!("SELECT {db}"));
        client.ok("SET string value");
        client.ok("SET number -77");
        for (name, count) in [("small", 9), ("medium", 129), ("large", 7000)] {
            let with_scores = |words: Vec<Vec<u8>>| {
                let scores = (0..).map(|at: i64| format!("{}", (at - 40) as f64 / 4.0).into_bytes());
                scores.zip(words).flat_map(|(score, word)| [score, word]).collect::<Vec<_>>()
            };
            let all: Vec<_> = elements(count).collect();
            let with_odd: Vec<_> = all.iter().cloned().chain(odd()).collect();
            for (kind, words) in [("plain", &all), ("odd", &with_odd)] {
                let pairs: Vec<_> =
                    words.iter().zip(words.iter().rev()).flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
                run(client, "HSET", &format!("hash:{name}:{kind}"), &pairs);
                run(client, "RPUSH", &format!("list:{name}:{kind}"), words);
                run(client, "SADD", &format!("set:{name}:{kind}"), words);
                run(client, "ZADD", &format!("zset:{name}:{kind}"), &with_scores(words.clone()));
            }
            run(client, "SADD", &format!("ints:{name}"), &numbers(-50, count as i64).collect::<Vec<_>>());
            run(
                client,
                "RPUSH",
                &format!("list:ints:{name}"),
                &numbers(-50, count as i64).collect::<Vec<_>>(),
            );
        }
        run(
            client,
            "SADD",
            "ints:wide",
            &[b"1".to_vec(), i64::MIN.to_string().into(), i64::MAX.to_string().into()],
        );
        run(client, "SADD", "ints:32", &numbers(-2_000_000_000, 20).collect::<Vec<_>>());
        run(
            client,
            "ZADD",
            "zset:ends",
            &["-inf", "a", "inf", "b", "0.1", "c", "-0", "d", "3e300", "e"].map(|w| w.into()),
        );
        client.run("EXPIRE hash:small:plain 10000");
        client.run("EXPIRE list:large:odd 20000");
        client.run("PEXPIRE zset:medium:plain 30000000");
    }
}

/// Names of commands that read all of a value, by its type, and whether the order is of no account.
fn reading(value_type: &str, key: &str) -> (String, usize) {
    match value_type {
        "string" => (format!("GET {key}"), 0),
        "hash" => (format!("HGETALL {key}"), 2),
        "set" => (format!("SMEMBERS {key}"), 1),
        "zset" => (format!("ZRANGE {key} 0 -1 WITHSCORES"), 0),
        "list" => (format!("LRANGE {key} 0 -1"), 0),
        other => panic!("{key} is of type {other}"),
    }
}

/// A key with its type, its encoding, its content, and to a thousand seconds when it expires.
type Contents = BTreeMap<(usize, String), (String, String, Vec<Reply>, i64)>;

fn contents(client: &mut Client) -> Contents {
    let mut all = Contents::new();
    for db in [0, 5] {
        client.ok(&format!("SELECT {db}"));
        for key in client.run("KEYS *").items() {
            let key = key.text();
            let value_type = client.run(&format!("TYPE {key}")).text();
            let encoding = client.run(&format!("OBJECT ENCODING {key}")).text();
            let (command, together) = reading(&value_type, &key);
            let reply = client.run(&command);
            let content = match together {
                0 => vec![reply],
                _ => {
                    let mut parts: Vec<_> =
                        reply.items().chunks(together).map(|part| Reply::Array(part.to_vec())).collect();
                    parts.sort_by_cached_key(|part| format!("{part:?}"));
                    parts
                }
            };
            let ttl = client.run(&format!("TTL {key}")).integer().unwrap();
            all.insert((db, key), (value_type, encoding, content, (ttl + 500).div_euclid(1000)));
        }
    }
    all
}

fn assert_same(ours: &Contents, theirs: &Contents) {
    assert!(ours.keys().eq(theirs.keys()), "{:?} {:?}", ours.keys(), theirs.keys());
    for (key, our) in ours {
        let their = &theirs[key];
        assert!(our == their, "{key:?} is {our:.300?}, not {their:.300?}");
    }
}

/// A data directory with nothing but a copy of this dump.
fn with_dump(from: &Path) -> TempDir {
    let dir = temp_dir();
    std::fs::copy(from, dir.join("dump.rdb")).unwrap();
    dir
}

#[test]
fn a_dump_of_redis_is_loaded_and_one_of_ours_is_loaded_there() {
    let (their_dir, started) = (temp_dir(), |redis: &Process| redis.client());
    let theirs = {
        let redis = redis_in(&their_dir);
        let mut c = started(&redis);
        fill(&mut c);
        c.ok("SAVE");
        contents(&mut c)
    };
    for more in
        [&["--workers", "1"][..], &["--workers", "2"], &["--maxmemory", "16mb", "--snapshot-memory", "4mb"]]
    {
        let dir = with_dump(&their_dir.join("dump.rdb"));
        let server = TestServer::start_owning(dir, &[more, &["--snapshot-format", "rdb"]].concat());
        let mut c = server.connect();
        c.wait_until_loaded();
        assert_same(&contents(&mut c), &theirs);
        c.ok("DEBUG RELOAD");
        assert_same(&contents(&mut c), &theirs);
        c.ok("BACKUP TO copy.rdb");
        let copies = with_dump(&server.dir.join("copy.rdb"));
        let again = redis_in(&copies);
        assert_same(&contents(&mut started(&again)), &theirs);
        c.ok("SAVE");
        drop(c);
        // From a dump, and from pages.
        let server = server.restarted(Signal::TERM, &[more, &["--snapshot-format", "pages"]].concat());
        let mut c = server.connect();
        c.wait_until_loaded();
        assert_same(&contents(&mut c), &theirs);
        c.ok("SAVE");
        drop(c);
        let server = server.restarted(Signal::KILL, more);
        let mut c = server.connect();
        c.wait_until_loaded();
        assert_same(&contents(&mut c), &theirs);
    }
}

#[test]
fn what_is_salvaged_is_the_same() {
    let dir = temp_dir();
    let mut server = TestServer::start_in(&dir, &[]);
    let mut c = server.connect();
    fill(&mut c);
    let ours = contents(&mut c);
    c.ok("SAVE");
    drop(c);
    server.signal(Signal::KILL);
    server.wait();
    let salvaged = temp_dir();
    let (pages, dump) = (dir.join("stillframe.pages"), salvaged.join("dump.rdb"));
    let mut salvage = binary();
    salvage.arg("--salvage").arg(&pages).arg("--to").arg(&dump).stdin(Stdio::null());
    let done = salvage.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let redis = redis_in(&salvaged);
    assert_same(&contents(&mut redis.client()), &ours);
}

/// All keys of one, by their payloads, to the other.
fn carry(from: &mut Client, to: &mut Client) {
    for db in [0, 5] {
        from.ok(&format!("SELECT {db}"));
        to.ok(&format!("SELECT {db}"));
        for key in from.run("KEYS *").items() {
            let key = key.text();
            let ttl = from.run(&format!("PTTL {key}")).integer().unwrap().max(0).to_string();
            let payload = from.run(&format!("DUMP {key}"));
            let payload = payload.bytes().expect("a payload");
            let words: [&[u8]; 5] = [b"RESTORE", key.as_bytes(), ttl.as_bytes(), payload, b"REPLACE"];
            let reply = to.run_bytes(&words);
            assert_eq!(reply, Reply::ok(), "{key}: {}", reply.text());
        }
    }
}

#[test]
fn payloads_go_both_ways() {
    let dir = temp_dir();
    let redis = redis_in(&dir);
    let mut c = redis.client();
    fill(&mut c);
    let theirs = contents(&mut c);
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--workers", workers]);
        let mut ours = server.connect();
        carry(&mut c, &mut ours);
        assert_same(&contents(&mut ours), &theirs);
        let empty_dir = temp_dir();
        let empty = redis_in(&empty_dir);
        carry(&mut ours, &mut empty.client());
        assert_same(&contents(&mut empty.client()), &theirs);
        // And once more over what is there.
        carry(&mut c, &mut ours);
        assert_same(&contents(&mut ours), &theirs);
    }
}

fn version_of(dump: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(dump).unwrap()[..9]).into_owned()
}

/// As Redis does where it loads as a master.
#[test]
fn fields_that_have_expired_are_not_loaded() {
    let dir = temp_dir();
    let flags = ["--snapshot-format", "rdb", "--enable-debug-command", "yes"];
    let server = TestServer::start_in(&dir, &flags);
    let mut c = server.connect();
    c.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    // Small ones and large ones; of some nothing is left.
    for (key, count) in [("small", 6), ("large", 3000), ("gone", 3), ("all-gone", 3000)] {
        let words: Vec<_> = (0..count).flat_map(|number| [element(number), b"value".to_vec()]).collect();
        run(&mut c, "HSET", key, &words);
        let left = if key.ends_with("gone") { count } else { count / 2 };
        let fields: Vec<_> = (0..left).map(element).collect();
        for some in fields.chunks(500) {
            let (count, wait_ms) = (some.len().to_string(), "1");
            let line = ["HPEXPIRE", key, wait_ms, "FIELDS", &count].map(str::as_bytes).into_iter();
            let reply = c.run_bytes(&line.chain(some.iter().map(|field| &field[..])).collect::<Vec<_>>());
            assert!(!reply.is_error(), "{reply:?}");
        }
    }
    c.run("HPEXPIRE small 5000000 FIELDS 1 element:4");
    std::thread::sleep(std::time::Duration::from_millis(20));
    c.ok("SAVE");
    drop(c);
    let server = server.restarted(Signal::KILL, &flags);
    let mut c = server.connect();
    c.wait_until_loaded();
    // What is counted is there: nothing is left for the active expiry.
    assert_eq!([c.run("HLEN small"), c.run("HLEN large")], [Reply::Int(3), Reply::Int(1500)]);
    assert_eq!([c.run("EXISTS gone all-gone"), c.run("DBSIZE")], [Reply::Int(0), Reply::Int(2)]);
    assert_eq!(c.info("expired_keys"), "0");
    assert!(server.log().contains("keys loaded: 2, keys expired: 2"), "{}", server.log());
    assert!(matches!(c.run("HTTL small FIELDS 1 element:4").items(), [Reply::Int(4000..=5000)]));
}

#[test]
fn deadlines_of_fields_have_a_dump_written_in_the_newer_version() {
    let dir = temp_dir();
    let server = TestServer::start_in(&dir, &["--snapshot-format", "rdb"]);
    let (mut c, dump) = (server.connect(), dir.join("dump.rdb"));
    c.ok("SET before value");
    c.run("HSET h a 1 b 2");
    c.ok("SAVE");
    assert_eq!(version_of(&dump), "REDIS0010");
    c.run("HPEXPIRE h 5000000 FIELDS 1 a");
    let many: Vec<_> = (0..4000).flat_map(|number| [element(number), element(number + 1)]).collect();
    run(&mut c, "HSET", "large", &many);
    c.run("HEXPIRE large 4000 FIELDS 2 -1 0");
    let before = c.run("HPEXPIRETIME h FIELDS 1 a");
    c.ok("SAVE");
    assert_eq!(version_of(&dump), "REDIS0012");
    assert!(server.log().contains("has fields with deadlines"), "{}", server.log());
    c.ok("CONFIG SET rdb-version 10");
    let refused = c.run("SAVE").text();
    assert!(refused.contains("has fields with deadlines, for which version 10"), "{refused}");
    assert!(refused.ends_with("'rdb-version auto' lets it be written"), "{refused}");
    c.ok("CONFIG SET rdb-version 12");
    c.ok("SAVE");
    drop(c);
    let server = server.restarted(Signal::KILL, &["--snapshot-format", "rdb"]);
    let mut c = server.connect();
    c.wait_until_loaded();
    assert_eq!(c.run("HPEXPIRETIME h FIELDS 1 a"), before);
    assert_eq!(c.run("HLEN large"), Reply::Int(4000));
    let left = c.run("HTTL large FIELDS 3 -1 0 element:4");
    assert!(
        matches!(left.items(), [Reply::Int(3000..=4000), Reply::Int(3000..=4000), Reply::Int(-1)]),
        "{left:?}"
    );
    let payload = c.run("DUMP h");
    let copied = c.run_bytes(&[b"RESTORE", b"copy", b"0", payload.bytes().unwrap()]);
    assert_eq!(copied, Reply::ok());
    assert_eq!(c.run("HPEXPIRETIME copy FIELDS 1 a"), before);
    c.run("DEL copy large");
    c.run("HPERSIST h FIELDS 1 a");
    c.ok("CONFIG SET rdb-version auto");
    c.ok("SAVE");
    assert_eq!(version_of(&dump), "REDIS0010");
}

/// The bytes of a list's payload are those of Redis, however large its nodes are to be.
#[test]
fn nodes_of_lists_are_as_large_as_they_are_to_be() {
    let script = |connect: &mut dyn FnMut() -> Client| {
        let mut c = connect();
        let mut replies = Vec::new();
        c.run("RPUSH l 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22");
        for size in ["-2", "5", "1", "4", "-1"] {
            replies.push(c.run(&format!("CONFIG SET list-max-listpack-size {size}")));
            // Redis makes nodes when items are pushed.
            c.run("DEL l3");
            for item in c.run("LRANGE l 0 -1").items() {
                c.run_bytes(&[b"RPUSH", b"l3", item.bytes().unwrap()]);
            }
            replies.push(c.run("CONFIG SET rdbcompression no"));
            replies.push(c.run("DUMP l3"));
        }
        replies
    };
    beside_redis(&[], &script);
}
