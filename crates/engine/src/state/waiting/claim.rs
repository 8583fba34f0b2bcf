//! Who answers a client that waits: exactly one of those who may.

use crate::sync::Mutex;

/// Whether a client that waits has been answered.
///
/// ```text
///              serve: there is something for it; end: its time is over, UNBLOCK, it has gone
///   Waiting ─────────────────────────────────────────────────────────────────────────────▶ Answered
///    │   ▲
///    └───┘ serve: nothing there after all, or pages are missing
/// ```
/// Whoever serves holds the lock from his look to the end of what he does for the client. So one who wants to end the wait
/// meanwhile comes before that, or after it, and what was taken for the client is never without an owner (invariant W2).
#[derive(Default)]
pub struct Claim(Mutex<Stage>);

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    Waiting,
    Answered,
}

impl Claim {
    /// Lets `answer` serve the client, unless it has been answered. It says whether it did. Returns whether the client has been
    /// answered now.
    pub fn serve(&self, answer: impl FnOnce() -> bool) -> bool {
        let mut stage = self.0.lock();
        let is_served = *stage == Stage::Waiting && answer();
        if is_served {
            *stage = Stage::Answered;
        }
        is_served
    }

    /// Ends the wait without anything for the client. Returns whether that is for the caller to tell the client.
    pub fn end(&self) -> bool {
        std::mem::replace(&mut *self.0.lock(), Stage::Answered) == Stage::Waiting
    }
}
