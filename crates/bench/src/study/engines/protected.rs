//! `userfaultfd`: the cut write-protects all pages. A writer that runs into one sleeps until a thread has copied it away.
//!
//! ```text
//!   a page:  PROTECTED ── saver, or the thread that serves writers, claims ──▶ BUSY ── copied ──▶ SAVED, protection lifted
//! ```

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use stillframe_algorithms::RowArray;
use stillframe_pagepool::{WriteProtection, PAGE_SIZE};

use super::captured::Captured;
use crate::error::{BenchError, Context, Result};
use crate::study::draw::Update;
use crate::study::engine::{store, Engine};
use crate::study::image_file::Runs;
use crate::study::memory::Words;

const PAGE_WORDS: usize = PAGE_SIZE / 8;
/// Pages whose protection is lifted at once: a call of the system for each would cost more than the copy.
const BATCH_PAGES: usize = 64;
const PATIENCE: Duration = Duration::from_millis(20);

const SAVED: u8 = 0;
const PROTECTED: u8 = 1;
const BUSY: u8 = 2;

pub struct Protected<'a> {
    words: &'a Words,
    rows: RowArray<&'a [AtomicU64]>,
    protection: WriteProtection<'a, AtomicU64>,
    states: Box<[AtomicU8]>,
    captured: Captured,
    image: Mutex<(Runs, Vec<u8>)>,
    len: usize,
}

impl<'a> Protected<'a> {
    /// Rows that lie from the beginning of the words.
    pub fn new(
        words: &'a Words,
        row_count: u32,
        row_len: usize,
        budget_bytes: u64,
        dir: &Path,
    ) -> Result<Protected<'a>> {
        let protection =
            WriteProtection::new(words).context(|| "userfaultfd with write protection".to_owned())?;
        let captured = Captured::new(budget_bytes);
        let spare = captured.spare();
        Ok(Protected {
            words,
            rows: RowArray::over(words.as_ref(), row_count, row_len),
            states: (0..protection.page_count()).map(|_| AtomicU8::new(SAVED)).collect(),
            protection,
            captured,
            image: Mutex::new((Runs::new(dir, PAGE_SIZE)?, spare)),
            len: row_count as usize * row_len,
        })
    }

    fn page_words(&self, page: usize) -> impl Iterator<Item = &AtomicU64> {
        (page * PAGE_WORDS..(page + 1) * PAGE_WORDS).filter_map(|word| self.words.try_get(word))
    }

    fn read(&self, page: usize, into: &mut [u8]) {
        let words = into.chunks_exact_mut(8).zip(self.page_words(page));
        words.for_each(|(bytes, word)| bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()));
    }

    fn claim(&self, page: usize) -> bool {
        let state = &self.states[page];
        state.compare_exchange(PROTECTED, BUSY, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Until what is being copied away for writers has been: their protection must not be lifted before.
    fn wait_for(&self, pages: Range<usize>, image: &mut Runs, spare: &mut Vec<u8>) -> Result<()> {
        loop {
            let is_saved =
                self.states[pages.clone()].iter().all(|state| state.load(Ordering::Acquire) == SAVED);
            self.captured.drain(image, spare).context(|| "write an image".to_owned())?;
            if is_saved {
                return Ok(());
            }
            std::thread::yield_now();
        }
    }

    /// For a writer that sleeps.
    fn save_for_writer(&self, page: usize) -> Result<()> {
        if self.claim(page) {
            self.captured.add(8 + PAGE_SIZE, |runs| {
                runs.extend_from_slice(&(page as u32).to_le_bytes());
                runs.extend_from_slice(&1u32.to_le_bytes());
                let at = runs.len();
                runs.resize(at + PAGE_SIZE, 0);
                self.read(page, &mut runs[at..]);
            });
            self.states[page].store(SAVED, Ordering::Release);
        }
        while self.states[page].load(Ordering::Acquire) != SAVED {
            std::thread::yield_now();
        }
        self.protection.lift(page..page + 1).context(|| "lift a protection".to_owned())
    }
}

impl Engine for Protected<'_> {
    const HAS_SERVER: bool = true;

    #[inline(always)]
    fn write<const WHOLE: bool>(&self, Update { row, word }: Update, value: u64) {
        store::<WHOLE>(self.rows.row(row), word, value);
    }

    fn cut(&self) -> Result<()> {
        self.states.iter().for_each(|state| state.store(PROTECTED, Ordering::Relaxed));
        let pages = 0..self.protection.page_count();
        self.protection.protect(pages).context(|| "protect pages".to_owned())
    }

    fn access(&self) -> Result<()> {
        let mut image = self.image.lock().unwrap_or_else(PoisonError::into_inner);
        let (image, spare) = &mut *image;
        let written = || "write an image".to_owned();
        let page_count = self.states.len();
        for start in (0..page_count).step_by(BATCH_PAGES) {
            let end = (start + BATCH_PAGES).min(page_count);
            for page in (start..end).filter(|page| self.claim(*page)) {
                self.read(page, image.append(page as u32));
                self.states[page].store(SAVED, Ordering::Release);
            }
            self.wait_for(start..end, image, spare)?;
            self.protection.lift(start..end).context(|| "lift a protection".to_owned())?;
            if image.is_full() {
                image.write().context(written)?;
            }
        }
        image.commit().context(written)
    }

    fn serve(&self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let page = self.protection.next_write(PATIENCE).context(|| "wait for a writer".to_owned())?;
            if let Some(page) = page {
                self.save_for_writer(page)?;
            }
        }
        Ok(())
    }

    fn content(&self) -> Vec<u8> {
        let words = self.words.as_ref()[..self.len / 8].iter();
        words.flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect()
    }

    fn image(&self) -> Result<Vec<u8>> {
        let image = self.image.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rows = image.0.rows(self.states.len() as u32)?;
        if rows.len() < self.len {
            return Err(BenchError::Failed("an image is too short".to_owned()));
        }
        rows.truncate(self.len);
        Ok(rows)
    }

    fn image_bytes(&self) -> u64 {
        self.image.lock().unwrap_or_else(PoisonError::into_inner).0.file().image_bytes()
    }
}
