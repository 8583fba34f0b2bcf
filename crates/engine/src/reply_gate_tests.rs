//! What commands need before their replies may leave, over a log that is durable as far as a test says.

use std::sync::Arc;

use stillframe_store::DbId;
use stillframe_testkit::TempDir;

use crate::harness::Harness;
use crate::protocol::need::{Need, RunningNeed};
use crate::state::session::Session;

/// A server that holds replies from now on.
fn holding(dir: &TempDir) -> Harness {
    let harness = Harness::new(dir.path()).unwrap();
    harness.server.reply_gate.rehearse();
    harness
}

/// What a command of a new client needs.
fn need_of(harness: &mut Harness, line: &str) -> u64 {
    harness.client = Session::new(harness.client.id, true);
    run(harness, line);
    harness.client.need.settled_offset().expect("its step has ended")
}

fn run(harness: &mut Harness, line: &str) -> String {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    String::from_utf8_lossy(&harness.run(&words)).into_owned()
}

fn end(harness: &Harness) -> u64 {
    harness.server.reply_gate.rehearsed_offset()
}

/// A key that shares no word with these.
fn apart_from(harness: &Harness, keys: &[&str]) -> String {
    let word_of = |key: &str| {
        let hash = harness.worker.key(key.as_bytes()).hash;
        harness.server.reply_gate.word_of(DbId(0), hash)
    };
    let words: Vec<usize> = keys.iter().map(|key| word_of(key)).collect();
    (0..).map(|number| format!("key{number}")).find(|name| !words.contains(&word_of(name))).unwrap()
}

#[test]
fn a_need_only_rises_and_is_known_when_all_steps_have_ended() {
    let mut need = Need::default();
    assert!(need.is_nothing());
    assert_eq!(need.settled_offset(), Some(0));
    need.raise(7);
    need.raise(5);
    assert_eq!((need.is_nothing(), need.settled_offset()), (false, Some(7)));
    let steps: Vec<Arc<RunningNeed>> = (0..2).map(|_| Arc::default()).collect();
    steps.iter().for_each(|step| need.join(&Need::of_running(step.clone())));
    assert_eq!(need.settled_offset(), None);
    steps[1].settle(9);
    assert_eq!((need.settled_offset(), need.known_offset()), (None, 9));
    steps[0].settle(8);
    assert_eq!(need.settled_offset(), Some(9));
}

#[test]
fn a_writer_needs_its_unit_and_a_reader_the_newest_of_its_keys() {
    let dir = TempDir::new("gate");
    let mut harness = holding(&dir);
    let other = apart_from(&harness, &["k"]);
    assert_eq!(need_of(&mut harness, &format!("SET {other} v")), end(&harness));
    let first = end(&harness);
    assert_eq!(need_of(&mut harness, "SET k v"), end(&harness));
    let second = end(&harness);
    assert!(0 < first && first < second);
    assert_eq!(need_of(&mut harness, &format!("GET {other}")), first);
    assert_eq!(need_of(&mut harness, "GET k"), second);
    assert_eq!(need_of(&mut harness, &format!("MGET {other} k")), second);
    // One that would have changed something tells of what it has found.
    assert_eq!(need_of(&mut harness, "SETNX k w"), second);
    assert_eq!(need_of(&mut harness, "LPUSH k w"), second, "of the wrong type");
    for line in ["PING", "CONFIG GET port", "SELECT 1", "CLIENT ID", "MULTI", "INFO"] {
        assert_eq!(need_of(&mut harness, line), 0, "{line}");
    }
    // A key of another database is another key, and all are concerned by what concerns a database.
    assert_eq!(need_of(&mut harness, "SWAPDB 0 1"), end(&harness));
    assert_eq!(need_of(&mut harness, &format!("GET {other}")), end(&harness));
}

#[test]
fn what_comes_to_all_keys_needs_the_whole_log() {
    let dir = TempDir::new("gate");
    let mut harness = holding(&dir);
    run(&mut harness, "SET k v");
    for line in ["DBSIZE", "KEYS x", "SCAN 0", "RANDOMKEY"] {
        assert_eq!(need_of(&mut harness, line), end(&harness), "{line}");
    }
}

#[test]
fn a_transaction_needs_its_unit_or_what_it_has_found() {
    let dir = TempDir::new("gate");
    let mut harness = holding(&dir);
    let other = apart_from(&harness, &["k"]);
    run(&mut harness, "SET k v");
    let first = end(&harness);
    run(&mut harness, &format!("SET {other} v"));
    let second = end(&harness);
    let mut transaction = |lines: &[&str]| {
        harness.client = Session::new(harness.client.id, true);
        lines.iter().for_each(|line| drop(run(&mut harness, line)));
        (harness.client.need.settled_offset().expect("it has ended"), end(&harness))
    };
    assert_eq!(transaction(&["MULTI", "GET k", "PING", "EXEC"]).0, first);
    assert_eq!(transaction(&["MULTI", "SELECT 1", "GET k", "SELECT 0", "EXEC"]).0, 0);
    assert_eq!(transaction(&["MULTI", "GET k", "DBSIZE", "EXEC"]).0, second);
    let (need, end) = transaction(&["MULTI", "GET k", "INCR n", "EXEC"]);
    assert!(need == end && need > second);
    let watched = format!("WATCH {other}");
    let set = format!("SET {other} w");
    // Its own change breaks it, as anybody's would.
    let (need, end) = transaction(&[&watched, &set, "MULTI", "PING", "EXEC"]);
    assert_eq!(need, end);
}

#[test]
fn what_is_durable_may_leave_and_what_never_will_be_is_known() {
    let dir = TempDir::new("gate");
    let mut harness = holding(&dir);
    let server = harness.server.clone();
    let gate = &server.reply_gate;
    let need = need_of(&mut harness, "SET k v");
    assert!(gate.limit_offset() < need && gate.is_holding());
    gate.durable(need);
    assert_eq!((gate.limit_offset(), gate.durable_offset()), (need, need));
    gate.durable(need - 1);
    assert_eq!(gate.limit_offset(), need, "it only rises");
    gate.failed();
    assert!(gate.has_failed());
    gate.mend(need + 5);
    assert!(!gate.has_failed() && gate.limit_offset() == need + 5);
    gate.end_rehearsal();
    assert_eq!(gate.limit_offset(), u64::MAX);
    assert_eq!(need_of(&mut harness, "SET k w"), 0);
    gate.failed();
    assert!(!gate.has_failed(), "nothing is held that could not leave");
}

#[test]
fn what_a_step_tells_others_waits_for_its_end() {
    let dir = TempDir::new("gate");
    let harness = holding(&dir);
    let (gate, worker) = (harness.server.reply_gate.clone(), harness.worker.steps().worker());
    assert!(gate.running(worker).is_nothing(), "nothing is under way");
    gate.begin_command(worker);
    let mut told = [gate.running(worker), gate.running(worker)];
    assert!(told.iter_mut().all(|need| need.settled_offset().is_none()));
    gate.note_unit(worker, 30);
    assert_eq!((gate.own_end_offset(worker), gate.tail_offset()), (30, 30));
    assert!(told.iter_mut().all(|need| need.settled_offset().is_none()), "it may have another one");
    gate.end_command(worker, 40);
    assert!(told.iter_mut().all(|need| need.settled_offset() == Some(40)));
    assert!(gate.running(worker).is_nothing());
    assert_eq!(gate.own_end_offset(worker), 0);
}
