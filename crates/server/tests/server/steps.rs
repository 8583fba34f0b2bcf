//! Transactions, and commands on many elements, whose pages are not in memory: all or nothing, and others do not wait for the
//! disk.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::harness::*;

const NO_HANG: Duration = Duration::from_secs(60);

/// Values that take the place of everything else in memory when they are read.
const BALLAST_KEYS: u64 = 3_200;
/// Elements of each collection: more leaves than a command may have brought in one by one.
const ELEMENTS: u64 = 12_000;

const TIGHT: [&str; 4] = ["--maxmemory", "12mb", "--snapshot-memory", "1mb"];

fn pipelined(client: &mut Client, calls: impl Iterator<Item = Vec<Vec<u8>>>) {
    let calls: Vec<Vec<Vec<u8>>> = calls.collect();
    for some in calls.chunks(500) {
        some.iter().for_each(|call| client.queue(call));
        client.flush().unwrap();
        for call in some {
            let reply = client.read();
            assert!(!reply.is_error(), "{}: {reply:?}", call[0].escape_ascii());
        }
    }
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn load_ballast(client: &mut Client) {
    pipelined(client, (0..BALLAST_KEYS).map(|n| words(&format!("SET ballast:{n} {n:04000}"))));
}

/// Elements of all types under keys that end with `name`.
fn load_collections(client: &mut Client, name: &str) {
    let calls = (0..ELEMENTS).step_by(100).flat_map(|first| {
        let some = first..first + 100;
        let each = |make: &dyn Fn(u64) -> String| some.clone().map(make).collect::<Vec<_>>().join(" ");
        [
            format!("HSET h{name} {}", each(&|n| format!("field:{n} {n:040}"))),
            format!("SADD s{name} {}", each(&|n| format!("member:{n}"))),
            format!("ZADD z{name} {}", each(&|n| format!("{n} member:{n}"))),
            format!("RPUSH l{name} {}", each(&|n| format!("item:{}:{:030}", n % 3_000, 0))),
        ]
    });
    pipelined(client, calls.map(|call| words(&call)));
}

/// Reads everything else, until nothing of the collections is left in memory.
fn cool(client: &mut Client) {
    pipelined(client, (0..BALLAST_KEYS).map(|n| words(&format!("GET ballast:{n}"))));
}

fn exec(client: &mut Client, calls: &[String]) -> Reply {
    client.ok("MULTI");
    for call in calls {
        client.queue_line(call);
    }
    client.flush().unwrap();
    calls.iter().for_each(|call| assert_eq!(client.read(), Reply::queued(), "{call}"));
    client.run("EXEC")
}

fn count(client: &mut Client, name: &str) -> u64 {
    client.info(name).parse().unwrap_or_else(|_| panic!("{name} is no number"))
}

/// A command each, with one before and one after it.
fn between_two(call: &str) -> Vec<String> {
    vec!["SET before 1".into(), call.into(), "INCR after".into()]
}

fn many(call: impl Fn(u64) -> String) -> Vec<String> {
    (0..300).map(|n| call(n * 37 % ELEMENTS)).collect()
}

/// Transactions of which each command says beforehand what it needs.
fn foreseen() -> Vec<Vec<String>> {
    let fields: Vec<String> = (0..1_500).map(|n| format!("field:{}", n * 7)).collect();
    let members: Vec<String> = (0..1_500).map(|n| format!("member:{}", n * 5)).collect();
    let scored: Vec<String> = (0..1_500).map(|n| format!("{} member:{}", n * 3, n * 8)).collect();
    let mut all = vec![
        many(|n| format!("HSET h1 field:{n} new")),
        many(|n| format!("HINCRBY h1 count:{n} 3")),
        many(|n| format!("ZINCRBY z1 2500 member:{n}")),
        many(|n| format!("LSET l1 {n} new")),
        many(|n| format!("SADD s1 member:{n} new:{n}")),
        many(|n| format!("HGET h1 field:{n}")),
        many(|n| format!("ZRANK z1 member:{n}")),
    ];
    let single = [
        "ZREMRANGEBYRANK z1 100 9000",
        "ZREMRANGEBYSCORE z2 500 7000",
        "ZPOPMIN z2 700",
        "LREM l1 0 item:77:000000000000000000000000000000",
        "LTRIM l2 10 -10",
        "LINSERT l2 BEFORE item:2000:000000000000000000000000000000 new",
        "SUNIONSTORE s3 s1 s2",
        "SINTERSTORE s4 s1 s2",
        "ZUNIONSTORE z3 2 z2 s1",
        "ZRANGESTORE z4 z2 0 5000",
        "COPY h2 h4 REPLACE",
        "COPY l2 l4 REPLACE",
        "SORT z2 BY ballast:* GET # STORE sorted LIMIT 0 200",
        "SORT l2 ALPHA STORE sorted",
        "LMOVE l1 l2 LEFT RIGHT",
        "RPOPLPUSH l2 l2",
        "SMOVE s2 s1 member:999",
        "HMGET h2 field:1 field:5000 field:9000 none",
        "LRANGE l2 5000 5100",
        "LLEN l1",
        "ZREMRANGEBYLEX z9 - +",
        "DEL l4 h4",
    ];
    all.extend(single.iter().map(|call| between_two(call)));
    all.push(between_two(&format!("HDEL h2 {}", fields.join(" "))));
    all.push(between_two(&format!("SREM s2 {}", members.join(" "))));
    all.push(between_two(&format!("ZADD z2 {}", scored.join(" "))));
    all
}

/// Transactions whose later commands need what the first have changed.
fn unforeseen() -> Vec<Vec<String>> {
    let after = |first: &str, calls: Vec<String>| [vec![first.to_owned()], calls].concat();
    let mut all = vec![
        after("RENAME h1 h9", many(|n| format!("HSET h9 field:{n} renamed"))),
        after("RENAME z1 z9", many(|n| format!("ZINCRBY z9 10 member:{n}"))),
        after("RENAME s1 s9", vec!["SUNIONSTORE s3 s9 s2".into(), "SCARD s3".into()]),
        after(
            "RENAME l1 l9",
            vec!["LREM l9 0 item:78:000000000000000000000000000000".into(), "LLEN l9".into()],
        ),
        after(
            "SELECT 3",
            vec![
                "SET there 1".into(),
                "SWAPDB 0 3".into(),
                "HSET h2 field:7 x".into(),
                "SWAPDB 0 3".into(),
                "SELECT 0".into(),
            ],
        ),
    ];
    all.push((0..300).map(|_| "RPOPLPUSH l2 moved".to_owned()).collect());
    all.push(
        (0..300)
            .map(|n| format!("LMOVE l9 l2 {} RIGHT", if n % 2 == 0 { "LEFT" } else { "RIGHT" }))
            .collect(),
    );
    all
}

/// What there is, in few words.
fn summary(client: &mut Client) -> Vec<Reply> {
    let keys = (1..=4).chain([9]).flat_map(|n| {
        [format!("HLEN h{n}"), format!("SCARD s{n}"), format!("ZCARD z{n}"), format!("LLEN l{n}")]
    });
    let samples = [
        "HGET h1 field:37",
        "HGET h9 field:37",
        "HGET h2 field:7",
        "ZSCORE z1 member:37",
        "ZSCORE z9 member:74",
        "ZRANGE z2 0 20 WITHSCORES",
        "ZREVRANGE z9 0 20 WITHSCORES",
        "LRANGE l1 0 40",
        "LRANGE l2 -40 -1",
        "LRANGE l9 0 20",
        "LRANGE sorted 0 20",
        "LLEN sorted",
        "LLEN moved",
        "GET before",
        "GET after",
        "SISMEMBER s1 member:999",
        "DBSIZE",
    ];
    keys.chain(samples.map(str::to_owned)).map(|call| client.run(&call)).collect()
}

#[test]
fn a_transaction_on_pages_that_are_not_in_memory_is_as_in_redis() {
    beside_redis(&TIGHT, &|connect| {
        let (mut client, mut replies) = (connect(), Vec::new());
        client.stream.set_read_timeout(Some(NO_HANG)).unwrap();
        load_collections(&mut client, "1");
        load_collections(&mut client, "2");
        load_ballast(&mut client);
        for calls in foreseen().into_iter().chain(unforeseen()) {
            cool(&mut client);
            replies.push(exec(&mut client, &calls));
        }
        replies.extend(summary(&mut client));
        replies
    });
}

/// A script that begins anew, because a page is missing, has nothing left of the reply that a command had begun.
#[test]
fn a_script_that_looks_at_pages_that_are_not_in_memory_sees_what_it_sees_in_redis() {
    const SCRIPTS: [&str; 5] = [
        "return redis.call('HMGET', KEYS[1], 'field:7', 'none', 'field:11000')",
        "return redis.call('SMISMEMBER', KEYS[2], 'member:7', 'none', 'member:11000')",
        "return redis.call('ZMSCORE', KEYS[3], 'member:7', 'none', 'member:11000')",
        "return redis.call('LRANGE', KEYS[4], 5000, 5010)",
        "return {redis.call('HMGET', KEYS[1], 'field:9'), redis.call('MGET', 'ballast:1', KEYS[1], 'ballast:3000')}",
    ];
    beside_redis(&TIGHT, &|connect| {
        let (mut client, mut replies) = (connect(), Vec::new());
        client.stream.set_read_timeout(Some(NO_HANG)).unwrap();
        load_collections(&mut client, "1");
        load_ballast(&mut client);
        for script in SCRIPTS {
            for name in ["EVAL_RO", "EVAL"] {
                cool(&mut client);
                let call = [name, script, "4", "h1", "s1", "z1", "l1"].map(str::as_bytes);
                replies.push(client.run_bytes(&call));
            }
        }
        replies
    });
}

/// What can be known before is brought in before the others stop. What cannot comes in a few reads, not one for each command.
#[test]
fn nobody_waits_for_the_disk_beside_a_transaction() {
    for workers in ["1", "2"] {
        let server = TestServer::start(&[&TIGHT[..], &["--workers", workers]].concat());
        let mut client = server.connect();
        client.stream.set_read_timeout(Some(NO_HANG)).unwrap();
        load_collections(&mut client, "1");
        load_collections(&mut client, "2");
        load_ballast(&mut client);
        for calls in foreseen() {
            cool(&mut client);
            let reply = exec(&mut client, &calls);
            assert!(reply.items().iter().all(|reply| !reply.is_error()), "{}: {reply:.200?}", calls[1]);
            let read = count(&mut client, "data_pages_read_in_place");
            assert_eq!(read, 0, "{} reads pages while others wait", calls[1]);
        }
        for calls in unforeseen() {
            cool(&mut client);
            let waits = count(&mut client, "data_waits_in_place");
            let reply = exec(&mut client, &calls);
            assert!(reply.items().iter().all(|reply| !reply.is_error()), "{}: {reply:.200?}", calls[0]);
            let waits = count(&mut client, "data_waits_in_place") - waits;
            assert!(waits <= 30, "{} commands after {} wait {waits} times", calls.len(), calls[0]);
        }
        assert!(count(&mut client, "data_waits_in_place") > 0, "what cannot be known comes in place");
    }
}

/// Members are drawn when it is looked at, and the same are taken.
#[test]
fn random_choices_are_made_before_the_others_stop() {
    for workers in ["1", "2"] {
        let server = TestServer::start(&[&TIGHT[..], &["--workers", workers]].concat());
        let mut client = server.connect();
        client.stream.set_read_timeout(Some(NO_HANG)).unwrap();
        load_collections(&mut client, "1");
        load_ballast(&mut client);
        let mut left = ELEMENTS as i64;
        for calls in [
            vec!["SPOP s1".to_owned(); 200],
            vec!["SPOP s1 150".to_owned()],
            vec![
                "SRANDMEMBER s1 200".to_owned(),
                "HRANDFIELD h1 200 WITHVALUES".to_owned(),
                "ZRANDMEMBER z1 200".to_owned(),
            ],
            vec!["SRANDMEMBER s1 -200".to_owned(), "HRANDFIELD h1 -200".to_owned(), "RANDOMKEY".to_owned()],
        ] {
            cool(&mut client);
            let read = count(&mut client, "data_pages_read_in_place");
            let reply = exec(&mut client, &calls);
            let read = count(&mut client, "data_pages_read_in_place") - read;
            // A draw from a set that has one less may lead elsewhere, seldom.
            assert!(read <= 10, "{}: {read} pages are read while others wait", calls[0]);
            let drawn = reply
                .items()
                .iter()
                .flat_map(|reply| reply.try_items().unwrap_or(std::slice::from_ref(reply)));
            let drawn: Vec<&[u8]> = drawn.map(|member| member.bytes().expect("a member")).collect();
            if calls[0].starts_with("SPOP") {
                let distinct: std::collections::BTreeSet<_> = drawn.iter().collect();
                assert_eq!(distinct.len(), drawn.len());
                left -= drawn.len() as i64;
            }
            assert_eq!(client.run("SCARD s1"), Reply::Int(left), "{}", calls[0]);
        }
        // Outside of a transaction they are as few rounds: pages come together.
        for call in ["SRANDMEMBER s1 200", "HRANDFIELD h1 -200", "ZRANDMEMBER z1 200", "SPOP s1 200"] {
            cool(&mut client);
            let waits = fault_count(&mut client);
            assert_eq!(client.run(call).items().len(), 200);
            let waits = fault_count(&mut client) - waits;
            assert!(waits <= 40, "{call} waits {waits} times");
        }
    }
}

/// Requests for pages that commands have waited for.
fn fault_count(client: &mut Client) -> u64 {
    let fields = client.try_info("stillframe").unwrap();
    let times = fields.get("fault_us").expect("the field is there");
    times.split(',').find_map(|field| field.strip_prefix("count=")).and_then(|n| n.parse().ok()).unwrap()
}

/// A command that takes many elements waits for their pages together.
#[test]
fn a_command_waits_for_its_pages_together() {
    let server = TestServer::start(&TIGHT);
    let mut client = server.connect();
    client.stream.set_read_timeout(Some(NO_HANG)).unwrap();
    load_collections(&mut client, "1");
    let long = "v".repeat(1_500);
    pipelined(&mut client, (0..400).map(|n| words(&format!("HSET long field:{n} {long}"))));
    pipelined(&mut client, (0..400).map(|_| words(&format!("RPUSH longer {long}"))));
    pipelined(&mut client, (0..400).map(|n| words(&format!("ZADD longest {n} {n:03}{long}"))));
    load_ballast(&mut client);
    for (call, most) in [
        ("ZREMRANGEBYRANK z1 100 9000", 40),
        ("ZPOPMAX z1 1000", 20),
        ("SORT z1 BY ballast:* GET #", 30),
        ("HGETALL long", 80),
        ("LRANGE longer 0 -1", 80),
        ("ZRANGE longest 0 -1", 120),
    ] {
        cool(&mut client);
        let waits = fault_count(&mut client);
        assert!(!client.run(call).is_error());
        let waits = fault_count(&mut client) - waits;
        assert!(waits <= most, "{call} waits {waits} times");
    }
}

/// What needs more than memory holds is refused as a whole.
#[test]
fn a_transaction_larger_than_memory_does_nothing() {
    const FIELDS: i64 = 25_000;
    for workers in ["1", "2"] {
        let args = ["--workers", workers, "--maxmemory", "12mb", "--snapshot-memory", "4mb"];
        let server = TestServer::start(&args);
        let (mut client, mut other) = (server.connect(), server.connect());
        client.stream.set_read_timeout(Some(NO_HANG)).unwrap();
        let value = "v".repeat(300);
        pipelined(&mut client, (0..100_000).map(|n| words(&format!("SET key:{n} {value}"))));
        for first in (0..FIELDS).step_by(500) {
            let pairs: Vec<String> = (first..first + 500).map(|n| format!("{n} {n:0400}")).collect();
            assert_eq!(client.run(&format!("HSET h {}", pairs.join(" "))), Reply::Int(500));
        }
        let sets: Vec<String> = (0..20_000).map(|n| format!("INCR count:{n}")).collect();
        let too_large = [sets, vec!["SET before 1".into(), "COPY h to".into(), "SET after 1".into()]];
        for calls in too_large {
            client.ok("WATCH key:1");
            let reply = exec(&mut client, &calls);
            let text = "EXECABORT Transaction discarded because of: what this command needs at a time is larger than memory";
            assert!(reply.text().starts_with(text), "{reply:.200?}");
            assert_eq!(client.run("EXISTS before after to count:0 count:777"), Reply::Int(0));
            assert_eq!(client.run("EXEC").text(), "ERR EXEC without MULTI");
            // Nothing is watched any more.
            other.ok("SET key:1 x");
            assert_eq!(
                exec(&mut client, &["GET key:1".into()]),
                Reply::Array(vec![Reply::Bulk(b"x".to_vec())])
            );
        }
        let some: Vec<String> = (0..400).map(|n| format!("INCR count:{n}")).collect();
        assert!(exec(&mut client, &some).items().iter().all(|reply| *reply == Reply::Int(1)));
        // After the first change it goes on, whatever it takes.
        let calls = ["RENAME h g".to_owned(), "COPY g to".into(), "HLEN to".into(), "DEL to".into()];
        let replies = exec(&mut client, &calls);
        let expected = [Reply::ok(), Reply::Int(1), Reply::Int(FIELDS), Reply::Int(1)];
        assert_eq!(replies.items(), expected);
    }
}

/// A small command beside many that read: it has its pages sooner or later, and is not told that it is larger than memory.
#[test]
fn nothing_small_is_refused_beside_others() {
    let server = TestServer::start(&["--maxmemory", "12mb"]);
    let mut client = server.connect();
    let value = "b".repeat(1_000);
    pipelined(&mut client, (0..50_000).map(|n| words(&format!("SET ballast:{n} {value}"))));
    let (stop, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let connect = || {
            let client = server.connect();
            client.stream.set_read_timeout(Some(NO_HANG)).unwrap();
            client
        };
        for _ in 0..2 {
            let (mut client, stop) = (connect(), &stop);
            scope.spawn(move || {
                let mut random = fastrand::Rng::new();
                while !stop.load(Ordering::Relaxed) {
                    let mut key = || format!("ballast:{}", random.u32(..50_000));
                    let keys: Vec<String> = (0..60).map(|_| key()).collect();
                    client.run(&format!("MGET {}", keys.join(" ")));
                    client.run(&format!("SET {} {:01200}", key(), 7));
                }
            });
        }
        // One that goes away while it waits holds up nobody.
        let (mut leaving, stop_leaving) = (connect(), &stop);
        let server = &server;
        scope.spawn(move || {
            let mut random = fastrand::Rng::new();
            while !stop_leaving.load(Ordering::Relaxed) {
                let keys: Vec<String> = (0..160).map(|_| format!("no:{}", random.u32(..1_000_000))).collect();
                leaving.send(&format!("DEL {}", keys.join(" ")));
                leaving = server.connect();
            }
        });
        let callers: Vec<_> = (0..12)
            .map(|_| {
                let (mut client, calls) = (connect(), &calls);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::new();
                    while calls.fetch_add(1, Ordering::Relaxed) < 2_000 {
                        let keys: Vec<String> =
                            (0..160).map(|_| format!("no:{}", random.u32(..1_000_000))).collect();
                        assert_eq!(client.run(&format!("DEL {}", keys.join(" "))), Reply::Int(0));
                    }
                })
            })
            .collect();
        let ended: Vec<_> = callers.into_iter().map(|caller| caller.join()).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "a small command was refused");
    });
}

/// Whether a watched key is there is looked up before databases are exchanged or emptied, also where its page is not in memory.
#[test]
fn a_watched_key_that_is_not_there_is_not_changed_by_a_swap() {
    for workers in ["1", "2"] {
        for change in ["SWAPDB 0 3", "FLUSHALL", "FLUSHDB"] {
            let server = TestServer::start(&[&TIGHT[..], &["--workers", workers]].concat());
            let (mut client, mut other) = (server.connect(), server.connect());
            load_ballast(&mut client);
            client.ok("SELECT 3");
            load_ballast(&mut client);
            client.ok("SELECT 0");
            let absent: Vec<String> = (0..64).map(|n| format!("absent:{n}")).collect();
            client.ok(&format!("WATCH {}", absent.join(" ")));
            other.ok("SELECT 3");
            cool(&mut other);
            other.ok("SELECT 0");
            cool(&mut other);
            other.ok("SELECT 3");
            cool(&mut other);
            other.ok("SELECT 0");
            other.ok(change);
            assert_eq!(exec(&mut client, &["PING".into()]).items().len(), 1, "{change}");
            // One that is there is changed all the same.
            client.ok("SET there 1");
            client.ok("WATCH there");
            other.ok(change);
            assert!(exec(&mut client, &["PING".into()]).is_null(), "{change}");
        }
    }
}
