//! A connection that is told what others do: messages of channels, keyspace notifications, lines of `MONITOR`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use crate::protocol::need::Need;
use crate::protocol::reply::UNCOUNTED_OUTPUT_BYTES;
use crate::state::clients::ClientInfo;
use crate::state::inbox::{Inbox, Taken};
use crate::state::subscription::Published;

/// Memory of a vector for the next that comes; one that has grown beyond is given back.
const KEPT_COUNT: usize = 64;

/// Something that a connection is told.
#[derive(Clone, Debug)]
pub enum Heard {
    /// A message, and what has to be durable before the connection gets it.
    Message(Arc<Published>, Need),
    /// A line of `MONITOR`, and the id of the client whose command it shows.
    Line(u64, Arc<[u8]>),
}

impl Heard {
    pub fn bytes(&self, resp3: bool) -> &[u8] {
        match self {
            Heard::Message(message, _) => message.bytes(resp3),
            Heard::Line(_, bytes) => bytes,
        }
    }

    /// Adds what has to be durable before it leaves to the need of the output that it is written to.
    #[inline]
    pub fn add_need(&self, to: &mut Need) {
        match self {
            Heard::Message(_, need) if !need.is_nothing() => to.join(need),
            // A line shows what was asked for, not what came of it.
            Heard::Message(..) | Heard::Line(..) => {}
        }
    }

    /// About as many as it has when it is written.
    pub fn byte_count(&self) -> usize {
        match self {
            Heard::Message(message, _) => message.byte_count(),
            Heard::Line(_, bytes) => bytes.len(),
        }
    }
}

/// A connection and what it has been told. There is one for each that subscribes to something or monitors.
pub struct Listener {
    pub client: Arc<ClientInfo>,
    inbox: Inbox<Heard>,
    /// Most bytes that may wait; 0 is no bound.
    bound_bytes: AtomicUsize,
}

impl Listener {
    pub fn new(client: Arc<ClientInfo>) -> Listener {
        Listener { client, inbox: Inbox::default(), bound_bytes: AtomicUsize::new(0) }
    }

    /// Tells the connection something. Returns whether its worker is to be woken.
    pub fn tell(&self, what: Heard) -> bool {
        let byte_count = what.byte_count();
        self.inbox.put(what, byte_count, self.bound_bytes.load(Ordering::Relaxed))
    }

    #[inline]
    pub fn has_heard(&self) -> bool {
        self.inbox.has_some()
    }

    /// Whether more has come than may wait.
    pub fn is_over(&self) -> bool {
        self.inbox.is_over()
    }

    /// Bytes that wait to be written to the connection's output.
    pub fn waiting_bytes(&self) -> usize {
        self.inbox.byte_count()
    }

    /// Bounds what may wait by the hard limit of the client's output; 0 is none.
    pub fn bound(&self, hard_limit_bytes: u64) {
        let bound_bytes = match usize::try_from(hard_limit_bytes) {
            Ok(limit @ 1..) => limit.saturating_add(UNCOUNTED_OUTPUT_BYTES),
            _ => 0,
        };
        self.bound_bytes.store(bound_bytes, Ordering::Relaxed);
    }

    /// Gives all that waits to `write`, in its order. `spare` is empty before and after.
    pub fn take(&self, spare: &mut Vec<Heard>, mut write: impl FnMut(&Heard)) -> Taken {
        let taken = self.inbox.take(spare);
        spare.drain(..).for_each(|heard| write(&heard));
        if spare.capacity() > KEPT_COUNT {
            *spare = Vec::new();
        }
        taken
    }
}
