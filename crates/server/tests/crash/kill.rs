//! `kill -9` at random points under write load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::lane::{Clock, Lane, Nanos, NEVER};
use crate::process::{Conn, Server, Setup, TempDir};
use crate::verify::{check_picture, Window};

const LANE_COUNT: u32 = 4;
/// A start that takes longer is a failure, also on a busy machine.
const SLOWEST_START: Duration = Duration::from_secs(5);

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
    lanes: Vec<Lane>,
    saves: Saves,
    /// A guess at how long a save takes.
    save_ns: Nanos,
    extra_args: &'static [&'static str],
    tally: Tally,
}

impl Runner {
    fn new(seed: u64, extra_args: &'static [&'static str]) -> Runner {
        Runner {
            rng: fastrand::Rng::with_seed(seed),
            clock: Clock::start(),
            dir: TempDir::new("crash"),
            lanes: (1..=LANE_COUNT).map(|db| Lane::new(seed, db)).collect(),
            saves: Saves::NONE,
            save_ns: 20_000_000,
            extra_args,
            tally: Tally::default(),
        }
    }

    /// A start with other options each time.
    fn setup(&mut self) -> Setup {
        let budget = *self.rng.choice(&["1mb", "4mb", "64mb"]).expect("one of three");
        let workers = *self.rng.choice(&["1", "2", "3"]).expect("one of three");
        let options = ["--snapshot-memory", budget, "--io-threads", workers];
        Setup::new(self.dir.path(), self.dir.path()).with(&options).with(self.extra_args)
    }

    fn start(&mut self) -> Server {
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
    fn start_as(&mut self, how: Start) -> Server {
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
    fn check(&mut self, server: &Server) {
        let in_flight = self.saves.in_flight.is_some();
        let picture = check_picture(&mut server.conn(), &mut self.lanes, &self.saves.windows());
        self.tally.killed_in_flight += u32::from(in_flight);
        self.tally.in_flight_survived += u32::from(picture.window == 1);
        self.tally.kept_op_count += picture.op_count;
        self.saves = Saves::NONE;
    }

    fn round(&mut self, start: Start, kill: Kill) {
        let server = self.start_as(start);
        let (stop, is_killing) = (AtomicBool::new(false), AtomicBool::new(false));
        let (clock, mut lanes) = (self.clock, std::mem::take(&mut self.lanes));
        std::thread::scope(|scope| {
            let (stop, is_killing, server_ref) = (&stop, &is_killing, &server);
            for lane in &mut lanes {
                scope.spawn(move || {
                    if let Err(error) = lane.run(server_ref, clock, stop) {
                        let expected = is_killing.load(Ordering::SeqCst);
                        assert!(expected, "the connection broke: {error}\n{}", server_ref.log());
                    }
                });
            }
            self.save_and_kill(server_ref, kill, is_killing);
            stop.store(true, Ordering::SeqCst);
        });
        let warnings = server.warnings();
        server.kill();
        assert_eq!(warnings, Vec::<String>::new(), "nothing went wrong before the kill");
        self.tally.round_count += 1;
        self.tally.op_count += lanes.iter().map(Lane::op_count).sum::<usize>();
        self.lanes = lanes;
    }

    /// Runs saves while the load runs, then kills.
    fn save_and_kill(&mut self, server: &Server, kill: Kill, is_killing: &AtomicBool) {
        let mut conn = server.conn();
        let save_count = self.rng.u32(..4) + u32::from(kill == Kill::AfterSave);
        for number in 0..save_count {
            if number > 0 || self.rng.bool() {
                self.sleep_up_to(40_000_000);
            }
            self.save(&mut conn);
        }
        match kill {
            Kill::AfterSave => {}
            Kill::Quiet => self.sleep_up_to(60_000_000),
            Kill::DuringSave => {
                self.sleep_up_to(40_000_000);
                let from_ns = self.clock.now_ns();
                conn.queue_text("BGSAVE");
                conn.flush().expect("a connection");
                self.saves.in_flight = Some(Window { from_ns, to_ns: NEVER });
                self.sleep_up_to(self.save_ns * 5 / 4);
            }
        }
        is_killing.store(true, Ordering::SeqCst);
        server.send_kill();
    }

    /// One save, waited for.
    fn save(&mut self, conn: &mut Conn) {
        let command = if self.rng.u32(..6) == 0 { "SAVE" } else { "BGSAVE" };
        let from_ns = self.clock.now_ns();
        assert!(conn.save_in_background(command), "{command} has failed");
        let to_ns = self.clock.now_ns();
        self.saves.completed = Window { from_ns, to_ns };
        self.save_ns = (3 * self.save_ns + (to_ns - from_ns)) / 4;
        self.tally.completed_save_count += 1;
    }

    fn run(&mut self, round_count: u32) {
        for _ in 0..round_count {
            let start = match self.rng.u32(..10) {
                0 => Start::Interrupted(1 + self.rng.u32(..3)),
                1 => Start::KilledWarm,
                2 => Start::LoadAtOnce,
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
        assert!(killed_in_flight > round_count / 4, "{:?}", self.tally);
        assert!((1..killed_in_flight).contains(&in_flight_survived), "{:?}", self.tally);
        assert!(op_count > 100 * round_count as usize, "{:?}", self.tally);
        assert!((1..op_count).contains(&kept_op_count), "{:?}", self.tally);
    }
}

#[test]
fn a_kill_takes_the_data_back_to_the_last_checkpoint_and_no_further() {
    Runner::new(crate::seed(), &[]).run(100);
}

#[test]
fn so_it_does_with_the_fork_snapshotter() {
    Runner::new(crate::seed(), &["--snapshotter", "fork"]).run(25);
}

/// A server that is killed while it makes its directory what it needs starts on what is left.
#[test]
fn a_kill_during_the_first_start_leaves_nothing_in_the_way() {
    let mut rng = fastrand::Rng::with_seed(crate::seed());
    for round in 0..20 {
        let dir = TempDir::new("first");
        let setup = Setup::new(dir.path(), dir.path());
        let server = setup.spawn();
        std::thread::sleep(Duration::from_micros(rng.u64(..10_000)));
        server.kill();
        let (server, _) = setup.start();
        assert_eq!(server.warnings(), Vec::<String>::new());
        let mut conn = server.conn();
        assert_eq!(conn.ask("DBSIZE").integer(), Some(0));
        conn.ask(&format!("SET k {round}"));
        assert!(conn.save_in_background("BGSAVE"));
        server.kill();
        let (server, _) = setup.start();
        assert_eq!(server.conn().ask("GET k").bytes(), Some(round.to_string().as_bytes()));
    }
}
