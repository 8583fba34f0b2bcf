//! Scrubbing: the page file is read through, slowly, again and again, so that what rots in it is found while it can be
//! written anew from memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use stillframe_store::{sched, ScrubCursor, ScrubReport, Store, SCRUB_STEP_PAGES};

use crate::log;
use crate::persistence::{default_target, Host, Target};

/// A step reads 1 MB: so a pass reads no more than 32 MB a second, however short it is to be.
const SHORTEST_PAUSE: Duration = Duration::from_micros(31_250);
/// How often it is looked whether the interval has been changed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Bad pages of a step that the log names.
const NAMED_COUNT: usize = 8;

/// The scrubber's shared state.
#[derive(Default)]
pub struct Scrubber {
    is_ended: Mutex<bool>,
    wake: Condvar,
}

impl Scrubber {
    /// Ends the thread after its present step.
    pub fn end(&self) {
        *self.is_ended.lock() = true;
        self.wake.notify_all();
    }

    fn is_ended_after(&self, wait: Duration) -> bool {
        let mut is_ended = self.is_ended.lock();
        self.wake.wait_while_for(&mut is_ended, |is_ended| !*is_ended, wait);
        *is_ended
    }
}

/// What a pass over the whole file found.
#[derive(Default)]
pub struct Pass {
    pub page_count: u64,
    pub to_heal_count: usize,
    pub lost_count: usize,
}

/// Body of the scrubber's thread.
pub fn run(host: &impl Host, scrubber: &Scrubber) {
    let (mut from, mut last) = (None, Instant::now());
    loop {
        let due = pause_between_steps(host).and_then(|pause| last.checked_add(pause));
        let wait = due.map_or(LOOK_AGAIN, |due| due.saturating_duration_since(Instant::now()));
        if scrubber.is_ended_after(wait.min(LOOK_AGAIN)) {
            return;
        }
        // The warm-up reads and verifies everything.
        if host.store().is_warming_up() || due.is_none_or(|due| Instant::now() < due) {
            continue;
        }
        last = Instant::now();
        sched::give_way();
        let report = step(host.store(), from);
        from = report.next;
        // What is healed from memory is in danger until it has been saved.
        let settings = &host.config().settings;
        let saves_pages = default_target(settings) == Target::Pages && !settings.save_points.is_empty();
        if saves_pages && !report.to_heal.is_empty() {
            host.saver().schedule(Target::Pages);
        }
    }
}

/// Spreads a pass over the interval; none: there is to be none.
fn pause_between_steps(host: &impl Host) -> Option<Duration> {
    let interval = host.config().settings.scrub_interval?;
    let page_count = host.store().pool().file()?.stats().page_count;
    let step_count = u32::try_from(page_count.div_ceil(SCRUB_STEP_PAGES as u64)).unwrap_or(u32::MAX);
    Some((interval / step_count.max(1)).max(SHORTEST_PAUSE))
}

/// One pass over the whole file, now, unless it is stopped.
pub fn pass(store: &Store, stop: &AtomicBool) -> Pass {
    let (mut pass, mut from) = (Pass::default(), None);
    loop {
        let report = step(store, from);
        pass.page_count += report.page_count;
        pass.to_heal_count += report.to_heal.len();
        pass.lost_count += report.lost.len();
        from = report.next;
        if from.is_none() || stop.load(Ordering::Acquire) {
            return pass;
        }
    }
}

fn step(store: &Store, from: ScrubCursor) -> ScrubReport {
    let report = store.damage().scrub_step(from);
    for bad in report.to_heal.iter().take(NAMED_COUNT) {
        log::warning(format!("{}. It is in memory: the next checkpoint writes it anew", bad.error));
    }
    for bad in report.lost.iter().take(NAMED_COUNT) {
        log::warning(format!("{}. It is not in memory: what is on it cannot be read", bad.error));
    }
    let bad_count = report.to_heal.len() + report.lost.len();
    if bad_count > NAMED_COUNT {
        log::warning(format!("{bad_count} pages were found damaged at once: look after the disk"));
    }
    report
}
