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

    pub fn reply(&self, reply: &mut Reply<'_>) {
        if self.bytes.is_over() {
            return reply.out.give_up();
        }
        reply.array(self.count);
        reply.out.extend(self.bytes.bytes());
    }
}
