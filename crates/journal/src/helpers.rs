//! The threads beside the writer: one syncs, one makes spares, one watches.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stillframe_pagepool::sched;

use crate::error::JournalError;
use crate::files::Spare;
use crate::names::Offset;
use crate::options::SyncPolicy;
use crate::probe;
use crate::shared::Shared;

/// How long a spare that space lacks for waits before the next attempt.
const SPARE_RETRY: Duration = Duration::from_secs(1);
/// How often the watch looks while something is not durable.
const WATCH_PERIOD: Duration = Duration::from_millis(100);
/// What is not durable for so long, with one sync a second, makes writers wait.
const LATE: Duration = Duration::from_secs(2);

/// Syncs what the writer leaves, until it is stopped.
pub fn run_syncs(shared: &Arc<Shared>) {
    while let Some(job) = shared.desk.next() {
        if !shared.has_failed() {
            shared.sync(job.devices, job.covers);
        }
        shared.desk.done();
        shared.tail.ring();
        if shared.is_late.load(Ordering::Acquire) {
            shared.pulse.nudge();
        }
    }
}

/// Makes spares and removes what nobody needs, until it is stopped.
pub fn run_chores(shared: &Arc<Shared>) {
    sched::enroll("sf-log-spares");
    while let Some(chore) = shared.files.next_chore(SPARE_RETRY) {
        match shared.files.perform(chore).and_then(|spare| measured(shared, spare)) {
            Ok(Some(spare)) => shared.files.add_spare(spare),
            Ok(None) => {}
            Err(error) if error.is_no_space() => {}
            Err(error) => return shared.fail(JournalError::Device(error)),
        }
        sched::set_urgent(false);
        shared.pulse.nudge();
    }
}

fn measured(
    shared: &Shared,
    spare: Option<Spare>,
) -> Result<Option<Spare>, stillframe_pagepool::device::DeviceError> {
    if let Some(spare) = spare.as_ref().filter(|spare| spare.is_new && shared.method.is_auto()) {
        probe::measure(&shared.method, spare.device.as_ref(), shared.files.segment_bytes())?;
    }
    Ok(spare)
}

/// Tells the watcher of room and space, until it is stopped.
///
/// ```text
///   ON TIME ── nothing became durable for 2 s, though it should ──▶ LATE ── it has ──▶ ON TIME
/// ```
pub fn run_watch(shared: &Arc<Shared>) {
    let mut watch = Watch { pending: None, told_room: true, told_no_space: false };
    loop {
        let is_late = watch.is_late(shared);
        if !shared.is_late.swap(is_late, Ordering::AcqRel) && is_late {
            shared.stats.delayed_sync_count.fetch_add(1, Ordering::Relaxed);
        }
        watch.tell(shared);
        shared.pulse.announce_idle();
        let is_busy = shared.progress.durable() < shared.tail.end() && !shared.has_failed();
        if !shared.pulse.wait(is_busy.then_some(WATCH_PERIOD)) {
            return;
        }
    }
}

struct Watch {
    /// What was not durable when the watch looked, and when that was.
    pending: Option<(Offset, Instant)>,
    told_room: bool,
    told_no_space: bool,
}

impl Watch {
    fn is_late(&mut self, shared: &Shared) -> bool {
        let (durable, end) = (shared.progress.durable(), shared.tail.end());
        if durable >= end || shared.tail.policy() != SyncPolicy::EverySecond || shared.has_failed() {
            self.pending = None;
            return false;
        }
        match self.pending {
            Some((to, since)) if durable < to => since.elapsed() >= LATE,
            _ => {
                self.pending = Some((end, Instant::now()));
                false
            }
        }
    }

    fn tell(&mut self, shared: &Shared) {
        let room = !shared.tail.is_full() && !shared.is_late.load(Ordering::Acquire);
        if room != self.told_room {
            self.told_room = room;
            shared.watcher.room(room);
        }
        let no_space = shared.files.lacks_space();
        if no_space != self.told_no_space {
            self.told_no_space = no_space;
            shared.watcher.no_space(no_space);
        }
    }
}
