//! The devices that there are, and operations on pages that say what they are.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use parking_lot::Mutex;
use stillframe_pagepool::device::{
    Bufs, Device, DeviceError, DeviceErrorKind, DirectIo, FileDevice, IoEngine, IoOptions, PageBuf,
    SimDevice, Transfer,
};
use stillframe_pagepool::PAGE_SIZE;
use stillframe_testkit::TempDir;

/// A kind of device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    File(IoOptions),
    Sim,
}

/// Ways of reading and writing a file. Says so, loudly, if one cannot be had here.
pub fn ways() -> Vec<IoOptions> {
    let mut ways = Vec::new();
    for engine in [IoEngine::Threads, IoEngine::IoUring] {
        let dir = TempDir::new("ways");
        match FileDevice::create(&dir.join("pages"), IoOptions { engine, direct: DirectIo::No }) {
            Ok(_) => ways.extend([DirectIo::Auto, DirectIo::No].map(|direct| IoOptions { engine, direct })),
            Err(error) => {
                assert!(matches!(error.kind, DeviceErrorKind::IoUringRefused(_)), "{error}");
                eprintln!("SKIPPED, NOT TESTED: {engine:?}: {error}");
            }
        }
    }
    ways
}

/// Runs `test` with an empty device of each kind.
pub fn each_device(seed: u64, test: impl Fn(Kind, Arc<dyn Device>)) {
    test(Kind::Sim, Arc::new(SimDevice::new(seed)));
    each_file(|kind, dir| test(kind, Arc::new(create(kind, dir))));
}

/// Runs `test` for each kind that is a file, with a directory for it.
pub fn each_file(test: impl Fn(Kind, &TempDir)) {
    for way in ways() {
        println!("{way:?}");
        test(Kind::File(way), &TempDir::new("device"));
    }
}

/// A new file of that kind, `pages` in `dir`.
pub fn create(kind: Kind, dir: &TempDir) -> FileDevice {
    let Kind::File(way) = kind else { panic!("{kind:?} is no file") };
    FileDevice::create(&dir.join("pages"), way).unwrap()
}

pub fn offset_of(page: usize) -> u64 {
    (page * PAGE_SIZE) as u64
}

/// A page that says which it is, and which version of it.
pub fn page_of(page: usize, version: u64) -> PageBuf {
    let mut buf = PageBuf::ZERO;
    if version > 0 {
        for (word, bytes) in buf.0.chunks_exact_mut(8).enumerate() {
            let value = (page as u64) << 40 ^ version << 12 ^ word as u64;
            bytes.copy_from_slice(&value.to_le_bytes());
        }
    }
    buf
}

/// An operation on pages in a row.
#[derive(Clone, Debug)]
pub struct Op {
    pub first: usize,
    pub page_count: usize,
    /// What is written; none: a read.
    pub version: Option<u64>,
}

/// What became of an operation: what a read has read.
pub type End = Result<Vec<PageBuf>, DeviceError>;

/// Does all `ops` in one call.
pub fn transfer(device: &dyn Device, ops: &[Op]) -> Vec<End> {
    let pages_of = |op: &Op| -> Vec<PageBuf> {
        let pages = op.first..op.first + op.page_count;
        pages.map(|page| op.version.map_or(PageBuf::ZERO, |version| page_of(page, version))).collect()
    };
    let mut pages: Vec<Vec<PageBuf>> = ops.iter().map(pages_of).collect();
    let written = pages.clone();
    let slices: Vec<Vec<IoSlice<'_>>> =
        written.iter().map(|pages| pages.iter().map(|page| IoSlice::new(&page.0)).collect()).collect();
    let mut transfers = Vec::new();
    for ((op, pages), slices) in ops.iter().zip(&mut pages).zip(&slices) {
        let bufs = match op.version {
            Some(_) => Bufs::Write(slices),
            None => Bufs::Read(pages.iter_mut().map(|page| IoSliceMut::new(&mut page.0)).collect()),
        };
        transfers.push(Transfer { offset: offset_of(op.first), bufs });
    }
    let ends: Vec<_> = ops.iter().map(|_| Mutex::new(None)).collect();
    device.transfer(&mut transfers, &|index, transfer, result| {
        assert_eq!(transfer.offset, offset_of(ops[index].first), "it is told of its own transfer");
        assert!(ends[index].lock().replace(result).is_none(), "each ends once");
    });
    drop(transfers);
    let result_of = |end: Mutex<Option<_>>| end.into_inner().expect("all have ended");
    ends.into_iter().map(result_of).zip(pages).map(|(result, pages)| result.map(|()| pages)).collect()
}

/// Does one operation without others.
pub fn alone(device: &dyn Device, op: &Op) -> End {
    let mut pages = vec![PageBuf::ZERO; op.page_count];
    match op.version {
        Some(version) => {
            let pages: Vec<_> =
                (op.first..op.first + op.page_count).map(|page| page_of(page, version)).collect();
            let bufs: Vec<_> = pages.iter().map(|page| IoSlice::new(&page.0)).collect();
            device.write_at(offset_of(op.first), &bufs)?;
        }
        None => {
            let mut bufs: Vec<_> = pages.iter_mut().map(|page| IoSliceMut::new(&mut page.0)).collect();
            device.read_at(offset_of(op.first), &mut bufs)?;
        }
    }
    Ok(pages)
}

/// Fails unless the pages are those of `version`.
pub fn check_pages(first: usize, pages: &[PageBuf], version_of: impl Fn(usize) -> u64) {
    for (page, found) in (first..).zip(pages) {
        let version = version_of(page);
        assert!(found.0 == page_of(page, version).0, "page {page} is not as of version {version}");
    }
}

/// Single pages, all read or all written.
pub fn singles(pages: std::ops::Range<usize>, version: Option<u64>) -> Vec<Op> {
    pages.map(|first| Op { first, page_count: 1, version }).collect()
}
