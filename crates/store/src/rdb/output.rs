//! Buffered output that counts, checksums and encodes strings, the inverse of `source`.

use super::encode::{put_length, put_packed_head, put_string_head, Body, MIN_SAVED_BYTES};
use super::error::WriteError;
use super::format::{StringRef, CRC64};
use super::lzf::Compressor;
use crc::{Digest, Table};
use std::io::Write;

const BUFFER_BYTES: usize = 64 << 10;

/// Bytes of a long string that are compressed at a time.
const PIECE_BYTES: usize = 1 << 20;

type Result<T> = std::result::Result<T, WriteError>;

/// What a dump or a payload is written to.
pub(super) struct Output<W> {
    inner: W,
    /// Not yet written and not yet part of `digest`.
    buffer: Vec<u8>,
    digest: Option<Digest<'static, u64, Table<16>>>,
    compressor: Option<Compressor>,
    written_bytes: u64,
    /// A write has failed, and what has been written of it is unknown.
    has_failed: bool,
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

impl<W: Write> Output<W> {
    pub fn new(inner: W, compress: bool, checksum: bool) -> Output<W> {
        Output {
            inner,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            digest: checksum.then(|| CRC64.digest()),
            compressor: compress.then(Compressor::new),
            written_bytes: 0,
            has_failed: false,
        }
    }

    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Bytes so far.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes + self.buffer.len() as u64
    }

    pub fn put_byte(&mut self, byte: u8) {
        self.buffer.push(byte);
    }

    pub fn put_length(&mut self, length: u64) {
        put_length(&mut self.buffer, length);
    }

    /// Writes a string that is there as a whole.
    pub fn put_string(&mut self, string: StringRef<'_>) -> Result<()> {
        if let StringRef::Bytes(bytes) = string {
            if bytes.len() > PIECE_BYTES {
                return self.put_long_string(bytes.len() as u64, |give| give(bytes));
            }
        }
        match put_string_head(&mut self.buffer, string, self.compressor.as_mut()) {
            Body::Complete => self.flush_if_full(),
            Body::Verbatim(bytes) => self.put_bytes(bytes),
            Body::Packed(bytes) => self.put_bytes(&bytes),
        }
    }

    /// Writes a string of so many bytes, which `chunks` gives each time it is called: twice, if that is worth it.
    fn put_long_string(&mut self, length_bytes: u64, chunks: impl Fn(&mut dyn FnMut(&[u8]))) -> Result<()> {
        match self.packed_bytes(length_bytes, &chunks) {
            Some(packed_bytes) => {
                put_packed_head(&mut self.buffer, packed_bytes, length_bytes);
                self.put_packed(&chunks, |output, packed| output.put_bytes(packed))
            }
            None => {
                self.put_length(length_bytes);
                let mut result = Ok(());
                chunks(&mut |chunk| {
                    if result.is_ok() {
                        result = self.put_bytes(chunk);
                    }
                });
                result
            }
        }
    }

    /// Bytes that a string of so many takes compressed, if that is to be done.
    pub fn packed_bytes(
        &mut self,
        length_bytes: u64,
        chunks: &impl Fn(&mut dyn FnMut(&[u8])),
    ) -> Option<u64> {
        let mut packed_bytes = 0;
        pack(self.compressor.as_mut()?, chunks, |packed| packed_bytes += packed.len() as u64);
        (packed_bytes + MIN_SAVED_BYTES as u64 <= length_bytes).then_some(packed_bytes)
    }

    /// Gives `put` what the string of `chunks` is compressed to, piece by piece.
    pub fn put_packed(
        &mut self,
        chunks: &impl Fn(&mut dyn FnMut(&[u8])),
        mut put: impl FnMut(&mut Self, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let Some(mut compressor) = self.compressor.take() else { return Ok(()) };
        let mut result = Ok(());
        pack(&mut compressor, chunks, |packed| {
            if result.is_ok() {
                result = put(self, packed);
            }
        });
        self.compressor = Some(compressor);
        result
    }

    /// Appends what precedes an LZF stream of `packed_bytes` that stands for `length_bytes`.
    pub fn put_packed_head(&mut self, packed_bytes: u64, length_bytes: u64) {
        put_packed_head(&mut self.buffer, packed_bytes, length_bytes);
    }

    pub fn put_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() < BUFFER_BYTES / 2 {
            self.buffer.extend_from_slice(bytes);
            return self.flush_if_full();
        }
        self.flush()?;
        self.write_through(bytes)
    }

    pub fn flush_if_full(&mut self) -> Result<()> {
        if self.buffer.len() < BUFFER_BYTES / 2 {
            return Ok(());
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
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
        if let Err(error) = self.inner.write_all(bytes) {
            self.has_failed = true;
            return Err(WriteError::Io(error));
        }
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Writes the checksum of all that came before, 0 if none was to be computed, and returns what it was written to.
    pub fn finish(mut self) -> Result<W> {
        self.flush()?;
        let checksum = self.digest.take().map_or(0, |digest| digest.finalize());
        self.inner.write_all(&checksum.to_le_bytes())?;
        self.inner.flush()?;
        Ok(self.inner)
    }
}
