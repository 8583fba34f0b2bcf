//! Debian's `redis-server` 7.0, or the program that `STILLFRAME_ORACLE` names, as one that is sent the stream.

use std::collections::BTreeMap;
use std::path::PathBuf;

use stillframe_testkit::{Client, Launch, Process, Reply, TempDir};

use crate::bytes::shown;
use crate::content::Content;

pub struct Redis {
    client: Client,
    _process: Process,
    _dir: TempDir,
}

/// Units that are sent before their replies are read.
const TOGETHER: usize = 50;

fn errors(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Error(text) => vec![String::from_utf8_lossy(text).into_owned()],
        Reply::Array(items) => items.iter().flat_map(errors).collect(),
        _ => Vec::new(),
    }
}

impl Redis {
    pub fn start() -> Redis {
        let dir = TempDir::new("stream-redis");
        let program: PathBuf = std::env::var_os("STILLFRAME_ORACLE").unwrap_or("redis-server".into()).into();
        let launch = Launch::at_socket(program, &dir).with(&["--enable-debug-command", "yes"]);
        let (process, _) = launch.start();
        let client = process.connect().expect("a connection to a server that has just started");
        Redis { client, _process: process, _dir: dir }
    }

    /// Names and sources of its function libraries.
    pub fn libraries(&mut self) -> BTreeMap<String, Vec<u8>> {
        let Reply::Array(libraries) = self.client.run("FUNCTION LIST WITHCODE") else { panic!("no list") };
        let field = |library: &Reply, name: &str| {
            let Reply::Array(fields) = library else { panic!("{library:?}") };
            let name = Reply::Bulk(name.as_bytes().to_vec());
            let at = fields.iter().position(|field| *field == name).expect("the field");
            let Reply::Bulk(value) = &fields[at + 1] else { panic!("{library:?}") };
            value.clone()
        };
        let library = |library: &Reply| {
            let name = String::from_utf8(field(library, "library_name")).expect("a name");
            (name, field(library, "library_code"))
        };
        libraries.iter().map(library).collect()
    }

    /// As it was at the start, but for function libraries.
    pub fn empty(&mut self) {
        self.client.ok("FLUSHALL");
        self.client.ok("SELECT 0");
    }

    /// Runs units, none of which is answered with an error.
    pub fn send(&mut self, units: &[Vec<u8>]) {
        const END: &str = "these were the units";
        for together in units.chunks(TOGETHER) {
            together.iter().for_each(|unit| self.client.send_raw(unit));
            self.client.queue(&["ECHO", END]);
            self.client.flush().unwrap();
            loop {
                let reply = self.client.read();
                if reply == Reply::Bulk(END.as_bytes().to_vec()) {
                    break;
                }
                let errors = errors(&reply);
                assert!(
                    errors.is_empty(),
                    "{errors:?}: {:?}",
                    together.iter().map(|unit| shown(unit)).collect::<Vec<_>>()
                );
            }
        }
    }

    pub fn digest(&mut self) -> String {
        match self.client.run("DEBUG DIGEST") {
            Reply::Simple(digest) => String::from_utf8(digest).unwrap(),
            reply => panic!("DEBUG DIGEST: {reply:?}"),
        }
    }

    /// Of a deadline a digest says only that there is one. What was selected stays selected.
    pub fn assert_deadlines(&mut self, content: &Content) {
        let info = self.client.run("CLIENT INFO");
        let Some(Reply::Bulk(info)) = Some(info) else { panic!("CLIENT INFO") };
        let info = String::from_utf8(info).unwrap();
        let selected = info.split(' ').find_map(|field| field.strip_prefix("db=")).unwrap().to_owned();
        for ((db, key), found) in content {
            self.client.ok(&format!("SELECT {db}"));
            let deadline = self.client.run_bytes(&[b"PEXPIRETIME", key]);
            assert_eq!(deadline.integer(), Some(found.deadline.unwrap_or(-1)), "{}", key.escape_ascii());
        }
        self.client.ok(&format!("SELECT {selected}"));
    }
}
