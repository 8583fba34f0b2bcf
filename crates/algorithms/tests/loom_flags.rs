//! The flags of all algorithms under the model checker: two rows whose flags share words, writers, readers and the access
//! phase. Over the real sources, with loom's atomics. With the feature `mutations` the checker also has to find what goes
//! wrong with each mistake in the order of steps.
#![allow(dead_code, unused_imports)]

#[path = "../src/backoff.rs"]
mod backoff;
#[path = "../src/bits.rs"]
mod bits;
#[path = "../src/frames.rs"]
mod frames;
#[path = "../src/hooks.rs"]
mod hooks;
#[path = "../src/image.rs"]
mod image;
#[path = "../src/pairs.rs"]
mod pairs;
#[path = "../src/parts.rs"]
mod parts;
#[path = "../src/physical/mod.rs"]
mod physical;
#[path = "../src/row_array.rs"]
mod row_array;
#[path = "../src/rows.rs"]
mod rows;
#[path = "../src/seam.rs"]
mod seam;

mod sync {
    pub use loom::sync::atomic;
    pub use loom::sync::Mutex;
    pub use loom::thread::yield_now;
    /// A turn of a loop that waits lets others go on.
    pub use loom::thread::yield_now as spin_loop;
}

use std::sync::{Arc, Mutex};

use hooks::Hooks;
use image::{Help, Image, ImageError};
use physical::{
    Cou, Epoch, EpochOptions, EpochParts, Hourglass, Naive, Piggyback, PingPong, SweepOrder, Zigzag,
};
use row_array::RowCopies;
use rows::{Change, Copies, CopyId, Place, RowId};
use seam::Algorithm;

/// Two words: a write changes the first alone, so what is not carried over shows.
type Content = [u64; 2];

const ROWS: [RowId; 2] = [RowId(0), RowId(1)];
const ROW_LEN: usize = 16;

fn content(copies: &RowCopies, place: Place) -> Content {
    let mut bytes = [0; ROW_LEN];
    copies.read(place, &mut bytes);
    [0, 8].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")))
}

/// The image; none of the checker's steps happens under its lock.
#[derive(Default)]
struct Disk(Mutex<[Option<Content>; 2]>);

impl Disk {
    fn put(&self, row: RowId, content: Content) {
        let before = self.0.lock().expect("no holder panics")[row.0 as usize].replace(content);
        assert_eq!(before, None, "row {} twice", row.0);
    }

    fn take(&self) -> [Option<Content>; 2] {
        std::mem::take(&mut *self.0.lock().expect("no holder panics"))
    }
}

impl Help<RowCopies> for Disk {
    fn emit(&self, copies: &RowCopies, row: RowId, place: Place) -> Result<(), ImageError> {
        self.put(row, content(copies, place));
        Ok(())
    }
}

/// One image: a row can be taken back until the next.
struct Picture<'d> {
    disk: &'d Disk,
    last: Option<(RowId, Content)>,
    /// Whether there is room for one row only after each time it has been drained.
    is_slow: bool,
    has_room: bool,
}

impl Picture<'_> {
    fn keep(&mut self) {
        if let Some((row, content)) = self.last.take() {
            self.disk.put(row, content);
        }
    }
}

impl Image<RowCopies> for Picture<'_> {
    fn put(&mut self, copies: &RowCopies, row: RowId, place: Place) -> Result<(), ImageError> {
        self.keep();
        self.last = Some((row, content(copies, place)));
        self.has_room = !self.is_slow;
        Ok(())
    }

    fn take_back(&mut self) {
        self.last = None;
    }

    fn has_room(&mut self) -> bool {
        self.has_room
    }

    fn is_busy(&mut self) -> bool {
        true
    }

    fn drain(&mut self) -> Result<(), ImageError> {
        self.has_room = true;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), ImageError> {
        self.keep();
        Ok(())
    }
}

struct World<A> {
    algorithm: A,
    copies: RowCopies,
    disk: Arc<Disk>,
    is_slow: bool,
}

impl<A: Algorithm<RowCopies>> World<A> {
    fn read(&self, row: RowId) -> Content {
        content(&self.copies, Place::of(row, self.algorithm.live(row)))
    }

    fn write(&self, row: RowId, word: u64) {
        self.write_word(row, 0, word);
    }

    fn write_word(&self, row: RowId, index: usize, word: u64) {
        let mut expected = self.read(row);
        expected[index] = word;
        let at = 8 * index;
        let change = Change::part(at..at + 8);
        let copy = self.algorithm.before_write(&self.copies, row, change);
        self.copies.array(copy).write(row.0, at, &word.to_le_bytes());
        self.algorithm.after_write(&self.copies, row, change);
        assert_eq!(self.read(row), expected, "the latest content");
    }

    fn replace(&self, row: RowId, words: Content) {
        let copy = self.algorithm.before_write(&self.copies, row, Change::Whole);
        words.iter().enumerate().for_each(|(at, word)| {
            self.copies.array(copy).write(row.0, 8 * at, &word.to_le_bytes());
        });
        self.algorithm.after_write(&self.copies, row, Change::Whole);
        assert_eq!(self.read(row), words, "the latest content");
    }

    fn image(&self) -> [Option<Content>; 2] {
        let mut picture =
            Picture { disk: &self.disk, last: None, is_slow: self.is_slow, has_room: !self.is_slow };
        self.algorithm.access(&self.copies, &mut picture).expect("nothing fails");
        self.disk.take()
    }
}

/// What runs beside the access phase.
#[derive(Clone, Copy)]
enum Beside {
    Writers,
    Reader,
    /// One writer, and an image that has no room at times, so that rows are copied ahead.
    SlowImage,
    /// One writer of both words, one after the other.
    BothWords,
    /// Two writers of whole rows.
    WholeRows,
}

/// Two cuts: between them everything at once, after the second nothing else.
fn model<A: Algorithm<RowCopies> + Send + 'static>(
    make: fn(Arc<Disk>, Hooks) -> A,
    hooks: Hooks,
    beside: Beside,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let disk = Arc::<Disk>::default();
        let algorithm = make(disk.clone(), hooks.clone());
        let copies = RowCopies::for_algorithm(&algorithm, 2, ROW_LEN);
        ROWS.iter().for_each(|row| copies.array(CopyId::D).write(row.0, 8, &7u64.to_le_bytes()));
        algorithm.start(&copies);
        let world = loom::sync::Arc::new(World {
            algorithm,
            copies,
            disk,
            is_slow: matches!(beside, Beside::SlowImage),
        });
        world.write(ROWS[0], 1);
        // A first image, so that both copies are in use.
        world.algorithm.cut(&world.copies);
        assert_eq!(world.image(), [Some([1, 7]), Some([0, 7])]);
        world.write(ROWS[0], 2);
        world.algorithm.cut(&world.copies);
        let threads: Vec<_> = ROWS
            .into_iter()
            .map(|row| {
                let world = world.clone();
                loom::thread::spawn(move || match beside {
                    Beside::Writers | Beside::SlowImage => world.write(row, 3),
                    Beside::WholeRows => world.replace(row, [3, 7]),
                    Beside::BothWords => {
                        world.write_word(row, 1, 8);
                        world.write(row, 3);
                    }
                    Beside::Reader => assert_eq!(world.read(row), [[2, 7], [0, 7]][row.0 as usize]),
                })
            })
            .take(if matches!(beside, Beside::Writers | Beside::WholeRows) { 2 } else { 1 })
            .collect();
        let unchanged = (!A::IS_INCREMENTAL).then_some([0, 7]);
        assert_eq!(world.image(), [Some([2, 7]), unchanged], "the image of the second cut");
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert!(world.algorithm.is_idle(), "flags or frames of the cut are left");
        if let Beside::Writers | Beside::WholeRows = beside {
            world.algorithm.cut(&world.copies);
            assert_eq!(world.image(), [Some([3, 7]); 2], "the image of the third cut");
        }
    });
}

fn both<A: Algorithm<RowCopies> + Send + 'static>(make: fn(Arc<Disk>, Hooks) -> A) {
    model(make, Hooks::default(), Beside::Writers);
    model(make, Hooks::default(), Beside::Reader);
}

fn epoch(disk: Arc<Disk>, hooks: Hooks) -> Epoch<RowCopies> {
    // One frame for two writers: one of them helps.
    let options = EpochOptions { spare_frames: 1, sweep_order: SweepOrder::Address, help: disk };
    Epoch::with_hooks(2, options, hooks)
}

/// Of parts of a word, so many fit the budget.
fn epoch_parts<const FRAMES: u32>(disk: Arc<Disk>, hooks: Hooks) -> EpochParts<RowCopies> {
    // Two words of its own beside that of the row: the budget is in rows.
    let spare_frames = (FRAMES * parts::Parts::frame_bytes(1) as u32).div_ceil(ROW_LEN as u32);
    let options = EpochOptions { spare_frames, sweep_order: SweepOrder::Address, help: disk };
    EpochParts::with_parts(2, ROW_LEN, 1, options, hooks)
}

#[test]
fn cou_holds() {
    both(|_, hooks| Cou::with_hooks(2, hooks));
}

#[test]
fn zigzag_holds() {
    both(|_, hooks| Zigzag::with_hooks(2, hooks));
}

#[test]
fn pingpong_holds() {
    both(|_, hooks| PingPong::with_hooks(2, hooks));
}

#[test]
fn hourglass_holds() {
    both(|_, hooks| Hourglass::with_hooks(2, hooks));
}

/// Two writers of two parts, for which there is a frame: both may help at a time.
#[test]
fn epoch_holds_with_parts_of_whole_rows() {
    model(epoch_parts::<1>, Hooks::default(), Beside::WholeRows);
}

/// Of those for which a write of a whole row is another edge.
#[test]
fn whole_rows_hold() {
    model(|_, hooks| Zigzag::with_hooks(2, hooks), Hooks::default(), Beside::WholeRows);
    model(|_, hooks| Hourglass::with_hooks(2, hooks), Hooks::default(), Beside::WholeRows);
    model(|_, hooks| Piggyback::with_hooks(2, hooks), Hooks::default(), Beside::WholeRows);
}

#[test]
fn piggyback_holds() {
    both(|_, hooks| Piggyback::with_hooks(2, hooks));
}

#[test]
fn epoch_holds() {
    both(epoch);
}

#[test]
fn epoch_holds_ahead_of_a_slow_image() {
    let make = |disk: Arc<Disk>, hooks| {
        let options = EpochOptions { spare_frames: 4, sweep_order: SweepOrder::HottestFirst, help: disk };
        Epoch::with_hooks(2, options, hooks)
    };
    model(make, Hooks::default(), Beside::SlowImage);
}

#[test]
fn epoch_holds_with_parts() {
    both(epoch_parts::<4>);
    model(epoch_parts::<4>, Hooks::default(), Beside::BothWords);
}

#[test]
fn epoch_holds_with_parts_and_no_frame_for_some() {
    both(epoch_parts::<1>);
    model(epoch_parts::<1>, Hooks::default(), Beside::BothWords);
}

#[cfg(feature = "mutations")]
mod mistakes {
    use super::*;
    use hooks::Mutation;

    fn is_found<A: Algorithm<RowCopies> + Send + 'static>(
        make: fn(Arc<Disk>, Hooks) -> A,
        mutation: Mutation,
        beside: Beside,
    ) {
        let hooks = Hooks { mutation: Some(mutation), pause: None };
        let check = std::panic::AssertUnwindSafe(|| model(make, hooks, beside));
        assert!(std::panic::catch_unwind(check).is_err(), "{mutation:?} survives");
    }

    #[test]
    fn of_cou() {
        is_found(|_, hooks| Cou::with_hooks(2, hooks), Mutation::CouSavedBeforeCopy, Beside::Writers);
        is_found(|_, hooks| Cou::with_hooks(2, hooks), Mutation::CouTestThenEmit, Beside::Writers);
    }

    #[test]
    fn of_zigzag() {
        is_found(
            |_, hooks| Zigzag::with_hooks(2, hooks),
            Mutation::ZigzagNeighboursNotAtomic,
            Beside::Writers,
        );
    }

    #[test]
    fn of_piggyback() {
        let make = |_, hooks| Piggyback::with_hooks(2, hooks);
        is_found(make, Mutation::PiggybackFlagBeforeCopy, Beside::Reader);
        is_found(make, Mutation::PiggybackTestThenCopy, Beside::Writers);
        is_found(make, Mutation::PiggybackNeighboursNotAtomic, Beside::Writers);
    }

    #[test]
    fn of_epoch() {
        is_found(epoch, Mutation::EpochNoValidation, Beside::Writers);
        is_found(epoch, Mutation::EpochCaptureUnclaimed, Beside::Writers);
        is_found(epoch, Mutation::EpochEndsBeforeCaptured, Beside::Writers);
    }

    #[test]
    fn of_epoch_with_parts() {
        is_found(epoch_parts::<4>, Mutation::EpochNoValidation, Beside::Writers);
        is_found(epoch_parts::<4>, Mutation::PartsNotLinked, Beside::Writers);
        is_found(epoch_parts::<4>, Mutation::PartsNotLaidOver, Beside::Writers);
        is_found(epoch_parts::<1>, Mutation::HelpWithoutParts, Beside::BothWords);
    }
}
