//! The contract, as walks of random operations beside cuts and access phases.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use stillframe_algorithms::physical::{EpochOptions, SweepOrder};
use stillframe_algorithms::{Algorithm, Copies, KindOptions, PhysicalKind, RowId, WithAlgorithm};

use crate::picture::{Disk, Picture, Rows};
use crate::world::{TestCopies, World};

const ROW_LENS: [usize; 3] = [64, 1024, 4096];
const WRITERS: usize = 3;

/// The suite for one algorithm: the script, and walks from the seed on.
pub fn all(kind: PhysicalKind) {
    script(kind, &Arc::default());
    for seed in stillframe_testkit::seeds(20_261_123, 12) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| walk(kind, seed, &Arc::default()))) {
            eprintln!("STILLFRAME_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

/// What steps in at the points of an algorithm. Nothing, without the feature `mutations`.
#[cfg(not(feature = "mutations"))]
#[derive(Default)]
pub struct Intruder;

#[cfg(feature = "mutations")]
pub use crate::intruder::Intruder;

#[cfg(not(feature = "mutations"))]
impl Intruder {
    fn hooks(self: &Arc<Self>) -> stillframe_algorithms::hooks::Hooks {
        Default::default()
    }

    fn work(&self, _: u64, _: impl FnMut(crate::world::Deed), _: &AtomicBool) {}

    fn arm(&self, _: bool) {}
}

/// One walk, which is the same for the same seed but for the threads.
pub fn walk(kind: PhysicalKind, seed: u64, intruder: &Arc<Intruder>) {
    let mut rng = Rng::with_seed(seed);
    let walk = Walk {
        row_count: rng.u32(1..300),
        room: rng.u32(..100),
        row_len: ROW_LENS[rng.usize(..3)],
        is_skewed: rng.bool(),
        disk: Arc::default(),
        intruder: intruder.clone(),
        seed,
    };
    match rng.bool() {
        true => walk.run::<true>(kind, rng),
        false => walk.run::<false>(kind, rng),
    }
}

/// What is the same each time: one thread, periods in which some rows are written once, twice or not at all, and images that
/// finish, fail, or are not asked for.
pub fn script(kind: PhysicalKind, intruder: &Arc<Intruder>) {
    ROW_LENS.into_iter().for_each(|row_len| script_of(kind, row_len, intruder));
}

fn script_of(kind: PhysicalKind, row_len: usize, intruder: &Arc<Intruder>) {
    let walk = Walk {
        row_count: 70,
        room: 0,
        row_len,
        is_skewed: false,
        disk: Arc::default(),
        intruder: intruder.clone(),
        seed: 0,
    };
    let options = KindOptions::<TestCopies<false>> {
        row_count: walk.row_count,
        row_len: walk.row_len,
        writes_whole_rows: false,
        epoch: EpochOptions {
            spare_frames: 4,
            sweep_order: SweepOrder::HottestFirst,
            help: walk.disk.clone(),
        },
        hooks: intruder.hooks(),
    };
    kind.build(options, Script { walk });
}

struct Script {
    walk: Walk,
}

impl WithAlgorithm<TestCopies<false>> for Script {
    type Output = ();

    fn with<A: Algorithm<TestCopies<false>>>(self, algorithm: A) {
        let walk = &self.walk;
        let world = World::new(algorithm, walk.row_count, walk.row_count, walk.row_len);
        let write_every = |step: usize, from: u32| {
            for row in (from..walk.row_count).step_by(step).map(RowId) {
                // Each of them is the first write of some rows in some period.
                match row.0 % 4 {
                    0 => world.replace(row),
                    1 => world.write_somewhere(row, 24, 8),
                    2 => world.write(row, 0, 8),
                    _ => world.write(row, 8, 8),
                }
                world.write(row, 40, 5);
            }
        };
        // An image that finishes, `None`, or after how many rows it fails; none at all.
        let images =
            [Some(None), Some(None), Some(Some(5)), None, Some(None), Some(Some(0)), Some(None), Some(None)];
        for (period, image_wanted) in (0..).zip(images) {
            write_every(7, period);
            let fails_after = image_wanted.flatten();
            let model = world.cut(|row_count| walk.disk.expect(row_count, walk.row_len, fails_after));
            write_every(11, period);
            if image_wanted.is_some() {
                image(&world, walk, &mut Rng::with_seed(u64::from(period)), &model, fails_after);
            }
        }
        // Many cuts in a row of which there is no image.
        for _ in 0..40 {
            write_every(13, 0);
            world.cut(|row_count| walk.disk.expect(row_count, walk.row_len, None));
        }
        let model = world.cut(|row_count| walk.disk.expect(row_count, walk.row_len, None));
        write_every(11, 0);
        image(&world, walk, &mut Rng::with_seed(0), &model, None);
        world.check_all();
    }
}

struct Walk {
    row_count: u32,
    room: u32,
    row_len: usize,
    is_skewed: bool,
    disk: Arc<Disk>,
    intruder: Arc<Intruder>,
    seed: u64,
}

impl Walk {
    fn run<const LETS_GO: bool>(self, kind: PhysicalKind, mut rng: Rng) {
        let orders = [SweepOrder::Address, SweepOrder::HottestFirst];
        let options = KindOptions::<TestCopies<LETS_GO>> {
            row_count: self.row_count + self.room,
            row_len: self.row_len,
            writes_whole_rows: rng.u8(..4) == 0,
            epoch: EpochOptions {
                spare_frames: [0, 1, 4, 64][rng.usize(..4)],
                sweep_order: orders[rng.usize(..2)],
                help: self.disk.clone(),
            },
            hooks: self.intruder.hooks(),
        };
        kind.build(options, WalkOver::<LETS_GO> { walk: self, rng });
    }
}

struct WalkOver<const LETS_GO: bool> {
    walk: Walk,
    rng: Rng,
}

impl<const LETS_GO: bool> WithAlgorithm<TestCopies<LETS_GO>> for WalkOver<LETS_GO> {
    type Output = ();

    /// Writers, and a thread that cuts and images: some of these fail, some are slow. Each that finishes equals the model.
    fn with<A: Algorithm<TestCopies<LETS_GO>>>(mut self, algorithm: A) {
        let walk = &self.walk;
        let world = World::new(algorithm, walk.row_count, walk.row_count + walk.room, walk.row_len);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..WRITERS {
                let mut rng = self.rng.fork();
                let (world, done) = (&world, &done);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        operate(world, &mut rng, walk.is_skewed);
                    }
                });
            }
            scope.spawn(|| walk.intruder.work(walk.seed, |deed| world.intrude(deed), &done));
            let stop = stop_at_end(&done);
            images(&world, walk, &mut self.rng);
            drop(stop);
        });
        world.check_all();
        // Nobody writes now: all that is owed by what failed comes with one more image.
        let model = world.cut(|row_count| walk.disk.expect(row_count, walk.row_len, None));
        image(&world, walk, &mut self.rng, &model, None);
    }
}

/// Tells the writers to end, also if the thread that has it panics.
fn stop_at_end(done: &AtomicBool) -> impl Drop + '_ {
    struct Stop<'s>(&'s AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    Stop(done)
}

/// Which row the next operation is for: all alike, or most of them few.
fn pick(rng: &mut Rng, row_count: u32, is_skewed: bool) -> RowId {
    match is_skewed && rng.u8(..10) < 9 {
        true => RowId(rng.u32(..row_count.div_ceil(10))),
        false => RowId(rng.u32(..row_count)),
    }
}

/// Eight bytes of a row, a span, or the whole of it.
fn span(rng: &mut Rng, row_len: usize) -> (usize, usize) {
    match rng.u8(..4) {
        0 => (0, row_len),
        1 => {
            let at = rng.usize(..row_len);
            (at, rng.usize(1..=row_len - at))
        }
        _ => (8 * rng.usize(..row_len / 8), 8),
    }
}

fn operate<A, const LETS_GO: bool>(world: &World<A, LETS_GO>, rng: &mut Rng, is_skewed: bool)
where
    A: Algorithm<TestCopies<LETS_GO>>,
{
    let row = pick(rng, world.copies.row_count(), is_skewed);
    let (at, len) = span(rng, world.copies.row_len());
    match rng.u8(..32) {
        0 => world.grow(),
        1 => world.clear(row),
        2..8 => world.read(row),
        8..12 => world.replace(row),
        12..14 => world.write_somewhere(row, at, len),
        _ => world.write(row, at, len),
    }
}

fn images<A, const LETS_GO: bool>(world: &World<A, LETS_GO>, walk: &Walk, rng: &mut Rng)
where
    A: Algorithm<TestCopies<LETS_GO>>,
{
    for _ in 0..rng.u32(4..12) {
        let fails_after = (rng.u8(..4) == 0).then(|| rng.u64(..walk.row_count as u64 + 2));
        let model = world.cut(|row_count| walk.disk.expect(row_count, walk.row_len, fails_after));
        // Of one in ten nobody wants the image.
        if rng.u8(..10) != 0 {
            image(world, walk, rng, &model, fails_after);
        }
    }
}

fn image<A, const LETS_GO: bool>(
    world: &World<A, LETS_GO>,
    walk: &Walk,
    rng: &mut Rng,
    model: &Rows,
    fails_after: Option<u64>,
) where
    A: Algorithm<TestCopies<LETS_GO>>,
{
    let before = walk.disk.last();
    let mut picture = Picture {
        disk: &walk.disk,
        is_incremental: A::IS_INCREMENTAL,
        pause_rows: rng.u32(1..100),
        pause: Duration::from_micros(if rng.bool() { 0 } else { rng.u64(..500) }),
        is_asynchronous: rng.bool(),
        rows_since: 0,
        pending: None,
        is_finished: false,
    };
    walk.intruder.arm(true);
    let result = world.algorithm.access(&world.copies, &mut picture);
    walk.intruder.arm(false);
    assert_eq!(result.is_ok(), picture.is_finished);
    assert!(result.is_ok() || fails_after.is_some(), "{result:?}");
    match result {
        Ok(()) => {
            same(&walk.disk.last(), model);
            world.check_idle();
        }
        Err(_) => same(&walk.disk.last(), &before),
    }
}

fn same(image: &[Vec<u8>], model: &[Vec<u8>]) {
    assert_eq!(image.len(), model.len(), "rows");
    let differ: Vec<usize> = (0..image.len()).filter(|&row| image[row] != model[row]).collect();
    assert!(differ.is_empty(), "{} rows differ, the first is {}", differ.len(), differ[0]);
}
