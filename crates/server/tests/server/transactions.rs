//! `MULTI` and `WATCH`, within a connection, across connections and across workers.

use crate::harness::*;

fn queued(client: &mut Client, line: &str) {
    assert_eq!(client.run(line).text(), "QUEUED", "{line}");
}

#[test]
fn errors_in_a_transaction_are_those_of_redis() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    assert_eq!(c.run("EXEC").text(), "ERR EXEC without MULTI");
    assert_eq!(c.run("DISCARD").text(), "ERR DISCARD without MULTI");
    c.ok("MULTI");
    assert_eq!(c.run("MULTI").text(), "ERR MULTI calls can not be nested");
    assert_eq!(c.run("WATCH a").text(), "ERR WATCH inside MULTI is not allowed");
    queued(&mut c, "SET a x");
    queued(&mut c, "INCR a");
    queued(&mut c, "GET a");
    let replies = c.run("EXEC");
    assert_eq!(replies.items()[0], Reply::ok());
    assert_eq!(replies.items()[1].text(), "ERR value is not an integer or out of range");
    assert_eq!(replies.items()[2].text(), "x");
    c.ok("MULTI");
    assert_eq!(c.run("SET a").text(), "ERR wrong number of arguments for 'set' command");
    queued(&mut c, "SET a y");
    assert_eq!(c.run("EXEC").text(), "EXECABORT Transaction discarded because of previous errors.");
    assert_eq!(c.run("GET a").text(), "x");
    c.ok("MULTI");
    assert_eq!(c.run("SAVE").text(), "ERR Command not allowed inside a transaction");
    c.ok("DISCARD");
    c.ok("MULTI");
    assert_eq!(c.run("EXEC"), Reply::Array(vec![]));
}

#[test]
fn a_transaction_follows_its_select() {
    let server = TestServer::start(&["--workers", "2"]);
    let mut c = server.connect();
    c.ok("MULTI");
    queued(&mut c, "SET a 0");
    queued(&mut c, "SELECT 3");
    queued(&mut c, "SET a 3");
    c.run("EXEC");
    assert_eq!(c.run("GET a").text(), "3");
    c.ok("SELECT 0");
    assert_eq!(c.run("GET a").text(), "0");
}

fn watched_change(workers: &str, change: &str, is_aborted: bool) {
    let server = TestServer::start(&["--workers", workers]);
    let mut a = server.connect();
    let mut b = server.connect();
    a.ok("SET k 1");
    a.ok("WATCH k other");
    a.ok("MULTI");
    queued(&mut a, "SET k 2");
    if !change.is_empty() {
        b.run(change);
    }
    let reply = a.run("EXEC");
    assert_eq!(reply == Reply::NullArray, is_aborted, "{change} with {workers} workers: {reply:?}");
    // The watch is over.
    a.ok("MULTI");
    b.ok("SET k 9");
    assert_eq!(a.run("EXEC"), Reply::Array(vec![]));
}

#[test]
fn changes_of_watched_keys_abort() {
    for workers in ["1", "2"] {
        watched_change(workers, "", false);
        watched_change(workers, "GET k", false);
        watched_change(workers, "SET unrelated 1", false);
        watched_change(workers, "SET k 1", true);
        watched_change(workers, "DEL k", true);
        watched_change(workers, "SET other 1", true);
        watched_change(workers, "PEXPIRE k 100000", true);
        watched_change(workers, "RENAME k q", true);
        watched_change(workers, "FLUSHALL", true);
        watched_change(workers, "SWAPDB 0 1", true);
        watched_change(workers, "SWAPDB 2 1", false);
    }
}

#[test]
fn expiry_of_a_watched_key_aborts() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    c.ok("SET k 1 PX 30");
    c.ok("WATCH k");
    c.ok("MULTI");
    queued(&mut c, "PING");
    std::thread::sleep(std::time::Duration::from_millis(60));
    assert_eq!(c.run("EXEC"), Reply::NullArray);
    c.ok("WATCH k");
    c.ok("MULTI");
    queued(&mut c, "PING");
    assert_eq!(c.run("EXEC").items().len(), 1);
    // UNWATCH and DISCARD forget.
    c.ok("SET k 1");
    c.ok("WATCH k");
    server.connect().ok("SET k 2");
    c.ok("UNWATCH");
    c.ok("MULTI");
    assert_eq!(c.run("EXEC"), Reply::Array(vec![]));
}

/// Optimistic increments from several connections on two workers: none may be lost.
#[test]
fn watched_increments_are_not_lost() {
    let server = TestServer::start(&["--workers", "2"]);
    server.connect().ok("SET counter 0");
    let each = 100;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut client = server.connect();
            scope.spawn(move || {
                let mut done = 0;
                while done < each {
                    client.ok("WATCH counter");
                    let next = client.run("GET counter").text().parse::<u64>().unwrap() + 1;
                    client.ok("MULTI");
                    queued(&mut client, &format!("SET counter {next}"));
                    done += u32::from(client.run("EXEC") != Reply::NullArray);
                }
            });
        }
    });
    assert_eq!(server.connect().run("GET counter").text(), (4 * each).to_string());
}

/// Transactions move money between accounts; whoever looks in a transaction sees the same sum.
#[test]
fn transactions_are_atomic_across_workers() {
    let server = TestServer::start(&["--workers", "2"]);
    server.connect().ok("MSET a 500 b 500");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut client = server.connect();
            scope.spawn(move || {
                for i in 0..300 {
                    let (from, to) = if i % 2 == 0 { ("a", "b") } else { ("b", "a") };
                    client.ok("MULTI");
                    queued(&mut client, &format!("DECRBY {from} 7"));
                    queued(&mut client, &format!("INCRBY {to} 7"));
                    client.run("EXEC");
                }
            });
        }
        for _ in 0..2 {
            let mut client = server.connect();
            scope.spawn(move || {
                for _ in 0..300 {
                    let values = client.run("MGET a b");
                    let sum: i64 = values.items().iter().map(|v| v.text().parse::<i64>().unwrap()).sum();
                    assert_eq!(sum, 1000);
                }
            });
        }
    });
}

#[test]
fn a_transaction_does_not_make_a_monitor() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    c.ok("MULTI");
    assert_eq!(c.run("MONITOR").text(), "QUEUED");
    let replies = c.run("EXEC");
    assert_eq!(replies.items()[0].text(), "ERR MONITOR isn't allowed for DENY BLOCKING client");
    assert_eq!(c.run("PING").text(), "PONG");
    assert!(c.is_silent());
}

#[test]
fn many_keys_are_watched() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    let keys: Vec<String> = (0..200_000).map(|i| format!("k{i}")).collect();
    let mut words: Vec<&[u8]> = vec![b"WATCH"];
    words.extend(keys.iter().map(String::as_bytes));
    assert_eq!(c.run_bytes(&words), Reply::ok());
    for key in &keys[..1000] {
        c.ok(&format!("WATCH {key}"));
    }
    assert_eq!(server.connect().run("SET k199999 1"), Reply::ok());
    c.ok("MULTI");
    c.run("PING");
    assert_eq!(c.run("EXEC"), Reply::NullArray);
}
