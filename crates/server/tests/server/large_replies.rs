//! Replies with many elements: written beside the worker, from a picture, in bounded memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::harness::*;

const FIELDS: usize = 60_000;

fn fill(c: &mut Client, fields: usize, value_bytes: usize) {
    for first in (0..fields).step_by(500) {
        let mut words = vec![b"HSET".to_vec(), b"h".to_vec()];
        for number in first..(first + 500).min(fields) {
            words.push(format!("field:{number}").into_bytes());
            words.push(vec![b'v'; value_bytes]);
        }
        c.queue(&words);
        c.flush().unwrap();
        c.read();
    }
}

fn pairs(reply: Reply) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let Reply::Array(elements) = reply else { panic!("{reply:?}") };
    let bytes = |reply: &Reply| match reply {
        Reply::Bulk(bytes) => bytes.clone(),
        other => panic!("{other:?}"),
    };
    let pairs: BTreeMap<_, _> =
        elements.chunks_exact(2).map(|pair| (bytes(&pair[0]), bytes(&pair[1]))).collect();
    assert_eq!(pairs.len() * 2, elements.len(), "a field came twice");
    pairs
}

/// Fields that another client sets all at once, in one command, are all there or none of them.
#[test]
fn a_large_hash_is_shown_as_of_one_moment() {
    for workers in ["1", "2"] {
        let server = TestServer::start(&["--workers", workers]);
        let mut c = server.connect();
        fill(&mut c, FIELDS, 20);
        let mut writer = server.connect();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let stop = &stop;
            scope.spawn(|| {
                let mut round = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    round += 1;
                    let value = round.to_string();
                    let mut words = vec!["HSET", "h"];
                    let fields = ["field:1", "field:30000", "field:59999", "field:777", "field:45000"];
                    fields.iter().for_each(|field| words.extend([*field, value.as_str()]));
                    writer.queue(&words);
                    writer.flush().unwrap();
                    writer.read();
                }
            });
            for _ in 0..5 {
                c.queue_line("HGETALL h");
                c.queue_line("PING");
                c.flush().unwrap();
                let found = pairs(c.read());
                assert_eq!(
                    c.read(),
                    Reply::Simple("PONG".into()),
                    "replies come in the order of the commands"
                );
                assert_eq!(found.len(), FIELDS);
                let values: Vec<_> = ["field:1", "field:30000", "field:59999"]
                    .map(|field| found[field.as_bytes()].clone())
                    .into();
                assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "{values:?}");
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}

/// A client that does not read does not make the server hold the reply, and others are served meanwhile.
#[test]
fn a_reply_that_nobody_reads_takes_little_memory() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    fill(&mut c, FIELDS, 1_000);
    let before = server.resident_bytes();
    let mut idle = server.connect();
    idle.queue_line("HGETALL h");
    idle.flush().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let since = Instant::now();
    (0..1_000).for_each(|_| drop(c.run("HGET h field:5")));
    assert!(since.elapsed() < Duration::from_secs(5));
    let more = server.resident_bytes().saturating_sub(before);
    assert!(more < 24 << 20, "{more} bytes for a reply of {} that waits", FIELDS * 1_000);
    assert_eq!(pairs(idle.read()).len(), FIELDS, "and it comes when it is read");
}

/// Who leaves in the midst of a reply leaves nothing behind; what has been deleted meanwhile is an answer like any other.
#[test]
fn a_client_may_leave_in_the_midst_of_a_reply() {
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    fill(&mut c, FIELDS, 100);
    for _ in 0..40 {
        let mut leaving = server.connect();
        leaving.queue_line("HGETALL h");
        leaving.flush().unwrap();
    }
    c.queue_line("HGETALL h");
    c.queue_line("DEL h");
    c.queue_line("HGETALL h");
    c.flush().unwrap();
    assert_eq!(pairs(c.read()).len(), FIELDS);
    assert_eq!(c.read(), Reply::Int(1));
    assert!(pairs(c.read()).is_empty());
    assert!(stillframe_testkit::within(Duration::from_secs(10), || server.thread_count("stream") == 0));
}

/// A range that is written part by part begins and ends anywhere in the list, whose nodes are of more than one level.
#[test]
fn a_large_range_of_a_list_is_that_range() {
    const ITEMS: usize = 90_000;
    let server = TestServer::start(&[]);
    let mut c = server.connect();
    let item = |index: usize| format!("{index:0200}").into_bytes();
    for first in (0..ITEMS).step_by(1_000) {
        let mut command: Vec<Vec<u8>> = vec![b"RPUSH".to_vec(), b"l".to_vec()];
        command.extend((first..first + 1_000).map(item));
        c.queue(&command);
    }
    c.flush().unwrap();
    (0..ITEMS / 1_000).for_each(|_| drop(c.read()));
    for (start, stop) in
        [(0, -1), (45_017, 70_000), (-25_000, -1), (9_690, 29_800), (69_999, 200_000), (1, 20_000)]
    {
        let from = if start < 0 { ITEMS as i64 + start } else { start } as usize;
        let to = if stop < 0 { ITEMS as i64 + stop } else { stop.min(ITEMS as i64 - 1) } as usize;
        let found = c.run(&format!("LRANGE l {start} {stop}"));
        assert_eq!(found.items().len(), to - from + 1, "{start} to {stop}");
        for (index, found) in (from..).zip(found.items()) {
            assert!(*found == Reply::Bulk(item(index)), "item {index} of {start} to {stop}: {found:?}");
        }
    }
}
