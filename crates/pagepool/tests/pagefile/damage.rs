//! Damaged files: found, reported with the place, never served.

use std::sync::Arc;

use stillframe_pagepool::device::{Fault, FaultRates, PageBuf, SimDevice};
use stillframe_pagepool::pagefile::{PageError, PageFileError, Slot};
use stillframe_pagepool::{PageId, PAGE_SIZE};

use crate::fuzz::MapEditor;
use crate::model::{
    check_content, checkpoint, has_content, header_of, open, open_accepting, page_of, write_back,
    write_batch, Change, Content,
};

const PAGE: u64 = PAGE_SIZE as u64;

/// A file with two checkpoints and what they hold; the newer one changed every fifth page.
fn two_checkpoints(seed: u64) -> (Arc<SimDevice>, Content, Content) {
    let device = Arc::new(SimDevice::new(seed));
    let (file, _) = open(&device).unwrap();
    let mut older = Content::new();
    let pages: Vec<_> = (1..1500).map(|pid| (pid, 1)).collect();
    checkpoint(&file, &mut older, &pages);
    let mut newer = older.clone();
    let pages: Vec<_> = (1..1500).step_by(5).map(|pid| (pid, 2)).collect();
    checkpoint(&file, &mut newer, &pages);
    (device, older, newer)
}

/// In which place the newest superblock lies.
fn newest_place(device: &SimDevice) -> u64 {
    MapEditor::newest(device.image()).place as u64
}

#[test]
fn a_damaged_older_superblock_is_reported_and_repaired() {
    let (device, _, mut newer) = two_checkpoints(2);
    device.corrupt((1 - newest_place(&device)) * PAGE + 4000, 1, |byte| byte[0] ^= 1);
    let (file, recovered) = open(&device).unwrap();
    assert!(matches!(recovered.damage, Some(PageFileError::SuperblockDamaged { .. })), "{recovered:?}");
    check_content(&file, &newer);
    checkpoint(&file, &mut newer, &[(7, 9)]);
    drop(file);
    let (file, recovered) = open(&device).unwrap();
    assert!(recovered.damage.is_none() && has_content(&file, &recovered, &newer));
}

#[test]
fn three_damaged_superblocks_are_refused() {
    let (device, ..) = two_checkpoints(3);
    for place in 0..3 {
        device.corrupt(place * PAGE + 700, 8, |bytes| bytes.fill(0xff));
    }
    let error = open(&device).err().unwrap().to_string();
    for part in [
        "superblock 0 (byte 0)",
        "superblock 1 (byte 4096)",
        "superblock 2 (byte 8192)",
        "checksum",
        "backup",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn damage_in_any_page_of_the_newest_map_falls_back_only_if_the_loss_is_accepted() {
    let (device, older, _) = two_checkpoints(4);
    let image = device.image();
    let editor = MapEditor::newest(image.clone());
    let shared = MapEditor::at(image.clone(), 1 - editor.place).map_slots();
    let own: Vec<u32> = editor.map_slots().into_iter().filter(|slot| !shared.contains(slot)).collect();
    assert!(own.len() >= 6, "{own:?}");
    for slot in own {
        let device = Arc::new(SimDevice::from_image(5, image.clone()));
        device.corrupt(Slot(slot).offset() + 123, 1, |byte| byte[0] ^= 0x10);
        let refusal = open(&device).err().unwrap().to_string();
        let place = format!("slot {slot} (byte {})", Slot(slot).offset());
        assert!(
            refusal.contains(&place) && refusal.contains("'accept-loss-after-checkpoint 2'"),
            "{refusal}"
        );
        assert!(open_accepting(&device, 1).is_err(), "another loss");
        let (file, recovered) = open_accepting(&device, 2).unwrap();
        assert!(recovered.fell_back && has_content(&file, &recovered, &older), "{recovered:?}");
        assert!(recovered.damage.unwrap().to_string().contains(&place));
        check_content(&file, &older);
        // The next checkpoint replaces the damaged one and is newer than both.
        let mut content = older.clone();
        checkpoint(&file, &mut content, &[(3, 33)]);
        device.crash();
        let (file, recovered) = open(&device).unwrap();
        assert!(recovered.damage.is_none() && !recovered.fell_back, "{recovered:?}");
        assert!(has_content(&file, &recovered, &content));
        check_content(&file, &content);
    }
}

#[test]
fn damage_in_a_map_page_of_both_is_refused() {
    let (device, ..) = two_checkpoints(6);
    let editor = MapEditor::newest(device.image());
    let other = MapEditor::at(device.image(), 1 - editor.place).map_slots();
    for slot in editor.map_slots().into_iter().chain(other) {
        device.corrupt(Slot(slot).offset(), 64, |bytes| bytes.fill(0x77));
    }
    let error = open(&device).err().unwrap();
    assert!(matches!(error, PageFileError::NothingLoads { .. }), "{error}");
}

#[test]
fn a_transient_error_while_opening_cannot_resurrect_an_overwritten_checkpoint() {
    // The newest checkpoint cannot be read once, the previous one is served and a new one is begun; then the machine
    // stops. The newest one reads again now: it must be intact or gone.
    let (device, older, newer) = two_checkpoints(7);
    let image = device.image();
    for crash_after in 0..60 {
        let device = Arc::new(SimDevice::from_image(crash_after, image.clone()));
        // After the copies of the superblock; once is not enough.
        (3..6).for_each(|call| device.schedule(call, Fault::Error));
        let (file, recovered) = open_accepting(&device, 2).unwrap();
        assert!(recovered.fell_back && has_content(&file, &recovered, &older), "{recovered:?}");
        device.schedule(device.call_count() + crash_after, Fault::Crash);
        // Spilling, write-backs and checkpoints all write; any may be the first.
        let written = match crash_after % 3 {
            0 => file.spill(&page_of(1, 77).0).is_ok(),
            1 => write_back(&file, &[(1, 77), (2, 77)]).is_ok(),
            _ => true,
        };
        let pages: Vec<_> = (1..1500).step_by(4).map(|pid| (pid, 3)).collect();
        let mut after = older.clone();
        after.extend(pages.iter().copied());
        if let (true, Ok(writer)) = (written, file.begin_checkpoint()) {
            if write_batch(&writer, &pages).is_ok() {
                let _ = writer.commit(header_of(&after));
            }
        }
        device.clear_faults();
        device.crash();
        // Or the one that was lost is there again, and does not load: then that is said again.
        let (file, recovered) = open_accepting(&device, 2).unwrap();
        let found =
            [&older, &newer, &after].into_iter().find(|content| has_content(&file, &recovered, content));
        check_content(&file, found.expect("one of the three"));
    }
}

#[test]
fn the_last_checkpoint_survives_a_damaged_superblock_also_when_the_one_before_has_been_given_up() {
    let device = Arc::new(SimDevice::new(12));
    let (file, _) = open(&device).unwrap();
    let mut content = Content::new();
    let pages = |version| (1..1500).map(|pid| (pid, version)).collect::<Vec<_>>();
    for version in 1..4 {
        checkpoint(&file, &mut content, &pages(version));
    }
    assert!(file.stats().previous_slots > 0);
    let writer = file.begin_checkpoint().unwrap();
    for batch in pages(4).chunks(256) {
        write_batch(&writer, batch).unwrap();
    }
    assert_eq!(file.stats().previous_slots, 0, "given up to make room");
    let image = device.image();
    for place in 0..2 {
        let device = Arc::new(SimDevice::from_image(1, image.clone()));
        device.corrupt(place * PAGE + 20, 1, |byte| byte[0] ^= 1);
        let (file, recovered) = open(&device).unwrap();
        assert!(has_content(&file, &recovered, &content), "{recovered:?}");
        check_content(&file, &content);
    }
}

#[test]
fn a_damaged_page_is_reported_with_its_place_and_its_neighbours_are_served() {
    let (device, _, newer) = two_checkpoints(8);
    let editor = MapEditor::newest(device.image());
    for pid in [2, 3, 700, 1499] {
        let slot = editor.page_slot(pid);
        device.corrupt(Slot(slot).offset() + 4095, 1, |byte| byte[0] ^= 0x80);
        let (file, _) = open(&device).unwrap();
        let mut page = Box::new(PageBuf::ZERO);
        let error = file.read_page(PageId(pid), &mut page.0).unwrap_err();
        assert!(matches!(&error, PageError::Damaged { slot: found, .. } if found.0 == slot), "{error}");
        let text = error.to_string();
        assert!(
            text.contains(&format!("page {pid} at slot {slot} (byte {})", u64::from(slot) * PAGE)),
            "{text}"
        );
        let mut bufs = vec![PageBuf::ZERO; newer.len()];
        let mut reads: Vec<_> =
            newer.keys().zip(&mut bufs).map(|(pid, buf)| (PageId(*pid), &mut buf.0)).collect();
        let errors = file.read_pages(&mut reads);
        assert!(errors.len() == 1 && errors[0].pid() == PageId(pid), "{errors:?}");
        for (read, buf) in reads.iter().filter(|(read, _)| read.0 != pid) {
            assert!(**buf == page_of(read.0, newer[&read.0]).0, "page {}", read.0);
        }
        device.corrupt(Slot(slot).offset() + 4095, 1, |byte| byte[0] ^= 0x80);
    }
}

#[test]
fn a_shortened_file_is_not_opened_as_if_it_were_whole() {
    let (device, ..) = two_checkpoints(9);
    let image = device.image();
    for keep in [1, 2, 3, 4, 100, 1000, 1501] {
        let device = Arc::new(SimDevice::from_image(1, image[..keep * PAGE_SIZE].to_vec()));
        assert!(open(&device).is_err(), "{keep} slots");
    }
}

#[test]
fn other_files_and_other_versions_are_refused() {
    let text = b"This is somebody's diary and not a page file. ".repeat(400);
    for len in [PAGE_SIZE, 2 * PAGE_SIZE, 4 * PAGE_SIZE] {
        let device = Arc::new(SimDevice::from_image(1, text[..len].to_vec()));
        let error = open(&device).err().unwrap();
        assert!(matches!(error, PageFileError::NotAPageFile { .. }), "{error}");
        assert_eq!(device.image(), text[..len], "left alone");
    }
    let (device, ..) = two_checkpoints(10);
    for place in 0..2 {
        let mut image = device.image();
        let page = &mut image[place * PAGE_SIZE..(place + 1) * PAGE_SIZE];
        page[8..12].copy_from_slice(&4u32.to_le_bytes());
        let crc32c = crc32c::crc32c(&page[..PAGE_SIZE - 4]);
        page[PAGE_SIZE - 4..].copy_from_slice(&crc32c.to_le_bytes());
        let device = Arc::new(SimDevice::from_image(1, image));
        let error = open(&device).err().unwrap();
        assert!(matches!(error, PageFileError::UnknownVersion { found: 4, .. }), "{error}");
        assert!(
            error.to_string().contains("format version 4 and this program reads up to version 3"),
            "{error}"
        );
    }
}

#[test]
fn silent_write_damage_is_never_served() {
    let seed = stillframe_testkit::seed_or(21);
    let mut reported = 0;
    for round in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed + round);
        let device = Arc::new(SimDevice::new(seed + round));
        let (file, _) = open(&device).unwrap();
        let (mut contents, mut acknowledged) = (vec![Content::new()], 0);
        device.set_rates(FaultRates { silent_damage: 0.05, ..FaultRates::default() });
        for version in 1..7 {
            let before = contents[contents.len() - 1].clone();
            let change = Change::random(&mut rng, &before, 200, 100, version);
            // A page that is already found damaged may fail the checkpoint; then the disk has done its worst, and may
            // hold that checkpoint.
            let is_committed = change.run(&file).is_ok();
            contents.push(change.after);
            if !is_committed {
                break;
            }
            acknowledged = contents.len() - 1;
        }
        device.clear_faults();
        drop(file);
        let Ok((file, recovered)) = open(&device) else {
            reported += 1;
            continue;
        };
        reported += u32::from(recovered.damage.is_some());
        let found = contents.iter().rposition(|content| has_content(&file, &recovered, content));
        let found = found.expect("a content that was committed");
        assert!(
            found >= acknowledged,
            "{found} is served and {acknowledged} was acknowledged: {recovered:?}"
        );
        let content = &contents[found];
        let mut page = Box::new(PageBuf::ZERO);
        for (pid, version) in content {
            match file.read_page(PageId(*pid), &mut page.0) {
                Ok(()) => assert!(page.0 == page_of(*pid, *version).0, "page {pid}"),
                Err(PageError::Damaged { .. }) => reported += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(reported > 20, "{reported}");
}

#[test]
fn read_errors_are_reported_and_pass() {
    let (device, _, newer) = two_checkpoints(11);
    let (file, _) = open(&device).unwrap();
    let mut page = Box::new(PageBuf::ZERO);
    device.schedule(device.call_count(), Fault::Error);
    let error = file.read_page(PageId(5), &mut page.0).unwrap_err();
    assert!(matches!(error, PageError::Device { .. }), "{error}");
    device.schedule(device.call_count(), Fault::BitFlip);
    let error = file.read_page(PageId(5), &mut page.0).unwrap_err();
    assert!(matches!(error, PageError::Damaged { .. }), "{error}");
    assert!(file.failure().is_none());
    check_content(&file, &newer);
}
