//! HyperLogLog: about how many different elements a set has, in at most 12 KB, in the bytes that Redis keeps.
//!
//! Each of 16384 registers remembers the longest run of zero bits among the hashes that fell to it. From that the number of
//! different hashes is estimated, with a standard error of 0.81 %. A value begins with 16 bytes:
//!
//! ```text
//!   "HYLL" | encoding: 0 dense, 1 sparse | 3 unused | 8 bytes: the last estimate, little endian
//! ```
//! The highest bit of the estimate says that registers have changed since. Then come the registers: 6 bits each
//! (`dense`), or runs of equal ones (`sparse`) as long as these are few.

mod dense;
mod estimate;
mod format;
mod hash;
mod sparse;
#[cfg(test)]
mod tests;

use std::ops::Range;

use estimate::Histogram;
pub use format::{Corrupted, HEADER_BYTES, REGISTER_COUNT};
use hash::Register;
pub use sparse::Opcode;

pub const DENSE_BYTES: usize = HEADER_BYTES + REGISTER_COUNT * dense::REGISTER_BITS / 8;
/// A run has one register at least.
pub const SPARSE_MOST_BYTES: usize = HEADER_BYTES + REGISTER_COUNT;

const MAGIC: &[u8] = b"HYLL";
const ENCODING_AT: usize = 4;
pub const COUNT: Range<usize> = 8..HEADER_BYTES;
const STALE_AT: usize = 15;
const STALE: u8 = 0x80;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    Dense = 0,
    Sparse = 1,
}

/// All registers of one or several sketches, a byte each.
pub struct Registers(Box<[u8; REGISTER_COUNT]>);

impl Default for Registers {
    fn default() -> Self {
        Registers(Box::new([0; REGISTER_COUNT]))
    }
}

impl Registers {
    fn raise(&mut self, index: usize, value: u8) {
        if let Some(register) = self.0.get_mut(index) {
            *register = value.max(*register);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        self.0.iter().copied()
    }

    /// The estimate.
    pub fn count(&self) -> u64 {
        let mut histogram = Histogram::default();
        self.iter().for_each(|value| histogram.add(value, 1));
        histogram.estimate()
    }
}

/// Which bytes of a value differ from those that it was made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Changed {
    Nothing,
    /// Of the registers; and the estimate is marked as stale.
    Bytes(Range<usize>),
    All,
}

impl Changed {
    fn add(&mut self, bytes: Range<usize>) {
        match self {
            Changed::Nothing => *self = Changed::Bytes(bytes),
            Changed::Bytes(all) => *all = all.start.min(bytes.start)..all.end.max(bytes.end),
            Changed::All => {}
        }
    }
}

/// A value with a header that is right; its registers need not be.
pub struct Sketch {
    bytes: Vec<u8>,
    changed: Changed,
}

impl Sketch {
    /// No element, sparse.
    pub fn empty() -> Sketch {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[ENCODING_AT] = Encoding::Sparse as u8;
        sparse::push_zeros(&mut bytes, REGISTER_COUNT);
        Sketch { bytes, changed: Changed::All }
    }

    /// Takes the bytes of a value, all of them or the first of `value_bytes`; none if the header is not that of a sketch.
    pub fn read(bytes: Vec<u8>, value_bytes: u64) -> Option<Sketch> {
        if bytes.len() < HEADER_BYTES || !bytes.starts_with(MAGIC) {
            return None;
        }
        let is_known = match bytes[ENCODING_AT] {
            0 => value_bytes == DENSE_BYTES as u64,
            encoding => encoding == Encoding::Sparse as u8,
        };
        is_known.then_some(Sketch { bytes, changed: Changed::Nothing })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn changed(&self) -> &Changed {
        &self.changed
    }

    pub fn encoding(&self) -> Encoding {
        if self.bytes[ENCODING_AT] == Encoding::Dense as u8 {
            Encoding::Dense
        } else {
            Encoding::Sparse
        }
    }

    /// The last estimate, if no register has changed since.
    pub fn known_count(&self) -> Option<u64> {
        let bytes = self.bytes[COUNT].first_chunk()?;
        (self.bytes[STALE_AT] & STALE == 0).then(|| u64::from_le_bytes(*bytes))
    }

    /// Marks the estimate as stale. Returns the byte that says so, and its place, if it was not.
    pub fn forget_count(&mut self) -> Option<(usize, u8)> {
        let is_new = self.bytes[STALE_AT] & STALE == 0;
        self.bytes[STALE_AT] |= STALE;
        is_new.then(|| (STALE_AT, self.bytes[STALE_AT]))
    }

    /// Adds an element; returns whether a register has changed. A sparse value that would exceed `sparse_max_bytes` becomes
    /// dense.
    ///
    /// # Errors
    /// The runs do not make up all registers.
    pub fn add(&mut self, element: &[u8], sparse_max_bytes: u64) -> Result<bool, Corrupted> {
        let Register { index, value } = Register::of(element);
        self.raise(index, value, sparse_max_bytes)
    }

    /// Raises all registers to at least those given.
    ///
    /// # Errors
    /// As [`Sketch::add`].
    pub fn raise_all(&mut self, registers: &Registers, sparse_max_bytes: u64) -> Result<(), Corrupted> {
        for (index, value) in registers.iter().enumerate().filter(|(_, value)| *value > 0) {
            self.raise(index, value, sparse_max_bytes)?;
        }
        Ok(())
    }

    fn raise(&mut self, index: usize, value: u8, sparse_max_bytes: u64) -> Result<bool, Corrupted> {
        if self.encoding() == Encoding::Sparse {
            match sparse::raise(&mut self.bytes, index, value, sparse_max_bytes)? {
                sparse::Raised::No => return Ok(false),
                sparse::Raised::Yes => {
                    self.changed = Changed::All;
                    return Ok(true);
                }
                sparse::Raised::DoesNotFit => self.make_dense()?,
            }
        }
        let raised = dense::raise(&mut self.bytes[HEADER_BYTES..], index, value);
        if let Some(bytes) = &raised {
            self.changed.add(HEADER_BYTES + bytes.start..HEADER_BYTES + bytes.end);
        }
        Ok(raised.is_some())
    }

    /// Makes a sparse value dense.
    ///
    /// # Errors
    /// As [`Sketch::add`].
    pub fn make_dense(&mut self) -> Result<(), Corrupted> {
        if self.encoding() == Encoding::Dense {
            return Ok(());
        }
        let mut dense = self.bytes[..HEADER_BYTES].to_vec();
        dense[ENCODING_AT] = Encoding::Dense as u8;
        dense.resize(DENSE_BYTES, 0);
        self.for_each_run(|run, value| {
            for index in run {
                dense::raise(&mut dense[HEADER_BYTES..], index, value);
            }
        })?;
        (self.bytes, self.changed) = (dense, Changed::All);
        Ok(())
    }

    /// Raises `registers` to at least those of the sketch.
    ///
    /// # Errors
    /// As [`Sketch::add`].
    pub fn merge_into(&self, registers: &mut Registers) -> Result<(), Corrupted> {
        self.for_each_run(|run, value| run.for_each(|index| registers.raise(index, value)))
    }

    /// The estimate, reckoned anew.
    ///
    /// # Errors
    /// As [`Sketch::add`].
    pub fn count(&self) -> Result<u64, Corrupted> {
        let mut histogram = Histogram::default();
        self.for_each_run(|run, value| histogram.add(value, run.len()))?;
        Ok(histogram.estimate())
    }

    /// Runs of equal registers, in their order; those of a dense value are of one register.
    fn for_each_run(&self, mut f: impl FnMut(Range<usize>, u8)) -> Result<(), Corrupted> {
        match self.encoding() {
            Encoding::Dense => {
                let registers = dense::registers(&self.bytes[HEADER_BYTES..]);
                registers.enumerate().for_each(|(index, value)| f(index..index + 1, value));
            }
            Encoding::Sparse => {
                let mut end = 0;
                for opcode in self.opcodes() {
                    let start = end;
                    end += opcode.register_count();
                    if end > REGISTER_COUNT {
                        return Err(Corrupted);
                    }
                    f(start..end, opcode.value());
                }
                if end != REGISTER_COUNT {
                    return Err(Corrupted);
                }
            }
        }
        Ok(())
    }

    /// The runs of a sparse value as they are written.
    pub fn opcodes(&self) -> impl Iterator<Item = Opcode> + '_ {
        sparse::opcodes(&self.bytes[HEADER_BYTES..])
    }
}

/// Looks whether registers keep what is put into them, and whether estimates of known numbers are as good as they should be.
///
/// # Errors
/// What was found.
pub fn self_test() -> Result<(), String> {
    let mut expected = vec![0; REGISTER_COUNT];
    let mut packed = vec![0; DENSE_BYTES - HEADER_BYTES];
    for round in 0..8 {
        for (index, register) in expected.iter_mut().enumerate() {
            let value = fastrand::u8(0..=hash::VALUE_MAX);
            dense::raise(&mut packed, index, value);
            *register = value.max(*register);
        }
        if !dense::registers(&packed).eq(expected.iter().copied()) {
            return Err(format!("ERR TESTFAILED registers differ in round {round}"));
        }
    }
    let (mut sparse, mut dense) = (Sketch::empty(), Sketch::empty());
    let seed = fastrand::u64(..);
    let test_failed = |_| "ERR TESTFAILED runs do not make up all registers".to_owned();
    dense.make_dense().map_err(test_failed)?;
    let mut checked_at = 1;
    for number in 1..=1_000_000_u64 {
        let element = (number ^ seed).to_le_bytes();
        sparse.add(&element, SELF_TEST_SPARSE_BYTES).map_err(test_failed)?;
        dense.add(&element, 0).map_err(test_failed)?;
        if number != checked_at {
            continue;
        }
        checked_at *= 10;
        let counts = (sparse.count().map_err(test_failed)?, dense.count().map_err(test_failed)?);
        if counts.0 != counts.1 {
            return Err(format!("ERR TESTFAILED dense/sparse disagree: {counts:?}"));
        }
        let error = counts.0.abs_diff(number);
        if error as f64 > (number as f64 * STANDARD_ERROR * STANDARD_ERRORS_MAX).ceil() {
            return Err(format!("ERR TESTFAILED Too big error. card:{number} abserr:{error}"));
        }
    }
    Ok(())
}

/// Some sketches of a self test become dense, and late.
const SELF_TEST_SPARSE_BYTES: u64 = 3000;
/// 1.04 divided by the root of the number of registers.
const STANDARD_ERROR: f64 = 1.04 / 128.0;
/// Far more than a test that is run now and then would meet by chance.
const STANDARD_ERRORS_MAX: f64 = 6.0;
