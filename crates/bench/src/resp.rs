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

    /// Sends a command and returns its reply; an error reply is returned as `Reply::Error`.
    pub fn request(&mut self, words: &[&str]) -> Result<Reply> {
        let reply = self.inner.try_run_words(words);
        reply.context(|| format!("{}, {}", self.address, words.join(" ")))
    }

    /// As `request`, but an error reply is an error.
    pub fn call(&mut self, words: &[&str]) -> Result<Reply> {
        match self.request(words)? {
            error @ Reply::Error(_) => Err(BenchError::ErrorReply {
                peer: "the server".to_owned(),
                address: self.address.clone(),
                command: words.join(" "),
                reply: error.text(),
            }),
            reply => Ok(reply),
        }
    }

    pub fn info(&mut self, section: &str) -> Result<Info> {
        self.inner.try_info(section).context(|| self.address.clone())
    }
}

/// A numeric INFO field; `None` if the server has none of that name.
pub fn info_number(info: &Info, field: &str) -> Option<f64> {
    info.get(field).and_then(|v| v.parse().ok())
}
