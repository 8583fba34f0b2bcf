//! Reads into a map of the kernel module exmap, by way of its descriptor. Needs the module and a directory for temporary files
//! that takes direct I/O: `kernel/selftests/pool` runs it where there are both, and there it may not skip.

use std::io::{IoSlice, IoSliceMut, Write};
use std::sync::Arc;

use stillframe_pagepool::device::{
    Bufs, Device, DeviceErrorKind, DirectIo, FileDevice, IoEngine, IoOptions, PageBuf, Transfer,
};
use stillframe_pagepool::exmap::Exmap;
use stillframe_pagepool::PAGE_SIZE;
use stillframe_testkit::{pool_backend_name, TempDir};

use crate::support::{alone, check_pages, offset_of, page_of, singles, transfer, Op};

const PAGE_COUNT: usize = 700;

/// Runs `test` with an open map and a device whose reads go there by its descriptor, for each engine.
fn each_engine(test: impl Fn(&Arc<Exmap>, &FileDevice)) {
    for engine in [IoEngine::Threads, IoEngine::IoUring] {
        let dir = TempDir::new("exmap");
        match opened(&dir, engine) {
            Ok((map, device)) => test(&map, &device),
            Err(why) if pool_backend_name().as_deref() == Some("exmap") => panic!("{engine:?}: {why}"),
            Err(why) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED, NOT TESTED: {engine:?}: {why}");
            }
        }
    }
}

fn opened(dir: &TempDir, engine: IoEngine) -> Result<(Arc<Exmap>, FileDevice), String> {
    let map = Exmap::open(PAGE_COUNT * PAGE_SIZE, PAGE_COUNT as u64).map_err(|error| error.to_string())?;
    let way = IoOptions { engine, direct: DirectIo::Yes };
    let device = FileDevice::create(&dir.join("pages"), way).map_err(|error| error.to_string())?;
    device.allocate(offset_of(PAGE_COUNT)).unwrap();
    let map = Arc::new(map);
    device.read_through(&map).unwrap();
    Ok((map, device))
}

/// Some pages of the map.
#[allow(clippy::mut_from_ref)]
fn pages(map: &Exmap, wanted: std::ops::Range<usize>) -> &mut [PageBuf] {
    assert!(wanted.end <= PAGE_COUNT);
    let start = map.base().cast::<PageBuf>().as_ptr().wrapping_add(wanted.start);
    // SAFETY: M1: so many bytes are there, aligned to pages, and each test refers to them by one slice at a time.
    unsafe { std::slice::from_raw_parts_mut(start, wanted.len()) }
}

fn give_all(map: &Exmap) {
    map.give(&[(0, PAGE_COUNT as u32)]);
}

/// All pages of the file, by one call with an operation for each.
fn read_all(map: &Exmap, device: &FileDevice) {
    let reads = pages(map, 0..PAGE_COUNT).iter_mut().enumerate();
    let mut reads: Vec<_> = reads
        .map(|(page, buf)| Transfer {
            offset: offset_of(page),
            bufs: Bufs::Read(vec![IoSliceMut::new(&mut buf.0)]),
        })
        .collect();
    device.transfer(&mut reads, &|_, _, result| result.unwrap());
}

#[test]
fn what_is_read_into_the_map_arrives_by_its_descriptor() {
    each_engine(|map, device| {
        transfer(device, &singles(0..PAGE_COUNT, Some(3)));
        give_all(map);
        read_all(map, device);
        check_pages(0, pages(map, 0..PAGE_COUNT), |_| 3);
        assert_eq!(map.statistics().unwrap().pages_read, PAGE_COUNT as u64);
        // One operation with many buffers, and one after the other.
        pages(map, 0..PAGE_COUNT).iter_mut().for_each(|page| page.0.fill(0xee));
        let (first, last) = pages(map, 0..PAGE_COUNT).split_at_mut(PAGE_COUNT - 1);
        let mut bufs: Vec<_> = first.iter_mut().map(|page| IoSliceMut::new(&mut page.0)).collect();
        device.read_at(0, &mut bufs).unwrap();
        device.read_at(offset_of(PAGE_COUNT - 1), &mut [IoSliceMut::new(&mut last[0].0)]).unwrap();
        check_pages(0, pages(map, 0..PAGE_COUNT), |_| 3);
        assert_eq!(map.statistics().unwrap().pages_read, 2 * PAGE_COUNT as u64);
    });
}

#[test]
fn what_is_written_from_the_map_arrives() {
    each_engine(|map, device| {
        give_all(map);
        pages(map, 0..PAGE_COUNT).iter_mut().enumerate().for_each(|(page, buf)| *buf = page_of(page, 4));
        let slices: Vec<_> = pages(map, 0..PAGE_COUNT).iter().map(|page| [IoSlice::new(&page.0)]).collect();
        device.write_at(0, &slices[0]).unwrap();
        let write = |page: usize| Transfer { offset: offset_of(page), bufs: Bufs::Write(&slices[page]) };
        device.transfer(&mut (1..PAGE_COUNT).map(write).collect::<Vec<_>>(), &|_, _, result| result.unwrap());
        let found = alone(device, &Op { first: 0, page_count: PAGE_COUNT, version: None }).unwrap();
        check_pages(0, &found, |_| 4);
        assert_eq!(map.statistics().unwrap().pages_read, 0, "these were read into other memory");
    });
}

#[test]
fn pages_that_were_taken_are_zero_until_they_are_read_again() {
    each_engine(|map, device| {
        transfer(device, &singles(0..PAGE_COUNT, Some(5)));
        let odd: Vec<_> = (0..PAGE_COUNT as u32).filter(|page| page % 2 == 1).map(|page| (page, 1)).collect();
        for _ in 0..3 {
            give_all(map);
            read_all(map, device);
            map.take(&odd);
            check_pages(0, pages(map, 0..PAGE_COUNT), |page| if page % 2 == 1 { 0 } else { 5 });
        }
        let statistics = map.statistics().unwrap();
        assert_eq!(statistics.pages_freed, 3 * odd.len() as u64);
        assert_eq!(statistics.shootdowns_free, 3, "one a call: {statistics:?}");
    });
}

#[test]
fn a_read_that_fails_is_told_of_and_others_go_on() {
    each_engine(|map, device| {
        transfer(device, &singles(0..PAGE_COUNT, Some(6)));
        device.truncate(offset_of(PAGE_COUNT - 100)).unwrap();
        give_all(map);
        let reads = pages(map, 0..PAGE_COUNT).iter_mut().enumerate();
        let mut reads: Vec<_> = reads
            .map(|(page, buf)| Transfer {
                offset: offset_of(page),
                bufs: Bufs::Read(vec![IoSliceMut::new(&mut buf.0)]),
            })
            .collect();
        device.transfer(&mut reads, &|page, _, result| match page < PAGE_COUNT - 100 {
            true => result.unwrap(),
            false => {
                assert!(matches!(result.unwrap_err().kind, DeviceErrorKind::PastEnd { .. }), "page {page}")
            }
        });
        drop(reads);
        check_pages(0, pages(map, 0..PAGE_COUNT - 100), |_| 6);
    });
}

/// Reads into the map and reads into other memory, by turns in one call.
#[test]
fn a_call_may_read_there_and_elsewhere() {
    each_engine(|map, device| {
        transfer(device, &singles(0..PAGE_COUNT, Some(7)));
        give_all(map);
        let mut others = vec![PageBuf::ZERO; PAGE_COUNT];
        let both = pages(map, 0..PAGE_COUNT).iter_mut().zip(&mut others).enumerate();
        let mut reads = Vec::new();
        for (page, (inside, outside)) in both {
            for buf in [inside, outside] {
                let bufs = Bufs::Read(vec![IoSliceMut::new(&mut buf.0)]);
                reads.push(Transfer { offset: offset_of(page), bufs });
            }
        }
        device.transfer(&mut reads, &|_, _, result| result.unwrap());
        drop(reads);
        check_pages(0, pages(map, 0..PAGE_COUNT), |_| 7);
        check_pages(0, &others, |_| 7);
        assert_eq!(map.statistics().unwrap().pages_read, PAGE_COUNT as u64);
    });
}
