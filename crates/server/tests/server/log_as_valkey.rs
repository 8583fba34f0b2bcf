//! What Valkey's own tests of `appendonly yes` look for (`aof*` and `aofrw`), asked of the log. What they say of the format, of files with a
//! manifest and of children has nothing here that it could be asked of; `waitaof` has the part on `WAITAOF`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::process::{prlimit, Resource, Rlimit, Signal};
use stillframe_testkit::Ready;

use crate::harness::*;

pub const ALWAYS: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

pub fn serving(mut server: TestServer) -> TestServer {
    server.wait_until(Ready::Serving);
    server
}

pub fn start(args: &[&str]) -> TestServer {
    serving(TestServer::start(args))
}

/// What a start finds after `kill -9`.
pub fn killed(server: TestServer, args: &[&str]) -> TestServer {
    serving(server.restarted(Signal::KILL, args))
}

fn end(mut server: TestServer) {
    server.signal(Signal::KILL);
    server.wait();
}

pub fn run_all(c: &mut Client, lines: &[&str]) {
    for line in lines {
        let reply = c.run(line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }
}

pub fn number(c: &mut Client, field: &str) -> i64 {
    let text = c.info(field);
    text.parse().unwrap_or_else(|_| panic!("{field} is {text:?}"))
}

pub fn wait_for_status(c: &mut Client, status: &str) {
    eventually(&format!("the log is {status}"), || c.info("log_status") == status);
}

pub fn wait_for_saves(c: &mut Client) {
    eventually("no save is in the way", || c.info("rdb_bgsave_in_progress") == "0");
}

/// A rewrite that succeeds.
pub fn rewrite(c: &mut Client) {
    wait_for_saves(c);
    let before = number(c, "rdb_saves");
    run_all(c, &["BGREWRITEAOF"]);
    eventually("it is rewritten", || number(c, "rdb_saves") > before);
}

/// Fails unless a start would find what is in memory.
pub fn check_log(c: &mut Client) {
    eventually("no save is in the way", || {
        let reply = c.run("DEBUG LOADAOF");
        assert!(!reply.is_error() || reply.text().contains("already in progress"), "{reply:?}");
        !reply.is_error()
    });
}

/// What `WAITAOF` answers where there are no replicas.
pub fn waited(is_durable: bool) -> Reply {
    Reply::Array(vec![Reply::Int(i64::from(is_durable)), Reply::Int(0)])
}

#[test]
fn elements_that_were_popped_stay_popped() {
    let server = start(&ALWAYS);
    let (mut c, mut other) = (server.connect(), server.connect());
    for (kind, add) in [("l", "RPUSH l:"), ("z", "ZADD z:")] {
        let members = |count: usize| {
            let names =
                (1..=count).map(|n| if kind == "l" { format!(" m{n}") } else { format!(" {n} m{n}") });
            names.collect::<String>()
        };
        let (pop, first, last) =
            if kind == "l" { ("LMPOP", "LEFT", "RIGHT") } else { ("ZMPOP", "MIN", "MAX") };
        let lines = [
            format!("{add}1{}", members(3)),
            format!("{add}2{}", members(3)),
            format!("{add}3{}", members(5)),
            format!("{pop} 1 {kind}:1 {first} COUNT 1"),
            format!("B{pop} 0 1 {kind}:1 {first} COUNT 10"),
            format!("B{pop} 0 2 {kind}:1 {kind}:2 {last} COUNT 10"),
            format!("{pop} 2 {kind}:1 {kind}:2 {last} COUNT 2"),
        ];
        lines.iter().for_each(|line| run_all(&mut c, &[line]));
        // One that waits takes two of three elements, and another client the third.
        other.send(&format!("B{pop} 0 2 {kind}:1 {kind}:2 {first} COUNT 2"));
        eventually("it waits", || c.info("blocked_clients") == "1");
        run_all(&mut c, &[&format!("{add}2{}", members(3))]);
        assert_eq!(other.read().items()[0].text(), format!("{kind}:2"));
        run_all(&mut c, &[&format!("B{pop} 0 3 {kind}:1 {kind}:2 {kind}:3 {first} COUNT 1")]);
        run_all(&mut c, &[&format!("B{pop} 0 3 {kind}:1 {kind}:2 {kind}:3 {last} COUNT 3")]);
    }
    run_all(&mut c, &["SADD set a b c d e f g h", "SPOP set", "SPOP set 3", "SADD all a b", "SPOP all 2"]);
    let digest = c.run("DEBUG DIGEST");
    let server = killed(server, &ALWAYS);
    let mut c = server.connect();
    assert_eq!(c.run("EXISTS l:1 l:2 z:1 z:2 all"), Reply::Int(0));
    assert_eq!((c.run("LLEN l:3"), c.run("ZCARD z:3")), (Reply::Int(2), Reply::Int(2)));
    assert_eq!(c.run("SCARD set"), Reply::Int(4));
    assert_eq!(c.run("DEBUG DIGEST"), digest, "it is the same elements that were taken at random");
}

fn unix_ms() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later than 1970").as_millis()
}

/// Deadlines that are over when they are given, and one that passes while there is no server.
#[test]
fn what_has_expired_is_gone_after_a_start_and_what_followed_it_is_there() {
    let dir = temp_dir();
    let start = || serving(TestServer::start_in(&dir, &ALWAYS));
    let server = start();
    let mut c = server.connect();
    run_all(&mut c, &["RPUSH list old", "PEXPIREAT list 1000", "RPUSH list new", "SET x 10", "EXPIRE x -1"]);
    let deadline_ms = unix_ms() + 300;
    run_all(&mut c, &["RPUSH passing old", &format!("PEXPIREAT passing {deadline_ms}")]);
    assert_eq!(c.run("EXISTS x list"), Reply::Int(1));
    end(server);
    eventually("the deadline has passed", || unix_ms() > deadline_ms);
    let server = start();
    let mut c = server.connect();
    assert_eq!(c.run("EXISTS x"), Reply::Int(0));
    assert_eq!((c.run("LPOP list").text(), c.run("EXISTS list")), ("new".into(), Reply::Int(0)));
    assert_eq!(c.run("RPUSH passing new"), Reply::Int(1), "the old element has gone with the key");
    end(server);
    let server = start();
    let mut c = server.connect();
    assert_eq!((c.run("LLEN passing"), c.run("TTL passing")), (Reply::Int(1), Reply::Int(-1)));
    assert_eq!(c.run("DBSIZE"), Reply::Int(1));
}

#[test]
fn what_changes_nothing_is_not_in_the_log() {
    let server = start(&ALWAYS);
    let mut c = server.connect();
    run_all(&mut c, &["SET k v", "SET later v EX 1000", "SADD set a", "HSET hash f v"]);
    let mut end = number(&mut c, "log_end_offset");
    let nothing = ["GETEX k", "GETEX k PERSIST", "SET k w NX", "DEL none", "EXPIRE none 100", "PERSIST k"];
    let more = ["SADD set a", "SREM set b", "HDEL hash g", "SPOP none 2", "GETDEL none", "LPOP none"];
    for line in nothing.iter().chain(&more) {
        run_all(&mut c, &[line]);
        assert_eq!(number(&mut c, "log_end_offset"), end, "{line}");
    }
    for line in ["GETEX k EX 1000", "GETEX later PERSIST", "SPOP set", "GETDEL k"] {
        run_all(&mut c, &[line]);
        let before = std::mem::replace(&mut end, number(&mut c, "log_end_offset"));
        assert!(end > before, "{line} is not in the log");
    }
    let server = killed(server, &ALWAYS);
    let mut c = server.connect();
    assert_eq!((c.run("DBSIZE"), c.run("TTL later")), (Reply::Int(2), Reply::Int(-1)));
}

#[test]
fn databases_that_were_emptied_are_empty_after_a_start() {
    let server = start(&ALWAYS);
    let mut c = server.connect();
    // A checkpoint has what is emptied then.
    run_all(&mut c, &["SET key value", "SELECT 3", "SET key value"]);
    rewrite(&mut c);
    run_all(&mut c, &["FLUSHDB", "FLUSHDB", "SET key value2", "FLUSHDB", "SELECT 0"]);
    let server = killed(server, &ALWAYS);
    let mut c = server.connect();
    assert_eq!(c.run("GET key").text(), "value", "another database has been emptied");
    run_all(&mut c, &["SELECT 3"]);
    assert_eq!(c.run("DBSIZE"), Reply::Int(0));
    run_all(&mut c, &["SET key value", "FLUSHALL", "SET key value2", "FLUSHALL", "FLUSHALL", "SET last 1"]);
    let server = killed(server, &ALWAYS);
    let mut c = server.connect();
    assert_eq!(c.run("DBSIZE"), Reply::Int(0));
    run_all(&mut c, &["SELECT 3"]);
    assert_eq!((c.run("DBSIZE"), c.run("GET last").text()), (Reply::Int(1), "1".into()));
}

/// A collection of each type, small and large, of texts and of numbers.
fn fill_with_collections(c: &mut Client) -> Vec<String> {
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let mut keys = Vec::new();
    for command in ["LPUSH", "SADD", "HSET", "ZADD"] {
        for (is_text, count) in [(true, 10), (false, 10), (true, 1_000), (false, 1_000)] {
            let key = format!("{command}:{}:{count}", if is_text { "text" } else { "number" });
            let mut words = vec![command.to_owned(), key.clone()];
            for _ in 0..count {
                let element = match is_text {
                    true => (0..rng.usize(1..16)).map(|_| rng.alphabetic()).collect(),
                    false => rng.u32(..4_000_000_000).to_string(),
                };
                match command {
                    "HSET" => words.push(element.clone()),
                    "ZADD" => words.push(rng.f64().to_string()),
                    _ => {}
                }
                words.push(element);
            }
            assert!(!c.try_run_words(&words).expect("a reply").is_error(), "{key}");
            keys.push(key);
        }
    }
    keys
}

#[test]
fn collections_of_each_encoding_are_the_same_from_a_rewrite_and_from_the_log() {
    let server = start(&ALWAYS);
    let mut c = server.connect();
    let keys = fill_with_collections(&mut c);
    let encodings = |c: &mut Client| -> Vec<String> {
        keys.iter().map(|key| c.run(&format!("OBJECT ENCODING {key}")).text()).collect()
    };
    let (digest, encoded) = (c.run("DEBUG DIGEST"), encodings(&mut c));
    for encoding in ["quicklist", "intset", "hashtable", "skiplist", "listpack"] {
        assert!(encoded.iter().any(|found| found == encoding), "{encoding}: {encoded:?}");
    }
    check_log(&mut c);
    let server = killed(server, &ALWAYS);
    let mut c = server.connect();
    assert_eq!((c.run("DEBUG DIGEST"), encodings(&mut c)), (digest.clone(), encoded.clone()), "by the log");
    rewrite(&mut c);
    assert_eq!(c.info("log_replay_bytes"), "0");
    check_log(&mut c);
    let server = killed(server, &ALWAYS);
    let mut c = server.connect();
    assert_eq!((c.run("DEBUG DIGEST"), encodings(&mut c)), (digest, encoded), "by the checkpoint");
}

/// Of a client beside rewrites.
const COUNTS: usize = 3_000;

#[test]
fn rewrites_beside_writes_lose_nothing_and_double_nothing() {
    for workers in ["1", "2"] {
        let args = ["--appendonly", "yes", "--workers", workers];
        let server = start(&args);
        let mut c = server.connect();
        let mut rewrite_count = 0;
        std::thread::scope(|scope| {
            let writers: [_; 4] = std::array::from_fn(|writer| {
                let mut client = server.connect();
                scope.spawn(move || {
                    for number in 0..COUNTS {
                        client.queue_line("INCR count");
                        client.queue_line(&format!("RPUSH list:{writer} {number}"));
                        client.flush().expect("a connection");
                        (0..2).for_each(|_| assert!(!client.read().is_error()));
                    }
                })
            });
            eventually("they write", || !c.run("GET count").is_null());
            while writers.iter().any(|writer| !writer.is_finished()) {
                rewrite(&mut c);
                rewrite_count += 1;
            }
        });
        assert!(rewrite_count > 0);
        let total = (4 * COUNTS).to_string();
        assert_eq!(c.run("GET count").text(), total);
        check_log(&mut c);
        let digest = c.run("DEBUG DIGEST");
        assert_eq!(c.run("WAITAOF 1 0 0"), waited(true));
        let server = killed(server, &args);
        let mut c = server.connect();
        assert_eq!(c.run("GET count").text(), total, "{workers} workers, {rewrite_count} rewrites");
        assert_eq!(c.run("DEBUG DIGEST"), digest);
    }
}

/// Has a dump written that takes a while.
pub fn begin_slow_save(c: &mut Client) {
    run_all(c, &["DEBUG POPULATE 100", "CONFIG SET rdb-key-save-delay 10000", "BGSAVE RDB"]);
    assert_eq!(c.info("rdb_bgsave_in_progress"), "1");
}

#[test]
fn a_rewrite_waits_for_a_save_and_a_second_one_is_refused() {
    let server = start(&ALWAYS);
    let mut c = server.connect();
    let before = number(&mut c, "aof_rewrites");
    begin_slow_save(&mut c);
    assert_eq!(c.run("BGREWRITEAOF").text(), "Background append only file rewriting scheduled");
    assert_eq!((c.info("aof_rewrite_scheduled"), number(&mut c, "aof_rewrites")), ("1".into(), before));
    eventually("it is rewritten", || number(&mut c, "aof_rewrites") == before + 1);
    assert_eq!(c.info("aof_rewrite_scheduled"), "0");
    // No checkpoint is taken inside of a transaction.
    run_all(&mut c, &["MULTI", "BGREWRITEAOF", "BGREWRITEAOF"]);
    let replies = c.run("EXEC");
    assert_eq!(replies.items()[0].text(), "Background append only file rewriting started");
    assert!(replies.items()[1].text().starts_with("ERR Background append only file rewriting already"));
    eventually("it is rewritten", || number(&mut c, "aof_rewrites") == before + 2);
    // Without a log it is a checkpoint, and makes none.
    run_all(&mut c, &["CONFIG SET appendonly no"]);
    wait_for_status(&mut c, "off");
    run_all(&mut c, &["SET k v"]);
    rewrite(&mut c);
    assert_eq!(c.info("log_status"), "off");
    assert_eq!(fs::read_dir(server.dir.join("log")).map_or(0, Iterator::count), 0, "files of the log");
    let server = killed(server, &["--appendonly", "no"]);
    assert_eq!(server.connect().run("GET k").text(), "v");
}

fn limit_files(server: &TestServer, limit_bytes: Option<u64>) {
    let limit = Rlimit { current: limit_bytes, maximum: None };
    prlimit(Some(server.process()), Resource::Fsize, limit).expect("a limit");
}

/// More than a file of the log has, so that a limit stops the page file alone.
const BIG_BYTES: usize = 72 << 20;
const TOUCHED_BYTES: usize = 8 << 20;

/// Changes many pages of a value: little for the log, and much for a checkpoint.
fn touch_pages(c: &mut Client, mark: &str) {
    let offsets: Vec<usize> = (0..TOUCHED_BYTES).step_by(2_000).collect();
    for offsets in offsets.chunks(100) {
        offsets.iter().for_each(|offset| c.queue_line(&format!("SETRANGE big {offset} {mark}")));
        c.flush().expect("a connection");
        offsets.iter().for_each(|_| assert_eq!(c.read(), Reply::Int(BIG_BYTES as i64)));
    }
}

#[test]
fn rewrites_that_fail_leave_the_log_whole_and_the_next_one_is_not_put_off() {
    for is_mended in [false, true] {
        let server = start(&[]);
        let mut c = server.connect();
        let mut big = vec![0; BIG_BYTES];
        fastrand::fill(&mut big);
        assert_eq!(c.run_bytes(&[b"SET", b"big", &big]), Reply::ok());
        run_all(&mut c, &["SAVE", "CONFIG SET appendonly yes appendfsync always"]);
        wait_for_status(&mut c, "on");
        let page_file = fs::metadata(server.dir.join("stillframe.pages")).expect("the page file");
        limit_files(&server, Some(page_file.len()));
        for round in 1..=3 {
            touch_pages(&mut c, &format!("round{round}"));
            wait_for_saves(&mut c);
            run_all(&mut c, &["BGREWRITEAOF"]);
            eventually("it fails", || number(&mut c, "aof_rewrites_consecutive_failures") == round);
        }
        assert_eq!(c.info("aof_last_bgrewrite_status"), "err");
        assert_eq!((c.info("aof_last_write_status"), c.info("log_status")), ("ok".into(), "on".into()));
        limit_files(&server, None);
        if is_mended {
            rewrite(&mut c);
            assert_eq!(c.info("aof_rewrites_consecutive_failures"), "0");
            assert_eq!(c.info("aof_last_bgrewrite_status"), "ok");
        }
        run_all(&mut c, &["SET last 1"]);
        check_log(&mut c);
        let digest = c.run("DEBUG DIGEST");
        let server = killed(server, &ALWAYS);
        assert_eq!(server.connect().run("DEBUG DIGEST"), digest, "mended: {is_mended}");
    }
}

#[test]
fn a_log_is_switched_inside_of_transactions() {
    let server = start(&[]);
    let mut c = server.connect();
    for (round, (first, last)) in
        [("yes", "no"), ("no", "yes"), ("yes", "no"), ("no", "yes")].into_iter().enumerate()
    {
        let (before, behind) = (format!("SET before {round}"), format!("SET behind {round}"));
        let (first, last) =
            (format!("CONFIG SET appendonly {first}"), format!("CONFIG SET appendonly {last}"));
        run_all(&mut c, &["MULTI", &before, &first, &last, &behind]);
        let replies = c.run("EXEC");
        assert!(replies.items().iter().all(|reply| *reply == Reply::ok()), "{replies:?}");
        if round % 2 == 1 {
            wait_for_status(&mut c, "on");
            assert_eq!(c.run("WAITAOF 1 0 0"), waited(true));
            check_log(&mut c);
        }
    }
    let server = killed(server, &ALWAYS);
    let mut c = server.connect();
    assert_eq!((c.run("GET before").text(), c.run("GET behind").text()), ("3".into(), "3".into()));
}

fn refused(dir: &Path, args: &[&str]) -> String {
    let output = binary().args(["--port", "0", "--unixsocket", "s", "--dir"]).arg(dir).args(args).output();
    let output = output.expect("the program");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
}

#[test]
fn a_start_takes_an_empty_log_and_names_files_of_redis_as_they_are_called() {
    let dir = temp_dir();
    let names = ["--appendfilename", " my file.aof ", "--appenddirname", "my dir"];
    let args = [&ALWAYS[..], &names].concat();
    fs::create_dir(dir.join("log")).expect("a directory");
    for name in [" my file.aof ", "my dir"] {
        fs::write(dir.join(name), "").expect("a file");
        let text = refused(&dir, &args);
        assert!(text.contains(name) && text.contains("append-only file of Redis"), "{text}");
        fs::remove_file(dir.join(name)).expect("the file");
    }
    // What has another name is not meant.
    fs::write(dir.join("appendonly.aof"), "").expect("a file");
    let server = serving(TestServer::start_owning(dir, &args));
    server.connect().ok("SET k v");
    let server = killed(server, &args);
    assert_eq!(server.connect().run("GET k").text(), "v");
}

/// Files of the log that have blocks, in their order.
fn used_files(dir: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(dir.join("log")).expect("the log").map(|entry| entry.expect("an entry").path());
    let has_block = |path: &PathBuf| {
        let bytes = fs::read(path).expect("a file");
        bytes.get(4096..).is_some_and(|blocks| blocks.starts_with(b"STILLBLK"))
    };
    let mut files: Vec<PathBuf> = entries.filter(has_block).collect();
    files.sort();
    files
}

/// Each start begins a file.
#[test]
fn a_file_of_the_log_that_is_missing_is_told_and_names_do_not_matter() {
    let dir = temp_dir();
    for round in 1..=3 {
        let server = serving(TestServer::start_in(&dir, &ALWAYS));
        let mut c = server.connect();
        assert_eq!((c.run("RPUSH list x"), number(&mut c, "log_segments")), (Reply::Int(round), round));
        end(server);
    }
    let (files, aside) = (used_files(&dir), dir.join("aside"));
    assert_eq!(files.len(), 3);
    for file in &files[..2] {
        fs::rename(file, &aside).expect("a file");
        let text = refused(&dir, &ALWAYS);
        assert!(text.contains("the log is damaged") && text.contains("is missing"), "{text}");
        fs::rename(&aside, file).expect("the file");
    }
    // What a file is says its head.
    for (from, to) in [(&files[1], &aside), (&files[2], &files[1]), (&aside, &files[2])] {
        fs::rename(from, to).expect("a file");
    }
    let server = serving(TestServer::start_in(&dir, &ALWAYS));
    let mut c = server.connect();
    assert_eq!(c.run("LLEN list"), Reply::Int(3));
    // The log reaches back to the checkpoint before the newest, and no further.
    for expected in [4, 1] {
        rewrite(&mut c);
        eventually("files are let go", || number(&mut c, "log_segments") == expected);
    }
    let server = killed(server, &ALWAYS);
    assert_eq!(server.connect().run("LLEN list"), Reply::Int(3));
}
