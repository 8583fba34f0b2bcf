//! Rows in blocks, one after the other in a file, and a seal behind the last. A block is of nobody's use alone: they are
//! believed if all up to the seal fit their checksums and are of one generation.
//!
//! ```text
//!   block:  magic u32, generation u64, row length u32, count u32, checksum u32, count row numbers u32, count rows
//!   seal:   magic u32, generation u64, row length u32, row count u32, checksum u32
//! ```
//!
//! Little-endian; the checksum is CRC-32C of the rest.

use std::sync::{Arc, Mutex, PoisonError};

use super::files::{FileKind, Files, ImageFileError};
use crate::image::{Help, ImageError};
use crate::rows::{Copies, Place, RowId};

const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"SFRB");
const SEAL_MAGIC: u32 = u32::from_le_bytes(*b"SFRS");
const HEAD_LEN: usize = 24;

/// Rows of a block together are about so many bytes.
pub const BLOCK_LEN: usize = 1 << 20;

fn head(magic: u32, generation: u64, row_len: usize, count: u32) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[..4].copy_from_slice(&magic.to_le_bytes());
    head[4..12].copy_from_slice(&generation.to_le_bytes());
    head[12..16].copy_from_slice(&(row_len as u32).to_le_bytes());
    head[16..20].copy_from_slice(&count.to_le_bytes());
    head
}

fn checksum(head: &[u8], rest: &[u8]) -> [u8; 4] {
    crc32c::crc32c_append(crc32c::crc32c(&head[..HEAD_LEN - 4]), rest).to_le_bytes()
}

/// Rows that wait to be written.
#[derive(Default)]
pub struct Rows {
    ids: Vec<u32>,
    bytes: Vec<u8>,
}

impl Rows {
    pub fn put(&mut self, copies: &impl Copies, row: RowId, place: Place) {
        let start = self.bytes.len();
        self.bytes.resize(start + copies.row_len(), 0);
        copies.read(place, &mut self.bytes[start..]);
        self.ids.push(row.0);
    }

    pub fn take_back(&mut self, row_len: usize) {
        self.ids.pop();
        self.bytes.truncate(self.bytes.len() - row_len);
    }

    pub fn has_room(&self) -> bool {
        self.bytes.len() < BLOCK_LEN
    }

    fn clear(&mut self) {
        self.ids.clear();
        self.bytes.clear();
    }
}

/// Blocks on their way to a file, from several threads.
pub struct Blocks<F> {
    pub files: Arc<F>,
    pub file: FileKind,
    pub row_len: usize,
    at: Mutex<End>,
}

#[derive(Clone, Copy)]
struct End {
    generation: u64,
    offset: u64,
}

impl<F: Files> Blocks<F> {
    pub fn new(files: Arc<F>, file: FileKind, row_len: usize) -> Blocks<F> {
        Blocks { files, file, row_len, at: Mutex::new(End { generation: 0, offset: 0 }) }
    }

    /// The next blocks are the first of the file. No two generations are alike, nor like one that is in the file.
    pub fn begin(&self, generation: u64) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = End { generation, offset: 0 };
    }

    /// Takes room in the file for so many bytes.
    fn reserve(&self, len: usize) -> End {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let end = *at;
        at.offset += len as u64;
        end
    }

    /// Writes a block, if there are rows. After an error the file has a hole, so there will be no seal.
    pub fn append(&self, rows: &mut Rows) -> Result<(), ImageFileError> {
        if rows.ids.is_empty() {
            return Ok(());
        }
        let len = HEAD_LEN + rows.ids.len() * size_of::<u32>() + rows.bytes.len();
        let end = self.reserve(len);
        let mut block = Vec::with_capacity(len);
        block.extend_from_slice(&head(BLOCK_MAGIC, end.generation, self.row_len, rows.ids.len() as u32));
        rows.ids.iter().for_each(|id| block.extend_from_slice(&id.to_le_bytes()));
        block.extend_from_slice(&rows.bytes);
        let sum = checksum(&block[..HEAD_LEN], &block[HEAD_LEN..]);
        block[HEAD_LEN - 4..HEAD_LEN].copy_from_slice(&sum);
        rows.clear();
        self.files.write_at(self.file, end.offset, &block).map_err(self.file.failed())
    }

    /// Writes the seal and makes everything durable.
    pub fn seal(&self, row_count: u32) -> Result<(), ImageFileError> {
        let end = self.reserve(HEAD_LEN);
        let mut seal = head(SEAL_MAGIC, end.generation, self.row_len, row_count);
        let sum = checksum(&seal, &[]);
        seal[HEAD_LEN - 4..].copy_from_slice(&sum);
        self.files.write_at(self.file, end.offset, &seal).map_err(self.file.failed())?;
        self.files.sync(self.file).map_err(self.file.failed())
    }

    /// Goes through the rows up to the seal. Returns generation and row count of the seal. What it has told before an
    /// error is not to be used.
    pub fn read(
        &self,
        mut each: impl FnMut(&[u32], &[u8]) -> Result<(), ImageFileError>,
    ) -> Result<Seal, ImageFileError> {
        let (mut offset, mut generation) = (0, None);
        loop {
            let mut head = [0; HEAD_LEN];
            self.read_exactly(offset, &mut head)?;
            let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
            let (magic, row_len, count) = (word(0), word(12) as usize, word(16));
            let of = u64::from_le_bytes(head[4..12].try_into().expect("eight bytes"));
            if row_len != self.row_len || *generation.get_or_insert(of) != of {
                return Err(self.file.damaged("no block of this image", offset));
            }
            let rest_len = match magic {
                BLOCK_MAGIC if count as usize <= BLOCK_LEN => count as usize * (size_of::<u32>() + row_len),
                SEAL_MAGIC => 0,
                _ => return Err(self.file.damaged("no block", offset)),
            };
            let mut rest = vec![0; rest_len];
            self.read_exactly(offset + HEAD_LEN as u64, &mut rest)?;
            if checksum(&head, &rest) != head[HEAD_LEN - 4..] {
                return Err(self.file.damaged("wrong checksum", offset));
            }
            if magic == SEAL_MAGIC {
                return Ok(Seal { generation: of, row_count: count });
            }
            let (ids, rows) = rest.split_at(count as usize * size_of::<u32>());
            let ids: Vec<u32> = ids
                .chunks_exact(4)
                .map(|id| u32::from_le_bytes(id.try_into().expect("four bytes")))
                .collect();
            each(&ids, rows)?;
            offset += (HEAD_LEN + rest_len) as u64;
        }
    }

    fn read_exactly(&self, offset: u64, into: &mut [u8]) -> Result<(), ImageFileError> {
        let len = self.files.read_at(self.file, offset, into).map_err(self.file.failed())?;
        if len < into.len() {
            return Err(self.file.damaged("the end of the file", offset + len as u64));
        }
        Ok(())
    }
}

/// What stands behind the last block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seal {
    pub generation: u64,
    pub row_count: u32,
}

/// A writer writes a block of one row.
impl<F: Files, C: Copies> Help<C> for Blocks<F> {
    fn emit(&self, copies: &C, row: RowId, place: Place) -> Result<(), ImageError> {
        let mut rows = Rows::default();
        rows.put(copies, row, place);
        Ok(self.append(&mut rows)?)
    }
}
