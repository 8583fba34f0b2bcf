//! What the active expiry removes, and when.

use std::time::Duration;

use stillframe_store::{DbId, Deadline, NewValue, Options};

use stillframe_testkit::{seed, TempDir};

use crate::open;

const DB: DbId = DbId(0);
const TICK_MS: i64 = 100;

/// Few keys are due among many: each is gone at the first tick after its deadline, and no other.
#[test]
fn what_is_due_goes_within_a_tick() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    let mut random = fastrand::Rng::with_seed(seed());
    let begin = 1_700_000_000_000;
    worker.set_now(begin);
    let mut deadlines = Vec::new();
    for number in 0..30_000 {
        let name = format!("key:{number}").into_bytes();
        // Most never or in a year, one of a hundred soon.
        let after_ms = match number % 100 {
            0 => random.i64(1..8_000),
            1..=50 => 31_536_000_000 + number,
            _ => 0,
        };
        let deadline = if after_ms == 0 { Deadline::Clear } else { Deadline::At(begin + after_ms) };
        worker.set(DB, &worker.key(&name), NewValue::Int(number), deadline).unwrap();
        deadlines.push((name, after_ms));
    }
    let mut left = 300;
    for now in (begin..begin + 8_000 + TICK_MS).step_by(TICK_MS as usize) {
        worker.set_now(now);
        let mut removed = Vec::new();
        worker.upkeep().expire_cycle(Duration::from_secs(5), |_, name| removed.push(name.to_vec())).unwrap();
        left -= removed.len();
        let due = |after_ms: i64| after_ms > 0 && begin + after_ms <= now;
        assert_eq!(left, deadlines.iter().step_by(100).filter(|(_, after_ms)| !due(*after_ms)).count());
        for name in removed {
            let (_, after_ms) = deadlines.iter().find(|(known, _)| *known == name).unwrap();
            assert!(due(*after_ms) && begin + after_ms > now - TICK_MS, "{after_ms} ms, at {}", now - begin);
        }
    }
    assert_eq!((left, store.db_stats(DB).key_count), (0, 29_700));
    store.check().unwrap();
}
