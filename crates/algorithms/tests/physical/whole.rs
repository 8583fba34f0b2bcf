//! How many rows writers copy: of a part the row, of the whole row none where two copies take turns, as published.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use stillframe_algorithms::physical::{EpochOptions, SweepOrder};
use stillframe_algorithms::{
    Algorithm, Change, Copies, Help, ImageError, KindOptions, PhysicalKind, Place, RowCopies, RowId,
    WithAlgorithm, WordCopies,
};

const ROW_COUNT: u32 = 100;
const ROW_LEN: usize = 64;

struct Counting {
    rows: RowCopies,
    copied_rows: AtomicU64,
}

impl Copies for Counting {
    fn row_count(&self) -> u32 {
        self.rows.row_count()
    }

    fn row_len(&self) -> usize {
        self.rows.row_len()
    }

    fn copy(&self, from: Place, to: Place) {
        self.copied_rows.fetch_add(1, Ordering::Relaxed);
        self.rows.copy(from, to);
    }

    fn copy_part(&self, from: Place, to: Place, bytes: Range<usize>) {
        self.rows.copy_part(from, to, bytes);
    }

    fn read(&self, place: Place, into: &mut [u8]) {
        self.rows.read(place, into);
    }
}

impl WordCopies for Counting {
    fn words(&self, place: Place) -> &[AtomicU64] {
        self.rows.words(place)
    }
}

struct NoHelp;

impl Help<Counting> for NoHelp {
    fn emit(&self, _: &Counting, row: RowId, _: Place) -> Result<(), ImageError> {
        panic!("there are frames for row {}", row.0)
    }
}

/// Writes all rows after a cut, and says how many were copied.
struct Writes(Change);

impl WithAlgorithm<Counting> for Writes {
    type Output = u64;

    fn with<A: Algorithm<Counting>>(self, algorithm: A) -> u64 {
        let rows = RowCopies::for_algorithm(&algorithm, ROW_COUNT, ROW_LEN);
        let copies = Counting { rows, copied_rows: AtomicU64::new(0) };
        algorithm.start(&copies);
        algorithm.cut(&copies);
        copies.copied_rows.store(0, Ordering::Relaxed);
        for row in (0..ROW_COUNT).map(RowId) {
            let copy = algorithm.before_write(&copies, row, self.0);
            let bytes = self.0.bytes(ROW_LEN);
            copies.rows.array(copy).write(row.0, bytes.start, &vec![7; bytes.len()]);
            algorithm.after_write(&copies, row, self.0);
        }
        copies.copied_rows.load(Ordering::Relaxed)
    }
}

fn copied(kind: PhysicalKind, change: Change) -> u64 {
    let epoch = EpochOptions {
        spare_frames: 2 * ROW_COUNT,
        sweep_order: SweepOrder::Address,
        help: Arc::new(NoHelp),
    };
    let options = KindOptions {
        row_count: ROW_COUNT,
        row_len: ROW_LEN,
        writes_whole_rows: change == Change::Whole,
        epoch,
        hooks: Default::default(),
    };
    kind.build(options, Writes(change))
}

#[test]
fn whole_rows_are_not_copied_where_two_copies_take_turns() {
    use PhysicalKind::{Cou, Epoch, Hourglass, Naive, Piggyback, PingPong, Zigzag};
    let all = u64::from(ROW_COUNT);
    for kind in [Zigzag, Hourglass, Piggyback] {
        assert_eq!(copied(kind, Change::Whole), 0, "{kind}");
        // The same bytes, of which nobody says that all of them will be written.
        assert_eq!(copied(kind, Change::part(0..ROW_LEN)), all, "{kind}");
    }
    for change in [Change::Whole, Change::part(8..16)] {
        // What was at the cut has to be kept, or written a second time.
        for kind in [Cou, PingPong, Epoch] {
            assert_eq!(copied(kind, change), all, "{kind}");
        }
        assert_eq!(copied(Naive, change), 0);
    }
}
