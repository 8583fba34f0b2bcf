//! The RDB format: streaming reader and writer of `dump.rdb`, and the payloads of `DUMP` and `RESTORE`.
//!
//! It knows bytes, not the store: the reader yields [`Entry`] after [`Entry`], the writer takes them, and neither
//! holds more than one value in memory; a long one goes through both in pieces, compressed or not. Read are versions 1 to 12 (Redis up to 8.2, Valkey 8), written is version 10
//! (Redis 7.0). Values other than strings are named in an error, or passed over on request.
//!
//! Layout of a dump, after `rdb.c` and `rdb.h` of Redis 7.0:
//!
//! ```text
//! "REDIS" version:4 ASCII digits
//! { AUX name value | FUNCTION2 code | MODULE_AUX ... }
//! { SELECTDB db
//!   [RESIZEDB keys expires] [SLOT_INFO slot keys expires]
//!   { [EXPIRETIME_MS ms:8 LE | EXPIRETIME s:4 LE] [IDLE s | FREQ count:1] type:1 key value } }
//! EOF [crc64:8 LE, from version 5; 0 means that none was computed]
//! ```
//!
//! A length is 6, 14, 32 or 64 bits, big endian, told by the top bits of its first byte; the tag `11` there means an
//! integer of 8, 16 or 32 bits (little endian) or an LZF-compressed string.

mod blob;
mod elements;
mod encode;
mod error;
mod expand;
mod format;
mod gather;
mod intset;
mod listpack;
mod lzf;
mod output;
mod payload;
mod reader;
mod score;
mod skip;
mod source;
mod writer;
mod ziplist;
mod zipmap;

pub use error::{KeyName, PayloadError, ReadError, ReadErrorKind, WriteError};
pub use format::{
    CollectionKind, Cut, Element, Entry, HashField, KeyMeta, RdbString, RdbValue, StringRef, WriteVersion,
    MAX_READ_VERSION, MAX_STRING_BYTES, VALKEY_VERSIONS, WRITE_VERSION,
};
pub use gather::{Announced, ListNodes, SmallLimits};
pub use lzf::Compressor;
pub use payload::{
    dump_string, open_gathered, open_payload, parse_payload, LongPayload, Payload, PayloadContent,
    PayloadElements, PayloadReader, PayloadWriter, PAYLOAD_HEAD_BYTES,
};
pub use reader::{Next, OnUnsupported, Reader, ReaderOptions, SkippedKeys};
pub use writer::{Header, Writer, WriterOptions};
