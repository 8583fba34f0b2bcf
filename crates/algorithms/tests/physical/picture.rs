//! Images in memory, which take what they are given as the contract allows, fail when told, and wait when told.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use stillframe_algorithms::{Copies, Help, Image, ImageError, Place, RowId};

/// The content of each row.
pub type Rows = Vec<Vec<u8>>;

/// Images on a disk: the last that finished, and the one on its way, which writers may help with.
#[derive(Default)]
pub struct Disk(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    last: Rows,
    rows: Vec<Option<Vec<u8>>>,
    row_len: usize,
    steps_left: Option<u64>,
}

impl Disk {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The last image that finished.
    pub fn last(&self) -> Rows {
        self.inner().last.clone()
    }

    /// Before a cut of so many rows at most: the next image, one of whose steps fails, if told.
    pub fn expect(&self, row_count: u32, row_len: usize, fails_after: Option<u64>) {
        let mut inner = self.inner();
        inner.rows = vec![None; row_count as usize];
        inner.row_len = row_len;
        inner.steps_left = fails_after;
    }
}

impl Inner {
    fn step(&mut self) -> Result<(), ImageError> {
        match &mut self.steps_left {
            Some(0) => return Err(ImageError::new("as told")),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(())
    }

    fn put(&mut self, row: RowId, bytes: Vec<u8>) -> Result<(), ImageError> {
        self.step()?;
        let slot = self.rows.get_mut(row.0 as usize);
        let slot = slot.unwrap_or_else(|| panic!("row {} came after the cut", row.0));
        assert!(slot.replace(bytes).is_none(), "row {} twice", row.0);
        Ok(())
    }
}

fn bytes_of(copies: &impl Copies, place: Place) -> Vec<u8> {
    let mut bytes = vec![0; copies.row_len()];
    copies.read(place, &mut bytes);
    bytes
}

impl<C: Copies> Help<C> for Disk {
    fn emit(&self, copies: &C, row: RowId, place: Place) -> Result<(), ImageError> {
        self.inner().put(row, bytes_of(copies, place))
    }
}

/// The image of one cut.
pub struct Picture<'d> {
    pub disk: &'d Disk,
    pub is_incremental: bool,
    /// Rows after which there is no room until it has been drained, and how long that takes.
    pub pause_rows: u32,
    pub pause: Duration,
    /// Whether it says so when there is no room.
    pub is_asynchronous: bool,
    pub rows_since: u32,
    /// The row that was put last: it may be taken back, and a writer may give it meanwhile.
    pub pending: Option<(RowId, Vec<u8>)>,
    pub is_finished: bool,
}

impl Picture<'_> {
    fn keep_pending(&mut self) -> Result<(), ImageError> {
        match self.pending.take() {
            Some((row, bytes)) => self.disk.inner().put(row, bytes),
            None => Ok(()),
        }
    }
}

impl<C: Copies> Image<C> for Picture<'_> {
    fn put(&mut self, copies: &C, row: RowId, place: Place) -> Result<(), ImageError> {
        assert!(self.rows_since < self.pause_rows, "there is no room");
        self.keep_pending()?;
        self.rows_since += 1;
        self.pending = Some((row, bytes_of(copies, place)));
        Ok(())
    }

    fn take_back(&mut self) {
        assert!(self.pending.take().is_some(), "a row has just been put");
        self.rows_since -= 1;
    }

    fn has_room(&mut self) -> bool {
        self.rows_since < self.pause_rows
    }

    fn is_busy(&mut self) -> bool {
        self.is_asynchronous
    }

    fn drain(&mut self) -> Result<(), ImageError> {
        self.disk.inner().step()?;
        std::thread::sleep(self.pause);
        self.rows_since = 0;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), ImageError> {
        self.keep_pending()?;
        let mut inner = self.disk.inner();
        inner.step()?;
        let rows = std::mem::take(&mut inner.rows);
        // A row that came and was not written is zero.
        let zero = vec![0; inner.row_len];
        inner.last.resize(rows.len(), zero);
        for (row, bytes) in rows.into_iter().enumerate() {
            match bytes {
                Some(bytes) => inner.last[row] = bytes,
                None => assert!(self.is_incremental, "row {row} is missing"),
            }
        }
        self.is_finished = true;
        Ok(())
    }
}
