//! The slow log: the commands that took longest, with their arguments cut short.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub struct SlowEntry {
    pub id: u64,
    pub unix_seconds: u64,
    pub time: Duration,
    pub args: Vec<Vec<u8>>,
    pub addr: String,
    pub client_name: Vec<u8>,
}

/// Newest first.
#[derive(Default)]
pub struct Slowlog {
    pub entries: VecDeque<SlowEntry>,
    next_id: u64,
}

impl Slowlog {
    /// Adds a call by its arguments as they are shown: cut short, and without its secrets.
    pub fn push(&mut self, args: Vec<Vec<u8>>, time: Duration, client: (&str, &[u8]), max_len: usize) {
        let (addr, name) = client;
        let unix_seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.entries.push_front(SlowEntry {
            id: self.next_id,
            unix_seconds,
            time,
            args,
            addr: addr.into(),
            client_name: name.to_vec(),
        });
        self.next_id += 1;
        self.entries.truncate(max_len);
    }
}
