//! What was acknowledged is served, or the file is refused: whatever becomes of one copy of the superblock.

use std::sync::Arc;

use stillframe_pagepool::device::{Fault, SimDevice};
use stillframe_pagepool::pagefile::PageFileError;
use stillframe_pagepool::PAGE_SIZE;

use crate::fuzz::MapEditor;
use crate::model::{
    check_accounting, check_content, checkpoint, has_content, header_of, open, open_accepting, write_batch,
    Change, Content,
};

const PAGE: u64 = PAGE_SIZE as u64;
/// The superblocks and their witness.
const COPIES: std::ops::Range<u64> = 0..3;

/// A file after some checkpoints: the contents in order, the empty one first, and the images.
struct History {
    contents: Vec<Content>,
    images: Vec<Vec<u8>>,
}

fn history(seed: u64, checkpoint_count: u64) -> History {
    let mut rng = fastrand::Rng::with_seed(seed);
    let device = Arc::new(SimDevice::new(seed));
    let (file, _) = open(&device).unwrap();
    let mut history = History { contents: vec![Content::new()], images: vec![device.image()] };
    for version in 1..=checkpoint_count {
        let mut change = Change::random(&mut rng, &history.contents[version as usize - 1], 300, 100, version);
        change.writes.push(vec![(1, version)]);
        change.after.insert(1, version);
        change.run(&file).unwrap();
        history.contents.push(change.after);
        history.images.push(device.image());
    }
    history
}

impl History {
    fn device(&self, at: usize) -> Arc<SimDevice> {
        Arc::new(SimDevice::from_image(1, self.images[at].clone()))
    }
}

/// Opens and fails unless that content is served; then changes it, so that what was repaired is used.
fn assert_serves(device: &Arc<SimDevice>, content: &Content) {
    let (file, recovered) = open(device).unwrap();
    assert!(!recovered.fell_back && has_content(&file, &recovered, content), "{recovered:?}");
    drop(file);
    let (file, recovered) = open(device).unwrap();
    assert!(recovered.damage.is_none(), "repaired: {recovered:?}");
    check_content(&file, content);
    let mut content = content.clone();
    checkpoint(&file, &mut content, &[(2, 1000)]);
    check_accounting(&file);
    drop(file);
    let (file, recovered) = open(device).unwrap();
    assert!(has_content(&file, &recovered, &content), "{recovered:?}");
}

#[test]
fn damage_to_any_one_copy_loses_nothing() {
    let history = history(stillframe_testkit::seed_or(51), 3);
    let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed_or(51));
    for (at, content) in history.contents.iter().enumerate() {
        for copy in COPIES {
            for _ in 0..4 {
                let device = history.device(at);
                let offset = copy * PAGE + rng.u64(..PAGE);
                device.corrupt(offset, 1, |byte| byte[0] ^= 1 << (offset % 8));
                let (_, recovered) = open(&device).unwrap();
                let damage = recovered.damage.expect("it is reported").to_string();
                assert!(damage.contains(&format!("superblock {copy} (byte {}", copy * PAGE)), "{damage}");
                assert_serves(&device, content);
            }
            let device = history.device(at);
            device.corrupt(copy * PAGE, PAGE_SIZE, |page| page.fill(0));
            assert_serves(&device, content);
        }
    }
}

#[test]
fn a_copy_that_cannot_be_read_loses_nothing() {
    let history = history(stillframe_testkit::seed_or(52), 2);
    for (at, content) in history.contents.iter().enumerate() {
        for call in 0..12 {
            for failed_calls in [1, 3] {
                let device = history.device(at);
                (call..call + failed_calls).for_each(|call| device.schedule(call, Fault::Error));
                match open(&device) {
                    Ok((file, recovered)) => {
                        assert!(has_content(&file, &recovered, content), "{recovered:?}")
                    }
                    Err(error) => assert!(failed_calls > 1 && call >= 1, "call {call}: {error}"),
                }
                device.clear_faults();
                assert_serves(&device, content);
            }
        }
    }
}

/// Superblocks as they were some checkpoints ago, one or both: the witness knows better.
#[test]
fn replayed_superblocks_lose_nothing() {
    let history = history(stillframe_testkit::seed_or(53), 3);
    for at in 1..history.contents.len() {
        for old in 0..at {
            for places in [vec![0], vec![1], vec![0, 1]] {
                let device = history.device(at);
                for place in places {
                    let bytes = &history.images[old][place * PAGE_SIZE..][..PAGE_SIZE];
                    device.corrupt(place as u64 * PAGE, PAGE_SIZE, |page| page.copy_from_slice(bytes));
                }
                assert_serves(&device, &history.contents[at]);
            }
        }
    }
}

/// With two copies gone nobody knows what was acknowledged, unless one that is left says so.
#[test]
fn damage_to_two_copies_is_refused_or_loses_nothing() {
    let history = history(stillframe_testkit::seed_or(54), 3);
    let mut refusals = 0;
    for (at, content) in history.contents.iter().enumerate() {
        for intact in COPIES {
            let device = history.device(at);
            for copy in COPIES.filter(|copy| *copy != intact) {
                device.corrupt(copy * PAGE + 77, 1, |byte| byte[0] ^= 4);
            }
            let damaged = device.image();
            let Err(error) = open(&device) else {
                assert_serves(&device, content);
                continue;
            };
            refusals += 1;
            assert!(device.image() == damaged, "the evidence has been changed");
            let PageFileError::WouldLose { generation, .. } = error else { panic!("{error}") };
            let text = error.to_string();
            for part in ["(byte ", "backup", &format!("'accept-loss-after-checkpoint {generation}'")] {
                assert!(text.contains(part), "{part:?} is not in {text:?}");
            }
            // Another loss than the one that was accepted is not accepted.
            assert!(open_accepting(&device, generation + 1).is_err());
            let (file, recovered) = open_accepting(&device, generation).unwrap();
            assert!(device.image() == damaged, "before the first save");
            assert!(recovered.fell_back && recovered.generation == generation, "{recovered:?}");
            let expected = &history.contents[generation as usize - 1];
            check_content(&file, expected);
            drop(file);
            go_on_after_a_loss(&device, generation, expected);
        }
    }
    assert!(refusals > 3, "{refusals}");
}

/// Whatever call of the next checkpoint crashes: what was accepted is there, or what came after it.
fn go_on_after_a_loss(device: &Arc<SimDevice>, generation: u64, content: &Content) {
    for round in 0.. {
        let device = Arc::new(SimDevice::from_image(round, device.image()));
        let (file, _) = open_accepting(&device, generation).unwrap();
        device.schedule(device.call_count() + round, Fault::Crash);
        let mut after = content.clone();
        after.insert(9, 900);
        let committed = file.begin_checkpoint().and_then(|writer| {
            write_batch(&writer, &[(9, 900)])?;
            writer.commit(header_of(&after))
        });
        device.clear_faults();
        device.crash();
        let (file, recovered) = open_accepting(&device, generation).unwrap();
        let is_after = has_content(&file, &recovered, &after);
        assert!(is_after || (committed.is_err() && has_content(&file, &recovered, content)), "{recovered:?}");
        if committed.is_ok() {
            assert!(open(&device).is_ok());
            break;
        }
    }
}

/// A crash in any call, then damage to any one copy: the last acknowledged checkpoint, the one in flight, or a refusal
/// that names the loss; never an older one.
#[test]
fn damage_after_a_crash_is_never_taken_for_the_crash() {
    let history = history(stillframe_testkit::seed_or(55), 2);
    let last = history.contents.len() - 1;
    let mut served = [0; 2];
    let mut refusals = 0;
    for round in 0.. {
        let device = history.device(last);
        let (file, _) = open(&device).unwrap();
        device.schedule(device.call_count() + round, Fault::Crash);
        let mut after = history.contents[last].clone();
        let pages: Vec<_> = (1..40).map(|pid| (pid, 500)).collect();
        after.extend(pages.iter().copied());
        let committed = file.begin_checkpoint().and_then(|writer| {
            write_batch(&writer, &pages)?;
            writer.commit(header_of(&after))
        });
        device.crash();
        let image = device.image();
        for copy in COPIES {
            let device = Arc::new(SimDevice::from_image(round, image.clone()));
            device.corrupt(copy * PAGE + 16, 1, |byte| byte[0] ^= 2);
            match open(&device) {
                Ok((file, recovered)) => {
                    let is_last = has_content(&file, &recovered, &history.contents[last]);
                    assert!(is_last && committed.is_err() || has_content(&file, &recovered, &after));
                    served[usize::from(!is_last)] += 1;
                }
                Err(PageFileError::WouldLose { .. }) => refusals += 1,
                Err(error) => panic!("{error}"),
            }
        }
        if committed.is_ok() {
            break;
        }
    }
    println!("last {}, in flight {}, refused {refusals}", served[0], served[1]);
    assert!(served.iter().all(|count| *count > 0), "{served:?}");
}

#[test]
fn parts_of_different_files_are_refused() {
    let (one, other) =
        (history(stillframe_testkit::seed_or(56), 2), history(stillframe_testkit::seed_or(56), 2));
    let mut image = one.images[2].clone();
    let place = MapEditor::newest(image.clone()).place;
    image[place * PAGE_SIZE..][..PAGE_SIZE]
        .copy_from_slice(&other.images[2][place * PAGE_SIZE..][..PAGE_SIZE]);
    let error = open(&Arc::new(SimDevice::from_image(1, image))).err().unwrap();
    assert!(matches!(error, PageFileError::MixedFiles { .. }), "{error}");
}
