//! Load with a model: a client with two databases of its own, of which each step changes both or neither, and all states
//! that they have been in.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stillframe_testkit::Reply;

use crate::instant::{Clock, Nanos, Span, NEVER};
use crate::model::{differences, put, Blob, Keyspace, Op};
use crate::process::{Client, Process};
use crate::script;

/// Both databases of a ledger.
pub type Dbs = [Keyspace; 2];

/// The databases after a step, and when that was sent and answered.
struct State {
    dbs: Arc<Dbs>,
    sent_ns: Nanos,
    acked_ns: Nanos,
}

/// States since the last comparison; the first is the oldest that a save may still show.
#[derive(Default)]
pub struct History {
    states: VecDeque<State>,
    /// Steps that have been answered, of all.
    acked_count: usize,
}

impl History {
    fn of(dbs: Dbs) -> History {
        History { states: [State { dbs: Arc::new(dbs), sent_ns: 0, acked_ns: 0 }].into(), acked_count: 0 }
    }

    pub fn acked_count(&self) -> usize {
        self.acked_count
    }

    fn note_sent(&mut self, dbs: Dbs, sent_ns: Nanos) {
        self.states.push_back(State { dbs: Arc::new(dbs), sent_ns, acked_ns: NEVER });
    }

    fn note_acked(&mut self, acked_ns: Nanos) {
        self.states.back_mut().expect("what has been sent").acked_ns = acked_ns;
        self.acked_count += 1;
    }

    /// After how many steps since the first state the databases were as `found`.
    pub fn spans_of(&self, found: &Dbs) -> Vec<Span> {
        let end = |number: usize| self.states.get(number + 1).map_or(NEVER, |next| next.acked_ns);
        let is_same = |(_, state): &(usize, &State)| *state.dbs == *found;
        let span = |(number, state): (usize, &State)| Span {
            op_count: number,
            from_ns: state.sent_ns,
            to_ns: end(number),
        };
        self.states.iter().enumerate().filter(is_same).map(span).collect()
    }

    /// Forgets states that were over before.
    pub fn forget_before(&mut self, at_ns: Nanos) {
        while self.states.get(1).is_some_and(|next| next.acked_ns < at_ns) {
            self.states.pop_front();
        }
    }

    /// What is wrong with `found`, which the databases never were.
    pub fn explain(&self, found: &Dbs) -> String {
        let text = |db: &Keyspace, key: &str| match db.get(key).map(|entry| &entry.value) {
            Some(value) if value.len() < 20 => String::from_utf8_lossy(value).into_owned(),
            Some(value) => format!("{} bytes", value.len()),
            None => "absent".to_owned(),
        };
        let mut out = "not the data between two steps: found ".to_owned();
        for (number, db) in found.iter().enumerate() {
            out += &format!(
                "[{number}: {} keys, head {}, tail {}] ",
                db.len(),
                text(db, "head"),
                text(db, "tail")
            );
        }
        for (number, State { dbs: state, .. }) in self.states.iter().enumerate() {
            let differing: Vec<_> = (0..2)
                .flat_map(|db| {
                    let (was, is) = (&state[db], &found[db]);
                    let show =
                        move |key: String| format!("{db}/{key} {}->{}", text(was, &key), text(is, &key));
                    differences(was, is).into_iter().map(show)
                })
                .collect();
            if differing.len() <= 12 {
                out += &format!("\nafter {number} steps it differs in {differing:?}");
            }
        }
        out
    }
}

/// Names of keys by the length of their values: in the leaf, in a slab, in pages of their own, and very big.
const KINDS: [(&str, u32, std::ops::Range<usize>); 4] =
    [("s", 30, 0..300), ("m", 8, 500..9_000), ("l", 3, 12_000..90_000), ("x", 1, 1_000_000..3_000_000)];

/// States that are kept; a client that is so far ahead of the comparisons waits.
const STATES_MAX: usize = 300;

pub struct Ledger {
    /// Numbers of its databases.
    pub dbs: [u32; 2],
    /// It is the only one, and may empty all databases.
    is_alone: bool,
    /// Its transactions list keys: for that, all leaves have to be in memory.
    walks: bool,
    rng: fastrand::Rng,
    pub history: Arc<Mutex<History>>,
    now: Dbs,
    step_number: u64,
}

/// Commands of one step, with the replies that are expected; `None` is any but an error.
#[derive(Default)]
struct Step {
    commands: Vec<Vec<Vec<u8>>>,
    replies: Vec<Option<Reply>>,
}

fn int(number: usize) -> Option<Reply> {
    Some(Reply::Int(number as i64))
}

impl Step {
    fn compare(&self, replies: &[Reply]) {
        let commands = self.commands.iter().filter(|args| !matches!(&args[0][..], b"MULTI" | b"EXEC"));
        assert_eq!(replies.len(), self.replies.len());
        for ((args, reply), expected) in commands.zip(replies).zip(&self.replies) {
            let expected = expected.as_ref();
            let shown = args.iter().take(2).map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>();
            assert!(!reply.is_error(), "{shown:?}: {reply:?}");
            assert!(
                expected.is_none_or(|expected| expected == reply),
                "{shown:?}: {reply:?}, not {expected:?}"
            );
        }
    }

    fn add(&mut self, line: &str, reply: Option<Reply>) {
        self.commands.push(line.split(' ').map(|word| word.as_bytes().to_vec()).collect());
        self.replies.push(reply);
    }

    /// Adds an operation of one command, and does it.
    fn apply(&mut self, space: &mut Keyspace, op: &Op) {
        self.commands.extend(op.commands(0));
        self.replies.extend(op.apply(space));
    }
}

impl Ledger {
    pub fn new(seed: u64, number: u32, is_alone: bool, walks: bool) -> Ledger {
        Ledger {
            dbs: [2 * number, 2 * number + 1],
            is_alone,
            walks,
            rng: fastrand::Rng::with_seed(seed.wrapping_add(u64::from(number))),
            history: Arc::new(Mutex::new(History::of(Dbs::default()))),
            now: Dbs::default(),
            step_number: 0,
        }
    }

    /// The databases are now as `found`.
    pub fn rewind(&mut self, found: Dbs) {
        self.now = found.clone();
        *self.history.lock().unwrap() = History::of(found);
    }

    /// Sends steps until told to stop or until the connection breaks.
    pub fn run(&mut self, server: &Process, clock: Clock, stop: &AtomicBool) -> io::Result<()> {
        let mut conn = server.connect()?;
        script::load(&mut conn)?;
        while !stop.load(Ordering::Relaxed) {
            if self.history.lock().unwrap().states.len() > STATES_MAX {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let step = if self.rng.u32(..4) == 0 { self.lone() } else { self.transaction() };
            self.history.lock().unwrap().note_sent(self.now.clone(), clock.now_ns());
            self.send(&mut conn, &step)?;
            self.history.lock().unwrap().note_acked(clock.now_ns());
        }
        Ok(())
    }

    fn send(&self, conn: &mut Client, step: &Step) -> io::Result<()> {
        let is_transaction = step.commands.iter().any(|args| args[0] == b"MULTI");
        let commands = step.commands.iter().filter(|args| !matches!(&args[0][..], b"MULTI" | b"EXEC"));
        // Each other transaction is a script, or a function.
        let form = match self.step_number % 4 {
            0 => Some(script::Form::Script),
            2 => Some(script::Form::Function),
            _ => None,
        };
        let call = form.filter(|_| is_transaction).and_then(|form| script::of(form, commands));
        if let Some(call) = call {
            let reply = conn.try_run_words(&call)?;
            step.compare(reply.try_items().unwrap_or_else(|| panic!("a script: {reply:?}")));
            return Ok(());
        }
        step.commands.iter().for_each(|args| conn.queue(args));
        conn.flush()?;
        let mut replies = Vec::new();
        for args in &step.commands {
            let reply = conn.try_read()?;
            assert!(!reply.is_error(), "{:?}: {reply:?}", args[0].escape_ascii().to_string());
            match reply.try_items() {
                Some(items) if is_transaction && args[0] == b"EXEC" => replies = items.to_vec(),
                _ if is_transaction => {}
                _ => replies.push(reply),
            }
        }
        step.compare(&replies);
        Ok(())
    }

    /// A command that is a step by itself.
    fn lone(&mut self) -> Step {
        let mut step = Step::default();
        let db = self.rng.usize(..2);
        step.add(&format!("SELECT {}", self.dbs[db]), Some(Reply::ok()));
        self.step_number += 1;
        let number = self.step_number.to_string();
        match self.rng.u32(..8) {
            0..=1 if self.is_alone => {
                step.add("FLUSHALL", Some(Reply::ok()));
                self.now = Dbs::default();
            }
            0 => self.flush(&mut step, db),
            1 => self.swap(&mut step),
            2 if self.now[db].contains_key("s:1") => {
                let op = Op::Rename { from: "s:1".to_owned(), to: "s:2".to_owned() };
                step.apply(&mut self.now[db], &op);
            }
            _ => {
                let keys = ["head", "tail", "s:1", "s:2", "m:1", "m:2"];
                let line = keys.map(|key| format!("{key} {number}")).join(" ");
                step.add(&format!("MSET {line}"), Some(Reply::ok()));
                keys.iter().for_each(|key| put(&mut self.now[db], key, number.clone().into_bytes()));
            }
        }
        step
    }

    fn flush(&mut self, step: &mut Step, db: usize) {
        step.add("FLUSHDB", Some(Reply::ok()));
        self.now[db].clear();
    }

    fn swap(&mut self, step: &mut Step) {
        step.add(&format!("SWAPDB {} {}", self.dbs[0], self.dbs[1]), Some(Reply::ok()));
        self.now.swap(0, 1);
    }

    /// A transaction whose first commands leave the head of a ledger in both databases, and its last ones the tail.
    fn transaction(&mut self) -> Step {
        let mut step = Step::default();
        step.commands.push(vec![b"MULTI".to_vec()]);
        self.step_number += 1;
        self.note(&mut step, "head");
        let mut db = 1;
        for _ in 0..1 + self.rng.u32(..5) {
            self.operation(&mut step, &mut db);
        }
        self.note(&mut step, "tail");
        step.commands.push(vec![b"EXEC".to_vec()]);
        step
    }

    fn note(&mut self, step: &mut Step, name: &str) {
        let number = self.step_number.to_string();
        for db in 0..2 {
            step.add(&format!("SELECT {}", self.dbs[db]), Some(Reply::ok()));
            // What a FLUSHDB in between has removed is there again in the end.
            for key in if name == "tail" { &["tail", "head"][..] } else { &["head"] } {
                step.add(&format!("SET {key} {number}"), Some(Reply::ok()));
                put(&mut self.now[db], key, number.clone().into_bytes());
            }
        }
    }

    fn key(&mut self, kind: usize) -> String {
        format!("{}:{}", KINDS[kind].0, self.rng.u32(..KINDS[kind].1))
    }

    fn blob(&mut self, lens: std::ops::Range<usize>) -> Blob {
        Blob { tag: self.rng.u64(..), len: self.rng.usize(lens) }
    }

    fn kind(&mut self) -> usize {
        [0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3][self.rng.usize(..11)]
    }

    fn operation(&mut self, step: &mut Step, db: &mut usize) {
        let kind = self.kind();
        match self.rng.u32(..17) {
            0..=5 | 14.. => {
                if let Some(op) = self.change(kind, *db) {
                    step.apply(&mut self.now[*db], &op);
                }
            }
            6..=7 => {
                let ones = |value: &[u8]| value.iter().map(|byte| byte.count_ones() as usize).sum();
                let count = self.now[*db].get("x:0").map_or(0, |entry| ones(&entry.value));
                step.add("BITCOUNT x:0", int(count));
            }
            8 => self.flush(step, *db),
            9..=10 => self.swap(step),
            11 => step.add("DBSIZE", int(self.now[*db].len())),
            12 if self.walks => self.list(step, *db),
            _ => {
                *db = 1 - *db;
                step.add(&format!("SELECT {}", self.dbs[*db]), Some(Reply::ok()));
            }
        }
    }

    /// A change of a key or of some, in one command.
    fn change(&mut self, kind: usize, db: usize) -> Option<Op> {
        let key = self.key(kind);
        Some(match self.rng.u32(..9) {
            0..=3 => Op::Set { key, blob: self.blob(KINDS[kind].2.clone()), deadline_ms: None },
            4 => Op::Append { key: "x:0".to_owned(), blob: self.blob(1..200_000) },
            5 => {
                let offset = self.rng.usize(..KINDS[kind].2.end);
                Op::SetRange { key, offset, blob: self.blob(1..2_000) }
            }
            6 => Op::Remove { keys: (0..4).map(|_| self.key(kind)).collect(), verb: "DEL" },
            _ => {
                let to = self.key(kind);
                let is_copy = key != to && self.now[db].contains_key(&key);
                return is_copy.then_some(Op::Copy { from: key, to });
            }
        })
    }

    /// Some keys, and any.
    fn list(&mut self, step: &mut Step, db: usize) {
        let keys: Vec<_> = self.now[db].keys().filter(|key| key.starts_with("l:")).collect();
        // The order of a hash: compared if there is but one.
        let reply = match &keys[..] {
            [] => Some(Reply::Array(Vec::new())),
            [key] => Some(Reply::Array(vec![Reply::Bulk(key.as_bytes().to_vec())])),
            _ => None,
        };
        step.add("KEYS l:*", reply);
        step.add("RANDOMKEY", None);
    }
}

/// A database that nobody changes; its data makes the warm-up take a while.
pub const FILLER_DB: u32 = 15;
const FILLER_BYTES: usize = 20 << 20;

pub fn store_filler(conn: &mut Client) {
    conn.run(&format!("SELECT {FILLER_DB}"));
    let value = vec![b'f'; 8_000];
    for number in 0..FILLER_BYTES / value.len() {
        assert!(!conn.run_bytes(&[b"SET", number.to_string().as_bytes(), &value]).is_error());
    }
    assert!(conn.save_in_background("SAVE"));
}
