//! What must hold for a page file that anything has happened to. The random test runs it for a second, the fuzz
//! target for as long as one likes.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use stillframe_pagepool::device::{PageBuf, SimDevice};
use stillframe_pagepool::pagefile::{PageFile, UserHeader, USER_HEADER_BYTES};
use stillframe_pagepool::{PageId, PAGE_SIZE};

/// Page numbers under several branches of the map.
const PAGES: [u32; 8] = [1, 2, 3, 511, 512, 1024, 20_000, 1 << 28];
const CHECKPOINT_COUNT: u32 = 4;
/// Pages that are written to the damaged file, some of which it may have.
const WRITTEN_AFTERWARDS: std::ops::Range<u32> = 3..9;
/// Map pages that are sealed anew at most: damage may make the map point in circles.
const SEAL_LIMIT: u32 = 4096;
const MAP_HEIGHT: u32 = 4;
/// Byte of a superblock at which the entry of the root lies.
const ROOT: usize = 24;

type Page = [u8; PAGE_SIZE];

/// A page file and what its checkpoints hold.
struct Sample {
    image: Vec<u8>,
    /// Page number to content, by generation.
    contents: BTreeMap<u64, BTreeMap<u32, Box<Page>>>,
}

fn open(image: Vec<u8>) -> Option<(Arc<SimDevice>, Arc<PageFile>, u64)> {
    let device = Arc::new(SimDevice::from_image(1, image));
    match PageFile::create_or_open(device.clone()) {
        Ok((file, recovered)) => {
            if let Some(damage) = &recovered.damage {
                assert!(!damage.to_string().is_empty());
            }
            Some((device, file, recovered.generation))
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

fn page_of(pid: u32, checkpoint: u32) -> Box<PageBuf> {
    let mut page = Box::new(PageBuf::ZERO);
    // The last page is of zeros, which take no slot.
    if pid != PAGES[PAGES.len() - 1] {
        let words = page.0.chunks_exact_mut(4).zip(0u32..);
        words.for_each(|(word, at)| word.copy_from_slice(&(pid ^ checkpoint << 24 ^ at << 12).to_le_bytes()));
    }
    page
}

/// Each checkpoint writes every other page and takes one away.
fn sample() -> &'static Sample {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let (device, file, first_generation) = open(Vec::new()).expect("a new page file");
        let mut content = BTreeMap::new();
        let mut contents = BTreeMap::from([(first_generation, content.clone())]);
        for checkpoint in 1..=CHECKPOINT_COUNT {
            let writer = file.begin_checkpoint().expect("begin");
            let freed = PAGES[checkpoint as usize];
            writer.free_page(PageId(freed)).expect("free");
            content.remove(&freed);
            for pid in PAGES.into_iter().skip(checkpoint as usize % 2).step_by(2) {
                let page = page_of(pid, checkpoint);
                writer.write_pages(&[(PageId(pid), &page.0)]).expect("write");
                content.insert(pid, Box::new(page.0));
            }
            let header: UserHeader = [checkpoint as u8; USER_HEADER_BYTES];
            writer.commit(header).expect("commit");
            contents.insert(file.stats().generation, content.clone());
        }
        Sample { image: device.image(), contents }
    })
}

/// Damages a page file as `script` says, then looks whether it lies, and goes on with it.
///
/// The first byte says whether the damage is sealed, that is checksums are made to fit, so that what they guard is
/// reached, or whether the script itself is the file. Then come edits of six bytes.
pub fn damaged(script: &[u8]) {
    let Some((mode, edits)) = script.split_first() else { return };
    let sample = sample();
    let is_sealed = mode & 1 != 0;
    let mut image = if mode & 2 != 0 {
        edits.to_vec()
    } else {
        let mut image = sample.image.clone();
        edits.chunks_exact(6).for_each(|edit| apply(&mut image, edit));
        image
    };
    if is_sealed {
        (0..3).for_each(|place| seal_superblock(&mut image, place));
    }
    let Some((device, file, generation)) = open(image) else { return };
    // What is read must be true unless somebody forged the checksums.
    let content = if is_sealed { None } else { sample.contents.get(&generation) };
    assert!(is_sealed || content.is_some());
    let found = read_pages(&file, content);
    go_on(&device, file, generation, found);
}

fn apply(image: &mut Vec<u8>, edit: &[u8]) {
    let slot_count = image.len() / PAGE_SIZE;
    if slot_count == 0 {
        return;
    }
    let slot = usize::from(edit[1]) % slot_count;
    let value = u16::from_le_bytes([edit[4], edit[5]]);
    let offset = usize::from(u16::from_le_bytes([edit[2], edit[3]])) % PAGE_SIZE;
    let word_at = slot * PAGE_SIZE + offset / 8 * 8;
    match edit[0] % 6 {
        0 => image[slot * PAGE_SIZE + offset] ^= edit[4].max(1),
        1 => {
            // Another slot for something that the map or a superblock names.
            let places = entry_places(image);
            let named = u32::from(value) % (slot_count as u32 + 2);
            if let Some(at) = places.get((slot + offset) % places.len().max(1)) {
                image[*at..at + 4].copy_from_slice(&named.to_le_bytes());
            }
        }
        2 => {
            let source = usize::from(value) % slot_count * PAGE_SIZE;
            image.copy_within(source..source + PAGE_SIZE, slot * PAGE_SIZE);
        }
        3 => image[slot * PAGE_SIZE..][..PAGE_SIZE].fill(0),
        // The greatest numbers, and small ones.
        4 => image[word_at..word_at + 8].copy_from_slice(&(value as i16 as i64).to_le_bytes()),
        _ => image.truncate(slot * PAGE_SIZE + offset),
    }
}

/// Where the entries lie that name pages or map pages, from the superblocks on.
fn entry_places(image: &[u8]) -> Vec<usize> {
    let mut places: Vec<usize> = [ROOT, PAGE_SIZE + ROOT, 2 * PAGE_SIZE + ROOT]
        .into_iter()
        .filter(|at| at + 8 <= image.len())
        .collect();
    let mut level_begin = 0;
    for _ in 0..MAP_HEIGHT {
        let level_end = places.len();
        for index in level_begin..level_end.min(SEAL_LIMIT as usize) {
            let slot = u64_at(image, places[index]) as u32 as usize;
            if slot >= 3 && (slot + 1) * PAGE_SIZE <= image.len() {
                let entries = (slot * PAGE_SIZE..(slot + 1) * PAGE_SIZE).step_by(8);
                places.extend(entries.filter(|at| u64_at(image, *at) != 0));
            }
        }
        level_begin = level_end;
    }
    places
}

fn u64_at(image: &[u8], at: usize) -> u64 {
    image[at..at + 8].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Makes the checksums of a superblock and of the map below it fit.
fn seal_superblock(image: &mut [u8], place: usize) {
    let at = place * PAGE_SIZE;
    if image.len() < at + PAGE_SIZE {
        return;
    }
    seal_entry(image, at + ROOT, MAP_HEIGHT, &mut 0);
    let checksum = crc32c::crc32c(&image[at..at + PAGE_SIZE - 4]);
    image[at + PAGE_SIZE - 4..at + PAGE_SIZE].copy_from_slice(&checksum.to_le_bytes());
}

/// Makes the entry at byte `at`, which is of `level`, fit what it names.
fn seal_entry(image: &mut [u8], at: usize, level: u32, seal_count: &mut u32) {
    let slot = u64_at(image, at) as u32 as usize;
    if slot < 3 || (slot + 1) * PAGE_SIZE > image.len() || *seal_count >= SEAL_LIMIT {
        return;
    }
    *seal_count += 1;
    if level > 0 {
        (0..PAGE_SIZE / 8)
            .for_each(|child| seal_entry(image, slot * PAGE_SIZE + 8 * child, level - 1, seal_count));
    }
    let checksum = crc32c::crc32c(&image[slot * PAGE_SIZE..(slot + 1) * PAGE_SIZE]);
    image[at + 4..at + 8].copy_from_slice(&checksum.to_le_bytes());
}

/// Reads every page; each is that of `content`, if that is known, or an error. Returns checksums of what was read.
fn read_pages(file: &PageFile, content: Option<&BTreeMap<u32, Box<Page>>>) -> BTreeMap<u32, u32> {
    let mut pids = Vec::new();
    file.for_each_mapped(|first, count| pids.extend(first.0..first.0 + count));
    assert_eq!(pids.len() as u64, file.stats().page_count);
    if let Some(content) = content {
        assert!(pids.iter().eq(content.keys()));
    }
    let mut page = Box::new(PageBuf::ZERO);
    let mut found = BTreeMap::new();
    for pid in pids {
        match file.read_page(PageId(pid), &mut page.0) {
            Ok(()) => {
                assert!(content.is_none_or(|content| *content[&pid] == page.0), "page {pid}");
                found.insert(pid, crc32c::crc32c(&page.0));
            }
            Err(error) => assert_eq!(error.pid(), PageId(pid)),
        }
    }
    found
}

/// Takes two checkpoints of the damaged file, opens it again and finds what was written beside what was `found`.
fn go_on(device: &SimDevice, file: Arc<PageFile>, generation: u64, mut found: BTreeMap<u32, u32>) {
    for checkpoint in [8, 9] {
        let pages: Vec<_> = WRITTEN_AFTERWARDS.map(|pid| (pid, page_of(pid, checkpoint))).collect();
        let refs: Vec<(PageId, &Page)> = pages.iter().map(|(pid, page)| (PageId(*pid), &page.0)).collect();
        let Ok(writer) = file.begin_checkpoint() else { return };
        let written = writer.write_pages(&refs);
        if written.and_then(|()| writer.commit([9; USER_HEADER_BYTES])).is_err() {
            return;
        }
        found.extend(pages.iter().map(|(pid, page)| (*pid, crc32c::crc32c(&page.0))));
    }
    let stats = file.stats();
    let accounted = 3 + stats.live_slots + stats.previous_slots + stats.free_slots;
    assert_eq!(accounted, stats.file_bytes / PAGE_SIZE as u64, "{stats:?}");
    drop(file);
    let (_, file, newer_generation) = open(device.image()).expect("the new checkpoint");
    assert!(newer_generation > generation);
    let found_again = read_pages(&file, None);
    found.iter().for_each(|(pid, checksum)| assert_eq!(found_again.get(pid), Some(checksum), "page {pid}"));
}
