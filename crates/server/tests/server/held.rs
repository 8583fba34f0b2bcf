//! Replies that wait until what they tell of is durable, over a log that is durable as far as the test says. Each check is run
//! without a part of the rule, too, and has to find that.

use std::net::Shutdown;
use std::ops::{Deref, DerefMut};

use crate::harness::*;

/// What is wrong, if something is.
type Found = Result<(), String>;
type Check = fn(&mut Rig) -> Found;

struct Rig {
    server: TestServer,
    /// Its commands need nothing.
    control: Client,
}

/// A connection whose number is known.
struct Peer {
    client: Client,
    id: i64,
}

impl Deref for Peer {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for Peer {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl Rig {
    fn new(workers: &str) -> Rig {
        let server = TestServer::start(&["--workers", workers]);
        let control = server.connect();
        Rig { server, control }
    }

    fn connect(&self) -> Peer {
        let mut client = self.server.connect();
        match client.run("CLIENT ID") {
            Reply::Int(id) => Peer { client, id },
            other => panic!("{other:?}"),
        }
    }

    /// Bytes that wait for this connection to take them, or for the log.
    fn unsent_bytes(&mut self, peer: &Peer) -> usize {
        let list = self.control.run(&format!("CLIENT LIST ID {}", peer.id)).text();
        let field =
            |name| list.split_once(name).and_then(|(_, rest)| rest.split(' ').next()?.parse::<usize>().ok());
        field(" obl=").zip(field(" omem=")).map(|(few, many)| few + many).expect("it is there")
    }

    /// Waits until the server has something for this connection: it must be held.
    fn held(&mut self, peer: &mut Peer, what: &str) -> Found {
        eventually("there is something for it", || self.unsent_bytes(peer) > 0 || !peer.is_silent());
        match peer.is_silent() {
            true => Ok(()),
            false => Err(format!("{what} has left")),
        }
    }

    fn word_of(&mut self, key: &str) -> Reply {
        self.control.run(&format!("DEBUG REPLY-GATE WORD {key}"))
    }

    /// A key that waits for none of these.
    fn apart_from(&mut self, keys: &[&str]) -> String {
        let words: Vec<Reply> = keys.iter().map(|key| self.word_of(key)).collect();
        let mut names = (0..).map(|number| format!("other{number}"));
        names.find(|name| !words.contains(&self.word_of(name))).expect("one of them")
    }

    /// From here on nothing becomes durable by itself.
    fn hold(&mut self) {
        self.control.ok("DEBUG REPLY-GATE HOLD");
    }

    fn release(&mut self) {
        self.control.ok("DEBUG REPLY-GATE RELEASE");
    }

    fn end_offset(&mut self) -> i64 {
        match self.control.run("DEBUG REPLY-GATE END") {
            Reply::Int(offset) => offset,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until another unit has been appended: what was sent has been executed.
    fn await_unit_after(&mut self, offset: i64) -> i64 {
        eventually("another unit", || self.end_offset() > offset);
        self.end_offset()
    }
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

fn same(client: &mut Client, expected: &Reply, what: &str) -> Found {
    let reply = client.read();
    match reply == *expected {
        true => Ok(()),
        false => Err(format!("{what}: {reply:?} and not {expected:?}")),
    }
}

fn ok() -> Reply {
    Reply::Simple(b"OK".to_vec())
}

fn texts(reply: &Reply) -> Vec<String> {
    reply.items().iter().map(Reply::text).collect()
}

fn a_write_is_held(rig: &mut Rig) -> Found {
    let mut a = rig.connect();
    rig.hold();
    for line in ["SET k v", "RPUSH l a b", "HSET h f v", "EXPIRE k 100", "DEL l", "INCR n"] {
        a.send(line);
        rig.held(&mut a, line)?;
        rig.release();
        a.read();
    }
    // What changes nothing waits for what it has found.
    let mut b = rig.connect();
    a.send("SET k w");
    rig.held(&mut a, "SET")?;
    b.send("SETNX k x");
    rig.held(&mut b, "a SETNX that finds something")?;
    rig.release();
    same(&mut a, &ok(), "SET")?;
    same(&mut b, &Reply::Int(0), "SETNX")
}

fn a_read_is_held_for_its_own_keys(rig: &mut Rig) -> Found {
    let (mut a, mut b, mut c) = (rig.connect(), rig.connect(), rig.connect());
    let other = rig.apart_from(&["k"]);
    a.ok(&format!("SET {other} here"));
    rig.hold();
    a.send("SET k v");
    rig.held(&mut a, "SET")?;
    for client in [&mut b, &mut c] {
        assert_eq!(client.run(&format!("GET {other}")), bulk("here"));
        assert_eq!(client.run(&format!("MGET {other} {other}")).items().len(), 2);
        client.run("PING");
    }
    b.send("GET k");
    c.send(&format!("MGET {other} k"));
    rig.held(&mut b, "GET")?;
    rig.held(&mut c, "MGET")?;
    rig.release();
    same(&mut a, &ok(), "SET")?;
    same(&mut b, &bulk("v"), "GET")?;
    same(&mut c, &Reply::Array(vec![bulk("here"), bulk("v")]), "MGET")?;
    // It is durable now.
    assert_eq!(b.run("GET k"), bulk("v"));
    // One that has gone is no less of a change.
    a.send("RENAME k elsewhere");
    rig.held(&mut a, "RENAME")?;
    for line in ["EXISTS k", "STRLEN elsewhere", "TYPE k"] {
        let mut reader = rig.connect();
        reader.send(line);
        rig.held(&mut reader, line)?;
    }
    Ok(())
}

fn the_key_space_is_held_as_a_whole(rig: &mut Rig) -> Found {
    let mut a = rig.connect();
    a.ok("SET other here");
    rig.hold();
    a.send("SET k v");
    rig.held(&mut a, "SET")?;
    for line in ["DBSIZE", "KEYS *", "SCAN 0", "RANDOMKEY"] {
        let mut reader = rig.connect();
        reader.send(line);
        rig.held(&mut reader, line)?;
        rig.release();
        reader.read();
        a.read();
        a.send("INCR n");
        rig.held(&mut a, "INCR")?;
    }
    rig.release();
    a.read();
    a.send("FLUSHALL");
    rig.held(&mut a, "FLUSHALL")?;
    let mut reader = rig.connect();
    reader.send("GET anything");
    rig.held(&mut reader, "a read of a key that was emptied with all others")?;
    rig.release();
    same(&mut reader, &Reply::NullBulk, "GET")
}

fn a_transaction_is_held(rig: &mut Rig) -> Found {
    let (mut a, mut b, mut c, mut d) = (rig.connect(), rig.connect(), rig.connect(), rig.connect());
    let other = &rig.apart_from(&["k"]);
    a.ok(&format!("SET {other} here"));
    c.ok("WATCH k");
    rig.hold();
    for line in ["MULTI", "SET k v", &format!("GET {other}")] {
        a.run(line);
    }
    a.send("EXEC");
    rig.held(&mut a, "EXEC")?;
    for (client, key) in [(&mut b, other.as_str()), (&mut d, "k")] {
        client.run("MULTI");
        client.run(&format!("GET {key}"));
        client.send("EXEC");
    }
    same(&mut b, &Reply::Array(vec![bulk("here")]), "EXEC on another key")?;
    rig.held(&mut d, "EXEC that reads")?;
    // A transaction that the change has broken tells of it.
    c.run("MULTI");
    c.run("PING");
    c.send("EXEC");
    rig.held(&mut c, "EXEC that finds a change")?;
    rig.release();
    same(&mut a, &Reply::Array(vec![ok(), bulk("here")]), "EXEC")?;
    same(&mut d, &Reply::Array(vec![bulk("v")]), "EXEC that reads")?;
    same(&mut c, &Reply::NullArray, "EXEC that finds a change")
}

fn messages_of_a_transaction_are_held(rig: &mut Rig) -> Found {
    let (mut a, mut listeners) = (rig.connect(), [rig.connect(), rig.connect()]);
    listeners.iter_mut().for_each(|listener| drop(listener.run("SUBSCRIBE c")));
    rig.hold();
    a.send("PUBLISH c free");
    same(&mut a, &Reply::Int(2), "PUBLISH")?;
    for listener in &mut listeners {
        assert_eq!(texts(&listener.read()), ["message", "c", "free"]);
    }
    for line in ["MULTI", "PUBLISH c before", "SET k v", "PUBLISH c behind"] {
        a.run(line);
    }
    a.send("EXEC");
    rig.held(&mut a, "EXEC")?;
    for listener in &mut listeners {
        rig.held(listener, "a message")?;
    }
    rig.release();
    a.read();
    for listener in &mut listeners {
        for text in ["before", "behind"] {
            assert_eq!(texts(&listener.read()), ["message", "c", text]);
        }
    }
    // One that is sent behind a change that is not durable tells of that.
    a.send("SET k w");
    rig.held(&mut a, "SET")?;
    a.send("PUBLISH c later");
    for listener in &mut listeners {
        rig.held(listener, "a message behind a change")?;
    }
    rig.release();
    for listener in &mut listeners {
        assert_eq!(texts(&listener.read()), ["message", "c", "later"]);
    }
    Ok(())
}

fn notifications_are_held(rig: &mut Rig) -> Found {
    let (mut a, mut listeners) = (rig.connect(), [rig.connect(), rig.connect()]);
    a.ok("CONFIG SET notify-keyspace-events KEAm");
    listeners.iter_mut().for_each(|listener| drop(listener.run("PSUBSCRIBE __keyevent@0__:*")));
    rig.hold();
    a.send("SET k v");
    rig.held(&mut a, "SET")?;
    for listener in &mut listeners {
        rig.held(listener, "an event")?;
    }
    rig.release();
    for listener in &mut listeners {
        assert_eq!(texts(&listener.read())[2..], ["__keyevent@0__:set", "k"]);
    }
    same(&mut a, &ok(), "SET")?;
    // Of a time that is over nobody's command tells.
    rig.control.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    a.send("SET brief v PX 30");
    rig.held(&mut a, "SET")?;
    rig.release();
    same(&mut a, &ok(), "SET")?;
    for listener in &mut listeners {
        assert_eq!(texts(&listener.read())[2..], ["__keyevent@0__:set", "brief"]);
        assert_eq!(texts(&listener.read())[2..], ["__keyevent@0__:expire", "brief"]);
    }
    rig.control.ok("DEBUG SET-ACTIVE-EXPIRE 1");
    for listener in &mut listeners {
        rig.held(listener, "the event of an expiry")?;
    }
    rig.release();
    for listener in &mut listeners {
        assert_eq!(texts(&listener.read())[2..], ["__keyevent@0__:expired", "brief"]);
    }
    // That there is nothing tells of what has gone.
    a.send("DEL k");
    rig.held(&mut a, "DEL")?;
    let mut b = rig.connect();
    b.send("GET k");
    rig.held(&mut b, "GET")?;
    for listener in &mut listeners {
        rig.held(listener, "the event of a miss")?;
    }
    rig.release();
    for listener in &mut listeners {
        assert_eq!(texts(&listener.read())[2..], ["__keyevent@0__:del", "k"]);
        assert_eq!(texts(&listener.read())[2..], ["__keyevent@0__:keymiss", "k"]);
    }
    Ok(())
}

fn what_a_client_has_waited_for_is_held(rig: &mut Rig) -> Found {
    let (mut a, mut waiting) = (rig.connect(), [rig.connect(), rig.connect(), rig.connect()]);
    rig.hold();
    for (at, client) in waiting.iter_mut().enumerate() {
        client.send(["BLPOP q 0", "BLMOVE q other LEFT RIGHT 0", "BRPOP q 0"][at]);
        let count = (at + 1).to_string();
        eventually("it waits", || rig.control.info("blocked_clients") == count);
    }
    a.send("RPUSH q x y z");
    rig.held(&mut a, "RPUSH")?;
    for client in &mut waiting {
        rig.held(client, "an element")?;
    }
    rig.release();
    same(&mut a, &Reply::Int(3), "RPUSH")?;
    let pair = |element| Reply::Array(vec![bulk("q"), bulk(element)]);
    for (client, element) in waiting.iter_mut().zip([pair("x"), bulk("y"), pair("z")]) {
        same(client, &element, "an element")?;
    }
    Ok(())
}

fn a_pipeline_goes_on_and_is_let_go_in_parts(rig: &mut Rig) -> Found {
    let (mut a, start) = (rig.connect(), 0);
    rig.hold();
    a.send("SET a 1");
    let first = rig.await_unit_after(start);
    rig.held(&mut a, "the first")?;
    a.send("SET b 2");
    let second = rig.await_unit_after(first);
    a.send("GET none");
    rig.held(&mut a, "the second")?;
    rig.control.ok(&format!("DEBUG REPLY-GATE RELEASE {}", first - 1));
    rig.held(&mut a, "the first")?;
    rig.control.ok(&format!("DEBUG REPLY-GATE RELEASE {first}"));
    same(&mut a, &ok(), "the first")?;
    rig.held(&mut a, "the second")?;
    rig.control.ok(&format!("DEBUG REPLY-GATE RELEASE {second}"));
    same(&mut a, &ok(), "the second")?;
    same(&mut a, &Reply::NullBulk, "the third")
}

fn large_values_are_held(rig: &mut Rig) -> Found {
    const BIG_BYTES: usize = 3 << 20;
    let (mut a, mut b) = (rig.connect(), rig.connect());
    let (old, new) = (vec![b'o'; BIG_BYTES], vec![b'n'; BIG_BYTES]);
    let other = rig.apart_from(&["big", "n"]);
    for key in ["big", &other] {
        a.run_bytes(&[b"SET", key.as_bytes(), &old]);
    }
    rig.hold();
    a.queue(&[b"SET".as_slice(), b"big", &new]);
    a.flush().expect("it takes it");
    let end = rig.await_unit_after(0);
    rig.held(&mut a, "SET")?;
    assert_eq!(b.run(&format!("GET {other}")), Reply::Bulk(old.clone()));
    b.send("GET big");
    rig.held(&mut b, "a large value")?;
    a.send("INCR n");
    rig.await_unit_after(end);
    a.send(&format!("GET {other}"));
    rig.control.ok(&format!("DEBUG REPLY-GATE RELEASE {end}"));
    same(&mut a, &ok(), "SET")?;
    same(&mut b, &Reply::Bulk(new), "a large value")?;
    rig.held(&mut a, "INCR and what is behind it")?;
    rig.release();
    same(&mut a, &Reply::Int(1), "INCR")?;
    same(&mut a, &Reply::Bulk(old), "a large value behind it")
}

fn streamed_collections_are_held(rig: &mut Rig) -> Found {
    const MEMBERS: usize = 30_000;
    let (mut a, mut b) = (rig.connect(), rig.connect());
    let mut words = vec!["SADD".to_owned(), "many".to_owned()];
    words.extend((0..MEMBERS).map(|number| format!("member:{number}")));
    a.queue(&words);
    a.flush().expect("it takes it");
    a.read();
    let counter = rig.apart_from(&["many"]);
    rig.hold();
    a.send(&format!("INCR {counter}"));
    rig.held(&mut a, "INCR")?;
    assert_eq!(b.run("SMEMBERS many").items().len(), MEMBERS, "of another key");
    let end = rig.end_offset();
    a.send("SADD many another");
    rig.await_unit_after(end);
    b.send("SMEMBERS many");
    rig.held(&mut b, "a streamed reply")?;
    let mut c = rig.connect();
    c.send("SRANDMEMBER many -50000");
    rig.held(&mut c, "random elements")?;
    rig.release();
    assert_eq!(b.read().items().len(), MEMBERS + 1);
    // What is drawn later may show more, and waits for that.
    while c.is_silent() {
        rig.release();
    }
    assert_eq!(c.read().items().len(), 50_000);
    Ok(())
}

fn lines_of_monitors_are_not_held(rig: &mut Rig) -> Found {
    let (mut a, mut monitor) = (rig.connect(), rig.connect());
    monitor.ok("MONITOR");
    rig.hold();
    a.send("SET k v");
    let line = monitor.read().text();
    assert!(line.contains("\"SET\" \"k\" \"v\""), "{line}");
    rig.held(&mut a, "SET")
}

const CHECKS: &[Check] = &[
    a_write_is_held,
    a_read_is_held_for_its_own_keys,
    the_key_space_is_held_as_a_whole,
    a_transaction_is_held,
    messages_of_a_transaction_are_held,
    notifications_are_held,
    what_a_client_has_waited_for_is_held,
    a_pipeline_goes_on_and_is_let_go_in_parts,
    large_values_are_held,
    streamed_collections_are_held,
    lines_of_monitors_are_not_held,
];

#[test]
fn nothing_leaves_that_tells_of_what_is_not_durable() {
    for workers in ["1", "2"] {
        for check in CHECKS {
            check(&mut Rig::new(workers)).unwrap_or_else(|wrong| panic!("{workers} workers: {wrong}"));
        }
    }
}

/// The checks find each part of the rule that is left out.
#[test]
fn a_part_of_the_rule_that_is_left_out_is_found() {
    let cases: &[(&str, &[Check])] = &[
        ("sends-at-once", CHECKS),
        (
            "reads-at-once",
            &[
                a_write_is_held,
                a_read_is_held_for_its_own_keys,
                the_key_space_is_held_as_a_whole,
                a_transaction_is_held,
                notifications_are_held,
                large_values_are_held,
                streamed_collections_are_held,
            ],
        ),
        (
            "tells-at-once",
            &[
                messages_of_a_transaction_are_held,
                notifications_are_held,
                what_a_client_has_waited_for_is_held,
            ],
        ),
    ];
    for (mistake, checks) in cases {
        for (at, check) in checks.iter().enumerate() {
            for workers in ["1", "2"] {
                eprintln!("check {at} with {mistake}, {workers} workers");
                let mut rig = Rig::new(workers);
                rig.control.ok(&format!("DEBUG REPLY-GATE MISTAKE {mistake}"));
                assert!(check(&mut rig).is_err(), "check {at} does not find {mistake}, {workers} workers");
            }
        }
    }
}

/// Clients that come and go while their replies are held.
#[test]
fn an_end_waits_for_what_is_held_and_a_client_that_has_gone_for_nothing() {
    for workers in ["1", "2"] {
        let mut rig = Rig::new(workers);
        rig.hold();
        let start = |rig: &Rig, lines: &[&str]| {
            let mut client = rig.connect();
            lines.iter().for_each(|line| client.send(line));
            client
        };
        let mut quits = start(&rig, &["SET a 1", "QUIT"]);
        let mut closes = start(&rig, &["SET b 1", "GET b"]);
        closes.stream.shutdown(Shutdown::Write).expect("it is open");
        let mut resets = start(&rig, &["SET c 1", "RESET", "PING"]);
        let mut skips = start(&rig, &["CLIENT REPLY SKIP", "SET d 1", "PING"]);
        let mut off = start(&rig, &["CLIENT REPLY OFF", "SET e 1", "CLIENT REPLY ON"]);
        let mut killed = start(&rig, &["SET f 1"]);
        let gone = start(&rig, &["SET g 1"]);
        let mut wrong = start(&rig, &["SET h 1"]);
        wrong.send_raw(b"*x\r\n");
        for client in [&mut quits, &mut closes, &mut resets, &mut skips, &mut off, &mut killed, &mut wrong] {
            rig.held(client, "a reply").expect("held");
        }
        assert_eq!(rig.control.run(&format!("CLIENT KILL ID {}", killed.id)), Reply::Int(1));
        assert_eq!(killed.read_to_end(), b"", "it does not learn what has become of it");
        gone.stream.shutdown(Shutdown::Both).expect("it is open");
        drop(gone);
        rig.release();
        assert_eq!(quits.read_to_end(), b"+OK\r\n+OK\r\n");
        assert_eq!(closes.read_to_end(), b"+OK\r\n$1\r\n1\r\n");
        assert_eq!(
            [resets.read(), resets.read(), resets.read()].map(|reply| reply.text()),
            ["OK", "RESET", "PONG"]
        );
        assert_eq!(skips.read().text(), "PONG");
        assert_eq!(off.read(), ok());
        let told = wrong.read_to_end();
        assert!(told.starts_with(b"+OK\r\n-ERR Protocol error"), "{}", String::from_utf8_lossy(&told));
        eventually("they have gone", || rig.control.info("connected_clients") == "4");
        let mut reader = rig.connect();
        assert_eq!(reader.run("MGET a b c d e f g h").items().len(), 8);
        rig.control.ok("DEBUG REPLY-GATE OFF");
        assert_eq!(reader.run("INCR n"), Reply::Int(1), "nothing is held any more");
    }
}

#[test]
fn what_is_held_counts_as_output_and_the_client_waits() {
    let mut rig = Rig::new("2");
    let mut a = rig.connect();
    let value = vec![b'v'; 100_000];
    a.run_bytes(&[b"SET", b"value", &value]);
    rig.hold();
    a.queue_line("SET k v");
    (0..60).for_each(|_| a.queue_line("GET value"));
    a.queue_line("SET last 1");
    a.flush().expect("it takes it");
    let mut b = rig.connect();
    eventually("it is full", || rig.unsent_bytes(&a) > 1_000_000);
    // More than a megabyte is held: what is behind it has not been executed.
    assert_eq!(b.run("GET last"), Reply::NullBulk);
    let held_bytes = rig.unsent_bytes(&a);
    assert!((1_000_000..4_000_000).contains(&held_bytes), "{held_bytes}");
    rig.release();
    let expected = [vec![ok()], vec![Reply::Bulk(value); 60], vec![ok()]].concat();
    for (at, reply) in expected.iter().enumerate() {
        // What comes with the last one waits for it.
        while a.is_silent() {
            rig.release();
        }
        assert!(a.read() == *reply, "reply {at}");
    }
    assert_eq!(b.run("GET last"), bulk("1"));
}

#[test]
fn the_end_of_the_policy_lets_everything_go() {
    for workers in ["1", "2"] {
        let mut rig = Rig::new(workers);
        let (mut a, mut b) = (rig.connect(), rig.connect());
        rig.hold();
        a.send("SET k v");
        rig.held(&mut a, "a reply").expect("held");
        b.send("GET k");
        rig.held(&mut b, "a reply").expect("held");
        // This one waits for the end of the log itself.
        rig.control.send("DEBUG REPLY-GATE OFF");
        assert_eq!((a.read(), b.read(), rig.control.read()), (ok(), bulk("v"), ok()));
    }
}

#[test]
fn what_never_becomes_durable_is_never_answered() {
    for workers in ["1", "2"] {
        let mut rig = Rig::new(workers);
        let mut clients = [rig.connect(), rig.connect(), rig.connect()];
        let other = rig.apart_from(&["k"]);
        clients[0].ok(&format!("SET {other} here"));
        rig.hold();
        clients[0].send("SET k v");
        rig.held(&mut clients[0], "a reply").expect("held");
        clients[1].send("GET k");
        rig.held(&mut clients[1], "a reply").expect("held");
        rig.control.ok("DEBUG REPLY-GATE FAIL");
        assert_eq!(clients[0].read_to_end(), b"");
        assert_eq!(clients[1].read_to_end(), b"");
        assert_eq!(
            clients[2].run(&format!("GET {other}")),
            bulk("here"),
            "what is durable goes on being read"
        );
        clients[2].send("GET k");
        assert_eq!(clients[2].read_to_end(), b"");
        // The program ends, and who waits learns nothing.
        let mut last = rig.connect();
        rig.hold();
        last.send("SET k w");
        rig.held(&mut last, "a reply").expect("held");
        rig.control.send("SHUTDOWN NOSAVE");
        assert_eq!(last.read_to_end(), b"");
        rig.server.wait();
    }
}

/// While one connection changes a key all the time, on whatever worker, no read of it shows any of that.
#[test]
fn no_read_shows_a_change_that_is_not_durable() {
    let mut rig = Rig::new("2");
    rig.connect().ok("SET n 0");
    rig.connect().ok("SET m 0");
    rig.hold();
    let mut writers = [rig.connect(), rig.connect()];
    let mut readers: Vec<Peer> = (0..60).map(|_| rig.connect()).collect();
    std::thread::scope(|scope| {
        for writer in &mut writers {
            scope.spawn(move || {
                for _ in 0..200 {
                    (0..20).for_each(|_| writer.queue_line("INCR n"));
                    (0..20).for_each(|_| writer.queue_line("MSET n 7 m 7"));
                    writer.flush().expect("it takes it");
                }
            });
        }
        for reader in readers.iter_mut() {
            reader.send("GET n");
            reader.send("MGET m n");
        }
    });
    for reader in &mut readers {
        if reader.is_silent() {
            continue;
        }
        assert_eq!(reader.read(), bulk("0"));
        if !reader.is_silent() {
            assert_eq!(reader.read(), Reply::Array(vec![bulk("0"), bulk("0")]));
        }
    }
    rig.release();
    writers[0].read();
}
