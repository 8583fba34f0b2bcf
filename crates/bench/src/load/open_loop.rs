//! Open loop: requests leave on a fixed schedule whether or not earlier ones have been answered, and latency runs
//! from the time a request was due. A server that stops for 50 ms at 10,000 requests a second shows 500 slow
//! requests here; a closed loop would show one for each connection.

use super::conn::{ConnSet, InFlight};
use super::recording::{Gaps, LoadReport, Recording};
use super::requests::Requests;
use super::scan::Tally;
use super::timer::{Timer, TIMER_TOKEN};
use super::Stop;
use crate::clock::{now_ns, NS_PER_S};
use crate::error::{BenchError, Result};
use crate::resp::Address;
use crate::stops::{self, Stops, Watch};

pub struct OpenLoop {
    pub target: Address,
    pub conn_count: usize,
    pub requests_per_second: f64,
    /// Requests that are due at the same instant. More than one saves wake-ups of the generator where it shares
    /// its core: at 10,000/s and 10 at once it wakes a thousand times a second.
    pub burst: u64,
    /// The generator sleeps until this long before a request is due and spins for the rest. On a core of its own
    /// spinning buys precise send times; on a core shared with the saver it would starve it.
    pub spin_ns: u64,
    /// How long to wait for outstanding replies after the last request.
    pub drain_ns: u64,
}

impl OpenLoop {
    pub fn run(
        &self,
        requests: &mut impl Requests,
        recording: Recording,
        stop: Stop<'_>,
    ) -> Result<LoadReport> {
        if !(self.requests_per_second > 0.0 && self.requests_per_second < 1e8) {
            return Err(BenchError::Failed(
                "the rate must be above 0 and below 100 million a second".to_owned(),
            ));
        }
        let set = ConnSet::open(&self.target, self.conn_count)?;
        let timer = Timer::within(&set.epoll)?;
        let start_ns = now_ns();
        let mut run = Run {
            set,
            timer,
            stop: Stop { request_count: stop.request_count.or(requests.request_count()), ..stop },
            requests,
            lateness: Recording::new(recording.start_ns).watched(),
            recording: recording.watched(),
            schedule: Schedule {
                start_ns,
                interval_ns: NS_PER_S as f64 / self.requests_per_second,
                burst: self.burst.max(1),
                sent: 0,
            },
            spin_ns: self.spin_ns,
            replies: 0,
            last_reply_ns: start_ns,
            gaps: Gaps::default(),
            touched: Vec::new(),
            ready: Vec::new(),
        };
        let watch = Watch::begin(&[]);
        run.send_on_schedule()?;
        run.drain(now_ns() + self.drain_ns)?;
        Ok(run.report(&watch.end()))
    }
}

/// Request i is due at `start + i * interval`, i rounded down to a multiple of the burst: a schedule of its own,
/// never moved by what happens.
struct Schedule {
    start_ns: u64,
    interval_ns: f64,
    burst: u64,
    sent: u64,
}

impl Schedule {
    #[inline]
    fn due_ns(&self) -> u64 {
        let burst_start = self.sent / self.burst * self.burst;
        self.start_ns + (burst_start as f64 * self.interval_ns) as u64
    }
}

struct Run<'a, R> {
    set: ConnSet,
    timer: Timer,
    stop: Stop<'a>,
    requests: &'a mut R,
    recording: Recording,
    lateness: Recording,
    schedule: Schedule,
    spin_ns: u64,
    replies: u64,
    last_reply_ns: u64,
    gaps: Gaps,
    /// Connections with new requests, each with the intended time of its oldest.
    touched: Vec<usize>,
    ready: Vec<u64>,
}

/// Requests that are encoded before the sockets are looked at again; bounds the work when the generator is behind.
const SENDS_AT_ONCE: usize = 256;
/// A sleep shorter than this costs more than it gives.
const SHORTEST_SLEEP_NS: u64 = 3_000;

impl<R: Requests> Run<'_, R> {
    fn send_on_schedule(&mut self) -> Result<()> {
        loop {
            let time_ns = now_ns();
            if self.stop.reached(time_ns, self.schedule.sent) {
                return Ok(());
            }
            self.send_due(time_ns)?;
            let wait_ns = self.schedule.due_ns().saturating_sub(now_ns() + self.spin_ns);
            self.receive(wait_ns)?;
        }
    }

    fn send_due(&mut self, time_ns: u64) -> Result<()> {
        let conn_count = self.set.conns.len() as u64;
        for _ in 0..SENDS_AT_ONCE {
            let due_ns = self.schedule.due_ns();
            if due_ns > time_ns || self.stop.reached(time_ns, self.schedule.sent) {
                break;
            }
            let index = (self.schedule.sent % conn_count) as usize;
            let conn = &mut self.set.conns[index];
            self.requests.append_request(&mut conn.out);
            conn.in_flight.push_back(InFlight { intended_ns: due_ns, count: 1 });
            self.touched.push(index);
            self.schedule.sent += 1;
            self.lateness.record(due_ns, now_ns() - due_ns, 1);
        }
        self.touched.sort_unstable();
        self.touched.dedup();
        while let Some(index) = self.touched.pop() {
            self.set.flush(index)?;
        }
        Ok(())
    }

    /// Takes the replies that are there; sleeps up to `wait_ns` if there are none.
    fn receive(&mut self, wait_ns: u64) -> Result<()> {
        let mut timeout_ns = Some(0);
        if wait_ns >= SHORTEST_SLEEP_NS {
            self.timer.arm(wait_ns)?;
            timeout_ns = None;
        }
        let mut ready = std::mem::take(&mut self.ready);
        self.set.wait(timeout_ns, &mut ready)?;
        for &token in ready.iter().filter(|t| **t != TIMER_TOKEN) {
            self.take_replies(token as usize)?;
        }
        self.ready = ready;
        Ok(())
    }

    #[inline]
    fn take_replies(&mut self, index: usize) -> Result<()> {
        if self.set.conns[index].has_output() {
            self.set.flush(index)?;
        }
        let completed = self.set.read_replies(index)?;
        if completed == 0 {
            return Ok(());
        }
        let time_ns = now_ns();
        let recording = &mut self.recording;
        let expected = self.set.conns[index].settle(completed, |intended_ns, count| {
            recording.record(intended_ns, time_ns.saturating_sub(intended_ns), u64::from(count));
        });
        if !expected {
            return Err(self.set.unexpected_reply());
        }
        self.replies += completed as u64;
        if self.last_reply_ns >= self.recording.start_ns {
            self.gaps.gap(self.last_reply_ns, time_ns);
        }
        self.last_reply_ns = time_ns;
        Ok(())
    }

    fn drain(&mut self, deadline_ns: u64) -> Result<()> {
        while self.replies < self.schedule.sent && now_ns() < deadline_ns {
            self.receive(1_000_000)?;
        }
        Ok(())
    }

    fn report(mut self, stops: &Stops) -> LoadReport {
        let left_out = self.recording.leave_out(stops);
        self.lateness.leave_out(stops);
        stops::note(stops.count(), stops.total_ns(), left_out);
        let mut report = LoadReport {
            duration_ns: self.last_reply_ns.saturating_sub(self.recording.start_ns),
            recording: self.recording,
            lateness: Some(self.lateness),
            sent: self.schedule.sent,
            replies: self.replies,
            unanswered: 0,
            tally: Tally::default(),
            stall: self.gaps.longest(stops),
            left_out,
            stopped_ns: stops.total_ns(),
        };
        self.set.finish(&mut report);
        report
    }
}
