//! How far something is that takes long, said at the terminal.

use std::time::{Duration, Instant};

/// Nothing is said more often.
const BETWEEN: Duration = Duration::from_secs(5);

pub struct Progress {
    what: String,
    total: u64,
    done: u64,
    said: Instant,
    begin: Instant,
}

impl Progress {
    pub fn new(what: String, total: u64) -> Progress {
        eprintln!("{what}");
        Progress { what, total: total.max(1), done: 0, said: Instant::now(), begin: Instant::now() }
    }

    pub fn add(&mut self, count: u64) {
        let before = self.done;
        self.done += count;
        // The clock is looked at now and then only.
        if before >> 10 != self.done >> 10 && self.said.elapsed() >= BETWEEN {
            self.said = Instant::now();
            let done = self.done as f64 / self.total as f64;
            let left_s = self.begin.elapsed().as_secs_f64() * (1.0 / done - 1.0);
            eprintln!("{}: {:.0} %, {left_s:.0} s left", self.what, done * 100.0);
        }
    }
}
