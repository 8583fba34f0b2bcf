//! `WAITAOF`, as Valkey's own tests of that look at it (`wait`), without the replicas.

use std::fs;

use crate::harness::*;
use crate::log_as_valkey::*;

const UNSYNCED: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "no"];
const NO_LOG: &str = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";

/// Clients that wait until what there is is durable, without an end.
fn waiting(server: &TestServer, c: &mut Client, count: i64) -> Vec<Client> {
    let before = number(c, "blocked_clients");
    let mut clients: Vec<Client> = (0..count).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.send("WAITAOF 1 0 0"));
    eventually("they wait", || number(c, "blocked_clients") == before + count);
    clients
}

/// Writes what nothing syncs: a sync that was on its way, of a checkpoint or of another policy, is waited out.
fn write_unsynced(c: &mut Client) {
    wait_for_status(c, "on");
    run_all(c, &["CONFIG SET appendfsync no"]);
    eventually("no sync is on its way", || {
        run_all(c, &["INCR n"]);
        c.run("WAITAOF 1 0 100") == waited(false)
    });
}

#[test]
fn a_log_that_begins_behind_a_save_is_waited_for() {
    let server = start(&[]);
    let mut c = server.connect();
    begin_slow_save(&mut c);
    run_all(&mut c, &["CONFIG SET appendonly yes", "SET k v"]);
    assert_eq!((c.info("aof_enabled"), c.info("log_status")), ("1".into(), "off".into()));
    let reply = c.run("WAITAOF 1 0 20");
    if c.info("rdb_bgsave_in_progress") == "1" {
        assert_eq!((reply, c.info("aof_rewrite_scheduled")), (waited(false), "1".into()));
    }
    assert_eq!(c.run("WAITAOF 1 0 0"), waited(true));
    assert_eq!((c.info("log_status"), c.info("aof_rewrite_scheduled")), ("on".into(), "0".into()));
    run_all(&mut c, &["SET l w"]);
    check_log(&mut c);
    assert_eq!(c.run("WAITAOF 1 0 0"), waited(true));
    let server = killed(server, &ALWAYS);
    let mut c = server.connect();
    assert_eq!((c.run("GET k").text(), c.run("GET l").text()), ("v".into(), "w".into()));
}

#[test]
fn clients_that_wait_for_the_log_are_told_when_it_is_switched_off() {
    for workers in ["1", "2"] {
        let server = start(&[&UNSYNCED[..], &["--workers", workers]].concat());
        let mut c = server.connect();
        write_unsynced(&mut c);
        let clients = waiting(&server, &mut c, 3);
        run_all(&mut c, &["CONFIG SET appendonly no"]);
        for mut client in clients {
            assert_eq!(client.read().text(), NO_LOG);
            assert_eq!(client.run("PING").text(), "PONG");
        }
        assert_eq!(c.info("blocked_clients"), "0");
        assert_eq!(c.run("WAITAOF 1 0 0").text(), NO_LOG);
        assert_eq!(c.run("WAITAOF 0 0 0"), waited(false));
    }
}

#[test]
fn waits_for_the_log_end_with_what_makes_it_durable_or_by_others() {
    let server = start(&UNSYNCED);
    let mut c = server.connect();
    for line in ["CONFIG SET appendfsync everysec", "CONFIG SET appendfsync always", "BGREWRITEAOF"] {
        write_unsynced(&mut c);
        let clients = waiting(&server, &mut c, 2);
        run_all(&mut c, &[line]);
        for mut client in clients {
            assert_eq!(client.read(), waited(true), "{line}");
            assert_eq!(client.run("PING").text(), "PONG");
            // A client that has changed nothing has nothing to wait for.
            assert_eq!(client.run("WAITAOF 1 0 0"), waited(true));
        }
    }
    write_unsynced(&mut c);
    let unblocked = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
    for (reason, expected) in [("TIMEOUT", waited(false)), ("ERROR", Reply::Error(unblocked.into()))] {
        let mut client = server.connect();
        let id = client.run("CLIENT ID").integer().expect("a number");
        client.send("WAITAOF 1 0 0");
        eventually("it waits", || c.info("blocked_clients") == "1");
        assert_eq!(c.run(&format!("CLIENT UNBLOCK {id} {reason}")), Reply::Int(1));
        assert_eq!(client.read(), expected);
        assert_eq!(c.run(&format!("CLIENT UNBLOCK {id} {reason}")), Reply::Int(0));
    }
    // Neither does the connection of a client that has gone stay.
    drop(waiting(&server, &mut c, 2));
    eventually("they are gone", || c.info("connected_clients") == "1");
    run_all(&mut c, &["MULTI", "WAITAOF 1 0 0"]);
    assert_eq!(c.run("EXEC").items(), [waited(false)], "a transaction waits for nothing");
    let out_of_range = "ERR timeout is not an integer or out of range";
    for (line, error) in [
        ("WAITAOF 1 0 -1", "ERR timeout is negative"),
        ("WAITAOF 1 0 9223372036854775808", out_of_range),
        ("WAITAOF 2 0 0", "ERR value is out of range, value must between 0 and 1"),
        ("WAITAOF 1 -1 0", "ERR value is out of range, must be positive"),
    ] {
        assert_eq!(c.run(line).text(), error, "{line}");
    }
}

/// The first checkpoint fails behind its cut: units are written, and no start would look at them.
#[test]
fn a_log_that_no_checkpoint_names_makes_nothing_durable() {
    let server = start(&[]);
    let mut c = server.connect();
    run_all(&mut c, &["SET kept 1", "SAVE"]);
    let (pages, aside) = (server.dir.join("stillframe.pages"), server.dir.join("aside"));
    fs::rename(&pages, &aside).expect("the page file");
    run_all(&mut c, &["CONFIG SET appendonly yes"]);
    wait_for_status(&mut c, "beginning");
    run_all(&mut c, &["SET lost 1"]);
    for policy in ["everysec", "always"] {
        run_all(&mut c, &[&format!("CONFIG SET appendfsync {policy}")]);
        let durable_offset = |c: &mut Client| number(c, "log_durable_offset");
        eventually("it is on disk", || durable_offset(&mut c) == number(&mut c, "log_end_offset"));
        assert_eq!(c.run("WAITAOF 1 0 20"), waited(false), "{policy}");
    }
    assert!(number(&mut c, "log_durable_offset") > 0, "the command is in the log");
    drop(waiting(&server, &mut c, 2));
    eventually("the connections of clients that have gone are gone", || c.info("connected_clients") == "1");
    fs::rename(&aside, &pages).expect("the page file");
    let server = killed(server, &ALWAYS);
    let mut c = server.connect();
    assert_eq!((c.run("GET kept").text(), c.run("EXISTS lost")), ("1".into(), Reply::Int(0)));
    wait_for_status(&mut c, "on");
    run_all(&mut c, &["SET found 1"]);
    assert_eq!(c.run("WAITAOF 1 0 0"), waited(true));
    let server = killed(server, &ALWAYS);
    assert_eq!(server.connect().run("EXISTS kept found"), Reply::Int(2));
}
