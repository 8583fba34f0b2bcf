//! Configurations, as they are written and as `CONFIG REWRITE` wrote them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal};
use stillframe_testkit::{mortal, Address, PATIENCE};

use crate::harness::*;
use crate::{golden, is_update};

const WRITTEN: &str = "redis.conf";
const REWRITTEN: &str = "rewritten.conf";

/// A server of whose settings nothing is known but what stands in its file.
struct Configured {
    child: Child,
    address: Address,
}

impl Drop for Configured {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Configured {
    fn start(dir: &Path) -> Configured {
        let mut command: Command = mortal(Path::new(PROGRAM));
        let child = command.arg(WRITTEN).current_dir(dir).spawn().expect("the program");
        let mut server = Configured { child, address: Address::Unix(dir.join("golden.sock")) };
        eventually("it listens", || {
            let status = server.child.try_wait().expect("a child");
            assert!(
                status.is_none(),
                "{status:?}\n{}",
                std::fs::read_to_string(dir.join("golden.log")).unwrap_or_default()
            );
            Client::connect(&server.address, PATIENCE).is_ok()
        });
        server
    }

    /// One that may do everything.
    fn client(&self, settings: &[(String, String)]) -> Client {
        let mut client = Client::connect(&self.address, PATIENCE).expect("it listens");
        let (_, password) = settings.iter().find(|(name, _)| name == "requirepass").expect("a password");
        assert!(client.run("GET key").text().starts_with("NOAUTH"));
        assert_eq!(client.run_bytes(&[b"AUTH", password.as_bytes()]), Reply::ok());
        client
    }

    fn end(mut self) {
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it is there");
        assert!(self.child.wait().expect("a child").success());
    }
}

/// Names and values, as `CONFIG GET` has them.
fn settings(dir: &Path, run_dir: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(dir.join("settings.txt")).expect("a list of settings");
    let here = run_dir.canonicalize().expect("a directory").display().to_string();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| line.split_once(' ').unwrap_or_else(|| panic!("{line}")));
    pairs.map(|(name, value)| (name.to_owned(), value.replace("DIR", &here))).collect()
}

fn check_settings(client: &mut Client, settings: &[(String, String)]) {
    let differ = settings.iter().filter_map(|(name, value)| {
        let found = client.run_bytes(&[b"CONFIG", b"GET", name.as_bytes()]);
        let found = found.items().get(1).map(Reply::text);
        (found.as_ref() != Some(value)).then(|| format!("{name} is {found:?}, not {value:?}"))
    });
    let differ: Vec<_> = differ.collect();
    assert!(differ.is_empty(), "{differ:#?}");
}

/// Not only named: files, rights, bounds and forms are as the settings say.
fn check_effects(client: &mut Client, server: &Configured, dir: &Path) {
    let mode = dir.join("golden.sock").metadata().expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let pid = std::fs::read_to_string(dir.join("golden.pid")).expect("its pid");
    assert_eq!(pid.trim(), server.child.id().to_string());
    client.ok("SELECT 23");
    assert!(client.run("SELECT 24").is_error());
    for (count, encoding) in [(100, "listpack"), (101, "hashtable")] {
        let fields: String = (0..count).map(|number| format!(" f{number} v")).collect();
        // The second start has it from the dump of the first.
        client.run(&format!("DEL hash:{count}"));
        client.run(&format!("HSET hash:{count}{fields}"));
        assert_eq!(client.run(&format!("OBJECT ENCODING hash:{count}")).text(), encoding);
    }
    client.ok("SAVE");
    assert!(dir.join("golden.rdb").exists());
    client.run("FLUSHALL");
}

/// Runs from the file, writes it anew, and runs from what was written; returns that.
fn check(file: &Path, dir: &Path) -> String {
    let run_dir = temp_dir();
    let conf = run_dir.join(WRITTEN);
    std::fs::copy(file, &conf).expect("room");
    let settings = settings(dir, &run_dir);
    let server = Configured::start(&run_dir);
    let mut client = server.client(&settings);
    check_settings(&mut client, &settings);
    check_effects(&mut client, &server, &run_dir);
    client.ok("CONFIG REWRITE");
    server.end();
    let rewritten = std::fs::read_to_string(&conf).expect("a configuration");
    let comments =
        |text: &str| text.lines().filter(|line| line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(comments(&rewritten), comments(&std::fs::read_to_string(file).expect("a configuration")));
    let server = Configured::start(&run_dir);
    check_settings(&mut server.client(&settings), &settings);
    server.end();
    rewritten.replace(&run_dir.canonicalize().expect("a directory").display().to_string(), "./")
}

#[test]
fn configurations_of_earlier_revisions_are_taken_and_rewritten() {
    for (_, dir) in golden("conf") {
        let rewritten = check(&dir.join(WRITTEN), &dir);
        let kept = dir.join(REWRITTEN);
        if is_update() && !kept.exists() {
            std::fs::write(&kept, rewritten).expect("room");
        }
        check(&kept, &dir);
    }
}
