//! What a client listens to, and the messages that it hears.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use crate::protocol::reply::{Reply, ReplyBuf};
use crate::text::glob::Glob;

/// What a subscription names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Channel,
    /// Channels that match it.
    Pattern,
    /// A channel of a shard (`SSUBSCRIBE`), which patterns do not meet.
    Shard,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Channel, Kind::Pattern, Kind::Shard];

    /// The first words of the replies to a subscription and to its end, and of a message.
    fn words(self) -> [&'static [u8]; 3] {
        match self {
            Kind::Channel => [b"subscribe", b"unsubscribe", b"message"],
            Kind::Pattern => [b"psubscribe", b"punsubscribe", b"pmessage"],
            Kind::Shard => [b"ssubscribe", b"sunsubscribe", b"smessage"],
        }
    }

    pub fn subscribed(self) -> &'static [u8] {
        self.words()[0]
    }

    pub fn unsubscribed(self) -> &'static [u8] {
        self.words()[1]
    }
}

/// What a client listens to.
#[derive(Default, Debug)]
pub struct Subscriptions {
    names: [BTreeSet<Vec<u8>>; 3],
    /// Bytes of all names, and of patterns as they are matched.
    pub byte_count: usize,
}

impl Subscriptions {
    pub fn of(&self, kind: Kind) -> &BTreeSet<Vec<u8>> {
        &self.names[kind as usize]
    }

    /// What the reply to a subscription of this kind, or to its end, counts.
    pub fn counted_with(&self, kind: Kind) -> usize {
        match kind {
            Kind::Channel | Kind::Pattern => self.of(Kind::Channel).len() + self.of(Kind::Pattern).len(),
            Kind::Shard => self.of(Kind::Shard).len(),
        }
    }

    /// All of one kind, as they are now.
    pub fn all(&self, kind: Kind) -> Vec<Vec<u8>> {
        self.of(kind).iter().cloned().collect()
    }

    pub fn is_empty(&self) -> bool {
        self.names.iter().all(BTreeSet::is_empty)
    }

    /// Whether it is a new one.
    pub fn add(&mut self, kind: Kind, name: &[u8]) -> bool {
        let is_new = self.names[kind as usize].insert(name.to_vec());
        self.byte_count += if is_new { bytes_of(kind, name) } else { 0 };
        is_new
    }

    /// Whether it was there.
    pub fn remove(&mut self, kind: Kind, name: &[u8]) -> bool {
        let was_there = self.names[kind as usize].remove(name);
        self.byte_count -= if was_there { bytes_of(kind, name) } else { 0 };
        was_there
    }
}

fn bytes_of(kind: Kind, name: &[u8]) -> usize {
    match kind {
        Kind::Pattern => name.len() + Glob::new(name, false).byte_count(),
        Kind::Channel | Kind::Shard => name.len(),
    }
}

/// A message on its way to those who have one subscription.
#[derive(Debug)]
pub struct Published {
    kind: Kind,
    /// The pattern that the channel matches, if the subscription is one.
    pattern: Vec<u8>,
    channel: Vec<u8>,
    payload: Vec<u8>,
    /// As RESP2 and RESP3 have it.
    encoded: [OnceLock<Vec<u8>>; 2],
}

impl Published {
    pub fn new(kind: Kind, pattern: &[u8], channel: &[u8], payload: &[u8]) -> Arc<Published> {
        let (pattern, channel, payload) = (pattern.to_vec(), channel.to_vec(), payload.to_vec());
        Arc::new(Published { kind, pattern, channel, payload, encoded: Default::default() })
    }

    /// About as many as it has on the wire.
    pub fn byte_count(&self) -> usize {
        const HEADERS_BYTES: usize = 40;
        self.pattern.len() + self.channel.len() + self.payload.len() + HEADERS_BYTES
    }

    pub fn bytes(&self, resp3: bool) -> &[u8] {
        self.encoded[usize::from(resp3)].get_or_init(|| self.encode(resp3))
    }

    fn encode(&self, resp3: bool) -> Vec<u8> {
        let mut out = ReplyBuf::default();
        let mut reply = Reply { resp3, out: &mut out };
        let is_pattern = self.kind == Kind::Pattern;
        reply.push(if is_pattern { 4 } else { 3 });
        reply.bulk(self.kind.words()[2]);
        if is_pattern {
            reply.bulk(&self.pattern);
        }
        reply.bulk(&self.channel);
        reply.bulk(&self.payload);
        out.bytes().to_vec()
    }
}
