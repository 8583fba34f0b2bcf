//! Saving, and what a restart finds.

use rustix::process::Signal;
use stillframe_pagepool::SnapshotKind;

use crate::algorithms;
use crate::harness::*;

#[test]
fn dumps_are_written_and_read_back() {
    let dir = temp_dir();
    let server = TestServer::start_in(&dir, &["--snapshot-format", "rdb"]);
    let mut c = server.connect();
    c.ok("SET text hello");
    c.ok("SET number 12345");
    c.ok("SET later x EX 1000");
    c.ok("SET soon x PX 1");
    c.run_bytes(&[b"SET", b"large", &vec![b'z'; 3 << 20]]);
    c.ok("SELECT 9");
    c.ok("SET nine 9");
    let before = c.run("LASTSAVE").text().parse::<i64>().unwrap();
    c.ok("SAVE");
    assert!(c.run("LASTSAVE").text().parse::<i64>().unwrap() >= before);
    assert_eq!(c.info("rdb_changes_since_last_save"), "0");
    c.ok("SELECT 0");
    c.ok("SET text changed");
    assert_eq!(c.run("BGSAVE SCHEDULE").text(), "Background saving started");
    eventually("it is saved", || c.info("rdb_saves") == "2");
    let copy = temp_dir();
    std::fs::copy(dir.join("dump.rdb"), copy.join("dump.rdb")).unwrap();
    let second = TestServer::start_in(&copy, &[]);
    let mut c = second.connect();
    c.wait_until_loaded();
    assert_eq!(c.run("DBSIZE"), Reply::Int(4));
    assert_eq!(c.run("GET text").text(), "changed");
    assert_eq!(c.run("OBJECT ENCODING number").text(), "int");
    assert!(matches!(c.run("TTL later"), Reply::Int(900..=1000)));
    assert_eq!(c.run("STRLEN large"), Reply::Int(3 << 20));
    c.ok("SELECT 9");
    assert_eq!(c.run("GET nine").text(), "9");
    assert!(second.log().contains("DB loaded from disk"));
}

/// Whoever looks during a save sees how many keys are done: of checkpoints of each algorithm, and of dumps.
#[test]
fn the_progress_of_a_save_is_told() {
    let checkpoints = SnapshotKind::ALL.into_iter().map(|kind| (kind, "BGSAVE"));
    for (kind, command) in checkpoints.chain([(SnapshotKind::Epoch, "BGSAVE RDB")]) {
        let args = [&["--enable-debug-command", "yes"], &algorithms::flags(kind)[..]].concat();
        let server = TestServer::start(&args);
        let mut c = server.connect();
        c.ok("DEBUG POPULATE 200000 key 100");
        let mut seen = Vec::new();
        // Each round on new data: an unchanged page is not saved again.
        for round in 0..20 {
            c.ok(&format!("SET round {round}"));
            c.run(command);
            while c.info("rdb_bgsave_in_progress") == "1" {
                seen.push(c.info("current_save_keys_processed").parse::<u64>().unwrap());
            }
            if seen.iter().any(|keys| (1..200_000).contains(keys)) {
                break;
            }
            c.ok("FLUSHALL");
            c.ok("DEBUG POPULATE 200000 key 100");
        }
        let forks = c.info("total_forks").parse::<u64>().unwrap();
        assert_eq!(c.info("snapshot_algorithm"), kind.name());
        assert_eq!(forks > 0, kind == SnapshotKind::Fork);
        assert_eq!(c.info("latest_fork_usec") != "0", kind == SnapshotKind::Fork);
        let is_seen = seen.iter().any(|keys| (1..200_000).contains(keys));
        assert!(is_seen, "{kind}, {command}: {seen:?}");
    }
}

/// Redis shows zeros when no save runs, and counts the next one from the start.
#[test]
fn the_progress_of_a_save_is_gone_with_it() {
    let server = TestServer::start(&["--save", ""]);
    let mut c = server.connect();
    for number in 0..500 {
        c.ok(&format!("SET key:{number} {number}"));
    }
    for _ in 0..2 {
        c.ok("SAVE");
        for field in
            ["current_save_keys_processed", "current_save_keys_total", "save_pages_done", "save_pages_total"]
        {
            assert_eq!(c.info(field), "0", "{field}");
        }
        assert_eq!(c.info("current_fork_perc"), "0.00");
    }
}

#[test]
fn signals_save_and_end() {
    for (args, is_saved) in [(&["--save", "3600", "1"][..], true), (&[], false)] {
        let dir = temp_dir();
        let mut server = TestServer::start_in(&dir, &[args, &["--snapshot-format", "rdb"]].concat());
        server.connect().ok("SET a 1");
        server.signal(Signal::TERM);
        assert_eq!(server.wait().code(), Some(0));
        assert_eq!(dir.join("dump.rdb").exists(), is_saved);
        assert!(server.log().contains("Received SIGTERM scheduling shutdown..."));
        assert!(server.log().contains("bye bye"));
    }
}

#[test]
fn hangups_are_ignored() {
    let server = TestServer::start(&[]);
    server.signal(Signal::HUP);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(server.connect().run("PING").text(), "PONG");
}

#[test]
fn save_points_save() {
    let dir = temp_dir();
    let server = TestServer::start_in(&dir, &["--save", "1", "2", "--snapshot-format", "rdb"]);
    let mut c = server.connect();
    c.ok("SET a 1");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(!dir.join("dump.rdb").exists());
    c.ok("SET a 2");
    eventually("it is saved", || dir.join("dump.rdb").exists());
    eventually("it is counted", || c.info("rdb_changes_since_last_save") == "0");
    assert!(server.log().contains("2 changes in 1 seconds. Saving..."));
}

#[test]
fn a_failed_save_stops_writes() {
    let dir = temp_dir();
    let args = ["--save", "3600", "1", "--snapshot-format", "rdb"];
    let mut server = TestServer::start_in(&dir, &args);
    let mut c = server.connect();
    c.ok("SET a 1");
    // A directory where the dump should go: it cannot be replaced by a file.
    std::fs::create_dir_all(dir.join("dump.rdb/in-the-way")).unwrap();
    let error = c.run("SAVE").text();
    assert!(error.starts_with("ERR ") && error.contains("dump.rdb"), "{error}");
    assert!(c
        .run("SET a 2")
        .text()
        .starts_with("MISCONF Redis is configured to save RDB snapshots, but it's"));
    assert!(c.run("PING").text().starts_with("MISCONF "));
    assert_eq!(c.run("GET a").text(), "1");
    assert_eq!(c.info("rdb_last_bgsave_status"), "err");
    assert_eq!(c.run("SHUTDOWN").text(), "ERR Errors trying to SHUTDOWN. Check logs.");
    assert_eq!(c.run("GET a").text(), "1");
    c.ok("CONFIG SET stop-writes-on-bgsave-error no");
    c.ok("SET a 2");
    std::fs::remove_dir_all(dir.join("dump.rdb")).unwrap();
    c.ok("CONFIG SET stop-writes-on-bgsave-error yes");
    c.ok("SAVE");
    c.ok("SET a 3");
    c.send("SHUTDOWN");
    assert!(c.read_to_end().is_empty());
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn backups_go_where_they_may() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    c.ok("SET a 1");
    c.ok("BACKUP TO monday.rdb");
    c.ok("BACKUP TO monday.rdb");
    // However a place inside of it is named.
    std::fs::create_dir(server.dir.join("sub")).unwrap();
    for path in
        ["./tuesday.rdb", "sub/../tuesday.rdb", "sub/tuesday.rdb", &format!("{}/x.rdb", server.dir.display())]
    {
        c.ok(&format!("BACKUP TO {path}"));
        assert!(server.dir.join(path).exists(), "{path}");
    }
    let bytes = std::fs::read(server.dir.join("monday.rdb")).unwrap();
    assert!(bytes.starts_with(b"REDIS0010"));
    for path in ["/tmp/x.rdb", "../x.rdb", "a/../../x.rdb"] {
        let error = c.run(&format!("BACKUP TO {path}")).text();
        assert!(error.starts_with("ERR BACKUP TO a path outside of the data directory"), "{path}: {error}");
    }
    std::fs::write(server.dir.join("notes"), "mine").unwrap();
    let error = c.run("BACKUP TO notes").text();
    assert!(error.ends_with("notes exists and is not an RDB file; it will not be replaced"), "{error}");
    assert_eq!(c.run("BACKUP FROM x").text(), "ERR syntax error");
    let elsewhere = temp_dir();
    let open = TestServer::start(&["--enable-protected-configs", "local"]);
    open.connect().ok(&format!("BACKUP TO {}/x.rdb", elsewhere.display()));
    assert!(elsewhere.join("x.rdb").exists());
}

#[test]
fn a_dump_that_cannot_be_read_is_not_served() {
    let dir = temp_dir();
    std::fs::write(dir.join("dump.rdb"), b"REDIS0010 this is not a dump").unwrap();
    let port = Port::reserve().unwrap();
    let output = binary().args(["--port", &port.to_string(), "--dir"]).arg(&dir).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("Fatal error loading the DB") && text.contains("dump.rdb"), "{text}");
}

/// Everything inside the data directory is inside, however it is written; what would do harm there is refused.
#[test]
fn backups_go_anywhere_in_the_data_directory() {
    let dir = temp_dir();
    std::fs::create_dir_all(dir.join("sub/deep")).unwrap();
    let elsewhere = temp_dir();
    std::os::unix::fs::symlink(&elsewhere, dir.join("link")).unwrap();
    let mut server = TestServer::start_in(&dir, &[]);
    let mut c = server.connect();
    c.ok("SET a 1");
    let absolute = dir.join("absolute.rdb").display().to_string();
    for path in ["./a.rdb", "sub/b.rdb", "sub/deep/../c.rdb", &absolute] {
        c.ok(&format!("BACKUP TO {path}"));
        assert!(std::fs::read(dir.join(path)).unwrap().starts_with(b"REDIS"), "{path}");
    }
    for path in ["link/x.rdb", "sub/../../x.rdb"] {
        let error = c.run(&format!("BACKUP TO {path}")).text();
        assert!(error.contains("outside of the data directory"), "{path}: {error}");
    }
    // A pipe would keep the worker waiting.
    let made = std::process::Command::new("mkfifo").arg(dir.join("pipe")).status().unwrap();
    assert!(made.success());
    assert!(c.run("BACKUP TO pipe").text().contains("is not an RDB file"));
    let pid = server.pid();
    let error = c.run(&format!("BACKUP TO temp-{pid}.rdb")).text();
    assert!(error.contains("choose another"), "{error}");
    assert!(c.run("BACKUP TO stillframe.pages").text().contains("will not be replaced"));
    assert_eq!(c.run("PING").text(), "PONG");
    server.signal(Signal::TERM);
    server.wait();
}

/// Fewer databases than were saved would hide keys.
#[test]
fn a_start_that_would_hide_databases_is_refused() {
    let dir = temp_dir();
    let mut server = TestServer::start_in(&dir, &[]);
    let mut c = server.connect();
    c.ok("SET a 1");
    for db in [9, 12] {
        c.ok(&format!("SELECT {db}"));
        c.ok("SET b 1");
    }
    c.ok("SAVE");
    server.signal(Signal::KILL);
    server.wait();
    drop(server);
    let port = Port::reserve().unwrap();
    let output =
        binary().args(["--port", &port.to_string(), "--databases", "4", "--dir"]).arg(&dir).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("2 keys in databases from 4 on") && text.contains("'databases 13'"), "{text}");
    let server = TestServer::start_in(&dir, &["--databases", "13"]);
    assert_eq!(server.connect().run("DBSIZE"), Reply::Int(1));
}

/// Lack of address space says nothing about the page file.
#[test]
fn a_limit_of_the_address_space_is_not_taken_for_damage() {
    let (port, dir) = (Port::reserve().unwrap(), temp_dir());
    let output =
        binary_limited("-v 2000000").args(["--port", &port.to_string(), "--dir"]).arg(&dir).output().unwrap();
    let text = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(!text.contains("backup") && !text.contains("damaged"), "{text}");
    assert!(text.contains("address space"), "{text}");
}
