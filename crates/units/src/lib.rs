//! Numbers, bytes, durations, dates and quoted words as people read and write them: the server's log and `INFO`, `stillframe-fork`, the benchmark.
#![forbid(unsafe_code)]

mod dates;
mod numbers;
mod words;

pub use dates::Utc;
pub use numbers::{human_bytes, human_ns, redis_bytes, thousands};
pub use words::{quote, split, words, Unbalanced};
