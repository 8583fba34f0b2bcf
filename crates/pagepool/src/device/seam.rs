//! The seam between page files and where their bytes are.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::bell::Bell;
use super::meter::{Direction, IoReport};
use super::options::SyncMethod;
use crate::exmap::Exmap;

/// Alignment in bytes of every offset, length and buffer address given to a device: what `O_DIRECT` may ask for.
pub const DEVICE_ALIGN: usize = 4096;

/// Buffers that the kernel takes in one operation (`IOV_MAX`).
pub(crate) const MOST_BUFS: usize = 1024;

/// How often a read is tried before it counts as failed, where much depends on it.
const READ_ATTEMPTS: u32 = 3;

/// Transfers of a call where a device has no stream of its own: others wait for them.
const CALL_TRANSFERS: usize = 16;

/// A byte-addressed store of changeable length.
///
/// Contract of all transfers: offset, the address and the length of each buffer are multiples of `DEVICE_ALIGN`.
/// A transfer is done in full or fails; after a failed write the bytes it covered are unknown. One of no bytes succeeds,
/// wherever it is. Transfers may run concurrently from several threads; the caller keeps overlapping ones apart.
pub trait Device: Send + Sync {
    /// What error messages call this device; for a file its path.
    fn name(&self) -> &str;

    /// Reads the bytes from `offset` on into `bufs`, one after the other. Beyond the end is an error. The slices stay as
    /// they are.
    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError>;

    /// Writes `bufs` one after the other from `offset` on. The caller has made room with [`Device::allocate`].
    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), DeviceError>;

    /// Does many transfers in one call, in any order and several at a time. What becomes of one is nothing to the others.
    /// `done` is called once for each when it has ended, perhaps on other threads and several at a time, and all have
    /// ended when this returns or unwinds. `done` may read and write, but not call this: it could wait for itself.
    fn transfer(&self, transfers: &mut [Transfer<'_>], done: &Done<'_>) {
        perform_each(self, transfers, done);
    }

    /// Does the transfers of `feed` as they come, until it is over: others begin while some are under way, where the device can
    /// do that, and each ends for itself. `bell` wakes it when there may be a next one. All have ended when this returns or
    /// unwinds.
    fn serve<'b>(&self, bell: &Bell, feed: &mut dyn Feed<'b>) {
        serve_in_calls(self, bell, feed);
    }

    /// Threads that it pays to have in [`Device::serve`] at a time.
    fn stream_count(&self) -> usize {
        2
    }

    /// Tells of memory that transfers often go to and from, in pieces of 2 MB: the device may have the system pin what it uses.
    /// The first call counts. Before a piece is given back to the system, and while nothing is under way there,
    /// [`Device::take_back`] says so.
    fn lend(&self, _memory: NonNull<u8>, _byte_len: usize) {}

    /// See [`Device::lend`].
    fn take_back(&self, _piece: usize) {}

    /// The same of all pieces, for good.
    fn end_loan(&self) {}

    /// Tells of a map whose memory the system cannot pin: what is read into it directly is read by way of its descriptor. The first
    /// call counts. No transfer reads both into it and elsewhere.
    fn read_through(&self, _map: &Arc<Exmap>) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Makes all completed writes and length changes durable.
    ///
    /// After a failure nobody knows which of them are: the kernel drops dirty pages that it could not write and
    /// reports that once, so a second, successful call proves nothing.
    fn sync_data(&self) -> Result<(), DeviceError>;

    /// Writes `bufs` from `offset` on and makes them durable, by that method where the device has it. What else was written
    /// before may be durable afterwards or not.
    ///
    /// A failure is that of a write and of a sync.
    fn write_durably(
        &self,
        offset: u64,
        bufs: &[IoSlice<'_>],
        _method: SyncMethod,
    ) -> Result<(), DeviceError> {
        self.write_at(offset, bufs)?;
        self.sync_data()
    }

    /// Length in bytes.
    fn len(&self) -> Result<u64, DeviceError>;

    /// Whether the device holds no byte yet.
    fn is_empty(&self) -> Result<bool, DeviceError> {
        Ok(self.len()? == 0)
    }

    /// Makes the device at least `len` bytes long, with the space taken, so that writes into it neither extend the
    /// file nor fail for want of space. New bytes read as zeros. Never shortens.
    fn allocate(&self, len: u64) -> Result<(), DeviceError>;

    /// Shortens the device to `len` bytes and gives the space back. Never extends.
    fn truncate(&self, len: u64) -> Result<(), DeviceError>;

    /// Fails unless whoever looks for the device under its name finds this one: what is written to a file that has been
    /// removed or replaced is gone with the process.
    fn check_identity(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// How it does its operations and how they went, if it counts them.
    fn io_report(&self) -> Option<IoReport> {
        None
    }
}

/// Does transfers one after the other.
pub(super) fn perform_each(device: &(impl Device + ?Sized), transfers: &mut [Transfer<'_>], done: &Done<'_>) {
    for (index, transfer) in transfers.iter_mut().enumerate() {
        let result = transfer.perform(device);
        done(index, transfer, result);
    }
}

/// One of the operations of [`Device::transfer`].
pub struct Transfer<'b> {
    pub offset: u64,
    pub bufs: Bufs<'b>,
}

/// The memory of a transfer, and with it the direction.
pub enum Bufs<'b> {
    /// As of [`Device::read_at`].
    Read(Vec<IoSliceMut<'b>>),
    /// As of [`Device::write_at`].
    Write(&'b [IoSlice<'b>]),
}

/// Told of the end of a transfer: which it is of the call, and what became of it.
pub type Done<'d> = dyn Fn(usize, &mut Transfer<'_>, Result<(), DeviceError>) + Sync + 'd;

impl Transfer<'_> {
    pub(crate) fn direction(&self) -> Direction {
        match &self.bufs {
            Bufs::Read(_) => Direction::Read,
            Bufs::Write(_) => Direction::Write,
        }
    }

    /// Bytes that it is to transfer.
    pub(crate) fn byte_len(&self) -> u64 {
        match &self.bufs {
            Bufs::Read(bufs) => total_len_mut(bufs),
            Bufs::Write(bufs) => total_len(bufs),
        }
    }

    /// Does it alone.
    pub fn perform(&mut self, device: &(impl Device + ?Sized)) -> Result<(), DeviceError> {
        match &mut self.bufs {
            Bufs::Read(bufs) => device.read_at(self.offset, bufs),
            Bufs::Write(bufs) => device.write_at(self.offset, bufs),
        }
    }
}

/// What a stream waits for when it has nothing to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// That its bell is rung, or a transfer ends.
    UntilRung,
    /// The same, for so long at most.
    For(Duration),
    /// For nothing: it is over once what is under way has ended.
    Over,
}

/// Where the transfers of a stream come from and go to; one thread's.
pub trait Feed<'b> {
    /// A transfer that is to begin now, and a number by which it is told of again; `None`: there is none just now. It does not
    /// wait.
    fn next(&mut self) -> Option<(u64, Transfer<'b>)>;

    /// A transfer has ended.
    fn end(&mut self, number: u64, transfer: Transfer<'b>, result: Result<(), DeviceError>);

    /// What to wait for. Asked when there was no next one, with the bell armed: what comes after that rings it.
    fn rest(&mut self) -> Rest;
}

/// Serves a feed by calls of [`Device::transfer`], one after the other.
pub(super) fn serve_in_calls<'b>(device: &(impl Device + ?Sized), bell: &Bell, feed: &mut dyn Feed<'b>) {
    loop {
        let mut batch: Vec<(u64, Transfer<'b>)> =
            std::iter::from_fn(|| feed.next()).take(CALL_TRANSFERS).collect();
        if batch.is_empty() {
            bell.arm();
            // What came before it was armed.
            batch.extend(feed.next());
            if batch.is_empty() {
                match feed.rest() {
                    Rest::Over => return,
                    Rest::For(time) => bell.wait(Some(time)),
                    Rest::UntilRung => bell.wait(None),
                }
                continue;
            }
            bell.disarm();
        }
        let (numbers, mut transfers): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let results: Vec<_> = numbers.iter().map(|_| Mutex::new(None)).collect();
        device.transfer(&mut transfers, &|index, _, result| *results[index].lock() = Some(result));
        for ((number, transfer), result) in numbers.into_iter().zip(transfers).zip(results) {
            feed.end(number, transfer, result.into_inner().expect("each transfer of a call has ended"));
        }
    }
}

/// Does many writes in one call. Of several errors it returns the one that says most: that space lacks says nothing of the
/// disk.
pub(crate) fn write_all(device: &dyn Device, mut writes: Vec<Transfer<'_>>) -> Result<(), DeviceError> {
    let failed: Mutex<Option<DeviceError>> = Mutex::new(None);
    device.transfer(&mut writes, &|_, _, result| {
        let Err(error) = result else { return };
        let mut failed = failed.lock();
        if failed.as_ref().is_none_or(|first| first.is_no_space() && !error.is_no_space()) {
            *failed = Some(error);
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

/// Tries a read again that failed: what passes by itself is no reason to believe that something is lost.
pub(crate) fn read_patiently(mut read: impl FnMut() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
    let mut result = read();
    for _ in 1..READ_ATTEMPTS {
        if result.is_ok() {
            break;
        }
        result = read();
    }
    result
}

/// What was asked of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceOp {
    /// Opening or creating it.
    Open,
    /// [`Device::read_at`]
    Read,
    /// [`Device::write_at`]
    Write,
    /// [`Device::sync_data`]
    Sync,
    /// [`Device::len`]
    Len,
    /// [`Device::allocate`]
    Allocate,
    /// [`Device::truncate`]
    Truncate,
    /// [`Device::check_identity`]
    Find,
    /// Giving a new file its name.
    Name,
    /// Taking a file away.
    Remove,
    /// Finding the devices of a shelf.
    List,
}

impl fmt::Display for DeviceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeviceOp::Open => "open",
            DeviceOp::Read => "read",
            DeviceOp::Write => "write",
            DeviceOp::Sync => "sync",
            DeviceOp::Len => "take the length of",
            DeviceOp::Allocate => "extend",
            DeviceOp::Truncate => "shorten",
            DeviceOp::Find => "find",
            DeviceOp::Name => "name",
            DeviceOp::Remove => "remove",
            DeviceOp::List => "list",
        })
    }
}

/// Why a device refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeviceErrorKind {
    /// The file system, the quota or the file size limit is exhausted (`ENOSPC`, `EDQUOT`, `EFBIG`).
    #[error("no space left ({0})")]
    NoSpace(#[source] rustix::io::Errno),
    /// Any other error of the operating system.
    #[error("{0}")]
    Os(#[source] rustix::io::Errno),
    /// The transfer goes beyond the end of the device.
    #[error("the file ends at byte {len}")]
    PastEnd {
        /// Length of the device in bytes.
        len: u64,
    },
    /// What was written and acknowledged is not there.
    #[error("the disk has acknowledged the write, and something else is there")]
    NotWritten,
    /// Another process has it open.
    #[error(
        "another process uses the file, or a view of a store of this process does: end that one, or use another \
         directory"
    )]
    InUse,
    /// The name leads elsewhere or nowhere.
    #[error(
        "the file that is open here has been removed, renamed or replaced. The data is still served: \
         copy it elsewhere, see what became of the file, open it again"
    )]
    Replaced,
    /// There is no `io_uring`, and nothing else is to be used.
    #[error(
        "io_uring is refused ({0}). Where it is to be had: sysctl kernel.io_uring_disabled=0, and io_uring_setup, \
         io_uring_enter and io_uring_register allowed in the container's seccomp profile. Else set 'io-engine' to 'auto' or \
         'threads'"
    )]
    IoUringRefused(#[source] rustix::io::Errno),
    /// The file system does not let transfers go around the page cache, and they are to.
    #[error(
        "its file system takes no direct I/O. Set 'direct-io' to 'auto' or 'no', or use another directory"
    )]
    DirectIoRefused,
    /// A simulated device after its crash.
    #[error("the simulated machine has crashed")]
    Crashed,
}

/// A failed device operation: what, where and why.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cannot {op} '{device}' (byte {offset}, {len} bytes): {kind}")]
pub struct DeviceError {
    /// Name of the device.
    pub device: String,
    /// What was asked.
    pub op: DeviceOp,
    /// First byte concerned, 0 where it has no meaning.
    pub offset: u64,
    /// Bytes concerned, 0 where it has no meaning.
    pub len: u64,
    /// Why it failed.
    #[source]
    pub kind: DeviceErrorKind,
}

impl DeviceError {
    /// Whether there is no such file.
    pub fn is_missing(&self) -> bool {
        self.op == DeviceOp::Open && self.kind == DeviceErrorKind::Os(rustix::io::Errno::NOENT)
    }

    /// Whether something was asked for explicitly that cannot be had here. That says nothing of the file.
    pub fn is_refusal(&self) -> bool {
        matches!(self.kind, DeviceErrorKind::IoUringRefused(_) | DeviceErrorKind::DirectIoRefused)
    }

    /// Whether another process, or a view, has the file open.
    pub fn is_in_use(&self) -> bool {
        matches!(self.kind, DeviceErrorKind::InUse)
    }

    /// Whether it is only space that lacks: nothing is broken, and a later attempt may succeed.
    pub fn is_no_space(&self) -> bool {
        matches!(self.kind, DeviceErrorKind::NoSpace(_))
    }
}

/// Total length of `bufs` in bytes.
pub(crate) fn total_len(bufs: &[IoSlice<'_>]) -> u64 {
    bufs.iter().map(|buf| buf.len() as u64).sum()
}

/// Total length of `bufs` in bytes.
pub(crate) fn total_len_mut(bufs: &[IoSliceMut<'_>]) -> u64 {
    bufs.iter().map(|buf| buf.len() as u64).sum()
}
