//! What one client may cost all others: replies without end, replies that nobody reads, memory that nobody counts.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::*;

const MEGABYTE: u64 = 1 << 20;

/// Fills a set, a hash and a sorted set, and small ones of each.
fn fill(c: &mut Client, count: usize) {
    for (name, count) in [("large", count), ("small", 5)] {
        for first in (0..count).step_by(500) {
            let (mut set, mut hash, mut sorted) =
                (format!("SADD {name}:s"), format!("HSET {name}:h"), format!("ZADD {name}:z"));
            for number in first..(first + 500).min(count) {
                set += &format!(" m{number}");
                hash += &format!(" m{number} v{number}");
                sorted += &format!(" {number} m{number}");
            }
            for command in [set, hash, sorted] {
                c.run(&command);
            }
        }
    }
}

#[test]
fn random_elements_without_end_are_in_nobodys_way() {
    let endless = [
        "SRANDMEMBER large:s -9223372036854775807",
        "SRANDMEMBER small:s -4611686018427387904",
        "ZRANDMEMBER large:z -4611686018427387904",
        "ZRANDMEMBER small:z -4611686018427387903 WITHSCORES",
        "HRANDFIELD large:h -4611686018427387904",
        "HRANDFIELD small:h -4611686018427387903 WITHVALUES",
    ];
    for workers in ["1", "2"] {
        let mut server = TestServer::start(&["--workers", workers]);
        let mut c = server.connect();
        fill(&mut c, 2_000);
        let before = server.resident_bytes();
        // Clients that read nothing, one that reads some, and some that go away at once.
        let mut silent: Vec<Client> = endless.map(|_| server.connect()).into();
        silent.iter_mut().zip(endless).for_each(|(client, command)| client.send(command));
        let mut reader = server.connect();
        reader.send("SRANDMEMBER large:s -4611686018427387904");
        for command in endless {
            server.connect().send(command);
        }
        for _ in 0..50 {
            assert_eq!(c.run("PING").text(), "PONG");
            std::thread::sleep(Duration::from_millis(5));
        }
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < 48 * MEGABYTE, "{grown} bytes more");
        eventually("those who have gone are not there any more", || {
            c.run("CLIENT LIST").text().lines().count() == silent.len() + 2
        });
        // Within a transaction such a reply is refused, and another one is not.
        c.ok("MULTI");
        c.run("SRANDMEMBER small:s -4611686018427387904");
        c.run("SRANDMEMBER small:s -20000");
        let replies = c.run("EXEC");
        let first = replies.items()[0].text();
        assert!(first.starts_with("ERR so many random elements"), "{first}");
        assert_eq!(replies.items()[1].items().len(), 20_000);
        server.signal(Signal::TERM);
        server.wait();
    }
}

#[test]
fn as_many_random_elements_come_as_are_announced() {
    const COUNT: usize = 60_000;
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--workers", workers]);
        let mut c = server.connect();
        fill(&mut c, 2_000);
        let text = |reply: &Reply| reply.text();
        for name in ["large", "small"] {
            let all: BTreeSet<String> =
                c.run(&format!("SMEMBERS {name}:s")).items().iter().map(text).collect();
            for command in ["SRANDMEMBER {}:s", "HRANDFIELD {}:h", "ZRANDMEMBER {}:z"] {
                c.queue_line(&format!("{} -{COUNT}", command.replace("{}", name)));
                c.queue_line("ECHO next");
                c.flush().unwrap();
                let drawn = c.read();
                assert_eq!(drawn.items().len(), COUNT, "{command}");
                let drawn: BTreeSet<String> = drawn.items().iter().map(text).collect();
                assert!(drawn.is_subset(&all) && drawn.len() * 10 > all.len() * 9, "{command}");
                assert_eq!(c.read().text(), "next");
            }
            for (command, prefix) in
                [("HRANDFIELD {}:h -{c} WITHVALUES", "v"), ("ZRANDMEMBER {}:z -{c} WITHSCORES", "")]
            {
                let command = command.replace("{}", name).replace("{c}", &COUNT.to_string());
                let drawn = c.run(&command);
                assert_eq!(drawn.items().len(), 2 * COUNT);
                let belong = |pair: &[Reply]| pair[1].text() == format!("{prefix}{}", &pair[0].text()[1..]);
                assert!(drawn.items().chunks(2).all(belong), "{command}");
            }
        }
        // Nothing of what is not wanted is sent.
        c.queue_line("CLIENT REPLY SKIP");
        c.queue_line("SRANDMEMBER small:s -4611686018427387904");
        c.queue_line("ECHO after");
        c.flush().unwrap();
        assert_eq!(c.read().text(), "after");
        for (absent, error) in [("SRANDMEMBER none -5", false), ("HRANDFIELD small:s -5", true)] {
            match c.run(absent) {
                Reply::Error(_) => assert!(error),
                reply => assert!(!error && reply.items().is_empty()),
            }
        }
    }
}

#[test]
fn random_elements_come_though_their_key_has_gone() {
    const COUNT: usize = 3_000_000;
    let server = TestServer::start(&["--workers", "2"]);
    let (mut c, mut reader) = (server.connect(), server.connect());
    fill(&mut c, 2_000);
    reader.queue_line(&format!("SRANDMEMBER large:s -{COUNT}"));
    reader.queue_line("ECHO next");
    reader.flush().unwrap();
    // More than fits into the sockets' buffers is still to come.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(c.run("DEL large:s").integer(), Some(1));
    assert_eq!(reader.read().items().len(), COUNT);
    assert_eq!(reader.read().text(), "next");
}

/// Damages the first leaf of the page file in which `mark` is; it has more than a few records.
fn damage_leaf(path: &std::path::Path, marks: &[&[u8]]) {
    let mut bytes = std::fs::read(path).unwrap();
    for mark in marks {
        let is_leaf = |page: &[u8]| {
            page[0] == 1 && page[2..4] > [10, 0][..] && page.windows(mark.len()).any(|part| part == *mark)
        };
        let slot = (3..bytes.len() / 4096).find(|slot| is_leaf(&bytes[slot * 4096..][..4096]));
        bytes[slot.expect("there is such a leaf") * 4096 + 4000] ^= 1;
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_collection_with_a_lost_page_is_an_error_also_where_keys_are_passed_over() {
    let mut server = TestServer::start(&[]);
    let mut c = server.connect();
    for first in (0..3_000).step_by(500) {
        let (mut hash, mut set) = ("HSET h".to_owned(), "SADD s".to_owned());
        (first..first + 500).for_each(|number| {
            hash += &format!(" field{number} value{number}");
            set += &format!(" member{number}");
        });
        c.run(&hash);
        c.run(&set);
    }
    c.ok("SET secret S3CRET");
    c.ok("SAVE");
    server.signal(Signal::KILL);
    server.wait();
    damage_leaf(&server.dir.join("stillframe.pages"), &[b"field1", b"member1"]);
    let server = TestServer::start_in(&server.dir.clone(), &["--damage-policy", "skip"]);
    let mut c = server.connect();
    eventually("the damage is known", || c.info("page_file_damaged_pages") == "2");
    for command in [
        "HGETALL h",
        "HKEYS h",
        "HVALS h",
        "SMEMBERS s",
        "HSCAN h 0 COUNT 10000",
        "SSCAN s 0 COUNT 10000",
        "COPY h h2",
        "SUNIONSTORE s2 s",
        "SDIFFSTORE s3 s none",
        "SORT s ALPHA STORE l2",
        "SRANDMEMBER s 3000",
        "DUMP h",
    ] {
        c.queue_line(command);
        c.queue_line("GET secret");
        c.flush().unwrap();
        let reply = c.read();
        assert!(matches!(reply, Reply::Error(_)), "{command}: {reply:?}");
        assert_eq!(c.read().text(), "S3CRET", "{command}");
    }
    assert_eq!(c.run("EXISTS h2 s2 s3 l2").integer(), Some(0));
    assert!(!server.log().contains("4294967295"), "{}", server.log());
}

/// A field of the client's line in `CLIENT LIST`.
fn field(c: &mut Client, name: &str, field: &str) -> u64 {
    let list = c.run("CLIENT LIST").text();
    let line = list.lines().find(|line| line.contains(&format!("name={name} "))).unwrap_or_default();
    let found = line.split(' ').find_map(|word| word.strip_prefix(&format!("{field}=")));
    found.unwrap_or_else(|| panic!("{field} of {name} in {list}")).parse().unwrap()
}

#[test]
fn what_waits_for_a_client_is_counted() {
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--workers", workers]);
        let (mut c, mut subscriber) = (server.connect(), server.connect());
        subscriber.ok("CLIENT SETNAME slow");
        subscriber.run("SUBSCRIBE channel");
        let used = |c: &mut Client| c.info("used_memory").parse::<u64>().unwrap();
        let clients = |c: &mut Client| c.info("mem_clients_normal").parse::<u64>().unwrap();
        let before = (used(&mut c), clients(&mut c));
        let message = "x".repeat(100_000);
        for _ in 0..100 {
            c.run(&format!("PUBLISH channel {message}"));
        }
        eventually("messages are counted", || field(&mut c, "slow", "omem") > 2 * MEGABYTE);
        assert!(field(&mut c, "slow", "tot-mem") > 2 * MEGABYTE && field(&mut c, "slow", "oll") > 0);
        assert!(used(&mut c) > before.0 + 2 * MEGABYTE && clients(&mut c) > before.1 + 2 * MEGABYTE);
        drop(subscriber);
        // Watched keys.
        let mut watcher = server.connect();
        watcher.ok("CLIENT SETNAME watcher");
        let key = "k".repeat(1_000);
        for number in 0..1_000 {
            watcher.queue_line(&format!("WATCH {number}:{key}"));
        }
        watcher.flush().unwrap();
        (0..1_000).for_each(|_| assert_eq!(watcher.read().text(), "OK"));
        assert!(field(&mut c, "watcher", "tot-mem") > MEGABYTE);
        watcher.ok("UNWATCH");
        eventually("they are let go", || field(&mut c, "watcher", "tot-mem") < MEGABYTE / 2);
        // The keys of a client that waits.
        let mut waiter = server.connect();
        waiter.ok("CLIENT SETNAME waiter");
        waiter
            .send(&format!("BLPOP {} 0", (0..5_000).map(|number| format!("b{number} ")).collect::<String>()));
        eventually("it waits", || field(&mut c, "waiter", "tot-mem") > MEGABYTE / 2);
        c.run("RPUSH b77 item");
        assert_eq!(waiter.read().items().len(), 2);
        // Nothing is pending for a client that has read everything.
        waiter.run(&format!("ECHO {}", "x".repeat(3_000)));
        eventually("all is read", || {
            field(&mut c, "waiter", "obl") == 0 && field(&mut c, "waiter", "rbp") == 0
        });
        // And a client that holds too much is closed.
        c.ok("CLIENT NO-EVICT ON");
        c.ok("CONFIG SET maxmemory-clients 10mb");
        let mut monitor = server.connect();
        monitor.send("MONITOR");
        eventually("there is a monitor", || c.run("CLIENT LIST").text().contains("flags=O"));
        let value = "v".repeat(100_000);
        eventually("the monitor is closed", || {
            (0..100).for_each(|_| c.ok(&format!("SET k {value}")));
            c.info("evicted_clients") == "1"
        });
    }
}

#[test]
fn clients_that_read_nothing_of_a_large_reply_hold_a_part_each() {
    const READERS: usize = 60;
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--workers", workers]);
        let mut c = server.connect();
        for first in (0..30_000).step_by(500) {
            let mut words = vec![b"HSET".to_vec(), b"h".to_vec()];
            for number in first..first + 500 {
                words.extend([format!("f{number}").into_bytes(), vec![b'v'; 200]]);
            }
            c.queue(&words);
        }
        c.flush().unwrap();
        (0..60).for_each(|_| drop(c.read()));
        let before = server.resident_bytes();
        let mut readers: Vec<Client> = (0..READERS).map(|_| server.connect()).collect();
        readers.iter_mut().for_each(|reader| reader.send("HGETALL h"));
        eventually("all are written to", || {
            let list = c.run("CLIENT LIST").text();
            list.lines().filter(|line| line.contains("cmd=hgetall") && !line.contains(" obl=0 ")).count()
                == READERS
        });
        // Whole they would be 400 MB.
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < 100 * MEGABYTE, "{grown} bytes more");
        let used = c.info("mem_clients_normal").parse::<u64>().unwrap();
        assert!(used < 60 * MEGABYTE, "{used}");
        // One more gets its reply, and each of them the whole of its own.
        assert_eq!(server.connect().run("HGETALL h").items().len(), 60_000);
        for reader in &mut readers {
            assert_eq!(reader.read().items().len(), 60_000);
        }
    }
}

#[test]
fn memory_that_clients_took_goes_back() {
    let server = TestServer::start(&["--workers", "2"]);
    let mut c = server.connect();
    let before = server.resident_bytes();
    let keys: String = (0..5_000).map(|number| format!("b{number} ")).collect();
    let mut waiters: Vec<Client> = (0..80).map(|_| server.connect()).collect();
    waiters.iter_mut().enumerate().for_each(|(number, waiter)| {
        waiter.send(&format!("BLPOP {number}:{keys} 0"));
    });
    // Small blocks that stay are between those that go.
    eventually("they wait", || c.info("blocked_clients") == "80");
    c.run(&format!("SUBSCRIBE {}", (0..2_000).map(|number| format!("c{number} ")).collect::<String>()));
    let held = server.resident_bytes();
    assert!(held > before + 20 * MEGABYTE, "{before} {held}");
    drop(waiters);
    let mut other = server.connect();
    eventually("memory is given back", || {
        other.ok("MEMORY PURGE");
        server.resident_bytes() < before + (held - before) / 2
    });
}
