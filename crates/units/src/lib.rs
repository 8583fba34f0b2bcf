//! Numbers, bytes, durations and dates as people read them: the server's log and `INFO`, `stillframe-fork`, the benchmark.
#![forbid(unsafe_code)]

mod dates;
mod numbers;

pub use dates::Utc;
pub use numbers::{human_bytes, human_ns, redis_bytes, thousands};
