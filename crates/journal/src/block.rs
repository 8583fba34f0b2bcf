//! Blocks and the first pages of segments: what is written at once, framed and checked. Byte by byte in docs/internals/format.md.

use stillframe_pagepool::PAGE_SIZE;

use crate::bytes::{put, u32_at, u64_at};
use crate::names::{LogId, Offset, SegmentNumber};

/// Bytes of a block before its payload.
pub const HEADER_BYTES: usize = 128;
/// Most bytes of a block.
pub const BLOCK_MAX_BYTES: usize = 1 << 20;
/// Where the first block of a segment is, in bytes.
pub const FIRST_BLOCK: u64 = PAGE_SIZE as u64;
/// The version of the format that this code writes and reads.
pub const LOG_VERSION: u32 = 1;
/// In place of a database: the block does not depend on one.
pub const NO_DATABASE: u32 = u32::MAX;
/// In place of a begin: no unit begins in the block.
pub const NO_BEGIN: u32 = u32::MAX;

const BLOCK_MAGIC: [u8; 8] = *b"STILLBLK";
const HEAD_MAGIC: [u8; 8] = *b"STILLSEG";

// Offsets in a block, in bytes.
const LOG: usize = 8;
const SEGMENT: usize = 16;
const PAGE: usize = 20;
const OFFSET: usize = 24;
const PAYLOAD_BYTES: usize = 32;
const LAST_END: usize = 36;
const FIRST_BEGIN: usize = 40;
const UNIT_COUNT: usize = 44;
const DURABLE: usize = 48;
const UNIX_MS: usize = 56;
const CHAIN: usize = 64;
const CHECKSUM: usize = 68;
const KIND: usize = 72;
const DATABASE: usize = 76;

// Offsets in the first page of a segment, in bytes; LOG and SEGMENT as in a block.
const HEAD_VERSION: usize = 20;
const HEAD_OFFSET: usize = 24;
const HEAD_BYTES: usize = 32;
const HEAD_DURABLE: usize = 48;
const HEAD_UNIX_MS: usize = 56;
const HEAD_CHAIN: usize = 64;
const HEAD_KIND: usize = 72;
const HEAD_CHECKSUM: usize = PAGE_SIZE - 4;

/// What a block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Bytes of the stream.
    Stream,
    /// The end of a clean stop; without payload.
    End,
}

impl Kind {
    /// 1 is kept for blocks of the replication history.
    fn word(self) -> u32 {
        match self {
            Kind::Stream => 0,
            Kind::End => 2,
        }
    }

    fn of_word(word: u32) -> Option<Kind> {
        [Kind::Stream, Kind::End].into_iter().find(|kind| kind.word() == word)
    }
}

/// What a block says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub log: LogId,
    pub segment: SegmentNumber,
    /// Where in the segment the block begins, in pages.
    pub page: u32,
    /// Of the payload's first byte.
    pub offset: Offset,
    pub payload_bytes: u32,
    /// Where in the payload the last unit that ends here ends, in bytes; 0: none does.
    pub last_end: u32,
    /// Where in the payload the first unit that begins here begins, in bytes, or [`NO_BEGIN`].
    pub first_begin: u32,
    /// Units that end here.
    pub unit_count: u32,
    /// The end of a unit up to which everything was durable when the block was made.
    pub durable: Offset,
    /// When its first unit came, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Checksum of the block before.
    pub chain: u32,
    pub kind: Kind,
    /// The stream's database at the first byte, or [`NO_DATABASE`].
    pub database: u32,
}

impl Header {
    /// The offset behind the payload.
    pub fn end(&self) -> Offset {
        self.offset.plus(u64::from(self.payload_bytes))
    }

    /// Bytes of the block, header and padding included.
    pub fn block_bytes(&self) -> usize {
        block_bytes(self.payload_bytes as usize)
    }
}

/// Bytes of a block with so much payload.
pub fn block_bytes(payload_bytes: usize) -> usize {
    (HEADER_BYTES + payload_bytes).next_multiple_of(PAGE_SIZE)
}

/// Puts the header before the payload, and zeros behind it. `block` has at least [`Header::block_bytes`]. Returns the block's
/// checksum.
pub fn seal(header: &Header, block: &mut [u8]) -> u32 {
    let payload_end = HEADER_BYTES + header.payload_bytes as usize;
    block[payload_end..header.block_bytes()].fill(0);
    let head = &mut block[..HEADER_BYTES];
    head.fill(0);
    put(head, 0, &BLOCK_MAGIC);
    put(head, LOG, &header.log.0.to_le_bytes());
    put(head, SEGMENT, &header.segment.0.to_le_bytes());
    put(head, PAGE, &header.page.to_le_bytes());
    put(head, OFFSET, &header.offset.0.to_le_bytes());
    put(head, PAYLOAD_BYTES, &header.payload_bytes.to_le_bytes());
    put(head, LAST_END, &header.last_end.to_le_bytes());
    put(head, FIRST_BEGIN, &header.first_begin.to_le_bytes());
    put(head, UNIT_COUNT, &header.unit_count.to_le_bytes());
    put(head, DURABLE, &header.durable.0.to_le_bytes());
    put(head, UNIX_MS, &header.unix_ms.to_le_bytes());
    put(head, CHAIN, &header.chain.to_le_bytes());
    put(head, KIND, &header.kind.word().to_le_bytes());
    put(head, DATABASE, &header.database.to_le_bytes());
    let checksum = checksum_of(&block[..payload_end]);
    put(block, CHECKSUM, &checksum.to_le_bytes());
    checksum
}

/// What the bytes at `page` of a segment say, if they can be the begin of a block there: nothing is verified.
pub fn claim(bytes: &[u8], page: u32) -> Option<Header> {
    if bytes.len() < HEADER_BYTES || bytes[..8] != BLOCK_MAGIC {
        return None;
    }
    let header = Header {
        log: LogId(u64_at(bytes, LOG)),
        segment: SegmentNumber(u32_at(bytes, SEGMENT)),
        page: u32_at(bytes, PAGE),
        offset: Offset(u64_at(bytes, OFFSET)),
        payload_bytes: u32_at(bytes, PAYLOAD_BYTES),
        last_end: u32_at(bytes, LAST_END),
        first_begin: u32_at(bytes, FIRST_BEGIN),
        unit_count: u32_at(bytes, UNIT_COUNT),
        durable: Offset(u64_at(bytes, DURABLE)),
        unix_ms: u64_at(bytes, UNIX_MS),
        chain: u32_at(bytes, CHAIN),
        kind: Kind::of_word(u32_at(bytes, KIND))?,
        database: u32_at(bytes, DATABASE),
    };
    let is_sound = header.page == page
        && header.payload_bytes as usize <= BLOCK_MAX_BYTES - HEADER_BYTES
        && header.last_end <= header.payload_bytes
        && (header.first_begin == NO_BEGIN || header.first_begin < header.payload_bytes)
        && (header.kind == Kind::Stream || header.payload_bytes == 0)
        && header.offset.0.checked_add(u64::from(header.payload_bytes)).is_some();
    is_sound.then_some(header)
}

/// The checksum of a block, from its begin to the end of its payload; `None`: it says something else.
pub fn verify(header: &Header, block: &[u8]) -> Option<u32> {
    let checksum = checksum_of(block.get(..HEADER_BYTES + header.payload_bytes as usize)?);
    (checksum == u32_at(block, CHECKSUM)).then_some(checksum)
}

fn checksum_of(block: &[u8]) -> u32 {
    let before = crc32c::crc32c(&block[..CHECKSUM]);
    crc32c::crc32c_append(before, &block[CHECKSUM + 4..])
}

/// What the first page of a segment says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    pub log: LogId,
    pub segment: SegmentNumber,
    /// Of the first byte in the segment.
    pub offset: Offset,
    /// Bytes of the segment.
    pub segment_bytes: u64,
    /// The end of a unit up to which everything was durable when the segment was taken.
    pub durable: Offset,
    /// When the segment was taken, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Checksum of the last block in the segment before.
    pub chain: u32,
}

/// Fills a page.
pub fn encode_head(head: &Head, page: &mut [u8]) {
    page.fill(0);
    put(page, 0, &HEAD_MAGIC);
    put(page, LOG, &head.log.0.to_le_bytes());
    put(page, SEGMENT, &head.segment.0.to_le_bytes());
    put(page, HEAD_VERSION, &LOG_VERSION.to_le_bytes());
    put(page, HEAD_OFFSET, &head.offset.0.to_le_bytes());
    put(page, HEAD_BYTES, &head.segment_bytes.to_le_bytes());
    put(page, HEAD_DURABLE, &head.durable.0.to_le_bytes());
    put(page, HEAD_UNIX_MS, &head.unix_ms.to_le_bytes());
    put(page, HEAD_CHAIN, &head.chain.to_le_bytes());
    put(page, HEAD_KIND, &0_u32.to_le_bytes());
    let checksum = crc32c::crc32c(&page[..HEAD_CHECKSUM]);
    put(page, HEAD_CHECKSUM, &checksum.to_le_bytes());
}

/// What was found in place of a segment's first page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoundHead {
    Valid(Head),
    /// Intact, and of another version.
    OtherVersion(u32),
    /// It does not verify, or there is none.
    None,
}

/// Reads a page.
pub fn decode_head(page: &[u8]) -> FoundHead {
    let is_intact =
        page[..8] == HEAD_MAGIC && crc32c::crc32c(&page[..HEAD_CHECKSUM]) == u32_at(page, HEAD_CHECKSUM);
    if !is_intact {
        return FoundHead::None;
    }
    let version = u32_at(page, HEAD_VERSION);
    if version != LOG_VERSION {
        return FoundHead::OtherVersion(version);
    }
    FoundHead::Valid(Head {
        log: LogId(u64_at(page, LOG)),
        segment: SegmentNumber(u32_at(page, SEGMENT)),
        offset: Offset(u64_at(page, HEAD_OFFSET)),
        segment_bytes: u64_at(page, HEAD_BYTES),
        durable: Offset(u64_at(page, HEAD_DURABLE)),
        unix_ms: u64_at(page, HEAD_UNIX_MS),
        chain: u32_at(page, HEAD_CHAIN),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            log: LogId(0x0102_0304_0506_0708),
            segment: SegmentNumber(0x1112_1314),
            page: 3,
            offset: Offset(0x2122_2324_2526_2728),
            payload_bytes: 5,
            last_end: 4,
            first_begin: 1,
            unit_count: 2,
            durable: Offset(0x3132_3334_3536_3738),
            unix_ms: 0x4142_4344_4546_4748,
            chain: 0x5152_5354,
            kind: Kind::End,
            database: 7,
        }
    }

    #[test]
    fn a_block_has_the_bytes_of_the_format() {
        let mut block = vec![0xff; PAGE_SIZE];
        block[HEADER_BYTES..HEADER_BYTES + 5].copy_from_slice(b"hello");
        let checksum = seal(&header(), &mut block);
        let expected: [&[u8]; 14] = [
            b"STILLBLK",
            &[8, 7, 6, 5, 4, 3, 2, 1],
            &[0x14, 0x13, 0x12, 0x11, 3, 0, 0, 0],
            &[0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21],
            &[5, 0, 0, 0, 4, 0, 0, 0],
            &[1, 0, 0, 0, 2, 0, 0, 0],
            &[0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31],
            &[0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41],
            &[0x54, 0x53, 0x52, 0x51],
            &checksum.to_le_bytes(),
            &[2, 0, 0, 0, 7, 0, 0, 0],
            &[0; 48],
            b"hello",
            &[0; PAGE_SIZE - 133],
        ];
        assert_eq!(block, expected.concat());
        let sum = crc32c::crc32c_append(crc32c::crc32c(&block[..68]), &block[72..133]);
        assert_eq!(checksum, sum);
    }

    #[test]
    fn every_byte_that_counts_is_checked() {
        let mut block = vec![0; PAGE_SIZE];
        let header = Header { kind: Kind::Stream, ..header() };
        let checksum = seal(&header, &mut block);
        let read = |block: &[u8]| claim(block, 3).and_then(|header| Some((header, verify(&header, block)?)));
        assert_eq!(read(&block), Some((header, checksum)));
        for at in 0..HEADER_BYTES + 5 {
            block[at] ^= 0x10;
            assert_eq!(read(&block), None, "byte {at}");
            block[at] ^= 0x10;
        }
        assert_eq!(claim(&block, 4), None);
    }

    #[test]
    fn a_head_is_read_as_written_or_not_at_all() {
        let head = Head {
            log: LogId(9),
            segment: SegmentNumber(8),
            offset: Offset(7),
            segment_bytes: 65536,
            durable: Offset(6),
            unix_ms: 5,
            chain: 4,
        };
        let mut page = vec![1; PAGE_SIZE];
        encode_head(&head, &mut page);
        assert_eq!(decode_head(&page), FoundHead::Valid(head));
        for at in 0..PAGE_SIZE {
            page[at] ^= 1;
            assert_eq!(decode_head(&page), FoundHead::None, "byte {at}");
            page[at] ^= 1;
        }
        put(&mut page, HEAD_VERSION, &2_u32.to_le_bytes());
        let checksum = crc32c::crc32c(&page[..HEAD_CHECKSUM]);
        put(&mut page, HEAD_CHECKSUM, &checksum.to_le_bytes());
        assert_eq!(decode_head(&page), FoundHead::OtherVersion(2));
    }
}
