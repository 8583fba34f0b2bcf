//! A reply whose length is not known before its end.

use super::reply::{Mark, Reply, ReplyBuf};

/// Bulk strings collected until their number is known.
#[derive(Debug)]
pub struct Collected {
    bytes: ReplyBuf,
    count: usize,
    resp3: bool,
}

impl Collected {
    /// As much as the reply has room for.
    pub fn new(reply: &Reply<'_>) -> Collected {
        let max_bytes = reply.out.max_bytes().saturating_sub(reply.out.total_bytes());
        Collected { bytes: ReplyBuf::within(max_bytes), count: 0, resp3: reply.resp3 }
    }

    pub fn push(&mut self, key: &[u8]) {
        Reply { out: &mut self.bytes, resp3: self.resp3 }.bulk(key);
        self.count += 1;
    }

    /// How far it is.
    pub fn mark(&self) -> (Mark, usize) {
        (self.bytes.mark(), self.count)
    }

    /// Forgets what has come since.
    pub fn back_to(&mut self, (mark, count): (Mark, usize)) {
        self.bytes.back_to(mark);
        self.count = count;
    }

    /// Memory that it takes.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether it has become too large for a reply.
    pub fn is_over(&self) -> bool {
        self.bytes.is_over()
    }

    pub fn reply(&self, reply: &mut Reply<'_>) {
        self.reply_after(reply, |reply, count| reply.array(count));
    }

    /// The same as a set.
    pub fn reply_set(&self, reply: &mut Reply<'_>) {
        self.reply_after(reply, |reply, count| reply.set(count));
    }

    fn reply_after(&self, reply: &mut Reply<'_>, header: fn(&mut Reply<'_>, usize)) {
        if self.bytes.is_over() {
            return reply.out.give_up();
        }
        header(reply, self.count);
        reply.out.note_values(self.count as u64);
        reply.out.extend(self.bytes.bytes());
    }
}
