//! Starts, load, saves and comparisons.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use stillframe_pagepool::SnapshotKind;
use stillframe_testkit::Reply;

use crate::algorithms;
use crate::instant::{find_cut, Clock, Window};
use crate::ledger::{store_filler, Dbs, History, Ledger};
use crate::process::{server_in, Client, Process, TempDir};
use crate::saved::{self, Saved};

#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub worker_count: u32,
    pub algorithm: SnapshotKind,
    /// One client for all databases, or one for each two.
    pub has_one_lane: bool,
}

/// What the runs came across: a run that met none of it has shown nothing.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    checkpoint_count: u32,
    dump_count: u32,
    restart_count: u32,
    /// Restarts after which steps were answered before all pages were back.
    warm_count: u32,
    step_count: usize,
    look_count: usize,
}

pub struct Runner {
    rng: fastrand::Rng,
    clock: Clock,
    config: Config,
    dir: TempDir,
    lanes: Vec<Ledger>,
    tally: Tally,
}

/// How a save is asked for, and what it writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Save,
    Bgsave,
    BgsaveRdb,
    Backup,
}

impl Runner {
    pub fn new(seed: u64, config: Config) -> Runner {
        let lane_count = if config.has_one_lane { 1 } else { 3 };
        let lanes =
            (0..lane_count).map(|number| Ledger::new(seed, number, config.has_one_lane, true)).collect();
        let rng = fastrand::Rng::with_seed(seed);
        let (dir, tally) = (TempDir::new("cuts"), Tally::default());
        Runner { rng, clock: Clock::start(), config, dir, lanes, tally }
    }

    pub fn compared_count(&self) -> u32 {
        self.tally.checkpoint_count + self.tally.dump_count
    }

    pub fn tally(&self) -> Tally {
        self.tally
    }

    fn start(&mut self) -> Process {
        let budget = *self.rng.choice(&["1mb", "4mb", "64mb"]).expect("one of three");
        let workers = self.config.worker_count.to_string();
        let args = ["--io-threads", &workers, "--snapshot-memory", budget];
        let algorithm = algorithms::flags(self.config.algorithm);
        let (server, _) = server_in(self.dir.path(), self.dir.path()).with(&args).with(&algorithm).start();
        if self.tally.restart_count == 0 && !self.config.has_one_lane {
            store_filler(&mut server.client());
        }
        self.tally.restart_count += 1;
        server
    }

    /// One start, some saves under load, each compared, and a kill.
    pub fn run(&mut self, save_count: u32) {
        let server = self.start();
        let (stop, is_killing) = (AtomicBool::new(false), AtomicBool::new(false));
        let histories: Vec<_> = self.lanes.iter().map(|lane| lane.history.clone()).collect();
        let (clock, mut lanes) = (self.clock, std::mem::take(&mut self.lanes));
        let mut last = None;
        std::thread::scope(|scope| {
            let (stop, is_killing, server) = (&stop, &is_killing, &server);
            let _end = End(stop);
            let looking = scope.spawn({
                let dbs: Vec<_> = lanes.iter().flat_map(|lane| lane.dbs).collect();
                move || look(server, &dbs, stop)
            });
            for lane in &mut lanes {
                scope.spawn(move || {
                    if let Err(error) = lane.run(server, clock, stop) {
                        assert!(
                            is_killing.load(Ordering::SeqCst),
                            "the connection broke: {error}\n{}",
                            server.log()
                        );
                    }
                });
            }
            let mut conn = server.client();
            let is_warm = conn.try_info_field("stillframe", "warmup_in_progress").expect("INFO") == "0";
            self.tally.warm_count += u32::from(!is_warm);
            for _ in 0..save_count {
                std::thread::sleep(Duration::from_micros(self.rng.u64(..20_000)));
                last = self.save(&mut conn, &histories).or(last.take());
            }
            stop.store(true, Ordering::SeqCst);
            self.tally.look_count += looking.join().expect("a look that finds nothing wrong");
            is_killing.store(true, Ordering::SeqCst);
            server.signal(Signal::KILL);
        });
        server.kill();
        self.tally.step_count += histories.iter().map(|h| h.lock().unwrap().acked_count()).sum::<usize>();
        // The next start serves what was saved last; if nothing was, what this one has.
        let found = last.unwrap_or_else(|| saved::of_page_file(&self.dir.join("stillframe.pages")));
        for lane in &mut lanes {
            lane.rewind(dbs_of(&found, lane.dbs));
        }
        self.lanes = lanes;
    }

    /// Saves, and compares what was written; returns it if the next start serves it.
    fn save(&mut self, conn: &mut Client, histories: &[Arc<Mutex<History>>]) -> Option<Saved> {
        let how = match self.rng.u32(..8) {
            0..=2 => How::Save,
            3..=5 => How::Bgsave,
            6 => How::BgsaveRdb,
            _ => How::Backup,
        };
        let command = match how {
            How::Save => "SAVE",
            How::Bgsave => "BGSAVE",
            How::BgsaveRdb => "BGSAVE RDB",
            How::Backup => "BACKUP TO backup.rdb",
        };
        let from_ns = self.clock.now_ns();
        let reply = conn.run(command);
        assert!(!reply.is_error(), "{command}: {reply:?}");
        // Whatever is asked for after the reply comes after the cut.
        let window = Window { from_ns, to_ns: self.clock.now_ns() };
        assert!(conn.try_wait_for_save().expect("INFO"), "{command} has failed");
        let saved = match how {
            How::Save | How::Bgsave => saved::of_page_file(&self.dir.join("stillframe.pages")),
            How::BgsaveRdb => saved::of_dump(&self.dir.join("dump.rdb")),
            How::Backup => saved::of_dump(&self.dir.join("backup.rdb")),
        };
        let mut spans = Vec::new();
        for (number, history) in histories.iter().enumerate() {
            let found = dbs_of(&saved, [2 * number as u32, 2 * number as u32 + 1]);
            let mut history = history.lock().unwrap();
            spans.push(history.spans_of(&found));
            if find_cut(&spans[number..], &[window]).is_none() {
                panic!("{command} with {:?}, lane {number}: {}", self.config, history.explain(&found));
            }
            history.forget_before(from_ns);
        }
        assert!(find_cut(&spans, &[window]).is_some(), "{command}: not of one instant: {window:?} {spans:?}");
        let is_checkpoint = matches!(how, How::Save | How::Bgsave);
        *(if is_checkpoint { &mut self.tally.checkpoint_count } else { &mut self.tally.dump_count }) += 1;
        (how != How::Backup).then_some(saved)
    }
}

/// Ends the load also if the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn dbs_of(saved: &Saved, numbers: [u32; 2]) -> Dbs {
    numbers.map(|number| saved.get(&number).cloned().unwrap_or_default())
}

/// Looks at the databases from outside as long as they are changed: head and tail of a ledger are of the same step.
/// Returns how often it has looked.
fn look(server: &Process, dbs: &[u32], stop: &AtomicBool) -> usize {
    let mut conn = server.client();
    let mut count = 0;
    while !stop.load(Ordering::SeqCst) {
        for db in dbs {
            conn.run(&format!("SELECT {db}"));
            let reply = conn.run("MGET head tail");
            let [head, tail] = reply.items() else { panic!("{reply:?}") };
            assert!(head == tail, "db {db} was seen in the middle of a transaction: {head:?} {tail:?}");
            let is_known = |reply: &Reply| reply.integer().is_some_and(|count| count >= 0);
            assert!(is_known(&conn.run("DBSIZE")));
            count += 1;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    count
}
