//! Scripts and functions beside what else there is: waiters, watches, monitors, events, transactions, the log, starts.

use rustix::process::Signal;

use crate::harness::*;

fn eval(c: &mut Client, script: &str, words: &[&str]) -> Reply {
    let mut command: Vec<&[u8]> = vec![b"EVAL", script.as_bytes()];
    command.extend(words.iter().map(|word| word.as_bytes()));
    c.run_bytes(&command)
}

const LIBRARY: &str = "#!lua name=tested
local calls = 0
redis.register_function('count', function() calls = calls + 1 return calls end)
redis.register_function('put', function(keys, args) return redis.call('SET', keys[1], args[1]) end)
redis.register_function{function_name='look', callback=function(keys) return redis.call('GET', keys[1]) end, flags={'no-writes'}}";

fn load(c: &mut Client, library: &str) -> Reply {
    c.run_bytes(&[b"FUNCTION", b"LOAD", b"REPLACE", library.as_bytes()])
}

/// A line of `MONITOR` without its time and its port.
fn monitored(c: &mut Client) -> Reply {
    let text = c.read().text();
    let (_, rest) = text.split_once('[').unwrap_or_else(|| panic!("{text}"));
    let (from, command) = rest.split_once("] ").unwrap_or_else(|| panic!("{text}"));
    let from = if from.ends_with("lua") { from } else { "client" };
    Reply::Bulk(format!("[{from}] {command}").into_bytes())
}

#[test]
fn others_are_told_of_what_a_script_does_as_by_redis() {
    beside_redis(&[], &|connect| {
        let (mut c, mut monitor, mut listener) = (connect(), connect(), connect());
        c.ok("CONFIG SET notify-keyspace-events KEA");
        assert!(!listener.run("PSUBSCRIBE __key*__:* said").is_error());
        let mut found = Vec::new();
        monitor.ok("MONITOR");
        let script = "redis.call('SET', KEYS[1], 'v') redis.call('RPUSH', 'l', 1, 2)
            redis.pcall('INCR', KEYS[1]) redis.call('PUBLISH', 'said', 'word') redis.call('DEL', 'l') return 1";
        found.push(eval(&mut c, script, &["1", "k"]));
        found.push(eval(&mut c, "return redis.call('WATCH', 'k')", &["0"]));
        c.run("PUBLISH said end");
        // EVAL itself, its five commands, the second EVAL, PUBLISH.
        found.extend((0..8).map(|_| monitored(&mut monitor)));
        loop {
            let message = listener.read();
            let is_end = message.items().last().is_some_and(|word| word.text() == "end");
            found.push(message);
            if is_end {
                break;
            }
        }
        for name in ["eval", "set", "incr", "watch", "rpush"] {
            let counts = c.info(&format!("cmdstat_{name}"));
            let counts: Vec<_> = counts.split(',').filter(|count| !count.starts_with("usec")).collect();
            found.push(Reply::Bulk(counts.join(",").into_bytes()));
        }
        found.extend(
            ["errorstat_ERR", "errorstat_WRONGTYPE"].map(|name| Reply::Bulk(c.info(name).into_bytes())),
        );
        found
    });
}

#[test]
fn who_waits_or_watches_notices_scripts_as_in_redis() {
    beside_redis(&[], &|connect| {
        let (mut c, mut waiting, mut watching) = (connect(), connect(), connect());
        let mut found = Vec::new();
        waiting.send("BLPOP l 0");
        eventually("a client waits", || c.info("blocked_clients") == "1");
        watching.ok("SET w 1");
        watching.ok("WATCH w");
        let script = "redis.call('RPUSH', 'l', 'first', 'second') redis.call('INCR', 'w') return redis.call('LLEN', 'l')";
        // The waiting client is served at the end of the script.
        found.push(eval(&mut c, script, &["0"]));
        found.push(waiting.read());
        found.push(c.run("LRANGE l 0 -1"));
        watching.ok("MULTI");
        watching.send("GET w");
        found.push(watching.read());
        found.push(watching.run("EXEC"));
        // A script in a transaction, and what it finds of it.
        found.extend(["MULTI", "SET t 1"].map(|line| c.run(line)));
        found.push(eval(&mut c, "redis.call('INCR', 't') return redis.call('GET', 't')", &["1", "t"]));
        found.push(eval(&mut c, "return redis.call('BLPOP', 'l', 0)", &["0"]));
        found.push(c.run("SELECT 1"));
        found.push(eval(&mut c, "redis.call('SELECT', 2) return redis.call('SET', 'in2', 1)", &["0"]));
        found.push(c.run("EXISTS in2"));
        found.push(c.run("EXEC"));
        found.push(c.run("EXISTS in2"));
        found.push(eval(&mut c, "redis.call('SELECT', 0) return redis.call('FLUSHDB')", &["0"]));
        found.push(c.run("SELECT 0"));
        found.push(c.run("DBSIZE"));
        found
    });
}

#[test]
fn a_script_only_reads_where_it_says_so() {
    beside_redis(&[], &|connect| {
        let mut c = connect();
        c.ok("SET k v");
        let mut found = Vec::new();
        for command in ["SET k 1", "PUBLISH c m", "PFCOUNT k", "GET k", "EXPIRE k 1"] {
            let words: Vec<String> = command.split(' ').map(|word| format!("'{word}'")).collect();
            let call = format!("return redis.call({})", words.join(","));
            found.push(c.run_bytes(&[b"EVAL_RO", call.as_bytes(), b"0"]));
            found.push(eval(&mut c, &format!("#!lua flags=no-writes\n{call}"), &["0"]));
        }
        for source in [
            "#!lua flags=no-writes\0 x\nreturn 1",
            "#!lua \0\nreturn 1",
            "#!\0lua\nreturn 1",
            "#!lua",
            "return \0",
        ] {
            found.push(eval(&mut c, source, &["0"]));
            found.push(c.run_bytes(&[b"FUNCTION", b"LOAD", source.as_bytes()]));
        }
        found
    });
}

#[test]
fn a_client_that_goes_or_is_told_late_loses_nothing_of_its_script() {
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--workers", workers]);
        let mut c = server.connect();
        let mut going = server.connect();
        let script = b"for i = 1, 200000 do redis.call('INCR', 'n') end redis.call('SET', 'done', 1)";
        going.send_raw(&encoded(&[b"EVAL", script, b"0"]));
        drop(going);
        eventually("the script of a client that has gone ends", || c.run("GET done").text() == "1");
        assert_eq!(c.run("GET n").text(), "200000");
        // A reply larger than the output may have buffered, read bit by bit by then.
        let large = eval(&mut c, "local t = {} for i = 1, 300000 do t[i] = i end return t", &["0"]);
        assert_eq!(large.items().len(), 300_000);
    }
}

#[test]
fn libraries_survive_what_a_server_goes_through() {
    for workers in ["1", "2"] {
        let args = ["--appendonly", "yes", "--appendfsync", "always", "--workers", workers];
        let server = TestServer::start(&args);
        let (mut c, mut other) = (server.connect(), server.connect());
        c.wait_until_loaded();
        assert_eq!(load(&mut c, LIBRARY).text(), "tested");
        assert_eq!(c.info("number_of_functions"), "3");
        assert!(!other.run("FCALL put 1 k v").is_error());
        assert_eq!(other.run("FCALL_RO look 1 k").text(), "v");
        assert!(other.run("FCALL_RO put 1 k w").is_error());
        // Another library does not take the variables of this one.
        assert_eq!(c.run("FCALL count 0"), Reply::Int(1));
        load(&mut c, "#!lua name=second\nredis.register_function('two', function() return 2 end)");
        assert_eq!(c.run("FCALL count 0"), Reply::Int(2));
        c.ok("FLUSHALL");
        assert_eq!(other.run("FCALL two 0"), Reply::Int(2));
        let payload = c.run("FUNCTION DUMP");
        c.ok("DEBUG LOADAOF");
        let server = server.restarted(Signal::KILL, &args);
        let mut c = server.connect();
        c.wait_until_loaded();
        assert_eq!(c.run("FCALL two 0"), Reply::Int(2));
        c.ok("SAVE");
        c.ok("FUNCTION DELETE second");
        c.ok("DEBUG RELOAD");
        let server = server.restarted(Signal::KILL, &args);
        let mut c = server.connect();
        c.wait_until_loaded();
        assert!(c.run("FCALL two 0").text().starts_with("ERR Function not found"));
        assert_eq!(c.run("FCALL count 0"), Reply::Int(1));
        c.ok("FUNCTION FLUSH");
        assert_eq!(c.info("number_of_libraries"), "0");
        let Reply::Bulk(payload) = payload else { panic!("{payload:?}") };
        assert_eq!(c.run_bytes(&[b"FUNCTION", b"RESTORE", &payload]), Reply::ok());
        assert_eq!(c.run("FCALL two 0"), Reply::Int(2));
    }
}

#[test]
fn a_function_that_never_ends_is_told_of_and_killed() {
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--busy-reply-threshold", "30", "--workers", workers]);
        let (mut runner, mut c) = (server.connect(), server.connect());
        let endless = "#!lua name=e\nredis.register_function('endless', function() while true do end end)";
        assert_eq!(load(&mut c, endless).text(), "e");
        runner.send("FCALL endless 1 k");
        eventually("the function is slow", || c.run("PING").text().starts_with("BUSY"));
        let stats = c.run("FUNCTION STATS");
        let running = stats.items()[1].items().to_vec();
        assert_eq!(running[1].text(), "endless");
        assert_eq!(
            running[3].items().iter().map(Reply::text).collect::<Vec<_>>(),
            ["FCALL", "endless", "1", "k"]
        );
        assert!(running[5].integer().is_some_and(|ms| ms >= 30), "{running:?}");
        assert!(c.run("SCRIPT KILL").text().starts_with("BUSY"), "it is no script");
        c.ok("FUNCTION KILL");
        assert!(runner.read().text().starts_with("ERR Script killed by user with"));
        eventually("nothing runs", || c.run("PING").text() == "PONG");
        assert_eq!(c.run("FUNCTION KILL").text(), "NOTBUSY No scripts in execution right now.");
    }
}

#[test]
fn scripts_are_bounded_and_switched_off() {
    let server = TestServer::start(&["--lua-memory-limit", "8mb"]);
    let mut c = server.connect();
    let grows = "local t = {} for i = 1, 1e8 do t[i] = 'value ' .. i end return 1";
    assert!(eval(&mut c, grows, &["0"]).text().starts_with("OOM"));
    c.ok(&format!("SET large {}", "x".repeat(9 << 20)));
    assert!(eval(&mut c, "return redis.call('GET', 'large')", &["0"]).text().starts_with("OOM"));
    assert_eq!(eval(&mut c, "return #redis.call('GETRANGE', 'large', 0, 99)", &["0"]), Reply::Int(100));
    // The state of before goes with its bound.
    c.ok("CONFIG SET lua-memory-limit 64mb");
    assert_eq!(eval(&mut c, "return #redis.call('GET', 'large')", &["0"]), Reply::Int(9 << 20));
    let off = TestServer::start(&["--scripting", "no"]);
    let mut c = off.connect();
    for line in ["EVAL return 0", "SCRIPT LOAD return", "FCALL f 0", "FUNCTION LIST", "FUNCTION FLUSH"] {
        let reply = c.run(line).text();
        assert!(reply.contains("'scripting' is 'no'"), "{line}: {reply}");
    }
}

/// What scripts have seen is of one instant, with keys that they declare, that they do not, and in another database.
#[test]
fn what_a_script_looks_at_is_of_one_instant() {
    const SCRIPTS: [&str; 3] = [
        "local a = redis.call('GET', KEYS[1]) for i = 1, 2000 do end return {a, redis.call('GET', KEYS[2])}",
        "local a = redis.call('GET', KEYS[1]) for i = 1, 2000 do end return redis.call('MGET', 'a', 'b')",
        "redis.call('SELECT', 1) local a = redis.call('GET', 'a') for i = 1, 2000 do end return {a, redis.call('GET', 'b')}",
    ];
    let server = TestServer::start(&["--workers", "2"]);
    let (server, is_over) = (&server, &std::sync::atomic::AtomicBool::new(false));
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for db in [0, 1] {
            scope.spawn(move || {
                let mut c = server.connect();
                c.ok(&format!("SELECT {db}"));
                for number in 0.. {
                    if is_over.load(relaxed) {
                        break;
                    }
                    c.ok(&format!("MSET a {number} b {number}"));
                }
            });
        }
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(move || {
                    let (mut c, mut seen) = (server.connect(), std::collections::HashSet::new());
                    for round in 0..1500 {
                        let reply = eval(&mut c, SCRIPTS[round % SCRIPTS.len()], &["2", "a", "b"]);
                        let [a, b] = reply.items() else { panic!("{reply:?}") };
                        assert_eq!(a, b, "round {round}");
                        seen.insert(a.text());
                    }
                    seen.len()
                })
            })
            .collect();
        let seen: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        is_over.store(true, relaxed);
        assert!(
            seen.into_iter().all(|count| count.is_ok_and(|count| count > 10)),
            "nothing has changed meanwhile"
        );
    });
}
