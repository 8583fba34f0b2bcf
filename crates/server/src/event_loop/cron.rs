//! When a worker does what it does now and then, and what it remembers of the last time.

use std::time::{Duration, Instant};

pub struct Cron {
    pub next: Instant,
    /// One worker does what is to be done once for all.
    pub is_first: bool,
    pub rounds: u64,
    /// The slot whose client is visited next.
    pub visited_slot: u32,
    pub rates: Rates,
    /// Damaged pages that the log tells of.
    pub logged_damage: usize,
}

/// Totals at the last measurement, for the `instantaneous_` figures.
#[derive(Default)]
pub struct Rates {
    pub at: Option<Instant>,
    pub commands: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
}

impl Cron {
    pub fn new(worker: usize) -> Cron {
        Cron {
            next: Instant::now(),
            is_first: worker == 0,
            rounds: 0,
            visited_slot: 0,
            rates: Rates::default(),
            logged_damage: 0,
        }
    }

    /// Time to the next round.
    pub fn time_left(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }
}
