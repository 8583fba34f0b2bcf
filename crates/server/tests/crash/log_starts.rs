//! What a start makes of a log: switched on and off, missing, damaged, torn, beside other files; and a log whose disk is full.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use stillframe_testkit::{eventually, Reply};

use crate::disk::SmallDisk;
use crate::process::{server_in, Client, Launch, TempDir};

const PAGE_BYTES: usize = 4096;
const SEGMENT_BYTES: u64 = 64 << 20;
/// Of the page file: two superblocks and the witness.
const SUPERBLOCKS: usize = 3;
const BLOCK_MAGIC: &[u8] = b"STILLBLK";
const SEGMENT_MAGIC: &[u8] = b"STILLSEG";

const ON: &[&str] = &["--appendonly", "yes", "--appendfsync", "always", "--enable-debug-command", "yes"];
const OFF: &[&str] = &["--appendonly", "no"];

fn launch(dir: &Path, flags: &[&str]) -> Launch {
    server_in(dir, dir).with(flags)
}

/// Counts on from what there is: the counter, and a list with each number. Returns the last number that was answered.
fn count(conn: &mut Client, step_count: usize) -> i64 {
    let mut last = counted(conn);
    for _ in 0..step_count {
        let next = last + 1;
        for line in ["MULTI", "INCR count", &format!("RPUSH numbers {next}"), "EXEC"] {
            conn.queue_line(line);
        }
        conn.flush().expect("a connection");
        (0..3).for_each(|_| assert!(!conn.read().is_error()));
        assert_eq!(conn.read().items()[0].integer(), Some(next));
        last = next;
    }
    last
}

/// What has been counted; fails unless the list has each number once.
fn counted(conn: &mut Client) -> i64 {
    let reply = conn.run("GET count");
    assert!(!reply.is_error(), "{reply:?}");
    let last = reply.bytes().map_or(0, |bytes| String::from_utf8_lossy(bytes).parse().expect("a number"));
    let numbers = conn.run("LRANGE numbers 0 -1");
    let expected = (1..=last).map(|number| Reply::Bulk(number.to_string().into_bytes()));
    assert!(numbers.items().iter().cloned().eq(expected), "{last}: {numbers:?}");
    last
}

fn assert_says(log: &str, words: &[&str]) {
    let missing: Vec<_> =
        words.iter().filter(|word| !log.to_lowercase().contains(&word.to_lowercase())).collect();
    assert!(missing.is_empty(), "{missing:?} is not in:\n{log}");
}

/// Switched in the file, in any order: what was answered with the log on is there, and so is what a start without found.
#[test]
fn a_log_switched_off_and_on_over_starts_loses_nothing() {
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let dir = TempDir::new("log-switched");
    let (mut least, mut off_count) = (0, 0);
    for round in 0..14 {
        let is_on = match round {
            0..4 => round % 2 == 0,
            _ => rng.bool(),
        };
        let (mut server, _) = launch(&dir, if is_on { ON } else { OFF }).start();
        let mut conn = server.client();
        let found = counted(&mut conn);
        assert!(found >= least, "{found} of {least}, round {round}\n{}", server.log());
        least = found;
        let last = count(&mut conn, rng.usize(..20));
        let is_saved = rng.u32(..3) == 0;
        if is_saved {
            assert!(conn.save_in_background("BGSAVE"));
        }
        least = if is_on || is_saved { last } else { least };
        off_count += u32::from(!is_on);
        match rng.u32(..4) {
            0 => {
                conn.send("SHUTDOWN NOSAVE");
                assert!(server.wait().success(), "{}", server.log());
            }
            1 => {
                conn.send("SHUTDOWN SAVE");
                assert!(server.wait().success(), "{}", server.log());
                least = last;
            }
            _ => server.kill(),
        }
    }
    assert!((1..14).contains(&off_count));
}

/// Switched by CONFIG SET, and killed at any time after it: what was answered before it was switched off is there, and what is
/// answered once the log is on.
#[test]
fn a_log_switched_live_loses_nothing() {
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let dir = TempDir::new("log-live");
    let mut least = 0;
    for round in 0..12 {
        let (server, _) = launch(&dir, if round % 2 == 0 { OFF } else { ON }).start();
        let mut conn = server.client();
        let found = counted(&mut conn);
        assert!(found >= least, "{found} of {least}, round {round}\n{}", server.log());
        least = found;
        let mut is_on = round % 2 == 1;
        let mut last = count(&mut conn, 3);
        least = if is_on { last } else { least };
        for _ in 0..rng.u32(1..4) {
            is_on = !is_on;
            conn.ok("CONFIG SET appendfsync always");
            conn.ok(&format!("CONFIG SET appendonly {}", if is_on { "yes" } else { "no" }));
            if rng.bool() {
                last = count(&mut conn, rng.usize(..4));
            }
            if rng.bool() {
                // Off with the next checkpoint, on once that is durable.
                eventually("the log is on or off", || {
                    conn.info("log_status") == if is_on { "on" } else { "off" }
                });
                last = count(&mut conn, rng.usize(1..6));
                least = if is_on { last } else { least };
            }
        }
        let _ = last;
        std::thread::sleep(Duration::from_micros(rng.u64(..20_000)));
        server.signal(Signal::KILL);
        server.kill();
    }
}

/// Starts, counts, is killed.
fn sample(dir: &TempDir, step_count: usize) -> i64 {
    let (server, _) = launch(dir, ON).start();
    let mut conn = server.client();
    let last = count(&mut conn, step_count);
    server.kill();
    last
}

#[test]
fn a_log_that_is_missing_is_named() {
    let dir = TempDir::new("log-missing");
    sample(&dir, 5);
    let (log, aside) = (dir.join("log"), dir.join("aside"));
    fs::rename(&log, &aside).expect("the log's directory");
    for flags in [ON, OFF] {
        assert_says(&launch(&dir, flags).refused(), &[&log.display().to_string(), "missing"]);
    }
    let _ = fs::remove_dir_all(&log);
    fs::rename(&aside, &log).expect("the log's directory");
    // And the other half.
    fs::rename(dir.join("stillframe.pages"), dir.join("pages-aside")).expect("the page file");
    assert_says(&launch(&dir, ON).refused(), &[&log.display().to_string(), "page file"]);
    fs::remove_file(dir.join("stillframe.pages")).unwrap_or_default();
    fs::rename(dir.join("pages-aside"), dir.join("stillframe.pages")).expect("the page file");
    let (server, _) = launch(&dir, ON).start();
    assert_eq!(counted(&mut server.client()), 5);
}

/// The segment that is in use, and where its blocks begin.
fn blocks(dir: &Path) -> (PathBuf, Vec<usize>) {
    let files = fs::read_dir(dir.join("log")).expect("the log").map(|entry| entry.expect("an entry").path());
    let mut found = files.filter_map(|path| {
        let bytes = fs::read(&path).expect("a segment");
        let is_block = |at: &usize| bytes[*at..].starts_with(BLOCK_MAGIC);
        let starts: Vec<usize> = (PAGE_BYTES..bytes.len()).step_by(PAGE_BYTES).filter(is_block).collect();
        (bytes.starts_with(SEGMENT_MAGIC) && !starts.is_empty()).then_some((path, starts))
    });
    let blocks = found.next().expect("a segment with blocks");
    assert!(found.next().is_none(), "more than one segment is in use");
    blocks
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).expect("a file");
    change(&mut bytes);
    fs::write(path, bytes).expect("a file");
}

#[test]
fn damage_in_what_was_acknowledged_is_named_with_its_place() {
    let dir = TempDir::new("log-damaged");
    sample(&dir, 12);
    let (path, starts) = blocks(&dir);
    let whole = fs::read(&path).expect("the segment");
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed());
    for _ in 0..6 {
        let start = starts[rng.usize(..starts.len() - 2)];
        // In the header or in what follows; not where there are zeros behind the payload.
        let at = start + rng.usize(..200);
        change(&path, |bytes| bytes[at] ^= 1 << rng.u32(..8));
        let image = fs::read(&path).expect("the segment");
        for flags in [ON, OFF] {
            let place = format!("byte {start}");
            assert_says(&launch(&dir, flags).refused(), &[&path.display().to_string(), &place, "damaged"]);
        }
        assert!(fs::read(&path).expect("the segment") == image, "the evidence has been changed");
        fs::write(&path, &whole).expect("the segment");
    }
    let (server, _) = launch(&dir, ON).start();
    assert_eq!(counted(&mut server.client()), 12);
}

#[test]
fn a_torn_end_is_cut_off() {
    for kind in 0..3 {
        let dir = TempDir::new("log-torn");
        let last = sample(&dir, 8);
        let (path, starts) = blocks(&dir);
        let end = *starts.last().expect("a block");
        change(&path, |bytes| match kind {
            0 => bytes.truncate(end),
            1 => bytes[end..end + PAGE_BYTES].fill(0),
            _ => bytes[end + 150..end + PAGE_BYTES].fill(0),
        });
        let (server, _) = launch(&dir, ON).start();
        let mut conn = server.client();
        // That was the last unit, of which nothing else tells.
        assert_eq!(counted(&mut conn), last - 1, "kind {kind}");
        assert_eq!(count(&mut conn, 5), last + 4);
        server.kill();
        let (server, _) = launch(&dir, ON).start();
        assert_eq!(counted(&mut server.client()), last + 4, "kind {kind}");
    }
}

#[test]
fn a_unit_that_is_half_there_is_cut_off_unless_that_is_refused() {
    let dir = TempDir::new("log-half");
    let (server, _) = launch(&dir, ON).start();
    let last = count(&mut server.client(), 8);
    let long = vec![b'x'; 5 << 20];
    assert!(!server.client().run_bytes(&[b"SET", b"long", &long]).is_error());
    server.kill();
    let (path, starts) = blocks(&dir);
    change(&path, |bytes| bytes.truncate(*starts.last().expect("a block")));
    let refused = launch(&dir, ON).with(&["--aof-load-truncated", "no"]).refused();
    assert_says(
        &refused,
        &["bytes at the end of the log were of a unit", "start with 'aof-load-truncated yes'"],
    );
    let (server, _) = launch(&dir, ON).start();
    assert_says(&server.log(), &["had not been written to its end"]);
    let mut conn = server.client();
    assert!(conn.run("GET long").is_null());
    assert_eq!(counted(&mut conn), last);
}

#[test]
fn a_damaged_newest_checkpoint_costs_nothing() {
    let dir = TempDir::new("log-checkpoint");
    let (server, _) = launch(&dir, ON).start();
    let mut conn = server.client();
    for _ in 0..3 {
        count(&mut conn, 5);
        assert!(conn.save_in_background("BGSAVE"));
    }
    let last = count(&mut conn, 5);
    server.kill();
    let path = dir.join("stillframe.pages");
    let whole = fs::read(&path).expect("the page file");
    let generation =
        |place: usize| u64::from_le_bytes(whole[place * PAGE_BYTES + 16..][..8].try_into().expect("8 bytes"));
    let newest = usize::from(generation(1) > generation(0));
    for places in [&[newest, SUPERBLOCKS - 1][..], &[newest][..]] {
        let mut image = whole.clone();
        places.iter().for_each(|place| image[place * PAGE_BYTES + 1234] ^= 1);
        fs::write(&path, &image).expect("the page file");
        let copy = TempDir::new("log-checkpoint-copy");
        copy_to(&dir, &copy);
        let (server, _) = launch(&copy, ON).start();
        let mut conn = server.client();
        assert_eq!(counted(&mut conn), last, "{places:?}");
        assert_eq!(count(&mut conn, 3), last + 3);
        server.kill();
        let (server, _) = launch(&copy, ON).start();
        assert_eq!(counted(&mut server.client()), last + 3, "{places:?}");
    }
}

/// The page file and the log.
fn copy_to(from: &Path, to: &Path) {
    fs::create_dir(to.join("log")).expect("a directory");
    fs::copy(from.join("stillframe.pages"), to.join("stillframe.pages")).expect("the page file");
    for entry in fs::read_dir(from.join("log")).expect("the log") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), to.join("log").join(entry.file_name())).expect("a segment");
    }
}

#[test]
fn append_only_files_beside_a_new_page_file_are_named() {
    for name in ["appendonlydir", "appendonly.aof"] {
        let dir = TempDir::new("log-redis");
        let path = dir.join(name);
        match name {
            "appendonlydir" => fs::create_dir(&path).expect("a directory"),
            _ => fs::write(&path, "*1\r\n$4\r\nPING\r\n").expect("a file"),
        }
        assert_says(&launch(&dir, ON).refused(), &[&path.display().to_string(), "append-only file of redis"]);
        let (server, _) = launch(&dir, OFF).start();
        assert_says(&server.warnings().join("\n"), &[&path.display().to_string(), "not read"]);
        count(&mut server.client(), 3);
        assert!(server.client().save_in_background("BGSAVE"));
        server.kill();
        // The page file is not new any more.
        let (server, _) = launch(&dir, ON).start();
        assert_eq!(counted(&mut server.client()), 3);
        assert!(path.exists());
    }
}

#[test]
fn a_dump_beside_a_log_is_not_loaded() {
    let dir = TempDir::new("log-dump");
    let (server, _) = launch(&dir, ON).start();
    let mut conn = server.client();
    count(&mut conn, 3);
    assert!(conn.save_in_background("BGSAVE RDB"));
    count(&mut conn, 4);
    server.kill();
    for format in ["pages", "rdb"] {
        let (server, _) = launch(&dir, ON).with(&["--snapshot-format", format]).start();
        assert_eq!(counted(&mut server.client()), 7, "snapshot-format {format}\n{}", server.log());
        server.kill();
    }
}

/// What has been told durable is there after a kill, whatever has not been is not told.
#[test]
fn waitaof_answers_for_what_is_durable() {
    let dir = TempDir::new("log-wait");
    let mut least = 0;
    for policy in ["always", "everysec", "everysec", "always"] {
        let (server, _) = launch(&dir, &[ON, &["--appendfsync", policy]].concat()).start();
        let mut conn = server.client();
        assert!(counted(&mut conn) >= least);
        least = count(&mut conn, 6);
        let reply = conn.run("WAITAOF 1 0 0");
        assert_eq!(reply, Reply::Array(vec![Reply::Int(1), Reply::Int(0)]), "{policy}");
        server.kill();
    }
    let (server, _) = launch(&dir, &[ON, &["--appendfsync", "no"]].concat()).start();
    let mut conn = server.client();
    assert!(counted(&mut conn) >= least);
    count(&mut conn, 1);
    assert_eq!(conn.run("WAITAOF 1 0 50").items()[0], Reply::Int(0), "nothing is synced");
    conn.ok("CONFIG SET appendonly no");
    eventually("it is off", || conn.info("log_status") == "off");
    assert!(conn.run("WAITAOF 1 0 50").is_error());
}

#[test]
fn a_shutdown_without_a_save_loses_nothing() {
    let dir = TempDir::new("log-shutdown");
    for (round, policy) in ["always", "everysec", "no", "no"].into_iter().enumerate() {
        let (mut server, _) = launch(&dir, &[ON, &["--appendfsync", policy]].concat()).start();
        let mut conn = server.client();
        assert_eq!(counted(&mut conn), 7 * round as i64);
        count(&mut conn, 7);
        conn.send("SHUTDOWN NOSAVE");
        assert!(server.wait().success(), "{}", server.log());
    }
    let (server, _) = launch(&dir, ON).start();
    assert_eq!(counted(&mut server.client()), 28);
}

/// A dump that is loaded over what there is, or beside it, is in the log; and what is over by then stays so.
#[test]
fn reloaded_data_is_in_the_log() {
    let dir = TempDir::new("log-reload");
    let (server, _) = launch(&dir, ON).start();
    let mut conn = server.client();
    count(&mut conn, 5);
    conn.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    for line in ["HSET over old 1", "SET over:text old", "RPUSH over:list old"] {
        assert!(!conn.run(line).is_error(), "{line}");
    }
    for key in ["over", "over:text", "over:list"] {
        assert_eq!(conn.run(&format!("PEXPIRE {key} 20")).integer(), Some(1));
    }
    std::thread::sleep(Duration::from_millis(60));
    conn.ok("DEBUG RELOAD");
    // Nobody may find what was there before, nor its deadline.
    for line in ["HSET over new 1", "APPEND over:text new", "RPUSH over:list new"] {
        assert!(!conn.run(line).is_error(), "{line}");
    }
    count(&mut conn, 1);
    server.kill();
    let (server, _) = launch(&dir, ON).start();
    let mut conn = server.client();
    assert_eq!(counted(&mut conn), 6);
    assert_eq!(conn.run("HGETALL over").items().len(), 2, "{:?}", conn.run("HGETALL over"));
    assert_eq!(conn.run("GET over:text").bytes(), Some(&b"new"[..]));
    assert_eq!(conn.run("LLEN over:list").integer(), Some(1));
    // Changes beside it in a transaction are changes.
    for line in ["MULTI", "DEBUG RELOAD", "SET beside 1", "EXEC"] {
        assert!(!conn.run(line).is_error(), "{line}");
    }
    server.kill();
    let (server, _) = launch(&dir, ON).start();
    let mut conn = server.client();
    assert_eq!(counted(&mut conn), 6);
    assert_eq!(conn.run("GET beside").bytes(), Some(&b"1"[..]));
    // A dump that is older than the data.
    conn.ok("FLUSHALL");
    conn.ok("DEBUG RELOAD NOSAVE");
    conn.ok("SET kept 1");
    conn.ok("DEBUG RELOAD NOSAVE NOFLUSH MERGE");
    assert_eq!(counted(&mut conn), 6);
    server.kill();
    let (server, _) = launch(&dir, ON).start();
    assert_eq!(counted(&mut server.client()), 6);
    assert_eq!(server.client().run("GET kept").bytes(), Some(&b"1"[..]));
}

/// Room for a segment, one spare and some pages.
const DISK_BYTES: u64 = 200 << 20;
const VALUE_BYTES: usize = 1 << 20;

#[test]
fn a_full_disk_refuses_what_stores_and_takes_what_removes() {
    let Some(disk) = SmallDisk::mount(DISK_BYTES) else { return };
    let run_dir = TempDir::new("log-full");
    let setup = server_in(disk.path(), run_dir.path()).with(ON);
    let (server, _) = setup.start();
    let mut conn = server.client();
    let mut stored = Vec::new();
    let mut ballast = None;
    let refusal = loop {
        let number = stored.len();
        let key = format!("k{number}");
        let reply = conn.run_bytes(&[b"SET", key.as_bytes(), &vec![number as u8; VALUE_BYTES]]);
        if reply.is_error() {
            break reply;
        }
        stored.push(key);
        if stored.len() == 10 {
            ballast = Some(disk.fill());
        }
        assert!(stored.len() < 400, "the disk does not fill");
    };
    let ballast = ballast.expect("room for ten values");
    assert_says(&refusal.text(), &["MISCONF Errors writing to the AOF file", "No space left on device"]);
    assert_eq!(conn.run(&format!("GET {}", stored[1])).bytes().map(<[u8]>::len), Some(VALUE_BYTES));
    let gone = stored.remove(0);
    assert_eq!(conn.run(&format!("DEL {gone}")).integer(), Some(1), "{}", server.log());
    // The log has given its spares to the checkpoint that failed, and gets them back by one that does not.
    eventually("the checkpoint fails", || conn.info("rdb_last_bgsave_status") == "err");
    fs::remove_file(&ballast).expect("the ballast");
    eventually("writes go on", || !conn.run("SET more 1").is_error());
    check_stored(&mut conn, &stored);
    server.kill();
    let (server, _) = setup.start();
    let mut conn = server.client();
    check_stored(&mut conn, &stored);
    assert_eq!(conn.run("GET more").bytes(), Some(&b"1"[..]));
    assert!(conn.run(&format!("GET {gone}")).is_null());
}

/// Segments and a spare leave 8 MB of the disk.
#[test]
fn a_checkpoint_gets_the_space_that_the_log_has_prepared() {
    let Some(disk) = SmallDisk::mount(DISK_BYTES) else { return };
    let run_dir = TempDir::new("log-gives-way");
    let (server, _) = server_in(disk.path(), run_dir.path()).with(ON).start();
    let mut conn = server.client();
    eventually("all segments are made", || conn.info("log_disk_bytes") == (3 * SEGMENT_BYTES).to_string());
    for number in 0..15 {
        let reply =
            conn.run_bytes(&[b"SET", format!("k{number}").as_bytes(), &vec![number as u8; VALUE_BYTES]]);
        assert!(!reply.is_error(), "{reply:?}");
    }
    eventually("a checkpoint succeeds", || conn.save_in_background("BGSAVE"));
    assert!(!conn.run("SET more 1").is_error());
}

fn check_stored(conn: &mut Client, stored: &[String]) {
    for key in stored {
        let number: usize = key[1..].parse().expect("a number");
        let reply = conn.run(&format!("GET {key}"));
        assert!(reply.bytes() == Some(&vec![number as u8; VALUE_BYTES][..]), "GET {key}");
    }
}
