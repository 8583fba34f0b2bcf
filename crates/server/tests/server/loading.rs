//! While a dump is read at the start.

use std::collections::BTreeSet;

use rustix::process::Signal;
use stillframe_testkit::{Launch, Process};

use crate::dump::{dump_of, SlowDump};
use crate::harness::*;

const LOADING: &str = "LOADING Redis is loading the dataset in memory";

/// A server that has read half of a dump of `key_count` keys.
fn half_loaded(args: &[&str], key_count: u64) -> (TestServer, SlowDump) {
    let dir = temp_dir();
    SlowDump::place(&dir);
    let server = TestServer::start_owning(dir, args);
    let mut dump = SlowDump::open(&server.dir, dump_of(key_count, 100));
    dump.write_half();
    (server, dump)
}

/// A `redis-server` that takes long to load a dump.
struct SlowRedis {
    process: Process,
    _dir: TempDir,
}

impl SlowRedis {
    fn start() -> SlowRedis {
        let dir = temp_dir();
        std::fs::write(dir.join("dump.rdb"), dump_of(200_000, 10)).unwrap();
        // A tenth of a millisecond a key, so half a minute; it looks at its clients after each KB that it has read.
        let slow = ["--key-load-delay", "100", "--loading-process-events-interval-bytes", "1024"];
        let process = start_listening(&Launch::at_socket("redis-server", &dir).with(&slow));
        SlowRedis { process, _dir: dir }
    }

    fn connect(&self) -> Client {
        self.process.client()
    }
}

/// Commands that end the connection or the server, or hold it up.
const NOT_CALLED: [&str; 7] =
    ["shutdown", "quit", "monitor", "client|reply", "client|pause", "client|kill", "debug"];

/// A call of a command with as many arguments as it needs.
fn call_of(name: &str, arity: i64) -> String {
    let words: Vec<&str> = name.split('|').collect();
    let missing = (arity.unsigned_abs() as usize).saturating_sub(words.len());
    words.into_iter().chain(std::iter::repeat_n("x", missing)).collect::<Vec<_>>().join(" ")
}

/// Names and arities of all commands and subcommands.
fn commands_of(client: &mut Client) -> Vec<(String, i64)> {
    let mut commands = Vec::new();
    for row in client.run("COMMAND").items() {
        let fields = row.items();
        let subcommands = fields[9].items();
        for row in subcommands
            .iter()
            .map(Reply::items)
            .chain([fields].into_iter().filter(|_| subcommands.is_empty()))
        {
            commands.push((row[0].text(), row[1].text().parse().unwrap()));
        }
    }
    commands
}

/// Commands of later versions than the Redis beside.
const LATER: &[&str] = &[
    "backup",
    "client|no-touch",
    "client|setinfo",
    "hexpire",
    "hexpireat",
    "hexpiretime",
    "hgetdel",
    "hgetex",
    "hpersist",
    "hpexpire",
    "hpexpireat",
    "hpexpiretime",
    "hpttl",
    "hsetex",
    "httl",
    "waitaof",
];

#[test]
fn every_command_is_refused_or_not_as_in_redis() {
    let redis = SlowRedis::start();
    let (server, dump) = half_loaded(&[], 2_000);
    let names = commands_of(&mut server.connect());
    let (mut refused_count, mut served_count) = (0, 0);
    for (name, arity) in names.iter().filter(|(name, _)| !NOT_CALLED.contains(&name.as_str())) {
        let call = call_of(name, *arity);
        let (ours, theirs) = (server.connect().run(&call), redis.connect().run(&call));
        if theirs.text().starts_with("ERR unknown ") {
            assert!(LATER.contains(&name.as_str()), "{name}");
            continue;
        }
        let is_refused = theirs == Reply::Error(LOADING.into());
        assert_eq!(
            ours == Reply::Error(LOADING.into()),
            is_refused,
            "{call}: {ours:?}, Redis says {theirs:?}"
        );
        *(if is_refused { &mut refused_count } else { &mut served_count }) += 1;
    }
    assert_eq!(redis.connect().info("loading"), "1", "it has taken longer than the test");
    assert!(refused_count > 60 && served_count > 40, "{refused_count} refused, {served_count} served");
    drop(dump);
}

#[test]
fn refusals_come_in_the_order_of_redis() {
    let redis = SlowRedis::start();
    let (server, dump) = half_loaded(&[], 2_000);
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    for call in [
        "GET",
        "NOSUCH x",
        "CLIENT NOSUCH",
        "SET a 1",
        "PING",
        "MULTI",
        "GET a",
        "INCR",
        "EXEC",
        "EXEC",
        "WATCH a",
        "MULTI",
        "SELECT 1",
        "ECHO x",
        "EXEC",
        "SELECT 99",
        "CONFIG SET maxmemory 1",
        "SET a 1",
        "CONFIG SET maxmemory 0",
        "CONFIG SET requirepass secret",
        "AUTH wrong",
        "AUTH secret",
        "GET a",
    ] {
        assert_eq!(ours.run(call), theirs.run(call), "{call}");
    }
    assert_eq!(server.connect().run("GET a"), redis.connect().run("GET a"), "not authenticated");
    assert_eq!(theirs.info("loading"), "1", "it has taken longer than the test");
    drop(dump);
}

/// Names of the fields of `INFO persistence`.
fn persistence_fields(client: &mut Client) -> BTreeSet<String> {
    let text = client.run("INFO persistence").text();
    text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn info_has_the_fields_of_redis_while_it_loads() {
    let redis = SlowRedis::start();
    let (server, dump) = half_loaded(&[], 2_000);
    let mut c = server.connect();
    let mut fields = persistence_fields(&mut c);
    // What is known of the page file, which Redis has not.
    let own_fields = [
        "page_file_damaged_pages",
        "page_file_status",
        "damage_places_given_up",
        "damage_places_skipped",
        "scrub_pages",
        "scrub_bad_pages",
        "scrub_healed_pages",
    ];
    for own in own_fields {
        assert!(fields.remove(own), "{own}");
    }
    assert_eq!(fields, persistence_fields(&mut redis.connect()));
    let loaded_count = |c: &mut Client| c.info("rdb_last_load_keys_loaded").parse::<u64>().unwrap();
    // Half of the bytes; keys with higher numbers are longer.
    eventually("half is read", || (990..=1_010).contains(&loaded_count(&mut c)));
    assert_eq!((c.info("loading"), c.info("async_loading")), ("1".into(), "0".into()));
    assert_eq!(c.info("loading_rdb_used_mem"), "4720976");
    assert!(c.info("loading_loaded_bytes").parse::<u64>().unwrap() > 100_000);
    assert_eq!(c.info("loading_total_bytes"), "0", "a pipe has no length");
    let expected = format!("keys={},expires=0,avg_ttl=0", loaded_count(&mut c));
    assert_eq!(c.info("db0"), expected);
    assert!(!server.log().contains("Ready to accept connections"));
    dump.finish();
    c.wait_until_loaded();
    assert_eq!(c.run("DBSIZE"), Reply::Int(2_000));
    assert_eq!(c.info("loading_start_time"), "");
    assert_eq!(c.info("rdb_last_load_keys_loaded"), "2000");
    let log = server.log();
    assert!(log.contains("Done loading RDB, keys loaded: 2000, keys expired: 0."), "{log}");
    assert!(log.contains("Ready to accept connections"), "{log}");
}

#[test]
fn a_file_is_loaded_in_bounded_memory() {
    let dir = temp_dir();
    let dump = dump_of(300_000, 200);
    std::fs::write(dir.join("dump.rdb"), &dump).unwrap();
    let server = TestServer::start_in(&dir, &["--workers", "2"]);
    let mut c = server.connect();
    let mut last_bytes = 0;
    let mut seen_count = 0;
    loop {
        let text = c.run("INFO persistence").text();
        let field = |name: &str| -> Option<String> {
            text.lines().find_map(|l| l.strip_prefix(&format!("{name}:"))).map(str::to_owned)
        };
        if field("loading").unwrap() == "0" {
            break;
        }
        seen_count += 1;
        let number = |name: &str| field(name).unwrap().parse::<f64>().unwrap();
        if number("loading_total_bytes") == 0.0 {
            continue;
        }
        assert_eq!(number("loading_total_bytes"), dump.len() as f64);
        let loaded = number("loading_loaded_bytes");
        assert!(loaded >= last_bytes as f64 && loaded <= dump.len() as f64);
        last_bytes = loaded as u64;
        assert!((number("loading_loaded_perc") - loaded / dump.len() as f64 * 100.0).abs() < 0.01);
        assert!(number("loading_eta_seconds") >= 0.0);
    }
    assert!(seen_count > 3, "it was loaded before anybody could ask");
    assert_eq!(c.run("DBSIZE"), Reply::Int(300_000));
    let used = c.info("used_memory").parse::<u64>().unwrap();
    let beyond = server.peak_resident_bytes().saturating_sub(used);
    assert!(beyond < 48 << 20, "{beyond} bytes beyond the data, which has {used}");
}

#[test]
fn signals_and_shutdown_end_a_load_and_write_nothing() {
    for format in ["pages", "rdb"] {
        for way in ["SIGTERM", "SIGINT", "SHUTDOWN", "SHUTDOWN SAVE"] {
            let args = ["--save", "1", "1", "--snapshot-format", format];
            let (mut server, dump) = half_loaded(&args, 2_000);
            let page_file = std::fs::read(server.dir.join("stillframe.pages")).unwrap();
            match way {
                "SIGTERM" => server.signal(Signal::TERM),
                "SIGINT" => server.signal(Signal::INT),
                command => {
                    let mut c = server.connect();
                    c.send(command);
                    assert!(c.read_to_end().is_empty());
                }
            }
            // The rest of the dump never comes, as from a disk that hangs.
            assert_eq!(server.wait().code(), Some(0), "{way}");
            drop(dump);
            let log = server.log();
            if way.starts_with("SIG") {
                assert!(
                    log.contains("Received shutdown signal during loading, scheduling shutdown."),
                    "{log}"
                );
            }
            assert!(log.contains("bye bye") && !log.contains("Saving the final snapshot"), "{log}");
            let mut names: Vec<String> = std::fs::read_dir(&server.dir)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|name| name != "LOCK")
                .collect();
            names.sort();
            assert_eq!(names, ["dump.rdb", "stillframe.pages"], "{way}");
            assert_eq!(std::fs::read(server.dir.join("stillframe.pages")).unwrap(), page_file, "{way}");
        }
    }
}

#[test]
fn save_points_wait_until_all_is_there() {
    let (server, dump) = half_loaded(&["--save", "1", "1"], 2_000);
    std::thread::sleep(std::time::Duration::from_millis(2_300));
    assert_eq!(server.connect().info("rdb_saves"), "0");
    assert!(!server.log().contains("Saving..."), "{}", server.log());
    dump.finish();
    server.connect().wait_until_loaded();
}

#[test]
fn a_dump_that_breaks_off_ends_the_server() {
    let (mut server, dump) = half_loaded(&[], 2_000);
    assert_eq!(server.connect().run("GET key:1"), Reply::Error(LOADING.into()));
    drop(dump);
    assert_eq!(server.wait().code(), Some(1));
    let log = server.log();
    assert!(log.contains("Fatal error loading the DB") && log.contains("dump.rdb"), "{log}");
    assert!(!log.contains("bye bye") && !log.contains("Ready to accept"), "{log}");
}

#[test]
fn maxmemory_does_not_stop_a_load() {
    const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
    let (server, dump) = half_loaded(&["--maxmemory", "2mb", "--maxmemory-policy", "noeviction"], 50_000);
    let mut c = server.connect();
    c.ok("CONFIG SET maxmemory 1mb");
    assert_eq!(c.run("SET a 1"), Reply::Error(LOADING.into()), "not OOM");
    dump.finish();
    c.wait_until_loaded();
    assert_eq!(c.run("DBSIZE"), Reply::Int(50_000));
    assert!(c.info("used_memory").parse::<u64>().unwrap() > 5 << 20);
    assert_eq!(c.run("SET a 1"), Reply::Error(OOM.into()));
    assert_eq!(c.run("APPEND key:1 x"), Reply::Error(OOM.into()));
    assert_eq!(c.run("STRLEN key:1"), Reply::Int(100));
    assert_eq!(c.run("DEL key:1"), Reply::Int(1));
    assert_eq!(c.run("EXPIRE key:2 100"), Reply::Int(1));
    c.ok("CONFIG SET maxmemory 100mb");
    c.ok("SET a 1");
}

#[test]
fn a_dump_with_bytes_after_its_end_is_served() {
    let dir = temp_dir();
    std::fs::write(dir.join("dump.rdb"), [dump_of(10, 100).as_slice(), b"garbage"].concat()).unwrap();
    let server = TestServer::start_in(&dir, &[]);
    let mut c = server.connect();
    c.wait_until_loaded();
    assert_eq!(c.run("DBSIZE"), Reply::Int(10));
    assert!(server.log().contains("goes on after the end of the dump"), "{}", server.log());
}

#[test]
fn long_values_are_dumped_compressed() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    c.run(&format!("SETRANGE zeros {} x", (80 << 20) - 1));
    c.ok("CONFIG SET snapshot-format rdb");
    c.ok("SAVE");
    let len = std::fs::metadata(server.dir.join("dump.rdb")).unwrap().len();
    assert!(len < 1 << 20, "{len} bytes for 80 MB of zeros");
}
