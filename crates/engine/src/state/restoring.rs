//! A large payload of `RESTORE` on its way to being a value: it has come into pages, and the value goes into others, part by
//! part.
//!
//! ```text
//!            begin              all bytes taken, checksum right          a key refers to the value
//!   (none) ─────────▶ taken apart ──────────────────────────▶ whole ─────────────────────────▶ part of the data
//!                        │ it is no payload of a string
//!                        └─────────▶ refused: the command says why
//! ```

use std::io::IoSlice;

use stillframe_store::rdb::{PayloadContent, PayloadError, PayloadReader, PAYLOAD_HEAD_BYTES};
use stillframe_store::{Fault, Incoming, OpError, Sending, Worker};

/// Bytes of the payload that are taken at a time: what they stand for is held for a moment (1.4 MB at most).
const STEP_BYTES: usize = 16 << 10;
/// Steps between two pauses.
const STEPS: usize = 16;
/// Shorter values are held.
const HELD_BYTES: u64 = 64 << 10;

/// Where the bytes of the value go.
#[derive(Debug)]
enum Target {
    Held(Vec<u8>),
    Pages(Incoming),
}

/// What a payload has turned out to be.
#[derive(Debug)]
pub enum Restored<'r> {
    Int(i64),
    Held(&'r [u8]),
    Pages(&'r Incoming),
    /// The bytes of a collection.
    Collection {
        bytes: &'r [u8],
        version: u32,
    },
}

/// See the module. It is nothing once it is dropped.
#[derive(Debug)]
pub struct Restoring {
    payload: Sending,
    taken_bytes: u64,
    /// Taken from the payload, and not in its place yet.
    waiting: Vec<u8>,
    target: Target,
    /// `None` once it has ended.
    reader: Option<PayloadReader>,
    content: Result<PayloadContent, PayloadError>,
}

/// The bytes of a payload from `start` on, in memory.
fn bytes_at<const N: usize>(payload: &Sending, start: u64) -> Result<[u8; N], OpError> {
    let (mut bytes, mut done) = ([0; N], 0);
    while done < N {
        let count = payload.with_parts(start + done as u64, N - done, |parts: &[IoSlice<'_>]| {
            let before = done;
            for part in parts {
                bytes[done..done + part.len()].copy_from_slice(part);
                done += part.len();
            }
            done - before
        })?;
        if count == 0 {
            return Err(OpError::Damaged("a payload is shorter than was announced".into()));
        }
    }
    Ok(bytes)
}

impl Restoring {
    /// Begins with a payload that has come. `None`: too many values are being read in parts.
    ///
    /// # Errors
    /// As of [`Worker::get`] and [`Worker::begin_incoming`].
    pub fn begin(worker: &mut Worker, payload: &Incoming) -> Result<Option<Restoring>, OpError> {
        let Some(payload) = worker.begin_reading(payload)? else { return Ok(None) };
        let start = bytes_at::<PAYLOAD_HEAD_BYTES>(&payload, 0)?;
        let footer = bytes_at(&payload, payload.len_bytes() - PayloadReader::FOOTER_BYTES as u64)?;
        let reader = PayloadReader::new(&start, footer);
        let target = match reader.length_bytes().filter(|length| *length > HELD_BYTES) {
            Some(length) => Target::Pages(worker.begin_incoming(length)?),
            None => Target::Held(Vec::new()),
        };
        let (waiting, content) = (Vec::new(), Err(PayloadError::BadData));
        Ok(Some(Restoring { payload, taken_bytes: 0, waiting, target, reader: Some(reader), content }))
    }

    /// Takes the next part. Returns whether that was the last.
    ///
    /// # Errors
    /// [`OpError::Fault`]: pages that are missing, or room. Others: it cannot be had.
    pub fn step(&mut self) -> Result<bool, OpError> {
        for _ in 0..STEPS {
            self.place_waiting()?;
            let body_bytes = self.payload.len_bytes() - PayloadReader::FOOTER_BYTES as u64;
            let Some(reader) = &mut self.reader else { return Ok(true) };
            let left = body_bytes - self.taken_bytes;
            if left == 0 {
                self.content = self.reader.take().map_or(Err(PayloadError::BadData), PayloadReader::finish);
                return Ok(true);
            }
            let waiting = &mut self.waiting;
            let take = |parts: &[IoSlice<'_>]| {
                parts.iter().for_each(|part| reader.feed(part, |bytes| waiting.extend_from_slice(bytes)));
                parts.iter().map(|part| part.len() as u64).sum::<u64>()
            };
            self.taken_bytes +=
                self.payload.with_parts(self.taken_bytes, left.min(STEP_BYTES as u64) as usize, take)?;
        }
        Ok(false)
    }

    fn place_waiting(&mut self) -> Result<(), OpError> {
        let Restoring { target, waiting, .. } = self;
        match target {
            Target::Held(bytes) => bytes.append(waiting),
            Target::Pages(value) => {
                while !waiting.is_empty() && !value.is_complete() {
                    if let Some(fault) = value.awaited_room() {
                        return Err(fault.into());
                    }
                    let count = value.append(waiting)?;
                    waiting.drain(..count);
                }
            }
        }
        Ok(())
    }

    /// What is to be brought in for the next step while others have their turn.
    pub fn ahead(&self) -> Option<Fault> {
        self.payload.ahead(self.taken_bytes)
    }

    /// What it has turned out to be, once the last part has been taken.
    ///
    /// # Errors
    /// [`PayloadError`].
    pub fn restored(&self) -> Result<Restored<'_>, PayloadError> {
        Ok(match (self.content?, &self.target) {
            (PayloadContent::Int(value), _) => Restored::Int(value),
            (PayloadContent::Collection { version }, Target::Held(bytes)) => {
                Restored::Collection { bytes, version }
            }
            (PayloadContent::Collection { .. }, _) => return Err(PayloadError::BadData),
            (PayloadContent::String, Target::Held(bytes)) => Restored::Held(bytes),
            (PayloadContent::String, Target::Pages(value)) if value.is_complete() => Restored::Pages(value),
            (PayloadContent::String, Target::Pages(_)) => return Err(PayloadError::BadData),
        })
    }
}
