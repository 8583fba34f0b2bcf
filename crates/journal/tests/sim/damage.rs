//! Damage of one region of one segment: what was acknowledged is all there, or the start is refused.
//!
//! What is there is read here from `docs/internals/format.md` alone.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use stillframe_journal::{Journal, JournalError, JournalOptions, Offset, Place, SyncPolicy};
use stillframe_pagepool::device::{ShelfNumber, SimShelf};

use crate::support::{assert_prefix, check, options, recover, Mirror, Told, SEGMENT_BYTES};

const PAGE: usize = 4096;

type Images = BTreeMap<ShelfNumber, Vec<u8>>;

/// Something on the shelf that says what was durable.
struct Witness {
    file: ShelfNumber,
    durable: Offset,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// All first pages and blocks of the log that verify.
fn witnesses(images: &Images, place: Place) -> Vec<Witness> {
    let mut found = Vec::new();
    for (file, image) in images {
        for at in (0..image.len()).step_by(PAGE) {
            let bytes = &image[at..];
            match &bytes[..8] {
                b"STILLSEG" if crc32c::crc32c(&bytes[..4092]) == u32_at(bytes, 4092) => {}
                b"STILLBLK" => {
                    let end = 128 + u32_at(bytes, 32) as usize;
                    if end > bytes.len() {
                        continue;
                    }
                    let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..68]), &bytes[72..end]);
                    if sum != u32_at(bytes, 68) {
                        continue;
                    }
                }
                _ => continue,
            }
            if u64_at(bytes, 8) == place.log.0 {
                found.push(Witness { file: *file, durable: Offset(u64_at(bytes, 48)) });
            }
        }
    }
    found
}

/// A log over several segments after a crash, with what was appended.
struct Sample {
    images: Images,
    mirror: Mirror,
    place: Place,
}

fn sample(seed: u64, policy: SyncPolicy, has_restart: bool) -> Sample {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut shelf = SimShelf::new(seed);
    let at = Offset(rng.u64(..1000));
    let told = Arc::new(Told::default());
    let mut journal = Journal::begin(Arc::new(shelf.same()), at, options(policy), told.clone()).unwrap();
    let mut mirror = Mirror::new(at);
    let place = mirror.cut(&journal);
    for round in 0..50 {
        let len = rng.usize(1..9_000);
        let bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
        mirror.append(&journal, Some((round % 2, 0)), &bytes, None);
        if policy == SyncPolicy::Always || round % 5 == 0 {
            journal.make_durable(mirror.end()).unwrap();
        }
        if has_restart && round == 25 {
            shelf = shelf.crash();
            drop(journal);
            shelf = shelf.kill();
            let (next, _, recovery) = recover(shelf.same(), place, None, options(policy), &told).unwrap();
            mirror.cut_off(recovery.end);
            journal = next;
        }
    }
    journal.make_durable(mirror.end()).unwrap();
    shelf = shelf.crash();
    drop(journal);
    Sample { images: shelf.images(), mirror, place }
}

/// How often damage was refused, and how often it did not matter.
#[derive(Default, Debug)]
struct Outcomes {
    refused: u32,
    read: u32,
}

fn damaged(
    sample: &Sample,
    file: ShelfNumber,
    region: Range<usize>,
    fill: &mut dyn FnMut(&mut [u8]),
    outcomes: &mut Outcomes,
) {
    let mut images = sample.images.clone();
    fill(&mut images.get_mut(&file).unwrap()[region.clone()]);
    let least = witnesses(&images, sample.place).iter().map(|one| one.durable).max();
    let least = least.unwrap_or_default().max(sample.place.offset);
    let shelf = SimShelf::from_images(1, &images);
    match check(&shelf, sample.place, None) {
        Ok((replayed, found)) => {
            outcomes.read += 1;
            assert_prefix(&sample.mirror, sample.place, &replayed, &found, least);
            // What a start takes, the next one takes too.
            let told = Arc::new(Told::default());
            let (journal, _, first) =
                recover(shelf.same(), sample.place, None, options(SyncPolicy::Always), &told).unwrap();
            drop(journal);
            let (_, second) = check(&shelf.crash(), sample.place, None).unwrap();
            assert_eq!((first.end, second.end), (found.end, found.end), "{file} {region:?}");
        }
        Err(JournalError::Damaged { at, .. }) => {
            outcomes.refused += 1;
            assert!(at < sample.mirror.end(), "{file} {region:?}: refused although nothing lacks");
        }
        Err(JournalError::Missing { .. }) => outcomes.refused += 1,
        Err(error) => panic!("{file} {region:?}: {error}"),
    }
}

/// Files with blocks or a first page of the log.
fn segments(sample: &Sample) -> Vec<ShelfNumber> {
    let mut files: Vec<_> = witnesses(&sample.images, sample.place).iter().map(|one| one.file).collect();
    files.dedup();
    files
}

/// Every run of pages of every segment, for two logs: nothing that was acknowledged is cut off.
#[test]
fn each_run_of_pages_may_go() {
    for (seed, policy, has_restart) in [(1, SyncPolicy::Always, false), (2, SyncPolicy::Never, true)] {
        let sample = sample(seed, policy, has_restart);
        let files = segments(&sample);
        assert!(files.len() >= 4, "the log has several segments");
        let mut outcomes = Outcomes::default();
        let page_count = SEGMENT_BYTES as usize / PAGE;
        for file in files {
            for begin in 0..page_count {
                for end in [begin + 1, begin + 2, begin + 5, page_count] {
                    let region = begin * PAGE..end.min(page_count) * PAGE;
                    damaged(&sample, file, region, &mut |bytes| bytes.fill(0), &mut outcomes);
                }
            }
        }
        assert!(outcomes.refused > 100 && outcomes.read > 20, "{outcomes:?}");
    }
}

#[test]
fn any_bytes_may_change() {
    let mut rng = fastrand::Rng::with_seed(3);
    let mut outcomes = Outcomes::default();
    for seed in 0..8 {
        let policy = [SyncPolicy::Always, SyncPolicy::EverySecond][seed as usize % 2];
        let sample = sample(10 + seed, policy, seed % 3 == 0);
        let files = segments(&sample);
        for _ in 0..40 {
            let file = files[rng.usize(..files.len())];
            let begin = rng.usize(..SEGMENT_BYTES as usize);
            let most = [1, 200, 9_000][rng.usize(..3)];
            let end = (begin + 1 + rng.usize(..most)).min(SEGMENT_BYTES as usize);
            let mut fill = |bytes: &mut [u8]| match rng.u8(..3) {
                0 => bytes[0] ^= 1 << rng.u8(..8),
                1 => bytes.fill_with(|| rng.u8(..)),
                _ => bytes.fill(0xff),
            };
            damaged(&sample, file, begin..end, &mut fill, &mut outcomes);
        }
    }
    assert!(outcomes.refused > 20 && outcomes.read > 20, "{outcomes:?}");
}

/// The trap: a segment that has lost its first page and its first block still says that more was acknowledged.
#[test]
fn a_segment_without_its_begin_is_a_witness() {
    let sample = sample(1, SyncPolicy::Always, false);
    let last = *segments(&sample).last().unwrap();
    let first_block = u32_at(&sample.images[&last], PAGE + 32) as usize + 128;
    let region = 0..PAGE + first_block.next_multiple_of(PAGE);
    let mut images = sample.images.clone();
    images.get_mut(&last).unwrap()[region].fill(0);
    let error = check(&SimShelf::from_images(1, &images), sample.place, None).unwrap_err();
    let JournalError::Damaged { file, byte, at, evidence } = &error else { panic!("{error}") };
    assert!(*at < sample.mirror.end() && *byte > 0, "{error}");
    assert!(file.ends_with(".log") && evidence.contains(&last.to_string()), "{error}");
}

#[test]
fn a_file_that_is_gone_is_missed() {
    let sample = sample(1, SyncPolicy::Always, false);
    for file in segments(&sample) {
        let mut images = sample.images.clone();
        images.remove(&file);
        let result = check(&SimShelf::from_images(1, &images), sample.place, None);
        let is_last = file == *segments(&sample).last().unwrap();
        match result {
            Err(JournalError::Damaged { .. } | JournalError::Missing { .. }) => {}
            Err(error) => panic!("{error}"),
            // Only the last segment's own blocks say that it was there.
            Ok(_) => assert!(is_last),
        }
    }
    let images = BTreeMap::new();
    let error = check(&SimShelf::from_images(1, &images), sample.place, None).unwrap_err();
    assert!(matches!(error, JournalError::Missing { .. }), "{error}");
}

/// Recovery believes first pages and blocks, not names.
#[test]
fn files_may_have_other_names() {
    let sample = sample(2, SyncPolicy::Always, true);
    let whole = check(&SimShelf::from_images(1, &sample.images), sample.place, None).unwrap().1;
    let renamed: Images =
        sample.images.iter().map(|(file, image)| (ShelfNumber(900 - file.0), image.clone())).collect();
    let (replayed, found) = check(&SimShelf::from_images(1, &renamed), sample.place, None).unwrap();
    assert_eq!(found.end, whole.end);
    assert_prefix(&sample.mirror, sample.place, &replayed, &found, whole.end);
}

#[test]
fn less_than_a_clean_stop_had_is_damage() {
    let shelf = SimShelf::new(5);
    let told = Arc::new(Told::default());
    let journal =
        Journal::begin(Arc::new(shelf.same()), Offset(7), options(SyncPolicy::Never), told.clone()).unwrap();
    let mut mirror = Mirror::new(Offset(7));
    let place = mirror.cut(&journal);
    mirror.append(&journal, Some((3, 3)), b"the only unit", None);
    let end = journal.close().unwrap();
    let shelf = shelf.crash();
    let (_, found) = check(&shelf, place, Some(end)).unwrap();
    assert!(found.is_clean && found.end == end && found.block_count == 2);
    let mut images = shelf.images();
    // Block and end block.
    images.get_mut(&ShelfNumber(place.segment.0)).unwrap()[PAGE..3 * PAGE].fill(0);
    let shelf = SimShelf::from_images(1, &images);
    assert_eq!(check(&shelf, place, None).unwrap().1.end, Offset(7), "nothing says that there was more");
    let error = check(&shelf, place, Some(end)).unwrap_err();
    assert!(matches!(error, JournalError::Damaged { at: Offset(7), .. }), "{error}");
}

#[test]
fn a_newer_version_is_refused() {
    let sample = sample(1, SyncPolicy::Always, false);
    let mut images = sample.images;
    let page = &mut images.get_mut(&ShelfNumber(sample.place.segment.0)).unwrap()[..PAGE];
    page[20..24].copy_from_slice(&2_u32.to_le_bytes());
    let sum = crc32c::crc32c(&page[..4092]);
    page[4092..].copy_from_slice(&sum.to_le_bytes());
    let error = check(&SimShelf::from_images(1, &images), sample.place, None).unwrap_err();
    assert!(matches!(error, JournalError::OtherVersion { version: 2, .. }), "{error}");
}

#[test]
fn segments_have_a_least_size() {
    let told = Arc::new(Told::default());
    for segment_bytes in [0, 4096, SEGMENT_BYTES + 1] {
        let options = JournalOptions { segment_bytes, ..options(SyncPolicy::Never) };
        let error = Journal::begin(Arc::new(SimShelf::new(1)), Offset(0), options, told.clone()).err();
        assert!(matches!(error, Some(JournalError::SegmentSize { .. })), "{segment_bytes}");
    }
}
