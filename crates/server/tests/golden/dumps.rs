//! Dumps, by the version of their format.

use std::path::Path;

use crate::data::Data;
use crate::harness::*;
use crate::{expected, golden, is_update, keep, served, unpack};

const DUMP: &str = "dump.rdb";

/// Has this build write one.
fn write(version: u32, data: &Data, to: &Path) {
    let server =
        TestServer::start(&["--rdb-version", &version.to_string(), "--enable-protected-configs", "yes"]);
    let mut client = server.connect();
    served::fill(&mut client, data);
    client.ok(&format!("BACKUP TO {}", to.display()));
}

/// What the header says.
fn version_of(dump: &Path) -> u32 {
    let bytes = std::fs::read(dump).expect("a dump");
    let version =
        bytes.strip_prefix(b"REDIS").expect("a dump's header").first_chunk::<4>().expect("a header");
    std::str::from_utf8(version).expect("digits").parse().expect("a number")
}

fn check(version: u32, data: &Data, dump: &Path, each: &[&[&str]]) {
    assert_eq!(version_of(dump), version);
    for args in each {
        let dir = temp_dir();
        std::fs::copy(dump, dir.join(DUMP)).expect("room");
        let server = TestServer::start_in(&dir, args);
        let mut client = server.connect();
        client.wait_until_loaded();
        served::check(&mut client, data);
        client.ok("SAVE");
        let server = server.restarted(rustix::process::Signal::KILL, args);
        let mut client = server.connect();
        client.wait_until_loaded();
        served::check(&mut client, data);
    }
}

#[test]
fn dumps_of_earlier_revisions_load() {
    for (version, dir) in golden("dump") {
        let (data, work, packed) = (expected(&dir), temp_dir(), dir.join("dump.rdb.gz"));
        let dump = work.join(DUMP);
        let is_new = is_update() && !packed.exists();
        if is_new {
            write(version, &data, &dump);
        } else {
            unpack(&packed, &dump);
        }
        check(version, &data, &dump, &[&["--workers", "1"], &["--workers", "2"], &["--maxmemory", "4mb"]]);
        if is_new {
            keep(&dump, &packed);
        }
    }
}

/// What a file is made by works, and every version that is written has its file.
#[test]
fn dumps_of_this_revision_load() {
    let all = golden("dump");
    let has_version = |version: u32| all.iter().any(|(number, _)| *number == version);
    for (version, dir) in &all {
        let (data, work) = (expected(dir), temp_dir());
        let dump = work.join(DUMP);
        write(*version, &data, &dump);
        check(*version, &data, &dump, &[&[]]);
        // The one that is written unless another is asked for.
        let has_field_deadlines = data.keys.iter().any(|key| key.content.has_field_deadlines());
        let server = TestServer::start(&["--enable-protected-configs", "yes"]);
        let mut client = server.connect();
        if has_field_deadlines {
            client.run("HSETEX h EX 1000 FIELDS 1 f v");
        }
        client.run("SET s v");
        client.ok(&format!("BACKUP TO {}", work.join("auto.rdb").display()));
        let auto = version_of(&work.join("auto.rdb"));
        assert!(has_version(auto), "version {auto} has no file: see README.md");
    }
}
