//! Threads with transactions and a thread with cuts for some time, for a benchmark.

mod keys;
mod load;
mod report;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::calc::Calc;
use crate::cpr::Cpr;
use crate::image::Image;
use crate::kind::Kind;
use crate::row::RowId;
use crate::seam::Algorithm;
use crate::session::{Session, TxnError};
use crate::stalls::nanoseconds;
use crate::store::Store;
use crate::vhg::VirtualHourglass;
use crate::vpb::VirtualPiggyback;

pub use keys::Keys;
pub use load::{Load, LoadError};
pub use report::{Report, TakenCut, BUCKET_NS};

use keys::Draw;
use report::Recording;

/// Runs the load on a new store of that kind.
///
/// # Errors
/// The load cannot be run. Images that fail are counted.
pub fn run<I: Image + Send>(kind: Kind, load: &Load, image: &mut I) -> Result<Report, LoadError> {
    match kind {
        Kind::Calc => run_on::<Calc, I>(load, image),
        Kind::Cpr => run_on::<Cpr, I>(load, image),
        Kind::VirtualHourglass => run_on::<VirtualHourglass, I>(load, image),
        Kind::VirtualPiggyback => run_on::<VirtualPiggyback, I>(load, image),
    }
}

fn run_on<A: Algorithm, I: Image + Send>(load: &Load, image: &mut I) -> Result<Report, LoadError> {
    let shape = load.shape()?;
    let draw = Draw::new(load.keys, load.row_count).map_err(LoadError::Zipf)?;
    let store = Store::<A>::new(shape);
    let is_over = AtomicBool::new(false);
    let begin = Instant::now();
    let mut report = Report::new(store.bytes());
    std::thread::scope(|scope| {
        let saver = scope.spawn(|| take_cuts(&store, load, begin, &is_over, image));
        let work = |thread: usize| {
            let (store, draw) = (&store, draw.clone());
            scope.spawn(move || Worker::new(load, draw, thread).run(&mut store.session(), begin))
        };
        let threads: Vec<_> = (0..load.thread_count).map(work).collect();
        let recordings: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        is_over.store(true, Ordering::Release);
        saver.thread().unpark();
        for recording in recordings {
            report.add(recording.expect("no transaction panics"));
        }
        (report.cuts, report.failed_image_count) = saver.join().expect("no image panics");
    });
    report.end();
    Ok(report)
}

fn take_cuts<A: Algorithm, I: Image>(
    store: &Store<A>,
    load: &Load,
    begin: Instant,
    is_over: &AtomicBool,
    image: &mut I,
) -> (Vec<TakenCut>, u64) {
    let (mut cuts, mut failed_count) = (Vec::new(), 0);
    let Some(every) = load.cut_every else { return (cuts, failed_count) };
    let mut next = begin + every;
    while !is_over.load(Ordering::Acquire) {
        let now = Instant::now();
        if now < next {
            std::thread::park_timeout(next - now);
            continue;
        }
        next = now + every;
        match store.snapshot(image) {
            Ok(report) => cuts.push(TakenCut { begin_ns: nanoseconds(now - begin), report }),
            Err(_) => failed_count += 1,
        }
    }
    (cuts, failed_count)
}

struct Worker<'l> {
    load: &'l Load,
    draw: Draw,
    rng: SmallRng,
    rows: Vec<RowId>,
    words: Vec<u64>,
    /// Of open loads: from one transaction of this thread to the next, and its first.
    interval_ns: Option<f64>,
    first_ns: f64,
}

impl<'l> Worker<'l> {
    fn new(load: &'l Load, draw: Draw, thread: usize) -> Worker<'l> {
        let interval_ns = load.rate_per_s.map(|rate| 1e9 * load.thread_count as f64 / rate);
        Worker {
            load,
            draw,
            rng: SmallRng::seed_from_u64(load.seed ^ (thread as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            rows: Vec::new(),
            words: vec![0; load.update_words],
            interval_ns,
            first_ns: interval_ns.unwrap_or(0.0) * thread as f64 / load.thread_count as f64,
        }
    }

    fn run<A: Algorithm>(mut self, session: &mut Session<'_, A>, begin: Instant) -> Recording {
        let mut recording = Recording::new();
        let end_ns = nanoseconds(self.load.duration);
        let now_ns = || nanoseconds(begin.elapsed());
        let mut done_ns = now_ns();
        for number in 0_u64.. {
            let intended_ns = match self.interval_ns {
                Some(interval_ns) => (self.first_ns + interval_ns * number as f64) as u64,
                None => done_ns,
            };
            if intended_ns.max(done_ns) >= end_ns {
                break;
            }
            wait_until(intended_ns, now_ns);
            self.draw_rows();
            let result = session.run(|txn| self.body(txn, number));
            debug_assert!(result.is_ok(), "{result:?}");
            let before_ns = done_ns;
            done_ns = now_ns();
            recording.record(intended_ns, before_ns, done_ns);
        }
        recording.stats = session.stats();
        recording
    }

    /// Different rows; those that are read come first.
    fn draw_rows(&mut self) {
        self.rows.clear();
        while self.rows.len() < self.load.read_count + self.load.update_count {
            let row = self.draw.row(&mut self.rng);
            if !self.rows.contains(&row) {
                self.rows.push(row);
            }
        }
    }

    fn body<A: Algorithm>(
        &mut self,
        txn: &mut crate::session::Txn<'_, '_, A>,
        number: u64,
    ) -> Result<(), TxnError> {
        let (reads, updates) = self.rows.split_at(self.load.read_count);
        let mut word = [0];
        for row in reads {
            txn.read(*row, 0, &mut word)?;
        }
        let row_words = self.load.row_bytes / 8;
        for row in updates {
            txn.read_for_update(*row, 0, &mut word)?;
            self.words.fill(word[0].wrapping_add(number));
            let first_word = self.rng.random_range(0..=row_words - self.words.len());
            txn.write(*row, first_word, &self.words)?;
        }
        Ok(())
    }
}

/// Sleeps as long as that is safe, and looks at the clock for the rest.
fn wait_until(intended_ns: u64, now_ns: impl Fn() -> u64) {
    const SAFE_NS: u64 = 200_000;
    loop {
        let left_ns = intended_ns.saturating_sub(now_ns());
        match left_ns {
            0 => return,
            left_ns if left_ns > SAFE_NS => std::thread::sleep(Duration::from_nanos(left_ns - SAFE_NS)),
            _ => std::hint::spin_loop(),
        }
    }
}
