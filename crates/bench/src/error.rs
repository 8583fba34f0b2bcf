//! What can go wrong in a measurement, said so that the person at the terminal can act on it.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{binary} not found: {hint}")]
    NoBinary { binary: String, hint: String },
    #[error("{peer} did not start: {why}; its log is {log}")]
    NoStart { peer: String, why: String, log: PathBuf },
    #[error("{peer} at {address} answered {command} with an error: {reply}")]
    ErrorReply { peer: String, address: String, command: String, reply: String },
    #[error("{address} sent a byte that does not start a RESP2 reply: 0x{byte:02x}; is it a Redis-protocol server?")]
    NotResp { address: String, byte: u8 },
    #[error("{address} closed the connection with {in_flight} requests unanswered; see the server's log")]
    Closed { address: String, in_flight: usize },
    #[error("{0}")]
    Failed(String),
}

pub type Result<T> = std::result::Result<T, BenchError>;

/// Adds to an I/O error what was being done when it happened.
pub trait Context<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| BenchError::Io { what: what(), source })
    }
}

impl<T> Context<T> for rustix::io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|errno| BenchError::Io { what: what(), source: errno.into() })
    }
}

impl BenchError {
    /// For errors of the embedded library.
    pub fn failed(what: &str, error: impl std::fmt::Display) -> BenchError {
        BenchError::Failed(format!("{what}: {error}"))
    }
}
