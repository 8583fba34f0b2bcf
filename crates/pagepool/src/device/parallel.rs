//! Several transfers in flight at a time: a disk takes about as long for one short transfer as for eight.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Jobs for each thread below which starting it does not pay.
const LEAST_JOBS: usize = 4;

/// Does all `jobs` with up to `most` threads, if there are many.
pub(super) fn for_each<T: Sync>(most: usize, jobs: &[T], work: impl Fn(usize, &T) + Sync) {
    let next = AtomicUsize::new(0);
    let run = || loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let Some(job) = jobs.get(at) else { return };
        work(at, job);
    };
    std::thread::scope(|scope| {
        for _ in 1..most.min(jobs.len() / LEAST_JOBS) {
            // Without the thread the others do its part.
            let _ = std::thread::Builder::new().name("sf-io".into()).spawn_scoped(scope, run);
        }
        run();
    });
}
