//! What a device says of its operations.

use std::io::IoSliceMut;
use std::path::Path;

use parking_lot::Mutex;
use stillframe_pagepool::device::{Bufs, Device, FileDevice, PageBuf, Transfer};
use stillframe_pagepool::PAGE_SIZE;

use crate::support::{alone, create, each_file, offset_of, singles, transfer, ways};

#[test]
fn operations_bytes_and_depth_are_counted() {
    const PAGE_COUNT: usize = 500;
    each_file(|kind, dir| {
        let device = create(kind, dir);
        device.allocate(offset_of(PAGE_COUNT)).unwrap();
        transfer(&device, &singles(0..PAGE_COUNT, Some(1)));
        alone(&device, &singles(7..8, Some(1))[0]).unwrap();
        transfer(&device, &singles(0..30, None));
        let report = device.io_report().unwrap();
        let counted = |count: usize| (count as u64, (count * PAGE_SIZE) as u64, 0);
        let (reads, writes) = (report.reads, report.writes);
        assert_eq!((writes.latency.count, writes.byte_count, writes.error_count), counted(PAGE_COUNT + 1));
        assert_eq!((reads.latency.count, reads.byte_count, reads.error_count), counted(30));
        assert!(reads.latency.p50_ns > 0 && reads.latency.max_ns >= reads.latency.p50_ns, "{reads:?}");
        assert_eq!((report.depth, report.sync_error_count), (0, 0));
        match report.engine {
            "io_uring" => assert_eq!(report.depth_peak, 64, "as many as a ring takes"),
            _ => assert!((1..=9).contains(&report.depth_peak), "{kind:?}: {}", report.depth_peak),
        }
    });
}

/// The disk is not kept waiting for who looks at what it has read: others are handed over before.
#[test]
fn a_ring_is_full_again_when_the_first_end_is_told() {
    const PAGE_COUNT: usize = 500;
    each_file(|kind, dir| {
        let device = create(kind, dir);
        if device.io_report().unwrap().engine != "io_uring" {
            return;
        }
        device.allocate(offset_of(PAGE_COUNT)).unwrap();
        let mut pages = vec![PageBuf::ZERO; PAGE_COUNT];
        let read =
            |(page, buf): (usize, _)| Transfer { offset: offset_of(page), bufs: Bufs::Read(vec![buf]) };
        let bufs = pages.iter_mut().map(|page| IoSliceMut::new(&mut page.0));
        let mut reads: Vec<_> = bufs.enumerate().map(read).collect();
        let depths = Mutex::new(Vec::new());
        device.transfer(&mut reads, &|_, _, result| {
            result.unwrap();
            depths.lock().push(device.io_report().unwrap().depth);
        });
        let depths = depths.into_inner();
        assert_eq!((depths[0], depths.len(), depths.last()), (64, PAGE_COUNT, Some(&0)), "{kind:?}");
    });
}

#[test]
fn errors_are_counted() {
    for way in ways() {
        let device = FileDevice::open(Path::new("/dev/full"), way).unwrap();
        transfer(&device, &singles(0..100, Some(1)));
        assert!(alone(&device, &singles(0..1, Some(1))[0]).is_err());
        // What it is cannot be synced.
        assert!(device.sync_data().is_err());
        let report = device.io_report().unwrap();
        let writes = report.writes;
        assert_eq!((writes.latency.count, writes.byte_count, writes.error_count), (101, 0, 101));
        assert_eq!((report.depth, report.sync_error_count), (0, 1));
    }
}
