//! Pages that are written back between checkpoints, and versions that are kept where they are, against a model: whatever
//! names a slot finds its content there.

use std::collections::BTreeMap;
use std::sync::Arc;

use stillframe_pagepool::device::{Fault, PageBuf, SimDevice};
use stillframe_pagepool::pagefile::{CheckpointWriter, PageFile, PageFileError, Spilled, WrittenBack};
use stillframe_pagepool::{PageId, PAGE_SIZE};

use crate::model::{
    check_accounting, check_content, has_content, header_of, open, page_of, random_pid, version_of,
    write_back, Content,
};

/// Pages of the workload; about as many more lie sparse.
const PAGE_COUNT: u32 = 120;

/// A checkpoint under way.
struct Running {
    writer: CheckpointWriter,
    after: Content,
    /// It could not be written to: there will be no commit.
    is_broken: bool,
}

/// A page file and what is to be in it. Versions are unique, but for 0, a page of zeros, which takes no slot.
struct Model {
    device: Arc<SimDevice>,
    file: Arc<PageFile>,
    rng: fastrand::Rng,
    durable: Content,
    /// Locations that the durable map does not have.
    located: Content,
    /// Written and neither set nor dropped.
    loose: Vec<(u32, u64, WrittenBack)>,
    versions: Vec<(u32, u64, Spilled)>,
    running: Option<Running>,
    /// After a commit that failed: what may be durable, too.
    in_doubt: Option<Content>,
    newest_version: u64,
    has_faults: bool,
    counts: Counts,
}

/// What a workload has done, to see that it does everything.
#[derive(Default, Debug)]
struct Counts {
    commits: u32,
    moves: u64,
    adoptions: u64,
    aborts: u32,
    no_space: u32,
    failures: u32,
    shrinkings: u32,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.commits += other.commits;
        self.moves += other.moves;
        self.adoptions += other.adoptions;
        self.aborts += other.aborts;
        self.no_space += other.no_space;
        self.failures += other.failures;
        self.shrinkings += other.shrinkings;
    }
}

impl Model {
    fn new(seed: u64, has_faults: bool) -> Model {
        let device = Arc::new(SimDevice::new(seed));
        let (file, _) = open(&device).unwrap();
        Model {
            device,
            file,
            rng: fastrand::Rng::with_seed(seed),
            durable: Content::new(),
            located: Content::new(),
            loose: Vec::new(),
            versions: Vec::new(),
            running: None,
            in_doubt: None,
            newest_version: 0,
            has_faults,
            counts: Counts::default(),
        }
    }

    fn pid(&mut self) -> u32 {
        random_pid(&mut self.rng, PAGE_COUNT)
    }

    /// Distinct pages with versions that nothing has had.
    fn batch(&mut self, most: u32) -> Vec<(u32, u64)> {
        let mut batch = BTreeMap::new();
        for _ in 0..1 + self.rng.u32(..most) {
            self.newest_version += 1;
            let version = if self.rng.u8(..12) == 0 { 0 } else { self.newest_version };
            batch.insert(self.pid(), version);
        }
        batch.into_iter().collect()
    }

    fn newest(&self, pid: u32) -> Option<u64> {
        self.located.get(&pid).or_else(|| self.durable.get(&pid)).copied()
    }

    /// An operation failed: as it may.
    fn note_error(&mut self, error: &PageFileError) {
        match error.is_no_space() {
            true => self.counts.no_space += 1,
            false => self.counts.failures += 1,
        }
        assert!(self.has_faults, "{error}");
        assert!(error.is_no_space() || self.file.failure().is_some(), "not sticky: {error}");
    }

    fn step(&mut self) {
        if self.has_faults && self.rng.u8(..15) == 0 {
            let call = self.device.call_count() + self.rng.u64(..20);
            let fault = if self.rng.u8(..12) == 0 { Fault::Error } else { Fault::NoSpace };
            self.device.schedule(call, fault);
        }
        match self.rng.u8(..20) {
            0..=2 => self.write_back_some(),
            3..=5 => self.place_some(),
            6 | 7 => self.forget_some(),
            8 | 9 => self.keep_one(),
            10 => self.spill_one(),
            11 | 12 => self.release_some(),
            13..=18 => self.step_checkpoint(),
            _ => self.free_and_shrink(),
        }
    }

    fn write_back_some(&mut self) {
        let most = if self.rng.u8(..4) == 0 { 150 } else { 20 };
        let batch = self.batch(most);
        let before = self.file.stats();
        match write_back(&self.file, &batch) {
            Ok(written) => {
                assert_eq!(written.len(), batch.len());
                for (written, (pid, version)) in written.into_iter().zip(batch) {
                    assert_eq!(written.page(), PageId(pid));
                    self.loose.push((pid, version, written));
                }
            }
            Err(error) => {
                self.note_error(&error);
                let after = self.file.stats();
                let grown = (after.file_bytes - before.file_bytes) / PAGE_SIZE as u64;
                assert_eq!(after.free_slots, before.free_slots + grown, "something stays taken");
            }
        }
    }

    /// Gives what was written to its page, or back.
    fn place_some(&mut self) {
        let at = self.rng.usize(..=self.loose.len());
        for (pid, version, written) in self.loose.split_off(at) {
            if self.rng.u8(..4) == 0 {
                self.file.drop_written(written);
            } else {
                self.file.set_location(PageId(pid), written);
                self.located.insert(pid, version);
            }
        }
    }

    fn forget_some(&mut self) {
        for _ in 0..self.rng.u32(..30) {
            let pid = self.pid();
            self.file.forget_location(PageId(pid));
            self.located.remove(&pid);
        }
    }

    fn keep_one(&mut self) {
        let pid = self.pid();
        let kept = self.file.keep_location(PageId(pid));
        assert_eq!(kept.is_some(), self.newest(pid).is_some(), "page {pid}");
        self.versions.extend(kept.zip(self.newest(pid)).map(|(kept, version)| (pid, version, kept)));
    }

    fn spill_one(&mut self) {
        let (pid, version) = self.batch(1)[0];
        match self.file.spill(&page_of(pid, version).0) {
            Ok(spilled) => self.versions.push((pid, version, spilled)),
            Err(stillframe_pagepool::pagefile::SpillError::File(error)) => self.note_error(&error),
            Err(error) => panic!("{error}"),
        }
    }

    fn release_some(&mut self) {
        for _ in 0..self.rng.usize(..4).min(self.versions.len()) {
            let at = self.rng.usize(..self.versions.len());
            self.file.release_spill(self.versions.swap_remove(at).2);
        }
    }

    fn step_checkpoint(&mut self) {
        let Some(mut running) = self.running.take() else {
            match self.file.begin_checkpoint() {
                Ok(writer) => {
                    let after = self.durable.clone();
                    self.running = Some(Running { writer, after, is_broken: false });
                }
                Err(error) => self.note_error(&error),
            }
            return;
        };
        match self.rng.u8(..8) {
            0..=2 => {
                let batch = self.batch(40);
                match crate::model::write_batch(&running.writer, &batch) {
                    Ok(()) => running.after.extend(batch),
                    Err(error) => {
                        self.note_error(&error);
                        running.is_broken = true;
                    }
                }
            }
            3 => {
                let (first, count) = (self.pid(), 1 + self.rng.u32(..10));
                if running.writer.free_pages(PageId(first), count).is_ok() {
                    running.after.retain(|pid, _| !(first..first + count).contains(pid));
                }
            }
            4 | 5 => self.adopt_some(&mut running),
            6 => return self.commit(running),
            _ if self.rng.u8(..4) == 0 => {
                self.counts.aborts += 1;
                return drop(running);
            }
            _ => {}
        }
        self.running = Some(running);
    }

    fn adopt_some(&mut self, running: &mut Running) {
        let first = self.rng.usize(..=self.versions.len());
        for (pid, version, kept) in &self.versions[first..] {
            if running.writer.adopt_page(PageId(*pid), kept).is_ok() {
                running.after.insert(*pid, *version);
            }
        }
        // As the pool does with pages that are clean: kept, adopted, released.
        for _ in 0..self.rng.u32(..20) {
            let pid = self.pid();
            let Some(kept) = self.file.keep_location(PageId(pid)) else { continue };
            if running.writer.adopt_page(PageId(pid), &kept).is_ok() {
                running.after.insert(pid, self.newest(pid).unwrap());
            }
            self.file.release_spill(kept);
        }
    }

    fn commit(&mut self, running: Running) {
        let bytes_before = self.file.stats().file_bytes;
        match running.writer.commit(header_of(&running.after)) {
            Ok(stats) => {
                assert!(!running.is_broken);
                self.counts.commits += 1;
                self.counts.moves += stats.moved_page_count;
                self.counts.adoptions += stats.adopted_page_count;
                self.counts.shrinkings += u32::from(self.file.stats().file_bytes < bytes_before);
                let before = std::mem::replace(&mut self.durable, running.after);
                // What the map has now is not located beside it.
                self.located.retain(|pid, version| {
                    let now = self.durable.get(pid);
                    now != Some(version) || (*version == 0 && before.get(pid) == now)
                });
            }
            Err(PageFileError::CheckpointIncomplete { .. }) => assert!(running.is_broken),
            Err(error) => {
                self.note_error(&error);
                self.in_doubt = (!error.is_no_space()).then_some(running.after);
            }
        }
    }

    /// Most is let go of at once, so that the file becomes too long: its pages are moved.
    fn free_and_shrink(&mut self) {
        if self.rng.u8(..6) != 0 {
            return;
        }
        let pids: Vec<u32> = self.located.keys().copied().collect();
        for pid in pids.into_iter().filter(|pid| pid % 7 != 0) {
            self.file.forget_location(PageId(pid));
            self.located.remove(&pid);
        }
        let (gone, kept) = std::mem::take(&mut self.versions).into_iter().partition(|(pid, ..)| pid % 9 != 0);
        let gone: Vec<_> = gone;
        gone.into_iter().for_each(|(_, _, version)| self.file.release_spill(version));
        self.versions = kept;
        if let Some(running) = &mut self.running {
            if running.writer.free_pages(PageId(30), 1 << 28).is_ok() {
                running.after.retain(|pid, _| !(30..30 + (1 << 28)).contains(pid));
            }
        }
    }

    /// All that can be read is what it is to be; a page is read from its location.
    fn check(&mut self) {
        let file = &self.file;
        let mut page = Box::new(PageBuf::ZERO);
        for (pid, version, kept) in &self.versions {
            file.read_spill(kept, &mut page.0).unwrap();
            assert!(page.0 == page_of(*pid, *version).0, "version {version} of page {pid}");
        }
        let mut pids: Vec<u32> = self.durable.keys().chain(self.located.keys()).copied().collect();
        pids.sort_unstable();
        pids.dedup();
        let mut bufs = vec![PageBuf([0xee; PAGE_SIZE]); pids.len()];
        let mut reads: Vec<_> =
            pids.iter().zip(&mut bufs).map(|(pid, buf)| (PageId(*pid), &mut buf.0)).collect();
        let errors = file.read_pages(&mut reads);
        assert!(errors.is_empty(), "{errors:?}");
        for (pid, bytes) in reads {
            let version = self.newest(pid.0).unwrap();
            let found = version_of(&PageBuf(*bytes));
            assert!(*bytes == page_of(pid.0, version).0, "page {} is {found}, not {version}", pid.0);
            assert!(file.has_content(pid));
            assert_eq!(file.is_mapped(pid), self.durable.contains_key(&pid.0));
        }
        let absent = self.rng.u32(..PAGE_COUNT);
        let reads = file.read_page(PageId(absent), &mut page.0).is_ok();
        assert_eq!(
            (reads, file.has_content(PageId(absent))),
            (self.newest(absent).is_some(), self.newest(absent).is_some())
        );
        let loose = self.loose.iter().filter(|(_, version, _)| *version != 0).count();
        let located = self.located.values().filter(|version| **version != 0).count();
        assert_eq!(file.stats().located_slots, (loose + located) as u64);
    }
}

impl Model {
    /// The disk as it is now, opened by somebody else, has the durable checkpoint.
    fn check_durable(&self) {
        let copy = Arc::new(SimDevice::from_image(1, self.device.image()));
        let (file, recovered) = open(&copy).unwrap();
        assert!(has_content(&file, &recovered, &self.durable), "{recovered:?}");
        check_content(&file, &self.durable);
        check_accounting(&file);
    }

    /// Lets go of everything: then only checkpoints name slots.
    fn let_go_of_all(&mut self) {
        self.running = None;
        self.loose.drain(..).for_each(|(_, _, written)| self.file.drop_written(written));
        self.versions.drain(..).for_each(|(_, _, version)| self.file.release_spill(version));
        std::mem::take(&mut self.located).keys().for_each(|pid| self.file.forget_location(PageId(*pid)));
        let stats = self.file.stats();
        assert_eq!((stats.located_slots, stats.spilled_slots, stats.pending_slots), (0, 0, 0));
        if self.file.failure().is_none() {
            check_accounting(&self.file);
        }
    }

    /// The machine stops. The last checkpoint is there, or the one whose commit failed; whatever else was named is free.
    fn crash(&mut self) {
        self.device.clear_faults();
        let in_flight = self.in_doubt.take();
        (self.loose, self.versions, self.located) = Default::default();
        self.running = None;
        self.device.crash();
        let (file, recovered) = open(&self.device).unwrap();
        let mut allowed = in_flight.into_iter().chain([std::mem::take(&mut self.durable)]);
        let found = allowed.find(|content| has_content(&file, &recovered, content));
        self.durable = found.expect("a checkpoint that was committed, or meant to be");
        self.file = file;
        check_content(&self.file, &self.durable);
        check_accounting(&self.file);
        let stats = self.file.stats();
        assert_eq!((stats.located_slots, stats.spilled_slots), (0, 0));
    }
}

#[test]
fn whatever_names_a_slot_finds_its_content_there() {
    let seed = stillframe_testkit::seed_or(41);
    let mut total = Counts::default();
    for round in 0..6 {
        let mut model = Model::new(seed + round, false);
        for step in 0..1500 {
            model.step();
            if step % 10 == 0 {
                model.check();
            }
            if step % 100 == 0 {
                model.check_durable();
            }
        }
        model.check();
        model.let_go_of_all();
        model.check_durable();
        total.add(&model.counts);
    }
    assert!(total.commits > 150 && total.adoptions > 1000 && total.aborts > 15, "{total:?}");
    assert!(total.moves > 0 && total.shrinkings > 0, "{total:?}");
}

#[test]
fn failing_devices_leave_nothing_taken_and_nothing_wrong() {
    let seed = stillframe_testkit::seed_or(42);
    let mut total = Counts::default();
    for round in 0..8 {
        let mut model = Model::new(seed + round, true);
        for step in 0..1500 {
            model.step();
            if step % 10 == 0 {
                model.device.clear_faults();
                model.check();
            }
            let is_over = model.file.failure().is_some() && model.rng.u8(..20) == 0;
            if is_over || model.rng.u16(..400) == 0 {
                if model.rng.bool() {
                    model.device.clear_faults();
                    model.let_go_of_all();
                }
                model.crash();
            }
        }
        total.add(&model.counts);
        model.device.clear_faults();
        model.let_go_of_all();
    }
    assert!(total.commits > 100 && total.no_space > 50 && total.failures > 20, "{total:?}");
}
