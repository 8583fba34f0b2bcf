//! Threads that allocate, write, grow, read and free objects, and the model of what they have written.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use stillframe_pagepool::{ExclusiveGuard, Member, PageBytes, PageId, Pool, Restart, PAGE_SIZE};

/// What a page of the model holds: a fill byte and eight patched bytes at an offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Content {
    fill: u8,
    patch_at: u16,
    patch: u64,
}

impl Content {
    fn random(rng: &mut fastrand::Rng) -> Content {
        Content { fill: rng.u8(..), patch_at: rng.u16(..4088), patch: rng.u64(..) }
    }

    pub fn bytes(&self) -> PageBytes {
        let mut page = [self.fill; PAGE_SIZE];
        let at = self.patch_at as usize;
        page[at..at + 8].copy_from_slice(&self.patch.to_le_bytes());
        page
    }
}

/// The pool as it should be.
#[derive(Clone, Default)]
pub struct Model {
    pub pages: BTreeMap<PageId, Content>,
    /// Page counts of objects by their heads.
    pub objects: BTreeMap<PageId, u32>,
}

pub type SharedModel = Arc<Mutex<Model>>;

/// The model as the barrier's action sees it.
pub fn at_cut(model: &SharedModel) -> (SharedModel, impl FnOnce() + Send + 'static) {
    let copy = SharedModel::default();
    let (model, for_barrier) = (model.clone(), copy.clone());
    (copy, move || *for_barrier.lock() = model.lock().clone())
}

/// Objects that a writer keeps; more are freed.
const OBJECTS: usize = 60;
const WRITERS: u64 = 3;

/// Opens something by `open`, loading what is missing meanwhile; for a thread that is no member of the barrier.
pub fn latch<T>(pool: &Pool, open: impl FnMut() -> Result<T, Restart>) -> T {
    latch_by(open, |missing| pool.residency().load(missing)).expect("there is room")
}

/// The same; `None` if there is no room for what is missing.
fn latch_by<T>(mut open: impl FnMut() -> Result<T, Restart>, load: impl Fn(&[PageId])) -> Option<T> {
    loop {
        match open() {
            Ok(guard) => return Some(guard),
            Err(Restart::Fault(missing)) => load(&[missing]),
            Err(Restart::Contended) => std::thread::yield_now(),
            Err(Restart::NoRoom | Restart::Looking) => return None,
            Err(Restart::Damaged(reason)) => panic!("{reason}"),
        }
    }
}

/// A writer with objects of its own.
struct Writer {
    pool: Arc<Pool>,
    rng: fastrand::Rng,
    objects: Vec<(PageId, u32)>,
    model: SharedModel,
}

impl Writer {
    /// One operation; none if there is no room for what it needs.
    fn step(&mut self, member: &Member) -> Option<()> {
        let is_full = self.objects.len() >= OBJECTS;
        if self.pool.is_full() {
            member.idle(|| self.pool.wait_for_room());
        }
        let is_refused = self.pool.is_stuck();
        match self.rng.u32(..100) {
            12..=19 => self.read(member),
            // As a store does: what would be dirty could not go.
            _ if is_refused => None,
            0..=9 if !is_full => self.allocate(),
            0..=9 => self.free(member),
            10..=11 => self.grow(member),
            _ => self.write(member),
        }
    }

    /// Opens something by `open`, which holds nothing while it is missing; nor does the writer run then.
    fn latch<T>(&self, member: &Member, open: impl FnMut() -> Result<T, Restart>) -> Option<T> {
        latch_by(open, |missing| member.idle(|| self.pool.residency().load(missing)))
    }

    fn lock(&self, member: &Member, head: PageId, index: u32) -> Option<ExclusiveGuard<'_>> {
        self.latch(member, || {
            let guard = self.pool.exclusive(head)?;
            guard.object_page(index)?;
            Ok(guard)
        })
    }

    fn allocate(&mut self) -> Option<()> {
        let (count, reserve) =
            *self.rng.choice(&[(1, 1), (1, 1), (5, 5), (16, 16), (20, 60), (40, 40)]).unwrap();
        let pool = self.pool.clone();
        let mut guard = pool.allocate_object(count, reserve).ok()?;
        let object = (guard.id(), count);
        self.write_new(&mut guard, 0..count, reserve > 16);
        self.model.lock().objects.insert(object.0, count);
        self.objects.push(object);
        Some(())
    }

    /// Grows an object in place where its block has room.
    fn grow(&mut self, member: &Member) -> Option<()> {
        let number = self.any()?;
        let (head, count) = self.objects[number];
        let pool = self.pool.clone();
        let mut guard = self.latch(member, || pool.exclusive(head))?;
        let new_count = count + self.rng.u32(1..6);
        if pool.extend(&mut guard, count, new_count) {
            self.write_new(&mut guard, count..new_count, true);
            self.objects[number].1 = new_count;
            self.model.lock().objects.insert(head, new_count);
        }
        Some(())
    }

    fn write_new(&mut self, guard: &mut ExclusiveGuard<'_>, indices: std::ops::Range<u32>, zeroed: bool) {
        for index in indices {
            let page = guard.object_page_mut(index).unwrap();
            assert!(!zeroed || page.iter().all(|&byte| byte == 0), "new pages of large objects are zero");
            let content = Content::random(&mut self.rng);
            page.copy_from_slice(&content.bytes());
            self.model.lock().pages.insert(PageId(guard.id().0 + index), content);
        }
    }

    fn any(&mut self) -> Option<usize> {
        (!self.objects.is_empty()).then(|| self.rng.usize(..self.objects.len()))
    }

    fn free(&mut self, member: &Member) -> Option<()> {
        let number = self.any()?;
        let (head, count) = self.objects[number];
        let pool = self.pool.clone();
        let guard = self.latch(member, || pool.exclusive(head))?;
        self.objects.swap_remove(number);
        {
            let mut model = self.model.lock();
            (0..count).for_each(|index| assert!(model.pages.remove(&PageId(head.0 + index)).is_some()));
            assert_eq!(model.objects.remove(&head), Some(count));
        }
        pool.free(guard, count);
        Some(())
    }

    fn write(&mut self, member: &Member) -> Option<()> {
        let number = self.any()?;
        let (head, count) = self.objects[number];
        let (index, is_whole, patch) = (self.rng.u32(..count), self.rng.bool(), self.rng.u64(..));
        let new = Content::random(&mut self.rng);
        let mut guard = self.lock(member, head, index)?;
        let page = guard.object_page_mut(index).unwrap();
        let mut model = self.model.lock();
        let content = model.pages.get_mut(&PageId(head.0 + index)).unwrap();
        if is_whole {
            *content = new;
            page.copy_from_slice(&content.bytes());
        } else {
            content.patch = patch;
            let at = content.patch_at as usize;
            page[at..at + 8].copy_from_slice(&content.patch.to_le_bytes());
        }
        Some(())
    }

    fn read(&mut self, member: &Member) -> Option<()> {
        let number = self.any()?;
        let (head, count) = self.objects[number];
        let index = self.rng.u32(..count);
        let guard = self.latch(member, || {
            let guard = self.pool.shared(head)?;
            guard.object_page(index)?;
            Ok(guard)
        })?;
        let expected = self.model.lock().pages[&PageId(head.0 + index)];
        assert!(guard.object_page(index).unwrap() == &expected.bytes(), "a read sees the latest write");
        Some(())
    }
}

/// Writers at work on what the model has, until they are stopped. Now and then one is idle, or leaves and joins again.
pub struct Writers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    pub fn start(pool: &Arc<Pool>, model: &SharedModel, seed: u64) -> Writers {
        let stop = Arc::new(AtomicBool::new(false));
        let all: Vec<(PageId, u32)> =
            model.lock().objects.iter().map(|(&head, &count)| (head, count)).collect();
        let threads = (0..WRITERS).map(|number| {
            let objects = all.iter().copied().skip(number as usize).step_by(WRITERS as usize).collect();
            let rng = fastrand::Rng::with_seed(seed ^ (number << 32));
            let writer = Writer { pool: pool.clone(), rng, objects, model: model.clone() };
            let stop = stop.clone();
            std::thread::spawn(move || work(writer, &stop))
        });
        Writers { threads: threads.collect(), stop }
    }

    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn work(mut writer: Writer, stop: &AtomicBool) {
    let pool = writer.pool.clone();
    let mut member = pool.join();
    for _ in writer.objects.len()..OBJECTS / 2 {
        writer.allocate();
    }
    while !stop.load(Ordering::Relaxed) {
        writer.step(&member);
        match writer.rng.u32(..500) {
            0 => {
                drop(member);
                member = pool.join();
            }
            1..=5 => member.idle(std::thread::yield_now),
            _ => member.quiesce(),
        }
    }
}
