//! Runs of equal registers:
//!
//! ```text
//!   00nnnnnn            1 to 64 registers that are zero
//!   01nnnnnn nnnnnnnn   1 to 16384 of them
//!   1vvvvvnn            1 to 4 registers with a value of 1 to 32
//! ```
//! Lengths and values are written less one. No two runs of values that could be one are neighbours of a register that was raised
//! last; elsewhere there may be some. Which, follows from the order in which elements came, and is as in Redis.

use super::format::{Corrupted, HEADER_BYTES};

const ZEROS_SHORT_MAX: usize = 64;
const VALUE_RUN_MAX: usize = 4;
const VALUE_MAX: u8 = 32;
const LONG: u8 = 0x40;
const VALUE: u8 = 0x80;
/// After a change, so many runs from the one before it on are looked at for neighbours that can be one.
const JOINED_RUNS: usize = 5;

/// A run as it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opcode {
    Zeros { register_count: usize },
    ManyZeros { register_count: usize },
    Values { value: u8, register_count: usize },
}

impl Opcode {
    /// The first of some bytes. A second byte that is missing counts as zero.
    fn first(bytes: &[u8]) -> Option<Opcode> {
        let low = |byte: u8| usize::from(byte & 0x3f);
        let opcode = match *bytes.first()? {
            byte if byte & VALUE != 0 => {
                Opcode::Values { value: (byte >> 2 & 0x1f) + 1, register_count: usize::from(byte & 3) + 1 }
            }
            byte if byte & LONG != 0 => {
                let second = bytes.get(1).copied().unwrap_or(0);
                Opcode::ManyZeros { register_count: (low(byte) << 8 | usize::from(second)) + 1 }
            }
            byte => Opcode::Zeros { register_count: low(byte) + 1 },
        };
        Some(opcode)
    }

    pub fn register_count(self) -> usize {
        match self {
            Opcode::Zeros { register_count }
            | Opcode::ManyZeros { register_count }
            | Opcode::Values { register_count, .. } => register_count,
        }
    }

    pub fn value(self) -> u8 {
        match self {
            Opcode::Values { value, .. } => value,
            _ => 0,
        }
    }

    fn len_bytes(self) -> usize {
        match self {
            Opcode::ManyZeros { .. } => 2,
            _ => 1,
        }
    }
}

/// The runs that are written in some bytes.
pub fn opcodes(bytes: &[u8]) -> impl Iterator<Item = Opcode> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let opcode = Opcode::first(rest)?;
        rest = rest.get(opcode.len_bytes()..).unwrap_or_default();
        Some(opcode)
    })
}

/// Writes a run of zeros, if there are any.
pub fn push_zeros(to: &mut Vec<u8>, register_count: usize) {
    let Some(written) = register_count.checked_sub(1) else { return };
    if register_count > ZEROS_SHORT_MAX {
        to.push(LONG | (written >> 8) as u8);
    }
    to.push(written as u8);
}

/// A run of 1 to 4 registers.
fn values(value: u8, register_count: usize) -> u8 {
    VALUE | (value - 1) << 2 | (register_count - 1) as u8
}

fn push_values(to: &mut Vec<u8>, value: u8, register_count: usize) {
    if register_count > 0 {
        to.push(values(value, register_count));
    }
}

/// What became of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Raised {
    /// It is that high already.
    No,
    Yes,
    /// The value has to become dense for that; it is as it was.
    DoesNotFit,
}

/// Raises a register of a sparse value, whose header is among `bytes`, to at least `value`.
pub fn raise(
    bytes: &mut Vec<u8>,
    index: usize,
    value: u8,
    sparse_max_bytes: u64,
) -> Result<Raised, Corrupted> {
    if value > VALUE_MAX {
        return Ok(Raised::DoesNotFit);
    }
    let (mut at, mut before, mut first) = (HEADER_BYTES, HEADER_BYTES, 0);
    let old = loop {
        let old = bytes.get(at..).and_then(Opcode::first).ok_or(Corrupted)?;
        if at + old.len_bytes() > bytes.len() {
            return Err(Corrupted);
        }
        if index < first + old.register_count() {
            break old;
        }
        (before, at, first) = (at, at + old.len_bytes(), first + old.register_count());
    };
    if old.value() >= value {
        return Ok(Raised::No);
    }
    let (left, right) = (index - first, first + old.register_count() - 1 - index);
    let mut new = Vec::with_capacity(5);
    match old {
        Opcode::Values { value: around, .. } => {
            push_values(&mut new, around, left);
            push_values(&mut new, value, 1);
            push_values(&mut new, around, right);
        }
        Opcode::Zeros { .. } | Opcode::ManyZeros { .. } => {
            push_zeros(&mut new, left);
            push_values(&mut new, value, 1);
            push_zeros(&mut new, right);
        }
    }
    let len_bytes = bytes.len() + new.len() - old.len_bytes();
    if len_bytes > bytes.len() && len_bytes as u64 > sparse_max_bytes {
        return Ok(Raised::DoesNotFit);
    }
    bytes.splice(at..at + old.len_bytes(), new);
    join(bytes, before);
    Ok(Raised::Yes)
}

/// Makes one of neighbours with equal values, from the run at `at` on, where it is not too long for that.
fn join(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOINED_RUNS {
        let Some(run) = bytes.get(at..).and_then(Opcode::first) else { return };
        let next = bytes.get(at + run.len_bytes()..).and_then(Opcode::first);
        if let (
            Opcode::Values { value, register_count },
            Some(Opcode::Values { value: same, register_count: more }),
        ) = (run, next)
        {
            if value == same && register_count + more <= VALUE_RUN_MAX {
                bytes[at + 1] = values(value, register_count + more);
                bytes.remove(at);
                continue;
            }
        }
        at += run.len_bytes();
    }
}
