//! Rounds: connections send while the server is stopped, and the next round begins when all replies are in. So what the server
//! finds together is the same each time, however fast it runs.

use std::time::Duration;

use rustix::process::{kill_process, Pid, Signal};
use stillframe_testkit::within;

use super::conn::{ConnSet, InFlight};
use super::requests::Requests;
use crate::clock::{now_ns, NS_PER_S};
use crate::error::{BenchError, Context, Result};
use crate::procfs;
use crate::resp::Address;

pub struct Rounds {
    set: ConnSet,
    target: Address,
    server: u32,
    /// Connections of one turn have the same remainder.
    turn_count: usize,
    pipeline: usize,
}

const SILENCE_NS: u64 = 300 * NS_PER_S;
const STOP_PATIENCE: Duration = Duration::from_secs(30);

impl Rounds {
    /// Opens the connections to a server of this process. They take part in `turn_count` turns: each has every so manyth
    /// connection, which a server with as many workers has given to one of these.
    pub fn open(
        target: &Address,
        server: u32,
        conn_count: usize,
        turn_count: usize,
        pipeline: usize,
    ) -> Result<Rounds> {
        let set = ConnSet::open(target, conn_count)?;
        Ok(Rounds { set, target: target.clone(), server, turn_count, pipeline })
    }

    /// Sends as many requests at least, in whole rounds, and returns how many.
    ///
    /// # Errors
    /// A reply was an error or empty: not what was meant to be counted.
    pub fn run(&mut self, requests: &mut impl Requests, at_least: u64) -> Result<u64> {
        let mut sent = 0;
        while sent < at_least {
            for turn in 0..self.turn_count {
                sent += self.turn(requests, turn)?;
            }
        }
        let tally = self.set.take_tally();
        match (tally.first_error, tally.nils) {
            (Some(error), _) => {
                Err(BenchError::Failed(format!("{} answered with an error: {error}", self.target)))
            }
            (None, 0) => Ok(sent),
            (None, nils) => Err(BenchError::Failed(format!("{nils} replies of {} were nil", self.target))),
        }
    }

    fn turn(&mut self, requests: &mut impl Requests, turn: usize) -> Result<u64> {
        let pid = Pid::from_raw(self.server as i32)
            .ok_or_else(|| BenchError::Failed("the server has no process".to_owned()))?;
        let signal = |signal| kill_process(pid, signal).context(|| "signal the server".to_owned());
        signal(Signal::STOP)?;
        let is_stopped = within(STOP_PATIENCE, || procfs::is_stopped(self.server));
        let sent = if is_stopped { self.send(requests, turn) } else { Ok(0) };
        signal(Signal::CONT)?;
        match sent? {
            0 => Err(BenchError::Failed("the server does not stop on SIGSTOP".to_owned())),
            sent => self.receive(sent),
        }
    }

    fn send(&mut self, requests: &mut impl Requests, turn: usize) -> Result<u64> {
        let mut sent = 0;
        for index in (turn..self.set.conns.len()).step_by(self.turn_count) {
            let conn = &mut self.set.conns[index];
            (0..self.pipeline).for_each(|_| requests.append_request(&mut conn.out));
            conn.in_flight.push_back(InFlight { intended_ns: 0, count: self.pipeline as u32 });
            sent += self.pipeline as u64;
            self.set.flush(index)?;
        }
        Ok(sent)
    }

    fn receive(&mut self, sent: u64) -> Result<u64> {
        let (mut left, mut ready, mut last_ns) = (sent, Vec::new(), now_ns());
        while left > 0 {
            self.set.wait(Some(NS_PER_S), &mut ready)?;
            if ready.is_empty() && now_ns() - last_ns > SILENCE_NS {
                return Err(BenchError::Failed(format!("{} does not answer", self.target)));
            }
            for &token in &ready {
                let index = token as usize;
                self.set.flush(index)?;
                let completed = self.set.read_replies(index)?;
                if !self.set.conns[index].settle(completed, |_, _| {}) {
                    return Err(self.set.unexpected_reply());
                }
                left = left.saturating_sub(completed as u64);
                last_ns = now_ns();
            }
        }
        Ok(sent)
    }
}
