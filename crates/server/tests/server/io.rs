//! How the page file is read and written: chosen, refused and told.

use rustix::io::Errno;
use rustix::process::Signal;
use stillframe_testkit::{with_refused, Launch, IO_URING};

use crate::harness::*;

/// Whether `io_uring` can be had here; says so, loudly, if it cannot.
fn has_io_uring() -> bool {
    let server = TestServer::start(&[]);
    let note = server.connect().info("io_engine_note");
    if note != "none" {
        eprintln!("SKIPPED, NOT TESTED: {note}");
    }
    note == "none"
}

fn number(c: &mut Client, field: &str) -> u64 {
    c.info(field).parse().unwrap_or_else(|_| panic!("{field} is no number: {}", c.info(field)))
}

/// Values in leaves and in objects, saved and read back by the next start.
fn saves_and_restarts(engine: &str, args: &[&str]) {
    let server = TestServer::start(args);
    let mut c = server.connect();
    assert_eq!(c.info("io_engine"), engine, "{args:?}");
    for key in 0..300 {
        c.run_bytes(&[b"SET", format!("key-{key}").as_bytes(), &vec![key as u8; 100 + key * 50]]);
    }
    c.ok("SAVE");
    let (writes, bytes) = (number(&mut c, "io_writes"), number(&mut c, "io_write_bytes"));
    assert!(writes > 0 && bytes > 2 << 20, "{writes} writes of {bytes} bytes");
    assert!(c.info("io_write_us").starts_with(&format!("count={writes},p50=")), "{}", c.info("io_write_us"));
    assert_eq!(number(&mut c, "io_queue_depth"), 0);
    assert!(number(&mut c, "io_queue_depth_peak") > 0);
    let server = server.restarted(Signal::KILL, args);
    let mut c = server.connect();
    eventually("it is warm", || c.info("warmup_in_progress") == "0");
    for key in 0..300 {
        let value = c.run_bytes(&[b"GET", format!("key-{key}").as_bytes()]);
        assert_eq!(value, Reply::Bulk(vec![key as u8; 100 + key * 50]), "key-{key}");
    }
    let (reads, bytes) = (number(&mut c, "io_reads"), number(&mut c, "io_read_bytes"));
    assert!(reads > 0 && bytes > 2 << 20, "{reads} reads of {bytes} bytes");
    for field in ["io_read_errors", "io_write_errors", "io_sync_errors"] {
        assert_eq!(number(&mut c, field), 0, "{field}");
    }
}

#[test]
fn every_engine_saves_and_restarts() {
    for direct in ["auto", "no"] {
        saves_and_restarts("threads", &["--io-engine", "threads", "--direct-io", direct]);
        if has_io_uring() {
            saves_and_restarts("io_uring", &["--io-engine", "auto", "--direct-io", direct]);
            saves_and_restarts("io_uring", &["--io-engine", "io_uring", "--direct-io", direct]);
        }
    }
    with_refused(&IO_URING, Errno::PERM.raw_os_error(), || saves_and_restarts("threads", &[]));
}

/// A page file may be opened by another engine than the one that wrote it.
#[test]
fn engines_take_turns_on_a_file() {
    let mut server = TestServer::start(&["--io-engine", "threads"]);
    for (round, engine) in ["auto", "threads", "auto", "threads"].into_iter().enumerate() {
        let mut c = server.connect();
        assert_eq!(c.run("INCR counter").integer(), Some(round as i64 + 1));
        c.ok("SAVE");
        server = server.restarted(Signal::KILL, &["--io-engine", engine]);
    }
    assert_eq!(server.connect().run("GET counter").text(), "4");
}

#[test]
fn the_log_and_info_say_what_is_used() {
    let dir = temp_dir();
    let log_of = |args: &[&str]| {
        let launch = Launch::at_socket(PROGRAM, &dir).with(args);
        let (process, _) = launch.start();
        assert_eq!(process.warnings(), Vec::<String>::new(), "a choice is nothing to warn of");
        let fields = ["io_engine_note", "io_direct"].map(|field| process.client().info(field));
        (process.log(), fields)
    };
    let (log, fields) = log_of(&["--io-engine", "threads", "--direct-io", "no"]);
    assert!(log.contains("read and written by threads, through the page cache"), "{log}");
    assert_eq!(fields, ["none", "0"]);
    let (log, [note, _]) = with_refused(&IO_URING, Errno::PERM.raw_os_error(), || log_of(&[]));
    assert!(log.contains("by threads (io_uring is refused: Operation not permitted"), "{log}");
    assert!(note.contains("io_uring is refused: Operation not permitted"), "{note}");
}

#[test]
fn what_is_asked_for_and_refused_is_named() {
    let dir = temp_dir();
    // The advice of a file that is damaged would be wrong.
    std::fs::write(dir.join("dump.rdb"), "anything").unwrap();
    let launch = Launch::at_socket(PROGRAM, &dir).with(&["--io-engine", "io_uring"]);
    for errno in [Errno::PERM, Errno::NOSYS] {
        let log = with_refused(&IO_URING, errno.raw_os_error(), || launch.refused());
        assert!(log.contains("io_uring is refused") && log.contains("kernel.io_uring_disabled=0"), "{log}");
        assert!(
            log.contains("set 'io-engine' to 'auto' or 'threads'") && !log.contains("move the page file"),
            "{log}"
        );
    }
}
