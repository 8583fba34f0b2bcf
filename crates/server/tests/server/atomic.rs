//! Nobody sees between two operations of a command or transaction: other clients, a save, a crash.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

use crate::harness::*;

fn kill_and_start(server: TestServer, args: &[&str]) -> TestServer {
    server.restarted(Signal::KILL, args)
}

fn wait_for_save(c: &mut Client) {
    eventually("it is saved", || c.info("rdb_bgsave_in_progress") == "0");
}

#[test]
fn an_emptied_database_is_not_seen_in_a_transaction() {
    let server = TestServer::start(&["--workers", "4"]);
    server.connect().ok("SET a 0");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            let (mut c, stop) = (server.connect(), &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(c.run("DBSIZE"), Reply::Int(1));
                    assert_eq!(c.run("EXISTS a"), Reply::Int(1));
                    assert_eq!(c.run("RANDOMKEY").text(), "a");
                    assert_eq!(c.run("KEYS *").items().len(), 1);
                    assert_eq!(c.run("SCAN 0").items()[1].items().len(), 1);
                }
            });
        }
        let mut c = server.connect();
        for number in 0..400 {
            c.ok("MULTI");
            for line in ["FLUSHDB".to_owned(), format!("SET a {number}"), "SET b 1".into(), "DEL b".into()] {
                assert_eq!(c.run(&line).text(), "QUEUED");
            }
            assert_eq!(c.run("EXEC").items().len(), 4);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn what_is_asked_for_after_the_reply_is_not_in_the_save() {
    for command in ["BGSAVE", "BGSAVE SCHEDULE", "BGSAVE RDB"] {
        let mut server = TestServer::start(&[]);
        for round in 0..6 {
            let mut c = server.connect();
            c.ok(&format!("SET round {round}"));
            c.send(command);
            c.send("FLUSHDB");
            assert_eq!(c.read().text(), "Background saving started");
            assert_eq!(c.read(), Reply::ok());
            wait_for_save(&mut c);
            server = kill_and_start(server, &[]);
            let mut c = server.connect();
            c.wait_until_loaded();
            assert_eq!(c.run("GET round").text(), round.to_string(), "{command}");
        }
    }
}

#[test]
fn a_save_in_a_transaction_is_of_the_whole_of_it() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    let exec = |c: &mut Client, lines: &[&str]| -> Vec<String> {
        [&["MULTI"], lines].concat().iter().for_each(|line| drop(c.run(line)));
        c.run("EXEC").items().iter().map(Reply::text).collect()
    };
    // The words of Redis.
    let both = exec(&mut c, &["BGSAVE", "BGSAVE"]);
    assert_eq!(both, ["Background saving scheduled", "Background saving scheduled"]);
    eventually("both are saved", || c.info("rdb_saves") == "2");
    let texts = exec(&mut c, &["SET a 1", "BGSAVE", "SET a 2"]);
    assert_eq!(texts, ["OK", "Background saving scheduled", "OK"]);
    c.ok("SET a 3");
    wait_for_save(&mut c);
    let server = kill_and_start(server, &[]);
    assert_eq!(server.connect().run("GET a").text(), "2");
}

/// `FLUSHALL` saves, as save points are set; the save that is asked for after it comes after that one.
#[test]
fn a_save_in_a_transaction_waits_for_that_of_flushall() {
    let args = ["--save", "3600", "1000000"];
    let server = TestServer::start(&args);
    let mut c = server.connect();
    c.ok("SET a 1");
    for line in ["MULTI", "FLUSHALL", "BGSAVE", "SET b 1"] {
        c.run(line);
    }
    let replies = c.run("EXEC");
    let texts: Vec<_> = replies.items().iter().map(Reply::text).collect();
    assert_eq!(texts, ["OK", "Background saving scheduled", "OK"]);
    eventually("both are saved", || c.info("rdb_saves") == "2");
    let server = kill_and_start(server, &args);
    assert_eq!(server.connect().run("KEYS *"), Reply::Array(vec![Reply::Bulk(b"b".to_vec())]));
}

#[test]
fn flushall_is_kept() {
    let args = ["--save", "3600", "1000000"];
    let server = TestServer::start(&args);
    let mut c = server.connect();
    c.ok("SET a 1");
    c.ok("SAVE");
    c.ok("SET b 1");
    c.ok("FLUSHALL");
    assert_eq!(c.info("rdb_changes_since_last_save"), "0");
    let server = kill_and_start(server, &args);
    let mut c = server.connect();
    assert_eq!(c.run("DBSIZE"), Reply::Int(0));
    for line in ["MULTI", "SET a 1", "FLUSHALL", "SET b 1"] {
        c.run(line);
    }
    assert_eq!(c.run("EXEC"), Reply::Array(vec![Reply::ok(), Reply::ok(), Reply::ok()]));
    let server = kill_and_start(server, &args);
    assert_eq!(server.connect().run("KEYS *"), Reply::Array(vec![Reply::Bulk(b"b".to_vec())]));
}

#[test]
fn what_was_admitted_is_not_stopped_by_maxmemory() {
    let server = TestServer::start(&["--maxmemory", "3mb", "--maxmemory-policy", "noeviction"]);
    let mut c = server.connect();
    c.ok("MULTI");
    let value = "v".repeat(100_000);
    for number in 0..100 {
        c.run(&format!("SET key:{number} {value}"));
    }
    assert!(c.run("EXEC").items().iter().all(|reply| *reply == Reply::ok()));
    assert!(c.run("SET one more").text().starts_with("OOM "));
    assert_eq!(c.run("EXPIRE key:1 100"), Reply::Int(1));
}

#[test]
fn nothing_expires_during_a_pause() {
    let server = TestServer::start(&["--workers", "2"]);
    let mut c = server.connect();
    c.ok("SET a 1 PX 400");
    c.ok("SET b 1 PX 400");
    c.ok("CLIENT PAUSE 100000 WRITE");
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert_eq!(c.run("GET a"), Reply::NullBulk);
    assert_eq!(c.info("expired_keys"), "0");
    assert_eq!(c.run("DBSIZE"), Reply::Int(2));
    c.ok("CLIENT UNPAUSE");
    eventually("they are gone", || c.info("expired_keys") == "2");
}

#[test]
fn a_reload_is_one_step_with_several_workers() {
    let server = TestServer::start(&["--workers", "3"]);
    let mut c = server.connect();
    c.ok("DEBUG POPULATE 2000");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (mut other, stop) = (server.connect(), &stop);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(other.run("DBSIZE"), Reply::Int(2000));
            }
        });
        (0..5).for_each(|_| c.ok("DEBUG RELOAD"));
        stop.store(true, Ordering::Relaxed);
    });
}

/// Whether a reply is that of one moment.
type IsRight<'a> = &'a (dyn Fn(&Reply) -> bool + Sync);

/// With several workers a command that reads one key in several operations has it locked.
#[test]
fn a_read_of_one_key_sees_no_change_between_its_operations() {
    const MEMBER_COUNT: usize = 1500;
    let server = TestServer::start(&["--workers", "4"]);
    let mut c = server.connect();
    for name in ["a", "b"] {
        let members: String = (0..MEMBER_COUNT).map(|number| format!(" {name}:{number}")).collect();
        assert_eq!(c.run(&format!("SADD {name}{members}")), Reply::Int(MEMBER_COUNT as i64));
    }
    for line in ["COPY a s", "RPUSH list 3 1 2", "SADD set 3 1 2", "COPY list either"] {
        assert!(matches!(c.run(line), Reply::Int(1..)), "{line}");
    }
    let all_alike = |reply: &Reply| {
        let first = reply.items()[0].text().as_bytes()[0];
        let is_alike = |member: &Reply| member.text().as_bytes()[0] == first;
        reply.items().len() == MEMBER_COUNT && reply.items().iter().all(is_alike)
    };
    let all_counted = |reply: &Reply| *reply == Reply::Int(MEMBER_COUNT as i64);
    let all_drawn = |reply: &Reply| matches!(reply.items().len(), 0 | 3);
    let all_sorted = |reply: &Reply| reply.items().iter().map(Reply::text).eq(["1", "2", "3"]);
    let reads: [(&str, IsRight<'_>); 8] = [
        ("SUNION s", &all_alike),
        ("SDIFF s", &all_alike),
        ("SINTER s", &all_alike),
        ("SINTERCARD 1 s", &all_counted),
        ("SORT_RO either", &all_sorted),
        ("ZUNION 1 set-or-none", &all_drawn),
        ("SRANDMEMBER set-or-none -3", &all_drawn),
        ("HRANDFIELD hash-or-none -3", &all_drawn),
    ];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (line, is_right) in reads {
            let (mut c, stop) = (server.connect(), &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let reply = c.run(line);
                    assert!(is_right(&reply), "{line}: {reply:?}");
                }
            });
        }
        for _ in 0..40 {
            let mut lines = vec!["COPY b s REPLACE", "COPY a s REPLACE"];
            for _ in 0..20 {
                lines.extend(["COPY set either REPLACE", "COPY list either REPLACE"]);
                lines.extend([
                    "SADD set-or-none 1 2 3",
                    "HSET hash-or-none f v",
                    "DEL set-or-none hash-or-none",
                ]);
            }
            lines.iter().for_each(|line| c.send(line));
            lines.iter().for_each(|line| assert!(matches!(c.read(), Reply::Int(1..)), "{line}"));
        }
        stop.store(true, Ordering::Relaxed);
    });
}
