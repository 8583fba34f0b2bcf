//! Writing a dump, entry by entry.

use super::encode::{put_length, put_packed_head, put_string_head, Body, MIN_SAVED_BYTES};
use super::error::WriteError;
use super::format::{opcode, Cut, KeyMeta, StringRef, CRC64, TYPE_STRING, WRITE_VERSION};
use super::lzf::Compressor;
use crc::{Digest, Table};
use std::io::Write;

const BUFFER_BYTES: usize = 64 << 10;

/// Bytes of a long string that are compressed at a time.
const PIECE_BYTES: usize = 1 << 20;

/// The release whose format is written; other stores read it in the field `redis-ver`.
const COMPATIBLE_VERSION: &str = "7.0.15";

#[derive(Debug, Clone, Copy)]
pub struct WriterOptions {
    /// `rdbcompression`: LZF for strings of more than 20 bytes.
    pub compress: bool,
    /// `rdbchecksum`: a CRC64 at the end; without it 0 is written there.
    pub checksum: bool,
}

impl Default for WriterOptions {
    fn default() -> Self {
        WriterOptions { compress: true, checksum: true }
    }
}

/// What the auxiliary fields at the start of a dump say.
#[derive(Debug, Clone, Copy, Default)]
pub struct Header {
    /// Time of the dump, in seconds since the Unix epoch.
    pub ctime_unix_s: u64,
    pub used_memory_bytes: u64,
    /// Whether the dump is the base of an append-only file.
    pub aof_base: bool,
    /// Of dumps that a store writes.
    pub cut: Option<Cut>,
}

type Result<T> = std::result::Result<T, WriteError>;

/// A streaming writer of a dump. An error is final: later calls return [`WriteError::Failed`].
///
/// ```text
/// Between -- key ----------------------------> Between
/// Between -- begin_string --> InValue          InValue -- string_chunk, the last --> Between
/// Between -- finish --> the output is returned
/// any state -- error --> Failed
/// ```
pub struct Writer<W> {
    output: W,
    /// Not yet written and not yet part of `digest`.
    buffer: Vec<u8>,
    digest: Option<Digest<'static, u64, Table<16>>>,
    compressor: Option<Compressor>,
    state: State,
    written_bytes: u64,
}

/// Compresses what `chunks` gives piece by piece and hands the results to `sink`.
fn pack(compressor: &mut Compressor, chunks: &impl Fn(&mut dyn FnMut(&[u8])), mut sink: impl FnMut(&[u8])) {
    let mut piece: Vec<u8> = Vec::with_capacity(PIECE_BYTES);
    let mut packed = Vec::new();
    let mut flush = |piece: &mut Vec<u8>| {
        packed.clear();
        compressor.append(piece, &mut packed);
        sink(&packed);
        piece.clear();
    };
    chunks(&mut |mut chunk| {
        while !chunk.is_empty() {
            let (head, tail) = chunk.split_at(chunk.len().min(PIECE_BYTES - piece.len()));
            piece.extend_from_slice(head);
            chunk = tail;
            if piece.len() == PIECE_BYTES {
                flush(&mut piece);
            }
        }
    });
    if !piece.is_empty() {
        flush(&mut piece);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Between,
    InValue { announced_bytes: u64, missing_bytes: u64 },
    Failed,
}

impl<W: Write> Writer<W> {
    /// Starts a dump on `output`, which is not buffered further.
    pub fn new(output: W, header: Header, options: WriterOptions) -> Result<Self> {
        let mut writer = Writer {
            output,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            digest: options.checksum.then(|| CRC64.digest()),
            compressor: options.compress.then(Compressor::new),
            state: State::Between,
            written_bytes: 0,
        };
        writer.buffer.extend_from_slice(format!("REDIS{WRITE_VERSION:04}").as_bytes());
        writer.aux("redis-ver", COMPATIBLE_VERSION)?;
        writer.aux("redis-bits", "64")?;
        writer.aux("ctime", &header.ctime_unix_s.to_string())?;
        writer.aux("used-mem", &header.used_memory_bytes.to_string())?;
        writer.aux("aof-base", if header.aof_base { "1" } else { "0" })?;
        writer.aux("stillframe-ver", env!("CARGO_PKG_VERSION"))?;
        if let Some(cut) = header.cut {
            writer.aux(Cut::FIELD, &cut.to_text())?;
        }
        Ok(writer)
    }

    /// Starts a database; the counts let a reader size its tables.
    pub fn select_db(&mut self, db: u32, key_count: u64, expiring_key_count: u64) -> Result<()> {
        self.between()?;
        self.buffer.push(opcode::SELECTDB);
        put_length(&mut self.buffer, u64::from(db));
        self.buffer.push(opcode::RESIZEDB);
        put_length(&mut self.buffer, key_count);
        put_length(&mut self.buffer, expiring_key_count);
        self.flush_if_full()
    }

    /// Writes a key with a string.
    pub fn string(&mut self, key: &[u8], value: StringRef<'_>, meta: KeyMeta) -> Result<()> {
        self.between()?;
        self.key_head(key, meta)?;
        self.put_string(value)
    }

    /// Writes a key with a string that is too long to be held: `chunks` gives all of its bytes to what it is called with,
    /// in order, each time it is called. A string that is compressed takes two rounds, the first for the length of the
    /// result, which is announced before it.
    pub fn long_string(
        &mut self,
        key: &[u8],
        length_bytes: u64,
        meta: KeyMeta,
        chunks: impl Fn(&mut dyn FnMut(&[u8])),
    ) -> Result<()> {
        self.between()?;
        if let Some(mut compressor) = self.compressor.take() {
            let mut packed_bytes = 0;
            pack(&mut compressor, &chunks, |packed| packed_bytes += packed.len() as u64);
            let is_worth_it = packed_bytes + MIN_SAVED_BYTES as u64 <= length_bytes;
            let result = if is_worth_it {
                self.packed_string(key, (packed_bytes, length_bytes), meta, &mut compressor, &chunks)
            } else {
                Ok(())
            };
            self.compressor = Some(compressor);
            if is_worth_it {
                return result;
            }
        }
        self.begin_string(key, length_bytes, meta)?;
        let mut result = Ok(());
        chunks(&mut |chunk| {
            if result.is_ok() {
                result = self.string_chunk(chunk);
            }
        });
        result
    }

    fn packed_string(
        &mut self,
        key: &[u8],
        (packed_bytes, length_bytes): (u64, u64),
        meta: KeyMeta,
        compressor: &mut Compressor,
        chunks: &impl Fn(&mut dyn FnMut(&[u8])),
    ) -> Result<()> {
        self.key_head(key, meta)?;
        put_packed_head(&mut self.buffer, packed_bytes, length_bytes);
        self.state = State::InValue { announced_bytes: packed_bytes, missing_bytes: packed_bytes };
        let mut result = Ok(());
        pack(compressor, chunks, |packed| {
            if result.is_ok() {
                result = self.string_chunk(packed);
            }
        });
        result
    }

    /// Starts a key with a string of `length_bytes` that comes in chunks and is not compressed.
    pub fn begin_string(&mut self, key: &[u8], length_bytes: u64, meta: KeyMeta) -> Result<()> {
        self.between()?;
        self.key_head(key, meta)?;
        put_length(&mut self.buffer, length_bytes);
        if length_bytes > 0 {
            self.state = State::InValue { announced_bytes: length_bytes, missing_bytes: length_bytes };
        }
        Ok(())
    }

    /// The next bytes of the string that was begun.
    pub fn string_chunk(&mut self, chunk: &[u8]) -> Result<()> {
        let (announced_bytes, missing_bytes) = match self.state {
            State::InValue { announced_bytes, missing_bytes } => (announced_bytes, missing_bytes),
            State::Between => (0, 0),
            State::Failed => return Err(WriteError::Failed),
        };
        let Some(missing_bytes) = missing_bytes.checked_sub(chunk.len() as u64) else {
            self.state = State::Failed;
            return Err(WriteError::ValueTooLong { announced_bytes });
        };
        self.put_bytes(chunk)?;
        self.state = match missing_bytes {
            0 => State::Between,
            _ => State::InValue { announced_bytes, missing_bytes },
        };
        Ok(())
    }

    /// Ends the dump and returns the output. Making it durable is the caller's part.
    pub fn finish(mut self) -> Result<W> {
        self.between()?;
        self.buffer.push(opcode::EOF);
        self.flush_buffer()?;
        let checksum = self.digest.take().map_or(0, |digest| digest.finalize());
        self.output.write_all(&checksum.to_le_bytes())?;
        self.output.flush()?;
        Ok(self.output)
    }

    /// Bytes of the dump so far.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes + self.buffer.len() as u64
    }

    fn between(&mut self) -> Result<()> {
        match self.state {
            State::Between => Ok(()),
            State::InValue { announced_bytes, missing_bytes } => {
                self.state = State::Failed;
                Err(WriteError::ValueTooShort { announced_bytes, missing_bytes })
            }
            State::Failed => Err(WriteError::Failed),
        }
    }

    fn aux(&mut self, name: &str, value: &str) -> Result<()> {
        self.buffer.push(opcode::AUX);
        self.put_string(StringRef::Bytes(name.as_bytes()))?;
        self.put_string(StringRef::Bytes(value.as_bytes()))
    }

    fn key_head(&mut self, key: &[u8], meta: KeyMeta) -> Result<()> {
        if let Some(at_ms) = meta.expire_at_ms {
            self.buffer.push(opcode::EXPIRETIME_MS);
            self.buffer.extend_from_slice(&i64::try_from(at_ms).unwrap_or(i64::MAX).to_le_bytes());
        }
        if let Some(idle_s) = meta.lru_idle_s {
            self.buffer.push(opcode::IDLE);
            put_length(&mut self.buffer, idle_s);
        }
        if let Some(count) = meta.lfu_count {
            self.buffer.extend_from_slice(&[opcode::FREQ, count]);
        }
        self.buffer.push(TYPE_STRING);
        self.put_string(StringRef::Bytes(key))
    }

    fn put_string(&mut self, string: StringRef<'_>) -> Result<()> {
        match put_string_head(&mut self.buffer, string, self.compressor.as_mut()) {
            Body::Complete => self.flush_if_full(),
            Body::Verbatim(bytes) => self.put_bytes(bytes),
            Body::Packed(bytes) => self.put_bytes(&bytes),
        }
    }

    fn put_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() < BUFFER_BYTES / 2 {
            self.buffer.extend_from_slice(bytes);
            return self.flush_if_full();
        }
        self.flush_buffer()?;
        self.write_through(bytes)
    }

    fn flush_if_full(&mut self) -> Result<()> {
        if self.buffer.len() < BUFFER_BYTES / 2 {
            return Ok(());
        }
        self.flush_buffer()
    }

    fn flush_buffer(&mut self) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.write_through(&buffer);
        buffer.clear();
        self.buffer = buffer;
        result
    }

    fn write_through(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(digest) = &mut self.digest {
            digest.update(bytes);
        }
        if let Err(error) = self.output.write_all(bytes) {
            self.state = State::Failed;
            return Err(WriteError::Io(error));
        }
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }
}
