//! What must hold for any bytes. The random tests run it for seconds, the fuzz targets for as long as one likes.

use crc::{Crc, CRC_64_REDIS};
use stillframe_store::rdb::{
    dump_payload, dump_string, parse_payload, Compressor, Entry, Header, OnUnsupported, PayloadError,
    RdbValue, Reader, ReaderOptions, StringRef, Writer, WriterOptions,
};

/// Reading `bytes` as a dump ends with entries or an error, with the checksum and without; entries that were read
/// are read again from the dump that they are written to.
pub fn dump(bytes: &[u8]) {
    let read = |bytes: &[u8], verify_checksum| -> Option<Vec<Entry>> {
        let on_unsupported = OnUnsupported::Skip;
        let options = ReaderOptions { on_unsupported, verify_checksum, ..ReaderOptions::default() };
        Reader::new(bytes, options).collect::<Result<_, _>>().ok()
    };
    let verified = read(bytes, true);
    let unverified = read(bytes, false);
    assert!(verified.is_none() || verified == unverified);
    let Some(entries) = unverified else { return };
    let written = write(&entries);
    assert!(read(&written, true).is_some_and(|again| again.iter().zip(&entries).all(|(a, b)| is_same(a, b))));
}

fn write(entries: &[Entry]) -> Vec<u8> {
    let options = WriterOptions { compress: entries.len() % 2 == 0, checksum: true };
    let mut writer = Writer::new(Vec::new(), Header::default(), options).expect("a header");
    for entry in entries {
        writer.select_db(entry.db, 1, 1).expect("a database");
        let RdbValue::String(string) = &entry.value else { return Vec::new() };
        writer.string(&entry.key, string.as_ref(), entry.meta).expect("a key");
    }
    writer.finish().expect("the end")
}

/// Equal but for the form of a number and deadlines past the end of the format's range.
fn is_same(a: &Entry, b: &Entry) -> bool {
    let string = |entry: &Entry| match &entry.value {
        RdbValue::String(string) => Some(string.clone().into_bytes()),
        _ => None,
    };
    let end_ms = i64::MAX as u64;
    let deadline = |entry: &Entry| entry.meta.expire_at_ms.map(|at_ms| at_ms.min(end_ms));
    (a.db, &a.key, deadline(a), string(a)) == (b.db, &b.key, deadline(b), string(b))
}

/// `bytes` as a payload, as one with a right checksum, and as a string that comes back from its payload.
pub fn payload(bytes: &[u8]) {
    let _ = parse_payload(bytes);

    let mut sealed = [bytes, &[10, 0]].concat();
    sealed.extend_from_slice(&Crc::<u64>::new(&CRC_64_REDIS).checksum(&sealed).to_le_bytes());
    match parse_payload(&sealed) {
        Ok(value) => assert_eq!(parse_payload(&dump_payload(&value, None)).map(text), Ok(text(value))),
        Err(error) => assert_ne!(error, PayloadError::VersionOrChecksum),
    }

    for compressor in [None, Some(&mut Compressor::new())] {
        let payload = dump_string(StringRef::Bytes(bytes), compressor);
        assert_eq!(parse_payload(&payload).map(text).as_deref(), Ok(bytes));
    }
}

fn text(value: RdbValue) -> Vec<u8> {
    match value {
        RdbValue::String(string) => string.into_bytes(),
        other => panic!("not a string: {other:?}"),
    }
}
