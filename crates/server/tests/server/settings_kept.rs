//! What `CONFIG SET` has set is there after `CONFIG REWRITE` and a restart, and the log after its rotation.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use stillframe_testkit::{eventually, Address, PATIENCE};

use crate::harness::*;

/// A server that is started from a file, at a socket beside it.
struct FromFile {
    dir: TempDir,
    child: Option<Child>,
}

impl FromFile {
    /// `text` is behind the lines that say where it listens.
    fn start(text: &str) -> (FromFile, Client) {
        let dir = temp_dir();
        let place = dir.display();
        let head =
            format!("# head\nport 0\nunixsocket {place}/s\ndir {place}\nenable-protected-configs yes\n");
        std::fs::write(dir.join("my.conf"), head + text).unwrap();
        let mut server = FromFile { dir, child: None };
        let client = server.run();
        (server, client)
    }

    fn file(&self) -> PathBuf {
        self.dir.join("my.conf")
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.file()).unwrap()
    }

    fn run(&mut self) -> Client {
        self.child = Some(binary().arg(self.file()).stdout(Stdio::null()).spawn().unwrap());
        let (address, mut client) = (Address::Unix(self.dir.join("s")), None);
        eventually("it listens", || {
            client = Client::connect(&address, PATIENCE).ok();
            client.is_some()
        });
        client.unwrap()
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            child.wait().unwrap();
        }
    }

    fn restarted(&mut self) -> Client {
        self.end();
        self.run()
    }
}

impl Drop for FromFile {
    fn drop(&mut self) {
        self.end();
    }
}

fn set(c: &mut Client, name: &str, value: &[u8]) -> bool {
    c.run_bytes(&[b"CONFIG", b"SET", name.as_bytes(), value]) == Reply::ok()
}

fn value(c: &mut Client, name: &str) -> Vec<u8> {
    c.run(&format!("CONFIG GET {name}")).items()[1].bytes().unwrap().to_vec()
}

fn all(c: &mut Client) -> Vec<(String, Vec<u8>)> {
    let reply = c.run("CONFIG GET *");
    reply.items().chunks(2).map(|pair| (pair[0].text(), pair[1].bytes().unwrap().to_vec())).collect()
}

/// What settings are given, the first that is taken and is another one than there was.
const VALUES: [&[u8]; 21] = [
    b"a \"quoted\" 'word' # \\ \n\t\x07\xff end",
    b"two words",
    b"127.0.0.1 -::1",
    b"normal 1mb 2mb 3 replica 4mb 5mb 6 pubsub 7mb 8mb 9",
    b"10 20 300 4",
    b"1 2 3",
    b"300000000",
    b"KEA",
    b"{title} \"x\"",
    b"no",
    b"yes",
    b"local",
    b"now force",
    b"rdb",
    b"12",
    b"skip",
    b"noeviction",
    b"warning",
    b"always",
    b"relative",
    b"77",
];

/// Would end the test, not the setting.
const LEFT_ALONE: [&str; 4] = ["dir", "maxmemory-clients", "client-query-buffer-limit", "port"];

#[test]
fn every_setting_is_the_same_after_a_rewrite_and_a_restart() {
    let (mut server, mut c) = FromFile::start("# tail\n");
    let before = all(&mut c);
    let mut changed_count = 0;
    for (name, old) in before.iter().filter(|(name, _)| !LEFT_ALONE.contains(&name.as_str())) {
        let is_changed = VALUES
            .iter()
            .any(|given| *given != &old[..] && set(&mut c, name, given) && value(&mut c, name) != *old);
        changed_count += usize::from(is_changed);
    }
    assert!(changed_count > 100, "{changed_count}");
    let expected = all(&mut c);
    c.ok("CONFIG REWRITE");
    let text = server.text();
    assert!(text.starts_with("# head\nport 0\n") && text.contains("\n# tail\n"), "{text}");
    let mut c = server.restarted();
    assert_eq!(c.run("PING").text(), "NOAUTH Authentication required.");
    assert_eq!(c.run_bytes(&[b"AUTH", VALUES[0]]), Reply::ok());
    let differs = |(now, before): &(_, _)| now != before;
    let kept = all(&mut c);
    assert_eq!(kept.iter().zip(&expected).find(differs), None);
    // Once more, nothing is left to be written.
    c.ok("CONFIG REWRITE");
    assert_eq!(server.text(), text);
}

#[test]
fn an_empty_bind_stays_empty() {
    let port = Port::reserve().unwrap();
    let (mut server, mut c) = FromFile::start(&format!("port {port}\n"));
    let is_open = || std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_ok();
    assert!(is_open());
    assert!(set(&mut c, "bind", b""));
    assert!(!is_open());
    c.ok("CONFIG REWRITE");
    assert!(server.text().contains("\nbind \"\"\n"), "{}", server.text());
    let mut c = server.restarted();
    assert_eq!(value(&mut c, "bind"), b"");
    assert!(!is_open());
}

/// What an included file says would win over the line before it, or be all there is.
#[test]
fn what_an_included_file_says_does_not_come_back() {
    let dir = temp_dir();
    let inner = dir.join("inner.conf");
    std::fs::write(&inner, "requirepass old\nprotected-mode no\nsave 60 1\nmaxclients 9000\n").unwrap();
    let (mut server, mut c) =
        FromFile::start(&format!("requirepass first\nmaxclients 8000\ninclude {}\n", inner.display()));
    c.ok("AUTH old");
    c.ok("CONFIG SET requirepass new protected-mode yes maxclients 100");
    assert!(set(&mut c, "save", b"10 5"));
    c.ok("CONFIG REWRITE");
    let mut c = server.restarted();
    assert!(c.run("AUTH old").is_error());
    c.ok("AUTH new");
    for (name, expected) in [("protected-mode", "yes"), ("maxclients", "100"), ("save", "10 5")] {
        assert_eq!(value(&mut c, name), expected.as_bytes(), "{name}");
    }
}

#[test]
fn a_rewrite_keeps_the_mode_of_the_file_and_the_link_to_it() {
    let (server, mut c) = FromFile::start("requirepass secret\n");
    c.ok("AUTH secret");
    let (file, target) = (server.file(), server.dir.join("target.conf"));
    std::fs::rename(&file, &target).unwrap();
    std::os::unix::fs::symlink(&target, &file).unwrap();
    for mode in [0o600, 0o640] {
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(mode)).unwrap();
        c.ok("CONFIG SET maxclients 88");
        c.ok("CONFIG REWRITE");
        assert!(std::fs::symlink_metadata(&file).unwrap().is_symlink());
        assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o777, mode);
    }
    assert!(server.text().contains("maxclients 88\n"));
    let rest: Vec<_> =
        std::fs::read_dir(server.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!rest.iter().any(|name| name.to_string_lossy().ends_with(".tmp")), "{rest:?}");
}

#[test]
fn all_settings_are_written_where_that_is_asked_for() {
    let (mut server, mut c) = FromFile::start("enable-debug-command yes\n");
    let expected = all(&mut c);
    c.ok("DEBUG CONFIG-REWRITE-FORCE-ALL");
    let text = server.text();
    for name in ["hz 10", "bind * -::*", "tcp-backlog 511", "requirepass \"\"", "save 3600 1"] {
        assert!(text.contains(&format!("\n{name}\n")), "{name}: {text}");
    }
    assert_eq!(all(&mut server.restarted()), expected);
}

#[test]
fn settings_of_a_transaction_are_read_and_written_in_it() {
    let (server, mut c) = FromFile::start("");
    c.ok("MULTI");
    for line in ["CONFIG SET maxclients 123", "CONFIG GET maxclients", "CONFIG REWRITE"] {
        assert_eq!(c.run(line).text(), "QUEUED");
    }
    assert_eq!(c.run("EXEC").items()[1].items()[1].text(), "123");
    assert!(server.text().contains("\nmaxclients 123\n"));
}

#[test]
fn the_limits_of_small_collections_hold_from_the_start() {
    let server = TestServer::start(&["--hash-max-listpack-entries", "1", "--set-max-intset-entries", "1"]);
    let mut c = server.connect();
    c.run("HSET h a 1 b 2");
    c.run("SADD s 1 2");
    assert_eq!(c.run("OBJECT ENCODING h").text(), "hashtable");
    assert_eq!(c.run("OBJECT ENCODING s").text(), "hashtable");
}

fn lines(path: &Path, word: &str) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().filter(|line| line.contains(word)).count()
}

#[test]
fn a_log_goes_on_in_a_new_file_after_its_rotation() {
    let dir = temp_dir();
    let (log, old) = (dir.join("server.log"), dir.join("server.log.1"));
    let (_server, mut c) = FromFile::start(&format!("enable-debug-command yes\nlogfile {}\n", log.display()));
    c.ok("DEBUG LOG first");
    std::fs::rename(&log, &old).unwrap();
    c.ok("DEBUG LOG second");
    assert_eq!((lines(&old, "DEBUG LOG: first"), lines(&old, "second")), (1, 0));
    assert_eq!((lines(&log, "first"), lines(&log, "DEBUG LOG: second")), (0, 1));
    std::fs::remove_file(&log).unwrap();
    c.ok("DEBUG LOG third");
    assert_eq!(lines(&log, "DEBUG LOG: third"), 1);
    // Cut off in its place, as copytruncate does.
    std::fs::File::create(&log).unwrap();
    c.ok("DEBUG LOG fourth");
    assert_eq!(std::fs::read(&log).unwrap().iter().filter(|byte| **byte == 0).count(), 0);
    assert_eq!(lines(&log, "DEBUG LOG: fourth"), 1);
    // Where there can be no new file the server goes on all the same.
    std::fs::remove_file(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    c.ok("DEBUG LOG fifth");
    std::fs::remove_dir(&log).unwrap();
    c.ok("DEBUG LOG sixth");
    assert_eq!(lines(&log, "DEBUG LOG: sixth"), 1);
}

#[test]
fn the_log_has_the_lines_that_harnesses_wait_for() {
    let server = TestServer::start(&[]);
    eventually("the server is ready", || server.log().contains("Ready to accept connections"));
    let log = server.log();
    let at = |word: &str| log.find(word).unwrap_or_else(|| panic!("{word}: {log}"));
    let started = at(&format!(" PID: {}\n", server.pid()));
    assert!(started < at("Running mode=standalone, port="), "{log}");
    assert!(at("Running mode=standalone, port=") < at("Server initialized"), "{log}");
    assert!(at("Server initialized") < at("Ready to accept connections"), "{log}");
    let taken = binary().args(["--bind", "127.0.0.1", "--port", &server.port.to_string()]).output().unwrap();
    let text = String::from_utf8_lossy(&taken.stdout).into_owned();
    let expected = format!("Failed listening on port {} (TCP), aborting.", server.port);
    assert!(!taken.status.success() && text.contains(&expected), "{text}");
}
