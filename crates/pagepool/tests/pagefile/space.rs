//! Slots: none leaks, the file stays small, a full disk does no harm.

use std::sync::Arc;

use stillframe_pagepool::device::{Fault, PageBuf, SimDevice};
use stillframe_pagepool::pagefile::{PageFile, PageFileError, USER_HEADER_BYTES};
use stillframe_pagepool::{PageId, PAGE_SIZE};

use crate::model::{
    check_accounting, check_content, checkpoint, has_content, header_of, open, page_of, write_back,
    write_batch, Change, Content,
};

/// Pages that a checkpoint writes in any case: the superblock, and the witness before and after it.
const COPIES: u64 = 3;

/// Length of the file over that of the live slots; 1 MB is free of charge.
fn size_ratio(file: &PageFile) -> f64 {
    let stats = file.stats();
    let slots = stats.file_bytes / PAGE_SIZE as u64;
    slots.saturating_sub(256) as f64 / stats.live_slots as f64
}

fn versions(pids: impl Iterator<Item = u32>, version: u64) -> Vec<(u32, u64)> {
    pids.map(|pid| (pid, version)).collect()
}

#[test]
fn rewriting_everything_keeps_the_file_at_twice_the_data() {
    let device = Arc::new(SimDevice::new(1));
    let (file, _) = open(&device).unwrap();
    let mut content = Content::new();
    for version in 1..12 {
        checkpoint(&file, &mut content, &versions(1..3001, version));
        assert!(size_ratio(&file) <= 2.2, "{:?}", file.stats());
        check_accounting(&file);
    }
    check_content(&file, &content);
    drop(file);
    let (file, recovered) = open(&device).unwrap();
    assert!(recovered.damage.is_none() && has_content(&file, &recovered, &content));
}

#[test]
fn small_changes_keep_the_file_small_and_the_previous_checkpoint_protected() {
    let seed = stillframe_testkit::seed_or(2);
    let mut rng = fastrand::Rng::with_seed(seed);
    let device = Arc::new(SimDevice::new(seed));
    let (file, _) = open(&device).unwrap();
    let mut content = Content::new();
    checkpoint(&file, &mut content, &versions(1..4001, 1));
    for version in 2..120 {
        let mut pids: Vec<u32> = (0..40).map(|_| 1 + rng.u32(..4000)).collect();
        pids.sort_unstable();
        pids.dedup();
        let stats = checkpoint(&file, &mut content, &versions(pids.iter().copied(), version));
        assert!(stats.written_bytes <= (pids.len() as u64 + 14) * PAGE_SIZE as u64, "{stats:?}");
        assert!(file.stats().previous_slots >= pids.len() as u64);
        assert!(size_ratio(&file) <= 1.7, "{:?}", file.stats());
    }
    check_accounting(&file);
    check_content(&file, &content);
}

#[test]
fn a_file_of_which_most_is_freed_shrinks() {
    let seed = stillframe_testkit::seed_or(3);
    let mut rng = fastrand::Rng::with_seed(seed);
    let device = Arc::new(SimDevice::new(seed));
    let (file, _) = open(&device).unwrap();
    let mut content = Content::new();
    checkpoint(&file, &mut content, &versions(1..8001, 1));
    let writer = file.begin_checkpoint().unwrap();
    for pid in (1..8001).filter(|_| rng.u8(..10) != 0) {
        writer.free_page(PageId(pid)).unwrap();
        content.remove(&pid);
    }
    writer.commit(header_of(&content)).unwrap();
    let mut moved = 0;
    for version in 2..30 {
        let pids: Vec<u32> = content.keys().copied().filter(|_| rng.u8(..40) == 0).collect();
        moved += checkpoint(&file, &mut content, &versions(pids.into_iter(), version)).moved_page_count;
        check_accounting(&file);
    }
    assert!(moved > 0);
    assert!(size_ratio(&file) <= 2.2, "{:?}", file.stats());
    check_content(&file, &content);
    device.crash();
    // The witness says without a sync that the last checkpoint is durable: the crash may tear it.
    let (file, recovered) = open(&device).unwrap();
    assert!(!recovered.fell_back && has_content(&file, &recovered, &content), "{recovered:?}");
    check_content(&file, &content);
}

/// A damaged page at the end moves like any other, damaged as it is: it does not keep the file long.
#[test]
fn a_damaged_page_at_the_end_does_not_keep_the_file_long() {
    let device = Arc::new(SimDevice::new(1));
    let (file, _) = open(&device).unwrap();
    let mut content = Content::new();
    checkpoint(&file, &mut content, &versions(1..4001, 1));
    let image = device.image();
    let slot_of = |pid: u32| {
        let page = page_of(pid, content[&pid]);
        image.chunks(PAGE_SIZE).position(|found| found == page.0).expect("the page's slot")
    };
    let last = (1..4001).max_by_key(|pid| slot_of(*pid)).unwrap();
    let place = (slot_of(last) * PAGE_SIZE) as u64;
    device.corrupt(place + 99, 1, |bytes| bytes[0] ^= 1);
    let writer = file.begin_checkpoint().unwrap();
    for pid in (1..4001).filter(|pid| pid % 10 != 0 && *pid != last) {
        writer.free_page(PageId(pid)).unwrap();
        content.remove(&pid);
    }
    writer.commit(header_of(&content)).unwrap();
    for version in 2..12 {
        checkpoint(&file, &mut content, &versions([10, 20].into_iter(), version));
        check_accounting(&file);
    }
    let mut page = PageBuf([0; PAGE_SIZE]);
    let error = file.read_page(PageId(last), &mut page.0).expect_err("it is damaged for good").to_string();
    assert!(error.contains("is damaged") && !error.contains(&format!("(byte {place})")), "{error}");
    assert!(file.stats().file_bytes <= place, "{:?}: {error}", file.stats());
    for (pid, version) in content.iter().filter(|(pid, _)| **pid != last) {
        file.read_page(PageId(*pid), &mut page.0).unwrap();
        assert!(page.0 == page_of(*pid, *version).0, "page {pid} is not version {version}");
    }
}

#[test]
fn a_full_disk_fails_the_checkpoint_and_later_ones_work() {
    let device = Arc::new(SimDevice::new(4));
    let (file, _) = open(&device).unwrap();
    let mut content = Content::new();
    checkpoint(&file, &mut content, &versions(1..1001, 1));
    device.set_capacity(1800 * PAGE_SIZE as u64);
    for version in 2..5 {
        let writer = file.begin_checkpoint().unwrap();
        let error = (1..1001)
            .step_by(100)
            .find_map(|pid| write_batch(&writer, &versions(pid..pid + 100, version)).err());
        let error = error.expect("1000 pages do not fit");
        assert!(error.is_no_space(), "{error}");
        let error = writer.commit(header_of(&content)).unwrap_err();
        assert!(matches!(error, PageFileError::CheckpointIncomplete { .. }), "{error}");
        drop(writer);
        assert!(file.failure().is_none());
        check_accounting(&file);
        check_content(&file, &content);
    }
    // What does fit, works: also when nothing but the previous checkpoint's slots is left.
    for version in 10..20 {
        checkpoint(&file, &mut content, &versions(1..700, version));
    }
    let writer = file.begin_checkpoint().unwrap();
    writer.free_pages(PageId(1), 600).unwrap();
    content.retain(|pid, _| *pid > 600);
    writer.commit(header_of(&content)).unwrap();
    for version in 20..24 {
        checkpoint(&file, &mut content, &versions(601..1301, version));
    }
    check_content(&file, &content);
    check_accounting(&file);
    device.crash();
    let (file, recovered) = open(&device).unwrap();
    assert!(has_content(&file, &recovered, &content));
}

#[test]
fn slots_of_a_checkpoint_in_doubt_are_not_given_to_others() {
    let device = Arc::new(SimDevice::new(13));
    let (file, _) = open(&device).unwrap();
    let mut content = Content::new();
    checkpoint(&file, &mut content, &versions(1..100, 1));
    let writer = file.begin_checkpoint().unwrap();
    write_batch(&writer, &versions(1..100, 2)).unwrap();
    // One of its pages was written before, and others name its slot, too.
    for (pid, written) in (200..).zip(write_back(&file, &versions(200..210, 2)).unwrap()) {
        file.set_location(PageId(pid), written);
        let kept = file.keep_location(PageId(pid)).unwrap();
        writer.adopt_page(PageId(pid), &kept).unwrap();
        file.release_spill(kept);
    }
    let free_slots = file.stats().free_slots;
    // Map, witness, sync, both read back, superblock, sync: the last one fails, and the disk may hold either checkpoint.
    device.schedule(device.call_count() + 6, Fault::Error);
    let error = writer.commit(header_of(&content)).unwrap_err();
    assert!(matches!(error, PageFileError::Failed { .. }), "{error}");
    drop(writer);
    (200..210).for_each(|pid| file.forget_location(PageId(pid)));
    assert!(file.stats().free_slots <= free_slots, "{:?}", file.stats());
    assert_eq!((file.stats().located_slots, file.stats().spilled_slots), (0, 0));
    assert!(file.failure().is_some_and(|cause| cause.contains("cannot sync")), "{:?}", file.failure());
    assert!(file.spill(&page_of(1, 1).0).is_err());
    check_content(&file, &content);
}

#[test]
fn dropped_checkpoints_and_repeated_writes_leak_nothing() {
    let seed = stillframe_testkit::seed_or(5);
    let mut rng = fastrand::Rng::with_seed(seed);
    let device = Arc::new(SimDevice::new(seed));
    let (file, _) = open(&device).unwrap();
    let mut content = Content::new();
    for version in 1..60u64 {
        let change = Change::random(&mut rng, &content, 400, 300, version);
        let writer = file.begin_checkpoint().unwrap();
        assert!(matches!(file.begin_checkpoint(), Err(PageFileError::CheckpointRunning { .. })));
        // Other content first, pages that will be freed included: only the last word counts.
        let early: Vec<_> = (0..30).map(|_| (1 + rng.u32(..400), version + 1000)).collect();
        if rng.bool() {
            write_batch(&writer, &early).unwrap();
            drop(writer);
            check_accounting(&file);
            continue;
        }
        for (pid, _) in &early {
            write_batch(&writer, &[(*pid, version + 1000)]).unwrap();
            let kept = content.get(pid).map_or_else(
                || writer.free_page(PageId(*pid)),
                |kept| write_batch(&writer, &[(*pid, *kept)]),
            );
            kept.unwrap();
        }
        change.write(&writer).unwrap();
        writer.commit(header_of(&change.after)).unwrap();
        assert!(matches!(writer.write_pages(&[]), Err(PageFileError::CheckpointEnded { .. })));
        content = change.after;
        check_content(&file, &content);
        check_accounting(&file);
    }
    assert_eq!(file.stats().pending_slots, 0);
    assert!(size_ratio(&file) <= 2.2, "{:?}", file.stats());
}

#[test]
fn pages_of_zeros_take_neither_slot_nor_write() {
    let device = Arc::new(SimDevice::new(6));
    let (file, _) = open(&device).unwrap();
    let mut content = Content::new();
    let stats = checkpoint(&file, &mut content, &versions(1..513, 0));
    assert_eq!((stats.page_count, stats.zero_page_count), (512, 512));
    assert_eq!(stats.written_bytes, (stats.map_page_count + COPIES) * PAGE_SIZE as u64);
    assert_eq!(file.stats().live_slots, stats.map_page_count);
    check_content(&file, &content);
    drop(file);
    let (file, recovered) = open(&device).unwrap();
    assert!(has_content(&file, &recovered, &content));
    check_content(&file, &content);
}

#[test]
fn an_unchanged_page_is_not_written_again() {
    let device = Arc::new(SimDevice::new(7));
    let (file, _) = open(&device).unwrap();
    let mut content = Content::new();
    checkpoint(&file, &mut content, &versions(1..2000, 1));
    let stats = checkpoint(&file, &mut content, &[]);
    assert_eq!(
        stats.written_bytes,
        COPIES * PAGE_SIZE as u64,
        "a superblock, its witness twice, and nothing else"
    );
    let writer = file.begin_checkpoint().unwrap();
    writer.free_pages(PageId(1 << 20), 1 << 20).unwrap();
    let stats = writer.commit(header_of(&content)).unwrap();
    assert_eq!(stats.written_bytes, COPIES * PAGE_SIZE as u64, "freeing what is not there changes nothing");
    check_content(&file, &content);
}

#[test]
fn spilled_pages_come_back_and_survive_checkpoints() {
    let device = Arc::new(SimDevice::new(8));
    let (file, _) = open(&device).unwrap();
    let mut content = Content::new();
    let mut spilled = Vec::new();
    for version in 1..6u64 {
        for pid in 0..100u32 {
            let page = page_of(pid, version + 100);
            spilled.push((pid, version + 100, file.spill(&page.0).unwrap()));
        }
        checkpoint(&file, &mut content, &versions(1..500, version));
        check_accounting(&file);
    }
    assert_eq!(file.stats().spilled_slots, 500);
    let mut page = Box::new(PageBuf::ZERO);
    for (pid, version, spilled) in spilled {
        file.read_spill(&spilled, &mut page.0).unwrap();
        assert!(page.0 == page_of(pid, version).0);
        file.release_spill(spilled);
    }
    assert_eq!(file.stats().spilled_slots, 0);
    check_content(&file, &content);
    check_accounting(&file);
}

#[test]
fn a_damaged_spill_is_not_served() {
    let device = Arc::new(SimDevice::new(9));
    let (file, _) = open(&device).unwrap();
    let spilled = file.spill(&page_of(1, 1).0).unwrap();
    device.corrupt(3 * PAGE_SIZE as u64, PAGE_SIZE, |bytes| bytes[77] ^= 4);
    let error = file.read_spill(&spilled, &mut page_of(1, 0).0).unwrap_err().to_string();
    assert!(error.contains("slot 3 (byte 12288)") && error.contains("checksum"), "{error}");
    file.release_spill(spilled);
}

#[test]
fn threads_may_share_a_checkpoint() {
    let device = Arc::new(SimDevice::new(10));
    let (file, _) = open(&device).unwrap();
    let mut content = Content::new();
    checkpoint(&file, &mut content, &versions(1..2001, 1));
    let writer = file.begin_checkpoint().unwrap();
    std::thread::scope(|scope| {
        for part in 0..4u32 {
            let (writer, file) = (&writer, &file);
            scope.spawn(move || {
                let pids: Vec<u32> = (1 + part..2001).step_by(4).collect();
                let size = 1 + part as usize * 20;
                for pids in pids.chunks(size) {
                    write_batch(writer, &versions(pids.iter().copied(), 2)).unwrap();
                    let spilled = file.spill(&page_of(pids[0], 3).0).unwrap();
                    let mut page = Box::new(PageBuf::ZERO);
                    file.read_page(PageId(pids[0]), &mut page.0).unwrap();
                    assert!(page.0 == page_of(pids[0], 1).0, "the durable content until the commit");
                    file.read_spill(&spilled, &mut page.0).unwrap();
                    assert!(page.0 == page_of(pids[0], 3).0);
                    file.release_spill(spilled);
                }
            });
        }
    });
    content.values_mut().for_each(|version| *version = 2);
    writer.commit(header_of(&content)).unwrap();
    check_content(&file, &content);
    check_accounting(&file);
}

#[test]
fn readers_are_right_while_checkpoints_reuse_slots() {
    let device = Arc::new(SimDevice::new(11));
    let (file, _) = open(&device).unwrap();
    let mut content = Content::new();
    checkpoint(&file, &mut content, &versions(1..301, 1));
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2u64 {
            let (file, is_done) = (&file, &is_done);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(reader);
                let mut page = Box::new(PageBuf::ZERO);
                let mut seen = vec![0; 301];
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    let pid = 1 + rng.u32(..300);
                    file.read_page(PageId(pid), &mut page.0).unwrap();
                    let version = (seen[pid as usize]..40).find(|version| page.0 == page_of(pid, *version).0);
                    seen[pid as usize] = version.expect("a version, and no older one than before");
                }
            });
        }
        for version in 2..40 {
            checkpoint(&file, &mut content, &versions(1..301, version));
        }
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn page_numbers_beyond_the_limit_are_refused() {
    let device = Arc::new(SimDevice::new(12));
    let (file, _) = open(&device).unwrap();
    let writer = file.begin_checkpoint().unwrap();
    let page = page_of(1, 1);
    for pid in [1 << 30, u32::MAX] {
        let error = writer.write_pages(&[(PageId(pid), &page.0)]).unwrap_err();
        assert!(matches!(error, PageFileError::PageIdTooLarge { .. }), "{error}");
        assert!(writer.free_page(PageId(pid)).is_err());
        assert!(file.read_page(PageId(pid), &mut page_of(1, 0).0).is_err());
    }
    let error = writer.commit([0; USER_HEADER_BYTES]).unwrap_err();
    assert!(matches!(error, PageFileError::CheckpointIncomplete { .. }), "{error}");
    drop(writer);
    let writer = file.begin_checkpoint().unwrap();
    writer.write_pages(&[(PageId((1 << 30) - 1), &page.0)]).unwrap();
    writer.commit([0; USER_HEADER_BYTES]).unwrap();
    assert_eq!(crate::model::mapped(&file), [(1 << 30) - 1]);
}
