//! Runs a sequence on two servers and tells where their replies part.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use fastrand::Rng;
use stillframe_testkit::{Client, Reply};

use crate::beside::{Crowd, Saves};
use crate::compare::{agree, mode_inside, mode_of, Mode};
use crate::sequence::{Action, Arg, Sequence, Step, CONN_COUNT};
use crate::server::{Kind, Server};

/// Changes a reply of the subject before it is compared: how the harness itself is tested.
pub type Fault = fn(&[Vec<u8>], &mut Reply);

/// The first place where two servers disagree.
#[derive(Debug)]
pub struct Divergence {
    /// Index into the steps; `None` for the comparison of all data at the end.
    pub step: Option<usize>,
    pub what: String,
}

/// Databases that sequences write to.
const DB_COUNT: usize = 4;
/// A database of the oracle that sequences never see, for restoring the subject's payloads.
const SCRATCH_DB: usize = 15;

/// A server with the sequence's connections to it, and one to look at the data.
struct Side {
    server: Server,
    conns: Vec<Client>,
    admin: Client,
    last_dump: Vec<u8>,
    crowd: Option<Crowd>,
    _saves: Option<Saves>,
}

/// An oracle and a subject.
pub struct Pair {
    oracle: Side,
    subject: Side,
    fault: Option<Fault>,
    /// Commands compared so far.
    pub command_count: u64,
}

/// Modes of the commands that a connection has queued since `MULTI`.
type Queued = [Option<Vec<Mode>>; CONN_COUNT];

enum Stop {
    Io(&'static str, io::Error),
    Diverged(Divergence),
}

fn diverged(step: usize, what: String) -> Stop {
    Stop::Diverged(Divergence { step: Some(step), what })
}

impl Side {
    fn start(kind: Kind) -> Side {
        let server = Server::start(kind);
        let connect = || server.connect().expect("a connection to a server that has just started");
        let (conns, admin) = ((0..CONN_COUNT).map(|_| connect()).collect(), connect());
        let is_crowded = matches!(kind, Kind::Crowded { .. });
        let crowd = is_crowded.then(|| Crowd::start(connect()).expect("a server that has just started"));
        let saves = kind.is_small().then(|| Saves::start(connect()));
        Side { server, conns, admin, last_dump: Vec::new(), crowd, _saves: saves }
    }

    fn reset(&mut self, sequence: &Sequence) -> io::Result<()> {
        self.last_dump.clear();
        match &self.crowd {
            None => drop(self.admin.try_run("FLUSHALL")?),
            Some(_) => {
                for db in 0..DB_COUNT {
                    self.admin.try_run(&format!("SELECT {db}"))?;
                    self.admin.try_run("FLUSHDB")?;
                }
            }
        }
        for conn in &mut self.conns {
            conn.try_run("RESET")?;
            if sequence.resp3 {
                conn.try_run("HELLO 3")?;
            }
        }
        Ok(())
    }

    fn bytes_of(&self, args: &[Arg]) -> Vec<Vec<u8>> {
        let bytes = |a: &Arg| match a {
            Arg::Bytes(bytes) => bytes.clone(),
            Arg::LastDump => self.last_dump.clone(),
        };
        args.iter().map(bytes).collect()
    }

    /// Everything that a scan gives; of a hash, fields with their values.
    fn scan_all(
        &mut self,
        conn: usize,
        command: &[Vec<u8>],
        options: &[Vec<u8>],
    ) -> io::Result<Result<Vec<Vec<u8>>, Reply>> {
        let mut cursor = b"0".to_vec();
        let mut keys = Vec::new();
        let width = if matches!(&command[0][..], b"HSCAN" | b"ZSCAN") { 2 } else { 1 };
        loop {
            let mut args = command.to_vec();
            args.push(cursor);
            args.extend_from_slice(options);
            let reply = self.conns[conn].try_run_words(&args)?;
            let Some([next, page]) = reply.try_items() else { return Ok(Err(reply)) };
            let (Some(next), Some(page)) = (next.bytes(), page.try_items()) else { return Ok(Err(reply)) };
            let found: Vec<&[u8]> = page.iter().filter_map(Reply::bytes).collect();
            keys.extend(found.chunks(width).map(|together| together.join(&b" = "[..])));
            if next == b"0" || keys.len() > 100_000 {
                return Ok(Ok(keys));
            }
            cursor = next.to_vec();
        }
    }

    fn expire_now(&mut self, conn: usize, access: &[Vec<u8>]) -> io::Result<Vec<Reply>> {
        let conn = &mut self.conns[conn];
        let first = conn.try_run_words(&[b"PEXPIRE".to_vec(), access[1].clone(), b"1".to_vec()])?;
        std::thread::sleep(Duration::from_millis(4));
        Ok(vec![first, conn.try_run_words(access)?])
    }
}

impl Pair {
    pub fn start(subject: Kind, fault: Option<Fault>) -> Pair {
        Pair { oracle: Side::start(Kind::Oracle), subject: Side::start(subject), fault, command_count: 0 }
    }

    /// Pages that the subject has evicted so far.
    pub fn evicted_page_count(&mut self) -> u64 {
        self.subject.admin.info("data_pages_evicted").parse().expect("a number")
    }

    /// Pages that a crowded subject has loaded for the sequences.
    pub fn loaded_page_count(&mut self) -> u64 {
        self.subject.crowd.as_mut().map_or(0, Crowd::others_loaded_page_count)
    }

    /// Runs a sequence from empty databases.
    pub fn run(&mut self, sequence: &Sequence) -> Option<Divergence> {
        match self.try_run(sequence) {
            Ok(()) => None,
            Err(Stop::Diverged(divergence)) => Some(divergence),
            Err(Stop::Io(who, e)) => {
                let subject = self.subject.server.kind;
                *self = Pair { command_count: self.command_count, ..Pair::start(subject, self.fault) };
                Some(Divergence { step: None, what: format!("{who} failed: {e}") })
            }
        }
    }

    fn try_run(&mut self, sequence: &Sequence) -> Result<(), Stop> {
        self.oracle.reset(sequence).map_err(|e| Stop::Io("the oracle", e))?;
        self.subject.reset(sequence).map_err(|e| Stop::Io("the subject", e))?;
        let mut queued = Queued::default();
        let mut rng = Rng::with_seed(sequence.seed);
        let mut at = 0;
        while at < sequence.steps.len() {
            if let (Some(crowd), true) = (&mut self.subject.crowd, rng.u8(..8) == 0) {
                crowd.take_memory().map_err(|e| Stop::Io("the subject", e))?;
            }
            let end = segment_end(sequence, at);
            match &sequence.steps[at].action {
                Action::Command(_) => self.commands(&sequence.steps[at..end], at, &mut queued)?,
                // Inside MULTI these would only be queued, one by one.
                _ if queued[sequence.steps[at].conn].is_some() => {}
                Action::ScanAll(options) => {
                    self.scan(at, sequence.steps[at].conn, &[b"SCAN".to_vec()], options)?;
                }
                Action::ScanElements(command, options) => {
                    self.scan(at, sequence.steps[at].conn, command, options)?;
                }
                Action::ExpireNow(access) => {
                    let conn = sequence.steps[at].conn;
                    let a = self.oracle.expire_now(conn, access).map_err(|e| Stop::Io("the oracle", e))?;
                    let b = self.subject.expire_now(conn, access).map_err(|e| Stop::Io("the subject", e))?;
                    if a != b {
                        return Err(diverged(at, format!("oracle {a:?}\nsubject {b:?}")));
                    }
                }
            }
            at = end;
        }
        self.compare_data()
    }

    fn commands(&mut self, steps: &[Step], base: usize, queued: &mut Queued) -> Result<(), Stop> {
        let conn = steps[0].conn;
        let args_of = |side: &Side, step: &Step| match &step.action {
            Action::Command(args) => side.bytes_of(args),
            _ => unreachable!("a segment holds commands only"),
        };
        for (who, side) in [("the oracle", &mut self.oracle), ("the subject", &mut self.subject)] {
            for step in steps {
                let args = args_of(side, step);
                side.conns[conn].queue(&args);
            }
            side.conns[conn].flush().map_err(|e| Stop::Io(who, e))?;
        }
        // All replies are read, also after a difference: the next run finds the connections empty.
        let mut found = Ok(());
        for (i, step) in steps.iter().enumerate() {
            let a = self.oracle.conns[conn].try_read().map_err(|e| Stop::Io("the oracle", e))?;
            let mut b = self.subject.conns[conn].try_read().map_err(|e| {
                Stop::Io("the subject", io::Error::new(e.kind(), format!("step {}: {e}", base + i)))
            })?;
            self.command_count += 1;
            let args = args_of(&self.oracle, step);
            if let Some(fault) = self.fault {
                fault(&args, &mut b);
            }
            if found.is_err() {
                continue;
            }
            found = self.compare(base + i, &args, &a, &b, &mut queued[conn], steps.len() == 1);
            if args[0].eq_ignore_ascii_case(b"DUMP") && steps.len() == 1 {
                if let (Some(a), Some(b)) = (a.bytes(), b.bytes()) {
                    (self.oracle.last_dump, self.subject.last_dump) = (a.to_vec(), b.to_vec());
                }
            }
        }
        found
    }

    /// Compares the replies to one command; `alone` if nothing else is under way, so that the oracle can be
    /// asked further.
    fn compare(
        &mut self,
        step: usize,
        args: &[Vec<u8>],
        a: &Reply,
        b: &Reply,
        queued: &mut Option<Vec<Mode>>,
        alone: bool,
    ) -> Result<(), Stop> {
        let mode = mode_of(args);
        let name = args[0].to_ascii_uppercase();
        if *a == Reply::queued() {
            queued.get_or_insert_default().push(mode_inside(args));
        }
        let same = match (name.as_slice(), a.try_items(), b.try_items(), &queued) {
            (b"EXEC", Some(x), Some(y), Some(modes)) if x.len() == y.len() && x.len() == modes.len() => {
                modes.iter().zip(x).zip(y).all(|((mode, a), b)| agree(*mode, a, b))
            }
            _ => agree(mode, a, b),
        };
        match name.as_slice() {
            b"MULTI" if !a.is_error() => *queued = Some(Vec::new()),
            b"EXEC" | b"DISCARD" | b"RESET" => *queued = None,
            _ => {}
        }
        let mut what = format!("oracle  {a:?}\nsubject {b:?}");
        let second_look = match (mode, a.bytes(), b.bytes()) {
            (Mode::RandomKey, Some(_), Some(key)) if alone => self.oracle_has(key),
            (Mode::Dump, Some(a), Some(b)) if a != b => self.oracle_restores(a, b, &mut what),
            _ => Ok(true),
        };
        if !same || !second_look.map_err(|e| Stop::Io("the oracle", e))? {
            return Err(diverged(step, what));
        }
        Ok(())
    }

    fn oracle_has(&mut self, key: &[u8]) -> io::Result<bool> {
        let mut found = false;
        for db in 0..DB_COUNT {
            self.oracle.admin.try_run(&format!("SELECT {db}"))?;
            found |=
                self.oracle.admin.try_run_words(&[b"EXISTS".to_vec(), key.to_vec()])?.integer() == Some(1);
        }
        Ok(found)
    }

    fn oracle_restores(&mut self, expected: &[u8], payload: &[u8], what: &mut String) -> io::Result<bool> {
        let admin = &mut self.oracle.admin;
        admin.try_run(&format!("SELECT {SCRATCH_DB}"))?;
        let restored =
            admin.try_run_words(&[b"RESTORE".to_vec(), b"x".to_vec(), b"0".to_vec(), payload.to_vec()])?;
        let again = admin.try_run("DUMP x")?;
        admin.try_run("DEL x")?;
        what.push_str(&format!("\nthe oracle restores the subject's payload: {restored:?}, {again:?}"));
        Ok(again.bytes() == Some(expected))
    }

    fn scan(
        &mut self,
        step: usize,
        conn: usize,
        command: &[Vec<u8>],
        options: &[Vec<u8>],
    ) -> Result<(), Stop> {
        let a = self.oracle.scan_all(conn, command, options).map_err(|e| Stop::Io("the oracle", e))?;
        let b = self.subject.scan_all(conn, command, options).map_err(|e| Stop::Io("the subject", e))?;
        let same = match (&a, &b) {
            (Ok(a), Ok(b)) => {
                let (x, y): (BTreeSet<_>, BTreeSet<_>) = (a.iter().collect(), b.iter().collect());
                let once = self.subject.server.kind == Kind::Oracle || y.len() == b.len();
                x == y && once
            }
            (Err(a), Err(b)) => a == b,
            _ => false,
        };
        if same {
            return Ok(());
        }
        let show = |r: &Result<Vec<Vec<u8>>, Reply>| match r {
            Ok(keys) => keys.iter().map(|k| format!("\"{}\" ", k.escape_ascii())).collect(),
            Err(reply) => format!("{reply:?}"),
        };
        Err(diverged(step, format!("oracle  {}\nsubject {}", show(&a), show(&b))))
    }

    /// Compares all keys with their values, encodings and deadlines.
    fn compare_data(&mut self) -> Result<(), Stop> {
        let a = contents(&mut self.oracle.admin).map_err(|e| Stop::Io("the oracle", e))?;
        let b = contents(&mut self.subject.admin).map_err(|e| Stop::Io("the subject", e))?;
        let modes = [
            Mode::Exact,
            Mode::Exact,
            Mode::Within(3000),
            Mode::Pairs,
            Mode::Unordered,
            Mode::Exact,
            Mode::Exact,
        ];
        let same = |x: &Item, y: &Item| {
            (x.0, &x.1) == (y.0, &y.1) && modes.iter().zip(&x.2).zip(&y.2).all(|((m, a), b)| agree(*m, a, b))
        };
        let part = (0..a.len().max(b.len())).find(|&i| match (a.get(i), b.get(i)) {
            (Some(x), Some(y)) => !same(x, y),
            _ => true,
        });
        match part {
            None => Ok(()),
            Some(i) => {
                let show = |item: Option<&Item>| match item {
                    Some((db, key, rest)) => format!("db {db} key \"{}\" {rest:?}", key.escape_ascii()),
                    None => "no such key".to_owned(),
                };
                let what = format!("data at the end: oracle {}\nsubject {}", show(a.get(i)), show(b.get(i)));
                Err(Stop::Diverged(Divergence { step: None, what }))
            }
        }
    }
}

/// Database, key, and replies to `GET`, `OBJECT ENCODING`, `PTTL`, and what gives all elements of each type.
type Item = (usize, Vec<u8>, Vec<Reply>);

fn contents(admin: &mut Client) -> io::Result<Vec<Item>> {
    let mut items = Vec::new();
    for db in 0..DB_COUNT {
        admin.try_run(&format!("SELECT {db}"))?;
        let reply = admin.try_run("KEYS *")?;
        let mut keys: Vec<_> =
            reply.try_items().unwrap_or_default().iter().filter_map(|k| Some(k.bytes()?.to_vec())).collect();
        keys.sort();
        for key in &keys {
            admin.queue(&[b"GET".to_vec(), key.clone()]);
            admin.queue(&[b"OBJECT".to_vec(), b"ENCODING".to_vec(), key.clone()]);
            admin.queue(&[b"PTTL".to_vec(), key.clone()]);
            admin.queue(&[b"HGETALL".to_vec(), key.clone()]);
            admin.queue(&[b"SMEMBERS".to_vec(), key.clone()]);
            let all = [b"0".to_vec(), b"-1".to_vec()];
            admin.queue(&[&[b"LRANGE".to_vec(), key.clone()][..], &all].concat());
            admin.queue(&[&[b"ZRANGE".to_vec(), key.clone()][..], &all, &[b"WITHSCORES".to_vec()]].concat());
        }
        admin.flush()?;
        for key in keys {
            let replies = (0..7).map(|_| admin.try_read()).collect::<io::Result<_>>()?;
            items.push((db, key, replies));
        }
    }
    Ok(items)
}

/// How many steps from `at` on can go in one write: one, unless pipelined. A `DUMP` and its use end a write.
fn segment_end(sequence: &Sequence, at: usize) -> usize {
    let joins = |step: &Step| match &step.action {
        Action::Command(args) => {
            step.conn == sequence.steps[at].conn
                && !args.contains(&Arg::LastDump)
                && !matches!(&args[0], Arg::Bytes(name) if name.eq_ignore_ascii_case(b"DUMP"))
        }
        _ => false,
    };
    if !sequence.pipelined || !joins(&sequence.steps[at]) {
        return at + 1;
    }
    at + sequence.steps[at..].iter().take_while(|s| joins(s)).count()
}
