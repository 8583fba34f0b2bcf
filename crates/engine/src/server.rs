//! What all workers share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use stillframe_store::{Fault, Listener, Store, UnixMillis, Worker};

use crate::clock::unix_ms;
use crate::config::{Config, OnSignal, Settings};
use crate::eviction::{Eviction, MemoryRoom};
use crate::log;
use crate::persistence::{self, Host, SaveWaiter, Saver};
use crate::scrub::Scrubber;
use crate::sockets::Sockets;
use crate::state::busy::Busy;
use crate::state::clients::{ClientInfo, Clients};
use crate::state::data_log::DataLog;
use crate::state::exceptions::{Exceptions, Matter};
use crate::state::heap::Heap;
use crate::state::latency::LatencyMonitor;
use crate::state::listener;
use crate::state::loading::Loading;
use crate::state::mailbox::{Mailbox, Message};
use crate::state::notify::Notifier;
use crate::state::pause::{Pause, PauseKind};
use crate::state::pubsub::PubSub;
use crate::state::reply_gate::ReplyGate;
use crate::state::scripts::Scripts;
use crate::state::slowlog::Slowlog;
use crate::state::stats::{ServerStats, WorkerStats};
use crate::state::token::Token;
use crate::state::turns::Turns;
use crate::state::waiting::Waiters;
use crate::state::watch::WatchTable;

/// A worker as the others see it.
pub struct WorkerHandle {
    pub mailbox: Arc<Mailbox>,
    pub stats: Arc<WorkerStats>,
}

impl WorkerHandle {
    fn new(command_count: usize) -> std::io::Result<WorkerHandle> {
        let stats = Arc::new(WorkerStats::new(command_count));
        Ok(WorkerHandle { mailbox: Arc::new(Mailbox::new()?), stats })
    }
}

pub struct Server {
    pub store: Store,
    pub worker_count: usize,
    pub database_count: u32,
    /// Off after `DEBUG SET-ACTIVE-EXPIRE 0`.
    pub active_expire: AtomicBool,
    /// After `DEBUG PAUSE-CRON 1` the rounds of `hz` rest.
    pub is_cron_paused: AtomicBool,
    /// After `DEBUG SET-SKIP-CHECKSUM-VALIDATION 1` those of payloads and dumps are not looked at.
    pub skips_checksums: AtomicBool,
    pub workers: Vec<WorkerHandle>,
    pub started_at: Instant,
    pub started_unix_ms: UnixMillis,
    /// 40 random hexadecimal digits.
    pub run_id: String,
    /// Where clients come in.
    pub sockets: Arc<dyn Sockets>,
    config: Mutex<Arc<Config>>,
    config_version: AtomicU64,
    pub watches: Arc<WatchTable>,
    pub pubsub: Arc<PubSub>,
    pub notifier: Arc<Notifier>,
    /// Replies that wait until what they tell of is durable.
    pub reply_gate: Arc<ReplyGate>,
    /// Clients that wait for a key to hold something.
    pub waiters: Arc<Waiters>,
    /// Of the threads that write large replies.
    pub turns: Turns,
    pub heap: Arc<Heap>,
    pub clients: Clients,
    pub pause: Pause,
    /// Clients in `MONITOR`.
    pub monitors: Mutex<Vec<Arc<listener::Listener>>>,
    pub slowlog: Mutex<Slowlog>,
    pub latency: LatencyMonitor,
    pub stats: ServerStats,
    /// When the log has last told of a request of another protocol; 0 is never.
    pub attack_warned_unix_ms: AtomicI64,
    /// By database: how long keys with a deadline live on average, estimated from samples.
    pub average_ttl_ms: Vec<AtomicI64>,
    /// Error replies by their code (`errorstats`).
    pub errors: Mutex<BTreeMap<String, u64>>,
    /// What is known of the log of changes.
    pub data_log: DataLog,
    pub saver: Saver,
    pub eviction: Eviction,
    pub scrubber: Scrubber,
    /// Scripts that are known.
    pub scripts: Scripts,
    /// What of them runs for long.
    pub busy: Arc<Busy>,
    /// The dump that is read at the start.
    pub loading: Loading,
    /// Changes of the store that were the load of it.
    loaded_changes: AtomicU64,
    /// The server is about to end: commands wait for what becomes of it.
    pub is_stopping: AtomicBool,
    pub exceptions: Exceptions,
    has_stopped: Mutex<bool>,
    stopped: Condvar,
}

/// 40 random hexadecimal digits.
fn new_run_id() -> String {
    (0..40).map(|_| char::from_digit(fastrand::u32(..16), 16).unwrap_or('0')).collect()
}

impl Server {
    /// `further` hear of the store's changes, too.
    ///
    /// # Errors
    /// The process has no descriptor left for the workers' mailboxes.
    pub fn new(
        store: Store,
        config: Config,
        sockets: Arc<dyn Sockets>,
        command_count: usize,
        further: Vec<Arc<dyn Listener>>,
    ) -> std::io::Result<Arc<Server>> {
        let settings = &config.settings;
        let handle = |_| WorkerHandle::new(command_count);
        let average_ttl_ms = (0..settings.databases).map(|_| AtomicI64::new(0)).collect();
        let workers = (0..settings.workers).map(handle).collect::<std::io::Result<Vec<_>>>()?;
        let watches = Arc::new(WatchTable::default());
        let mailboxes: Vec<_> = workers.iter().map(|worker| worker.mailbox.clone()).collect();
        let pubsub = Arc::new(PubSub::new(mailboxes.clone()));
        let exceptions = Exceptions::of(store.conditions());
        let reply_gate = Arc::new(ReplyGate::new(&exceptions, mailboxes));
        exceptions.set(Matter::BOUNDED, settings.maxmemory_bytes > 0);
        let notifier =
            Arc::new(Notifier::new(pubsub.clone(), reply_gate.clone(), settings.notified, &exceptions));
        let waiters = Arc::new(Waiters::new(&exceptions));
        let mut heard_by: Vec<Arc<dyn Listener>> = vec![watches.clone(), notifier.clone(), waiters.clone()];
        heard_by.extend(further);
        // Behind whatever makes units.
        heard_by.extend(reply_gate.listeners());
        store.listen(heard_by);
        store.accesses().track(settings.tracking(), unix_ms());
        Ok(Arc::new(Server {
            store,
            worker_count: workers.len(),
            database_count: settings.databases,
            workers,
            started_at: Instant::now(),
            started_unix_ms: unix_ms(),
            run_id: new_run_id(),
            sockets,
            config: Mutex::new(Arc::new(config)),
            config_version: AtomicU64::new(1),
            watches,
            pubsub,
            notifier,
            reply_gate,
            waiters,
            turns: Turns::default(),
            heap: Arc::default(),
            clients: Clients::default(),
            pause: Pause::new(&exceptions),
            monitors: Mutex::default(),
            slowlog: Mutex::default(),
            latency: LatencyMonitor::default(),
            stats: ServerStats::default(),
            average_ttl_ms,
            attack_warned_unix_ms: AtomicI64::new(0),
            errors: Mutex::default(),
            data_log: DataLog::default(),
            saver: Saver::default(),
            eviction: Eviction::default(),
            scrubber: Scrubber::default(),
            scripts: Scripts::default(),
            busy: Arc::default(),
            loading: Loading::new(&exceptions),
            loaded_changes: AtomicU64::new(0),
            active_expire: AtomicBool::new(true),
            is_cron_paused: AtomicBool::new(false),
            skips_checksums: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            exceptions,
            has_stopped: Mutex::new(false),
            stopped: Condvar::new(),
        }))
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.lock().clone()
    }

    /// Rises with every change of the configuration, so that a worker need not lock to see that there is none.
    #[inline]
    pub fn config_version(&self) -> u64 {
        self.config_version.load(Ordering::Acquire)
    }

    /// Memory of the data, of what is known of it, of all that clients hold, of scripts, and of what waits to be logged.
    pub fn used_memory_bytes(&self) -> u64 {
        let of_scripts = self.sum(|stats| stats.lua_bytes.get()) + self.scripts.counts().1 as u64;
        let of_log = self.store.log().buffered_bytes();
        self.store.used_memory_bytes() + self.clients.memory_bytes() + of_scripts + of_log
    }

    /// Changes the configuration as a whole or not at all.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn update_config<E>(&self, change: impl FnOnce(&mut Config) -> Result<(), E>) -> Result<(), E> {
        let mut present = self.config.lock();
        let mut next = Config::clone(&present);
        change(&mut next)?;
        // Under the lock: of two changes the later one is what holds.
        self.exceptions.set(Matter::BOUNDED, next.settings.maxmemory_bytes > 0);
        self.notifier.set_events(next.settings.notified);
        *present = Arc::new(next);
        self.config_version.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Sends a message to the worker that has the client.
    pub fn send(&self, client: &ClientInfo, message: impl FnOnce(Token) -> Message) {
        self.workers[client.worker].mailbox.send(message(client.token()));
    }

    /// Brings in what a command of a worker misses, and tells that worker then.
    pub fn load(self: &Arc<Server>, worker: usize, fault: Fault, loaded: Message) {
        let server = self.clone();
        let done = move || server.workers[worker].mailbox.send(loaded);
        self.store.load(fault, Box::new(done));
    }

    fn send_all(&self, message: impl Fn() -> Message) {
        self.workers.iter().for_each(|w| w.mailbox.send(message()));
    }

    /// Ends the server without saving.
    pub fn stop(&self) {
        self.set_stopping(true);
        self.send_all(|| Message::Stop);
        self.saver.end();
        self.scrubber.end();
        *self.has_stopped.lock() = true;
        self.stopped.notify_all();
    }

    fn set_stopping(&self, is_stopping: bool) {
        let _change = self.has_stopped.lock();
        self.is_stopping.store(is_stopping, Ordering::Release);
        self.exceptions.set(Matter::STOPPING, is_stopping);
    }

    /// Takes back that the server is about to end.
    pub fn stay(&self) {
        self.set_stopping(false);
        self.wake_paused();
    }

    /// Lets commands that wait for the end of a pause look again.
    pub fn wake_paused(&self) {
        self.send_all(|| Message::PauseChanged);
    }

    /// Ends the server as `SHUTDOWN` or a signal asks: commands wait from now on, so that none is answered whose
    /// effect the last save does not hold.
    pub fn shut_down(&self, how: OnSignal, even_if_failed: bool, waiter: Option<SaveWaiter>) {
        let config = self.config();
        let settings = &config.settings;
        self.set_stopping(true);
        let must_save = match how {
            // Half of the data must not take the place of the dump that it comes from.
            _ if self.loading.is_on() => false,
            OnSignal::Default => !settings.save_points.is_empty(),
            OnSignal::Save => true,
            OnSignal::NoSave => false,
        };
        if must_save {
            log::notice("Saving the final snapshot before exiting.");
            self.saver.save_and_stop(persistence::default_target(settings), waiter, even_if_failed);
        } else {
            self.stop();
        }
    }

    /// Waits until [`Server::stop`].
    pub fn wait_for_stop(&self) {
        let mut has_stopped = self.has_stopped.lock();
        while !*has_stopped {
            self.stopped.wait(&mut has_stopped);
        }
    }

    /// Counts an error reply by its code.
    pub fn count_error(&self, text: &[u8]) {
        let code = text.split(|&b| b == b' ').next().unwrap_or_default();
        let mut errors = self.errors.lock();
        match std::str::from_utf8(code).ok().and_then(|c| errors.get_mut(c)) {
            Some(count) => *count += 1,
            None => drop(errors.insert(String::from_utf8_lossy(code).into_owned(), 1)),
        }
    }

    /// Changes of the data set since the start, as Redis counts them.
    pub fn change_count(&self) -> u64 {
        let recounted = self.workers.iter().map(|w| w.stats.recounted_changes.get());
        let counted = self.store.change_count() - self.loaded_changes.load(Ordering::Acquire);
        recounted.fold(counted, u64::wrapping_add)
    }

    /// Lets keys go if memory is over its bound, and says whether there is room then. For the time between two commands.
    pub fn make_room(&self, worker: &mut Worker, settings: &Settings) -> MemoryRoom {
        // The data stays as it is.
        if self.loading.is_on() || self.pause.kind(worker.now()) != PauseKind::None {
            return MemoryRoom::Enough;
        }
        let (room, time) = self.eviction.make_room(worker, settings);
        if let Some(time) = time {
            self.latency.record("eviction-cycle", time, settings.latency_threshold);
        }
        room
    }

    /// What was read at the start are no changes.
    pub fn end_loading(&self) {
        self.loaded_changes.store(self.store.change_count(), Ordering::Release);
        self.loading.end();
    }

    /// A sum over the workers.
    pub fn sum(&self, counter: impl Fn(&WorkerStats) -> u64) -> u64 {
        self.workers.iter().map(|w| counter(&w.stats)).sum()
    }
}

impl Host for Server {
    fn saver(&self) -> &Saver {
        &self.saver
    }

    fn store(&self) -> &Store {
        &self.store
    }

    fn config(&self) -> Arc<Config> {
        Server::config(self)
    }

    fn change_count(&self) -> u64 {
        Server::change_count(self)
    }

    fn answer(&self, waiter: &SaveWaiter, reply: Vec<u8>) {
        self.send(&waiter.client, |token| Message::Reply(token, waiter.reply, reply.into()));
    }

    fn count_error(&self, text: &[u8]) {
        Server::count_error(self, text);
    }

    fn note_saved(&self, is_saved: bool) {
        self.exceptions.set(Matter::SAVE_FAILED, !is_saved);
    }

    fn took(&self, event: &'static str, time: Duration) {
        self.latency.record(event, time, Server::config(self).settings.latency_threshold);
    }

    fn stop(&self) {
        Server::stop(self);
    }

    fn stay(&self) {
        Server::stay(self);
    }
}
