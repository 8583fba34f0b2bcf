//! Disks that are full, file sizes that are limited, directories that cannot be written: a save fails and says so,
//! the data stays, and a later save succeeds.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{prlimit, Resource, Rlimit};
use stillframe_testkit::Reply;

use crate::model::Blob;
use crate::process::{server_in, Client, Launch, Process, TempDir};

const DISK_BYTES: u64 = 24 << 20;
const KEY_COUNT: u64 = 40;
const VALUE_BYTES: usize = 100_000;
/// The user "nobody", for a tester whom no permission stops.
const NOBODY: u32 = 65534;
const MISCONF: &[u8] = b"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. \
Commands that may modify the data set are disabled, because this instance is configured to report errors during writes \
if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB \
error.";

/// A file system of a few megabytes; goes when it is dropped.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// None, and the reason is printed, where nothing can be mounted.
    pub fn mount(byte_count: u64) -> Option<SmallDisk> {
        let dir = TempDir::new("disk");
        let size = format!("size={byte_count}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path()).output();
        match mounted {
            Ok(output) if output.status.success() => Some(SmallDisk(dir)),
            _ => {
                eprintln!("SKIPPED: a small file system cannot be mounted here (it takes root)");
                None
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes all the space that is left.
    pub fn fill(&self) -> PathBuf {
        let path = self.0.join("ballast");
        let mut file = File::create(&path).expect("a file");
        for len in [64 << 10, 4096, 1] {
            while file.write_all(&vec![7; len]).is_ok() {}
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

fn value(generation: u64, number: u64) -> Vec<u8> {
    Blob { tag: generation << 32 | number, len: VALUE_BYTES }.bytes()
}

/// A connection to a server that stops writes after a failed save: Redis does so only if there are save points.
fn connect(server: &Process) -> Client {
    let mut conn = server.client();
    let reply = conn.run_bytes(&[b"CONFIG", b"SET", b"save", b"86400 100000000"]);
    assert!(!reply.is_error(), "{reply:?}");
    conn
}

/// Gives every key its value of that generation.
fn store(conn: &mut Client, generation: u64) {
    for number in 0..KEY_COUNT {
        let reply = conn.run_bytes(&[b"SET", format!("k{number}").as_bytes(), &value(generation, number)]);
        assert!(!reply.is_error(), "{reply:?}");
    }
}

fn check(conn: &mut Client, generation: u64) {
    for number in 0..KEY_COUNT {
        let reply = conn.run(&format!("GET k{number}"));
        let expected = value(generation, number);
        assert!(reply.bytes() == Some(&expected[..]), "k{number} of generation {generation}: {reply:?}");
    }
    assert_eq!(conn.run("DBSIZE").integer(), Some(KEY_COUNT as i64));
}

fn assert_says(text: &str, parts: &[&str]) {
    let lower = text.to_lowercase();
    for part in parts {
        assert!(lower.contains(&part.to_lowercase()), "{part:?} is not in {text:?}");
    }
}

/// Saves, which must fail. Returns what is logged.
fn failed_save(server: &Process, conn: &mut Client, command: &str) -> String {
    assert!(!conn.save_in_background(command), "{command} has succeeded");
    server.warnings().pop().unwrap_or_else(|| panic!("no warning in {}", server.log()))
}

/// The save fails, says why and where, and stops writes; reads go on.
fn assert_save_fails(server: &Process, conn: &mut Client, command: &str, reasons: &[&str]) {
    let last_save = conn.run("LASTSAVE");
    assert_says(&failed_save(server, conn, command), reasons);
    let refused = conn.run("SET another 1");
    assert!(matches!(&refused, Reply::Error(text) if text == MISCONF), "{refused:?}");
    assert!(conn.run("DEL k0").is_error() && conn.run("PING").is_error(), "as Redis does");
    assert_eq!(conn.run("LASTSAVE"), last_save);
    for line in [
        "CONFIG SET stop-writes-on-bgsave-error no",
        "SET k0 x",
        "CONFIG SET stop-writes-on-bgsave-error yes",
    ] {
        let reply = conn.run(line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }
}

/// The next save succeeds, and writes with it.
fn assert_save_works(conn: &mut Client, command: &str) {
    assert!(conn.save_in_background(command), "{command} has failed");
    let reply = conn.run("SET k0 y");
    assert!(!reply.is_error(), "{reply:?}");
}

/// Brings a server into a failed save by `shrink`, out of it by `restore`, and kills it before or after that.
/// `reasons` are why a checkpoint and why a dump fail.
fn lack_of_space(
    dir: &Path,
    run_dir: &Path,
    shrink: &dyn Fn(&Process),
    restore: &dyn Fn(&Process),
    reasons: [&str; 2],
) {
    let place = dir.display().to_string();
    let [of_pages, of_dump] = reasons.map(|reason| [reason, &place]);
    for is_restored in [false, true] {
        let dir = &dir.join(if is_restored { "restored" } else { "killed" });
        fs::create_dir(dir).expect("a directory");
        let setup = server_in(dir, run_dir);
        let (server, _) = setup.start();
        let mut conn = connect(&server);
        store(&mut conn, 1);
        assert!(conn.save_in_background("BGSAVE"));
        store(&mut conn, 2);
        shrink(&server);
        for _ in 0..3 {
            assert_save_fails(&server, &mut conn, "BGSAVE", &of_pages);
        }
        let reply = conn.run("SAVE");
        assert!(reply.is_error(), "{reply:?}");
        assert_save_fails(&server, &mut conn, "BGSAVE RDB", &of_dump);
        assert!(!server.log().contains("panicked"));
        conn.run("CONFIG SET stop-writes-on-bgsave-error no");
        store(&mut conn, 3);
        check(&mut conn, 3);
        restore(&server);
        if is_restored {
            assert_save_works(&mut conn, "BGSAVE");
            store(&mut conn, 4);
            assert_save_works(&mut conn, "BGSAVE RDB");
            store(&mut conn, 5);
            assert!(conn.save_in_background("BGSAVE"));
            store(&mut conn, 6);
        }
        server.kill();
        let (server, _) = setup.start();
        assert_eq!(server.warnings(), Vec::<String>::new());
        check(&mut server.client(), if is_restored { 5 } else { 1 });
        let left: Vec<_> = names_in(dir).into_iter().filter(|name| name.starts_with("temp")).collect();
        assert_eq!(left, Vec::<String>::new(), "of saves that failed");
    }
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory");
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_full_disk_fails_the_save_and_nothing_else() {
    let Some(disk) = SmallDisk::mount(DISK_BYTES) else { return };
    let run_dir = TempDir::new("full");
    let ballast = disk.0.join("ballast");
    let fill = |_: &Process| drop(disk.fill());
    let empty = |_: &Process| fs::remove_file(&ballast).expect("the ballast");
    lack_of_space(disk.0.path(), run_dir.path(), &fill, &empty, ["no space left"; 2]);
}

#[test]
fn a_limit_of_the_file_size_fails_the_save_and_nothing_else() {
    let dir = TempDir::new("limit");
    let set = |server: &Process, limit_bytes: Option<u64>| {
        let limit = Rlimit { current: limit_bytes, maximum: None };
        prlimit(Some(server.process()), Resource::Fsize, limit).expect("a limit");
    };
    // Not a multiple of anything: a write is cut off in the middle of a page.
    let shrink = |server: &Process| set(server, Some(KEY_COUNT * VALUE_BYTES as u64 / 2 + 77));
    let restore = |server: &Process| set(server, None);
    lack_of_space(dir.path(), dir.path(), &shrink, &restore, ["no space left", "file too large"]);
}

/// A server that permissions apply to, in a directory of its own.
fn unprivileged(dir: &TempDir) -> (Launch, PathBuf) {
    let data_dir = dir.join("data");
    fs::create_dir(&data_dir).expect("a directory");
    let mut setup = server_in(&data_dir, dir.path());
    if rustix::process::getuid().is_root() {
        let program = dir.join("stillframe-server");
        fs::copy(&setup.program, &program).expect("a copy");
        setup.program = program;
        setup.user = Some(NOBODY);
        for path in [dir.path(), &data_dir] {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).expect("an owner");
        }
    }
    (setup, data_dir)
}

#[test]
fn a_directory_that_cannot_be_written() {
    let dir = TempDir::new("unwritable");
    let (setup, data_dir) = unprivileged(&dir);
    let set_mode = |mode| fs::set_permissions(&data_dir, Permissions::from_mode(mode)).expect("permissions");
    let place = data_dir.display().to_string();
    set_mode(0o555);
    assert_says(&setup.refused(), &["permission denied", &place]);
    set_mode(0o755);
    let (server, _) = setup.start();
    let mut conn = connect(&server);
    store(&mut conn, 1);
    set_mode(0o555);
    // The page file is open already and is what keeps the data: a dump that fails stops no writes.
    assert_says(&failed_save(&server, &mut conn, "BGSAVE RDB"), &["permission denied", &place]);
    store(&mut conn, 2);
    assert_save_works(&mut conn, "BGSAVE");
    set_mode(0o755);
    assert_save_works(&mut conn, "BGSAVE RDB");
    store(&mut conn, 3);
    assert!(conn.save_in_background("BGSAVE"));
    server.kill();
    let (server, _) = setup.start();
    check(&mut server.client(), 3);
    server.kill();

    let setup = setup.with(&["--snapshot-format", "rdb"]);
    let (server, _) = setup.start();
    let mut conn = connect(&server);
    store(&mut conn, 4);
    set_mode(0o555);
    assert_save_fails(&server, &mut conn, "BGSAVE", &["permission denied", &place]);
    set_mode(0o755);
    assert_save_works(&mut conn, "BGSAVE");
    store(&mut conn, 5);
    assert!(conn.save_in_background("BGSAVE"));
    server.kill();
    let (server, _) = setup.start();
    check(&mut server.client(), 5);
}

/// Removed, renamed away, replaced: a save into a file that nobody will find is none, and says so; what is served can
/// be saved elsewhere.
#[test]
fn a_page_file_that_is_gone_fails_saves() {
    for round in 0..3 {
        let dir = TempDir::new("gone");
        let setup = server_in(dir.path(), dir.path());
        let (server, _) = setup.start();
        let mut conn = connect(&server);
        store(&mut conn, 1);
        assert!(conn.save_in_background("BGSAVE"));
        let path = dir.join("stillframe.pages");
        match round {
            0 => fs::remove_file(&path).expect("the page file"),
            1 => fs::rename(&path, dir.join("moved")).expect("the page file"),
            _ => {
                fs::copy(&path, dir.join("copy")).expect("a copy");
                fs::rename(dir.join("copy"), &path).expect("the copy");
            }
        }
        let log = failed_save(&server, &mut conn, "BGSAVE");
        assert_says(&log, &["removed, renamed or replaced", "stillframe.pages"]);
        let reply = conn.run("SAVE");
        assert!(reply.is_error(), "SAVE into a file that is gone: {reply:?}");
        check(&mut conn, 1);
        // What the message advises: a dump, which the restart finds, also beside a page file that has older data.
        assert!(!conn.run("CONFIG SET stop-writes-on-bgsave-error no").is_error());
        store(&mut conn, 2);
        assert!(conn.save_in_background("BGSAVE RDB"), "{}", server.log());
        server.kill();
        let (server, _) = setup.start();
        check(&mut server.client(), 2);
    }
}

/// The page file is locked too: without the lock file a second server does not get at it either.
#[test]
fn a_second_server_is_refused_without_the_lock_file() {
    let dir = TempDir::new("lock-file");
    let setup = server_in(dir.path(), dir.path());
    let (server, _) = setup.start();
    fs::remove_file(dir.join("LOCK")).expect("the lock file");
    let mut second = server_in(dir.path(), dir.path());
    second.run_dir = dir.join("second");
    fs::create_dir(&second.run_dir).expect("a directory");
    assert_says(&second.refused(), &["another process uses the file", "stillframe.pages"]);
    store(&mut server.client(), 1);
    assert!(server.client().save_in_background("BGSAVE"));
}

#[test]
fn a_directory_that_is_missing_or_in_use() {
    let dir = TempDir::new("in-use");
    let missing = dir.join("missing");
    let log = server_in(&missing, dir.path()).refused();
    assert_says(&log, &["no such file", &missing.display().to_string()]);
    let setup = server_in(dir.path(), dir.path());
    let (server, _) = setup.start();
    let mut conn = server.client();
    store(&mut conn, 1);
    assert!(conn.save_in_background("BGSAVE"));
    let mut second = server_in(dir.path(), dir.path());
    second.run_dir = dir.join("second");
    fs::create_dir(&second.run_dir).expect("a directory");
    assert_says(&second.refused(), &["in use", &dir.path().display().to_string()]);
    check(&mut conn, 1);
    server.kill();
    let (server, _) = setup.start();
    check(&mut server.client(), 1);
}
