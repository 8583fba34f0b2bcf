//! How far the log is durable, and which workers wait for more of that.

use crate::sync::atomic::{fence, AtomicBool, AtomicU64, Ordering};

/// Nobody waits.
const NOTHING_OFFSET: u64 = u64::MAX;

/// Of the thread that makes the log durable, and the workers that hold output.
///
/// ```text
///   worker:  ask(n) ── look again: durable? ── no ──▶ sleeps
///   log:     rise(to) ── who has asked for no more than that? ──▶ wakes them
/// ```
/// Each writes its word before it reads the other's, with a fence between: at least one of the two sees what the other has written,
/// so nobody sleeps over what is durable.
pub struct Bell {
    durable_offset: AtomicU64,
    is_holding: AtomicBool,
    has_failed: AtomicBool,
    /// By worker: the offset that it waits for.
    asked: Box<[AtomicU64]>,
}

impl Bell {
    pub fn new(worker_count: usize) -> Bell {
        Bell {
            durable_offset: AtomicU64::new(0),
            is_holding: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            asked: (0..worker_count).map(|_| AtomicU64::new(NOTHING_OFFSET)).collect(),
        }
    }

    pub fn is_holding(&self) -> bool {
        self.is_holding.load(Ordering::Acquire)
    }

    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    pub fn durable_offset(&self) -> u64 {
        self.durable_offset.load(Ordering::Acquire)
    }

    /// Output with this need, or a lower one, may leave.
    pub fn limit_offset(&self) -> u64 {
        match self.is_holding() {
            true => self.durable_offset(),
            false => u64::MAX,
        }
    }

    /// The worker waits for the log to be durable up to there; `None`: it waits for nothing. It has to look once more before it sleeps.
    pub fn ask(&self, worker: usize, offset: Option<u64>) {
        self.asked[worker].store(offset.unwrap_or(NOTHING_OFFSET), Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Everything before `to_offset` is durable. `wake` is called with each worker that has waited for no more than that.
    pub fn rise(&self, to_offset: u64, wake: impl FnMut(usize)) {
        self.durable_offset.fetch_max(to_offset, Ordering::AcqRel);
        self.ring(to_offset, wake);
    }

    /// From now on output is held, or is not.
    pub fn set_holding(&self, is_holding: bool, wake: impl FnMut(usize)) {
        self.is_holding.store(is_holding, Ordering::Release);
        if !is_holding {
            self.ring(NOTHING_OFFSET - 1, wake);
        }
    }

    /// Nothing more becomes durable, or it does again.
    pub fn set_failed(&self, has_failed: bool, wake: impl FnMut(usize)) {
        self.has_failed.store(has_failed, Ordering::Release);
        if has_failed {
            self.ring(NOTHING_OFFSET - 1, wake);
        }
    }

    /// Something else has changed that workers have asked for as offset 0.
    pub fn ring(&self, to_offset: u64, mut wake: impl FnMut(usize)) {
        fence(Ordering::SeqCst);
        for (worker, asked) in self.asked.iter().enumerate() {
            // It asks anew before it sleeps: once is enough.
            let is_due = asked.load(Ordering::Acquire) <= to_offset;
            if is_due && asked.swap(NOTHING_OFFSET, Ordering::AcqRel) != NOTHING_OFFSET {
                wake(worker);
            }
        }
    }
}
