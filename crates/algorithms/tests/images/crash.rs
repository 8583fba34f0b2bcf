//! Every step of a few images fails, or is the last before the power fails.

use std::sync::Arc;

use fastrand::Rng;
use stillframe_algorithms::hooks::Hooks;
use stillframe_algorithms::image_file::{FullImages, ImageFileError, MergedImages};
use stillframe_algorithms::{Copies, CopyId, Image, ImageError, Place, RowArray, RowCopies, RowId};

use crate::sim::{Fault, SimFiles};

const ROW_LEN: usize = 64;
const ROWS_MAX: u32 = 40;

/// Images of one kind over simulated files.
pub trait Images: Sized {
    const IS_INCREMENTAL: bool;

    fn open(files: &Arc<SimFiles>, hooks: Hooks) -> Result<Self, ImageFileError>;
    fn load(&self) -> Result<Option<Vec<u8>>, ImageFileError>;
    /// An image of these rows, out of so many.
    fn write(&self, run: &mut Run, rows: &[u32]) -> Result<(), ImageError>;
}

impl Images for MergedImages<SimFiles> {
    const IS_INCREMENTAL: bool = true;

    fn open(files: &Arc<SimFiles>, hooks: Hooks) -> Result<Self, ImageFileError> {
        MergedImages::open_with_hooks(files.clone(), ROW_LEN, hooks)
    }

    fn load(&self) -> Result<Option<Vec<u8>>, ImageFileError> {
        MergedImages::load(self)
    }

    fn write(&self, run: &mut Run, rows: &[u32]) -> Result<(), ImageError> {
        run.put_all(self.begin(run.copies.row_count())?, rows)
    }
}

impl Images for FullImages<SimFiles> {
    const IS_INCREMENTAL: bool = false;

    fn open(files: &Arc<SimFiles>, _: Hooks) -> Result<Self, ImageFileError> {
        Ok(FullImages::new(files.clone(), ROW_LEN))
    }

    fn load(&self) -> Result<Option<Vec<u8>>, ImageFileError> {
        FullImages::load(self)
    }

    fn write(&self, run: &mut Run, rows: &[u32]) -> Result<(), ImageError> {
        run.put_all(self.begin(run.copies.row_count())?, rows)
    }
}

/// Rows that change, and what images should have of them.
pub struct Run {
    copies: RowCopies,
    rng: Rng,
    /// Rows that no image has that finished.
    changed: Vec<bool>,
    /// The image that finished last.
    last: Option<Vec<u8>>,
    /// Those that failed since, of which a crash may turn out to have finished one.
    failed: Vec<Vec<u8>>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut rng = Rng::with_seed(seed);
        let copies = RowCopies::over([RowArray::new(ROWS_MAX, ROW_LEN)].into());
        copies.set_row_count(rng.u32(1..=ROWS_MAX / 2));
        let changed = vec![true; ROWS_MAX as usize];
        let mut run = Run { copies, rng, changed, last: None, failed: Vec::new() };
        (0..run.copies.row_count()).for_each(|row| run.change(row));
        run
    }

    fn change(&mut self, row: u32) {
        self.copies.array(CopyId::D).write(
            row,
            0,
            &std::array::from_fn::<u8, ROW_LEN, _>(|_| self.rng.u8(..)),
        );
        self.changed[row as usize] = true;
    }

    fn content(&self) -> Vec<u8> {
        let mut content = vec![0; self.copies.row_count() as usize * ROW_LEN];
        for (row, bytes) in content.chunks_exact_mut(ROW_LEN).enumerate() {
            self.copies.read(Place::of(RowId(row as u32), CopyId::D), bytes);
        }
        content
    }

    fn put_all(&mut self, mut image: impl Image<RowCopies>, rows: &[u32]) -> Result<(), ImageError> {
        for &row in rows {
            if self.rng.u8(..8) == 0 {
                image.drain()?;
            }
            if self.rng.u8(..8) == 0 {
                image.put(&self.copies, RowId(0), Place::of(RowId(row), CopyId::D))?;
                image.take_back();
            }
            image.put(&self.copies, RowId(row), Place::of(RowId(row), CopyId::D))?;
        }
        image.finish()
    }

    /// Changes a few rows, adds some, and writes an image. False if the power has failed.
    fn image<I: Images>(&mut self, images: &I, files: &SimFiles) -> bool {
        let row_count = (self.copies.row_count() + self.rng.u32(..4)).min(ROWS_MAX);
        self.copies.set_row_count(row_count);
        for _ in 0..self.rng.u32(..10) {
            let row = self.rng.u32(..row_count);
            self.change(row);
        }
        let is_wanted = |&row: &u32| !I::IS_INCREMENTAL || self.changed[row as usize];
        let mut rows: Vec<u32> = (0..row_count).filter(is_wanted).collect();
        if self.rng.bool() {
            self.rng.shuffle(&mut rows);
        }
        match images.write(self, &rows) {
            Ok(()) => {
                self.changed.fill(false);
                self.last = Some(self.content());
                self.failed.clear();
            }
            Err(_) => self.failed.push(self.content()),
        }
        !files.is_off()
    }

    fn check(&mut self, found: Option<Vec<u8>>) {
        assert!(
            found == self.last || found.as_ref().is_some_and(|found| self.failed.contains(found)),
            "the image is neither the last nor one that failed"
        );
        // From here on this is the last one. Rows that were in doubt come again.
        self.last = found;
        self.failed.clear();
    }
}

/// A few images with a fault, a restart whose recovery may lose power, too, and a few more. Returns the steps of the first part.
fn run<I: Images>(seed: u64, faults: Vec<(u64, Fault)>, hooks: &Hooks) -> u64 {
    let mut run = Run::new(seed);
    let files = Arc::new(SimFiles::new(seed, faults));
    if let Ok(images) = I::open(&files, hooks.clone()) {
        (0..4).all(|_| run.image(&images, &files));
    }
    let step_count = files.step_count();
    let mut restarted = Arc::new(files.restart(vec![(run.rng.u64(1..8), Fault::PowerFails)]));
    let _ = I::open(&restarted, hooks.clone()).map(|images| images.load());
    restarted = Arc::new(restarted.restart(Vec::new()));
    let images = I::open(&restarted, hooks.clone()).expect("the files are whole");
    run.check(images.load().expect("the image is whole"));
    run.changed.fill(true);
    for _ in 0..2 {
        run.image(&images, &restarted);
        run.check(images.load().expect("the image is whole"));
    }
    step_count
}

/// All of them from the seed on.
pub fn every_step<I: Images>(seeds: std::ops::Range<u64>, hooks: &Hooks) {
    for seed in seeds {
        let step_count = run::<I>(seed, Vec::new(), hooks);
        assert!(step_count > 8, "{step_count} steps");
        for step in 1..=step_count {
            println!("seed {seed}, step {step}");
            run::<I>(seed, vec![(step, Fault::PowerFails)], hooks);
            run::<I>(seed, vec![(step, Fault::Fails)], hooks);
            // What an error leaves is not to be trusted by what comes after it, until the power fails.
            for later in step + 1..step + 8 {
                run::<I>(seed, vec![(step, Fault::Fails), (later, Fault::PowerFails)], hooks);
            }
        }
    }
}
