//! `DUMP` payloads, byte for byte as Redis gives them.

use stillframe_testkit::{seed, Reply};

use crate::redis::{temp_dir, Redis};
use crate::strings::random_string;
use crate::text;
use crc::{Crc, CRC_64_REDIS};
use stillframe_store::rdb::{dump_string, parse_payload, Compressor, PayloadError, RdbString, StringRef};

/// The value as Redis holds it: an integer if the text is the canonical form of one.
fn string_of(bytes: &[u8]) -> RdbString {
    let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<i64>().ok());
    match number {
        Some(value) if value.to_string().as_bytes() == bytes => RdbString::Int(value),
        _ => RdbString::Bytes(bytes.to_vec()),
    }
}

fn set_and_dump(value: &[u8]) -> [Vec<Vec<u8>>; 2] {
    [vec![b"SET".to_vec(), b"k".to_vec(), value.to_vec()], vec![b"DUMP".to_vec(), b"k".to_vec()]]
}

#[test]
fn payloads_equal_those_of_redis() {
    let mut random = fastrand::Rng::with_seed(seed());
    let mut redis = Redis::start(temp_dir(), &[]);
    let mut compressor = Compressor::new();
    for compress in [true, false] {
        let values: Vec<Vec<u8>> =
            (0..3000u32).map(|i| random_string(&mut random, 20_000 >> (i % 8))).collect();
        let commands: Vec<Vec<Vec<u8>>> = values.iter().flat_map(|value| set_and_dump(value)).collect();
        let mut packed_count = 0;
        for (value, replies) in values.iter().zip(redis.pipeline(&commands).chunks(2)) {
            let Reply::Bulk(theirs) = &replies[1] else { panic!("{replies:?}") };
            let ours = dump_string(string_of(value).as_ref(), compress.then_some(&mut compressor));
            assert!(ours == *theirs, "{}: {}", value.escape_ascii(), theirs.escape_ascii());
            packed_count += u32::from(theirs[1] == 0xc3);
            assert_eq!(text(parse_payload(theirs).expect("a payload of redis")), *value);
        }
        assert_eq!(packed_count > 500, compress);
        redis.run("CONFIG SET rdbcompression no");
    }
}

/// `payload` without its footer, changed, with a right checksum.
fn resealed(payload: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = payload[..payload.len() - 8].to_vec();
    change(&mut bytes);
    let checksum = Crc::<u64>::new(&CRC_64_REDIS).checksum(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn redis_restores_what_is_dumped_and_refuses_what_is_refused_here() {
    let mut redis = Redis::start(temp_dir(), &[]);
    let text = b"hello hello hello hello hello hello".as_slice();
    let packed = dump_string(StringRef::Bytes(text), Some(&mut Compressor::new()));
    let plain = dump_string(StringRef::Bytes(text), None);
    let at = |index: usize, byte: u8| move |bytes: &mut Vec<u8>| bytes[index] = byte;
    let cases = [
        (packed.clone(), Ok(())),
        (plain.clone(), Ok(())),
        (dump_string(StringRef::Int(i64::MIN), None), Ok(())),
        (resealed(&plain, |bytes| bytes.insert(bytes.len() - 2, b'!')), Ok(())),
        (resealed(&plain, |bytes| bytes[37] = 9), Ok(())),
        (Vec::new(), Err(PayloadError::VersionOrChecksum)),
        (plain[2..].to_vec(), Err(PayloadError::VersionOrChecksum)),
        (plain[..9].to_vec(), Err(PayloadError::VersionOrChecksum)),
        (resealed(&plain, |bytes| bytes[37] = 200), Err(PayloadError::VersionOrChecksum)),
        (resealed(&plain, at(0, 30)), Err(PayloadError::BadData)),
        (resealed(&plain, at(0, 255)), Err(PayloadError::BadData)),
        (resealed(&plain, at(1, 63)), Err(PayloadError::BadData)),
        (resealed(&plain, at(1, 0xc5)), Err(PayloadError::BadData)),
        (resealed(&packed, at(3, 36)), Err(PayloadError::BadData)),
        (resealed(&plain, |bytes| drop(bytes.drain(..bytes.len() - 2))), Err(PayloadError::BadData)),
    ];
    for (index, (payload, expected)) in cases.into_iter().enumerate() {
        let ours = parse_payload(&payload).map(|_| ());
        assert_eq!(ours, expected, "case {index}");
        let theirs = redis.command(&[b"RESTORE", b"k", b"0", &payload, b"REPLACE"]);
        let expected = match expected {
            Ok(()) => Reply::ok(),
            Err(error) => Reply::Error(format!("ERR {error}").into_bytes()),
        };
        assert_eq!(theirs, expected, "case {index}");
    }
}

#[test]
fn payloads_of_other_types_are_named() {
    let string = dump_string(StringRef::Bytes(b"text"), None);
    let module = resealed(&string, |bytes| bytes[0] = 7);
    let error = parse_payload(&module).expect_err("a module");
    assert_eq!(error, PayloadError::UnsupportedType { family: "module", encoding: "version 2", code: 7 });
}
