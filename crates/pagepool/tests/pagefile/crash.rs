//! Crashes and failing calls at every point of a workload.

use std::sync::Arc;

use stillframe_pagepool::device::{Fault, FaultRates, PageBuf, SimDevice};
use stillframe_pagepool::pagefile::{CheckpointWriter, PageError, PageFile, PageFileError};
use stillframe_pagepool::PageId;

use crate::model::{
    check_accounting, check_content, has_content, header_of, open, page_of, random_pid, write_back, Change,
    Content,
};

const PAGE_COUNT: u32 = 300;

/// Runs random checkpoints; returns the last committed content and, after an error, the one that was meant to follow it.
type Run = fn(
    &Arc<PageFile>,
    &mut fastrand::Rng,
    Content,
    std::ops::Range<u64>,
) -> (Content, Option<(Content, PageFileError)>);

/// The workloads of these tests.
const RUNS: [Run; 2] = [run, run_with_write_backs];

fn run(
    file: &Arc<PageFile>,
    rng: &mut fastrand::Rng,
    mut content: Content,
    versions: std::ops::Range<u64>,
) -> (Content, Option<(Content, PageFileError)>) {
    for version in versions {
        let change = Change::random(rng, &content, PAGE_COUNT, 120, version);
        match change.run(file) {
            Ok(_) => content = change.after,
            Err(error) => return (content, Some((change.after, error))),
        }
    }
    (content, None)
}

/// The same with pages written back between and during checkpoints, some of which the checkpoints adopt. In the end the file
/// knows no locations any more.
fn run_with_write_backs(
    file: &Arc<PageFile>,
    rng: &mut fastrand::Rng,
    mut content: Content,
    versions: std::ops::Range<u64>,
) -> (Content, Option<(Content, PageFileError)>) {
    let mut located = Content::new();
    let mut failed = None;
    for version in versions {
        let mut after = content.clone();
        match step_with_write_backs(file, rng, &mut located, &mut after, version) {
            Ok(()) => content = after,
            Err(error) => {
                failed = Some((after, error));
                break;
            }
        }
    }
    for (pid, version) in located {
        let mut page = Box::new(PageBuf::ZERO);
        match file.read_page(PageId(pid), &mut page.0) {
            Ok(()) => assert!(page.0 == page_of(pid, version).0, "page {pid} is not version {version}"),
            // The fault may come as late as this.
            Err(error) => assert!(matches!(error, PageError::Device { .. }), "{error}"),
        }
        file.forget_location(PageId(pid));
    }
    (content, failed)
}

/// Write-backs, and a checkpoint that has `after`.
fn step_with_write_backs(
    file: &Arc<PageFile>,
    rng: &mut fastrand::Rng,
    located: &mut Content,
    after: &mut Content,
    version: u64,
) -> Result<(), PageFileError> {
    write_back_some(file, rng, located, 1000 + version)?;
    let change = Change::random(rng, after, PAGE_COUNT, 60, version);
    let writer = file.begin_checkpoint()?;
    *after = change.after.clone();
    change.write(&writer)?;
    adopt_some(file, &writer, rng, located, after)?;
    write_back_some(file, rng, located, 2000 + version)?;
    adopt_some(file, &writer, rng, located, after)?;
    writer.commit(header_of(after))?;
    // From now on these go where the map goes.
    located.retain(|pid, version| after.get(pid) != Some(version));
    Ok(())
}

fn write_back_some(
    file: &PageFile,
    rng: &mut fastrand::Rng,
    located: &mut Content,
    version: u64,
) -> Result<(), PageFileError> {
    let pages: Content = (0..rng.u32(..60)).map(|_| (random_pid(rng, PAGE_COUNT), version)).collect();
    let pages: Vec<_> = pages.into_iter().collect();
    for ((pid, version), written) in pages.iter().zip(write_back(file, &pages)?) {
        match rng.u8(..4) {
            0 => file.drop_written(written),
            _ => {
                file.set_location(PageId(*pid), written);
                located.insert(*pid, *version);
            }
        }
    }
    for _ in 0..20 {
        let pid = random_pid(rng, PAGE_COUNT);
        file.forget_location(PageId(pid));
        located.remove(&pid);
    }
    Ok(())
}

/// The checkpoint has some pages as they were written back.
fn adopt_some(
    file: &PageFile,
    writer: &CheckpointWriter,
    rng: &mut fastrand::Rng,
    located: &Content,
    after: &mut Content,
) -> Result<(), PageFileError> {
    for (pid, version) in located.iter().filter(|_| rng.bool()) {
        let kept = file.keep_location(PageId(*pid)).expect("it has been written back");
        let adopted = writer.adopt_page(PageId(*pid), &kept);
        file.release_spill(kept);
        adopted?;
        after.insert(*pid, *version);
    }
    Ok(())
}

/// Reopens after a crash and fails unless exactly one of the two allowed contents is there.
fn reopen(device: &Arc<SimDevice>, content: Content, in_flight: Option<Content>) -> (Arc<PageFile>, Content) {
    let (file, recovered) = open(device).unwrap();
    assert!(!recovered.fell_back, "{recovered:?}");
    let allowed = [Some(content), in_flight].into_iter().flatten();
    let Some(found) = allowed.into_iter().find(|content| has_content(&file, &recovered, content)) else {
        panic!("neither the last committed nor the checkpoint in flight: {recovered:?}");
    };
    check_content(&file, &found);
    check_accounting(&file);
    let stats = file.stats();
    assert_eq!((stats.located_slots, stats.spilled_slots), (0, 0), "{stats:?}");
    (file, found)
}

#[test]
fn a_crash_in_any_call_leaves_the_last_checkpoint_or_the_one_in_flight() {
    RUNS.into_iter().for_each(check_crash_in_any_call);
}

fn check_crash_in_any_call(run: Run) {
    let seed = stillframe_testkit::seed_or(11);
    let mut crash_count = 0;
    for round in 0.. {
        let device = Arc::new(SimDevice::new(seed + round));
        device.schedule(round, Fault::Crash);
        let mut rng = fastrand::Rng::with_seed(seed);
        let (content, in_flight) = match open(&device) {
            // It was not there yet: a creation gets its name when it is complete.
            Err(_) => continue,
            Ok((file, _)) => match run(&file, &mut rng, Content::new(), 1..9) {
                (_, None) => break,
                (content, Some((in_flight, _))) => (content, Some(in_flight)),
            },
        };
        device.crash();
        crash_count += 1;
        let (file, content) = reopen(&device, content, in_flight);
        let (content, error) = run(&file, &mut rng, content, 100..103);
        assert!(error.is_none(), "{error:?}");
        check_content(&file, &content);
        check_accounting(&file);
    }
    assert!(crash_count > 60, "{crash_count} crash points");
}

#[test]
fn crashes_follow_crashes() {
    let seed = stillframe_testkit::seed_or(12);
    let mut rng = fastrand::Rng::with_seed(seed);
    let device = Arc::new(SimDevice::new(seed));
    let (mut content, mut in_flight) = (Content::new(), None);
    for round in 0..150u64 {
        let (file, found) = reopen(&device, content, in_flight);
        device.schedule(device.call_count() + rng.u64(..60), Fault::Crash);
        let (committed, error) =
            RUNS[round as usize % 2](&file, &mut rng, found, round * 10 + 1..round * 10 + 7);
        (content, in_flight) = (committed, error.map(|(in_flight, _)| in_flight));
        device.clear_faults();
        device.crash();
    }
}

/// Checkpoints that rewrite everything, then free most of it, then change little: the previous checkpoint is given up,
/// the file grows, its last pages are moved and it is shortened.
fn grow_and_shrink() -> Vec<Change> {
    let mut content = Content::new();
    let mut changes = Vec::new();
    let mut push = |content: &Content, pids: Vec<u32>, frees: bool, version: u64| {
        let writes: Vec<_> = pids.into_iter().map(|pid| (pid, version)).collect();
        let mut after = content.clone();
        after.retain(|pid, _| !frees || pid % 8 == 0);
        after.extend(writes.iter().copied());
        let freed = content.keys().filter(|pid| !after.contains_key(pid)).map(|pid| (*pid, 1)).collect();
        let writes = writes.chunks(256).map(<[_]>::to_vec).collect();
        changes.push(Change { writes, frees: freed, after: after.clone() });
        after
    };
    for version in 1..5 {
        content = push(&content, (1..1500).collect(), false, version);
    }
    content = push(&content, Vec::new(), true, 5);
    for version in 6..14 {
        content = push(&content, (8..1500).step_by(64).collect(), false, version);
    }
    changes
}

#[test]
fn crashes_while_the_file_grows_and_shrinks() {
    let seed = stillframe_testkit::seed_or(16);
    let mut rng = fastrand::Rng::with_seed(seed);
    let changes = grow_and_shrink();
    let whole = Arc::new(SimDevice::new(seed));
    let (file, _) = open(&whole).unwrap();
    let stats: Vec<_> = changes.iter().map(|change| (change.run(&file).unwrap(), file.stats())).collect();
    assert!(stats.iter().any(|(commit, _)| commit.moved_page_count > 0));
    assert!(stats.windows(2).any(|pair| pair[1].1.file_bytes < pair[0].1.file_bytes));
    for _ in 0..40 {
        let device = Arc::new(SimDevice::new(rng.u64(..)));
        let (file, _) = open(&device).unwrap();
        device.schedule(rng.u64(device.call_count()..whole.call_count()), Fault::Crash);
        let mut content = Content::new();
        let failed = changes.iter().find(|change| match change.run(&file) {
            Ok(_) => {
                content = change.after.clone();
                false
            }
            Err(_) => true,
        });
        device.crash();
        // Trimming may be what the crash interrupted: then all is committed.
        let (file, content) = reopen(&device, content, failed.map(|change| change.after.clone()));
        let (content, error) = run(&file, &mut rng, content, 100..102);
        assert!(error.is_none(), "{error:?}");
        check_content(&file, &content);
        check_accounting(&file);
    }
}

#[test]
fn an_error_in_any_call_fails_the_checkpoint_and_nothing_else() {
    RUNS.into_iter().for_each(check_error_in_any_call);
}

fn check_error_in_any_call(run: Run) {
    let seed = stillframe_testkit::seed_or(13);
    let mut failures = [0; 2];
    for round in 2.. {
        let device = Arc::new(SimDevice::new(seed + round));
        device.schedule(round, [Fault::Error, Fault::NoSpace][round as usize % 2]);
        let mut rng = fastrand::Rng::with_seed(seed);
        let Ok((file, _)) = open(&device) else { continue };
        let (content, error) = run(&file, &mut rng, Content::new(), 1..9);
        let Some((in_flight, error)) = error else {
            // Not every call takes every fault: a sync does not run out of space, a trim may fail.
            if device.call_count() <= round {
                break;
            }
            continue;
        };
        check_content(&file, &content);
        if error.is_no_space() {
            failures[0] += 1;
            check_accounting(&file);
            let (content, error) = run(&file, &mut rng, content, 100..103);
            assert!(error.is_none(), "{error:?}");
            check_content(&file, &content);
            device.crash();
            reopen(&device, content, None);
        } else {
            failures[1] += 1;
            let refused = file.begin_checkpoint().err();
            assert!(matches!(refused, Some(PageFileError::Failed { .. })), "{refused:?}");
            device.crash();
            reopen(&device, content, Some(in_flight));
        }
    }
    assert!(failures[0] > 10 && failures[1] > 10, "{failures:?}");
}

#[test]
fn random_errors_never_lose_a_committed_checkpoint() {
    let seed = stillframe_testkit::seed_or(14);
    let mut rng = fastrand::Rng::with_seed(seed);
    let device = Arc::new(SimDevice::new(seed));
    let (mut content, mut in_flight) = (Content::new(), None);
    for round in 0..100u64 {
        let (file, found) = reopen(&device, content, in_flight);
        let (write_error, sync_error, no_space) = (0.01, 0.02, 0.02);
        device.set_rates(FaultRates { write_error, sync_error, no_space, ..FaultRates::default() });
        content = found;
        in_flight = None;
        for attempt in 0..8 {
            let change = Change::random(&mut rng, &content, PAGE_COUNT, 120, round * 10 + attempt + 1);
            match change.run(&file) {
                Ok(_) => content = change.after,
                Err(error) if error.is_no_space() => {}
                Err(_) => {
                    in_flight = Some(change.after);
                    break;
                }
            }
        }
        device.clear_faults();
        device.crash();
    }
}

#[test]
fn a_lying_sync_is_noticed_or_harmless() {
    // Nothing can be promised about which data survives a disk that lies, only that none is invented: each page
    // reads as some version that was written, or reports damage.
    let seed = stillframe_testkit::seed_or(15);
    for round in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed + round);
        let device = Arc::new(SimDevice::new(seed + round));
        let (file, _) = open(&device).unwrap();
        let (content, error) = run(&file, &mut rng, Content::new(), 1..4);
        assert!(error.is_none(), "{error:?}");
        for call in 0..200 {
            device.schedule(device.call_count() + call, Fault::LyingSync);
        }
        let (newest, _) = run(&file, &mut rng, content, 4..7);
        device.clear_faults();
        device.crash();
        let Ok((file, _)) = open(&device) else { continue };
        for pid in crate::model::mapped(&file) {
            let mut page = Box::new(stillframe_pagepool::device::PageBuf::ZERO);
            if file.read_page(stillframe_pagepool::PageId(pid), &mut page.0).is_ok() {
                let is_known = (0..7).any(|version| page.0 == crate::model::page_of(pid, version).0);
                assert!(is_known, "page {pid} of {} is nothing that was ever written", newest.len());
            }
        }
    }
}
