//! Scripts and functions that have run for longer than `busy-reply-threshold`: what is known of them outside of their workers.
//!
//! ```text
//!   (not known) ── the threshold passes: begin ──▶ KNOWN ── the run ends: Known is dropped ──▶ (not known)
//! ```
//! A run that is quick is never entered here.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use stillframe_scripting::{Halt, Interrupt};

use crate::state::fate::Fate;

/// What runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Script,
    Function,
}

impl Kind {
    /// What clients are told meanwhile.
    pub fn busy_text(self) -> &'static str {
        match self {
            Kind::Script => {
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
            }
            Kind::Function => {
                "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."
            }
        }
    }

    /// The command that ends it.
    pub fn killer(self) -> &'static str {
        match self {
            Kind::Script => "SCRIPT KILL",
            Kind::Function => "FUNCTION KILL",
        }
    }
}

/// Why nothing was ended. Its text is the reply.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum KillError {
    #[error("NOTBUSY No scripts in execution right now.")]
    NotBusy,
    #[error(
        "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the script \
         termination or kill the server in a hard way using the SHUTDOWN NOSAVE command."
    )]
    Unkillable,
    #[error("{}", .0.busy_text())]
    OtherKind(Kind),
}

/// A run that is slow.
pub struct Slow {
    /// The number of its worker.
    pub worker: usize,
    pub kind: Kind,
    /// The SHA1 of a script, the name of a function.
    pub name: String,
    /// Of the command that has called it.
    pub words: Vec<Vec<u8>>,
    pub since: Instant,
    pub fate: Fate,
    pub interrupt: Interrupt,
}

impl Slow {
    /// Ends it unless it has changed something; whether it ends.
    pub fn end(&self, why: Halt) -> bool {
        let ends = self.fate.end();
        if ends {
            self.interrupt.set(why);
        }
        ends
    }
}

/// See the module.
#[derive(Default)]
pub struct Busy {
    slow: Mutex<Vec<Arc<Slow>>>,
    count: AtomicUsize,
    is_left: AtomicBool,
}

impl Busy {
    /// Whether something is slow.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// A run is slow from now on, until the result is dropped.
    pub fn begin(self: &Arc<Busy>, slow: Slow) -> Known {
        let slow = Arc::new(slow);
        self.slow.lock().push(slow.clone());
        self.count.fetch_add(1, Ordering::AcqRel);
        Known { busy: self.clone(), slow }
    }

    /// What is slow; of several, the one that has been so for longest.
    pub fn first(&self) -> Option<Arc<Slow>> {
        self.slow.lock().first().cloned()
    }

    /// What clients are told; `None`: nothing is slow any more.
    pub fn text(&self) -> Option<&'static str> {
        self.slow.lock().first().map(|slow| slow.kind.busy_text())
    }

    /// `SCRIPT KILL`, `FUNCTION KILL`: ends what runs, in Redis's order of looking at it.
    ///
    /// # Errors
    /// Nothing runs that may be ended so.
    pub fn kill(&self, kind: Kind) -> Result<(), KillError> {
        let running = self.slow.lock().clone();
        let Some(first) = running.first() else { return Err(KillError::NotBusy) };
        let mut of_kind = running.iter().filter(|slow| slow.kind == kind && !slow.fate.has_changed());
        match of_kind.find(|slow| slow.end(Halt::Killed)) {
            Some(_) => Ok(()),
            None if first.fate.has_changed() => Err(KillError::Unkillable),
            None => Err(KillError::OtherKind(first.kind)),
        }
    }

    /// `SHUTDOWN NOSAVE`: what has changed nothing ends; the rest is left as it is, and nobody waits for it.
    pub fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
        self.slow.lock().iter().for_each(|slow| {
            slow.end(Halt::Killed);
        });
    }

    pub fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }

    /// Whether a worker will never come to an end, because what it runs has been left.
    pub fn holds_up_end(&self) -> bool {
        self.is_left() && self.slow.lock().iter().any(|slow| slow.fate.has_changed())
    }
}

/// A slow run, as long as it lasts.
pub struct Known {
    busy: Arc<Busy>,
    pub slow: Arc<Slow>,
}

impl Drop for Known {
    fn drop(&mut self) {
        self.busy.slow.lock().retain(|slow| !Arc::ptr_eq(slow, &self.slow));
        self.busy.count.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(kind: Kind) -> Slow {
        Slow {
            worker: 0,
            kind,
            name: "n".into(),
            words: Vec::new(),
            since: Instant::now(),
            fate: Fate::default(),
            interrupt: Interrupt::default(),
        }
    }

    #[test]
    fn each_kind_is_ended_by_its_own_command_until_it_changes_something() {
        let busy = Arc::new(Busy::default());
        assert_eq!(busy.kill(Kind::Script), Err(KillError::NotBusy));
        for (kind, other) in [(Kind::Script, Kind::Function), (Kind::Function, Kind::Script)] {
            let known = busy.begin(slow(kind));
            assert!(busy.is_on() && busy.text() == Some(kind.busy_text()));
            assert_eq!(busy.kill(other), Err(KillError::OtherKind(kind)));
            assert_eq!((busy.kill(kind), known.slow.interrupt.get()), (Ok(()), Some(Halt::Killed)));
            assert_eq!(busy.kill(kind), Ok(()), "as long as it has not noticed");
            assert!(!known.slow.fate.change());
            drop(known);
            let known = busy.begin(slow(kind));
            assert!(known.slow.fate.change() && known.slow.fate.change());
            assert_eq!(
                (busy.kill(kind), busy.kill(other)),
                (Err(KillError::Unkillable), Err(KillError::Unkillable))
            );
            assert!(known.slow.interrupt.get().is_none() && !busy.holds_up_end());
            busy.leave();
            assert!(busy.holds_up_end());
            drop(known);
            assert!(!busy.is_on() && !busy.holds_up_end());
            busy.is_left.store(false, Ordering::Release);
        }
    }
}
