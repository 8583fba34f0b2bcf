//! `kill -9` while clients wait for elements, elements go from key to key, and fields expire: whatever a restart finds is of one
//! cut. So an element that is moved is in one place, never in none or in two, and what a transaction does is there as a whole.

use std::collections::BTreeSet;
use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::Mutex;
use std::time::Duration;

use rustix::process::Signal;
use stillframe_store::{Options, Store};
use stillframe_testkit::{pool_backend, Reply};

use crate::algorithms;
use crate::process::{server_in, Client, Process, TempDir};

/// Tokens that are spread over the lists, and over the sets.
const TOKEN_COUNT: usize = 4_000;
/// Lists and sets that tokens go between: the first two have most of them.
const PLACES: u32 = 6;
/// Queues and sorted sets that numbers go through, each with its producer.
const LANES: u32 = 2;
const HASHES: u32 = 4;

fn token(number: usize) -> String {
    // Sets of small numbers alone are intsets.
    match number % 3 {
        0 => number.to_string(),
        _ => format!("token:{number:06}:{}", "x".repeat(number % 23)),
    }
}

/// Where tokens may be: those places, and the lists that are mostly empty and waited for. Between two transactions none is in
/// the list that they put another aside to.
fn list_names() -> Vec<String> {
    let waited = (0..LANES).map(|number| format!("waited:{number}"));
    (0..PLACES).map(|number| format!("list:{number}")).chain(waited).collect()
}

fn set_names() -> Vec<String> {
    (0..PLACES).map(|number| format!("set:{number}")).collect()
}

fn texts(reply: &Reply) -> Vec<String> {
    reply.items().iter().map(Reply::text).collect()
}

/// Fills an empty server.
fn fill(conn: &mut Client) {
    let tokens: Vec<String> = (0..TOKEN_COUNT).map(token).collect();
    for (number, part) in tokens.chunks(500).enumerate() {
        let place = number % 2;
        let list = conn.run(&format!("RPUSH list:{place} {}", part.join(" ")));
        let set = conn.run(&format!("SADD set:{place} {}", part.join(" ")));
        assert!(!list.is_error() && !set.is_error(), "{list:?} {set:?}");
    }
    for number in 0..3_000 {
        // Of a large hash most fields stay.
        conn.queue_line(&format!("HSET hash:0 a:{number} kept b:{number} kept"));
    }
    conn.flush().expect("a connection");
    (0..3_000).for_each(|_| drop(conn.read()));
}

/// What a round has done, and what must be there after it.
#[derive(Default)]
struct Noted {
    op_count: AtomicI64,
    /// The number of each lane that was there before the last save that has been completed began.
    saved: [AtomicI64; LANES as usize],
    /// What was taken from each lane's queue in this round.
    popped: Mutex<BTreeSet<(String, i64)>>,
    /// Clients that have waited and were served.
    served_count: AtomicI64,
}

/// A client that goes on until the connection breaks.
struct Player<'r> {
    conn: Client,
    rng: fastrand::Rng,
    noted: &'r Noted,
}

impl Player<'_> {
    /// Runs commands and looks at the replies: an error is none, but that of a key that is not there.
    fn run(&mut self, lines: &[String]) -> io::Result<Vec<Reply>> {
        lines.iter().for_each(|line| self.conn.queue_line(line));
        self.conn.flush()?;
        let replies = lines.iter().map(|_| self.conn.try_read()).collect::<io::Result<Vec<Reply>>>()?;
        self.noted.op_count.fetch_add(1, Ordering::Relaxed);
        for (line, reply) in lines.iter().zip(&replies) {
            let is_fine = !reply.is_error() || reply.text().contains("no such key");
            assert!(is_fine, "{line}: {reply:?}");
        }
        Ok(replies)
    }

    fn in_transaction(&mut self, lines: &[String]) -> io::Result<Vec<Reply>> {
        let whole = [&["MULTI".to_owned()][..], lines, &["EXEC".to_owned()]].concat();
        self.run(&whole)
    }

    fn any(&mut self, names: &[String]) -> String {
        // The first two are the large ones.
        let count = if self.rng.bool() { 2 } else { names.len() };
        names[self.rng.usize(..count)].clone()
    }

    fn side(&mut self) -> &'static str {
        if self.rng.bool() {
            "LEFT"
        } else {
            "RIGHT"
        }
    }

    /// Tokens from list to list, some to those that clients wait for.
    fn move_items(&mut self) -> io::Result<()> {
        let lists = list_names();
        let (from, to) = (self.any(&lists), lists[self.rng.usize(..lists.len())].clone());
        let (one, other) = (self.side(), self.side());
        let line = match self.rng.u32(..6) {
            0 => format!("RPOPLPUSH {from} {to}"),
            1 => format!("BLMOVE {from} {to} {one} {other} 0.01"),
            2 => {
                let back = format!("LMOVE {to} {from} {other} {one}");
                let there = format!("LMOVE {from} {to} {one} {other}");
                return self.in_transaction(&[there.clone(), there, back]).map(drop);
            }
            3 => {
                let lines = ["RENAME list:4 aside", "RENAME list:5 list:4", "RENAME aside list:5"];
                return self.in_transaction(&lines.map(str::to_owned)).map(drop);
            }
            _ => format!("LMOVE {from} {to} {one} {other}"),
        };
        self.run(&[line]).map(drop)
    }

    /// Waits for a token, and has it moved on.
    fn wait_for_items(&mut self) -> io::Result<()> {
        let lane = self.rng.u32(..LANES);
        let reply = self.run(&[format!("BLMOVE waited:{lane} list:{} LEFT RIGHT 0", 2 + lane)])?;
        self.noted.served_count.fetch_add(i64::from(!reply[0].is_null()), Ordering::Relaxed);
        Ok(())
    }

    fn move_members(&mut self) -> io::Result<()> {
        let sets = set_names();
        let lines: Vec<String> = (0..8)
            .map(|_| {
                let (from, to) = (self.any(&sets), sets[self.rng.usize(..sets.len())].clone());
                format!("SMOVE {from} {to} {}", token(self.rng.usize(..TOKEN_COUNT)))
            })
            .collect();
        if self.rng.bool() {
            return self.run(&lines).map(drop);
        }
        self.in_transaction(&lines).map(drop)
    }

    /// The next number of a lane, to its queue and to its sorted set at once.
    fn produce(&mut self, lane: u32, next: &mut i64) -> io::Result<()> {
        let lines = [
            format!("RPUSH queue:{lane} {next}"),
            format!("ZADD scored:{lane} {next} {next}"),
            format!("SET last:{lane} {next}"),
        ];
        *next += 1;
        if self.rng.u32(..4) == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
        self.in_transaction(&lines).map(drop)
    }

    /// Waits for the least number of either lane.
    fn consume(&mut self, line: &str) -> io::Result<()> {
        let reply = self.run(&[line.to_owned()])?.remove(0);
        let items = texts(&reply);
        let number: i64 = items[1].parse().expect("a number");
        let is_new = self.noted.popped.lock().unwrap().insert((items[0].clone(), number));
        assert!(is_new, "{items:?} was taken twice");
        self.noted.served_count.fetch_add(1, Ordering::Relaxed);
        if self.rng.u32(..3) == 0 {
            std::thread::sleep(Duration::from_micros(self.rng.u64(..2_000)));
        }
        Ok(())
    }

    /// Large collections are copied, and go over others.
    fn copy_and_rename(&mut self) -> io::Result<()> {
        let from = ["list:0", "set:0", "hash:0", "scored:0", "list:1"][self.rng.usize(..5)];
        let target = self.rng.u32(..2);
        self.run(&[format!("COPY {from} copy:{target} REPLACE"), format!("RENAME copy:{target} copy:over")])
            .map(drop)
    }

    /// Pairs of fields that come, change and expire together, in hashes that grow from nothing now and then.
    fn pair_fields(&mut self) -> io::Result<()> {
        let (hash, pair) = (self.rng.u32(..HASHES), self.rng.u32(..500));
        let (value, wait_ms) = (self.rng.u32(..), self.rng.u32(1..60));
        let set = format!("HSET hash:{hash} a:{pair} {value} b:{pair} {value}");
        let lines = match self.rng.u32(..20) {
            0 if hash > 0 => vec![format!("UNLINK hash:{hash}")],
            0..=2 => vec![format!("HDEL hash:{hash} a:{pair} b:{pair}")],
            3..=5 => vec![format!("HPERSIST hash:{hash} FIELDS 2 a:{pair} b:{pair}")],
            6..=10 => vec![set],
            _ => vec![set, format!("HPEXPIRE hash:{hash} {wait_ms} FIELDS 2 a:{pair} b:{pair}")],
        };
        self.in_transaction(&lines).map(drop)
    }
}

/// What a client does again and again.
#[derive(Clone, Copy)]
enum Part {
    MoveItems,
    WaitForItems,
    MoveMembers,
    Produce(u32),
    Consume(&'static str),
    CopyAndRename,
    PairFields,
}

/// Several that wait for the same keys, beside those that fill them.
const PARTS: [Part; 15] = [
    Part::MoveItems,
    Part::MoveItems,
    Part::WaitForItems,
    Part::WaitForItems,
    Part::WaitForItems,
    Part::MoveMembers,
    Part::Produce(0),
    Part::Produce(1),
    Part::Consume("BLPOP queue:0 queue:1 0"),
    Part::Consume("BLPOP queue:1 queue:0 0"),
    Part::Consume("BZPOPMIN scored:0 scored:1 0"),
    Part::Consume("BZPOPMIN scored:1 scored:0 0"),
    Part::CopyAndRename,
    Part::PairFields,
    Part::PairFields,
];

fn play(part: Part, player: &mut Player<'_>) -> io::Result<()> {
    let mut next = 0;
    if let Part::Produce(lane) = part {
        next = last_of(&player.conn.try_run(&format!("GET last:{lane}"))?) + 1;
    }
    loop {
        match part {
            Part::MoveItems => player.move_items()?,
            Part::WaitForItems => player.wait_for_items()?,
            Part::MoveMembers => player.move_members()?,
            Part::Produce(lane) => player.produce(lane, &mut next)?,
            Part::Consume(line) => player.consume(line)?,
            Part::CopyAndRename => player.copy_and_rename()?,
            Part::PairFields => player.pair_fields()?,
        }
    }
}

/// The last number of a lane; 0 if there has been none.
fn last_of(reply: &Reply) -> i64 {
    reply.bytes().map_or(0, |bytes| String::from_utf8_lossy(bytes).parse().expect("a number"))
}

/// Fails unless each token is in one of the places, once.
fn check_conserved(conn: &mut Client, names: &[String], read: &str) {
    let mut all = Vec::new();
    for name in names {
        let is_list = read.starts_with("LRANGE");
        let found = texts(&conn.run(&read.replace("KEY", name)));
        let count = conn.run(&format!("{} {name}", if is_list { "LLEN" } else { "SCARD" }));
        assert_eq!(count.integer(), Some(found.len() as i64), "{name}");
        all.extend(found.into_iter().map(|token| (token, name.clone())));
    }
    all.sort();
    let twice: Vec<_> = all.windows(2).filter(|pair| pair[0].0 == pair[1].0).collect();
    assert!(twice.is_empty(), "in two places: {twice:?}");
    let expected: BTreeSet<String> = (0..TOKEN_COUNT).map(token).collect();
    let found: BTreeSet<String> = all.into_iter().map(|(token, _)| token).collect();
    let lost: Vec<_> = expected.difference(&found).collect();
    assert!(lost.is_empty() && found.len() == expected.len(), "lost: {lost:?}, {} found", found.len());
}

/// Fails unless what is there of a lane is the last numbers, in order and without a gap.
fn check_lane(found: &[String], last: i64, what: &str) {
    let range: RangeInclusive<i64> = last - found.len() as i64 + 1..=last;
    assert!(found.iter().cloned().eq(range.map(|number| number.to_string())), "{what}: {last}, {found:?}");
}

/// Fails unless a hash has both fields of each pair, alike, or neither.
fn check_pairs(conn: &mut Client, name: &str) {
    let all = texts(&conn.run(&format!("HGETALL {name}")));
    let fields: BTreeSet<(&str, &str)> = all.chunks(2).map(|pair| (&pair[0][..], &pair[1][..])).collect();
    assert_eq!(fields.len(), all.len() / 2, "{name}");
    for (field, value) in &fields {
        let (side, number) = field.split_once(':').expect("a side and a number");
        let other = format!("{}:{number}", if side == "a" { "b" } else { "a" });
        assert!(fields.contains(&(&other[..], *value)), "{name} has {field} {value} alone");
    }
}

/// What was copied is whole: nothing is in it twice, and it has as many as it says.
fn check_copy(conn: &mut Client, name: &str) {
    let (read, count) = match &conn.run(&format!("TYPE {name}")).text()[..] {
        "list" => ("LRANGE KEY 0 -1", "LLEN"),
        "set" => ("SMEMBERS KEY", "SCARD"),
        "zset" => ("ZRANGE KEY 0 -1", "ZCARD"),
        "hash" => return check_pairs(conn, name),
        other => return assert_eq!(other, "none"),
    };
    let all = texts(&conn.run(&read.replace("KEY", name)));
    assert_eq!(conn.run(&format!("{count} {name}")).integer(), Some(all.len() as i64), "{name}");
    let distinct: BTreeSet<&String> = all.iter().collect();
    assert_eq!(distinct.len(), all.len(), "{name} has elements twice");
}

fn check_all(conn: &mut Client, noted: &Noted) {
    check_conserved(conn, &list_names(), "LRANGE KEY 0 -1");
    assert_eq!(conn.run("EXISTS aside").integer(), Some(0), "half of a transaction");
    check_conserved(conn, &set_names(), "SMEMBERS KEY");
    for lane in 0..LANES {
        let last = last_of(&conn.run(&format!("GET last:{lane}")));
        let saved = noted.saved[lane as usize].load(Ordering::SeqCst);
        assert!(last >= saved, "lane {lane} is back to {last}, and {saved} had been saved");
        check_lane(&texts(&conn.run(&format!("LRANGE queue:{lane} 0 -1"))), last, "queue");
        check_lane(&texts(&conn.run(&format!("ZRANGE scored:{lane} 0 -1"))), last, "sorted set");
    }
    (0..HASHES).for_each(|number| check_pairs(conn, &format!("hash:{number}")));
    ["copy:0", "copy:1", "copy:over"].iter().for_each(|name| check_copy(conn, name));
}

/// Every page belongs to something, and collections have as many elements as their keys say.
fn check_pages(dir: &TempDir) {
    let options = Options { pool_backend: pool_backend(), ..Options::default() };
    let store = Store::open(dir.path(), options).expect("the store opens");
    while store.is_warming_up() || !store.is_tidy() {
        std::thread::sleep(Duration::from_millis(1));
    }
    store.check().unwrap_or_else(|wrong| panic!("{wrong}"));
}

fn start(dir: &TempDir, rng: &mut fastrand::Rng) -> Process {
    let workers = ["1", "2", "3"][rng.usize(..3)];
    let algorithm = match rng.u32(..3) {
        0 => rng.choice(algorithms::others().collect::<Vec<_>>()).map_or(Vec::new(), algorithms::flags),
        _ => Vec::new(),
    };
    let launch = server_in(dir.path(), dir.path()).with(&["--io-threads", workers]).with(&algorithm);
    let (server, _) = launch.start();
    assert_eq!(server.warnings(), Vec::<String>::new());
    server
}

/// Runs saves beside everybody, then kills.
fn save_and_kill(server: &Process, rng: &mut fastrand::Rng, noted: &Noted, is_killed: &AtomicBool) {
    let mut conn = server.client();
    for _ in 0..rng.u32(1..4) {
        std::thread::sleep(Duration::from_micros(rng.u64(..60_000)));
        let before: Vec<i64> =
            (0..LANES).map(|lane| last_of(&conn.run(&format!("GET last:{lane}")))).collect();
        assert!(conn.save_in_background("BGSAVE"), "a save has failed");
        before.iter().zip(&noted.saved).for_each(|(last, saved)| saved.store(*last, Ordering::SeqCst));
    }
    if rng.u32(..4) > 0 {
        conn.queue_line("BGSAVE");
        conn.flush().expect("a connection");
    }
    std::thread::sleep(Duration::from_micros(rng.u64(..20_000)));
    is_killed.store(true, Ordering::SeqCst);
    server.signal(Signal::KILL);
}

#[test]
fn a_kill_leaves_elements_that_move_in_one_place() {
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let dir = TempDir::new("moves");
    let server = start(&dir, &mut rng);
    fill(&mut server.client());
    assert!(server.client().save_in_background("BGSAVE"));
    server.kill();
    let given = std::env::var("STILLFRAME_KILLS").ok().and_then(|count| count.parse().ok());
    let mut served_count = 0;
    for _ in 0..given.unwrap_or(25) {
        let noted = Noted::default();
        let server = start(&dir, &mut rng);
        let is_killed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for part in PARTS {
                let (conn, rng) = (server.client(), rng.fork());
                let mut player = Player { conn, rng, noted: &noted };
                let (is_killed, server) = (&is_killed, &server);
                scope.spawn(move || {
                    let Err(error) = play(part, &mut player) else { return };
                    let is_expected = is_killed.load(Ordering::SeqCst);
                    assert!(is_expected, "the connection broke: {error}\n{}", server.log());
                });
            }
            save_and_kill(&server, &mut rng, &noted, &is_killed);
        });
        server.kill();
        check_pages(&dir);
        let server = start(&dir, &mut rng);
        check_all(&mut server.client(), &noted);
        server.kill();
        served_count += noted.served_count.into_inner();
    }
    println!("{served_count} clients were served");
    assert!(served_count > 100, "{served_count} clients were served");
}
