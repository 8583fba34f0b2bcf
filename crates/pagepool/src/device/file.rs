//! A [`Device`] that is a file, read and written around the page cache where the file system allows it.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fs::{Advice, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags, CWD};
use rustix::io::{Errno, ReadWriteFlags};

use super::bell::Bell;
use super::buf::PageBuf;
use super::crew::Crew;
use super::lent::Lent;
use super::meter::{Direction, IoReport, Meter};
use super::options::{DirectIo, IoEngine, IoOptions, SyncMethod};
use super::ring::{Rings, Step};
use super::ring_stream;
use super::seam::{
    perform_each, serve_in_calls, total_len, total_len_mut, Bufs, Device, DeviceError, DeviceErrorKind,
    DeviceOp, Done, Feed, Transfer, DEVICE_ALIGN, MOST_BUFS,
};
use crate::exmap::Exmap;
use crate::sched::promptly;
use crate::PAGE_SIZE;

/// Why transfers go through the page cache although they need not.
const NOT_DIRECT: &str = "the file system takes no direct I/O";
/// Whom a file is for.
const PERMISSIONS: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP);

/// What does the operations of a call that has several; one alone is a `preadv` or a `pwritev`, which costs as many calls
/// of the system as a ring would.
enum Engine {
    Rings(Rings),
    Crew(Crew),
}

/// A file as a [`Device`].
///
/// With `O_DIRECT` a write is on its way to the disk when it returns and a read leaves nothing in the page cache,
/// which would hold every page a second time.
pub struct FileDevice {
    fd: OwnedFd,
    path: PathBuf,
    name: String,
    is_direct: bool,
    /// Why it is not, if it was wanted rather.
    direct_note: Option<&'static str>,
    engine: Engine,
    /// Why it is not the other, if that was wanted rather.
    engine_note: Option<String>,
    meter: Meter,
    /// Of direct transfers what the system cannot pin.
    map: OnceLock<Arc<Exmap>>,
}

impl FileDevice {
    /// Opens the file at `path`, which must exist, and locks it against every other `FileDevice`: two that wrote to the
    /// same file would destroy it. The lock goes with the device, or the process.
    ///
    /// # Errors
    /// [`DeviceErrorKind::InUse`], what was wanted explicitly and is refused, and those of the system.
    pub fn open(path: &Path, options: IoOptions) -> Result<FileDevice, DeviceError> {
        FileDevice::open_with(path, options, OFlags::RDWR)
    }

    /// Opens the file at `path` to read it; others may do so at the same time, but nobody may write it.
    ///
    /// # Errors
    /// As of [`FileDevice::open`].
    pub fn open_to_read(path: &Path, options: IoOptions) -> Result<FileDevice, DeviceError> {
        FileDevice::open_with(path, options, OFlags::empty())
    }

    /// Creates a file at `path`, or empties one that is there; locked likewise.
    ///
    /// # Errors
    /// As of [`FileDevice::open`].
    pub fn create(path: &Path, options: IoOptions) -> Result<FileDevice, DeviceError> {
        let device = FileDevice::open_with(path, options, OFlags::RDWR | OFlags::CREATE)?;
        device.truncate(0)?;
        Ok(device)
    }

    fn open_with(path: &Path, options: IoOptions, access: OFlags) -> Result<FileDevice, DeviceError> {
        let name = path.display().to_string();
        let fail = |errno| os_error(&name, DeviceOp::Open, 0, 0, errno);
        let base = OFlags::CLOEXEC | access;
        let opened = match options.direct {
            DirectIo::Auto | DirectIo::Yes => open_direct(path, base).map_err(fail)?,
            DirectIo::No => None,
        };
        let is_direct = opened.is_some();
        if !is_direct && options.direct == DirectIo::Yes {
            let kind = DeviceErrorKind::DirectIoRefused;
            return Err(DeviceError { kind, ..fail(Errno::INVAL) });
        }
        let fd = match opened {
            Some(fd) => fd,
            None => retry(|| rustix::fs::open(path, base, PERMISSIONS)).map_err(fail)?,
        };
        lock(&fd, access).map_err(|errno| match errno {
            Errno::WOULDBLOCK => DeviceError { kind: DeviceErrorKind::InUse, ..fail(errno) },
            errno => fail(errno),
        })?;
        let (engine, engine_note) = match open_engine(path, &fd, options.engine, is_direct, base) {
            Err((kind, errno)) => return Err(DeviceError { kind, ..fail(errno) }),
            Ok(engine) => engine,
        };
        let direct_note = (!is_direct && options.direct == DirectIo::Auto).then_some(NOT_DIRECT);
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let meter = Meter::default();
        let map = OnceLock::new();
        let device = FileDevice { fd, path, name, is_direct, direct_note, engine, engine_note, meter, map };
        // Between opening and locking it may have lost its name to another.
        device.check_identity()?;
        Ok(device)
    }

    /// Gives the file another name, at which there must not be one, durably.
    pub fn publish(self, path: &Path) -> Result<FileDevice, DeviceError> {
        let name = path.display().to_string();
        let fail = |errno| os_error(&name, DeviceOp::Name, 0, 0, errno);
        rename_file(&self.path, path).map_err(fail)?;
        sync_parent(path).map_err(fail)?;
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Ok(FileDevice { path, name, ..self })
    }

    /// Sees to it that reads show what the disk has, where they go through the page cache: after a failed sync that may have
    /// what the disk does not.
    pub(super) fn forget_cached(&self) {
        if !self.is_direct {
            // Advice: what the system does not follow, nobody can force.
            let _ = rustix::fs::fadvise(&self.fd, 0, None, Advice::DontNeed);
        }
    }

    /// The descriptor by which these are read: all of them are in the map, or none is.
    fn reader(&self, bufs: &[IoSliceMut<'_>]) -> BorrowedFd<'_> {
        let first = bufs.first().map(|buf| (buf.as_ptr().addr(), buf.len()));
        let map = self.map.get().filter(|map| first.is_some_and(|(address, len)| map.covers(address, len)));
        map.and_then(|map| map.reader()).unwrap_or(self.fd.as_fd())
    }

    /// Whether these cannot be written as they are.
    fn is_in_map(&self, bufs: &[IoSlice<'_>]) -> bool {
        let is_in = |map: &Arc<Exmap>| bufs.iter().any(|buf| map.covers(buf.as_ptr().addr(), buf.len()));
        self.map.get().is_some_and(is_in)
    }

    fn error(&self, op: DeviceOp, offset: u64, len: u64, errno: Errno) -> DeviceError {
        os_error(&self.name, op, offset, len, errno)
    }

    /// Ends a read of which the kernel did `first` (bytes, or why none).
    fn end_read(
        &self,
        offset: u64,
        bufs: &mut [IoSliceMut<'_>],
        first: Result<usize, Errno>,
    ) -> Result<(), DeviceError> {
        let total = total_len_mut(bufs);
        match first {
            Ok(done) if done as u64 == total => Ok(()),
            Ok(done) => self.read_rest(offset, bufs, done),
            Err(Errno::INTR) => self.read_rest(offset, bufs, 0),
            Err(errno) => Err(self.error(DeviceOp::Read, offset, total, errno)),
        }
    }

    /// Continues a read of which the kernel did only a part (`done` bytes so far).
    fn read_rest(&self, offset: u64, bufs: &mut [IoSliceMut<'_>], done: usize) -> Result<(), DeviceError> {
        let total = total_len_mut(bufs);
        let mut copy: Vec<_> = bufs.iter_mut().map(|buf| IoSliceMut::new(buf)).collect();
        let mut rest = &mut copy[..];
        // Whole blocks only, as `O_DIRECT` may ask for: what is left of one is read again with the rest.
        let mut whole = whole_blocks(done);
        IoSliceMut::advance_slices(&mut rest, whole);
        while (whole as u64) < total {
            let (at, wanted) = (offset + whole as u64, total - whole as u64);
            let now = rest.len().min(MOST_BUFS);
            match rustix::io::preadv(self.reader(rest), &mut rest[..now], at) {
                // Only the end of the file cuts a block off.
                Ok(step) if step < DEVICE_ALIGN => return Err(self.past_end(at, wanted)?),
                Ok(step) => {
                    whole += whole_blocks(step);
                    IoSliceMut::advance_slices(&mut rest, whole_blocks(step));
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.error(DeviceOp::Read, at, wanted, errno)),
            }
        }
        Ok(())
    }

    fn past_end(&self, offset: u64, wanted: u64) -> Result<DeviceError, DeviceError> {
        let kind = DeviceErrorKind::PastEnd { len: self.len()? };
        Ok(DeviceError { kind, ..self.error(DeviceOp::Read, offset, wanted, Errno::IO) })
    }

    /// Ends a write of which the kernel did `first` (bytes, or why none).
    fn end_write(
        &self,
        offset: u64,
        bufs: &[IoSlice<'_>],
        first: Result<usize, Errno>,
    ) -> Result<(), DeviceError> {
        let total = total_len(bufs);
        match first {
            Ok(done) if done as u64 == total => Ok(()),
            Ok(done) => self.write_rest(offset, bufs, done),
            Err(Errno::INTR) => self.write_rest(offset, bufs, 0),
            Err(errno) => Err(self.error(DeviceOp::Write, offset, total, errno)),
        }
    }

    /// Ends a transfer of which the kernel did `first`.
    fn end(&self, transfer: &mut Transfer<'_>, first: Step) -> Result<(), DeviceError> {
        let offset = transfer.offset;
        match &mut transfer.bufs {
            Bufs::Read(bufs) => self.end_read(offset, bufs, first),
            Bufs::Write(bufs) => self.end_write(offset, bufs, first),
        }
    }

    /// Continues a write that the kernel took only in part (`done` bytes so far).
    fn write_rest(&self, offset: u64, bufs: &[IoSlice<'_>], done: usize) -> Result<(), DeviceError> {
        let total = total_len(bufs);
        let mut copy = bufs.to_vec();
        let mut rest = &mut copy[..];
        // Whole blocks only, as `O_DIRECT` may ask for: the begin of a block is written again with its rest.
        let mut whole = whole_blocks(done);
        IoSlice::advance_slices(&mut rest, whole);
        while (whole as u64) < total {
            let (at, wanted) = (offset + whole as u64, total - whole as u64);
            let fail = |errno| Err(self.error(DeviceOp::Write, at, wanted, errno));
            match rustix::io::pwritev(&self.fd, &rest[..rest.len().min(MOST_BUFS)], at) {
                // Not even a block fits: what cuts writes off is a limit of the file's size or of the disk.
                Ok(step) if step < DEVICE_ALIGN => return fail(Errno::NOSPC),
                Ok(step) => {
                    whole += whole_blocks(step);
                    IoSlice::advance_slices(&mut rest, whole_blocks(step));
                }
                Err(Errno::INTR) => {}
                Err(errno) => return fail(errno),
            }
        }
        Ok(())
    }
}

impl Device for FileDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        debug_assert!(bufs.iter().all(|buf| aligned(buf.as_ptr(), buf.len())) && offset_aligned(offset));
        let now = bufs.len().min(MOST_BUFS);
        self.meter.time(Direction::Read, total_len_mut(bufs), || {
            let first = rustix::io::preadv(self.reader(bufs), &mut bufs[..now], offset);
            self.end_read(offset, bufs, first)
        })
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        debug_assert!(bufs.iter().all(|buf| aligned(buf.as_ptr(), buf.len())) && offset_aligned(offset));
        if self.is_in_map(bufs) {
            let copies: Vec<PageBuf> =
                bufs.iter().flat_map(|buf| buf.chunks(PAGE_SIZE)).map(copy_of).collect();
            return self
                .write_at(offset, &copies.iter().map(|copy| IoSlice::new(&copy.0)).collect::<Vec<_>>());
        }
        let now = bufs.len().min(MOST_BUFS);
        self.meter.time(Direction::Write, total_len(bufs), || {
            let first = rustix::io::pwritev(&self.fd, &bufs[..now], offset);
            self.end_write(offset, bufs, first)
        })
    }

    fn write_durably(
        &self,
        offset: u64,
        bufs: &[IoSlice<'_>],
        method: SyncMethod,
    ) -> Result<(), DeviceError> {
        debug_assert!(bufs.iter().all(|buf| aligned(buf.as_ptr(), buf.len())) && offset_aligned(offset));
        if method != SyncMethod::Dsync || bufs.len() > MOST_BUFS || self.is_in_map(bufs) {
            self.write_at(offset, bufs)?;
            return self.sync_data();
        }
        let total = total_len(bufs);
        let first = self.meter.time(Direction::Write, total, || {
            match retry(|| rustix::io::pwritev2(&self.fd, bufs, offset, ReadWriteFlags::DSYNC)) {
                Ok(done) => Ok(Some(done)),
                // The kernel or the file system has no such flag.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(None),
                Err(errno) => Err(self.error(DeviceOp::Write, offset, total, errno)),
            }
        })?;
        match first {
            Some(done) if done as u64 == total => return Ok(()),
            Some(done) => self.write_rest(offset, bufs, done)?,
            None => self.write_at(offset, bufs)?,
        }
        self.sync_data()
    }

    fn transfer(&self, transfers: &mut [Transfer<'_>], done: &Done<'_>) {
        debug_assert!(transfers.iter().all(is_aligned));
        // What is written from there is copied first, one after the other.
        let is_in_map =
            |transfer: &Transfer<'_>| matches!(&transfer.bufs, Bufs::Write(bufs) if self.is_in_map(bufs));
        if transfers.iter().any(is_in_map) {
            return perform_each(self, transfers, done);
        }
        match &self.engine {
            Engine::Rings(rings) if transfers.len() > 1 => {
                rings.transfer(transfers, &self.meter, &mut |index, transfer, first, took| {
                    let result = self.end(transfer, first);
                    let (direction, len) = (transfer.direction(), transfer.byte_len());
                    self.meter.end(direction, len, result.is_ok(), took);
                    done(index, transfer, result);
                });
            }
            Engine::Crew(crew) if transfers.len() > 1 => {
                let jobs: Vec<_> = transfers.iter_mut().map(Mutex::new).collect();
                // Where calls and threads meet there is a lock.
                promptly(|| {
                    crew.run(jobs.len(), &|index| {
                        let mut transfer = jobs[index].lock();
                        let result = transfer.perform(self);
                        done(index, &mut transfer, result);
                    });
                });
            }
            _ => perform_each(self, transfers, done),
        }
    }

    fn serve<'b>(&self, bell: &Bell, feed: &mut dyn Feed<'b>) {
        if let Engine::Rings(rings) = &self.engine {
            let finish = |transfer: &mut Transfer<'b>, step| self.end(transfer, step);
            let served = ring_stream::serve(rings, bell, &self.meter, feed, &finish);
            if served.is_ok() {
                return;
            }
        }
        serve_in_calls(self, bell, feed);
    }

    fn stream_count(&self) -> usize {
        match self.engine {
            Engine::Rings(_) => 1,
            Engine::Crew(_) => 2,
        }
    }

    fn lend(&self, memory: NonNull<u8>, byte_len: usize) {
        if let Engine::Rings(rings) = &self.engine {
            rings.lend(Lent::new(memory.addr().get(), byte_len));
        }
    }

    fn take_back(&self, piece: usize) {
        if let Engine::Rings(rings) = &self.engine {
            rings.lent().into_iter().for_each(|lent| lent.take_back(piece));
        }
    }

    fn end_loan(&self) {
        if let Engine::Rings(rings) = &self.engine {
            rings.lent().into_iter().for_each(|lent| lent.end());
        }
    }

    fn read_through(&self, map: &Arc<Exmap>) -> Result<(), DeviceError> {
        if !self.is_direct || map.reader().is_none() {
            return Ok(());
        }
        map.read_from(self.fd.as_fd()).map_err(|error| {
            self.error(DeviceOp::Open, 0, 0, Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })?;
        // The first counts, in each of both.
        let _ = self.map.set(map.clone());
        if let Engine::Rings(rings) = &self.engine {
            rings.lend(Lent::of_map(map.clone()));
        }
        Ok(())
    }

    fn sync_data(&self) -> Result<(), DeviceError> {
        // Not retried after any failure but EINTR: see the trait.
        retry(|| rustix::fs::fdatasync(&self.fd)).map_err(|errno| {
            self.meter.note_sync_error();
            self.error(DeviceOp::Sync, 0, 0, errno)
        })
    }

    fn len(&self) -> Result<u64, DeviceError> {
        let stat = rustix::fs::fstat(&self.fd).map_err(|errno| self.error(DeviceOp::Len, 0, 0, errno))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    fn allocate(&self, len: u64) -> Result<(), DeviceError> {
        let old_len = self.len()?;
        if len <= old_len {
            return Ok(());
        }
        let fail = |errno| self.error(DeviceOp::Allocate, old_len, len - old_len, errno);
        match retry(|| rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), old_len, len - old_len)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                retry(|| rustix::fs::ftruncate(&self.fd, len)).map_err(fail)
            }
            result => result.map_err(fail),
        }
    }

    fn truncate(&self, len: u64) -> Result<(), DeviceError> {
        let old_len = self.len()?;
        if len >= old_len {
            return Ok(());
        }
        retry(|| rustix::fs::ftruncate(&self.fd, len))
            .map_err(|errno| self.error(DeviceOp::Truncate, len, old_len - len, errno))
    }

    fn check_identity(&self) -> Result<(), DeviceError> {
        let fail = |errno| self.error(DeviceOp::Find, 0, 0, errno);
        let replaced = DeviceError { kind: DeviceErrorKind::Replaced, ..fail(Errno::NOENT) };
        let open = rustix::fs::fstat(&self.fd).map_err(fail)?;
        match retry(|| rustix::fs::stat(&self.path)) {
            Ok(found) if (found.st_dev, found.st_ino) == (open.st_dev, open.st_ino) => Ok(()),
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => Err(replaced),
            Err(errno) => Err(fail(errno)),
        }
    }

    fn io_report(&self) -> Option<IoReport> {
        let lent = match &self.engine {
            Engine::Rings(rings) => rings.lent(),
            Engine::Crew(_) => None,
        };
        let refusal = lent.and_then(|lent| lent.refusal());
        Some(IoReport {
            has_registered_buffers: lent.is_some_and(|lent| lent.is_usable()),
            buffers_note: refusal.map(|errno| format!("the kernel does not register memory: {errno}")),
            engine: match self.engine {
                Engine::Rings(_) => "io_uring",
                Engine::Crew(_) => "threads",
            },
            engine_note: self.engine_note.clone(),
            is_direct: self.is_direct,
            direct_note: self.direct_note,
            ..self.meter.report()
        })
    }
}

fn copy_of(bytes: &[u8]) -> PageBuf {
    let mut copy = PageBuf::ZERO;
    copy.0[..bytes.len()].copy_from_slice(bytes);
    copy
}

/// Locks an open file, for itself if it may be written; does not wait.
fn lock(fd: &OwnedFd, access: OFlags) -> Result<(), Errno> {
    let lock = match access.contains(OFlags::RDWR) {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    retry(|| rustix::fs::flock(fd, lock))
}

/// The engine for the file at `path`, which is open as `fd`, and why it is not the one that was wanted rather.
fn open_engine(
    path: &Path,
    fd: &OwnedFd,
    wanted: IoEngine,
    is_direct: bool,
    base: OFlags,
) -> Result<(Engine, Option<String>), (DeviceErrorKind, Errno)> {
    if wanted == IoEngine::Threads {
        return Ok((Engine::Crew(Crew::default()), None));
    }
    let direct = if is_direct { OFlags::DIRECT } else { OFlags::empty() };
    let flags = base.difference(OFlags::CREATE) | direct;
    let os = |errno| (DeviceErrorKind::Os(errno), errno);
    let again = retry(|| rustix::fs::open(path, flags, Mode::empty())).map_err(os)?;
    if identity(&again).map_err(os)? != identity(fd).map_err(os)? {
        return Err((DeviceErrorKind::Replaced, Errno::NOENT));
    }
    match Rings::new(again) {
        Ok(rings) => Ok((Engine::Rings(rings), None)),
        Err(errno) if wanted == IoEngine::IoUring => Err((DeviceErrorKind::IoUringRefused(errno), errno)),
        Err(errno) => {
            let note = format!("io_uring is refused: {errno}");
            Ok((Engine::Crew(Crew::default()), Some(note)))
        }
    }
}

/// What tells an open file from all others.
fn identity(fd: &OwnedFd) -> Result<(u64, u64), Errno> {
    rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino))
}

/// Opens with `O_DIRECT`; `None` where the file system refuses, on opening or on the first transfer.
fn open_direct(path: &Path, base: OFlags) -> Result<Option<OwnedFd>, Errno> {
    let fd = match retry(|| rustix::fs::open(path, base | OFlags::DIRECT, PERMISSIONS)) {
        Ok(fd) => fd,
        Err(Errno::INVAL) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let mut probe = Box::new(PageBuf::ZERO);
    match retry(|| rustix::io::pread(&fd, &mut probe.0[..], 0)) {
        Ok(_) => Ok(Some(fd)),
        Err(Errno::INVAL) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Gives a file another name, at which there must not be one.
pub(super) fn rename_file(from: &Path, to: &Path) -> Result<(), Errno> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system has no such call: nobody else is at work in a locked directory.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => rustix::fs::rename(from, to),
        result => result,
    }
}

/// Makes the directory entry of `path` durable.
pub(super) fn sync_parent(path: &Path) -> Result<(), Errno> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let dir = retry(|| {
        rustix::fs::open(parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    })?;
    retry(|| rustix::fs::fsync(&dir))
}

pub(super) fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

pub(super) fn os_error(name: &str, op: DeviceOp, offset: u64, len: u64, errno: Errno) -> DeviceError {
    let kind = match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => DeviceErrorKind::NoSpace(errno),
        _ => DeviceErrorKind::Os(errno),
    };
    DeviceError { device: name.to_owned(), op, offset, len, kind }
}

/// The part of a length that is whole blocks, in bytes.
fn whole_blocks(len: usize) -> usize {
    len - len % DEVICE_ALIGN
}

fn is_aligned(transfer: &Transfer<'_>) -> bool {
    let fits = match &transfer.bufs {
        Bufs::Read(bufs) => bufs.iter().all(|buf| aligned(buf.as_ptr(), buf.len())),
        Bufs::Write(bufs) => bufs.iter().all(|buf| aligned(buf.as_ptr(), buf.len())),
    };
    fits && offset_aligned(transfer.offset)
}

fn aligned(address: *const u8, len: usize) -> bool {
    address.addr() % DEVICE_ALIGN == 0 && len % DEVICE_ALIGN == 0
}

fn offset_aligned(offset: u64) -> bool {
    offset % DEVICE_ALIGN as u64 == 0
}
