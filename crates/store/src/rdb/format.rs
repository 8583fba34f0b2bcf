//! Constants and types of the format.

use crc::{Crc, Table, CRC_64_REDIS};
use std::ops::RangeInclusive;

/// Highest version of Redis's format that [`Reader`](super::Reader) and [`parse_payload`](super::parse_payload) take.
pub const MAX_READ_VERSION: u32 = 12;

/// Versions of Valkey's own format that are taken: of Valkey 9.0 and 9.2. What lies between Redis's and these is Redis's.
pub const VALKEY_VERSIONS: RangeInclusive<u32> = 80..=81;

/// Whether payloads of this version are taken. They have no magic word: the number alone says whose they are.
pub(super) fn is_read_version(version: u32) -> bool {
    version <= MAX_READ_VERSION || is_valkey(version)
}

/// Whether a version is of Valkey's own format.
pub(super) fn is_valkey(version: u32) -> bool {
    VALKEY_VERSIONS.contains(&version)
}

/// Version of the format that [`Writer`](super::Writer) and `dump_payload` produce: what Redis 7.0 loads.
pub const WRITE_VERSION: u32 = 10;

/// Which version of the format is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WriteVersion {
    /// Version 10, which all releases from 7.0 on read, and Valkey.
    #[default]
    Redis7_0,
    /// Version 12, which has forms for deadlines of a hash's fields. Valkey does not read it.
    Redis7_4,
}

impl WriteVersion {
    pub fn number(self) -> u32 {
        match self {
            WriteVersion::Redis7_0 => WRITE_VERSION,
            WriteVersion::Redis7_4 => 12,
        }
    }

    /// The release whose format it is; other stores read it in the field `redis-ver`.
    pub(super) fn release(self) -> &'static str {
        match self {
            WriteVersion::Redis7_0 => "7.0.15",
            WriteVersion::Redis7_4 => "7.4.0",
        }
    }

    pub(super) fn has_deadlines(self) -> bool {
        self == WriteVersion::Redis7_4
    }
}

/// Longest string, in bytes, that is read; Redis's default `proto-max-bulk-len`.
pub const MAX_STRING_BYTES: u64 = 512 << 20;

/// CRC-64/Jones, sliced by 16: 3.4 GB/s where the bytewise table gives 0.5.
pub(super) static CRC64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// A module value whose layout only its module knows.
pub(super) const TYPE_MODULE_1: u8 = 6;

/// A hash by paths of Valkey 9.2, whose layout no other release has.
pub(super) const TYPE_PATH_HASH: u8 = 23;

/// A string as the format knows it: an integer has a shorter form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RdbString {
    /// Stored as an integer; its value is the decimal text.
    Int(i64),
    /// Stored as bytes, which may nevertheless spell a number.
    Bytes(Vec<u8>),
}

/// Up to which size collections are written in the small forms, in one container each. The names are those of the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmallLimits {
    pub hash_max_listpack_entries: u64,
    pub hash_max_listpack_value_bytes: u64,
    pub set_max_intset_entries: u64,
    pub zset_max_listpack_entries: u64,
    pub zset_max_listpack_value_bytes: u64,
    /// Items of a node, or from -1 to -5 its bytes: 4 KB and twice as much each.
    pub list_max_listpack_size: i64,
}

impl Default for SmallLimits {
    fn default() -> SmallLimits {
        SmallLimits {
            hash_max_listpack_entries: 512,
            hash_max_listpack_value_bytes: 64,
            set_max_intset_entries: 512,
            zset_max_listpack_entries: 128,
            zset_max_listpack_value_bytes: 64,
            list_max_listpack_size: -2,
        }
    }
}

/// The last moment, in milliseconds since the Unix epoch, that Redis takes as the deadline of a field.
pub(super) const MAX_FIELD_DEADLINE_MS: i64 = (1 << 48) - 1;

/// Which state of a store a dump holds: by this it is known whether a page file beside it is older or newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The number of the page file that the store has.
    pub file_id: u128,
    /// The last checkpoint that had been taken, or begun, when the dump was cut.
    pub checkpoint: u64,
    /// Changes that had been made since the last complete one.
    pub change_count: u64,
}

impl Cut {
    pub(super) const FIELD: &'static str = "stillframe-cut";

    pub(super) fn to_text(self) -> String {
        format!("{:032x} {} {}", self.file_id, self.checkpoint, self.change_count)
    }

    pub(super) fn from_text(text: &[u8]) -> Option<Cut> {
        let mut words = std::str::from_utf8(text).ok()?.split(' ');
        let file_id = u128::from_str_radix(words.next()?, 16).ok()?;
        let (checkpoint, change_count) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        words.next().is_none().then_some(Cut { file_id, checkpoint, change_count })
    }
}

/// A borrowed [`RdbString`], as the writer takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StringRef<'a> {
    /// Written in an integer form if it fits 32 bits, else as decimal text.
    Int(i64),
    /// Written in an integer form if it is the canonical text of a 32-bit integer.
    Bytes(&'a [u8]),
}

impl RdbString {
    /// The same string, borrowed.
    pub fn as_ref(&self) -> StringRef<'_> {
        match self {
            RdbString::Int(value) => StringRef::Int(*value),
            RdbString::Bytes(bytes) => StringRef::Bytes(bytes),
        }
    }

    /// The bytes that `GET` would return.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            RdbString::Int(value) => value.to_string().into_bytes(),
            RdbString::Bytes(bytes) => bytes,
        }
    }
}

/// What a dump keeps of a key beside its value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyMeta {
    /// Deadline in milliseconds since the Unix epoch; 0 for any moment before it.
    pub expire_at_ms: Option<u64>,
    /// Seconds since the last access (written under an LRU `maxmemory-policy`).
    pub lru_idle_s: Option<u64>,
    /// Logarithmic access counter (written under an LFU `maxmemory-policy`).
    pub lfu_count: Option<u8>,
}

pub(super) mod opcode {
    pub const SLOT_INFO: u8 = 244;
    pub const FUNCTION2: u8 = 245;
    pub const FUNCTION_PRE_GA: u8 = 246;
    pub const MODULE_AUX: u8 = 247;
    pub const IDLE: u8 = 248;
    pub const FREQ: u8 = 249;
    pub const AUX: u8 = 250;
    pub const RESIZEDB: u8 = 251;
    pub const EXPIRETIME_MS: u8 = 252;
    pub const EXPIRETIME: u8 = 253;
    pub const SELECTDB: u8 = 254;
    pub const EOF: u8 = 255;
}

/// RDB type of a plain string.
pub(super) const TYPE_STRING: u8 = 0;

/// RDB types of collections. Ziplists and zipmaps are of Redis before 7, text scores of Redis before 4.
pub(super) mod collection_type {
    pub const LIST: u8 = 1;
    pub const SET: u8 = 2;
    pub const SORTED_SET_TEXT: u8 = 3;
    pub const HASH: u8 = 4;
    pub const SORTED_SET: u8 = 5;
    pub const HASH_ZIPMAP: u8 = 9;
    pub const LIST_ZIPLIST: u8 = 10;
    pub const SET_INTSET: u8 = 11;
    pub const SORTED_SET_ZIPLIST: u8 = 12;
    pub const HASH_ZIPLIST: u8 = 13;
    pub const LIST_QUICKLIST: u8 = 14;
    /// Of Redis 5, of 7.0, and of 7.2.
    pub const STREAM: u8 = 15;
    pub const STREAM_2: u8 = 19;
    pub const STREAM_3: u8 = 21;
    pub const HASH_LISTPACK: u8 = 16;
    pub const SORTED_SET_LISTPACK: u8 = 17;
    pub const LIST_QUICKLIST_2: u8 = 18;
    pub const SET_LISTPACK: u8 = 20;
    /// Redis 7.4 RC: the deadline before each field. From version 80 on this code is Valkey's, see `HASH_VALKEY`.
    pub const HASH_DEADLINES_RC: u8 = 22;
    /// Valkey 9: the deadline after each value.
    pub const HASH_VALKEY: u8 = 22;
    /// Redis 7.4 RC: a listpack of field, value, deadline.
    pub const HASH_LISTPACK_DEADLINES_RC: u8 = 23;
    /// Redis 7.4: the least deadline, then what each field's is more than that.
    pub const HASH_DEADLINES: u8 = 24;
    /// Redis 7.4: the least deadline, then a listpack of field, value, deadline.
    pub const HASH_LISTPACK_DEADLINES: u8 = 25;
}

/// How a node of a quicklist of version 2 holds its elements.
pub(super) mod quicklist_node {
    /// One element, as it is.
    pub const PLAIN: u64 = 1;
    /// A listpack of elements.
    pub const PACKED: u64 = 2;
}

pub(super) mod string_encoding {
    pub const INT8: u8 = 0;
    pub const INT16: u8 = 1;
    pub const INT32: u8 = 2;
    pub const LZF: u8 = 3;
}
