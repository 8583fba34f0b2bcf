//! What lies on a shelf, block by block.

use std::io::IoSliceMut;
use std::sync::Arc;

use stillframe_pagepool::device::{Device, DeviceError, Shelf, ShelfNumber};
use stillframe_pagepool::PAGE_SIZE;

use crate::block::{
    claim, decode_head, verify, FoundHead, Head, Header, BLOCK_MAX_BYTES, FIRST_BLOCK, HEADER_BYTES,
};
use crate::bytes::AlignedBytes;
use crate::error::JournalError;
use crate::names::{LogId, Offset, SegmentNumber};

/// So much is read at a time.
const WINDOW_BYTES: usize = 2 * BLOCK_MAX_BYTES;
/// How often a read is tried before it counts as failed: what passes by itself is no reason to refuse.
const READ_ATTEMPTS: u32 = 3;

/// A file that is open, and what of it was read last.
pub struct Reader {
    pub device: Arc<dyn Device>,
    /// Whole pages of the file, in bytes.
    len: u64,
    window: AlignedBytes,
    /// Where the window begins, and how much of it is filled.
    at: u64,
    filled: usize,
}

impl Reader {
    /// # Errors
    /// The file cannot be read.
    pub fn open(shelf: &dyn Shelf, file: ShelfNumber) -> Result<Reader, JournalError> {
        let device = shelf.open(file).map_err(JournalError::Unreadable)?;
        let len = device.len().map_err(JournalError::Unreadable)?;
        let len = len - len % PAGE_SIZE as u64;
        let window_bytes = WINDOW_BYTES.min(usize::try_from(len).unwrap_or(WINDOW_BYTES));
        Ok(Reader { device, len, window: AlignedBytes::new(window_bytes), at: 0, filled: 0 })
    }

    /// The bytes from `at` on, at most `byte_count`, fewer at the end of the file.
    fn bytes(&mut self, at: u64, byte_count: usize) -> Result<&[u8], JournalError> {
        let wanted = byte_count.min(usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX));
        if at < self.at || at + wanted as u64 > self.at + self.filled as u64 {
            let fill = self.window.len().min(usize::try_from(self.len - at).unwrap_or(usize::MAX));
            (self.at, self.filled) = (at, 0);
            let room = &mut self.window.get_mut()[..fill];
            read_patiently(self.device.as_ref(), at, room).map_err(JournalError::Unreadable)?;
            self.filled = fill;
        }
        let from = (at - self.at) as usize;
        Ok(&self.window.get()[from..from + wanted])
    }

    fn head(&mut self) -> Result<FoundHead, JournalError> {
        let page = self.bytes(0, PAGE_SIZE)?;
        Ok(if page.len() < PAGE_SIZE { FoundHead::None } else { decode_head(page) })
    }

    /// What is claimed at `at`, without verification.
    fn claim_at(&mut self, at: u64) -> Result<Option<Header>, JournalError> {
        let page = (at / PAGE_SIZE as u64) as u32;
        Ok(claim(self.bytes(at, HEADER_BYTES)?, page))
    }

    /// The block of the log at `at`, and its checksum.
    pub fn block_at(&mut self, log: LogId, at: u64) -> Result<Option<(Header, u32)>, JournalError> {
        let Some(header) = self.claim_at(at)?.filter(|header| header.log == log) else { return Ok(None) };
        let block = self.bytes(at, header.block_bytes())?;
        Ok(verify(&header, block).map(|checksum| (header, checksum)))
    }

    /// The payload of a block that has been read.
    pub fn payload(&mut self, at: u64, header: &Header) -> Result<&[u8], JournalError> {
        let block = self.bytes(at, header.block_bytes())?;
        Ok(&block[HEADER_BYTES..HEADER_BYTES + header.payload_bytes as usize])
    }

    /// The first block of the log from `at` on that pleases, and where it is. Looks at each page.
    pub fn find(
        &mut self,
        log: LogId,
        mut at: u64,
        pleases: impl Fn(&Header) -> bool,
    ) -> Result<Option<(u64, Header, u32)>, JournalError> {
        while at < self.len {
            match self.block_at(log, at)? {
                Some((header, checksum)) if pleases(&header) => return Ok(Some((at, header, checksum))),
                Some((header, _)) => at += header.block_bytes() as u64,
                None => at += PAGE_SIZE as u64,
            }
        }
        Ok(None)
    }
}

fn read_patiently(device: &dyn Device, at: u64, room: &mut [u8]) -> Result<(), DeviceError> {
    let mut attempt = || device.read_at(at, &mut [IoSliceMut::new(room)]);
    let mut result = attempt();
    for _ in 1..READ_ATTEMPTS {
        if result.is_ok() {
            break;
        }
        result = attempt();
    }
    result
}

/// A file of the shelf, as its first two pages have it.
pub struct Candidate {
    pub file: ShelfNumber,
    pub byte_count: u64,
    pub head: Option<Head>,
    /// What is claimed of the first block.
    pub first: Option<Header>,
}

impl Candidate {
    /// # Errors
    /// The file cannot be read, or is of another version.
    pub fn look(shelf: &dyn Shelf, file: ShelfNumber) -> Result<Candidate, JournalError> {
        let device = shelf.open(file).map_err(JournalError::Unreadable)?;
        let byte_count = device.len().map_err(JournalError::Unreadable)?;
        let mut candidate = Candidate { file, byte_count, head: None, first: None };
        let mut pages = AlignedBytes::new(2 * PAGE_SIZE);
        if byte_count < pages.len() as u64 {
            return Ok(candidate);
        }
        read_patiently(device.as_ref(), 0, pages.get_mut()).map_err(JournalError::Unreadable)?;
        let (head, first) = pages.get().split_at(PAGE_SIZE);
        match decode_head(head) {
            FoundHead::Valid(head) => candidate.head = Some(head),
            FoundHead::None => {}
            FoundHead::OtherVersion(version) => {
                return Err(JournalError::OtherVersion { file: shelf.device_name(file), version })
            }
        }
        candidate.first = claim(first, 1);
        Ok(candidate)
    }

    pub fn number(&self) -> SegmentNumber {
        SegmentNumber(self.file.0)
    }

    /// Whether it is certainly no part of the log from the segment on: its first page says so, and its name too. What was
    /// renumbered to be used again has a first page that says another number.
    pub fn is_elsewhere(&self, log: LogId, from: SegmentNumber) -> bool {
        self.head
            .is_some_and(|head| head.segment == self.number() && (head.log != log || head.segment < from))
    }

    /// Whether it may have the segment: by its first page, its first block, or its name.
    pub fn claims(&self, log: LogId, segment: SegmentNumber) -> bool {
        self.head.is_some_and(|head| head.log == log && head.segment == segment)
            || self.first.is_some_and(|first| first.log == log && first.segment == segment)
            || self.number() == segment
    }
}

/// What says that bytes were there: the greatest offset that was durable when a block or a segment's first page was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Evidence {
    pub durable: Offset,
    /// The file that says so, and the byte.
    pub at: Option<(ShelfNumber, u64)>,
}

impl Evidence {
    /// Looks at each page of a file from `at` on, and at its first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn add(
        &mut self,
        reader: &mut Reader,
        file: ShelfNumber,
        log: LogId,
        at: u64,
    ) -> Result<(), JournalError> {
        if let FoundHead::Valid(head) = reader.head()? {
            if head.log == log {
                self.note(head.durable, file, 0);
            }
        }
        let mut at = at.max(FIRST_BLOCK);
        while let Some((found, header, _)) = reader.find(log, at, |_| true)? {
            self.note(header.durable, file, found);
            at = found + header.block_bytes() as u64;
        }
        Ok(())
    }

    fn note(&mut self, durable: Offset, file: ShelfNumber, at: u64) {
        if self.at.is_none() || durable > self.durable {
            (self.durable, self.at) = (durable, Some((file, at)));
        }
    }
}
