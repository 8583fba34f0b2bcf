//! Dumps that go elsewhere than to a file.

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use stillframe_store::rdb::{WriteError, WriteVersion};
use stillframe_testkit::TempDir;

use crate::harness::Harness;
use crate::persistence::dump::{DumpError, StoreDump};
use crate::persistence::dump_file::write_dump;
use crate::persistence::load::{load_from, Load, LoadError, Loaded, Twins};
use crate::persistence::progress::DumpProgress;

/// Takes so many bytes, a few at a time, and then fails.
struct Bounded {
    bytes: Vec<u8>,
    room_bytes: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.room_bytes - self.bytes.len()).min(1000);
        if count == 0 && !bytes.is_empty() {
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, "the other end has gone"));
        }
        self.bytes.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn run(harness: &mut Harness, words: &[&[u8]]) {
    let reply = harness.run(words);
    assert!(!reply.starts_with(b"-"), "{}", reply.escape_ascii());
}

/// Some keys of each type, in two databases.
fn store_small(harness: &mut Harness) {
    run(harness, &[b"SET", b"number", b"12345"]);
    run(
        harness,
        &[b"SET", b"text", b"a text of some words, of which some come twice", b"PXAT", b"32503680000000"],
    );
    run(harness, &[b"RPUSH", b"list", b"a", b"b", b"a"]);
    run(harness, &[b"SELECT", b"3"]);
    run(harness, &[b"SADD", b"set", b"1", b"2", b"three"]);
    run(harness, &[b"ZADD", b"scores", b"1.5", b"a", b"-inf", b"b"]);
    run(harness, &[b"HSET", b"hash", b"field", b"value", b"other", b"value"]);
    run(harness, &[b"HPEXPIREAT", b"hash", b"32503680000000", b"FIELDS", b"1", b"field"]);
}

/// Values that go to the dump part by part: some that can be compressed, some that cannot, and elements in trees.
fn store_large(harness: &mut Harness) {
    let mut random = fastrand::Rng::with_seed(7);
    let noise: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(1_200_000).collect();
    run(harness, &[b"SET", b"noise", &noise]);
    run(harness, &[b"SET", b"repeated", &b"the same again and again. ".repeat(50_000)]);
    for number in 0..3_000 {
        let (name, score) = (format!("element {number}"), number.to_string());
        run(harness, &[b"HSET", b"large hash", name.as_bytes(), &noise[number..number + 40]]);
        run(harness, &[b"ZADD", b"large scores", score.as_bytes(), name.as_bytes()]);
    }
}

/// Calls `f` with the data of a harness as of now, on its way into a dump.
fn with_dump<R>(harness: &mut Harness, f: impl FnOnce(&mut StoreDump<'_>) -> R) -> R {
    let (server, config, progress) = (&harness.server, harness.server.config(), DumpProgress::default());
    let taken = harness.worker.idle(|| StoreDump::take(&server.store, &config.settings, &progress, || ()));
    f(&mut taken.unwrap())
}

fn write(dump: &mut StoreDump<'_>, room_bytes: usize) -> (Vec<u8>, Result<u64, DumpError>) {
    let mut out = Bounded { bytes: Vec::new(), room_bytes };
    let written = dump.write(&mut out, WriteVersion::Redis7_4, "a dump").map(|(_, key_count)| key_count);
    (out.bytes, written)
}

fn digest(harness: &mut Harness) -> Vec<u8> {
    harness.run(&[b"DEBUG", b"DIGEST"])
}

#[test]
fn what_is_written_to_memory_can_be_loaded_from_there() {
    let (from, to) = (TempDir::new("dumped"), TempDir::new("loaded"));
    let mut harness = Harness::new(from.path()).unwrap();
    store_small(&mut harness);
    store_large(&mut harness);
    let (dump, key_count) =
        with_dump(&mut harness, |dump| dump.write(Vec::new(), WriteVersion::Redis7_4, "a dump").unwrap());
    assert_eq!(key_count, 10);

    let mut loaded = Harness::new(to.path()).unwrap();
    let (server, config) = (loaded.server.clone(), loaded.server.config());
    let load = Load {
        settings: &config.settings,
        progress: &server.loading,
        eviction: &server.eviction,
        is_stopping: &AtomicBool::new(false),
        twins: Twins::Refused,
        cause: stillframe_store::Cause::Load,
        key_delay_us: &|| 0,
    };
    let outcome = load_from(&mut loaded.worker, &dump[..], Path::new("memory"), &load);
    assert_eq!(outcome.unwrap(), Loaded::Whole);
    assert_eq!(digest(&mut loaded), digest(&mut harness));
}

/// Writes a dump as often as `rooms` has items, to outputs that fail after so many bytes.
fn check_failures(harness: &mut Harness, rooms: impl Fn(usize) -> Vec<usize>) {
    with_dump(harness, |dump| {
        let (whole, written) = write(dump, usize::MAX);
        written.unwrap();
        for room_bytes in rooms(whole.len()) {
            let (got, written) = write(dump, room_bytes);
            let error = written.unwrap_err();
            assert!(matches!(&error, DumpError::Write(WriteError::Io(_))), "after {room_bytes}: {error:?}");
            assert_eq!(error.to_string(), "cannot write the dump: the other end has gone");
            let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
            let kind = source.map(io::Error::kind);
            assert_eq!(kind, Some(io::ErrorKind::ConnectionReset), "after {room_bytes}");
            assert!(got == whole[..room_bytes], "after {room_bytes}");
        }
    });
}

#[test]
fn a_file_that_cannot_be_made_keeps_the_reason_of_the_system() {
    let dir = TempDir::new("dump-nowhere");
    let mut harness = Harness::new(dir.path()).unwrap();
    let (server, config) = (&harness.server, harness.server.config());
    let path = dir.path().join("none/dump.rdb");
    let error = harness.worker.idle(|| write_dump(&server.store, &path, &config.settings)).unwrap_err();
    let reason = error.source().and_then(|reason| reason.downcast_ref::<io::Error>());
    assert_eq!(reason.map(io::Error::kind), Some(io::ErrorKind::NotFound), "{error:?}");
}

#[test]
fn an_output_may_fail_at_any_byte() {
    let dir = TempDir::new("dump-fails");
    let mut harness = Harness::new(dir.path()).unwrap();
    store_small(&mut harness);
    check_failures(&mut harness, |length_bytes| (0..length_bytes).collect());
}

#[test]
fn an_output_may_fail_in_the_midst_of_large_values() {
    let dir = TempDir::new("dump-fails-late");
    let mut harness = Harness::new(dir.path()).unwrap();
    store_large(&mut harness);
    check_failures(&mut harness, |length_bytes| {
        (0..20).map(|part| length_bytes * part / 20 + part).collect()
    });
}

fn library(name: &str, len_bytes: usize) -> Vec<u8> {
    let head = format!("#!lua name={name}\nredis.register_function('f_{name}', function() end)\n--");
    [head.as_bytes(), &vec![b'x'; len_bytes]].concat()
}

fn set_library(harness: &mut Harness, name: &str, len_bytes: usize) {
    harness.worker.libraries().set(name, &library(name, len_bytes)).unwrap();
}

fn libraries(harness: &mut Harness) -> Vec<(String, Vec<u8>)> {
    harness.worker.libraries().list().unwrap()
}

fn load_with(harness: &mut Harness, dump: &[u8], twins: Twins) -> Result<Loaded, LoadError> {
    let (server, config) = (harness.server.clone(), harness.server.config());
    let load = Load {
        settings: &config.settings,
        progress: &server.loading,
        eviction: &server.eviction,
        is_stopping: &AtomicBool::new(false),
        twins,
        cause: stillframe_store::Cause::Load,
        key_delay_us: &|| 0,
    };
    load_from(&mut harness.worker, dump, Path::new("memory"), &load)
}

#[test]
fn function_libraries_go_with_the_keys() {
    let (from, to) = (TempDir::new("libraries-dumped"), TempDir::new("libraries-loaded"));
    let mut harness = Harness::new(from.path()).unwrap();
    store_small(&mut harness);
    set_library(&mut harness, "a", 10);
    set_library(&mut harness, "b", 900_000);
    let expected = libraries(&mut harness);
    let (dump, _) =
        with_dump(&mut harness, |dump| dump.write(Vec::new(), WriteVersion::Redis7_4, "a dump").unwrap());
    let mut loaded = Harness::new(to.path()).unwrap();
    assert_eq!(load_with(&mut loaded, &dump, Twins::Refused).unwrap(), Loaded::Whole);
    assert_eq!((digest(&mut loaded), libraries(&mut loaded)), (digest(&mut harness), expected.clone()));
    let error = load_with(&mut loaded, &dump, Twins::Refused).unwrap_err();
    assert!(matches!(&error, LoadError::LibraryTwin { name, .. } if name == "a"), "{error}");
    set_library(&mut loaded, "b", 3);
    assert_eq!(load_with(&mut loaded, &dump, Twins::Replace).unwrap(), Loaded::Whole);
    assert_eq!(libraries(&mut loaded), expected);
    run(&mut loaded, &[b"FLUSHALL"]);
    assert_eq!(libraries(&mut loaded), expected, "they are no keys");
}

#[test]
fn a_reload_has_the_libraries_of_the_dump_alone() {
    let dir = TempDir::new("libraries-reload");
    let mut harness = Harness::new(dir.path()).unwrap();
    set_library(&mut harness, "a", 10);
    run(&mut harness, &[b"DEBUG", b"RELOAD"]);
    let expected = libraries(&mut harness);
    assert_eq!(expected.len(), 1);
    set_library(&mut harness, "a", 99);
    set_library(&mut harness, "b", 0);
    run(&mut harness, &[b"DEBUG", b"RELOAD", b"NOSAVE"]);
    assert_eq!(libraries(&mut harness), expected);
    set_library(&mut harness, "b", 0);
    run(&mut harness, &[b"DEBUG", b"RELOAD", b"NOSAVE", b"NOFLUSH", b"MERGE"]);
    assert_eq!(libraries(&mut harness).len(), 2);
}
