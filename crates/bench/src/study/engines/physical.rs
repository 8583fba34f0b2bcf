//! The algorithms of `stillframe-algorithms` over rows in memory.

use std::sync::{Mutex, PoisonError};

use stillframe_algorithms::{Algorithm, Change, CopyId, Image, ImageError, Place, RowId};

use crate::error::{BenchError, Result};
use crate::study::draw::Update;
use crate::study::engine::{store, Engine};
use crate::study::image_file::{Merged, Runs};
use crate::study::memory::Counted;

/// Full images are written in runs, those of incremental algorithms are merged with the last.
pub enum Dump {
    Full(Runs),
    Merged(Merged),
}

impl Image<Counted> for Dump {
    #[inline]
    fn put(&mut self, copies: &Counted, row: RowId, place: Place) -> std::result::Result<(), ImageError> {
        match self {
            Dump::Full(runs) => runs.put(copies, row, place),
            Dump::Merged(merged) => merged.put(copies, row, place),
        }
    }

    fn take_back(&mut self) {
        match self {
            Dump::Full(runs) => Image::<Counted>::take_back(runs),
            Dump::Merged(merged) => Image::<Counted>::take_back(merged),
        }
    }

    #[inline]
    fn has_room(&mut self) -> bool {
        match self {
            Dump::Full(runs) => Image::<Counted>::has_room(runs),
            Dump::Merged(merged) => Image::<Counted>::has_room(merged),
        }
    }

    fn drain(&mut self) -> std::result::Result<(), ImageError> {
        match self {
            Dump::Full(runs) => Image::<Counted>::drain(runs),
            Dump::Merged(merged) => Image::<Counted>::drain(merged),
        }
    }

    fn finish(&mut self) -> std::result::Result<(), ImageError> {
        match self {
            Dump::Full(runs) => Image::<Counted>::finish(runs),
            Dump::Merged(merged) => Image::<Counted>::finish(merged),
        }
    }
}

pub struct Physical<A> {
    algorithm: A,
    copies: Counted,
    /// The saver's.
    dump: Mutex<Dump>,
    row_count: u32,
}

impl<A: Algorithm<Counted>> Physical<A> {
    pub fn new(algorithm: A, copies: Counted, dump: Dump, row_count: u32) -> Physical<A> {
        algorithm.start(&copies);
        Physical { algorithm, copies, dump: Mutex::new(dump), row_count }
    }

    fn dump(&self) -> std::sync::MutexGuard<'_, Dump> {
        self.dump.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A: Algorithm<Counted>> Engine for Physical<A> {
    #[inline(always)]
    fn write<const WHOLE: bool>(&self, Update { row, word }: Update, value: u64) {
        let row = RowId(row);
        let at = word as usize * 8;
        let change = if WHOLE { Change::Whole } else { Change::part(at..at + 8) };
        let copy = self.algorithm.before_write(&self.copies, row, change);
        store::<WHOLE>(self.copies.0.array(copy).row(row.0), word, value);
        self.algorithm.after_write(&self.copies, row, change);
    }

    fn cut(&self) -> Result<()> {
        self.algorithm.cut(&self.copies);
        Ok(())
    }

    fn access(&self) -> Result<()> {
        let result = self.algorithm.access(&self.copies, &mut *self.dump());
        result.map_err(|error| BenchError::failed("save", error))
    }

    fn content(&self) -> Vec<u8> {
        let row_len = self.copies.0.array(CopyId::D).row_len();
        let mut rows = vec![0; self.row_count as usize * row_len];
        for (row, bytes) in (0..).zip(rows.chunks_exact_mut(row_len)) {
            self.copies.0.array(self.algorithm.live(RowId(row))).read(row, 0, bytes);
        }
        rows
    }

    fn image(&self) -> Result<Vec<u8>> {
        match &*self.dump() {
            Dump::Full(runs) => runs.rows(self.row_count),
            Dump::Merged(merged) => merged.file().read(),
        }
    }

    fn image_bytes(&self) -> u64 {
        match &*self.dump() {
            Dump::Full(runs) => runs.file().image_bytes(),
            Dump::Merged(merged) => merged.file().image_bytes(),
        }
    }

    fn helped_rows(&self) -> u64 {
        match &*self.dump() {
            Dump::Full(runs) => runs.helped(),
            Dump::Merged(_) => 0,
        }
    }
}
