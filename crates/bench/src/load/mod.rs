//! The load generator: a workload (which command, which key, how large a value), the connections it is sent
//! over, and two ways to send it. The open loop sends on a schedule that the server cannot slow down and
//! measures from the intended send time; the closed loop keeps a fixed number of requests in flight and
//! measures throughput.

pub mod closed_loop;
pub mod collections;
pub mod conn;
pub mod null_server;
pub mod open_loop;
pub mod phase;
pub mod recording;
pub mod requests;
pub mod rounds;
pub mod scan;
pub mod timer;
pub mod values;
pub mod workload;

pub use recording::{LoadReport, Recording};
pub use requests::Requests;
pub use workload::{KeyChoice, Workload, WorkloadSpec};

use std::sync::atomic::{AtomicBool, Ordering};

use crate::clock::now_ns;
use crate::error::{BenchError, Result};

/// When a load ends: at a time, after a number of requests, or when told.
#[derive(Clone, Copy, Default)]
pub struct Stop<'a> {
    pub at_ns: Option<u64>,
    pub request_count: Option<u64>,
    pub flag: Option<&'a AtomicBool>,
}

impl Stop<'_> {
    pub fn after_seconds(seconds: f64) -> Self {
        Stop { at_ns: Some(now_ns() + crate::clock::seconds_to_ns(seconds)), ..Stop::default() }
    }

    #[inline]
    fn reached(&self, time_ns: u64, sent: u64) -> bool {
        self.at_ns.is_some_and(|t| time_ns >= t)
            || self.request_count.is_some_and(|n| sent >= n)
            || self.flag.is_some_and(|f| f.load(Ordering::Relaxed))
    }
}

/// Runs a load on a thread of its own beside `work`, and tells it to stop when that has ended. `work` is given a way to ask
/// whether the load has ended early.
///
/// # Errors
/// Those of both; the load's come first: a `work` that failed because of it says less.
pub fn beside<L: Send, W>(
    load: impl FnOnce(&AtomicBool) -> Result<L> + Send,
    work: impl FnOnce(&dyn Fn() -> bool) -> Result<W>,
) -> Result<(L, W)> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let generator = scope.spawn(|| load(&stop));
        let worked = work(&|| generator.is_finished());
        stop.store(true, Ordering::SeqCst);
        let loaded = generator.join().map_err(|_| BenchError::Failed("the generator panicked".to_owned()))?;
        Ok((loaded?, worked?))
    })
}
