//! Damaged files: an error that says where, never a panic, never other content.

use crate::bytes::{dump, entry, string};
use crate::checks;
use crate::model::{random_collection, with_deadlines};
use crate::streams;
use crate::types::{all_types_dump, other_types, REDIS_6, REDIS_8, VALKEY_8, VALKEY_9};
use crate::{read_all, skipping};
use std::time::{Duration, Instant};
use stillframe_store::rdb::{
    dump_string, parse_payload, Compressor, Header, KeyMeta, ReadErrorKind, Reader, ReaderOptions,
    SmallLimits, StringRef, Writer, WriterOptions,
};
use stillframe_testkit::seed;

/// A dump of our own with every form of string, deadlines and access data.
fn small_dump() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Header::default(), WriterOptions::default()).expect("a header");
    writer.select_db(0, 3, 1).expect("a database");
    let meta = KeyMeta { expire_at_ms: Some(1 << 41), lru_idle_s: Some(70), lfu_count: Some(3) };
    writer.string(b"packed", StringRef::Bytes(&b"abcdefgh".repeat(20)), meta).expect("a string");
    writer.string(b"12", StringRef::Int(-300), KeyMeta::default()).expect("a string");
    writer.string(b"", StringRef::Bytes(b"plain"), KeyMeta::default()).expect("a string");
    writer.finish().expect("the end")
}

fn unverified() -> ReaderOptions {
    ReaderOptions { verify_checksum: false, ..skipping() }
}

#[test]
fn a_change_of_any_byte_is_seen() {
    for bytes in [small_dump(), all_types_dump(|_| true).0] {
        for at in 0..bytes.len() {
            for change in [0x01, 0x80, 0xff, 0x04, 0x40] {
                let mut damaged = bytes.clone();
                damaged[at] ^= change;
                let error = read_all(&damaged, skipping()).expect_err("a change of one byte");
                assert!(error.offset_bytes <= bytes.len() as u64, "{error}");
                let _ = read_all(&damaged, unverified());
            }
        }
    }
}

#[test]
fn a_file_cut_at_any_length_is_seen() {
    for bytes in [small_dump(), all_types_dump(|_| true).0, VALKEY_8.to_vec()] {
        for len in 0..bytes.len() {
            for options in [skipping(), unverified()] {
                let error = read_all(&bytes[..len], options).expect_err("a part of a dump");
                assert!(matches!(error.kind, ReadErrorKind::Truncated(_)), "{len}: {error}");
                assert_eq!(error.offset_bytes, len as u64);
            }
        }
    }
}

#[test]
fn bytes_after_the_end_are_seen_and_left_alone() {
    let whole = small_dump();
    for trailing in [&b""[..], b"\0", b"garbage"] {
        let bytes = [whole.as_slice(), trailing].concat();
        let mut reader = Reader::new(bytes.as_slice(), skipping());
        let entries: Vec<_> = reader.by_ref().map(|entry| entry.expect("an entry")).collect();
        assert_eq!(entries, read_all(&whole, skipping()).expect("the dump"));
        assert_eq!(reader.offset_bytes(), whole.len() as u64);
        assert_eq!(reader.has_trailing_data(), !trailing.is_empty());
    }
}

#[test]
fn an_error_says_what_and_where() {
    let mut bytes = dump(9, &entry(0, "k", &string("value")));
    bytes.truncate(15);
    let options = ReaderOptions { file_name: "/data/dump.rdb".to_string(), ..ReaderOptions::default() };
    assert_eq!(
        read_all(&bytes, options).expect_err("a part of a dump").to_string(),
        "truncated dump: the file ends inside a value at key \"k\" in db 0, byte 15 of /data/dump.rdb: \
         restore the file from a backup, or write it again at its source"
    );
}

#[test]
fn nothing_comes_after_an_error() {
    let bytes = dump(9, &[&entry(0, "k", &string("v"))[..], &[8], &entry(0, "l", &string("v"))].concat());
    let mut reader = stillframe_store::rdb::Reader::new(bytes.as_slice(), skipping());
    assert!(reader.next().is_some_and(|entry| entry.is_ok()));
    assert!(reader.next().is_some_and(|entry| entry.is_err()));
    assert!(reader.next().is_none());
    assert!(matches!(reader.next_entry(), Err(error) if matches!(error.kind, ReadErrorKind::Failed)));
}

/// Changes some bytes, lengths above all, or takes some out or in.
fn mutate(random: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
    for _ in 0..random.usize(1..6) {
        let at = random.usize(0..bytes.len().max(1)).min(bytes.len().saturating_sub(1));
        match random.u8(0..5) {
            _ if bytes.is_empty() => bytes.push(random.u8(..)),
            0 => bytes[at] = random.u8(..),
            1 => bytes[at] = [0x80, 0x81, 0xc3, 0xff, 0x7f, 0x00][random.usize(0..6)],
            2 => bytes[at] ^= 1 << random.u8(0..8),
            3 => drop(bytes.drain(at..(at + random.usize(0..9)).min(bytes.len()))),
            _ => {
                let copied: Vec<u8> = bytes[at..].iter().copied().take(random.usize(0..40)).collect();
                let to = random.usize(0..bytes.len());
                bytes.splice(to..to, copied);
            }
        }
    }
}

#[test]
fn what_holds_for_any_bytes_holds_for_mutated_dumps_and_payloads() {
    let mut random = fastrand::Rng::with_seed(seed());
    let mut dumps = vec![small_dump(), all_types_dump(|_| true).0];
    dumps.extend([REDIS_6, VALKEY_8, REDIS_8, VALKEY_9].map(<[u8]>::to_vec));
    let mut compressor = Compressor::new();
    let mut payloads = vec![
        dump_string(StringRef::Bytes(&b"abcdefgh".repeat(20)), Some(&mut compressor)),
        dump_string(StringRef::Bytes(b"plain"), None),
        dump_string(StringRef::Int(-300), None),
    ];
    for _ in 0..40 {
        let mut value = random_collection(&mut random, 12);
        with_deadlines(&mut random, &mut value);
        payloads.push(checks::payload_of(&value, SmallLimits::default(), false).expect("a payload"));
    }
    payloads
        .extend(other_types().into_iter().map(|(code, _, value)| [&[code][..], &value, &[0; 10]].concat()));
    let deadline = Instant::now() + Duration::from_secs(2);
    let mut round_count = 0;
    while Instant::now() < deadline {
        let mut bytes = dumps[random.usize(0..dumps.len())].clone();
        mutate(&mut random, &mut bytes);
        checks::dump(&bytes);
        let mut bytes = payloads[random.usize(0..payloads.len())].clone();
        bytes.truncate(bytes.len() - 10);
        mutate(&mut random, &mut bytes);
        checks::payload(&bytes);
        round_count += 1;
    }
    println!("{round_count} rounds");
    assert!(round_count > 100);
}

/// With right words it is read, with a wrong one mostly not; either way what holds for any bytes holds.
#[test]
fn streams_with_wrong_words_are_refused_or_whole() {
    let mut random = fastrand::Rng::with_seed(seed());
    let (mut read_count, round_count) = (0, 4_000);
    for round in 0..round_count {
        let mut choices: Vec<u8> = (0..random.usize(..200)).map(|_| random.u8(..)).collect();
        if round % 2 == 0 {
            // Nothing is wrong: no choice is a multiple of what a wrong one is.
            choices.iter_mut().for_each(|choice| *choice |= 1);
        }
        streams::check(&choices);
        let parsed = parse_payload(&checks::sealed(&streams::crafted(&choices), 12));
        let is_read = parsed.is_ok();
        assert!(is_read || round % 2 == 1, "{parsed:?}: {choices:?}");
        read_count += usize::from(is_read && round % 2 == 1);
    }
    println!("{read_count} of {} with what may be wrong were read", round_count / 2);
    assert!((1..round_count / 2).contains(&read_count));
}
