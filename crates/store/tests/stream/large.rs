//! Values and elements of 256 KB and more: a unit refers to them where they lie.

use stillframe_store::{Bytes, DbId, Deadline, End, FieldMode, NewValue, Worker};

use crate::bytes::commands;
use crate::Pair;

const DB: DbId = DbId(0);

fn incoming(worker: &mut Worker, value: &[u8]) -> stillframe_store::Incoming {
    let mut incoming = worker.begin_incoming_name(value.len() as u64).unwrap();
    let mut at = 0;
    while at < value.len() {
        at += incoming.append(&value[at..]).unwrap();
    }
    incoming
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.u8(..)).collect()
}

/// What is told stays as it was, whatever becomes of the key before it is read.
#[test]
fn large_values_are_not_copied() {
    let mut pair = Pair::new("stream-large");
    let mut worker = pair.source.worker();
    worker.set_now(1_000);
    let (first, second) = (noise(1, 700_000), noise(2, 300_000));
    let (key, list, hash) = (worker.key(b"k"), worker.key(b"l"), worker.key(b"h"));
    let value = incoming(&mut worker, &first);
    worker.set(DB, &key, NewValue::Incoming(&value), Deadline::Clear).unwrap();
    worker.string_at(DB, &key).write_range(100, b"another").unwrap();
    let value = incoming(&mut worker, &second);
    worker.set(DB, &key, NewValue::Incoming(&value), Deadline::Clear).unwrap();
    worker.remove(DB, &key).unwrap();
    let item = incoming(&mut worker, &first);
    worker.list_at(DB, &list).push(End::Left, &[Bytes::Incoming(&item)], false).unwrap();
    let (field, value) = (incoming(&mut worker, &second), incoming(&mut worker, &first));
    let pairs = [(Bytes::Incoming(&field), Bytes::Incoming(&value))];
    worker.hash_at(DB, &hash).set(&pairs, FieldMode::All, Deadline::Clear).unwrap();
    let to = worker.key(b"m");
    worker.list_at(DB, &list).move_to(End::Left, (&to, End::Right), |_| ()).unwrap();
    drop((item, field, value));
    worker.remove(DB, &hash).unwrap();

    let held = pair.encoder.consumer().held_bytes_most();
    assert!(held < 100_000, "a unit holds {held} bytes");
    let units = pair.catch_up();
    assert_eq!(commands(&units[0]).last().unwrap()[2], first);
    assert_eq!(commands(&units[2])[0][2], second);
    pair.assert_same();
}

/// A name that only finds what is there goes when the operation is over: it is copied.
#[test]
fn names_that_nothing_refers_to_are_copied() {
    let mut pair = Pair::new("stream-names");
    let mut worker = pair.source.worker();
    worker.set_now(1_000);
    let (name, hash, set) = (noise(3, 400_000), worker.key(b"h"), worker.key(b"s"));
    for value in ["1", "2"] {
        let field = incoming(&mut worker, &name);
        let pairs = [(Bytes::Incoming(&field), Bytes::from(value))];
        worker.hash_at(DB, &hash).set(&pairs, FieldMode::All, Deadline::Clear).unwrap();
    }
    let member = incoming(&mut worker, &name);
    worker.set_at(DB, &set).add(&[Bytes::Incoming(&member), Bytes::from("rest")]).unwrap();
    drop(member);
    let member = incoming(&mut worker, &name);
    worker.set_at(DB, &set).remove(&[Bytes::Incoming(&member)]).unwrap();
    drop(member);
    // Other bytes where the names were.
    for seed in 4..8 {
        let other = incoming(&mut worker, &noise(seed, 400_000));
        drop(other);
    }
    let units = pair.catch_up();
    assert_eq!(commands(&units[1])[0][2], name);
    assert_eq!(commands(units.last().unwrap())[0][2], name);
    pair.assert_same();
}
