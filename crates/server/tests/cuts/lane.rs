//! Load with a model: a client with two databases of its own, and all states that they have been in.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::process::{Conn, Server};
use crate::resp::Reply;

pub type Db = BTreeMap<String, Arc<Vec<u8>>>;
/// Both databases of a lane.
pub type Dbs = [Db; 2];

/// States since the last comparison; the first is the oldest that a save may still show.
#[derive(Default)]
pub struct History {
    /// Number of the first state: as many steps came before it.
    first: usize,
    states: VecDeque<Arc<Dbs>>,
    /// Steps that have been sent, and answered, of all.
    pub sent_count: usize,
    pub acked_count: usize,
}

impl History {
    fn of(dbs: Dbs) -> History {
        History { states: [Arc::new(dbs)].into(), ..History::default() }
    }

    /// The number of the state between `from` and `to` that is the same as `found`; forgets those before it.
    pub fn find(&mut self, found: &Dbs, from: usize, to: usize) -> Result<usize, String> {
        let number = (from..=to.min(self.first + self.states.len() - 1))
            .find(|number| *self.states[number - self.first] == *found)
            .ok_or_else(|| self.explain(found, from, to))?;
        // Of equal states the save may have been the first.
        self.states.drain(..from - self.first);
        self.first = from;
        Ok(number)
    }

    fn explain(&self, found: &Dbs, from: usize, to: usize) -> String {
        let text = |db: &Db, key: &str| match db.get(key) {
            Some(value) if value.len() < 20 => String::from_utf8_lossy(value).into_owned(),
            Some(value) => format!("{} bytes", value.len()),
            None => "absent".to_owned(),
        };
        let mut out = format!("not the data between two steps {from}..={to}: found ");
        for (number, db) in found.iter().enumerate() {
            out += &format!(
                "[{number}: {} keys, head {}, tail {}] ",
                db.len(),
                text(db, "head"),
                text(db, "tail")
            );
        }
        for (number, state) in self.states.iter().enumerate() {
            let differing: Vec<_> = (0..2)
                .flat_map(|db| {
                    let keys =
                        state[db].keys().chain(found[db].keys().filter(|key| !state[db].contains_key(*key)));
                    keys.filter(|key| state[db].get(*key) != found[db].get(*key))
                        .map(move |key| {
                            format!("{db}/{key} {}->{}", text(&state[db], key), text(&found[db], key))
                        })
                        .collect::<Vec<_>>()
                })
                .collect();
            if differing.len() <= 12 {
                out += &format!("\nafter {} steps it differs in {differing:?}", self.first + number);
            }
        }
        out
    }
}

/// Names of keys by the length of their values: in the leaf, in a slab, in pages of their own, and very big.
const KINDS: [(&str, u32, std::ops::Range<usize>); 4] =
    [("s", 30, 0..300), ("m", 8, 500..9_000), ("l", 3, 12_000..90_000), ("x", 1, 1_000_000..3_000_000)];

/// States that are kept; a lane that is so far ahead of the comparisons waits.
const STATES_MAX: usize = 300;

pub struct Lane {
    /// Numbers of its databases.
    pub dbs: [u32; 2],
    /// It is the only one, and may empty all databases.
    is_alone: bool,
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
    Some(Reply::Line { tag: b':', text: number.to_string().into_bytes() })
}

impl Step {
    fn add(&mut self, line: &str, last: Option<&[u8]>, reply: Option<Reply>) {
        let words = line.split(' ').map(|word| word.as_bytes().to_vec());
        self.commands.push(words.chain(last.map(<[u8]>::to_vec)).collect());
        self.replies.push(reply);
    }
}

impl Lane {
    pub fn new(seed: u64, number: u32, is_alone: bool) -> Lane {
        Lane {
            dbs: [2 * number, 2 * number + 1],
            is_alone,
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
    pub fn run(&mut self, server: &Server, stop: &AtomicBool) -> io::Result<()> {
        let mut conn = server.connect()?;
        while !stop.load(Ordering::Relaxed) {
            if self.history.lock().unwrap().states.len() > STATES_MAX {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let step = if self.rng.u32(..4) == 0 { self.lone() } else { self.transaction() };
            let mut history = self.history.lock().unwrap();
            history.states.push_back(Arc::new(self.now.clone()));
            history.sent_count += 1;
            drop(history);
            self.send(&mut conn, &step)?;
            self.history.lock().unwrap().acked_count += 1;
        }
        Ok(())
    }

    fn send(&self, conn: &mut Conn, step: &Step) -> io::Result<()> {
        step.commands.iter().for_each(|args| conn.queue(args));
        conn.flush()?;
        let is_transaction = step.commands.iter().any(|args| args[0] == b"MULTI");
        let mut replies = Vec::new();
        for args in &step.commands {
            let reply = conn.reply()?;
            assert!(!reply.is_error(), "{:?}: {reply:?}", args[0].escape_ascii().to_string());
            match reply.items() {
                Some(items) if is_transaction && args[0] == b"EXEC" => replies = items.to_vec(),
                _ if is_transaction => {}
                _ => replies.push(reply),
            }
        }
        let commands = step.commands.iter().filter(|args| !matches!(&args[0][..], b"MULTI" | b"EXEC"));
        assert_eq!(replies.len(), step.replies.len());
        for ((args, reply), expected) in commands.zip(&replies).zip(&step.replies) {
            let expected = expected.as_ref();
            let shown = args.iter().take(2).map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>();
            assert!(!reply.is_error(), "{shown:?}: {reply:?}");
            assert!(
                expected.is_none_or(|expected| expected == reply),
                "{shown:?}: {reply:?}, not {expected:?}"
            );
        }
        Ok(())
    }

    /// A command that is a step by itself.
    fn lone(&mut self) -> Step {
        let mut step = Step::default();
        let db = self.rng.usize(..2);
        step.add(&format!("SELECT {}", self.dbs[db]), None, None);
        self.step_number += 1;
        let number = self.step_number.to_string();
        match self.rng.u32(..8) {
            0..=1 if self.is_alone => {
                step.add("FLUSHALL", None, None);
                self.now = Dbs::default();
            }
            0 => {
                step.add("FLUSHDB", None, None);
                self.now[db].clear();
            }
            1 => {
                step.add(&format!("SWAPDB {} {}", self.dbs[0], self.dbs[1]), None, None);
                self.now.swap(0, 1);
            }
            2 if self.now[db].contains_key("s:1") => {
                step.add("RENAME s:1 s:2", None, None);
                let value = self.now[db].remove("s:1").expect("it is there");
                self.now[db].insert("s:2".to_owned(), value);
            }
            _ => {
                let keys = ["head", "tail", "s:1", "s:2", "m:1", "m:2"];
                let line = keys.map(|key| format!("{key} {number}")).join(" ");
                step.add(&format!("MSET {line}"), None, None);
                let value = Arc::new(number.into_bytes());
                keys.iter().for_each(|key| drop(self.now[db].insert((*key).to_owned(), value.clone())));
            }
        }
        step
    }

    /// A transaction whose first commands leave the head of a ledger in both databases, and its last ones the tail.
    fn transaction(&mut self) -> Step {
        let mut step = Step::default();
        step.add("MULTI", None, None);
        step.replies.clear();
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
        let number = Arc::new(self.step_number.to_string().into_bytes());
        for db in 0..2 {
            step.add(&format!("SELECT {}", self.dbs[db]), None, None);
            // What a FLUSHDB in between has removed is there again in the end.
            for key in if name == "tail" { &["tail", "head"][..] } else { &["head"] } {
                step.add(&format!("SET {key}"), Some(&number), None);
                self.now[db].insert((*key).to_owned(), number.clone());
            }
        }
    }

    fn key(&mut self, kind: usize) -> String {
        format!("{}:{}", KINDS[kind].0, self.rng.u32(..KINDS[kind].1))
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.rng.fill(&mut bytes);
        bytes
    }

    fn kind(&mut self) -> usize {
        [0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3][self.rng.usize(..11)]
    }

    fn operation(&mut self, step: &mut Step, db: &mut usize) {
        let kind = self.kind();
        let key = self.key(kind);
        match self.rng.u32(..16) {
            0..=3 => {
                let len = self.rng.usize(KINDS[kind].2.clone());
                let value = self.bytes(len);
                step.add(&format!("SET {key}"), Some(&value), None);
                self.now[*db].insert(key, Arc::new(value));
            }
            4 => {
                let more = self.rng.usize(1..200_000);
                let more = self.bytes(more);
                self.grow(step, *db, "x:0", usize::MAX, &more);
            }
            5 => {
                let offset = self.rng.usize(..KINDS[kind].2.end);
                let more = self.rng.usize(1..2_000);
                let more = self.bytes(more);
                self.grow(step, *db, &key, offset, &more);
            }
            6..=7 => {
                let count = self.now[*db]
                    .get("x:0")
                    .map_or(0, |value| value.iter().map(|byte| byte.count_ones() as usize).sum());
                step.add("BITCOUNT x:0", None, int(count));
            }
            8 => {
                step.add("FLUSHDB", None, None);
                self.now[*db].clear();
            }
            9..=10 => {
                step.add(&format!("SWAPDB {} {}", self.dbs[0], self.dbs[1]), None, None);
                self.now.swap(0, 1);
            }
            11 => step.add("DBSIZE", None, int(self.now[*db].len())),
            12 => {
                let mut keys: Vec<_> = self.now[*db].keys().filter(|key| key.starts_with("l:")).collect();
                keys.sort();
                // The order of a hash: compared if there is but one.
                let reply = match &keys[..] {
                    [] => Some(Reply::Aggregate { tag: b'*', items: Some(Vec::new()) }),
                    [key] => {
                        let bytes = Some(key.as_bytes().to_vec());
                        Some(Reply::Aggregate {
                            tag: b'*',
                            items: Some(vec![Reply::Bulk { tag: b'$', bytes }]),
                        })
                    }
                    _ => None,
                };
                step.add("KEYS l:*", None, reply);
            }
            13 => {
                *db = 1 - *db;
                step.add(&format!("SELECT {}", self.dbs[*db]), None, None);
            }
            14 => {
                let keys: Vec<_> = (0..4).map(|_| self.key(kind)).collect();
                step.add(&format!("DEL {}", keys.join(" ")), None, None);
                keys.iter().for_each(|key| drop(self.now[*db].remove(key)));
            }
            _ => {
                let to = self.key(kind);
                let expected = usize::from(key != to && self.now[*db].contains_key(&key));
                if key != to {
                    step.add(&format!("COPY {key} {to} REPLACE"), None, int(expected));
                    if let Some(value) = self.now[*db].get(&key).cloned() {
                        self.now[*db].insert(to, value);
                    }
                }
            }
        }
    }

    /// `APPEND` (at `usize::MAX`) or `SETRANGE`, with the length that it answers.
    fn grow(&mut self, step: &mut Step, db: usize, key: &str, offset: usize, bytes: &[u8]) {
        let value = Arc::make_mut(self.now[db].entry(key.to_owned()).or_default());
        let is_append = offset == usize::MAX;
        let offset = if is_append { value.len() } else { offset };
        value.resize(value.len().max(offset + bytes.len()), 0);
        value[offset..offset + bytes.len()].copy_from_slice(bytes);
        let line = if is_append { format!("APPEND {key}") } else { format!("SETRANGE {key} {offset}") };
        step.add(&line, Some(bytes), int(value.len()));
    }
}
