//! The stream: generated operations of all types become units; applied to an empty store, and sent to `redis-server`, these make the
//! same data. A failure is replayed with `STILLFRAME_SEED=<seed>`; `STILLFRAME_SEQUENCES` sets how many sequences run.

mod bytes;
mod content;
mod controls;
mod large;
mod libraries;
mod memory;
mod ops;
mod redis;
mod refused;
mod table;

use std::sync::Arc;

use stillframe_store::replay::Applier;
use stillframe_store::stream::Encoder;
use stillframe_store::{digest, Options, Store};
use stillframe_testkit::{seeds, TempDir};

use content::content_of;
use memory::Memory;
use ops::{Ops, Scope};
use redis::Redis;

/// Operations between two comparisons.
const COMPARED_AFTER: u32 = 100;

fn open(dir: &TempDir) -> Store {
    let options = Options {
        database_count: ops::DATABASES,
        pool_backend: stillframe_testkit::pool_backend(),
        checkpoint_on_drop: false,
        ..Options::default()
    };
    Store::open(dir.path(), options).expect("the store opens")
}

/// A store whose changes become units, and one that has nothing but these.
struct Pair {
    source: Store,
    encoder: Arc<Encoder<Memory>>,
    applied: Store,
    applier: Applier,
    _dirs: [TempDir; 2],
}

impl Pair {
    fn new(name: &str) -> Pair {
        let dirs = [TempDir::new(name), TempDir::new(name)];
        let [source, applied] = [open(&dirs[0]), open(&dirs[1])];
        let encoder = Arc::new(Encoder::new(Memory::default()));
        assert!(source.listen(vec![encoder.clone()]));
        encoder.start();
        let applier = Applier::new(&applied);
        Pair { source, encoder, applied, applier, _dirs: dirs }
    }

    /// Applies what has been told since, and returns it.
    fn catch_up(&mut self) -> Vec<Vec<u8>> {
        let units = self.encoder.consumer().take();
        for unit in &units {
            if let Err(error) = self.applier.apply(unit) {
                panic!("{error}: {}", bytes::shown(unit));
            }
        }
        units
    }

    /// Both have the same, whatever has expired without a word included.
    fn assert_same(&self) {
        assert_eq!(content_of(&self.applied), content_of(&self.source));
        assert_eq!(self.digest(), digest::of_all(&self.applied.view().unwrap(), 0).unwrap());
    }

    fn digest(&self) -> String {
        digest::of_all(&self.source.view().unwrap(), 0).unwrap()
    }
}

/// Runs a sequence, and compares what is made of its units each time that so many operations have been run.
fn run_sequence(pair: &mut Pair, redis: Option<&mut Redis>, scope: Scope, seed: u64, count: u32) {
    let mut redis = redis;
    let mut worker = pair.source.worker();
    let mut ops = Ops::new(seed, scope);
    for number in 1..=count {
        ops.run(&mut worker);
        if number % COMPARED_AFTER != 0 && number != count {
            continue;
        }
        let units = pair.catch_up();
        pair.assert_same();
        if let Some(redis) = redis.as_deref_mut() {
            redis.send(&units);
            assert_eq!(redis.digest(), pair.digest(), "seed {seed}, operation {number}");
            redis.assert_deadlines(&content_of(&pair.source));
        }
    }
}

fn sequence_count(default: u64) -> u64 {
    std::env::var("STILLFRAME_SEQUENCES").ok().and_then(|count| count.parse().ok()).unwrap_or(default)
}

fn sequences(default: u64) -> std::ops::Range<u64> {
    let first = stillframe_testkit::seed();
    first..first.saturating_add(sequence_count(default))
}

#[test]
fn units_make_the_same_data_in_a_store_and_in_redis() {
    let mut redis = Redis::start();
    for seed in sequences(4) {
        redis.empty();
        let mut pair = Pair::new("stream");
        run_sequence(&mut pair, Some(&mut redis), Scope::AsRedis, seed, 700);
    }
}

/// Redis 7.0 has no deadlines of fields.
#[test]
fn fields_have_the_same_deadlines() {
    for seed in sequences(3) {
        let mut pair = Pair::new("stream-fields");
        run_sequence(&mut pair, None, Scope::TimedFields, seed, 1_500);
    }
}

/// Two workers change the same keys: units come in the order of the changes.
#[test]
fn units_of_two_workers_make_the_same_data() {
    let mut redis = Redis::start();
    for seed in sequences(3) {
        redis.empty();
        let mut pair = Pair::new("stream-two");
        for round in 0..5 {
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let source = &pair.source;
                    scope.spawn(move || {
                        let mut worker = source.nonblocking_worker().unwrap();
                        let seed = seed.wrapping_mul(31).wrapping_add(round * 2 + thread);
                        let mut ops = Ops::new(seed, Scope::AsRedis);
                        for _ in 0..150 {
                            ops.run(&mut worker);
                            worker.quiesce();
                        }
                    });
                }
            });
            let units = pair.catch_up();
            pair.assert_same();
            redis.send(&units);
            assert_eq!(redis.digest(), pair.digest());
        }
    }
}

/// A replica that comes with what the store had at a cut goes on with the units behind it.
#[test]
fn units_behind_a_cut_go_on_from_there() {
    for seed in seeds(1, 3) {
        let mut pair = Pair::new("stream-cut");
        run_sequence(&mut pair, None, Scope::TimedFields, seed, 200);
        for round in 0..5 {
            pair.encoder.consumer().cut();
            pair.applier = Applier::new(&pair.applied);
            run_sequence(&mut pair, None, Scope::TimedFields, seed.wrapping_add(round), 100);
        }
    }
}

/// What is applied is a load: it comes back in no stream of the store that it is applied to.
#[test]
fn what_is_applied_is_not_told_again() {
    let mut pair = Pair::new("stream-again");
    let again = Arc::new(Encoder::new(Memory::default()));
    assert!(pair.applied.listen(vec![again.clone()]));
    again.start();
    run_sequence(&mut pair, None, Scope::TimedFields, 7, 300);
    assert_eq!(again.encoded().units, 0);
    let mut worker = pair.applied.worker();
    let key = worker.key(b"own");
    worker.remove(stillframe_store::DbId(0), &key).unwrap();
    worker
        .set(
            stillframe_store::DbId(0),
            &key,
            stillframe_store::NewValue::Int(1),
            stillframe_store::Deadline::Clear,
        )
        .unwrap();
    assert_eq!(again.encoded().units, 1);
}

/// As long as nobody wants units, a change does not come to the encoder.
#[test]
fn an_encoder_that_is_not_started_costs_nothing() {
    let mut pair = Pair::new("stream-idle");
    pair.encoder.stop();
    let mut ops = Ops::new(3, Scope::TimedFields);
    let mut worker = pair.source.worker();
    (0..300).for_each(|_| ops.run(&mut worker));
    assert_eq!(pair.encoder.encoded(), Default::default());
    assert!(pair.encoder.consumer().take().is_empty());
    pair.encoder.start();
    (0..300).for_each(|_| ops.run(&mut worker));
    let encoded = pair.encoder.encoded();
    assert!(encoded.units > 50 && encoded.commands >= encoded.units, "{encoded:?}");
    assert_eq!(encoded.effects > encoded.units, cfg!(debug_assertions), "{encoded:?}");
    let bytes: usize = pair.encoder.consumer().take_without_selects().iter().map(Vec::len).sum();
    assert_eq!(bytes as u64, encoded.bytes);
    pair.catch_up();
}
