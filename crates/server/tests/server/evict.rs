//! Keys that go when memory is full.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use stillframe_testkit::{seed, within, Launch};

use crate::harness::*;

const MEGABYTE: u64 = 1 << 20;
const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const POLICIES: [&str; 7] = [
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
];

/// Longer than anything here takes that does not wait for ever.
const NO_HANG: Duration = Duration::from_secs(25);

fn count(client: &mut Client, name: &str) -> u64 {
    client.info(name).parse().unwrap_or_else(|_| panic!("{name} is no number"))
}

/// Stores so many keys of 200 bytes; returns how many were refused.
fn fill(client: &mut Client, prefix: &str, key_count: u64, deadline: &str) -> u64 {
    let value = "v".repeat(200);
    let mut refused = 0;
    for part in (0..key_count).collect::<Vec<_>>().chunks(100) {
        part.iter()
            .for_each(|number| client.queue_line(format!("SET {prefix}:{number} {value} {deadline}").trim()));
        client.flush().unwrap();
        for _ in part {
            let reply = client.read();
            assert!(reply == Reply::ok() || reply.text() == OOM, "{reply:?}");
            refused += u64::from(reply.is_error());
        }
    }
    refused
}

/// Whether keys have to go. Memory of clients is theirs, and no key's.
fn is_over(client: &mut Client) -> bool {
    count(client, "used_memory") - count(client, "mem_not_counted_for_evict") > count(client, "maxmemory")
}

/// Waits until memory is within its bound.
fn await_room(client: &mut Client) {
    let has_room = within(NO_HANG, || !is_over(client));
    assert!(has_room, "{} bytes are in use", count(client, "used_memory"));
}

#[test]
fn every_policy_keeps_memory_within_its_bound() {
    for policy in POLICIES {
        let workers = if policy.ends_with("lru") { "2" } else { "1" };
        let server =
            TestServer::start(&["--maxmemory", "6mb", "--maxmemory-policy", policy, "--workers", workers]);
        let mut client = server.connect();
        assert_eq!(client.info("maxmemory_policy"), policy);
        assert_eq!(fill(&mut client, "key", 60_000, "EX 1000"), 0, "{policy}");
        await_room(&mut client);
        let (keys, evicted) = (client.run("DBSIZE"), count(&mut client, "evicted_keys"));
        assert!(evicted > 30_000, "{policy}: {evicted} keys evicted");
        assert_eq!(keys, Reply::Int(60_000 - evicted as i64), "{policy}");
        assert!(evicted < 45_000, "{policy}: {keys:?} are left");
        // Without a deadline keys stay if those with one are to go, until there is no other left.
        let refused = fill(&mut client, "lasting", 60_000, "");
        if policy.starts_with("volatile") {
            assert!(refused > 30_000, "{policy}: {refused}");
            assert_eq!(client.run("DBSIZE"), Reply::Int(60_000 - refused as i64), "{policy}");
            assert_eq!(client.run("SET more 1").text(), OOM);
            assert!(within(NO_HANG, || count(&mut client, "current_eviction_exceeded_time") > 0));
        } else {
            await_room(&mut client);
            assert_eq!(refused, 0, "{policy}");
        }
        client.ok("CONFIG SET maxmemory 0");
        assert_eq!(fill(&mut client, "free", 1_000, ""), 0);
        assert_eq!(client.run("GET free:0").bytes().map(<[u8]>::len), Some(200));
    }
}

/// Memory that so many keys take here, or in the oracle.
fn memory_of(client: &mut Client, key_count: u64) -> u64 {
    fill(client, "key", key_count, "");
    count(client, "used_memory")
}

/// How often a key is there when it is asked for, if it is stored whenever it is not: by a seeded random choice of which few keys
/// are most.
fn hit_rate(client: &mut Client, key_count: u64, time: Duration, seed: u64) -> f64 {
    let mut rng = fastrand::Rng::with_seed(seed);
    let value = "v".repeat(200);
    let (start, mut hits, mut asked) = (Instant::now(), 0, 0);
    while start.elapsed() < time {
        // The logarithm of the rank is even: the 8000 first keys of 160000 are half of what is asked for.
        let ranks: Vec<u64> = (0..50).map(|_| ((key_count as f64).powf(rng.f64()) * 8.0) as u64).collect();
        ranks.iter().for_each(|rank| client.queue_line(&format!("GET key:{rank}")));
        client.flush().unwrap();
        let is_missing: Vec<bool> = ranks.iter().map(|_| client.read().is_null()).collect();
        let missing = || ranks.iter().zip(&is_missing).filter(|(_, is_missing)| **is_missing);
        missing().for_each(|(rank, _)| client.queue_line(&format!("SET key:{rank} {value}")));
        client.flush().unwrap();
        missing().for_each(|_| assert_eq!(client.read(), Reply::ok()));
        if start.elapsed() > time / 3 {
            asked += ranks.len();
            hits += ranks.len() - missing().count();
        }
    }
    hits as f64 / asked as f64
}

/// With memory for as many keys a hot set stays as well as in Redis.
#[test]
fn hit_rates_are_those_of_redis() {
    let seed = seed();
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        let dir = temp_dir();
        let (oracle, _) = Launch::at_socket("redis-server", &dir).start();
        let server = TestServer::start(&[]);
        let rate = |client: &mut Client| {
            client.ok(&format!("CONFIG SET maxmemory-policy {policy}"));
            let bytes = memory_of(client, 20_000);
            client.ok(&format!("CONFIG SET maxmemory {bytes}"));
            let rate = hit_rate(client, 20_000, Duration::from_secs(6), seed);
            (rate, count(client, "evicted_keys"), client.run("DBSIZE"))
        };
        let expected = rate(&mut oracle.client());
        let given = rate(&mut server.connect());
        println!("{policy}: {expected:?}, here {given:?}");
        assert!(expected.1 > 1_000 && given.1 > 1_000, "{policy}: {expected:?}, here {given:?}");
        assert!(given.0 > expected.0 - 0.03, "{policy}: {expected:?}, here {given:?}");
    }
}

#[test]
fn who_watches_a_key_hears_that_it_is_evicted() {
    let server = TestServer::start(&["--maxmemory", "3mb", "--maxmemory-policy", "allkeys-random"]);
    let (mut client, mut other) = (server.connect(), server.connect());
    client.ok("SET watched 1");
    client.ok("WATCH watched");
    let changes = count(&mut other, "rdb_changes_since_last_save");
    fill(&mut other, "key", 20_000, "");
    let is_gone = |other: &mut Client, round: u32| {
        fill(other, &format!("key:{round}"), 5_000, "");
        other.run("EXISTS watched") == Reply::Int(0)
    };
    assert!((0..100).any(|round| is_gone(&mut other, round)));
    let (evicted, written) =
        (count(&mut other, "evicted_keys"), count(&mut other, "rdb_changes_since_last_save"));
    assert!(evicted > 0 && written - changes >= 20_000 + evicted);
    client.ok("MULTI");
    assert_eq!(client.run("SET other 1").text(), "QUEUED");
    assert!(client.run("EXEC").is_null());
}

/// Before a command of a transaction, and before the transaction, keys go; if none can, it is refused as a whole.
#[test]
fn transactions_make_room_or_are_refused() {
    for workers in ["1", "2"] {
        let arguments = ["--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru", "--workers", workers];
        let server = TestServer::start(&arguments);
        let mut client = server.connect();
        let value = "v".repeat(200);
        for part in 0..300 {
            client.ok("MULTI");
            for number in 0..100 {
                let reply = client.run(&format!("SET key:{part}:{number} {value}"));
                assert_eq!(reply.text(), "QUEUED");
            }
            // It is one step: what it stored is there, all of it. Behind it keys go, of those of the same second any.
            assert_eq!(client.run(&format!("EXISTS key:{part}:0 key:{part}:99")).text(), "QUEUED");
            let replies = client.run("EXEC");
            let (found, stored) = replies.items().split_last().expect("replies");
            assert!(stored.iter().all(|reply| *reply == Reply::ok()), "{replies:?}");
            assert_eq!(*found, Reply::Int(2));
        }
        await_room(&mut client);
        assert!(count(&mut client, "evicted_keys") > 10_000);
        client.ok("CONFIG SET maxmemory-policy volatile-lru");
        fill(&mut client, "more", 5_000, "");
        client.ok("MULTI");
        assert_eq!(client.run("SET a 1").text(), OOM);
        assert!(client.run("EXEC").text().starts_with("EXECABORT"));
        client.ok("CONFIG SET maxmemory 0");
        client.ok("MULTI");
        assert_eq!(client.run("SET a 1").text(), "QUEUED");
        let mut other = server.connect();
        other.ok("CONFIG SET maxmemory 1mb");
        assert_eq!(client.run("EXEC").text(), format!("EXECABORT Transaction discarded because of: {OOM}"));
    }
}

/// Values of 100 KB and of 8 MB among keys of 200 bytes: many go for one.
#[test]
fn a_large_value_makes_many_keys_go() {
    for workers in ["1", "2"] {
        let arguments = ["--maxmemory", "24mb", "--maxmemory-policy", "allkeys-lru", "--workers", workers];
        let server = TestServer::start(&arguments);
        let mut client = server.connect();
        assert_eq!(fill(&mut client, "key", 120_000, ""), 0);
        let before = count(&mut client, "evicted_keys");
        for (number, length) in [100_000, 8 << 20, 400_000, 8 << 20, 8 << 20].into_iter().enumerate() {
            let value = vec![b'a' + number as u8; length];
            let name = format!("large:{number}");
            // Accesses are told apart by seconds.
            std::thread::sleep(Duration::from_millis(1100));
            assert_eq!(client.run_bytes(&[b"SET", name.as_bytes(), &value]), Reply::ok());
            assert_eq!(client.run("SET small 1"), Reply::ok());
            await_room(&mut client);
            let is_there = client.run(&format!("GET {name}")).bytes() == Some(&value[..]);
            assert!(is_there, "the newest stays: {name}, there are {:?}", client.run("KEYS large:*"));
        }
        let evicted = count(&mut client, "evicted_keys") - before;
        assert!(evicted > 20_000, "{evicted}");
        // The same value again and again needs no more room than twice.
        let held = client.run("DBSIZE");
        for number in 0..20 {
            let value = vec![b'a' + number; 1 << 20];
            assert_eq!(client.run_bytes(&[b"SET", b"again", &value]), Reply::ok());
        }
        println!("{held:?} {:?}", client.run("DBSIZE"));
        client.ok("FLUSHALL");
        for number in 0..200 {
            client.ok(&format!("SET after:{number} 1"));
        }
        assert_eq!(client.run("DBSIZE"), Reply::Int(200), "nothing goes for what is being freed");
    }
}

/// `CONFIG SET maxmemory` lowers the bound: nobody waits for all that has to go.
#[test]
fn lowering_the_bound_stops_nobody() {
    let server = TestServer::start(&["--workers", "2", "--maxmemory-policy", "allkeys-lfu"]);
    let (mut client, mut other) = (server.connect(), server.connect());
    assert_eq!(fill(&mut client, "key", 200_000, ""), 0);
    let used = count(&mut client, "used_memory");
    let mut served_meanwhile = 0;
    client.ok(&format!("CONFIG SET maxmemory {}", used / 3));
    let start = Instant::now();
    let mut is_within = false;
    while !is_within && start.elapsed() < NO_HANG {
        for client in [&mut client, &mut other] {
            client.ok("SET own 1");
            served_meanwhile += 1;
        }
        is_within = !is_over(&mut client);
    }
    assert!(is_within);
    // Two thirds of the keys take longer than the 500 us that one command waits for.
    assert!(served_meanwhile >= 20, "{served_meanwhile}");
    let keys = client.run("DBSIZE");
    assert!(matches!(keys, Reply::Int(30_000..=66_000)), "{keys:?}");
    let exceeded = count(&mut client, "total_eviction_exceeded_time");
    assert!(exceeded > 0);
    client.ok("CONFIG RESETSTAT");
    assert_eq!(count(&mut client, "evicted_keys"), 0);
}

/// Writers, evictions, checkpoints and dumps beside each other, then kill -9: what is served again is a cut.
/// The keys that are asked for have no deadline: others go. By access they might go, too, whoever is done before the other.
#[test]
fn saves_and_a_kill_beside_evictions() {
    let dir = temp_dir();
    let arguments = ["--workers", "2", "--maxmemory", "8mb", "--maxmemory-policy", "volatile-lru"];
    let server = TestServer::start_in(&dir, &arguments);
    let mut saver = server.connect();
    std::thread::scope(|scope| {
        let write = |part: u64| {
            let mut client = server.connect();
            move || {
                for number in 0..30_000u64 {
                    // Two keys change as one; the first says what the second is.
                    client.queue_line("MULTI");
                    client.queue_line(&format!("SET first:{part} {number}"));
                    client.queue_line(&format!("SET second:{part} {number}"));
                    client.queue_line("EXEC");
                    client.queue_line(&format!("SET filler:{part}:{number} {} EX 1000", "v".repeat(200)));
                    client.flush().unwrap();
                    (0..5).for_each(|_| assert!(!client.read().is_error()));
                }
            }
        };
        let writers: Vec<_> = (0..2).map(|part| scope.spawn(write(part))).collect();
        let commands = ["BGSAVE", "BGSAVE RDB"];
        for number in 0.. {
            assert!(saver.save_in_background(commands[number % 2]));
            if writers.iter().all(|writer| writer.is_finished()) {
                break;
            }
        }
    });
    await_room(&mut saver);
    assert!(count(&mut saver, "evicted_keys") > 20_000);
    drop(saver);
    server.signal(Signal::KILL);
    drop(server);
    for format in ["pages", "rdb"] {
        let server = TestServer::start_in(&dir, &[&arguments[..], &["--snapshot-format", format]].concat());
        let mut client = server.connect();
        client.wait_until_loaded();
        for part in 0..2 {
            let (first, second) =
                (client.run(&format!("GET first:{part}")), client.run(&format!("GET second:{part}")));
            assert_eq!(first, second, "{format}");
            assert!(first.bytes().is_some(), "{format}: what has no deadline stays");
        }
        assert_eq!(fill(&mut client, "key", 20_000, "EX 1000"), 0);
        await_room(&mut client);
        server.signal(Signal::KILL);
    }
}

/// What `OBJECT`, `TOUCH`, `RESTORE` and dumps say of accesses.
#[test]
fn accesses_are_told_and_kept_in_dumps() {
    let dir = temp_dir();
    let server = TestServer::start_in(&dir, &["--maxmemory-policy", "allkeys-lru"]);
    let mut c = server.connect();
    c.ok("SET a 1");
    let payload = c.run("DUMP a").bytes().expect("a payload").to_vec();
    let restore = |c: &mut Client, key: &str, option: &str, value: &str| {
        let words: [&[u8]; 7] =
            [b"RESTORE", key.as_bytes(), b"0", &payload, b"REPLACE", option.as_bytes(), value.as_bytes()];
        assert_eq!(c.run_bytes(&words), Reply::ok());
    };
    let idle = |c: &mut Client, key: &str| match c.run(&format!("OBJECT IDLETIME {key}")) {
        Reply::Int(seconds) => seconds,
        other => panic!("{other:?}"),
    };
    restore(&mut c, "old", "IDLETIME", "1000");
    restore(&mut c, "older", "IDLETIME", "2000");
    assert!((1000..1100).contains(&idle(&mut c, "old")));
    c.ok("CLIENT NO-TOUCH ON");
    c.run("GET old");
    assert!(idle(&mut c, "old") >= 1000);
    assert_eq!(c.run("TOUCH old"), Reply::Int(1));
    assert!(idle(&mut c, "old") < 100);
    c.ok("CLIENT NO-TOUCH OFF");
    c.ok("RENAME older oldest");
    let before = idle(&mut c, "oldest");
    assert!(before >= 2000);
    c.run("EXISTS oldest");
    c.run("TYPE oldest");
    c.run("TTL oldest");
    assert!(idle(&mut c, "oldest") >= 2000, "who asks about a key does not use it");
    c.ok("DEBUG RELOAD");
    assert!((2000..2100).contains(&idle(&mut c, "oldest")));
    assert!(c
        .run("OBJECT FREQ old")
        .text()
        .starts_with("ERR An LFU maxmemory policy is not selected, access frequency"));
    assert!(c.run("OBJECT IDLETIME none").is_null());
    c.run("GET oldest");
    assert!(idle(&mut c, "oldest") < 100);

    c.ok("CONFIG SET maxmemory-policy volatile-lfu lfu-log-factor 0 lfu-decay-time 1");
    assert!(c
        .run("OBJECT IDLETIME old")
        .text()
        .starts_with("ERR An LFU maxmemory policy is selected, idle time not"));
    assert!(c.run("OBJECT FREQ none").is_null());
    let frequency = |c: &mut Client, key: &str| c.run(&format!("OBJECT FREQ {key}"));
    c.ok("SET new 1");
    assert_eq!(frequency(&mut c, "new"), Reply::Int(5));
    (0..10).for_each(|_| drop(c.run("GET new")));
    assert_eq!(frequency(&mut c, "new"), Reply::Int(15));
    restore(&mut c, "hot", "FREQ", "200");
    assert_eq!(frequency(&mut c, "hot"), Reply::Int(200));
    c.ok("CONFIG SET lfu-log-factor 10");
    assert_eq!(frequency(&mut c, "hot"), Reply::Int(200));
    c.ok("DEBUG RELOAD");
    assert_eq!(frequency(&mut c, "hot"), Reply::Int(200));
    assert!(count(&mut c, "access_tracking_bytes") > 0);
    c.ok("CONFIG SET maxmemory-policy noeviction");
    assert_eq!(count(&mut c, "access_tracking_bytes"), 0);
    assert!(c.run("OBJECT FREQ hot").is_error());
    assert!(idle(&mut c, "hot") < 100);
}

/// A dump of Redis has what it knows of accesses, and so has ours for Redis.
#[test]
fn dumps_take_accesses_to_redis_and_back() {
    for (policy, option, value, ask) in [
        ("allkeys-lru", "IDLETIME", "5000", "OBJECT IDLETIME k"),
        ("allkeys-lfu", "FREQ", "77", "OBJECT FREQ k"),
    ] {
        let dir = temp_dir();
        let with_policy = |launch: Launch| launch.with(&["--maxmemory-policy", policy, "--save", ""]);
        let (oracle, _) = with_policy(Launch::at_socket("redis-server", &dir)).start();
        let mut c = oracle.client();
        c.ok("SET source 1");
        let payload = c.run("DUMP source").bytes().expect("a payload").to_vec();
        let words: [&[u8]; 6] = [b"RESTORE", b"k", b"0", &payload, option.as_bytes(), value.as_bytes()];
        assert_eq!(c.run_bytes(&words), Reply::ok());
        c.ok("SAVE");
        drop(c);
        oracle.kill();
        let expected: i64 = value.parse().unwrap();
        let is_near = |reply: Reply| match reply {
            Reply::Int(found) => (expected..expected + 60).contains(&found),
            _ => false,
        };
        let server = TestServer::start_in(&dir, &["--maxmemory-policy", policy, "--snapshot-format", "rdb"]);
        let mut c = server.connect();
        c.wait_until_loaded();
        assert!(is_near(c.run(ask)), "{policy}: {:?}", c.run(ask));
        assert!(c.save_in_background("BGSAVE RDB"));
        drop(c);
        drop(server);
        let (oracle, _) = with_policy(Launch::at_socket("redis-server", &dir)).start();
        let reply = oracle.client().run(ask);
        assert!(is_near(reply.clone()), "{policy}: {reply:?}");
    }
}

/// Keys go while a dump is loaded that does not fit.
#[test]
fn a_load_keeps_within_the_bound() {
    let dir = temp_dir();
    let server = TestServer::start_in(&dir, &["--snapshot-format", "rdb"]);
    let mut client = server.connect();
    fill(&mut client, "key", 60_000, "");
    assert!(client.save_in_background("BGSAVE RDB"));
    drop(client);
    server.signal(Signal::KILL);
    drop(server);
    remove_page_file(&dir);
    let server = TestServer::start_in(&dir, &["--maxmemory", "6mb", "--maxmemory-policy", "allkeys-random"]);
    let mut client = server.connect();
    client.wait_until_loaded();
    let loaded = client.run("DBSIZE");
    assert!(matches!(loaded, Reply::Int(15_000..=30_000)), "{loaded:?}");
    await_room(&mut client);
    assert!(count(&mut client, "used_memory_peak") < 8 * MEGABYTE);
    assert_eq!(fill(&mut client, "more", 1_000, ""), 0);
}

fn remove_page_file(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("stillframe.pages") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}
