//! The slow log: the commands that took longest, with their arguments cut short.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::command::{Args, Command};
use crate::monitor::shown;

/// As in Redis: so many arguments are kept, and so many bytes of each.
const MAX_ARGS: usize = 32;
const MAX_ARG_BYTES: usize = 128;

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
    /// Adds a call, without its secrets.
    pub fn push(
        &mut self,
        call: (&Command, &Args<'_>),
        time: Duration,
        client: (&str, &[u8]),
        max_len: usize,
    ) {
        let (addr, name) = client;
        let unix_seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.entries.push_front(SlowEntry {
            id: self.next_id,
            unix_seconds,
            time,
            args: shortened(call.0, call.1),
            addr: addr.into(),
            client_name: name.to_vec(),
        });
        self.next_id += 1;
        self.entries.truncate(max_len);
    }
}

fn shortened(command: &Command, args: &Args<'_>) -> Vec<Vec<u8>> {
    let kept = args.len().min(MAX_ARGS);
    let cut = |index: usize| {
        if args.len() > MAX_ARGS && index == MAX_ARGS - 1 {
            return format!("... ({} more arguments)", args.len() - MAX_ARGS + 1).into_bytes();
        }
        let arg = shown(command, args, index);
        if arg.len() <= MAX_ARG_BYTES {
            return arg.to_vec();
        }
        let mut cut = arg[..MAX_ARG_BYTES].to_vec();
        cut.extend_from_slice(format!("... ({} more bytes)", arg.len() - MAX_ARG_BYTES).as_bytes());
        cut
    };
    (0..kept).map(cut).collect()
}
