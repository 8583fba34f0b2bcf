//! Reading a dump, entry by entry.

use super::elements::Elements;
use super::error::{KeyName, ReadError, ReadErrorKind};
use super::format::{opcode, Cut, KeyMeta, MAX_READ_VERSION, TYPE_STRING, VALKEY_VERSIONS};
use super::kind::{CollectionKind, Element, Entry, RdbValue};
use super::libraries;
use super::skip::{module_name, skip_module_aux, OtherType};
use super::source::{Source, StringBody};
use std::collections::BTreeMap;
use std::io::Read;

const BUFFER_BYTES: usize = 64 << 10;

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

/// What to do about keys of types that are not stored, function libraries of release candidates, and module data.
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

/// What comes next in a dump, if long strings and collections are not to be held.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    Entry(Entry),
    /// The string has so many bytes, which [`Reader::piece`] gives.
    Long {
        db: u32,
        key: Vec<u8>,
        meta: KeyMeta,
        length_bytes: u64,
    },
    /// [`Reader::element`] gives the elements: at least one, for an empty collection is left out, as in Redis.
    Collection {
        db: u32,
        key: Vec<u8>,
        meta: KeyMeta,
        kind: CollectionKind,
        /// How many there are, if the dump says so here. It is for sizes only: a damaged dump may say anything.
        count_hint: Option<u64>,
    },
    /// A function library. Dumps have them before the first key.
    Library {
        source: Vec<u8>,
    },
}

/// A value that has been read, or the beginning of one.
enum Value {
    Held(RdbValue),
    Long { length_bytes: u64 },
    Elements(Box<Elements>),
    LeftOut,
}

/// How much of values is to be held.
#[derive(Clone, Copy)]
struct Held {
    string_bytes: u64,
    collections: bool,
    libraries: bool,
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
    /// A collection of which some is still to be given.
    elements: Option<Box<Elements>>,
    /// The key of the value that is being read, or has been read in part.
    current_key: Option<KeyName>,
    empty_key_count: u64,
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
            elements: None,
            current_key: None,
            empty_key_count: 0,
            skipped: BTreeMap::new(),
            skipped_function_count: 0,
            skipped_module_aux_count: 0,
            has_trailing_data: false,
        }
    }

    /// The next entry, with all of its value; `None` when the dump has ended well. Function libraries are left out.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, ReadError> {
        let result = self.advance(Held { string_bytes: u64::MAX, collections: true, libraries: false });
        match self.noted(result)? {
            Some(Next::Entry(entry)) => Ok(Some(entry)),
            // All of it is held.
            Some(Next::Long { .. } | Next::Collection { .. } | Next::Library { .. }) | None => Ok(None),
        }
    }

    /// The next entry. Strings of more than `held_bytes` are not read with it, but come in pieces, and collections come
    /// element by element. What nobody asks for is passed over.
    pub fn next_up_to(&mut self, held_bytes: u64) -> Result<Option<Next>, ReadError> {
        let held = Held { string_bytes: held_bytes, collections: false, libraries: true };
        let result = self.advance(held);
        self.noted(result)
    }

    /// The next element of the collection that has been begun; `None` after the last.
    ///
    /// One element is held, however long it is: a field and its value have up to 512 MB each, and memory for them grows
    /// with what has been read. Whether an element has come before is for the caller to see, who has them all; then
    /// [`Reader::refuse_duplicate`].
    pub fn element(&mut self) -> Result<Option<Element<'_>>, ReadError> {
        let result = self.next_element();
        let has_one = self.noted(result)?;
        Ok(self.elements.as_ref().filter(|_| has_one).map(|elements| elements.current()))
    }

    /// Whether the elements of the collection that has been begun lie in a listpack or the like, which Redis takes over as it
    /// is: then a score may be the negative zero.
    pub fn is_packed(&self) -> bool {
        self.elements.as_ref().is_some_and(|elements| elements.is_packed())
    }

    /// Ends the reading, because the last element is one that had come before.
    pub fn refuse_duplicate(&mut self) -> ReadError {
        self.state = State::Failed;
        self.error(ReadErrorKind::DuplicateElement)
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
        result.map_err(|kind| self.error(kind))
    }

    fn error(&self, kind: ReadErrorKind) -> ReadError {
        ReadError {
            file: self.options.file_name.clone(),
            offset_bytes: self.source.offset_bytes(),
            key: self.current_key.clone(),
            kind,
        }
    }

    fn next_element(&mut self) -> Step<bool> {
        if self.state == State::Failed {
            return Err(ReadErrorKind::Failed);
        }
        let Some(elements) = &mut self.elements else { return Ok(false) };
        let has_one = elements.advance(&mut self.source)?;
        if !has_one {
            self.elements = None;
        }
        Ok(has_one)
    }

    fn take_piece(&mut self, out: impl FnMut(&[u8])) -> Step<bool> {
        if self.state == State::Failed {
            return Err(ReadErrorKind::Failed);
        }
        let Some(body) = self.long.as_mut().filter(|body| body.left_bytes() > 0) else {
            self.long = None;
            return Ok(false);
        };
        self.source.feed(body, out)?;
        Ok(true)
    }

    /// Reads a dump up to the first thing that is not an auxiliary field, and says which state of which store it holds;
    /// `None` if it is of another program. There is nothing else to be done with the reader then.
    pub fn into_cut(mut self) -> Result<Option<Cut>, ReadError> {
        let result = self.read_fields();
        self.noted(result)?;
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

    /// Collections without an element, which are left out.
    pub fn empty_key_count(&self) -> u64 {
        self.empty_key_count
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

    fn advance(&mut self, held: Held) -> Step<Option<Next>> {
        while self.take_piece(|_| ())? {}
        while self.next_element()? {}
        self.current_key = None;
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
                opcode::FUNCTION2 => {
                    if let Some(source) = self.read_library(held.libraries)? {
                        return Ok(Some(Next::Library { source }));
                    }
                }
                code if code >= opcode::SLOT_INFO => self.read_opcode(code)?,
                code => {
                    if let Some(next) = self.read_key(code, held)? {
                        return Ok(Some(next));
                    }
                }
            }
        }
        Ok(None)
    }

    fn read_header(&mut self) -> Step<()> {
        let header: [u8; 9] = self.source.array()?;
        let redis = header.strip_prefix(b"REDIS").map(|digits| (digits, 1..=MAX_READ_VERSION));
        let valkey = header.strip_prefix(b"VALKEY").map(|digits| (digits, VALKEY_VERSIONS));
        let (digits, versions) = redis
            .or(valkey)
            .filter(|(digits, _)| digits.iter().all(u8::is_ascii_digit))
            .ok_or_else(|| ReadErrorKind::BadMagic(header.to_vec()))?;
        self.version = digits.iter().fold(0, |version, digit| 10 * version + u32::from(digit - b'0'));
        if !versions.contains(&self.version) {
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
            opcode::FUNCTION_PRE_GA => self.skip_early_function()?,
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

    /// Reads a function library; `None` if it was left out.
    fn read_library(&mut self, is_held: bool) -> Step<Option<Vec<u8>>> {
        self.source.part = "a function library";
        if !is_held {
            self.source.skip_string()?;
            self.skipped_function_count += 1;
            return Ok(None);
        }
        libraries::read_source(&mut self.source).map(Some)
    }

    /// Release candidates of 7.0: name, engine, whether a description comes, code.
    fn skip_early_function(&mut self) -> Step<()> {
        self.source.part = "a function library";
        if self.options.on_unsupported == OnUnsupported::Fail {
            return Err(ReadErrorKind::UnsupportedFunction);
        }
        self.source.skip_string()?;
        self.source.skip_string()?;
        if self.source.count()? != 0 {
            self.source.skip_string()?;
        }
        self.source.skip_string()?;
        self.skipped_function_count += 1;
        Ok(())
    }

    /// Reads a key and its value, or what of it is to be held; `None` if they were left out.
    fn read_key(&mut self, code: u8, held: Held) -> Step<Option<Next>> {
        let kind = CollectionKind::of_code(code, self.version);
        let other = OtherType::from_code(code, self.version);
        if code != TYPE_STRING && kind.is_none() && other.is_none() {
            return Err(ReadErrorKind::UnknownOpcode(code));
        }
        self.source.part = "a key";
        let key = self.source.string()?.into_bytes();
        self.source.part = "a value";
        let (db, meta) = (self.db, std::mem::take(&mut self.meta));
        let value = match (kind, other) {
            (Some(kind), _) => self.read_collection((kind, code), held.collections),
            (None, Some(other)) => self.read_other(other, &key),
            (None, None) => self.read_string(held.string_bytes),
        };
        if !matches!(value, Ok(Value::Held(_) | Value::LeftOut)) {
            self.current_key = Some(KeyName { db, key: key.clone() });
        }
        Ok(match value? {
            Value::Held(value) => Some(Next::Entry(Entry { db, key, meta, value })),
            Value::Long { length_bytes } => Some(Next::Long { db, key, meta, length_bytes }),
            Value::Elements(elements) => {
                let (kind, count_hint) = (elements.kind(), elements.count_hint());
                self.elements = Some(elements);
                Some(Next::Collection { db, key, meta, kind, count_hint })
            }
            Value::LeftOut => None,
        })
    }

    fn read_string(&mut self, held_bytes: u64) -> Step<Value> {
        let head = self.source.string_head()?;
        match head.length_bytes().filter(|length| *length > held_bytes) {
            Some(length_bytes) => {
                self.long = Some(StringBody::new(head)?);
                Ok(Value::Long { length_bytes })
            }
            None => Ok(Value::Held(RdbValue::String(self.source.string_after(head)?))),
        }
    }

    fn read_collection(&mut self, kind_and_code: (CollectionKind, u8), is_held: bool) -> Step<Value> {
        match Elements::begin(&mut self.source, kind_and_code, self.version)? {
            None => {
                self.empty_key_count += 1;
                Ok(Value::LeftOut)
            }
            Some(elements) if is_held => Ok(Value::Held(elements.collect(&mut self.source)?)),
            Some(elements) => Ok(Value::Elements(elements)),
        }
    }

    fn read_other(&mut self, other: OtherType, key: &[u8]) -> Step<Value> {
        if self.options.on_unsupported == OnUnsupported::Fail || !other.can_be_skipped() {
            let OtherType { code, family, encoding, .. } = other;
            return Err(ReadErrorKind::UnsupportedType { family, encoding, code });
        }
        other.skip(&mut self.source)?;
        let first_key_db = self.db;
        let skipped = self.skipped.entry(other.family).or_insert_with(|| SkippedKeys {
            key_count: 0,
            first_key: key.to_vec(),
            first_key_db,
        });
        skipped.key_count += 1;
        Ok(Value::LeftOut)
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
