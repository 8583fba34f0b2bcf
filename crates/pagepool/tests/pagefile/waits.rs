//! Who waits for the disk, and who does not.

use std::sync::mpsc::channel;
use std::sync::Arc;
use std::time::Duration;

use stillframe_pagepool::device::{Device, DeviceOp, Fault, Gate, HookedDevice, SimDevice};
use stillframe_pagepool::pagefile::{PageFile, PageFileError, PageFileStats, SpillError, Spilled};
use stillframe_pagepool::{PageId, PAGE_SIZE};

use crate::model::{
    check_accounting, check_content, checkpoint, header_of, open, page_of, write_batch, Content,
};

/// Longer than anybody takes who does not wait for the disk.
const PATIENCE: Duration = Duration::from_secs(15);
/// Pages of a test's data.
const PIDS: std::ops::Range<u32> = 1..1500;

fn versions(version: u64) -> Vec<(u32, u64)> {
    PIDS.map(|pid| (pid, version)).collect()
}

fn new_file() -> (Arc<HookedDevice>, Arc<PageFile>) {
    let device = HookedDevice::new(SimDevice::new(1));
    let (file, _) = PageFile::create_or_open(device.clone()).unwrap();
    (device, file)
}

/// Holds up the first such operation from now on, and all others until then.
fn hold_up(device: &HookedDevice, held_op: DeviceOp) -> Arc<Gate> {
    let gate = Arc::new(Gate::default());
    let passed = gate.clone();
    device.before_op(Arc::new(move |op| {
        if op == held_op {
            passed.pass();
        }
    }));
    gate
}

fn spill(file: &PageFile, version: u64) -> Result<(Spilled, u64), SpillError> {
    Ok((file.spill(&page_of(1, version).0)?, version))
}

fn check_and_release(file: &PageFile, (spilled, version): (Spilled, u64)) {
    let mut page = page_of(1, 0);
    file.read_spill(&spilled, &mut page.0).unwrap();
    assert!(page.0 == page_of(1, version).0, "another's page");
    file.release_spill(spilled);
}

/// While somebody stands at the gate: sizes are told and all slots that are free can be taken. One more waits, and gets
/// its slot once the gate is open. `act` stands at the gate.
fn check_waits(file: &PageFile, gate: &Gate, act: impl FnOnce() + Send) -> PageFileStats {
    std::thread::scope(|scope| {
        let acting = scope.spawn(act);
        gate.wait_for_visitor();
        let (sender, receiver) = channel();
        scope.spawn(move || {
            let stats = file.stats();
            let taken: Result<Vec<_>, _> =
                (0..stats.free_slots).map(|number| spill(file, 100 + number)).collect();
            assert_eq!(file.stats().free_slots, 0);
            sender.send((stats, taken.unwrap())).unwrap();
        });
        let answer = receiver.recv_timeout(PATIENCE);
        if answer.is_err() {
            gate.open();
        }
        let (stats, taken) = answer.expect("it waits for the disk");
        let (sender, receiver) = channel();
        scope.spawn(move || sender.send(spill(file, 99).unwrap()));
        let early = receiver.recv_timeout(Duration::from_millis(20));
        gate.open();
        assert!(early.is_err(), "a slot that is not there");
        acting.join().unwrap();
        let late = receiver.recv_timeout(PATIENCE).expect("it still waits");
        taken.into_iter().chain([late]).for_each(|spilled| check_and_release(file, spilled));
        stats
    })
}

/// Giving the previous checkpoint up takes syncs: who asks for sizes, or spills a page, does not wait for them.
#[test]
fn nobody_waits_while_the_previous_checkpoint_is_given_up() {
    let (device, file) = new_file();
    let mut content = Content::new();
    for version in 1..4 {
        checkpoint(&file, &mut content, &versions(version));
    }
    let spilled = spill(&file, 7).unwrap();
    let gate = hold_up(&device, DeviceOp::Sync);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| checkpoint(&file, &mut content, &versions(4)));
        gate.wait_for_visitor();
        let (sender, receiver) = channel();
        let file = &file;
        scope.spawn(move || {
            let stats = file.stats();
            check_and_release(file, spilled);
            check_and_release(file, spill(file, 8).unwrap());
            sender.send(stats).unwrap();
        });
        let answer = receiver.recv_timeout(PATIENCE);
        gate.open();
        writer.join().unwrap();
        assert!(answer.expect("it waits for the disk").previous_slots > 0, "about to be given up");
    });
    check_content(&file, &content);
    check_accounting(&file);
}

#[test]
fn only_who_needs_the_new_slots_waits_while_the_file_grows() {
    let (device, file) = new_file();
    let mut content = Content::new();
    checkpoint(&file, &mut content, &versions(1));
    let kept: Vec<_> = (0..40).map(|version| spill(&file, version).unwrap()).collect();
    let gate = hold_up(&device, DeviceOp::Allocate);
    let writer = file.begin_checkpoint().unwrap();
    for spilled in kept {
        check_and_release(&file, spilled);
    }
    let stats = check_waits(&file, &gate, || {
        // Takes what is free first, in pieces: some is left when it comes to the gate.
        for batch in versions(2).chunks(64) {
            write_batch(&writer, batch).unwrap();
        }
    });
    assert!(stats.free_slots > 0, "{stats:?}");
    content.values_mut().for_each(|version| *version = 2);
    writer.commit(header_of(&content)).unwrap();
    check_content(&file, &content);
    check_accounting(&file);
}

/// Frees most pages and takes checkpoints until one has shortened the file.
fn shrink(file: &Arc<PageFile>, content: &mut Content) {
    let old_bytes = file.stats().file_bytes;
    let writer = file.begin_checkpoint().unwrap();
    writer.free_pages(PageId(40), PIDS.end).unwrap();
    content.retain(|pid, _| *pid < 40);
    writer.commit(header_of(content)).unwrap();
    for version in 100..110 {
        if file.stats().file_bytes < old_bytes {
            return;
        }
        checkpoint(file, content, &[(1, version)]);
    }
}

#[test]
fn only_who_needs_more_slots_waits_while_the_file_shrinks() {
    let (device, file) = new_file();
    let mut content = Content::new();
    for version in 1..4 {
        checkpoint(&file, &mut content, &versions(version));
    }
    let old_bytes = file.stats().file_bytes;
    let gate = hold_up(&device, DeviceOp::Truncate);
    let stats = check_waits(&file, &gate, || shrink(&file, &mut content));
    assert!(stats.file_bytes < old_bytes, "slots that are about to go are not there");
    check_content(&file, &content);
    check_accounting(&file);
    assert_eq!(file.stats().file_bytes, device.len().unwrap());
}

/// A file that cannot be shortened stays longer, and takes what is written to its end.
#[test]
fn a_file_that_cannot_be_shortened_keeps_its_slots() {
    let (device, file) = new_file();
    let mut content = Content::new();
    for version in 1..4 {
        checkpoint(&file, &mut content, &versions(version));
    }
    let old_bytes = file.stats().file_bytes;
    // The operation after the hook is the one that fails.
    let failing = Arc::downgrade(&device);
    device.before_op(Arc::new(move |op| {
        if let Some(device) = failing.upgrade().filter(|_| op == DeviceOp::Truncate) {
            device.inner().schedule(device.inner().call_count(), Fault::Error);
        }
    }));
    shrink(&file, &mut content);
    assert_eq!((file.stats().file_bytes, device.len().unwrap()), (old_bytes, old_bytes));
    assert_eq!(file.failure(), None);
    checkpoint(&file, &mut content, &versions(5));
    check_content(&file, &content);
    check_accounting(&file);
}

/// Of several who need a longer file one asks for it: if that fails for good, the others have failed too.
#[test]
fn who_waits_for_a_growth_that_fails_has_failed() {
    let (device, file) = new_file();
    let mut content = Content::new();
    checkpoint(&file, &mut content, &versions(1));
    while file.stats().free_slots > 0 {
        // Slots of pages that nobody asks back.
        drop(spill(&file, 1).unwrap());
    }
    let gate = hold_up(&device, DeviceOp::Allocate);
    let results = std::thread::scope(|scope| {
        let spilling = || scope.spawn(|| spill(&file, 2).unwrap_err());
        let first = spilling();
        gate.wait_for_visitor();
        let second = spilling();
        while !second.is_finished() && file.stats().free_slots > 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(10));
        let call_count = device.inner().call_count();
        device.inner().schedule(call_count, Fault::Error);
        gate.open();
        let results = [first.join().unwrap(), second.join().unwrap()];
        assert_eq!(device.inner().call_count(), call_count + 1, "it was tried once");
        results
    });
    for error in results {
        let is_sticky = matches!(&error, SpillError::File(PageFileError::Failed { .. }));
        assert!(is_sticky && error.to_string().contains("cannot extend"), "{error}");
    }
    assert!(matches!(file.begin_checkpoint(), Err(PageFileError::Failed { .. })));
    check_content(&file, &content);
    drop(file);
    let (file, _) = open(&Arc::new(SimDevice::from_image(0, device.inner().image()))).unwrap();
    check_content(&file, &content);
    assert!(file.stats().file_bytes >= content.len() as u64 * PAGE_SIZE as u64);
}
