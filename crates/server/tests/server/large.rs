//! Large values: they go from the socket to their pages, and nobody waits for them.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::*;

const LEN: usize = 3_000_017;

fn value(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// Sends bytes in pieces that end anywhere.
fn send_in_pieces(client: &mut Client, bytes: &[u8], random: &mut fastrand::Rng) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let len = random.usize(1..=rest.len().min(400_000));
        client.send_raw(&rest[..len]);
        rest = &rest[len..];
        if random.u8(..3) == 0 {
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}

fn bulk(bytes: &[u8]) -> Reply {
    Reply::Bulk(bytes.to_vec())
}

/// Every command that takes a value as it is, in one pipeline with small commands around it, however the bytes come.
#[test]
fn values_that_come_in_pieces_are_stored_like_others() {
    let server = TestServer::start(&[]);
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    for round in 0..6 {
        let mut c = server.connect();
        c.ok("FLUSHALL");
        let values: Vec<_> = (0..7).map(|i| value(round * 10 + i, LEN + random.usize(..90_000))).collect();
        let v = |index: usize| values[index].as_slice();
        let commands: Vec<(Vec<&[u8]>, Reply)> = vec![
            (vec![b"SET", b"a", v(0)], Reply::Simple("OK".into())),
            (vec![b"SET", b"a", v(1), b"XX", b"GET", b"PX", b"100000"], bulk(v(0))),
            (vec![b"STRLEN", b"a"], Reply::Int(values[1].len() as i64)),
            (vec![b"SETNX", b"a", v(2)], Reply::Int(0)),
            (vec![b"SETNX", b"n", v(2)], Reply::Int(1)),
            (vec![b"SET", b"a", v(3), b"NX"], Reply::NullBulk),
            (vec![b"PING"], Reply::Simple("PONG".into())),
            (vec![b"SETEX", b"x", b"1000", v(3)], Reply::Simple("OK".into())),
            (vec![b"PSETEX", b"p", b"1000000", v(4)], Reply::Simple("OK".into())),
            (vec![b"GETSET", b"a", v(5)], bulk(v(1))),
            (vec![b"OBJECT", b"ENCODING", b"a"], bulk(b"raw")),
            (vec![b"APPEND", b"a", v(6)], Reply::Int((values[5].len() + values[6].len()) as i64)),
            (vec![b"GET", b"n"], bulk(v(2))),
            (vec![b"GET", b"x"], bulk(v(3))),
            (vec![b"GET", b"p"], bulk(v(4))),
            (vec![b"TTL", b"a"], Reply::Int(-1)),
            (vec![b"GETRANGE", b"a", b"2999990", b"3000000"], bulk(&v(5)[2_999_990..=3_000_000])),
        ];
        let pipeline: Vec<u8> = commands.iter().flat_map(|(words, _)| encoded(words)).collect();
        let mut sender = Client::new(c.stream.try_clone().expect("a second handle"));
        let mut random = fastrand::Rng::with_seed(random.u64(..));
        std::thread::scope(|scope| {
            scope.spawn(move || send_in_pieces(&mut sender, &pipeline, &mut random));
            for (words, expected) in &commands {
                let reply = c.read();
                assert!(reply == *expected, "{}: another reply", String::from_utf8_lossy(words[0]));
            }
        });
    }
    let mut c = server.connect();
    c.ok("FLUSHALL");
}

#[test]
fn before_a_monitor_they_go_the_long_way() {
    let server = TestServer::start(&["--slowlog-log-slower-than", "0"]);
    let (mut c, value) = (server.connect(), value(1, LEN));
    assert_eq!(c.run_bytes(&[b"SET", b"k", &value]), Reply::ok());
    let mut monitor = server.connect();
    monitor.ok("MONITOR");
    assert_eq!(c.run_bytes(&[b"SET", b"m", &vec![b'x'; LEN]]), Reply::Simple("OK".into()));
    let shown = loop {
        let line = monitor.read().text();
        if line.contains("\"m\"") {
            break line;
        }
    };
    assert!(shown.len() > LEN && shown.ends_with("xx\""));
    drop(monitor);
    eventually("the monitor is gone", || !c.run("CLIENT LIST").text().contains("flags=O"));
    c.ok("SLOWLOG RESET");
    assert_eq!(c.run_bytes(&[b"SET", b"s", &vec![b'x'; LEN]]), Reply::Simple("OK".into()));
    let slow = format!("{:?}", c.run("SLOWLOG GET"));
    assert!(slow.contains(&format!("... ({} more bytes)", LEN - 128)), "{slow}");
}

/// Half a value belongs to nobody: it is seen neither by others nor by a save, and goes with its sender.
#[test]
fn half_a_value_is_nothing() {
    let mut server = TestServer::start(&["--save", ""]);
    let mut c = server.connect();
    c.ok("SET k old");
    let before: u64 = c.info("used_memory").parse().expect("a number");
    let request = encoded(&[b"SET" as &[u8], b"k", &value(1, 64 << 20)]);
    let mut sender = server.connect();
    sender.send_raw(&request[..request.len() / 2]);
    let used = |c: &mut Client| c.info("used_memory").parse::<u64>().expect("a number");
    eventually("half of it is in its place", || used(&mut c) > before + (31 << 20));
    assert_eq!(c.run("GET k"), bulk(b"old"));
    let mut has_all =
        || c.run("CLIENT LIST TYPE normal").text().lines().any(|line| line.contains("qbuf=3355"));
    eventually("what has come counts as input", &mut has_all);
    c.ok("SAVE");
    drop(sender);
    eventually("its pages are free", || used(&mut c) < before + (1 << 20));
    server = server.restarted(Signal::KILL, &["--save", ""]);
    let mut c = server.connect();
    c.wait_until_loaded();
    assert_eq!(c.run("GET k"), bulk(b"old"));
    eventually("its pages are free after the restart", || used(&mut c) < before + (1 << 20));
}

#[test]
fn a_value_that_was_held_up_is_stored_when_it_may_be() {
    let server = TestServer::start(&[]);
    let (mut c, mut other) = (server.connect(), server.connect());
    let value = value(1, LEN);
    other.ok("CLIENT PAUSE 10000 WRITE");
    c.queue(&[b"SET" as &[u8], b"k", &value]);
    c.queue_line("STRLEN k");
    c.flush().expect("it is taken");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(other.run("EXISTS k"), Reply::Int(0));
    other.ok("CLIENT UNPAUSE");
    assert_eq!((c.read(), c.read()), (Reply::Simple("OK".into()), Reply::Int(LEN as i64)));
    assert!(c.run("GET k") == bulk(&value));
}

#[test]
fn without_room_the_command_says_so_and_the_client_goes_on() {
    let server = TestServer::start(&["--maxmemory", "40mb", "--maxmemory-policy", "noeviction"]);
    let mut c = server.connect();
    let reply = c.run_bytes(&[b"SET", b"k", &vec![b'x'; 100 << 20]]);
    assert!(format!("{reply:?}").contains("OOM command not allowed"), "{reply:?}");
    assert_eq!(c.run("EXISTS k"), Reply::Int(0));
    eventually("there is room again", || {
        c.run_bytes(&[b"SET", b"k", &vec![b'x'; 1 << 20]]) == Reply::Simple("OK".into())
    });
}

/// Reads a bulk string's first bytes and leaves the others in the socket.
fn begin_to_read(client: &mut Client, name: &str) {
    client.send(&format!("GET {name}"));
    std::thread::sleep(Duration::from_millis(50));
}

/// A reader gets what was there when it asked, however late it reads, and others get what is there now.
#[test]
fn a_value_is_sent_as_it_was() {
    let server = TestServer::start(&["--save", ""]);
    let (old, new) = (value(1, 48 << 20), value(2, 48 << 20));
    let changes: [(&str, &[&[u8]]); 6] = [
        ("SET", &[b"SET", b"k", &new]),
        ("SETRANGE", &[b"SETRANGE", b"k", b"1000000", &new[..1000]]),
        ("APPEND", &[b"APPEND", b"k", b"more"]),
        ("DEL", &[b"DEL", b"k"]),
        ("FLUSHALL", &[b"FLUSHALL"]),
        ("DEBUG RELOAD", &[b"DEBUG", b"RELOAD"]),
    ];
    for (what, change) in changes {
        let mut c = server.connect();
        c.run_bytes(&[b"SET", b"k", &old]);
        let mut reader = server.connect();
        begin_to_read(&mut reader, "k");
        let mut gone = server.connect();
        begin_to_read(&mut gone, "k");
        let reply = c.run_bytes(change);
        assert!(!matches!(reply, Reply::Error(_)), "{what}: {reply:?}");
        drop(gone);
        c.ok("SAVE");
        reader.queue_line("PING");
        reader.flush().expect("it is taken");
        assert!(reader.read() == bulk(&old), "{what}");
        assert_eq!(reader.read(), Reply::Simple("PONG".into()));
    }
    let mut c = server.connect();
    c.ok("FLUSHALL");
    let used = |c: &mut Client| c.info("used_memory").parse::<u64>().expect("a number");
    eventually("nothing is kept", || used(&mut c) < 20 << 20);
}

/// All in one pipeline: values between short replies, in arrays, replaced by the command that asks for them.
#[test]
fn values_keep_their_places_among_replies() {
    let server = TestServer::start(&[]);
    for protocol in ["2", "3"] {
        let mut c = server.connect();
        c.run(&format!("HELLO {protocol}"));
        c.ok("FLUSHALL");
        let (a, b) = (value(1, 400_000), value(2, 5_000_000));
        c.run_bytes(&[b"MSET", b"a", &a, b"b", &b, b"s", b"short"]);
        for line in [
            "PING",
            "GET a",
            "MGET s b nope a",
            "STRLEN a",
            "SET a x GET",
            "GETDEL b",
            "MULTI",
            "MGET s a",
            "EXEC",
            "GET a",
        ] {
            c.queue_line(line);
        }
        c.flush().expect("it is taken");
        assert_eq!(c.read(), Reply::Simple("PONG".into()));
        assert!(c.read() == bulk(&a));
        let null = if protocol == "2" { Reply::NullBulk } else { Reply::Null3 };
        assert!(c.read() == Reply::Array(vec![bulk(b"short"), bulk(&b), null, bulk(&a)]));
        assert_eq!(c.read(), Reply::Int(400_000));
        assert!(c.read() == bulk(&a) && c.read() == bulk(&b));
        assert_eq!((c.read(), c.read()), (Reply::Simple("OK".into()), Reply::Simple("QUEUED".into())));
        assert_eq!(c.read(), Reply::Array(vec![Reply::Array(vec![bulk(b"short"), bulk(b"x")])]));
        assert_eq!(c.read(), bulk(b"x"));
    }
}

/// A client that reads nothing is closed at the limit, as if the value had been copied.
#[test]
fn values_count_as_output() {
    let server = TestServer::start(&["--client-output-buffer-limit", "normal 8mb 0 0"]);
    let mut c = server.connect();
    c.run_bytes(&[b"SET", b"k", &value(1, 32 << 20)]);
    let mut reader = server.connect();
    reader.send("GET k");
    eventually("it is closed", || c.info("client_output_buffer_limit_disconnections") == "1");
    assert!(server.log().contains("closed for overcoming of output buffer limits"));
    drop(reader);
}

/// Neither the step that answers nor the writing of a huge value holds other clients up.
#[test]
fn others_are_served_while_a_huge_value_is_sent() {
    let server = TestServer::start(&["--save", ""]);
    let (mut c, mut other) = (server.connect(), server.connect());
    c.run_bytes(&[b"SET", b"k", &vec![b'x'; 512 << 20]]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (answered, longest) = std::thread::scope(|scope| {
        let pings = scope.spawn(|| {
            let (mut count, mut longest) = (0u32, Duration::ZERO);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let begun = Instant::now();
                other.run("PING");
                longest = longest.max(begun.elapsed());
                count += 1;
            }
            (count, longest)
        });
        let reply = c.run("GET k");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(matches!(reply, Reply::Bulk(bytes) if bytes.len() == 512 << 20));
        pings.join().expect("no panic")
    });
    assert!(answered > 50, "{answered} pings, the longest took {longest:?}");
}
