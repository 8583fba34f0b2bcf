//! What Redis 7.0 answers, held against it: in the order in which it looks at things, in events and in counters.

use std::collections::BTreeSet;

use fastrand::Rng;

use crate::harness::*;

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Replies to lines, those to `!` lines left out.
fn replies(c: &mut Client, lines: &[&str]) -> Vec<Reply> {
    let mut found = Vec::new();
    for line in lines {
        let reply = c.run(line.trim_start_matches('!'));
        if !line.starts_with('!') {
            found.push(reply);
        }
    }
    found
}

/// All that a connection gives for these requests, sent together, until it ends.
fn transcript(c: &mut Client, requests: &[u8]) -> Reply {
    c.send_raw(requests);
    // Redis does not close a connection that it does not answer; and the first of the two may be skipped.
    c.send_raw(&encode_all(&["RESET", "RESET", "QUIT"]));
    Reply::Bulk(c.read_to_end())
}

fn encode_all(lines: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in lines {
        match *line {
            // Requests of nothing.
            "*0" => out.extend_from_slice(b"*0\r\n"),
            "" => out.extend_from_slice(b"\r\n"),
            line => out.extend(encoded(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())),
        }
    }
    out
}

#[test]
fn replies_are_held_back_where_redis_holds_them_back() {
    let words = [
        "CLIENT REPLY SKIP",
        "CLIENT REPLY SKIP",
        "CLIENT REPLY OFF",
        "CLIENT REPLY ON",
        "CLIENT REPLY BAD",
        "PING",
        "GET a",
        "GET",
        "NOSUCH",
        "MULTI",
        "EXEC",
        "EXEC",
        "DISCARD",
        "RESET",
        "SUBSCRIBE ch",
        "UNSUBSCRIBE ch",
        "BLPOP none 0.001",
        "*0",
        "",
        "SELECT 99",
    ];
    let seed = stillframe_testkit::seed();
    beside_redis(&[], &|connect| {
        let mut rng = Rng::with_seed(seed);
        connect().ok("SET a v");
        let fixed: [&[&str]; 6] = [
            &["CLIENT REPLY SKIP", "CLIENT REPLY SKIP", "PING", "GET a"],
            &["CLIENT REPLY SKIP", "*0", "PING", "GET a"],
            &["MULTI", "PING", "CLIENT REPLY OFF", "PING", "CLIENT REPLY ON", "PING", "EXEC", "PING"],
            &["CLIENT REPLY OFF", "MULTI", "PING", "CLIENT REPLY ON", "PING", "EXEC", "PING"],
            &["MULTI", "CLIENT REPLY SKIP", "PING", "EXEC", "PING", "GET a"],
            &["CLIENT REPLY SKIP", "RESET", "PING"],
        ];
        let mut found: Vec<_> =
            fixed.iter().map(|lines| transcript(&mut connect(), &encode_all(lines))).collect();
        for _ in 0..100 {
            let lines: Vec<&str> = (0..rng.usize(1..10)).map(|_| words[rng.usize(..words.len())]).collect();
            println!("{lines:?}");
            found.push(transcript(&mut connect(), &encode_all(&lines)));
        }
        found
    });
}

#[test]
fn types_are_looked_at_where_redis_looks_at_them() {
    let lines = [
        "!RPUSH l a b",
        "!SET s foobar",
        "!HSET h f v",
        "BITCOUNT l -6 -7",
        "BITCOUNT l 1",
        "BITCOUNT l x y",
        "BITCOUNT none x",
        "BITCOUNT s -1 -2 x",
        "BITPOS l 1 a",
        "BITPOS l 2",
        "BITPOS l 1 1 2 x",
        "BITPOS none 0 a b",
        "BITPOS s 1 a",
        "BITFIELD l",
        "BITFIELD none",
        "BITFIELD l GET u8 0",
        "BITFIELD l GET u8",
        "BITFIELD l OVERFLOW SAT",
        "BITFIELD_RO l",
        "BITFIELD_RO l SET u8 0 1",
        "LCS l s",
        "LCS s l",
        "LCS l none",
        "LCS none l IDX LEN",
        "LCS s l FOO",
        "LCS s s FOO",
        "LCS none none IDX LEN",
        "LCS l s MINMATCHLEN a",
        "SETBIT l 0 1",
        "GETRANGE l 0 x",
        "SETRANGE l 0 x",
        "APPEND h x",
        "HSCAN l 0 COUNT x",
        "HSCAN none 0 COUNT x",
        "SSCAN h 0 MATCH",
        "ZSCAN s 0 COUNT 0",
    ];
    beside_redis(&[], &|connect| replies(&mut connect(), &lines));
}

#[test]
fn there_is_no_cluster_in_the_words_of_redis() {
    let mut lines = vec![
        "CLUSTER",
        "CLUSTER INFO",
        "CLUSTER HELP",
        "CLUSTER NOSUCH",
        "CLUSTER INFO x",
        "CLUSTER SLOTS",
        "CLUSTER SHARDS",
        "CLUSTER NODES",
        "CLUSTER MYID",
        "CLUSTER KEYSLOT a",
        "CLUSTER KEYSLOT",
        "CLUSTER COUNTKEYSINSLOT 1",
        "CLUSTER GETKEYSINSLOT 1",
        "CLUSTER MEET 127.0.0.1 1",
        "CLUSTER RESET HARD",
        "CLUSTER SETSLOT",
        "READONLY",
        "READWRITE",
        "ASKING",
        "READONLY x",
        "MULTI",
        "CLUSTER INFO",
        "READONLY",
        "EXEC",
    ];
    lines.extend(["COMMAND INFO asking cluster|slots", "COMMAND LIST FILTERBY PATTERN cluster|*slots*"]);
    beside_redis(&[], &|connect| {
        let mut found = replies(&mut connect(), &lines[..lines.len() - 1]);
        // The order of the last is that of a hash.
        let names: BTreeSet<String> =
            connect().run(lines[lines.len() - 1]).items().iter().map(Reply::text).collect();
        found.extend(names.into_iter().map(|name| Reply::Bulk(name.into_bytes())));
        found
    });
}

/// Calls of commands with a number of keys, most of them malformed.
#[test]
fn keys_of_malformed_calls_are_told_as_redis_tells_them() {
    let commands = [
        "ZUNIONSTORE d",
        "ZINTERSTORE d",
        "ZDIFFSTORE d",
        "ZUNION",
        "ZINTER",
        "ZDIFF",
        "ZINTERCARD",
        "SINTERCARD",
        "LMPOP",
        "ZMPOP",
        "BLMPOP 0",
        "BZMPOP 0",
        "PFMERGE",
        "PFCOUNT",
        "MSET",
        "DEL",
        "BITOP AND",
        "SORT",
        "SORT_RO",
        "SPUBLISH",
        "SSUBSCRIBE",
        "BLPOP",
        "SMOVE",
        "OBJECT ENCODING",
        "GET",
    ];
    let arguments = [
        "0",
        "1",
        "2",
        "3",
        "-1",
        "99999999999999999999",
        "2147483648",
        "4294967297",
        "4294967298",
        "9223372036854775807",
        "1abc",
        "abc",
        "+1",
        "02",
        "-0",
        "1.5",
        "a",
        "STORE",
        "WEIGHTS",
        "LEFT",
        "MIN",
    ];
    let seed = stillframe_testkit::seed();
    beside_redis(&[], &|connect| {
        let (mut c, mut rng) = (connect(), Rng::with_seed(seed));
        let mut found = vec![c.run("COMMAND GETKEYS SORT k STORE STORE d")];
        for command in commands {
            for _ in 0..40 {
                let rest: Vec<&str> =
                    (0..rng.usize(..5)).map(|_| arguments[rng.usize(..arguments.len())]).collect();
                let call = [&[command], rest.as_slice()].concat().join(" ");
                println!("{call}");
                found.push(c.run(&format!("COMMAND GETKEYS {call}")));
                found.push(c.run(&format!("COMMAND GETKEYSANDFLAGS {call}")));
            }
        }
        found
    });
}

#[test]
fn debug_answers_as_in_redis() {
    let kinds = [
        "string", "integer", "double", "bignum", "null", "array", "set", "map", "attrib", "push", "verbatim",
        "TRUE", "false", "nosuch",
    ];
    let lines = [
        "DIGEST x",
        "PROTOCOL",
        "QUICKLIST-PACKED-THRESHOLD 200b",
        "QUICKLIST-PACKED-THRESHOLD 0",
        "QUICKLIST-PACKED-THRESHOLD x",
        "QUICKLIST-PACKED-THRESHOLD 4gb",
        "QUICKLIST-PACKED-THRESHOLD 4294967295",
        "QUICKLIST-PACKED-THRESHOLD",
        "REPLYBUFFER RESIZING 0",
        "REPLYBUFFER PEAK-RESET-TIME never",
        "REPLYBUFFER PEAK-RESET-TIME 100",
        "REPLYBUFFER PEAK-RESET-TIME x",
        "REPLYBUFFER NOSUCH 1",
        "REPLYBUFFER",
        "SLEEP 0",
        "SLEEP",
        "PAUSE-CRON 1",
        "PAUSE-CRON 0",
        "PAUSE-CRON",
        "LOG a",
        "LOG a b",
        "AOF-FLUSH-SLEEP 0",
        "SET-SKIP-CHECKSUM-VALIDATION 0",
        "SET-SKIP-CHECKSUM-VALIDATION",
        "SET-DISABLE-DENY-SCRIPTS 0",
        "REPLICATE a b",
        "CHANGE-REPL-ID",
        "RELOAD BAD",
        "SET-ACTIVE-EXPIRE 0",
        "SET-ACTIVE-EXPIRE 1",
        "NOSUCH",
        "DIGEST-VALUE",
    ];
    beside_redis(&[], &|connect| {
        let mut found = Vec::new();
        for hello in ["", "HELLO 3"] {
            let requests: Vec<_> = kinds.iter().map(|kind| format!("DEBUG PROTOCOL {kind}")).collect();
            let mut requests: Vec<&str> = requests.iter().map(String::as_str).collect();
            if !hello.is_empty() {
                requests.insert(0, "CLIENT REPLY SKIP");
                requests.insert(1, hello);
            }
            found.push(transcript(&mut connect(), &encode_all(&requests)));
        }
        let mut c = connect();
        found.extend(lines.iter().map(|line| c.run(&format!("DEBUG {line}"))));
        found
    });
}

/// Data of all types, some of it with deadlines.
fn fill(c: &mut Client, rng: &mut Rng, count: usize) {
    for _ in 0..count {
        let key = format!("key:{}", rng.u32(..40));
        let text = |rng: &mut Rng| match rng.u8(..4) {
            0 => rng.i64(-200..100_000).to_string().into_bytes(),
            1 => (0..rng.usize(..200)).map(|_| rng.u8(..)).collect(),
            _ => format!("m{}", rng.u32(..30)).into_bytes(),
        };
        let score = |rng: &mut Rng| match rng.u8(..6) {
            0 => "inf".to_owned(),
            1 => "-0".to_owned(),
            2 => (rng.f64() * 1e18).to_string(),
            3 => rng.i64(..).to_string(),
            _ => (rng.f64() * 100.0 - 50.0).to_string(),
        };
        let (a, b) = (text(rng), text(rng));
        let command: Vec<Vec<u8>> = match rng.u8(..9) {
            0 => vec![b"SET".to_vec(), key.into(), a],
            1 => vec![b"RPUSH".to_vec(), key.into(), a, b],
            2 => vec![b"SADD".to_vec(), key.into(), a, b],
            3 => vec![b"ZADD".to_vec(), key.into(), score(rng).into(), a, score(rng).into(), b],
            4 => vec![b"HSET".to_vec(), key.into(), a, b],
            5 => vec![b"EXPIRE".to_vec(), key.into(), b"100000".to_vec()],
            6 => vec![b"SELECT".to_vec(), rng.u8(..4).to_string().into()],
            7 => vec![b"DEL".to_vec(), key.into()],
            _ => vec![b"APPEND".to_vec(), key.into(), a],
        };
        // Of a key of another type it is an error.
        c.try_run_words(&command).unwrap();
    }
}

#[test]
fn digests_are_those_of_redis() {
    let seed = stillframe_testkit::seed();
    beside_redis(&[], &|connect| {
        let (mut c, mut rng, mut found) = (connect(), Rng::with_seed(seed), Vec::new());
        found.push(c.run("DEBUG DIGEST"));
        for round in 0..12 {
            fill(&mut c, &mut rng, if round == 11 { 3000 } else { 60 });
            found.push(c.run("DEBUG DIGEST"));
            let keys: Vec<String> = (0..40).map(|number| format!("key:{number}")).collect();
            found.push(c.run(&format!("DEBUG DIGEST-VALUE {}", keys.join(" "))));
            found.push(c.run("DEBUG RELOAD"));
            found.push(c.run("DEBUG DIGEST"));
            // A large string, and large collections.
            c.run_bytes(&[b"SETRANGE", b"long", b"3000000", format!("{round}").as_bytes()]);
            let many: Vec<String> = (0..600).map(|number| format!("{number} m{number}")).collect();
            c.run(&format!("ZADD many {}", many.join(" ")));
            c.run(&format!("HSET fields {}", many.join(" ")));
            c.run(&format!("RPUSH items {}", many.join(" ")));
            found.push(c.run("DEBUG DIGEST-VALUE long many fields items none"));
        }
        found.push(c.run("FLUSHALL"));
        found.push(c.run("DEBUG DIGEST"));
        found
    });
}

/// The events of a command, and what it has added to some counters.
struct Watched {
    c: Client,
    info: Client,
    events: Client,
    counted: Vec<i64>,
}

const COUNTERS: [&str; 4] =
    ["keyspace_hits", "keyspace_misses", "expired_keys", "rdb_changes_since_last_save"];

impl Watched {
    fn new(connect: &mut dyn FnMut() -> Client) -> Watched {
        let (c, mut info, mut events) = (connect(), connect(), connect());
        info.ok("CONFIG SET notify-keyspace-events KEAmn");
        info.ok("DEBUG SET-ACTIVE-EXPIRE 0");
        events.run("PSUBSCRIBE __keyevent@*");
        let mut watched = Watched { c, info, events, counted: Vec::new() };
        watched.counted = watched.counters();
        watched
    }

    fn counters(&mut self) -> Vec<i64> {
        let fields = self.info.try_info("everything").unwrap();
        COUNTERS.iter().map(|name| fields[*name].parse().unwrap()).collect()
    }

    fn run(&mut self, command: &[Vec<u8>]) -> Reply {
        let mut seen = vec![self.c.try_run_words(command).unwrap()];
        let (counted, mut events) = (self.counters(), Vec::new());
        seen.extend(counted.iter().zip(&self.counted).map(|(now, before)| Reply::Int(now - before)));
        self.counted = counted;
        self.info.run("PUBLISH __keyevent@end x");
        loop {
            let message = self.events.read();
            let event = message.items()[2].text();
            if event == "__keyevent@end" {
                // With two workers a key that a read finds expired is removed after the read.
                events.sort_by_key(|(event, _): &(String, _)| event.ends_with(":keymiss"));
                seen.extend(events.into_iter().flat_map(|(event, key)| [Reply::Bulk(event.into()), key]));
                return Reply::Array(seen);
            }
            events.push((event, message.items()[3].clone()));
        }
    }
}

/// Of keys of any type.
const CALLS: [&str; 58] = [
    "SET k v EXAT 1",
    "SET k v PXAT 1000",
    "SET k v PXAT 1 GET",
    "SET k v NX PXAT 1",
    "SET k v XX EXAT 1",
    "SET k v KEEPTTL",
    "SET k v",
    "SET k v GET",
    "SET k v NX",
    "EXPIRE k -1",
    "EXPIRE k 0 NX",
    "EXPIRE k -1 GT",
    "PEXPIRE k -1 LT",
    "EXPIREAT k 1",
    "PEXPIREAT k 1 XX",
    "EXPIRE k 1000",
    "GETEX k EXAT 1",
    "GETEX k PXAT 1",
    "GETEX k PERSIST",
    "GETEX k",
    "GET k",
    "EXISTS k",
    "TTL k",
    "DEL k",
    "TYPE k",
    "PERSIST k",
    "APPEND k x",
    "INCR k",
    "SETRANGE k 0 q",
    "GETDEL k",
    "GETSET k 1",
    "STRLEN k",
    "BITFIELD k",
    "BITFIELD k GET u8 0",
    "BITFIELD_RO k",
    "BITCOUNT k",
    "LCS k a",
    "TOUCH k",
    "MGET k a",
    "LRANGE k 0 -1",
    "HGET k f",
    "SMEMBERS k",
    "ZRANGE k 0 -1",
    "RPUSH k x",
    "HSET k f v",
    "SADD k m",
    "ZADD k 1 m",
    "HDEL k f",
    "LPOP k",
    "SREM k m",
    "ZREM k m",
    "RENAME k a",
    "COPY k a",
    "COPY a k REPLACE",
    "SETEX k 100 v",
    "SETNX k v",
    "MSET k v a v",
    "UNLINK k",
];

#[test]
fn deadlines_in_the_past_have_the_events_and_counts_of_redis() {
    let keys = ["a", "b", "l", "h", "s", "z"];
    let seed = stillframe_testkit::seed();
    beside_redis(&[], &|connect| {
        let (mut rng, mut found) = (Rng::with_seed(seed), Vec::new());
        let mut watched = Watched::new(connect);
        let payload = {
            let mut c = connect();
            c.ok("SET payload x");
            let Reply::Bulk(payload) = c.run("DUMP payload") else { panic!("no payload") };
            c.run("DEL payload");
            payload
        };
        watched.counted = watched.counters();
        for _ in 0..600 {
            let key = keys[rng.usize(..keys.len())];
            let mut command: Vec<Vec<u8>> = words(CALLS[rng.usize(..CALLS.len())]);
            if rng.u8(..30) == 0 {
                command = words("RESTORE k 1 payload ABSTTL REPLACE");
                command[3] = payload.clone();
                command.truncate(5 + rng.usize(..2));
            }
            command.iter_mut().filter(|word| *word == b"k").for_each(|word| *word = key.into());
            println!("{}", String::from_utf8_lossy(&command.join(&b' ')));
            found.push(watched.run(&command));
        }
        found
    });
}

/// `RESTORE ... REPLACE` does not look the key up, so one that has expired is removed as any other.
#[test]
fn an_expired_key_that_a_payload_of_the_past_replaces_is_removed_as_by_redis() {
    beside_redis(&[], &|connect| {
        let mut watched = Watched::new(connect);
        watched.run(&words("SET k v"));
        let Reply::Bulk(payload) = watched.c.run("DUMP k") else { panic!("no payload") };
        watched.run(&words("PEXPIRE k 1"));
        std::thread::sleep(std::time::Duration::from_millis(10));
        let mut command = words("RESTORE k 1 payload ABSTTL REPLACE");
        command[3] = payload;
        watched.counted = watched.counters();
        vec![watched.run(&command), watched.run(&words("GET k"))]
    });
}

/// Names of the calls in the slow log, the newest first.
fn logged(c: &mut Client) -> Vec<String> {
    let log = c.run("SLOWLOG GET 20");
    let words = |entry: &Reply| entry.items()[3].items().iter().map(Reply::text).collect::<Vec<_>>();
    let lines = log.items().iter().map(words).map(|words| words.join(" "));
    // How often it is asked whether the other waits is not the same.
    lines.filter(|line| !line.starts_with("INFO")).collect()
}

#[test]
fn calls_that_wait_are_in_the_slow_log_once_they_are_answered() {
    beside_redis(&[], &|connect| {
        let (mut c, mut waiting, mut found) = (connect(), connect(), Vec::new());
        let mut note = |c: &mut Client| {
            found.extend(logged(c).into_iter().map(|line| Reply::Bulk(line.into_bytes())));
            let calls = c.info("cmdstat_blpop").split(',').next().unwrap_or_default().to_owned();
            found.push(Reply::Bulk(calls.into_bytes()));
            c.ok("SLOWLOG RESET");
        };
        c.ok("CONFIG SET slowlog-log-slower-than 0");
        note(&mut c);
        // Its time is over.
        waiting.run("BLPOP none 0.001");
        note(&mut c);
        waiting.send("BLPOP list 0");
        eventually("it waits", || c.info("blocked_clients") == "1");
        note(&mut c);
        c.run("RPUSH list x");
        waiting.read();
        note(&mut c);
        waiting.send("BZPOPMIN members 0");
        eventually("it waits", || c.info("blocked_clients") == "1");
        note(&mut c);
        c.ok("MULTI");
        c.run("ZADD members 1 a");
        c.run("EXEC");
        waiting.read();
        note(&mut c);
        c.run("RPUSH list x y");
        waiting.run("BLPOP list 0");
        note(&mut c);
        c.ok("CONFIG SET slowlog-log-slower-than -1");
        note(&mut c);
        found
    });
}

#[test]
fn fields_without_their_values_are_scanned() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    c.run("HSET h a 1 b 2 c 3");
    let found = |c: &mut Client, line: &str| -> BTreeSet<String> {
        let reply = c.run(line);
        assert_eq!(reply.items()[0].text(), "0", "{line}");
        reply.items()[1].items().iter().map(Reply::text).collect()
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(found(&mut c, "HSCAN h 0 NOVALUES"), set(&["a", "b", "c"]));
    assert_eq!(found(&mut c, "HSCAN h 0 MATCH [ab] novalues COUNT 100"), set(&["a", "b"]));
    assert_eq!(found(&mut c, "HSCAN h 0 NOVALUES COUNT 100 MATCH c"), set(&["c"]));
    assert_eq!(found(&mut c, "HSCAN h 0"), set(&["a", "b", "c", "1", "2", "3"]));
    for line in ["HSCAN h 0 NOVALUES COUNT", "HSCAN h 0 COUNT NOVALUES"] {
        assert!(c.run(line).is_error(), "{line}");
    }
    c.run("SADD s a");
    assert_eq!(c.run("SSCAN s 0 NOVALUES").text(), "ERR syntax error");
}

#[test]
fn what_has_expired_is_counted_at_once_and_until_it_is_reset() {
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--workers", workers, "--hz", "1"]);
        let mut c = server.connect();
        c.ok("DEBUG SET-ACTIVE-EXPIRE 0");
        c.run("HSET h a 1 b 2 c 3");
        c.run("HPEXPIRE h 1 FIELDS 2 a b");
        c.ok("SET k v PX 1");
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!((c.info("expired_subkeys"), c.info("expired_keys")), ("0".into(), "0".into()));
        c.run("GET k");
        c.run("HDEL h a b");
        assert_eq!((c.info("expired_subkeys"), c.info("expired_keys")), ("2".into(), "1".into()));
        c.ok("CONFIG RESETSTAT");
        // A round of the cron later it is so still.
        let rounds = c.info("uptime_in_seconds").parse::<u64>().unwrap();
        eventually("time goes by", || c.info("uptime_in_seconds").parse::<u64>().unwrap() > rounds + 1);
        assert_eq!((c.info("expired_subkeys"), c.info("expired_keys")), ("0".into(), "0".into()));
        c.run("HPEXPIRE h 0 FIELDS 1 c");
        assert_eq!(c.info("expired_subkeys"), "0", "it is removed, and has not expired");
    }
}

#[test]
fn hidden_delays_are_taken_and_shown_by_name_alone() {
    let server = TestServer::start(&["--save", "", "--key-load-delay", "5"]);
    let mut c = server.connect();
    assert_eq!(c.run("CONFIG GET key-load-delay").items()[1].text(), "5");
    assert_eq!(c.run("CONFIG GET *-load-delay").items().len(), 0);
    assert_eq!(c.run("CONFIG GET rdb-key-save-delay").items()[1].text(), "0");
    c.ok("DEBUG POPULATE 200");
    c.ok("CONFIG SET rdb-key-save-delay 1000000 key-load-delay -10");
    // It would take minutes; the end of the server does not wait for that.
    c.run("BGSAVE RDB");
    eventually("it saves", || c.info("current_save_keys_processed") != "0");
    assert_eq!(c.info("rdb_bgsave_in_progress"), "1");
    c.send("SHUTDOWN SAVE");
    assert!(c.read_to_end().is_empty());
}

fn failed_to_load(dump: &[u8]) -> String {
    let dir = temp_dir();
    std::fs::write(dir.join("dump.rdb"), dump).unwrap();
    let output = binary()
        .args(["--port", "0", "--unixsocket", "s", "--save", "", "--rdbchecksum", "no", "--dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_dump_that_names_a_key_twice_is_refused() {
    let string = b"\x00\x01k\x01v";
    let list = b"\x01\x01k\x01\x01x";
    let set = b"\x02\x01k\x01\x01y";
    for (first, second) in [(&string[..], &string[..]), (list, list), (string, list), (list, set)] {
        let dump = [b"REDIS0009\xfe\x00", first, second, b"\xff\0\0\0\0\0\0\0\0"].concat();
        let log = failed_to_load(&dump);
        assert!(log.contains("RDB has duplicated key 'k' in DB 0"), "{log}");
    }
}

#[test]
fn dumps_may_be_merged_into_what_there_is() {
    beside_redis(&[], &|connect| {
        let mut c = connect();
        let lines = [
            "SET a 1",
            "RPUSH l x y",
            "SAVE",
            "SET a 2",
            "SET b 3",
            "DEL l",
            "SET l string",
            "DEBUG RELOAD NOSAVE NOFLUSH MERGE",
            "GET a",
            "GET b",
            "LRANGE l 0 -1",
            "DEBUG RELOAD MERGE NOSAVE",
            "DBSIZE",
        ];
        // The first save is that of a page file here.
        replies(&mut c, &lines.map(|line| if line == "SAVE" { "!DEBUG RELOAD" } else { line }))
    });
}

#[test]
fn a_negative_zero_stays_as_it_was_written() {
    // A ziplist with the scores -0 and 1.
    let payload: &[u8] = b"\x0c\x17\x17\0\0\0\x14\0\0\0\x04\0\0\x01a\x03\x02-0\x04\x01b\x03\xf2\xff\t\0L\xd7)\x90\xc5\xed\xb4\xdd";
    beside_redis(&[], &|connect| {
        let mut c = connect();
        let mut found = vec![c.run_bytes(&[b"RESTORE", b"nz", b"0", payload])];
        let lines = [
            "ZSCORE nz a",
            "ZRANGE nz 0 -1 WITHSCORES",
            "OBJECT ENCODING nz",
            "DEBUG DIGEST-VALUE nz",
            "DUMP nz",
            "DEBUG RELOAD",
            "ZSCORE nz a",
            "COPY nz copy",
            "ZSCORE copy a",
            "ZADD nz 5 c",
            "ZSCORE nz a",
            "ZINCRBY nz 0 a",
            "ZADD nz -0.0 d",
            "ZSCORE nz d",
            "ZUNIONSTORE u 1 nz",
            "ZRANGE u 0 -1 WITHSCORES",
        ];
        found.extend(replies(&mut c, &lines));
        found
    });
}

#[test]
fn checksums_are_looked_at_unless_that_is_switched_off() {
    // The string `x` and a list of it; the checksums are wrong. The version of the last one is none.
    let payloads: [&[u8]; 4] = [
        b"\0\x01x\t\0\0\0\0\0\0\0\0\0",
        b"\x01\x01\x01x\t\0\0\0\0\0\0\0\0\0",
        b"\x01\x05\x01x\t\0\0\0\0\0\0\0\0\0",
        b"\0\x01x\xff\xff\0\0\0\0\0\0\0\0",
    ];
    beside_redis(&[], &|connect| {
        let (mut c, mut found) = (connect(), Vec::new());
        for is_off in ["0", "1", "0"] {
            c.ok(&format!("DEBUG SET-SKIP-CHECKSUM-VALIDATION {is_off}"));
            found.extend(payloads.map(|payload| c.run_bytes(&[b"RESTORE", b"k", b"0", payload, b"REPLACE"])));
            found.push(c.run("TYPE k"));
        }
        found
    });
}

#[test]
fn small_integers_are_shared_where_redis_shares_them() {
    let script = |connect: &mut dyn FnMut() -> Client| {
        let lines = [
            "!CONFIG SET maxmemory 1gb",
            "!CONFIG SET maxmemory-policy noeviction",
            "SET a 1",
            "OBJECT REFCOUNT a",
            "!CONFIG SET maxmemory-policy allkeys-lru",
            "SET a 1",
            "OBJECT REFCOUNT a",
            "!CONFIG SET maxmemory-policy volatile-lfu",
            "SET a 1",
            "OBJECT REFCOUNT a",
            "!CONFIG SET maxmemory-policy allkeys-random",
            "SET a 1",
            "OBJECT REFCOUNT a",
        ];
        replies(&mut connect(), &lines)
    };
    beside_redis(&[], &script);
}
