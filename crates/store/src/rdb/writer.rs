//! Writing a dump, entry by entry.

use super::encode::put_length;
use super::error::WriteError;
use super::format::{opcode, Cut, KeyMeta, SmallLimits, StringRef, WriteVersion, TYPE_STRING};
use super::gather::{CollectionWriter, Head};
use super::kind::{Announced, Element};
use super::output::Output;
use std::io::Write;

#[derive(Debug, Clone, Copy)]
pub struct WriterOptions {
    /// `rdbcompression`: LZF for strings of more than 20 bytes.
    pub compress: bool,
    /// `rdbchecksum`: a CRC64 at the end; without it 0 is written there.
    pub checksum: bool,
    pub version: WriteVersion,
    pub limits: SmallLimits,
}

impl Default for WriterOptions {
    fn default() -> Self {
        WriterOptions {
            compress: true,
            checksum: true,
            version: WriteVersion::default(),
            limits: SmallLimits::default(),
        }
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
/// Between -- begin_collection --> InElements   InElements -- element, the last --> Between
/// Between -- finish --> the output is returned
/// any state -- error --> Failed
/// ```
pub struct Writer<W> {
    output: Output<W>,
    options: WriterOptions,
    state: State,
}

enum State {
    Between,
    InValue { announced_bytes: u64, missing_bytes: u64 },
    InElements(Box<CollectionWriter>),
    Failed,
}

impl<W: Write> Writer<W> {
    /// Starts a dump on `output`, which is not buffered further.
    pub fn new(output: W, header: Header, options: WriterOptions) -> Result<Self> {
        let output = Output::new(output, options.compress, options.checksum);
        let mut writer = Writer { output, options, state: State::Between };
        let magic = format!("REDIS{:04}", options.version.number());
        writer.output.put_bytes(magic.as_bytes())?;
        writer.aux("redis-ver", options.version.release())?;
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

    /// Writes a function library, by its source. They come before the first database.
    pub fn library(&mut self, source: &[u8]) -> Result<()> {
        self.between()?;
        self.output.put_byte(opcode::FUNCTION2);
        self.output.put_string(StringRef::Bytes(source))
    }

    /// Starts a database; the counts let a reader size its tables.
    pub fn select_db(&mut self, db: u32, key_count: u64, expiring_key_count: u64) -> Result<()> {
        self.between()?;
        self.output.put_byte(opcode::SELECTDB);
        self.output.put_length(u64::from(db));
        self.output.put_byte(opcode::RESIZEDB);
        self.output.put_length(key_count);
        self.output.put_length(expiring_key_count);
        self.output.flush_if_full()
    }

    /// Writes a key with a string.
    pub fn string(&mut self, key: &[u8], value: StringRef<'_>, meta: KeyMeta) -> Result<()> {
        self.between()?;
        self.string_head(key, meta)?;
        self.output.put_string(value)
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
        if let Some(packed_bytes) = self.output.packed_bytes(length_bytes, &chunks) {
            self.string_head(key, meta)?;
            self.output.put_packed_head(packed_bytes, length_bytes);
            self.announce(packed_bytes);
            let Writer { output, state, .. } = self;
            return output.put_packed(&chunks, |output, packed| put_chunk(output, state, packed));
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

    /// Starts a key with a string of `length_bytes` that comes in chunks and is not compressed.
    pub fn begin_string(&mut self, key: &[u8], length_bytes: u64, meta: KeyMeta) -> Result<()> {
        self.between()?;
        self.string_head(key, meta)?;
        self.output.put_length(length_bytes);
        self.announce(length_bytes);
        Ok(())
    }

    fn announce(&mut self, length_bytes: u64) {
        if length_bytes > 0 {
            self.state = State::InValue { announced_bytes: length_bytes, missing_bytes: length_bytes };
        }
    }

    /// The next bytes of the string that was begun.
    pub fn string_chunk(&mut self, chunk: &[u8]) -> Result<()> {
        self.check()?;
        put_chunk(&mut self.output, &mut self.state, chunk)
    }

    /// Starts a key with a collection, whose elements come in [`Writer::element`], as many as are announced.
    ///
    /// # Errors
    /// [`WriteError::FieldDeadlines`]: the version that is written has no form for it.
    pub fn begin_collection(&mut self, key: &[u8], announced: Announced, meta: KeyMeta) -> Result<()> {
        self.between()?;
        let head = Head { before: head_of(meta), key: Some(key.to_vec()) };
        let WriterOptions { version, limits, .. } = self.options;
        let begun =
            CollectionWriter::begin(&mut self.output, announced, head, limits, version.has_deadlines());
        self.state = match begun {
            Ok(collection) => State::InElements(Box::new(collection)),
            Err(error) => {
                self.state = State::Failed;
                return Err(error);
            }
        };
        Ok(())
    }

    /// The next element of the collection that was begun: of a sorted set or a hash in any order, none twice.
    pub fn element(&mut self, element: Element<'_>) -> Result<()> {
        self.check()?;
        let State::InElements(collection) = &mut self.state else {
            self.state = State::Failed;
            return Err(WriteError::TooManyElements { announced_count: 0 });
        };
        match collection.element(&mut self.output, element) {
            Ok(false) => {}
            Ok(true) => self.state = State::Between,
            Err(error) => {
                self.state = State::Failed;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends the dump and returns the output. Making it durable is the caller's part.
    pub fn finish(mut self) -> Result<W> {
        self.between()?;
        self.output.put_byte(opcode::EOF);
        self.output.finish()
    }

    /// Bytes of the dump so far.
    pub fn written_bytes(&self) -> u64 {
        self.output.written_bytes()
    }

    fn check(&self) -> Result<()> {
        match self.output.has_failed() || matches!(self.state, State::Failed) {
            true => Err(WriteError::Failed),
            false => Ok(()),
        }
    }

    fn between(&mut self) -> Result<()> {
        self.check()?;
        let error = match &self.state {
            State::Between => return Ok(()),
            State::InValue { announced_bytes, missing_bytes } => {
                WriteError::ValueTooShort { announced_bytes: *announced_bytes, missing_bytes: *missing_bytes }
            }
            State::InElements(collection) => collection.too_few(),
            State::Failed => WriteError::Failed,
        };
        self.state = State::Failed;
        Err(error)
    }

    fn aux(&mut self, name: &str, value: &str) -> Result<()> {
        self.output.put_byte(opcode::AUX);
        self.output.put_string(StringRef::Bytes(name.as_bytes()))?;
        self.output.put_string(StringRef::Bytes(value.as_bytes()))
    }

    fn string_head(&mut self, key: &[u8], meta: KeyMeta) -> Result<()> {
        self.output.put_bytes(&head_of(meta))?;
        self.output.put_byte(TYPE_STRING);
        self.output.put_string(StringRef::Bytes(key))
    }
}

/// What precedes the type of a key.
fn head_of(meta: KeyMeta) -> Vec<u8> {
    let mut head = Vec::new();
    if let Some(at_ms) = meta.expire_at_ms {
        head.push(opcode::EXPIRETIME_MS);
        head.extend_from_slice(&i64::try_from(at_ms).unwrap_or(i64::MAX).to_le_bytes());
    }
    if let Some(idle_s) = meta.lru_idle_s {
        head.push(opcode::IDLE);
        put_length(&mut head, idle_s);
    }
    if let Some(count) = meta.lfu_count {
        head.extend_from_slice(&[opcode::FREQ, count]);
    }
    head
}

/// Writes the next bytes of the string that was begun.
fn put_chunk<W: Write>(output: &mut Output<W>, state: &mut State, chunk: &[u8]) -> Result<()> {
    let (announced_bytes, missing_bytes) = match state {
        State::InValue { announced_bytes, missing_bytes } => (*announced_bytes, *missing_bytes),
        _ => (0, 0),
    };
    let Some(missing_bytes) = missing_bytes.checked_sub(chunk.len() as u64) else {
        *state = State::Failed;
        return Err(WriteError::ValueTooLong { announced_bytes });
    };
    output.put_bytes(chunk)?;
    *state = match missing_bytes {
        0 => State::Between,
        _ => State::InValue { announced_bytes, missing_bytes },
    };
    Ok(())
}
