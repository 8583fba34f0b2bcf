//! Deadlines of fields, as Redis has them since 7.4: replies and errors word for word, expiry, notifications.

use std::time::Duration;

use crate::harness::*;

fn ints(reply: &Reply) -> Vec<i64> {
    reply.items().iter().map(|item| item.integer().expect("an integer")).collect()
}

fn both_sizes(check: impl Fn(&mut Client, &str)) {
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--workers", workers]);
        let mut client = server.connect();
        client.run("HSET small a 1 b 2 c 3");
        client.run("HSET large a 1 b 2 c 3");
        for number in 0..500 {
            client.run(&format!("HSET large field:{number} {number:080}"));
        }
        for key in ["small", "large"] {
            check(&mut client, key);
        }
    }
}

#[test]
fn fields_are_given_deadlines_and_lose_them() {
    both_sizes(|c, key| {
        let len = c.run(&format!("HLEN {key}"));
        let mut codes = |line: &str| ints(&c.run(&line.replace("KEY", key)));
        assert_eq!(codes("HTTL KEY FIELDS 2 a none"), [-1, -2]);
        assert_eq!(codes("HTTL none FIELDS 2 a none"), [-2, -2]);
        assert_eq!(codes("HEXPIRE KEY 100 FIELDS 2 a none"), [1, -2]);
        assert_eq!(codes("HEXPIRE none 100 FIELDS 1 a"), [-2]);
        assert_eq!(codes("HTTL KEY FIELDS 2 a b"), [100, -1]);
        assert_eq!(codes("HEXPIRE KEY 200 NX FIELDS 2 a b"), [0, 1]);
        assert_eq!(codes("HEXPIRE KEY 300 XX FIELDS 2 a c"), [1, 0]);
        assert_eq!(codes("HEXPIRE KEY 250 GT FIELDS 3 a b c"), [0, 1, 0]);
        assert_eq!(codes("HEXPIRE KEY 280 lt FIELDS 3 a b c"), [1, 0, 1]);
        assert_eq!(codes("HEXPIRE KEY 90 NX FIELDS 2 field a"), [-2, 0]);
        assert_eq!(codes("HPEXPIREAT KEY 33000000000000 FIELDS 1 a"), [1]);
        assert_eq!(codes("HPEXPIRETIME KEY FIELDS 1 a"), [33_000_000_000_000]);
        assert_eq!(codes("HEXPIRETIME KEY FIELDS 1 a"), [33_000_000_000]);
        assert_eq!(codes("HEXPIREAT KEY 33000000001 FIELDS 1 a"), [1]);
        assert_eq!(codes("HPEXPIRETIME KEY FIELDS 1 a"), [33_000_000_001_000]);
        // What is named twice is met twice.
        assert_eq!(codes("HPERSIST KEY FIELDS 4 a a none b"), [1, -1, -2, 1]);
        assert_eq!(codes("HEXPIRE KEY 100 NX FIELDS 2 a a"), [1, 0]);
        assert_eq!(codes("HEXPIRE KEY 0 FIELDS 3 a a none"), [2, -2, -2]);
        assert_eq!(c.run(&format!("HGET {key} a")), Reply::NullBulk);
        assert_eq!(c.run(&format!("HLEN {key}")), Reply::Int(len.integer().unwrap() - 1));
    });
}

#[test]
fn writes_keep_or_clear_deadlines() {
    both_sizes(|c, key| {
        let ttl = |c: &mut Client| ints(&c.run(&format!("HTTL {key} FIELDS 3 a b c")));
        c.run(&format!("HEXPIRE {key} 100 FIELDS 3 a b c"));
        c.run(&format!("HINCRBY {key} a 5"));
        c.run(&format!("HINCRBYFLOAT {key} b 0.5"));
        c.run(&format!("HSET {key} c 9"));
        assert_eq!(ttl(c), [100, 100, -1]);
        assert_eq!(c.run(&format!("HSETEX {key} KEEPTTL FIELDS 2 a 1 b 2")), Reply::Int(1));
        assert_eq!(ttl(c), [100, 100, -1]);
        assert_eq!(c.run(&format!("HSETEX {key} FXX EX 50 FIELDS 2 c 3 none 2")), Reply::Int(0));
        assert_eq!(c.run(&format!("HSETEX {key} FNX EX 50 FIELDS 2 c 3 none 2")), Reply::Int(0));
        assert_eq!(c.run(&format!("HSETEX {key} FXX EX 50 FIELDS 2 c 3 a 1")), Reply::Int(1));
        assert_eq!(ttl(c), [50, 100, 50]);
        assert_eq!(c.run(&format!("HSETEX {key} FIELDS 1 a 1")), Reply::Int(1));
        assert_eq!(ttl(c), [-1, 100, 50]);
        assert_eq!(c.run(&format!("HGETEX {key} EX 70 FIELDS 2 a none")).items()[0].text(), "1");
        assert_eq!(c.run(&format!("HGETEX {key} PERSIST FIELDS 1 b")).items()[0].text(), "2");
        assert_eq!(c.run(&format!("HGETEX {key} FIELDS 1 c")).items()[0].text(), "3");
        assert_eq!(ttl(c), [70, -1, 50]);
        let gone = c.run(&format!("HGETDEL {key} FIELDS 3 a a none"));
        assert_eq!(gone, Reply::Array(vec![Reply::Bulk(b"1".to_vec()), Reply::NullBulk, Reply::NullBulk]));
        assert_eq!(c.run(&format!("HGETEX {key} PXAT 1 FIELDS 1 b")).items()[0].text(), "2");
        assert_eq!(ttl(c), [-2, -2, 50]);
        // Copies and other names have the deadlines, too.
        c.run(&format!("COPY {key} copy REPLACE"));
        c.run("RENAME copy other");
        assert_eq!(ints(&c.run("HTTL other FIELDS 1 c")), [50]);
    });
}

#[test]
fn fields_go_when_their_time_is_over() {
    both_sizes(|c, key| {
        let len = c.run(&format!("HLEN {key}")).integer().unwrap();
        c.run("CONFIG SET notify-keyspace-events KEA");
        c.run("DEBUG SET-ACTIVE-EXPIRE 0");
        c.run(&format!("HPEXPIRE {key} 1 FIELDS 2 a b"));
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(c.run(&format!("HMGET {key} a b c")).items()[..2], [Reply::NullBulk, Reply::NullBulk]);
        assert_eq!(c.run(&format!("HEXISTS {key} a")), Reply::Int(0));
        assert_eq!(c.run(&format!("HGETALL {key}")).items().len() as i64, 2 * (len - 2));
        assert_eq!(ints(&c.run(&format!("HTTL {key} FIELDS 1 a"))), [-2]);
        assert_eq!(c.run(&format!("HSET {key} a new")), Reply::Int(1), "it counts as absent");
        assert_eq!(ints(&c.run(&format!("HTTL {key} FIELDS 1 a"))), [-1]);
        c.run("DEBUG SET-ACTIVE-EXPIRE 1");
        eventually("the active expiry has come by", || c.run(&format!("HLEN {key}")) == Reply::Int(len - 1));
        let fields = c.run(&format!("HKEYS {key}"));
        let fields: Vec<String> = fields.items().iter().map(Reply::text).collect();
        c.run(&format!("HPEXPIRE {key} 1 FIELDS {} {}", fields.len(), fields.join(" ")));
        eventually("the key goes with its last field", || c.run(&format!("EXISTS {key}")) == Reply::Int(0));
    });
}

#[test]
fn changes_are_told() {
    let server = TestServer::start(&["--notify-keyspace-events", "KEA"]);
    let (mut a, mut b) = (server.connect(), server.connect());
    a.run("PSUBSCRIBE __keyevent*");
    let mut heard = |lines: &[&str], expected: &[&str]| {
        lines.iter().for_each(|line| drop(b.run(line)));
        for event in expected {
            assert_eq!(a.read().items()[2].text(), format!("__keyevent@0__:{event}"), "{lines:?}");
        }
    };
    heard(&["HSET h a 1 b 2 c 3"], &["hset"]);
    heard(&["HEXPIRE h 100 FIELDS 2 a b"], &["hexpire"]);
    heard(&["HPERSIST h FIELDS 2 a c"], &["hpersist"]);
    heard(&["HSETEX h EX 100 FIELDS 2 a 1 b 1"], &["hset", "hexpire"]);
    heard(&["HSETEX h KEEPTTL FIELDS 1 a 1"], &["hset"]);
    heard(&["HINCRBY h a 1", "HINCRBYFLOAT h a 1"], &["hincrby", "hincrbyfloat"]);
    heard(&["HGETEX h PERSIST FIELDS 1 a", "HGETEX h EX 9 FIELDS 1 a"], &["hpersist", "hexpire"]);
    heard(&["HGETDEL h FIELDS 1 a", "HEXPIRE h 0 FIELDS 1 b"], &["hdel", "hdel"]);
    heard(&["HPEXPIRE h 1 FIELDS 1 c"], &["hexpire", "hexpired", "del"]);
}

#[test]
fn errors_are_those_of_redis() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    c.run("HSET h a 1");
    c.run("SET s 1");
    let missing = "ERR Mandatory argument FIELDS is missing or not at the right position";
    let differs = "ERR The `numfields` parameter must match the number of arguments";
    let wrong_type = "WRONGTYPE Operation against a key holding the wrong kind of value";
    for (line, error) in [
        ("HEXPIRE h", "ERR wrong number of arguments for 'hexpire' command"),
        ("HEXPIRE s x FIELDS 1 a", wrong_type),
        ("HEXPIRE h x FIELDS 1 a", "ERR value is not an integer or out of range"),
        ("HEXPIRE h -1 FIELDS 1 a", "ERR invalid expire time, must be >= 0"),
        ("HPEXPIREAT h 70368744177664 FIELDS 1 a", "ERR invalid expire time in 'hpexpireat' command"),
        ("HEXPIRE h 10 NX 1 a b", missing),
        ("HEXPIRE h 10 FIELDS 0 a", "ERR Parameter `numFields` should be greater than 0"),
        ("HEXPIRE h 10 FIELDS x a", "ERR Parameter `numFields` should be greater than 0"),
        ("HEXPIRE h 10 FIELDS 2 a", differs),
        ("HTTL h FIELDS 0 a", "ERR Number of fields must be a positive integer"),
        ("HTTL h x 1 a", missing),
        ("HTTL s x 1 a", wrong_type),
        ("HPERSIST h FIELDS 1 a b", differs),
        ("HGETDEL h FIELDS 1 a b", differs),
        ("HGETEX h EX 10 PERSIST 1 a", missing),
        ("HGETEX h EX -1 FIELDS 1 a", "ERR invalid expire time, must be >= 0"),
        (
            "HSETEX h EX 10 KEEPTTL FIELDS 1 a 1",
            "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
        ),
        ("HSETEX h FXX FNX FIELDS 1 a 1", "ERR Only one of FXX or FNX arguments can be specified"),
        ("HSETEX h NX FIELDS 1 a 1", "ERR unknown argument: NX"),
        ("HSETEX h FIELDS 0 a 1", "ERR invalid number of fields"),
        ("HSETEX h FIELDS 2 a 1 b", "ERR wrong number of arguments for 'hsetex' command"),
    ] {
        assert_eq!(c.run(line), Reply::Error(error.as_bytes().to_vec()), "{line}");
    }
}
