//! What the journal's threads and its callers have in common.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use stillframe_pagepool::device::{Device, SyncMethod};

use crate::error::JournalError;
use crate::files::Files;
use crate::names::{LogId, Offset, SegmentNumber};
use crate::progress::Progress;
use crate::seams::Watcher;
use crate::tail::Tail;

pub struct Shared {
    pub log: LogId,
    pub tail: Tail,
    pub progress: Progress,
    pub files: Files,
    pub desk: SyncDesk,
    pub pulse: Pulse,
    pub stats: Stats,
    pub method: Method,
    /// [`crate::SyncPolicy::EverySecond`]: nothing has become durable for so long that writers wait.
    pub is_late: AtomicBool,
    pub watcher: Arc<dyn Watcher>,
}

impl Shared {
    /// The log ends here, for good.
    pub fn fail(&self, error: JournalError) {
        let error = Arc::new(error);
        // First, so that nothing is published any more: the tail of a dead log has an end whose bytes are nowhere.
        if self.progress.fail(error.clone()) {
            self.tail.die();
            self.files.stop();
            self.pulse.nudge();
            self.watcher.failed(&error);
        }
    }

    /// Everything before `to` is durable.
    pub fn publish(&self, to: Offset) {
        if self.progress.publish(to) {
            self.watcher.durable(to);
        }
    }

    /// Syncs what was written before `covers`, in order. False: the log has failed.
    pub fn sync(&self, devices: Vec<(SegmentNumber, Arc<dyn Device>)>, covers: Offset) -> bool {
        let began = Instant::now();
        for (segment, device) in devices {
            if let Err(error) = device.sync_data() {
                self.fail(JournalError::Device(error));
                return false;
            }
            drop(device);
            self.files.mark_synced(segment);
        }
        self.stats.note_sync(began.elapsed());
        self.publish(covers);
        true
    }

    pub fn has_failed(&self) -> bool {
        self.progress.failure().is_some()
    }
}

/// How writes are made durable, which may change while the log is open.
pub struct Method {
    is_dsync: AtomicBool,
    pub dsync_ns: AtomicU64,
    pub fdatasync_ns: AtomicU64,
    wanted: SyncMethod,
}

impl Method {
    pub fn new(wanted: SyncMethod) -> Method {
        Method {
            is_dsync: AtomicBool::new(wanted == SyncMethod::Dsync),
            dsync_ns: AtomicU64::new(0),
            fdatasync_ns: AtomicU64::new(0),
            wanted,
        }
    }

    pub fn get(&self) -> SyncMethod {
        match self.is_dsync.load(Ordering::Relaxed) {
            true => SyncMethod::Dsync,
            false => SyncMethod::Fdatasync,
        }
    }

    /// Whether the device is to be measured.
    pub fn is_auto(&self) -> bool {
        self.wanted == SyncMethod::Auto
    }

    pub fn set(&self, method: SyncMethod) {
        self.is_dsync.store(method == SyncMethod::Dsync, Ordering::Relaxed);
    }
}

/// Counters since the log was opened.
#[derive(Default)]
pub struct Stats {
    pub sync_count: AtomicU64,
    pub last_sync_ns: AtomicU64,
    pub total_sync_ns: AtomicU64,
    pub delayed_sync_count: AtomicU64,
}

impl Stats {
    pub fn note_sync(&self, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.sync_count.fetch_add(1, Ordering::Relaxed);
        self.last_sync_ns.store(took_ns, Ordering::Relaxed);
        self.total_sync_ns.fetch_add(took_ns, Ordering::Relaxed);
    }
}

/// What the helper is to sync.
pub struct Job {
    pub devices: Vec<(SegmentNumber, Arc<dyn Device>)>,
    /// Everything before it has been written.
    pub covers: Offset,
}

/// Where the writer leaves syncs for the helper; one at a time.
///
/// ```text
///   IDLE ── submit ──▶ SUBMITTED ── next ──▶ UNDER WAY ── done ──▶ IDLE
///   (any) ── abandon: a thread has panicked, and the log has failed ──▶ IDLE
/// ```
#[derive(Default)]
pub struct SyncDesk {
    state: Mutex<Desk>,
    changed: Condvar,
}

#[derive(Default)]
struct Desk {
    submitted: Option<Job>,
    is_under_way: bool,
    is_stopped: bool,
}

impl SyncDesk {
    pub fn is_idle(&self) -> bool {
        let desk = self.state.lock();
        desk.submitted.is_none() && !desk.is_under_way
    }

    pub fn wait_until_idle(&self) {
        let mut desk = self.state.lock();
        while desk.submitted.is_some() || desk.is_under_way {
            self.changed.wait(&mut desk);
        }
    }

    /// The desk is idle, and the helper is there.
    pub fn submit(&self, job: Job) {
        let mut desk = self.state.lock();
        debug_assert!(desk.submitted.is_none() && !desk.is_under_way);
        desk.submitted = Some(job);
        self.changed.notify_all();
    }

    /// For the helper: none, it is to end. What was submitted before is done.
    pub fn next(&self) -> Option<Job> {
        let mut desk = self.state.lock();
        loop {
            if let Some(job) = desk.submitted.take() {
                desk.is_under_way = true;
                return Some(job);
            }
            if desk.is_stopped {
                return None;
            }
            self.changed.wait(&mut desk);
        }
    }

    pub fn done(&self) {
        self.state.lock().is_under_way = false;
        self.changed.notify_all();
    }

    pub fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_all();
    }

    /// Nobody does what is left, and nobody is to wait for that.
    pub fn abandon(&self) {
        *self.state.lock() = Desk { is_stopped: true, ..Desk::default() };
        self.changed.notify_all();
    }
}

/// Wakes the thread that watches.
#[derive(Default)]
pub struct Pulse {
    state: Mutex<Beat>,
    changed: Condvar,
}

#[derive(Default)]
struct Beat {
    is_nudged: bool,
    is_stopped: bool,
    /// The watch sleeps without limit, or is about to.
    is_idle: bool,
}

impl Pulse {
    /// The watch looks once more.
    pub fn nudge(&self) {
        self.state.lock().is_nudged = true;
        self.changed.notify_all();
    }

    /// The same, if it sleeps without limit.
    pub fn nudge_if_idle(&self) {
        let mut beat = self.state.lock();
        if std::mem::take(&mut beat.is_idle) {
            beat.is_nudged = true;
            drop(beat);
            self.changed.notify_all();
        }
    }

    pub fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_all();
    }

    /// The watch is about to sleep without limit; afterwards it looks whether it may.
    pub fn announce_idle(&self) {
        self.state.lock().is_idle = true;
    }

    /// Sleeps until it is nudged, or for so long. False: it has been stopped.
    pub fn wait(&self, limit: Option<Duration>) -> bool {
        let mut beat = self.state.lock();
        if !beat.is_nudged && !beat.is_stopped {
            match limit {
                Some(limit) => {
                    self.changed.wait_for(&mut beat, limit);
                }
                None => self.changed.wait(&mut beat),
            }
        }
        beat.is_nudged = false;
        beat.is_idle = false;
        !beat.is_stopped
    }
}
