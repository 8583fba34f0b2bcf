//! The thread that writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::block::{Kind, HEADER_BYTES};
use crate::chunk::{Chunk, Large, Link, Part};
use crate::error::{BodyError, JournalError};
use crate::names::Offset;
use crate::options::SyncPolicy;
use crate::output::{Halt, Output};
use crate::shared::Shared;
use crate::tail::{Stop, View, Wish};

/// Where nobody waits, so many bytes are gathered before they are written,
const GATHERED_BYTES: u64 = 256 << 10;
/// or what comes in this time.
const GATHERING: Duration = Duration::from_millis(20);
/// Time between two syncs of [`SyncPolicy::EverySecond`].
const SYNC_PERIOD: Duration = Duration::from_secs(1);
/// Segments that may wait for a sync: each keeps its file open.
const UNSYNCED_SEGMENTS: usize = 8;

/// Takes units from the tail and writes them.
///
/// ```text
///             bytes come                    enough, or long enough, or somebody waits
///   ASLEEP ──────────────▶ GATHERS ────────────────────────────────────────────────▶ WRITES ──▶ ASLEEP
///             the policy is `Always`: at once ──────────────────────────────────────▶
/// ```
/// With `Always` it syncs too; else it leaves that to the helper, and writes on.
pub struct Writer {
    shared: Arc<Shared>,
    output: Output,
    parts: Vec<Part>,
    chunks: Vec<Chunk>,
    /// For blocks of what is too large to be copied.
    scratch: Option<Chunk>,
    block_bytes: usize,
    /// Everything before it has been written.
    written: Offset,
    gathering_since: Option<Instant>,
    synced_at: Option<Instant>,
    seen_wanted: Offset,
    policy: SyncPolicy,
}

impl Writer {
    pub fn new(shared: Arc<Shared>, output: Output, block_bytes: usize) -> Writer {
        let (written, policy) = (shared.tail.end(), shared.tail.policy());
        Writer {
            shared,
            output,
            parts: Vec::new(),
            chunks: Vec::new(),
            scratch: None,
            block_bytes,
            written,
            gathering_since: None,
            synced_at: None,
            seen_wanted: Offset(0),
            policy,
        }
    }

    /// Writes until it is to end.
    ///
    /// # Errors
    /// The log has failed, or was not closed.
    pub fn run(mut self) -> Result<Offset, JournalError> {
        let halt = loop {
            match self.step() {
                Ok(None) => {}
                Ok(Some(end)) => return Ok(end),
                Err(halt) => break halt,
            }
        };
        Err(match (halt, self.shared.progress.failure()) {
            (_, Some(failure)) => JournalError::Before(failure),
            (Halt::Failed | Halt::Stopped, None) if self.shared.files.lacks_space() => {
                JournalError::NoSpace { shelf: self.shared.files.shelf_name().to_owned() }
            }
            (Halt::Failed | Halt::Stopped, None) => JournalError::Closed,
        })
    }

    /// Sleeps, and does what is due. Returns the end if the log has been closed.
    fn step(&mut self) -> Result<Option<Offset>, Halt> {
        let view = self.shared.tail.wait(self.wish());
        if self.shared.has_failed() {
            return Err(Halt::Failed);
        }
        if view.stop == Stop::Abandon {
            return Err(Halt::Stopped);
        }
        (self.policy, self.seen_wanted) = (view.policy, view.wanted);
        if view.waiting_bytes > 0 {
            self.shared.pulse.nudge_if_idle();
            let since = *self.gathering_since.get_or_insert_with(Instant::now);
            let is_urgent = self.is_urgent(&view);
            if is_urgent || view.waiting_bytes >= GATHERED_BYTES || since.elapsed() >= GATHERING {
                self.gathering_since = None;
                self.write_all()?;
            }
        }
        self.see_to_sync(&view)?;
        if view.stop == Stop::Close && self.shared.progress.durable() >= self.shared.tail.end() {
            return self.write_end().map(Some);
        }
        Ok(None)
    }

    fn is_urgent(&self, view: &View) -> bool {
        view.policy == SyncPolicy::Always || view.stop == Stop::Close || view.wanted > self.written
    }

    fn wish(&self) -> Wish {
        let gathering = self.gathering_since.map(|since| GATHERING.saturating_sub(since.elapsed()));
        let is_sync_to_come =
            self.policy == SyncPolicy::EverySecond && !self.output.is_synced() && self.shared.desk.is_idle();
        let sync = is_sync_to_come.then(|| self.until_sync());
        Wish {
            waiting_bytes: if gathering.is_some() { GATHERED_BYTES } else { 1 },
            wanted_beyond: self.seen_wanted,
            timeout: gathering.into_iter().chain(sync).min(),
        }
    }

    fn until_sync(&self) -> Duration {
        self.synced_at.map_or(Duration::ZERO, |at| SYNC_PERIOD.saturating_sub(at.elapsed()))
    }

    /// Writes all units that wait, durably with `Always`.
    fn write_all(&mut self) -> Result<(), Halt> {
        let mut parts = std::mem::take(&mut self.parts);
        let end = self.shared.tail.take(&mut parts);
        let part_count = parts.len();
        let mut is_durable = false;
        for (index, part) in parts.drain(..).enumerate() {
            let is_last = index + 1 == part_count;
            is_durable = match part {
                Part::Chunk(chunk) => self.write_chunk(chunk, is_last)?,
                Part::Link(link) => self.write_link(&link, is_last)?,
            };
        }
        self.parts = parts;
        self.written = end;
        if is_durable {
            self.shared.publish(end);
        }
        Ok(())
    }

    /// Whether a block can be made durable by itself: nothing before it waits for a sync.
    fn is_durably(&self, is_last: bool) -> bool {
        is_last && self.policy == SyncPolicy::Always && self.output.is_synced() && self.shared.desk.is_idle()
    }

    fn write_chunk(&mut self, mut chunk: Chunk, is_last: bool) -> Result<bool, Halt> {
        let is_durably = self.is_durably(is_last);
        self.output.write(&mut chunk, Kind::Stream, is_durably)?;
        let byte_count = chunk.payload_bytes as u64;
        self.chunks.push(chunk);
        self.give_back(byte_count);
        Ok(is_durably)
    }

    /// Makes blocks of a large part, and lets it go.
    fn write_link(&mut self, link: &Link, is_last: bool) -> Result<bool, Halt> {
        let mut chunk = self.scratch.take().unwrap_or_else(|| Chunk::new(self.block_bytes));
        let len = link.large.len_bytes();
        let mut at = 0;
        let mut is_durably = false;
        while at < len {
            let byte_count = (len - at).min((self.block_bytes - HEADER_BYTES) as u64);
            chunk.reset(link.offset.plus(at), link.database);
            if at == 0 && link.is_begin {
                chunk.begin_unit(|| link.unix_ms);
            }
            // A block without a begin has the time of its unit.
            chunk.unix_ms = link.unix_ms;
            self.fill(&mut chunk, link, at, byte_count as usize)?;
            at += byte_count;
            if at == len && link.is_end {
                chunk.end_unit();
            }
            is_durably = self.is_durably(is_last && at == len);
            self.output.write(&mut chunk, Kind::Stream, is_durably)?;
            self.give_back(byte_count);
        }
        self.scratch = Some(chunk);
        Ok(is_durably)
    }

    fn fill(&self, chunk: &mut Chunk, link: &Link, at: u64, byte_count: usize) -> Result<(), Halt> {
        let room = &mut chunk.room()[..byte_count];
        let read: Result<(), BodyError> = match &link.large {
            Large::Bytes(bytes) => {
                room.copy_from_slice(&bytes[at as usize..at as usize + byte_count]);
                Ok(())
            }
            Large::Body(body) => body.read_at(at, room),
        };
        chunk.payload_bytes = byte_count;
        read.map_err(|source| {
            self.shared.fail(JournalError::Body { at: link.offset.plus(at), source });
            Halt::Failed
        })
    }

    fn give_back(&mut self, byte_count: u64) {
        if self.shared.tail.give_back(byte_count, &mut self.chunks) {
            self.shared.pulse.nudge();
        }
    }

    /// Syncs what has been written, or has it synced, if that is due.
    fn see_to_sync(&mut self, view: &View) -> Result<(), Halt> {
        if self.output.is_synced() {
            return Ok(());
        }
        if view.policy == SyncPolicy::Always {
            self.shared.desk.wait_until_idle();
            let job = self.output.take_job(self.written);
            self.synced_at = Some(Instant::now());
            return match self.shared.sync(job.devices, job.covers) {
                true => Ok(()),
                false => Err(Halt::Failed),
            };
        }
        let is_due = view.policy == SyncPolicy::EverySecond && self.until_sync().is_zero();
        let is_wanted = view.wanted > self.shared.progress.durable() || view.stop == Stop::Close;
        let is_much = self.output.unsynced_count() > UNSYNCED_SEGMENTS;
        if (is_due || is_wanted || is_much) && self.shared.desk.is_idle() {
            self.synced_at = Some(Instant::now());
            self.shared.desk.submit(self.output.take_job(self.written));
        }
        Ok(())
    }

    /// The log ends here, and says so.
    fn write_end(&mut self) -> Result<Offset, Halt> {
        let end = self.shared.tail.end();
        let mut chunk = self.scratch.take().unwrap_or_else(|| Chunk::new(self.block_bytes));
        chunk.reset(end, crate::block::NO_DATABASE);
        chunk.unix_ms = crate::bytes::now_unix_ms();
        self.output.write(&mut chunk, Kind::End, true)?;
        Ok(end)
    }
}
