//! A blocking client for the few commands the harness itself sends (INFO, BGSAVE, GET, SHUTDOWN): the test kit's, with
//! errors that name the server.

use std::collections::HashMap;
use std::time::Duration;

pub use stillframe_testkit::{Address, Reply};

use crate::error::{BenchError, Context, Result};

pub struct Client {
    inner: stillframe_testkit::Client,
    address: String,
}

/// INFO's fields by name.
pub type Info = HashMap<String, String>;

const TIMEOUT: Duration = Duration::from_secs(120);

impl Client {
    pub fn connect(address: &Address) -> Result<Self> {
        let inner = stillframe_testkit::Client::connect(address, TIMEOUT);
        let inner = inner.context(|| format!("connect to {address}"))?;
        Ok(Self { inner, address: address.to_string() })
    }

    /// Sends a command whose reply is never read.
    pub fn send(&mut self, words: &[&str]) -> Result<()> {
        self.inner.queue(words);
        self.inner.flush().context(|| format!("{}, {}", self.address, shown(words)))
    }

    /// Waits for the reply to a command that has been sent.
    pub fn read(&mut self) -> Result<Reply> {
        self.inner.try_read().context(|| self.address.clone())
    }

    /// Sends a command and returns its reply; an error reply is returned as `Reply::Error`.
    pub fn request(&mut self, words: &[&str]) -> Result<Reply> {
        let reply = self.inner.try_run_words(words);
        reply.context(|| format!("{}, {}", self.address, shown(words)))
    }

    /// As `request`, but an error reply is an error.
    pub fn call(&mut self, words: &[&str]) -> Result<Reply> {
        match self.request(words)? {
            error @ Reply::Error(_) => Err(BenchError::ErrorReply {
                peer: "the server".to_owned(),
                address: self.address.clone(),
                command: shown(words),
                reply: error.text(),
            }),
            reply => Ok(reply),
        }
    }

    pub fn info(&mut self, section: &str) -> Result<Info> {
        self.inner.try_info(section).context(|| self.address.clone())
    }
}

/// A command as an error names it: its beginning, where it has a long value.
fn shown(words: &[&str]) -> String {
    let text = words.join(" ");
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// A numeric INFO field; `None` if the server has none of that name.
pub fn info_number(info: &Info, field: &str) -> Option<f64> {
    info.get(field).and_then(|v| v.parse().ok())
}
