//! Non-blocking connections of the generator and the epoll set they are in.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use super::recording::LoadReport;
use super::scan::{ReplyScanner, Tally};
use crate::error::{BenchError, Context, Result};
use crate::resp::Address;

fn connect(target: &Address) -> std::io::Result<OwnedFd> {
    let stream = target.connect()?;
    stream.set_nonblocking(true)?;
    Ok(stream.into())
}

/// Requests that left together and wait for their replies, oldest first.
#[derive(Clone, Copy, Debug)]
pub struct InFlight {
    pub intended_ns: u64,
    pub count: u32,
}

pub struct Conn {
    socket: OwnedFd,
    /// Encoded requests; those before `out_sent` are in the kernel's hands.
    pub out: Vec<u8>,
    out_sent: usize,
    scanner: ReplyScanner,
    pub in_flight: VecDeque<InFlight>,
}

impl Conn {
    /// Hands as much of the output to the kernel as it takes.
    pub fn flush(&mut self) -> rustix::io::Result<()> {
        while self.out_sent < self.out.len() {
            match rustix::io::write(&self.socket, &self.out[self.out_sent..]) {
                Ok(n) => self.out_sent += n,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
        self.out.clear();
        self.out_sent = 0;
        Ok(())
    }

    pub fn has_output(&self) -> bool {
        self.out_sent < self.out.len()
    }

    /// Takes `replies` off the front of what is in flight and passes each (intended time, count) to `record`.
    #[inline]
    pub fn settle(&mut self, mut replies: usize, mut record: impl FnMut(u64, u32)) -> bool {
        while replies > 0 {
            let Some(front) = self.in_flight.front_mut() else { return false };
            let taken = front.count.min(replies as u32);
            record(front.intended_ns, taken);
            replies -= taken as usize;
            front.count -= taken;
            if front.count == 0 {
                self.in_flight.pop_front();
            }
        }
        true
    }
}

/// All connections of one generator thread. Edge-triggered: each event is followed by reading until the socket
/// has no more.
pub struct ConnSet {
    pub conns: Vec<Conn>,
    pub epoll: OwnedFd,
    target: Address,
    buffer: Vec<u8>,
    events: Vec<epoll::Event>,
}

const READ_BUFFER_BYTES: usize = 256 << 10;
const EVENTS_AT_ONCE: usize = 256;
/// So many connections have buffers from the start; those of more grow when they are used.
const FEW_CONNS: usize = 1000;

impl ConnSet {
    pub fn open(target: &Address, conn_count: usize) -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).context(|| "create an epoll set".to_owned())?;
        let (out_bytes, in_flight) = match conn_count <= FEW_CONNS {
            true => (64 << 10, 1024),
            false => (0, 0),
        };
        let mut conns = Vec::with_capacity(conn_count);
        for index in 0..conn_count {
            let socket = connect(target).context(|| format!("connection {index} to {target}"))?;
            let interest = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
            epoll::add(&epoll, socket.as_fd(), EventData::new_u64(index as u64), interest)
                .context(|| "add a socket to epoll".to_owned())?;
            conns.push(Conn {
                socket,
                out: Vec::with_capacity(out_bytes),
                out_sent: 0,
                scanner: ReplyScanner::new(),
                in_flight: VecDeque::with_capacity(in_flight),
            });
        }
        Ok(Self {
            conns,
            epoll,
            target: target.clone(),
            buffer: vec![0; READ_BUFFER_BYTES],
            events: Vec::with_capacity(EVENTS_AT_ONCE),
        })
    }

    /// Waits for events; the tokens of those that fired are then in `ready`.
    pub fn wait(&mut self, timeout_ns: Option<u64>, ready: &mut Vec<u64>) -> Result<()> {
        self.events.clear();
        let timeout = timeout_ns.map(|ns| rustix::event::Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e).context(|| "wait for replies".to_owned()),
        }
        ready.clear();
        ready.extend(self.events.iter().map(|e| e.data.u64()));
        Ok(())
    }

    /// Reads what a connection has; returns the number of replies that became complete.
    #[inline]
    pub fn read_replies(&mut self, index: usize) -> Result<usize> {
        let conn = &mut self.conns[index];
        let mut complete = 0;
        loop {
            match rustix::io::read(&conn.socket, &mut self.buffer[..]) {
                Ok(0) => {
                    let in_flight = conn.in_flight.iter().map(|f| f.count as usize).sum();
                    return Err(BenchError::Closed { address: self.target.to_string(), in_flight });
                }
                Ok(n) => {
                    complete += conn
                        .scanner
                        .feed(&self.buffer[..n])
                        .map_err(|byte| BenchError::NotResp { address: self.target.to_string(), byte })?;
                    if n < self.buffer.len() {
                        return Ok(complete);
                    }
                }
                Err(Errno::AGAIN) => return Ok(complete),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e).context(|| format!("read from {}", self.target)),
            }
        }
    }

    pub fn flush(&mut self, index: usize) -> Result<()> {
        self.conns[index].flush().context(|| format!("write to {}", self.target))
    }

    pub fn in_flight(&self) -> u64 {
        self.conns.iter().flat_map(|c| &c.in_flight).map(|f| u64::from(f.count)).sum()
    }

    pub fn unexpected_reply(&self) -> BenchError {
        BenchError::Failed(format!("{} sent more replies than there were requests", self.target))
    }

    /// Adds the connections' tallies to a report.
    pub fn finish(&mut self, report: &mut LoadReport) {
        report.unanswered = self.in_flight();
        report.tally = self.take_tally();
    }

    /// What the replies since the last call were, of all connections.
    pub fn take_tally(&mut self) -> Tally {
        let mut all = Tally::default();
        for conn in &mut self.conns {
            let tally = std::mem::take(&mut conn.scanner.tally);
            all.errors += tally.errors;
            all.nils += tally.nils;
            all.value_bytes += tally.value_bytes;
            all.first_error = all.first_error.take().or(tally.first_error);
        }
        all
    }
}
