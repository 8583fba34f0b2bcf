//! Values larger than memory, and others that are served in parts: what is needed of them is brought in, and no more.

use std::io::Read;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use stillframe_testkit::seed;

use crate::harness::*;

pub const MEGABYTE: usize = 1 << 20;
/// Of the large value: more than memory.
pub const LEN: usize = 100 * MEGABYTE + 12_345;
pub const MEMORY: [&str; 4] = ["--maxmemory", "64mb", "--snapshot-memory", "8mb"];

/// Longer than anything here takes that does not wait for ever.
const NO_HANG: Duration = Duration::from_secs(60);

pub fn value(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed()).fill(&mut bytes);
    bytes
}

pub fn bulk(bytes: &[u8]) -> Reply {
    Reply::Bulk(bytes.to_vec())
}

pub fn start(more: &[&str]) -> TestServer {
    TestServer::start(&[&MEMORY[..], more].concat())
}

pub fn connect(server: &TestServer) -> Client {
    let client = server.connect();
    client.stream.set_read_timeout(Some(NO_HANG)).expect("a timeout");
    client
}

pub fn set(client: &mut Client, name: &str, value: &[u8]) {
    assert_eq!(client.run_bytes(&[b"SET", name.as_bytes(), value]), Reply::ok());
}

/// What a process may take: 3 % above what it was told, and 96 MB.
fn assert_bounded(server: &TestServer) {
    let (peak, most) = (server.peak_resident_bytes() / MEGABYTE as u64, 64 * 103 / 100 + 96);
    assert!(peak <= most, "{peak} MB were in memory, not {most} MB");
}

/// Reads a reply at about so many bytes a second.
fn read_slowly(client: &mut Client, len: usize, bytes_per_second: usize) -> Vec<u8> {
    let (begun, mut all) = (Instant::now(), Vec::with_capacity(len));
    let mut part = vec![0; 64 * 1024];
    while all.len() < len {
        let count = client.stream.read(&mut part).expect("more of the value");
        assert!(count > 0, "the connection has ended after {} bytes", all.len());
        all.extend_from_slice(&part[..count]);
        let due = Duration::from_secs_f64(all.len() as f64 / bytes_per_second as f64);
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
    }
    all
}

/// Everything that looks at a value, on one of which memory holds half.
#[test]
fn a_value_larger_than_memory_is_read() {
    for workers in ["1", "2"] {
        let server = start(&["--workers", workers]);
        let mut c = connect(&server);
        let value = value(LEN);
        set(&mut c, "k", &value);
        set(&mut c, "short", b"short");
        assert!(c.run("GET k") == bulk(&value));
        assert!(c.run("MGET k short k") == Reply::Array(vec![bulk(&value), bulk(b"short"), bulk(&value)]));
        assert_eq!(c.run("STRLEN k"), Reply::Int(LEN as i64));
        for (first, last) in [(0, 9), (77_000_000, 77_000_000), (99_000_000, 99_500_000), (5, 80_000_000)] {
            let reply = c.run(&format!("GETRANGE k {first} {last}"));
            assert!(reply == bulk(&value[first..=last]), "{first} {last}: {reply:.60?}");
        }
        assert!(c.run("SUBSTR k -1000 -1") == bulk(&value[LEN - 1000..]));
        let bit = c.run(&format!("GETBIT k {}", 8 * 60_000_000 + 3));
        assert_eq!(bit, Reply::Int(i64::from(value[60_000_000] >> 4 & 1)));
        assert_eq!(c.run("GETBIT k 4000000000"), Reply::Int(0));
        assert_eq!(c.run("OBJECT ENCODING k"), bulk(b"raw"));
        assert_eq!(c.run("INCR k"), Reply::Error("ERR value is not an integer or out of range".into()));
        assert_eq!(c.run("RENAME k l"), Reply::ok());
        assert!(c.run("GETEX l PERSIST") == bulk(&value));
        assert!(c.run("GETSET l k") == bulk(&value));
        set(&mut c, "l", &value);
        assert!(c.run("GETDEL l") == bulk(&value));
        assert_eq!(c.run("EXISTS k l"), Reply::Int(0));
        assert_bounded(&server);
    }
}

/// 1 MB a second, so that its pages go before they are sent; others are served meanwhile.
#[test]
fn a_slow_reader_takes_no_memory() {
    let server = start(&[]);
    let (mut c, mut slow) = (connect(&server), connect(&server));
    let value = value(LEN);
    set(&mut c, "k", &value);
    slow.send("GETRANGE k 1000000 7999999");
    let header = b"$7000000\r\n".len();
    let reading = std::thread::spawn(move || read_slowly(&mut slow, header + 7_000_000 + 2, MEGABYTE));
    let mut random = fastrand::Rng::with_seed(seed());
    while !reading.is_finished() {
        let first = random.usize(..LEN - 400_000);
        let last = first + random.usize(..400_000);
        assert!(c.run(&format!("GETRANGE k {first} {last}")) == bulk(&value[first..=last]));
    }
    let all = reading.join().expect("it is read");
    assert!(all[header..header + 7_000_000] == value[1_000_000..8_000_000]);
    assert!(c.info("data_pages_evicted").parse::<u64>().expect("a number") > 10_000);
    assert_bounded(&server);
}

pub fn used_pages(client: &mut Client) -> u64 {
    client.info("data_pages").parse().expect("a number")
}

/// Half of it comes, goes out of memory, and is saved; then the rest. And once more, with an end of the process before that.
#[test]
fn a_value_comes_while_others_take_its_memory() {
    let mut server = start(&["--save", ""]);
    let value = value(LEN);
    let request = encoded(&[b"SET" as &[u8], b"k", &value]);
    let (mut c, mut sender) = (connect(&server), connect(&server));
    c.ok("SET k old");
    c.ok("SAVE");
    let before = used_pages(&mut c);
    sender.send_raw(&request[..request.len() / 2]);
    eventually("half of it is there", || used_pages(&mut c) > before + (49 << 8));
    for number in 0..4 {
        set(&mut c, &format!("other:{number}"), &value[number..40 * MEGABYTE]);
    }
    c.ok("SAVE");
    assert_eq!(c.run("GET k"), bulk(b"old"));
    sender.send_raw(&request[request.len() / 2..]);
    assert_eq!(sender.read(), Reply::ok());
    assert!(c.run("GET k") == bulk(&value));
    assert!(c.run("GET other:3") == bulk(&value[3..40 * MEGABYTE]));
    c.ok("SAVE");
    assert_bounded(&server);

    let mut sender = connect(&server);
    sender.send_raw(&encoded(&[b"SET" as &[u8], b"k", &value[1..]])[..70 * MEGABYTE]);
    c.ok("SAVE");
    server = server.restarted(Signal::KILL, &[&MEMORY[..], &["--save", ""]].concat());
    let mut c = connect(&server);
    c.wait_until_loaded();
    assert!(c.run("GET k") == bulk(&value));
    assert_eq!(c.run("DEL k other:0 other:1 other:2 other:3"), Reply::Int(5));
    eventually("what had come of it is free", || used_pages(&mut c) < before + 100);
    assert_bounded(&server);
}

pub fn ones(bytes: &[u8]) -> i64 {
    bytes.iter().map(|byte| i64::from(byte.count_ones())).sum()
}

/// They look at all of the value, a part at a time, as it was when they began.
#[test]
fn bits_of_a_value_larger_than_memory_are_counted() {
    for workers in ["1", "2"] {
        let server = start(&["--workers", workers]);
        let mut c = connect(&server);
        let mut value = vec![0; LEN];
        fastrand::Rng::with_seed(seed()).fill(&mut value[..70 * MEGABYTE]);
        value[LEN - 2] = 0x10;
        set(&mut c, "k", &value);
        set(&mut c, "ones", &vec![0xff; LEN]);
        let at = 8 * (LEN as i64 - 2);
        let from_the_middle = format!("BITPOS k 1 {}", 70 * MEGABYTE);
        let (first, last) = (8 * 1_000_000 + 3, 8 * 65_000_000 + 2);
        let mut part = value[1_000_000..=65_000_000].to_vec();
        part[0] &= 0x1f;
        *part.last_mut().expect("a byte") &= 0xe0;
        let asked = [
            ("BITCOUNT k".to_owned(), ones(&value)),
            ("BITCOUNT k 10 -20".to_owned(), ones(&value[10..=LEN - 20])),
            (format!("BITCOUNT k {first} {last} BIT"), ones(&part)),
            (from_the_middle, at + 3),
            ("BITPOS k 1 -1".to_owned(), -1),
            ("BITPOS ones 0".to_owned(), 8 * LEN as i64),
            ("BITPOS ones 0 0 -1".to_owned(), -1),
            ("BITPOS ones 1 5".to_owned(), 40),
        ];
        let (mut other, mut third) = (connect(&server), connect(&server));
        for (line, expected) in &asked {
            // Two at once, and a third client is served meanwhile.
            c.send(line);
            other.send(line);
            assert_eq!(third.run("STRLEN k"), Reply::Int(LEN as i64));
            assert_eq!((c.read(), other.read()), (Reply::Int(*expected), Reply::Int(*expected)), "{line}");
        }
        c.send("BITCOUNT k");
        third.ok("SET k short");
        let counted = c.read();
        assert!([Reply::Int(ones(&value)), Reply::Int(ones(b"short"))].contains(&counted), "{counted:?}");
        assert_bounded(&server);
    }
}

/// Of a value that is being read the reader keeps what was there; what is written goes to a copy that is made part by part.
#[test]
fn a_value_larger_than_memory_is_changed_and_copied() {
    for workers in ["1", "2"] {
        let server = start(&["--workers", workers]);
        let mut c = connect(&server);
        let mut model = value(LEN);
        set(&mut c, "k", &model);
        let write = |c: &mut Client, model: &mut Vec<u8>, round: usize| {
            let at = 50_000_000 + round * 1_000_000;
            assert_eq!(
                c.run_bytes(&[b"SETRANGE", b"k", at.to_string().as_bytes(), b"written"]),
                Reply::Int(model.len() as i64)
            );
            model[at..at + 7].copy_from_slice(b"written");
            model.extend_from_slice(b"appended");
            assert_eq!(c.run("APPEND k appended"), Reply::Int(model.len() as i64));
            let bit = 8 * at as i64 + 80;
            c.run(&format!("SETBIT k {bit} 1"));
            model[at + 10] |= 0x80;
            assert_eq!(c.run(&format!("BITFIELD k SET u8 {} 77", bit + 8)).items().len(), 1);
            model[at + 11] = 77;
        };
        write(&mut c, &mut model, 0);
        assert!(c.run("GET k") == bulk(&model));
        let before = model.clone();
        let mut reader = connect(&server);
        reader.send("GET k");
        std::thread::sleep(Duration::from_millis(100));
        write(&mut c, &mut model, 1);
        assert!(c.run("GET k") == bulk(&model));
        assert!(reader.read() == bulk(&before), "the reader has what was there");
        let mut other = connect(&server);
        other.send("COPY k copy");
        c.send("COPY k again");
        assert_eq!((other.read(), c.read()), (Reply::Int(1), Reply::Int(1)));
        assert_eq!(c.run("COPY k copy"), Reply::Int(0));
        write(&mut c, &mut model, 2);
        assert_eq!(c.run("COPY k copy REPLACE"), Reply::Int(1));
        assert!(c.run("GET copy") == bulk(&model));
        assert_eq!(c.run("RENAME copy renamed"), Reply::ok());
        assert!(c.run("GETRANGE renamed 50000000 50000100") == bulk(&model[50_000_000..=50_000_100]));
        let gap = c.run("SETRANGE k 400000000 x");
        assert!(gap.is_error() && format!("{gap:?}").contains("larger than memory"), "{gap:?}");
        let refused = c.run("LCS k renamed LEN");
        assert!(
            refused.is_error() && format!("{refused:?}").contains("larger than memory"),
            "{refused:.200?}"
        );
        assert_eq!(c.run("DEL k again renamed"), Reply::Int(3));
        eventually("all is free", || used_pages(&mut c) < 3_000);
        assert_bounded(&server);
    }
}

/// Several large values in one command, and in a transaction: they go to their places as they come, and out the same way.
#[test]
fn large_values_in_one_step() {
    let server = start(&["--save", ""]);
    let mut c = connect(&server);
    let value = value(80 * MEGABYTE);
    let (a, b) = (&value[..40 * MEGABYTE], &value[40 * MEGABYTE - 7..]);
    let set = [b"MSET" as &[u8], b"a", a, b"s", b"short", b"b", b, b"a", b];
    assert_eq!(c.run_bytes(&set), Reply::ok());
    assert!(c.run("MGET a s b") == Reply::Array(vec![bulk(b), bulk(b"short"), bulk(b)]));
    assert_eq!(c.run_bytes(&[b"MSETNX", b"n", a, b"a", a]), Reply::Int(0));
    assert_eq!(c.run_bytes(&[b"MSETNX", b"n", a, b"m", b]), Reply::Int(1));
    let mut other = connect(&server);
    let mut queue = |c: &mut Client, words: &[&[u8]]| {
        assert_eq!(c.run_bytes(words), Reply::Simple("QUEUED".into()));
        // Nobody sees it yet.
        assert!(other.run("GETRANGE a 0 9") == bulk(&b[..10]));
    };
    c.ok("MULTI");
    queue(&mut c, &[b"SET", b"a", a, b"GET"]);
    queue(&mut c, &[b"STRLEN", b"a"]);
    queue(&mut c, &[b"MSET", b"x", b"1", b"y", b]);
    queue(&mut c, &[b"GET", b"y"]);
    queue(&mut c, &[b"GETDEL", b"n"]);
    let replies = c.run("EXEC");
    let expected = vec![bulk(b), Reply::Int(a.len() as i64), Reply::ok(), bulk(b), bulk(a)];
    assert!(replies == Reply::Array(expected));
    assert!(c.run("GET a") == bulk(a) && c.run("GET y") == bulk(b));
    assert_eq!(c.run("DEL y m b x"), Reply::Int(4));
    eventually("one value is left", || used_pages(&mut c) < 45 << 8);
    let end = ["DISCARD", "EXEC"];
    for line in end {
        c.ok("WATCH s");
        c.ok("MULTI");
        assert_eq!(c.run_bytes(&[b"SET", b"a", b]), Reply::Simple("QUEUED".into()));
        assert!(used_pages(&mut other) > 75 << 8);
        other.ok("SET s changed");
        assert!([Reply::ok(), Reply::NullArray].contains(&c.run(line)));
        eventually("what was not stored is free", || used_pages(&mut other) < 45 << 8);
    }
    c.ok("MULTI");
    assert_eq!(c.run_bytes(&[b"SET", b"a", b]), Reply::Simple("QUEUED".into()));
    drop(c);
    eventually("what was not stored is free", || used_pages(&mut other) < 45 << 8);
    assert!(other.run("GET a") == bulk(a));
    assert_bounded(&server);
}

/// A restart serves it at once, and a dump is written in bounded memory while it is read and replaced.
#[test]
fn a_value_larger_than_memory_is_saved_and_loaded() {
    let mut server = start(&["--save", ""]);
    let value = value(LEN);
    let mut c = connect(&server);
    set(&mut c, "k", &value);
    set(&mut c, "other", &value[..20 * MEGABYTE]);
    c.ok("SAVE");
    let args = [&MEMORY[..], &["--save", ""]].concat();
    server = server.restarted(Signal::KILL, &args);
    let mut c = connect(&server);
    c.wait_until_loaded();
    let mut reader = connect(&server);
    reader.send("GET k");
    assert!(!c.run("BGSAVE RDB").is_error());
    assert!(c.run("GETRANGE k 90000000 90000100") == bulk(&value[90_000_000..=90_000_100]));
    set(&mut c, "k", &value[1..]);
    assert!(reader.read() == bulk(&value));
    assert!(c.try_wait_for_save().expect("INFO"));
    assert!(c.run("GET k") == bulk(&value[1..]));
    assert_bounded(&server);
    // The dump has what was there at its cut.
    drop((c, reader));
    std::fs::remove_file(server.dir.join("stillframe.pages")).expect("the page file");
    server = server.restarted(Signal::KILL, &args);
    let mut c = connect(&server);
    c.wait_until_loaded();
    assert!(c.run("GET k") == bulk(&value));
    assert!(c.run("GET other") == bulk(&value[..20 * MEGABYTE]));
}
