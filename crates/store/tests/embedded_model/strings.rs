//! A thread with a worker, and plain strings.

use std::collections::BTreeMap;

use stillframe_store::{DbId, Deadline, NewValue, OpError, Store, Worker};

use crate::ops::Script;

const DB: DbId = DbId(1);
const STEP: &[u8] = b"step";
const NAMES: u64 = 3_000;
const COMPARE_EVERY: u64 = 9_973;

/// `None` removes.
type Write = (Vec<u8>, Option<Vec<u8>>);

pub struct Strings {
    worker: Worker,
    script: Script,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Of the next operation.
    next: u64,
}

fn write(script: Script, number: u64) -> Write {
    let random = &mut fastrand::Rng::with_seed(
        (script.seed ^ number.rotate_left(20)).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    );
    let key = format!("string {}", random.u64(..NAMES)).into_bytes();
    let len = match random.u32(..1_000) {
        0 => random.usize(100_000..1_400_000),
        1..=20 => random.usize(2_000..20_000),
        21..=200 => random.usize(100..1_500),
        _ => random.usize(..60),
    };
    (key, (random.u32(..5) > 0).then(|| vec![random.u8(..); len]))
}

fn get(worker: &mut Worker, key: &[u8]) -> Option<Vec<u8>> {
    let key = worker.key(key);
    worker.get(DB, &key, |value| value.to_vec()).unwrap_or_else(|error| panic!("get: {error}"))
}

fn put(worker: &mut Worker, key: &[u8], value: &[u8]) -> Result<(), OpError> {
    let key = worker.key(key);
    worker.set(DB, &key, NewValue::Bytes { bytes: value, raw: false }, Deadline::Clear).map(drop)
}

impl Strings {
    /// As of [`crate::owner::Owner::resume`].
    pub fn resume(store: &Store, script: Script) -> Strings {
        let worker = store.worker();
        let mut strings = Strings { worker, script, model: BTreeMap::new(), next: 0 };
        let Some(step) = get(&mut strings.worker, STEP) else {
            assert_eq!(strings.difference(), None, "strings before the first step");
            return strings;
        };
        let step = u64::from_be_bytes(step.try_into().expect("eight bytes"));
        (0..step).for_each(|number| strings.apply(write(script, number)));
        strings.next = step;
        let Some(before) = strings.difference() else { return strings };
        strings.apply(write(script, step));
        strings.next = step + 1;
        let after = strings.difference();
        assert_eq!(after, None, "neither after string {step} nor before it ({before})");
        strings
    }

    /// As of [`crate::owner::Owner::most_done`].
    pub fn most_done(&self) -> u64 {
        self.next + 1
    }

    /// As of [`crate::owner::Owner::run`].
    pub fn run(&mut self, mut goes_on: impl FnMut(u64) -> bool) {
        while goes_on(self.next) {
            put(&mut self.worker, STEP, &self.next.to_be_bytes()).expect("the step");
            let (key, value) = write(self.script, self.next);
            match &value {
                Some(value) => put(&mut self.worker, &key, value).expect("a string"),
                None => {
                    let was_there = {
                        let key = self.worker.key(&key);
                        self.worker.remove(DB, &key).expect("a removal")
                    };
                    assert_eq!(was_there, self.model.contains_key(&key), "string {}", self.next);
                }
            }
            self.apply((key, value));
            self.next += 1;
            if self.next % COMPARE_EVERY == 0 {
                assert_eq!(self.difference(), None, "strings at {}", self.next);
            }
        }
    }

    fn apply(&mut self, (key, value): Write) {
        match value {
            Some(value) => drop(self.model.insert(key, value)),
            None => drop(self.model.remove(&key)),
        }
    }

    fn difference(&mut self) -> Option<String> {
        let mut key_count = 0;
        let mut cursor = 0;
        loop {
            let count = |key: &[u8]| key_count += usize::from(key != STEP);
            let mut count = count;
            cursor = self.worker.database(DB).scan(cursor, 100, |key, _| count(key)).expect("a scan");
            if cursor == 0 {
                break;
            }
        }
        // A scan may name a key twice, and leaves none out.
        if key_count < self.model.len() {
            return Some(format!("{key_count} strings, not {}", self.model.len()));
        }
        for number in 0..NAMES {
            let key = format!("string {number}").into_bytes();
            let found = get(&mut self.worker, &key);
            if found.as_ref() != self.model.get(&key) {
                let [found, expected] =
                    [found.as_ref(), self.model.get(&key)].map(|value| value.map(Vec::len));
                return Some(format!("string {number} has {found:?} bytes, not {expected:?}"));
            }
        }
        None
    }
}
