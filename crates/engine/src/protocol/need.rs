//! What has to be durable before output may leave: a place in the log, by its offset.

use std::sync::Arc;

use crate::sync::atomic::{AtomicU64, Ordering};

const UNKNOWN_OFFSET: u64 = u64::MAX;

/// The need of a step that runs still. What the step tells others waits for it.
///
/// ```text
///   Running ── settle: the step has ended, and is in the log up to there ──▶ Settled
/// ```
#[derive(Debug)]
pub struct RunningNeed(AtomicU64);

impl Default for RunningNeed {
    fn default() -> Self {
        RunningNeed(AtomicU64::new(UNKNOWN_OFFSET))
    }
}

impl RunningNeed {
    /// The step has ended.
    pub fn settle(&self, end_offset: u64) {
        self.0.store(end_offset, Ordering::Release);
    }

    /// `None`: the step runs still.
    pub fn end_offset(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|end_offset| *end_offset != UNKNOWN_OFFSET)
    }
}

/// Up to which byte of the log everything must be durable. The default is nothing.
#[derive(Clone, Default, Debug)]
pub struct Need {
    end_offset: u64,
    running: Vec<Arc<RunningNeed>>,
}

impl Need {
    /// That of a step that runs still.
    pub fn of_running(step: Arc<RunningNeed>) -> Need {
        Need { end_offset: 0, running: vec![step] }
    }

    /// Whether the output may leave in any case.
    #[inline(always)]
    pub fn is_nothing(&self) -> bool {
        self.end_offset == 0 && self.running.is_empty()
    }

    /// The output depends on what the log has up to there, too.
    #[inline]
    pub fn raise(&mut self, end_offset: u64) {
        self.end_offset = self.end_offset.max(end_offset);
    }

    /// The output has another one behind it.
    pub fn join(&mut self, other: &Need) {
        self.raise(other.end_offset);
        self.running.extend(other.running.iter().cloned());
    }

    /// What is known of it so far.
    pub fn known_offset(&self) -> u64 {
        self.end_offset
    }

    /// The offset, once all steps that it depends on have ended.
    pub fn settled_offset(&mut self) -> Option<u64> {
        let mut known_offset = self.end_offset;
        self.running.retain(|step| match step.end_offset() {
            Some(end_offset) => {
                known_offset = known_offset.max(end_offset);
                false
            }
            None => true,
        });
        self.end_offset = known_offset;
        self.running.is_empty().then_some(known_offset)
    }
}
