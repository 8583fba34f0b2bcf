//! One contract for every snapshot algorithm: pictures equal a model cloned at the cut, with writers running.
//!
//! Replay a failure with `STILLFRAME_SEED=<seed>`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use stillframe_pagepool::snapshot::{Progress, Sink};
use stillframe_pagepool::{
    CheckpointError, Epoch, Layout, PageBytes, PageId, Pool, PoolOptions, SnapshotKind, PAGE_SIZE,
};

/// What a page of the model holds: a fill byte and eight patched bytes at an offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Model {
    fill: u8,
    patch_at: u16,
    patch: u64,
}

impl Model {
    fn bytes(&self) -> PageBytes {
        let mut page = [self.fill; PAGE_SIZE];
        let at = self.patch_at as usize;
        page[at..at + 8].copy_from_slice(&self.patch.to_le_bytes());
        page
    }
}

type Pages = BTreeMap<PageId, Model>;

/// An image of the pool, kept by a sink; checks that a stream emits no page twice.
#[derive(Default)]
struct Image {
    pages: Mutex<BTreeMap<PageId, PageBytes>>,
    this_stream: Mutex<BTreeMap<PageId, ()>>,
}

impl Image {
    fn once(&self, page: PageId) {
        assert!(self.this_stream.lock().insert(page, ()).is_none(), "{page:?} emitted twice");
    }
}

impl Sink for Image {
    fn write_pages(&self, pages: &[(PageId, &PageBytes)]) -> Result<(), CheckpointError> {
        for (page, bytes) in pages {
            self.once(*page);
            self.pages.lock().insert(*page, **bytes);
        }
        Ok(())
    }

    fn free_page(&self, page: PageId) -> Result<(), CheckpointError> {
        self.once(page);
        self.pages.lock().remove(&page);
        Ok(())
    }
}

fn seed() -> u64 {
    let seed = std::env::var("STILLFRAME_SEED").ok().and_then(|s| s.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("STILLFRAME_SEED={seed}");
    seed
}

fn options(kind: SnapshotKind, snapshot_memory_bytes: u64) -> PoolOptions {
    PoolOptions { layout: Layout::TINY, snapshot_kind: kind, snapshot_memory_bytes, ..PoolOptions::default() }
}

/// A writer with pages of its own: allocates, patches, rewrites, frees. Objects have 1, 16 or 40 pages.
struct Writer {
    pool: Arc<Pool>,
    rng: fastrand::Rng,
    objects: Vec<(PageId, u32)>,
    model: Arc<Mutex<Pages>>,
}

impl Writer {
    fn step(&mut self) {
        match self.rng.u32(..100) {
            0..=9 => self.allocate(),
            10..=14 => self.free(),
            15..=19 => self.read(),
            _ => self.write(),
        }
    }

    fn allocate(&mut self) {
        let count = *self.rng.choice(&[1, 1, 1, 16, 40]).unwrap();
        let Ok(mut guard) = self.pool.allocate_object(count, count) else { return };
        let mut model = self.model.lock();
        for index in 0..count {
            let new = Model { fill: self.rng.u8(..), patch_at: 0, patch: self.rng.u64(..) };
            guard.object_page_mut(index).unwrap().copy_from_slice(&new.bytes());
            model.insert(PageId(guard.id().0 + index), new);
        }
        self.objects.push((guard.id(), count));
    }

    fn free(&mut self) {
        if self.objects.is_empty() {
            return;
        }
        let (head, count) = self.objects.swap_remove(self.rng.usize(..self.objects.len()));
        let guard = self.pool.exclusive(head).unwrap();
        let mut model = self.model.lock();
        (0..count).for_each(|index| assert!(model.remove(&PageId(head.0 + index)).is_some()));
        self.pool.free(guard, count);
    }

    fn write(&mut self) {
        let Some(&(head, count)) = self.rng.choice(&self.objects) else { return };
        let index = self.rng.u32(..count);
        let mut guard = self.pool.exclusive(head).unwrap();
        let page = guard.object_page_mut(index).unwrap();
        let mut models = self.model.lock();
        let model = models.get_mut(&PageId(head.0 + index)).unwrap();
        if self.rng.bool() {
            *model = Model { fill: self.rng.u8(..), patch_at: self.rng.u16(..4088), patch: self.rng.u64(..) };
            page.copy_from_slice(&model.bytes());
        } else {
            model.patch = self.rng.u64(..);
            let at = model.patch_at as usize;
            page[at..at + 8].copy_from_slice(&model.patch.to_le_bytes());
        }
    }

    fn read(&mut self) {
        let Some(&(head, count)) = self.rng.choice(&self.objects) else { return };
        let index = self.rng.u32(..count);
        let guard = self.pool.shared(head).unwrap();
        let expected = self.model.lock()[&PageId(head.0 + index)];
        assert!(guard.object_page(index).unwrap() == &expected.bytes(), "a read sees the latest write");
    }
}

fn compare(image: &BTreeMap<PageId, PageBytes>, model: &Pages, what: &str) {
    let missing: Vec<_> = model.keys().filter(|page| !image.contains_key(page)).collect();
    let extra: Vec<_> = image.keys().filter(|page| !model.contains_key(page)).collect();
    assert!(missing.is_empty() && extra.is_empty(), "{what}: missing {missing:?}, extra {extra:?}");
    for (page, expected) in model {
        assert!(image[page] == expected.bytes(), "{what}: {page:?} differs from the model at the cut");
    }
}

/// Runs writers while `pictures` takes pictures, then checks that nothing is held.
fn with_writers(
    kind: SnapshotKind,
    budget: u64,
    seed: u64,
    pictures: impl FnOnce(&Arc<Pool>, &Arc<Mutex<Pages>>),
) {
    let pool = Pool::in_memory(&options(kind, budget)).unwrap();
    let model = Arc::new(Mutex::new(Pages::new()));
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let (pool, model, stop) = (pool.clone(), model.clone(), stop.clone());
            std::thread::spawn(move || {
                let member = pool.join();
                let rng = fastrand::Rng::with_seed(seed ^ (number << 32));
                let mut writer = Writer { pool: pool.clone(), rng, objects: Vec::new(), model };
                (0..300).for_each(|_| writer.allocate());
                while !stop.load(Ordering::Relaxed) {
                    writer.step();
                    member.quiesce();
                }
            })
        })
        .collect();
    pictures(&pool, &model);
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(pool.stats().snapshot_held_bytes, 0, "nothing is held when all pictures have ended");
    assert_eq!(pool.stats().allocated_pages, model.lock().len() as u64);
}

/// Streams: the first is full, the others are increments on the image of those before.
fn streams(kind: SnapshotKind, budget: u64) {
    let seed = seed();
    with_writers(kind, budget, seed, |pool, model| {
        let image = Arc::new(Image::default());
        let mut durable = Epoch(0);
        for round in 0..25 {
            image.this_stream.lock().clear();
            let at_cut = Arc::new(Mutex::new(Pages::new()));
            let (model, for_barrier) = (model.clone(), at_cut.clone());
            // The model is cloned in the barrier of the cut itself.
            let hook = move || *for_barrier.lock() = model.lock().clone();
            let cut = pool.stream(hook, durable, image.clone(), &Progress::default()).unwrap();
            compare(&image.pages.lock(), &at_cut.lock(), &format!("stream {round}"));
            durable = cut;
        }
    });
}

/// Views, three at a time, closed in another order, beside streams.
fn views(kind: SnapshotKind, budget: u64) {
    let seed = seed();
    with_writers(kind, budget, seed, |pool, model| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut open = Vec::new();
        for round in 0..40 {
            let at_cut = Arc::new(Mutex::new(Pages::new()));
            let (for_hook, for_barrier) = (model.clone(), at_cut.clone());
            let view = pool.view_after(move || *for_barrier.lock() = for_hook.lock().clone()).unwrap();
            open.push((view, at_cut));
            if round % 5 == 0 {
                pool.stream(|| (), Epoch(0), Arc::new(Image::default()), &Progress::default()).unwrap();
            }
            if open.len() == 3 {
                let (view, at_cut) = open.swap_remove(rng.usize(..3));
                let mut image = BTreeMap::new();
                for &page in at_cut.lock().keys() {
                    let mut bytes = [0; PAGE_SIZE];
                    view.read_page(page, &mut bytes).unwrap();
                    image.insert(page, bytes);
                }
                compare(&image, &at_cut.lock(), &format!("view {round}"));
            }
        }
    });
}

#[test]
fn epoch_streams() {
    streams(SnapshotKind::Epoch, 16 << 20);
}

/// So little memory that writers have to help.
#[test]
fn epoch_streams_over_budget() {
    streams(SnapshotKind::Epoch, 0);
}

#[test]
fn epoch_views() {
    views(SnapshotKind::Epoch, 256 << 20);
}

#[test]
fn fork_streams() {
    streams(SnapshotKind::Fork, 16 << 20);
}

#[test]
fn fork_views() {
    views(SnapshotKind::Fork, 256 << 20);
}
