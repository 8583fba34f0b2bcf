//! What several clients change, read and wait for at once: queues, counters and messages.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::time::Duration;

use stillframe_testkit::Reply;

use crate::instant::{Clock, Nanos, NEVER};
use crate::log_player::Duty;
use crate::process::Client;

/// Clients that count, each by a number of its own.
const COUNTERS: usize = 2;
/// Numbers that all of them count up.
const COMMON: usize = 2;

/// What a client was told, and when it had asked and was answered.
struct Told<T> {
    what: T,
    sent_ns: Nanos,
    acked_ns: Nanos,
}

/// A number of a key that somebody has seen or was answered: a start has at least that.
type Least = (String, i64);

#[derive(Default)]
struct Noted {
    pushed: Vec<Told<Vec<String>>>,
    taken: Vec<Told<String>>,
    /// Elements that takers may have got without having been told.
    unanswered_takes: usize,
    counted: Vec<Told<Least>>,
    seen: Vec<Told<Least>>,
    /// Increments that were sent.
    sent_counts: usize,
    served_count: usize,
}

/// See the module.
#[derive(Default)]
pub struct Shared {
    noted: Mutex<Noted>,
    /// What is in the queues.
    base: BTreeSet<String>,
    /// What the counters are at.
    own: [i64; COUNTERS],
    next_element: [u64; 2],
}

/// What a client does again and again.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    Produce(usize),
    Take,
    Count(usize),
    Read,
    Listen,
}

pub const PARTS: [Part; 9] = [
    Part::Produce(0),
    Part::Produce(1),
    Part::Take,
    Part::Take,
    Part::Take,
    Part::Count(0),
    Part::Count(1),
    Part::Read,
    Part::Listen,
];

/// What has become of what was told since the last look.
#[derive(Clone, Copy, Default, Debug)]
pub struct SharedTally {
    pub pushed_count: usize,
    pub taken_count: usize,
    pub served_count: usize,
    pub counted_count: usize,
    pub seen_count: usize,
}

/// One client of a round.
struct Worker<'s> {
    conn: Client,
    rng: fastrand::Rng,
    clock: Clock,
    noted: &'s Mutex<Noted>,
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.bytes().unwrap_or_else(|| panic!("no text: {reply:?}"))).into_owned()
}

fn number(reply: &Reply) -> i64 {
    if reply.is_null() {
        return 0;
    }
    text(reply).parse().expect("a number")
}

impl Shared {
    /// Runs a part until told to stop or until the connection breaks. `seed`: of its decisions.
    pub fn run(
        &self,
        part: Part,
        conn: Client,
        clock: Clock,
        seed: u64,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        let rng = fastrand::Rng::with_seed(seed);
        let mut worker = Worker { conn, rng, clock, noted: &self.noted };
        let mut next = match part {
            Part::Produce(producer) => self.next_element[producer],
            Part::Count(number) => self.own[number] as u64 + 1,
            _ => 0,
        };
        if let Part::Listen = part {
            worker.run(&["SUBSCRIBE news".to_owned()])?;
        }
        while !stop.load(Ordering::Relaxed) {
            match part {
                Part::Produce(producer) => worker.produce(producer, &mut next)?,
                Part::Take => worker.take()?,
                Part::Count(number) => worker.count(number, &mut next)?,
                Part::Read => worker.read()?,
                Part::Listen => worker.hear()?,
            }
        }
        Ok(())
    }

    /// Fails unless a start has what it must, and nothing else. Goes on from what there is.
    pub fn check(&mut self, conn: &mut Client, duty: &Duty) -> SharedTally {
        conn.ok("SELECT 0");
        let noted = std::mem::take(self.noted.get_mut().expect("a lock"));
        self.check_queues(conn, duty, &noted);
        self.check_counters(conn, duty, &noted);
        for told in &noted.pushed {
            for element in &told.what {
                let (producer, count) = element.split_once('.').expect("a producer and a number");
                let count: u64 = count.parse().expect("a number");
                let next = &mut self.next_element[producer.parse::<usize>().expect("a producer")];
                *next = (*next).max(count + 1);
            }
        }
        SharedTally {
            pushed_count: noted.pushed.len(),
            taken_count: noted.taken.len(),
            served_count: noted.served_count,
            counted_count: noted.counted.len(),
            seen_count: noted.seen.len(),
        }
    }

    fn check_queues(&mut self, conn: &mut Client, duty: &Duty, noted: &Noted) {
        let mut found = BTreeSet::new();
        for name in ["queue:0", "queue:1", "done"] {
            for item in conn.run(&format!("LRANGE {name} 0 -1")).items() {
                assert!(found.insert(text(item)), "{} is in two places, one of them {name}", text(item));
            }
        }
        let holds = |sent_ns, acked_ns| duty.holds(sent_ns, acked_ns);
        let all_pushed = noted.pushed.iter().flat_map(|told| told.what.iter().cloned());
        let may: BTreeSet<String> = self.base.iter().cloned().chain(all_pushed).collect();
        let strange: Vec<_> = found.difference(&may).collect();
        assert!(strange.is_empty(), "nobody has pushed {strange:?}, or it was taken before");
        let taken_for_good = noted.taken.iter().filter(|told| holds(told.sent_ns, told.acked_ns));
        let back: Vec<_> =
            taken_for_good.filter(|told| found.contains(&told.what)).map(|t| &t.what).collect();
        assert!(back.is_empty(), "taken, and there again: {back:?}");
        let pushed_for_good = noted.pushed.iter().filter(|told| holds(told.sent_ns, told.acked_ns));
        let must = self.base.iter().chain(pushed_for_good.flat_map(|told| &told.what));
        let taken: BTreeSet<&String> = noted.taken.iter().map(|told| &told.what).collect();
        let missing: Vec<_> = must.filter(|item| !found.contains(*item) && !taken.contains(item)).collect();
        assert!(
            missing.len() <= noted.unanswered_takes,
            "lost: {missing:?}, and {} may have been taken by who was not answered",
            noted.unanswered_takes
        );
        self.base = found;
    }

    fn check_counters(&mut self, conn: &mut Client, duty: &Duty, noted: &Noted) {
        let mut get = |key: &str| number(&conn.run(&format!("GET {key}")));
        let own: [i64; COUNTERS] = std::array::from_fn(|of| get(&format!("own:{of}")));
        let common: i64 = (0..COMMON).map(|of| get(&format!("common:{of}"))).sum();
        assert_eq!(own.iter().sum::<i64>(), common, "half of a transaction: {own:?}");
        let most = self.own.iter().sum::<i64>() + noted.sent_counts as i64;
        assert!(common <= most, "counted {common}, and at most {most} were sent");
        // What was seen while less was promised, or of changes from then, need not be there.
        let first_weak_ns = duty.weak.iter().map(|(from_ns, _)| *from_ns).min().unwrap_or(NEVER);
        let is_seen_for_good = |acked_ns: Nanos| acked_ns < first_weak_ns.max(duty.all_before_ns);
        let seen =
            noted.seen.iter().filter(|told| is_seen_for_good(told.acked_ns)).map(|told| ("seen", told));
        let counted = noted.counted.iter().filter(|told| duty.holds(told.sent_ns, told.acked_ns));
        for (how, Told { what: (key, least), .. }) in seen.chain(counted.map(|told| ("answered", told))) {
            let found = get(key);
            assert!(found >= *least, "{least} of {key} was {how}, and a start finds {found}");
        }
        self.own = own;
    }
}

impl Worker<'_> {
    fn noted(&self) -> std::sync::MutexGuard<'_, Noted> {
        self.noted.lock().expect("a lock")
    }

    /// Sends commands and reads as many replies; the last of them, and when all were sent and answered.
    fn run(&mut self, lines: &[String]) -> io::Result<(Reply, Nanos, Nanos)> {
        let sent_ns = self.clock.now_ns();
        lines.iter().for_each(|line| self.conn.queue_line(line));
        self.conn.flush()?;
        let mut last = Reply::NullBulk;
        for line in lines {
            last = self.conn.try_read()?;
            assert!(!last.is_error(), "{line}: {last:?}");
        }
        Ok((last, sent_ns, self.clock.now_ns()))
    }

    fn produce(&mut self, producer: usize, next: &mut u64) -> io::Result<()> {
        let count = self.rng.u64(1..4);
        let elements: Vec<String> =
            (*next..*next + count).map(|number| format!("{producer}.{number}")).collect();
        *next += count;
        let queue = self.rng.u32(..2);
        let lines = if self.rng.bool() {
            vec![format!("RPUSH queue:{queue} {}", elements.join(" "))]
        } else {
            let pushes =
                elements.iter().map(|element| format!("RPUSH queue:{} {element}", self.rng.u32(..2)));
            [vec!["MULTI".to_owned()], pushes.collect(), vec!["EXEC".to_owned()]].concat()
        };
        let sent_ns = self.clock.now_ns();
        let index = {
            let mut noted = self.noted();
            noted.pushed.push(Told { what: Vec::new(), sent_ns, acked_ns: NEVER });
            let index = noted.pushed.len() - 1;
            noted.pushed[index].what = elements;
            index
        };
        let (_, _, acked_ns) = self.run(&lines)?;
        self.noted().pushed[index].acked_ns = acked_ns;
        if self.rng.u32(..3) == 0 {
            std::thread::sleep(Duration::from_micros(self.rng.u64(..3_000)));
        }
        Ok(())
    }

    fn take(&mut self) -> io::Result<()> {
        let queue = self.rng.u32(..2);
        let (lines, element_count) = match self.rng.u32(..8) {
            0 => (vec![format!("LPOP {}", ["queue:0", "queue:1", "done"][self.rng.usize(..3)])], 1),
            1 => (
                vec![
                    "MULTI".to_owned(),
                    "LPOP queue:0".to_owned(),
                    "RPOP queue:1".to_owned(),
                    "EXEC".to_owned(),
                ],
                2,
            ),
            2 => (vec![format!("BLMOVE queue:{queue} queue:{} LEFT RIGHT 0.02", 1 - queue)], 0),
            3 => (vec![format!("BLMOVE queue:{queue} done LEFT RIGHT 0.02")], 0),
            4 => (vec!["BLMPOP 0.02 2 queue:1 queue:0 RIGHT".to_owned()], 1),
            _ => (vec![format!("BLPOP queue:{queue} queue:{} 0.02", 1 - queue)], 1),
        };
        self.noted().unanswered_takes += element_count;
        let (reply, sent_ns, acked_ns) = self.run(&lines)?;
        let mut noted = self.noted();
        noted.unanswered_takes -= element_count;
        let mut take = |reply: &Reply| {
            if reply.bytes().is_some() {
                noted.taken.push(Told { what: text(reply), sent_ns, acked_ns });
                noted.served_count += usize::from(lines[0].starts_with('B'));
            }
        };
        match &reply {
            _ if element_count == 0 => {}
            Reply::Array(items) if lines.len() > 1 => items.iter().for_each(take),
            Reply::Array(items) => match &items[1] {
                Reply::Array(elements) => elements.iter().for_each(take),
                element => take(element),
            },
            single => take(single),
        }
        Ok(())
    }

    /// A transaction that counts twice and tells of that.
    fn count(&mut self, number: usize, next: &mut u64) -> io::Result<()> {
        let lines = [
            "MULTI".to_owned(),
            format!("INCR own:{number}"),
            format!("PUBLISH news own:{number}={next}"),
            format!("INCR common:{}", self.rng.usize(..COMMON)),
            "EXEC".to_owned(),
        ];
        self.noted().sent_counts += 1;
        let (reply, sent_ns, acked_ns) = self.run(&lines)?;
        assert_eq!(reply.items()[0].integer(), Some(*next as i64), "own:{number}");
        let what = (format!("own:{number}"), *next as i64);
        self.noted().counted.push(Told { what, sent_ns, acked_ns });
        *next += 1;
        if self.rng.u32(..4) == 0 {
            std::thread::sleep(Duration::from_micros(self.rng.u64(..2_000)));
        }
        Ok(())
    }

    /// What somebody else has counted.
    fn read(&mut self) -> io::Result<()> {
        let key = match self.rng.bool() {
            true => format!("own:{}", self.rng.usize(..COUNTERS)),
            false => format!("common:{}", self.rng.usize(..COMMON)),
        };
        let lines = match self.rng.u32(..3) {
            0 => vec![format!("GET {key}")],
            1 => vec![format!("MGET {key} nothing")],
            _ => vec!["MULTI".to_owned(), format!("GET {key}"), "EXEC".to_owned()],
        };
        let (reply, sent_ns, acked_ns) = self.run(&lines)?;
        let value = reply.try_items().map_or(&reply, |items| &items[0]);
        let what = (key, number(value));
        self.noted().seen.push(Told { what, sent_ns, acked_ns });
        if self.rng.u32(..3) == 0 {
            std::thread::sleep(Duration::from_micros(self.rng.u64(..1_000)));
        }
        Ok(())
    }

    /// What is told is as durable as what is read.
    fn hear(&mut self) -> io::Result<()> {
        let sent_ns = self.clock.now_ns();
        let reply = self.conn.try_read()?;
        let message = text(&reply.items()[2]);
        let (key, count) = message.split_once('=').expect("a key and a number");
        let what = (key.to_owned(), count.parse().expect("a number"));
        let acked_ns = self.clock.now_ns();
        self.noted().seen.push(Told { what, sent_ns, acked_ns });
        Ok(())
    }
}
