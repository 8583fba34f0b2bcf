//! Closed loop: every connection keeps one batch of requests in flight and sends the next when all replies to
//! it are in. Shows throughput; its latencies leave out whatever would have been sent during a pause.

use super::conn::{ConnSet, InFlight};
use super::recording::{Gaps, LoadReport, Recording};
use super::requests::Requests;
use super::scan::Tally;
use super::Stop;
use crate::clock::{now_ns, NS_PER_S};
use crate::error::{BenchError, Result};
use crate::resp::Address;
use crate::stops::{self, Watch};

pub struct ClosedLoop {
    pub target: Address,
    pub conn_count: usize,
    /// Requests in flight on a connection.
    pub pipeline: usize,
}

/// A server that has not answered anything for this long is given up.
const SILENCE_NS: u64 = 120 * NS_PER_S;

impl ClosedLoop {
    pub fn run(
        &self,
        requests: &mut impl Requests,
        recording: Recording,
        stop: Stop<'_>,
    ) -> Result<LoadReport> {
        let set = ConnSet::open(&self.target, self.conn_count)?;
        self.run_on(set, requests, recording, stop, Watch::begin(&[]))
    }

    /// For so long from when all are connected, and so many requests at most. Each connection sends at least once.
    pub fn run_for(
        &self,
        requests: &mut impl Requests,
        seconds: f64,
        at_most: Option<u64>,
    ) -> Result<LoadReport> {
        let set = ConnSet::open(&self.target, self.conn_count)?;
        let stop = Stop { request_count: at_most, ..Stop::after_seconds(seconds) };
        // What is asked for is a rate, or a fill.
        self.run_on(set, requests, Recording::new(now_ns()), stop, Watch::none())
    }

    fn run_on(
        &self,
        mut set: ConnSet,
        requests: &mut impl Requests,
        recording: Recording,
        stop: Stop<'_>,
        watch: Watch,
    ) -> Result<LoadReport> {
        let begin_ns = recording.start_ns;
        let stop = Stop { request_count: stop.request_count.or(requests.request_count()), ..stop };
        let recording = recording.watched();
        let mut run =
            Run { pipeline: self.pipeline as u64, requests, stop, recording, sent: 0, open_batches: 0 };
        for index in 0..self.conn_count {
            if !run.stop.reached(begin_ns, run.sent) {
                run.send_batch(&mut set, index, now_ns())?;
            }
        }
        let (mut replies, mut last_reply_ns) = (0u64, now_ns());
        let mut gaps = Gaps::default();
        let mut ready = Vec::new();
        while run.open_batches > 0 {
            set.wait(Some(NS_PER_S), &mut ready)?;
            let time_ns = now_ns();
            if ready.is_empty() && time_ns - last_reply_ns > SILENCE_NS {
                return Err(BenchError::Failed(format!("{} has not answered for two minutes", self.target)));
            }
            for &token in &ready {
                let completed = run.serve(&mut set, token as usize)?;
                if completed > 0 {
                    replies += completed as u64;
                    gaps.gap(last_reply_ns, time_ns);
                    last_reply_ns = time_ns;
                }
            }
        }
        let (stops, mut recording) = (watch.end(), run.recording);
        let left_out = recording.leave_out(&stops);
        stops::note(stops.count(), stops.total_ns(), left_out);
        let duration_ns = last_reply_ns.saturating_sub(recording.start_ns);
        let sent = run.sent;
        let mut report = LoadReport {
            recording,
            lateness: None,
            sent,
            replies,
            unanswered: 0,
            tally: Tally::default(),
            stall: gaps.longest(&stops),
            duration_ns,
            left_out,
            stopped_ns: stops.total_ns(),
        };
        set.finish(&mut report);
        Ok(report)
    }
}

struct Run<'a, R> {
    pipeline: u64,
    requests: &'a mut R,
    stop: Stop<'a>,
    recording: Recording,
    sent: u64,
    open_batches: usize,
}

impl<R: Requests> Run<'_, R> {
    #[inline]
    fn serve(&mut self, set: &mut ConnSet, index: usize) -> Result<usize> {
        if set.conns[index].has_output() {
            set.flush(index)?;
        }
        if set.conns[index].in_flight.is_empty() {
            return Ok(0);
        }
        let completed = set.read_replies(index)?;
        if completed == 0 {
            return Ok(0);
        }
        let time_ns = now_ns();
        let recording = &mut self.recording;
        let conn = &mut set.conns[index];
        let expected = conn.settle(completed, |sent_ns, count| {
            recording.record(sent_ns, time_ns - sent_ns, u64::from(count));
        });
        if !expected {
            return Err(set.unexpected_reply());
        }
        if conn.in_flight.is_empty() {
            self.open_batches -= 1;
            if !self.stop.reached(time_ns, self.sent) {
                self.send_batch(set, index, time_ns)?;
            }
        }
        Ok(completed)
    }

    #[inline]
    fn send_batch(&mut self, set: &mut ConnSet, index: usize, time_ns: u64) -> Result<()> {
        let left = self.stop.request_count.map_or(u64::MAX, |n| n - self.sent);
        let count = self.pipeline.min(left);
        let conn = &mut set.conns[index];
        for _ in 0..count {
            self.requests.append_request(&mut conn.out);
        }
        conn.in_flight.push_back(InFlight { intended_ns: time_ns, count: count as u32 });
        self.sent += count;
        self.open_batches += 1;
        set.flush(index)
    }
}
