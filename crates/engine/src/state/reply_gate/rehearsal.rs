//! A log for tests of held replies: it counts the bytes of units and keeps none, and is durable as far as it is told to be
//! (`DEBUG REPLY-GATE`, in debug builds alone).

use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::sync::Arc;

use stillframe_store::stream::{Consumer, Encoder, Unit};
use stillframe_store::{Listener, OpError, WorkerId};

/// A part of the rule that is left out, so that tests show that they find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mistake {
    None,
    /// Output leaves whatever it needs.
    SendsAtOnce,
    /// A read needs nothing.
    ReadsAtOnce,
    /// What others are told needs nothing.
    TellsAtOnce,
}

impl Mistake {
    /// By its name in a command.
    pub fn of_name(name: &[u8]) -> Option<Mistake> {
        Some(match name {
            b"none" => Mistake::None,
            b"sends-at-once" => Mistake::SendsAtOnce,
            b"reads-at-once" => Mistake::ReadsAtOnce,
            b"tells-at-once" => Mistake::TellsAtOnce,
            _ => return None,
        })
    }
}

/// The present mistake of a gate.
#[derive(Default)]
pub struct Mistaken(AtomicU8);

impl Mistaken {
    pub fn set(&self, mistake: Mistake) {
        self.0.store(mistake as u8, Ordering::SeqCst);
    }

    pub fn is(&self, mistake: Mistake) -> bool {
        self.0.load(Ordering::SeqCst) == mistake as u8
    }
}

/// Is told of each unit: the worker whose step it is, and where it ends.
type Note = Box<dyn Fn(WorkerId, u64) + Send + Sync>;

struct Counted {
    note: Note,
    end_offset: AtomicU64,
}

impl Consumer for Counted {
    fn append(&self, unit: &Unit) {
        let len_bytes = unit.len_bytes();
        let end_offset = self.end_offset.fetch_add(len_bytes, Ordering::SeqCst) + len_bytes;
        (self.note)(unit.worker(), end_offset);
    }

    /// Of what makes no unit there is no end to wait for.
    fn fail(&self, _: &OpError) {}
}

/// See the module.
///
/// ```text
///   off ── start ──▶ counting ── stop ──▶ off
/// ```
pub struct Rehearsal(Arc<Encoder<Counted>>);

impl Rehearsal {
    pub fn new(note: Note) -> Rehearsal {
        Rehearsal(Arc::new(Encoder::new(Counted { note, end_offset: AtomicU64::new(0) })))
    }

    /// What has to hear of the store's changes, before the gate does.
    pub fn listener(&self) -> Arc<dyn Listener> {
        self.0.clone()
    }

    /// Where the log ends.
    pub fn end_offset(&self) -> u64 {
        self.0.consumer().end_offset.load(Ordering::SeqCst)
    }

    /// Units are counted from now on. To be called by a worker that is alone.
    pub fn start(&self) {
        self.0.start();
    }

    /// They are not any more. To be called as [`Rehearsal::start`] is.
    pub fn stop(&self) {
        self.0.stop();
    }
}
