//! Where blocks go: one behind the other into segments.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stillframe_pagepool::device::{Device, DeviceError, DeviceOp};
use stillframe_pagepool::PAGE_SIZE;

use crate::block::{block_bytes, encode_head, seal, Head, Header, Kind, FIRST_BLOCK};
use crate::bytes::{now_unix_ms, AlignedBytes};
use crate::chunk::Chunk;
use crate::error::JournalError;
use crate::files::Spare;
use crate::names::{Offset, SegmentNumber};
use crate::shared::{Job, Shared};
use crate::tail::Stop;

/// How long a write or a segment that space lacks for waits before the next attempt.
const SPACE_RETRY: Duration = Duration::from_secs(1);
/// How long the writer waits for a spare before it looks whether it is to end.
const SPARE_PATIENCE: Duration = Duration::from_millis(50);

/// Why the writer goes no further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Halt {
    /// The log has failed.
    Failed,
    /// It is to end, at once or since space lacks.
    Stopped,
}

/// The writer's place.
///
/// ```text
///   IN SEGMENT ── block fits ──▶ IN SEGMENT ── block does not fit ──▶ WAITS FOR SPARE ── taken, head durable ──▶ IN SEGMENT
/// ```
pub struct Output {
    shared: Arc<Shared>,
    device: Arc<dyn Device>,
    segment: SegmentNumber,
    /// Where the next block goes, in bytes of the segment.
    at: u64,
    /// Checksum of the block before.
    chain: u32,
    /// What has been written since it was synced, oldest first.
    unsynced: Vec<(SegmentNumber, Arc<dyn Device>)>,
}

impl Output {
    /// Takes the first spare; the next block is at `offset` and follows one with the checksum `chain`.
    ///
    /// # Errors
    /// Those of the device.
    pub fn begin(shared: Arc<Shared>, offset: Offset, chain: u32) -> Result<Output, JournalError> {
        shared.files.make_one()?;
        let spare = shared.files.take_spare(Duration::ZERO).expect("one has been made");
        take(&shared, &spare, offset, chain)?;
        let Spare { number, device, .. } = spare;
        Ok(Output { shared, device, segment: number, at: FIRST_BLOCK, chain, unsynced: Vec::new() })
    }

    /// Whether everything that has been written has been synced, or is being.
    pub fn is_synced(&self) -> bool {
        self.unsynced.is_empty()
    }

    /// Segments that wait for a sync.
    pub fn unsynced_count(&self) -> usize {
        self.unsynced.len()
    }

    /// What is to be synced now.
    pub fn take_job(&mut self, covers: Offset) -> Job {
        Job { devices: std::mem::take(&mut self.unsynced), covers }
    }

    /// Writes a block, durably if that is asked for.
    ///
    /// # Errors
    /// The log has failed, which has been told, or is to end.
    pub fn write(&mut self, chunk: &mut Chunk, kind: Kind, is_durably: bool) -> Result<(), Halt> {
        let byte_count = block_bytes(chunk.payload_bytes);
        if self.at + byte_count as u64 > self.shared.files.segment_bytes() {
            self.next_segment(chunk.offset)?;
        }
        let header = Header {
            log: self.shared.log,
            segment: self.segment,
            page: (self.at / PAGE_SIZE as u64) as u32,
            offset: chunk.offset,
            payload_bytes: chunk.payload_bytes as u32,
            last_end: chunk.last_end,
            first_begin: chunk.first_begin,
            unit_count: chunk.unit_count,
            durable: self.shared.progress.durable(),
            unix_ms: chunk.unix_ms,
            chain: self.chain,
            kind,
            database: chunk.database,
        };
        let chain = seal(&header, chunk.block.get_mut());
        let block = &chunk.block.get()[..byte_count];
        let began = Instant::now();
        self.attempt(|output| match is_durably {
            true => {
                output.device.write_durably(output.at, &[IoSlice::new(block)], output.shared.method.get())
            }
            false => output.device.write_at(output.at, &[IoSlice::new(block)]),
        })?;
        match is_durably {
            true => self.shared.stats.note_sync(began.elapsed()),
            false => self.note_unsynced(),
        }
        self.chain = chain;
        self.at += byte_count as u64;
        Ok(())
    }

    fn note_unsynced(&mut self) {
        if self.unsynced.last().is_none_or(|(segment, _)| *segment != self.segment) {
            self.shared.files.mark_busy(self.segment);
            self.unsynced.push((self.segment, self.device.clone()));
        }
    }

    /// Does a write, again and again as long as only space lacks for it.
    fn attempt(&self, write: impl Fn(&Output) -> Result<(), DeviceError>) -> Result<(), Halt> {
        let files = &self.shared.files;
        loop {
            match write(self) {
                Ok(()) => {
                    files.set_lacks_space_to_write(false);
                    return Ok(());
                }
                // A sync that failed has dropped nobody knows what.
                Err(error) if error.is_no_space() && error.op == DeviceOp::Write => {
                    files.set_lacks_space_to_write(true);
                    self.shared.pulse.nudge();
                    self.must_go_on(true)?;
                    files.wait(SPACE_RETRY);
                }
                Err(error) => {
                    self.shared.fail(JournalError::Device(error));
                    return Err(Halt::Failed);
                }
            }
        }
    }

    /// A thread that waits for space does not close.
    fn must_go_on(&self, lacks_space: bool) -> Result<(), Halt> {
        if self.shared.has_failed() {
            return Err(Halt::Failed);
        }
        match self.shared.tail.stop() {
            Stop::Abandon => Err(Halt::Stopped),
            Stop::Close if lacks_space => Err(Halt::Stopped),
            _ => Ok(()),
        }
    }

    fn next_segment(&mut self, offset: Offset) -> Result<(), Halt> {
        let files = &self.shared.files;
        let spare = loop {
            if let Some(spare) = files.take_spare(SPARE_PATIENCE) {
                break spare;
            }
            if files.is_used_up() {
                let shelf = files.shelf_name().to_owned();
                self.shared.fail(JournalError::NumbersUsedUp { shelf });
            }
            self.must_go_on(files.lacks_space())?;
        };
        self.attempt(|output| take(&output.shared, &spare, offset, output.chain))?;
        self.segment = spare.number;
        self.device = spare.device;
        self.at = FIRST_BLOCK;
        Ok(())
    }
}

/// Makes a spare a segment: its first page is durable afterwards.
fn take(shared: &Shared, spare: &Spare, offset: Offset, chain: u32) -> Result<(), DeviceError> {
    spare.device.check_identity()?;
    let head = Head {
        log: shared.log,
        segment: spare.number,
        offset,
        segment_bytes: shared.files.segment_bytes(),
        durable: shared.progress.durable(),
        unix_ms: now_unix_ms(),
        chain,
    };
    let mut page = AlignedBytes::new(PAGE_SIZE);
    encode_head(&head, page.get_mut());
    spare.device.write_durably(0, &[IoSlice::new(page.get())], shared.method.get())?;
    shared.files.set_current(spare.number);
    Ok(())
}
