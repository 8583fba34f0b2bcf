//! Transfers that keep coming, of all devices.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stillframe_pagepool::device::{
    Bell, Bufs, Device, DeviceError, DeviceErrorKind, Feed, FileDevice, IoEngine, IoOptions, PageBuf, Rest,
    Transfer,
};
use stillframe_testkit::{refuse, seed, TempDir, IO_URING};

use crate::support::{check_pages, each_device, offset_of, singles, transfer, ways};

const PAGE_COUNT: usize = 600;
const VERSION: u64 = 5;

/// Reads that are left by other threads.
#[derive(Default)]
struct Queue {
    state: Mutex<(VecDeque<usize>, bool)>,
}

/// Single pages to be read, in buffers of their own.
struct Reads<'b> {
    queue: &'b Queue,
    free: Vec<&'b mut PageBuf>,
    ended: Vec<usize>,
    /// What is beyond the end of the device.
    failed: Vec<usize>,
    /// Panics at the end of this read.
    panics_at: Option<usize>,
    most_under_way: usize,
    under_way: usize,
    rest: Rest,
}

impl<'b> Reads<'b> {
    fn new(queue: &'b Queue, buffers: &'b mut [PageBuf]) -> Reads<'b> {
        Reads {
            queue,
            free: buffers.iter_mut().collect(),
            ended: Vec::new(),
            failed: Vec::new(),
            panics_at: None,
            most_under_way: 0,
            under_way: 0,
            rest: Rest::UntilRung,
        }
    }
}

impl<'b> Feed<'b> for Reads<'b> {
    fn next(&mut self) -> Option<(u64, Transfer<'b>)> {
        let page = self.queue.state.lock().0.pop_front()?;
        let buffer = self.free.pop().expect("as many buffers as reads");
        self.under_way += 1;
        self.most_under_way = self.most_under_way.max(self.under_way);
        let bufs = Bufs::Read(vec![IoSliceMut::new(&mut buffer.0)]);
        Some((page as u64, Transfer { offset: offset_of(page), bufs }))
    }

    fn end(&mut self, number: u64, transfer: Transfer<'b>, result: Result<(), DeviceError>) {
        let page = number as usize;
        self.under_way -= 1;
        assert_ne!(Some(page), self.panics_at, "as the test wants it");
        assert_eq!(transfer.offset, offset_of(page), "it is told of its own transfer");
        let Bufs::Read(bufs) = &transfer.bufs else { panic!("it was a read") };
        match result {
            Ok(()) => {
                check_pages(page, &[PageBuf(bufs[0][..].try_into().unwrap())], |_| VERSION);
                self.ended.push(page);
            }
            Err(error) => {
                assert!(matches!(error.kind, DeviceErrorKind::PastEnd { .. }), "{error}");
                self.failed.push(page);
            }
        }
    }

    fn rest(&mut self) -> Rest {
        match self.queue.state.lock().1 {
            true => Rest::Over,
            false => self.rest,
        }
    }
}

fn with_pages(device: &dyn Device) {
    device.allocate(offset_of(PAGE_COUNT)).unwrap();
    assert!(transfer(device, &singles(0..PAGE_COUNT, Some(VERSION))).iter().all(|end| end.is_ok()));
}

fn leave(queue: &Queue, bell: &Bell, pages: impl IntoIterator<Item = usize>) {
    queue.state.lock().0.extend(pages);
    bell.ring();
}

fn close(queue: &Queue, bell: &Bell) {
    queue.state.lock().1 = true;
    bell.ring();
}

/// Reads come from other threads, now many, now one after a rest; each ends once, as itself.
#[test]
fn all_that_comes_is_done_and_who_sleeps_is_woken() {
    let seed = seed();
    each_device(seed, |kind, device| {
        with_pages(&*device);
        let (queue, bell) = (Queue::default(), Bell::new().unwrap());
        let mut buffers = vec![PageBuf::ZERO; 2 * PAGE_COUNT];
        let mut reads = Reads::new(&queue, &mut buffers);
        let mut wanted: Vec<usize> = (0..PAGE_COUNT).collect();
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| device.serve(&bell, &mut reads));
            let mut rng = fastrand::Rng::with_seed(seed);
            rng.shuffle(&mut wanted);
            let mut rest = &wanted[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rng.usize(1..=200).min(rest.len()));
                leave(&queue, &bell, now.iter().copied());
                rest = later;
                std::thread::sleep(Duration::from_micros(rng.u64(..3000)));
            }
            leave(&queue, &bell, [PAGE_COUNT + 7, PAGE_COUNT + 9]);
            std::thread::sleep(Duration::from_millis(5));
            close(&queue, &bell);
            serving.join().unwrap();
        });
        reads.ended.sort_unstable();
        assert!(reads.ended.iter().copied().eq(0..PAGE_COUNT), "{kind:?}: {} ended", reads.ended.len());
        reads.failed.sort_unstable();
        assert_eq!(reads.failed, [PAGE_COUNT + 7, PAGE_COUNT + 9], "one that fails spoils no other");
        assert!(reads.most_under_way > 4, "{kind:?}: {} under way", reads.most_under_way);
        assert_eq!(device.io_report().map_or(0, |report| report.depth), 0);
    });
}

/// Sees how many others are under way when an end is told.
struct Depths<'b> {
    reads: Reads<'b>,
    device: &'b dyn Device,
    seen: Vec<u64>,
}

impl<'b> Feed<'b> for Depths<'b> {
    fn next(&mut self) -> Option<(u64, Transfer<'b>)> {
        self.reads.next()
    }

    fn end(&mut self, number: u64, transfer: Transfer<'b>, result: Result<(), DeviceError>) {
        self.seen.extend(self.device.io_report().map(|report| report.depth));
        self.reads.end(number, transfer, result);
    }

    fn rest(&mut self) -> Rest {
        self.reads.rest()
    }
}

/// The disk is not kept waiting for who looks at what it has read: others are handed over before.
#[test]
fn a_stream_is_full_again_when_the_first_end_is_told() {
    each_device(1, |kind, device| {
        let engine = device.io_report().map_or("none", |report| report.engine);
        if engine != "io_uring" {
            return;
        }
        with_pages(&*device);
        let (queue, bell) = (Queue::default(), Bell::new().unwrap());
        let mut buffers = vec![PageBuf::ZERO; PAGE_COUNT];
        let mut depths =
            Depths { reads: Reads::new(&queue, &mut buffers), device: &*device, seen: Vec::new() };
        leave(&queue, &bell, 0..PAGE_COUNT);
        close(&queue, &bell);
        device.serve(&bell, &mut depths);
        let seen = depths.seen;
        assert_eq!((seen[0], seen.len(), seen.last()), (64, PAGE_COUNT, Some(&0)), "{kind:?}");
    });
}

/// Who asks to be woken after a time is, with nothing under way.
#[test]
fn a_rest_of_a_time_ends() {
    each_device(1, |kind, device| {
        with_pages(&*device);
        let (queue, bell) = (Queue::default(), Bell::new().unwrap());
        let mut buffers = vec![PageBuf::ZERO; 1];
        let mut reads = Reads::new(&queue, &mut buffers);
        reads.rest = Rest::For(Duration::from_millis(1));
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| device.serve(&bell, &mut reads));
            std::thread::sleep(Duration::from_millis(5));
            // Nobody rings.
            queue.state.lock().0.push_back(3);
            let since = Instant::now();
            while !queue.state.lock().0.is_empty() {
                assert!(since.elapsed() < Duration::from_secs(30), "{kind:?}: nobody looks");
                std::thread::yield_now();
            }
            queue.state.lock().1 = true;
            serving.join().unwrap();
        });
        assert_eq!(reads.ended, [3]);
    });
}

/// A feed that panics gets nothing written into memory that it no longer has.
#[test]
fn a_stream_that_unwinds_leaves_nothing_under_way() {
    each_device(1, |kind, device| {
        with_pages(&*device);
        for panics_at in [0, 5, 40, PAGE_COUNT - 1] {
            let (queue, bell) = (Queue::default(), Bell::new().unwrap());
            let mut buffers = vec![PageBuf::ZERO; PAGE_COUNT];
            let mut reads = Reads::new(&queue, &mut buffers);
            reads.panics_at = Some(panics_at);
            leave(&queue, &bell, 0..PAGE_COUNT);
            let panicked = catch_unwind(AssertUnwindSafe(|| device.serve(&bell, &mut reads)));
            assert!(panicked.is_err(), "{kind:?}: whoever serves learns of it");
            drop(reads);
            buffers.iter_mut().for_each(|page| page.0.fill(0xee));
            std::thread::sleep(Duration::from_millis(2));
            assert!(buffers.iter().all(|page| page.0.iter().all(|byte| *byte == 0xee)));
            assert_eq!(device.io_report().map_or(0, |report| report.depth), 0);
        }
    });
}

/// The kernel refuses from some moment on: what it has comes to its end, and the rest is done by other ways.
#[test]
fn a_stream_goes_on_where_io_uring_is_refused_in_the_middle() {
    let way = IoOptions { engine: IoEngine::IoUring, ..IoOptions::default() };
    if !ways().contains(&way) {
        return eprintln!("SKIPPED, NOT TESTED: io_uring that is refused in the middle");
    }
    let dir = TempDir::new("streams");
    let device = Arc::new(FileDevice::create(&dir.join("pages"), way).expect("it works here"));
    with_pages(&*device);
    for refused_after in [0, 1, 100] {
        let (queue, bell) = (Queue::default(), Bell::new().unwrap());
        let mut buffers = vec![PageBuf::ZERO; PAGE_COUNT];
        let mut reads = Refused { reads: Reads::new(&queue, &mut buffers), refused_after };
        leave(&queue, &bell, 0..PAGE_COUNT);
        close(&queue, &bell);
        // There is no way back for a thread.
        std::thread::scope(|scope| {
            scope.spawn(|| device.serve(&bell, &mut reads));
        });
        let mut ended = reads.reads.ended;
        ended.sort_unstable();
        assert!(ended.into_iter().eq(0..PAGE_COUNT));
        assert_eq!(device.io_report().unwrap().depth, 0);
    }
}

/// Has the system refuse rings to its thread once so many reads have ended.
struct Refused<'b> {
    reads: Reads<'b>,
    refused_after: usize,
}

impl<'b> Feed<'b> for Refused<'b> {
    fn next(&mut self) -> Option<(u64, Transfer<'b>)> {
        if self.reads.ended.len() >= self.refused_after {
            self.refused_after = usize::MAX;
            refuse(&IO_URING, libc::EPERM);
        }
        self.reads.next()
    }

    fn end(&mut self, number: u64, transfer: Transfer<'b>, result: Result<(), DeviceError>) {
        self.reads.end(number, transfer, result);
    }

    fn rest(&mut self) -> Rest {
        self.reads.rest()
    }
}
