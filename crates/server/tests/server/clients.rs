//! `CLIENT`, `MONITOR`, and who is told what.

use crate::harness::*;

#[test]
fn clients_are_listed_and_killed() {
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--workers", workers]);
        let mut a = server.connect();
        let mut b = server.connect();
        a.ok("CLIENT SETNAME first");
        b.ok("CLIENT SETNAME second");
        b.ok("CLIENT SETINFO LIB-NAME mylib");
        let id = b.run("CLIENT ID").text();
        eventually("the other worker has told", || a.run("CLIENT LIST").text().contains("cmd=client|id"));
        let list = a.run("CLIENT LIST").text();
        assert!(list.lines().count() >= 2);
        let line = list.lines().find(|line| line.contains("name=second")).unwrap();
        assert!(line.starts_with(&format!("id={id} addr=127.0.0.1:")), "{line}");
        assert!(line.ends_with("user=default redir=-1 resp=2 lib-name=mylib lib-ver="), "{line}");
        assert_eq!(a.run(&format!("CLIENT LIST ID {id}")).text().lines().count(), 1);
        assert_eq!(a.run("CLIENT KILL ID 99999"), Reply::Int(0));
        assert_eq!(a.run(&format!("CLIENT KILL ID {id}")), Reply::Int(1));
        assert!(b.read_to_end().is_empty());
        let mut c = server.connect();
        let addr = c.stream.local_addr().unwrap();
        assert_eq!(c.run("PING").text(), "PONG");
        a.ok(&format!("CLIENT KILL {addr}"));
        assert!(c.read_to_end().is_empty());
        assert_eq!(a.run(&format!("CLIENT KILL {addr}")).text(), "ERR No such client");
        assert_eq!(a.run("CLIENT KILL TYPE normal"), Reply::Int(0));
        assert_eq!(a.run("CLIENT KILL TYPE normal SKIPME no"), Reply::Int(1));
        assert!(a.read_to_end().is_empty());
    }
}

#[test]
fn pauses_hold_commands_back() {
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--workers", workers]);
        let mut a = server.connect();
        let mut b = server.connect();
        a.ok("CLIENT PAUSE 60000 WRITE");
        assert_eq!(b.run("GET k"), Reply::NullBulk);
        b.send("SET k 1");
        b.send("GET k");
        assert!(b.is_silent());
        assert_eq!(a.run("GET k"), Reply::NullBulk);
        assert_eq!(a.info("blocked_clients"), "1");
        let list = a.run("CLIENT LIST").text();
        assert!(list.lines().any(|line| line.contains(" flags=b ") && line.contains(" cmd=set ")), "{list}");
        a.ok("CLIENT UNPAUSE");
        eventually("nobody waits", || a.info("blocked_clients") == "0");
        assert_eq!(b.read(), Reply::ok());
        assert_eq!(b.read().text(), "1");
        // From before the pause on: a test that is held up itself waits longer, not shorter.
        let start = std::time::Instant::now();
        a.ok("CLIENT PAUSE 100 ALL");
        assert_eq!(b.run("PING").text(), "PONG");
        assert!(start.elapsed() >= std::time::Duration::from_millis(80));
    }
}

#[test]
fn monitors_see_commands_but_no_secrets() {
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--workers", workers, "--requirepass", "secret"]);
        let mut monitor = server.connect();
        monitor.ok("AUTH secret");
        monitor.ok("MONITOR");
        let mut a = server.connect();
        a.ok("AUTH secret");
        a.run_bytes(&[b"SET", b"k\n\xff", b"a \"b\""]);
        a.ok("MULTI");
        a.run("SELECT 2");
        a.run("EXEC");
        a.run("CONFIG GET port");
        a.run("HELLO 3 AUTH default secret");
        a.run("PING");
        let mut lines = Vec::new();
        while lines.last().is_none_or(|l: &String| !l.contains("\"PING\"")) {
            lines.push(monitor.read().text());
        }
        let shown: Vec<&str> = lines.iter().map(|l| l.split_once("] ").unwrap().1).collect();
        assert_eq!(
            shown,
            [
                "\"AUTH\" \"(redacted)\"",
                "\"SET\" \"k\\n\\xff\" \"a \\\"b\\\"\"",
                "\"MULTI\"",
                "\"SELECT\" \"2\"",
                "\"EXEC\"",
                "\"HELLO\" \"3\" \"AUTH\" \"(redacted)\" \"(redacted)\"",
                "\"PING\"",
            ]
        );
        assert!(lines[3].contains(" [2 127.0.0.1:"), "{}", lines[3]);
        assert_eq!(monitor.run("RESET").text(), "RESET");
        a.run("PING");
        assert!(monitor.is_silent());
    }
}

#[test]
fn quit_and_reset() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    c.ok("SELECT 5");
    c.ok("CLIENT SETNAME x");
    c.ok("MULTI");
    assert_eq!(c.run("RESET").text(), "RESET");
    assert_eq!(c.run("CLIENT GETNAME"), Reply::NullBulk);
    assert!(c.run("CLIENT INFO").text().contains(" db=0 "));
    c.send("QUIT");
    c.send("SET after 1");
    assert_eq!(c.read_to_end(), b"+OK\r\n");
    assert_eq!(server.connect().run("EXISTS after"), Reply::Int(0));
}

#[test]
fn a_client_sees_its_own_command_in_its_buffers() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    for line in ["CLIENT LIST", "CLIENT INFO"] {
        let text = c.run(line).text();
        let expected = format!(" qbuf={} ", encoded(&[b"CLIENT", &line.as_bytes()[7..]]).len());
        assert!(text.contains(&expected) && text.contains(" argv-mem=10 "), "{text}");
        assert!(!text.contains(" qbuf-free=0 "), "{text}");
    }
}
