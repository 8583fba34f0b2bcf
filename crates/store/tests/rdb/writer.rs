//! Dumps written here, loaded by Redis.

use crate::bytes::string;
use stillframe_testkit::{seed, Reply};

use crate::redis::{temp_dir, Redis};
use crate::strings::random_string;
use crate::{read_all, text};
use std::collections::BTreeMap;
use std::io::{self, Write};
use stillframe_store::rdb::{Header, KeyMeta, ReaderOptions, StringRef, WriteError, Writer, WriterOptions};

const FAR_FUTURE_MS: u64 = 4_102_444_800_000;

type Strings = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

fn random_strings(random: &mut fastrand::Rng) -> Strings {
    let mut strings: Strings = (0..1500)
        .map(|_| {
            let deadline = random.bool().then(|| FAR_FUTURE_MS + random.u64(0..1 << 40));
            (random_string(random, 100), (random_string(random, 2000), deadline))
        })
        .collect();
    strings.insert(b"big".to_vec(), ((0..20 << 20).map(|_| random.u8(..)).collect(), None));
    strings
}

fn meta(expire_at_ms: Option<u64>) -> KeyMeta {
    KeyMeta { expire_at_ms, ..KeyMeta::default() }
}

/// Every third value is written in chunks, and integers as integers.
fn write(
    strings: &Strings,
    random: &mut fastrand::Rng,
    options: WriterOptions,
) -> Result<Vec<u8>, WriteError> {
    let header =
        Header { ctime_unix_s: 1_700_000_000, used_memory_bytes: 1 << 20, aof_base: false, cut: None };
    let mut writer = Writer::new(Vec::new(), header, options)?;
    for db in [0, 11] {
        let expiring_count = strings.values().filter(|(_, deadline)| deadline.is_some()).count();
        writer.select_db(db, strings.len() as u64, expiring_count as u64)?;
        for (index, (key, (value, deadline))) in strings.iter().enumerate() {
            let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<i64>().ok());
            match number {
                _ if index % 3 == 0 => {
                    writer.begin_string(key, value.len() as u64, meta(*deadline))?;
                    let mut rest = value.as_slice();
                    while !rest.is_empty() {
                        let (chunk, tail) = rest.split_at(random.usize(1..=rest.len()));
                        writer.string_chunk(chunk)?;
                        rest = tail;
                    }
                }
                Some(number) if number.to_string().as_bytes() == value => {
                    writer.string(key, StringRef::Int(number), meta(*deadline))?;
                }
                _ => writer.string(key, StringRef::Bytes(value), meta(*deadline))?,
            }
        }
    }
    let length = writer.written_bytes();
    let bytes = writer.finish()?;
    assert_eq!(bytes.len() as u64, length + 1 + 8);
    Ok(bytes)
}

fn check_redis_holds(redis: &mut Redis, strings: &Strings) {
    assert_eq!(redis.run("DBSIZE"), Reply::Int(strings.len() as i64));
    let commands: Vec<Vec<Vec<u8>>> = strings
        .keys()
        .flat_map(|key| [vec![b"GET".to_vec(), key.clone()], vec![b"PEXPIRETIME".to_vec(), key.clone()]])
        .collect();
    for ((key, (value, deadline)), replies) in strings.iter().zip(redis.pipeline(&commands).chunks(2)) {
        let found = match &replies[0] {
            Reply::Bulk(found) => found,
            other => panic!("{}: {other:?}", key.escape_ascii()),
        };
        assert!(found == value, "{}", key.escape_ascii());
        assert_eq!(
            replies[1],
            Reply::Int(deadline.map_or(-1, |at_ms| at_ms as i64)),
            "{}",
            key.escape_ascii()
        );
    }
}

/// Long values of all kinds, written in chunks and compressed where that saves something, as Redis reads them.
#[test]
fn long_strings_are_compressed_and_read_back() {
    let mut random = fastrand::Rng::with_seed(77);
    let random_bytes =
        |random: &mut fastrand::Rng, len: usize| -> Vec<u8> { (0..len).map(|_| random.u8(..)).collect() };
    let noise = random_bytes(&mut random, 3 << 20);
    let text: Vec<u8> = (0..2_500_001).map(|i| b"compressible text "[i % 18]).collect();
    let mixed = [&noise[..1_500_000], &vec![0; 3 << 20], &noise[..700_000]].concat();
    let values =
        [(vec![0; 80 << 20], 1 << 20), (text, 100 << 10), (mixed, 2_400_000), (noise, (3 << 20) + 1000)];
    for compress in [true, false] {
        let options = WriterOptions { compress, ..WriterOptions::default() };
        let mut writer = Writer::new(Vec::new(), Header::default(), options).expect("a header");
        writer.select_db(0, values.len() as u64, 0).expect("a database");
        for (index, (value, most_bytes)) in values.iter().enumerate() {
            let before = writer.written_bytes();
            let chunks = |give: &mut dyn FnMut(&[u8])| value.chunks(4096).for_each(give);
            let key = index.to_string();
            writer
                .long_string(key.as_bytes(), value.len() as u64, KeyMeta::default(), chunks)
                .expect("a value");
            let taken = writer.written_bytes() - before;
            assert!(!compress || taken < *most_bytes as u64, "value {index} takes {taken} bytes");
        }
        let bytes = writer.finish().expect("the end");
        let entries = read_all(&bytes, ReaderOptions::default()).expect("what was written");
        for (entry, (value, _)) in entries.iter().zip(&values) {
            assert!(entry.value == crate::bytes_value(value), "{}", entry.key.escape_ascii());
        }
        let dir = temp_dir();
        std::fs::write(dir.join("dump.rdb"), &bytes).expect("a dump");
        let mut redis = Redis::start(dir, &[]);
        for (index, (value, _)) in values.iter().enumerate() {
            assert!(redis.run(&format!("GET {index}")) == Reply::Bulk(value.clone()), "{index}");
        }
    }
}

#[test]
fn redis_loads_what_is_written() {
    let mut random = fastrand::Rng::with_seed(seed());
    let strings = random_strings(&mut random);
    for (compress, checksum) in [(true, true), (false, false)] {
        let bytes =
            write(&strings, &mut random, WriterOptions { compress, checksum, ..WriterOptions::default() })
                .expect("write a dump");
        assert_eq!(bytes.ends_with(&[0; 8]), !checksum);
        let entries = read_all(&bytes, ReaderOptions::default()).expect("read the dump");
        assert_eq!(entries.len(), 2 * strings.len());
        let dir = temp_dir();
        std::fs::write(dir.join("dump.rdb"), bytes).expect("write dump.rdb");
        let mut redis = Redis::start(dir, &[]);
        check_redis_holds(&mut redis, &strings);
        redis.run("SELECT 11");
        check_redis_holds(&mut redis, &strings);
    }
}

#[test]
fn the_bytes_of_a_string_equal_those_of_redis() {
    let mut random = fastrand::Rng::with_seed(seed());
    let mut redis = Redis::start(temp_dir(), &[]);
    for _ in 0..40 {
        let (key, value) = (random_string(&mut random, 100), random_string(&mut random, 2000));
        redis.run("FLUSHALL");
        redis.command(&[b"SET", &key, &value, b"PXAT", b"4102444800000"]);
        let mut writer =
            Writer::new(Vec::new(), Header::default(), WriterOptions::default()).expect("a header");
        writer.select_db(0, 1, 1).expect("a database");
        writer.string(&key, StringRef::Bytes(&value), meta(Some(FAR_FUTURE_MS))).expect("a string");
        let ours = writer.finish().expect("the end");
        let from_db = |bytes: &[u8]| {
            let at = bytes.windows(4).position(|window| window == b"\xfe\0\xfb\x01").expect("a database");
            bytes[at..bytes.len() - 8].to_vec()
        };
        assert_eq!(from_db(&ours), from_db(&redis.save()), "{} {}", key.escape_ascii(), value.escape_ascii());
    }
}

#[test]
fn access_data_is_written() {
    let mut writer = Writer::new(Vec::new(), Header::default(), WriterOptions::default()).expect("a header");
    let metas = [
        KeyMeta { expire_at_ms: Some(u64::MAX), lru_idle_s: Some(1000), lfu_count: None },
        KeyMeta { expire_at_ms: Some(1), lru_idle_s: None, lfu_count: Some(255) },
    ];
    for (index, meta) in metas.into_iter().enumerate() {
        writer.string(&[index as u8], StringRef::Int(7), meta).expect("a string");
    }
    let entries =
        read_all(&writer.finish().expect("the end"), ReaderOptions::default()).expect("read the dump");
    assert_eq!(entries[0].meta, KeyMeta { expire_at_ms: Some(i64::MAX as u64), ..metas[0] });
    assert_eq!(entries[1].meta, metas[1]);
    assert_eq!(text(entries[1].value.clone()), b"7");
}

#[test]
fn the_header_is_what_redis_writes() {
    let header = Header { ctime_unix_s: 1_700_000_000, used_memory_bytes: 70_000, aof_base: true, cut: None };
    let writer = Writer::new(Vec::new(), header, WriterOptions::default()).expect("a header");
    let bytes = writer.finish().expect("the end");
    let expected = [
        &b"REDIS0010\xfa"[..],
        &string("redis-ver"),
        &string("7.0.15"),
        b"\xfa",
        &string("redis-bits"),
        b"\xc0\x40\xfa",
        &string("ctime"),
        b"\xc2\x00\xf1\x53\x65\xfa",
        &string("used-mem"),
        b"\xc2\x70\x11\x01\x00\xfa",
        &string("aof-base"),
        b"\xc0\x01",
    ]
    .concat();
    assert!(bytes.starts_with(&expected), "{}", bytes.escape_ascii());
}

#[test]
fn a_value_of_another_length_than_announced_is_refused() {
    let start = || Writer::new(Vec::new(), Header::default(), WriterOptions::default()).expect("a header");
    let mut writer = start();
    writer.begin_string(b"k", 10, KeyMeta::default()).expect("begin");
    writer.string_chunk(b"12345").expect("a chunk");
    let error = writer.select_db(1, 0, 0).expect_err("five bytes are missing");
    assert!(matches!(error, WriteError::ValueTooShort { announced_bytes: 10, missing_bytes: 5 }));
    assert!(matches!(writer.finish(), Err(WriteError::Failed)));

    let mut writer = start();
    writer.begin_string(b"k", 4, KeyMeta::default()).expect("begin");
    assert!(matches!(writer.string_chunk(b"12345"), Err(WriteError::ValueTooLong { announced_bytes: 4 })));
    assert!(matches!(writer.string(b"k", StringRef::Int(1), KeyMeta::default()), Err(WriteError::Failed)));

    let mut writer = start();
    writer.begin_string(b"k", 0, KeyMeta::default()).expect("an empty value needs no chunk");
    writer.string(b"l", StringRef::Int(1), KeyMeta::default()).expect("a string");
    assert_eq!(
        read_all(&writer.finish().expect("the end"), ReaderOptions::default()).expect("read").len(),
        2
    );
}

#[test]
fn a_failed_write_is_final() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if bytes.len() > self.0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0 -= bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut writer =
        Writer::new(Full(100_000), Header::default(), WriterOptions::default()).expect("a header");
    let value = vec![0; 60_000];
    let mut put = |length: u64| -> Result<(), WriteError> {
        writer.begin_string(b"k", length, KeyMeta::default())?;
        writer.string_chunk(&value[..length as usize])
    };
    put(60_000).expect("it fits");
    let error = put(60_000).expect_err("it does not fit");
    assert!(matches!(&error, WriteError::Io(error) if error.kind() == io::ErrorKind::StorageFull), "{error}");
    assert!(matches!(put(0), Err(WriteError::Failed)));
    assert!(matches!(writer.finish(), Err(WriteError::Failed)));
}
