//! Images in files: crashes and errors at every step, and each algorithm's image in a directory.

mod crash;
mod sim;

use std::sync::Arc;

use fastrand::Rng;
use stillframe_algorithms::hooks::Hooks;
use stillframe_algorithms::image_file::{Directory, FullImages, MergedImages};
use stillframe_algorithms::physical::{EpochOptions, SweepOrder};
use stillframe_algorithms::{
    Algorithm, Change, Copies, CopyId, KindOptions, PhysicalKind, Place, RowCopies, RowId, WithAlgorithm,
};
use stillframe_testkit::TempDir;

const SEEDS: u64 = 40;

fn seeds() -> std::ops::Range<u64> {
    let first = stillframe_testkit::seed_or(1) >> 1;
    first..first + SEEDS
}

#[test]
fn a_merged_image_outlives_crashes_and_errors() {
    crash::every_step::<MergedImages<sim::SimFiles>>(seeds(), &Hooks::default());
}

#[test]
fn a_full_image_outlives_crashes_and_errors() {
    crash::every_step::<FullImages<sim::SimFiles>>(seeds(), &Hooks::default());
}

#[cfg(feature = "mutations")]
#[test]
fn merges_that_a_crash_can_destroy_are_found() {
    use stillframe_algorithms::hooks::Mutation;

    for mutation in [Mutation::MergeWithoutJournal, Mutation::MergeOfUnsyncedJournal] {
        let hooks = Hooks { mutation: Some(mutation), pause: None };
        let walk = || crash::every_step::<MergedImages<sim::SimFiles>>(0..SEEDS, &hooks);
        let survives = std::panic::catch_unwind(std::panic::AssertUnwindSafe(walk));
        assert!(survives.is_err(), "{mutation:?} survives");
    }
}

const ROW_COUNT: u32 = 3000;
const ROW_LEN: usize = 1024;

/// Cuts with writes after them, so that every algorithm has copies to make, and then their images.
struct InDirectory {
    dir: TempDir,
    full: Arc<FullImages<Directory>>,
}

impl WithAlgorithm<RowCopies> for InDirectory {
    type Output = ();

    fn with<A: Algorithm<RowCopies>>(self, algorithm: A) {
        let mut rng = Rng::with_seed(7);
        let copies = RowCopies::for_algorithm(&algorithm, ROW_COUNT, ROW_LEN);
        let write = |row: RowId, number: u64| {
            let change = Change::part(16..24);
            let copy = algorithm.before_write(&copies, row, change);
            copies.array(copy).write(row.0, 16, &number.to_le_bytes());
            algorithm.after_write(&copies, row, change);
        };
        algorithm.start(&copies);
        for number in 1..5000 {
            write(RowId(rng.u32(..ROW_COUNT)), number);
        }
        for _ in 0..3 {
            let mut model = vec![0; ROW_COUNT as usize * ROW_LEN];
            for (row, bytes) in (0..).map(RowId).zip(model.chunks_exact_mut(ROW_LEN)) {
                copies.read(Place::of(row, algorithm.live(row)), bytes);
            }
            let merged = A::IS_INCREMENTAL
                .then(|| MergedImages::open(Arc::new(Directory::new(self.dir.path())), ROW_LEN));
            let merged = merged.transpose().expect("the image opens");
            let full = self.full.begin(ROW_COUNT).expect("an image begins");
            algorithm.cut(&copies);
            for number in 1..200 {
                write(RowId(rng.u32(..ROW_COUNT)), number << 32);
            }
            let found = match merged {
                Some(merged) => {
                    let mut writer = merged.begin(ROW_COUNT).expect("an image begins");
                    algorithm.access(&copies, &mut writer).expect("the image finishes");
                    merged.load()
                }
                None => {
                    let mut full = full;
                    algorithm.access(&copies, &mut full).expect("the image finishes");
                    self.full.load()
                }
            };
            assert!(found.expect("the image is whole").expect("there is one") == model, "the image differs");
        }
        assert_eq!(copies.array(CopyId::D).row_len(), ROW_LEN);
    }
}

#[test]
fn each_algorithm_makes_images_in_a_directory() {
    for kind in PhysicalKind::ALL {
        let dir = TempDir::new("images");
        let full = Arc::new(FullImages::new(Arc::new(Directory::new(dir.path())), ROW_LEN));
        let epoch =
            EpochOptions { spare_frames: 10, sweep_order: SweepOrder::HottestFirst, help: full.help() };
        let options = KindOptions {
            row_count: ROW_COUNT,
            row_len: ROW_LEN,
            writes_whole_rows: false,
            epoch,
            hooks: Hooks::default(),
        };
        kind.build(options, InDirectory { dir, full });
    }
}
