//! Several transfers in flight at a time: a disk takes about as long for one short transfer as for eight.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Jobs for each thread below which starting it does not pay.
const LEAST_JOBS: usize = 4;

/// Does all `jobs` with up to `most` threads, if there are many. Returns the first error; then some may not be done.
pub(super) fn for_each<T: Sync, E: Send>(
    most: usize,
    jobs: &[T],
    work: impl Fn(&T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let run = || loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let Some(job) = jobs.get(at) else { return };
        if let Err(error) = work(job) {
            next.store(jobs.len(), Ordering::Relaxed);
            failed.lock().get_or_insert(error);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..most.min(jobs.len() / LEAST_JOBS) {
            // Without the thread the others do its part.
            let _ = std::thread::Builder::new().name("sf-io".into()).spawn_scoped(scope, run);
        }
        run();
    });
    failed.into_inner().map_or(Ok(()), Err)
}
