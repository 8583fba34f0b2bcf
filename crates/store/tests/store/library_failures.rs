//! Changes of function libraries in which something fails at each of their places, one after the other: they have happened and
//! have been told, or neither.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use stillframe_pagepool::device::SimDevice;
use stillframe_pagepool::failing::{Failing, Failure};
use stillframe_store::{Effect, Listener, OpError, Options, Step, Store, Worker};
use stillframe_testkit::seeds;

use crate::libraries::source;

type Libraries = BTreeMap<String, Vec<u8>>;

/// What has been told makes these libraries.
#[derive(Default)]
struct Replayed(Mutex<(Libraries, u64)>);

impl Listener for Replayed {
    fn hear(&self, _: &Step, effect: &Effect<'_>) {
        let (libraries, count) = &mut *self.0.lock();
        *count += 1;
        match *effect {
            Effect::LibrarySet { name, source } => drop(libraries.insert(name.to_owned(), source.to_vec())),
            Effect::LibraryRemoved { name } => drop(libraries.remove(name).expect("it was there")),
            Effect::LibrariesRemoved => libraries.clear(),
            _ => panic!("nothing else is changed"),
        }
    }
}

fn operate(worker: &mut Worker, random: &mut fastrand::Rng) -> Result<(), OpError> {
    let count = random.usize(1..4);
    let made: Vec<(String, Vec<u8>)> = (0..count)
        .map(|_| {
            let name = format!("lib_{}", random.u32(..6));
            let len_bytes = [0, 800, 3_000, 12_000, 90_000][random.usize(..5)];
            let source = source(&name, len_bytes + random.usize(..50));
            (name, source)
        })
        .collect::<Libraries>()
        .into_iter()
        .collect();
    let borrowed: Vec<(&str, &[u8])> = made.iter().map(|(name, source)| (&name[..], &source[..])).collect();
    let mut libraries = worker.libraries();
    match random.u32(..10) {
        0 => libraries.clear().map(drop),
        1..4 => libraries.remove(borrowed[0].0).map(drop),
        4..6 => libraries.replace_all(&borrowed).map(drop),
        6..8 => libraries.set_all(&borrowed).map(drop),
        _ => libraries.set(borrowed[0].0, borrowed[0].1).map(drop),
    }
}

fn is_expected(failure: Failure, error: &OpError) -> bool {
    match failure {
        Failure::NoMemory => matches!(error, OpError::OutOfMemory { .. }),
        Failure::NoPages | Failure::Damaged => matches!(error, OpError::Damaged(_)),
        Failure::Missing => matches!(error, OpError::Fault(_)),
    }
}

#[test]
#[cfg(debug_assertions)]
fn a_change_has_happened_and_been_told_or_neither() {
    for seed in seeds(1, 3) {
        let mut random = fastrand::Rng::with_seed(seed);
        let options = Options {
            tiered_bytes: 64 << 20,
            huge_pages: false,
            pool_backend: stillframe_testkit::pool_backend(),
            checkpoint_on_drop: false,
            ..Options::default()
        };
        let store = Store::open_on(Arc::new(SimDevice::new(seed)), options).unwrap();
        let replayed = Arc::new(Replayed::default());
        assert!(store.listen(vec![replayed.clone()]));
        let mut worker = store.nonblocking_worker().unwrap();
        let mut error_count = 0;
        for _ in 0..60 {
            let failure = [Failure::NoMemory, Failure::NoPages, Failure::Missing][random.usize(..3)];
            let (goes_on, operation) = (random.bool(), random.u64(..));
            for places_before in 0.. {
                let (before, told_before) = replayed.0.lock().clone();
                let version = worker.libraries().version();
                let failing = Failing::begin(failure, places_before, goes_on);
                let result = operate(&mut worker, &mut fastrand::Rng::with_seed(operation));
                let failed_count = failing.failed_count();
                drop(failing);
                worker.quiesce();
                let found: Libraries = worker.libraries().list().unwrap().into_iter().collect();
                let (after, told) = replayed.0.lock().clone();
                assert_eq!(found, after, "{failure:?} at {places_before}, seed {seed}");
                assert_eq!(told > told_before, worker.libraries().version() > version);
                if let Err(error) = result {
                    assert!(failed_count > 0 && is_expected(failure, &error), "{error:?}");
                    assert_eq!((after, told), (before, told_before), "{failure:?} at {places_before}");
                    error_count += 1;
                }
                if failed_count == 0 {
                    break;
                }
            }
        }
        assert!(error_count > 60, "{error_count}");
        worker.idle(|| store.checkpoint()).unwrap();
        drop(worker);
        store.check().unwrap();
    }
}
