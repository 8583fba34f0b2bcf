//! What a client is told by others: nothing is lost, and nothing comes after the reply to a command that was sent later.

use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::*;

fn lines(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| encoded(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())).collect()
}

/// With one worker, with two, and with a bound on memory.
fn on_each(test: &dyn Fn(&TestServer)) {
    for args in [&["--workers", "1"][..], &["--workers", "2"], &["--workers", "2", "--maxmemory", "64mb"]] {
        test(&TestServer::start(args));
    }
}

fn texts(reply: &Reply) -> Vec<String> {
    reply.items().iter().map(Reply::text).collect()
}

/// The first of what comes next is this message.
fn assert_message(client: &mut Client, words: &[&str], when: &str) {
    let reply = client.read();
    assert_eq!(texts(&reply), words, "{when}");
}

#[test]
fn what_was_published_comes_before_the_end_of_a_subscription() {
    on_each(&|server| {
        let mut publisher = server.connect();
        let ends = ["UNSUBSCRIBE", "UNSUBSCRIBE c", "RESET", "QUIT", "", "FIN", "NONE", "*x"];
        for round in 0..40 {
            for end in ends {
                let (mut client, payload) = (server.connect(), format!("m{round}"));
                if round % 2 == 1 {
                    client.run("HELLO 3");
                }
                client.run("SUBSCRIBE c");
                assert_eq!(publisher.run(&format!("PUBLISH c {payload}")), Reply::Int(1));
                match end {
                    "" => client.send("PING"),
                    "FIN" => client.stream.shutdown(Shutdown::Write).expect("it is open"),
                    "*x" => client.send_raw(b"*x\r\n"),
                    line => client.send(line),
                }
                assert_message(&mut client, &["message", "c", &payload], end);
                if matches!(end, "RESET" | "QUIT" | "FIN" | "*x") {
                    // Unless the server has closed it by now.
                    let _ = client.stream.shutdown(Shutdown::Write);
                    let rest = client.read_to_end();
                    assert!(!rest.windows(7).any(|word| word == b"message"), "told once");
                    eventually("it listens no more", || publisher.run("PUBLISH c x") == Reply::Int(0));
                } else {
                    client.read();
                    client.run("RESET");
                }
            }
        }
    });
}

#[test]
fn patterns_and_shards_likewise() {
    on_each(&|server| {
        let mut publisher = server.connect();
        let cases: [(&str, &str, &str, &[&str]); 2] = [
            ("PSUBSCRIBE c*", "PUBLISH", "PUNSUBSCRIBE c*", &["pmessage", "c*", "c", "m"]),
            ("SSUBSCRIBE c", "SPUBLISH", "SUNSUBSCRIBE", &["smessage", "c", "m"]),
        ];
        for _ in 0..40 {
            for (begin, publish, end, message) in cases {
                let mut client = server.connect();
                client.run(begin);
                assert_eq!(publisher.run(&format!("{publish} c m")), Reply::Int(1));
                client.send(end);
                assert_message(&mut client, message, end);
            }
        }
    });
}

/// A cache that drops what it is told of must not read it again before.
#[test]
fn a_message_comes_before_the_reply_to_a_later_command() {
    on_each(&|server| {
        let (mut client, mut other) = (server.connect(), server.connect());
        client.run("HELLO 3");
        client.run("SUBSCRIBE c");
        let scripts: [&[&str]; 3] = [
            &["SET k v", "PUBLISH c m"],
            &["MULTI", "SET k v", "PUBLISH c m", "EXEC"],
            &["MULTI", "PUBLISH c m", "SET k v", "INCR n", "EXEC"],
        ];
        for round in 0..120 {
            for script in scripts {
                other.send_raw(&lines(script));
                script.iter().for_each(|_| drop(other.read()));
                let asked = ["GET k", "PING", "NONE", "MGET k n"][round % 4];
                client.send(asked);
                assert_message(&mut client, &["message", "c", "m"], asked);
                assert!(!matches!(client.read(), Reply::Push(_)), "told once");
            }
        }
    });
}

#[test]
fn whoever_is_served_has_been_told_before() {
    on_each(&|server| {
        let (mut client, mut other) = (server.connect(), server.connect());
        other.ok("CONFIG SET notify-keyspace-events Kl");
        client.run("HELLO 3");
        client.run("SUBSCRIBE __keyspace@0__:q c");
        client.read();
        for _ in 0..100 {
            client.send("BLPOP q 0");
            eventually("it waits", || other.info("blocked_clients") == "1");
            other.run("PUBLISH c m");
            assert_message(&mut client, &["message", "c", "m"], "while it waits");
            other.run("RPUSH q 1");
            assert_message(&mut client, &["message", "__keyspace@0__:q", "rpush"], "before it is served");
            assert_message(&mut client, &["message", "__keyspace@0__:q", "lpop"], "before it is served");
            assert_eq!(texts(&client.read()), ["q", "1"]);
        }
    });
}

/// Ends what others do, however its owner ends.
struct Ends<'o>(&'o AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a command shows of a change has been told, by any worker and however far the change has come.
#[test]
fn a_change_is_told_before_a_reply_shows_it() {
    on_each(&|server| {
        let mut client = server.connect();
        client.ok("CONFIG SET notify-keyspace-events KA");
        client.run("HELLO 3");
        client.run("PSUBSCRIBE __keyspace@0__:*");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for index in 0..3 {
                let (is_over, mut writer) = (&is_over, server.connect());
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let change: &[&str] = match index {
                            0 => &["INCR n"],
                            1 => &["HINCRBY h f 1"],
                            _ => &["MULTI", "INCR m", "RPUSH l x", "EXEC"],
                        };
                        writer.send_raw(&lines(change));
                        change.iter().for_each(|_| drop(writer.read()));
                    }
                });
            }
            let ends = Ends(&is_over);
            let mut told = [0; 3];
            let asked = ["GET n", "HGET h f", "LLEN l", "GET m"];
            for round in 0..6_000 {
                client.send(asked[round % 4]);
                let shown = loop {
                    match client.read() {
                        Reply::Push(items) => match &items[2].text()["__keyspace@0__:".len()..] {
                            "n" => told[0] += 1,
                            "h" => told[1] += 1,
                            "l" => told[2] += 1,
                            _ => {}
                        },
                        reply => break reply.text().parse::<u64>().unwrap_or(0),
                    }
                };
                if let Some(told) = told.get(round % 4) {
                    assert!(shown <= *told, "{} shows {shown}, and {told} were told", asked[round % 4]);
                }
            }
            drop(ends);
            assert!(told.iter().all(|told| *told > 10), "{told:?}");
        });
    });
}

/// By the command that finds it out, or by the server itself.
#[test]
fn what_expires_is_told_before_it_is_missed() {
    on_each(&|server| {
        let (mut client, mut other) = (server.connect(), server.connect());
        other.ok("CONFIG SET notify-keyspace-events Kx");
        client.run("HELLO 3");
        client.run("PSUBSCRIBE __keyspace*");
        for _ in 0..60 {
            other.ok("SET k v PX 3");
            let mut has_been_told = false;
            loop {
                client.send("GET k");
                let mut reply = client.read();
                if let Reply::Push(_) = reply {
                    has_been_told = true;
                    reply = client.read();
                }
                if reply == Reply::Null3 {
                    break;
                }
                assert!(!has_been_told, "it is there still");
            }
            assert!(has_been_told);
        }
    });
}

/// What a client tells itself comes in its place, byte for byte.
#[test]
fn what_a_client_tells_itself_comes_before_the_reply_as_in_redis() {
    beside_redis(&[], &|connect| {
        let scripts: &[&[&str]] = &[
            &["PUBLISH c m", "PING"],
            &[
                "SET k v",
                "PING",
                "INCR n",
                "DEL k n",
                "APPEND a x",
                "MSET x 1 y 2",
                "PERSIST none",
                "SADD s 1",
            ],
            &["MULTI", "SET k v", "PUBLISH c m", "GET k", "EXEC", "PING"],
            &[
                "MULTI",
                "PUBLISH c 1",
                "UNSUBSCRIBE c",
                "PUBLISH c 2",
                "SUBSCRIBE c",
                "PUBLISH c 3",
                "EXEC",
                "PING",
            ],
            &["MULTI", "SET t a", "INCR t", "DEL t", "EXEC"],
            &["MULTI", "PUBLISH c 1", "NONE", "EXEC", "PUBLISH c 2"],
            &["WATCH k", "SET k w", "MULTI", "SET k v", "EXEC"],
            &["PUBLISH c 1", "UNSUBSCRIBE c", "PUBLISH c 2", "SUBSCRIBE c d", "PUBLISH d 3"],
            &["SET k v", "LPUSH k v", "GET none", "NONE"],
            &[
                "CLIENT REPLY OFF",
                "SET k v",
                "PUBLISH c m",
                "PING",
                "MULTI",
                "SET k w",
                "EXEC",
                "CLIENT REPLY ON",
            ],
            &["CLIENT REPLY SKIP", "PUBLISH c m", "PING"],
            &["PUBLISH c m", "HELLO 2", "PUBLISH c m"],
            &["PUBLISH c m", "RESET", "PING", "PUBLISH c m"],
            &["PUBLISH c m", "QUIT", "PUBLISH c m"],
            &["PUBLISH c m", "QUIT"],
            &["SPUBLISH s 1", "SSUBSCRIBE s", "SPUBLISH s 2", "SUNSUBSCRIBE", "SPUBLISH s 3"],
        ];
        let mut all = Vec::new();
        for script in scripts {
            let mut client = connect();
            client.run_bytes(&[b"CONFIG", b"SET", b"notify-keyspace-events", b"KEA"]);
            client.run("FLUSHALL");
            client.run("HELLO 3");
            client.run("SUBSCRIBE c");
            client.run("PSUBSCRIBE __key*");
            client.send_raw(&lines(&[*script, &["ECHO end"]].concat()));
            let _ = client.stream.shutdown(Shutdown::Write);
            let said = String::from_utf8(client.read_to_end()).expect("UTF-8");
            // The identity of the client, which HELLO tells.
            let is_id = |line: &str| {
                line.starts_with(':') && script.iter().any(|line| line.starts_with("HELLO")) && line.len() > 2
            };
            all.push(Reply::Array(
                said.lines().filter(|line| !is_id(line)).map(|line| Reply::Bulk(line.into())).collect(),
            ));
        }
        all
    });
}

/// A reply that comes in parts stays whole. What comes meanwhile follows it, and is bounded.
#[test]
fn messages_do_not_come_into_the_middle_of_a_large_reply() {
    for command in ["HGETALL h", "DUMP h", "GET large"] {
        let server = TestServer::start(&["--workers", "2"]);
        let (mut client, mut other) = (server.connect(), server.connect());
        let value = "v".repeat(300);
        for part in 0..40 {
            let fields = (0..1_000).map(|field| format!("f{} {value}", part * 1_000 + field));
            other.run(&format!("HSET h {}", fields.collect::<Vec<_>>().join(" ")));
        }
        other.run_bytes(&[b"SET", b"large", &vec![b'x'; 9_000_000]]);
        let expected = other.run(command);
        client.run("HELLO 3");
        client.run("SUBSCRIBE c");
        client.send(command);
        client.send("PING");
        std::thread::sleep(std::time::Duration::from_millis(100));
        for number in 0..200 {
            assert_eq!(other.run(&format!("PUBLISH c {number}")), Reply::Int(1));
        }
        let (mut heard, mut replies) = (Vec::new(), Vec::new());
        while heard.len() + replies.len() < 202 {
            match client.read() {
                Reply::Push(items) => heard.push(items[2].text()),
                reply => replies.push(reply),
            }
        }
        let is_whole = match (&replies[0], &expected) {
            (Reply::Map(pairs), Reply::Array(items)) => 2 * pairs.len() == items.len(),
            (ours, theirs) => ours == theirs,
        };
        assert!(is_whole, "{command}: {:.80?}", replies[0]);
        assert_eq!(replies[1], Reply::Simple(b"PONG".to_vec()));
        assert_eq!(heard, (0..200).map(|number| number.to_string()).collect::<Vec<_>>());
        // It does not read the reply any more: what waits for the end of that is bounded as output is.
        other.run_bytes(&[b"CONFIG", b"SET", b"client-output-buffer-limit", b"pubsub 20mb 0 0"]);
        client.send(command);
        client.send("PING");
        std::thread::sleep(std::time::Duration::from_millis(100));
        let payload = "p".repeat(100_000);
        eventually("it is closed", || other.run(&format!("PUBLISH c {payload}")) == Reply::Int(0));
        assert_eq!(other.info("client_output_buffer_limit_disconnections"), "1");
    }
}

/// A monitor reads of a command before what it is told by the client that had the reply; of its own after their replies.
#[test]
fn lines_of_a_monitor_come_in_their_places() {
    on_each(&|server| {
        let (mut monitor, mut other) = (server.connect(), server.connect());
        monitor.ok("MONITOR");
        for round in 0..100 {
            other.ok(&format!("SET k {round}"));
            monitor.send("PING");
            let line = monitor.read().text();
            assert!(line.ends_with(&format!("\"SET\" \"k\" \"{round}\"")), "{line}");
            assert_eq!(monitor.read(), Reply::Simple(b"PONG".to_vec()));
            let line = monitor.read().text();
            assert!(line.ends_with("\"PING\""), "{line}");
        }
        other.ok("SET k last");
        monitor.send("QUIT");
        let line = monitor.read().text();
        assert!(line.ends_with("\"last\""), "{line}");
        assert_eq!(monitor.read(), Reply::ok());
    });
}
