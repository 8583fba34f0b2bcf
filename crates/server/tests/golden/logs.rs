//! Logs, by the version in the head of a segment, each beside the page file that it goes with.

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use stillframe_testkit::Ready;

use crate::data::Data;
use crate::harness::*;
use crate::{expected, golden, is_update, keep, served, unpack};

/// What is kept of a directory: the page file, and the one segment that has blocks.
const FILES: [&str; 2] = ["stillframe.pages", "log/00000001.log"];
/// Where the version is in the head of a segment.
const VERSION: std::ops::Range<usize> = 20..24;

fn packed(dir: &Path) -> [PathBuf; 2] {
    FILES.map(|file| dir.join(format!("{}.gz", file.rsplit('/').next().expect("a name"))))
}

/// Once it has replayed its log.
fn started(mut server: TestServer) -> TestServer {
    server.wait_until(Ready::Serving);
    server
}

/// Has this build write them: half of the keys are in the checkpoint, the others in the log alone.
fn write(data: &Data, dir: &Path) {
    let mut server = started(TestServer::start_in(dir, &["--appendonly", "yes", "--appendfsync", "always"]));
    served::fill(&mut server.connect(), data);
    server.signal(Signal::KILL);
    server.wait();
}

fn version_of(dir: &Path) -> u32 {
    let bytes = std::fs::read(dir.join(FILES[1])).expect("a segment");
    assert!(bytes.starts_with(b"STILLSEG"));
    u32::from_le_bytes(bytes[VERSION].try_into().expect("four bytes"))
}

/// Whatever is asked for from then on, what the log has is served; a checkpoint ends it, or goes on with it.
fn check(files: &Path, data: &Data) {
    for (appendonly, workers) in [("yes", "1"), ("yes", "2"), ("no", "1")] {
        let dir = temp_dir();
        std::fs::create_dir(dir.join("log")).expect("room");
        for file in FILES {
            std::fs::copy(files.join(file), dir.join(file)).expect("room");
        }
        let args = ["--appendonly", appendonly, "--workers", workers];
        let server = started(TestServer::start_in(&dir, &args));
        served::check(&mut server.connect(), data);
        server.connect().ok("SAVE");
        let mut server = started(server.restarted(Signal::KILL, &args));
        served::check(&mut server.connect(), data);
        server.connect().send("SHUTDOWN NOSAVE");
        assert!(server.wait().success());
        let checked = binary().arg("--check").arg(dir.join(FILES[0])).output().expect("the program");
        let text = String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success(), "{text}");
        let expected =
            if appendonly == "yes" { "has format version 3: 0 units" } else { "has format version 2" };
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn logs_of_earlier_revisions_are_replayed() {
    for (version, dir) in golden("log") {
        let (data, work, packed) = (expected(&dir), temp_dir(), packed(&dir));
        let is_new = is_update() && !packed[0].exists();
        if is_new {
            write(&data, &work);
        } else {
            std::fs::create_dir(work.join("log")).expect("room");
            FILES.iter().zip(&packed).for_each(|(file, packed)| unpack(packed, &work.join(file)));
        }
        assert_eq!(version_of(&work), version);
        check(&work, &data);
        if is_new {
            FILES.iter().zip(&packed).for_each(|(file, packed)| keep(&work.join(file), packed));
        }
    }
}

/// What a log is made by works, and the version that this build writes has its files.
#[test]
fn a_log_of_this_revision_is_replayed() {
    let (newest, dir) = golden("log").pop().expect("one at least");
    let (data, work) = (expected(&dir), temp_dir());
    write(&data, &work);
    let version = version_of(&work);
    assert_eq!(version, newest, "version {version} has no files: see README.md");
    check(&work, &data);
}
