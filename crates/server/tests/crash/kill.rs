//! `kill -9` at random points under write load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::algorithms;
use crate::instant::{Clock, Nanos, Window, NEVER};
use crate::lane::Lane;
use crate::ledger::{store_filler, Ledger};
use crate::process::{server_in, Client, Launch, Process, TempDir};
use crate::verify::{check_picture, Clients};

/// A start that takes longer is a failure, also on a busy machine.
const SLOWEST_START: Duration = Duration::from_secs(5);

/// For some 17 MB of pages, where there are twice as many.
const LITTLE_MEMORY: &[&str] = &["--maxmemory", "24mb", "--snapshot-memory", "4mb"];

/// Who is at work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Load {
    /// Four clients with a database each.
    Lanes,
    /// Two of those, and two whose transactions empty and exchange two databases, walk over keys and change big values.
    Mixed,
    /// One of the latter, which also empties all databases.
    Alone,
}

impl Load {
    fn clients(self, seed: u64, walks: bool) -> Clients {
        let (lane_count, ledgers) = match self {
            Load::Lanes => (4, 0..0),
            Load::Mixed => (2, 2..4),
            Load::Alone => (0, 0..1),
        };
        let ledger = |number| Ledger::new(seed, number, self == Load::Alone, walks);
        Clients {
            lanes: (1..=lane_count).map(|db| Lane::new(seed, db)).collect(),
            ledgers: ledgers.map(ledger).collect(),
        }
    }

    fn has_ledgers(self) -> bool {
        self != Load::Lanes
    }

    /// Operations that a round has at least, on the average.
    fn least_ops(self) -> usize {
        if self == Load::Alone {
            2
        } else {
            100
        }
    }
}

/// When a round kills.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kill {
    /// While nothing is being saved.
    Quiet,
    /// As soon as a save is reported complete.
    AfterSave,
    /// At some time after a save was asked for: before, during or shortly after it.
    DuringSave,
}

/// How a round starts the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Start {
    Plain,
    /// Kills the server that many times before it has started.
    Interrupted(u32),
    /// Kills the server once it answers, while it warms up.
    KilledWarm,
    /// Kills it then, and starts the load of the round without looking at the data.
    LoadAtOnce,
}

/// What the rounds came across: a run that met none of it has shown nothing.
#[derive(Default, Debug)]
struct Tally {
    round_count: u32,
    op_count: usize,
    kept_op_count: usize,
    completed_save_count: u32,
    /// A save had been asked for and was not known to be complete.
    killed_in_flight: u32,
    /// Of these, those after which the checkpoint in flight was there.
    in_flight_survived: u32,
    interrupted_start_count: u32,
    /// Rounds that began before all pages were back.
    warm_count: u32,
    reload_count: u32,
    dump_count: u32,
    /// Pages whose memory was given back, and of these, pages that were written first.
    evicted_page_count: u64,
    written_back_page_count: u64,
    slowest_start: Duration,
}

/// What is known of the checkpoints since the last look at the data.
#[derive(Clone, Copy)]
struct Saves {
    /// The last that was reported complete; the data at the last look, if there was none since.
    completed: Window,
    in_flight: Option<Window>,
}

impl Saves {
    const NONE: Saves = Saves { completed: Window { from_ns: 0, to_ns: 0 }, in_flight: None };

    fn windows(&self) -> Vec<Window> {
        [Some(self.completed), self.in_flight].into_iter().flatten().collect()
    }
}

struct Runner {
    rng: fastrand::Rng,
    clock: Clock,
    dir: TempDir,
    load: Load,
    clients: Clients,
    saves: Saves,
    /// A guess at how long a save takes.
    save_ns: Nanos,
    extra_args: &'static [&'static str],
    tally: Tally,
}

impl Runner {
    fn new(seed: u64, load: Load, extra_args: &'static [&'static str]) -> Runner {
        Runner {
            rng: fastrand::Rng::with_seed(seed),
            clock: Clock::start(),
            dir: TempDir::new("crash"),
            load,
            clients: load.clients(seed, extra_args != LITTLE_MEMORY),
            saves: Saves::NONE,
            save_ns: 20_000_000,
            extra_args,
            tally: Tally::default(),
        }
    }

    /// A start with other options each time.
    fn setup(&mut self) -> Launch {
        let budget = *self.rng.choice(&["1mb", "4mb", "64mb"]).expect("one of three");
        let workers = *self.rng.choice(&["1", "2", "3", "4"]).expect("one of four");
        let engine = *self.rng.choice(&["auto", "threads"]).expect("one of two");
        let direct = *self.rng.choice(&["auto", "auto", "no"]).expect("one of three");
        let options = [
            "--snapshot-memory",
            budget,
            "--io-threads",
            workers,
            "--io-engine",
            engine,
            "--direct-io",
            direct,
        ];
        let setup = server_in(self.dir.path(), self.dir.path()).with(&options).with(self.extra_args);
        if !self.load.has_ledgers() {
            return setup;
        }
        // The others want all data in memory.
        let may_be_other = !self.is_small() && !self.extra_args.contains(&"--snapshotter");
        let other = self
            .rng
            .choice(algorithms::others().collect::<Vec<_>>())
            .filter(|_| may_be_other && self.rng.bool());
        let algorithm = other.map_or(Vec::new(), algorithms::flags);
        setup.with(&["--enable-debug-command", "yes"]).with(&algorithm)
    }

    /// Whether there is more data than memory.
    fn is_small(&self) -> bool {
        self.extra_args.contains(&"--maxmemory")
    }

    fn start(&mut self) -> Process {
        let (server, took) = self.setup().start();
        assert!(took < SLOWEST_START, "the start took {took:?}\n{}", server.log());
        self.tally.slowest_start = self.tally.slowest_start.max(took);
        assert_eq!(server.warnings(), Vec::<String>::new(), "a start after a kill is nothing to warn of");
        server
    }

    fn sleep_up_to(&mut self, longest_ns: Nanos) {
        std::thread::sleep(Duration::from_nanos(self.rng.u64(..=longest_ns)));
    }

    /// Starts the server in one of the ways, and checks the data unless it is to be loaded at once.
    fn start_as(&mut self, how: Start) -> Process {
        match how {
            Start::Plain => {}
            Start::Interrupted(count) => (0..count).for_each(|_| {
                let server = self.setup().spawn();
                self.sleep_up_to(12_000_000);
                server.kill();
                self.tally.interrupted_start_count += 1;
            }),
            Start::KilledWarm | Start::LoadAtOnce => {
                let server = self.start();
                let known = how == Start::LoadAtOnce;
                if known {
                    self.check(&server);
                }
                server.kill();
                self.tally.interrupted_start_count += 1;
                if known {
                    return self.start();
                }
            }
        }
        let server = self.start();
        self.check(&server);
        server
    }

    /// Whatever is there must be of one instant, within the last completed checkpoint's or the one's in flight.
    fn check(&mut self, server: &Process) {
        let in_flight = self.saves.in_flight.is_some();
        let picture = check_picture(&mut server.client(), &mut self.clients, &self.saves.windows());
        self.tally.killed_in_flight += u32::from(in_flight);
        self.tally.in_flight_survived += u32::from(picture.window == 1);
        self.tally.kept_op_count += picture.op_count;
        self.saves = Saves::NONE;
    }

    fn round(&mut self, start: Start, kill: Kill) {
        let server = self.start_as(start);
        let (stop, is_killing) = (AtomicBool::new(false), AtomicBool::new(false));
        let is_warm = server.client().info("warmup_in_progress") == "0";
        self.tally.warm_count += u32::from(!is_warm);
        let none = Clients { lanes: Vec::new(), ledgers: Vec::new() };
        let (clock, mut clients) = (self.clock, std::mem::replace(&mut self.clients, none));
        std::thread::scope(|scope| {
            let (stop, is_killing, server_ref) = (&stop, &is_killing, &server);
            let check = move |result: std::io::Result<()>| {
                if let Err(error) = result {
                    let expected = is_killing.load(Ordering::SeqCst);
                    assert!(expected, "the connection broke: {error}\n{}", server_ref.log());
                }
            };
            for lane in &mut clients.lanes {
                scope.spawn(move || check(lane.run(server_ref, clock, stop)));
            }
            for ledger in &mut clients.ledgers {
                scope.spawn(move || check(ledger.run(server_ref, clock, stop)));
            }
            self.save_and_kill(server_ref, kill, is_killing);
            stop.store(true, Ordering::SeqCst);
        });
        let warnings = server.warnings();
        server.kill();
        assert_eq!(warnings, Vec::<String>::new(), "nothing went wrong before the kill");
        self.tally.round_count += 1;
        self.tally.op_count += clients.op_count();
        self.clients = clients;
    }

    /// Runs saves while the load runs, then kills.
    fn save_and_kill(&mut self, server: &Process, kill: Kill, is_killing: &AtomicBool) {
        let mut conn = server.client();
        let save_count = self.rng.u32(..4) + u32::from(kill == Kill::AfterSave);
        for number in 0..save_count {
            if number > 0 || self.rng.bool() {
                self.sleep_up_to(40_000_000);
            }
            self.save(&mut conn);
        }
        if self.is_small() {
            self.note_evictions(&mut conn);
        }
        match kill {
            Kill::AfterSave => {}
            Kill::Quiet => self.sleep_up_to(60_000_000),
            Kill::DuringSave => {
                self.sleep_up_to(40_000_000);
                let from_ns = self.clock.now_ns();
                conn.queue_line("BGSAVE");
                conn.flush().expect("a connection");
                self.saves.in_flight = Some(Window { from_ns, to_ns: NEVER });
                self.sleep_up_to(self.save_ns * 5 / 4);
            }
        }
        is_killing.store(true, Ordering::SeqCst);
        server.signal(Signal::KILL);
    }

    fn note_evictions(&mut self, conn: &mut Client) {
        let mut count = |name: &str| conn.info(name).parse::<u64>().expect("a number");
        self.tally.evicted_page_count += count("data_pages_evicted");
        self.tally.written_back_page_count += count("data_pages_written_back");
    }

    /// One save, waited for.
    fn save(&mut self, conn: &mut Client) {
        let command = match self.rng.u32(..12) {
            0..=1 => "SAVE",
            // In little memory it would wait for room that nobody makes while all others stand still.
            2 if self.load.has_ledgers() && !self.is_small() => "DEBUG RELOAD",
            3 if self.load.has_ledgers() => "BGSAVE RDB",
            _ => "BGSAVE",
        };
        self.tally.reload_count += u32::from(command == "DEBUG RELOAD");
        self.tally.dump_count += u32::from(command == "BGSAVE RDB");
        let from_ns = self.clock.now_ns();
        assert!(conn.save_in_background(command), "{command} has failed");
        let to_ns = self.clock.now_ns();
        self.saves.completed = Window { from_ns, to_ns };
        self.save_ns = (3 * self.save_ns + (to_ns - from_ns)) / 4;
        self.tally.completed_save_count += 1;
    }

    fn run(&mut self, round_count: u32) {
        let given = std::env::var("STILLFRAME_KILLS").ok().and_then(|count| count.parse().ok());
        let round_count = given.unwrap_or(round_count);
        if self.load.has_ledgers() {
            let server = self.start();
            store_filler(&mut server.client());
            server.kill();
        }
        for _ in 0..round_count {
            let start = match self.rng.u32(..10) {
                0 => Start::Interrupted(1 + self.rng.u32(..3)),
                1 => Start::KilledWarm,
                2 => Start::LoadAtOnce,
                3..=6 if self.load.has_ledgers() => Start::LoadAtOnce,
                _ => Start::Plain,
            };
            let kill = match self.rng.u32(..10) {
                0..=1 => Kill::Quiet,
                2..=3 => Kill::AfterSave,
                _ => Kill::DuringSave,
            };
            self.round(start, kill);
        }
        let server = self.start();
        self.check(&server);
        println!("{:?}", self.tally);
        let Tally { killed_in_flight, in_flight_survived, op_count, kept_op_count, .. } = self.tally;
        // Of few rounds chance may leave out anything.
        if round_count >= 25 {
            assert!(killed_in_flight > round_count / 4, "{:?}", self.tally);
            assert!((1..killed_in_flight).contains(&in_flight_survived), "{:?}", self.tally);
        }
        assert!(op_count > self.load.least_ops() * round_count as usize, "{:?}", self.tally);
        assert!((1..op_count).contains(&kept_op_count), "{:?}", self.tally);
        if self.is_small() {
            assert!(self.tally.evicted_page_count > 0, "{:?}", self.tally);
        }
    }
}

#[test]
fn a_kill_takes_the_data_back_to_the_last_checkpoint_and_no_further() {
    Runner::new(stillframe_testkit::seed(), Load::Lanes, &[]).run(100);
}

#[test]
fn so_it_does_with_the_fork_snapshotter() {
    Runner::new(stillframe_testkit::seed(), Load::Lanes, &["--snapshotter", "fork"]).run(25);
}

/// Transactions and commands that wait, or concern whole databases, are in a checkpoint or they are not.
#[test]
fn a_kill_takes_transactions_back_as_a_whole() {
    Runner::new(stillframe_testkit::seed(), Load::Mixed, &[]).run(20);
}

#[test]
fn a_kill_takes_back_what_concerns_all_databases_as_a_whole() {
    Runner::new(stillframe_testkit::seed(), Load::Alone, &[]).run(20);
}

/// So it is where most of the data is in the page file alone. Pages that were written between two saves are nothing that
/// a restart finds.
#[test]
fn a_kill_takes_back_what_memory_did_not_hold() {
    Runner::new(stillframe_testkit::seed(), Load::Mixed, LITTLE_MEMORY).run(15);
}

/// A server that is killed while it makes its directory what it needs starts on what is left.
#[test]
fn a_kill_during_the_first_start_leaves_nothing_in_the_way() {
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed());
    for round in 0..20 {
        let dir = TempDir::new("first");
        let setup = server_in(dir.path(), dir.path());
        let server = setup.spawn();
        std::thread::sleep(Duration::from_micros(rng.u64(..10_000)));
        server.kill();
        let (server, _) = setup.start();
        assert_eq!(server.warnings(), Vec::<String>::new());
        let mut conn = server.client();
        assert_eq!(conn.run("DBSIZE").integer(), Some(0));
        conn.run(&format!("SET k {round}"));
        assert!(conn.save_in_background("BGSAVE"));
        server.kill();
        let (server, _) = setup.start();
        assert_eq!(server.client().run("GET k").bytes(), Some(round.to_string().as_bytes()));
    }
}
