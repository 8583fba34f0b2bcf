//! The RDB codec against Redis, old versions of the format, and damage.

mod bytes;
mod checks;
mod collections;
mod containers;
mod damage;
mod libraries;
mod model;
mod payload;
mod reader;
mod redis;
mod streams;
mod strings;
mod types;
mod versions;
mod writer;

use stillframe_store::rdb::{Entry, OnUnsupported, RdbString, RdbValue, ReadError, Reader, ReaderOptions};

pub fn skipping() -> ReaderOptions {
    ReaderOptions { on_unsupported: OnUnsupported::Skip, ..ReaderOptions::default() }
}

pub fn read_all(bytes: &[u8], options: ReaderOptions) -> Result<Vec<Entry>, ReadError> {
    Reader::new(bytes, options).collect()
}

pub fn text(value: RdbValue) -> Vec<u8> {
    match value {
        RdbValue::String(string) => string.into_bytes(),
        other => panic!("not a string: {other:?}"),
    }
}

pub fn bytes_value(bytes: &[u8]) -> RdbValue {
    RdbValue::String(RdbString::Bytes(bytes.to_vec()))
}
