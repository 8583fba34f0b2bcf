//! Opcodes and encodings of all versions, put together by hand.

use crate::bytes::{dump, entry, string, valkey_dump};
use crate::{bytes_value, read_all, skipping, text};
use stillframe_store::rdb::{Entry, KeyMeta, RdbString, RdbValue, ReadErrorKind, Reader, ReaderOptions};

fn read(version: u32, body: &[u8]) -> Vec<Entry> {
    read_all(&dump(version, body), skipping()).unwrap_or_else(|error| panic!("{error}"))
}

fn kind_of_error(bytes: &[u8]) -> ReadErrorKind {
    read_all(bytes, skipping()).expect_err("the dump is not in order").kind
}

#[test]
fn every_version_up_to_12_is_read_and_no_other() {
    for version in 1..=12 {
        let entries = read(version, &[&b"\xfe\0"[..], &entry(0, "k", &string("v"))].concat());
        let expected =
            Entry { db: 0, key: b"k".to_vec(), meta: KeyMeta::default(), value: bytes_value(b"v") };
        assert_eq!(entries, [expected], "{version}");
    }
    for version in [80, 81] {
        let bytes = valkey_dump(version, &entry(0, "k", &string("v")));
        let mut reader = Reader::new(bytes.as_slice(), ReaderOptions::default());
        assert_eq!(reader.by_ref().map(|entry| entry.expect("an entry").key).collect::<Vec<_>>(), [b"k"]);
        assert_eq!(reader.version(), version);
    }
    for version in [0, 11, 79, 82, 999] {
        let kind = kind_of_error(&valkey_dump(version, b""));
        assert!(matches!(kind, ReadErrorKind::UnsupportedVersion(found) if found == version), "{kind}");
    }
    for version in [0, 13, 80, 9999] {
        let kind = kind_of_error(&dump(version, b""));
        assert!(matches!(kind, ReadErrorKind::UnsupportedVersion(found) if found == version), "{kind}");
    }
    for magic in
        [&b"REDIS00x9\xff"[..], b"VALKEY0x0\xff", b"VALKEI080\xff", b"redis0009\xff", b"*1\r\n$4\r\nPING\r\n"]
    {
        let kind = kind_of_error(magic);
        assert!(matches!(&kind, ReadErrorKind::BadMagic(found) if *found == magic[..9]), "{kind}");
    }
}

#[test]
fn deadlines_and_access_data_belong_to_the_next_key_only() {
    let bare = entry(0, "k", &string("v"));
    let body = [
        &b"\xfd\x80\x51\x01\x00"[..],
        &bare,
        b"\xfc\x88\x77\x66\x55\x01\0\0\0\xf8\x40\x64",
        &bare,
        b"\xf9\x07",
        &bare,
        // Redis takes -1 as no deadline and anything else below zero as long past.
        b"\xfc\xff\xff\xff\xff\xff\xff\xff\xff",
        &bare,
        b"\xfc\xfe\xff\xff\xff\xff\xff\xff\xff",
        &bare,
        b"\xfd\xff\xff\xff\xff",
        &bare,
        b"\xfd\0\0\0\x80",
        &bare,
        &bare,
    ]
    .concat();
    let metas: Vec<KeyMeta> = read(9, &body).into_iter().map(|entry| entry.meta).collect();
    let expiring = |at_ms| KeyMeta { expire_at_ms: Some(at_ms), ..KeyMeta::default() };
    let expected = [
        expiring(86_400_000),
        KeyMeta { lru_idle_s: Some(100), ..expiring(0x1_5566_7788) },
        KeyMeta { lfu_count: Some(7), ..KeyMeta::default() },
        KeyMeta::default(),
        expiring(0),
        KeyMeta::default(),
        expiring(0),
        KeyMeta::default(),
    ];
    assert_eq!(metas, expected);
}

#[test]
fn opcodes_that_carry_no_key_are_read_past() {
    let body = [
        &b"\xfa"[..],
        &string("redis-ver"),
        &string("5.0.14"),
        b"\xfa",
        &string("redis-bits"),
        b"\xc0\x40",
        b"\xfa",
        &string("lua"),
        &string("return 1"),
        // Auxiliary data of a module, function libraries of 7.0 and of its release candidates.
        b"\xf7\x81\x45\xe2\x52\x38\xdf\x91\x2c\x03\x02\x02\x05\x03abc\0",
        b"\xf5",
        &string("#!lua name=lib"),
        b"\xf6",
        &string("lib"),
        &string("LUA"),
        b"\x01",
        &string("description"),
        &string("code"),
        b"\xf6",
        &string("lib2"),
        &string("LUA"),
        b"\x00",
        &string("code"),
        b"\xfe\x0f\xfb\x02\x01\xf4\x7f\xff\x02\x01",
        // Valkey 8 in cluster mode tells slots this way, between the keys.
        b"\xfa",
        &string("slot-info"),
        &string("119,1,1"),
        &entry(0, "k", &string("v")),
    ]
    .concat();
    let bytes = dump(11, &body);
    let mut reader = Reader::new(bytes.as_slice(), skipping());
    let entry = reader.next_entry().expect("read the dump").expect("an entry");
    assert_eq!((entry.db, entry.key.as_slice()), (15, &b"k"[..]));
    assert_eq!(reader.db_size_hint(), Some((2, 1)));
    assert_eq!(reader.aux("redis-ver"), Some(&b"5.0.14"[..]));
    assert_eq!(reader.aux("redis-bits"), Some(&b"64"[..]));
    assert_eq!(reader.aux("lua"), None);
    assert_eq!((reader.skipped_function_count(), reader.skipped_module_aux_count()), (3, 1));
    assert!(reader.next_entry().expect("the end").is_none());

    let error = read_all(&bytes, ReaderOptions::default()).expect_err("module data is not supported");
    assert!(
        matches!(&error.kind, ReadErrorKind::UnsupportedModuleAux(name) if name == "ReJSON-RL (version 3)"),
        "{error}"
    );
}

#[test]
fn strings_of_every_encoding_are_read() {
    let long = vec![b'x'; 20_000];
    for (encoded, expected) in [
        (b"\xc0\xff".to_vec(), RdbString::Int(-1)),
        (b"\xc1\x39\x30".to_vec(), RdbString::Int(12_345)),
        (b"\xc2\x00\x00\x00\x80".to_vec(), RdbString::Int(i64::from(i32::MIN))),
        (b"\x00".to_vec(), RdbString::Bytes(Vec::new())),
        (b"\x40\x03abc".to_vec(), RdbString::Bytes(b"abc".to_vec())),
        (b"\x80\0\0\0\x03abc".to_vec(), RdbString::Bytes(b"abc".to_vec())),
        (b"\x81\0\0\0\0\0\0\0\x03abc".to_vec(), RdbString::Bytes(b"abc".to_vec())),
        ([&b"\x80\0\0\x4e\x20"[..], &long].concat(), RdbString::Bytes(long.clone())),
        (b"\xc3\x05\x0a\x00a\xe0\x00\x00".to_vec(), RdbString::Bytes(b"a".repeat(10))),
    ] {
        let entries = read(9, &entry(0, "k", &encoded));
        assert_eq!(entries[0].value, RdbValue::String(expected));
    }
    // Keys are strings as well.
    let entries = read(9, b"\0\xc1\x39\x30\x01v\0\xc3\x05\x0a\x00a\xe0\x00\x00\x01v");
    let keys: Vec<Vec<u8>> = entries.into_iter().map(|entry| entry.key).collect();
    assert_eq!(keys, [b"12345".to_vec(), b"a".repeat(10)]);
}

#[test]
fn what_the_format_does_not_allow_is_an_error_of_its_own() {
    use ReadErrorKind::*;
    type Check = fn(&ReadErrorKind) -> bool;
    let cases: [(&[u8], Check); 14] = [
        (b"\0\x01k\xc4", |kind| matches!(kind, BadStringEncoding(4))),
        (b"\0\x01k\x82", |kind| matches!(kind, BadLength(0x82))),
        (b"\x02\x01k\xc0", |kind| matches!(kind, BadLength(0xc0))),
        (b"\0\x01k\xc3\xc0", |kind| matches!(kind, BadLength(0xc0))),
        (b"\0\x01k\xc3\x05\x0b\x00a\xe0\x00\x00", |kind| matches!(kind, BadLzf)),
        (b"\0\x01k\xc3\x05\x81\0\0\0\0\x20\0\0\0\x00a\xe0\x00\x00", |kind| matches!(kind, BadLzf)),
        (b"\0\x01k\x81\0\0\0\0\x20\0\0\x01", |kind| {
            matches!(kind, StringTooLong { length_bytes: 0x2000_0001 })
        }),
        (b"\0\x01k\xc3\x05\x81\0\0\0\0\x20\0\0\x01", |kind| matches!(kind, StringTooLong { .. })),
        (b"\x08\x01k", |kind| matches!(kind, UnknownOpcode(8))),
        (b"\x16\x01k", |kind| matches!(kind, UnknownOpcode(0x16))),
        (b"\xf3\x01k", |kind| matches!(kind, UnknownOpcode(0xf3))),
        (b"\x07\x01k\x01\x06", |kind| matches!(kind, BadModuleData)),
        (b"\xf7\x01\x05", |kind| matches!(kind, BadModuleData)),
        (b"\xfe\x81\0\0\0\x01\0\0\0\0", |kind| matches!(kind, BadDatabase { db: 0x1_0000_0000, .. })),
    ];
    for (body, check) in cases {
        let kind = kind_of_error(&dump(9, body));
        assert!(check(&kind), "{}: {kind:?}", body.escape_ascii());
    }
}

#[test]
fn databases_are_counted() {
    let bytes = dump(9, &[&b"\xfe\x10"[..], &entry(0, "k", &string("v"))].concat());
    for (db_count, fits) in [(17, true), (16, false)] {
        let result = read_all(&bytes, ReaderOptions { db_count, ..ReaderOptions::default() });
        assert_eq!(result.is_ok(), fits);
        if let Err(error) = result {
            assert_eq!(
                error.to_string(),
                "database 16 is outside the 16 configured databases at byte 11 of dump.rdb: \
                 raise `databases` in the configuration"
            );
        }
    }
}

#[test]
fn the_checksum_is_compared_unless_it_is_absent() {
    let right = dump(9, &entry(0, "k", &string("value")));
    let mut wrong = right.clone();
    wrong[14] ^= 1;
    let error = read_all(&wrong, skipping()).expect_err("the content was changed");
    assert!(matches!(error.kind, ReadErrorKind::Checksum { .. }), "{error}");
    assert_eq!(error.offset_bytes, wrong.len() as u64);
    let unverified = ReaderOptions { verify_checksum: false, ..ReaderOptions::default() };
    assert!(read_all(&wrong, unverified).is_ok());
    let checksum_at = wrong.len() - 8;
    wrong[checksum_at..].fill(0);
    let entries = read_all(&wrong, skipping()).expect("0 stands for no checksum");
    assert_eq!(text(entries[0].value.clone()), b"v`lue");
}
