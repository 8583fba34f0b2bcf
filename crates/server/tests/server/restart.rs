//! Stopped and started again: which file is served.

use std::path::Path;

use rustix::process::Signal;
use stillframe_pagepool::SnapshotKind;

use crate::algorithms;
use crate::dump::{dump_of, SlowDump};
use crate::harness::*;

fn end(mut server: TestServer, signal: Signal) {
    server.signal(signal);
    server.wait();
}

/// A directory with a checkpoint in which `a` is `page`, and a dump of another server in which it is `dump`.
fn dir_with_both() -> TempDir {
    let (dir, elsewhere) = (temp_dir(), temp_dir());
    let server = TestServer::start_in(&dir, &[]);
    let mut c = server.connect();
    c.ok("SET a page");
    c.ok("SAVE");
    end(server, Signal::KILL);
    let server = TestServer::start_in(&elsewhere, &[]);
    let mut c = server.connect();
    c.ok("SET a dump");
    c.ok("SET only-in-dump 1");
    c.run("BGSAVE RDB");
    eventually("the dump is written", || c.info("rdb_bgsave_in_progress") == "0");
    end(server, Signal::KILL);
    std::fs::copy(elsewhere.join("dump.rdb"), dir.join("dump.rdb")).unwrap();
    dir
}

/// Standard output of a server that does not start.
fn failed_start(dir: &Path, args: &[&str]) -> String {
    let port = Port::reserve().unwrap();
    let output = binary().args(["--port", &port.to_string(), "--dir"]).arg(dir).args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What was saved is there after a kill, whichever algorithm took the cut, and what came after it is not; the next server may have
/// another. Keys of all sizes change before, during and after the saves.
#[test]
fn each_algorithm_finds_what_it_saved_after_a_kill() {
    let dir = temp_dir();
    for (round, kind) in SnapshotKind::ALL.into_iter().chain(SnapshotKind::ALL).enumerate() {
        let args = [&["--save", "", "--enable-debug-command", "yes"], &algorithms::flags(kind)[..]].concat();
        let server = TestServer::start_in(&dir, &args);
        let mut c = server.connect();
        c.wait_until_loaded();
        assert_eq!(c.info("snapshot_algorithm"), kind.name());
        let value = |version: usize, len: usize| vec![b'a' + (version % 26) as u8; len];
        if round > 0 {
            for (key, len) in SIZES {
                let found = c.run_bytes(&[b"GET", key.as_bytes()]);
                assert!(found == Reply::Bulk(value(round * 3 - 2, len)), "{key} after {round} rounds");
            }
            assert_eq!(c.run("DBSIZE"), Reply::Int(20_000 + SIZES.len() as i64), "before {kind}");
        }
        c.ok("DEBUG POPULATE 20000 filler 100");
        for save in 0..2 {
            for (key, len) in SIZES {
                c.run_bytes(&[b"SET", key.as_bytes(), &value(round * 3 + save, len)]);
            }
            c.ok("SAVE");
        }
        c.ok("SET lost 1");
        for (key, len) in SIZES {
            c.run_bytes(&[b"SET", key.as_bytes(), &value(round * 3 + 2, len)]);
        }
        end(server, Signal::KILL);
    }
}

/// Keys and the lengths of their values: in a leaf, in a slab, in objects.
const SIZES: [(&str, usize); 4] = [("small", 20), ("slab", 3000), ("object", 50_000), ("large", 3 << 20)];

#[test]
fn what_an_algorithm_cannot_serve_is_refused_with_the_reason() {
    let dir = temp_dir();
    let error = |args: &[&str]| {
        let output = binary().arg("--dir").arg(dir.as_os_str()).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = error(&["--snapshot-algorithm", "fork", "--pool-backend", "exmap"]);
    assert!(
        text.contains("a child process, which does not have the pages of pool backend 'exmap'"),
        "{text}"
    );
    for kind in SnapshotKind::ALL {
        let name = kind.name();
        if kind.has_two_places() {
            let text = error(&["--snapshot-algorithm", name, "--pool-backend", "vmcache"]);
            let reason = format!("'{name}' keeps each page in one of two places");
            assert!(text.contains(&reason) && text.contains("set 'pool-backend array'"), "{text}");
        }
        if !kind.takes_evictions() && kind != SnapshotKind::Fork {
            let flags = algorithms::flags(kind);
            let text = error(&[&flags[..], &["--maxmemory", "1gb"]].concat());
            let reason = format!("'{name}' needs all data in memory");
            assert!(text.contains(&reason) && text.contains("another 'maxmemory-policy'"), "{text}");
            let args = [&flags[..], &["--maxmemory", "1gb", "--maxmemory-policy", "noeviction"]].concat();
            let server = TestServer::start(&args);
            assert_eq!(server.connect().info("snapshot_algorithm"), name);
        }
    }
    let text = error(&["--snapshot-algorithm", "spoon"]);
    assert!(text.contains(&SnapshotKind::NAMES.join(", ")), "{text}");
    // The name that the setting had.
    let server = TestServer::start(&["--snapshotter", "cou"]);
    let mut c = server.connect();
    assert_eq!(c.info("snapshot_algorithm"), "cou");
    assert_eq!(c.run("CONFIG GET snapshotter").items()[1].text(), "cou");
}

#[test]
fn each_format_finds_its_data_again() {
    for (format, file) in [("pages", "stillframe.pages"), ("rdb", "dump.rdb")] {
        let dir = temp_dir();
        let args = ["--save", "3600", "1", "--snapshot-format", format];
        for round in 0..3 {
            let server = TestServer::start_in(&dir, &args);
            let mut c = server.connect();
            c.wait_until_loaded();
            assert_eq!(c.run("INCR rounds"), Reply::Int(round + 1), "{format}");
            c.ok(&format!("SET key:{round} x EX 1000"));
            c.run_bytes(&[b"SET", b"large", &vec![b'0' + round as u8; 1 << 20]]);
            end(server, Signal::TERM);
            assert!(dir.join(file).exists());
        }
        let server = TestServer::start_in(&dir, &args);
        let mut c = server.connect();
        c.wait_until_loaded();
        assert_eq!(c.run("DBSIZE"), Reply::Int(5));
        assert!(matches!(c.run("TTL key:0"), Reply::Int(900..=1000)));
        assert_eq!(c.run("GETRANGE large 0 1").text(), "22");
        assert_eq!(dir.join("dump.rdb").exists(), format == "rdb");
    }
}

#[test]
fn of_two_files_the_one_of_the_format_is_served() {
    let dir = dir_with_both();
    let dump = std::fs::read(dir.join("dump.rdb")).unwrap();
    let server = TestServer::start_in(&dir, &[]);
    assert_eq!(server.connect().run("GET a").text(), "page");
    assert_eq!(server.connect().run("EXISTS only-in-dump"), Reply::Int(0));
    let log = server.log();
    assert!(
        log.contains("Serving the last checkpoint of the page file;") && log.contains("is not loaded"),
        "{log}"
    );
    end(server, Signal::TERM);
    let server = TestServer::start_in(&dir, &["--snapshot-format", "rdb"]);
    let mut c = server.connect();
    c.wait_until_loaded();
    assert_eq!(c.run("GET a").text(), "dump");
    assert_eq!(c.run("DBSIZE"), Reply::Int(2));
    let log = server.log();
    assert!(log.contains("the page file's checkpoint is not used (see 'snapshot-format')"), "{log}");
    end(server, Signal::TERM);
    assert_eq!(std::fs::read(dir.join("dump.rdb")).unwrap(), dump, "nothing asked for a save");
    std::fs::remove_file(dir.join("dump.rdb")).unwrap();
    let server = TestServer::start_in(&dir, &["--snapshot-format", "rdb"]);
    assert_eq!(server.connect().run("GET a").text(), "page");
    assert!(
        server.log().contains("Serving the last checkpoint of the page file; there is no "),
        "{}",
        server.log()
    );
}

/// Whichever was acknowledged last is served, whatever the format says: a dump saved because the page file could not be
/// is not forgotten at the restart.
#[test]
fn of_two_files_of_one_store_the_newer_is_served() {
    for format in ["pages", "rdb"] {
        let dir = temp_dir();
        let args = ["--snapshot-format", format];
        let served = |dir: &Path| {
            let server = TestServer::start_in(dir, &args);
            let mut c = server.connect();
            c.wait_until_loaded();
            (c.run("GET a").text(), server)
        };
        let save = |server: &TestServer, way: &str, value: &str| {
            let mut c = server.connect();
            c.ok(&format!("SET a {value}"));
            let saves = c.info("rdb_saves").parse::<u64>().unwrap();
            c.run(way);
            eventually("it is saved", || c.info("rdb_saves") == (saves + 1).to_string());
        };
        let server = TestServer::start_in(&dir, &args);
        save(&server, "BGSAVE PAGES", "1");
        save(&server, "BGSAVE RDB", "2");
        end(server, Signal::KILL);
        let (value, server) = served(&dir);
        assert_eq!(value, "2", "{format}: {}", server.log());
        assert!(server.log().contains("(the dump was saved after it)"), "{}", server.log());
        // It is so until the page file is the newer.
        end(server, Signal::KILL);
        let (value, server) = served(&dir);
        assert_eq!(value, "2", "{format}");
        save(&server, "BGSAVE PAGES", "3");
        end(server, Signal::KILL);
        let (value, server) = served(&dir);
        assert_eq!(value, "3", "{format}: {}", server.log());
        assert!(server.log().contains("(it was saved after the dump)"), "{}", server.log());
        // The same data in both: no reason to prefer one.
        save(&server, "BGSAVE PAGES", "4");
        let mut c = server.connect();
        c.run("BGSAVE RDB");
        eventually("it is saved", || c.info("rdb_bgsave_in_progress") == "0");
        end(server, Signal::KILL);
        let (value, server) = served(&dir);
        assert_eq!(value, "4", "{format}");
        assert!(server.log().contains("(see 'snapshot-format')"), "{}", server.log());
        end(server, Signal::KILL);
    }
}

#[test]
fn a_dump_is_taken_over_into_pages() {
    let dir = temp_dir();
    std::fs::write(dir.join("dump.rdb"), dump_of(1_000, 100)).unwrap();
    let server = TestServer::start_in(&dir, &["--save", "3600", "1"]);
    server.connect().wait_until_loaded();
    end(server, Signal::TERM);
    std::fs::write(dir.join("dump.rdb"), b"not a dump, and not looked at any more").unwrap();
    let server = TestServer::start_in(&dir, &[]);
    let mut c = server.connect();
    assert_eq!(c.run("DBSIZE"), Reply::Int(1_000));
    assert_eq!(c.run("STRLEN key:999"), Reply::Int(100));
}

#[test]
fn files_that_cannot_be_read_are_named_and_left_alone() {
    let good = dump_of(1_000, 100);
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    let newer = [b"REDIS0099", &good[9..]].concat();
    let cases: [(&[u8], &str); 5] = [
        (&good[..good.len() / 2], "dump.rdb"),
        (&flipped, "checksum"),
        (&newer, "version 99"),
        (b"", "dump.rdb"),
        (b"a letter to a friend", "dump.rdb"),
    ];
    for (bytes, expected) in cases {
        let dir = temp_dir();
        std::fs::write(dir.join("dump.rdb"), bytes).unwrap();
        let text = failed_start(&dir, &[]);
        assert!(text.contains("Fatal error loading the DB") && text.contains(expected), "{expected}: {text}");
        assert_eq!(std::fs::read(dir.join("dump.rdb")).unwrap(), bytes);
        std::fs::write(dir.join("dump.rdb"), &good).unwrap();
        let server = TestServer::start_in(&dir, &[]);
        let mut c = server.connect();
        c.wait_until_loaded();
        assert_eq!(c.run("DBSIZE"), Reply::Int(1_000), "the failed start has left nothing");
    }
    let dir = temp_dir();
    std::fs::create_dir(dir.join("dump.rdb")).unwrap();
    let text = failed_start(&dir, &[]);
    assert!(text.contains("Fatal error loading the DB") && text.contains("Is a directory"), "{text}");
    let dir = dir_with_both();
    std::fs::write(dir.join("stillframe.pages"), b"a letter to a friend").unwrap();
    for format in ["pages", "rdb"] {
        let text = failed_start(&dir, &["--snapshot-format", format]);
        assert!(text.contains("stillframe.pages"), "{text}");
    }
    assert_eq!(std::fs::read(dir.join("stillframe.pages")).unwrap(), b"a letter to a friend");
}

#[test]
fn a_load_that_was_cut_short_is_done_again() {
    for signal in [Signal::TERM, Signal::KILL] {
        let dir = dir_with_both();
        let pages = std::fs::read(dir.join("stillframe.pages")).unwrap();
        std::fs::remove_file(dir.join("dump.rdb")).unwrap();
        SlowDump::place(&dir);
        let args = ["--save", "1", "1", "--snapshot-format", "rdb"];
        let server = TestServer::start_in(&dir, &args);
        let mut dump = SlowDump::open(&dir, dump_of(1_000, 100));
        dump.write_half();
        let mut c = server.connect();
        eventually("some of it is read", || {
            c.info("rdb_last_load_keys_loaded").parse::<u64>().unwrap() > 100
        });
        end(server, signal);
        drop(dump);
        assert_eq!(std::fs::read(dir.join("stillframe.pages")).unwrap(), pages);
        std::fs::remove_file(dir.join("dump.rdb")).unwrap();
        let server = TestServer::start_in(&dir, &[]);
        assert_eq!(server.connect().run("GET a").text(), "page", "the checkpoint is as it was");
        end(server, Signal::KILL);
        std::fs::write(dir.join("dump.rdb"), dump_of(1_000, 100)).unwrap();
        let server = TestServer::start_in(&dir, &args);
        let mut c = server.connect();
        c.wait_until_loaded();
        assert_eq!(c.run("DBSIZE"), Reply::Int(1_000));
    }
}
