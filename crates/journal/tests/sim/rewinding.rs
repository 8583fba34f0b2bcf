//! Starts one after the other: what one has cut off never comes back, and segments that are used again hold nothing that counts.

use std::sync::Arc;

use stillframe_journal::{Journal, Offset, Place, SyncPolicy};
use stillframe_pagepool::device::{DeviceOp, Fault, Shelf, ShelfNumber, SimShelf};

use crate::support::{assert_prefix, check, options, recover, Mirror, Told, Value};

fn begin(shelf: &SimShelf, policy: SyncPolicy) -> (Journal, Mirror, Place) {
    let journal =
        Journal::begin(Arc::new(shelf.same()), Offset(0), options(policy), Arc::new(Told::default()))
            .unwrap();
    let mut mirror = Mirror::new(Offset(0));
    let place = mirror.cut(&journal);
    (journal, mirror, place)
}

/// A unit of several blocks is cut off where one of them is torn. The next start goes on at the unit's begin.
#[test]
fn a_unit_over_several_blocks_is_there_whole_or_not_at_all() {
    let mut was_torn = 0;
    for call in 0..40 {
        let shelf = SimShelf::new(call);
        let (journal, mut mirror, place) = begin(&shelf, SyncPolicy::Always);
        mirror.append(&journal, None, b"before", None);
        journal.make_durable(mirror.end()).unwrap();
        shelf.schedule(shelf.call_count() + call, Fault::Crash);
        let value = Value { len_bytes: 200_000, salt: 5, is_broken: false };
        mirror.append(&journal, None, b"front and back", Some(value));
        let is_there = journal.make_durable(mirror.end()).is_ok();
        let shelf = shelf.crash();
        drop(journal);
        let told = Arc::new(Told::default());
        let (journal, replayed, first) =
            recover(shelf.same(), place, None, options(SyncPolicy::Always), &told).unwrap();
        assert_prefix(&mirror, place, &replayed, &first, if is_there { mirror.end() } else { Offset(6) });
        was_torn += u32::from(first.torn_bytes > 0);
        mirror.cut_off(first.end);
        mirror.append(&journal, None, b"behind it", None);
        journal.make_durable(mirror.end()).unwrap();
        let shelf = shelf.crash();
        drop(journal);
        let (replayed, second) = check(&shelf, place, None).unwrap();
        assert_prefix(&mirror, place, &replayed, &second, mirror.end());
        assert_eq!(second.torn_bytes, 0);
    }
    assert!(was_torn > 3, "{was_torn}");
}

/// The segments of the newest blocks held blocks of the same log before.
#[test]
fn stale_blocks_in_segments_used_again_are_not_read() {
    let shelf = SimShelf::new(1);
    let (journal, mut mirror, mut place) = begin(&shelf, SyncPolicy::Always);
    for round in 0..307_u32 {
        mirror.append(&journal, None, &[round as u8; 3_000], None);
        journal.make_durable(mirror.end()).unwrap();
        if round % 20 == 0 {
            place = mirror.cut(&journal);
            journal.release_below(place);
        }
    }
    let report = journal.report();
    assert!(report.segment.0 > 15 && report.segment_count < 8, "{report:?}");
    let shelf = shelf.crash();
    drop(journal);
    assert!(shelf.list().unwrap().len() < 12, "segments are used again");
    // Behind the seven blocks of the last segment lie those of the segment that the file was before.
    let image = &shelf.images()[&ShelfNumber(report.segment.0)];
    let stale = image.chunks(4096).skip(8).filter(|page| page.starts_with(b"STILLBLK")).count();
    assert_eq!(stale, 8);
    let (replayed, found) = check(&shelf, place, None).unwrap();
    assert_prefix(&mirror, place, &replayed, &found, mirror.end());
    assert_eq!(found.block_count, 6, "one for each unit since the cut, and no stale one");
}

/// What was read after a kill was not on the disk; it is before anything is put behind it.
#[test]
fn what_is_recovered_is_durable() {
    let shelf = SimShelf::new(3);
    let (journal, mut mirror, place) = begin(&shelf, SyncPolicy::Never);
    mirror.append(&journal, None, &[7; 300_000], None);
    while journal.report().buffered_bytes > 0 {
        std::thread::yield_now();
    }
    let shelf = shelf.kill();
    drop(journal);
    let told = Arc::new(Told::default());
    let (journal, _, found) = recover(shelf.same(), place, None, options(SyncPolicy::Never), &told).unwrap();
    assert_eq!(found.end, mirror.end());
    let shelf = shelf.crash();
    drop(journal);
    let (replayed, found) = check(&shelf, place, None).unwrap();
    assert_prefix(&mirror, place, &replayed, &found, mirror.end());
}

/// A new log at a place of its own: the old one is there until it is released.
#[test]
fn logs_live_beside_each_other_until_one_is_released() {
    let shelf = SimShelf::new(4);
    let (journal, mut mirror, place) = begin(&shelf, SyncPolicy::Always);
    mirror.append(&journal, None, b"of the old log", None);
    journal.make_durable(mirror.end()).unwrap();
    drop(journal);
    let (next, mut later, new_place) = begin(&shelf, SyncPolicy::Always);
    assert!(new_place.log != place.log && new_place.segment > place.segment);
    later.append(&next, None, b"of the new log", None);
    next.make_durable(later.end()).unwrap();
    let (replayed, found) = check(&shelf, place, None).unwrap();
    assert_prefix(&mirror, place, &replayed, &found, mirror.end());
    // A place of the other log says nothing.
    next.release_below(place);
    let removed = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = removed.clone();
    shelf.before_each(Arc::new(move |number, op| {
        if op == DeviceOp::Remove {
            seen.lock().push(number.0);
        }
    }));
    next.release_below(new_place);
    while shelf.list().unwrap().iter().any(|number| number.0 < new_place.segment.0) {
        std::thread::yield_now();
    }
    assert!(removed.lock().contains(&place.segment.0));
    let (replayed, found) = check(&shelf, new_place, None).unwrap();
    assert_prefix(&later, new_place, &replayed, &found, later.end());
}
