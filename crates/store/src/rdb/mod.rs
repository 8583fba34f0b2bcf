//! The RDB format: streaming reader and writer of `dump.rdb`, and the payloads of `DUMP` and `RESTORE`.
//!
//! It knows bytes, not the store: the reader yields [`Entry`] after [`Entry`], the writer takes them. Neither holds more
//! than it is asked to: a long string goes through both in pieces, compressed or not, and a collection element by element,
//! whatever it is encoded as. Read are versions 1 to 12 (Redis up to 8.2, Valkey 8) and Valkey's own 80 and 81 (Valkey 9),
//! written is version 10 (Redis 7.0), or 12 (Redis 7.4), which has forms for deadlines of a hash's fields. Values of
//! modules are named in an error, or passed over on request.
//!
//! Layout of a dump, after `rdb.c` and `rdb.h` of Redis 7.0:
//!
//! ```text
//! "REDIS" version:4 ASCII digits, or "VALKEY" version:3 ASCII digits
//! { AUX name value | FUNCTION2 source | MODULE_AUX ... }
//! { SELECTDB db
//!   [RESIZEDB keys expires] [SLOT_INFO slot keys expires]
//!   { [EXPIRETIME_MS ms:8 LE | EXPIRETIME s:4 LE] [IDLE s | FREQ count:1] type:1 key value } }
//! EOF [crc64:8 LE, from version 5; 0 means that none was computed]
//! ```
//!
//! A length is 6, 14, 32 or 64 bits, big endian, told by the top bits of its first byte; the tag `11` there means an
//! integer of 8, 16 or 32 bits (little endian) or an LZF-compressed string.
//!
//! Values of collections, by type:
//!
//! ```text
//!  1  2        count { string }                              list, set
//!  3  5        count { string score }                        sorted set; the score is text, or 8 bytes LE
//!  4           count { string string }                       hash
//!  9 to 13     zipmap, ziplist, intset, ziplist, ziplist     hash, list, set, sorted set, hash
//! 14 18        count { ziplist }, count { kind node }        list; a node is a listpack or a plain item
//! 16 17 20     listpack                                      hash, sorted set, set
//! 15 19 21     see `stream.rs`                                stream of Redis 5, of 7.0, of 7.2
//! 22 Redis     count { deadline string string }              hash of a preview of 7.4, deadlines absolute
//! 22 Valkey    count { string string deadline:8 LE }         hash of Valkey 9; -1 is no deadline
//! 23 25        [least:8 LE] listpack of threes               hash of 7.4, its preview without the least deadline
//! 24           least:8 LE count { later string string }      hash of 7.4, deadlines by how much later than the least
//! ```
//!
//! Each container is a string of the dump. What is in it is described where it is read: `ziplist.rs`, `listpack.rs`,
//! `intset.rs`, `zipmap.rs`.

mod blob;
mod elements;
mod encode;
mod error;
mod expand;
mod format;
mod gather;
mod intset;
mod kind;
mod libraries;
mod listpack;
mod lzf;
mod output;
mod payload;
mod reader;
mod score;
mod skip;
mod source;
mod stream;
mod writer;
mod ziplist;
mod zipmap;

pub use error::{KeyName, LibrariesError, PayloadError, ReadError, ReadErrorKind, WriteError};
pub use format::{
    Cut, KeyMeta, RdbString, SmallLimits, StringRef, WriteVersion, MAX_READ_VERSION, MAX_STRING_BYTES,
    VALKEY_VERSIONS, WRITE_VERSION,
};
pub use gather::{ListNodes, Tally};
pub use kind::{Announced, CollectionKind, Element, Entry, HashField, Parts, RdbValue};
pub use libraries::{dump_libraries, open_libraries};
pub(crate) use listpack::{
    entry_bytes as listpack_entry_bytes, number_bytes as listpack_number_bytes,
    EMPTY_BYTES as LISTPACK_EMPTY_BYTES,
};
pub use lzf::Compressor;
pub use payload::{
    dump_string, open_gathered, open_payload, open_unchecked_payload, parse_payload, LongPayload, Payload,
    PayloadContent, PayloadElements, PayloadReader, PayloadWriter, PAYLOAD_HEAD_BYTES,
};
pub use reader::{Next, OnUnsupported, Reader, ReaderOptions, SkippedKeys};
pub(crate) use score::score_text;
pub use writer::{Header, Writer, WriterOptions};
