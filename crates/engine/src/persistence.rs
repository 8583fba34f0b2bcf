//! Saving: one thread that takes checkpoints and writes dumps, one after the other.

pub mod collections;
mod delay;
mod dump;
mod dump_file;
#[cfg(test)]
mod dump_tests;
mod load;
mod progress;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use stillframe_store::sched::promptly;
use stillframe_store::{CheckpointReport, SaveError, Store};

use crate::clock::unix_ms;
use crate::config::{Config, Settings, SnapshotFormat};
use crate::log;
use crate::state::clients::ClientInfo;
use crate::state::session::LateReply;

pub use dump_file::{temporary_path, write_dump, write_salvaged};
use dump_file::{write_dump_telling, DumpFileError};
pub use load::{cut_of, load_dump, Load, LoadError, Loaded, Twins};
pub use progress::DumpProgress;

/// After a failed automatic save the next one waits so long, as in Redis.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// What a save produces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A checkpoint in the page file.
    Pages,
    /// The RDB file of `dbfilename`.
    Rdb,
    /// An RDB file elsewhere (`BACKUP TO`).
    Backup(PathBuf),
}

/// What comes after a save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Go,
    /// End the process if it succeeded, or in any case.
    Stop {
        even_if_failed: bool,
    },
}

/// When a client that waits is told, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At the cut, that saving has begun: what the client asks for after the reply is not in the save.
    Cut,
    /// At the cut, in the words for a transaction.
    CutOfScheduled,
    /// At the end, the outcome.
    End,
    /// At the end, OK: the save is not what the client asked for (`FLUSHALL`).
    EndInAnyCase,
}

impl When {
    /// What is said at the cut.
    fn at_cut(self) -> Option<&'static [u8]> {
        match self {
            When::Cut => Some(b"+Background saving started\r\n"),
            When::CutOfScheduled => Some(b"+Background saving scheduled\r\n"),
            When::End | When::EndInAnyCase => None,
        }
    }
}

/// A client that is answered later.
pub struct SaveWaiter {
    pub client: Arc<ClientInfo>,
    /// Which of its replies.
    pub reply: LateReply,
    pub when: When,
}

/// What the saver needs of the server around it, and where it reports to.
pub trait Host: Send + Sync + 'static {
    fn saver(&self) -> &Saver;
    fn store(&self) -> &Store;
    fn config(&self) -> Arc<Config>;
    /// Changes of the data set since the start.
    fn change_count(&self) -> u64;
    /// Delivers the reply that a client waits for.
    fn answer(&self, waiter: &SaveWaiter, reply: Vec<u8>);
    fn count_error(&self, text: &[u8]);
    /// What a restart reads has been saved, or could not be.
    fn note_saved(&self, is_saved: bool);
    /// Notes for `LATENCY` how long an event took.
    fn took(&self, event: &'static str, time: Duration);
    /// Ends the server: the last save is done.
    fn stop(&self);
    /// Takes back that the server is about to end: the last save failed.
    fn stay(&self);
}

struct Job {
    target: Target,
    waiters: Vec<SaveWaiter>,
    then: Then,
}

impl Job {
    fn new(target: Target, waiter: Option<SaveWaiter>) -> Job {
        Job { target, waiters: waiter.into_iter().collect(), then: Then::Go }
    }
}

/// A save that has completed.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub duration: Duration,
    /// Of a checkpoint.
    pub report: CheckpointReport,
    /// Of a dump.
    pub dump_bytes: u64,
}

/// Why a save has failed.
#[derive(thiserror::Error, Debug)]
enum Failure {
    #[error("{0}")]
    Checkpoint(#[source] SaveError),
    /// The page file takes no more checkpoints.
    #[error("{0}. What is served can be saved as a dump: BGSAVE RDB, BACKUP TO")]
    PageFile(#[source] SaveError),
    #[error("{0}")]
    Dump(#[source] DumpFileError),
}

/// What `INFO` tells.
#[derive(Clone, Debug)]
pub struct Status {
    /// What is being saved, since when.
    pub running: Option<(Target, Instant)>,
    pub last_save_unix_seconds: i64,
    /// `None`: it succeeded, or there was none.
    pub last_error: Option<String>,
    pub last_duration: Option<Duration>,
    pub last_checkpoint: CheckpointReport,
    pub save_count: u64,
    /// Checkpoints completed: with the snapshotter `fork` each has forked.
    pub checkpoint_count: u64,
    /// The most that the last save held beyond the data.
    pub last_held_peak_bytes: u64,
    /// Changes of the data set at the last successful save of the format that a restart reads.
    saved_changes: u64,
    kept_unix_seconds: i64,
    last_attempt: Option<Instant>,
    /// Saves that have failed since the last that has not.
    pub failed_in_a_row: u32,
}

struct State {
    status: Status,
    /// The job that runs, or is about to.
    job: Option<Job>,
    /// To be done after it, no two of one target.
    next: VecDeque<Job>,
    is_ended: bool,
}

/// The saver's shared state.
///
/// ```text
///             request                    done
///   Idle ---------------> Running ---------------> Idle
///                           |   done, one waits     ^
///                           +---------> Running ----+
///                           |   done, then stop
///                           +---------> the process ends
/// ```
pub struct Saver {
    state: Mutex<State>,
    wake: Condvar,
    pub dumping: DumpProgress,
}

/// A save is in progress already.
#[derive(Debug, PartialEq, Eq)]
pub struct Busy;

impl Default for Saver {
    fn default() -> Self {
        let status = Status {
            running: None,
            last_save_unix_seconds: unix_ms() / 1000,
            last_error: None,
            last_duration: None,
            last_checkpoint: CheckpointReport::default(),
            save_count: 0,
            checkpoint_count: 0,
            last_held_peak_bytes: 0,
            saved_changes: 0,
            kept_unix_seconds: unix_ms() / 1000,
            last_attempt: None,
            failed_in_a_row: 0,
        };
        let state = State { status, job: None, next: VecDeque::new(), is_ended: false };
        Saver { state: Mutex::new(state), wake: Condvar::new(), dumping: DumpProgress::default() }
    }
}

impl Saver {
    pub fn status(&self) -> Status {
        self.state.lock().status.clone()
    }

    /// Starts a save in the background. The waiter is asked for once that is certain.
    ///
    /// # Errors
    /// One is in progress.
    pub fn start(&self, target: Target, waiter: impl FnOnce() -> SaveWaiter) -> Result<(), Busy> {
        let mut state = self.state.lock();
        if state.job.is_some() {
            return Err(Busy);
        }
        begin(&mut state, Job::new(target, Some(waiter())));
        self.wake.notify_one();
        Ok(())
    }

    /// Saves once the present save is done.
    pub fn schedule(&self, target: Target) {
        self.add(Job::new(target, None));
    }

    /// Whether such a save waits for the one in progress.
    pub fn is_scheduled(&self, target: &Target) -> bool {
        self.state.lock().next.iter().any(|job| job.target == *target)
    }

    /// Saves the data as it is from now on. A save that has begun may have taken its cut: it is not joined.
    pub fn save_from_now_on(&self, target: Target, waiter: SaveWaiter) {
        self.add(Job::new(target, Some(waiter)));
    }

    fn add(&self, job: Job) {
        let mut state = self.state.lock();
        if state.job.is_none() {
            begin(&mut state, job);
            self.wake.notify_one();
        } else if let Some(same) = state.next.iter_mut().find(|next| next.target == job.target) {
            same.waiters.extend(job.waiters);
        } else {
            state.next.push_back(job);
        }
    }

    /// Saves and then ends the process; an ongoing save is waited for, those after it are not.
    pub fn save_and_stop(&self, target: Target, waiter: Option<SaveWaiter>, even_if_failed: bool) {
        self.dumping.is_hurried.store(true, Ordering::Relaxed);
        let mut state = self.state.lock();
        let job = Job { then: Then::Stop { even_if_failed }, ..Job::new(target, waiter) };
        if state.job.is_some() {
            state.next.push_front(job);
        } else {
            begin(&mut state, job);
            self.wake.notify_one();
        }
    }

    /// Changes of the data set since the last successful save.
    pub fn unsaved_changes(&self, change_count: u64) -> u64 {
        change_count.saturating_sub(self.state.lock().status.saved_changes)
    }

    /// Starts a save if a save point asks for it.
    pub fn check_save_points(&self, change_count: u64, settings: &Settings) {
        let mut state = self.state.lock();
        if state.job.is_some() {
            return;
        }
        let status = &state.status;
        let unsaved = change_count.saturating_sub(status.saved_changes);
        let age = Duration::from_secs((unix_ms() / 1000 - status.kept_unix_seconds).max(0) as u64);
        let may_try =
            status.last_error.is_none() || status.last_attempt.is_none_or(|at| at.elapsed() > RETRY_DELAY);
        let due = |p: &&crate::config::SavePoint| unsaved >= p.change_count && age > p.after && unsaved > 0;
        let Some(point) = settings.save_points.iter().find(due).filter(|_| may_try) else { return };
        log::notice(format!(
            "{} changes in {} seconds. Saving...",
            point.change_count,
            point.after.as_secs()
        ));
        begin(&mut state, Job::new(default_target(settings), None));
        self.wake.notify_one();
    }

    /// Starts a checkpoint that the log asks for, for that reason, unless a save is in progress or has just failed.
    pub fn start_for_log(&self, reason: &str) {
        let mut state = self.state.lock();
        let has_just_failed = state.status.last_error.is_some()
            && state
                .status
                .last_attempt
                .is_some_and(|at| at.elapsed() < retry_delay(state.status.failed_in_a_row));
        if state.job.is_some() || has_just_failed {
            return;
        }
        log::notice(format!("{reason}. Saving..."));
        begin(&mut state, Job::new(Target::Pages, None));
        self.wake.notify_one();
    }

    /// Ends the thread after its present job.
    pub fn end(&self) {
        self.dumping.is_hurried.store(true, Ordering::Relaxed);
        self.state.lock().is_ended = true;
        self.wake.notify_one();
    }
}

/// How long to wait after so many saves that have failed: a minute at most an hour, as Redis does with rewrites.
fn retry_delay(failed_in_a_row: u32) -> Duration {
    match failed_in_a_row {
        0 | 1 => RETRY_DELAY,
        more => Duration::from_secs(60 << (more - 2).min(6)).min(Duration::from_secs(3_600)),
    }
}

fn begin(state: &mut State, job: Job) {
    let now = Instant::now();
    state.status.running = Some((job.target.clone(), now));
    state.status.last_attempt = Some(now);
    state.job = Some(job);
}

/// What a save makes unless told otherwise.
pub fn default_target(settings: &Settings) -> Target {
    match settings.snapshot_format {
        SnapshotFormat::Pages => Target::Pages,
        SnapshotFormat::Rdb => Target::Rdb,
    }
}

/// Body of the saver thread.
pub fn run(host: &Arc<impl Host>) {
    loop {
        let (target, then) = {
            let mut state = host.saver().state.lock();
            loop {
                if let Some(job) = &state.job {
                    break (job.target.clone(), job.then);
                }
                if state.is_ended {
                    return;
                }
                host.saver().wake.wait(&mut state);
            }
        };
        let start = Instant::now();
        let changes = Arc::new(AtomicU64::new(0));
        let result = match then {
            Then::Go => save(host, &target, &changes),
            // Nobody is to wait long for the end of the process.
            Then::Stop { .. } => promptly(|| save(host, &target, &changes)),
        };
        let result = result.map(|outcome| Outcome { duration: start.elapsed(), ..outcome });
        // A client that sees that the save has ended finds its line in the log.
        log_outcome(&target, &result);
        finish(host, result, changes.load(Ordering::Acquire));
    }
}

/// `changes` is set to the changes of the data set before the cut.
fn save(host: &Arc<impl Host>, target: &Target, changes: &Arc<AtomicU64>) -> Result<Outcome, Failure> {
    let config = host.config();
    let settings = &config.settings;
    let dir = host.store().dir();
    let (at_host, changes) = (host.clone(), changes.clone());
    let at_cut = move || changes.store(at_host.change_count(), Ordering::Release);
    let after_cut = || tell_of_cut(host.as_ref());
    let path = match target {
        Target::Pages => {
            let report = host.store().checkpoint_telling(at_cut, after_cut);
            let report = report.map_err(|error| match host.store().page_file_failure() {
                Some(_) => Failure::PageFile(error),
                None => Failure::Checkpoint(error),
            })?;
            return Ok(Outcome { report, ..Outcome::default() });
        }
        Target::Rdb => dir.join(&settings.dbfilename),
        Target::Backup(path) => path.clone(),
    };
    let progress = &host.saver().dumping;
    let written = write_dump_telling(host.store(), &path, settings, at_cut, after_cut, progress);
    progress.reset();
    Ok(Outcome { dump_bytes: written.map_err(Failure::Dump)?, ..Outcome::default() })
}

/// Answers those who wait for the cut that has just been taken.
fn tell_of_cut(host: &impl Host) {
    let mut state = host.saver().state.lock();
    let Some(job) = &mut state.job else { return };
    job.waiters.retain(|waiter| {
        let reply = waiter.when.at_cut();
        reply.iter().for_each(|reply| host.answer(waiter, reply.to_vec()));
        reply.is_none()
    });
}

/// Records the outcome, tells those who wait, and goes on to the next job or the end.
fn finish(host: &Arc<impl Host>, result: Result<Outcome, Failure>, changes: u64) {
    let mut state = host.saver().state.lock();
    let Some(job) = state.job.take() else { return };
    // Only what a restart reads keeps the data: a dump beside the page file does not count as saved.
    let is_kept = job.target == default_target(&host.config().settings);
    record(&mut state.status, &job.target, &result);
    if is_kept {
        host.note_saved(result.is_ok());
        if result.is_ok() {
            state.status.saved_changes = changes;
            state.status.kept_unix_seconds = unix_ms() / 1000;
        }
    }
    state.status.running = None;
    state.status.last_held_peak_bytes = host.store().pool().stats().snapshot_peak_held_bytes;
    if let Some(next) = state.next.pop_front() {
        begin(&mut state, next);
    }
    drop(state);
    let damaged_page_count = host.store().damage().pages().page_count;
    if job.target == Target::Pages && result.is_ok() && damaged_page_count > 0 {
        log::warning(format!(
            "The checkpoint is complete but for {damaged_page_count} pages that cannot be read, as before"
        ));
    }
    if let (Target::Pages, Ok(outcome)) = (&job.target, &result) {
        let healed_count = outcome.report.pages_healed;
        if healed_count > 0 {
            log::notice(format!(
                "{healed_count} pages that were damaged in the page file have been written anew"
            ));
        }
        host.took("checkpoint", outcome.duration);
        host.took("barrier", outcome.report.barrier_wait);
    }
    match job.then {
        Then::Go => answer(host.as_ref(), &job, &result),
        Then::Stop { even_if_failed } if result.is_ok() || even_if_failed => host.stop(),
        Then::Stop { .. } => {
            log::warning("Error trying to save the DB, can't exit.");
            host.stay();
            for waiter in &job.waiters {
                host.answer(waiter, b"-ERR Errors trying to SHUTDOWN. Check logs.\r\n".to_vec());
            }
        }
    }
}

fn record(status: &mut Status, target: &Target, result: &Result<Outcome, Failure>) {
    if matches!(target, Target::Backup(_)) {
        return;
    }
    match result {
        Ok(outcome) => {
            status.last_save_unix_seconds = unix_ms() / 1000;
            (status.last_error, status.failed_in_a_row) = (None, 0);
            status.last_duration = Some(outcome.duration);
            status.save_count += 1;
            if *target == Target::Pages {
                status.last_checkpoint = outcome.report.clone();
                status.checkpoint_count += 1;
            }
        }
        Err(error) => {
            status.last_error = Some(error.to_string());
            status.failed_in_a_row += 1;
        }
    }
}

fn answer(host: &impl Host, job: &Job, result: &Result<Outcome, Failure>) {
    for waiter in &job.waiters {
        let reply = match (result, waiter.when) {
            (Ok(_), _) | (_, When::EndInAnyCase) => b"+OK\r\n".to_vec(),
            (Err(error), _) => {
                host.count_error(b"ERR");
                format!("-ERR {}\r\n", error.to_string().replace(['\r', '\n'], " ")).into_bytes()
            }
        };
        host.answer(waiter, reply);
    }
}

fn log_outcome(target: &Target, result: &Result<Outcome, Failure>) {
    match (target, result) {
        (_, Err(error)) => log::warning(format!("Background saving error: {error}")),
        (Target::Pages, Ok(outcome)) => log::notice(format!(
            "Checkpoint saved: {} pages changed, {} bytes written in {:.3} seconds",
            outcome.report.pages_changed,
            outcome.report.bytes_written,
            outcome.duration.as_secs_f64()
        )),
        (_, Ok(outcome)) => log::notice(format!(
            "DB saved on disk: {} bytes in {:.3} seconds",
            outcome.dump_bytes,
            outcome.duration.as_secs_f64()
        )),
    }
}
