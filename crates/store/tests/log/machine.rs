//! A simulated machine: the device of a page file, and the shelf of its log.

use std::sync::Arc;

use stillframe_pagepool::device::{Fault, SimDevice, SimShelf};
use stillframe_store::log::{LogOptions, SyncMethod, SyncPolicy};
use stillframe_store::{open_on_with_log, OpenError, Options, Store};

use crate::ops;

/// Small, so that segments are used again.
pub const SEGMENT_BYTES: u64 = 32 * 4096;

pub struct Machine {
    pub device: Arc<SimDevice>,
    pub shelf: Arc<SimShelf>,
}

pub fn log_options(sync: SyncPolicy) -> LogOptions {
    let method = SyncMethod::Fdatasync;
    LogOptions { sync, segment_bytes: SEGMENT_BYTES, method, ..LogOptions::default() }
}

impl Machine {
    pub fn new(seed: u64) -> Machine {
        Machine { device: Arc::new(SimDevice::new(seed)), shelf: Arc::new(SimShelf::new(seed)) }
    }

    pub fn open(&self, log: Option<LogOptions>) -> Result<Store, OpenError> {
        let options = Options {
            database_count: ops::DATABASES,
            pool_backend: stillframe_testkit::pool_backend(),
            checkpoint_on_drop: false,
            log,
            ..Options::default()
        };
        open_on_with_log(self.device.clone(), self.shelf.clone(), options)
    }

    /// The power is to fail after some calls more, of the shelf and of the page file by turns.
    pub fn crash_in(&self, calls: u64) {
        match calls % 2 {
            0 => self.shelf.schedule(self.shelf.call_count() + calls / 2, Fault::Crash),
            _ => self.device.schedule(self.device.call_count() + calls / 2, Fault::Crash),
        }
    }

    /// The power fails and comes back. What still runs on the machine before runs on another one from now on.
    pub fn crash(&self, seed: u64) -> Machine {
        let shelf = self.shelf.crash();
        self.device.crash();
        self.next(shelf, seed)
    }

    /// The process is killed.
    pub fn kill(&self, seed: u64) -> Machine {
        self.next(self.shelf.kill(), seed)
    }

    /// Another machine with the same disk.
    pub fn copy(&self, seed: u64) -> Machine {
        self.next(SimShelf::from_images(seed, &self.shelf.images()), seed)
    }

    fn next(&self, shelf: SimShelf, seed: u64) -> Machine {
        let device = SimDevice::from_image(seed, self.device.image());
        Machine { device: Arc::new(device), shelf: Arc::new(shelf) }
    }
}
