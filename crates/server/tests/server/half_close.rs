//! Whatever has arrived before a client ends its side is executed, and answered as far as the client takes it.

use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

use rustix::net::sockopt;
use stillframe_testkit::Stream;

use crate::harness::*;

/// Lines as they are sent.
fn lines(lines: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in lines {
        out.extend(encoded(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()));
    }
    out
}

/// Has `bytes` written by a thread of its own, and ends the side that writes. All that the server answers.
fn say_and_end(client: &mut Client, bytes: Vec<u8>) -> Vec<u8> {
    let mut stream = client.stream.try_clone().expect("a second handle");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            stream.write_all(&bytes).expect("it is taken");
            stream.shutdown(Shutdown::Write).expect("it is open");
        });
        client.read_to_end()
    })
}

/// As many replies as there are in `bytes`, all of them integers, and each one more than that before.
fn assert_counted(bytes: &[u8], from: usize, to: usize) {
    let expected: String = (from..=to).map(|number| format!(":{number}\r\n")).collect();
    assert!(bytes == expected.as_bytes(), "{} of {} bytes came", bytes.len(), expected.len());
}

/// With one worker and with two, a TCP connection and one of a unix socket.
fn on_each(args: &[&str], test: &dyn Fn(&TestServer, &dyn Fn() -> Client)) {
    for workers in ["1", "2"] {
        let dir = temp_dir();
        let path = dir.path().join("socket");
        let socket = ["--unixsocket", path.to_str().expect("UTF-8"), "--workers", workers];
        let server = TestServer::start(&[args, &socket].concat());
        let unix = stillframe_testkit::Address::Unix(path);
        test(&server, &|| server.connect());
        server.connect().ok("FLUSHALL");
        test(&server, &|| Client::new(unix.connect().expect("it listens")));
        eventually("nobody is left", || server.connect().info("connected_clients") == "1");
    }
}

#[test]
fn a_pipeline_of_any_length_is_executed() {
    on_each(&[], &|server, connect| {
        for count in [1, 300, 1_000, 3_000, 30_000] {
            server.connect().ok("FLUSHALL");
            let said = say_and_end(&mut connect(), lines(&vec!["INCR n"; count]));
            assert_counted(&said, 1, count);
            assert_eq!(server.connect().run("GET n").text(), count.to_string());
        }
    });
}

/// Where Redis is definite, it is as there. What has come in part is no command.
#[test]
fn it_is_answered_as_in_redis() {
    beside_redis(&[], &|connect| {
        let scripts: &[&[&str]] = &[
            &["INCR n", "MULTI", "INCR n", "GET n", "EXEC", "INCR n"],
            &["MULTI", "INCR n", "INCR n"],
            &["WATCH n", "MULTI", "INCR n", "EXEC", "DISCARD", "PING"],
            &["INCR n", "QUIT", "INCR n"],
            &["SUBSCRIBE c", "PING", "UNSUBSCRIBE c", "GET n"],
            &["CLIENT REPLY OFF", "INCR n", "CLIENT REPLY ON", "INCR n"],
            &["RPUSH l 1", "BLPOP l 0", "LLEN l"],
            &["NONE", "GET", "SELECT 1", "GET n"],
        ];
        let mut all = Vec::new();
        for script in scripts {
            for rest in [&b""[..], b"*3\r\n$3\r\nSET\r\n$1\r\nn\r\n$5\r\nhal", b"GET n", b"*1\r\n$x"] {
                let said = say_and_end(&mut connect(), [&lines(script), rest].concat());
                all.push(Reply::Bulk(said));
                all.push(connect().run("GET n"));
            }
        }
        all
    });
}

/// A peer that has ended its side may be gone: nothing is taken from a key for it any more.
#[test]
fn a_command_that_waits_ends_and_those_behind_it_are_executed() {
    on_each(&[], &|server, connect| {
        let mut other = server.connect();
        let behind = vec!["INCR n"; 2_000];
        let said = say_and_end(&mut connect(), lines(&[&["INCR n", "BLPOP q 0"], &behind[..]].concat()));
        assert_eq!(&said[..9], b":1\r\n*-1\r\n");
        assert_counted(&said[9..], 2, 2_001);
        assert_eq!(other.run("RPUSH q x"), Reply::Int(1));
        assert_eq!(other.run("LLEN q"), Reply::Int(1), "it has not been given to a client that may be gone");
        assert_eq!(other.info("blocked_clients"), "0");
        // What is there is taken still, also after the end has been seen.
        let script = [&behind[..], &["BLPOP q 0", "BLPOP q 0", "BLMOVE q r LEFT LEFT 5", "INCR n"]].concat();
        let said = say_and_end(&mut connect(), lines(&script));
        assert!(
            said.ends_with(b":4001\r\n*2\r\n$1\r\nq\r\n$1\r\nx\r\n*-1\r\n*-1\r\n:4002\r\n"),
            "{said:.80?}"
        );
        // Without anything behind it, and in the middle of the wait.
        let mut waits = connect();
        waits.send("BLPOP q 0");
        eventually("it waits", || other.info("blocked_clients") == "1");
        waits.stream.shutdown(Shutdown::Write).expect("it is open");
        assert_eq!(waits.read_to_end(), b"*-1\r\n");
        assert_eq!(other.info("blocked_clients"), "0");
    });
}

#[test]
fn a_pause_holds_it_up_and_loses_nothing() {
    on_each(&[], &|server, connect| {
        let mut other = server.connect();
        for kind in ["WRITE", "ALL"] {
            other.ok("FLUSHALL");
            let pause_ms = if kind == "ALL" { 400 } else { 100_000 };
            other.ok(&format!("CLIENT PAUSE {pause_ms} {kind}"));
            let clients: Vec<Client> = (0..4)
                .map(|_| {
                    let mut client = connect();
                    client.send_raw(&lines(&[vec!["INCR n"; 300], vec!["MULTI", "INCR n", "EXEC"]].concat()));
                    client.stream.shutdown(Shutdown::Write).expect("it is open");
                    client
                })
                .collect();
            std::thread::sleep(Duration::from_millis(50));
            // One of all commands holds that up, too.
            other.ok("CLIENT UNPAUSE");
            for mut client in clients {
                let said = client.read_to_end();
                assert_eq!(said.iter().filter(|byte| **byte == b'\n').count(), 304);
            }
            assert_eq!(other.run("GET n").text(), "1204");
        }
    });
}

/// Those that go to their pages as they come, those of a transaction, and one of which not all has come.
#[test]
fn large_values_come_whole_or_not_at_all() {
    on_each(&[], &|server, connect| {
        let value = vec![b'v'; 700_000];
        let set = |key: &str| encoded(&[&b"SET"[..], key.as_bytes(), &value]);
        let mut bytes = Vec::new();
        for number in 0..5 {
            bytes.extend(lines(&["INCR n"]));
            bytes.extend(set(&format!("large:{number}")));
        }
        bytes.extend(lines(&["MULTI"]));
        bytes.extend(set("queued"));
        bytes.extend(lines(&["EXEC", "GET large:3"]));
        let whole_bytes = bytes.len();
        bytes.extend(&set("half")[..500_000]);
        let said = say_and_end(&mut connect(), bytes);
        let head: String = (1..=5).map(|number| format!(":{number}\r\n+OK\r\n")).collect();
        let expected =
            [head.as_bytes(), b"+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n$700000\r\n", &value, b"\r\n"].concat();
        assert!(said == expected, "{} of {} bytes, {whole_bytes} sent", said.len(), expected.len());
        let mut other = server.connect();
        assert_eq!(other.run("EXISTS large:0 large:4 queued half"), Reply::Int(3));
        assert_eq!(other.run("STRLEN queued"), Reply::Int(700_000));
    });
}

/// Replies whose parts are written by a thread of their own, and a client that takes its time.
#[test]
fn a_large_reply_comes_to_its_end() {
    on_each(&["--timeout", "0"], &|server, connect| {
        let mut other = server.connect();
        for part in 0..30 {
            let fields = (0..1_000).map(|field| format!("f{} v", part * 1_000 + field));
            other.run(&format!("HSET h {}", fields.collect::<Vec<_>>().join(" ")));
        }
        let whole = other.run("HGETALL h").items().len();
        let mut script = vec!["INCR n"; 400];
        script.extend(["HGETALL h", "HGETALL h"]);
        script.extend(vec!["INCR n"; 400]);
        let mut client = connect();
        client.send_raw(&lines(&script));
        client.stream.shutdown(Shutdown::Write).expect("it is open");
        eventually("what comes before has run", || {
            other.run("GET n").text().parse().is_ok_and(|n: u32| n >= 400)
        });
        for number in 1..=400 {
            assert_eq!(client.read(), Reply::Int(number));
        }
        for _ in 0..2 {
            assert_eq!(client.read().items().len(), whole);
        }
        for number in 401..=800 {
            assert_eq!(client.read(), Reply::Int(number));
        }
        assert_eq!(client.read_to_end(), b"");
    });
}

#[test]
fn missing_pages_are_waited_for() {
    let server = TestServer::start(&["--workers", "2", "--maxmemory", "16mb", "--snapshot-memory", "4mb"]);
    let mut other = server.connect();
    let value = "x".repeat(20_000);
    for number in 0..4_000 {
        other.queue_line(&format!("SET key:{number} {value}{number}"));
        if number % 100 == 99 {
            other.flush().expect("it is taken");
            (0..100).for_each(|_| assert_eq!(other.read(), Reply::ok()));
        }
    }
    let mut script = Vec::new();
    for number in 0..2_000 {
        script.extend(lines(&[
            "INCR n",
            &format!("STRLEN key:{number}"),
            &format!("APPEND key:{} y", number * 2),
        ]));
    }
    script.extend(lines(&["MULTI", "STRLEN key:1", "INCR n", "EXEC"]));
    let misses_before: u64 = other.info("data_pages_loaded").parse().unwrap_or(0);
    let said = say_and_end(&mut server.connect(), script);
    assert_eq!(said.iter().filter(|byte| **byte == b'\n').count(), 3 * 2_000 + 6);
    assert_eq!(other.run("GET n").text(), "2001");
    let misses: u64 = other.info("data_pages_loaded").parse().unwrap_or(u64::MAX);
    assert!(misses > misses_before, "pages were missing");
}

/// Closed without reading a reply, in order or by a reset: what had arrived is executed.
#[test]
fn one_that_takes_no_reply_has_its_commands_executed() {
    on_each(&[], &|server, connect| {
        let mut other = server.connect();
        for is_reset in [false, true] {
            other.ok("FLUSHALL");
            let (busy, mut client) = (server.connect(), connect());
            // All of it is there before the first reply, which nobody takes.
            other.ok("CLIENT PAUSE 100000 WRITE");
            client.send_raw(&lines(&[vec!["INCR n"; 700], vec!["BLPOP q 0"], vec!["INCR n"; 700]].concat()));
            std::thread::sleep(Duration::from_millis(50));
            if is_reset {
                if let Stream::Tcp(stream) = &client.stream {
                    sockopt::set_socket_linger(stream, Some(Duration::ZERO)).expect("an option");
                }
            }
            drop((client, busy));
            other.ok("CLIENT UNPAUSE");
            eventually("all of it is executed", || other.run("GET n").text() == "1400");
            assert_eq!(other.info("blocked_clients"), "0");
        }
    });
}

/// It takes none of what it has asked for, and goes by the limits of any other.
#[test]
fn one_that_never_reads_is_closed_by_the_limits() {
    for (name, value) in [("timeout", "1"), ("client-output-buffer-limit", "normal 600kb 0 0")] {
        let server = TestServer::start(&["--workers", "2"]);
        let mut other = server.connect();
        other.run_bytes(&[b"SET", b"large", &vec![b'x'; 200_000]]);
        other.run_bytes(&[b"CONFIG", b"SET", name.as_bytes(), value.as_bytes()]);
        let mut client = server.connect();
        client.send_raw(&lines(&vec!["GETRANGE large 0 190000"; 300]));
        // Unless it has been closed by now.
        let _ = client.stream.shutdown(Shutdown::Write);
        eventually(&format!("it is closed by {name}"), || {
            let mut fresh = server.connect();
            fresh.run("CLIENT LIST").text().lines().filter(|line| line.contains("cmd=getrange")).count() == 0
        });
    }
}
