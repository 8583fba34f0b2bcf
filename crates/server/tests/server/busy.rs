//! Scripts that run for long: `-BUSY`, `SCRIPT KILL`, and what becomes of clients meanwhile.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::harness::*;

const BUSY: &str = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
const UNKILLABLE: &str = "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the \
    script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.";
const ENDLESS: &str = "while true do end";

fn start(workers: &str) -> TestServer {
    TestServer::start(&["--busy-reply-threshold", "30", "--workers", workers])
}

fn send_eval(c: &mut Client, script: &str) {
    c.send_raw(&encoded(&[b"EVAL", script.as_bytes(), b"1", b"k"]));
}

/// Waits until the server is busy, and connects to it then.
fn when_busy(server: &TestServer) -> Client {
    let mut c = server.connect();
    eventually("the script is slow", || c.run("PING").text() == BUSY);
    c
}

fn is_killed(reply: &Reply) -> bool {
    reply.text().starts_with("ERR Script killed by user with SCRIPT KILL... script: ")
}

#[test]
fn an_endless_script_is_ended_whatever_it_catches() {
    let scripts = [
        ENDLESS,
        "while true do pcall(function() while true do end end) end",
        "local f = function() while true do end end while true do pcall(f) xpcall(f, f) end",
        "coroutine.wrap(function() while true do end end)()",
        "while true do local c = coroutine.create(function() while true do end end) coroutine.resume(c) end",
        "repeat redis.pcall('get', KEYS[1]) until false",
        "local t = {} for i = 1, 1e9 do t[i % 10] = i end",
    ];
    for workers in ["1", "2"] {
        let server = start(workers);
        let mut runner = server.connect();
        for script in scripts {
            send_eval(&mut runner, script);
            let mut other = when_busy(&server);
            let start = Instant::now();
            other.ok("SCRIPT KILL");
            let reply = runner.read();
            assert!(is_killed(&reply), "{script}: {reply:?}");
            assert!(start.elapsed() < Duration::from_millis(100), "{script}: {:?}", start.elapsed());
            assert_eq!(other.run("PING").text(), "PONG");
            assert_eq!(other.run("SCRIPT KILL").text(), "NOTBUSY No scripts in execution right now.");
            assert_eq!(runner.run("PING").text(), "PONG");
        }
    }
}

#[test]
fn what_has_changed_something_is_not_ended() {
    for workers in ["1", "2"] {
        let server = start(workers);
        let mut runner = server.connect();
        send_eval(
            &mut runner,
            "redis.call('set', KEYS[1], 'v') for i = 1, 2e8 do end return redis.call('get', KEYS[1])",
        );
        let mut other = when_busy(&server);
        assert_eq!(other.run("SCRIPT KILL").text(), UNKILLABLE);
        assert_eq!(other.run("GET k").text(), BUSY);
        // It comes to its end.
        assert_eq!(runner.read().text(), "v");
        assert_eq!(other.run("GET k").text(), "v");
    }
}

#[test]
fn the_server_ends_whatever_the_script_has_done() {
    for (workers, script) in [
        ("1", ENDLESS),
        ("2", ENDLESS),
        ("1", "redis.call('set', KEYS[1], 1) while true do end"),
        ("2", "redis.call('set', KEYS[1], 1) while true do end"),
    ] {
        let mut server = start(workers);
        let mut runner = server.connect();
        send_eval(&mut runner, script);
        let mut other = when_busy(&server);
        assert_eq!(other.run("SHUTDOWN").text(), BUSY);
        assert_eq!(other.run("SHUTDOWN SAVE").text(), BUSY);
        other.send("SHUTDOWN NOSAVE");
        let start = Instant::now();
        assert!(server.wait().success(), "{script}");
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        assert_eq!(other.read_to_end(), b"");
    }
}

#[test]
fn a_half_done_script_leaves_nothing_in_the_log() {
    let dir = temp_dir();
    let args = ["--busy-reply-threshold", "30", "--appendonly", "yes", "--appendfsync", "always"];
    let mut server = TestServer::start_in(&dir, &args);
    let mut runner = server.connect();
    runner.wait_until_loaded();
    runner.ok("SET before 1");
    send_eval(&mut runner, "redis.call('set', KEYS[1], 1) while true do end");
    let mut other = when_busy(&server);
    other.send("SHUTDOWN NOSAVE");
    assert!(server.wait().success());
    let server = TestServer::start_in(&dir, &args);
    let mut c = server.connect();
    c.wait_until_loaded();
    assert_eq!((c.run("GET before").text(), c.run("EXISTS k").integer()), ("1".into(), Some(0)));
}

#[test]
fn pipelines_keep_their_order_across_the_busy_time() {
    for workers in ["1", "2"] {
        let server = start(workers);
        let mut others: Vec<Client> = (0..4).map(|_| server.connect()).collect();
        others.iter_mut().for_each(|c| assert_eq!(c.run("PING").text(), "PONG"));
        let mut runner = server.connect();
        runner.send_raw(
            &[
                encoded(&[b"ECHO", b"1"]),
                encoded(&[b"EVAL", ENDLESS.as_bytes(), b"0"]),
                encoded(&[b"ECHO", b"2"]),
            ]
            .concat(),
        );
        let mut killer = when_busy(&server);
        // Half a command before the end, the other half after it.
        let half = encoded(&[b"ECHO", b"halves"]);
        for (number, c) in others.iter_mut().enumerate() {
            let name = number.to_string();
            for _ in 0..300 {
                c.send("AUTH x y");
                c.send(&format!("ECHO {name}"));
            }
            c.send_raw(&half[..9]);
        }
        for c in &mut others {
            for _ in 0..300 {
                assert_eq!(c.read().text(), "WRONGPASS invalid username-password pair or user is disabled.");
                assert_eq!(c.read().text(), BUSY);
            }
        }
        killer.send_raw(&[encoded(&[b"SCRIPT", b"KILL"]), encoded(&[b"HELLO", b"3"])].concat());
        assert_eq!(killer.read(), Reply::ok());
        assert!(!killer.read().is_error());
        assert_eq!(runner.read().text(), "1");
        assert!(is_killed(&runner.read()));
        assert_eq!(runner.read().text(), "2");
        for c in &mut others {
            c.send_raw(&half[9..]);
            assert_eq!(c.read().text(), "halves");
        }
    }
}

/// One client sends what kills the script, in the same packet as another command, while the script is about to run.
#[test]
fn what_waits_in_the_same_batch_is_answered_while_the_script_runs() {
    let server = start("1");
    for _ in 0..20 {
        let (mut runner, mut other) = (server.connect(), server.connect());
        send_eval(&mut runner, ENDLESS);
        other.send("PING");
        let first = other.read().text();
        assert!(first == "PONG" || first == BUSY, "{first}");
        eventually("it is slow", || other.run("SCRIPT KILL") == Reply::ok());
        assert!(is_killed(&runner.read()));
    }
}

#[test]
fn clients_come_and_go_meanwhile() {
    for workers in ["1", "2"] {
        let server = start(workers);
        let connect = || TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let (gone, mut halved) = (connect(), connect());
        let (mut listener, mut publisher) = (server.connect(), server.connect());
        listener.run("SUBSCRIBE ch");
        let before: usize = publisher.info("connected_clients").parse().unwrap();
        assert_eq!(before, 4);
        let mut runner = server.connect();
        send_eval(&mut runner, "redis.call('publish', 'ch', 'm') for i = 1, 3e8 do end return 1");
        let mut other = when_busy(&server);
        drop(gone);
        halved.write_all(b"PING\r\nQUIT\r\n").unwrap();
        halved.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        halved.read_to_string(&mut text).unwrap();
        assert_eq!(text, format!("-{BUSY}\r\n+OK\r\n"));
        let mut half_closed = connect();
        half_closed.write_all(b"PING\r\n").unwrap();
        half_closed.shutdown(Shutdown::Write).unwrap();
        text.clear();
        half_closed.read_to_string(&mut text).unwrap();
        assert_eq!(text, format!("-{BUSY}\r\n"));
        assert_eq!(other.run("SUBSCRIBE ch").text(), BUSY);
        listener.send("GET a");
        assert_eq!(listener.read().items()[2].text(), "m");
        assert!(listener.read().text().starts_with("ERR Can't execute 'get': only (P|S)SUBSCRIBE"));
        other.send("QUIT");
        assert_eq!(other.read_to_end(), b"+OK\r\n");
        assert_eq!(runner.read().integer(), Some(1));
        eventually("those who left have gone", || publisher.info("connected_clients") == "3");
        publisher.run("PUBLISH ch after");
        listener.send("PING");
        let mut told = Vec::new();
        loop {
            let reply = listener.read();
            let words: Vec<String> = reply.items().iter().map(Reply::text).collect();
            if words[0] == "pong" {
                break;
            }
            told.push(words.last().unwrap().clone());
        }
        assert_eq!(told, ["after"]);
    }
}

#[test]
fn transactions_and_passwords_meanwhile() {
    for workers in ["1", "2"] {
        let server = start(workers);
        let mut c = server.connect();
        c.ok("SET k v");
        let mut queued = server.connect();
        queued.ok("MULTI");
        assert_eq!(queued.run("GET k").text(), "QUEUED");
        let mut watching = server.connect();
        // It has come in before there is a password.
        assert_eq!(watching.run("PING").text(), "PONG");
        c.ok("CONFIG SET requirepass secret");
        let mut runner = server.connect();
        runner.ok("AUTH secret");
        // Within a transaction, too.
        runner.ok("MULTI");
        runner.send_raw(&encoded(&[b"EVAL", ENDLESS.as_bytes(), b"0"]));
        assert_eq!(runner.read().text(), "QUEUED");
        runner.send("EXEC");
        eventually("the script is slow", || c.run("PING").text() == BUSY);
        let mut stranger = server.connect();
        assert_eq!(stranger.run("PING").text(), "NOAUTH Authentication required.");
        assert_eq!(stranger.run("SCRIPT KILL").text(), "NOAUTH Authentication required.");
        assert!(stranger.run("AUTH wrong").is_error());
        stranger.ok("AUTH secret");
        assert_eq!(stranger.run("PING").text(), BUSY);
        assert_eq!(queued.run("EXEC").text(), format!("EXECABORT Transaction discarded because of: {BUSY}"));
        queued.ok("MULTI");
        assert_eq!(queued.run("GET k").text(), BUSY);
        assert_eq!(queued.run("EXEC").text(), format!("EXECABORT Transaction discarded because of: {BUSY}"));
        queued.ok("MULTI");
        assert_eq!(queued.run("WATCH k").text(), "ERR WATCH inside MULTI is not allowed");
        queued.ok("DISCARD");
        watching.send("WATCH k");
        watching.send("GET k");
        assert!(watching.is_silent());
        stranger.ok("SCRIPT KILL");
        let reply = runner.read();
        assert!(is_killed(&reply.items()[0]), "{reply:?}");
        assert_eq!(watching.read(), Reply::ok());
        assert_eq!(watching.read().text(), "v");
    }
}

#[test]
fn many_clients_are_answered_and_none_is_lost() {
    for workers in ["1", "2"] {
        let server = start(workers);
        let mut clients: Vec<Client> = (0..100).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|c| assert_eq!(c.run("PING").text(), "PONG"));
        for _ in 0..3 {
            send_eval(&mut clients[0], ENDLESS);
            when_busy(&server);
            clients[1..].iter_mut().for_each(|c| c.send("PING"));
            clients[1..].iter_mut().for_each(|c| assert_eq!(c.read().text(), BUSY));
            clients[1..].iter_mut().for_each(|c| c.send("PING"));
            clients[99].send("SCRIPT KILL");
            for c in &mut clients[1..] {
                let text = c.read().text();
                assert!(text == "PONG" || text == BUSY, "{text}");
            }
            assert_eq!(clients[99].read(), Reply::ok());
            assert!(is_killed(&clients[0].read()));
            clients.iter_mut().for_each(|c| assert_eq!(c.run("PING").text(), "PONG"));
        }
        let counted = clients[0].try_info_field("commandstats", "cmdstat_ping").unwrap();
        let rejected: u32 =
            counted.split_once("rejected_calls=").unwrap().1.split(',').next().unwrap().parse().unwrap();
        assert!(rejected >= 3 * 99, "{counted}");
    }
}

/// A client that takes nothing does not make the server keep more and more for it.
#[test]
fn who_does_not_read_is_not_read() {
    let server = start("1");
    let mut runner = server.connect();
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    send_eval(&mut runner, ENDLESS);
    let mut other = when_busy(&server);
    stream.set_nonblocking(true).unwrap();
    let part = encoded(&[b"PING"]).repeat(10_000);
    let before = server.resident_bytes();
    let start = Instant::now();
    let mut sent = 0;
    while start.elapsed() < Duration::from_secs(2) && sent < 200 << 20 {
        match stream.write(&part) {
            Ok(count) => sent += count,
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    assert!(sent < 100 << 20, "{sent}");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown}");
    other.ok("SCRIPT KILL");
    assert!(is_killed(&runner.read()));
}

#[test]
fn the_clock_ends_what_has_changed_nothing() {
    let server = TestServer::start(&["--script-kill-after", "100"]);
    let mut c = server.connect();
    let start = Instant::now();
    send_eval(&mut c, ENDLESS);
    assert!(c.read().text().starts_with("ERR the script ran for longer than 'script-kill-after'"));
    assert!(start.elapsed() >= Duration::from_millis(100) && start.elapsed() < Duration::from_secs(5));
    send_eval(&mut c, "redis.call('set', KEYS[1], 1) for i = 1, 1e8 do end return 1");
    assert_eq!(c.read().integer(), Some(1));
    c.ok("CONFIG SET script-kill-after 0");
    send_eval(&mut c, "for i = 1, 1e8 do end return 1");
    assert_eq!(c.read().integer(), Some(1));
}

#[test]
fn without_a_threshold_clients_wait() {
    let server = TestServer::start(&["--lua-time-limit", "0"]);
    let (mut c, mut other) = (server.connect(), server.connect());
    send_eval(&mut c, "for i = 1, 2e8 do end return 1");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(other.run("PING").text(), "PONG");
    assert_eq!(c.read().integer(), Some(1));
    c.ok("CONFIG SET busy-reply-threshold 10");
    send_eval(&mut c, ENDLESS);
    when_busy(&server).ok("SCRIPT KILL");
    assert!(is_killed(&c.read()));
}

#[test]
fn the_words_are_those_of_redis() {
    let lines = [
        "PING",
        "SET a",
        "NOSUCH a",
        "SCRIPT",
        "SCRIPT EXISTS a",
        "CLIENT LIST",
        "SUBSCRIBE a",
        "COMMAND",
        "GET a",
        "SHUTDOWN",
        "SHUTDOWN SAVE",
        "SHUTDOWN ABORT",
        "SHUTDOWN NOSAVE SAVE",
        "SHUTDOWN x",
        "MULTI",
        "MULTI",
        "UNWATCH",
        "AUTH x",
        "SCRIPT KILL",
        "DISCARD",
        "DISCARD",
        "EXEC",
        "MULTI",
        "SHUTDOWN NOSAVE",
        "EXEC",
        "MULTI",
        "WATCH a",
        "EXEC",
        "MULTI",
        "NOSUCH",
        "EXEC",
        "AUTH x",
        "AUTH default x",
        "AUTH a b c",
        "HELLO 4",
        "HELLO x",
        "HELLO 3 SETNAME",
        "RESET",
        "UNWATCH",
        "CLIENT REPLY OFF",
        "MULTI",
        "RESET",
        "SCRIPT KILL",
        "PING",
    ];
    beside_redis(&["--busy-reply-threshold", "30"], &|connect| {
        let (mut runner, mut c) = (connect(), connect());
        runner.ok("CONFIG SET busy-reply-threshold 30");
        send_eval(&mut runner, ENDLESS);
        eventually("the script is slow", || c.run("PING").text() == BUSY);
        let mut replies: Vec<Reply> = lines[..lines.len() - 1].iter().map(|line| c.run(line)).collect();
        replies.push(runner.read());
        replies.push(c.run(lines[lines.len() - 1]));
        send_eval(&mut runner, "redis.call('set', KEYS[1], 1) for i = 1, 2e8 do end");
        eventually("the script is slow", || c.run("PING").text() == BUSY);
        replies.push(c.run("SCRIPT KILL"));
        replies
    });
}
