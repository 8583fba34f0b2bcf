//! Times full and incremental checkpoints of a pool on a real file, with a writer beside them.
//!
//! `cargo run --release -p stillframe-pagepool --example checkpoint -- <dir> <gigabytes>`

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stillframe_pagepool::device::IoOptions;
use stillframe_pagepool::pagefile::PageFile;
use stillframe_pagepool::pagefile::USER_HEADER_BYTES;
use stillframe_pagepool::snapshot::Progress;
use stillframe_pagepool::{PageId, Pool, PoolOptions, PAGE_SIZE};

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().expect("usage: checkpoint <dir> <gigabytes>");
    let gigabytes: f64 = args.next().and_then(|s| s.parse().ok()).unwrap_or(1.0);
    let path = Path::new(&dir).join("checkpoint-example.pages");
    let device = PageFile::open_or_create_at(&path, IoOptions::default()).expect("the directory is writable");
    let (pool, _) = Pool::open(Arc::new(device), &PoolOptions::default()).expect("the file opens");
    let page_count = (gigabytes * (1u64 << 30) as f64) as usize / PAGE_SIZE;
    let since = Instant::now();
    let pages: Vec<PageId> = (0..page_count)
        .map(|number| {
            let mut guard = pool.allocate().expect("there is room");
            guard.page_mut().fill(number as u8 | 1);
            guard.id()
        })
        .collect();
    println!("fill: {page_count} pages in {:?}", since.elapsed());
    checkpoint(&pool, "full, idle");
    for page in pages.iter().step_by(100) {
        pool.exclusive(*page).expect("resident").page_mut()[0] ^= 1;
    }
    checkpoint(&pool, "1 % changed, idle");
    let stop = Arc::new(AtomicBool::new(false));
    let (writer_pool, writer_stop, writer_pages) = (pool.clone(), stop.clone(), pages.clone());
    let writer = std::thread::spawn(move || write_until(&writer_pool, &writer_pages, &writer_stop));
    std::thread::sleep(Duration::from_millis(500));
    for page in &pages {
        pool.exclusive(*page).expect("resident").page_mut()[1] ^= 1;
    }
    checkpoint(&pool, "all changed, beside a writer");
    stop.store(true, Ordering::Relaxed);
    let (writes, longest) = writer.join().expect("the writer ends");
    println!("writer: {writes} writes, longest {longest:?}; {:?}", pool.metrics().capture.summary());
    println!("helped: {:?}; {:?}", pool.metrics().help.summary(), pool.stats());
    drop(pool);
    std::fs::remove_file(path).expect("the file is ours");
}

fn checkpoint(pool: &Arc<Pool>, what: &str) {
    let stats =
        pool.checkpoint(|| Ok([0; USER_HEADER_BYTES]), &Progress::default()).expect("the disk has room");
    println!("{what}: {stats:?}");
}

fn write_until(pool: &Pool, pages: &[PageId], stop: &AtomicBool) -> (u64, Duration) {
    let member = pool.join();
    let mut rng = fastrand::Rng::new();
    let (mut writes, mut longest) = (0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let since = Instant::now();
        let page = pages[rng.usize(..pages.len())];
        pool.exclusive(page).expect("resident").page_mut()[2..10].copy_from_slice(&rng.u64(..).to_le_bytes());
        longest = longest.max(since.elapsed());
        writes += 1;
        member.quiesce();
    }
    (writes, longest)
}
