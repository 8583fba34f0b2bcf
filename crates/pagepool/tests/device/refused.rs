//! What the system does not let us have.

use std::io::IoSliceMut;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use stillframe_pagepool::device::{
    Bufs, Device, DeviceErrorKind, DirectIo, FileDevice, IoEngine, IoOptions, PageBuf, Transfer,
};
use stillframe_testkit::{refuse, with_refused, TempDir, IO_URING};

use crate::support::{check_pages, offset_of, singles, transfer, ways};

const PAGE_COUNT: usize = 300;

fn with_engine(engine: IoEngine) -> IoOptions {
    IoOptions { engine, ..IoOptions::default() }
}

fn check_works(device: &dyn Device, version: u64) {
    device.allocate(offset_of(PAGE_COUNT)).unwrap();
    assert!(transfer(device, &singles(0..PAGE_COUNT, Some(version))).iter().all(|end| end.is_ok()));
    for (page, end) in transfer(device, &singles(0..PAGE_COUNT, None)).into_iter().enumerate() {
        check_pages(page, &end.unwrap(), |_| version);
    }
    assert_eq!(device.io_report().unwrap().depth, 0);
}

/// Whichever of its calls is refused, and however.
#[test]
fn where_io_uring_is_refused_threads_take_its_place_unless_it_is_asked_for() {
    let dir = TempDir::new("refused");
    let open = |engine| FileDevice::create(&dir.join("pages"), with_engine(engine));
    for errno in [Errno::PERM, Errno::NOSYS, Errno::NOMEM] {
        for call in IO_URING {
            with_refused(&[call], errno.raw_os_error(), || {
                let device = open(IoEngine::Auto).unwrap();
                check_works(&device, 1);
                let report = device.io_report().unwrap();
                assert_eq!(report.engine, "threads");
                let note = report.engine_note.unwrap();
                assert!(note.contains("io_uring is refused") && note.contains(&errno.to_string()), "{note}");
                drop(device);
                let error = open(IoEngine::IoUring).err().unwrap();
                assert_eq!(error.kind, DeviceErrorKind::IoUringRefused(errno));
                let text = error.to_string();
                assert!(text.contains("pages") && text.contains("'io-engine'"), "{text}");
                let device = open(IoEngine::Threads).unwrap();
                check_works(&device, 2);
                assert_eq!(device.io_report().unwrap().engine_note, None);
            });
        }
    }
}

/// From one call to the next, and on some threads only: operations are done all the same.
#[test]
fn where_io_uring_is_refused_later_operations_are_done_nevertheless() {
    if !ways().contains(&with_engine(IoEngine::IoUring)) {
        return eprintln!("SKIPPED, NOT TESTED: io_uring that is refused later");
    }
    let dir = TempDir::new("refused-later");
    let device = FileDevice::create(&dir.join("pages"), with_engine(IoEngine::IoUring)).unwrap();
    for round in 1..4 {
        // One ring is there; it is given up with the first call that is refused, and then none can be made.
        for _ in 0..3 {
            with_refused(&IO_URING, libc::EPERM, || check_works(&device, round * 10));
        }
        std::thread::scope(|scope| {
            scope.spawn(|| (0..20).for_each(|_| check_reads(&device, round * 10)));
            scope.spawn(|| with_refused(&IO_URING, libc::EPERM, || check_reads(&device, round * 10)));
        });
        check_works(&device, round * 10 + 1);
        assert_eq!(device.io_report().unwrap().engine, "io_uring");
    }
}

/// Reads of the whole file, so long that many are under way when the first has ended.
const READ_COUNT: usize = 80;

/// In the middle of a call, while the kernel has operations of it: these are waited for, the others are done one by one.
#[test]
fn where_io_uring_is_refused_in_the_middle_all_operations_end() {
    if !ways().contains(&with_engine(IoEngine::IoUring)) {
        return eprintln!("SKIPPED, NOT TESTED: io_uring that is refused in the middle");
    }
    let dir = TempDir::new("refused-middle");
    for (refused_at, round) in [0, 1, 30, 64, 75].into_iter().zip(1..) {
        let device = FileDevice::create(&dir.join("pages"), with_engine(IoEngine::IoUring)).unwrap();
        check_works(&device, round);
        // A thread of its own, since there is no way back.
        let read_all = || {
            let mut pages = vec![PageBuf::ZERO; READ_COUNT * PAGE_COUNT];
            let mut reads = Vec::new();
            for pages in pages.chunks_mut(PAGE_COUNT) {
                let bufs = pages.iter_mut().map(|page| IoSliceMut::new(&mut page.0)).collect();
                reads.push(Transfer { offset: 0, bufs: Bufs::Read(bufs) });
            }
            let end_count = AtomicUsize::new(0);
            device.transfer(&mut reads, &|_, _, result| {
                result.unwrap();
                if end_count.fetch_add(1, Ordering::Relaxed) == refused_at {
                    refuse(&IO_URING, libc::EPERM);
                }
            });
            drop(reads);
            assert_eq!(end_count.into_inner(), READ_COUNT);
            pages.chunks(PAGE_COUNT).for_each(|pages| check_pages(0, pages, |_| round));
        };
        std::thread::scope(|scope| scope.spawn(read_all).join().unwrap());
        assert_eq!(device.io_report().unwrap().depth, 0);
        check_works(&device, 100 + round);
    }
}

fn check_reads(device: &dyn Device, version: u64) {
    for (page, end) in transfer(device, &singles(0..PAGE_COUNT, None)).into_iter().enumerate() {
        check_pages(page, &end.unwrap(), |_| version);
    }
}

#[test]
fn where_direct_io_is_refused_the_page_cache_is_used_unless_it_is_asked_for() {
    let open =
        |direct| FileDevice::open(Path::new("/dev/full"), IoOptions { direct, ..IoOptions::default() });
    let report = open(DirectIo::Auto).unwrap().io_report().unwrap();
    assert!(!report.is_direct && report.direct_note.is_some(), "{report:?}");
    let report = open(DirectIo::No).unwrap().io_report().unwrap();
    assert!(!report.is_direct && report.direct_note.is_none(), "{report:?}");
    let error = open(DirectIo::Yes).err().unwrap();
    assert_eq!(error.kind, DeviceErrorKind::DirectIoRefused);
    assert!(error.to_string().contains("'direct-io'"), "{error}");
}
