//! Values larger than memory that come from a dump, go as payloads and come back, are combined, and are part of transactions:
//! part by part, and memory stays bounded.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use stillframe_store::rdb::{
    dump_string, parse_payload, Compressor, Header, KeyMeta, RdbString, RdbValue, StringRef, Writer,
    WriterOptions,
};

use crate::harness::*;
use crate::parts::{bulk, connect, ones, set, start, used_pages, value, LEN, MEGABYTE, MEMORY};

/// What a process may take: 3 % above what it was told, and 64 MB.
fn assert_bounded(server: &TestServer) {
    let (peak, most) = (server.peak_resident_bytes() / MEGABYTE as u64, 64 * 103 / 100 + 64);
    assert!(peak <= most, "{peak} MB were in memory, not {most} MB");
}

/// So much that repeats that a dump has a fifth of it: runs, and what came a little before.
fn repetitive(len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let mut bytes: Vec<u8> = Vec::with_capacity(len + 1_000);
    while bytes.len() < len {
        match random.u32(..3) {
            0 => bytes.extend(std::iter::repeat_with(|| random.u8(..)).take(20)),
            1 => bytes.extend(std::iter::repeat_n(random.u8(..), random.usize(..300))),
            _ => {
                let from = bytes.len().saturating_sub(random.usize(1..8_000));
                bytes.extend_from_within(from..bytes.len().min(from + 200));
            }
        }
    }
    bytes.truncate(len);
    bytes
}

/// A dump with large values that are compressed, or not, among short ones.
fn write_dump(path: &Path, compress: bool, large: &[(&str, &[u8])]) {
    let file = BufWriter::new(File::create(path).unwrap());
    let mut writer =
        Writer::new(file, Header::default(), WriterOptions { compress, ..WriterOptions::default() }).unwrap();
    writer.select_db(0, 0, 0).unwrap();
    for (number, (name, value)) in large.iter().enumerate() {
        let key = format!("short:{number}");
        writer.string(key.as_bytes(), StringRef::Bytes(b"short"), KeyMeta::default()).unwrap();
        let meta = KeyMeta { expire_at_ms: name.starts_with("gone").then_some(1), ..KeyMeta::default() };
        let chunks = |give: &mut dyn FnMut(&[u8])| value.chunks(1 << 20).for_each(give);
        writer.long_string(name.as_bytes(), value.len() as u64, meta, chunks).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn a_dump_with_values_larger_than_memory_is_loaded_in_bounded_memory() {
    let (noise, text) = (value(LEN), repetitive(LEN));
    for compress in [false, true] {
        let dir = temp_dir();
        let large = [("noise", &noise[..]), ("gone", &noise[7..]), ("text", &text)];
        write_dump(&dir.path().join("dump.rdb"), compress, &large);
        let server = TestServer::start_in(dir.path(), &MEMORY);
        let mut c = connect(&server);
        c.wait_until_loaded();
        assert_bounded(&server);
        assert_eq!(c.run("DBSIZE"), Reply::Int(5));
        assert!(c.run("GET noise") == bulk(&noise) && c.run("GET text") == bulk(&text));
        assert_eq!(c.run("MGET short:0 gone short:2").items().len(), 3);
        assert_bounded(&server);
    }
}

/// All of it goes out and comes in again while nobody else may do anything.
#[test]
fn a_value_larger_than_memory_is_reloaded() {
    for workers in ["1", "2"] {
        let server = start(&["--workers", workers]);
        let (mut c, noise) = (connect(&server), value(LEN));
        set(&mut c, "k", &noise);
        set(&mut c, "short", b"short");
        c.ok("DEBUG RELOAD");
        assert!(c.run("GET k") == bulk(&noise));
        assert_eq!(c.run("MGET short none"), Reply::Array(vec![bulk(b"short"), Reply::NullBulk]));
        assert_bounded(&server);
    }
}

/// A payload that is sent is one that can be read, here as in the store, and comes back while a cut is saved.
#[test]
fn a_value_larger_than_memory_is_dumped_and_restored() {
    for workers in ["1", "2"] {
        let mut server = start(&["--workers", workers, "--save", ""]);
        let (mut c, mut saver, noise) = (connect(&server), connect(&server), value(LEN));
        set(&mut c, "k", &noise);
        let payload = match c.run("DUMP k") {
            Reply::Bulk(payload) => payload,
            other => panic!("{other:.100?}"),
        };
        assert!(matches!(parse_payload(&payload), Ok(RdbValue::String(RdbString::Bytes(it))) if it == noise));
        assert!(!saver.run("BGSAVE").is_error());
        assert_eq!(c.run_bytes(&[b"RESTORE", b"r", b"0", &payload]), Reply::ok());
        assert!(saver.try_wait_for_save().expect("INFO"));
        assert!(c.run("GET r") == bulk(&noise));
        let busy = c.run_bytes(&[b"RESTORE", b"r", b"0", &payload]);
        assert_eq!(busy, Reply::Error("BUSYKEY Target key name already exists.".into()));

        // Compressed, with a deadline, over another value.
        let text = repetitive(LEN);
        let packed = dump_string(StringRef::Bytes(&text), Some(&mut Compressor::new()));
        assert!(packed.len() < LEN / 2 && packed.len() > MEGABYTE);
        let restore = [b"RESTORE" as &[u8], b"r", b"1000000", &packed, b"REPLACE"];
        assert_eq!(c.run_bytes(&restore), Reply::ok());
        assert!(c.run("GET r") == bulk(&text));
        assert!(matches!(c.run("TTL r"), Reply::Int(1..=1000)));
        c.ok("MULTI");
        assert_eq!(c.run_bytes(&[b"RESTORE", b"m", b"0", &packed]), Reply::Simple("QUEUED".into()));
        c.run("DUMP k");
        let replies = c.run("EXEC");
        assert!(replies == Reply::Array(vec![Reply::ok(), Reply::Bulk(payload.clone())]));
        assert!(c.run("GET m") == bulk(&text));
        c.ok("SAVE");
        assert_bounded(&server);

        // What is damaged leaves nothing behind.
        let before = used_pages(&mut c);
        for (whole, at) in [(&payload, LEN / 2), (&packed, packed.len() - 1), (&packed, 1)] {
            let mut bad = whole.clone();
            bad[at] ^= 1;
            let refused = c.run_bytes(&[b"RESTORE", b"bad", b"0", &bad]);
            let expected = "ERR DUMP payload version or checksum are wrong";
            assert_eq!(refused, Reply::Error(expected.into()));
        }
        assert_eq!(c.run("EXISTS bad"), Reply::Int(0));
        eventually("what was refused is free", || used_pages(&mut c) < before + 100);
        drop((c, saver));
        server = server.restarted(Signal::KILL, &[&MEMORY[..], &["--save", ""]].concat());
        let mut c = connect(&server);
        c.wait_until_loaded();
        assert!(c.run("GET k") == bulk(&noise) && c.run("GET m") == bulk(&text));
        assert_bounded(&server);
    }
}

/// What `BITOP` makes of strings.
fn combined(operation: &str, sources: &[&[u8]]) -> Vec<u8> {
    let len = sources.iter().map(|source| source.len()).max().unwrap_or(0);
    let byte = |source: &[u8], at: usize| source.get(at).copied().unwrap_or(0);
    let of = |at: usize| {
        let all = sources.iter().map(|source| byte(source, at));
        match operation {
            "AND" => all.reduce(|a, b| a & b),
            "OR" => all.reduce(|a, b| a | b),
            "XOR" => all.reduce(|a, b| a ^ b),
            _ => all.reduce(|a, _| a).map(|a| !a),
        }
    };
    (0..len).map(|at| of(at).unwrap_or(0)).collect()
}

#[test]
fn values_larger_than_memory_are_combined() {
    for workers in ["1", "2"] {
        let server = start(&["--workers", workers, "--save", ""]);
        let (mut c, mut other) = (connect(&server), connect(&server));
        let (a, b, short) = (value(LEN), repetitive(70 * MEGABYTE), value(300_000));
        let tiny = b"tiny";
        set(&mut c, "a", &a);
        set(&mut c, "b", &b);
        set(&mut c, "short", &short);
        set(&mut c, "tiny", tiny);
        let cases: [(&str, &str, &[&[u8]]); 6] = [
            ("AND", "a b", &[&a, &b]),
            ("OR", "tiny b a short", &[tiny, &b, &a, &short]),
            ("XOR", "short none a", &[&short, b"", &a]),
            ("NOT", "a", &[&a]),
            ("AND", "a none", &[&a, b""]),
            ("XOR", "a a", &[&a, &a]),
        ];
        for (operation, keys, sources) in cases {
            assert!(!other.run("BGSAVE").is_error());
            c.send(&format!("BITOP {operation} to {keys}"));
            // Others are served meanwhile.
            assert_eq!(other.run("STRLEN short"), Reply::Int(short.len() as i64));
            assert_eq!(c.read(), Reply::Int(LEN.max(sources[0].len()) as i64));
            assert!(other.try_wait_for_save().expect("INFO"));
            assert!(c.run("GET to") == bulk(&combined(operation, sources)), "{operation} {keys}");
        }
        // Of what there was, or of what there is, and of nothing in between.
        c.send("BITOP NOT to b");
        std::thread::sleep(Duration::from_millis(30));
        set(&mut other, "b", &a);
        let len = c.read();
        let expected = if len == Reply::Int(LEN as i64) { &a } else { &b };
        assert!(c.run("GET to") == bulk(&combined("NOT", &[expected])));
        // The target is a source.
        assert_eq!(c.run("BITOP XOR a a tiny"), Reply::Int(LEN as i64));
        assert!(c.run("GET a") == bulk(&combined("XOR", &[&a, tiny])));
        assert_bounded(&server);
    }
}

/// All at once, as any transaction: what cannot be in memory together is read past it, or was made before.
#[test]
fn transactions_look_at_and_copy_values_larger_than_memory() {
    for workers in ["1", "2"] {
        let mut server = start(&["--workers", workers, "--save", ""]);
        let (mut c, mut other) = (connect(&server), connect(&server));
        let (a, zeros) = (value(LEN), vec![0; LEN]);
        set(&mut c, "a", &a);
        set(&mut c, "zeros", &zeros);
        c.ok("MULTI");
        let asked = [
            ("BITCOUNT a", Reply::Int(ones(&a))),
            ("SETBIT zeros 800000007 1", Reply::Int(0)),
            ("BITPOS zeros 1", Reply::Int(800_000_007)),
            ("BITCOUNT zeros 1000 -1", Reply::Int(1)),
            ("BITCOUNT a 5 70000000", Reply::Int(ones(&a[5..=70_000_000]))),
            ("COPY a copy", Reply::Int(1)),
            ("COPY a copy DB 1", Reply::Int(1)),
            ("BITOP NOT not a", Reply::Int(LEN as i64)),
            ("SELECT 1", Reply::ok()),
            ("BITCOUNT copy", Reply::Int(ones(&a))),
            ("SELECT 0", Reply::ok()),
            ("STRLEN copy", Reply::Int(LEN as i64)),
        ];
        asked.iter().for_each(|(line, _)| drop(c.run(line)));
        assert!(!other.run("BGSAVE").is_error());
        c.send("EXEC");
        assert_eq!(other.run("EXISTS a"), Reply::Int(1));
        let replies = c.read();
        assert_eq!(replies, Reply::Array(asked.into_iter().map(|(_, reply)| reply).collect()));
        assert!(other.try_wait_for_save().expect("INFO"));
        assert!(c.run("GET copy") == bulk(&a));
        assert!(c.run("GET not") == bulk(&combined("NOT", &[&a])));
        // A copy of what the transaction itself changes cannot be made before it: it is refused as a whole.
        c.ok("MULTI");
        c.run("SET before 1");
        c.run("APPEND a more");
        c.run("COPY a copy REPLACE");
        let refused = c.run("EXEC");
        assert!(
            refused.is_error() && format!("{refused:?}").contains("larger than memory"),
            "{refused:.200?}"
        );
        assert_eq!(c.run("EXISTS before"), Reply::Int(0));
        // Somebody changes the value while it is copied: all of one value.
        c.ok("MULTI");
        c.run("COPY a copy REPLACE");
        c.run("BITCOUNT a");
        c.send("EXEC");
        std::thread::sleep(Duration::from_millis(20));
        set(&mut other, "a", &zeros);
        let counted = c.read();
        let is_old = counted == Reply::Array(vec![Reply::Int(1), Reply::Int(ones(&a))]);
        assert!(is_old || counted == Reply::Array(vec![Reply::Int(1), Reply::Int(0)]), "{counted:?}");
        assert!(c.run("GET copy") == bulk(if is_old { &a } else { &zeros }));
        assert_bounded(&server);
        c.ok("SAVE");
        server = server.restarted(Signal::KILL, &[&MEMORY[..], &["--save", ""]].concat());
        let mut c = connect(&server);
        c.wait_until_loaded();
        assert!(c.run("GET copy") == bulk(if is_old { &a } else { &zeros }));
        assert!(c.run("GET not") == bulk(&combined("NOT", &[&a])));
    }
}
