//! Wakes a generator that sleeps in its epoll set to the nanosecond; the set's own timeout is one of milliseconds.

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::time::{
    timerfd_create, timerfd_settime, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec,
};

use crate::clock::NS_PER_S;
use crate::error::{Context, Result};

/// Epoll data of the timer, which is no connection's.
pub const TIMER_TOKEN: u64 = u64::MAX;

pub struct Timer(OwnedFd);

impl Timer {
    pub fn within(epoll: &OwnedFd) -> Result<Timer> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .context(|| "create a timer".to_owned())?;
        let interest = EventFlags::IN | EventFlags::ET;
        epoll::add(epoll, timer.as_fd(), EventData::new_u64(TIMER_TOKEN), interest)
            .context(|| "add the timer to epoll".to_owned())?;
        Ok(Timer(timer))
    }

    /// Fires once, in so many nanoseconds.
    pub fn arm(&self, wait_ns: u64) -> Result<()> {
        let value = Timespec { tv_sec: (wait_ns / NS_PER_S) as i64, tv_nsec: (wait_ns % NS_PER_S) as i64 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once).context(|| "set the timer".to_owned())?;
        Ok(())
    }
}
