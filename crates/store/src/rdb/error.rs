//! What can go wrong with a dump, said with its place.

use std::fmt;
use std::io;

/// An error in reading a dump: what, and at which byte of which file.
#[derive(Debug)]
pub struct ReadError {
    /// Name of the file as given in `ReaderOptions`.
    pub file: String,
    /// Byte of the file at which the reader stood.
    pub offset_bytes: u64,
    /// The key whose value was being read.
    pub key: Option<KeyName>,
    pub kind: ReadErrorKind,
}

/// A key, as an error names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyName {
    pub db: u32,
    pub key: Vec<u8>,
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key \"{}\" in db {}", shown(&self.key), self.db)
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at ", self.kind)?;
        if let Some(key) = &self.key {
            write!(f, "{key}, ")?;
        }
        write!(f, "byte {} of {}", self.offset_bytes, self.file)?;
        match self.kind.advice() {
            Some(advice) => write!(f, ": {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ReadErrorKind::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// What went wrong in reading a dump.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadErrorKind {
    #[error("read failed: {0}")]
    Io(io::Error),
    #[error("truncated dump: the file ends inside {0}")]
    Truncated(&'static str),
    #[error("not an RDB file: it begins with \"{}\"", .0.escape_ascii())]
    BadMagic(Vec<u8>),
    #[error("RDB version {0} is not supported")]
    UnsupportedVersion(u32),
    #[error("corrupt dump: 0x{0:02x} does not begin a length")]
    BadLength(u8),
    #[error("corrupt dump: unknown string encoding {0}")]
    BadStringEncoding(u8),
    #[error("corrupt dump: invalid LZF data")]
    BadLzf,
    #[error("string of {length_bytes} bytes exceeds the limit of 512 MB")]
    StringTooLong { length_bytes: u64 },
    #[error("corrupt dump: unknown opcode or value type {0}")]
    UnknownOpcode(u8),
    #[error("corrupt dump: malformed module data")]
    BadModuleData,
    #[error("database {db} is outside the {db_count} configured databases")]
    BadDatabase { db: u64, db_count: u32 },
    #[error("checksum mismatch: the file says {stored:016x}, its content gives {computed:016x}")]
    Checksum { stored: u64, computed: u64 },
    #[error("corrupt dump: malformed {container}: {problem}")]
    BadContainer { container: &'static str, problem: &'static str },
    #[error("corrupt dump: {0}")]
    BadElement(&'static str),
    #[error("corrupt dump: an element comes twice")]
    DuplicateElement,
    #[error("unsupported type {family} (RDB type {code}, {encoding})")]
    UnsupportedType { family: &'static str, encoding: &'static str, code: u8 },
    #[error(
        "unsupported function library in the format of release candidates of Redis 7.0 (RDB opcode 246)"
    )]
    UnsupportedFunction,
    #[error("a function library of {length_bytes} bytes exceeds the limit of 16 MB")]
    LibraryTooLong { length_bytes: u64 },
    #[error("unsupported data of module {0}")]
    UnsupportedModuleAux(String),
    #[error("an earlier error ended the reading")]
    Failed,
}

/// A key as an error shows it, which is not longer than a line.
fn shown(key: &[u8]) -> String {
    const SHOWN_BYTES: usize = 128;
    let end = if key.len() > SHOWN_BYTES { "..." } else { "" };
    format!("{}{end}", key[..key.len().min(SHOWN_BYTES)].escape_ascii())
}

impl ReadErrorKind {
    /// What the user can do about it.
    fn advice(&self) -> Option<&'static str> {
        use ReadErrorKind::*;
        match self {
            // The layout of a module's first serialisation format is known to the module alone.
            UnsupportedType { code: super::format::TYPE_MODULE_1 | super::format::TYPE_PATH_HASH, .. } => {
                Some("it cannot be passed over either; delete the key in the server that wrote the file and save again")
            }
            UnsupportedType { .. } => Some(
                "this version does not store it; start with `--rdb-skip-unsupported yes` to leave such keys out",
            ),
            UnsupportedFunction | UnsupportedModuleAux(_) => Some(
                "this version does not store it; start with `--rdb-skip-unsupported yes` to leave it out",
            ),
            UnsupportedVersion(_) => Some(
                "versions 1 to 12 are read (Redis up to 8.2, Valkey 8), and of Valkey 80 and 81 (Valkey 9)",
            ),
            BadDatabase { .. } => Some("raise `databases` in the configuration"),
            Truncated(_) | Checksum { .. } => Some("restore the file from a backup, or write it again at its source"),
            _ => None,
        }
    }
}

/// An error in writing a dump. A writer that has failed stays failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    #[error("cannot write the dump: {0}")]
    Io(#[from] io::Error),
    #[error("the value was announced with {announced_bytes} bytes and {missing_bytes} of them did not come")]
    ValueTooShort { announced_bytes: u64, missing_bytes: u64 },
    #[error("the value was announced with {announced_bytes} bytes and more came")]
    ValueTooLong { announced_bytes: u64 },
    #[error(
        "a collection was announced with {announced_count} elements and {missing_count} of them did not come"
    )]
    TooFewElements { announced_count: u64, missing_count: u64 },
    #[error("a collection was announced with {announced_count} elements and more came")]
    TooManyElements { announced_count: u64 },
    #[error("a collection without elements has no form in a dump")]
    EmptyCollection,
    #[error("an element came that is not of the kind that was announced")]
    WrongElement,
    #[error(
        "hash \"{}\" has fields with deadlines, for which version 10 of the format (Redis 7.0) has no form: version 12 has one (Redis 7.4)",
        shown(.key)
    )]
    FieldDeadlines { key: Vec<u8> },
    #[error("an earlier error ended the writing of the dump")]
    Failed,
}

/// Why a payload was not accepted by [`open_libraries`](super::open_libraries). The words are those of Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LibrariesError {
    /// The footer is missing, of a newer version, or its checksum does not fit.
    #[error("DUMP payload version or checksum are wrong")]
    VersionOrChecksum,
    /// Something else than function libraries is in it.
    #[error("given type is not a function")]
    OtherType,
    /// A library as release candidates of Redis 7.0 had them; Redis 7.2 refuses it so.
    #[error("Pre-release function format not supported")]
    PreRelease,
    /// A library cannot be read.
    #[error("Failed loading library payload")]
    BadData,
    #[error("Failed loading library payload: a function library has at most 16 MB, and all together 512 MB")]
    TooLong,
}

/// Why a payload was not accepted by [`parse_payload`](super::parse_payload).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// The footer is missing, of a newer version, or its checksum does not fit.
    #[error("DUMP payload version or checksum are wrong")]
    VersionOrChecksum,
    /// The footer is right and the value is not.
    #[error("Bad data format")]
    BadData,
    /// A valid type that this version does not store.
    #[error("unsupported type {family} (RDB type {code}, {encoding}): this version does not store it")]
    UnsupportedType { family: &'static str, encoding: &'static str, code: u8 },
}
