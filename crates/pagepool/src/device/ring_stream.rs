//! A stream of operations by `io_uring`: a ring that is kept full as long as there are some.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{opcode, squeue, types};
use rustix::io::Errno;

use super::bell::Bell;
use super::meter::Meter;
use super::ring::{make_ring, step_of, wait_for_completion, Ring, Rings, Step};
use super::seam::{DeviceError, Feed, Rest, Transfer};

/// Operations under way at a time.
const DEPTH: usize = 64;
/// What the ring has room for: those, and the bell's.
const RING_DEPTH: u32 = 2 * DEPTH as u32;
/// Operations that are handed over first when nothing is under way; then as many again as there are.
const FIRST_HANDED_OVER: usize = 4;
/// The number of the read that ends when the bell is rung.
const BELL: u64 = u64::MAX;

/// Ends an operation of which the kernel did so much.
pub type Finish<'f, 'b> = dyn Fn(&mut Transfer<'b>, Step) -> Result<(), DeviceError> + 'f;

/// Serves `feed` until it is over, or the kernel refuses; what it has not taken then is finished as not tried.
pub fn serve<'b>(
    rings: &Rings,
    bell: &Bell,
    meter: &Meter,
    feed: &mut dyn Feed<'b>,
    finish: &Finish<'_, 'b>,
) -> Result<(), Errno> {
    let ring = make_ring(rings.file(), RING_DEPTH)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    if !ring.io.params().is_feature_ext_arg() {
        // It could not wait for a time (before Linux 5.11).
        return Err(Errno::NOSYS);
    }
    let mut stream = Stream {
        ring,
        rings,
        bell,
        meter,
        places: (0..DEPTH).map(|_| None).collect(),
        free: (0..DEPTH).collect(),
        back: VecDeque::new(),
        rung: Box::new(0),
        awaits_bell: false,
        is_over: false,
    };
    let result = stream.run(feed, finish);
    stream.give_up(feed, finish);
    result
}

struct Flying<'b> {
    number: u64,
    transfer: Transfer<'b>,
    began: Instant,
}

/// An operation that the kernel is done with, and how long it was under way.
struct Back<'b> {
    number: u64,
    transfer: Transfer<'b>,
    step: Step,
    took: Duration,
}

/// Operations in a ring. Whoever ends it, by unwinding too, waits for what the kernel has (I1).
struct Stream<'s, 'b> {
    ring: Ring,
    /// They have been told what is lent.
    rings: &'s Rings,
    bell: &'s Bell,
    meter: &'s Meter,
    /// By their number in the ring.
    places: Vec<Option<Flying<'b>>>,
    free: Vec<usize>,
    /// Those that the feed has not been told of.
    back: VecDeque<Back<'b>>,
    /// What the kernel reads of the bell.
    rung: Box<u64>,
    awaits_bell: bool,
    /// The kernel has nothing, and gets nothing any more.
    is_over: bool,
}

impl<'b> Stream<'_, 'b> {
    fn run(&mut self, feed: &mut dyn Feed<'b>, finish: &Finish<'_, 'b>) -> Result<(), Errno> {
        loop {
            let mut rest = None;
            let is_dry = self.begin(feed);
            if !self.back.is_empty() {
                // The disk has work meanwhile; and when these have ended there may be room for more.
                self.hand_over();
                self.tell(feed, finish);
                continue;
            }
            if is_dry {
                self.bell.arm();
                // What came before it was armed.
                if self.begin_one(feed) {
                    self.bell.disarm();
                    continue;
                }
                rest = Some(feed.rest());
            }
            if rest == Some(Rest::Over) && self.flying_count() == 0 {
                return Ok(());
            }
            self.await_bell();
            self.wait(rest)?;
            self.bell.disarm();
            self.reap();
        }
    }

    fn flying_count(&self) -> usize {
        DEPTH - self.free.len()
    }

    /// Begins what there is; false if more may be under way than there is room for.
    fn begin(&mut self, feed: &mut dyn Feed<'b>) -> bool {
        let mut next_step = FIRST_HANDED_OVER;
        while !self.free.is_empty() {
            if !self.begin_one(feed) {
                return true;
            }
            // The kernel begins with none before it has prepared all that it is given together.
            if self.flying_count() == next_step {
                next_step *= 2;
                self.hand_over();
            }
        }
        false
    }

    /// Gives the kernel what is queued. An error is met again by `wait`.
    fn hand_over(&mut self) {
        if !self.ring.io.submission().is_empty() {
            let _ = self.ring.io.submit();
        }
    }

    fn begin_one(&mut self, feed: &mut dyn Feed<'b>) -> bool {
        let Some(place) = self.free.pop() else { return false };
        let Some((number, transfer)) = feed.next() else {
            self.free.push(place);
            return false;
        };
        let flying = self.places[place].insert(Flying { number, transfer, began: Instant::now() });
        let entry = self.ring.entry_of(&mut flying.transfer, self.rings.lent()).user_data(place as u64);
        self.meter.begin();
        self.push(&entry);
        true
    }

    /// Has the ring tell of the bell.
    fn await_bell(&mut self) {
        if !std::mem::replace(&mut self.awaits_bell, true) {
            let (fd, into) = (types::Fd(self.bell.fd().as_raw_fd()), (&raw mut *self.rung).cast());
            self.push(&opcode::Read::new(fd, into, size_of::<u64>() as u32).build().user_data(BELL));
        }
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: I1: the buffers are in `places` or are `rung`, which stay until the kernel has told that it is done with
        // them; nobody is shown them before.
        let pushed = unsafe { self.ring.io.submission().push(entry) };
        pushed.expect("a ring has room for what may be under way");
    }

    /// Hands over what is queued, and waits for a completion, the bell, or the time.
    fn wait(&mut self, rest: Option<Rest>) -> Result<(), Errno> {
        let waited = match rest {
            Some(Rest::For(time)) => {
                let time = Timespec::from(time);
                self.ring.io.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
            _ => self.ring.io.submit_and_wait(1),
        };
        match waited.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)) {
            Ok(_) | Err(Errno::INTR | Errno::TIME) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Takes what is back out of the ring; false if nothing is.
    fn reap(&mut self) -> bool {
        let (now, mut is_any) = (Instant::now(), false);
        loop {
            let Some(completion) = self.ring.io.completion().next() else { return is_any };
            is_any = true;
            match completion.user_data() {
                BELL => self.awaits_bell = false,
                place => self.take(place as usize, step_of(completion.result()), now),
            }
        }
    }

    /// The kernel has nothing at this place any more.
    fn take(&mut self, place: usize, step: Step, now: Instant) {
        let flying = self.places[place].take().expect("what ends was under way");
        let Flying { number, transfer, began } = flying;
        self.free.push(place);
        self.meter.leave(1);
        self.back.push_back(Back { number, transfer, step, took: now - began });
    }

    /// Tells the feed of what is back.
    fn tell(&mut self, feed: &mut dyn Feed<'b>, finish: &Finish<'_, 'b>) {
        while let Some(Back { number, mut transfer, step, took }) = self.back.pop_front() {
            let (direction, byte_len) = (transfer.direction(), transfer.byte_len());
            let result = finish(&mut transfer, step);
            self.meter.end(direction, byte_len, result.is_ok(), took);
            feed.end(number, transfer, result);
        }
    }

    /// Operations that the kernel has, the bell's included.
    fn taken_count(&mut self) -> usize {
        let queued = self.ring.io.submission().len();
        self.flying_count() + usize::from(self.awaits_bell) - queued
    }

    /// Waits for what the kernel has.
    fn drain(&mut self) {
        self.bell.strike();
        while self.taken_count() > 0 {
            if !self.reap() {
                wait_for_completion(&self.ring);
            }
        }
    }

    /// The same, and tells of it. What the kernel has not taken counts as not tried.
    fn give_up(&mut self, feed: &mut dyn Feed<'b>, finish: &Finish<'_, 'b>) {
        self.drain();
        self.is_over = true;
        for place in 0..DEPTH {
            if self.places[place].is_some() {
                // The ring is closed before it could take them.
                self.take(place, Err(Errno::INTR), Instant::now());
            }
        }
        self.tell(feed, finish);
    }
}

impl Drop for Stream<'_, '_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // Somebody unwinds: nobody is told of what is left.
        self.drain();
        self.meter.leave(self.flying_count());
    }
}
