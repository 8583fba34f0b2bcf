//! Crashes and failing calls at every point of a workload.

use std::sync::Arc;

use stillframe_pagepool::device::{Fault, FaultRates, SimDevice};
use stillframe_store::SaveError;

use crate::model::{open, reopen, Content, Opened};

/// Changes between two checkpoints.
const CHANGE_COUNT: u32 = 80;

/// What a run left: the content of the last completed checkpoint, and what a failed one was meant to save.
struct Left {
    saved: Content,
    in_flight: Option<(Content, SaveError)>,
}

/// Changes and checkpoints, up to the first that fails.
fn run(opened: &mut Opened, rng: &mut fastrand::Rng, mut saved: Content, checkpoint_count: u32) -> Left {
    for _ in 0..checkpoint_count {
        let mut content = saved.clone();
        opened.change_some(&mut content, rng, CHANGE_COUNT);
        if let Err(error) = opened.checkpoint() {
            assert!(opened.content() == content, "a failed checkpoint has changed the data");
            return Left { saved, in_flight: Some((content, error)) };
        }
        saved = content;
    }
    Left { saved, in_flight: None }
}

/// The store works: it changes, saves, and has saved what it says.
fn assert_works(device: &Arc<SimDevice>, mut opened: Opened, rng: &mut fastrand::Rng, content: Content) {
    let left = run(&mut opened, rng, content, 2);
    assert!(left.in_flight.is_none(), "{:?}", left.in_flight);
    // Not saved, so lost.
    opened.change_some(&mut left.saved.clone(), rng, 10);
    drop(opened);
    device.crash();
    reopen(device, &[&left.saved]);
}

/// A device that holds what a few checkpoints have left, and that content.
fn used_device(seed: u64, rng: &mut fastrand::Rng) -> (Arc<SimDevice>, Content) {
    let device = Arc::new(SimDevice::new(seed));
    let mut opened = open(&device).expect("a new store");
    let left = run(&mut opened, rng, Content::new(), 3);
    assert!(left.in_flight.is_none());
    (device, left.saved)
}

#[test]
fn a_crash_in_any_call_leaves_the_last_checkpoint_or_the_one_in_flight() {
    let seed = stillframe_testkit::seed_or(21);
    let mut outcomes = [0; 3];
    for round in 0.. {
        let device = Arc::new(SimDevice::new(seed + round));
        device.schedule(round, Fault::Crash);
        let mut rng = fastrand::Rng::with_seed(seed);
        let (saved, in_flight) = match open(&device) {
            // A file gets its name when its creation is complete: the next start begins anew.
            Err(_) => {
                outcomes[2] += 1;
                continue;
            }
            Ok(mut opened) => match run(&mut opened, &mut rng, Content::new(), 3) {
                Left { in_flight: None, .. } => break,
                Left { saved, in_flight } => (saved, in_flight.map(|(content, _)| content)),
            },
        };
        device.crash();
        let allowed: Vec<_> = [Some(&saved), in_flight.as_ref()].into_iter().flatten().collect();
        let (opened, which) = reopen(&device, &allowed);
        outcomes[which] += 1;
        let content = allowed[which].clone();
        assert_works(&device, opened, &mut rng, content);
    }
    println!("the last {}, the one in flight {}, none yet {}", outcomes[0], outcomes[1], outcomes[2]);
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}

#[test]
fn a_crash_in_any_call_after_a_restart() {
    let seed = stillframe_testkit::seed_or(22);
    let mut crash_count = 0;
    for round in 0.. {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (device, before) = used_device(seed, &mut rng);
        let mut opened = open(&device).expect("an undamaged store");
        // Loading uses the device from other threads, at other times in each round.
        opened.wait_until_warm();
        device.schedule(device.call_count() + round, Fault::Crash);
        let left = run(&mut opened, &mut rng, before, 2);
        let Some((content, _)) = left.in_flight else { break };
        drop(opened);
        device.crash();
        crash_count += 1;
        let (opened, which) = reopen(&device, &[&left.saved, &content]);
        assert_works(&device, opened, &mut rng, [left.saved, content][which].clone());
    }
    assert!(crash_count > 5, "{crash_count} crash points");
}

/// After an error that leaves the disk in doubt: the data is served, nothing is saved, and a restart finds one of
/// the two checkpoints.
fn assert_stays_failed(device: &Arc<SimDevice>, mut opened: Opened, error: &SaveError, allowed: &[&Content]) {
    let again = opened.checkpoint().expect_err("nobody knows what the disk holds");
    assert!(again.to_string().contains("earlier error"), "first '{error}', then '{again}'");
    drop(opened);
    device.crash();
    reopen(device, allowed);
}

#[test]
fn an_error_in_any_call_fails_the_save_and_nothing_else() {
    let seed = stillframe_testkit::seed_or(23);
    let mut failure_counts = [0; 2];
    for round in 0.. {
        let is_no_space = round % 2 == 1;
        let mut rng = fastrand::Rng::with_seed(seed);
        let (device, before) = used_device(seed, &mut rng);
        let mut opened = open(&device).expect("an undamaged store");
        opened.wait_until_warm();
        let call = device.call_count() + round / 2;
        device.schedule(call, if is_no_space { Fault::NoSpace } else { Fault::Error });
        let left = run(&mut opened, &mut rng, before, 2);
        let Some((in_flight, error)) = left.in_flight else {
            if device.call_count() <= call {
                break;
            }
            // Not every call takes every fault: a sync does not run out of space, a trim may fail.
            continue;
        };
        let mut content = in_flight.clone();
        opened.change_some(&mut content, &mut rng, CHANGE_COUNT);
        // A superblock is written over an older one: a disk that has no space for that is in doubt.
        let is_in_doubt = error.to_string().contains("earlier error");
        if is_no_space && !is_in_doubt {
            assert!(error.to_string().to_lowercase().contains("no space left"), "{error}");
            failure_counts[1] += 1;
            opened.checkpoint().expect("space again");
            assert_works(&device, opened, &mut rng, content);
        } else {
            failure_counts[0] += 1;
            assert_stays_failed(&device, opened, &error, &[&left.saved, &in_flight]);
        }
    }
    println!("in doubt {}, only space {}", failure_counts[0], failure_counts[1]);
    assert!(failure_counts.iter().all(|count| *count > 2), "{failure_counts:?}");
}

#[test]
fn a_full_device_fails_saves_until_there_is_room() {
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed_or(24));
    let (device, mut content) = used_device(1, &mut rng);
    let mut opened = open(&device).expect("an undamaged store");
    for round in 0..3 {
        device.set_capacity(device.image().len() as u64);
        let error = (0..100).find_map(|number| {
            opened.add(&mut content, &format!("filler-{round}-{number}"), 200_000, &mut rng);
            opened.checkpoint().err()
        });
        let text = error.expect("the device fills up").to_string();
        assert!(text.contains("no space left"), "{text}");
        assert!(opened.content() == content);
        // Again, and the same: with more, for what random changes remove may make room.
        opened.add(&mut content, &format!("more-{round}"), 200_000, &mut rng);
        let again = opened.checkpoint().expect_err("still full").to_string();
        assert!(again.contains("no space left"), "{again}");
        device.set_capacity(u64::MAX);
        opened.checkpoint().expect("there is room");
        drop(opened);
        device.crash();
        opened = reopen(&device, &[&content]).0;
    }
}

#[test]
fn random_errors_never_lose_a_checkpoint() {
    let seed = stillframe_testkit::seed_or(25);
    let mut rng = fastrand::Rng::with_seed(seed);
    let device = Arc::new(SimDevice::new(seed));
    let mut allowed = vec![Content::new()];
    let mut counts = [0; 3];
    for _ in 0..60 {
        let (mut opened, which) = reopen(&device, &allowed.iter().collect::<Vec<_>>());
        let mut saved = allowed.swap_remove(which);
        opened.wait_until_warm();
        let (write_error, sync_error, no_space) = (0.01, 0.03, 0.03);
        device.set_rates(FaultRates { write_error, sync_error, no_space, ..FaultRates::default() });
        let mut content = saved.clone();
        let mut in_doubt = None;
        for _ in 0..6 {
            opened.change_some(&mut content, &mut rng, CHANGE_COUNT);
            match opened.checkpoint() {
                Ok(()) => {
                    saved.clone_from(&content);
                    counts[0] += 1;
                }
                Err(error) if error.to_string().to_lowercase().contains("no space left") => counts[1] += 1,
                Err(_) => {
                    in_doubt = Some(content.clone());
                    counts[2] += 1;
                    break;
                }
            }
        }
        drop(opened);
        device.clear_faults();
        device.crash();
        allowed = [Some(saved), in_doubt].into_iter().flatten().collect();
    }
    println!("saved {}, no space {}, failed {}", counts[0], counts[1], counts[2]);
    assert!(counts.iter().all(|count| *count > 5), "{counts:?}");
}

#[test]
fn crashes_follow_crashes() {
    let seed = stillframe_testkit::seed_or(26);
    let mut rng = fastrand::Rng::with_seed(seed);
    let device = Arc::new(SimDevice::new(seed));
    let mut allowed = vec![Content::new()];
    for _ in 0..60 {
        let (mut opened, which) = reopen(&device, &allowed.iter().collect::<Vec<_>>());
        let found = allowed.swap_remove(which);
        opened.wait_until_warm();
        device.schedule(device.call_count() + rng.u64(..30), Fault::Crash);
        let left = run(&mut opened, &mut rng, found, 4);
        drop(opened);
        device.clear_faults();
        device.crash();
        allowed =
            [Some(left.saved), left.in_flight.map(|(content, _)| content)].into_iter().flatten().collect();
    }
}
