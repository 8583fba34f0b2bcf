//! Memory that is lent to a device: reads and writes that go there do as others do, whatever becomes of it.

use std::io::{IoSlice, IoSliceMut};

use rustix::io::Errno;
use stillframe_pagepool::device::{Bufs, Device, FileDevice, IoEngine, IoOptions, PageBuf, Transfer};
use stillframe_pagepool::{AnonMemory, Memory, PAGE_SIZE};
use stillframe_testkit::{with_refused, TempDir, IO_URING};

use crate::support::{check_pages, each_device, offset_of, page_of, singles, transfer, ways};

const PIECE_PAGES: usize = 512;
const PAGE_COUNT: usize = 2 * PIECE_PAGES;

fn memory() -> AnonMemory {
    AnonMemory::new(PAGE_COUNT * PAGE_SIZE).unwrap()
}

/// The pages of the memory.
fn pages(memory: &mut AnonMemory) -> &mut [PageBuf] {
    // SAFETY: M1: so many bytes are there, aligned to pages, and borrowed as long as the memory is.
    unsafe { std::slice::from_raw_parts_mut(memory.base().as_ptr().cast(), PAGE_COUNT) }
}

/// Reads single pages into the memory, each at its place, and looks at them.
fn check_reads(device: &dyn Device, memory: &mut AnonMemory, wanted: std::ops::Range<usize>, version: u64) {
    let pages = &mut pages(memory)[wanted.clone()];
    pages.iter_mut().for_each(|page| page.0.fill(0xee));
    let mut reads: Vec<_> = wanted
        .clone()
        .zip(&mut *pages)
        .map(|(page, buf)| Transfer {
            offset: offset_of(page),
            bufs: Bufs::Read(vec![IoSliceMut::new(&mut buf.0)]),
        })
        .collect();
    device.transfer(&mut reads, &|_, _, result| result.unwrap());
    check_pages(wanted.start, pages, |_| version);
}

#[test]
fn what_goes_to_lent_memory_and_from_it_arrives() {
    each_device(1, |kind, device| {
        device.allocate(offset_of(PAGE_COUNT)).unwrap();
        let mut memory = memory();
        device.lend(memory.base(), memory.byte_len());
        let pages = pages(&mut memory);
        pages.iter_mut().enumerate().for_each(|(page, buf)| *buf = page_of(page, 3));
        let slices: Vec<[IoSlice<'_>; 1]> = pages.iter().map(|page| [IoSlice::new(&page.0)]).collect();
        let write = |(page, slice)| Transfer { offset: offset_of(page), bufs: Bufs::Write(slice) };
        let mut writes: Vec<_> = slices.iter().map(|slice| &slice[..]).enumerate().map(write).collect();
        device.transfer(&mut writes, &|_, _, result| result.unwrap());
        check_reads(&*device, &mut memory, 0..PAGE_COUNT, 3);
        let report = device.io_report().unwrap_or_default();
        assert_eq!(report.has_registered_buffers, report.engine == "io_uring", "{kind:?}: {report:?}");
        assert_eq!(report.buffers_note, None);
        // It is nobody's any more.
        device.end_loan();
        drop(memory);
        let mut memory = self::memory();
        check_reads(&*device, &mut memory, 0..PAGE_COUNT, 3);
    });
}

/// A piece whose memory has been given back has other pages than those that the kernel knew.
#[test]
fn what_is_read_into_a_piece_that_was_taken_back_is_seen() {
    each_device(1, |_, device| {
        device.allocate(offset_of(PAGE_COUNT)).unwrap();
        transfer(&*device, &singles(0..PAGE_COUNT, Some(5)));
        let mut memory = memory();
        device.lend(memory.base(), memory.byte_len());
        for _ in 0..3 {
            check_reads(&*device, &mut memory, 0..PAGE_COUNT, 5);
            device.take_back(1);
            memory.discard(PIECE_PAGES * PAGE_SIZE, PIECE_PAGES * PAGE_SIZE);
            check_reads(&*device, &mut memory, PIECE_PAGES..PAGE_COUNT, 5);
        }
        device.end_loan();
    });
}

#[test]
fn where_registering_is_refused_all_is_done_without() {
    let way = IoOptions { engine: IoEngine::IoUring, ..IoOptions::default() };
    if !ways().contains(&way) {
        return eprintln!("SKIPPED, NOT TESTED: memory that is not registered");
    }
    let dir = TempDir::new("lent");
    let device = FileDevice::create(&dir.join("pages"), way).unwrap();
    device.allocate(offset_of(PAGE_COUNT)).unwrap();
    transfer(&device, &singles(0..PAGE_COUNT, Some(7)));
    let mut memory = memory();
    device.lend(memory.base(), memory.byte_len());
    // Some of it is known when the kernel begins to refuse.
    check_reads(&device, &mut memory, 0..PIECE_PAGES, 7);
    let register = IO_URING[IO_URING.len() - 1];
    with_refused(&[register], Errno::NOMEM.raw_os_error(), || {
        check_reads(&device, &mut memory, 0..PAGE_COUNT, 7);
        let report = device.io_report().unwrap();
        assert!(!report.has_registered_buffers && report.engine == "io_uring", "{report:?}");
        let note = report.buffers_note.unwrap();
        assert!(note.contains(&Errno::NOMEM.to_string()), "{note}");
    });
    check_reads(&device, &mut memory, 0..PAGE_COUNT, 7);
    device.end_loan();
}
