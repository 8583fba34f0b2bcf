//! `kill -9` of a server with a log, at any time, again and again on one directory: with `appendfsync always` nothing that was
//! answered or shown is missing; with less, only what came last.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::time::Duration;

use rustix::process::Signal;

use crate::algorithms;
use crate::instant::{Clock, Nanos, NEVER};
use crate::log_found::fetch;
use crate::log_player::{unix_ms, Duty, Found, Player};
use crate::log_shared::{Part, Shared, SharedTally, PARTS};
use crate::process::{server_in, Client, Launch, Process, TempDir};

/// What `appendfsync everysec` promises, and what the kernel and a busy machine take.
const EVERYSEC_NS: Nanos = 2_000_000_000;

/// A database that nobody changes after the beginning.
const FILLER_DB: u32 = 15;
const FILLER_BYTES: usize = 4_000;

/// One kind of server and load.
#[derive(Clone)]
struct Plan {
    name: &'static str,
    flags: Vec<&'static str>,
    policy: &'static str,
    /// `appendfsync` is changed while the clients run.
    changes_policy: bool,
    /// Keys that are stored before: more than there is memory for.
    filler_count: usize,
    round_count: u32,
    /// The shortest and the longest time that clients have in a round.
    load_ms: (u64, u64),
}

impl Plan {
    fn new(name: &'static str, flags: &[&'static str]) -> Plan {
        Plan {
            name,
            flags: flags.to_vec(),
            policy: "always",
            changes_policy: true,
            filler_count: 0,
            round_count: 8,
            load_ms: (30, 700),
        }
    }

    fn with_policy(self, policy: &'static str) -> Plan {
        Plan { policy, changes_policy: false, ..self }
    }
}

/// What the rounds came across: a run that met none of it has shown nothing.
#[derive(Default, Debug)]
struct Tally {
    round_count: u32,
    step_count: usize,
    lost_count: usize,
    unanswered_count: usize,
    pushed_count: usize,
    taken_count: usize,
    served_count: usize,
    counted_count: usize,
    seen_count: usize,
    torn_count: usize,
    action_count: usize,
    interrupted_start_count: usize,
    slowest_start: Duration,
}

impl Tally {
    fn add_found(&mut self, found: Found) {
        self.step_count += found.step_count;
        self.lost_count += found.lost_count;
        self.unanswered_count += found.unanswered_count;
    }

    fn add_shared(&mut self, shared: SharedTally) {
        self.pushed_count += shared.pushed_count;
        self.taken_count += shared.taken_count;
        self.served_count += shared.served_count;
        self.counted_count += shared.counted_count;
        self.seen_count += shared.seen_count;
    }
}

/// Kills the server when it is dropped, also where the test has failed: nobody waits for it any more.
struct Kill<'s> {
    server: &'s Process,
    is_killing: &'s AtomicBool,
}

impl Drop for Kill<'_> {
    fn drop(&mut self) {
        self.is_killing.store(true, Ordering::SeqCst);
        self.server.signal(Signal::KILL);
    }
}

struct Runner {
    plan: Plan,
    rng: fastrand::Rng,
    clock: Clock,
    dir: TempDir,
    players: Vec<Player>,
    shared: Shared,
    duty: Duty,
    tally: Tally,
}

impl Runner {
    fn new(plan: Plan) -> Runner {
        let seed = stillframe_testkit::seed();
        Runner {
            rng: fastrand::Rng::with_seed(seed),
            clock: Clock::start(),
            dir: TempDir::new(&format!("log-{}", plan.name)),
            players: (1..=3).map(|number| Player::new(seed, number)).collect(),
            shared: Shared::default(),
            duty: Duty { all_before_ns: NEVER, weak: Vec::new() },
            tally: Tally::default(),
            plan,
        }
    }

    fn launch(&self) -> Launch {
        let always =
            ["--appendonly", "yes", "--appendfsync", self.plan.policy, "--enable-debug-command", "yes"];
        server_in(self.dir.path(), self.dir.path()).with(&always).with(&self.plan.flags)
    }

    /// Starts the server, now and then after starts that were killed before they had ended.
    fn start(&mut self) -> Process {
        if self.rng.u32(..4) == 0 {
            for _ in 0..self.rng.u32(1..4) {
                let server = self.launch().spawn();
                std::thread::sleep(Duration::from_micros(self.rng.u64(..60_000)));
                server.kill();
                self.tally.interrupted_start_count += 1;
            }
        }
        let (server, took) = self.launch().start();
        self.tally.slowest_start = self.tally.slowest_start.max(took);
        let (torn, others): (Vec<_>, Vec<_>) = server.warnings().into_iter().partition(|line| {
            line.contains("at the end of the log were of a unit that had not been written")
        });
        self.tally.torn_count += torn.len();
        assert_eq!(others, Vec::<String>::new(), "a start after a kill is nothing to warn of");
        server
    }

    fn check(&mut self, server: &Process) {
        let mut conn = server.client();
        for player in &mut self.players {
            let from_ms = unix_ms();
            let found = fetch(&mut conn, player.first_db);
            let found = player.check(found, (from_ms, unix_ms()), &self.duty);
            self.tally.add_found(found);
        }
        let shared = self.shared.check(&mut conn, &self.duty);
        self.tally.add_shared(shared);
        self.check_filler(&mut conn);
        // Refused while a checkpoint is taken.
        stillframe_testkit::eventually("what a start would find is compared", || {
            let reply = conn.run("DEBUG LOADAOF");
            assert!(!reply.is_error() || reply.text().contains("already in progress"), "{reply:?}");
            !reply.is_error()
        });
    }

    fn round(&mut self, server: Process) {
        let is_killing = AtomicBool::new(false);
        let weak = Mutex::new(Vec::new());
        let mut players = std::mem::take(&mut self.players);
        let shared = std::mem::take(&mut self.shared);
        let (clock, mut killed_ns) = (self.clock, 0);
        std::thread::scope(|scope| {
            let (is_killing, server, shared) = (&is_killing, &server, &shared);
            let check = move |who: &str, result: std::io::Result<()>| {
                let is_expected = result.is_ok() || is_killing.load(Ordering::SeqCst);
                assert!(is_expected, "{who}: the connection broke: {result:?}\n{}", server.log());
            };
            // The listeners listen before anybody counts.
            for part in PARTS {
                let (conn, seed) = (server.client(), self.rng.u64(..));
                scope.spawn(move || {
                    check(&format!("{part:?}"), shared.run(part, conn, clock, seed, is_killing));
                });
                if let Part::Count(_) = part {
                    std::thread::yield_now();
                }
            }
            for player in &mut players {
                scope.spawn(move || check("player", player.run(server, clock, is_killing)));
            }
            // What is answered from here on counts as well: the answer came from a server that was there.
            let kill = Kill { server, is_killing };
            self.act(server, &weak);
            killed_ns = clock.now_ns();
            drop(kill);
        });
        let warnings = server.warnings();
        server.kill();
        let expected = ["Changes wait for the log", "at the end of the log were of a unit"];
        let is_strange = |line: &&String| !expected.iter().any(|text| line.contains(text));
        assert_eq!(warnings.iter().find(is_strange), None, "nothing went wrong before the kill");
        (self.players, self.shared) = (players, shared);
        self.duty = match self.plan.policy {
            "always" => Duty { all_before_ns: 0, weak: weak.into_inner().expect("a lock") },
            "everysec" => {
                Duty { all_before_ns: killed_ns.saturating_sub(EVERYSEC_NS), weak: vec![(0, NEVER)] }
            }
            _ => Duty { all_before_ns: 0, weak: vec![(0, NEVER)] },
        };
        self.tally.round_count += 1;
    }

    /// Saves, rewrites, reloads and changes of the policy beside the clients, for the time of the round.
    fn act(&mut self, server: &Process, weak: &Mutex<Vec<(Nanos, Nanos)>>) {
        let (least_ms, most_ms) = self.plan.load_ms;
        let end_ns = self.clock.now_ns() + self.rng.u64(least_ms..=most_ms) * 1_000_000;
        let mut conn = server.client();
        loop {
            let left_ns = end_ns.saturating_sub(self.clock.now_ns());
            std::thread::sleep(Duration::from_nanos(self.rng.u64(..150_000_000).min(left_ns)));
            if self.clock.now_ns() >= end_ns {
                return;
            }
            self.tally.action_count += 1;
            match self.rng.u32(..10) {
                0..=2 => self.ask(&mut conn, "BGSAVE"),
                3..=4 => self.ask(&mut conn, "BGREWRITEAOF"),
                5 => self.ask(&mut conn, "BGSAVE RDB"),
                // In little memory it would wait for room that nobody makes while all others stand still.
                6 if self.plan.filler_count == 0 => self.ask(&mut conn, "DEBUG RELOAD"),
                7..=8 if self.plan.changes_policy => self.weaken(&mut conn, weak, end_ns),
                _ => {}
            }
        }
    }

    /// One that is refused for another that is under way says so.
    fn ask(&self, conn: &mut Client, line: &str) {
        let reply = conn.run(line);
        let is_fine = !reply.is_error() || reply.text().contains("already in progress");
        assert!(is_fine, "{line}: {reply:?}");
    }

    /// Less is promised for a while; often until the end.
    fn weaken(&mut self, conn: &mut Client, weak: &Mutex<Vec<(Nanos, Nanos)>>, end_ns: Nanos) {
        let policy = ["everysec", "no"][self.rng.usize(..2)];
        weak.lock().expect("a lock").push((self.clock.now_ns(), NEVER));
        conn.ok(&format!("CONFIG SET appendfsync {policy}"));
        let left_ns = end_ns.saturating_sub(self.clock.now_ns());
        std::thread::sleep(Duration::from_nanos(self.rng.u64(..60_000_000).min(left_ns)));
        if self.clock.now_ns() < end_ns {
            conn.ok("CONFIG SET appendfsync always");
            let to_ns = self.clock.now_ns();
            weak.lock().expect("a lock").last_mut().expect("the one that was begun").1 = to_ns;
        }
    }

    fn fill(&mut self, conn: &mut Client) {
        conn.ok(&format!("SELECT {FILLER_DB}"));
        let numbers: Vec<usize> = (0..self.plan.filler_count).collect();
        for chunk in numbers.chunks(16) {
            for number in chunk {
                conn.queue(&[b"SET", number.to_string().as_bytes(), &filler(*number)]);
            }
            conn.flush().expect("a connection");
            chunk.iter().for_each(|_| assert!(!conn.read().is_error()));
        }
    }

    fn check_filler(&mut self, conn: &mut Client) {
        conn.ok(&format!("SELECT {FILLER_DB}"));
        assert_eq!(conn.run("DBSIZE").integer(), Some(self.plan.filler_count as i64));
        for _ in 0..self.plan.filler_count.min(100) {
            let number = self.rng.usize(..self.plan.filler_count);
            let reply = conn.run(&format!("GET {number}"));
            assert!(reply.bytes() == Some(&filler(number)[..]), "GET {number} of the filler: {reply:?}");
        }
    }

    fn run(mut self) -> Tally {
        let given = std::env::var("STILLFRAME_KILLS").ok().and_then(|count| count.parse().ok());
        let mut server = self.start();
        self.fill(&mut server.client());
        for _ in 0..given.unwrap_or(self.plan.round_count) {
            self.round(server);
            server = self.start();
            self.check(&server);
        }
        server.kill();
        println!("{}: {:?}", self.plan.name, self.tally);
        let Tally { step_count, pushed_count, taken_count, served_count, counted_count, seen_count, .. } =
            self.tally;
        let least = self.tally.round_count as usize;
        let counts = [step_count / 5, pushed_count, taken_count, served_count, counted_count, seen_count];
        assert!(counts.iter().all(|count| *count >= least), "{:?}", self.tally);
        self.tally
    }
}

fn filler(number: usize) -> Vec<u8> {
    let mut bytes = vec![0; FILLER_BYTES];
    fastrand::Rng::with_seed(number as u64).fill(&mut bytes);
    bytes
}

#[test]
fn what_was_answered_is_there_after_any_kill() {
    Runner::new(Plan::new("ordinary", &[])).run();
}

#[test]
fn so_it_is_with_two_workers() {
    Runner::new(Plan::new("two", &["--io-threads", "2"])).run();
}

#[test]
fn so_it_is_with_ten_times_the_data_of_memory() {
    let plan = Plan::new("little-memory", &["--maxmemory", "16mb", "--snapshot-memory", "2mb"]);
    Runner::new(Plan { filler_count: 30_000, round_count: 6, ..plan }).run();
}

#[test]
fn so_it_is_with_other_snapshot_algorithms() {
    for kind in algorithms::others().filter(|kind| ["hourglass", "piggyback"].contains(&kind.name())) {
        let plan = Plan::new(kind.name(), &[&["--io-threads", "2"][..], &algorithms::flags(kind)].concat());
        Runner::new(Plan { round_count: 4, ..plan }).run();
    }
}

#[test]
fn so_it_is_where_damage_is_skipped() {
    let plan = Plan::new("skip", &["--damage-policy", "skip", "--io-threads", "2"]);
    Runner::new(Plan { round_count: 4, ..plan }).run();
}

/// What was answered two seconds before is there, and all that is there is what each client had done first.
#[test]
fn a_second_is_lost_at_most_with_everysec() {
    let plan = Plan::new("everysec", &[]).with_policy("everysec");
    Runner::new(Plan { round_count: 4, load_ms: (1_500, 3_500), ..plan }).run();
}

/// How much is lost is not said, but not what.
#[test]
fn a_prefix_is_kept_without_syncs() {
    Runner::new(Plan::new("never", &["--io-threads", "2"]).with_policy("no")).run();
}
