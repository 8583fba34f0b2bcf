//! Flags and frames, one thread alone.

use crate::frames::Frames;
use crate::pairs::Pairs;
use crate::rows::RowId;

#[test]
fn neighbours_stay_as_they_are() {
    for (start, end) in [(0, 0), (0, 1), (3, 32), (5, 70), (32, 64), (31, 100)] {
        let pairs = Pairs::new(100, 3);
        pairs.fill(start..end, 1);
        let found: Vec<_> = (0..100).map(|row| pairs.get(RowId(row))).collect();
        let wanted: Vec<_> = (0..100).map(|row| if (start..end).contains(&row) { 1 } else { 3 }).collect();
        assert_eq!(found, wanted, "{start}..{end}");
    }
    let pairs = Pairs::new(64, 2);
    assert!(pairs.exchange(RowId(33), 2, 1));
    assert!(!pairs.exchange(RowId(33), 2, 0));
    pairs.replace(RowId(33), 1, 3);
    assert_eq!([32, 33, 34].map(|row| pairs.get(RowId(row))), [2, 3, 2]);
}

#[test]
fn frames_go_round() {
    let frames = Frames::new(3);
    let mut sweep = frames.first();
    for lap in 0..3 {
        let taken: Vec<_> = std::iter::from_fn(|| frames.take()).collect();
        assert_eq!(taken.iter().map(|turn| turn.frame()).collect::<Vec<_>>(), [0, 1, 2], "lap {lap}");
        // The second is ready first: it waits for the one before.
        frames.hand_over(taken[1], RowId(lap));
        assert_eq!(frames.handed_over(sweep), None);
        frames.hand_over(taken[0], RowId(7));
        frames.hand_over(taken[2], RowId(8));
        for wanted in [7, lap, 8] {
            let (row, next) = frames.handed_over(sweep).expect("handed over");
            assert_eq!((row, frames.take()), (RowId(wanted), None));
            sweep = next;
        }
        assert_eq!(frames.handed_over(sweep), None);
        assert!(!frames.are_free());
        frames.give_back(sweep);
        assert!(frames.are_free());
    }
    assert!(frames.take().is_some() && !frames.are_free());
    frames.give_back_all();
    assert!(frames.are_free());
    let none = Frames::new(0);
    assert!(none.take().is_none() && none.handed_over(none.first()).is_none() && none.are_free());
}
