//! The chain of blocks from a cut on, and what becomes of its bytes.

use std::sync::mpsc::{sync_channel, SyncSender};

use stillframe_pagepool::device::{Shelf, ShelfNumber};
use stillframe_pagepool::PAGE_SIZE;

use crate::block::{Header, FIRST_BLOCK};
use crate::error::{JournalError, RecoverError};
use crate::names::{Offset, Place, SegmentNumber};
use crate::report::Recovery;
use crate::scan::{Candidate, Evidence, Reader};
use crate::units::{Ends, Payload, Replay, Units};

/// Blocks that are read before they are replayed, at most: what waits has as many megabytes.
const AHEAD_BLOCKS: usize = 4;
const READER: &str = "sf-log-reader";

/// A log that has been read to its end.
///
/// ```text
///   SEARCHES ── the block of the cut's offset ──▶ FOLLOWS ── the next one fits ──▶ FOLLOWS
///      │ there is none                               │ none fits
///      └─────────────────────────────────────────────┴──▶ LOOKS FOR EVIDENCE ── of more that was durable ──▶ refused
///                                                               └── none ──▶ READ
/// ```
pub struct Found {
    pub recovery: Recovery,
    pub candidates: Vec<Candidate>,
    /// Files with blocks of the chain, in its order, and where in them it ends, in bytes.
    pub chain: Vec<(ShelfNumber, SegmentNumber, u64)>,
    /// Checksum of the last block.
    pub checksum: u32,
    /// One more than each number of a segment or a file.
    pub next_number: u64,
}

/// Reads a log from `from` on, and hands its units to `replay`. Changes nothing.
///
/// A thread reads ahead, so that neither waits for the other: it looks through the rest of the files, too, while the last units are
/// replayed. What `replay` refuses comes before what the thread has found behind that.
///
/// ```text
///   READER   block ─▶ block ─▶ … ─▶ no more fits ─▶ evidence ─▶ ends
///              │ at most AHEAD_BLOCKS     │ closes
///   CALLER     ▼ replay ─▶ replay ─▶ … ─▶ waits for the reader's end
///              └─ refuses: drops the channel, and the reader ends at its next block
/// ```
///
/// # Errors
/// What was acknowledged is not there, the shelf's, and those of `replay`.
pub fn read<E>(
    shelf: &dyn Shelf,
    from: Place,
    clean_end: Option<Offset>,
    replay: &mut Replay<'_, E>,
) -> Result<Found, RecoverError<E>> {
    std::thread::scope(|scope| {
        let (send, receive) = sync_channel(AHEAD_BLOCKS);
        let reader = std::thread::Builder::new()
            .name(READER.to_owned())
            .spawn_scoped(scope, move || read_ahead(shelf, from, clean_end, send))
            .map_err(|error| JournalError::NoThread { thread: READER, reason: error.to_string() })?;
        let mut units = Units::default();
        receive.into_iter().try_for_each(|payload| units.take(&payload, replay))?;
        let read = reader.join().unwrap_or(Err(JournalError::Panicked { thread: READER }));
        let mut found = read?;
        found.recovery.unit_count = units.unit_count();
        Ok(found)
    })
}

/// Sends the payloads of the chain's blocks, in order, until nobody takes them; then looks for evidence of more.
fn read_ahead(
    shelf: &dyn Shelf,
    from: Place,
    clean_end: Option<Offset>,
    send: SyncSender<Payload>,
) -> Result<Found, JournalError> {
    let files = shelf.list().map_err(JournalError::Unreadable)?;
    let candidates: Vec<_> =
        files.into_iter().map(|file| Candidate::look(shelf, file)).collect::<Result<_, _>>()?;
    let mut walk = Walk::new(shelf, from, &candidates);
    let mut ends = Ends::new(from.offset);
    let mut step = walk.start()?;
    let has_start = step.is_some();
    while let Some(header) = step {
        if send.send(ends.take(&header, walk.payload(&header)?)).is_err() {
            // The caller has an error of its own, and hears of no other.
            return Err(JournalError::Closed);
        }
        step = walk.next(&header, ends.unit_end())?;
    }
    drop(send);
    let missing = Missing { has_start, clean_end, unit_end: ends.unit_end() };
    walk.must_be_all(&missing)?;
    let (chain, checksum) = walk.into_end();
    let of_files = candidates.iter().map(|one| one.file.0.max(one.head.map_or(0, |head| head.segment.0)));
    let of_chain = chain.iter().map(|(_, segment, _)| segment.0);
    let greatest = of_files.chain(of_chain).chain([from.segment.0]).max().unwrap_or(0);
    let next_number = u64::from(greatest) + 1;
    Ok(Found { recovery: ends.into_recovery(from.offset), candidates, chain, checksum, next_number })
}

/// What a log has to have.
struct Missing {
    has_start: bool,
    clean_end: Option<Offset>,
    unit_end: Offset,
}

/// A place in the chain.
struct Walk<'s> {
    shelf: &'s dyn Shelf,
    from: Place,
    candidates: &'s [Candidate],
    /// The file that is being read, by its place among the candidates.
    open: Option<(usize, Reader)>,
    /// Where in it the block is that was found last.
    at: u64,
    checksum: u32,
    chain: Vec<(ShelfNumber, SegmentNumber, u64)>,
}

impl<'s> Walk<'s> {
    fn new(shelf: &'s dyn Shelf, from: Place, candidates: &'s [Candidate]) -> Walk<'s> {
        Walk { shelf, from, candidates, open: None, at: 0, checksum: 0, chain: Vec::new() }
    }

    /// The files that may have blocks of the log from the cut's segment on.
    fn relevant(&self) -> Vec<usize> {
        let Place { log, segment, .. } = self.from;
        (0..self.candidates.len()).filter(|at| !self.candidates[*at].is_elsewhere(log, segment)).collect()
    }

    /// The block in which the cut's offset is, or at whose end.
    fn start(&mut self) -> Result<Option<Header>, JournalError> {
        let Place { log, segment, offset } = self.from;
        let mut order = self.relevant();
        order.sort_by_key(|at| !self.candidates[*at].claims(log, segment));
        let has_it = |header: &Header| header.offset <= offset && offset <= header.end();
        let mut at_end = None;
        for index in order {
            let mut reader = Reader::open(self.shelf, self.candidates[index].file)?;
            let mut at = FIRST_BLOCK;
            let pleases = |header: &Header| header.segment >= segment && has_it(header);
            while let Some((found, header, checksum)) = reader.find(log, at, pleases)? {
                if header.end() > offset || header.offset == offset {
                    return Ok(Some(self.begin(index, reader, found, header, checksum)));
                }
                // The next one may have the offset itself; this one only leads there.
                at_end = Some((index, found));
                at = found + header.block_bytes() as u64;
            }
        }
        let Some((index, found)) = at_end else {
            self.checksum = self.head().map_or(0, |head| head.chain);
            return Ok(None);
        };
        let mut reader = Reader::open(self.shelf, self.candidates[index].file)?;
        let block = reader.block_at(log, found)?;
        Ok(block.map(|(header, checksum)| self.begin(index, reader, found, header, checksum)))
    }

    fn begin(&mut self, index: usize, reader: Reader, at: u64, header: Header, checksum: u32) -> Header {
        self.open = Some((index, reader));
        self.accept(index, at, &header, checksum);
        header
    }

    fn accept(&mut self, index: usize, at: u64, header: &Header, checksum: u32) {
        let file = self.candidates[index].file;
        let end = at + header.block_bytes() as u64;
        match self.chain.last_mut() {
            Some((last, _, last_end)) if *last == file => *last_end = end,
            _ => self.chain.push((file, header.segment, end)),
        }
        (self.at, self.checksum) = (at, checksum);
    }

    fn head(&self) -> Option<crate::block::Head> {
        let Place { log, segment, .. } = self.from;
        let heads = self.candidates.iter().filter_map(|candidate| candidate.head);
        heads.into_iter().find(|head| head.log == log && head.segment == segment)
    }

    fn payload(&mut self, header: &Header) -> Result<&[u8], JournalError> {
        let (_, reader) = self.open.as_mut().expect("a block has been found");
        reader.payload(self.at, header)
    }

    /// The block that follows `last`: behind it, or the first one of a later segment.
    fn next(&mut self, last: &Header, unit_end: Offset) -> Result<Option<Header>, JournalError> {
        let log = self.from.log;
        let checksum = self.checksum;
        let (index, reader) = self.open.as_mut().expect("a block has been found");
        let (index, at) = (*index, self.at + last.block_bytes() as u64);
        if let Some((header, found)) = reader.block_at(log, at)? {
            if header.segment == last.segment && header.chain == checksum && header.offset == last.end() {
                self.accept(index, at, &header, found);
                return Ok(Some(header));
            }
        }
        // A later start goes on behind the last whole unit; what is behind that is cut off.
        let fits = |header: &Header| {
            header.log == log
                && header.segment > last.segment
                && header.chain == checksum
                && (header.offset == last.end() || header.offset == unit_end)
        };
        let claimed = |candidate: &&Candidate| candidate.first.is_some_and(|first| fits(&first));
        let mut others: Vec<_> = self.candidates.iter().enumerate().filter(|(_, one)| claimed(one)).collect();
        others.sort_by_key(|(_, candidate)| candidate.first.map(|first| first.segment));
        for (index, candidate) in others {
            let mut reader = Reader::open(self.shelf, candidate.file)?;
            if let Some((header, found)) =
                reader.block_at(log, FIRST_BLOCK)?.filter(|(header, _)| fits(header))
            {
                self.open = Some((index, reader));
                self.accept(index, FIRST_BLOCK, &header, found);
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    /// Refuses if something says that there was more.
    fn must_be_all(&mut self, missing: &Missing) -> Result<(), JournalError> {
        self.open = None;
        let mut evidence = Evidence::default();
        for index in self.relevant() {
            let file = self.candidates[index].file;
            let read = self.chain.iter().find(|(other, _, _)| *other == file).map_or(0, |(_, _, end)| *end);
            evidence.add(&mut Reader::open(self.shelf, file)?, file, self.from.log, read)?;
        }
        let text = match evidence.at.filter(|_| evidence.durable > missing.unit_end) {
            Some((file, byte)) => format!(
                "'{}', byte {byte}, says that everything before offset {} was durable",
                self.shelf.device_name(file),
                evidence.durable
            ),
            None => match missing.clean_end.filter(|end| *end > missing.unit_end) {
                Some(end) => format!("the last stop was a clean one, at offset {end}"),
                None if missing.has_start || self.head().is_some() => return Ok(()),
                None => {
                    let (shelf, Place { log, segment, .. }) = (self.shelf.name().to_owned(), self.from);
                    return Err(JournalError::Missing { shelf, log, segment });
                }
            },
        };
        let (file, byte) = self.expected();
        Err(JournalError::Damaged { file, byte, at: missing.unit_end, evidence: text })
    }

    /// Where the next block should be.
    fn expected(&self) -> (String, u64) {
        let Some((file, segment, end)) = self.chain.last() else {
            return (self.shelf.device_name(ShelfNumber(self.from.segment.0)), FIRST_BLOCK);
        };
        let bytes = self.candidates.iter().find(|one| one.file == *file).map_or(0, |one| one.byte_count);
        match end + PAGE_SIZE as u64 <= bytes {
            true => (self.shelf.device_name(*file), *end),
            false => (self.shelf.device_name(ShelfNumber(segment.0.saturating_add(1))), FIRST_BLOCK),
        }
    }

    fn into_end(self) -> (Vec<(ShelfNumber, SegmentNumber, u64)>, u32) {
        (self.chain, self.checksum)
    }
}
