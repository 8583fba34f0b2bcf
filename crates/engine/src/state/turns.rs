//! Turns of threads that write large replies: only so many work at a time.

use parking_lot::{Condvar, Mutex};

/// So many threads write at a time.
const WRITING_MAX: usize = 16;

#[derive(Default, Debug)]
pub struct Turns {
    writing_count: Mutex<usize>,
    given_back: Condvar,
}

impl Turns {
    /// Waits for a turn.
    pub fn take(&self) {
        let mut writing_count = self.writing_count.lock();
        while *writing_count >= WRITING_MAX {
            self.given_back.wait(&mut writing_count);
        }
        *writing_count += 1;
    }

    pub fn give_back(&self) {
        *self.writing_count.lock() -= 1;
        self.given_back.notify_one();
    }
}
