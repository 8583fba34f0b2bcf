//! A page file that rots under a running server.

use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::process::Signal;
use stillframe_pagepool::SnapshotKind;

use crate::algorithms;
use crate::harness::*;

const PAGE: usize = 4096;

/// Flips a bit in each page of the file that is filled with `fill`; how many there are.
fn rot(file: &Path, fill: u8) -> usize {
    let image = std::fs::read(file).unwrap();
    let file = std::fs::File::options().write(true).open(file).unwrap();
    let is_filled = |(_, page): &(usize, &[u8])| page.iter().all(|&byte| byte == fill);
    let rotten: Vec<_> = image.chunks(PAGE).enumerate().filter(is_filled).collect();
    for (slot, _) in &rotten {
        file.write_all_at(&[fill ^ 1], (slot * PAGE + 7) as u64).unwrap();
    }
    file.sync_all().unwrap();
    rotten.len()
}

/// What `--check` says, and its exit status.
fn check(file: &Path) -> (Option<i32>, String) {
    let output = binary().arg("--check").arg(file).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn start(dir: &Path, more: &[&str]) -> TestServer {
    TestServer::start_in(dir, &[&["--enable-debug-command", "yes"], more].concat())
}

fn end(mut server: TestServer, signal: Signal) {
    server.signal(signal);
    server.wait();
}

#[test]
fn what_rots_under_a_server_is_written_anew() {
    for kind in SnapshotKind::ALL {
        let dir = temp_dir();
        let file = dir.join("stillframe.pages");
        let server = start(&dir, &[&["--save", ""], &algorithms::flags(kind)[..]].concat());
        let mut c = server.connect();
        c.ok("DEBUG POPULATE 5000");
        c.run_bytes(&[b"SET", b"large", &vec![b'z'; 1 << 20]]);
        c.ok("SAVE");
        assert!(c.run("DEBUG SCRUB").text().ends_with(" to_heal:0 lost:0"));
        let rotten_count = rot(&file, b'z');
        assert!(rotten_count > 200, "{rotten_count}");
        let found = c.run("DEBUG SCRUB").text();
        assert!(found.ends_with(&format!(" to_heal:{rotten_count} lost:0")), "{found}");
        assert_eq!(c.info("scrub_bad_pages"), rotten_count.to_string());
        assert_eq!(c.info("scrub_healed_pages"), "0");
        assert!(
            server.log().contains("It is in memory: the next checkpoint writes it anew"),
            "{}",
            server.log()
        );
        c.ok("SAVE");
        assert_eq!(c.info("scrub_healed_pages"), rotten_count.to_string());
        assert!(c.run("DEBUG SCRUB").text().ends_with(" to_heal:0 lost:0"));
        assert!(server.log().contains(&format!("{rotten_count} pages that were damaged in the page file")));
        end(server, Signal::KILL);
        let (status, text) = check(&file);
        assert!(status == Some(0) && text.contains(" of which 0 are damaged"), "{text}");
        let server = start(&dir, &["--save", ""]);
        let mut c = server.connect();
        c.wait_until_loaded();
        assert!(c.run("GET large").bytes().unwrap() == vec![b'z'; 1 << 20]);
        assert_eq!(c.run("DBSIZE"), Reply::Int(5001));
        assert_eq!(c.info("page_file_status"), "ok");
    }
}

/// Without anybody asking for it, and although nothing has changed that a save point would count.
#[test]
fn the_scrubber_has_what_it_finds_saved() {
    let dir = temp_dir();
    let file = dir.join("stillframe.pages");
    let server = start(&dir, &["--save", "3600", "1", "--scrub-interval", "0"]);
    let mut c = server.connect();
    c.run_bytes(&[b"SET", b"large", &vec![b'z'; 1 << 20]]);
    c.ok("SAVE");
    let rotten_count = rot(&file, b'z').to_string();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(c.info("scrub_pages"), "0", "it is turned off");
    c.ok("CONFIG SET scrub-interval 1");
    eventually("it is saved", || c.info("scrub_healed_pages") == rotten_count);
    assert_eq!(c.info("scrub_bad_pages"), rotten_count);
    end(server, Signal::KILL);
    let (status, text) = check(&file);
    assert_eq!(status, Some(0), "{text}");
}
