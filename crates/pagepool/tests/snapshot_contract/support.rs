//! Sinks, gates and small helpers.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
pub use stillframe_pagepool::device::Gate;
use stillframe_pagepool::snapshot::{Progress, Sink};
use stillframe_pagepool::{CheckpointError, Epoch, PageBytes, PageId, Pool, PAGE_SIZE};

pub use crate::small_pool::{kinds, small_pool as options};

/// Runs `test` with a fixed seed and a random one, or with the one in the environment.
pub fn seeds(test: impl Fn(u64)) {
    let seeds = match std::env::var("STILLFRAME_SEED") {
        Ok(seed) => vec![seed.parse().expect("STILLFRAME_SEED is a number")],
        Err(_) => vec![1, fastrand::u64(..)],
    };
    for seed in seeds {
        println!("STILLFRAME_SEED={seed}");
        test(seed);
    }
}

/// An image of the pool, kept by a sink that may fail midway; checks that a stream emits no page twice.
#[derive(Default)]
pub struct Image {
    pub pages: Mutex<BTreeMap<PageId, PageBytes>>,
    stream: Mutex<Emitted>,
}

#[derive(Default)]
struct Emitted {
    /// Content, or that there is none.
    pages: BTreeMap<PageId, Option<PageBytes>>,
    /// Calls until the sink fails.
    calls_left: Option<u32>,
}

impl Image {
    /// A stream begins; after `calls_left` calls it fails.
    pub fn begin(&self, calls_left: Option<u32>) {
        *self.stream.lock() = Emitted { pages: BTreeMap::new(), calls_left };
    }

    /// The stream has succeeded.
    pub fn commit(&self) {
        let mut pages = self.pages.lock();
        for (page, content) in std::mem::take(&mut self.stream.lock().pages) {
            match content {
                Some(content) => pages.insert(page, content),
                None => pages.remove(&page),
            };
        }
    }

    /// Pages of the running stream with content.
    pub fn emitted(&self) -> Vec<PageId> {
        self.stream
            .lock()
            .pages
            .iter()
            .filter(|(_, content)| content.is_some())
            .map(|(&page, _)| page)
            .collect()
    }

    fn take(&self, pages: impl Iterator<Item = (PageId, Option<PageBytes>)>) -> Result<(), CheckpointError> {
        let stream = &mut *self.stream.lock();
        match &mut stream.calls_left {
            Some(0) => return Err(CheckpointError::Io("the sink fails".into())),
            Some(left) => *left -= 1,
            None => {}
        }
        for (page, content) in pages {
            assert!(stream.pages.insert(page, content).is_none(), "{page:?} emitted twice");
        }
        Ok(())
    }
}

impl Sink for Image {
    fn write_pages(&self, pages: &[(PageId, &PageBytes)]) -> Result<(), CheckpointError> {
        self.take(pages.iter().map(|&(page, bytes)| (page, Some(*bytes))))
    }

    fn free_page(&self, page: PageId) -> Result<(), CheckpointError> {
        self.take(std::iter::once((page, None)))
    }
}

/// Takes everything and keeps nothing.
pub struct Discard;

impl Sink for Discard {
    fn write_pages(&self, _pages: &[(PageId, &PageBytes)]) -> Result<(), CheckpointError> {
        Ok(())
    }

    fn free_page(&self, _page: PageId) -> Result<(), CheckpointError> {
        Ok(())
    }
}

/// Calls `hook` before anything is handed to `inner`.
pub struct Hooked<F: Fn(&[PageId]) + Send + Sync> {
    pub inner: Arc<dyn Sink>,
    pub hook: F,
}

impl<F: Fn(&[PageId]) + Send + Sync> Sink for Hooked<F> {
    fn write_pages(&self, pages: &[(PageId, &PageBytes)]) -> Result<(), CheckpointError> {
        (self.hook)(&pages.iter().map(|(page, _)| *page).collect::<Vec<_>>());
        self.inner.write_pages(pages)
    }

    fn free_page(&self, page: PageId) -> Result<(), CheckpointError> {
        self.inner.free_page(page)
    }
}

/// A new object of `page_count` pages, each filled with `fill`.
pub fn new_object(pool: &Pool, page_count: u32, fill: u8) -> PageId {
    let mut guard = pool.allocate_object(page_count, page_count).unwrap();
    (0..page_count).for_each(|index| guard.object_page_mut(index).unwrap().fill(fill));
    guard.id()
}

/// `page_count` objects of one page.
pub fn fill_pool(pool: &Pool, page_count: u32) -> Vec<PageId> {
    let mut pages: Vec<PageId> = (0..page_count).map(|_| new_object(pool, 1, 1)).collect();
    // A sweep goes by number, and a pool gives numbers in the order in which its stock comes.
    pages.sort_unstable();
    pages
}

pub fn fill_page(pool: &Pool, page: PageId, fill: u8) {
    pool.exclusive(page).unwrap().page_mut().fill(fill);
}

pub fn free_object(pool: &Pool, head: PageId, page_count: u32) {
    pool.free(pool.exclusive(head).unwrap(), page_count);
}

pub fn stream(pool: &Arc<Pool>, durable: Epoch, sink: Arc<dyn Sink>) -> Result<Epoch, CheckpointError> {
    pool.stream(|| (), durable, sink, &Progress::default())
}

pub fn filled(fill: u8) -> PageBytes {
    [fill; PAGE_SIZE]
}
