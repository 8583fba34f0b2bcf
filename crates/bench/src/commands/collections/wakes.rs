//! Clients that wait in BLPOP, each for a key of its own, and are woken on a schedule.

use std::time::Duration;

use crate::clock::{now_ns, NS_PER_S};
use crate::error::{BenchError, Result};
use crate::load::collections::append_command;
use crate::load::conn::{ConnSet, InFlight};
use crate::load::timer::{Timer, TIMER_TOKEN};
use crate::load::Recording;
use crate::peer::Server;
use crate::resp::{info_number, Client};

/// How long clients may take to come, or to be woken.
const PATIENCE_NS: u64 = 60 * NS_PER_S;

/// ```text
///            BLPOP            LPUSH on its key, when it is due
/// ┌──────┐ ───────► ┌───────┐ ───────────────────────────────► ┌──────┐
/// │ Idle │          │ Waits │                                  │ Wakes │
/// └──────┘          └───────┘ ◄─────────────────────────────── └──────┘
///                                its reply, and BLPOP again
/// ```
/// The connection behind those that wait sends the pushes.
pub struct Waiters {
    set: ConnSet,
    timer: Timer,
    count: usize,
    ready: Vec<u64>,
}

/// From when each push was due until its client had the item.
pub struct Woken {
    pub recording: Recording,
    pub sent_late_max_ns: u64,
}

impl Waiters {
    /// Connections that have all been answered once.
    pub fn connect(server: &Server, count: usize) -> Result<Waiters> {
        let set = ConnSet::open(&server.target, count + 1)?;
        let timer = Timer::within(&set.epoll)?;
        let mut waiters = Waiters { set, timer, count, ready: Vec::new() };
        for index in 0..=count {
            waiters.send(index, &["PING"], Some(now_ns()))?;
        }
        let mut answered = 0;
        let until_ns = now_ns() + PATIENCE_NS;
        while answered <= count {
            answered += waiters.receive(NS_PER_S, |_, _| {})?.len();
            if now_ns() > until_ns {
                return Err(BenchError::Failed(format!(
                    "{}: {answered} of {count} clients were answered within a minute",
                    server.name
                )));
            }
        }
        Ok(waiters)
    }

    /// All wait; returns when the server says so.
    pub fn block(&mut self, server: &Server, client: &mut Client) -> Result<()> {
        for index in 0..self.count {
            self.wait_for_item(index)?;
        }
        let until_ns = now_ns() + PATIENCE_NS;
        loop {
            let blocked = info_number(&client.info("clients")?, "blocked_clients").unwrap_or(0.0);
            if blocked as usize == self.count {
                return Ok(());
            }
            if now_ns() > until_ns {
                return Err(BenchError::Failed(format!(
                    "{}: {blocked} of {} clients wait: {}",
                    server.name,
                    self.count,
                    client.request(&["BLPOP", "nothing", "0.001"])?.text()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Wakes clients at this rate, each by a push on its key.
    pub fn wake(&mut self, per_second: f64, seconds: f64) -> Result<Woken> {
        let start_ns = now_ns();
        let mut woken = Woken { recording: Recording::new(start_ns), sent_late_max_ns: 0 };
        let push_count = (per_second * seconds) as u64;
        let due_ns = |push: u64| start_ns + (push as f64 * NS_PER_S as f64 / per_second) as u64;
        for push in 0..push_count {
            let due_ns = due_ns(push);
            while now_ns() < due_ns {
                self.take_items(due_ns.saturating_sub(now_ns()), &mut woken)?;
            }
            self.push(due_ns)?;
            woken.sent_late_max_ns = woken.sent_late_max_ns.max(now_ns() - due_ns);
        }
        let until_ns = now_ns() + PATIENCE_NS;
        while self.set.in_flight() > 0 {
            self.take_items(NS_PER_S / 100, &mut woken)?;
            if now_ns() > until_ns {
                let left = self.set.in_flight();
                return Err(BenchError::Failed(format!("{left} clients were not woken within a minute")));
            }
        }
        Ok(woken)
    }

    fn push(&mut self, due_ns: u64) -> Result<()> {
        let mut index = fastrand::usize(0..self.count);
        // Of clients that are being woken there are few.
        while !self.set.conns[index].in_flight.is_empty() {
            index = fastrand::usize(0..self.count);
        }
        self.set.conns[index].in_flight.push_back(InFlight { intended_ns: due_ns, count: 1 });
        self.send(self.count, &["LPUSH", &key(index), "item"], Some(due_ns))
    }

    fn take_items(&mut self, wait_ns: u64, woken: &mut Woken) -> Result<()> {
        let pusher = self.count;
        let answered = self.receive(wait_ns, |index, due_ns| {
            if index != pusher {
                woken.recording.record(due_ns, now_ns() - due_ns, 1);
            }
        })?;
        for index in answered.into_iter().filter(|index| *index != pusher) {
            self.wait_for_item(index)?;
        }
        Ok(())
    }

    /// Nothing is owed until somebody pushes.
    fn wait_for_item(&mut self, index: usize) -> Result<()> {
        self.send(index, &["BLPOP", &key(index), "0"], None)
    }

    fn send(&mut self, index: usize, words: &[&str], owed_since_ns: Option<u64>) -> Result<()> {
        let conn = &mut self.set.conns[index];
        append_command(&mut conn.out, words);
        conn.in_flight.extend(owed_since_ns.map(|intended_ns| InFlight { intended_ns, count: 1 }));
        self.set.flush(index)
    }

    /// The connections that were answered; each reply is told with the time since when it was owed.
    fn receive(&mut self, wait_ns: u64, mut told: impl FnMut(usize, u64)) -> Result<Vec<usize>> {
        let mut ready = std::mem::take(&mut self.ready);
        self.timer.arm(wait_ns.max(1))?;
        self.set.wait(None, &mut ready)?;
        let mut answered = Vec::new();
        for index in ready.iter().filter(|token| **token != TIMER_TOKEN).map(|token| *token as usize) {
            if self.set.conns[index].has_output() {
                self.set.flush(index)?;
            }
            let count = self.set.read_replies(index)?;
            if !self.set.conns[index].settle(count, |owed_since_ns, _| told(index, owed_since_ns)) {
                return Err(self.set.unexpected_reply());
            }
            answered.extend((count > 0).then_some(index));
        }
        self.ready = ready;
        Ok(answered)
    }
}

fn key(index: usize) -> String {
    format!("wait:{index:011}")
}
