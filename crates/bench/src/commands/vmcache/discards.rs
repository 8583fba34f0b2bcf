//! How fast the system gives pages at their first touch and takes them back, as in the paper's Figures 3 and 8; and what that
//! costs another thread, which reads other pages: its processor is told of each page that goes.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use stillframe_pagepool::VirtualArray;

use crate::error::{BenchError, Result};
use crate::ticks::{in_threads, joined, Ticks};

const PAGE_WORDS: usize = 512;
/// Pages that a thread touches before it gives them back, as in the paper's Figure 8.
const BATCH_PAGES: usize = 512;
/// Pages of a call that gives back pages in a row.
const RUN_PAGES: usize = 64;
/// Pages of the other thread: as many as a large cache of translations knows.
const READ_PAGES: usize = 1024;
const READS_A_CHECK: u64 = 1024;

/// How pages are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    Single,
    Runs,
    Batches,
}

impl Way {
    pub const ALL: [Way; 3] = [Way::Single, Way::Runs, Way::Batches];

    pub fn name(self) -> &'static str {
        match self {
            Way::Single => "madvise, a page a call",
            Way::Runs => "madvise, 64 pages in a row a call",
            Way::Batches => "process_madvise, 64 scattered pages a call",
        }
    }

    /// For a legend.
    pub fn short_name(self) -> &'static str {
        match self {
            Way::Single => "one a call",
            Way::Runs => "64 in a row a call",
            Way::Batches => "64 scattered a call",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Discards {
    pub way: Way,
    pub thread_count: usize,
    /// Pages that were given and taken back, by all threads.
    pub pages_per_second: f64,
    /// Of a page, on average: from its first touch, and until it has been given back.
    pub touch_ns: f64,
    pub give_back_ns: f64,
    /// Reads of a thread beside them, and of the same thread alone.
    pub reads_per_second: Option<(f64, f64)>,
}

/// Each way by so many threads, then each by one beside a reader. Each case has its share of the time.
///
/// # Errors
/// Address space cannot be had.
pub fn measure(thread_counts: &[usize], seconds: f64) -> Result<Vec<Discards>> {
    let case_count = Way::ALL.len() * (thread_counts.len() + 1) + 1;
    let case_s = seconds / case_count as f64;
    let mut measured = Vec::new();
    for way in Way::ALL {
        for &thread_count in thread_counts {
            measured.push(case(way, thread_count, None, case_s)?);
        }
    }
    let pages = array(READ_PAGES)?;
    let alone = read(&pages, &AtomicBool::new(false), case_s);
    for way in Way::ALL {
        measured.push(case(way, 1, Some((&pages, alone)), case_s)?);
    }
    Ok(measured)
}

fn array(page_count: usize) -> Result<VirtualArray<AtomicU64>> {
    VirtualArray::new(page_count * PAGE_WORDS).map_err(|error| BenchError::failed("map pages", error))
}

fn case(
    way: Way,
    thread_count: usize,
    beside: Option<(&VirtualArray<AtomicU64>, f64)>,
    seconds: f64,
) -> Result<Discards> {
    // A page between two that are used: none lies in a row with another by chance.
    let pages = array(2 * BATCH_PAGES * thread_count)?;
    let ticks = Ticks::new(Duration::from_secs_f64(seconds));
    let (touch_ns, give_back_ns) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let churn = |thread: u64| {
        let first = 2 * BATCH_PAGES * thread as usize;
        ticks.fill(1, || -> Result<u64> {
            let step = if way == Way::Runs { 1 } else { 2 };
            let batch: Vec<usize> = (0..BATCH_PAGES).map(|index| first + step * index).collect();
            let begin = Instant::now();
            batch.iter().for_each(|page| pages.get(page * PAGE_WORDS).store(1, Ordering::Relaxed));
            let touched = Instant::now();
            give_back(&pages, way, &batch);
            touch_ns.fetch_add((touched - begin).as_nanos() as u64, Ordering::Relaxed);
            give_back_ns.fetch_add(touched.elapsed().as_nanos() as u64, Ordering::Relaxed);
            Ok(batch.len() as u64)
        })
    };
    let (pages_per_second, read_rate) = std::thread::scope(|scope| {
        let reader = beside.map(|(read_pages, _)| {
            let stop = &stop;
            scope.spawn(move || Ok(read(read_pages, stop, f64::INFINITY)))
        });
        let rate = in_threads(thread_count, churn);
        stop.store(true, Ordering::Relaxed);
        let read_rate = reader.map(joined).transpose();
        Ok::<_, BenchError>((rate?, read_rate?))
    })?;
    let a_page = |ns: AtomicU64| ns.into_inner() as f64 / ticks.total().max(1) as f64;
    let discards = Discards {
        way,
        thread_count,
        pages_per_second,
        touch_ns: a_page(touch_ns),
        give_back_ns: a_page(give_back_ns),
        reads_per_second: read_rate.zip(beside.map(|(_, alone)| alone)),
    };
    eprintln!(
        "{}, {thread_count} threads{}: {pages_per_second:.0} pages/s, {:.0} ns to give one back",
        way.name(),
        if beside.is_some() { " beside a reader" } else { "" },
        discards.give_back_ns
    );
    Ok(discards)
}

fn give_back(pages: &VirtualArray<AtomicU64>, way: Way, batch: &[usize]) {
    match way {
        Way::Single => {
            for page in batch {
                pages.zero_range(page * PAGE_WORDS, (page + 1) * PAGE_WORDS);
            }
        }
        Way::Runs => {
            for run in batch.chunks(RUN_PAGES) {
                pages.zero_range(run[0] * PAGE_WORDS, (run[0] + run.len()) * PAGE_WORDS);
            }
        }
        Way::Batches => pages.zero_pages(batch),
    }
}

/// Words of random pages, until it is told to stop or the time is over. Returns how many a second.
fn read(pages: &VirtualArray<AtomicU64>, stop: &AtomicBool, seconds: f64) -> f64 {
    (0..READ_PAGES).for_each(|page| pages.get(page * PAGE_WORDS).store(1, Ordering::Relaxed));
    let mut rng = fastrand::Rng::with_seed(1);
    let (begin, mut count, mut sum) = (Instant::now(), 0u64, 0u64);
    loop {
        for _ in 0..READS_A_CHECK {
            let word = pages.get(rng.usize(..READ_PAGES) * PAGE_WORDS);
            sum = sum.wrapping_add(word.load(Ordering::Relaxed));
        }
        count += READS_A_CHECK;
        let elapsed_s = begin.elapsed().as_secs_f64();
        if elapsed_s >= seconds || stop.load(Ordering::Relaxed) {
            black_box(sum);
            return count as f64 / elapsed_s;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_gives_all_pages_of_a_batch_back() {
        for way in Way::ALL {
            let pages = array(2 * BATCH_PAGES).unwrap();
            let step = if way == Way::Runs { 1 } else { 2 };
            let batch: Vec<usize> = (0..BATCH_PAGES).map(|index| step * index).collect();
            (0..2 * BATCH_PAGES * PAGE_WORDS)
                .step_by(PAGE_WORDS / 2)
                .for_each(|word| pages.get(word).store(7, Ordering::Relaxed));
            give_back(&pages, way, &batch);
            for page in 0..2 * BATCH_PAGES {
                let found = pages.get(page * PAGE_WORDS + PAGE_WORDS / 2).load(Ordering::Relaxed);
                assert_eq!(found, if batch.contains(&page) { 0 } else { 7 }, "{way:?}, page {page}");
            }
        }
    }

    #[test]
    fn each_way_is_measured_by_itself_and_beside_a_reader() {
        let measured = measure(&[1, 2], 0.2).unwrap();
        assert_eq!(measured.len(), 9);
        for case in measured {
            assert!(
                case.pages_per_second > 0.0 && case.give_back_ns > 0.0 && case.touch_ns > 0.0,
                "{case:?}"
            );
            assert!(
                case.reads_per_second.is_none_or(|(beside, alone)| beside > 0.0 && alone > 0.0),
                "{case:?}"
            );
        }
    }
}
