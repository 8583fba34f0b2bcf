//! The wait for another thread's copy of one row.

use crate::sync::{spin_loop, yield_now};

/// Turns before the processor is given to others: longer than a copy of 4 KB takes, so that only who waits for a thread
/// that does not run comes to it.
const SPINS: u32 = 128;

#[derive(Default)]
pub struct Backoff {
    turns: u32,
    #[cfg(feature = "mutations")]
    since: Option<std::time::Instant>,
}

impl Backoff {
    /// One turn.
    pub fn wait(&mut self) {
        if self.turns < SPINS {
            self.turns += 1;
            return spin_loop();
        }
        #[cfg(feature = "mutations")]
        self.give_up_when_stuck();
        yield_now();
    }

    /// Mistakes may leave a row held for ever, which a test is to find and not to wait for.
    #[cfg(feature = "mutations")]
    fn give_up_when_stuck(&mut self) {
        let since = self.since.get_or_insert_with(std::time::Instant::now);
        assert!(since.elapsed().as_secs() < 10, "a row is held for ever");
    }
}
