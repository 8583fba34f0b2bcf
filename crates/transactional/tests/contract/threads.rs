//! One run: what threads do is drawn from the seed, how they meet is not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fastrand::Rng;
use stillframe_transactional::{Algorithm, Prefix, RowId, Session, Shape, Store, Txn, TxnError, ELDER_AFTER};

use crate::common::history::{History, Record};
use crate::common::images::{CheckedImage, Failed, Failure};

#[derive(Default, Debug)]
pub struct Totals {
    pub commits: u64,
    pub aborts: u64,
    pub restarts: u64,
    pub image_count: u64,
    pub failed_image_count: u64,
    pub second_copies: u64,
}

impl Totals {
    pub fn add(&mut self, other: &Totals) {
        self.commits += other.commits;
        self.aborts += other.aborts;
        self.restarts += other.restarts;
        self.image_count += other.image_count;
        self.failed_image_count += other.failed_image_count;
        self.second_copies += other.second_copies;
    }
}

const BALANCE: usize = 0;
const FIRST_BALANCE: u64 = 1000;
/// Words from here on have the tag of who wrote them last.
const TAGS: usize = 2;

/// A reason to give a transaction up.
#[derive(Debug)]
enum End {
    Txn(TxnError),
    Unwanted,
}

impl From<TxnError> for End {
    fn from(error: TxnError) -> End {
        End::Txn(error)
    }
}

/// What one transaction saw and did.
#[derive(Default)]
struct Trace {
    lock_point: u64,
    reads: Vec<(RowId, usize, u64)>,
    writes: Vec<(RowId, usize, Vec<u64>)>,
}

struct Load<'s, A: Algorithm> {
    store: &'s Store<A>,
    lock_points: AtomicU64,
    is_over: AtomicBool,
    hot_rows: u32,
    txn_count: u64,
}

struct Worker<'l, 's, A: Algorithm> {
    load: &'l Load<'s, A>,
    rng: Rng,
    trace: Trace,
    records: Vec<Record>,
}

impl<A: Algorithm> Worker<'_, '_, A> {
    fn row(&mut self) -> RowId {
        let row_count = self.load.store.shape().row_count();
        let limit = if self.rng.u8(0..4) > 0 { self.load.hot_rows } else { row_count };
        RowId(self.rng.u32(0..limit))
    }

    fn two_rows(&mut self) -> (RowId, RowId) {
        loop {
            let (one, other) = (self.row(), self.row());
            if one != other {
                return (one, other);
            }
        }
    }

    fn read(
        &mut self,
        txn: &mut Txn<'_, '_, A>,
        row: RowId,
        first_word: usize,
        to: &mut [u64],
    ) -> Result<(), End> {
        match self.rng.bool() {
            true => txn.read(row, first_word, to)?,
            false => txn.read_for_update(row, first_word, to)?,
        }
        if !self.trace.writes.iter().any(|(written, ..)| *written == row) {
            let words = to.iter().enumerate().map(|(at, word)| (row, first_word + at, *word));
            self.trace.reads.extend(words);
        }
        Ok(())
    }

    fn write(
        &mut self,
        txn: &mut Txn<'_, '_, A>,
        row: RowId,
        first_word: usize,
        words: &[u64],
    ) -> Result<(), End> {
        txn.write(row, first_word, words)?;
        self.trace.writes.push((row, first_word, words.to_vec()));
        let mut own = vec![0; words.len()];
        txn.read(row, first_word, &mut own)?;
        assert_eq!(own, words, "a transaction reads what it has written");
        Ok(())
    }

    /// Adds to a balance, and counts in the word beside it.
    fn add(&mut self, txn: &mut Txn<'_, '_, A>, row: RowId, amount: u64) -> Result<(), End> {
        let mut words = [0; 2];
        self.read(txn, row, BALANCE, &mut words)?;
        self.write(txn, row, BALANCE, &[words[0].wrapping_add(amount), words[1] + 1])
    }

    /// Some words of a row, not all.
    fn tag(&mut self, txn: &mut Txn<'_, '_, A>, row: RowId, tag: u64) -> Result<(), End> {
        let row_words = self.load.store.shape().row_words();
        let first_word = self.rng.usize(TAGS..row_words);
        let word_count = self.rng.usize(1..=(row_words - first_word).min(9));
        self.write(txn, row, first_word, &vec![tag; word_count])
    }

    /// All words of a row; the balance stays.
    fn replace(&mut self, txn: &mut Txn<'_, '_, A>, row: RowId, tag: u64) -> Result<(), End> {
        let mut words = vec![0; self.load.store.shape().row_words()];
        self.read(txn, row, 0, &mut words)?;
        words[TAGS..].fill(tag);
        self.write(txn, row, 0, &words)
    }

    fn body(&mut self, txn: &mut Txn<'_, '_, A>, tag: u64) -> Result<(), End> {
        self.trace = Trace::default();
        match self.rng.u8(0..10) {
            0..4 => {
                let (from, to) = self.two_rows();
                let amount = self.rng.u64(1..100);
                self.add(txn, from, amount.wrapping_neg())?;
                self.add(txn, to, amount)?;
            }
            4..6 => {
                let row = self.row();
                self.tag(txn, row, tag)?;
                self.add(txn, row, 0)?;
            }
            6 => {
                let (one, other) = self.two_rows();
                self.replace(txn, one, tag)?;
                self.replace(txn, other, tag)?;
            }
            7 => {
                for _ in 0..self.rng.usize(2..40) {
                    let row = self.row();
                    self.tag(txn, row, tag)?;
                }
            }
            _ => {
                let mut words = vec![0; self.load.store.shape().row_words()];
                for _ in 0..self.rng.usize(1..5) {
                    let row = self.row();
                    self.read(txn, row, 0, &mut words)?;
                }
            }
        }
        if self.rng.u8(0..12) == 0 {
            std::thread::yield_now();
        }
        if self.rng.u8(0..10) == 0 {
            return Err(End::Unwanted);
        }
        self.trace.lock_point = self.load.lock_points.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn run(&mut self, session: &mut Session<'_, A>) -> Result<Totals, String> {
        for number in 0..self.load.txn_count {
            let tag = u64::from(session.id().0) << 32 | number;
            match session.run(|txn| self.body(txn, tag)) {
                Ok(((), committed)) => {
                    let trace = std::mem::take(&mut self.trace);
                    self.records.push(Record {
                        session: session.id(),
                        committed,
                        lock_point: trace.lock_point,
                        reads: trace.reads,
                        writes: trace.writes,
                    });
                }
                Err(End::Unwanted) => {}
                Err(End::Txn(error)) => return Err(error.to_string()),
            }
        }
        let stats = session.stats();
        if stats.lock_restarts_max > ELDER_AFTER {
            return Err(format!("an elder was begun anew: {stats:?}"));
        }
        Ok(Totals {
            commits: stats.commit_count,
            aborts: stats.abort_count,
            restarts: stats.lock_restart_count + stats.newer_restart_count,
            ..Totals::default()
        })
    }
}

/// An image that ended well, as it was then.
struct Kept {
    prefix: Prefix,
    words: Vec<u64>,
}

fn copy_of(image: &CheckedImage, shape: Shape) -> Vec<u64> {
    shape.rows().flat_map(|row| image.merged.words_of(row).iter().copied()).collect()
}

/// Cuts until the workers are done, and one after that.
fn take_images<A: Algorithm>(load: &Load<'_, A>, mut rng: Rng) -> Result<(Vec<Kept>, Totals), String> {
    let shape = load.store.shape();
    let mut image = CheckedImage::new(shape);
    let (mut kept, mut totals) = (Vec::new(), Totals::default());
    loop {
        let is_last = load.is_over.load(Ordering::Acquire);
        image.failure = match rng.u8(0..12) {
            _ if is_last => None,
            0 => Some(Failure::AtBegin),
            1 => Some(Failure::AfterRows(rng.u32(0..shape.row_count()))),
            2 => Some(Failure::AtEnd),
            _ => None,
        };
        image.nap_every = rng.bool().then(|| rng.u32(1..shape.row_count()));
        match load.store.snapshot(&mut image) {
            Ok(report) => {
                totals.image_count += 1;
                totals.second_copies += u64::from(report.second_copies);
                kept.push(Kept { prefix: image.prefix(), words: copy_of(&image, shape) });
            }
            Err(Failed) => totals.failed_image_count += 1,
        }
        if let Some(row) = load.store.first_unclean() {
            return Err(format!("{row:?} is not clean after an image"));
        }
        if is_last {
            return Ok((kept, totals));
        }
        std::thread::sleep(std::time::Duration::from_micros(rng.u64(0..100)));
    }
}

fn first_balances<A: Algorithm>(session: &mut Session<'_, A>, shape: Shape) -> Result<Record, String> {
    let filled =
        session.run(|txn| shape.rows().try_for_each(|row| txn.write(row, BALANCE, &[FIRST_BALANCE])));
    let ((), committed) = filled.map_err(|error: TxnError| error.to_string())?;
    let writes = shape.rows().map(|row| (row, BALANCE, vec![FIRST_BALANCE])).collect();
    Ok(Record { session: session.id(), committed, lock_point: 0, reads: Vec::new(), writes })
}

pub fn run<A: Algorithm>(seed: u64) -> Result<Totals, String> {
    let mut rng = Rng::with_seed(seed);
    let row_bytes = [64, 64, 128, 256, 1024][rng.usize(0..5)];
    let shape = Shape::new(rng.u32(8..120), row_bytes).map_err(|error| error.to_string())?;
    let store = Store::<A>::new(shape);
    let mut records = vec![first_balances(&mut store.session(), shape)?];
    let load = Load {
        store: &store,
        lock_points: AtomicU64::new(1),
        is_over: AtomicBool::new(false),
        hot_rows: rng.u32(3..=8),
        txn_count: rng.u64(200..500),
    };
    let seeds: Vec<u64> = (0..rng.usize(2..5)).map(|_| rng.u64(..)).collect();
    let (kept, mut totals) = std::thread::scope(|scope| {
        let work = |seed: u64| {
            let load = &load;
            scope.spawn(move || {
                let mut worker =
                    Worker { load, rng: Rng::with_seed(seed), trace: Trace::default(), records: Vec::new() };
                let done = worker.run(&mut load.store.session());
                (done, worker.records)
            })
        };
        let saver_rng = rng.fork();
        let saver = scope.spawn(|| take_images(&load, saver_rng));
        let workers: Vec<_> = seeds.into_iter().map(work).collect();
        let mut totals = Totals::default();
        let mut failed = None;
        for worker in workers {
            let (done, more) = worker.join().expect("a worker");
            records.extend(more);
            match done {
                Ok(work) => totals.add(&work),
                Err(error) => failed = Some(error),
            }
        }
        load.is_over.store(true, Ordering::Release);
        let (kept, images) = saver.join().expect("the saver")?;
        totals.add(&images);
        failed.map_or(Ok((kept, totals)), Err)
    })?;
    check(&store, records, &kept)?;
    totals.commits += 1;
    Ok(totals)
}

fn check<A: Algorithm>(store: &Store<A>, records: Vec<Record>, kept: &[Kept]) -> Result<(), String> {
    let shape = store.shape();
    let history = History::new(shape, records);
    let last = history.check_reads()?;
    let row_of = |words: &'_ [u64], row: RowId| -> std::ops::Range<usize> {
        let first = row.0 as usize * shape.row_words();
        debug_assert!(first < words.len());
        first..first + shape.row_words()
    };
    for image in kept {
        history.check_image(&image.prefix, |row| &image.words[row_of(&image.words, row)])?;
    }
    let newest = kept.last().ok_or("no image")?;
    if shape.rows().any(|row| newest.words[row_of(&newest.words, row)] != *last.row(row)) {
        return Err("the last image has not all that was committed".to_owned());
    }
    let balances = shape.rows().map(|row| last.row(row)[BALANCE]).fold(0, u64::wrapping_add);
    if balances != FIRST_BALANCE * u64::from(shape.row_count()) {
        return Err(format!("balances add up to {balances}"));
    }
    match store.first_locked() {
        Some(row) => Err(format!("{row:?} is still locked")),
        None => Ok(()),
    }
}
