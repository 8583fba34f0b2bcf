//! Many operations in one call of a device.

use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use stillframe_pagepool::device::{
    Bufs, Device, DeviceError, DeviceErrorKind, Fault, FileDevice, OpenMode, PageBuf, SimDevice, Transfer,
};
use stillframe_pagepool::PAGE_SIZE;
use stillframe_testkit::TempDir;

const PAGE_COUNT: usize = 40;

fn offset(index: usize) -> u64 {
    (index * PAGE_SIZE) as u64
}

/// Does the transfers and returns what became of each.
fn transfer(device: &dyn Device, transfers: &mut [Transfer<'_>]) -> Vec<Result<(), DeviceError>> {
    let ends: Vec<_> = transfers.iter().map(|_| Mutex::new(None)).collect();
    device.transfer(transfers, &|index, _, result| {
        assert!(ends[index].lock().replace(result).is_none(), "each ends once");
    });
    ends.into_iter().map(|end| end.into_inner().expect("all have ended")).collect()
}

/// Writes a page of its own number to each place.
fn write_pages(device: &dyn Device) -> Vec<Result<(), DeviceError>> {
    device.allocate(offset(PAGE_COUNT)).unwrap();
    let pages: Vec<_> = (0..PAGE_COUNT).map(|index| PageBuf([index as u8; PAGE_SIZE])).collect();
    let bufs: Vec<_> = pages.iter().map(|page| [IoSlice::new(&page.0)]).collect();
    let write = |(index, bufs)| Transfer { offset: offset(index), bufs: Bufs::Write(bufs) };
    let mut writes: Vec<_> = bufs.iter().map(|bufs| &bufs[..]).enumerate().map(write).collect();
    transfer(device, &mut writes)
}

/// Reads all pages and one beyond the end; that one fails alone, and whoever is told of an end sees what was read.
fn check_reads(device: &dyn Device) {
    let mut pages = vec![PageBuf::ZERO; PAGE_COUNT + 1];
    let mut reads = Vec::new();
    for (index, page) in pages.iter_mut().enumerate() {
        reads.push(Transfer { offset: offset(index), bufs: Bufs::Read(vec![IoSliceMut::new(&mut page.0)]) });
    }
    let good_count = AtomicU64::new(0);
    device.transfer(&mut reads, &|index, transfer, result| {
        let Bufs::Read(bufs) = &transfer.bufs else { panic!("it was a read") };
        match result {
            Ok(()) => {
                assert!(bufs[0].len() == PAGE_SIZE && bufs[0].iter().all(|byte| *byte == index as u8));
                good_count.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                assert_eq!(index, PAGE_COUNT, "{error}");
                assert!(matches!(error.kind, DeviceErrorKind::PastEnd { .. }), "{error}");
            }
        }
    });
    assert_eq!(good_count.into_inner(), PAGE_COUNT as u64);
}

#[test]
fn a_file_does_many_operations_in_one_call() {
    let dir = TempDir::new("transfers");
    for mode in [OpenMode::Auto, OpenMode::Buffered] {
        let device = FileDevice::create(&dir.join("pages"), mode).unwrap();
        assert!(write_pages(&device).into_iter().all(|result| result.is_ok()));
        check_reads(&device);
    }
}

#[test]
fn each_operation_of_a_call_counts_and_fails_alone() {
    let device = SimDevice::new(stillframe_testkit::seed_or(5));
    write_pages(&device);
    device.sync_data().unwrap();
    check_reads(&device);
    let before = device.call_count();
    device.schedule(before + 7, Fault::Error);
    let failed = write_pages(&device).iter().filter(|result| result.is_err()).count();
    // One call is the allocation.
    assert_eq!((device.call_count() - before, failed), (1 + PAGE_COUNT as u64, 1));
}

/// The order of a call is not that of its operations: after a crash any part of them may have been done.
#[test]
fn a_crash_in_the_middle_of_a_call_leaves_any_part_of_it() {
    let mut orders = std::collections::HashSet::new();
    for seed in 0..20 {
        let device = SimDevice::new(seed);
        device.schedule(1 + PAGE_COUNT as u64 / 2, Fault::Crash);
        let results = write_pages(&device);
        let done: Vec<_> = results.iter().map(Result::is_ok).collect();
        assert_eq!(done.iter().filter(|done| **done).count(), PAGE_COUNT / 2);
        orders.insert(done);
    }
    assert!(orders.len() > 10);
}
