//! What is the same for all devices.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use stillframe_pagepool::device::{Bufs, Device, PageBuf, Transfer};
use stillframe_testkit::{seed, seed_or};

use crate::support::{
    alone, check_pages, create, each_device, each_file, offset_of, page_of, singles, transfer, Kind, Op,
};

/// More than any device does at a time.
const MANY: usize = 700;
/// Threads of the random test, and what each has to itself.
const THREADS: usize = 4;
const PAGES_EACH: usize = 300;

/// What one thread does with pages of its own, with what they are to be.
struct Worker {
    rng: fastrand::Rng,
    first: usize,
    versions: Vec<u64>,
    version: u64,
}

impl Worker {
    /// Some operations that do not overlap, in any order.
    fn ops(&mut self, most: usize) -> Vec<Op> {
        let mut ops = Vec::new();
        let mut at = self.rng.usize(..20);
        while at < PAGES_EACH && ops.len() < most {
            let page_count = self.rng.usize(..8).min(PAGES_EACH - at);
            self.version += 1;
            let version = self.rng.bool().then_some(self.version);
            ops.push(Op { first: self.first + at, page_count, version });
            at += page_count + self.rng.usize(..3);
        }
        self.rng.shuffle(&mut ops);
        ops
    }

    fn round(&mut self, device: &dyn Device) {
        let most = [1, 2, 5, 1000][self.rng.usize(..4)];
        let ops = self.ops(most);
        let ends = match self.rng.u8(..4) {
            0 => ops.iter().map(|op| alone(device, op)).collect(),
            _ => transfer(device, &ops),
        };
        for (op, end) in ops.iter().zip(ends) {
            let pages = end.unwrap_or_else(|error| panic!("{op:?}: {error}"));
            let at = op.first - self.first;
            match op.version {
                Some(version) => self.versions[at..at + op.page_count].fill(version),
                None => check_pages(op.first, &pages, |page| self.versions[page - self.first]),
            }
        }
    }
}

fn random_operations(seed: u64) {
    each_device(seed, |kind, device| {
        device.allocate(offset_of(THREADS * PAGES_EACH)).unwrap();
        let rounds = if kind == Kind::Sim { 10 } else { 40 };
        let worker = |thread: usize| Worker {
            rng: fastrand::Rng::with_seed(seed + thread as u64),
            first: thread * PAGES_EACH,
            versions: vec![0; PAGES_EACH],
            version: 0,
        };
        let mut workers: Vec<_> = (0..THREADS).map(worker).collect();
        std::thread::scope(|scope| {
            for worker in &mut workers {
                scope.spawn(|| (0..rounds).for_each(|_| worker.round(&*device)));
            }
        });
        for worker in &workers {
            let all = Op { first: worker.first, page_count: PAGES_EACH, version: None };
            let pages = alone(&*device, &all).unwrap();
            check_pages(worker.first, &pages, |page| worker.versions[page - worker.first]);
        }
    });
}

#[test]
fn random_operations_of_threads_match_a_model() {
    random_operations(seed_or(71));
}

#[test]
fn random_operations_of_threads_match_a_model_by_a_fresh_seed() {
    random_operations(seed());
}

#[test]
fn many_operations_of_one_call_are_all_done() {
    each_device(1, |_, device| {
        device.allocate(offset_of(MANY)).unwrap();
        let writes = singles(0..MANY, Some(3));
        assert!(transfer(&*device, &writes).iter().all(|end| end.is_ok()));
        for (op, end) in writes.iter().zip(transfer(&*device, &singles(0..MANY, None))) {
            check_pages(op.first, &end.unwrap(), |_| 3);
        }
    });
}

/// One of more buffers than the kernel takes at once is done nevertheless.
#[test]
fn operations_of_many_buffers_are_done_whole() {
    const LONG: usize = 2500;
    each_device(1, |_, device| {
        device.allocate(offset_of(2 * LONG)).unwrap();
        let both = |version| [0, LONG].map(|first| Op { first, page_count: LONG, version }).to_vec();
        assert!(transfer(&*device, &both(Some(1))).iter().all(|end| end.is_ok()));
        for (op, end) in both(None).iter().zip(transfer(&*device, &both(None))) {
            check_pages(op.first, &end.unwrap(), |_| 1);
        }
        alone(&*device, &both(Some(2))[1]).unwrap();
        check_pages(LONG, &alone(&*device, &both(None)[1]).unwrap(), |_| 2);
    });
}

#[test]
fn no_operations_and_operations_of_nothing_succeed() {
    each_device(1, |_, device| {
        device.allocate(offset_of(10)).unwrap();
        device.transfer(&mut [], &|_, _, _| panic!("there is nothing to end"));
        let nothing = |first, version| Op { first, page_count: 0, version };
        let ops = [nothing(3, None), nothing(1000, None), nothing(4, Some(1)), nothing(10, Some(1))];
        assert!(transfer(&*device, &ops).iter().all(|end| end.is_ok()));
        assert!(ops.iter().all(|op| alone(&*device, op).is_ok()));
        check_pages(0, &alone(&*device, &Op { first: 0, page_count: 10, version: None }).unwrap(), |_| 0);
    });
}

/// Whoever is told of the end of a read sees what was read, while others are still on their way.
#[test]
fn what_was_read_is_there_when_the_end_is_told() {
    each_device(1, |_, device| {
        device.allocate(offset_of(MANY)).unwrap();
        transfer(&*device, &singles(0..MANY, Some(9)));
        let mut pages = vec![PageBuf::ZERO; MANY];
        let mut reads = Vec::new();
        for (index, page) in pages.iter_mut().enumerate() {
            let bufs = Bufs::Read(vec![std::io::IoSliceMut::new(&mut page.0)]);
            reads.push(Transfer { offset: offset_of(index), bufs });
        }
        device.transfer(&mut reads, &|index, transfer, result| {
            result.unwrap();
            let Bufs::Read(bufs) = &transfer.bufs else { panic!("it was a read") };
            assert!(bufs[0][..] == page_of(index, 9).0);
            // What does not fit its checksum is read again at once.
            check_pages(index, &alone(&*device, &singles(index..index + 1, None)[0]).unwrap(), |_| 9);
        });
    });
}

/// A caller that panics in the middle gets nothing written into memory that it no longer has.
#[test]
fn a_call_that_unwinds_leaves_nothing_under_way() {
    each_device(1, |kind, device| {
        device.allocate(offset_of(MANY)).unwrap();
        transfer(&*device, &singles(0..MANY, Some(4)));
        for round in 0..5 {
            let mut pages = vec![PageBuf::ZERO; MANY];
            let mut reads = Vec::new();
            for (index, page) in pages.iter_mut().enumerate() {
                let bufs = Bufs::Read(vec![std::io::IoSliceMut::new(&mut page.0)]);
                reads.push(Transfer { offset: offset_of(index), bufs });
            }
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                device.transfer(&mut reads, &|index, _, _| {
                    assert_ne!(index, 20 * round, "as the test wants it")
                });
            }));
            assert!(panicked.is_err(), "{kind:?}: whoever calls learns of it");
            drop(reads);
            pages.iter_mut().for_each(|page| page.0.fill(0xee));
            std::thread::sleep(std::time::Duration::from_millis(2));
            assert!(pages.iter().all(|page| page.0.iter().all(|byte| *byte == 0xee)));
        }
        // And it still works.
        for (page, end) in transfer(&*device, &singles(0..MANY, None)).into_iter().enumerate() {
            check_pages(page, &end.unwrap(), |_| 4);
        }
    });
}

/// The last of those who use a file closes it, and then nothing is left of it: neither operations nor the lock.
#[test]
fn a_file_is_closed_under_load() {
    each_file(|kind, dir| {
        for round in 0..20 {
            let device = Arc::new(create(kind, dir));
            device.allocate(offset_of(THREADS * 50)).unwrap();
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let device = device.clone();
                    let pages = thread * 50..(thread + 1) * 50;
                    std::thread::spawn(move || {
                        for version in 1..fastrand::u64(2..6) {
                            let ends = transfer(&*device, &singles(pages.clone(), Some(version + round)));
                            assert!(ends.iter().all(|end| end.is_ok()));
                        }
                    })
                })
                .collect();
            drop(device);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let open_count = || {
                let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
                fds.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(dir.path())))
                    .count()
            };
            assert_eq!(open_count(), 0, "{kind:?}");
        }
    });
}
