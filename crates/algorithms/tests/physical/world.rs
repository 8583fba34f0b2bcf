//! Rows under an algorithm, with a latch each and a model beside them.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use stillframe_algorithms::{Algorithm, Change, Copies, CopyId, Place, RowCopies, RowId, WordCopies};

use crate::picture::Rows;

/// What every write has of its own, so that no two are alike.
static SEQUENCE: AtomicU64 = AtomicU64::new(1);

/// What is in a row that has been let go.
const NONSENSE: u8 = 0xdb;

/// Copies on the heap. Of those that `LETS_GO`, rows turn into nonsense when they are let go.
pub struct TestCopies<const LETS_GO: bool> {
    rows: RowCopies,
    /// Held shared by an operation, exclusively by the cut.
    gate: RwLock<()>,
}

impl<const LETS_GO: bool> Copies for TestCopies<LETS_GO> {
    const LETS_GO: bool = LETS_GO;

    fn row_count(&self) -> u32 {
        self.rows.row_count()
    }

    fn row_len(&self) -> usize {
        self.rows.row_len()
    }

    fn copy(&self, from: Place, to: Place) {
        self.rows.copy(from, to);
    }

    fn copy_part(&self, from: Place, to: Place, bytes: Range<usize>) {
        self.rows.copy_part(from, to, bytes);
    }

    fn read(&self, place: Place, into: &mut [u8]) {
        self.rows.read(place, into);
    }

    fn let_go(&self, copy: CopyId, rows: Range<u32>) {
        if LETS_GO {
            // Reads in flight may be at it.
            drop(self.gate.write().unwrap_or_else(PoisonError::into_inner));
            let nonsense = vec![NONSENSE; self.row_len()];
            rows.for_each(|row| self.rows.array(copy).write(row, 0, &nonsense));
        }
    }
}

impl<const LETS_GO: bool> WordCopies for TestCopies<LETS_GO> {
    fn words(&self, place: Place) -> &[AtomicU64] {
        self.rows.words(place)
    }
}

/// What is done between two steps of another thread.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "mutations"), allow(dead_code))]
pub enum Deed {
    ReadAndWrite(RowId),
    /// Of the row that shares most words with this one.
    WriteNeighbour(RowId),
}

pub struct World<A, const LETS_GO: bool> {
    pub algorithm: A,
    pub copies: TestCopies<LETS_GO>,
    /// A row's latch; in it, the content that the row should have.
    rows: Vec<Mutex<Vec<u8>>>,
}

impl<A: Algorithm<TestCopies<LETS_GO>>, const LETS_GO: bool> World<A, LETS_GO> {
    /// `row_count` rows with content and room for as many as the algorithm was made for.
    pub fn new(algorithm: A, row_count: u32, slot_count: u32, row_len: usize) -> World<A, LETS_GO> {
        let rows = RowCopies::for_algorithm(&algorithm, slot_count, row_len);
        rows.set_row_count(row_count);
        let world = World {
            algorithm,
            copies: TestCopies { rows, gate: RwLock::new(()) },
            rows: (0..slot_count).map(|_| Mutex::new(vec![0; row_len])).collect(),
        };
        for row in 0..row_count {
            let mut model = world.latch(RowId(row));
            fill(&mut model);
            world.copies.rows.array(CopyId::D).write(row, 0, &model);
        }
        world.algorithm.start(&world.copies);
        world
    }

    fn latch(&self, row: RowId) -> MutexGuard<'_, Vec<u8>> {
        self.rows[row.0 as usize].lock().expect("no holder panics")
    }

    fn check(&self, row: RowId, model: &[u8]) {
        let mut found = vec![0; model.len()];
        self.copies.read(Place::of(row, self.algorithm.live(row)), &mut found);
        assert!(found == model, "row {} is not read as it was written", row.0);
    }

    /// Reads a row and compares it with what was written last.
    pub fn read(&self, row: RowId) {
        let _gate = self.copies.gate.read().expect("no holder panics");
        let model = self.latch(row);
        self.check(row, &model);
    }

    /// Writes a part of a row: bytes that nobody has written before.
    pub fn write(&self, row: RowId, at: usize, len: usize) {
        self.write_within(row, at, len, Change::part(at..at + len));
    }

    /// The same, of which is said that any byte of the row may change.
    pub fn write_somewhere(&self, row: RowId, at: usize, len: usize) {
        self.write_within(row, at, len, Change::part(0..self.copies.row_len()));
    }

    /// Writes all of a row anew.
    pub fn replace(&self, row: RowId) {
        self.write_within(row, 0, self.copies.row_len(), Change::Whole);
    }

    /// Frees a row: it becomes zero.
    pub fn clear(&self, row: RowId) {
        self.write_bytes(row, 0, &vec![0; self.copies.row_len()], Change::Whole);
    }

    fn write_within(&self, row: RowId, at: usize, len: usize, change: Change) {
        let mut bytes = vec![0; len];
        fill(&mut bytes);
        self.write_bytes(row, at, &bytes, change);
    }

    fn write_bytes(&self, row: RowId, at: usize, bytes: &[u8], change: Change) {
        let _gate = self.copies.gate.read().expect("no holder panics");
        let mut model = self.latch(row);
        self.check(row, &model);
        let copy = self.algorithm.before_write(&self.copies, row, change);
        model[at..at + bytes.len()].copy_from_slice(bytes);
        self.copies.rows.array(copy).write(row.0, at, bytes);
        self.algorithm.after_write(&self.copies, row, change);
        self.check(row, &model);
    }

    /// One more row, if there is room.
    pub fn grow(&self) {
        let _gate = self.copies.gate.write().expect("no holder panics");
        let row_count = self.copies.row_count();
        if (row_count as usize) < self.rows.len() {
            self.copies.rows.set_row_count(row_count + 1);
        }
    }

    /// Takes a cut, and a clone of the model with it. `told` hears of it before anything else happens.
    pub fn cut(&self, told: impl FnOnce(u32)) -> Rows {
        let _gate = self.copies.gate.write().expect("no holder panics");
        let model = (0..self.copies.row_count()).map(|row| self.latch(RowId(row)).clone()).collect();
        told(self.copies.row_count());
        self.algorithm.cut(&self.copies);
        model
    }

    /// What an intruder wants.
    pub fn intrude(&self, deed: Deed) {
        match deed {
            Deed::ReadAndWrite(row) => {
                self.read(row);
                self.write(row, 0, 8);
            }
            Deed::WriteNeighbour(row) => {
                let neighbour = RowId(row.0 ^ 1);
                if neighbour.0 < self.copies.row_count() {
                    self.write(neighbour, 0, 8);
                }
            }
        }
    }

    /// After an access phase that succeeded.
    pub fn check_idle(&self) {
        let _gate = self.copies.gate.write().expect("no holder panics");
        assert!(self.algorithm.is_idle(), "flags or frames of the last cut are left");
    }

    /// All rows, when nobody is at work any more.
    pub fn check_all(&self) {
        (0..self.copies.row_count()).for_each(|row| self.read(RowId(row)));
    }
}

fn fill(bytes: &mut [u8]) {
    let number = SEQUENCE.fetch_add(1, Ordering::Relaxed).to_le_bytes();
    bytes.iter_mut().zip(number.iter().cycle()).for_each(|(byte, part)| *byte = *part);
}
