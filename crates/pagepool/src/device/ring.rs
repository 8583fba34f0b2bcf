//! Many operations of one call by `io_uring`: handed over in one call of the system, and reaped as they end.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use io_uring::{opcode, squeue, types, IoUring};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use super::lent::{Known, Lent};
use super::meter::Meter;
use super::seam::{Bufs, Transfer, MOST_BUFS};
use crate::sched::promptly;

/// Operations of one call that are under way at a time.
const DEPTH: u32 = 64;
/// Operations of a call that are handed over first; then as many again as there are. The kernel begins with none before it
/// has prepared all that it is given together, and the disk would have nothing to do meanwhile.
const FIRST_HANDED_OVER: usize = 4;
/// Calls that are under way at a time; more wait for one of them to end.
const MOST_RINGS: usize = 8;
/// The file's number in each ring.
const FILE: types::Fixed = types::Fixed(0);
/// Only to wait, of the kernel's `IORING_ENTER_GETEVENTS`.
const GET_EVENTS: u32 = 1;
/// Between two looks, where the kernel does not let us wait.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// What the kernel did of an operation: bytes, or why none. `EINTR`: it has not been tried.
pub type Step = Result<usize, Errno>;

/// Is told of the end of an operation, and how long it was under way.
pub type End<'e> = dyn FnMut(usize, &mut Transfer<'_>, Step, Duration) + 'e;

/// The rings of a file. A call has one to itself from its first operation to its last: so completions need no sorting,
/// and a ring no lock.
///
/// ```text
///              ┌──────────────── all reaped ────────────────┐
///              ▼                                            │
///   (none) ─▶ IDLE ─────────────── lease ──────────────▶ AT WORK ── the kernel refuses, rest reaped ─▶ (closed)
/// ```
pub struct Rings {
    /// Not the one that holds the file's lock (I4).
    file: OwnedFd,
    stock: Mutex<Stock>,
    came_back: Condvar,
    lent: OnceLock<Arc<Lent>>,
}

struct Stock {
    idle: Vec<Ring>,
    /// Rings that there are, those at work included.
    ring_count: usize,
}

impl Rings {
    /// Rings for `file`; one is made now.
    ///
    /// # Errors
    /// Why the kernel, or who guards it, refuses.
    pub fn new(file: OwnedFd) -> Result<Rings, Errno> {
        let first =
            make_ring(&file, DEPTH).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let stock = Stock { idle: vec![first], ring_count: 1 };
        Ok(Rings { file, stock: Mutex::new(stock), came_back: Condvar::new(), lent: OnceLock::new() })
    }

    /// Does `transfers`, many at a time, and tells `end` of each. All have ended when this returns or unwinds. What the kernel
    /// refuses to take as a whole ends as not tried.
    pub fn transfer(&self, transfers: &mut [Transfer<'_>], meter: &Meter, end: &mut End<'_>) {
        let lease = promptly(|| self.lease());
        let tried = lease.map_or(0, |mut lease| {
            let tried = fly(lease.ring(), transfers, self.lent(), meter, end);
            promptly(|| drop(lease));
            tried
        });
        for (index, transfer) in transfers.iter_mut().enumerate().skip(tried) {
            end(index, transfer, Err(Errno::INTR), Duration::ZERO);
        }
    }

    /// The file that they are for.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Memory that they register; the first that they are told of. A ring tries that at once, so that it is known whether the
    /// kernel lets it.
    pub fn lend(&self, lent: Lent) {
        let lent = self.lent.get_or_init(|| Arc::new(lent));
        if let Some(mut lease) = self.lease() {
            lease.ring().buffer_of(lent.base(), 1, Some(lent));
        }
    }

    pub fn lent(&self) -> Option<&Arc<Lent>> {
        self.lent.get()
    }

    /// A ring, if need be a new one; none if that cannot be had.
    fn lease(&self) -> Option<Lease<'_>> {
        let mut stock = self.stock.lock();
        loop {
            if let Some(ring) = stock.idle.pop() {
                return Some(Lease { rings: self, ring: Some(ring) });
            }
            if stock.ring_count < MOST_RINGS {
                break;
            }
            self.came_back.wait(&mut stock);
        }
        stock.ring_count += 1;
        drop(stock);
        // If it is not made the lease takes it off the count.
        let ring = make_ring(&self.file, DEPTH).ok();
        let lease = Lease { rings: self, ring };
        lease.ring.is_some().then_some(lease)
    }
}

/// A ring that a call has to itself.
struct Lease<'r> {
    rings: &'r Rings,
    ring: Option<Ring>,
}

impl Lease<'_> {
    fn ring(&mut self) -> &mut Ring {
        self.ring.as_mut().expect("a ring that is leased is there")
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // One with operations that the kernel did not take is closed: it would take them with the next (I1).
        let is_empty = self.ring.as_mut().is_some_and(|ring| ring.io.submission().is_empty());
        let kept = self.ring.take().filter(|_| is_empty);
        let mut stock = self.rings.stock.lock();
        match kept {
            Some(ring) => stock.idle.push(ring),
            None => stock.ring_count -= 1,
        }
        drop(stock);
        self.rings.came_back.notify_one();
    }
}

/// A ring for so many operations that is known to work.
///
/// Its completions do not interrupt a thread that runs. That they come only when it waits in the ring (`DEFER_TASKRUN`) would
/// be cheaper still, but then they would not come at all where the kernel refuses to let it wait.
pub fn make_ring(file: &OwnedFd, depth: u32) -> io::Result<Ring> {
    let build = |is_cooperative: bool| {
        let mut builder = IoUring::builder();
        builder.dontfork();
        if is_cooperative {
            builder.setup_coop_taskrun();
        }
        builder.build(depth)
    };
    let mut ring: IoUring = match build(true) {
        // Before Linux 5.19.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => build(false)?,
        result => result?,
    };
    ring.submitter().register_files(&[file.as_raw_fd()])?;
    // SAFETY: I1: it has no buffer.
    let pushed = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
    pushed.map_err(io::Error::other)?;
    let ended = loop {
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        if let Some(completion) = ring.completion().next() {
            break completion;
        }
    };
    match ended.result() {
        code @ ..0 => Err(io::Error::from_raw_os_error(-code)),
        _ => Ok(Ring { known: None, io: ring }),
    }
}

/// A ring, and what it knows of the memory that has been lent.
pub struct Ring {
    // Given up before the ring is closed.
    known: Option<Known>,
    pub io: IoUring,
}

impl Ring {
    /// The operation, as the kernel takes it: its buffers and their list stay until it has ended (I1).
    pub fn entry_of(&mut self, transfer: &mut Transfer<'_>, lent: Option<&Arc<Lent>>) -> squeue::Entry {
        let offset = transfer.offset;
        if let Some(entry) = lent.and_then(|lent| entry_through(transfer, lent)) {
            return entry;
        }
        // `IoSlice` and `IoSliceMut` are `iovec`s.
        match &mut transfer.bufs {
            // The kernel need not copy the list then.
            Bufs::Read(bufs) if bufs.len() == 1 => {
                let (start, len) = (bufs[0].as_mut_ptr(), bufs[0].len());
                match self.buffer_of(start.addr(), len, lent) {
                    Some(buffer) => {
                        opcode::ReadFixed::new(FILE, start, len as u32, buffer).offset(offset).build()
                    }
                    None => opcode::Read::new(FILE, start, len as u32).offset(offset).build(),
                }
            }
            Bufs::Read(bufs) => {
                let len = bufs.len().min(MOST_BUFS) as u32;
                opcode::Readv::new(FILE, bufs.as_mut_ptr().cast(), len).offset(offset).build()
            }
            Bufs::Write(bufs) => {
                if let [buf] = bufs {
                    if let Some(buffer) = self.buffer_of(buf.as_ptr().addr(), buf.len(), lent) {
                        let len = buf.len() as u32;
                        return opcode::WriteFixed::new(FILE, buf.as_ptr(), len, buffer)
                            .offset(offset)
                            .build();
                    }
                }
                let len = bufs.len().min(MOST_BUFS) as u32;
                opcode::Writev::new(FILE, bufs.as_ptr().cast(), len).offset(offset).build()
            }
        }
    }

    /// The number of the registered buffer that these bytes are in, if they are in one.
    fn buffer_of(&mut self, address: usize, byte_len: usize, lent: Option<&Arc<Lent>>) -> Option<u16> {
        let lent = lent?;
        if self.known.as_ref().is_some_and(|known| !known.is_usable()) {
            self.known = None;
            // One that is not let go costs memory until the ring is closed.
            let _ = self.io.submitter().unregister_buffers();
        }
        if self.known.is_none() {
            self.known = Some(Known::new(lent, &self.io)?);
        }
        self.known.as_mut()?.buffer_of(&self.io, address, byte_len)
    }
}

/// The operation by another descriptor than the file's, if it is to be by one.
fn entry_through(transfer: &mut Transfer<'_>, lent: &Lent) -> Option<squeue::Entry> {
    let offset = transfer.offset;
    let Bufs::Read(bufs) = &mut transfer.bufs else { return None };
    let first = bufs.first()?;
    let reader = types::Fd(lent.reader(first.as_ptr().addr(), first.len())?.as_raw_fd());
    let len = bufs.len().min(MOST_BUFS) as u32;
    Some(opcode::Readv::new(reader, bufs.as_mut_ptr().cast(), len).offset(offset).build())
}

/// What the kernel did of an operation whose completion says this.
pub fn step_of(result: i32) -> Step {
    usize::try_from(result).map_err(|_| match -result {
        // Such an operation has not been tried.
        libc::EINTR | libc::EAGAIN | libc::ECANCELED => Errno::INTR,
        code => Errno::from_raw_os_error(code),
    })
}

/// Waits a little for a completion and hands nothing over.
pub fn wait_for_completion(ring: &Ring) {
    // SAFETY: I1: the kernel is given nothing.
    let waited = unsafe { ring.io.submitter().enter::<libc::sigset_t>(0, 1, GET_EVENTS, None) };
    if waited.is_err() {
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Does `transfers` until all have ended or the kernel refuses. Returns how many have ended: the first ones. What is back
/// is looked at when others have been handed over in its place: the disk has work meanwhile.
fn fly(
    ring: &mut Ring,
    transfers: &mut [Transfer<'_>],
    lent: Option<&Arc<Lent>>,
    meter: &Meter,
    end: &mut End<'_>,
) -> usize {
    let mut flight = Flight {
        ring,
        lent,
        meter,
        began: Vec::with_capacity(transfers.len()),
        back: VecDeque::new(),
        reaped: 0,
        next_step: FIRST_HANDED_OVER,
    };
    loop {
        let now = Instant::now();
        while flight.began.len() < transfers.len() && flight.has_room() {
            let index = flight.began.len();
            flight.push(index, &mut transfers[index], now);
            flight.hand_over_in_steps();
        }
        flight.tell(transfers, end);
        if flight.unreaped_count() == 0 {
            return transfers.len();
        }
        if flight.enter().is_err() {
            break;
        }
        flight.reap();
    }
    while flight.under_way_count() > 0 {
        if !flight.reap() {
            wait_for_completion(flight.ring);
        }
    }
    flight.tell(transfers, end);
    // The kernel takes operations in their order.
    flight.began.len() - flight.queued_count()
}

/// The operations of one call in a ring. Whoever ends it, by unwinding too, waits for what the kernel has (I1).
struct Flight<'f> {
    ring: &'f mut Ring,
    lent: Option<&'f Arc<Lent>>,
    meter: &'f Meter,
    /// When each began.
    began: Vec<Instant>,
    /// Those that nobody has been told of: their numbers, what the kernel did of them, and how long they were under way.
    back: VecDeque<(usize, Step, Duration)>,
    /// Operations that are back, or of which somebody has been told.
    reaped: usize,
    /// What is queued is handed over when so many have been pushed.
    next_step: usize,
}

impl Flight<'_> {
    /// Operations that have not been reaped.
    fn unreaped_count(&self) -> usize {
        self.began.len() - self.reaped
    }

    fn has_room(&self) -> bool {
        self.unreaped_count() < DEPTH as usize
    }

    /// Operations that the kernel has not taken yet.
    fn queued_count(&mut self) -> usize {
        self.ring.io.submission().len()
    }

    /// Operations that the kernel has.
    fn under_way_count(&mut self) -> usize {
        self.unreaped_count() - self.queued_count()
    }

    /// Queues an operation; the kernel gets it with the next `enter`.
    fn push(&mut self, index: usize, transfer: &mut Transfer<'_>, now: Instant) {
        let entry = self.ring.entry_of(transfer, self.lent);
        // SAFETY: I1: buffers and their list are borrowed for longer than this flight, which does not end before the
        // kernel has told that it is done with them; until then nobody is shown the transfer.
        let pushed = unsafe { self.ring.io.submission().push(&entry.user_data(index as u64)) };
        pushed.expect("a ring has room for what may be under way");
        self.meter.begin();
        self.began.push(now);
    }

    /// Hands over what is queued if it is time. An error is met again by `enter`.
    fn hand_over_in_steps(&mut self) {
        if self.began.len() == self.next_step {
            self.next_step *= 2;
            let _ = self.ring.io.submit();
        }
    }

    /// Hands over what is queued, and waits for a completion.
    fn enter(&mut self) -> io::Result<()> {
        loop {
            match self.ring.io.submit_and_wait(1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.map(drop),
            }
        }
    }

    /// Takes what is back out of the ring; false if nothing is.
    fn reap(&mut self) -> bool {
        let (before, now) = (self.reaped, Instant::now());
        while let Some(completion) = self.ring.io.completion().next() {
            let index = completion.user_data() as usize;
            self.back.push_back((index, step_of(completion.result()), now - self.began[index]));
            self.reaped += 1;
            self.meter.leave(1);
        }
        self.reaped > before
    }

    /// Tells of what is back. What is queued the kernel gets before that.
    fn tell(&mut self, transfers: &mut [Transfer<'_>], end: &mut End<'_>) {
        if !self.back.is_empty() && self.queued_count() > 0 {
            // An error is met again by `enter`.
            let _ = self.ring.io.submit();
        }
        while let Some((index, step, took)) = self.back.pop_front() {
            end(index, &mut transfers[index], step, took);
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        // Neither these, if somebody unwinds, nor what is still queued will be told of any more.
        let queued = self.queued_count();
        self.meter.leave(queued);
        self.reaped += queued;
        while self.unreaped_count() > 0 {
            if !self.reap() {
                wait_for_completion(self.ring);
            }
        }
    }
}
