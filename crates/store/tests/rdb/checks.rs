//! What must hold for any bytes. The random tests run it for seconds, the fuzz targets for as long as one likes.

use crc::{Crc, CRC_64_REDIS};
use stillframe_store::rdb::{
    dump_string, open_gathered, open_payload, parse_payload, Announced, CollectionKind, Compressor, Element,
    Entry, Header, ListNodes, Next, OnUnsupported, Payload, PayloadContent, PayloadError, PayloadReader,
    PayloadWriter, RdbString, RdbValue, Reader, ReaderOptions, SmallLimits, StringRef, WriteError,
    WriteVersion, Writer, WriterOptions, PAYLOAD_HEAD_BYTES,
};

/// Reading `bytes` as a dump ends with entries or an error, with the checksum and without, held as a whole or piece by
/// piece; entries that were read are read again from the dump that they are written to.
pub fn dump(bytes: &[u8]) {
    let options = |verify_checksum| {
        let on_unsupported = OnUnsupported::Skip;
        ReaderOptions { on_unsupported, verify_checksum, ..ReaderOptions::default() }
    };
    let read = |bytes: &[u8], verify_checksum| -> Option<Vec<Entry>> {
        Reader::new(bytes, options(verify_checksum)).collect::<Result<_, _>>().ok()
    };
    let verified = read(bytes, true);
    let unverified = read(bytes, false);
    assert!(verified.is_none() || verified == unverified);
    let key_count = keys_in_pieces(Reader::new(bytes, options(false)));
    let Some(entries) = unverified else { return };
    assert_eq!(key_count, Some(entries.len()));
    let written = write(&entries);
    assert!(read(&written, true).is_some_and(|again| again.iter().zip(&entries).all(|(a, b)| is_same(a, b))));
}

/// Keys of a dump that is read without holding much of it; of every third collection, no element is asked for. `None`
/// after an error.
fn keys_in_pieces(mut reader: Reader<&[u8]>) -> Option<usize> {
    let mut key_count = 0;
    while let Some(next) = reader.next_up_to(10).ok()? {
        key_count += 1;
        match next {
            Next::Collection { .. } if key_count % 3 == 0 => {}
            Next::Collection { kind, .. } => {
                let mut element_count = 0;
                while let Some(element) = reader.element().ok()? {
                    assert_eq!(kind_of(element), kind);
                    element_count += 1;
                }
                assert!(element_count > 0, "an empty collection is left out");
            }
            Next::Long { length_bytes, .. } => {
                let mut found_bytes = 0;
                while reader.piece(|piece| found_bytes += piece.len() as u64).ok()? {}
                assert_eq!(found_bytes, length_bytes);
            }
            Next::Entry(_) => {}
            Next::Library { .. } => key_count -= 1,
        }
    }
    Some(key_count)
}

fn kind_of(element: Element<'_>) -> CollectionKind {
    match element {
        Element::Item(_) => CollectionKind::List,
        Element::Member(_) => CollectionKind::Set,
        Element::Scored { score, .. } => {
            assert!(!score.is_nan());
            CollectionKind::SortedSet
        }
        Element::Field { .. } => CollectionKind::Hash,
        Element::Record { .. } => CollectionKind::Stream,
    }
}

/// What a collection is announced as.
pub fn announced(value: &RdbValue, limits: &SmallLimits, is_small: bool) -> Option<Announced> {
    Some(match value {
        RdbValue::List(items) => {
            let mut nodes = ListNodes::new(limits);
            items.iter().for_each(|item| nodes.add(item));
            nodes.announced()
        }
        RdbValue::Set(members) => Announced::Set { member_count: members.len() as u64, is_small },
        RdbValue::SortedSet(members) => Announced::SortedSet { member_count: members.len() as u64, is_small },
        RdbValue::Hash(fields) => {
            let least_deadline_ms = fields.iter().filter_map(|field| field.deadline_ms).min();
            Announced::Hash { field_count: fields.len() as u64, is_small, least_deadline_ms }
        }
        RdbValue::Stream(records) => Announced::Stream { record_count: records.len() as u64 },
        _ => return None,
    })
}

/// The payload of a collection, in the version that has a form for it.
pub fn payload_of(value: &RdbValue, limits: SmallLimits, compress: bool) -> Result<Vec<u8>, WriteError> {
    let announced = announced(value, &limits, true).expect("a collection");
    let version = match announced {
        Announced::Hash { least_deadline_ms: Some(_), .. } => WriteVersion::Redis7_4,
        _ => WriteVersion::Redis7_0,
    };
    let mut writer = PayloadWriter::begin(Vec::new(), announced, compress, version, limits)?;
    value.for_each(|element| writer.element(element))?;
    writer.finish()
}

/// Low limits, so that a few elements make a large collection.
const LOW_LIMITS: SmallLimits = SmallLimits {
    hash_max_listpack_entries: 3,
    hash_max_listpack_value_bytes: 10,
    set_max_intset_entries: 3,
    zset_max_listpack_entries: 3,
    zset_max_listpack_value_bytes: 10,
    list_max_listpack_size: 2,
};

fn write(entries: &[Entry]) -> Vec<u8> {
    let limits = if entries.len() % 3 == 0 { LOW_LIMITS } else { SmallLimits::default() };
    let (compress, version) = (entries.len() % 2 == 0, WriteVersion::Redis7_4);
    let options = WriterOptions { compress, checksum: true, version, limits };
    let mut writer = Writer::new(Vec::new(), Header::default(), options).expect("a header");
    for (index, entry) in entries.iter().enumerate() {
        writer.select_db(entry.db, 1, 1).expect("a database");
        if let RdbValue::String(string) = &entry.value {
            writer.string(&entry.key, string.as_ref(), entry.meta).expect("a key");
            continue;
        }
        let announced = announced(&entry.value, &limits, index % 4 != 0).expect("a collection");
        writer.begin_collection(&entry.key, announced, entry.meta).expect("a key");
        entry.value.for_each(|element| writer.element(element)).expect("an element");
    }
    writer.finish().expect("the end")
}

/// Equal but for the form of a number, deadlines past the end of the format's range, and the order of what has none.
fn is_same(a: &Entry, b: &Entry) -> bool {
    let end_ms = i64::MAX as u64;
    let deadline = |entry: &Entry| entry.meta.expire_at_ms.map(|at_ms| at_ms.min(end_ms));
    (a.db, &a.key, deadline(a)) == (b.db, &b.key, deadline(b)) && is_same_value(&a.value, &b.value)
}

/// The same, of values.
pub fn is_same_value(a: &RdbValue, b: &RdbValue) -> bool {
    ordered(a) == ordered(b)
}

/// The value as it is compared.
pub fn ordered(value: &RdbValue) -> RdbValue {
    /// The last moment that Redis takes as the deadline of a field; the first is 1.
    const END_MS: i64 = (1 << 48) - 1;
    let mut value = value.clone();
    match &mut value {
        RdbValue::String(string) => {
            *string = RdbString::Bytes(string.clone().into_bytes());
        }
        RdbValue::Set(members) => members.sort(),
        RdbValue::SortedSet(members) => members.sort_by(|a, b| a.0.cmp(&b.0)),
        RdbValue::Hash(fields) => {
            fields.sort_by(|a, b| a.field.cmp(&b.field));
            fields
                .iter_mut()
                .for_each(|field| field.deadline_ms = field.deadline_ms.map(|at| at.clamp(1, END_MS)));
        }
        RdbValue::Stream(records) => {
            // What the head says of the last node: entries that have gone are not written.
            let is_head = |(key, _): &&mut (Vec<u8>, Vec<u8>)| *key == [0];
            records.iter_mut().filter(is_head).for_each(|(_, head)| head[72..104].fill(0));
            // Of a consumer the active time, which is in type 21 alone.
            let is_consumer = |(key, value): &&mut (Vec<u8>, Vec<u8>)| {
                key[0] == 2 && key[key.len() - 5] == 3 && value.len() > 16
            };
            records.iter_mut().filter(is_consumer).for_each(|(_, value)| value[8..16].fill(0));
        }
        _ => {}
    }
    value
}

/// A payload of this version, with its checksum.
pub fn sealed(body: &[u8], version: u8) -> Vec<u8> {
    let mut sealed = [body, &[version, 0]].concat();
    sealed.extend_from_slice(&Crc::<u64>::new(&CRC_64_REDIS).checksum(&sealed).to_le_bytes());
    sealed
}

/// `bytes` as a payload, as one with a right checksum in every version, whole and in pieces; and as a string that comes
/// back from its payload.
pub fn payload(bytes: &[u8]) {
    let _ = parse_payload(bytes);

    for version in [10, 12, 80] {
        let sealed = sealed(bytes, version);
        let parsed = parse_payload(&sealed);
        in_pieces(&sealed, &parsed);
        match parsed {
            Ok(RdbValue::String(string)) => {
                let again = parse_payload(&dump_string(string.as_ref(), None));
                assert_eq!(again.as_ref().map(ordered), Ok(ordered(&RdbValue::String(string))));
            }
            Ok(value) => {
                for limits in [LOW_LIMITS, SmallLimits::default()] {
                    let again = parse_payload(&payload_of(&value, limits, version == 10).expect("a payload"));
                    assert_eq!(again.as_ref().map(ordered), Ok(ordered(&value)));
                }
            }
            Err(error) => assert_ne!(error, PayloadError::VersionOrChecksum),
        }
    }

    for compressor in [None, Some(&mut Compressor::new())] {
        let payload = dump_string(StringRef::Bytes(bytes), compressor);
        let expected = RdbValue::String(RdbString::Bytes(bytes.to_vec()));
        assert_eq!(parse_payload(&payload).as_ref().map(ordered), Ok(expected));
    }
}

/// What comes in pieces is what the whole is.
fn in_pieces(sealed: &[u8], whole: &Result<RdbValue, PayloadError>) {
    let (body, footer) = sealed.split_last_chunk::<{ PayloadReader::FOOTER_BYTES }>().expect("a footer");
    if body.len() < PAYLOAD_HEAD_BYTES {
        return;
    }
    let mut reader = PayloadReader::new(&body[..PAYLOAD_HEAD_BYTES], *footer);
    let mut given = Vec::new();
    body.chunks(7).for_each(|piece| reader.feed(piece, |bytes| given.extend_from_slice(bytes)));
    match (reader.finish(), whole) {
        (Ok(PayloadContent::Collection { version }), whole) => {
            let opened =
                open_gathered(&given, version).map(|payload| matches!(payload, Payload::Collection(_)));
            // Twins are for the caller to see.
            assert!(opened == Ok(true) || whole.is_err());
            assert_eq!(opened.is_ok(), open_payload(sealed).is_ok());
        }
        (Ok(PayloadContent::String), Ok(value)) => {
            assert_eq!(ordered(value), RdbValue::String(RdbString::Bytes(given)));
        }
        (Ok(PayloadContent::Int(value)), whole) => {
            assert_eq!(*whole, Ok(RdbValue::String(RdbString::Int(value))));
        }
        (pieces, whole) => assert_eq!(pieces.map(drop), whole.clone().map(drop)),
    }
}
