//! Streams beside Redis: waits for an entry, what ends them, and what is kept over a restart.

use crate::blocking::talk_beside_redis;
use crate::harness::*;
use rustix::process::Signal;

#[test]
fn readers_get_what_is_added_behind_what_they_know() {
    talk_beside_redis(&[
        &[
            "a> XREAD BLOCK 0 STREAMS s $",
            "b> XREAD BLOCK 0 COUNT 1 STREAMS none s 0 $",
            "c XADD s 1-1 f v",
            "a<",
            "b<",
            // The sign is what it was when the wait began.
            "a XADD s 2-1 f v",
            "a> XREAD BLOCK 0 STREAMS s $",
            "c XADD other 9-9 f v",
            "a?",
            "c XADD s 3-1 f v",
            "a<",
        ],
        &[
            "c XADD s 5-5 f v",
            "a XREAD BLOCK 10 STREAMS s 5-5",
            "a XREAD BLOCK 0 STREAMS s 5-4",
            "a> XREAD BLOCK 0 STREAMS s 9-0",
            "c XADD s 6-1 f v",
            "a?",
            "c XADD s 9-1 f v",
            "a<",
            "a XREAD BLOCK -1 STREAMS s $",
            "a XREAD BLOCK x STREAMS s $",
        ],
        &[
            "a MULTI",
            "a XREAD BLOCK 0 STREAMS s $",
            "a XREADGROUP GROUP g c BLOCK 0 STREAMS s >",
            "a EXEC",
            "c XGROUP CREATE s g $ MKSTREAM",
            "a MULTI",
            "a XREADGROUP GROUP g c BLOCK 0 STREAMS s >",
            "a EXEC",
            "b> XREADGROUP GROUP g c BLOCK 0 STREAMS s >",
            "c MULTI",
            "c XADD s 1-1 f v",
            "c XADD s 1-2 f v",
            "c EXEC",
            "b<",
        ],
    ]);
}

#[test]
fn consumers_of_a_group_never_get_the_same_entry() {
    talk_beside_redis(&[
        &[
            "c XGROUP CREATE s g $ MKSTREAM",
            "a> XREADGROUP GROUP g one BLOCK 0 STREAMS s >",
            "b> XREADGROUP GROUP g two BLOCK 0 STREAMS s >",
            "d> XREAD BLOCK 0 STREAMS s $",
            "c XADD s 1-1 f v",
            "a<",
            "d<",
            "b?",
            "c XADD s 1-2 f v",
            "b<",
            "c XACK s g 1-1 1-2",
            "c XINFO GROUPS s",
        ],
        // What a consumer owns is there at once.
        &[
            "c XGROUP CREATE s g 0 MKSTREAM",
            "a XREADGROUP GROUP g one BLOCK 0 STREAMS s 0",
            "c XADD s 1-1 f v",
            "a XREADGROUP GROUP g one COUNT 1 STREAMS s >",
            "a XREADGROUP GROUP g one BLOCK 0 STREAMS s 0",
            "a XREADGROUP GROUP g one BLOCK 10 STREAMS s >",
        ],
    ]);
}

#[test]
fn the_wait_of_a_consumer_ends_with_its_stream_or_group() {
    let wait = "a> XREADGROUP GROUP g one BLOCK 0 STREAMS s >";
    let begin = "c XGROUP CREATE s g $ MKSTREAM";
    let (read, reader) = ("a<", "b> XREAD BLOCK 0 STREAMS s $");
    talk_beside_redis(&[
        &[begin, wait, reader, "c DEL s", read, "b?", "c XADD s 1-1 f v", "b<"],
        &[begin, wait, "c XGROUP DESTROY s other", "a?", "c XGROUP DESTROY s g", read],
        &[begin, wait, "c RENAME s elsewhere", read],
        &[begin, wait, "c SET s v", read],
        &[begin, wait, "c FLUSHALL", read],
        &[begin, wait, "c XTRIM s MAXLEN 0", "a?", "c XSETID s 5-5", "a?", "c DEL s", read],
        &[begin, wait, "c MULTI", "c DEL s", "c LPUSH s v", "c EXEC", read],
        &[begin, wait, "c CLIENT UNBLOCK {a} ERROR", read],
        &[begin, wait, "c CLIENT UNBLOCK {a}", read],
        &["c LPUSH s v", "a XREADGROUP GROUP g one BLOCK 0 STREAMS s >", "a XREAD BLOCK 0 STREAMS s $"],
    ]);
}

/// By the command that meets it first, or by nobody's.
#[test]
fn it_ends_with_a_stream_whose_time_is_over() {
    for worker_count in ["1", "2"] {
        let server = TestServer::start(&["--workers", worker_count]);
        let (mut waiting, mut other) = (server.connect(), server.connect());
        other.ok("XGROUP CREATE s g $ MKSTREAM");
        waiting.send("XREADGROUP GROUP g one BLOCK 0 STREAMS s >");
        eventually("it waits", || other.info("blocked_clients") == "1");
        assert_eq!(other.run("PEXPIRE s 50"), Reply::Int(1));
        assert_eq!(waiting.read(), Reply::Error(b"UNBLOCKED the stream key no longer exists".to_vec()));
    }
}

/// Groups and what is pending come back, from the page file and from the log.
#[test]
fn streams_are_kept_over_a_restart() {
    for setting in [&["--appendonly", "no"][..], &["--appendonly", "yes"], &["--snapshot-format", "rdb"]] {
        let server = TestServer::start(setting);
        let mut client = server.connect();
        eventually("it is loaded", || client.run("PING") == Reply::Simple(b"PONG".to_vec()));
        for number in 1..=500 {
            client.run(&format!("XADD s {number}-1 field {number} other value"));
        }
        client.ok("XGROUP CREATE s g 10");
        client.run("XREADGROUP GROUP g one COUNT 200 STREAMS s >");
        client.run("XREADGROUP GROUP g two COUNT 100 STREAMS s >");
        client.run("XACK s g 12-1 13-1 250-1");
        client.run("XDEL s 3-1 499-1");
        client.run("XTRIM s MAXLEN 450");
        client.run(&format!("XADD s 501-1 large {}", "v".repeat(100_000)));
        let asked = [
            "XRANGE s - +",
            "XPENDING s g - + 1000",
            "XPENDING s g",
            "XINFO GROUPS s",
            "DEBUG DIGEST-VALUE s",
        ];
        let said = |client: &mut Client| {
            let timeless = |line: &&str| {
                // The third part of a pending entry is how long it is idle.
                let mut reply = client.run(line);
                if let (Reply::Array(all), true) = (&mut reply, line.ends_with("1000")) {
                    for pending in all {
                        let Reply::Array(parts) = pending else { panic!("{pending:?}") };
                        parts[2] = Reply::Int(0);
                    }
                }
                reply
            };
            asked.iter().map(timeless).collect::<Vec<_>>()
        };
        let before = said(&mut client);
        match setting[1] {
            "yes" => drop(client.run("WAITAOF 1 0 5000")),
            _ => client.ok("SAVE"),
        }
        let server = server.restarted(Signal::KILL, setting);
        let mut client = server.connect();
        eventually("it is loaded", || client.run("PING") == Reply::Simple(b"PONG".to_vec()));
        assert_eq!(said(&mut client), before, "{setting:?}");
    }
}
