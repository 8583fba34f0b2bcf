//! A client that knows all it has asked for: commands and transactions of all types on two databases of its own, and after which
//! of them a start finds the data.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use stillframe_testkit::Reply;

use crate::instant::{Clock, Nanos, NEVER};
use crate::log_model::{at_time, Data, Entry, Touched, Value, Words};
use crate::log_moves::Moves;
use crate::process::{Client, Process};
use crate::script;

/// Deadlines this far from now are neither certainly over nor certainly to come: keys that have one are left alone.
const SLACK_MS: i64 = 60;

pub fn unix_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    now.as_millis() as i64
}

/// A command as it is sent, and as the model knows it.
pub struct Command {
    pub sent: Words,
    /// `RESTORE-AS` in place of a `RESTORE`, whose payload the model does not read.
    pub meant: Option<Words>,
}

/// What becomes durable together.
pub struct Step {
    pub commands: Vec<Command>,
    pub is_transaction: bool,
    /// What had expired before that time was gone.
    purged_ms: i64,
}

impl Step {
    fn meant(&self) -> impl Iterator<Item = &Words> {
        self.commands.iter().map(|command| command.meant.as_ref().unwrap_or(&command.sent))
    }

    /// What it does, and the replies that are expected.
    fn run(&self, data: &mut Data) -> Vec<Option<Reply>> {
        data.purge(self.purged_ms);
        self.meant().map(|words| data.run(words)).collect()
    }
}

struct Sent {
    step: Step,
    sent_ns: Nanos,
    acked_ns: Nanos,
}

/// What a start must have: when the server was killed, and how durable what had been answered was.
#[derive(Clone, Debug)]
pub struct Duty {
    /// Steps that were answered before are there, whatever the policy was.
    pub all_before_ns: Nanos,
    /// From when to when less was promised than that everything which is answered is durable.
    pub weak: Vec<(Nanos, Nanos)>,
}

impl Duty {
    /// Whether what was sent and answered then has to be there.
    pub fn holds(&self, sent_ns: Nanos, acked_ns: Nanos) -> bool {
        let is_strong = |(from_ns, to_ns): &(Nanos, Nanos)| acked_ns < *from_ns || sent_ns > *to_ns;
        acked_ns != NEVER && (acked_ns < self.all_before_ns || self.weak.iter().all(is_strong))
    }
}

/// What a start was found to have of a player.
#[derive(Clone, Copy, Default, Debug)]
pub struct Found {
    pub step_count: usize,
    /// Answered, lost, and allowed to be.
    pub lost_count: usize,
    /// Not answered, and there.
    pub unanswered_count: usize,
}

pub struct Player {
    /// The number of its first database, an even one.
    pub first_db: u32,
    rng: fastrand::Rng,
    moves: Moves,
    base: Data,
    now: Data,
    history: Vec<Sent>,
    /// What `WAITAOF` has told to be durable: so many steps.
    durable_count: usize,
}

impl Player {
    pub fn new(seed: u64, number: u32) -> Player {
        let rng = fastrand::Rng::with_seed(seed.wrapping_add(u64::from(number) * 7919));
        Player {
            first_db: 2 * number,
            moves: Moves::new(2 * number, rng.clone().fork()),
            rng,
            base: Data::default(),
            now: Data::default(),
            history: Vec::new(),
            durable_count: 0,
        }
    }

    /// Sends steps until told to stop or until the connection breaks.
    pub fn run(&mut self, server: &Process, clock: Clock, stop: &AtomicBool) -> io::Result<()> {
        let mut conn = server.connect()?;
        script::load(&mut conn)?;
        while !stop.load(Ordering::Relaxed) {
            let batch_len = if self.rng.u32(..3) > 0 { 1 } else { 1 + self.rng.usize(..12) };
            self.run_batch(&mut conn, clock, batch_len)?;
            if self.rng.u32(..40) == 0 {
                self.wait_for_log(&mut conn)?;
            }
            if self.rng.u32(..20) == 0 {
                self.read(&mut conn)?;
            }
        }
        Ok(())
    }

    fn run_batch(&mut self, conn: &mut Client, clock: Clock, batch_len: usize) -> io::Result<()> {
        let mut expected = VecDeque::new();
        let first = self.history.len();
        for number in 0..batch_len {
            let purged_ms = unix_ms() - SLACK_MS;
            self.now.purge(purged_ms);
            // A payload is read first, for which all else has been answered.
            let payload_of = if number == 0 { self.moves.wants_payload(&self.now) } else { None };
            let step = match payload_of {
                Some((db, from)) => {
                    conn.try_run(&format!("SELECT {}", self.first_db + db as u32))?;
                    let payload = conn.try_run(&format!("DUMP {from}"))?;
                    let payload = payload.bytes().unwrap_or_else(|| panic!("DUMP {from}: {payload:?}"));
                    self.moves.restore(db, &from, payload)
                }
                None => self.moves.next(&self.now),
            };
            let (commands, is_transaction) = step;
            let step = Step { commands, is_transaction, purged_ms };
            expected.push_back(step.run(&mut self.now));
            self.now.take_touched();
            queue(conn, &step);
            self.history.push(Sent { step, sent_ns: clock.now_ns(), acked_ns: NEVER });
        }
        conn.flush()?;
        for sent in &mut self.history[first..] {
            let replies = read_replies(conn, &sent.step)?;
            sent.acked_ns = clock.now_ns();
            compare(&sent.step, &replies, &expected.pop_front().expect("what is expected"));
        }
        Ok(())
    }

    /// Everything that has been answered is durable once this is.
    fn wait_for_log(&mut self, conn: &mut Client) -> io::Result<()> {
        let reply = conn.try_run("WAITAOF 1 0 2000")?;
        assert_eq!(reply.items().len(), 2, "WAITAOF: {reply:?}");
        if reply.items()[0] == Reply::Int(1) {
            self.durable_count = self.history.len();
        }
        Ok(())
    }

    /// What is read is what the model has.
    fn read(&mut self, conn: &mut Client) -> io::Result<()> {
        let db = self.rng.usize(..2);
        let texts = self.now.dbs[db].iter().filter(|(key, _)| key.starts_with("s:"));
        let Some((key, entry)) = self.rng.choice(texts.collect::<Vec<_>>()) else { return Ok(()) };
        conn.try_run(&format!("SELECT {}", self.first_db + db as u32))?;
        let reply = conn.try_run(&format!("GET {key}"))?;
        let Value::Text(value) = &entry.value else { panic!("{key} is another: {entry:?}") };
        assert_eq!(reply.bytes(), Some(&value[..]), "GET {key} in db {}", self.first_db + db as u32);
        Ok(())
    }

    /// How many steps must be there.
    fn must_count(&self, duty: &Duty) -> usize {
        let held = self.history.iter().rposition(|sent| duty.holds(sent.sent_ns, sent.acked_ns));
        held.map_or(0, |last| last + 1).max(self.durable_count)
    }

    /// Compares with what a start has found, `from_ms` to `to_ms`, and goes on from there. Fails unless that is the data after a step which is
    /// not older than the duty says.
    pub fn check(&mut self, found: Data, (from_ms, to_ms): (i64, i64), duty: &Duty) -> Found {
        assert_nothing_over(&found, from_ms);
        let must_count = self.must_count(duty);
        let acked_count = self.history.iter().take_while(|sent| sent.acked_ns != NEVER).count();
        let mut data = self.base.clone();
        self.history[..must_count].iter().for_each(|sent| drop(sent.step.run(&mut data)));
        let mut differing = Differing::new(&data, &found, to_ms);
        data.take_touched();
        let mut best = (differing.keys.len(), must_count);
        let mut at = differing.keys.is_empty().then_some(must_count);
        for (index, sent) in self.history.iter().enumerate().skip(must_count) {
            sent.step.run(&mut data);
            match data.take_touched() {
                Touched::All => differing = Differing::new(&data, &found, to_ms),
                Touched::Keys(keys) => keys.into_iter().for_each(|key| differing.look(&data, &found, key)),
            }
            best = best.min((differing.keys.len(), index + 1));
            if differing.keys.is_empty() {
                at = Some(index + 1);
            }
        }
        let Some(at) = at else {
            panic!(
                "{must_count} of {} steps have to be there, {acked_count} were answered\n{}",
                self.history.len(),
                self.explain(&found, to_ms, best.1)
            );
        };
        let step_count = self.history.len();
        self.history.clear();
        self.durable_count = 0;
        (self.base, self.now) = (found.clone(), found);
        Found {
            step_count,
            lost_count: acked_count.saturating_sub(at),
            unanswered_count: at.saturating_sub(acked_count),
        }
    }

    /// Where it comes closest, and what touches the keys that are not as they should be.
    fn explain(&self, found: &Data, to_ms: i64, at: usize) -> String {
        let mut data = self.base.clone();
        let mut run = |sent: &Sent| {
            sent.step.run(&mut data);
            data.take_touched()
        };
        let touching: Vec<Touched> = self.history.iter().map(&mut run).collect();
        let mut data = self.base.clone();
        self.history[..at].iter().for_each(|sent| drop(sent.step.run(&mut data)));
        let differing = Differing::new(&data, found, to_ms);
        let mut out = format!(
            "databases {} and {}: closest after {at} steps, where {} keys differ:\n",
            self.first_db,
            self.first_db + 1,
            differing.keys.len()
        );
        for (db, key) in differing.keys.iter().take(6) {
            let show = |data: &Data| shown(data.dbs[*db].get(key));
            out += &format!("  [{db}] {key}: found {}, expected {}\n", show(found), show(&data));
            let touches = |touched: &Touched| match touched {
                Touched::All => true,
                Touched::Keys(keys) => keys.contains(&(*db, key.clone())),
            };
            for (index, _) in touching.iter().enumerate().filter(|(_, touched)| touches(touched)) {
                let Sent { step, sent_ns, acked_ns } = &self.history[index];
                let lines: Vec<String> = step.meant().map(line).collect();
                out += &format!("    step {}: {lines:?}, {sent_ns} to {acked_ns} ns\n", index + 1);
            }
        }
        out
    }
}

/// Transactions of an odd number of commands are scripts, or functions.
fn script_of(step: &Step) -> Option<Words> {
    let form = match step.commands.len() % 4 {
        1 => script::Form::Script,
        3 => script::Form::Function,
        _ => return None,
    };
    let commands = step.commands.iter().map(|command| &command.sent);
    step.is_transaction.then(|| script::of(form, commands))?
}

fn queue(conn: &mut Client, step: &Step) {
    if let Some(script) = script_of(step) {
        return conn.queue(&script);
    }
    if step.is_transaction {
        conn.queue_line("MULTI");
    }
    step.commands.iter().for_each(|command| conn.queue(&command.sent));
    if step.is_transaction {
        conn.queue_line("EXEC");
    }
}

fn read_replies(conn: &mut Client, step: &Step) -> io::Result<Vec<Reply>> {
    if !step.is_transaction {
        return step.commands.iter().map(|_| conn.try_read()).collect();
    }
    if script_of(step).is_some() {
        let reply = conn.try_read()?;
        return Ok(reply.try_items().unwrap_or_else(|| panic!("a script: {reply:?}")).to_vec());
    }
    for _ in 0..=step.commands.len() {
        let reply = conn.try_read()?;
        assert!(!reply.is_error(), "in MULTI: {reply:?}");
    }
    let reply = conn.try_read()?;
    Ok(reply.try_items().unwrap_or_else(|| panic!("EXEC: {reply:?}")).to_vec())
}

fn compare(step: &Step, replies: &[Reply], expected: &[Option<Reply>]) {
    assert_eq!(replies.len(), expected.len());
    for ((command, reply), expected) in step.commands.iter().zip(replies).zip(expected) {
        let is_fine = !reply.is_error() && expected.as_ref().is_none_or(|expected| expected == reply);
        assert!(is_fine, "{}: {reply:?}, not {expected:?}", line(&command.sent));
    }
}

/// A command in a few words.
fn line(words: &Words) -> String {
    let short = |word: &Vec<u8>| match word.len() {
        0..=30 => word.escape_ascii().to_string(),
        len => format!("<{len} bytes {}>", word[..8].escape_ascii()),
    };
    words.iter().map(short).collect::<Vec<_>>().join(" ")
}

fn shown(entry: Option<&Entry>) -> String {
    let Some(entry) = entry else { return "nothing".to_owned() };
    let text = match &entry.value {
        Value::Text(value) => {
            format!("{} bytes {}", value.len(), value[..value.len().min(16)].escape_ascii())
        }
        other => format!("{other:?}").chars().take(1_000).collect(),
    };
    format!("{text}, deadline {:?}", entry.deadline_ms)
}

/// The keys of both databases that are not the same.
struct Differing {
    keys: BTreeSet<(usize, String)>,
    at_ms: i64,
}

impl Differing {
    fn new(data: &Data, found: &Data, at_ms: i64) -> Differing {
        let mut differing = Differing { keys: BTreeSet::new(), at_ms };
        for db in 0..2 {
            for key in data.dbs[db].keys().chain(found.dbs[db].keys()) {
                differing.look(data, found, (db, key.clone()));
            }
        }
        differing
    }

    /// What was over at the end of the look may or may not have been seen.
    fn look(&mut self, data: &Data, found: &Data, place: (usize, String)) {
        let of = |data: &Data| at_time(data.dbs[place.0].get(&place.1), self.at_ms);
        match of(data) == of(found) {
            true => drop(self.keys.remove(&place)),
            false => drop(self.keys.insert(place)),
        }
    }
}

/// Fails if a start shows what had expired before.
fn assert_nothing_over(found: &Data, from_ms: i64) {
    for (key, entry) in found.dbs.iter().flatten() {
        let left = at_time(Some(entry), from_ms);
        assert!(left.as_ref() == Some(entry), "{key} is over: {}", shown(Some(entry)));
    }
}
