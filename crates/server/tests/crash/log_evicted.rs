//! `kill -9` of a server with a log that evicts keys: what was evicted may be absent, and nothing else; and what a client has seen to
//! be gone is not there again.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::process::{server_in, Client, Process, TempDir};

const KEYS: u32 = 5_000;
const VALUE_BYTES: usize = 3_000;

/// A state of a key that was asked for, or seen: a version, or none.
struct Event {
    version: Option<u64>,
    is_acked: bool,
}

/// A client with keys of its own.
struct Writer {
    number: u32,
    rng: fastrand::Rng,
    next_version: u64,
    /// Since the last look, of each key that was touched; the first is what was found then.
    events: BTreeMap<u32, Vec<Event>>,
}

#[derive(Default, Debug)]
struct Tally {
    write_count: usize,
    evicted_count: u64,
    seen_gone_count: usize,
    found_count: usize,
}

fn value(version: u64) -> Vec<u8> {
    let mut value = format!("{version}:").into_bytes();
    value.resize(VALUE_BYTES, b'v');
    value
}

fn version_of(bytes: &[u8]) -> u64 {
    assert_eq!(bytes.len(), VALUE_BYTES, "a value in part");
    let text = String::from_utf8_lossy(&bytes[..24]).into_owned();
    text.split(':').next().and_then(|version| version.parse().ok()).expect("a version")
}

impl Writer {
    fn key(&self, key: u32) -> String {
        format!("{}:{key}", self.number)
    }

    fn run(&mut self, server: &Process, stop: &AtomicBool, tally: &mut Tally) -> io::Result<()> {
        let mut conn = server.connect()?;
        while !stop.load(Ordering::Relaxed) {
            self.step(&mut conn, tally)?;
        }
        Ok(())
    }

    /// Several commands at once on keys that differ.
    fn step(&mut self, conn: &mut Client, tally: &mut Tally) -> io::Result<()> {
        let first = self.rng.u32(..KEYS);
        let keys: Vec<u32> = (0..32).map(|index| (first + index * 577) % KEYS).collect();
        let kinds: Vec<u32> = keys.iter().map(|_| self.rng.u32(..10)).collect();
        for (key, kind) in keys.iter().zip(&kinds) {
            let name = self.key(*key);
            let version = match kind {
                0..=5 => {
                    self.next_version += 1;
                    conn.queue(&[b"SET", name.as_bytes(), &value(self.next_version)]);
                    Some(self.next_version)
                }
                6 => {
                    conn.queue_line(&format!("DEL {name}"));
                    None
                }
                _ => {
                    conn.queue_line(&format!("GET {name}"));
                    continue;
                }
            };
            tally.write_count += 1;
            self.events.entry(*key).or_default().push(Event { version, is_acked: false });
        }
        conn.flush()?;
        for (key, kind) in keys.iter().zip(&kinds) {
            let reply = conn.try_read()?;
            assert!(!reply.is_error(), "{key}: {reply:?}");
            let events = self.events.entry(*key).or_default();
            if *kind <= 6 {
                events.last_mut().expect("what was sent").is_acked = true;
            } else if let Some(bytes) = reply.bytes() {
                let last = events.last().and_then(|event| event.version);
                let is_known = events.is_empty() || last == Some(version_of(bytes));
                assert!(is_known, "{key} is {} and was {last:?}", version_of(bytes));
            } else {
                tally.seen_gone_count +=
                    usize::from(events.last().is_some_and(|event| event.version.is_some()));
                events.push(Event { version: None, is_acked: true });
            }
        }
        Ok(())
    }

    /// Fails unless each key has what it was given last, or was evicted; what has not been answered may or may not be there.
    fn check(&mut self, conn: &mut Client, tally: &mut Tally) {
        for key in 0..KEYS {
            conn.queue_line(&format!("GET {}", self.key(key)));
            if key % 50 < 49 {
                continue;
            }
            conn.flush().expect("a connection");
            for key in key - 49..=key {
                let reply = conn.read();
                assert!(!reply.is_error(), "{key}: {reply:?}");
                let found = reply.bytes().map(version_of);
                self.check_key(key, found);
                tally.found_count += usize::from(found.is_some());
                self.events.insert(key, vec![Event { version: found, is_acked: true }]);
            }
        }
    }

    fn check_key(&self, key: u32, found: Option<u64>) {
        let Some(version) = found else { return };
        let Some(events) = self.events.get(&key) else { panic!("{key} was never set, and is {version}") };
        let last_acked = events.iter().rposition(|event| event.is_acked).unwrap_or(0);
        let may: Vec<_> = events[last_acked..].iter().map(|event| event.version).collect();
        assert!(may.contains(&found), "key {} is {found:?}, and can only be one of {may:?}", self.key(key));
    }
}

#[test]
fn what_was_evicted_may_be_gone_and_nothing_else() {
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let dir = TempDir::new("log-evicted");
    let memory = ["--maxmemory", "14mb", "--maxmemory-policy", "allkeys-lru", "--io-threads", "2"];
    let log = ["--appendonly", "yes", "--appendfsync", "always"];
    let launch = server_in(dir.path(), dir.path()).with(&memory).with(&log);
    let writer = |number| Writer { number, rng: rng.fork(), next_version: 0, events: BTreeMap::new() };
    let mut writers: Vec<Writer> = (0..2).map(writer).collect();
    let mut tally = Tally::default();
    let given = std::env::var("STILLFRAME_KILLS").ok().and_then(|count| count.parse().ok());
    for _ in 0..given.unwrap_or(6) {
        let (server, _) = launch.start();
        let mut conn = server.client();
        writers.iter_mut().for_each(|writer| writer.check(&mut conn, &mut tally));
        let is_killing = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (is_killing, server) = (&is_killing, &server);
            let at_work = writers.iter_mut().map(|writer| {
                scope.spawn(move || {
                    let mut tally = Tally::default();
                    let result = writer.run(server, is_killing, &mut tally);
                    let is_expected = result.is_ok() || is_killing.load(Ordering::SeqCst);
                    assert!(is_expected, "the connection broke: {result:?}\n{}", server.log());
                    tally
                })
            });
            let at_work: Vec<_> = at_work.collect();
            std::thread::sleep(Duration::from_micros(rng.u64(400_000..1_500_000)));
            let evicted = conn.info("evicted_keys").parse::<u64>().expect("a number");
            if rng.bool() {
                conn.run("BGSAVE");
                std::thread::sleep(Duration::from_micros(rng.u64(..30_000)));
            }
            is_killing.store(true, Ordering::SeqCst);
            server.signal(Signal::KILL);
            tally.evicted_count += evicted;
            for work in at_work {
                let more = work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                tally.write_count += more.write_count;
                tally.seen_gone_count += more.seen_gone_count;
            }
        });
        server.kill();
    }
    let (server, _) = launch.start();
    writers.iter_mut().for_each(|writer| writer.check(&mut server.client(), &mut tally));
    println!("{tally:?}");
    assert!(tally.evicted_count > 0 && tally.seen_gone_count > 0 && tally.found_count > 0, "{tally:?}");
}
