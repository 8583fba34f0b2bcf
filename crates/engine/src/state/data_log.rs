//! The log of changes, as clients see it: why it cannot be written, and who waits for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::command::CmdError;
use crate::state::clients::ClientInfo;
use crate::state::session::LateReply;

const WAIT_TOLD_EVERY: Duration = Duration::from_secs(60);

/// A client in `WAITAOF`.
pub struct LogWaiter {
    pub client: Arc<ClientInfo>,
    /// Which of its replies.
    pub reply: LateReply,
    /// Durability here is asked for, and not of replicas alone.
    pub is_local: bool,
    /// It is answered once everything before is durable. `None`: no start would replay the log yet; what the log has once one would is
    /// waited for.
    pub to_offset: Option<u64>,
    /// Or then, in any case.
    pub until: Option<Instant>,
}

/// How far the log goes that a start would replay.
#[derive(Clone, Copy, Debug)]
pub struct LogEnds {
    pub end: u64,
    pub durable: u64,
}

impl LogWaiter {
    /// Whether everything that is waited for is durable.
    pub fn is_satisfied(&self, ends: Option<LogEnds>) -> bool {
        self.to_offset.zip(ends).is_some_and(|(to_offset, ends)| to_offset <= ends.durable)
    }
}

/// See the module.
#[derive(Default)]
pub struct DataLog {
    failure: Mutex<Option<String>>,
    waiters: Mutex<Vec<LogWaiter>>,
    /// Places given up for damage (`damage-policy skip`) that a checkpoint has been asked for.
    given_up_count: AtomicU64,
    /// When it was told last that changes wait.
    told_of_wait: Mutex<Option<Instant>>,
    /// The process is to end for want of a log: why.
    fatal: Mutex<Option<String>>,
}

impl DataLog {
    /// Nothing more becomes durable, for that reason; or it does again.
    pub fn set_failure(&self, reason: Option<&str>) {
        *self.failure.lock() = reason.map(str::to_owned);
    }

    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// What a command is told that may not change anything.
    pub fn error(&self) -> CmdError {
        let reason = self.failure().unwrap_or_else(|| "the log has failed".to_owned());
        format!("MISCONF Errors writing to the AOF file: {reason}").into()
    }

    /// Whether more places have been given up than at the last call.
    pub fn has_given_up(&self, given_up_count: u64) -> bool {
        self.given_up_count.swap(given_up_count, Ordering::Relaxed) != given_up_count
    }

    /// Whether it is time to tell that changes wait.
    pub fn may_tell_of_wait(&self) -> bool {
        let mut told = self.told_of_wait.lock();
        let may_tell = told.is_none_or(|at| at.elapsed() >= WAIT_TOLD_EVERY);
        if may_tell {
            *told = Some(Instant::now());
        }
        may_tell
    }

    pub fn set_fatal(&self, reason: &str) {
        self.fatal.lock().get_or_insert_with(|| reason.to_owned());
    }

    /// Why the process is to end, if it is.
    pub fn fatal(&self) -> Option<String> {
        self.fatal.lock().clone()
    }

    pub fn wait(&self, waiter: LogWaiter) {
        self.waiters.lock().push(waiter);
    }

    pub fn has_waiters(&self) -> bool {
        !self.waiters.lock().is_empty()
    }

    /// Those whose wait is over, now that so much is durable.
    pub fn take_due(&self, ends: Option<LogEnds>) -> Vec<LogWaiter> {
        let now = Instant::now();
        self.take(|waiter| {
            waiter.to_offset = waiter.to_offset.or(ends.map(|ends| ends.end));
            waiter.is_satisfied(ends) || waiter.until.is_some_and(|until| until <= now)
        })
    }

    pub fn take_all(&self) -> Vec<LogWaiter> {
        self.take(|_| true)
    }

    /// The wait of a client.
    pub fn take_of_client(&self, id: u64) -> Option<LogWaiter> {
        self.take(|waiter| waiter.client.id == id).pop()
    }

    fn take(&self, mut is_over: impl FnMut(&mut LogWaiter) -> bool) -> Vec<LogWaiter> {
        self.waiters.lock().extract_if(.., |waiter| is_over(waiter)).collect()
    }
}
