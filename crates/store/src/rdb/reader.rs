//! Reading a dump, entry by entry.

use super::error::{ReadError, ReadErrorKind};
use super::format::{opcode, Cut, Entry, KeyMeta, RdbValue, MAX_READ_VERSION, TYPE_STRING};
use super::skip::{module_name, skip_module_aux, OtherType};
use super::source::{Source, StringBody};
use std::collections::BTreeMap;
use std::io::Read;

const BUFFER_BYTES: usize = 64 << 10;

/// Bytes of a long string that are taken from the input at a time, so that what is compressed does not grow beyond 2 MB.
const PIECE_BYTES: u64 = 16 << 10;

/// Auxiliary fields that are kept; others may be large (Redis 5 and 6 put scripts there).
const KEPT_AUX: [&str; 9] = [
    "redis-ver",
    "valkey-ver",
    "stillframe-ver",
    Cut::FIELD,
    "redis-bits",
    "ctime",
    "used-mem",
    "aof-base",
    "aof-preamble",
];

/// First RDB version that ends in a checksum.
const CHECKSUM_VERSION: u32 = 5;

/// What to do about keys of types that are not stored, function libraries and module data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUnsupported {
    /// An error that names the type and the key.
    Fail,
    /// Leave them out and count them.
    Skip,
}

#[derive(Debug, Clone)]
pub struct ReaderOptions {
    /// How errors name the file.
    pub file_name: String,
    pub on_unsupported: OnUnsupported,
    /// `rdbchecksum`: whether the CRC64 is computed and compared.
    pub verify_checksum: bool,
    /// Number of databases; a dump that uses more is an error.
    pub db_count: u32,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        ReaderOptions {
            file_name: "dump.rdb".to_string(),
            on_unsupported: OnUnsupported::Fail,
            verify_checksum: true,
            db_count: u32::MAX,
        }
    }
}

/// The keys of one type that were left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedKeys {
    pub key_count: u64,
    /// The first of them, to name an example.
    pub first_key: Vec<u8>,
    pub first_key_db: u32,
}

/// What comes next in a dump, if long strings are not to be held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    Entry(Entry),
    /// The string has so many bytes, which [`Reader::piece`] gives.
    Long {
        db: u32,
        key: Vec<u8>,
        meta: KeyMeta,
        length_bytes: u64,
    },
}

/// A streaming reader of a dump: an iterator over its entries, in the order of the file.
///
/// After the last entry the checksum has been compared. An error ends the iteration.
///
/// ```text
///         header          opcode or key
/// Start ----------> Body -----------------> Body
///   |                |\-- EOF, checksum --> Done
///   \----------------+--------- error ------------------> Failed
/// ```
pub struct Reader<R> {
    source: Source<R>,
    options: ReaderOptions,
    state: State,
    version: u32,
    db: u32,
    meta: KeyMeta,
    aux: BTreeMap<&'static str, Vec<u8>>,
    size_hint: Option<(u64, u64)>,
    /// A string of which some is still to be given.
    long: Option<StringBody>,
    skipped: BTreeMap<&'static str, SkippedKeys>,
    skipped_function_count: u64,
    skipped_module_aux_count: u64,
    has_trailing_data: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Body,
    Done,
    Failed,
}

type Step<T> = Result<T, ReadErrorKind>;

impl<R: Read> Reader<R> {
    /// A reader of `input`, which it buffers. Nothing is read yet.
    pub fn new(input: R, options: ReaderOptions) -> Self {
        Reader {
            source: Source::new(input, BUFFER_BYTES, options.verify_checksum),
            options,
            state: State::Start,
            version: 0,
            db: 0,
            meta: KeyMeta::default(),
            aux: BTreeMap::new(),
            size_hint: None,
            long: None,
            skipped: BTreeMap::new(),
            skipped_function_count: 0,
            skipped_module_aux_count: 0,
            has_trailing_data: false,
        }
    }

    /// The next entry; `None` when the dump has ended well.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, ReadError> {
        match self.next_up_to(u64::MAX)? {
            Some(Next::Entry(entry)) => Ok(Some(entry)),
            // No string is so long.
            Some(Next::Long { .. }) | None => Ok(None),
        }
    }

    /// The next entry. Strings of more than `held_bytes` are not read with it, but come in pieces; those that nobody asks for
    /// are passed over.
    pub fn next_up_to(&mut self, held_bytes: u64) -> Result<Option<Next>, ReadError> {
        let result = self.advance(held_bytes);
        self.noted(result)
    }

    /// Gives `out` the next bytes of the string that has been begun, up to 2 MB. False if there are no more.
    pub fn piece(&mut self, out: impl FnMut(&[u8])) -> Result<bool, ReadError> {
        let result = self.take_piece(out);
        self.noted(result)
    }

    fn noted<T>(&mut self, result: Step<T>) -> Result<T, ReadError> {
        if result.is_err() {
            self.state = State::Failed;
        }
        result.map_err(|kind| ReadError {
            file: self.options.file_name.clone(),
            offset_bytes: self.source.offset_bytes(),
            kind,
        })
    }

    fn take_piece(&mut self, out: impl FnMut(&[u8])) -> Step<bool> {
        if self.state == State::Failed {
            return Err(ReadErrorKind::Failed);
        }
        let Some(body) = self.long.as_mut().filter(|body| body.left_bytes() > 0) else {
            self.long = None;
            return Ok(false);
        };
        let piece = self.source.piece(body.left_bytes().min(PIECE_BYTES))?;
        body.feed(piece, out)?;
        Ok(true)
    }

    /// Reads a dump up to the first thing that is not an auxiliary field, and says which state of which store it holds;
    /// `None` if it is of another program. There is nothing else to be done with the reader then.
    pub fn into_cut(mut self) -> Result<Option<Cut>, ReadError> {
        let result = self.read_fields();
        let offset_bytes = self.source.offset_bytes();
        result.map_err(|kind| ReadError { file: self.options.file_name, offset_bytes, kind })?;
        Ok(self.aux.get(Cut::FIELD).and_then(|text| Cut::from_text(text)))
    }

    fn read_fields(&mut self) -> Step<()> {
        self.read_header()?;
        while self.source.byte()? == opcode::AUX {
            self.read_aux()?;
        }
        Ok(())
    }

    /// Version of the format; 0 before the first entry.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Bytes of the file consumed so far.
    pub fn offset_bytes(&self) -> u64 {
        self.source.offset_bytes()
    }

    /// An auxiliary field of the header, as text: `redis-ver`, `valkey-ver`, `ctime`, `used-mem` and the like.
    pub fn aux(&self, name: &str) -> Option<&[u8]> {
        self.aux.get(name).map(Vec::as_slice)
    }

    /// Keys of the current database and how many of them expire, if the dump says so.
    pub fn db_size_hint(&self) -> Option<(u64, u64)> {
        self.size_hint
    }

    /// The keys left out, by type.
    pub fn skipped_keys(&self) -> &BTreeMap<&'static str, SkippedKeys> {
        &self.skipped
    }

    /// Function libraries left out.
    pub fn skipped_function_count(&self) -> u64 {
        self.skipped_function_count
    }

    /// Pieces of modules' auxiliary data left out.
    pub fn skipped_module_aux_count(&self) -> u64 {
        self.skipped_module_aux_count
    }

    /// Whether the file goes on after the end of the dump. As Redis does, the reader leaves that alone.
    pub fn has_trailing_data(&self) -> bool {
        self.has_trailing_data
    }

    fn advance(&mut self, held_bytes: u64) -> Step<Option<Next>> {
        while self.take_piece(|_| ())? {}
        if self.state == State::Start {
            self.read_header()?;
            self.state = State::Body;
        }
        while self.state == State::Body {
            self.source.part = "an entry (no end mark was seen)";
            match self.source.byte()? {
                opcode::EOF => {
                    self.read_end()?;
                    self.state = State::Done;
                }
                code if code >= opcode::SLOT_INFO => self.read_opcode(code)?,
                code => {
                    if let Some(next) = self.read_key(code, held_bytes)? {
                        return Ok(Some(next));
                    }
                }
            }
        }
        Ok(None)
    }

    fn read_header(&mut self) -> Step<()> {
        let header: [u8; 9] = self.source.array()?;
        let digits = header.strip_prefix(b"REDIS").filter(|digits| digits.iter().all(u8::is_ascii_digit));
        let Some(digits) = digits else {
            return Err(ReadErrorKind::BadMagic(header.to_vec()));
        };
        self.version = digits.iter().fold(0, |version, digit| 10 * version + u32::from(digit - b'0'));
        if !(1..=MAX_READ_VERSION).contains(&self.version) {
            return Err(ReadErrorKind::UnsupportedVersion(self.version));
        }
        Ok(())
    }

    fn read_end(&mut self) -> Step<()> {
        if self.version >= CHECKSUM_VERSION {
            self.source.part = "the checksum";
            let computed = self.source.checksum();
            let stored = u64::from_le_bytes(self.source.array()?);
            match computed {
                Some(computed) if stored != 0 && stored != computed => {
                    return Err(ReadErrorKind::Checksum { stored, computed });
                }
                _ => (),
            }
        }
        self.has_trailing_data = !self.source.at_end()?;
        Ok(())
    }

    fn read_opcode(&mut self, code: u8) -> Step<()> {
        match code {
            opcode::EXPIRETIME_MS => {
                let at_ms = i64::from_le_bytes(self.source.array()?);
                // Redis takes -1 as no deadline.
                self.meta.expire_at_ms = (at_ms != -1).then(|| u64::try_from(at_ms).unwrap_or(0));
            }
            opcode::EXPIRETIME => {
                let at_s = i64::from(i32::from_le_bytes(self.source.array()?));
                self.meta.expire_at_ms = (at_s != -1).then(|| u64::try_from(1000 * at_s).unwrap_or(0));
            }
            opcode::FREQ => self.meta.lfu_count = Some(self.source.byte()?),
            opcode::IDLE => self.meta.lru_idle_s = Some(self.source.count()?),
            opcode::SELECTDB => self.select_db()?,
            opcode::RESIZEDB => self.size_hint = Some((self.source.count()?, self.source.count()?)),
            opcode::SLOT_INFO => {
                for _slot_keys_expires in 0..3 {
                    self.source.count()?;
                }
            }
            opcode::AUX => self.read_aux()?,
            opcode::MODULE_AUX => {
                let module_id = self.source.count()?;
                if self.options.on_unsupported == OnUnsupported::Fail {
                    return Err(ReadErrorKind::UnsupportedModuleAux(module_name(module_id)));
                }
                skip_module_aux(&mut self.source)?;
                self.skipped_module_aux_count += 1;
            }
            opcode::FUNCTION2 | opcode::FUNCTION_PRE_GA => self.read_function(code)?,
            _ => return Err(ReadErrorKind::UnknownOpcode(code)),
        }
        Ok(())
    }

    fn select_db(&mut self) -> Step<()> {
        let db = self.source.count()?;
        let db_count = self.options.db_count;
        self.db = u32::try_from(db)
            .ok()
            .filter(|db| *db < db_count)
            .ok_or(ReadErrorKind::BadDatabase { db, db_count })?;
        self.size_hint = None;
        Ok(())
    }

    fn read_aux(&mut self) -> Step<()> {
        self.source.part = "an auxiliary field";
        let name = self.source.string()?.into_bytes();
        match KEPT_AUX.into_iter().find(|kept| kept.as_bytes() == name) {
            Some(kept) => {
                let value = self.source.string()?.into_bytes();
                self.aux.insert(kept, value);
                Ok(())
            }
            None => self.source.skip_string(),
        }
    }

    fn read_function(&mut self, code: u8) -> Step<()> {
        self.source.part = "a function library";
        if self.options.on_unsupported == OnUnsupported::Fail {
            return Err(ReadErrorKind::UnsupportedFunction);
        }
        if code == opcode::FUNCTION_PRE_GA {
            // Release candidates of 7.0: name, engine, whether a description comes, code.
            self.source.skip_string()?;
            self.source.skip_string()?;
            if self.source.count()? != 0 {
                self.source.skip_string()?;
            }
        }
        self.source.skip_string()?;
        self.skipped_function_count += 1;
        Ok(())
    }

    /// Reads a key and its value; `None` if they were left out.
    fn read_key(&mut self, code: u8, held_bytes: u64) -> Step<Option<Next>> {
        let other = if code == TYPE_STRING {
            None
        } else {
            Some(OtherType::from_code(code, self.version).ok_or(ReadErrorKind::UnknownOpcode(code))?)
        };
        self.source.part = "a key";
        let key = self.source.string()?.into_bytes();
        self.source.part = "a value";
        let meta = std::mem::take(&mut self.meta);
        match other {
            None => self.read_value(key, meta, held_bytes).map(Some),
            Some(other) => self.read_other(other, key).map(|()| None),
        }
    }

    fn read_value(&mut self, key: Vec<u8>, meta: KeyMeta, held_bytes: u64) -> Step<Next> {
        let (db, head) = (self.db, self.source.string_head()?);
        match head.length_bytes().filter(|length| *length > held_bytes) {
            Some(length_bytes) => {
                self.long = Some(StringBody::new(head)?);
                Ok(Next::Long { db, key, meta, length_bytes })
            }
            None => {
                let value = RdbValue::String(self.source.string_after(head)?);
                Ok(Next::Entry(Entry { db, key, meta, value }))
            }
        }
    }

    fn read_other(&mut self, other: OtherType, key: Vec<u8>) -> Step<()> {
        if self.options.on_unsupported == OnUnsupported::Fail || !other.can_be_skipped() {
            let OtherType { code, family, encoding, .. } = other;
            return Err(ReadErrorKind::UnsupportedType { family, encoding, code, key, db: self.db });
        }
        other.skip(&mut self.source)?;
        let first_key_db = self.db;
        let skipped = self.skipped.entry(other.family).or_insert(SkippedKeys {
            key_count: 0,
            first_key: key,
            first_key_db,
        });
        skipped.key_count += 1;
        Ok(())
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == State::Failed {
            return None;
        }
        self.next_entry().transpose()
    }
}
