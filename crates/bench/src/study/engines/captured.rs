//! What a writer has had to save ahead of the saver: runs of rows in memory, until the saver comes by.

use std::sync::{Mutex, PoisonError};

use crate::study::image_file::Runs;

pub struct Captured {
    runs: Mutex<Vec<u8>>,
    budget_bytes: usize,
}

impl Captured {
    /// The budget is taken, and touched, at once.
    pub fn new(budget_bytes: u64) -> Captured {
        let mut runs = vec![1; budget_bytes as usize];
        runs.clear();
        Captured { runs: Mutex::new(runs), budget_bytes: budget_bytes as usize }
    }

    /// Appends runs of so many bytes as `fill` leaves them. Waits for the saver if the budget is used up.
    pub fn add(&self, len: usize, fill: impl FnOnce(&mut Vec<u8>)) {
        loop {
            let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
            if runs.is_empty() || runs.len() + len <= self.budget_bytes {
                return fill(&mut runs);
            }
            drop(runs);
            std::thread::yield_now();
        }
    }

    /// Hands all of it to the image, part by part: nobody waits for the disk.
    pub fn drain(&self, image: &mut Runs, spare: &mut Vec<u8>) -> std::io::Result<()> {
        spare.clear();
        // The buffers change places: both stay touched.
        std::mem::swap(spare, &mut *self.runs.lock().unwrap_or_else(PoisonError::into_inner));
        if !spare.is_empty() {
            image.append_runs(spare);
            if image.is_full() {
                image.write()?;
            }
        }
        Ok(())
    }

    /// A buffer for `drain`.
    pub fn spare(&self) -> Vec<u8> {
        let mut spare = vec![1; self.budget_bytes];
        spare.clear();
        spare
    }
}
