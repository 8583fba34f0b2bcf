//! Which changes of commands are one step: what a log and a replica will take together.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use stillframe_store::{Cause, Change, Effect, Listener, Position, Step};
use stillframe_testkit::TempDir;

use crate::commands::REGISTRY;
use crate::harness::{arrival, Harness};
use crate::state::clients::ClientInfo;
use crate::state::session::Session;

/// Steps that have ended, each a line: cause, and the effects.
#[derive(Default)]
struct Log {
    begun: Mutex<Vec<String>>,
    ended: Mutex<Vec<String>>,
}

impl Log {
    fn take(&self) -> Vec<String> {
        assert!(self.begun.lock().is_empty(), "a step has not ended");
        std::mem::take(&mut self.ended.lock())
    }
}

impl Listener for Log {
    fn begin(&self, step: &Step) {
        let cause = match step.cause {
            Cause::Call => "call:",
            Cause::Expiry => "expiry:",
            Cause::Eviction => "eviction:",
            Cause::Load => "load:",
        };
        self.begun.lock().push(cause.to_owned());
    }

    fn hear(&self, _: &Step, effect: &Effect<'_>) {
        self.begun.lock().push(word_of(effect));
    }

    fn end(&self, _: &Step, _: Position) {
        let line = std::mem::take(&mut *self.begun.lock()).join(" ");
        self.ended.lock().push(line);
    }
}

fn word_of(effect: &Effect<'_>) -> String {
    let of = |word: &str, key: &[u8]| format!("{word}({})", String::from_utf8_lossy(key));
    match effect {
        Effect::Set { key, .. } => of("set", key.bytes),
        Effect::Write { key, .. } => of("write", key.bytes),
        Effect::Element { key, change: Change::Pushed { .. }, .. } => of("push", key.bytes),
        Effect::Element { key, change: Change::Popped { .. }, .. } => of("pop", key.bytes),
        Effect::Element { key, .. } => of("element", key.bytes),
        Effect::Replace { key, .. } => of("replace", key.bytes),
        Effect::Deadline { key, .. } => of("deadline", key.bytes),
        Effect::Delete { key, .. } => of("delete", key.bytes),
        Effect::Expire { key, .. } => of("expire", key.bytes),
        Effect::Evict { key, .. } => of("evict", key.bytes),
        Effect::Move { to, .. } => of("move", to.1.bytes),
        Effect::Copy { to, .. } => of("copy", to.1.bytes),
        Effect::Flush { .. } => "flush".to_owned(),
        Effect::Swap { .. } => "swap".to_owned(),
        Effect::LibrarySet { name, .. } => format!("library {name}"),
        Effect::LibraryRemoved { name } => format!("no library {name}"),
        Effect::LibrariesRemoved => "no libraries".to_owned(),
    }
}

/// A client, and another that may wait.
struct Clients {
    harness: Harness,
    other: (Session, Arc<ClientInfo>),
    log: Arc<Log>,
}

impl Clients {
    fn new(dir: &Path) -> Clients {
        let log = Arc::new(Log::default());
        let harness = Harness::heard_by(dir, &REGISTRY, vec![log.clone()]).unwrap();
        let id = harness.server.clients.new_id();
        let info = ClientInfo::new(id, arrival("127.0.0.1:2"), 0);
        Clients { harness, other: (Session::new(id, true), Arc::new(info)), log }
    }

    fn run(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        String::from_utf8(self.harness.run(&words)).unwrap().replace("\r\n", " ").trim_end().to_owned()
    }

    fn run_other(&mut self, line: &str) -> String {
        let exchange = |clients: &mut Clients| {
            std::mem::swap(&mut clients.harness.client, &mut clients.other.0);
            std::mem::swap(&mut clients.harness.info, &mut clients.other.1);
        };
        exchange(self);
        let reply = self.run(line);
        exchange(self);
        reply
    }

    /// The steps of a command.
    fn steps(&mut self, line: &str) -> Vec<String> {
        self.run(line);
        self.log.take()
    }
}

#[test]
fn a_command_is_a_step() {
    let dir = TempDir::new("steps");
    let mut clients = Clients::new(dir.path());
    assert_eq!(clients.steps("mset a 1 b 2 c 3"), ["call: set(a) set(b) set(c)"]);
    assert_eq!(clients.steps("get a"), [""; 0]);
    assert_eq!(clients.steps("del a b nothing"), ["call: delete(a) delete(b)"]);
    assert_eq!(clients.steps("rpush l 1 2"), ["call: push(l) push(l)"]);
    assert_eq!(clients.steps("lpop l 5"), ["call: pop(l) delete(l)"]);
    assert_eq!(clients.steps("set c x get"), ["call: set(c)"]);
    assert_eq!(clients.steps("setnx c y"), [""; 0]);
    assert_eq!(clients.steps("rename c d"), ["call: move(d)"]);
    assert_eq!(clients.steps("lpush d 1"), [""; 0]);
    assert_eq!(clients.steps("flushall"), ["call: flush"]);
}

#[test]
fn a_transaction_is_a_step() {
    let dir = TempDir::new("steps-exec");
    let mut clients = Clients::new(dir.path());
    for line in ["multi", "set a 1", "lpush a x", "incr a", "rpush l 1 2", "get a"] {
        assert_eq!(clients.steps(line), [""; 0]);
    }
    // The one that fails tells nothing, the others stand.
    assert_eq!(clients.steps("exec"), ["call: set(a) set(a) push(l) push(l)"]);
    for line in ["multi", "get a", "discard", "multi", "get a", "exec"] {
        assert_eq!(clients.steps(line), [""; 0]);
    }
}

#[test]
fn whoever_is_served_is_in_the_step_that_serves() {
    let dir = TempDir::new("steps-served");
    let mut clients = Clients::new(dir.path());
    clients.run_other("blmove l to LEFT RIGHT 0");
    assert_eq!(clients.steps("rpush l 1 2"), ["call: push(l) push(l) push(to) pop(l)"]);
    clients.harness.local.deliveries.clear();
    clients.run("del l to");
    clients.log.take();
    clients.other = (Session::new(7_000, true), clients.other.1.clone());
    clients.run_other("blpop l 0");
    for line in ["multi", "rpush l 1", "set s 1"] {
        clients.run(line);
    }
    assert_eq!(clients.steps("exec"), ["call: push(l) set(s) pop(l) delete(l)"]);
}

#[test]
fn an_expiry_is_a_step_but_for_one_within_a_step() {
    let dir = TempDir::new("steps-expiry");
    let mut clients = Clients::new(dir.path());
    let mut now = 1_000_000;
    clients.harness.worker.set_now(now);
    for name in ["a", "b", "c"] {
        clients.run(&format!("set {name} 1 px 10"));
    }
    clients.log.take();
    now += 10;
    clients.harness.worker.set_now(now);
    assert_eq!(clients.steps("get a"), ["expiry: expire(a)"]);
    assert_eq!(clients.steps("incr b"), ["call: expire(b) set(b)"]);
    for line in ["multi", "get c", "set d 1"] {
        clients.run(line);
    }
    assert_eq!(clients.steps("exec"), ["call: expire(c) set(d)"]);
}
