//! Pages written back: how long the file gets, what happens when the disk is full or bad, who waits, and many threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stillframe_pagepool::device::{DeviceOp, Fault, Gate, HookedDevice, PageBuf, SimDevice};
use stillframe_pagepool::pagefile::{CheckpointWriter, PageError, PageFile, PageFileError, Spilled};
use stillframe_pagepool::{PageId, PAGE_SIZE};

use crate::model::{
    check_accounting, check_content, checkpoint, has_content, header_of, open, page_of, write_back,
    write_batch, Content,
};

/// Pages written back with one call.
const BATCH: usize = 64;

fn slot_count(file: &PageFile) -> u64 {
    file.stats().file_bytes / PAGE_SIZE as u64
}

/// Writes pages back and makes that their locations.
fn locate(file: &PageFile, located: &mut Content, pages: &[(u32, u64)]) {
    for batch in pages.chunks(BATCH) {
        for ((pid, version), written) in batch.iter().zip(write_back(file, batch).unwrap()) {
            file.set_location(PageId(*pid), written);
            located.insert(*pid, *version);
        }
    }
}

fn check_located(file: &PageFile, located: &Content) {
    let mut page = Box::new(PageBuf::ZERO);
    for (pid, version) in located {
        file.read_page(PageId(*pid), &mut page.0).unwrap();
        assert!(page.0 == page_of(*pid, *version).0, "page {pid} is not version {version}");
    }
}

/// The checkpoint has all pages where they have been written back.
fn adopt_all(file: &Arc<PageFile>, located: &mut Content, content: &mut Content) {
    let writer = file.begin_checkpoint().unwrap();
    for (pid, version) in std::mem::take(located) {
        let kept = file.keep_location(PageId(pid)).unwrap();
        writer.adopt_page(PageId(pid), &kept).unwrap();
        file.release_spill(kept);
        content.insert(pid, version);
    }
    let adopted = writer.commit(header_of(content)).unwrap().adopted_page_count;
    assert!(adopted > 0 && file.stats().located_slots == 0);
}

fn random_pages(rng: &mut fastrand::Rng, page_count: u32, count: usize, version: u64) -> Vec<(u32, u64)> {
    let pages: Content = (0..count).map(|_| (1 + rng.u32(..page_count), version)).collect();
    pages.into_iter().collect()
}

/// Without any checkpoint: what is loaded takes its length, and what is overwritten at random goes where something was.
#[test]
fn write_backs_alone_keep_the_file_short() {
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed_or(51));
    let (file, _) = open(&Arc::new(SimDevice::new(1))).unwrap();
    let mut located = Content::new();
    let pages: Vec<_> = (1..4001).map(|pid| (pid, 1)).collect();
    locate(&file, &mut located, &pages);
    assert!(slot_count(&file) <= 4200, "{:?}", file.stats());
    for version in 2..200 {
        let pages = random_pages(&mut rng, 4000, 100, version);
        locate(&file, &mut located, &pages);
        // What is written has two places until it is set.
        assert!(slot_count(&file) <= (4000 + 2 * BATCH as u64) * 16 / 10 + 256, "{:?}", file.stats());
    }
    check_located(&file, &located);
    check_accounting(&file);
}

/// Beside checkpoints that write nothing, as all has been written back: one file for both.
#[test]
fn write_backs_beside_checkpoints_keep_the_file_at_twice_the_data() {
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed_or(52));
    let device = Arc::new(SimDevice::new(1));
    let (file, _) = open(&device).unwrap();
    let (mut located, mut content) = (Content::new(), Content::new());
    let pages: Vec<_> = (1..4001).map(|pid| (pid, 1)).collect();
    locate(&file, &mut located, &pages);
    for version in 2..60 {
        let count = rng.usize(50..400);
        let pages = random_pages(&mut rng, 4000, count, version);
        locate(&file, &mut located, &pages);
        check_located(&file, &located);
        if version % 3 == 0 {
            adopt_all(&file, &mut located, &mut content);
            check_accounting(&file);
        }
        // What is located counts twice until a checkpoint has it.
        assert!(slot_count(&file) <= (4000 + 1200) * 16 / 10 + 300, "{:?}", file.stats());
    }
    adopt_all(&file, &mut located, &mut content);
    check_content(&file, &content);
    device.crash();
    let (file, recovered) = open(&device).unwrap();
    assert!(has_content(&file, &recovered, &content), "{recovered:?}");
    check_content(&file, &content);
}

/// A file that is too long shrinks although its last slots were taken by write-backs.
#[test]
fn a_file_of_which_most_is_forgotten_shrinks() {
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed_or(53));
    let (file, _) = open(&Arc::new(SimDevice::new(1))).unwrap();
    let (mut located, mut content) = (Content::new(), Content::new());
    let pages: Vec<_> = (1..8001).map(|pid| (pid, 1)).collect();
    locate(&file, &mut located, &pages);
    for pid in (1..8001).filter(|pid| pid % 10 != 0) {
        file.forget_location(PageId(pid));
        located.remove(&pid);
    }
    let kept: Vec<_> =
        (4000..8001).step_by(400).map(|pid| (pid, file.keep_location(PageId(pid)).unwrap())).collect();
    for version in 2..40 {
        let pids: Vec<u32> = located.keys().chain(content.keys()).copied().collect();
        let some: Content = (0..50).map(|_| (pids[rng.usize(..pids.len())], version)).collect();
        locate(&file, &mut located, &some.into_iter().collect::<Vec<_>>());
        adopt_all(&file, &mut located, &mut content);
        if version == 20 {
            assert!(slot_count(&file) > 4000, "versions are in the way: {:?}", file.stats());
        }
        if version == 30 {
            break;
        }
    }
    for (pid, version) in kept {
        let mut page = page_of(0, 0);
        file.read_spill(&version, &mut page.0).unwrap();
        assert!(page.0 == page_of(pid, 1).0, "version of page {pid}");
        file.release_spill(version);
    }
    for version in 100..130 {
        let pages = random_pages(&mut rng, 8000, 5, version);
        let pages: Vec<_> = pages.into_iter().map(|(pid, version)| (pid - pid % 10 + 10, version)).collect();
        checkpoint(&file, &mut content, &pages);
    }
    assert!(slot_count(&file) <= 800 * 22 / 10 + 600, "{:?}", file.stats());
    check_content(&file, &content);
    check_accounting(&file);
}

/// A full disk: every free slot is used, then a clear error, and what is forgotten can be used again.
#[test]
fn a_full_disk_refuses_write_backs_and_nothing_else() {
    let device = Arc::new(SimDevice::new(1));
    let (file, _) = open(&device).unwrap();
    let mut content = Content::new();
    for version in 1..3 {
        checkpoint(&file, &mut content, &(1..301).map(|pid| (pid, version)).collect::<Vec<_>>());
    }
    let previous_slots = file.stats().previous_slots;
    device.set_capacity(1000 * PAGE_SIZE as u64);
    let mut located = Content::new();
    let error = (0..20).find_map(|round| {
        let pages: Vec<_> = (1000 + round * 50..1050 + round * 50).map(|pid| (pid, 5)).collect();
        let written = write_back(&file, &pages);
        let failed = written.as_ref().err().cloned();
        for ((pid, version), written) in pages.iter().zip(written.into_iter().flatten()) {
            file.set_location(PageId(*pid), written);
            located.insert(*pid, *version);
        }
        failed
    });
    let error = error.expect("1000 pages do not fit");
    assert!(error.is_no_space() && file.failure().is_none(), "{error}");
    assert!(file.stats().free_slots < 50, "{:?}", file.stats());
    assert_eq!(file.stats().previous_slots, previous_slots, "not a write-back's to give up");
    assert_eq!(file.stats().located_slots, located.len() as u64, "what did not fit keeps nothing");
    check_accounting(&file);
    for pid in 3000.. {
        match write_back(&file, &[(pid, 6)]) {
            Ok(written) => written.into_iter().for_each(|written| file.set_location(PageId(pid), written)),
            Err(error) => {
                assert!(error.is_no_space(), "{error}");
                break;
            }
        }
        located.insert(pid, 6);
    }
    assert!(file.stats().free_slots == 0 && slot_count(&file) == 1000, "{:?}", file.stats());
    let gone: Vec<u32> = located.keys().copied().filter(|pid| pid % 3 == 0).collect();
    gone.iter().for_each(|pid| file.forget_location(PageId(*pid)));
    located.retain(|pid, _| !gone.contains(pid));
    let again: Vec<_> = gone.iter().map(|pid| (pid + 10_000, 8)).collect();
    locate(&file, &mut located, &again);
    assert_eq!(file.stats().free_slots, 0);
    check_located(&file, &located);
    check_content(&file, &{
        let mut all = content.clone();
        all.retain(|pid, _| !located.contains_key(pid));
        all
    });
}

/// A failed write is sticky: nothing more is written, and what is there is read.
#[test]
fn a_failed_write_back_is_sticky_and_gives_its_slots_back() {
    let device = Arc::new(SimDevice::new(1));
    let (file, _) = open(&device).unwrap();
    let (mut located, mut content) = (Content::new(), Content::new());
    checkpoint(&file, &mut content, &[(1, 1), (2, 1)]);
    locate(&file, &mut located, &[(1, 2), (7, 3)]);
    let free_slots = file.stats().free_slots;
    device.schedule(device.call_count(), Fault::Error);
    let error = write_back(&file, &[(1, 4), (8, 4)]).unwrap_err();
    assert!(matches!(error, PageFileError::Failed { .. }), "{error}");
    assert_eq!(file.stats().free_slots, free_slots);
    assert!(matches!(write_back(&file, &[(9, 5)]), Err(PageFileError::Failed { .. })));
    check_located(&file, &located);
    let kept = file.keep_location(PageId(7)).expect("it has been written back");
    file.forget_location(PageId(7));
    let mut page = page_of(0, 0);
    file.read_spill(&kept, &mut page.0).unwrap();
    assert!(page.0 == page_of(7, 3).0);
    file.release_spill(kept);
    assert!(matches!(file.read_page(PageId(7), &mut page.0), Err(PageError::Unmapped { .. })));
    assert_eq!(file.stats().free_slots, free_slots + 1);
    let too_large = file.write_back(&[(PageId(1 << 30), &page.0)]);
    assert!(matches!(too_large, Err(PageFileError::Failed { .. })));
}

#[test]
fn damage_at_a_location_is_reported_with_its_place() {
    let device = Arc::new(SimDevice::new(1));
    let (file, _) = open(&device).unwrap();
    let (mut located, mut content) = (Content::new(), Content::new());
    checkpoint(&file, &mut content, &[(1, 1)]);
    locate(&file, &mut located, &[(1, 2), (5, 2)]);
    // Scrubbing looks at what is durable, wherever the page is read.
    let durable_slot = file.slot_of(PageId(1)).unwrap().offset();
    device.corrupt(durable_slot, 1, |bytes| bytes[0] ^= 8);
    assert_eq!(file.verify_slots(&[PageId(1)]).len(), 1);
    check_located(&file, &located);
    device.corrupt(durable_slot, 1, |bytes| bytes[0] ^= 8);
    let image = device.image();
    let is_there = |found: &[u8]| found == page_of(1, 2).0;
    let slot = image.chunks(PAGE_SIZE).position(is_there).expect("it has been written back") as u64;
    device.corrupt(slot * PAGE_SIZE as u64 + 50, 1, |bytes| bytes[0] ^= 8);
    let mut pages = [page_of(0, 0), page_of(0, 0)];
    let [first, second] = &mut pages;
    let mut reads = [(PageId(1), &mut first.0), (PageId(5), &mut second.0)];
    let errors = file.read_pages(&mut reads);
    let error = errors.first().expect("it is damaged").to_string();
    assert!(errors.len() == 1 && error.contains(&format!("page 1 at slot {slot} ")), "{error}");
    assert!(file.verify_slots(&[PageId(1)]).is_empty());
    file.forget_location(PageId(1));
    check_content(&file, &{
        file.forget_location(PageId(5));
        content
    });
}

/// Page numbers beyond the limit are refused, and have no content.
#[test]
fn pages_beyond_the_limit_are_not_written_back() {
    let (file, _) = open(&Arc::new(SimDevice::new(1))).unwrap();
    for pid in [1 << 30, u32::MAX] {
        let error = write_back(&file, &[(1, 1), (pid, 1)]).unwrap_err();
        assert!(matches!(error, PageFileError::PageIdTooLarge { .. }), "{error}");
        assert!(!file.has_content(PageId(pid)) && file.keep_location(PageId(pid)).is_none());
        file.forget_location(PageId(pid));
    }
    let mut located = Content::new();
    locate(&file, &mut located, &[((1 << 30) - 1, 1)]);
    check_located(&file, &located);
    assert_eq!(file.stats().located_slots, 1);
}

/// While a write-back waits for a longer file, locations are set, forgotten and kept.
#[test]
fn nobody_else_waits_while_the_file_grows_for_a_write_back() {
    let device = HookedDevice::new(SimDevice::new(1));
    let (file, _) = PageFile::create_or_open(device.clone()).unwrap();
    let mut located = Content::new();
    locate(&file, &mut located, &(1..200).map(|pid| (pid, 1)).collect::<Vec<_>>());
    let mut ready = write_back(&file, &[(300, 2), (301, 2)]).unwrap();
    let gate = Arc::new(Gate::default());
    let passed = gate.clone();
    device.before_op(Arc::new(move |op| {
        if op == DeviceOp::Allocate {
            passed.pass();
        }
    }));
    let (dropped, set) = (ready.remove(0), ready.remove(0));
    std::thread::scope(|scope| {
        let file = &file;
        let growing = scope.spawn(move || {
            let pages: Vec<_> = (1000..2000).map(|pid| (pid, 3)).collect();
            write_back(file, &pages).unwrap()
        });
        gate.wait_for_visitor();
        let (sender, receiver) = channel();
        scope.spawn(move || {
            file.set_location(PageId(301), set);
            file.drop_written(dropped);
            let kept = file.keep_location(PageId(5)).expect("it has been written back");
            for pid in 1..100 {
                file.forget_location(PageId(pid));
            }
            assert!(write_back(file, &[(7, 0)]).is_ok_and(|zeros| zeros.len() == 1));
            let mut page = page_of(0, 0);
            file.read_spill(&kept, &mut page.0).unwrap();
            assert!(page.0 == page_of(5, 1).0);
            file.release_spill(kept);
            sender.send(file.stats().located_slots).unwrap();
        });
        let answer = receiver.recv_timeout(Duration::from_secs(15));
        gate.open();
        let written = growing.join().unwrap();
        assert!(answer.is_ok(), "it waits for the disk");
        for (pid, written) in (1000..).zip(written) {
            file.set_location(PageId(pid), written);
        }
    });
    located.retain(|pid, _| *pid >= 100);
    located.insert(301, 2);
    located.extend((1000..2000).map(|pid| (pid, 3)));
    check_located(&file, &located);
    check_accounting(&file);
}

/// A page of [`Pool`].
struct PoolPage {
    /// Version of the content in memory; whoever has this locked may change it.
    version: Mutex<u64>,
    /// Twice that version, and 1 if its location holds it: raised before the location is forgotten.
    epoch: AtomicU64,
}

/// What the pool does with a page file, with versions for contents.
struct Pool {
    file: Arc<PageFile>,
    pages: Vec<PoolPage>,
    is_over: AtomicBool,
    /// Versions that have been kept and found right.
    kept_count: AtomicU64,
    dropped_count: AtomicU64,
}

impl Pool {
    fn random_pid(&self, rng: &mut fastrand::Rng) -> u32 {
        rng.u32(1..self.pages.len() as u32)
    }

    fn epoch(&self, pid: u32) -> u64 {
        self.pages[pid as usize].epoch.load(Ordering::Acquire)
    }

    /// Changes a page.
    fn dirty(&self, pid: u32) {
        let page = &self.pages[pid as usize];
        let mut version = page.version.lock().unwrap();
        *version += 1;
        page.epoch.store(*version * 2, Ordering::Release);
        self.file.forget_location(PageId(pid));
    }

    /// Writes pages back that others may be changing meanwhile.
    fn clean(&self, pids: &[u32]) {
        let copies: Vec<_> =
            pids.iter().map(|pid| (*pid, *self.pages[*pid as usize].version.lock().unwrap())).collect();
        let written = write_back(&self.file, &copies).unwrap();
        for ((pid, copied), written) in copies.into_iter().zip(written) {
            let page = &self.pages[pid as usize];
            let version = page.version.lock().unwrap();
            if *version == copied {
                self.file.set_location(PageId(pid), written);
                page.epoch.store(*version * 2 + 1, Ordering::Release);
            } else {
                self.file.drop_written(written);
                self.dropped_count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Keeps a page as it is at its location, if it is clean.
    fn keep(&self, pid: u32) -> Option<(u64, Spilled)> {
        let epoch = self.epoch(pid);
        let kept = self.file.keep_location(PageId(pid))?;
        if epoch % 2 == 0 || self.epoch(pid) != epoch {
            self.file.release_spill(kept);
            return None;
        }
        Some((epoch / 2, kept))
    }

    fn check_kept(&self, pid: u32, version: u64, kept: &Spilled) {
        let mut page = page_of(0, 0);
        self.file.read_spill(kept, &mut page.0).unwrap();
        assert!(page.0 == page_of(pid, version).0, "version {version} of page {pid}");
    }

    fn run_evictor(&self, mut rng: fastrand::Rng) {
        while !self.is_over.load(Ordering::Relaxed) {
            (0..rng.u32(..30)).for_each(|_| self.dirty(self.random_pid(&mut rng)));
            let pids: Content = (0..rng.u32(..80)).map(|_| (self.random_pid(&mut rng), 0)).collect();
            self.clean(&pids.into_keys().collect::<Vec<_>>());
        }
    }

    /// Reads pages from their locations, and keeps versions for some time.
    fn run_reader(&self, mut rng: fastrand::Rng) {
        let (mut page, mut versions) = (page_of(0, 0), Vec::new());
        while !self.is_over.load(Ordering::Relaxed) {
            let pid = self.random_pid(&mut rng);
            let epoch = self.epoch(pid);
            let read = self.file.read_page(PageId(pid), &mut page.0);
            if epoch % 2 == 1 && self.epoch(pid) == epoch {
                read.unwrap();
                assert!(page.0 == page_of(pid, epoch / 2).0, "page {pid} is not version {}", epoch / 2);
            }
            versions.extend(self.keep(pid).map(|(version, kept)| (pid, version, kept)));
            if versions.len() > 50 {
                let (pid, version, kept) = versions.swap_remove(rng.usize(..versions.len()));
                self.check_kept(pid, version, &kept);
                self.file.release_spill(kept);
                self.kept_count.fetch_add(1, Ordering::Relaxed);
            }
        }
        for (pid, version, kept) in versions {
            self.check_kept(pid, version, &kept);
            self.file.release_spill(kept);
        }
    }

    /// Adds a page to a checkpoint: where it lies, or written. Returns its version.
    fn stream(&self, writer: &CheckpointWriter, pid: u32) -> u64 {
        if let Some((version, kept)) = self.keep(pid) {
            writer.adopt_page(PageId(pid), &kept).unwrap();
            self.file.release_spill(kept);
            return version;
        }
        let version = *self.pages[pid as usize].version.lock().unwrap();
        write_batch(writer, &[(pid, version)]).unwrap();
        version
    }
}

/// Two threads dirty pages and write them back, two read and keep versions, and checkpoints take what is there.
#[test]
fn threads_write_back_beside_readers_and_checkpoints() {
    let seed = stillframe_testkit::seed_or(54);
    let device = Arc::new(SimDevice::new(seed));
    let (file, _) = open(&device).unwrap();
    let page = || PoolPage { version: Mutex::new(1), epoch: AtomicU64::new(2) };
    let pool = Pool {
        file: file.clone(),
        pages: (0..200).map(|_| page()).collect(),
        is_over: AtomicBool::new(false),
        kept_count: AtomicU64::new(0),
        dropped_count: AtomicU64::new(0),
    };
    let mut adopted_count = 0;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (pool, rng) = (&pool, fastrand::Rng::with_seed(seed + thread));
            match thread % 2 {
                0 => scope.spawn(move || pool.run_evictor(rng)),
                _ => scope.spawn(move || pool.run_reader(rng)),
            };
        }
        // Also if a check fails: the threads are waited for.
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..60 {
                let writer = file.begin_checkpoint().unwrap();
                let content: Content = (1..200).map(|pid| (pid, pool.stream(&writer, pid))).collect();
                if round % 5 == 4 {
                    drop(writer);
                    continue;
                }
                adopted_count += writer.commit(header_of(&content)).unwrap().adopted_page_count;
                let copy = Arc::new(SimDevice::from_image(1, device.image()));
                let (found, recovered) = open(&copy).unwrap();
                assert!(has_content(&found, &recovered, &content), "{recovered:?}");
                check_content(&found, &content);
            }
        }));
        pool.is_over.store(true, Ordering::Relaxed);
        checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let (kept_count, dropped_count) = (pool.kept_count.into_inner(), pool.dropped_count.into_inner());
    assert!(
        adopted_count > 100 && kept_count > 100 && dropped_count > 10,
        "{adopted_count} {kept_count} {dropped_count}"
    );
    (1..200).for_each(|pid| file.forget_location(PageId(pid)));
    assert_eq!((file.stats().located_slots, file.stats().spilled_slots), (0, 0));
    check_accounting(&file);
}
