//! Negative controls: mistakes that the comparison must notice.

use std::sync::Arc;

use stillframe_store::replay::{Applier, ApplyError};
use stillframe_store::stream::{Encoder, Malformed};
use stillframe_store::{digest, DbId, Deadline, NewValue, Store, Worker};
use stillframe_testkit::TempDir;

use crate::bytes::{shown, unit};
use crate::content::content_of;
use crate::memory::Memory;
use crate::redis::Redis;
use crate::{open, Pair};

fn set(worker: &mut Worker, db: u32, name: &[u8], value: NewValue<'_>, deadline: Deadline) {
    let key = worker.key(name);
    worker.set(DbId(db), &key, value, deadline).unwrap();
}

fn encoding(name: &str, memory: Memory) -> (TempDir, Store, Arc<Encoder<Memory>>) {
    let dir = TempDir::new(name);
    let store = open(&dir);
    let encoder = Arc::new(Encoder::new(memory));
    assert!(store.listen(vec![encoder.clone()]));
    encoder.start();
    (dir, store, encoder)
}

/// The units before and behind a cut of changes in one database.
fn around_a_cut(memory: Memory) -> (Vec<Vec<u8>>, Vec<Vec<u8>>, String) {
    let (_dir, store, encoder) = encoding("stream-select", memory);
    let mut worker = store.worker();
    set(&mut worker, 2, b"a", NewValue::Int(1), Deadline::Clear);
    let before = encoder.consumer().take();
    encoder.consumer().cut();
    set(&mut worker, 2, b"b", NewValue::Int(2), Deadline::Clear);
    let behind = encoder.consumer().take();
    (before, behind, digest::of_all(&store.view().unwrap(), 0).unwrap())
}

#[test]
fn a_select_left_out_after_a_cut_is_noticed() {
    for forgets_cuts in [false, true] {
        let memory = if forgets_cuts { Memory::forgetting_cuts() } else { Memory::default() };
        let (before, behind, digest) = around_a_cut(memory);
        let dir = TempDir::new("stream-select");
        let store = open(&dir);
        before.iter().for_each(|unit| Applier::new(&store).apply(unit).unwrap());
        let applied = Applier::new(&store).apply(&behind[0]);
        match forgets_cuts {
            false => assert_eq!(digest::of_all(&store.view().unwrap(), 0).unwrap(), digest),
            true => {
                assert!(matches!(applied, Err(ApplyError::Malformed(Malformed::NoDatabase { offset: 0 }))));
            }
        }
        let mut redis = Redis::start();
        redis.send(&before);
        redis.send(&[unit("SELECT 0")]);
        redis.send(&behind);
        assert_eq!(redis.digest() == digest, !forgets_cuts);
    }
}

/// A counter that had expired begins anew without a deadline. Its DEL may be left out before a SET only because that has no KEEPTTL.
#[test]
fn a_delete_left_out_before_a_keepttl_is_noticed() {
    let mut pair = Pair::new("stream-keepttl");
    let mut worker = pair.source.worker();
    worker.set_now(1_000);
    set(&mut worker, 0, b"k", NewValue::Int(5), Deadline::At(2_000));
    worker.set_now(2_000);
    set(&mut worker, 0, b"k", NewValue::Int(1), Deadline::Keep);
    let units = pair.catch_up();
    assert_eq!(shown(units.last().unwrap()), "SET k 1");
    pair.assert_same();
    assert!(content_of(&pair.applied).values().all(|found| found.deadline.is_none()));

    let dir = TempDir::new("stream-keepttl");
    let store = open(&dir);
    let mut applier = Applier::new(&store);
    applier.apply(&units[0]).unwrap();
    applier.apply(&unit("SET k 1 KEEPTTL")).unwrap();
    assert_ne!(content_of(&store), content_of(&pair.source));
    assert_ne!(digest::of_all(&store.view().unwrap(), 0).unwrap(), pair.digest());
}

/// Two units in the other order make other data: the comparison depends on the order.
#[test]
fn units_in_another_order_are_noticed() {
    let mut pair = Pair::new("stream-order");
    let mut worker = pair.source.worker();
    for value in [1, 2] {
        set(&mut worker, 0, b"k", NewValue::Int(value), Deadline::Clear);
    }
    let mut units = pair.encoder.consumer().take_without_selects();
    units.reverse();
    units.insert(0, unit("SELECT 0 | DEL k"));
    units.iter().for_each(|unit| pair.applier.apply(unit).unwrap());
    assert_ne!(content_of(&pair.applied), content_of(&pair.source));
}
