//! A bitwise operation on large values, made part by part: sources and result may be larger than memory.
//!
//! ```text
//!            begin, the sources are pinned     all bytes there          the sources are still what they were
//!   (none) ───────────────────────────▶ combined ───────▶ whole ──────────────────────────────────▶ part of the data
//! ```

use std::io::IoSlice;

use stillframe_store::{DbId, Incoming, Key, OpError, Sending, Worker};

/// Bytes of the result that are made between two looks at the barrier.
const STEP_BYTES: usize = 256 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BitOperation {
    And,
    Or,
    Xor,
    Not,
}

impl BitOperation {
    /// Combines what there is with as many bytes of one more string.
    pub fn combine(self, result: &mut [u8], more: &[u8]) {
        let pairs = result.iter_mut().zip(more);
        match self {
            BitOperation::And => pairs.for_each(|(a, b)| *a &= b),
            BitOperation::Or => pairs.for_each(|(a, b)| *a |= b),
            BitOperation::Xor | BitOperation::Not => pairs.for_each(|(a, b)| *a ^= b),
        }
    }
}

/// A source, as it was at the beginning.
#[derive(Debug)]
enum Source {
    Short(Vec<u8>),
    Long(Sending),
}

/// A result that is being made; see the module. It is nothing once it is dropped.
#[derive(Debug)]
pub struct Combination {
    operation: BitOperation,
    /// `None`: there is no such key.
    sources: Vec<Option<Source>>,
    result: Incoming,
}

impl Combination {
    /// Begins a result of so many bytes, those of the longest source.
    ///
    /// # Errors
    /// As of [`Worker::get`] and [`Worker::begin_incoming`].
    pub fn begin(
        worker: &mut Worker,
        db: DbId,
        operation: BitOperation,
        keys: &[Key<'_>],
        len_bytes: u64,
    ) -> Result<Combination, OpError> {
        let mut source = |key: &Key<'_>| match worker.string_at(db, key).begin_sending(|len| 0..len)? {
            Some(value) => Ok(Some(Source::Long(value))),
            None => Ok(worker.get(db, key, |value| value.to_vec())?.map(Source::Short)),
        };
        let sources = keys.iter().map(&mut source).collect::<Result<_, OpError>>()?;
        Ok(Combination { operation, sources, result: worker.begin_incoming(len_bytes)? })
    }

    /// Makes the next part. Returns whether that was the last.
    ///
    /// # Errors
    /// [`OpError::Fault`]: pages that are missing, or room. Others: it cannot be had.
    pub fn step(&mut self) -> Result<bool, OpError> {
        if self.result.is_complete() {
            return Ok(true);
        }
        if let Some(fault) = self.result.awaited_room() {
            return Err(fault.into());
        }
        let start = self.result.filled_bytes();
        let left = (self.result.len_bytes() - start).min(STEP_BYTES as u64);
        let (mut part, mut is_first) = (vec![0; left as usize], true);
        for source in &self.sources {
            self.add(source.as_ref(), start, &mut part, is_first)?;
            is_first = false;
        }
        if self.operation == BitOperation::Not {
            part.iter_mut().for_each(|byte| *byte = !*byte);
        }
        self.result.append(&part)?;
        Ok(self.result.is_complete())
    }

    /// Combines the bytes of a source from `start` on with a part, which gets shorter if not all of them are in memory. A source
    /// that has ended goes on with zeros.
    fn add(
        &self,
        source: Option<&Source>,
        start: u64,
        part: &mut Vec<u8>,
        is_first: bool,
    ) -> Result<(), OpError> {
        let operation = if is_first { BitOperation::Or } else { self.operation };
        let (len_bytes, mut done) = (source.map_or(0, Source::len_bytes), 0);
        let wanted = part.len().min(usize::try_from(len_bytes.saturating_sub(start)).unwrap_or(usize::MAX));
        let mut add = |bytes: &[u8]| {
            operation.combine(&mut part[done..], bytes);
            done += bytes.len();
        };
        match source {
            Some(Source::Short(bytes)) if wanted > 0 => add(&bytes[start as usize..start as usize + wanted]),
            Some(Source::Long(value)) if wanted > 0 => {
                let take = |parts: &[IoSlice<'_>]| parts.iter().for_each(|part| add(part));
                value.with_parts(start, wanted, take)?;
            }
            _ => {}
        }
        if done < wanted {
            part.truncate(done);
        } else if operation == BitOperation::And {
            part[done..].fill(0);
        }
        Ok(())
    }

    /// Whether the keys still have the values of which it is made, and it is whole.
    ///
    /// # Errors
    /// As of [`Worker::get`].
    pub fn is_current(&self, worker: &mut Worker, db: DbId, keys: &[Key<'_>]) -> Result<bool, OpError> {
        for (key, source) in keys.iter().zip(&self.sources) {
            let is_same = match source {
                None => worker.entry(db, key)?.is_none(),
                Some(Source::Long(value)) => worker.string_at(db, key).has_value(value)?,
                Some(Source::Short(bytes)) => {
                    let is_same = worker.get(db, key, |value| value.to_vec() == *bytes);
                    is_same? == Some(true)
                }
            };
            if !is_same {
                return Ok(false);
            }
        }
        Ok(self.result.is_complete() && keys.len() == self.sources.len())
    }

    /// What has been made.
    pub fn result(&self) -> &Incoming {
        &self.result
    }
}

impl Source {
    fn len_bytes(&self) -> u64 {
        match self {
            Source::Short(bytes) => bytes.len() as u64,
            Source::Long(value) => value.len_bytes(),
        }
    }
}
