//! Logs that nobody would write, by a script of changes: reading one never panics and never invents units. Used by the test
//! beside it, and by the fuzzer.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use stillframe_journal::{Journal, JournalOptions, Offset, Piece, Place, SyncMethod, SyncPolicy};
use stillframe_pagepool::device::{ShelfNumber, SimShelf};

const PAGE: usize = 4096;
/// Bytes of a change in a script.
const CHANGE_BYTES: usize = 8;

struct Sample {
    images: BTreeMap<ShelfNumber, Vec<u8>>,
    place: Place,
    stream: Vec<u8>,
}

fn options() -> JournalOptions {
    JournalOptions {
        segment_bytes: JournalOptions::LEAST_SEGMENT_BYTES,
        memory_bytes: 1 << 20,
        sync: SyncPolicy::Always,
        size_limit_bytes: None,
        method: SyncMethod::Fdatasync,
        select: |database, command| command.push(database as u8),
    }
}

fn sample() -> &'static Sample {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let shelf = SimShelf::new(1);
        let journal = Journal::begin(Arc::new(shelf.same()), Offset(0), options(), Arc::new(())).unwrap();
        let place = journal.cut();
        let mut stream = Vec::new();
        for unit in 0..30_u8 {
            let bytes = vec![unit; 1 + usize::from(unit) * 400];
            stream.extend_from_slice(&bytes);
            let end = journal.append(None, &mut [Piece::Bytes(&bytes)].into_iter(), bytes.len() as u64);
            journal.make_durable(end).unwrap();
        }
        journal.close().unwrap();
        Sample { images: shelf.images(), place, stream }
    })
}

/// Where a change of a script is made: a file, and a byte; mostly in headers.
fn change(images: &mut BTreeMap<ShelfNumber, Vec<u8>>, script: &[u8]) {
    let index = usize::from(script[0]) % images.len();
    let image = images.values_mut().nth(index).expect("there is one of that index");
    let page = usize::from(script[1]) % (image.len() / PAGE);
    let within = usize::from(u16::from_le_bytes([script[2], script[3]]));
    let within = if script[4] & 1 == 0 { within % 136 } else { within % PAGE };
    let at = page * PAGE + within;
    match script[4] >> 1 & 3 {
        0 => image[at] ^= script[5] | 1,
        1 => {
            let end = image.len().min(at + 4);
            image[at..end].copy_from_slice(&[script[5], script[6], script[7], 0][..end - at]);
        }
        2 => image[page * PAGE..].fill(script[5]),
        _ => {
            let from = usize::from(script[5]) % (image.len() / PAGE) * PAGE;
            image.copy_within(from..from + PAGE, page * PAGE);
        }
    }
    if script[4] & 8 != 0 {
        seal(image, page * PAGE);
    }
}

/// Makes the checksum of what is at `at` right again, so that more than the checksum is tried.
fn seal(image: &mut [u8], at: usize) {
    let word = |image: &[u8], at: usize| {
        u32::from_le_bytes([image[at], image[at + 1], image[at + 2], image[at + 3]])
    };
    if image[at..].starts_with(b"STILLSEG") {
        let sum = crc32c::crc32c(&image[at..at + 4092]);
        image[at + 4092..at + PAGE].copy_from_slice(&sum.to_le_bytes());
        return;
    }
    let end = at + 128 + word(image, at + 32) as usize;
    if end <= image.len() {
        let sum = crc32c::crc32c_append(crc32c::crc32c(&image[at..at + 68]), &image[at + 72..end]);
        image[at + 68..at + 72].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Changes a log by the script and reads it. Where no checksum was made right again, what is read was written.
pub fn damaged(script: &[u8]) {
    let sample = sample();
    let mut images = sample.images.clone();
    let mut is_sealed = false;
    for step in script.chunks_exact(CHANGE_BYTES).take(16) {
        change(&mut images, step);
        is_sealed |= step[4] & 8 != 0;
    }
    let shelf = SimShelf::from_images(1, &images);
    let mut replayed: Vec<u8> = Vec::new();
    let read = Journal::check::<Infallible>(&shelf, sample.place, None, &mut |at, run| {
        assert!(!run.is_empty());
        assert_eq!(at, Offset(replayed.len() as u64));
        replayed.extend_from_slice(run);
        Ok(1)
    });
    if let Ok(recovery) = read {
        assert_eq!(recovery.end, Offset(replayed.len() as u64));
        assert!(is_sealed || sample.stream.starts_with(&replayed), "a unit that nobody has appended");
    }
}
