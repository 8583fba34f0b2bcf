//! Checkpoints of a pool at work into a page file whose device fails now and then, compared after a crash.

use std::sync::Arc;
use std::time::Duration;

use stillframe_pagepool::device::{Device, FaultRates, PageBuf, SimDevice};
use stillframe_pagepool::pagefile::{UserHeader, USER_HEADER_BYTES};
use stillframe_pagepool::snapshot::Progress;
use stillframe_pagepool::{CheckpointError, PageId, Pool, PoolOptions, SnapshotKind, View, PAGE_SIZE};
use stillframe_testkit::within;

use crate::support::*;
use crate::writers::*;

/// What no page has in it, so that one that was not read shows.
const JUNK: [u8; PAGE_SIZE] = [0xA5; PAGE_SIZE];

/// What a checkpoint should hold.
#[derive(Clone, Default)]
struct Saved {
    round: u8,
    model: Model,
}

impl Saved {
    fn header(round: u8) -> UserHeader {
        [round; USER_HEADER_BYTES]
    }
}

/// A pool over a device that crashes between the runs.
struct Machine {
    options: PoolOptions,
    rng: fastrand::Rng,
    device: Arc<SimDevice>,
    round: u8,
    /// The last checkpoint that has completed.
    saved: Saved,
    /// One that failed when its superblock may have been on its way.
    in_doubt: Option<Saved>,
    /// A write or a sync may have failed since the pool was opened. Where it was not one of the checkpoint's, the next one may
    /// be the first that is told.
    may_have_failed: bool,
}

impl Machine {
    fn new(options: PoolOptions, seed: u64) -> Machine {
        let rng = fastrand::Rng::with_seed(seed);
        let device = Arc::new(SimDevice::new(seed));
        let (saved, in_doubt, may_have_failed) = (Saved::default(), None, false);
        Machine { options, rng, device, round: 0, saved, in_doubt, may_have_failed }
    }

    /// Opens what is there and compares it with the checkpoint that it is; then writers go to work, while pages are
    /// still brought in, and checkpoints follow.
    fn run(&mut self) {
        let device: Arc<dyn Device> = self.device.clone();
        let (pool, recovered) = Pool::open(device, &self.options).unwrap();
        self.may_have_failed = false;
        let doubtful =
            self.in_doubt.take().filter(|doubt| recovered.user_header == Saved::header(doubt.round));
        self.saved = doubtful.unwrap_or_else(|| self.saved.clone());
        assert_eq!(recovered.user_header, Saved::header(self.saved.round));
        if self.rng.bool() {
            compare(&pool, &self.saved.model);
        }
        let model = SharedModel::default();
        model.lock().clone_from(&self.saved.model);
        let writers = Writers::start(&pool, &model, self.rng.u64(..));
        let mut view = None;
        for _ in 0..4 {
            // Where pages lie in frames, they move meanwhile.
            pool.purge();
            let is_good = self.checkpoint(&pool, &model);
            view = match view.take() {
                None => Some(open_view(&pool, &model)),
                Some(seen) => compare_view(seen, is_good, &mut self.rng),
            };
            if pool.file().unwrap().failure().is_some() {
                break;
            }
        }
        drop(view);
        writers.stop();
        println!("moved: {:?}", pool.metrics().relocated_page_count);
        let may_hold = self.options.snapshot_kind.holds_between_streams();
        assert!(may_hold || pool.stats().snapshot_held_bytes == 0);
        assert_eq!(pool.stats().allocated_pages, model.lock().pages.len() as u64);
        if let Some(limit) = self.options.memory_pages {
            check_memory(&pool, limit);
        }
        compare(&pool, &model.lock());
        drop(pool);
        self.device.crash();
    }

    /// Takes a checkpoint, which may fail. Whether the device was good meanwhile.
    fn checkpoint(&mut self, pool: &Arc<Pool>, model: &SharedModel) -> bool {
        self.round += 1;
        let round = self.round;
        let rates = match self.rng.u32(..8) {
            0 | 1 => FaultRates { no_space: 0.2, ..FaultRates::default() },
            2 => FaultRates { write_error: 0.1, ..FaultRates::default() },
            3 => FaultRates { sync_error: 0.3, ..FaultRates::default() },
            _ => FaultRates::default(),
        };
        self.may_have_failed |= rates.write_error + rates.sync_error > 0.0;
        let mut is_good = rates.no_space + rates.write_error + rates.sync_error == 0.0;
        self.device.set_rates(rates);
        let (at_cut, hook) = at_cut(model);
        let header = move || {
            hook();
            Ok(Saved::header(round))
        };
        let result = pool.checkpoint(header, &Progress::default());
        self.device.clear_faults();
        let attempted = Saved { round, model: at_cut.lock().clone() };
        match result {
            Ok(_) => self.saved = attempted,
            Err(CheckpointError::Io(reason)) => {
                let is_of_earlier = self.may_have_failed && reason.contains("since an earlier error");
                assert!(!is_good || is_of_earlier, "{reason}");
                is_good = false;
                self.in_doubt = pool.file().unwrap().failure().map(|_| attempted);
            }
            Err(other) => panic!("{other}"),
        }
        is_good
    }
}

/// As much is in memory as may be. Where the file takes nothing any more, everything may be from now on.
fn check_memory(pool: &Pool, limit: u64) {
    if pool.file().unwrap().failure().is_some() {
        return pool.set_memory_pages(None);
    }
    // A file that has not taken pages is tried again before long; until then those that are read go beyond the limit.
    let is_held = within(Duration::from_secs(20), || {
        pool.wait_for_room();
        pool.stats().resident_pages <= limit
    });
    let (resident, metrics) = (pool.stats().resident_pages, pool.metrics());
    let counts = [&metrics.evicted_page_count, &metrics.written_back_page_count, &metrics.loaded_page_count];
    println!("evicted, written back, loaded: {counts:?}");
    assert!(is_held, "{resident} pages are in memory, {limit} may be");
}

fn compare(pool: &Pool, model: &Model) {
    for (&head, &count) in &model.objects {
        for index in 0..count {
            let page = PageId(head.0 + index);
            latch(pool, || {
                let guard = pool.shared(head)?;
                let is_same = guard.object_page(index)? == &model.pages[&page].bytes();
                assert!(is_same, "{page:?} differs");
                Ok(())
            });
        }
    }
}

fn open_view(pool: &Arc<Pool>, model: &SharedModel) -> (View, SharedModel) {
    let (at_view, hook) = at_cut(model);
    (pool.view_after(hook).unwrap(), at_view)
}

/// A view that has lost pages because they could not be spilled says so; what it shows is right, page by page and many at
/// once, while writers go on.
fn compare_view(
    (view, model): (View, SharedModel),
    is_good: bool,
    rng: &mut fastrand::Rng,
) -> Option<(View, SharedModel)> {
    let model = model.lock();
    let mut pages: Vec<PageId> = model.pages.keys().copied().collect();
    rng.shuffle(&mut pages);
    let mut rest = &pages[..];
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rng.usize(1..=rest.len().min(300)));
        let mut bufs = vec![PageBuf(JUNK); now.len()];
        let results = view.read_pages(&mut now.iter().copied().zip(&mut bufs).collect::<Vec<_>>());
        assert_eq!(results.len(), now.len());
        for ((page, result), PageBuf(bytes)) in now.iter().zip(results).zip(&bufs) {
            let mut alone = JUNK;
            if rng.u8(..) == 0 {
                let again = view.read_page(*page, &mut alone);
                // A writer may come in between, whose capture the file does not take.
                assert!(again.is_ok() == result.is_ok() || !is_good, "{page:?} alone: {again:?}");
                assert!(again.is_err() || result.is_err() || alone == *bytes, "{page:?} alone");
            }
            match result {
                Ok(()) => assert!(*bytes == model.pages[page].bytes(), "{page:?} in a view"),
                Err(error) => assert!(!is_good, "{error}"),
            }
        }
        rest = later;
    }
    None
}

fn crashes(kind: SnapshotKind, budget: u64) {
    crashes_with(options(kind, budget));
}

fn crashes_with(options: PoolOptions) {
    seeds(|seed| {
        let mut machine = Machine::new(options.clone(), seed);
        (0..5).for_each(|_| machine.run());
    });
}

/// Most of the data is in the page file alone, and pages come and go all the time.
#[test]
fn epoch_checkpoints_in_a_tenth_of_the_memory() {
    for budget in [0, 4 << 20] {
        crashes_with(PoolOptions { memory_pages: Some(200), ..options(SnapshotKind::Epoch, budget) });
    }
}

#[test]
fn epoch_checkpoints() {
    crashes(SnapshotKind::Epoch, 4 << 20);
}

#[test]
fn epoch_checkpoints_over_budget() {
    crashes(SnapshotKind::Epoch, 0);
}

/// All the others.
#[test]
fn checkpoints_of_each_algorithm() {
    kinds().filter(|&kind| kind != SnapshotKind::Epoch).for_each(|kind| crashes(kind, 1 << 20));
}

/// Whoever has nothing to copy populates no frames for it.
#[test]
fn a_cut_has_the_frames_that_its_algorithm_wishes_for() {
    for kind in kinds() {
        let wants_frames = kind == SnapshotKind::Epoch;
        let device: Arc<dyn Device> = Arc::new(SimDevice::new(1));
        let (pool, _) = Pool::open(device, &options(kind, 1 << 20)).unwrap();
        drop(pool.allocate().unwrap());
        let mut at_cut = 0;
        let note = || at_cut = pool.stats().snapshot_resident_bytes;
        pool.checkpoint_telling(|| Ok(Saved::header(1).into()), note, |_| Ok(()), &Progress::default())
            .unwrap();
        assert_eq!(at_cut > 0, wants_frames, "{kind}");
    }
}
