//! What a worker keeps for itself while it executes a batch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stillframe_store::{Alone, Worker};

use crate::command::CommandId;
use crate::config::Settings;
use crate::protocol::reply::Replies;
use crate::state::busy::Busy;
use crate::state::listener::Heard;
use crate::state::lua::Lua;
use crate::state::session::LateReply;
use crate::state::stats::WorkerStats;
use crate::state::token::Token;
use crate::state::waiting::Waiter;

/// A reply that has come for a client of this worker.
pub struct Delivery {
    pub token: Token,
    pub reply: LateReply,
    pub bytes: Replies,
}

/// Command times without a clock reading per command: quick commands share the time of their batch evenly,
/// those that may be slow are measured one by one.
pub struct Local {
    /// The number of the worker.
    pub worker: usize,
    pub stats: Arc<WorkerStats>,
    /// Measure every command by itself (a low slow-log threshold asks for it).
    pub time_each: bool,
    pub latency_tracking: bool,
    /// Memory is over its bound still: the worker goes on evicting keys between rounds.
    pub is_evicting: bool,
    /// Replies of clients that have waited, to be handed out after the batch.
    pub deliveries: Vec<Delivery>,
    /// Room for what a connection has been told, on its way to the output.
    pub heard: Vec<Heard>,
    /// Calls of clients that have waited and been answered, with the time that the answer took, to be noted.
    pub served: Vec<(Arc<Waiter>, Duration)>,
    /// Clients of this worker that do not wait for ever, by when their time is over and the order in which they came.
    pub deadlines: BTreeMap<(Instant, u64), Arc<Waiter>>,
    /// What scripts run with, once there has been one.
    pub lua: Option<Box<Lua>>,
    /// The script that runs has stopped all others, until its step has ended.
    pub alone: Option<Alone>,
    /// Lets others serve this worker's connections until the command that runs has ended; once is enough.
    pub hands_over: Option<Box<dyn FnMut()>>,
    /// What the store had removed, keys and fields of hashes, when it was counted last.
    expired: (u64, u64),
    batch_start: Instant,
    /// The last time the clock was read.
    last_reading: Instant,
    /// Time of this batch that commands measured by themselves have taken.
    measured: Duration,
    /// Unmeasured calls of this batch, by command.
    counts: Box<[u32]>,
    counted: Vec<CommandId>,
    count: u32,
}

impl Local {
    pub fn new(worker: usize, stats: Arc<WorkerStats>) -> Local {
        let counts = vec![0; stats.command_count()].into();
        Local {
            worker,
            stats,
            time_each: false,
            latency_tracking: true,
            is_evicting: false,
            deliveries: Vec::new(),
            heard: Vec::new(),
            served: Vec::new(),
            deadlines: BTreeMap::new(),
            lua: None,
            alone: None,
            hands_over: None,
            expired: (0, 0),
            batch_start: Instant::now(),
            last_reading: Instant::now(),
            measured: Duration::ZERO,
            counts,
            counted: Vec::new(),
            count: 0,
        }
    }

    /// The settings in force are these from now on.
    pub fn follow(&mut self, settings: &Settings) {
        self.latency_tracking = settings.latency_tracking;
        self.time_each = settings.slowlog_threshold.is_some_and(|t| t < Duration::from_millis(1))
            || settings.latency_threshold.is_some_and(|t| t < Duration::from_millis(2));
    }

    /// A script has been running for long, here or where this worker has to wait for it: others serve its connections.
    pub fn hand_over(&mut self) {
        self.hands_over.iter_mut().for_each(|hand_over| hand_over());
    }

    /// The same while this worker waits for something that may be such a script.
    pub fn stand_aside(&mut self, busy: &Busy) {
        if busy.is_on() {
            self.hand_over();
        }
    }

    /// Until the first of those who wait waits no longer.
    pub fn time_to_deadline(&self) -> Duration {
        let first = self.deadlines.first_key_value();
        first.map_or(Duration::MAX, |((deadline, _), _)| deadline.saturating_duration_since(Instant::now()))
    }

    pub fn begin_batch(&mut self) {
        self.batch_start = Instant::now();
        self.last_reading = self.batch_start;
        self.measured = Duration::ZERO;
    }

    /// A command has run that now waits for a key: how long it takes is known when it is answered.
    pub fn began_to_wait(&mut self, id: CommandId, time: Duration) {
        self.stats.commands.add(1);
        self.stats.command(id).record(1, nanos(time), false);
        self.measured += time;
        self.last_reading += time;
    }

    /// A command that has waited has been answered: in `answer`, and in `whole` with what it took before it waited.
    pub fn ended_to_wait(&mut self, id: CommandId, answer: Duration, whole: Duration) {
        let stats = self.stats.command(id);
        stats.nanos.add(nanos(answer));
        if self.latency_tracking {
            stats.record_time(1, nanos(whole));
        }
    }

    /// Counts what the worker has found expired and removed since the last time.
    pub fn count_expired(&mut self, worker: &Worker) {
        let before =
            std::mem::replace(&mut self.expired, (worker.expired_counts().0, worker.expired_counts().1));
        self.stats.expired.add(self.expired.0 - before.0);
        self.stats.expired_fields.add(self.expired.1 - before.1);
    }

    /// A command has run that shares the batch's time.
    pub fn count(&mut self, id: CommandId) {
        let count = &mut self.counts[id.0 as usize];
        if *count == 0 {
            self.counted.push(id);
        }
        *count += 1;
        self.count += 1;
    }

    /// Time since the clock was last read: an upper bound for the command that has just run, and a close one if
    /// that took long.
    pub fn since_last_reading(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.last_reading, now)
    }

    /// A command has run that was measured by itself. `outer` says whether its time is not part of another
    /// measured command's (`EXEC`).
    pub fn measured(&mut self, id: CommandId, time: Duration, outer: bool) {
        self.stats.commands.add(1);
        self.stats.command(id).record(1, nanos(time), self.latency_tracking);
        if outer {
            self.measured += time;
            self.last_reading += time;
        }
    }

    /// Shares the batch's time among the commands that have not been measured.
    pub fn end_batch(&mut self) {
        self.stats.batches.add(1);
        if self.count == 0 {
            return;
        }
        let shared = self.batch_start.elapsed().saturating_sub(self.measured);
        let each_ns = nanos(shared) / u64::from(self.count);
        for id in self.counted.drain(..) {
            let count = std::mem::take(&mut self.counts[id.0 as usize]);
            self.stats.command(id).record(u64::from(count), each_ns, self.latency_tracking);
        }
        self.stats.commands.add(u64::from(self.count));
        self.count = 0;
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
