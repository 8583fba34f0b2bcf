//! Entry by entry, or bucket by bucket: a write to what the save has not reached serialises all of it first.
//!
//! Rebuilt from the descriptions of Valkey's forkless save (an entry) and Dragonfly's snapshots (a bucket), over rows.
//!
//! ```text
//!   a unit, to the cut g:   saved = before g ── saver or writer claims ──▶ BUSY ── serialised ──▶ saved = g
//! ```

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use stillframe_algorithms::RowArray;

use super::captured::Captured;
use crate::error::{Context, Result};
use crate::study::draw::Update;
use crate::study::engine::{store, Engine};
use crate::study::image_file::Runs;
use crate::study::memory::Words;

/// Slots of a regular bucket of Dragonfly's hash table.
pub const BUCKET_ROWS: u32 = 14;
/// Units between two looks at what the writer has serialised.
const UNITS_BETWEEN_LOOKS: u32 = 64;
const BUSY: u32 = 1 << 31;

pub struct Serialised {
    rows: RowArray<Words>,
    row_count: u32,
    unit_rows: u32,
    /// The last cut that each unit has been serialised for.
    saved: Box<[AtomicU32]>,
    cut: AtomicU32,
    is_saving: AtomicBool,
    captured: Captured,
    image: Mutex<(Runs, Vec<u8>)>,
}

impl Serialised {
    pub fn new(
        rows: RowArray<Words>,
        row_count: u32,
        unit_rows: u32,
        budget_bytes: u64,
        dir: &Path,
    ) -> Result<Serialised> {
        let image = Runs::new(dir, rows.row_len())?;
        let captured = Captured::new(budget_bytes);
        let spare = captured.spare();
        Ok(Serialised {
            rows,
            row_count,
            unit_rows,
            saved: (0..row_count.div_ceil(unit_rows)).map(|_| AtomicU32::new(0)).collect(),
            cut: AtomicU32::new(0),
            is_saving: AtomicBool::new(false),
            captured,
            image: Mutex::new((image, spare)),
        })
    }

    fn rows_of(&self, unit: u32) -> std::ops::Range<u32> {
        unit * self.unit_rows..((unit + 1) * self.unit_rows).min(self.row_count)
    }

    /// Whether the unit is the caller's to serialise. If not, it has been serialised or somebody is at it.
    fn claim(&self, unit: u32, cut: u32) -> bool {
        let saved = &self.saved[unit as usize];
        let seen = saved.load(Ordering::Acquire);
        let claimed = || saved.compare_exchange(seen, seen | BUSY, Ordering::AcqRel, Ordering::Relaxed);
        seen != cut && seen & BUSY == 0 && claimed().is_ok()
    }

    fn is_saved(&self, unit: u32, cut: u32) -> bool {
        self.saved[unit as usize].load(Ordering::Acquire) == cut
    }

    fn release(&self, unit: u32, cut: u32) {
        self.saved[unit as usize].store(cut, Ordering::Release);
    }

    /// A run of all its rows.
    fn serialise(&self, unit: u32, into: &mut Vec<u8>) {
        let rows = self.rows_of(unit);
        into.extend_from_slice(&rows.start.to_le_bytes());
        into.extend_from_slice(&(rows.end - rows.start).to_le_bytes());
        for row in rows {
            let at = into.len();
            into.resize(at + self.rows.row_len(), 0);
            self.rows.read(row, 0, &mut into[at..]);
        }
    }

    #[cold]
    fn serialise_first(&self, unit: u32, cut: u32) {
        if self.claim(unit, cut) {
            let len = 8 + self.unit_rows as usize * self.rows.row_len();
            self.captured.add(len, |runs| self.serialise(unit, runs));
            self.release(unit, cut);
        }
        // The saver may be at it: it waits for nobody.
        while !self.is_saved(unit, cut) {
            std::hint::spin_loop();
        }
    }
}

impl Engine for Serialised {
    #[inline(always)]
    fn write<const WHOLE: bool>(&self, Update { row, word }: Update, value: u64) {
        if self.is_saving.load(Ordering::Acquire) {
            let (unit, cut) = (row / self.unit_rows, self.cut.load(Ordering::Relaxed));
            if !self.is_saved(unit, cut) {
                self.serialise_first(unit, cut);
            }
        }
        store::<WHOLE>(self.rows.row(row), word, value);
    }

    fn cut(&self) -> Result<()> {
        self.cut.fetch_add(1, Ordering::Relaxed);
        self.is_saving.store(true, Ordering::Release);
        Ok(())
    }

    fn access(&self) -> Result<()> {
        let mut image = self.image.lock().unwrap_or_else(PoisonError::into_inner);
        let (image, spare) = &mut *image;
        let cut = self.cut.load(Ordering::Relaxed);
        let written = || "write an image".to_owned();
        for unit in 0..self.saved.len() as u32 {
            if unit % UNITS_BETWEEN_LOOKS == 0 {
                self.captured.drain(image, spare).context(written)?;
            }
            if image.is_full() {
                image.write().context(written)?;
            }
            if self.claim(unit, cut) {
                self.rows_of(unit).for_each(|row| self.rows.read(row, 0, image.append(row)));
                self.release(unit, cut);
            }
        }
        // A writer that is at a unit may wait for room.
        while !(0..self.saved.len() as u32).all(|unit| self.is_saved(unit, cut)) {
            self.captured.drain(image, spare).context(written)?;
            std::thread::yield_now();
        }
        self.is_saving.store(false, Ordering::Release);
        self.captured.drain(image, spare).context(written)?;
        image.commit().context(written)
    }

    fn content(&self) -> Vec<u8> {
        let mut rows = vec![0; self.row_count as usize * self.rows.row_len()];
        let parts = rows.chunks_exact_mut(self.rows.row_len());
        (0..).zip(parts).for_each(|(row, bytes)| self.rows.read(row, 0, bytes));
        rows
    }

    fn image(&self) -> Result<Vec<u8>> {
        self.image.lock().unwrap_or_else(PoisonError::into_inner).0.rows(self.row_count)
    }

    fn image_bytes(&self) -> u64 {
        self.image.lock().unwrap_or_else(PoisonError::into_inner).0.file().image_bytes()
    }
}
